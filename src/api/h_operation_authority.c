/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write while an operation is under way, and what can be asked of it. */
#include "api/endpoints.h"
#include "directory/operation_authority.h"

#include <inttypes.h>

static void put_holder(struct buf *b, const struct operation_authority *a)
{
    if (a->node == NULL) {
        buf_printf(b, ",\"authority\":null,\"nobody\":\"%s\"", dir_nobody_name(a->nobody));
        return;
    }
    buf_printf(b,
               ",\"authority\":{\"node\":\"%s\",\"session\":%" PRIu64
               ",\"session_live\":%s,\"epoch\":%" PRIu64 ",\"fenced\":%s}",
               a->node->name, a->session, a->session_live ? "true" : "false", a->epoch,
               a->fenced ? "true" : "false");
}

static void put_verbs(struct buf *b, unsigned verbs)
{
    const char *comma = "";
    buf_put_str(b, ",\"verbs\":[");
    for (unsigned v = 1; v <= DIR_VERB_LAST; v <<= 1) {
        if (verbs & v) {
            buf_printf(b, "%s\"%s\"", comma, dir_verb_name((enum dir_verb)v));
            comma = ",";
        }
    }
    buf_put_u8(b, ']');
}

static void get(struct exchange *x, const struct dir_view *v)
{
    struct buf *out = exchange_out(x);
    struct operation_authority a;
    uint64_t id;
    const struct dir_operation *op = path_id(x, 0, &id) ? view_operation(v, id) : NULL;
    if (op == NULL) {
        reply_missing(x, v, ERR_OPERATION_NOT_FOUND, "there is no operation of this id");
        return;
    }
    operation_authority_of(v, op, &a);
    buf_printf(out,
               "{\"operation\":%" PRIu64 ",\"state\":\"%s\",\"stage\":\"%s\",\"attempt\":%" PRIu32,
               op->id, dir_operation_state_name(op->state), dir_stage_name(op->stage), op->attempt);
    put_holder(out, &a);
    if (a.epoch != 0) {
        buf_printf(out, ",\"epoch\":%" PRIu64, a.epoch);
    }
    buf_printf(out, ",\"past_cutover\":%s,\"way_back\":\"%s\",\"recovery\":\"%s\"",
               a.past_cutover ? "true" : "false", dir_way_back_name(a.way_back),
               dir_recovery_name(a.recovery));
    put_verbs(out, a.verbs);
    buf_put_str(out, ",\"why\":");
    json_put_cstring(out, a.why);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", v->revision);
    reply_read(x, v->revision);
}

void h_operation_authority(struct exchange *x)
{
    read_begin(x, get);
}
