/* SPDX-License-Identifier: Apache-2.0 */
/* What one server tells another of a copy's load. */
#include "balancer/load.h"

enum { HAS_NODE = 1, HAS_SKETCH = 2, FLAGS_MAX = 3, NEVER = UINT32_MAX };
#define ALL_RESOURCES ((1U << LOAD_RESOURCES) - 1)

static void put_age(struct buf *b, uint64_t then_ms, uint64_t now_ms)
{
    uint64_t age = now_ms > then_ms ? now_ms - then_ms : 0;
    wire_put_u32(b, age < NEVER - 1 ? (uint32_t)age : NEVER - 1);
}

static uint64_t take_age(struct wire_reader *r, uint64_t now_ms)
{
    uint32_t age = wire_u32(r);
    return now_ms > age ? now_ms - age : 0;
}

void load_put_record(struct buf *b, const struct load_entry *e, uint64_t now_ms)
{
    buf_put_u8(b, (uint8_t)((e->node != 0 ? HAS_NODE : 0) | (e->sketch != NULL ? HAS_SKETCH : 0)));
    wire_put_u64(b, e->partition);
    if (e->node != 0) {
        wire_put_u64(b, e->node);
    }
    wire_put_u64(b, e->epoch);
    put_age(b, e->last_ms, now_ms);
    if (e->since_ms == 0) {
        wire_put_u32(b, NEVER);
    } else {
        put_age(b, e->since_ms, now_ms);
    }
    wire_put_u32(b, e->covered_ms < NEVER ? (uint32_t)e->covered_ms : NEVER);
    for (unsigned h = LOAD_MEAN; h <= LOAD_HORIZONS; h++) {
        wire_put_u32(b, e->age_ms[h]);
    }
    wire_put_u32(b, e->has);
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        if ((e->has & 1U << r) != 0) {
            wire_put_u32(b, e->mean[r][r < LOAD_SIZE ? LOAD_MEAN : LOAD_FAST]);
        }
    }
    if ((e->has & 1U << LOAD_SIZE) != 0) {
        wire_put_u32(b, e->mean[LOAD_SIZE][LOAD_MEAN]);
        wire_put_u32(b, e->mean[LOAD_SIZE][LOAD_SLOW]);
    }
    if (e->sketch != NULL) {
        sketch_put_digest(e->sketch, b);
    }
}

static void take_means(struct wire_reader *r, struct load_entry *e)
{
    e->age_ms[LOAD_FAST] = 0;
    for (unsigned h = LOAD_MEAN; h <= LOAD_HORIZONS; h++) {
        e->age_ms[h] = wire_u32(r);
    }
    e->has = wire_u32(r);
    if ((e->has & ~ALL_RESOURCES) != 0) {
        wire_fail(r, "resources of a record");
    }
    for (unsigned k = 0; k < LOAD_RESOURCES && r->wrong == NULL; k++) {
        if ((e->has & 1U << k) != 0) {
            e->mean[k][LOAD_FAST] = e->mean[k][LOAD_MEAN] = e->mean[k][LOAD_SLOW] = wire_u32(r);
        }
    }
    if ((e->has & 1U << LOAD_SIZE) != 0) {
        e->mean[LOAD_SIZE][LOAD_MEAN] = wire_u32(r);
        e->mean[LOAD_SIZE][LOAD_SLOW] = wire_u32(r);
    }
}

bool load_take_record(struct wire_reader *r, uint64_t now_ms, struct load_entry *ret)
{
    *ret = (struct load_entry){0};
    uint8_t flags = wire_enum(r, 0, FLAGS_MAX, "flags of a record");
    ret->partition = wire_u64(r);
    ret->node = (flags & HAS_NODE) != 0 ? wire_u64(r) : 0;
    ret->epoch = wire_u64(r);
    ret->last_ms = take_age(r, now_ms);
    uint32_t since = wire_u32(r);
    ret->since_ms = since == NEVER || now_ms <= since ? 0 : now_ms - since;
    ret->covered_ms = wire_u32(r);
    take_means(r, ret);
    if (r->wrong == NULL && (flags & HAS_SKETCH) != 0) {
        ret->sketch = sketch_take_digest(r, ret->partition ^ ret->node << 32, now_ms);
    }
    return r->wrong == NULL;
}
