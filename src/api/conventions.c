/* SPDX-License-Identifier: Apache-2.0 */
/* Query parameters and answers that every handler shares. A wrong parameter is answered here, so
 * that handlers read `if (!param_u64(…)) return;`. */
#include "api/handlers.h"

#include "api/route_json.h"
#include "base/clock.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct dir_published *api_slot(const struct exchange *x)
{
    return control_published(exchange_api(x)->control);
}

/* --- parameters --- */

/* A slice as a string; false when it does not fit or holds NUL. */
static bool to_text(struct slice s, char *out, size_t size)
{
    if (s.len >= size || (s.len > 0 && memchr(s.data, 0, s.len) != NULL)) {
        return false;
    }
    if (s.len > 0) {
        memcpy(out, s.data, s.len);
    }
    out[s.len] = '\0';
    return true;
}

bool param_u64(struct exchange *x, const char *name, uint64_t min, uint64_t max, uint64_t *value)
{
    const struct slice *given = exchange_param(x, name);
    char text[24];
    uint64_t v;
    if (given == NULL) {
        return true;
    }
    if (!to_text(*given, text, sizeof text) || !parse_u64(text, max, &v) || v < min) {
        reply_problem(x, ERR_INVALID_REQUEST,
                      "query parameter %s must be an integer from %" PRIu64 " to %" PRIu64, name,
                      min, max);
        return false;
    }
    *value = v;
    return true;
}

bool param_flag(struct exchange *x, const char *name, bool *value)
{
    char text[8];
    const struct slice *given = exchange_param(x, name);
    if (given == NULL) {
        return true;
    }
    if (to_text(*given, text, sizeof text)) {
        if (strcmp(text, "true") == 0 || text[0] == '\0') {
            *value = true;
            return true;
        }
        if (strcmp(text, "false") == 0) {
            *value = false;
            return true;
        }
    }
    reply_problem(x, ERR_INVALID_REQUEST, "query parameter %s must be true or false", name);
    return false;
}

bool param_text(struct exchange *x, const char *name, char *out, size_t size)
{
    const struct slice *given = exchange_param(x, name);
    out[0] = '\0';
    if (given == NULL || to_text(*given, out, size)) {
        return true;
    }
    reply_problem(x, ERR_INVALID_REQUEST, "query parameter %s is not valid", name);
    return false;
}

unsigned path_count(const struct exchange *x)
{
    unsigned n = 0;
    for (const char *at = exchange_route(x)->pattern; *at != '\0'; at++) {
        n += *at == '{';
    }
    return n;
}

bool path_id(const struct exchange *x, unsigned i, uint64_t *ret_id)
{
    char text[24];
    return to_text(exchange_path(x, i), text, sizeof text) &&
           parse_u64(text, PARSE_INT_MAX, ret_id);
}

/* --- problems --- */

struct members {
    const struct dir_view *view;
    const struct dir_tombstone *tombstone;
    bool has_revision, has_generation;
    dir_rev revision;
    uint64_t generation;
    const char *leader;
};

void put_revision(struct exchange *x, struct buf *out, dir_rev revision)
{
    exchange_printf_header(x, "Cadastre-Revision", "%" PRIu64, revision);
    buf_printf(out, ",\"revision\":%" PRIu64, revision);
}

static void put_members(struct exchange *x, struct buf *out, void *arg)
{
    const struct members *m = arg;
    if (m->has_revision) {
        put_revision(x, out, m->revision);
    }
    if (m->has_generation) {
        buf_printf(out, ",\"generation\":%" PRIu64, m->generation);
    }
    if (m->leader != NULL && m->leader[0] != '\0') {
        buf_put_str(out, ",\"leader\":");
        json_put_cstring(out, m->leader);
    }
    if (m->tombstone != NULL) {
        buf_printf(out,
                   ",\"partition\":%" PRIu64 ",\"retired\":true,\"routes\":", m->tombstone->id);
        successors_put(out, m->view, m->tombstone);
    }
}

PRINTF_LIKE(4, 0)
static void
reply_with(struct exchange *x, enum err_code code, struct members *m, const char *fmt, va_list args)
{
    struct err e = {.code = code};
    (void)vsnprintf(e.detail, sizeof e.detail, fmt, args);
    exchange_problem(x, &e, m != NULL ? put_members : NULL, m);
}

void reply_problem(struct exchange *x, enum err_code code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    reply_with(x, code, NULL, fmt, args);
    va_end(args);
}

/* SplitMix64 of the clock: enough to spread retries. */
uint64_t jitter_ms(void)
{
    uint64_t z = clock_mono_ns() * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z ^= z >> 27;
    return 1000 + z % 2001;
}

void reply_unavailable(struct exchange *x, enum err_code code, const char *fmt, ...)
{
    struct members m = {.has_revision = true};
    struct control_status status;
    va_list args;
    control_status(exchange_api(x)->control, &status);
    m.leader = status.leader_url;
    m.revision = view_enter(api_slot(x))->revision;
    view_leave();
    va_start(args, fmt);
    reply_with(x, code, &m, fmt, args);
    va_end(args);
}

void reply_compacted(struct exchange *x, const struct dir_view *v, const char *fmt, ...)
{
    struct members m = {.has_revision = true,
                        .revision = v->revision,
                        .has_generation = true,
                        .generation = v->generation};
    va_list args;
    va_start(args, fmt);
    reply_with(x, ERR_COMPACTED, &m, fmt, args);
    va_end(args);
}

void reply_missing(struct exchange *x,
                   const struct dir_view *v,
                   enum err_code code,
                   const char *fmt,
                   ...)
{
    struct members m = {.has_revision = true, .revision = v->revision};
    va_list args;
    va_start(args, fmt);
    reply_with(x, code, &m, fmt, args);
    va_end(args);
}

void reply_to_leader(struct exchange *x, const char *url)
{
    struct slice target = exchange_target(x);
    struct control_status status;
    struct buf location;
    struct buf *out = exchange_out(x);
    control_status(exchange_api(x)->control, &status);
    if (url[0] == '\0' || status.raft.leader == status.raft.id) {
        reply_unavailable(x, ERR_NO_LEADER, "no leader is known, or it is not ready yet");
        return;
    }
    buf_init(&location, DIR_ADDRESS_MAX + HTTP_REQUEST_LINE_MAX + 1);
    buf_put_str(&location, url);
    buf_put(&location, target.data, target.len);
    buf_put_u8(&location, '\0');
    exchange_set_header(x, "Location", (const char *)location.data);
    buf_close(&location);
    buf_reset(out);
    buf_put_str(out, "{\"leader\":");
    json_put_cstring(out, url);
    buf_put_u8(out, '}');
    exchange_reply(x, 307, NULL);
}

void reply_no_partition(struct exchange *x,
                        const struct dir_view *v,
                        const struct dir_tombstone *tombstone)
{
    struct members m = {
        .view = v, .tombstone = tombstone, .has_revision = true, .revision = v->revision};
    struct err e = {.code = ERR_PARTITION_RETIRED};
    if (tombstone == NULL) {
        reply_missing(x, v, ERR_PARTITION_NOT_FOUND, "the keyspace has no such partition");
        return;
    }
    (void)snprintf(e.detail, sizeof e.detail,
                   "partition %" PRIu64 " was retired at revision %" PRIu64, tombstone->id,
                   tombstone->retired);
    exchange_problem(x, &e, put_members, &m);
}

/* --- good answers --- */

void set_read_headers(struct exchange *x, dir_rev revision)
{
    uint64_t staleness = control_staleness_ms(exchange_api(x)->control);
    exchange_u64_header(x, "Cadastre-Revision", revision);
    exchange_u64_header(x, "Cadastre-Staleness-Ms",
                        staleness > PARSE_INT_MAX ? PARSE_INT_MAX : staleness);
}

void reply_read(struct exchange *x, dir_rev revision)
{
    set_read_headers(x, revision);
    exchange_reply(x, 200, NULL);
}

/* Weak comparison over the list (RFC 9110, 13.1.2): entity tags of ours hold no comma or quote. */
bool etag_matches(const struct exchange *x, const char *etag)
{
    const char *at = exchange_header(x, "If-None-Match");
    size_t len = strlen(etag);
    if (at == NULL) {
        return false;
    }
    while (*at != '\0') {
        at += strspn(at, " \t,");
        if (strcmp(at, "*") == 0) {
            return true;
        }
        if (strncmp(at, "W/", 2) == 0) {
            at += 2;
        }
        if (strncmp(at, etag, len) == 0 && (at[len] == '\0' || strchr(" \t,", at[len]) != NULL)) {
            return true;
        }
        at += strcspn(at, ",");
    }
    return false;
}

bool reply_not_modified(struct exchange *x, const char *etag, dir_rev revision)
{
    exchange_set_header(x, "ETag", etag);
    if (!etag_matches(x, etag)) {
        return false;
    }
    set_read_headers(x, revision);
    buf_reset(exchange_out(x));
    exchange_reply(x, 304, NULL);
    return true;
}
