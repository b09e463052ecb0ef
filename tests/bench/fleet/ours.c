/* SPDX-License-Identifier: Apache-2.0 */
/* The product's planner, through its public functions, on the simulated fleet. */
#include "balancer/plan.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "tests/bench/fleet/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT      ((double)(1 << 24)) /* a node of capacity 1 */
#define MIB       1048576.0
#define EPOCH_MS  UINT64_C(10000000) /* so that no stamp is 0 */
#define HINT_LOAD 0.03               /* partitions below this have no sample */

struct ours {
    struct bal_settings settings;
    struct bal_memory *memory;
    struct bal_plan plan;
    struct sim_sample *sample; /* by part */
    int *part_of;              /* by fleet index */
    double spent_ms;
    long rounds;
};

static uint64_t to_ms(double s)
{
    return s < 0 ? 0 : EPOCH_MS + (uint64_t)(s * 1000);
}

static const struct {
    const char *name;
    size_t at;
    bool ms, flag;
} knobs[] = {
#define KNOB(name)                                                                                 \
    {                                                                                              \
#name, offsetof(struct bal_settings, name), false, false                                   \
    }
#define KNOB_MS(name)                                                                              \
    {                                                                                              \
#name, offsetof(struct bal_settings, name), true, false                                    \
    }
    KNOB(high),
    KNOB(low),
    KNOB(under),
    KNOB(split_share),
    KNOB(lump_gain),
    KNOB(kappa),
    KNOB(side_rise),
    KNOB(piece_min),
    KNOB(rho_gain),
    KNOB(band_sigmas),
    KNOB_MS(sustain_ms),
    KNOB_MS(residence_ms),
    KNOB_MS(residence_urgent_ms),
    KNOB_MS(return_ms),
    KNOB_MS(role_cooldown_ms),
    KNOB_MS(merge_after_ms),
    KNOB_MS(merge_cold_ms),
    {"one_way", offsetof(struct bal_settings, one_way), false, true},
};

/* "name=value": fractions as such, times in seconds. */
static void vary(struct bal_settings *settings, const char *text)
{
    const char *equals = text == NULL ? NULL : strchr(text, '=');
    for (size_t i = 0; equals != NULL && i < sizeof knobs / sizeof *knobs; i++) {
        if (strlen(knobs[i].name) != (size_t)(equals - text) ||
            strncmp(knobs[i].name, text, (size_t)(equals - text)) != 0) {
            continue;
        }
        double value = strtod(equals + 1, NULL);
        uint64_t number = (uint64_t)(value * (knobs[i].ms ? 1000 : (double)BAL_ONE));
        bool set = value > 0;
        if (knobs[i].flag) {
            memcpy((char *)settings + knobs[i].at, &set, sizeof set);
        } else {
            memcpy((char *)settings + knobs[i].at, &number, sizeof number);
        }
        return;
    }
    ASSERT(equals == NULL);
}

static struct ours *open_ours(struct sim *s)
{
    struct ours *o = mem_zalloc(sizeof *o);
    bal_settings_default(&o->settings);
    o->settings.per_node_target = (uint32_t)s->c.per_node;
    o->settings.split_bytes = (uint64_t)(SIM_NODE_MIB * SIM_FILLED * MIB / s->c.per_node * 8);
    vary(&o->settings, s->c.vary);
    ASSERT(bal_settings_check(&o->settings, NULL) == ERR_OK);
    o->memory = bal_memory_new(to_ms(0));
    bal_plan_init(&o->plan);
    o->sample = mem_zalloc(SIM_PARTS_MAX * sizeof *o->sample);
    o->part_of = mem_zalloc(SIM_PARTS_MAX * sizeof *o->part_of);
    return o;
}

void sim_ours_close(struct sim *s)
{
    struct ours *o = s->balancer_state;
    if (o != NULL) {
        s->stats.planner_ms = o->rounds == 0 ? 0 : o->spent_ms / (double)o->rounds;
        bal_memory_free(o->memory);
        bal_plan_close(&o->plan);
        mem_free(o->sample);
        mem_free(o->part_of);
        mem_free(o);
    }
}

static uint64_t node_id(int n)
{
    return (uint64_t)n + 1;
}

static void add_nodes(const struct sim *s, struct bal_fleet *f)
{
    for (int n = 0; n < s->c.nodes; n++) {
        const struct sim_node *node = &s->node[n];
        struct bal_node_spec spec = {
            .id = node_id(n),
            .zone = (uint32_t)node->zone + 1,
            .state = node->alive ? BAL_ELIGIBLE : BAL_DEAD,
            .state_since_ms = to_ms(node->since),
            .joined_ms = node->joined > 0 ? to_ms(node->joined) : 0,
        };
        spec.capacity[BAL_CPU] = (uint64_t)(node->capacity * UNIT);
        /* Twice what the nodes hold: the disk is not what is compared here. */
        spec.capacity[BAL_BYTES] = (uint64_t)(2 * node->capacity * SIM_NODE_MIB * MIB);
        ASSERT(bal_fleet_add_node(f, &spec, NULL) == ERR_OK);
    }
}

static void sample(struct sim *s, struct ours *o, int part, struct bal_partition_spec *spec)
{
    const struct sim_part *p = &s->part[part];
    if (p->slow < HINT_LOAD || p->high - p->low < 2) {
        return;
    }
    struct sim_sample *found = &o->sample[part];
    *found = sim_sample(s, part, 256);
    spec->hint = (struct bal_hint){
        .samples = 256,
        .left = found->boundary < 0 ? 0 : (bal_q32)(found->left * (double)BAL_ONE),
        .top = (bal_q32)(found->top_share * (double)BAL_ONE),
    };
}

static uint16_t class_of_part(const struct sim *s, int part)
{
    for (int i = 0; i < s->moves; i++) {
        if (s->move[i].part == part) {
            return (uint16_t)s->move[i].class_of;
        }
    }
    return 0;
}

static void add_parts(struct sim *s, struct ours *o, struct bal_fleet *f)
{
    for (int i = s->first; i >= 0; i = s->part[i].next) {
        const struct sim_part *p = &s->part[i];
        bool moves = p->to >= 0;
        struct bal_partition_spec spec = {
            .id = p->id,
            .next = p->next < 0 ? 0 : s->part[p->next].id,
            .moved_ms = to_ms(p->moved_at),
            .split_ms = to_ms(p->split_at),
            .merged_ms = to_ms(p->merged_at),
            .previous = p->previous < 0 ? 0 : node_id(p->previous),
            .flags = (uint16_t)(BAL_REBUILDABLE | (moves ? BAL_BUSY : 0) |
                                (p->one_key ? BAL_ONE_KEY : 0)),
            .operation = moves ? class_of_part(s, i) : 0,
            .copies = 1,
        };
        spec.load[BAL_CPU] = (uint64_t)(p->slow * UNIT);
        spec.load[BAL_BYTES] = (uint64_t)(sim_part_mib(s, p) * MIB);
        spec.copy[0] =
            (struct bal_copy_spec){.node = node_id(p->owner), .to = moves ? node_id(p->to) : 0};
        sample(s, o, i, &spec);
        ASSERT(bal_fleet_add_partition(f, &spec, NULL) == ERR_OK);
    }
}

static int node_of(uint64_t id)
{
    return (int)id - 1;
}

static int part_of(const struct ours *o, const struct bal_fleet *f, uint64_t id)
{
    uint32_t p = bal_fleet_partition(f, id);
    ASSERT(p != BAL_NO_PARTITION);
    return o->part_of[p];
}

static void isolate(struct sim *s, int part, int key)
{
    struct sim_part *p = &s->part[part];
    int at = part;
    if (key > p->low) {
        at = sim_split(s, part, key);
    }
    if (at >= 0 && s->part[at].high - s->part[at].low > 1) {
        (void)sim_split(s, at, key + 1);
    }
    if (at >= 0) {
        s->part[at].one_key = s->part[at].high - s->part[at].low == 1;
    }
}

static void split(struct sim *s, struct ours *o, int part, uint8_t cut)
{
    const struct sim_sample *found = &o->sample[part];
    struct sim_part *p = &s->part[part];
    uint64_t parent = p->id;
    if (cut == BAL_CUT_KEY) {
        isolate(s, part, found->top);
        return;
    }
    int key = cut == BAL_CUT_LOAD ? found->boundary : (p->low + p->high) / 2;
    int right = sim_split(s, part, key);
    if (right >= 0) {
        bal_memory_split(o->memory, parent, p->id, s->part[right].id);
        s->part[right].one_key = s->part[right].high - s->part[right].low == 1;
        p->one_key = p->high - p->low == 1;
    }
}

static void watch(struct sim *s, int part, const struct bal_proposal *made)
{
    double since = s->now - s->part[part].moved_at;
    bool urgent = made->class_of == DIR_CLASS_HOT;
    s->stats.planned_in_residence += since < (urgent ? SIM_RESIDENCE_S / 3.0 : SIM_RESIDENCE_S);
}

static void
carry_out(struct sim *s, struct ours *o, const struct bal_fleet *f, const struct bal_proposal *made)
{
    if (made->kind == BAL_ADVICE) {
        return;
    }
    int part = part_of(o, f, made->partition);
    switch ((enum bal_kind)made->kind) {
    case BAL_MOVE:
        watch(s, part, made);
        sim_move(s, part, node_of(made->to), SIM_ROUTINE, made->class_of);
        break;
    case BAL_ADD_COPY:
        sim_move(s, part, node_of(made->to), SIM_RECOVERY, made->class_of);
        break;
    case BAL_SWAP:
        watch(s, part, made);
        watch(s, part_of(o, f, made->partner), made);
        sim_move(s, part, node_of(made->to), SIM_ROUTINE, made->class_of);
        sim_move(s, part_of(o, f, made->partner), node_of(made->from), SIM_ROUTINE, made->class_of);
        s->stats.swaps++;
        break;
    case BAL_SPLIT:
        split(s, o, part, made->cut);
        break;
    case BAL_MERGE:
        sim_merge_next(s, part);
        break;
    case BAL_TRANSFER:
    case BAL_MOVE_COPY:
    case BAL_ADVICE:
        UNREACHABLE();
    }
    bal_memory_began(o->memory, made, to_ms(s->now));
}

void sim_ours(struct sim *s)
{
    if (s->balancer_state == NULL) {
        s->balancer_state = open_ours(s);
    }
    struct ours *o = s->balancer_state;
    struct bal_fleet f;
    bal_fleet_init(&f);
    add_nodes(s, &f);
    add_parts(s, o, &f);
    ASSERT(bal_fleet_seal(&f, NULL) == ERR_OK);
    for (int p = s->first; p >= 0; p = s->part[p].next) {
        o->part_of[bal_fleet_partition(&f, s->part[p].id)] = p;
    }
    uint64_t began = clock_mono_ns();
    bal_plan(&f, &o->settings, to_ms(s->now), o->memory, &o->plan);
    o->spent_ms += (double)(clock_mono_ns() - began) / 1e6;
    o->rounds++;
    for (uint32_t i = 0; i < o->plan.proposal_count; i++) {
        carry_out(s, o, &f, &o->plan.proposal[i]);
    }
    s->stats.rho = (double)o->memory->rho / (double)BAL_ONE;
    bal_fleet_close(&f);
}
