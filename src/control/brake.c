/* SPDX-License-Identifier: Apache-2.0 */
#include "control/brake.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A primary that went from one node to another. Names are the proposal's. */
struct leg {
    uint64_t partition, proposal, at_ms, weight;
    uint32_t class_of;
    const char *from, *to;
};

struct legs {
    struct leg *of; /* owns */
    uint32_t count;
};

static uint64_t figure(const struct dir_proposal *p, enum dir_figure_group group, const char *name)
{
    for (uint32_t i = 0; i < p->figure_count; i++) {
        if (p->figures[i].group == group && strcmp(p->figures[i].name, name) == 0) {
            return p->figures[i].value;
        }
    }
    return 0;
}

/* Of the source's share, as it was planned. */
static uint64_t weight_of(const struct dir_proposal *p)
{
    uint64_t before = figure(p, DIR_FIGURE_EVIDENCE, "from_level_ppm");
    uint64_t after = figure(p, DIR_FIGURE_PREDICTED, "from_level_ppm");
    return before > after ? before - after : 0;
}

static void add(struct legs *l, const struct dir_proposal *p, bool second)
{
    l->of[l->count++] = (struct leg){.partition = second ? p->with : p->partition,
                                     .proposal = p->id,
                                     .at_ms = p->settled_ms,
                                     .weight = weight_of(p),
                                     .class_of = p->class_of,
                                     .from = second ? p->to_name : p->from_name,
                                     .to = second ? p->from_name : p->to_name};
}

static int by_partition(const void *a, const void *b)
{
    const struct leg *x = a, *y = b;
    if (x->partition != y->partition) {
        return x->partition < y->partition ? -1 : 1;
    }
    return x->proposal < y->proposal ? -1 : x->proposal > y->proposal;
}

static void gather(const struct dir_view *v, uint64_t since_ms, struct legs *l)
{
    const struct dir_proposal *p;
    struct ptree_iter it;
    l->count = 0;
    l->of = mem_alloc((2 * v->proposals.count + 1) * sizeof l->of[0]);
    ptree_seek(&v->proposals, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        bool moves = p->kind == DIR_PROPOSAL_MOVE || p->kind == DIR_PROPOSAL_TRANSFER ||
                     p->kind == DIR_PROPOSAL_SWAP;
        if (moves && p->state == DIR_PROPOSAL_DONE && p->settled_ms >= since_ms) {
            add(l, p, false);
        }
        if (l->count > 0 && p->kind == DIR_PROPOSAL_SWAP && l->of[l->count - 1].proposal == p->id) {
            add(l, p, true);
        }
    }
    if (l->count > 1) {
        qsort(l->of, l->count, sizeof l->of[0], by_partition);
    }
}

/* --- what they come to --- */

/* Straight between one halving and the next. */
static uint64_t discounted(uint64_t weight, uint64_t age_ms, uint64_t half_ms)
{
    uint64_t halvings = age_ms / half_ms;
    uint64_t w = halvings < 64 ? weight >> halvings : 0;
    return w - w / 2 * (age_ms % half_ms) / half_ms;
}

static struct brake_class *class_of(struct brake *b, uint32_t class_of)
{
    for (unsigned i = 0; i < BRAKE_CLASSES; i++) {
        if (b->of[i].class_of == class_of) {
            return &b->of[i];
        }
    }
    return NULL;
}

/* Of one partition, oldest first. */
struct run {
    const struct leg *of;
    uint32_t count;
};

static bool has_been(const struct run *r, uint32_t i)
{
    for (uint32_t j = 0; j < i; j++) {
        if (strcmp(r->of[j].from, r->of[i].to) == 0) {
            return true;
        }
    }
    return false;
}

/* The class's first one of the partition, if the i-th is its last one. */
static const struct leg *first_of(const struct run *r, uint32_t i)
{
    uint32_t first = 0;
    for (uint32_t j = i + 1; j < r->count; j++) {
        if (r->of[j].class_of == r->of[i].class_of) {
            return NULL;
        }
    }
    while (r->of[first].class_of != r->of[i].class_of) {
        first++;
    }
    return &r->of[first];
}

static void weigh(struct brake *b, const struct run *r, uint64_t now_ms, uint64_t half_ms)
{
    for (uint32_t i = 0; i < r->count; i++) {
        const struct leg *l = &r->of[i], *first = first_of(r, i);
        struct brake_class *c = class_of(b, l->class_of);
        if (c == NULL) {
            continue;
        }
        uint64_t age = now_ms > l->at_ms ? now_ms - l->at_ms : 0;
        uint64_t w = discounted(l->weight, age, half_ms);
        c->moves++;
        c->variation_ppm += w;
        c->net_ppm += first != NULL && strcmp(first->from, l->to) != 0 ? w : 0;
        c->returns += has_been(r, i);
        c->braked = c->returns >= BRAKE_RETURNS_MAX;
    }
}

void brake_measure(const struct dir_view *v, uint64_t now_ms, struct brake *ret)
{
    static const uint32_t classes[BRAKE_CLASSES] = {
        DIR_CLASS_OVERLOAD, DIR_CLASS_HOT, DIR_CLASS_BALANCE, DIR_CLASS_MERGE, DIR_CLASS_OPTIMISE};
    uint64_t back_ms = dir_balancer_value(v, DIR_BALANCER_RETURN_MS) * BRAKE_TIMES;
    struct legs l;
    memset(ret, 0, sizeof *ret);
    for (unsigned i = 0; i < BRAKE_CLASSES; i++) {
        ret->of[i].class_of = classes[i];
    }
    if (back_ms == 0) {
        return; /* who lets things return at once wants no brake */
    }
    gather(v, now_ms > back_ms ? now_ms - back_ms : 0, &l);
    for (uint32_t i = 0, next; i < l.count; i = next) {
        for (next = i + 1; next < l.count && l.of[next].partition == l.of[i].partition; next++) {
        }
        weigh(ret, &(struct run){&l.of[i], next - i}, now_ms, back_ms / BRAKE_HALF);
    }
    mem_free(l.of);
}

bool brake_holds(const struct brake *b, uint32_t class_of_work)
{
    for (unsigned i = 0; i < BRAKE_CLASSES; i++) {
        if (b->of[i].class_of == class_of_work) {
            return b->of[i].braked;
        }
    }
    return false;
}
