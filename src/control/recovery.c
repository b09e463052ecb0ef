/* SPDX-License-Identifier: Apache-2.0 */
/* What a leader proposes unasked so that every partition has the copies that its keyspace wants,
 * where it wants them (directory/repair.h says what; apply checks it again).
 *
 * It walks over the partitions, a bounded number a turn, again whenever something has changed, and
 * keeps a bounded number of operations waiting. What it remembers is a hint: since when it has seen
 * a node away, by its own CLOCK_BOOTTIME, so that a new leader counts anew; and what it proposed
 * lately for which partition, so that what fails is tried again less and less often. Followers walk
 * too, for their metrics, and propose nothing. */
#include "control/internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "directory/repair.h"

#include <inttypes.h>

struct absence {
    uint64_t node, since_ms; /* CLOCK_BOOTTIME */
    dir_rev session;
};

/* What was proposed for a partition. */
struct attempt {
    uint64_t partition, to;
    uint64_t copies; /* what its copies were then: others are progress */
    uint64_t next_ms;
    uint32_t count;
};

struct recovery {
    uint64_t active_ms, turned_ms; /* CLOCK_BOOTTIME */
    struct absence *absent;        /* by node; owns */
    uint64_t absent_count;
    struct attempt attempts[RECOVERY_ATTEMPTS];
    bool walking, waits; /* something that only time changes was met */
    uint64_t cursor, began_ms;
    dir_rev began_revision;
    struct control_recovery now, done; /* of this walk, of the last whole one */
    uint64_t proposed;
};

/* --- who is away --- */

static const struct absence *absence_of(const struct recovery *v, uint64_t node)
{
    uint64_t low = 0, high = v->absent_count;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (v->absent[mid].node < node) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < v->absent_count && v->absent[low].node == node ? &v->absent[low] : NULL;
}

/* In the order of ids, so that the list stays sorted. */
static void note_absent(struct recovery *v, const struct dir_view *state, uint64_t now)
{
    struct absence *next = NULL;
    uint64_t count = 0, cap = 0;
    const struct dir_node *n;
    struct ptree_iter it;
    for (ptree_seek(&state->nodes, slice_of(NULL, 0), &it); (n = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        if (view_node_is_live(n)) {
            continue;
        }
        if (count == cap) {
            cap = cap > 0 ? cap * 2 : 16;
            next = mem_realloc(next, cap * sizeof next[0]);
        }
        const struct absence *known = absence_of(v, n->id);
        bool same = known != NULL && known->session == n->session;
        next[count++] = (struct absence){n->id, same ? known->since_ms : now, n->session};
    }
    mem_free(v->absent);
    v->absent = next;
    v->absent_count = count;
}

static bool is_gone(void *arg, const struct dir_node *n)
{
    struct control *c = arg;
    const struct absence *a = absence_of(c->recovery, n->id);
    uint64_t delay = directory_state(c->parts.directory)->settings.recovery_delay_ms;
    return a != NULL && c->recovery->turned_ms >= a->since_ms + delay;
}

/* --- what was tried --- */

static uint64_t copies_of(const struct dir_partition *p)
{
    uint64_t sum = p->epoch;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        uint64_t one[2] = {p->replicas[i].copy, p->replicas[i].role};
        sum += hash_xxh64(one, sizeof one);
    }
    return sum;
}

/* Its attempt, or the one that makes room: that of another partition which may be tried soonest. */
static struct attempt *attempt_of(struct recovery *v, uint64_t partition)
{
    enum { PROBES = 8 };
    uint64_t at = hash_xxh64(&partition, sizeof partition);
    struct attempt *room = NULL;
    for (uint64_t i = 0; i < PROBES; i++) {
        struct attempt *a = &v->attempts[(at + i) % RECOVERY_ATTEMPTS];
        if (a->partition == partition) {
            return a;
        }
        if (room == NULL || a->next_ms < room->next_ms) {
            room = a;
        }
    }
    *room = (struct attempt){.partition = partition};
    return room;
}

static uint64_t pause_ms(uint32_t count)
{
    uint64_t pause = RECOVERY_AGAIN_MS;
    for (uint32_t i = 1; i < count && pause < RECOVERY_AGAIN_MAX_MS; i++) {
        pause *= 2;
    }
    return pause < RECOVERY_AGAIN_MAX_MS ? pause : RECOVERY_AGAIN_MAX_MS;
}

static void note_attempt(struct recovery *v,
                         struct attempt *a,
                         const struct dir_partition *p,
                         const struct repair_step *s)
{
    uint64_t copies = copies_of(p);
    a->count = a->copies == copies ? a->count + 1 : 1;
    a->copies = copies;
    a->to = s->to;
    a->next_ms = v->turned_ms + pause_ms(a->count);
}

/* --- proposals --- */

static bool propose_if_good(struct control *c, Cadastre__Command *command)
{
    struct dir_result *expected = directory_try(c->parts.directory, command);
    bool good = expected->err.code == ERR_OK;
    result_unref(expected);
    return good && control_propose_own(c, command, NULL, NULL);
}

static bool
propose_start(struct control *c, const struct dir_partition *p, const struct repair_step *s)
{
    const struct dir_view *state = directory_state(c->parts.directory);
    const struct dir_node *from = s->from != 0 ? view_node_by_id(state, s->from) : NULL;
    const struct dir_node *to = s->to != 0 ? view_node_by_id(state, s->to) : NULL;
    Cadastre__OperationStart body;
    cadastre__operation_start__init(&body);
    Cadastre__Command command;
    cadastre__command__init(&command);
    body.kind = s->kind;
    body.partition = p->id;
    body.from = text_lent(from != NULL ? from->name : "");
    body.to = text_lent(to != NULL ? to->name : "");
    body.role = s->role;
    body.class_ = s->class_of;
    body.reason = text_lent(s->reason);
    body.has_expect_epoch = true;
    body.expect_epoch = p->epoch;
    loads_fill_start(c->loads, &body);
    command.body_case = CADASTRE__COMMAND__BODY_OPERATION_START;
    command.operation_start = &body;
    return propose_if_good(c, &command);
}

static bool propose_abort(struct control *c, const struct dir_operation *o)
{
    Cadastre__OperationVerb body;
    cadastre__operation_verb__init(&body);
    Cadastre__Command command;
    cadastre__command__init(&command);
    body.operation = o->id;
    body.verb = CADASTRE__OPERATION_VERB_KIND__ABORT;
    body.reason = text_lent("it is not needed any more, or its destination is lost");
    command.body_case = CADASTRE__COMMAND__BODY_OPERATION_VERB;
    command.operation_verb = &body;
    return propose_if_good(c, &command);
}

static void end_if_moot(struct control *c, struct repair *r, const struct dir_partition *p)
{
    struct recovery *v = c->recovery;
    const struct dir_operation *o =
        view_operation(directory_state(c->parts.directory), p->operation);
    if (o == NULL || !repair_is_moot(r, p, o)) {
        return;
    }
    struct attempt *a = attempt_of(v, p->id);
    v->waits = true;
    if (v->turned_ms >= a->next_ms || a->to != 0) {
        *a = (struct attempt){.partition = p->id, .next_ms = v->turned_ms + CONTROL_ASK_AGAIN_MS};
        (void)propose_abort(c, o);
    }
}

static void
act(struct control *c, struct repair *r, const struct dir_partition *p, struct repair_step *s)
{
    struct recovery *v = c->recovery;
    bool full = repair_queued(r, s->class_of) >= RECOVERY_QUEUED_MAX ||
                repair_open_operations(r) >= RECOVERY_OPEN_MAX;
    if (full) {
        v->waits = true;
        return;
    }
    struct attempt *a = attempt_of(v, p->id);
    bool again = a->copies == copies_of(p);
    if (again && v->turned_ms < a->next_ms) {
        v->waits = true;
        return;
    }
    repair_choose(r, p, again ? a->to : 0, s);
    v->waits = true;
    if (s->kind == 0) {
        return;
    }
    note_attempt(v, a, p, s);
    if (propose_start(c, p, s)) {
        repair_take(r, s);
        v->proposed++;
    }
}

/* --- the walk --- */

static enum control_recovery_state state_of(struct control *c, const struct repair_breaker *b)
{
    const struct dir_settings *s = &directory_state(c->parts.directory)->settings;
    uint64_t first = s->lease_ms + leases_allowance_ms(s->lease_ms);
    if (!c->active) {
        return CONTROL_RECOVERY_FOLLOWS;
    }
    if (c->recovery->turned_ms < c->recovery->active_ms + first) {
        return CONTROL_RECOVERY_OBSERVES;
    }
    return b->tripped ? CONTROL_RECOVERY_PAUSED : CONTROL_RECOVERY_ACTS;
}

static void count(struct control_recovery *n, const struct repair_step *s)
{
    n->partitions++;
    n->under_replicated += (s->problems & REPAIR_UNDER_REPLICATED) != 0;
    n->unavailable += (s->problems & REPAIR_UNAVAILABLE) != 0;
    n->misplaced += (s->problems & (REPAIR_MISPLACED | REPAIR_CROWDED)) != 0;
    n->draining += (s->problems & REPAIR_DRAINS) != 0;
    n->blocked += s->code != NULL && s->operation == 0;
    if (s->under_since_ms != 0 && (n->oldest_ms == 0 || s->under_since_ms < n->oldest_ms)) {
        n->oldest_ms = s->under_since_ms;
    }
}

static void visit(struct control *c, struct repair *r, const struct dir_partition *p)
{
    struct recovery *v = c->recovery;
    struct repair_step s;
    repair_look(r, p, &s);
    count(&v->now, &s);
    v->waits = v->waits || s.code != NULL;
    if (v->now.state != CONTROL_RECOVERY_ACTS) {
        return;
    }
    if (p->operation != 0) {
        end_if_moot(c, r, p);
    } else if (s.kind != 0) {
        act(c, r, p, &s);
    }
}

static void finish(struct control *c)
{
    struct recovery *v = c->recovery;
    v->walking = false;
    v->now.proposed = v->proposed;
    v->now.walk_ms = v->turned_ms - v->began_ms;
    v->done = v->now;
}

struct control_recovery recovery_last(const struct control *c)
{
    return c->recovery->done;
}

static void walk(struct control *c)
{
    struct recovery *v = c->recovery;
    const struct dir_view *state = directory_state(c->parts.directory);
    struct repair_clock clock = {control_log_time(c), is_gone, c};
    struct repair *r = repair_open(state, &clock);
    const struct dir_partition *p = NULL;
    struct ptree_iter it;
    uint8_t key[8];
    uint64_t seen = 0;
    ptree_seek(&state->partitions, ptree_u64_key(v->cursor, key), &it);
    for (; seen + repair_cost(r) < RECOVERY_COST_A_TURN && (p = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it), seen++) {
        visit(c, r, p);
        v->cursor = p->id + 1;
    }
    bool whole = p == NULL && seen + repair_cost(r) < RECOVERY_COST_A_TURN;
    repair_close(r);
    if (whole) {
        finish(c);
    }
}

static void start_walk(struct control *c)
{
    struct recovery *v = c->recovery;
    const struct dir_view *state = directory_state(c->parts.directory);
    struct repair_breaker b = repair_breaker(state);
    enum control_recovery_state is = state_of(c, &b);
    if (is == CONTROL_RECOVERY_PAUSED && v->done.state != CONTROL_RECOVERY_PAUSED) {
        log_event(LOG_WARN, "recovery.paused", "away=%" PRIu64 " nodes=%" PRIu64, b.away, b.nodes);
    }
    v->walking = true;
    v->waits = is == CONTROL_RECOVERY_OBSERVES || is == CONTROL_RECOVERY_PAUSED || b.away > 0;
    v->cursor = 0;
    v->began_ms = v->turned_ms;
    v->began_revision = state->revision;
    v->now = (struct control_recovery){.state = is, .nodes = b.nodes, .away = b.away};
}

void recovery_init(struct control *c)
{
    c->recovery = mem_zalloc(sizeof *c->recovery);
}

void recovery_on_active(struct control *c)
{
    struct recovery *v = c->recovery;
    uint64_t proposed = v->proposed;
    mem_free(v->absent);
    *v = (struct recovery){.active_ms = clock_boot_ms(), .proposed = proposed};
}

void recovery_on_sample(struct control *c)
{
    struct recovery *v = c->recovery;
    const struct dir_view *state = directory_state(c->parts.directory);
    uint64_t now = clock_boot_ms();
    if (now < v->turned_ms + RECOVERY_TURN_MS) {
        return;
    }
    v->turned_ms = now;
    note_absent(v, state, now);
    bool changed = state->revision != v->began_revision || v->waits ||
                   c->active == (v->done.state == CONTROL_RECOVERY_FOLLOWS);
    if (!v->walking && (!changed || now < v->began_ms + RECOVERY_WALK_MS)) {
        return;
    }
    if (!v->walking) {
        start_walk(c);
    }
    walk(c);
}
