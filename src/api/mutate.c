/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a command: leader, idempotency, digest, submission, and its outcome as an answer.
 * Whatever is answered after apply is rendered from the result alone, so that a replay gives the
 * first answer again. */
#include "api/handlers.h"

#include "api/route_json.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- handing an outcome over --- */

struct handover *
handover_park(struct exchange *x, exchange_ready ready, exchange_gone gone, uint64_t timeout_ms)
{
    struct handover *h = mem_zalloc(sizeof *h);
    h->ticket = exchange_ticket(x);
    exchange_park(x, ready, gone, clock_mono_ms() + timeout_ms);
    return h;
}

void handover_free(void *handover)
{
    struct handover *h = handover;
    result_unref(h->result);
    mem_free(h);
}

void handover_done(void *handover, const struct control_outcome *outcome)
{
    struct handover *h = handover;
    h->status = outcome->status;
    h->result = outcome->result != NULL ? result_ref(outcome->result) : NULL;
    memcpy(h->leader_url, outcome->leader_url, sizeof h->leader_url);
    h->leader_url[sizeof h->leader_url - 1] = '\0';
    exchange_wake(h->ticket, h, handover_free);
}

void handover_refused(struct handover *h, enum err_code status)
{
    h->status = status;
    exchange_wake(h->ticket, h, handover_free);
}

bool reply_outcome(struct exchange *x, enum err_code status, const char *leader_url)
{
    if (status == ERR_OK) {
        return false;
    }
    if (status == ERR_NOT_LEADER) {
        reply_to_leader(x, leader_url);
    } else if (status == ERR_OUTCOME_UNKNOWN) {
        reply_unavailable(x, status,
                          "the outcome is open: send it again with the same Idempotency-Key");
    } else if (err_http_status(status) == 503) {
        reply_unavailable(x, status, "too many requests wait: try again later");
    } else {
        reply_problem(x, status, "the request was refused");
    }
    return true;
}

bool leads(struct exchange *x)
{
    struct control_status status;
    control_status(exchange_api(x)->control, &status);
    if (!status.raft.active) {
        reply_to_leader(x, status.leader_url);
    }
    return status.raft.active;
}

/* --- before --- */

static bool take_key(struct exchange *x, struct mutation *m)
{
    const char *key = exchange_header(x, "Idempotency-Key");
    size_t len;
    if (key == NULL) {
        return true;
    }
    len = strlen(key);
    for (size_t i = 0; i < len; i++) {
        if (key[i] < 0x21 || key[i] > 0x7e) {
            len = 0;
        }
    }
    if (len < 1 || len > DIR_IDEMPOTENCY_KEY_MAX) {
        reply_problem(x, ERR_INVALID_REQUEST,
                      "Idempotency-Key must be 1 to 128 visible ASCII characters");
        return false;
    }
    memcpy(m->idempotency_key, key, len + 1);
    return true;
}

static void decref(void *json)
{
    json_decref(json);
}

static bool take_body(struct exchange *x, struct mutation *m)
{
    struct slice body = exchange_body(x);
    m->body = body.len == 0 ? json_object() : json_parse_object(body, &m->err);
    if (m->body == NULL) {
        exchange_problem(x, &m->err, NULL, NULL);
        return false;
    }
    exchange_on_end(x, decref, m->body);
    json_in_open(&m->in, m->body, "", &m->err);
    return true;
}

static void put_part(struct buf *b, const void *data, size_t len)
{
    uint64_t n = len;
    buf_put(b, &n, sizeof n);
    buf_put(b, data, len);
}

/* What makes two requests the same: verb, path variables, the query parameters that change the
 * meaning, the body. */
static void take_digest(const struct exchange *x, struct mutation *m, const char *verb)
{
    static const char *const params[] = {"confirm", "force", "session"};
    struct buf b, body;
    struct hash128 hash;
    buf_init(&b, API_RESPONSE_MAX);
    buf_init(&body, API_RESPONSE_MAX);
    put_part(&b, verb, strlen(verb));
    for (unsigned i = 0; i < path_count(x); i++) {
        struct slice part = exchange_path(x, i);
        put_part(&b, part.data, part.len);
    }
    for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
        const struct slice *value = exchange_param(x, params[i]);
        put_part(&b, value != NULL ? value->data : NULL, value != NULL ? value->len : 0);
    }
    json_put_canonical(&body, m->body);
    put_part(&b, body.data, body.len);
    hash = hash_xxh3_128(b.data, b.len);
    memcpy(m->digest, &hash, sizeof m->digest);
    buf_close(&b);
    buf_close(&body);
}

static void answer(struct exchange *x, const struct mutation *m, const struct dir_result *r);

/* A stored outcome comes before anything is looked up by name: the names may be gone by now. */
static bool replayed(struct exchange *x, const struct mutation *m)
{
    struct dir_result *r;
    if (m->idempotency_key[0] == '\0') {
        return false;
    }
    r = directory_lookup(view_enter(api_slot(x)), exchange_principal(x), m->idempotency_key,
                         m->digest);
    view_leave();
    if (r == NULL) {
        return false;
    }
    answer(x, m, r);
    result_unref(r);
    return true;
}

struct mutation *mutation_begin(struct exchange *x, const char *verb, mutation_render render)
{
    struct mutation *m;
    if (!leads(x)) {
        return NULL;
    }
    m = exchange_alloc(x, sizeof *m);
    memset(m, 0, sizeof *m);
    m->render = render;
    cadastre__command__init(&m->command);
    if (!take_key(x, m) || !take_body(x, m)) {
        return NULL;
    }
    take_digest(x, m, verb);
    if (replayed(x, m)) {
        return NULL;
    }
    m->command.required_version = DIR_COMMAND_VERSION;
    m->command.principal = text_lent(exchange_principal(x));
    m->command.idempotency_key = m->idempotency_key;
    m->command.digest = (ProtobufCBinaryData){sizeof m->digest, m->digest};
    m->command.request_id = text_lent(exchange_request_id(x));
    m->command.remote = text_lent(exchange_remote(x));
    return m;
}

bool mutation_close(struct exchange *x, struct mutation *m)
{
    bool present = false;
    m->command.expect_revision =
        json_in_u64(&m->in, "expect_revision", false, 0, PARSE_INT_MAX, &present);
    m->command.has_expect_revision = present;
    if (json_in_close(&m->in) != ERR_OK) {
        exchange_problem(x, &m->err, NULL, NULL);
        return false;
    }
    return true;
}

void mutation_expect_epoch(struct mutation *m, protobuf_c_boolean *has, uint64_t *epoch)
{
    bool present = false;
    *epoch = json_in_u64(&m->in, "expect_epoch", false, 0, PARSE_INT_MAX, &present);
    *has = present;
}

bool mutation_keyspace(struct exchange *x, uint64_t *ret_id)
{
    const struct dir_keyspace *ks = read_keyspace(x, view_enter(api_slot(x)));
    if (ks != NULL) {
        *ret_id = ks->id;
    }
    view_leave();
    return ks != NULL;
}

/* A retired id goes on to apply, which names its successors. */
bool mutation_partition(struct exchange *x, uint64_t *ret_id)
{
    const struct dir_view *v = view_enter(api_slot(x));
    const struct dir_keyspace *ks = read_keyspace(x, v);
    const struct dir_tombstone *tombstone = NULL;
    bool found = false;
    if (ks != NULL) {
        found = path_id(x, 1, ret_id) &&
                (view_partition(v, ks, *ret_id, &tombstone) != NULL || tombstone != NULL);
        if (!found) {
            reply_no_partition(x, v, NULL);
        }
    }
    view_leave();
    return found;
}

/* --- after --- */

static void put_refusal(struct exchange *x, struct buf *out, void *arg)
{
    const struct dir_result *r = arg;
    bool stale = r->err.code == ERR_STALE_REVISION;
    put_revision(x, out, stale ? r->current_revision : r->revision);
    if (r->err.code == ERR_PARTITION_BUSY && r->operation != NULL) {
        buf_printf(out, ",\"operation\":%" PRIu64, r->operation->id);
    }
    if (!r->retired && r->route_count != 1) {
        return;
    }
    buf_printf(out, ",\"partition\":%" PRIu64, r->partition);
    if (r->current_epoch > 0) {
        buf_printf(out, ",\"epoch\":%" PRIu64, r->current_epoch);
    }
    if (r->retired) {
        buf_put_str(out, ",\"retired\":true,\"routes\":");
        routes_put(out, r);
    } else {
        struct route_image image;
        route_of_result(&image, &r->routes[0]);
        buf_put_str(out, ",\"route\":");
        route_put(out, &image);
    }
}

static void answer(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    if (r->replayed) {
        exchange_set_header(x, "Idempotency-Replayed", "true");
    }
    if (r->err.code == ERR_OK) {
        exchange_u64_header(x, "Cadastre-Revision", r->revision);
        m->render(x, m, r);
    } else {
        /* The members only read it. */
        union {
            const struct dir_result *in;
            void *out;
        } arg = {r};
        exchange_problem(x, &r->err, put_refusal, arg.out);
    }
}

static void settle(const struct mutation *m)
{
    if (m->settled != NULL) {
        m->settled(m->settled_arg);
    }
}

static void outcome_ready(struct exchange *x, void *arg)
{
    struct handover *h = arg;
    settle(exchange_state(x));
    if (!reply_outcome(x, h->status, h->leader_url)) {
        answer(x, exchange_state(x), h->result);
    }
    handover_free(h);
}

static void outcome_gone(struct exchange *x, bool timed_out)
{
    settle(exchange_state(x));
    if (timed_out) {
        (void)reply_outcome(x, ERR_OUTCOME_UNKNOWN, "");
    }
}

void mutation_submit(struct exchange *x, struct mutation *m)
{
    struct control *control = exchange_api(x)->control;
    struct handover *h;
    enum err_code code;
    exchange_set_state(x, m);
    h = handover_park(x, outcome_ready, outcome_gone, API_COMMAND_TIMEOUT_MS);
    if (m->chunked) {
        code = control_create_keyspace(control, &m->command, m->bounds, m->bound_count,
                                       handover_done, h);
    } else {
        code = control_submit(control, &m->command, handover_done, h);
    }
    if (code != ERR_OK) {
        handover_refused(h, code);
    }
}

void render_revision(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    (void)m;
    buf_printf(exchange_out(x), "{\"revision\":%" PRIu64 "}", r->revision);
    exchange_reply(x, 200, NULL);
}
