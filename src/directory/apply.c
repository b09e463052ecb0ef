/* SPDX-License-Identifier: Apache-2.0 */
/* The envelope of a command: what holds for all of them.
 *
 *   decode -> version gate -> texts -> log time and retention -> dedupe -> expect_revision ->
 * handler
 *          -> revision, counts of nodes -> result -> dedupe row -> effects and changes
 *
 * A command that fails before "log time" leaves no trace at all; a refusal after it leaves log
 * time, what retention took, and, with an idempotency key, its own row. */
#include "base/assert.h"
#include "base/mem.h"
#include "base/parse.h"
#include "directory/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Ids that one command may take: the children of a split, and what comes with it. */
enum { IDS_A_COMMAND = DIR_SPLIT_KEYS_MAX + DIR_CREATE_BATCH + 16 };

enum { SCRATCH_MAX = 64 << 20 };

static enum err_code apply_nothing(struct apply *a)
{
    (void)a; /* log time has passed: that was all */
    return ERR_OK;
}

struct handler {
    const char *what;
    enum err_code (*fn)(struct apply *a);
};

#define BODY(name) CADASTRE__COMMAND__BODY_##name
enum { BODY_FIRST = BODY(BOOTSTRAP), BODY_LAST = BODY(OPERATION_RATE) };

static const struct handler handlers[BODY_LAST - BODY_FIRST + 1] = {
    [BODY(BOOTSTRAP) - BODY_FIRST] = {"bootstrap", apply_bootstrap},
    [BODY(KEYSPACE_CREATE) - BODY_FIRST] = {"keyspace_create", apply_keyspace_create},
    [BODY(KEYSPACE_GROW) - BODY_FIRST] = {"keyspace_grow", apply_keyspace_grow},
    [BODY(KEYSPACE_PATCH) - BODY_FIRST] = {"keyspace_patch", apply_keyspace_patch},
    [BODY(KEYSPACE_DELETE) - BODY_FIRST] = {"keyspace_delete", apply_keyspace_delete},
    [BODY(SPLIT) - BODY_FIRST] = {"split", apply_split},
    [BODY(MERGE) - BODY_FIRST] = {"merge", apply_merge},
    [BODY(REASSIGN) - BODY_FIRST] = {"reassign", apply_reassign},
    [BODY(PARTITION_PATCH) - BODY_FIRST] = {"partition_patch", apply_partition_patch},
    [BODY(NODE_PUT) - BODY_FIRST] = {"node_put", apply_node_put},
    [BODY(NODE_DELETE) - BODY_FIRST] = {"node_delete", apply_node_delete},
    [BODY(PLACE) - BODY_FIRST] = {"place", apply_place},
    [BODY(SERVER_PUT) - BODY_FIRST] = {"server_put", apply_server_put},
    [BODY(SERVER_REMOVE) - BODY_FIRST] = {"server_remove", apply_server_remove},
    [BODY(STATE_CHECK) - BODY_FIRST] = {"state_check", apply_nothing},
    [BODY(TICK) - BODY_FIRST] = {"tick", apply_nothing},
    [BODY(SETTINGS_PATCH) - BODY_FIRST] = {"settings_patch", apply_settings_patch},
    [BODY(SESSION_END) - BODY_FIRST] = {"session_end", apply_session_end},
    [BODY(NODE_SCHEDULING) - BODY_FIRST] = {"node_scheduling", apply_node_scheduling},
    [BODY(INSYNC_CHANGE) - BODY_FIRST] = {"insync_change", apply_insync_change},
    [BODY(FORCED_FAILOVER) - BODY_FIRST] = {"forced_failover", apply_forced_failover},
    [BODY(OPERATION_START) - BODY_FIRST] = {"operation_start", apply_operation_start},
    [BODY(OPERATION_ADMIT) - BODY_FIRST] = {"operation_admit", apply_operation_admit},
    [BODY(OPERATION_REPORT) - BODY_FIRST] = {"operation_report", apply_operation_report},
    [BODY(OPERATION_VERB) - BODY_FIRST] = {"operation_verb", apply_operation_verb},
    [BODY(OPERATION_TIMEOUT) - BODY_FIRST] = {"operation_timeout", apply_operation_timeout},
    [BODY(DUTY_DONE) - BODY_FIRST] = {"duty_done", apply_duty_done},
    [BODY(OPERATION_RELEASE) - BODY_FIRST] = {"operation_release", apply_operation_release},
    [BODY(BALANCER_PATCH) - BODY_FIRST] = {"balancer_patch", apply_balancer_patch},
    [BODY(BALANCER_PAUSE) - BODY_FIRST] = {"balancer_pause", apply_balancer_pause},
    [BODY(BALANCER_NOTE) - BODY_FIRST] = {"balancer_note", apply_balancer_note},
    [BODY(PROPOSAL_MAKE) - BODY_FIRST] = {"proposal_make", apply_proposal_make},
    [BODY(PROPOSAL_SETTLE) - BODY_FIRST] = {"proposal_settle", apply_proposal_settle},
    [BODY(PROPOSAL_MEASURE) - BODY_FIRST] = {"proposal_measure", apply_proposal_measure},
    [BODY(OPERATION_RATE) - BODY_FIRST] = {"operation_rate", apply_operation_rate},
};

static const struct handler *handler_of(const Cadastre__Command *cmd)
{
    unsigned body = (unsigned)cmd->body_case;
    if (body < BODY_FIRST || body > BODY_LAST) {
        return NULL;
    }
    return &handlers[body - BODY_FIRST];
}

static void *decode_alloc(void *arg, size_t size)
{
    (void)arg;
    return mem_alloc(size);
}

static void decode_free(void *arg, void *p)
{
    (void)arg;
    mem_free(p);
}

static ProtobufCAllocator allocator = {decode_alloc, decode_free, NULL};

Cadastre__Command *apply_decode(struct slice bytes, struct err *e)
{
    if (bytes.len > DIR_COMMAND_MAX) {
        err_set(e, ERR_TOO_LARGE, "a command is at most %d bytes", DIR_COMMAND_MAX);
        return NULL;
    }
    Cadastre__Command *cmd = cadastre__command__unpack(&allocator, bytes.len, bytes.data);
    if (cmd == NULL) {
        err_set(e, ERR_INVALID_REQUEST, "the bytes are not a command");
    }
    return cmd;
}

void apply_free(Cadastre__Command *cmd)
{
    if (cmd != NULL) {
        cadastre__command__free_unpacked(cmd, &allocator);
    }
}

static bool is_text(const char *s, size_t max)
{
    size_t n = strlen(s);
    return n <= max && parse_is_utf8(slice_of(s, n));
}

static bool is_visible_ascii(const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s < 0x21 || *s > 0x7e) {
            return false;
        }
    }
    return true;
}

/* What has to be right before the command may leave any trace. */
static enum err_code
check_envelope(const Cadastre__Command *cmd, const struct handler *handler, struct err *e)
{
    if (cmd->required_version > DIR_COMMAND_VERSION) {
        return err_set(e, ERR_NOT_READY,
                       "needs version %" PRIu32 " of the commands, this server knows version %d",
                       cmd->required_version, DIR_COMMAND_VERSION);
    }
    if (handler == NULL) {
        return err_set(e, ERR_INVALID_REQUEST, "the command has no body");
    }
    if (cmd->time_ms > DIR_REVISION_MAX) {
        return err_set(e, ERR_INVALID_REQUEST, "the command's time is out of range");
    }
    if (!is_text(cmd->principal, DIR_TEXT_MAX)) {
        return err_set(e, ERR_INVALID_REQUEST, "the principal is not a text of at most 255 bytes");
    }
    if (strlen(cmd->idempotency_key) > DIR_IDEMPOTENCY_KEY_MAX ||
        !is_visible_ascii(cmd->idempotency_key)) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "an idempotency key is 1 to %d visible ASCII characters",
                       DIR_IDEMPOTENCY_KEY_MAX);
    }
    if (cmd->idempotency_key[0] != '\0' && cmd->digest.len != 16) {
        return err_set(e, ERR_INVALID_REQUEST, "an idempotency key comes with a digest");
    }
    return ERR_OK;
}

enum err_code apply_find_keyspace(struct apply *a, uint64_t id, const struct dir_keyspace **ret_ks)
{
    const struct dir_keyspace *ks = state_keyspace(a->s, id);
    if (ks == NULL || ks->hidden) {
        return err_set(&a->err, ERR_KEYSPACE_NOT_FOUND, "no keyspace has id %" PRIu64, id);
    }
    *ret_ks = ks;
    return ERR_OK;
}

static int slot_order(const void *x, const void *y)
{
    uint64_t a = ((const struct count_slot *)x)->node, b = ((const struct count_slot *)y)->node;
    return a < b ? -1 : a > b;
}

/* Every node that is named here has a copy of what changed, so its tasks have too. Free slots have
 * id 0 and sort first. A node that is gone has no row to keep. */
static void flush_counts(struct apply *a)
{
    struct counts *c = &a->counts;
    if (c->cap == 0) {
        return;
    }
    qsort(c->slots, c->cap, sizeof c->slots[0], slot_order);
    for (uint64_t i = c->cap - c->used; i < c->cap; i++) {
        uint8_t key[8];
        const struct dir_node *n = ptree_get(&a->s->nodes, ptree_u64_key(c->slots[i].node, key));
        if (n == NULL || (c->slots[i].delta == 0 && n->task_revision == a->rev)) {
            continue;
        }
        struct dir_node *copy = row_copy(n, dir_node_size(n));
        copy->partition_count = (uint64_t)((int64_t)n->partition_count + c->slots[i].delta);
        copy->task_revision = a->rev;
        apply_put(a, copy);
    }
}

static enum err_code judge(struct apply *a)
{
    const Cadastre__Command *cmd = a->cmd;
    if (cmd->has_expect_revision && cmd->expect_revision != a->s->revision) {
        a->current_revision = a->s->revision;
        return err_set(&a->err, ERR_STALE_REVISION, "the revision is %" PRIu64 ", not %" PRIu64,
                       a->s->revision, cmd->expect_revision);
    }
    if (a->s->revision >= DIR_REVISION_MAX || a->s->next_id > DIR_REVISION_MAX - IDS_A_COMMAND) {
        return err_set(&a->err, ERR_LIMIT_EXCEEDED, "every revision or id has been used");
    }
    uint64_t rows = a->row_count;
    enum err_code code = a->handler->fn(a);
    if (code != ERR_OK) {
        ASSERT(code == a->err.code && a->row_count == rows && !a->changed);
        return code;
    }
    flush_counts(a);
    if (a->changed) {
        a->s->revision = a->rev;
    }
    ASSERT(a->changed || a->row_count == rows);
    return ERR_OK;
}

static struct dir_result *make_result(const struct apply *a)
{
    struct dir_result *r = result_new(&a->err, a->s->revision, a->routes.count);
    const struct ptree *map = a->keyspace != NULL ? state_map(a->s, a->keyspace->id) : NULL;
    r->partition = a->partition;
    r->retired = a->retired;
    r->current_epoch = a->current_epoch;
    r->current_revision = a->current_revision;
    r->session = a->session;
    r->keyspace = dir_ref(a->keyspace);
    r->partitions = map != NULL ? map->count : 0;
    r->node = dir_ref(a->node);
    r->proposal = dir_ref(a->proposal);
    r->operation = a->proposal == NULL ? dir_ref(a->operation) : NULL;
    for (uint64_t i = 0; i < a->routes.count; i++) {
        dir_route_open(&r->routes[i], a->s, a->routes.items[i]);
    }
    return r;
}

/* For the audit, which is shown as text: what is not printable is not repeated. */
static void copy_text(char *out, size_t size, const char *in)
{
    size_t n = 0;
    for (; in[n] != '\0' && n + 1 < size; n++) {
        out[n] = (char)(in[n] >= 0x20 && in[n] < 0x7f ? in[n] : '?');
    }
    out[n] = '\0';
}

static const char *reason_of(const Cadastre__Command *cmd)
{
    switch ((int)cmd->body_case) {
    case BODY(REASSIGN):
        return cmd->reassign->reason;
    case BODY(NODE_SCHEDULING):
        return cmd->node_scheduling->reason;
    case BODY(FORCED_FAILOVER):
        return cmd->forced_failover->reason;
    case BODY(OPERATION_START):
        return cmd->operation_start->reason;
    case BODY(OPERATION_VERB):
        return cmd->operation_verb->reason;
    default:
        return "";
    }
}

static struct dir_effects *make_effects(struct apply *a, uint64_t index, const struct dir_result *r)
{
    const Cadastre__Command *cmd = a->cmd;
    struct dir_effects *e = mem_zalloc(sizeof *e);
    e->index = index;
    e->revision = a->s->revision;
    e->time_ms = a->s->time_ms;
    e->changed = a->changed;
    e->kind = a->changed ? a->kind : 0;
    e->outcome = r->err.code;
    copy_text(e->what, sizeof e->what, a->handler->what);
    (void)snprintf(e->principal, sizeof e->principal, "%s", cmd->principal);
    copy_text(e->remote, sizeof e->remote, cmd->remote);
    copy_text(e->request_id, sizeof e->request_id, cmd->request_id);
    copy_text(e->idempotency_key, sizeof e->idempotency_key, cmd->idempotency_key);
    copy_text(e->subject, sizeof e->subject, a->subject);
    if (valid_text(reason_of(cmd), DIR_TEXT_MAX)) {
        (void)snprintf(e->reason, sizeof e->reason, "%s", reason_of(cmd));
    }
    dir_meta_of(a->s, &e->meta);
    e->rows = a->rows;
    e->row_count = a->row_count;
    a->rows = NULL;
    a->row_count = 0;
    return e;
}

static void make_changes(struct apply *a, struct apply_outcome *ret)
{
    touched_coalesce(a);
    ret->changes = mem_alloc((a->touched_count + 1) * sizeof ret->changes[0]);
    for (uint64_t i = 0; i < a->touched_count; i++) {
        const struct dir_keyspace *ks = state_keyspace(a->s, a->touched[i].keyspace);
        if (ks == NULL || !ks->hidden) {
            ret->changes[ret->change_count++] = touched_change(a, &a->touched[i]);
        }
    }
}

static void close_apply(struct apply *a)
{
    dir_unref(a->keyspace);
    dir_unref(a->node);
    dir_unref(a->operation);
    dir_unref(a->proposal);
    parts_close(&a->routes);
    for (uint64_t i = 0; i < a->touched_count; i++) {
        parts_close(&a->touched[i].routes);
        mem_free(a->touched[i].removed);
    }
    mem_free(a->touched);
    counts_close(&a->counts);
    buf_close(&a->scratch);
    ASSERT(a->rows == NULL);
}

/* The stored outcome of the same request, or the refusal of another with its key. */
static struct dir_result *replay(const struct apply *a)
{
    const Cadastre__Command *cmd = a->cmd;
    if (cmd->idempotency_key[0] == '\0') {
        return NULL;
    }
    return directory_lookup(a->s, cmd->principal, cmd->idempotency_key, cmd->digest.data);
}

static struct dir_result *outcome(struct apply *a)
{
    struct dir_result *r = replay(a);
    if (r != NULL) {
        return r;
    }
    (void)judge(a); /* the code is in a->err too */
    r = make_result(a);
    if (a->cmd->idempotency_key[0] != '\0') {
        retain_remember(a, r);
    }
    return r;
}

void apply_run(struct dir_view *s,
               uint64_t index,
               const Cadastre__Command *cmd,
               struct apply_outcome *ret)
{
    memset(ret, 0, sizeof *ret);
    struct err e = {.code = ERR_OK};
    const struct handler *handler = handler_of(cmd);
    if (check_envelope(cmd, handler, &e) != ERR_OK) {
        ret->result = result_new(&e, s->revision, 0);
        return;
    }
    struct apply a = {.s = s, .cmd = cmd, .handler = handler, .rev = s->revision + 1};
    buf_init(&a.scratch, SCRATCH_MAX);
    hash128_sub(&s->hash, state_scalar_hash(s));
    s->applied_index = index;
    if (cmd->time_ms > s->time_ms) {
        s->time_ms = cmd->time_ms;
    }
    retain_expire(&a);
    ret->result = outcome(&a);
    hash128_add(&s->hash, state_scalar_hash(s));
    ret->effects = make_effects(&a, index, ret->result);
    make_changes(&a, ret);
    close_apply(&a);
}

void apply_outcome_close(struct apply_outcome *o)
{
    result_unref(o->result);
    dir_effects_free(o->effects);
    for (uint64_t i = 0; i < o->change_count; i++) {
        change_unref(o->changes[i]);
    }
    mem_free(o->changes);
    memset(o, 0, sizeof *o);
}
