/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a partition, and the next step: first what it lacks, then what it has too much
 * of, then what is in the wrong place. */
#include "directory/repair_internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* --- nodes --- */

static uint64_t slot_of(const struct repair *r, uint64_t node)
{
    uint64_t i = (node * UINT64_C(0x9e3779b97f4a7c15) >> 16) & (r->cap - 1);
    while (r->spots[i].node != NULL && r->spots[i].node->id != node) {
        i = (i + 1) & (r->cap - 1);
    }
    return i;
}

struct repair_spot *repair_spot(const struct repair *r, uint64_t node)
{
    struct repair_spot *s = &r->spots[slot_of(r, node)];
    return s->node != NULL ? s : NULL;
}

static void read_nodes(struct repair *r)
{
    const struct dir_node *n;
    struct ptree_iter it;
    uint32_t order = 0;
    for (r->cap = 16; r->cap < 2 * r->v->nodes.count; r->cap *= 2) {
    }
    r->spots = mem_zalloc(r->cap * sizeof r->spots[0]);
    r->values = mem_zalloc(r->cap * sizeof r->values[0]);
    for (ptree_seek(&r->v->nodes_by_name, slice_of(NULL, 0), &it);
         (n = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        struct repair_spot *s = &r->spots[slot_of(r, n->id)];
        s->node = n;
        s->order = order++;
        s->life = view_node_is_live(n)                        ? REPAIR_LIVE
                  : n->lost || r->clock.gone(r->clock.arg, n) ? REPAIR_GONE
                                                              : REPAIR_AWAY;
    }
}

/* --- operations --- */

static unsigned class_index(uint32_t class_of)
{
    unsigned i = class_of / 50;
    return i < REPAIR_CLASSES ? i : REPAIR_CLASSES - 1;
}

bool repair_is_own(const struct dir_operation *o)
{
    return o->class_of >= DIR_CLASS_DRAIN;
}

static void read_operations(struct repair *r)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    for (ptree_seek(&r->v->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        bool waits = o->state == DIR_OPERATION_QUEUED;
        struct repair_spot *s =
            waits && o->destination != 0 ? repair_spot(r, o->destination) : NULL;
        r->queued[class_index(o->class_of)] += waits;
        r->open += repair_is_own(o) && (waits || o->state == DIR_OPERATION_RUNNING) &&
                   o->stage != DIR_STAGE_CLEANUP;
        if (s != NULL && o->kind != DIR_OPERATION_TRANSFER) {
            s->coming++;
        }
    }
}

struct repair *repair_open(const struct dir_view *v, const struct repair_clock *clock)
{
    struct repair *r = mem_zalloc(sizeof *r);
    r->v = v;
    r->clock = *clock;
    read_nodes(r);
    read_operations(r);
    return r;
}

void repair_close(struct repair *r)
{
    mem_free(r->spots);
    mem_free(r->values);
    mem_free(r);
}

uint64_t repair_cost(const struct repair *r)
{
    return r->cost;
}

uint64_t repair_queued(const struct repair *r, uint32_t class_of)
{
    return r->queued[class_index(class_of)];
}

uint64_t repair_open_operations(const struct repair *r)
{
    return r->open;
}

void repair_take(struct repair *r, const struct repair_step *s)
{
    struct repair_spot *to = s->to != 0 ? repair_spot(r, s->to) : NULL;
    if (to != NULL && s->kind != DIR_OPERATION_TRANSFER) {
        to->coming++;
    }
    r->queued[class_index(s->class_of)]++;
    r->open++;
}

/* --- a partition --- */

void repair_tally(const struct repair *r, const struct dir_partition *p, struct repair_tally *t)
{
    *t = (struct repair_tally){.p = p, .ks = state_keyspace(r->v, p->keyspace)};
    bool spreads = t->ks->placement.spread[0] != '\0';
    for (uint8_t i = 0; i < p->replica_count; i++) {
        struct repair_copy *c = &t->copies[i];
        c->replica = &p->replicas[i];
        c->spot = repair_spot(r, c->replica->node);
        ASSERT(c->spot != NULL);
        c->allowed = place_allows(&t->ks->placement, c->spot->node);
        c->spread = spreads ? place_label(c->spot->node, t->ks->placement.spread) : "";
        bool live = c->spot->life == REPAIR_LIVE, away = c->spot->life == REPAIR_AWAY;
        bool asked = live && c->replica->asked;
        if (c->replica->role == DIR_ROLE_PRIMARY || c->replica->role == DIR_ROLE_SYNC) {
            t->sync_live += live;
            t->sync_away += away;
            t->asked_sync += asked;
        } else if (c->replica->role == DIR_ROLE_ASYNC) {
            t->async_live += live;
            t->async_away += away;
            t->asked_async += asked;
        }
    }
}

void repair_block(struct repair_step *s, const char *code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    s->kind = 0;
    s->needs_destination = false;
    s->code = code;
    (void)vsnprintf(s->detail, sizeof s->detail, fmt, args);
    va_end(args);
}

static void
begin(struct repair_step *s, enum dir_operation_kind kind, enum dir_class class_of, const char *why)
{
    s->kind = (uint8_t)kind;
    s->class_of = class_of;
    s->reason = why;
    s->needs_destination = kind == DIR_OPERATION_MOVE || kind == DIR_OPERATION_ADD_REPLICA;
}

static unsigned at_least_0(int n)
{
    return n > 0 ? (unsigned)n : 0;
}

/* Copies that do not count as in sync, but may again soon: their node may return, or catch up. */
static unsigned returning(const struct repair *r, const struct repair_tally *t)
{
    unsigned spare = at_least_0(t->async_live + t->async_away - (int)t->ks->async_replicas);
    uint64_t patience = r->v->settings.recovery_delay_ms;
    bool young = t->p->under_since_ms != 0 && r->clock.now_ms < t->p->under_since_ms + patience;
    unsigned may = t->async_away + (young ? t->async_live : 0U);
    return spare < may ? spare : may;
}

static bool add_missing(const struct repair *r, const struct repair_tally *t, struct repair_step *s)
{
    int sync = (int)(s->sync_wanted) - t->sync_live - t->sync_away - (int)returning(r, t);
    int async = (int)(s->async_wanted) - t->async_live - t->async_away;
    if (sync > 0) {
        bool last = t->sync_live + t->async_live == 1;
        begin(s, DIR_OPERATION_ADD_REPLICA, last ? DIR_CLASS_LAST_COPY : DIR_CLASS_UNDER_REPLICATED,
              "too few copies are in sync");
        s->role = DIR_ROLE_SYNC;
        return true;
    }
    if (async > 0) {
        begin(s, DIR_OPERATION_ADD_REPLICA, DIR_CLASS_CONSTRAINT, "too few asynchronous copies");
        s->role = DIR_ROLE_ASYNC;
        return true;
    }
    return false;
}

static bool is_whole(const struct repair_step *s)
{
    return s->sync_live >= s->sync_wanted && s->async_live >= s->async_wanted;
}

/* Of a node that does not come back. Where there is no room for another copy, one that does not
 * count goes first. */
static bool drop_gone(const struct repair_tally *t, struct repair_step *s)
{
    bool full = t->p->replica_count == DIR_REPLICAS_MAX;
    for (uint8_t i = 1; i < t->p->replica_count; i++) {
        const struct repair_copy *c = &t->copies[i];
        if (c->spot->life == REPAIR_GONE &&
            (is_whole(s) || (full && c->replica->role == DIR_ROLE_ASYNC))) {
            begin(s, DIR_OPERATION_REMOVE_REPLICA, DIR_CLASS_CONSTRAINT,
                  "its node has been away for too long");
            s->from = c->replica->node;
            return true;
        }
    }
    return false;
}

/* --- too much --- */

/* What speaks for taking this copy rather than another. */
static uint64_t weight_of(const struct repair_tally *t, uint8_t at)
{
    const struct repair_copy *c = &t->copies[at];
    uint64_t weight = !c->allowed ? 4 : c->spot->node->scheduling == DIR_DRAINING ? 3 : 0;
    for (uint8_t i = 0; i < t->p->replica_count && weight == 0; i++) {
        bool shares = i != at && t->copies[i].spot->life != REPAIR_GONE && c->spread[0] != '\0' &&
                      strcmp(t->copies[i].spread, c->spread) == 0;
        weight = shares ? 2 : 0;
    }
    return weight << 48 | repair_load(c->spot);
}

/* In a keyspace without replicas an asynchronous copy may be what a failed move has left, and the
 * only one with some write: a machine removes it only after a person asked for fewer copies. */
static bool may_drop(const struct repair_tally *t, const struct repair_copy *c, uint8_t role)
{
    bool sure = role == DIR_ROLE_SYNC || t->ks->sync_replicas > 0 ||
                c->replica->copy < t->ks->replicas_revision;
    return c->replica->role == role && c->spot->life == REPAIR_LIVE && !c->replica->asked && sure;
}

static bool drop_one(const struct repair_tally *t, struct repair_step *s, uint8_t role)
{
    int best = -1;
    uint64_t weight = 0;
    for (uint8_t i = 1; i < t->p->replica_count; i++) {
        if (may_drop(t, &t->copies[i], role)) {
            uint64_t w = weight_of(t, i);
            if (best < 0 || w >= weight) {
                best = i;
                weight = w;
            }
        }
    }
    if (best < 0) {
        return false;
    }
    s->problems |= REPAIR_SURPLUS;
    begin(s, DIR_OPERATION_REMOVE_REPLICA, DIR_CLASS_CONSTRAINT,
          "there are more copies than the keyspace wants");
    s->from = t->p->replicas[best].node;
    return true;
}

static bool drop_surplus(const struct repair_tally *t, struct repair_step *s)
{
    if (!is_whole(s) || t->sync_away > 0 || t->async_away > 0) {
        return false;
    }
    bool sync = t->sync_live - t->asked_sync > s->sync_wanted;
    bool async = t->async_live - t->asked_async > s->async_wanted;
    return (sync && drop_one(t, s, DIR_ROLE_SYNC)) || (async && drop_one(t, s, DIR_ROLE_ASYNC));
}

/* --- in the wrong place --- */

/* A copy that could take over from the primary, where it may stay. */
static const struct repair_copy *heir_of(const struct repair_tally *t)
{
    for (uint8_t i = 1; i < t->p->replica_count; i++) {
        const struct repair_copy *c = &t->copies[i];
        if (c->replica->role == DIR_ROLE_SYNC && c->spot->life == REPAIR_LIVE &&
            !c->spot->node->is_static && c->allowed && c->spot->node->scheduling != DIR_DRAINING) {
            return c;
        }
    }
    return NULL;
}

static void
leave(const struct repair_tally *t, struct repair_step *s, uint8_t at, enum dir_class class_of)
{
    const struct repair_copy *heir = at == 0 ? heir_of(t) : NULL;
    const char *why = class_of == DIR_CLASS_DRAIN ? "its node drains"
                      : s->must_spread            ? "two copies share a value of the spread label"
                                                  : "the placement does not allow its node";
    s->from = t->p->replicas[at].node;
    if (heir != NULL) {
        begin(s, DIR_OPERATION_TRANSFER, class_of, why);
        s->to = heir->replica->node;
    } else {
        begin(s, DIR_OPERATION_MOVE, class_of, why);
    }
}

/* The replicas first: they are in nobody's way. */
static bool leave_forbidden(const struct repair_tally *t, struct repair_step *s)
{
    for (uint8_t i = t->p->replica_count; i-- > 0;) {
        if (!t->copies[i].allowed && t->copies[i].spot->life == REPAIR_LIVE) {
            leave(t, s, i, DIR_CLASS_CONSTRAINT);
            return true;
        }
    }
    return false;
}

static bool leave_drained(const struct repair_tally *t, struct repair_step *s)
{
    for (uint8_t i = t->p->replica_count; i-- > 0;) {
        if (t->copies[i].spot->node->scheduling == DIR_DRAINING &&
            t->copies[i].spot->life == REPAIR_LIVE) {
            leave(t, s, i, DIR_CLASS_DRAIN);
            return true;
        }
    }
    return false;
}

/* The copy that shares its value with an earlier one, or -1. */
static int crowded_copy(const struct repair_tally *t)
{
    for (int i = t->p->replica_count - 1; i > 0; i--) {
        for (int k = 0; k < i; k++) {
            if (t->copies[i].spot->life == REPAIR_LIVE && t->copies[k].spot->life != REPAIR_GONE &&
                strcmp(t->copies[i].spread, t->copies[k].spread) == 0) {
                return i;
            }
        }
    }
    return -1;
}

static bool leave_crowd(struct repair *r, const struct repair_tally *t, struct repair_step *s)
{
    int at = t->ks->placement.spread[0] != '\0' ? crowded_copy(t) : -1;
    if (at < 0 || !repair_can_spread(r, t, at)) {
        return false;
    }
    s->problems |= REPAIR_CROWDED;
    s->must_spread = true;
    s->from = t->p->replicas[at].node;
    begin(s, DIR_OPERATION_MOVE, DIR_CLASS_CONSTRAINT,
          "two copies share a value of the spread label");
    return true;
}

/* --- all together --- */

static void
note_problems(const struct repair *r, const struct repair_tally *t, struct repair_step *s)
{
    for (uint8_t i = 0; i < t->p->replica_count; i++) {
        const struct repair_copy *c = &t->copies[i];
        bool drains = c->spot->node->scheduling == DIR_DRAINING;
        s->problems |= !c->allowed ? REPAIR_MISPLACED : 0U;
        s->problems |= drains ? REPAIR_DRAINS : 0U;
        s->problems |= c->spot->life == REPAIR_GONE ? REPAIR_DEAD_COPY : 0U;
    }
    if (!is_whole(s)) {
        s->problems |= REPAIR_UNDER_REPLICATED;
        s->under_since_ms = repair_under_since(r->v, t->ks, t->p);
    }
    if (!partition_has_primary(t->p)) {
        s->problems |= REPAIR_UNAVAILABLE;
    }
}

/* Why no operation could have it as its source now; false when one could. */
static bool has_no_source(const struct repair_tally *t, struct repair_step *s)
{
    const struct dir_partition *p = t->p;
    if (p->operation != 0) {
        s->operation = p->operation;
        if (s->problems != 0) {
            repair_block(s, "busy", "operation %" PRIu64 " holds the partition", p->operation);
        }
        return true;
    }
    if (p->replica_count == 0) {
        repair_block(s, p->holds_data ? "no_copy" : "no_destination",
                     p->holds_data ? "every node that had a copy was declared lost"
                                   : "no node that the placement allows is open for a first copy");
        return true;
    }
    if (!partition_has_primary(p)) {
        repair_block(s, "no_source",
                     "no copy that has every acknowledged write is on a node with "
                     "a session: wait for one, or force a failover");
        return true;
    }
    const struct dir_node *owner = t->copies[0].spot->node;
    if (t->copies[0].spot->life != REPAIR_LIVE || p->session != owner->session) {
        if (s->problems != 0) {
            repair_block(s, "source_lapsed", "the lease of %s's former session still runs",
                         owner->name);
        }
        return true;
    }
    return false;
}

static void say_who_is_waited_for(const struct repair_tally *t, struct repair_step *s)
{
    for (uint8_t i = 0; i < t->p->replica_count; i++) {
        if (t->copies[i].spot->life == REPAIR_AWAY) {
            repair_block(s, "waiting", "%s may come back before recovery_delay_ms is over",
                         t->copies[i].spot->node->name);
            return;
        }
    }
    repair_block(s, "waiting", "a copy may catch up before recovery_delay_ms is over");
}

static void check_agents(const struct repair_tally *t, struct repair_step *s)
{
    const struct dir_node *owner = t->copies[0].spot->node;
    bool adds = s->kind == DIR_OPERATION_MOVE || s->kind == DIR_OPERATION_ADD_REPLICA;
    if (owner->is_static) {
        repair_block(s, "static", "%s has no agent that could copy the partition", owner->name);
    } else if (adds && t->p->replica_count == DIR_REPLICAS_MAX) {
        repair_block(s, "too_many_copies", "the partition has as many copies as there may be");
    }
}

void repair_look(struct repair *r, const struct dir_partition *p, struct repair_step *s)
{
    struct repair_tally t;
    memset(s, 0, sizeof *s);
    repair_tally(r, p, &t);
    s->sync_live = t.sync_live;
    s->async_live = t.async_live;
    s->sync_wanted = (uint8_t)(1 + t.ks->sync_replicas);
    s->async_wanted = (uint8_t)t.ks->async_replicas;
    note_problems(r, &t, s);
    if (t.ks->hidden || has_no_source(&t, s)) {
        return;
    }
    bool full = p->replica_count == DIR_REPLICAS_MAX;
    bool decided = (full && drop_gone(&t, s)) || add_missing(r, &t, s) || drop_gone(&t, s) ||
                   drop_surplus(&t, s) || leave_forbidden(&t, s) || leave_drained(&t, s) ||
                   leave_crowd(r, &t, s);
    if (decided) {
        check_agents(&t, s);
    } else if ((s->problems & REPAIR_UNDER_REPLICATED) != 0) {
        say_who_is_waited_for(&t, s);
    }
}

void repair_next(struct repair *r, const struct dir_partition *p, struct repair_step *ret)
{
    repair_look(r, p, ret);
    repair_choose(r, p, 0, ret);
}

/* What a person asked for is theirs to end. */
static bool waits_for_the_lost(struct repair *r, const struct dir_operation *o)
{
    const struct repair_spot *to = o->destination != 0 ? repair_spot(r, o->destination) : NULL;
    return o->state == DIR_OPERATION_QUEUED && o->class_of != DIR_CLASS_OPERATOR && to != NULL &&
           to->life == REPAIR_GONE;
}

bool repair_is_moot(struct repair *r, const struct dir_partition *p, const struct dir_operation *o)
{
    struct repair_step s = {0};
    struct repair_tally t;
    bool early = o->state == DIR_OPERATION_QUEUED ||
                 (o->state == DIR_OPERATION_RUNNING && o->stage < DIR_STAGE_DUAL_WRITE);
    if (waits_for_the_lost(r, o)) {
        return true;
    }
    if (!early || !repair_is_own(o) || !partition_has_primary(p)) {
        return false;
    }
    if (o->class_of == DIR_CLASS_DRAIN) {
        const struct repair_spot *from = repair_spot(r, o->leaving);
        return from == NULL || from->node->scheduling != DIR_DRAINING;
    }
    if (o->kind != DIR_OPERATION_ADD_REPLICA) {
        return false;
    }
    repair_tally(r, p, &t);
    s.sync_wanted = (uint8_t)(1 + t.ks->sync_replicas);
    s.async_wanted = (uint8_t)t.ks->async_replicas;
    return !add_missing(r, &t, &s) || s.role != o->role;
}
