/* SPDX-License-Identifier: Apache-2.0 */
#include "control/fleet.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/parse.h"
#include "directory/place.h"

#include <stdlib.h>
#include <string.h>

/* The planner's slot of what is no queue here: reads and writes together. */
enum { REQUESTS = BAL_QUEUE };

const char *fleet_resource_name(unsigned r)
{
    static const char *const names[BAL_RESOURCES] = {"cpu", "reads", "writes", "bytes", "requests"};
    return names[r];
}

/* --- settings --- */

static bal_q32 ppm(uint64_t value)
{
    return BAL_Q(value, 1000000);
}

void fleet_settings(const struct dir_balancer *row, struct bal_settings *ret)
{
    const uint64_t *v = row->values;
    bal_settings_default(ret);
    ret->high = ppm(v[DIR_BALANCER_HIGH_PPM]);
    ret->low = ppm(v[DIR_BALANCER_LOW_PPM]);
    ret->band_max = bal_max(ret->band_max, ret->high);
    ret->under = bal_max(ret->under, ret->low + BAL_PERCENT(1));
    ret->sustain_ms = v[DIR_BALANCER_SUSTAIN_MS];
    ret->quiet_ms = v[DIR_BALANCER_QUIET_MS];
    ret->residence_ms = v[DIR_BALANCER_RESIDENCE_MS];
    ret->residence_urgent_ms = bal_min(ret->residence_urgent_ms, ret->residence_ms);
    ret->return_ms = v[DIR_BALANCER_RETURN_MS];
    ret->horizon_ms = v[DIR_BALANCER_HORIZON_MS];
    ret->kappa = ppm(v[DIR_BALANCER_COST_FACTOR_PPM]);
    ret->split_share = ppm(v[DIR_BALANCER_SPLIT_SHARE_PPM]);
    ret->merge_fraction =
        (uint32_t)(v[DIR_BALANCER_SPLIT_SHARE_PPM] / v[DIR_BALANCER_MERGE_SHARE_PPM]);
    ret->merge_cold_ms = v[DIR_BALANCER_MERGE_COLD_MS];
    ret->split_bytes = v[DIR_BALANCER_SPLIT_BYTES];
    ret->moves_per_node_hour = (uint32_t)v[DIR_BALANCER_MOVES_PER_NODE_HOUR];
    ret->moves_burst = (uint32_t)v[DIR_BALANCER_MOVES_BURST];
    ret->hot_per_node_hour = (uint32_t)v[DIR_BALANCER_HOT_PER_NODE_HOUR];
    ret->hot_burst = (uint32_t)v[DIR_BALANCER_HOT_BURST];
    ret->expiry_ms = v[DIR_BALANCER_EXPIRY_MS];
    ret->rho_after_ms = bal_min(ret->rho_after_ms, bal_max(ret->residence_ms / 2, 1));
    /* What these wait for comes sooner where rounds are to act sooner. */
    ret->split_every_ms = bal_min(ret->split_every_ms, ret->sustain_ms);
    ret->frontier_every_ms = bal_min(ret->frontier_every_ms, 10 * ret->sustain_ms);
    ret->recovery_hold_ms = bal_min(ret->recovery_hold_ms, 2 * ret->sustain_ms);
    ret->merge_after_ms = bal_min(ret->merge_after_ms, ret->residence_ms);
}

/* --- what proposals say of partitions --- */

/* What the planner has to know of a partition's past, and of what waits for a person. */
struct past {
    uint64_t partition;
    uint64_t previous; /* node that it has left */
    uint64_t moved_ms; /* when one of its copies last moved, log time; 0: not lately */
    uint64_t to, from; /* where a proposal that waits would take it */
    bool waits, turned_down;
};

struct building {
    const struct fleet_input *in;
    uint64_t horizon_ms;
    struct bal_fleet *f;
    struct past *past; /* by partition; owns */
    uint32_t past_count;
    const struct dir_placement *rules[BAL_RULES_MAX]; /* [0]: none */
    uint32_t rule_count;
    uint64_t total[BAL_RESOURCES];
    uint32_t resources;    /* bits of those that count */
    uint64_t half_life_ms; /* of loads */
    struct err *e;
};

bool fleet_waits(const struct dir_proposal *p, uint64_t log_ms)
{
    return p->state == DIR_PROPOSAL_OPEN && p->expires_ms > log_ms;
}

static int by_partition(const void *a, const void *b)
{
    const struct past *x = a, *y = b;
    return x->partition < y->partition ? -1 : x->partition > y->partition;
}

static uint64_t node_id(const struct dir_view *v, const char *name)
{
    const struct dir_node *n = view_node(v, slice_of(name, strlen(name)));
    return n != NULL ? n->id : 0;
}

/* 0: nothing has. One that runs may have ended: it hears of that with the next round. */
static uint64_t moved_at(const struct dir_proposal *p, uint64_t now_ms)
{
    if (p->state == DIR_PROPOSAL_RUNNING) {
        return now_ms;
    }
    return p->state == DIR_PROPOSAL_DONE ? bal_max(p->settled_ms, p->ended_ms) : 0;
}

static struct past past_of(const struct building *b, const struct dir_proposal *p, bool second)
{
    const struct dir_view *v = b->in->view;
    const uint64_t *set = view_balancer(v)->values;
    uint64_t age = bal_less(b->in->log_ms, p->settled_ms);
    uint64_t from = node_id(v, second ? p->to_name : p->from_name);
    bool moves = p->kind <= DIR_PROPOSAL_TRANSFER || p->kind == DIR_PROPOSAL_SWAP;
    struct past past = {.partition = second ? p->with : p->partition};
    past.waits = fleet_waits(p, b->in->log_ms) && p->kind != DIR_PROPOSAL_ADVICE &&
                 set[DIR_BALANCER_MODE] != DIR_BALANCER_AUTO;
    if (past.waits && moves) {
        past.from = from;
        past.to = node_id(v, second ? p->from_name : p->to_name);
    }
    past.turned_down = (p->state == DIR_PROPOSAL_REJECTED || p->state == DIR_PROPOSAL_FAILED) &&
                       p->kind != DIR_PROPOSAL_ADVICE && age < set[DIR_BALANCER_RESIDENCE_MS];
    past.moved_ms = moves ? moved_at(p, b->in->log_ms) : 0;
    past.previous = past.moved_ms != 0 && age < set[DIR_BALANCER_RETURN_MS] ? from : 0;
    return past;
}

static void add_past(struct building *b, struct past one)
{
    bool matters = one.waits || one.turned_down || one.previous != 0 || one.moved_ms != 0;
    if (one.partition != 0 && matters) {
        b->past[b->past_count++] = one;
    }
}

/* Two of one partition become one that has what either says. */
static void join_past(struct building *b)
{
    uint32_t kept = 0;
    qsort(b->past, b->past_count, sizeof b->past[0], by_partition);
    for (uint32_t i = 0; i < b->past_count; i++) {
        struct past *last = kept > 0 ? &b->past[kept - 1] : NULL;
        const struct past *one = &b->past[i];
        if (last == NULL || last->partition != one->partition) {
            b->past[kept++] = *one;
            continue;
        }
        last->previous = one->previous != 0 ? one->previous : last->previous;
        last->moved_ms = bal_max(last->moved_ms, one->moved_ms);
        last->to = one->waits ? one->to : last->to;
        last->from = one->waits ? one->from : last->from;
        last->waits = last->waits || one->waits;
        last->turned_down = last->turned_down || one->turned_down;
    }
    b->past_count = kept;
}

static void take_past(struct building *b)
{
    const struct dir_proposal *p;
    struct ptree_iter it;
    b->past = mem_alloc((2 * b->in->view->proposals.count + 1) * sizeof b->past[0]);
    ptree_seek(&b->in->view->proposals, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        add_past(b, past_of(b, p, false));
        if (p->with != 0) {
            add_past(b, past_of(b, p, true));
        }
    }
    join_past(b);
}

/* --- rules --- */

/* The rule's index; 0 when it allows every node, BAL_RULES_MAX when there is no room for it. */
static uint32_t rule_of(struct building *b, const struct dir_keyspace *ks)
{
    if (ks->placement.require_count == 0) {
        return 0;
    }
    for (uint32_t i = 1; i < b->rule_count; i++) {
        if (memcmp(b->rules[i]->require, ks->placement.require, sizeof ks->placement.require) ==
            0) {
            return i;
        }
    }
    if (b->rule_count == BAL_RULES_MAX) {
        return BAL_RULES_MAX;
    }
    b->rules[b->rule_count] = &ks->placement;
    return b->rule_count++;
}

static void take_rules(struct building *b)
{
    const struct dir_keyspace *ks;
    struct ptree_iter it;
    b->rule_count = 1;
    ptree_seek(&b->in->view->keyspaces, slice_of(NULL, 0), &it);
    for (; (ks = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        (void)rule_of(b, ks);
    }
}

/* What the planner can't keep apart, it is not to touch. */
static bool spread_of(const struct dir_keyspace *ks, uint8_t *ret_spread)
{
    static const struct {
        const char *label;
        uint8_t spread;
    } known[] = {{"zone", BAL_SPREAD_ZONE},
                 {"rack", BAL_SPREAD_RACK},
                 {"device", BAL_SPREAD_DEVICE},
                 {"", 0}};
    *ret_spread = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(ks->placement.spread, known[i].label) == 0) {
            *ret_spread = known[i].spread;
            return true;
        }
    }
    return ks->sync_replicas + ks->async_replicas == 0;
}

/* --- nodes --- */

static bool is_alive(const struct dir_node *n)
{
    return view_node_is_live(n) && !n->lost;
}

/* In the unit of loads; 0: not said. */
static uint64_t capacity_of(const struct dir_node *n, unsigned r)
{
    static const struct {
        const char *name;
        uint64_t unit;
    } names[BAL_RESOURCES] = {{"cpu", 1000000},
                              {"reads_per_s", 1000},
                              {"writes_per_s", 1000},
                              {"bytes", 1},
                              {"requests_per_s", 1000}};
    const struct dir_label *labels = dir_node_capacity(n);
    uint64_t value;
    for (uint32_t i = 0; i < n->capacity_count; i++) {
        if (strcmp(labels[i].name, names[r].name) == 0 &&
            parse_u64(labels[i].value, PARSE_INT_MAX, &value)) {
            return bal_min(value, BAL_CAPACITY_MAX / names[r].unit) * names[r].unit;
        }
    }
    return 0;
}

static uint32_t label_id(const struct dir_node *n, const char *label)
{
    const char *value = place_label(n, label);
    return value[0] == '\0' ? 0 : (uint32_t)hash_xxh3_64(value, strlen(value)) | 1;
}

static uint8_t state_of(const struct dir_node *n)
{
    if (!is_alive(n)) {
        return BAL_DEAD;
    }
    if (n->scheduling == DIR_DRAINING) {
        return BAL_DRAINING;
    }
    /* Nobody copies to a node without an agent. */
    return n->scheduling != DIR_OPEN || n->is_static ? BAL_CORDONED : BAL_ELIGIBLE;
}

/* What a node bears when no capacity is said: twice the mean. */
static uint64_t assumed(const struct building *b, uint64_t alive)
{
    uint64_t mean = alive > 0 ? b->total[REQUESTS] / alive : 0;
    return bal_min(bal_max(2 * mean, FLEET_REQUESTS_MIN), BAL_CAPACITY_MAX);
}

static bool is_stalled(const struct building *b, const struct dir_node *n)
{
    const uint64_t *set = view_balancer(b->in->view)->values;
    struct loads_node said;
    return set[DIR_BALANCER_GUARD_QUEUE] != 0 && loads_node(b->in->loads, n->id, &said) &&
           (said.has >> LOADS_QUEUE_P99 & 1) != 0 &&
           said.figure[LOADS_QUEUE_P99] > set[DIR_BALANCER_GUARD_QUEUE];
}

static enum err_code add_node(struct building *b, const struct dir_node *n, uint64_t capacity)
{
    struct bal_node_spec s = {.id = n->id,
                              .zone = label_id(n, "zone"),
                              .rack = label_id(n, "rack"),
                              .device = label_id(n, "device"),
                              .state = state_of(n),
                              .stalled = is_stalled(b, n),
                              .state_since_ms = n->ended_ms != 0 ? n->ended_ms : n->scheduling_ms};
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        s.capacity[r] = (b->resources >> r & 1) != 0 ? capacity_of(n, r) : 0;
    }
    if (capacity > 0) {
        s.capacity[BAL_READ] = s.capacity[BAL_WRITE] = s.capacity[REQUESTS] = capacity;
    }
    for (uint32_t i = 1; i < b->rule_count; i++) {
        s.rules |= (uint64_t)place_allows(b->rules[i], n) << i;
    }
    return bal_fleet_add_node(b->f, &s, b->e);
}

/* Which capacities all that live have said. Returns how many live. */
static uint64_t look_at_capacities(struct building *b)
{
    const struct dir_node *n;
    struct ptree_iter it;
    uint64_t alive = 0;
    b->resources = (1u << BAL_RESOURCES) - 1;
    ptree_seek(&b->in->view->nodes, slice_of(NULL, 0), &it);
    for (; (n = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (!is_alive(n)) {
            continue;
        }
        alive++;
        for (unsigned r = 0; r < BAL_RESOURCES; r++) {
            if (capacity_of(n, r) == 0) {
                b->resources &= ~(1u << r);
            }
        }
    }
    return alive;
}

static enum err_code add_nodes(struct building *b)
{
    const struct dir_node *n;
    struct ptree_iter it;
    uint64_t alive = look_at_capacities(b);
    bool said = (b->resources & ~(1u << BAL_BYTES)) != 0;
    uint64_t capacity = said ? 0 : assumed(b, alive);
    enum err_code code = ERR_OK;
    ptree_seek(&b->in->view->nodes, slice_of(NULL, 0), &it);
    for (; code == ERR_OK && (n = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        code = add_node(b, n, capacity);
    }
    return code;
}

/* --- partitions --- */

struct heard {
    struct bal_partition_spec *spec;
    struct slice start;
    uint64_t mono_ms, half_life_ms, horizon_ms;
    bool known;
};

/* What it holds, or will at the horizon, by when a move should have paid: the larger of both. */
static uint64_t size_of(const struct load_entry *e, uint64_t horizon_ms)
{
    uint64_t now = bal_min(load_value(e, LOAD_SIZE, LOAD_FAST), BAL_LOAD_MAX);
    int64_t a_day = load_growth(e, LOAD_SIZE);
    if (a_day <= 0) {
        return now;
    }
    uint64_t a_s = (uint64_t)a_day / 86400, most = BAL_LOAD_MAX / (horizon_ms / 1000 + 1);
    return bal_min(now + bal_min(a_s, most) * horizon_ms / 1000, BAL_LOAD_MAX);
}

static void take_hint(struct heard *h, const struct sketch *sketch)
{
    struct sketch_top top;
    if (!sketch_top(sketch, &top)) {
        return;
    }
    struct sketch_split split = sketch_split(sketch, h->start);
    h->spec->hint =
        (struct bal_hint){.samples = SKETCH_SLOTS,
                          .left = split.verdict == SKETCH_BALANCED ? ppm(split.left_ppm) : 0,
                          .contained = ppm(split.contained_ppm),
                          .top = ppm(top.share_low_ppm)};
}

static void take_load(void *arg, const struct load_entry *e)
{
    struct heard *h = arg;
    uint64_t *load = h->spec->load;
    enum load_horizon horizon = load_horizon_of(h->half_life_ms);
    uint64_t reads = load_value(e, LOAD_READS, horizon);
    uint64_t writes = load_value(e, LOAD_WRITES, horizon);
    load[BAL_CPU] = bal_min(load_value(e, LOAD_CPU, horizon), BAL_LOAD_MAX);
    load[BAL_READ] = bal_min(reads, BAL_LOAD_MAX);
    load[BAL_WRITE] = bal_min(writes, BAL_LOAD_MAX);
    load[BAL_BYTES] = size_of(e, h->horizon_ms);
    load[REQUESTS] = bal_min(bal_more(reads, writes), BAL_LOAD_MAX);
    h->known = load_known_of(e, h->half_life_ms, h->mono_ms);
    if (e->sketch != NULL) {
        take_hint(h, e->sketch);
    }
}

static int birth_order(const void *key, const void *entry)
{
    uint64_t id = *(const uint64_t *)key;
    const struct fleet_birth *b = entry;
    return id < b->id ? -1 : id > b->id;
}

static const struct fleet_birth *birth_of(const struct fleet_input *in, uint64_t partition)
{
    return in->birth_count == 0 ? NULL
                                : bsearch(&partition, in->births, in->birth_count,
                                          sizeof in->births[0], birth_order);
}

/* When the parts were split off that this one's parent was merged of; 0: it was not, or long ago.
 */
static uint64_t split_before(const struct fleet_input *in, const struct fleet_birth *born)
{
    const struct fleet_birth *parent = birth_of(in, born->parent);
    const struct fleet_birth *part =
        parent != NULL && parent->merged ? birth_of(in, parent->parent) : NULL;
    return part != NULL && !part->merged ? part->at_ms : 0;
}

static int past_order(const void *key, const void *entry)
{
    uint64_t id = *(const uint64_t *)key;
    const struct past *p = entry;
    return id < p->partition ? -1 : id > p->partition;
}

/* One key, and no room for another between the bounds. */
static bool is_one_key(const struct dir_partition *p)
{
    struct slice start = dir_partition_start(p), end = dir_partition_end(p);
    return !p->end_open && end.len == start.len + 1 && end.data[start.len] == 0 &&
           memcmp(start.len > 0 ? start.data : end.data, end.data, start.len) == 0;
}

static bool has_copy(const struct dir_partition *p, uint64_t node)
{
    for (uint8_t i = 0; i < p->replica_count; i++) {
        if (p->replicas[i].node == node && p->replicas[i].role != DIR_ROLE_JOINING) {
            return true;
        }
    }
    return false;
}

static uint64_t going_to(const struct building *b,
                         const struct dir_partition *p,
                         const struct past *past,
                         uint64_t node)
{
    const struct dir_operation *o = view_operation(b->in->view, p->operation);
    uint64_t to = 0;
    if (o != NULL && o->kind == DIR_OPERATION_MOVE && o->source == node) {
        to = o->destination;
    } else if (o == NULL && past != NULL && past->from == node) {
        to = past->to;
    }
    return to != 0 && view_node_by_id(b->in->view, to) != NULL && !has_copy(p, to) ? to : 0;
}

static void take_copies(const struct building *b,
                        const struct dir_partition *p,
                        const struct past *past,
                        struct bal_partition_spec *s)
{
    for (uint8_t i = 0; i < p->replica_count && s->copies < BAL_COPIES_MAX; i++) {
        const struct dir_replica *r = &p->replicas[i];
        const struct dir_node *n = view_node_by_id(b->in->view, r->node);
        if (r->role == DIR_ROLE_JOINING || n == NULL) {
            continue;
        }
        s->copy[s->copies++] = (struct bal_copy_spec){
            .node = r->node,
            .to = going_to(b, p, past, r->node),
            .insync = r->role == DIR_ROLE_SYNC && is_alive(n),
        };
    }
}

static uint16_t flags_of(const struct building *b,
                         const struct dir_partition *p,
                         const struct past *past,
                         const struct heard *heard)
{
    const struct dir_node *primary = view_primary(b->in->view, p);
    bool pinned =
        p->pinned || primary == NULL || primary->is_static || (past != NULL && past->turned_down);
    bool busy = p->operation != 0 || (past != NULL && past->waits);
    return (uint16_t)((pinned ? BAL_PINNED : 0) | (busy ? BAL_BUSY : 0) |
                      (is_one_key(p) ? BAL_ONE_KEY : 0) | (heard->known ? 0 : BAL_STALE) |
                      (p->holds_data ? 0 : BAL_REBUILDABLE) | BAL_MAY_REPLICATE | BAL_MAY_SALT);
}

static enum err_code add_partition(struct building *b,
                                   const struct dir_keyspace *ks,
                                   const struct dir_partition *p,
                                   const struct dir_partition *next)
{
    struct bal_partition_spec s = {.id = p->id, .version = p->epoch, .moved_ms = p->owner_since_ms};
    struct heard heard = {.spec = &s,
                          .start = dir_partition_start(p),
                          .mono_ms = b->in->mono_ms,
                          .half_life_ms = b->half_life_ms,
                          .horizon_ms = b->horizon_ms};
    const struct past *past =
        bsearch(&p->id, b->past, b->past_count, sizeof b->past[0], past_order);
    const struct fleet_birth *born = birth_of(b->in, p->id);
    const struct dir_operation *o = view_operation(b->in->view, p->operation);
    uint32_t rule = rule_of(b, ks);
    loads_look(b->in->loads, p->id, take_load, &heard);
    take_copies(b, p, past, &s);
    s.next = next != NULL ? next->id : 0;
    s.previous = past != NULL ? past->previous : 0;
    s.moved_ms = bal_max(s.moved_ms, past != NULL ? past->moved_ms : 0);
    s.split_ms = born != NULL && !born->merged ? born->at_ms : 0;
    s.merged_ms = born != NULL && born->merged ? born->at_ms : 0;
    s.calm_ms = s.split_ms != 0 ? bal_regret(s.split_ms, split_before(b->in, born)) : 0;
    s.wanted = (uint8_t)bal_min(1 + ks->sync_replicas + ks->async_replicas, BAL_COPIES_MAX);
    s.operation = o != NULL ? (uint16_t)o->class_of : 0;
    s.flags = flags_of(b, p, past, &heard);
    if (!spread_of(ks, &s.spread) || rule == BAL_RULES_MAX) {
        s.flags |= BAL_PINNED;
    }
    s.rule = rule == BAL_RULES_MAX ? 0 : (uint16_t)rule;
    return bal_fleet_add_partition(b->f, &s, b->e);
}

static enum err_code add_keyspace(struct building *b, const struct dir_keyspace *ks)
{
    const struct dir_partition *p, *next;
    struct ptree_iter it;
    enum err_code code = ERR_OK;
    ptree_seek(view_map(b->in->view, ks), slice_of(NULL, 0), &it);
    p = ptree_iter_get(&it, NULL);
    for (; p != NULL && code == ERR_OK; p = next) {
        ptree_iter_next(&it);
        next = ptree_iter_get(&it, NULL);
        code = add_partition(b, ks, p, next);
    }
    return code;
}

static void add_total(void *arg, const struct load_entry *e)
{
    struct building *b = arg;
    if (e->node == 0) {
        enum load_horizon horizon = load_horizon_of(b->half_life_ms);
        b->total[REQUESTS] +=
            load_value(e, LOAD_READS, horizon) + load_value(e, LOAD_WRITES, horizon);
    }
}

static enum err_code build(struct building *b)
{
    const struct dir_keyspace *ks;
    struct ptree_iter it;
    loads_each(b->in->loads, add_total, b);
    take_past(b);
    take_rules(b);
    enum err_code code = add_nodes(b);
    ptree_seek(&b->in->view->keyspaces, slice_of(NULL, 0), &it);
    for (; code == ERR_OK && (ks = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        code = ks->hidden ? ERR_OK : add_keyspace(b, ks);
    }
    return code == ERR_OK ? bal_fleet_seal(b->f, b->e) : code;
}

enum err_code fleet_build(struct bal_fleet *f, const struct fleet_input *in, struct err *e)
{
    const uint64_t *values = view_balancer(in->view)->values;
    struct building b = {.in = in,
                         .f = f,
                         .e = e,
                         .half_life_ms = values[DIR_BALANCER_HALF_LIFE_MS],
                         .horizon_ms = values[DIR_BALANCER_HORIZON_MS]};
    bal_fleet_init(f);
    enum err_code code = build(&b);
    mem_free(b.past);
    if (code != ERR_OK) {
        bal_fleet_close(f);
    }
    return code;
}
