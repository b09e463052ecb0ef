/* SPDX-License-Identifier: Apache-2.0 */
/* One round of the planner: the fleet as the directory and the measurements have it, and what is
 * proposed as commands. Recovery, drain and placement are the leader's (leader.c): of the planner's
 * proposals those below DIR_CLASS_DRAIN are carried out, as the product does it. */
#include "simulate/internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

#define HINT_SHARE 0.03 /* of the smallest node: partitions below this have no sample */

enum { REQUIRED = 1 }; /* the planner's number of the placement */

/* --- the fleet --- */

static uint8_t state_of(const struct fm *x, const struct fm_node *n, const struct dir_node *row)
{
    if (!view_node_is_live(row)) {
        bool gone = fm_log_ms(x) >= row->ended_ms + x->s->recovery_delay_ms;
        return gone ? BAL_DEAD : BAL_UNKNOWN;
    }
    return !n->up                            ? BAL_UNKNOWN
           : row->scheduling == DIR_OPEN     ? BAL_ELIGIBLE
           : row->scheduling == DIR_DRAINING ? BAL_DRAINING
                                             : BAL_CORDONED;
}

static void add_nodes(const struct fm *x, struct bal_fleet *f)
{
    for (uint32_t n = 0; n < x->node_count; n++) {
        const struct fm_node *node = &x->node[n];
        const struct dir_node *row = view_node_by_id(fm_view(x), node->id);
        if (row == NULL) {
            continue; /* it has yet to join */
        }
        struct bal_node_spec spec = {
            .id = node->id,
            .zone = node->zone,
            .rules = fm_is_allowed(x, node) ? 1 << REQUIRED : 0,
            .state = state_of(x, node, row),
            .state_since_ms = node->changed_ms,
            .joined_ms = node->joined_ms,
        };
        spec.capacity[BAL_CPU] = (uint64_t)(node->group->capacity * x->unit);
        spec.capacity[BAL_BYTES] = node->group->bytes;
        ASSERT(bal_fleet_add_node(f, &spec, NULL) == ERR_OK);
    }
}

static struct bal_copy_spec *add_copy(struct bal_partition_spec *spec, uint64_t node, uint64_t to)
{
    struct bal_copy_spec *c = &spec->copy[spec->copies++];
    *c = (struct bal_copy_spec){.node = node, .to = to};
    return c;
}

/* A candidate counts where its copy will be; after the cutover the source's is none any more. */
static void add_copies(struct bal_partition_spec *spec,
                       const struct dir_partition *row,
                       const struct dir_operation *o)
{
    bool moves = o != NULL && o->kind == DIR_OPERATION_MOVE;
    bool over = moves && o->stage >= DIR_STAGE_WINDOW;
    for (uint8_t i = 0; i < row->replica_count; i++) {
        const struct dir_replica *r = &row->replicas[i];
        bool leaves = moves && r->node == o->leaving;
        if ((over && leaves) || (moves && r->role == DIR_ROLE_JOINING)) {
            continue;
        }
        uint64_t to = leaves ? o->destination : r->role == DIR_ROLE_JOINING ? r->node : 0;
        add_copy(spec, r->node, to)->insync = r->role == DIR_ROLE_SYNC;
    }
    if (spec->copies == 0 && row->home != 0) {
        (void)add_copy(spec, row->home, 0);
    }
}

static void
add_part(struct fm *x, struct bal_fleet *f, struct fm_part *p, uint64_t next, double smallest)
{
    const struct dir_partition *row = fm_row(x, p);
    const struct dir_operation *o =
        row->operation != 0 ? view_operation(fm_view(x), row->operation) : NULL;
    struct bal_partition_spec spec = {
        .id = p->id,
        .version = row->epoch,
        .next = next,
        .moved_ms = p->moved_ms,
        .split_ms = p->split_ms,
        .merged_ms = p->merged_ms,
        .calm_ms = p->calm_ms,
        .previous = p->previous,
        .spread = strcmp(x->s->spread, "zone") == 0 ? BAL_SPREAD_ZONE : 0,
        .rule = x->s->require_count > 0 ? REQUIRED : 0,
        .wanted = (uint8_t)(1 + x->s->sync + x->s->async),
        .operation = o != NULL ? (uint16_t)o->class_of : 0,
    };
    spec.flags = (uint16_t)((o != NULL ? BAL_BUSY : 0) | (p->owned ? 0 : BAL_STALE) |
                            (p->high - p->low == 1 ? BAL_ONE_KEY : 0));
    double load = p->slow * x->unit;
    spec.load[BAL_CPU] = load < (double)BAL_LOAD_MAX ? (uint64_t)load : BAL_LOAD_MAX;
    spec.load[BAL_BYTES] = fm_part_bytes(p);
    add_copies(&spec, row, o);
    if (p->slow >= HINT_SHARE * smallest && p->high - p->low > 1) {
        if (p->sampled_ms == 0 || fm_log_ms(x) - p->sampled_ms >= FM_SAMPLE_MS) {
            fm_sample_keys(x, p);
        }
        spec.hint = p->hint;
    }
    if (spec.copies > 0) {
        ASSERT(bal_fleet_add_partition(f, &spec, NULL) == ERR_OK);
    }
}

static void build(struct fm *x, struct bal_fleet *f)
{
    double smallest = FM_NODE_UNITS / x->unit;
    bal_fleet_init(f);
    add_nodes(x, f);
    for (uint32_t i = 0; i < x->part_count; i++) {
        uint64_t next = i + 1 < x->part_count ? x->part[i + 1].id : 0;
        add_part(x, f, &x->part[i], next, smallest);
    }
    struct err e;
    if (bal_fleet_seal(f, &e) != ERR_OK) {
        fm_violated(x, "the planner's fleet: %s %s", e.pointer, e.detail);
    }
}

/* --- what is proposed --- */

static bool start(struct fm *x, const struct bal_proposal *b, uint64_t partition, bool back)
{
    const struct fm_node *from = fm_node_of(x, back ? b->to : b->from);
    const struct fm_node *to = fm_node_of(x, back ? b->from : b->to);
    const struct fm_part *p = fm_part_of(x, partition);
    const struct dir_partition *row = p != NULL ? fm_row(x, p) : NULL;
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    if (row == NULL || from == NULL || to == NULL) {
        return false;
    }
    m.kind = b->kind == BAL_TRANSFER ? DIR_OPERATION_TRANSFER : DIR_OPERATION_MOVE;
    m.partition = partition;
    m.from = fm_text(b->kind == BAL_TRANSFER ? "" : from->name);
    m.to = fm_text(to->name);
    m.class_ = b->class_of;
    m.reason = fm_text(bal_reason_text((enum bal_reason)b->reason));
    m.has_expect_epoch = true;
    m.expect_epoch = row->epoch;
    m.has_size_bytes = true;
    m.size_bytes = fm_part_bytes(p);
    return fm_try(x, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
}

static void key_bytes(uint32_t key, uint8_t out[4])
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(key >> (24 - 8 * i));
    }
}

/* The children take the parent's place, with their shares of its load by what the keys bear. */
static void take_children(struct fm *x, struct fm_part *p, const uint32_t *cuts, unsigned count)
{
    struct fm_part parent = *p;
    uint32_t at = (uint32_t)(p - x->part);
    double all = fm_part_load(x, &parent);
    memmove(p + 1 + count, p + 1, (x->part_count - at - 1) * sizeof *p);
    x->part_count += count;
    for (unsigned i = 0; i <= count; i++) {
        struct fm_part *child = &x->part[at + i];
        *child = parent;
        child->id = x->result->routes[i].partition->id;
        child->low = i == 0 ? parent.low : cuts[i - 1];
        child->high = i == count ? parent.high : cuts[i];
        child->slow =
            all > 0 ? parent.slow * fm_part_load(x, child) / all : parent.slow / (count + 1);
        child->bytes = parent.bytes * (child->high - child->low) / (parent.high - parent.low);
        bool again = parent.merged_ms > parent.split_ms;
        child->split_ms = fm_log_ms(x);
        child->calm_ms = bal_regret(child->split_ms, again ? parent.split_ms : 0);
        child->sampled_ms = 0;
    }
    x->dirty = true;
    x->out->splits++;
}

static bool split(struct fm *x, const struct bal_proposal *b)
{
    struct fm_part *p = fm_part_of(x, b->partition);
    uint32_t cuts[2], want[2] = {p->boundary, p->boundary};
    unsigned count = 0;
    if (b->cut == BAL_CUT_KEY) {
        want[0] = p->top;
        want[1] = p->top + 1;
    } else if (b->cut == BAL_CUT_BYTES) {
        want[0] = want[1] = p->low + (p->high - p->low) / 2;
    }
    for (int i = 0; i < 2; i++) {
        if (want[i] > p->low && want[i] < p->high && (i == 0 || want[i] != want[0])) {
            cuts[count++] = want[i];
        }
    }
    if (count == 0 || x->part_count + count > SCENARIO_PARTS_MAX) {
        return false;
    }
    uint8_t keys[2][4];
    ProtobufCBinaryData at[2];
    for (unsigned i = 0; i < count; i++) {
        key_bytes(cuts[i], keys[i]);
        at[i] = (ProtobufCBinaryData){4, keys[i]};
    }
    Cadastre__Split m;
    cadastre__split__init(&m);
    m.partition = p->id;
    m.n_at = count;
    m.at = at;
    m.has_expect_epoch = true;
    m.expect_epoch = b->version;
    if (!fm_try(x, CADASTRE__COMMAND__BODY_SPLIT, &m)) {
        return false;
    }
    take_children(x, p, cuts, count);
    if (count == 1) {
        bal_memory_split(x->memory, b->partition, p[0].id, p[1].id);
    }
    return true;
}

static bool merge(struct fm *x, const struct bal_proposal *b)
{
    struct fm_part *p = fm_part_of(x, b->partition), *q = p + 1;
    Cadastre__Merge m;
    cadastre__merge__init(&m);
    m.partition = b->partition;
    m.with = b->partner;
    m.has_expect_epoch = true;
    m.expect_epoch = b->version;
    if (!fm_try(x, CADASTRE__COMMAND__BODY_MERGE, &m)) {
        return false;
    }
    p->id = x->result->routes[0].partition->id;
    p->high = q->high;
    p->slow += q->slow;
    p->bytes += q->bytes;
    p->merged_ms = fm_log_ms(x);
    p->sampled_ms = 0;
    p->moved_ms = p->moved_ms > q->moved_ms ? p->moved_ms : q->moved_ms;
    x->part_count--;
    memmove(q, q + 1, (x->part_count - (uint32_t)(q - x->part)) * sizeof *q);
    x->dirty = true;
    x->out->merges++;
    return true;
}

/* Each reason and partition once. */
static void advise(struct fm *x, const struct bal_proposal *b)
{
    struct simulate_outcome *o = x->out;
    for (uint32_t i = 0; i < o->advice_count; i++) {
        if (o->advice[i].reason == b->reason && o->advice[i].partition == b->partition) {
            o->advice[i].times++;
            return;
        }
    }
    if (o->advice_count < SIMULATE_ADVICE_MAX) {
        o->advice[o->advice_count++] =
            (struct simulate_advice){b->reason, b->partition, x->now_ms, 1};
    }
}

static bool carry_out(struct fm *x, const struct bal_proposal *b)
{
    switch ((enum bal_kind)b->kind) {
    case BAL_TRANSFER:
    case BAL_MOVE:
    case BAL_MOVE_COPY:
        return start(x, b, b->partition, false);
    case BAL_SWAP:
        return start(x, b, b->partition, false) && start(x, b, b->partner, true);
    case BAL_SPLIT:
        return split(x, b);
    case BAL_MERGE:
        return merge(x, b);
    case BAL_ADD_COPY:
    case BAL_ADVICE:
        break;
    }
    return false;
}

void fm_round(struct fm *x)
{
    struct bal_fleet f;
    fm_refresh(x);
    build(x, &f);
    x->out->rounds++;
    bal_plan(&f, &x->s->planner, fm_log_ms(x), x->memory, &x->plan);
    bal_fleet_close(&f);
    if (fm_is_held(x)) {
        return;
    }
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        const struct bal_proposal *b = &x->plan.proposal[i];
        if (b->kind == BAL_ADVICE) {
            advise(x, b);
        } else if (b->class_of < DIR_CLASS_DRAIN && !b->queued) {
            x->out->proposals++;
            if (carry_out(x, b)) {
                bal_memory_began(x->memory, b, fm_log_ms(x));
            } else {
                x->out->refused++;
            }
        }
    }
}
