/* SPDX-License-Identifier: Apache-2.0 */
/* Strict reading of a JSON object by a table of its members: what is not in the table, of another
 * type or out of bounds is an error that names the member by JSON pointer. */
#ifndef SIMULATE_FIELDS_H
#define SIMULATE_FIELDS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_kind {
    FIELD_OTHER,    /* read by the caller */
    FIELD_NUMBER,   /* double */
    FIELD_COUNT,    /* uint64_t */
    FIELD_COUNT32,  /* uint32_t */
    FIELD_SHARE,    /* bal_q32, from a number such as 0.1 */
    FIELD_DURATION, /* uint64_t of ms, from "30s" */
    FIELD_SIZE,     /* uint64_t, from "4GiB" or a number of bytes */
    FIELD_RATE,     /* uint64_t, from "64MiB/s" */
    FIELD_FLAG,     /* bool */
    FIELD_NAME,     /* char[FIELD_NAME_MAX + 1]: a name as the API takes it */
    FIELD_TEXT      /* char[FIELD_TEXT_MAX + 1]: not longer than `max` */
};

enum { FIELD_NAME_MAX = 63, FIELD_TEXT_MAX = 255, FIELD_AT_MAX = 128 };

struct field {
    const char *name; /* NULL ends a table */
    enum field_kind kind;
    size_t offset;
    double min, max; /* of numbers, counts and durations (ms); both 0: any that is not negative */
    bool required;
};

/* The first error stays; after it nothing is read. */
struct reading {
    struct err *e;
    bool failed;
};

/* `at` is the object's own pointer. Absent members leave `base` as it is. */
void fields_read(struct reading *r,
                 const json_t *object,
                 const char *at,
                 const struct field *fields,
                 void *base);
/* Whether `object` has the member, once nothing has failed. */
const json_t *fields_get(const struct reading *r, const json_t *object, const char *name);
void fields_fail(struct reading *r, const char *at, const char *name, const char *why);

#endif
