/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine that the replica drives, and the status that every thread may read. */
#include "control/internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A command of a newer version, or a leader's state check that this server's state does not pass.
 */
static void stop_here(uint64_t index, const struct dir_result *result)
{
    bool diverged = result->err.code == ERR_CORRUPT;
    log_fatal(EXIT_DIVERGED, diverged ? "state.diverged" : "command.unknown",
              "index=%" PRIu64 " detail=\"%s\" advice=\"%s\"", index, result->err.detail,
              diverged ? "keep the data directory for analysis and join as a new server"
                       : "upgrade this server");
}

static void *machine_apply(void *ctx, uint64_t index, const uint8_t *bytes, size_t len)
{
    struct control *c = ctx;
    struct dir_effects *effects = NULL;
    struct dir_result *result =
        directory_apply(c->parts.directory, index, slice_of(bytes, len), &effects);
    if (result->err.code == ERR_NOT_READY || result->err.code == ERR_CORRUPT) {
        stop_here(index, result);
    }
    if (effects != NULL) {
        loads_on_rows(c->loads, effects, clock_mono_ms());
        if (c->active) {
            heartbeat_on_rows(c, effects);
            balancer_on_rows(c, effects);
        }
        store_push(c->parts.store, effects);
    }
    return result;
}

static void machine_drop_result(void *ctx, void *result)
{
    (void)ctx;
    result_unref(result);
}

static void note_log_time(struct control *c)
{
    uint64_t time_ms = directory_state(c->parts.directory)->time_ms;
    if (time_ms != c->seen_time_ms) {
        c->seen_time_ms = time_ms;
        c->seen_mono_ms = clock_mono_ms();
    }
}

/* Tells the replica where its peers are when the member table has changed. Not before it runs: what
 * a start finds in an old snapshot is older than what the replica kept. */
static void note_servers(struct control *c)
{
    const struct ptree *servers = &directory_state(c->parts.directory)->servers;
    if (c->replica == NULL || servers->root == c->seen_servers) {
        return;
    }
    struct replica_peer peers[REPLICA_SERVERS_MAX];
    struct ptree_iter it;
    const struct dir_server *s;
    unsigned count = 0;
    for (ptree_seek(servers, slice_of(NULL, 0), &it);
         (s = ptree_iter_get(&it, NULL)) != NULL && count < REPLICA_SERVERS_MAX;
         ptree_iter_next(&it)) {
        if (!s->removed) {
            struct replica_peer *p = &peers[count++];
            p->id = s->id;
            (void)snprintf(p->raft_address, sizeof p->raft_address, "%s", s->raft_address);
        }
    }
    if (replica_locate(c->replica, peers, count)) {
        c->seen_servers = servers->root;
    }
}

static void machine_applied(void *ctx, uint64_t index)
{
    struct control *c = ctx;
    (void)index;
    note_log_time(c);
    note_servers(c);
    directory_publish(c->parts.directory);
    if (c->replica != NULL) {
        replica_hold(c->replica, store_lag(c->parts.store) > STORE_QUEUE_MAX / 2);
        duties_after_apply(c);
    }
}

static void *machine_snapshot_begin(void *ctx, uint64_t index)
{
    struct control *c = ctx;
    return store_snapshot_begin(c->parts.store, index);
}

static int
machine_snapshot_wait(void *ctx, void *snapshot, const uint8_t *ret_piece[2], size_t ret_len[2])
{
    (void)ctx;
    struct slice pieces[2];
    struct err e;
    if (store_snapshot_wait(snapshot, pieces, &e) != ERR_OK) {
        log_event(LOG_ERROR, "snapshot.failed", "detail=\"%s\"", e.detail);
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        ret_piece[i] = pieces[i].data;
        ret_len[i] = pieces[i].len;
    }
    return 0;
}

static void machine_snapshot_end(void *ctx, void *snapshot)
{
    (void)ctx;
    store_snapshot_end(snapshot);
}

static int machine_restore(void *ctx, const uint8_t *bytes, size_t len)
{
    struct control *c = ctx;
    struct err e;
    if (store_restore(c->parts.store, c->parts.directory, slice_of(bytes, len), &e) != ERR_OK) {
        log_event(LOG_ERROR, "snapshot.damaged", "detail=\"%s\"", e.detail);
        return -1;
    }
    note_log_time(c);
    note_servers(c);
    const struct dir_view *state = directory_state(c->parts.directory);
    loads_sweep(c->loads, state);
    log_event(LOG_INFO, "snapshot.restored", "index=%" PRIu64 " revision=%" PRIu64 " bytes=%zu",
              state->applied_index, state->revision, len);
    return 0;
}

/* Runs in the loop's next turn: no replica call may be made from inside the callback. */
static void leadership_changed(void *arg)
{
    struct control *c = arg;
    if (c->active) {
        duties_on_active(c);
    }
    control_sample(c);
}

/* The wall clock, as far as it may be believed. Log time never goes back, and retention counts in
 * it: one leader whose clock is a day ahead would make every stored outcome of a command expire at
 * once. Who has followed another leader knows about what time it is; who has not (after a start of
 * all) has only its own clock. */
static uint64_t believed_wall_ms(const struct control *c)
{
    uint64_t wall = clock_wall_ms();
    uint64_t most = c->seen_time_ms + (clock_mono_ms() - c->seen_mono_ms) + CONTROL_LEAP_MS;
    if (atomic_load(&c->heard_ms) == 0 || c->seen_time_ms == 0 || wall <= most) {
        return wall;
    }
    log_event(LOG_WARN, "clock.ahead",
              "ahead_ms=%" PRIu64
              " reason=\"this server's clock is far ahead of the last leader's\"",
              wall - most + CONTROL_LEAP_MS);
    return most;
}

static void machine_leadership(void *ctx, bool active, uint64_t term)
{
    struct control *c = ctx;
    log_event(LOG_INFO, active ? "leader.active" : "leader.lost", "term=%" PRIu64, term);
    c->active = active;
    c->term = term;
    c->placing = false;
    if (active) {
        heartbeat_on_active(c);
        operations_on_active(c);
        guardrails_on_active(c);
        recovery_on_active(c);
    }
    uint64_t wall = active ? believed_wall_ms(c) : 0;
    uint64_t known = directory_state(c->parts.directory)->time_ms;
    c->anchor_time_ms = wall > known ? wall : known;
    c->anchor_mono_ms = clock_mono_ms();
    c->check_ms = c->last_command_ms = c->anchor_mono_ms;
    if (active) {
        balancer_on_active(c); /* it counts in log time */
    }
    if (c->replica != NULL) {
        replica_post(c->replica, leadership_changed, c);
    }
}

static int machine_knows(void *ctx, uint64_t id, const uint8_t instance[REPLICA_INSTANCE_SIZE])
{
    struct control *c = ctx;
    uint8_t key[8];
    const struct dir_server *s =
        ptree_get(&directory_state(c->parts.directory)->servers, ptree_u64_key(id, key));
    if (s == NULL) {
        return -1;
    }
    return !s->removed && memcmp(s->instance, instance, REPLICA_INSTANCE_SIZE) == 0;
}

uint64_t control_log_time(const struct control *c)
{
    uint64_t now = c->anchor_time_ms + (clock_mono_ms() - c->anchor_mono_ms);
    uint64_t known = directory_state(c->parts.directory)->time_ms;
    return now > known ? now : known;
}

void control_leader_url(const struct control *c, char out[DIR_ADDRESS_MAX + 1])
{
    struct replica_status status;
    uint8_t key[8];
    out[0] = '\0';
    replica_status(c->replica, &status);
    if (status.leader == 0) {
        return;
    }
    const struct dir_server *s =
        ptree_get(&directory_state(c->parts.directory)->servers, ptree_u64_key(status.leader, key));
    if (s != NULL) {
        (void)snprintf(out, DIR_ADDRESS_MAX + 1, "%s", s->api_url);
    }
}

void control_sample(struct control *c)
{
    struct control_status s = {0};
    uint64_t now = clock_mono_ms();
    replica_status(c->replica, &s.raft);
    control_leader_url(c, s.leader_url);
    s.store_lag = store_lag(c->parts.store);
    s.loop_lag_ms = c->sampled_ms > 0 && now - c->sampled_ms > CONTROL_SAMPLE_MS
                        ? now - c->sampled_ms - CONTROL_SAMPLE_MS
                        : 0;
    if (s.loop_lag_ms > c->loop_lag_max_ms) {
        c->loop_lag_max_ms = s.loop_lag_ms;
    }
    s.loop_lag_max_ms = c->loop_lag_max_ms;
    s.loop_turned_ms = now;
    s.commands = atomic_load(&c->commands);
    s.refused = atomic_load(&c->refused);
    s.replayed = atomic_load(&c->replayed);
    s.confirms = atomic_load(&c->confirms);
    s.beats = atomic_load(&c->beats);
    s.recovery = recovery_last(c);
    s.stopping = atomic_load(&c->stopping);
    atomic_store(&c->heard_ms, s.raft.heard_ms);
    (void)pthread_mutex_lock(&c->lock);
    c->shared = s;
    (void)pthread_mutex_unlock(&c->lock);
}

static void on_sample(uv_timer_t *timer)
{
    struct control *c = timer->data;
    control_sample(c);
    c->sampled_ms = clock_mono_ms();
    heartbeat_on_sample(c);
    operations_on_sample(c);
    guardrails_on_sample(c);
    recovery_on_sample(c);
    balancer_on_sample(c);
    duties_on_sample(c);
}

static void on_reconcile(uv_timer_t *timer)
{
    members_reconcile(timer->data);
}

struct control *control_new(const struct control_parts *parts)
{
    struct control *c = mem_zalloc(sizeof *c);
    c->parts = *parts;
    (void)pthread_mutex_init(&c->lock, NULL);
    c->loads = loads_new();
    heartbeat_init(c);
    recovery_init(c);
    balancer_init(c);
    c->machine = (struct replica_machine){.ctx = c,
                                          .apply = machine_apply,
                                          .drop_result = machine_drop_result,
                                          .applied = machine_applied,
                                          .snapshot_begin = machine_snapshot_begin,
                                          .snapshot_wait = machine_snapshot_wait,
                                          .snapshot_end = machine_snapshot_end,
                                          .restore = machine_restore,
                                          .leadership = machine_leadership,
                                          .knows = machine_knows};
    return c;
}

const struct replica_machine *control_machine(struct control *c)
{
    return &c->machine;
}

void control_attach(struct control *c, struct replica *r)
{
    ASSERT(c->replica == NULL);
    c->replica = r;
    c->sample_timer.data = c->reconcile_timer.data = c;
    int rv = uv_timer_init(c->parts.loop, &c->sample_timer);
    ASSERT(rv == 0);
    rv = uv_timer_start(&c->sample_timer, on_sample, CONTROL_SAMPLE_MS, CONTROL_SAMPLE_MS);
    ASSERT(rv == 0);
    rv = uv_timer_init(c->parts.loop, &c->reconcile_timer);
    ASSERT(rv == 0);
    rv = uv_timer_start(&c->reconcile_timer, on_reconcile, CONTROL_RECONCILE_MS,
                        CONTROL_RECONCILE_MS);
    ASSERT(rv == 0);
    heartbeat_attach(c);
    control_sample(c);
    if (c->active) { /* a sole voter leads before replica_start returns */
        replica_post(r, leadership_changed, c);
    }
}

void control_stop(struct control *c)
{
    atomic_store(&c->stopping, true);
}

void control_status(const struct control *c, struct control_status *ret_status)
{
    struct control *mine = (struct control *)(uintptr_t)c; /* the lock is not part of the value */
    (void)pthread_mutex_lock(&mine->lock);
    *ret_status = c->shared;
    (void)pthread_mutex_unlock(&mine->lock);
    ret_status->stopping = atomic_load(&c->stopping);
}

uint64_t control_staleness_ms(const struct control *c)
{
    uint64_t heard = atomic_load(&c->heard_ms), now = clock_mono_ms();
    if (heard == 0) {
        return UINT64_MAX;
    }
    return now > heard ? now - heard : 0;
}

const struct dir_published *control_published(const struct control *c)
{
    return directory_published(c->parts.directory);
}

struct dir_feed *control_feed(const struct control *c)
{
    return directory_feed(c->parts.directory);
}

struct store *control_store(const struct control *c)
{
    return c->parts.store;
}

struct loads *control_loads(const struct control *c)
{
    return c->loads;
}

const struct replica_identity *control_identity(const struct control *c)
{
    return c->parts.identity;
}
