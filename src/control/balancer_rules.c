/* SPDX-License-Identifier: Apache-2.0 */
#include "control/balancer.h"

#include <stdlib.h>
#include <string.h>

enum { MEASURE_PART = 6 }; /* of the residence, after which an effect is measured */

/* --- what splits and merges have made --- */

static void add_birth(struct balancer_births *b, const struct dir_partition *p, uint64_t at_ms)
{
    enum { DROPPED = FLEET_BIRTHS_MAX / 4 };
    if (b->count == FLEET_BIRTHS_MAX) {
        memmove(b->of, b->of + DROPPED, sizeof b->of - DROPPED * sizeof b->of[0]);
        b->count -= DROPPED;
        b->told = b->told > DROPPED ? b->told - DROPPED : 0;
    }
    b->of[b->count++] =
        (struct fleet_birth){p->id, dir_partition_parents(p)[0], at_ms, p->parent_count > 1};
}

static int by_id(const void *a, const void *b)
{
    const struct fleet_birth *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Rows of one command come in any order, ids of later ones are higher. */
void balancer_births_add(struct balancer_births *b, const struct dir_effects *effects)
{
    uint32_t before = b->count;
    for (uint64_t i = 0; i < effects->row_count; i++) {
        const struct dir_object *after = effects->rows[i].after;
        const struct dir_partition *p = (const void *)after;
        if (after != NULL && after->kind == DIR_KIND_PARTITION && effects->rows[i].before == NULL &&
            p->parent_count > 0) {
            add_birth(b, p, effects->time_ms);
        }
    }
    if (b->count != before) {
        qsort(b->of, b->count, sizeof b->of[0], by_id);
    }
}

void balancer_births_tell(struct balancer_births *b, struct bal_memory *m)
{
    for (uint32_t i = b->told; i + 1 < b->count; i++) {
        const struct fleet_birth *left = &b->of[i], *right = left + 1;
        if (!left->merged && left->parent == right->parent) {
            bal_memory_split(m, left->parent, left->id, right->id);
        }
    }
    b->told = b->count;
}

/* --- what is wanted --- */

static bool has_advice(const struct dir_view *v, const struct bal_proposal *made, uint64_t now_ms)
{
    const struct dir_proposal *p;
    struct ptree_iter it;
    ptree_seek(&v->proposals_open, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (p->partition == made->partition && p->kind == DIR_PROPOSAL_ADVICE &&
            fleet_waits(p, now_ms)) {
            return true;
        }
    }
    return false;
}

/* Of routine work, with room for it, and not switched off. */
static bool is_wanted(const struct dir_view *v, uint64_t now_ms, const struct bal_proposal *p)
{
    enum dir_balancer_value which = dir_balancer_switch(p->class_of);
    if (p->class_of >= DIR_CLASS_DRAIN || p->queued || p->partition == 0 ||
        p->kind == BAL_ADD_COPY) {
        return false;
    }
    if (which != DIR_BALANCER_VALUES && dir_balancer_value(v, which) == 0) {
        return false;
    }
    return p->kind != BAL_ADVICE || !has_advice(v, p, now_ms);
}

enum balancer_verdict balancer_judge(const struct dir_view *v,
                                     uint64_t now_ms,
                                     const struct brake *brake,
                                     const struct bal_proposal *p)
{
    if (!is_wanted(v, now_ms, p)) {
        return BALANCER_UNWANTED;
    }
    bool begins = p->kind != BAL_ADVICE; /* advice moves nothing */
    return begins && brake_holds(brake, p->class_of) ? BALANCER_BRAKED : BALANCER_WANTED;
}

/* --- what came of earlier ones --- */

static bool is_over(const struct dir_view *v, uint64_t operation, uint64_t *ended_ms)
{
    const struct dir_operation *o = operation != 0 ? view_operation(v, operation) : NULL;
    if (o != NULL && o->stage_since_ms > *ended_ms) {
        *ended_ms = o->stage_since_ms;
    }
    return o == NULL || o->state >= DIR_OPERATION_DONE;
}

bool balancer_is_due(const struct dir_view *v,
                     const struct dir_proposal *p,
                     uint64_t now_ms,
                     bool *ret_effect)
{
    uint64_t ended_ms = p->ended_ms;
    uint64_t after = dir_balancer_value(v, DIR_BALANCER_RESIDENCE_MS) / MEASURE_PART;
    *ret_effect = false;
    if (p->state == DIR_PROPOSAL_RUNNING) {
        return is_over(v, p->operation, &ended_ms) && is_over(v, p->with_operation, &ended_ms);
    }
    if (p->state != DIR_PROPOSAL_DONE || now_ms < ended_ms + after) {
        return false;
    }
    *ret_effect = true;
    for (uint32_t i = 0; i < p->figure_count; i++) {
        if (p->figures[i].group == DIR_FIGURE_MEASURED) {
            return false;
        }
    }
    return p->from_name[0] != '\0';
}
