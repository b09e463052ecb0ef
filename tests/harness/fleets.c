/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/fleets.h"

#include "base/assert.h"
#include "base/mem.h"

struct fleets *fleets_new(uint32_t nodes)
{
    ASSERT(nodes <= FLEETS_NODES_MAX);
    struct fleets *x = mem_zalloc(sizeof *x);
    bal_settings_default(&x->settings);
    x->settings.per_node_min = 1;
    x->nodes = nodes;
    x->now_ms = FLEETS_START_MS + 3600000;
    for (uint32_t n = 0; n < nodes; n++) {
        x->node[n] = (struct bal_node_spec){.id = n + 1, .state = BAL_ELIGIBLE};
        x->node[n].capacity[BAL_CPU] = 1000;
        x->node[n].capacity[BAL_BYTES] = UINT64_C(1) << 40;
    }
    x->memory = bal_memory_new(FLEETS_START_MS);
    bal_plan_init(&x->plan);
    return x;
}

void fleets_free(struct fleets *x)
{
    bal_memory_free(x->memory);
    bal_plan_close(&x->plan);
    mem_free(x);
}

struct bal_partition_spec *fleets_add(struct fleets *x, uint64_t load, uint64_t node)
{
    ASSERT(x->parts < FLEETS_PARTS_MAX);
    struct bal_partition_spec *p = &x->part[x->parts++];
    *p = (struct bal_partition_spec){.id = x->parts, .version = 7, .copies = 1};
    p->load[BAL_CPU] = load;
    p->load[BAL_BYTES] = 1 << 20;
    p->copy[0].node = node;
    return p;
}

void fleets_build(const struct fleets *x, struct bal_fleet *f, const uint32_t *order)
{
    bal_fleet_init(f);
    for (uint32_t n = 0; n < x->nodes; n++) {
        uint32_t at = order == NULL ? n : x->nodes - 1 - n;
        ASSERT(bal_fleet_add_node(f, &x->node[at], NULL) == ERR_OK);
    }
    for (uint32_t i = 0; i < x->parts; i++) {
        uint32_t at = order == NULL ? i : order[i];
        ASSERT(bal_fleet_add_partition(f, &x->part[at], NULL) == ERR_OK);
    }
    ASSERT(bal_fleet_seal(f, NULL) == ERR_OK);
}

void fleets_plan(struct fleets *x)
{
    struct bal_fleet f;
    fleets_build(x, &f, NULL);
    bal_plan(&f, &x->settings, x->now_ms, x->memory, &x->plan);
    bal_fleet_close(&f);
}

void fleets_wait(struct fleets *x, uint64_t ms)
{
    for (uint64_t end = x->now_ms + ms; x->now_ms < end;) {
        fleets_plan(x);
        x->now_ms += 30000;
    }
    fleets_plan(x);
}

static struct bal_partition_spec *part_of(struct fleets *x, uint64_t id)
{
    for (uint32_t p = 0; p < x->parts; p++) {
        if (x->part[p].id == id) {
            return &x->part[p];
        }
    }
    UNREACHABLE();
}

static void
send(struct fleets *x, uint64_t partition, uint64_t from, uint64_t to, uint32_t class_of)
{
    struct bal_partition_spec *p = part_of(x, partition);
    for (unsigned c = 0; c < p->copies; c++) {
        if (p->copy[c].node == from) {
            p->copy[c].to = to;
        }
    }
    p->flags |= BAL_BUSY;
    p->operation = (uint16_t)class_of;
}

/* In place of the first copy that is lost or on a dead node, or as one more. */
static void restore(struct fleets *x, const struct bal_proposal *made)
{
    struct bal_partition_spec *p = part_of(x, made->partition);
    unsigned c = 0;
    for (; c < p->copies; c++) {
        if (p->copy[c].lost || x->node[p->copy[c].node - 1].state == BAL_DEAD) {
            break;
        }
    }
    if (c == p->copies) {
        p->copy[p->copies++] = (struct bal_copy_spec){.node = made->to};
    }
    p->copy[c].to = made->to;
    p->copy[c].lost = false;
    p->flags |= BAL_BUSY;
    p->operation = (uint16_t)made->class_of;
}

static void lead(struct fleets *x, const struct bal_proposal *made)
{
    struct bal_partition_spec *p = part_of(x, made->partition);
    for (unsigned c = 1; c < p->copies; c++) {
        if (p->copy[c].node == made->to) {
            struct bal_copy_spec first = p->copy[0];
            p->copy[0] = p->copy[c];
            p->copy[c] = first;
            p->copy[c].insync = true;
        }
    }
    p->previous = made->from;
    p->moved_ms = x->now_ms;
}

void fleets_begin(struct fleets *x, bool instantly)
{
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        const struct bal_proposal *made = &x->plan.proposal[i];
        switch ((enum bal_kind)made->kind) {
        case BAL_MOVE:
        case BAL_MOVE_COPY:
            send(x, made->partition, made->from, made->to, made->class_of);
            break;
        case BAL_SWAP:
            send(x, made->partition, made->from, made->to, made->class_of);
            send(x, made->partner, made->to, made->from, made->class_of);
            break;
        case BAL_ADD_COPY:
            restore(x, made);
            break;
        case BAL_TRANSFER:
            lead(x, made);
            break;
        case BAL_SPLIT:
        case BAL_MERGE:
        case BAL_ADVICE:
            continue;
        }
        bal_memory_began(x->memory, made, x->now_ms);
    }
    if (instantly) {
        fleets_arrive(x);
    }
}

void fleets_arrive(struct fleets *x)
{
    for (uint32_t i = 0; i < x->parts; i++) {
        struct bal_partition_spec *p = &x->part[i];
        for (unsigned c = 0; c < p->copies; c++) {
            if (p->copy[c].to == 0) {
                continue;
            }
            p->previous = c == 0 ? p->copy[c].node : p->previous;
            p->copy[c].node = p->copy[c].to;
            p->copy[c].to = 0;
            p->moved_ms = x->now_ms;
            p->flags &= (uint16_t)~BAL_BUSY;
            p->operation = 0;
        }
    }
}

const struct bal_proposal *fleets_find(const struct fleets *x, enum bal_kind kind)
{
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        if (x->plan.proposal[i].kind == kind) {
            return &x->plan.proposal[i];
        }
    }
    return NULL;
}

uint32_t fleets_count(const struct fleets *x, enum bal_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        count += x->plan.proposal[i].kind == kind;
    }
    return count;
}

struct bal_explanation fleets_explain(const struct fleets *x, uint64_t partition, uint64_t to)
{
    struct bal_fleet f;
    struct bal_explanation why;
    struct bal_question question = {partition, to};
    fleets_build(x, &f, NULL);
    ASSERT(bal_explain(&f, &x->settings, x->now_ms, x->memory, &question, &why) == ERR_OK);
    bal_fleet_close(&f);
    return why;
}
