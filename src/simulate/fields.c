/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/fields.h"

#include "balancer/fixed.h"
#include "base/parse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void fields_fail(struct reading *r, const char *at, const char *name, const char *why)
{
    char pointer[2 * FIELD_AT_MAX];
    if (r->failed) {
        return;
    }
    r->failed = true;
    (void)snprintf(pointer, sizeof pointer, "%s%s%s", at, name[0] != '\0' ? "/" : "", name);
    (void)err_set_at(r->e, ERR_INVALID_REQUEST, pointer, "%s", why);
}

const json_t *fields_get(const struct reading *r, const json_t *object, const char *name)
{
    return r->failed ? NULL : json_object_get(object, name);
}

static bool in_bounds(const struct field *f, double v)
{
    return f->min == 0 && f->max == 0 ? v >= 0 && v <= (double)PARSE_INT_MAX
                                      : v >= f->min && v <= f->max;
}

static const char *take_count(const struct field *f, const json_t *v, void *to)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return "a whole number that is not negative";
    }
    uint64_t n = (uint64_t)json_integer_value(v);
    if (!in_bounds(f, (double)n)) {
        return NULL;
    }
    if (f->kind == FIELD_COUNT32) {
        uint32_t small = (uint32_t)n;
        memcpy(to, &small, sizeof small);
    } else {
        memcpy(to, &n, sizeof n);
    }
    return "";
}

static const char *take_number(const struct field *f, const json_t *v, void *to)
{
    double n = json_number_value(v);
    if (!json_is_number(v) || !isfinite(n)) {
        return "a number";
    }
    if (!in_bounds(f, n)) {
        return NULL;
    }
    bal_q32 share = (bal_q32)(n * (double)BAL_ONE);
    memcpy(to, f->kind == FIELD_SHARE ? (void *)&share : (void *)&n, sizeof n);
    return "";
}

static const char *take_quantity(const struct field *f, const json_t *v, void *to)
{
    const char *text = json_string_value(v);
    uint64_t n = 0;
    bool good;
    if (f->kind == FIELD_DURATION) {
        good = text != NULL && parse_duration_ms(text, &n);
    } else if (f->kind == FIELD_RATE) {
        good = text != NULL && parse_rate_bytes(text, &n);
    } else {
        bool plain = json_is_integer(v) && json_integer_value(v) >= 0;
        n = plain ? (uint64_t)json_integer_value(v) : 0;
        good = plain || (text != NULL && parse_size_bytes(text, &n));
    }
    if (!good) {
        return f->kind == FIELD_DURATION ? "a duration such as \"30s\""
               : f->kind == FIELD_RATE   ? "bytes a second such as \"64MiB/s\""
                                         : "a size such as \"4GiB\"";
    }
    if (!in_bounds(f, (double)n)) {
        return NULL;
    }
    memcpy(to, &n, sizeof n);
    return "";
}

static const char *take_text(const struct field *f, const json_t *v, void *to)
{
    const char *text = json_string_value(v);
    size_t len = text != NULL ? strlen(text) : 0;
    if (text == NULL || len != json_string_length(v)) {
        return "a text";
    }
    if (f->kind == FIELD_NAME ? !parse_is_name(slice_of(text, len)) : len > FIELD_TEXT_MAX) {
        return f->kind == FIELD_NAME ? "a name" : NULL;
    }
    memcpy(to, text, len + 1);
    return "";
}

static const char *take_flag(const json_t *v, void *to)
{
    bool flag = json_is_true(v);
    if (!json_is_boolean(v)) {
        return "true or false";
    }
    memcpy(to, &flag, sizeof flag);
    return "";
}

/* What it should have been; NULL: it is out of bounds; "": it was taken. */
static const char *take(const struct field *f, const json_t *v, void *to)
{
    switch (f->kind) {
    case FIELD_OTHER:
        return "";
    case FIELD_NUMBER:
    case FIELD_SHARE:
        return take_number(f, v, to);
    case FIELD_COUNT:
    case FIELD_COUNT32:
        return take_count(f, v, to);
    case FIELD_DURATION:
    case FIELD_SIZE:
    case FIELD_RATE:
        return take_quantity(f, v, to);
    case FIELD_FLAG:
        return take_flag(v, to);
    case FIELD_NAME:
    case FIELD_TEXT:
        return take_text(f, v, to);
    }
    return "";
}

static void
take_one(struct reading *r, const json_t *v, const char *at, const struct field *f, void *base)
{
    char why[FIELD_AT_MAX];
    const char *wanted = take(f, v, (char *)base + f->offset);
    if (wanted == NULL && f->kind == FIELD_TEXT) {
        fields_fail(r, at, f->name, "it is too long");
    } else if (wanted == NULL) {
        double max = f->min == 0 && f->max == 0 ? (double)PARSE_INT_MAX : f->max;
        (void)snprintf(why, sizeof why, "it must be from %.10g to %.16g%s", f->min, max,
                       f->kind == FIELD_DURATION ? " ms" : "");
        fields_fail(r, at, f->name, why);
    } else if (wanted[0] != '\0') {
        (void)snprintf(why, sizeof why, "%s is wanted", wanted);
        fields_fail(r, at, f->name, why);
    }
}

static bool is_known(const struct field *fields, const char *name)
{
    while (fields->name != NULL && strcmp(fields->name, name) != 0) {
        fields++;
    }
    return fields->name != NULL;
}

static void
refuse_unknown(struct reading *r, const json_t *object, const char *at, const struct field *fields)
{
    union {
        const json_t *in;
        json_t *out;
    } u = {.in = object}; /* json_object_iter takes one that may be changed */
    for (void *it = json_object_iter(u.out); it != NULL; it = json_object_iter_next(u.out, it)) {
        const char *name = json_object_iter_key(it);
        if (!is_known(fields, name)) {
            char shown[FIELD_AT_MAX];
            (void)snprintf(shown, sizeof shown, "%s", name);
            fields_fail(r, at, shown, "there is no such field");
        }
    }
}

void fields_read(struct reading *r,
                 const json_t *object,
                 const char *at,
                 const struct field *fields,
                 void *base)
{
    if (r->failed) {
        return;
    }
    if (!json_is_object(object)) {
        fields_fail(r, at, "", "an object is wanted");
        return;
    }
    refuse_unknown(r, object, at, fields);
    for (const struct field *f = fields; f->name != NULL && !r->failed; f++) {
        const json_t *v = json_object_get(object, f->name);
        if (v != NULL) {
            take_one(r, v, at, f, base);
        } else if (f->required) {
            fields_fail(r, at, f->name, "it is missing");
        }
    }
}
