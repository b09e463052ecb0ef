/* SPDX-License-Identifier: Apache-2.0 */
#include "control/throttle.h"

#include "base/mem.h"

#include <string.h>

bool throttle_is_over(const struct throttle_reading *r)
{
    return r->limit != 0 && r->value > r->limit;
}

static bool is_near(const struct throttle_reading *r)
{
    /* Limits are below 2^41 (directory/balancer.h): nothing wraps. */
    return r->limit != 0 && r->value > r->limit / 100 * THROTTLE_NEAR_PERCENT +
                                           r->limit % 100 * THROTTLE_NEAR_PERCENT / 100;
}

void throttle_close(struct throttle *t)
{
    mem_free(t->nodes);
    memset(t, 0, sizeof *t);
}

static uint32_t place_of(const struct throttle *t, uint64_t node)
{
    uint32_t low = 0, high = t->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (t->nodes[middle].why.node < node) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct throttle_node *find(const struct throttle *t, uint64_t node)
{
    uint32_t at = place_of(t, node);
    return at < t->count && t->nodes[at].why.node == node ? &t->nodes[at] : NULL;
}

static struct throttle_node *add(struct throttle *t, const struct throttle_reading *r)
{
    uint32_t at = place_of(t, r->node);
    if (t->count == t->cap) {
        t->cap = t->cap > 0 ? t->cap * 2 : 16;
        t->nodes = mem_realloc(t->nodes, t->cap * sizeof t->nodes[0]);
    }
    memmove(&t->nodes[at + 1], &t->nodes[at], (t->count - at) * sizeof t->nodes[0]);
    t->nodes[at] = (struct throttle_node){.why = *r, .share_ppm = DIR_SHARE_FULL_PPM};
    t->count++;
    return &t->nodes[at];
}

static void drop(struct throttle *t, const struct throttle_node *n)
{
    uint32_t at = (uint32_t)(n - t->nodes);
    t->count--;
    memmove(&t->nodes[at], &t->nodes[at + 1], (t->count - at) * sizeof t->nodes[0]);
}

static void take_good(struct throttle *t, struct throttle_node *n, uint64_t resume_ms, uint64_t now)
{
    n->good_since_ms = n->good ? n->good_since_ms : now;
    n->good = true;
    n->share_ppm = n->share_ppm + THROTTLE_STEP_PPM < DIR_SHARE_FULL_PPM
                       ? n->share_ppm + THROTTLE_STEP_PPM
                       : DIR_SHARE_FULL_PPM;
    n->tripped = n->tripped && now - n->good_since_ms < resume_ms;
    if (!n->tripped && n->share_ppm == DIR_SHARE_FULL_PPM) {
        drop(t, n);
    }
}

void throttle_take(struct throttle *t,
                   const struct throttle_reading *r,
                   uint64_t resume_ms,
                   uint64_t now_ms)
{
    struct throttle_node *n = find(t, r->node);
    if (!is_near(r)) {
        if (n != NULL) {
            take_good(t, n, resume_ms, now_ms);
        }
        return;
    }
    bool over = throttle_is_over(r);
    n = n != NULL ? n : add(t, r);
    n->why = *r;
    n->good = false;
    n->tripped = n->tripped || over;
    n->share_ppm =
        over || n->share_ppm / 2 < THROTTLE_FLOOR_PPM ? THROTTLE_FLOOR_PPM : n->share_ppm / 2;
}

void throttle_restore(struct throttle *t,
                      const struct throttle_reading *r,
                      uint64_t share_ppm,
                      uint64_t now_ms)
{
    struct throttle_node *n = find(t, r->node);
    n = n != NULL ? n : add(t, r);
    n->share_ppm = share_ppm < n->share_ppm ? share_ppm : n->share_ppm;
    n->tripped = n->tripped || throttle_is_over(r);
    n->good = true;
    n->good_since_ms = now_ms;
}

void throttle_prune(struct throttle *t, const struct dir_view *v)
{
    for (uint32_t i = t->count; i-- > 0;) {
        if (view_node_by_id(v, t->nodes[i].why.node) == NULL) {
            drop(t, &t->nodes[i]);
        }
    }
}

uint64_t throttle_share(const struct throttle *t,
                        uint64_t source,
                        uint64_t destination,
                        const struct throttle_reading **ret_why)
{
    const uint64_t ends[] = {source, destination};
    uint64_t share = DIR_SHARE_FULL_PPM;
    *ret_why = NULL;
    for (unsigned i = 0; i < 2; i++) {
        const struct throttle_node *n = find(t, ends[i]);
        if (n != NULL && n->share_ppm < share) {
            share = n->share_ppm;
            *ret_why = &n->why;
        }
    }
    return share;
}

const struct throttle_reading *throttle_stops(const struct throttle *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->nodes[i].tripped) {
            return &t->nodes[i].why;
        }
    }
    return NULL;
}
