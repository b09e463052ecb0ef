/* SPDX-License-Identifier: Apache-2.0 */
/* A strict pull parser for JSON that builds nothing: for bodies that are large or frequent, and to
 * check those that jansson then reads. Stricter than RFC 8259: at most JSON_DEPTH_MAX levels,
 * integers within PARSE_INT_MAX either way, no NUL in a name, at most SCAN_MEMBERS_MAX members in
 * an object.
 *
 *     scan_open(&s, body, true);
 *     while ((event = scan_next(&s)) != SCAN_END && event != SCAN_ERROR) { … }
 *     code = event == SCAN_ERROR ? scan_error(&s, e) : ERR_OK;
 *     scan_close(&s); */
#ifndef API_SCAN_H
#define API_SCAN_H

#include "api/json.h"

enum scan_event {
    SCAN_OBJECT,
    SCAN_OBJECT_END,
    SCAN_ARRAY,
    SCAN_ARRAY_END,
    SCAN_NAME, /* of a member; its value comes next */
    SCAN_STRING,
    SCAN_INTEGER, /* s->integer */
    SCAN_REAL,    /* s->span is its text */
    SCAN_TRUE,
    SCAN_FALSE,
    SCAN_NULL,
    SCAN_END, /* the text was one whole value, and nothing followed */
    SCAN_ERROR
};

enum { SCAN_MEMBERS_MAX = 10000, SCAN_NUMBER_MAX = 128, SCAN_FEW = 16 };

struct scan_level {
    bool array;
    uint64_t index;         /* of the present element, or how many members began */
    struct slice name;      /* of the present member, as written; data NULL: none yet */
    uint64_t few[SCAN_FEW]; /* hashes of the members' names; more are in a table */
    uint64_t *table;        /* owns; 0 is an empty slot */
    size_t table_cap;
};

struct scan {
    struct slice text;
    size_t at;
    bool unique; /* refuse members that come twice */
    unsigned depth;
    int expect;
    struct slice span; /* of the last name, string or number as written, without the quotes */
    bool escaped;      /* it has backslashes: scan_copy() it */
    int64_t integer;
    const char *error; /* what is wrong, or NULL */
    struct scan_level levels[JSON_DEPTH_MAX];
};

/* Borrows the text. `unique`: refuse duplicate members; without it the caller sees to that. */
void scan_open(struct scan *s, struct slice text, bool unique);
void scan_close(struct scan *s);
enum scan_event scan_next(struct scan *s);

/* Whether the last name or string is `word` (which needs no escapes). */
bool scan_is(const struct scan *s, const char *word);
/* The last name or string, unescaped; at most s->span.len bytes. Returns its length, or SIZE_MAX
 * when `size` is too small. No NUL is added. */
size_t scan_copy(const struct scan *s, uint8_t *out, size_t size);
/* After SCAN_NAME, or before an element: passes over the value. False at an error. */
bool scan_skip(struct scan *s);

/* The JSON Pointer of the present place, cut at the size. */
void scan_pointer(const struct scan *s, char *out, size_t size);
/* For errors of the caller's own, and for what scan_next() found. Both return ERR_INVALID_REQUEST.
 */
enum err_code scan_refuse(const struct scan *s, struct err *e, const char *what);
enum err_code scan_error(const struct scan *s, struct err *e);

/* Appends one step of a JSON Pointer to `out` (NUL-terminated, of this size), escaped; cut when it
 * does not fit. */
void scan_pointer_add(char *out, size_t size, struct slice step);

#endif
