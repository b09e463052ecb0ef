/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats and lapses (docs/movement.md, 2 and 3).
 *
 * A heartbeat is answered after a quorum has confirmed this leader later than it arrived, and is
 * judged by what is applied by then. Those of one batch share a confirmation, which is an entry of
 * the log: so batches, not heartbeats, cost one. A session's end is proposed only while no
 * heartbeat of it waits; from then until the command's fate is known, none is answered. */
#include "control/internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct beat {
    struct control *control;
    char node[DIR_NAME_MAX + 1];
    dir_rev session;
    uint64_t counted, term; /* id of the node whose lease counts it as waiting in this term, or 0 */
    control_beat_done done;
    void *arg;
    struct beat *next;
};

static void answer(struct beat *b, const struct control_beat *outcome)
{
    atomic_fetch_sub(&b->control->beats_queued, 1);
    b->done(b->arg, outcome);
    mem_free(b);
}

static void answer_status(struct beat *b, enum err_code status)
{
    struct control_beat outcome = {.status = status};
    if (status == ERR_NOT_LEADER) {
        control_leader_url(b->control, outcome.leader_url);
    }
    answer(b, &outcome);
}

static const struct dir_node *node_of(const struct beat *b)
{
    return view_node(directory_state(b->control->parts.directory),
                     slice_of(b->node, strlen(b->node)));
}

static void uncount(struct beat *b)
{
    struct lease *l = leases_find(&b->control->leases, b->counted, b->session);
    if (l != NULL && l->waiting > 0 && b->term == b->control->term) {
        l->waiting--;
    }
}

/* The leader is confirmed: by what is applied now, is the session still the node's? */
static void judge(struct beat *b)
{
    struct control *c = b->control;
    const struct dir_view *state = directory_state(c->parts.directory);
    const struct dir_node *n = node_of(b);
    if (n == NULL || n->session != b->session || !view_node_is_live(n)) {
        answer_status(b, n == NULL ? ERR_NODE_NOT_FOUND : ERR_SESSION_ENDED);
        return;
    }
    struct lease *l = leases_find(&c->leases, n->id, b->session);
    if (!n->is_static && (l == NULL || l->ending)) {
        answer_status(b, ERR_NOT_READY);
        return;
    }
    if (l != NULL) {
        leases_renew(&c->leases, l, clock_boot_ms());
    }
    struct control_beat outcome = {.status = ERR_OK,
                                   .lease_ms = n->lease_ms,
                                   .heartbeat_ms = state->settings.heartbeat_ms,
                                   .revision = state->revision};
    atomic_fetch_add(&c->beats, 1);
    answer(b, &outcome);
}

static void submit(struct control *c);

static void on_confirmed(void *arg, enum err_code status)
{
    struct control *c = arg;
    struct beat *b = c->beats_riding;
    c->beats_riding = NULL;
    c->beats_in_flight = false;
    while (b != NULL) {
        struct beat *next = b->next;
        uncount(b);
        if (status == ERR_OK) {
            judge(b);
        } else {
            answer_status(b, status);
        }
        b = next;
    }
    submit(c);
}

static void on_batch(uv_timer_t *timer)
{
    submit(timer->data);
}

/* The first one goes at once; what arrives within BEATS_BATCH_MS of it goes together. */
static void submit(struct control *c)
{
    uint64_t now = clock_mono_ms();
    if (c->beats_waiting == NULL || c->beats_in_flight) {
        return;
    }
    if (now < c->beats_sent_ms + BEATS_BATCH_MS) {
        int rv =
            uv_timer_start(&c->beats_timer, on_batch, c->beats_sent_ms + BEATS_BATCH_MS - now, 0);
        ASSERT(rv == 0);
        return;
    }
    c->beats_riding = c->beats_waiting;
    c->beats_waiting = NULL;
    c->beats_in_flight = true;
    c->beats_sent_ms = now;
    enum err_code code = replica_confirm(c->replica, on_confirmed, c);
    if (code != ERR_OK) {
        on_confirmed(c, code);
    }
}

static void arrive(void *arg)
{
    struct beat *b = arg;
    struct control *c = b->control;
    if (!c->active || atomic_load(&c->stopping)) {
        answer_status(b, ERR_NOT_LEADER);
        return;
    }
    const struct dir_node *n = node_of(b);
    struct lease *l = n != NULL ? leases_find(&c->leases, n->id, b->session) : NULL;
    if (l != NULL && l->ending) {
        answer_status(b, ERR_NOT_READY);
        return;
    }
    if (l != NULL) {
        l->waiting++;
        b->counted = n->id;
        b->term = c->term;
    }
    b->next = c->beats_waiting;
    c->beats_waiting = b;
    submit(c);
}

enum err_code control_heartbeat(struct control *c,
                                const char *node,
                                uint64_t session,
                                control_beat_done done,
                                void *arg)
{
    if (atomic_fetch_add(&c->beats_queued, 1) >= CONTROL_BEATS_MAX) {
        atomic_fetch_sub(&c->beats_queued, 1);
        return ERR_OVERLOADED;
    }
    struct beat *b = mem_zalloc(sizeof *b);
    b->control = c;
    (void)snprintf(b->node, sizeof b->node, "%s", node);
    b->session = session;
    b->done = done;
    b->arg = arg;
    replica_post(c->replica, arrive, b);
    return ERR_OK;
}

/* --- lapses --- */

struct ending {
    struct control *control;
    uint64_t node, term;
    dir_rev session;
};

static struct lease *lease_of(struct control *c, const struct ending *e)
{
    struct lease *l = leases_find(&c->leases, e->node, e->session);
    return l != NULL ? l : leases_find_before(&c->leases, e->node, e->session);
}

static void on_ended(void *arg, enum err_code status, void *result)
{
    struct ending *e = arg;
    struct control *c = e->control;
    result_unref(result);
    /* Applied, it has left the table. A table of another term knows nothing of this command. */
    struct lease *l = c->active && c->term == e->term ? lease_of(c, e) : NULL;
    if (l != NULL) {
        l->proposed = false;
        l->ending = l->ending && status == ERR_OUTCOME_UNKNOWN;
    }
    mem_free(e);
}

static bool propose_end(void *arg, uint64_t node, struct lease *l)
{
    struct control *c = arg;
    const struct dir_node *n = view_node_by_id(directory_state(c->parts.directory), node);
    ASSERT(n != NULL);
    char name[DIR_NAME_MAX + 1];
    memcpy(name, n->name, sizeof name);
    Cadastre__SessionEnd body;
    cadastre__session_end__init(&body);
    Cadastre__Command command;
    cadastre__command__init(&command);
    body.node = name;
    body.session = l->session;
    command.body_case = CADASTRE__COMMAND__BODY_SESSION_END;
    command.session_end = &body;
    struct ending *e = mem_alloc(sizeof *e);
    *e = (struct ending){c, node, c->term, l->session};
    l->proposed = true;
    l->ending = true;
    if (!control_propose_own(c, &command, on_ended, e)) {
        l->proposed = false;
        l->ending = false; /* surely not applied */
        mem_free(e);
        return false;
    }
    log_event(LOG_WARN, "session.lapsed", "node=%s session=%" PRIu64 " lease_ms=%" PRIu64, name,
              l->session, l->lease_ms);
    return true;
}

void heartbeat_init(struct control *c)
{
    leases_open(&c->leases);
    c->beats_timer.data = c;
}

void heartbeat_attach(struct control *c)
{
    int rv = uv_timer_init(c->parts.loop, &c->beats_timer);
    ASSERT(rv == 0);
    c->beats_timer.data = c;
}

void heartbeat_on_active(struct control *c)
{
    c->turned_boot_ms = clock_boot_ms();
    leases_restart(&c->leases, directory_state(c->parts.directory), c->turned_boot_ms);
}

void heartbeat_on_rows(struct control *c, const struct dir_effects *effects)
{
    uint64_t now = clock_boot_ms();
    for (uint64_t i = 0; i < effects->row_count; i++) {
        const void *after = effects->rows[i].after, *before = effects->rows[i].before;
        const void *any = after != NULL ? after : before;
        if (any != NULL && ((const struct dir_object *)any)->kind == DIR_KIND_NODE) {
            leases_note(&c->leases, ((const struct dir_node *)any)->id, after, now);
        }
    }
}

void heartbeat_on_sample(struct control *c)
{
    uint64_t now = clock_boot_ms();
    bool stalled = now > c->turned_boot_ms + CONTROL_SAMPLE_MS + CONTROL_STALL_MS;
    if (stalled && c->active) {
        /* Heartbeats may lie unread in sockets. */
        log_event(LOG_WARN, "leases.restarted", "stalled_ms=%" PRIu64, now - c->turned_boot_ms);
        leases_extend(&c->leases, now);
    }
    c->turned_boot_ms = now;
    if (c->active) {
        leases_lapsed(&c->leases, now, CONTROL_LAPSES_A_TURN, propose_end, c);
    }
}

enum control_node_state control_node_state(struct control *c,
                                           const struct dir_node *n,
                                           uint64_t heartbeat_ms,
                                           uint64_t *ret_left_ms)
{
    struct control_status status;
    *ret_left_ms = UINT64_MAX;
    if (n->is_static) {
        return n->lost ? CONTROL_NODE_DOWN : CONTROL_NODE_UP;
    }
    if (!view_node_is_live(n)) {
        return CONTROL_NODE_DOWN;
    }
    control_status(c, &status);
    if (!status.raft.active) {
        return CONTROL_NODE_UP; /* only a leader can tell more */
    }
    struct leases_seen seen = leases_look(&c->leases, n->id, clock_boot_ms());
    if (!seen.known) {
        return CONTROL_NODE_UP;
    }
    *ret_left_ms = seen.left_ms;
    return seen.since_ms > 2 * heartbeat_ms || seen.left_ms == 0 ? CONTROL_NODE_SUSPECT
                                                                 : CONTROL_NODE_UP;
}
