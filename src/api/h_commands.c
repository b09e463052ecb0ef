/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a command, by its Idempotency-Key: for those whose answer was lost. */
#include "api/endpoints.h"

#include "api/route_json.h"

#include <inttypes.h>
#include <string.h>

static void put_retained(struct exchange *x, struct buf *out, void *arg)
{
    const struct dir_view *v = arg;
    put_revision(x, out, v->revision);
    buf_put_str(out, ",\"retained_since\":");
    json_put_time(out, directory_dedupe_since_ms(v));
}

static void put_outcome(struct buf *out, const struct dir_result *r)
{
    if (r->err.code != ERR_OK) {
        buf_printf(out, ",\"status\":\"refused\",\"code\":\"%s\",\"http_status\":%d,\"detail\":",
                   err_slug(r->err.code), err_http_status(r->err.code));
        json_put_cstring(out, r->err.detail);
    } else {
        buf_put_str(out, ",\"status\":\"applied\"");
    }
    buf_printf(out, ",\"applied_revision\":%" PRIu64, r->revision);
    if (r->keyspace != NULL) {
        buf_printf(out, ",\"keyspace\":\"%s\"", r->keyspace->name);
    }
    if (r->partition != 0) {
        buf_printf(out, ",\"partition\":%" PRIu64, r->partition);
    }
    if (r->node != NULL) {
        buf_printf(out, ",\"node\":\"%s\"", r->node->name);
    }
    if (r->session != 0) {
        buf_printf(out, ",\"session\":%" PRIu64, r->session);
    }
    if (r->operation != NULL) {
        buf_printf(out, ",\"operation\":%" PRIu64, r->operation->id);
    }
    if (r->route_count > 0) {
        buf_put_str(out, ",\"routes\":");
        routes_put(out, r);
    }
}

static void get_command(struct exchange *x, const struct dir_view *v)
{
    struct buf *out = exchange_out(x);
    struct slice key = exchange_path(x, 0);
    char text[DIR_IDEMPOTENCY_KEY_MAX + 1] = "";
    struct dir_result *r = NULL;
    if (key.len < sizeof text && memchr(key.data, 0, key.len) == NULL) {
        memcpy(text, key.data, key.len);
        text[key.len] = '\0';
        r = directory_lookup(v, exchange_principal(x), text, NULL);
    }
    if (r == NULL) {
        struct err e;
        union {
            const struct dir_view *in;
            void *out;
        } arg = {v};
        (void)err_set(&e, ERR_COMMAND_NOT_FOUND, "no command with this key was applied so far");
        exchange_problem(x, &e, put_retained, arg.out);
        return;
    }
    buf_printf(out, "{\"revision\":%" PRIu64, v->revision);
    put_outcome(out, r);
    buf_put_u8(out, '}');
    result_unref(r);
    reply_read(x, v->revision);
}

void h_command_get(struct exchange *x)
{
    read_begin_linearizable(x, get_command);
}
