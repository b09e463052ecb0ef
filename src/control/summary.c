/* SPDX-License-Identifier: Apache-2.0 */
/* The loads that a leader has heard, as its followers ask for them: so that a new leader is not
 * blind. A page is a shard; what nodes said of themselves comes with the first. */
#include "control/loads_internal.h"

#include "base/assert.h"
#include "base/wire.h"

enum { NODES_MAX = 1 << 20, PAGE_BYTES = 1 << 20, COPY_BYTES_MAX = 1 << 30 };
#define SUMMARY_MAGIC UINT32_C(0x31534443) /* the last byte counts versions */

static void put_nodes(struct loads *l, uint64_t now_ms, struct buf *b)
{
    (void)pthread_mutex_lock(&l->lock);
    uint64_t count = l->count < NODES_MAX ? l->count : NODES_MAX;
    wire_put_u32(b, (uint32_t)count);
    for (uint64_t i = 0; i < count; i++) {
        const struct loads_node *n = &l->nodes[i];
        uint64_t age = now_ms > n->at_ms ? now_ms - n->at_ms : 0;
        wire_put_u64(b, n->node);
        wire_put_u64(b, n->session);
        wire_put_u64(b, n->seq);
        wire_put_u64(b, age);
        wire_put_u64(b, n->interval_ms);
        wire_put_u32(b, n->has);
        for (unsigned f = 0; f < LOADS_FIGURES; f++) {
            wire_put_u64(b, n->figure[f]);
        }
    }
    (void)pthread_mutex_unlock(&l->lock);
}

struct putting {
    struct buf *b;
    uint64_t now_ms;
    uint32_t count;
};

static bool put_entry(void *arg, const struct load_entry *e)
{
    struct putting *p = arg;
    if (e->has != 0) {
        load_put_record(p->b, e, p->now_ms);
        p->count++;
    }
    return true;
}

static void overwrite_u32(struct buf *b, size_t at, uint32_t v)
{
    for (unsigned i = 0; i < 4 && at + i < b->len; i++) {
        b->data[at + i] = (uint8_t)(v >> 8 * i);
    }
}

void loads_put_summary(struct loads *l,
                       unsigned page,
                       size_t enough,
                       uint64_t now_ms,
                       struct buf *b)
{
    size_t begun = b->len, next_at = b->len + 4, count_at;
    struct putting p = {b, now_ms, 0};
    wire_put_u32(b, SUMMARY_MAGIC);
    wire_put_u32(b, LOADS_PAGES);
    if (page == 0) { /* before their loads: a report of after this is no repeated one */
        put_nodes(l, now_ms, b);
    } else {
        wire_put_u32(b, 0);
    }
    count_at = b->len;
    wire_put_u32(b, 0);
    do {
        load_each(loads_enter(l, page), put_entry, &p);
        loads_leave(l, page);
        page++;
    } while (page < LOADS_PAGES && b->len - begun < enough);
    overwrite_u32(b, next_at, page);
    overwrite_u32(b, count_at, p.count);
}

static void take_node(struct loads *l, const struct dir_view *v, const struct loads_node *n)
{
    const struct dir_node *known = view_node_by_id(v, n->node);
    if (known == NULL || known->session != n->session) {
        return;
    }
    (void)pthread_mutex_lock(&l->lock);
    uint64_t at = loads_find_node(l, n->node);
    bool has = loads_has_node(l, at, n->node);
    if (!has) {
        loads_insert_node(l, at);
    }
    if (!has || l->nodes[at].session < n->session ||
        (l->nodes[at].session == n->session && l->nodes[at].at_ms < n->at_ms)) {
        l->nodes[at] = *n;
    }
    (void)pthread_mutex_unlock(&l->lock);
}

static void
take_nodes(struct loads *l, const struct dir_view *v, struct wire_reader *r, uint64_t now_ms)
{
    uint32_t count = wire_u32(r);
    for (uint32_t i = 0; i < count && r->wrong == NULL; i++) {
        struct loads_node n = {.node = wire_u64(r)};
        n.session = wire_u64(r);
        n.seq = wire_u64(r);
        uint64_t age = wire_u64(r);
        n.at_ms = now_ms > age ? now_ms - age : 0;
        n.interval_ms = wire_u64(r);
        n.has = wire_u32(r);
        for (unsigned f = 0; f < LOADS_FIGURES; f++) {
            n.figure[f] = wire_u64(r);
        }
        if (r->wrong == NULL) {
            take_node(l, v, &n);
        }
    }
}

static void take_record(struct loads *l, const struct dir_view *v, struct load_entry *e)
{
    uint8_t key[8];
    const struct dir_partition *p = ptree_get(&v->partitions, ptree_u64_key(e->partition, key));
    if (p == NULL || (e->node != 0 && !loads_follows(p, e->node))) {
        sketch_free(e->sketch);
        return;
    }
    (void)load_restore(loads_enter(l, e->partition), e);
    loads_leave(l, e->partition);
}

bool loads_take_summary(struct loads *l,
                        const struct dir_view *v,
                        struct slice bytes,
                        uint64_t now_ms,
                        unsigned *ret_next,
                        uint64_t *ret_records)
{
    struct wire_reader r = wire_reader(bytes);
    struct load_entry e;
    if (wire_u32(&r) != SUMMARY_MAGIC) {
        wire_fail(&r, "this is no summary of loads");
    }
    *ret_next = wire_u32(&r);
    if (*ret_next == 0 || *ret_next > LOADS_PAGES) {
        wire_fail(&r, "the next page");
    }
    take_nodes(l, v, &r, now_ms);
    *ret_records = wire_u32(&r);
    for (uint64_t i = 0; i < *ret_records && r.wrong == NULL; i++) {
        if (load_take_record(&r, now_ms, &e)) {
            take_record(l, v, &e);
        }
    }
    return wire_end(&r);
}

struct loads *loads_copy(struct loads *l, const struct dir_view *v, uint64_t now_ms)
{
    struct loads *copy = loads_new();
    unsigned next = 0;
    while (next < LOADS_PAGES) {
        struct buf page;
        uint64_t records;
        unsigned at = next;
        buf_init(&page, COPY_BYTES_MAX);
        loads_put_summary(l, at, PAGE_BYTES, now_ms, &page);
        bool read =
            loads_take_summary(copy, v, slice_of(page.data, page.len), now_ms, &next, &records);
        buf_close(&page);
        ASSERT(read && next > at);
    }
    return copy;
}

void loads_note_pull(struct loads *l, bool done, uint64_t bytes, uint64_t records, uint64_t now_ms)
{
    (void)pthread_mutex_lock(&l->lock);
    l->pulls.bytes += bytes;
    l->pulls.failed += done ? 0 : 1;
    if (done) {
        l->pulls.done++;
        l->pulls.records = records;
        l->pulls.last_ms = now_ms;
    }
    (void)pthread_mutex_unlock(&l->lock);
}

void loads_note_heat(struct loads *l, bool done, uint64_t bytes)
{
    (void)pthread_mutex_lock(&l->lock);
    l->pulls.bytes += bytes;
    l->pulls.failed += done ? 0 : 1;
    l->pulls.heats += done ? 1 : 0;
    (void)pthread_mutex_unlock(&l->lock);
}

struct loads_pulls loads_pulls(struct loads *l)
{
    (void)pthread_mutex_lock(&l->lock);
    struct loads_pulls pulls = l->pulls;
    (void)pthread_mutex_unlock(&l->lock);
    return pulls;
}
