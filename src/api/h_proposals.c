/* SPDX-License-Identifier: Apache-2.0 */
/* Proposals of the balancer: what it would do or has done, why, and what came of it. */
#include "api/endpoints.h"
#include "api/route_json.h"

#include <inttypes.h>
#include <string.h>

static void put_text(struct buf *b, const char *member, const char *text)
{
    if (text[0] != '\0') {
        buf_printf(b, ",\"%s\":", member);
        json_put_cstring(b, text);
    }
}

static void put_time(struct buf *b, const char *member, uint64_t at_ms)
{
    if (at_ms != 0) {
        buf_printf(b, ",\"%s\":", member);
        json_put_time(b, at_ms);
    }
}

static bool has_group(const struct dir_proposal *p, uint8_t group)
{
    for (uint32_t i = 0; i < p->figure_count; i++) {
        if (p->figures[i].group == group) {
            return true;
        }
    }
    return false;
}

static void put_figures(struct buf *b, const struct dir_proposal *p, enum dir_figure_group group)
{
    const char *comma = "";
    buf_printf(b, ",\"%s\":", dir_figure_group_name(group));
    if (group == DIR_FIGURE_MEASURED && !has_group(p, group)) {
        buf_put_str(b, "null");
        return;
    }
    buf_put_u8(b, '{');
    for (uint32_t i = 0; i < p->figure_count; i++) {
        if (p->figures[i].group == group) {
            buf_put_str(b, comma);
            json_put_cstring(b, p->figures[i].name);
            buf_printf(b, ":%" PRIu64, p->figures[i].value);
            comma = ",";
        }
    }
    buf_put_u8(b, '}');
}

static void put_candidates(struct buf *b, const struct dir_proposal *p)
{
    buf_put_str(b, ",\"rejected\":[");
    for (uint32_t i = 0; i < p->candidate_count; i++) {
        buf_put_str(b, i > 0 ? ",{\"node\":" : "{\"node\":");
        json_put_cstring(b, p->candidates[i].node);
        buf_put_str(b, ",\"code\":");
        json_put_cstring(b, p->candidates[i].code);
        buf_put_u8(b, '}');
    }
    buf_put_u8(b, ']');
}

/* As the keyspace writes its keys; when it is gone, in hex. */
static void put_keys(struct buf *b, const struct dir_view *v, const struct dir_proposal *p)
{
    const struct dir_keyspace *ks = view_keyspace_by_id(v, p->keyspace);
    bool hex = ks == NULL || ks->scheme == DIR_SCHEME_HASH || ks->key_encoding == DIR_ENCODING_HEX;
    if (p->key_count == 0) {
        return;
    }
    buf_put_str(b, ",\"at\":[");
    for (uint32_t i = 0; i < p->key_count; i++) {
        buf_put_str(b, i > 0 ? "," : "");
        bound_put(b, hex, slice_of(p->keys[i].bytes, p->keys[i].len));
    }
    buf_put_u8(b, ']');
}

static void put_operations(struct buf *b, const struct dir_proposal *p)
{
    buf_put_str(b, ",\"operations\":[");
    if (p->operation != 0) {
        buf_printf(b, "%" PRIu64, p->operation);
    }
    if (p->with_operation != 0) {
        buf_printf(b, ",%" PRIu64, p->with_operation);
    }
    buf_put_u8(b, ']');
}

/* Without the last brace. */
static void put_open(struct buf *b, const struct dir_view *v, const struct dir_proposal *p)
{
    buf_printf(b,
               "{\"id\":%" PRIu64 ",\"kind\":\"%s\",\"class\":\"%s\",\"state\":\"%s\""
               ",\"keyspace\":\"%s\",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64,
               p->id, dir_proposal_kind_name(p->kind), dir_class_name(p->class_of),
               dir_proposal_state_name(p->state), p->keyspace_name, p->partition, p->epoch);
    if (p->with != 0) {
        buf_printf(b, ",\"with\":%" PRIu64, p->with);
    }
    put_text(b, "from", p->from_name);
    put_text(b, "to", p->to_name);
    put_keys(b, v, p);
    put_text(b, "code", p->reason_code);
    put_text(b, "reason", p->reason);
    for (int group = DIR_FIGURE_EVIDENCE; group <= DIR_FIGURE_MEASURED; group++) {
        put_figures(b, p, (enum dir_figure_group)group);
    }
    put_candidates(b, p);
    put_operations(b, p);
    put_time(b, "made", p->made_ms);
    put_time(b, "expires", p->state == DIR_PROPOSAL_OPEN ? p->expires_ms : 0);
    put_time(b, "settled", p->settled_ms);
    put_text(b, "settled_by", p->settled_by);
    put_text(b, "settled_why", p->settled_why);
    put_time(b, "ended", p->ended_ms);
}

static void get_one(struct exchange *x, const struct dir_view *v)
{
    struct buf *out = exchange_out(x);
    uint8_t key[8];
    uint64_t id;
    const struct dir_proposal *p =
        path_id(x, 0, &id) ? ptree_get(&v->proposals, ptree_u64_key(id, key)) : NULL;
    if (p == NULL) {
        reply_missing(x, v, ERR_PROPOSAL_NOT_FOUND, "there is no proposal of this id");
        return;
    }
    put_open(out, v, p);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", v->revision);
    reply_read(x, v->revision);
}

void h_proposal_get(struct exchange *x)
{
    read_begin(x, get_one);
}

/* --- the list --- */

struct filters {
    char state[16], keyspace[DIR_NAME_MAX + 1];
};

static bool is_state(const char *text)
{
    for (int s = DIR_PROPOSAL_OPEN; s <= DIR_PROPOSAL_EXPIRED; s++) {
        if (strcmp(text, dir_proposal_state_name((enum dir_proposal_state)s)) == 0) {
            return true;
        }
    }
    return text[0] == '\0';
}

static bool passes(const struct filters *f, const struct dir_proposal *p)
{
    return (f->state[0] == '\0' || strcmp(f->state, dir_proposal_state_name(p->state)) == 0) &&
           (f->keyspace[0] == '\0' || strcmp(f->keyspace, p->keyspace_name) == 0);
}

static void put_page(struct exchange *x, struct listing *l, const struct filters *f)
{
    struct buf *out = exchange_out(x);
    const struct dir_proposal *p;
    struct slice key = slice_of(NULL, 0);
    struct ptree_iter it;
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"proposals\":[", l->revision);
    ptree_seek(&l->view->proposals, slice_of(l->position, l->position_len), &it);
    for (; (p = ptree_iter_get(&it, &key)) != NULL; ptree_iter_next(&it)) {
        if (!passes(f, p)) {
            continue;
        }
        if (l->count == l->limit) {
            break;
        }
        if (l->count++ > 0) {
            buf_put_u8(out, ',');
        }
        put_open(out, l->view, p);
        buf_put_u8(out, '}');
    }
    buf_put_u8(out, ']');
    if (p != NULL) {
        listing_next(x, l, key);
    }
    buf_put_u8(out, '}');
}

static void get_list(struct exchange *x, const struct dir_view *v)
{
    static const char *const names[] = {"state", "keyspace", NULL};
    struct filters f;
    struct listing l;
    (void)v;
    if (!param_text(x, "state", f.state, sizeof f.state) ||
        !param_text(x, "keyspace", f.keyspace, sizeof f.keyspace)) {
        return;
    }
    if (!is_state(f.state)) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameter state is not a known one");
        return;
    }
    if (listing_begin(x, LIST_PROPOSALS, names, true, &l)) {
        put_page(x, &l, &f);
        reply_read(x, l.revision);
        listing_end(&l);
    }
}

void h_proposals_list(struct exchange *x)
{
    read_begin(x, get_list);
}

/* --- settling one --- */

static void render(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    if (r->proposal == NULL) {
        render_revision(x, m, r);
        return;
    }
    put_open(out, view_enter(api_slot(x)), r->proposal);
    view_leave();
    buf_printf(out, ",\"revision\":%" PRIu64 "}", r->revision);
    exchange_reply(x, 200, NULL);
}

static void settle(struct exchange *x, const char *name, Cadastre__ProposalVerb verb)
{
    struct mutation *m = mutation_begin(x, name, render);
    Cadastre__ProposalSettle *p;
    struct slice reason;
    if (m == NULL) {
        return;
    }
    p = exchange_alloc(x, sizeof *p);
    cadastre__proposal_settle__init(p);
    p->verb = verb;
    reason = json_in_string(&m->in, "reason", false, 0, DIR_TEXT_MAX);
    p->reason = text_lent(reason.data != NULL ? (const char *)reason.data : "");
    if (strlen(p->reason) != reason.len) {
        json_in_fail(&m->in, "reason", ERR_INVALID_REQUEST, "must not hold NUL");
    }
    if (!mutation_close(x, m)) {
        return;
    }
    if (!path_id(x, 0, &p->proposal)) {
        reply_problem(x, ERR_PROPOSAL_NOT_FOUND, "there is no proposal of this id");
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_PROPOSAL_SETTLE;
    m->command.proposal_settle = p;
    mutation_submit(x, m);
}

void h_proposal_approve(struct exchange *x)
{
    settle(x, "proposal_approve", CADASTRE__PROPOSAL_VERB__APPROVE);
}

void h_proposal_reject(struct exchange *x)
{
    settle(x, "proposal_reject", CADASTRE__PROPOSAL_VERB__REJECT);
}
