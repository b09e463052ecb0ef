/* SPDX-License-Identifier: Apache-2.0 */
#include "api/policy_json.h"

#include "base/parse.h"

#include <stdio.h>
#include <string.h>

enum { MILLION = 1000000 };

enum policy_type { POLICY_RATIO, POLICY_COUNT, POLICY_NAMES };

/* Members that have a meaning beside those of directory/policy.h; others are kept for those who
 * gave them one. */
static const struct policy_member {
    const char *name;
    enum policy_type type;
    const char *must_be;
} policy_members[] = {
    {"uneven_access", POLICY_RATIO, "a number from 1 to 1000000"},
    {"uneven_size", POLICY_RATIO, "a number from 1 to 1000000"},
    {"too_many_items", POLICY_COUNT, "a positive integer"},
    {"too_large_bytes", POLICY_COUNT, "a positive integer"},
    {"required_checks", POLICY_NAMES, "a list of at most 16 names"},
};

static bool are_names(const json_t *array)
{
    if (!json_is_array(array) || json_array_size(array) > DIR_CHECKS_MAX) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_string(item) ||
            !parse_is_name(slice_of(json_string_value(item), json_string_length(item)))) {
            return false;
        }
    }
    return true;
}

static bool type_fits(const json_t *value, enum policy_type type)
{
    switch (type) {
    case POLICY_RATIO:
        return json_is_number(value) && json_number_value(value) >= 1 &&
               json_number_value(value) <= 1e6;
    case POLICY_COUNT:
        return json_is_integer(value) && json_integer_value(value) >= 1;
    case POLICY_NAMES:
        return are_names(value);
    }
    return false;
}

static bool is_plain(const json_t *value)
{
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            const json_t *item = json_array_get(value, i);
            if (json_is_array(item) || json_is_object(item)) {
                return false;
            }
        }
        return true;
    }
    return !json_is_object(value);
}

/* The value as the directory has it: flags are 0 and 1, the headroom is in millionths. */
static bool read_value(const json_t *value, enum dir_policy_value which, uint64_t *ret)
{
    const struct dir_policy_field *f = dir_policy_field(which);
    bool is_flag = which == DIR_POLICY_REQUIRE_WARM || which == DIR_POLICY_REVERSE_REPLICATION;
    if (is_flag) {
        *ret = json_is_true(value);
        return json_is_boolean(value);
    }
    if (which == DIR_POLICY_HEADROOM_PPM) {
        double ratio = json_number_value(value);
        bool fits = json_is_number(value) && ratio >= 1 && ratio <= (double)f->max / MILLION;
        *ret = fits ? (uint64_t)(ratio * MILLION + 0.5) : 0;
        return fits;
    }
    bool fits = json_is_integer(value) && json_integer_value(value) >= 0;
    *ret = fits ? (uint64_t)json_integer_value(value) : 0;
    return fits && *ret >= f->min && *ret <= f->max;
}

/* What it must be, or NULL when it is that, or may be anything. */
static const char *unfit(const char *name, const json_t *value)
{
    uint64_t number;
    for (size_t i = 0; i < sizeof policy_members / sizeof policy_members[0]; i++) {
        const struct policy_member *known = &policy_members[i];
        if (strcmp(known->name, name) == 0) {
            return type_fits(value, known->type) ? NULL : known->must_be;
        }
    }
    for (int i = 0; i < DIR_POLICY_VALUES; i++) {
        const struct dir_policy_field *f = dir_policy_field((enum dir_policy_value)i);
        if (strcmp(f->name, name) == 0) {
            return read_value(value, (enum dir_policy_value)i, &number) ? NULL : f->must_be;
        }
    }
    return NULL;
}

static enum err_code check_member(const char *name, const json_t *value, struct err *e)
{
    char pointer[96];
    if (!parse_is_name(slice_of(name, strlen(name)))) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/policy",
                          "the name of one of its members is not valid");
    }
    (void)snprintf(pointer, sizeof pointer, "/policy/%s", name);
    if (!is_plain(value)) {
        return err_set_at(e, ERR_INVALID_REQUEST, pointer, "must be a scalar or a list of scalars");
    }
    const char *must_be = unfit(name, value);
    return must_be == NULL ? ERR_OK
                           : err_set_at(e, ERR_INVALID_REQUEST, pointer, "must be %s", must_be);
}

void policy_rules_init(struct policy_rules *r)
{
    memset(r, 0, sizeof *r);
    cadastre__policy_rules__init(&r->message);
    r->message.values = r->value_of;
    r->message.required_checks = r->name_of;
}

static void read_rules(json_t *policy, struct policy_rules *r)
{
    policy_rules_init(r);
    for (int i = 0; i < DIR_POLICY_VALUES; i++) {
        const char *name = dir_policy_field((enum dir_policy_value)i)->name;
        const json_t *value = json_object_get(policy, name);
        Cadastre__PolicyValue *to = &r->values[r->message.n_values];
        cadastre__policy_value__init(to);
        to->which = (uint32_t)i;
        if (value != NULL && read_value(value, (enum dir_policy_value)i, &to->value)) {
            r->value_of[r->message.n_values++] = to;
        }
    }
    const json_t *checks = json_object_get(policy, "required_checks");
    for (size_t i = 0; are_names(checks) && i < json_array_size(checks); i++) {
        const json_t *name = json_array_get(checks, i);
        memcpy(r->names[i], json_string_value(name), json_string_length(name));
        r->name_of[r->message.n_required_checks++] = r->names[i];
    }
}

enum err_code policy_merge(json_t *patch,
                           struct slice old,
                           struct buf *out,
                           struct policy_rules *rules,
                           struct err *e)
{
    json_t *merged = json_loadb((const char *)old.data, old.len, 0, NULL);
    const char *name;
    json_t *value;
    enum err_code code = ERR_OK;
    size_t before = out->len;
    if (merged == NULL) {
        merged = json_object();
    }
    json_object_foreach(patch, name, value)
    {
        if (json_is_null(value)) {
            (void)json_object_del(merged, name);
            continue;
        }
        code = check_member(name, value, e);
        if (code != ERR_OK) {
            break;
        }
        (void)json_object_set(merged, name, value);
    }
    if (code == ERR_OK) {
        json_put_canonical(out, merged);
        read_rules(merged, rules);
        if (out->len - before > POLICY_MAX || out->overflow) {
            code = err_set_at(e, ERR_INVALID_REQUEST, "/policy", "is larger than %d bytes",
                              POLICY_MAX);
        }
    }
    json_decref(merged);
    return code;
}
