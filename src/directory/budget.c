/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation takes of budgets, whether there is room, and what says so. */
#include "directory/budget_internal.h"

#include "base/assert.h"
#include "directory/policy.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    NODE_MOVES = 2,
    RACK_MOVES = 8,
    ZONE_MOVES = 32,
    DEVICE_MOVES = 1,
    CLUSTER_MOVES = 16, /* and one more for so many nodes: */
    CLUSTER_NODES_A_MOVE = 20,
    TRANSFERS = 30,
    RESERVE_PERCENT = 50,
    RELEASE_MS = 60000,
    PATH_MAX_BUDGETS = 2 + 2 * DIR_RESERVED_LABELS + 1
};
/* A second: a link of 1 Gbit/s, but for what others need. */
#define NODE_BYTES (UINT64_C(96) << 20)

const char *dir_budget_name(enum dir_budget budget)
{
    static const char *const names[] = {
        [DIR_BUDGET_SOURCE] = "source",     [DIR_BUDGET_DESTINATION] = "destination",
        [DIR_BUDGET_RACK] = "rack",         [DIR_BUDGET_ZONE] = "zone",
        [DIR_BUDGET_DEVICE] = "device",     [DIR_BUDGET_CLUSTER] = "cluster",
        [DIR_BUDGET_TRANSFER] = "transfer",
    };
    ASSERT(budget >= DIR_BUDGET_SOURCE && budget <= DIR_BUDGETS);
    return names[budget];
}

void dir_budget_defaults(struct dir_budgets *b)
{
    memset(b, 0, sizeof *b);
    b->limits[DIR_BUDGET_SOURCE] = (struct dir_budget_limit){NODE_MOVES, NODE_BYTES};
    b->limits[DIR_BUDGET_DESTINATION] = (struct dir_budget_limit){NODE_MOVES, NODE_BYTES};
    b->limits[DIR_BUDGET_RACK] = (struct dir_budget_limit){RACK_MOVES, RACK_MOVES * NODE_BYTES};
    b->limits[DIR_BUDGET_ZONE] = (struct dir_budget_limit){ZONE_MOVES, ZONE_MOVES * NODE_BYTES};
    b->limits[DIR_BUDGET_DEVICE] = (struct dir_budget_limit){DEVICE_MOVES, NODE_BYTES};
    b->limits[DIR_BUDGET_CLUSTER] =
        (struct dir_budget_limit){DIR_BUDGET_COMPUTED, DIR_BUDGET_COMPUTED};
    b->limits[DIR_BUDGET_TRANSFER] = (struct dir_budget_limit){TRANSFERS, 0};
    b->reserve_percent = RESERVE_PERCENT;
    b->release_ms = RELEASE_MS;
}

struct dir_budget_limit dir_budget_limit(const struct dir_view *v, enum dir_budget budget)
{
    struct dir_budget_limit l = v->settings.budgets.limits[budget];
    uint64_t moves = CLUSTER_MOVES + v->nodes.count / CLUSTER_NODES_A_MOVE;
    l.moves = l.moves == DIR_BUDGET_COMPUTED ? moves : l.moves;
    l.bytes_per_s = l.bytes_per_s == DIR_BUDGET_COMPUTED ? moves * NODE_BYTES : l.bytes_per_s;
    return l;
}

struct dir_budget_limit dir_budget_reserve(const struct dir_view *v, enum dir_budget budget)
{
    struct dir_budget_limit l = dir_budget_limit(v, budget);
    uint64_t percent = v->settings.budgets.reserve_percent;
    return (struct dir_budget_limit){l.moves * percent / 100, l.bytes_per_s * percent / 100};
}

bool dir_operation_copies(const struct dir_operation *o)
{
    return o->kind == DIR_OPERATION_MOVE || o->kind == DIR_OPERATION_ADD_REPLICA;
}

bool dir_operation_evens_out(const struct dir_operation *o)
{
    return dir_operation_copies(o) && o->class_of < DIR_CLASS_DRAIN &&
           o->class_of != DIR_CLASS_OPERATOR;
}

bool dir_operation_is_copying(const struct dir_operation *o)
{
    return dir_operation_copies(o) && o->state == DIR_OPERATION_RUNNING &&
           o->stage < DIR_STAGE_WINDOW;
}

uint64_t dir_reserved_bytes(const struct dir_reservation *r)
{
    return r->bytes_per_s * (uint64_t)(DIR_RELEASE_STEPS - r->step) / DIR_RELEASE_STEPS;
}

static bool is_recovery(const struct dir_operation *o)
{
    return o->class_of >= DIR_CLASS_UNDER_REPLICATED;
}

/* Does it wait for what only steps down? What a person asked for does not (a move, a drain), and
 * what restores a rule or a copy does not. */
static bool waits_for_releases(const struct dir_operation *o)
{
    return o->class_of != DIR_CLASS_OPERATOR && o->class_of < DIR_CLASS_DRAIN;
}

/* --- the path: each budget that an operation takes of --- */

struct leg {
    enum dir_budget budget;
    uint64_t node;
    const char *label; /* "" for none */
    uint64_t times;    /* its bytes pass so often */
};

struct path {
    struct leg legs[PATH_MAX_BUDGETS];
    unsigned count;
};

static void add_leg(struct path *p, enum dir_budget budget, uint64_t node, const char *label)
{
    p->legs[p->count++] = (struct leg){budget, node, label, 1};
}

/* Both ends in one rack are one flow through it; on one device they read and write. */
static void add_labels(struct path *p, const struct dir_reservation *r)
{
    for (unsigned i = 0; i < DIR_RESERVED_LABELS; i++) {
        enum dir_budget budget = (enum dir_budget)(DIR_BUDGET_RACK + (int)i);
        const char *s = r->source_labels[i], *d = r->destination_labels[i];
        bool same = strcmp(s, d) == 0;
        if (s[0] != '\0') {
            add_leg(p, budget, 0, s);
            p->legs[p->count - 1].times = same && budget == DIR_BUDGET_DEVICE ? 2 : 1;
        }
        if (d[0] != '\0' && !same) {
            add_leg(p, budget, 0, d);
        }
    }
}

static struct path path_of(const struct dir_reservation *r)
{
    struct path p = {.count = 0};
    if (r->moves == 0) {
        return p;
    }
    if (r->transfer) {
        add_leg(&p, DIR_BUDGET_TRANSFER, r->source, "");
        add_leg(&p, DIR_BUDGET_TRANSFER, r->destination, "");
        return p;
    }
    if (r->source != 0) {
        add_leg(&p, DIR_BUDGET_SOURCE, r->source, "");
    }
    if (r->destination != 0) {
        add_leg(&p, DIR_BUDGET_DESTINATION, r->destination, "");
    }
    add_labels(&p, r);
    add_leg(&p, DIR_BUDGET_CLUSTER, 0, "");
    return p;
}

static struct slice leg_key(const struct leg *l, uint8_t out[1 + DIR_NAME_MAX + 8])
{
    out[0] = (uint8_t)l->budget;
    if (l->node != 0) {
        (void)ptree_u64_key(l->node, out + 1);
        return slice_of(out, 9);
    }
    size_t n = strlen(l->label);
    memcpy(out + 1, l->label, n);
    return slice_of(out, 1 + n);
}

static const struct dir_usage *usage_of(const struct ptree *usage, const struct leg *l)
{
    static const struct dir_usage none;
    uint8_t key[1 + DIR_NAME_MAX + 8];
    const struct dir_usage *u = ptree_get(usage, leg_key(l, key));
    return u != NULL ? u : &none;
}

static void put_labels(const struct dir_node *n, char out[DIR_RESERVED_LABELS][DIR_NAME_MAX + 1])
{
    static const char *const names[DIR_RESERVED_LABELS] = {"rack", "zone", "device"};
    for (unsigned i = 0; i < DIR_RESERVED_LABELS; i++) {
        (void)snprintf(out[i], sizeof out[i], "%s", place_label(n, names[i]));
    }
}

/* All but the bytes. A node that has died has no part in its recovery: the source is the primary of
 * now. */
static struct dir_reservation needed(const struct dir_view *v, const struct dir_operation *o)
{
    struct dir_reservation r;
    const struct dir_node *s = view_node_by_id(v, o->source);
    const struct dir_node *d = view_node_by_id(v, o->destination);
    memset(&r, 0, sizeof r);
    r.transfer = o->kind == DIR_OPERATION_TRANSFER;
    r.moves = r.transfer || dir_operation_copies(o);
    if (r.moves == 0) {
        return r;
    }
    if (s != NULL) {
        r.source = s->id;
        put_labels(s, r.source_labels);
    }
    if (d != NULL) {
        r.destination = d->id;
        put_labels(d, r.destination_labels);
    }
    return r;
}

/* What the operation's class may take of a budget in all. */
static struct dir_budget_limit
usable(const struct dir_view *v, const struct dir_operation *o, enum dir_budget budget)
{
    struct dir_budget_limit l = dir_budget_limit(v, budget);
    struct dir_budget_limit reserve = dir_budget_reserve(v, budget);
    if (!is_recovery(o)) {
        l.moves -= reserve.moves;
        l.bytes_per_s -= reserve.bytes_per_s;
    }
    return l;
}

/* As much as is asked for; without that, an equal share of each budget among the moves that it
 * allows. Never more than what the live changes leave of any limit, else it could never begin. */
static struct dir_budget_rate
rate_along(const struct dir_view *v, const struct dir_operation *o, const struct path *p)
{
    struct dir_budget_rate rate = {UINT64_MAX, UINT64_MAX};
    uint64_t live = o->has_live ? o->live_bytes_per_s : 0;
    for (unsigned i = 0; i < p->count; i++) {
        struct dir_budget_limit l = usable(v, o, p->legs[i].budget);
        uint64_t all = l.bytes_per_s / p->legs[i].times;
        uint64_t share = all / (l.moves > 0 ? l.moves : 1);
        rate.limit = all < rate.limit ? all : rate.limit;
        rate.copy = share < rate.copy ? share : rate.copy;
    }
    rate.copy = o->max_bytes_per_s != 0 ? o->max_bytes_per_s : rate.copy;
    uint64_t left = rate.limit > live ? rate.limit - live : 0;
    rate.copy = rate.copy < left ? rate.copy : left;
    return rate;
}

struct dir_budget_rate dir_budget_rate(const struct dir_view *v, const struct dir_operation *o)
{
    if (!dir_operation_copies(o)) {
        return (struct dir_budget_rate){0, 0};
    }
    struct dir_reservation r = o->reserved.moves > 0 ? o->reserved : needed(v, o);
    struct path p = path_of(&r);
    struct dir_budget_rate rate = rate_along(v, o, &p);
    rate.copy = o->reserved.moves > 0 ? o->rate_bytes_per_s : rate.copy;
    return rate;
}

/* --- room --- */

static struct dir_budget_limit sum(const struct dir_usage *u, int groups, bool releasing)
{
    struct dir_budget_limit s = {0, 0};
    for (int g = 0; g < groups; g++) {
        for (int i = 0; i <= (releasing ? DIR_USAGE_RELEASING : DIR_USAGE_HELD); i++) {
            s.moves += u->used[g][i].moves;
            s.bytes_per_s += u->used[g][i].bytes_per_s;
        }
    }
    return s;
}

struct dir_budget_limit dir_usage_total(const struct dir_usage *u)
{
    return sum(u, DIR_USAGE_GROUPS, true);
}

static bool above(uint64_t used, uint64_t wanted, uint64_t limit)
{
    return used > limit || wanted > limit - used;
}

static void put_value(const struct dir_view *v, const struct leg *l, struct dir_waiting *w)
{
    const struct dir_node *n = l->node != 0 ? view_node_by_id(v, l->node) : NULL;
    (void)snprintf(w->value, sizeof w->value, "%s", n != NULL ? n->name : l->label);
    w->budget = l->budget;
    w->code = ERR_BUDGET_EXCEEDED;
}

static void say_full(struct dir_waiting *w)
{
    (void)snprintf(w->detail, sizeof w->detail,
                   "the budget %s%s%s has %" PRIu64 " %s in use of %" PRIu64 ", %" PRIu64
                   " of them kept for recovery, and %" PRIu64 " more %s needed",
                   dir_budget_name(w->budget), w->value[0] != '\0' ? " of " : "", w->value, w->used,
                   w->of_bytes ? "bytes/s" : "moves", w->limit, w->reserve, w->wanted,
                   w->wanted == 1 ? "is" : "are");
}

/* Is there no room in one budget? */
static bool is_full(const struct dir_view *v,
                    const struct dir_operation *o,
                    const struct leg *l,
                    uint64_t bytes,
                    struct dir_waiting *w)
{
    const struct dir_usage *u = usage_of(&v->usage, l);
    struct dir_budget_limit limit = dir_budget_limit(v, l->budget);
    struct dir_budget_limit may = usable(v, o, l->budget);
    struct dir_budget_limit all = sum(u, DIR_USAGE_GROUPS, waits_for_releases(o));
    struct dir_budget_limit mine =
        is_recovery(o) ? all : sum(u, DIR_USAGE_RECOVERY, waits_for_releases(o));
    bool moves = above(mine.moves, 1, may.moves) || above(all.moves, 1, limit.moves);
    bool of_bytes = above(mine.bytes_per_s, bytes, may.bytes_per_s) ||
                    above(all.bytes_per_s, bytes, limit.bytes_per_s);
    if (!moves && (!of_bytes || l->budget == DIR_BUDGET_TRANSFER)) {
        return false;
    }
    struct dir_budget_limit reserve = dir_budget_reserve(v, l->budget);
    put_value(v, l, w);
    w->of_bytes = !moves;
    w->used = moves ? all.moves : all.bytes_per_s;
    w->wanted = moves ? 1 : bytes;
    w->limit = moves ? limit.moves : limit.bytes_per_s;
    w->reserve = moves ? reserve.moves : reserve.bytes_per_s;
    say_full(w);
    return true;
}

/* Routine work does not fill a node while other routine work empties it. */
static bool crosses(const struct dir_view *v,
                    const struct dir_operation *o,
                    const struct path *p,
                    struct dir_waiting *w)
{
    if (o->class_of >= DIR_CLASS_DRAIN) {
        return false;
    }
    for (unsigned i = 0; i < p->count; i++) {
        struct leg other = p->legs[i];
        bool from = other.budget == DIR_BUDGET_SOURCE;
        if (!from && other.budget != DIR_BUDGET_DESTINATION) {
            continue;
        }
        other.budget = from ? DIR_BUDGET_DESTINATION : DIR_BUDGET_SOURCE;
        const struct dir_usage *u = usage_of(&v->usage, &other);
        if (u->used[DIR_USAGE_ROUTINE][DIR_USAGE_HELD].moves > 0) {
            put_value(v, &other, w);
            w->used = u->used[DIR_USAGE_ROUTINE][DIR_USAGE_HELD].moves;
            w->wanted = 1;
            (void)snprintf(w->detail, sizeof w->detail,
                           "\"%s\" %s a copy at present, and does not %s one at the same time",
                           w->value, from ? "takes" : "gives", from ? "give" : "take");
            return true;
        }
    }
    return false;
}

static const struct dir_partition *partition_of(const struct dir_view *v,
                                                const struct dir_operation *o)
{
    uint8_t key[8];
    return ptree_get(&v->partitions, ptree_u64_key(o->partition, key));
}

static bool
is_not_ready(const struct dir_view *v, const struct dir_operation *o, struct dir_waiting *w)
{
    const struct dir_partition *p = partition_of(v, o);
    const char *why = p != NULL ? operation_not_yet(v, o, p) : "its partition is gone";
    if (why != NULL) {
        w->code = ERR_NO_DESTINATION;
        (void)snprintf(w->detail, sizeof w->detail, "%s", why);
    }
    return why != NULL;
}

bool dir_budget_lacks(const struct dir_view *v,
                      const struct dir_operation *o,
                      struct dir_waiting *w)
{
    memset(w, 0, sizeof *w);
    if (is_not_ready(v, o, w)) {
        return true;
    }
    struct dir_reservation r = needed(v, o);
    struct path p = path_of(&r);
    uint64_t rate = dir_budget_rate(v, o).copy;
    uint64_t bytes = (rate > 0 ? rate : 1) + (o->has_live ? o->live_bytes_per_s : 0);
    for (unsigned i = 0; i < p.count; i++) {
        if (is_full(v, o, &p.legs[i], bytes * p.legs[i].times, w)) {
            return true;
        }
    }
    return crosses(v, o, &p, w);
}

uint64_t dir_budget_first(const struct dir_view *v)
{
    struct dir_waiting w;
    struct ptree_iter it;
    const struct dir_operation *o;
    unsigned seen = 0;
    ptree_seek(&v->queued, slice_of(NULL, 0), &it);
    while ((o = ptree_iter_get(&it, NULL)) != NULL && is_recovery(o)) {
        if (seen++ == DIR_BUDGET_RECOVERIES_MAX || !dir_budget_lacks(v, o, &w)) {
            return o->id;
        }
        ptree_iter_next(&it);
    }
    return 0;
}

bool dir_budget_yields(const struct dir_operation *o, uint64_t first, struct dir_waiting *w)
{
    if (first == 0 || is_recovery(o) || !dir_operation_copies(o)) {
        return false;
    }
    memset(w, 0, sizeof *w);
    w->code = ERR_BUDGET_EXCEEDED;
    w->operation = first;
    (void)snprintf(w->detail, sizeof w->detail,
                   "operation %" PRIu64 " recovers a copy, and comes first", first);
    return true;
}

bool dir_budget_waits(const struct dir_view *v,
                      const struct dir_operation *o,
                      struct dir_waiting *w)
{
    return dir_budget_lacks(v, o, w) || dir_budget_yields(o, dir_budget_first(v), w);
}

bool dir_budget_touches(const struct dir_view *v,
                        const struct dir_operation *o,
                        enum dir_budget budget,
                        const char *value)
{
    struct dir_reservation r = needed(v, o);
    struct path p = path_of(&r);
    struct dir_waiting w;
    for (unsigned i = 0; i < p.count; i++) {
        put_value(v, &p.legs[i], &w);
        if (w.budget == budget && strcmp(w.value, value) == 0) {
            return true;
        }
    }
    return false;
}

/* --- reservations --- */

void budget_reserve(const struct dir_view *v, struct dir_operation *o)
{
    struct dir_reservation r = needed(v, o);
    struct path p = path_of(&r);
    memset(&o->reserved, 0, sizeof o->reserved);
    o->rate_bytes_per_s = 0;
    if (dir_operation_copies(o)) {
        uint64_t rate = rate_along(v, o, &p).copy;
        o->rate_bytes_per_s = rate > 0 ? rate : 1;
        r.bytes_per_s = o->rate_bytes_per_s + (o->has_live ? o->live_bytes_per_s : 0);
    }
    o->reserved = r;
}

static void give_back(struct dir_operation *o)
{
    memset(&o->reserved, 0, sizeof o->reserved);
}

void budget_reverse(struct dir_operation *o, struct dir_operation *back)
{
    back->reserved = o->reserved;
    back->reserved.source = o->reserved.destination;
    back->reserved.destination = o->reserved.source;
    memcpy(back->reserved.source_labels, o->reserved.destination_labels,
           sizeof back->reserved.source_labels);
    memcpy(back->reserved.destination_labels, o->reserved.source_labels,
           sizeof back->reserved.destination_labels);
    back->rate_bytes_per_s = o->rate_bytes_per_s;
    give_back(o);
}

void budget_on_stage(const struct dir_view *v, struct dir_operation *o)
{
    const struct dir_keyspace *ks = state_keyspace(v, o->keyspace);
    switch ((int)o->stage) {
    case DIR_STAGE_QUEUED:
    case DIR_STAGE_ABORTED:
    case DIR_STAGE_FAILED:
        give_back(o);
        return;
    case DIR_STAGE_CLEANUP:
    case DIR_STAGE_DONE:
        if (o->reserved.transfer || dir_policy_get(v, ks, DIR_POLICY_RELEASE_MS) == 0) {
            give_back(o);
        } else {
            o->reserved.releasing = o->reserved.moves > 0;
        }
        return;
    default:
        return;
    }
}

static enum dir_usage_group group_of(const struct dir_operation *o)
{
    return is_recovery(o)                   ? DIR_USAGE_RECOVERY
           : o->class_of >= DIR_CLASS_DRAIN ? DIR_USAGE_DRAIN
                                            : DIR_USAGE_ROUTINE;
}

static bool is_nothing(const struct dir_usage *u)
{
    struct dir_budget_limit all = dir_usage_total(u);
    return all.moves == 0 && all.bytes_per_s == 0;
}

/* Adds or takes away one operation's part of one budget. */
static void
count(struct ptree *usage, const struct dir_operation *o, const struct leg *l, bool comes)
{
    uint8_t key[1 + DIR_NAME_MAX + 8];
    struct dir_usage *u = row_copy(usage_of(usage, l), sizeof *u);
    struct dir_budget_limit *used = &u->used[group_of(o)][o->reserved.releasing];
    uint64_t bytes = dir_reserved_bytes(&o->reserved) * l->times;
    u->object.kind = DIR_KIND_BYTES;
    u->budget = l->budget;
    u->node = l->node;
    memset(u->label, 0, sizeof u->label);
    (void)snprintf(u->label, sizeof u->label, "%s", l->label);
    used->moves += comes ? o->reserved.moves : (uint64_t)0 - o->reserved.moves;
    used->bytes_per_s += comes ? bytes : (uint64_t)0 - bytes;
    if (is_nothing(u)) {
        dir_unref(u);
        dir_unref(ptree_remove(usage, leg_key(l, key)));
    } else {
        dir_unref(ptree_put(usage, leg_key(l, key), u));
    }
}

static void count_all(struct ptree *usage, const struct dir_operation *o, bool comes)
{
    struct path p = path_of(&o->reserved);
    for (unsigned i = 0; i < p.count; i++) {
        count(usage, o, &p.legs[i], comes);
    }
}

static bool same_reservation(const struct dir_operation *a, const struct dir_operation *b)
{
    return a != NULL && b != NULL && a->class_of == b->class_of &&
           memcmp(&a->reserved, &b->reserved, sizeof a->reserved) == 0;
}

static struct slice queued_key(const struct dir_operation *o, uint8_t out[16])
{
    return state_pair_key(UINT32_MAX - o->class_of, o->id, out);
}

void budget_index(struct ptree *usage,
                  struct ptree *queued,
                  const struct dir_operation *before,
                  struct dir_operation *after)
{
    uint8_t key[16];
    if (before != NULL && before->state == DIR_OPERATION_QUEUED) {
        dir_unref(ptree_remove(queued, queued_key(before, key)));
    }
    if (after != NULL && after->state == DIR_OPERATION_QUEUED) {
        dir_unref(ptree_put(queued, queued_key(after, key), dir_ref(after)));
    }
    if (same_reservation(before, after)) {
        return;
    }
    if (before != NULL) {
        count_all(usage, before, false);
    }
    if (after != NULL) {
        count_all(usage, after, true);
    }
}
