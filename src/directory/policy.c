/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/policy.h"

#include "base/assert.h"
#include "base/parse.h"
#include "directory/budget.h"
#include "directory/internal.h"

#include <stdio.h>

enum { PPM = 1000000 };
#define TIME_MS_MAX (UINT64_C(365) * 24 * 3600 * 1000)

static const char a_count[] = "an integer from 0 to 9007199254740991";
static const char a_time[] = "an integer from 1 to 31536000000";
static const char a_pause[] = "an integer from 0 to 31536000000";
static const char a_flag[] = "true or false";

static const struct dir_policy_field fields[DIR_POLICY_VALUES] = {
    [DIR_POLICY_CUTOVER_LAG_BYTES] = {"cutover_lag_bytes", 0, DIR_REVISION_MAX, a_count},
    [DIR_POLICY_HEADROOM_PPM] = {"headroom", PPM, UINT64_C(100) * PPM, "a number from 1 to 100"},
    [DIR_POLICY_MAX_CHECKSUM_FAILURES] = {"max_checksum_failures", 0, DIR_REVISION_MAX, a_count},
    [DIR_POLICY_VALIDATION_WINDOW_MS] = {"validation_window_ms", 0, TIME_MS_MAX, a_pause},
    [DIR_POLICY_STAGE_TIMEOUT_MS] = {"stage_timeout_ms", 1, TIME_MS_MAX, a_time},
    [DIR_POLICY_DUAL_WRITE_MAX_MS] = {"dual_write_max_ms", 1, TIME_MS_MAX, a_time},
    [DIR_POLICY_FENCE_MAX_MS] = {"fence_max_ms", 1, TIME_MS_MAX, a_time},
    [DIR_POLICY_RELEASE_MS] = {"release_ms", 0, TIME_MS_MAX, a_pause},
    [DIR_POLICY_REQUIRE_WARM] = {"require_warm", 0, 1, a_flag},
    [DIR_POLICY_REVERSE_REPLICATION] = {"reverse_replication", 0, 1, a_flag},
};

const struct dir_policy_field *dir_policy_field(enum dir_policy_value which)
{
    ASSERT(which < DIR_POLICY_VALUES);
    return &fields[which];
}

static uint64_t otherwise(const struct dir_settings *s, enum dir_policy_value which)
{
    switch (which) {
    case DIR_POLICY_CUTOVER_LAG_BYTES:
        return s->cutover_lag_bytes;
    case DIR_POLICY_HEADROOM_PPM:
        return UINT64_C(12) * PPM / 10;
    case DIR_POLICY_MAX_CHECKSUM_FAILURES:
        return 100;
    case DIR_POLICY_VALIDATION_WINDOW_MS:
        return s->validation_window_ms;
    case DIR_POLICY_STAGE_TIMEOUT_MS:
        return s->stage_timeout_ms;
    case DIR_POLICY_DUAL_WRITE_MAX_MS:
        return s->dual_write_max_ms;
    case DIR_POLICY_FENCE_MAX_MS:
        return s->fence_max_ms;
    case DIR_POLICY_RELEASE_MS:
        return s->budgets.release_ms;
    case DIR_POLICY_REQUIRE_WARM:
    case DIR_POLICY_REVERSE_REPLICATION:
    case DIR_POLICY_VALUES:
        break;
    }
    return 0;
}

uint64_t
dir_policy_get(const struct dir_view *v, const struct dir_keyspace *ks, enum dir_policy_value which)
{
    bool set = ks != NULL && (ks->rules.set >> which & 1) != 0;
    return set ? ks->rules.values[which] : otherwise(&v->settings, which);
}

uint64_t dir_policy_space(const struct dir_view *v, const struct dir_keyspace *ks, uint64_t bytes)
{
    uint64_t more = dir_policy_get(v, ks, DIR_POLICY_HEADROOM_PPM) - PPM;
    if (bytes > DIR_REVISION_MAX) {
        return UINT64_MAX;
    }
    return bytes + bytes / PPM * more + (bytes % PPM * more + PPM - 1) / PPM;
}

enum err_code policy_check_text(struct err *e, const ProtobufCBinaryData *policy)
{
    if (policy->len > DIR_POLICY_MAX) {
        return err_set_at(e, ERR_TOO_LARGE, "/policy", "a policy has at most %d bytes",
                          DIR_POLICY_MAX);
    }
    if (!parse_is_utf8(slice_of(policy->data, policy->len)) ||
        (policy->len > 0 && memchr(policy->data, 0, policy->len) != NULL)) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/policy", "a policy is text");
    }
    return ERR_OK;
}

static enum err_code
read_value(struct err *e, const Cadastre__PolicyValue *in, struct dir_policy *out)
{
    char pointer[64];
    if (in->which >= DIR_POLICY_VALUES) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/policy", "it has a value of an unknown kind");
    }
    const struct dir_policy_field *f = &fields[in->which];
    if (in->value < f->min || in->value > f->max) {
        (void)snprintf(pointer, sizeof pointer, "/policy/%s", f->name);
        return err_set_at(e, ERR_INVALID_REQUEST, pointer, "must be %s", f->must_be);
    }
    out->set |= UINT32_C(1) << in->which;
    out->values[in->which] = in->value;
    return ERR_OK;
}

enum err_code policy_read(struct err *e, const Cadastre__PolicyRules *in, struct dir_policy *out)
{
    memset(out, 0, sizeof *out);
    if (in == NULL) {
        return ERR_OK;
    }
    for (size_t i = 0; i < in->n_values; i++) {
        if (read_value(e, in->values[i], out) != ERR_OK) {
            return e->code;
        }
    }
    if (in->n_required_checks > DIR_CHECKS_MAX) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/policy/required_checks", "at most %d of them",
                          DIR_CHECKS_MAX);
    }
    for (size_t i = 0; i < in->n_required_checks; i++) {
        const char *name = in->required_checks[i];
        if (!parse_is_name(slice_of(name, strlen(name)))) {
            return err_set_at(e, ERR_INVALID_REQUEST, "/policy/required_checks",
                              "must be a list of names");
        }
        memcpy(out->checks[out->check_count++], name, strlen(name));
    }
    return ERR_OK;
}

bool policy_in_range(const struct dir_policy *p)
{
    for (uint32_t i = 0; i < DIR_POLICY_VALUES; i++) {
        if ((p->set >> i & 1) != 0 &&
            (p->values[i] < fields[i].min || p->values[i] > fields[i].max)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < p->check_count; i++) {
        if (!parse_is_name(slice_of(p->checks[i], strlen(p->checks[i])))) {
            return false;
        }
    }
    return true;
}

bool policy_equal(const struct dir_policy *a, const struct dir_policy *b)
{
    bool same = a->set == b->set && a->check_count == b->check_count &&
                memcmp(a->values, b->values, sizeof a->values) == 0;
    for (uint32_t i = 0; same && i < a->check_count; i++) {
        same = strcmp(a->checks[i], b->checks[i]) == 0;
    }
    return same;
}

/* Nobody fails for going as slowly as it was told to. */
static uint64_t stretched(const struct dir_operation *o, uint64_t limit_ms)
{
    uint64_t ppm = o->throttle.share_ppm;
    return ppm != 0 ? limit_ms * DIR_SHARE_FULL_PPM / ppm : limit_ms;
}

uint64_t dir_policy_stage_limit_ms(const struct dir_view *v, const struct dir_operation *o)
{
    const struct dir_keyspace *ks = view_keyspace_by_id(v, o->keyspace);
    switch ((int)o->stage) {
    case DIR_STAGE_DUAL_WRITE:
        return dir_policy_get(v, ks, DIR_POLICY_DUAL_WRITE_MAX_MS);
    case DIR_STAGE_FENCE:
    case DIR_STAGE_CUTOVER:
        return dir_policy_get(v, ks, DIR_POLICY_FENCE_MAX_MS);
    case DIR_STAGE_WINDOW:
        return dir_policy_get(v, ks, DIR_POLICY_VALIDATION_WINDOW_MS);
    case DIR_STAGE_CLEANUP:
        return UINT64_MAX; /* it waits for its node, however long that is away */
    default:
        return stretched(o, dir_policy_get(v, ks, DIR_POLICY_STAGE_TIMEOUT_MS));
    }
}
