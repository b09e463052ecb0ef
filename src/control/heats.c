/* SPDX-License-Identifier: Apache-2.0 */
#include "control/heats.h"

#include "base/mem.h"

#include <pthread.h>

enum { CLOCK_APART_MS = 2000 }; /* from the leader's, beyond which it is taken over */

struct heats {
    pthread_mutex_t lock;
    uint64_t ahead_ms; /* the shared clock, less the monotonic one */
    struct heat *heat;
};

struct heats *heats_new(void)
{
    struct heats *h = mem_zalloc(sizeof *h);
    (void)pthread_mutex_init(&h->lock, NULL);
    h->heat = heat_new(HEAT_BYTES_MAX);
    return h;
}

void heats_free(struct heats *h)
{
    heat_free(h->heat);
    (void)pthread_mutex_destroy(&h->lock);
    mem_free(h);
}

/* As many runs of equally many partitions as there may be. */
static void choose(const struct ptree *map, struct slice *starts, struct heat_columns *ret)
{
    struct ptree_iter it;
    const struct dir_partition *p;
    uint64_t i = 0;
    uint64_t columns = map->count < HEAT_COLUMNS_MAX ? map->count : HEAT_COLUMNS_MAX;
    *ret = (struct heat_columns){.starts = starts, .partitions = map->count};
    ptree_seek(map, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it), i++) {
        if (ret->count < columns && i * columns >= ret->count * map->count) {
            starts[ret->count++] = dir_partition_start(p);
        }
    }
}

/* Columns that are runs of partitions yet, of not too different sizes, stay: rows then compare. */
static bool hold(const struct ptree *map, const struct heat_columns *now)
{
    bool same = map->count > HEAT_COLUMNS_MAX && now->count == HEAT_COLUMNS_MAX &&
                map->count < 2 * now->partitions && map->count > now->partitions / 2;
    for (uint32_t i = 0; same && i < now->count; i++) {
        same = ptree_get(map, now->starts[i]) != NULL;
    }
    return same;
}

static void follow(struct heat *h, const struct dir_view *v, uint64_t keyspace, uint64_t now_ms)
{
    const struct dir_keyspace *ks = view_keyspace_by_id(v, keyspace);
    const struct ptree *map = ks != NULL ? view_map(v, ks) : NULL;
    struct slice starts[HEAT_COLUMNS_MAX];
    struct heat_columns columns = heat_columns_of(h, keyspace);
    if (map == NULL || map->count == 0) {
        return;
    }
    if (!hold(map, &columns)) {
        choose(map, starts, &columns);
    }
    heat_set_columns(h, keyspace, &columns, now_ms);
}

void heats_put(struct heats *h,
               const struct dir_view *v,
               const struct dir_partition *p,
               const struct load_sample *s,
               uint64_t now_ms)
{
    struct slice end = dir_partition_end(p);
    (void)pthread_mutex_lock(&h->lock);
    now_ms += h->ahead_ms;
    if (heat_is_due(h->heat, p->keyspace, now_ms)) {
        follow(h->heat, v, p->keyspace, now_ms);
    }
    heat_put(h->heat, p->keyspace, dir_partition_start(p), p->end_open ? NULL : &end, s, now_ms);
    (void)pthread_mutex_unlock(&h->lock);
}

static bool read_asked(const struct heat *h, const struct heats_ask *ask, struct heat_map *ret)
{
    if (ask->by != NULL) {
        return heat_read_by(h, ask->keyspace, ask->by, ask->from_ms, ask->to_ms, ret);
    }
    if (ask->filter != NULL) {
        return heat_read_part(h, ask->keyspace, ask->filter, ask->from_ms, ask->to_ms, ret);
    }
    return heat_read(h, ask->keyspace, ask->resource, ask->from_ms, ask->to_ms, ret);
}

bool heats_read(struct heats *h, const struct heats_ask *ask, struct heat_map *ret)
{
    (void)pthread_mutex_lock(&h->lock);
    bool kept = read_asked(h->heat, ask, ret);
    (void)pthread_mutex_unlock(&h->lock);
    return kept;
}

uint64_t heats_bytes(struct heats *h)
{
    (void)pthread_mutex_lock(&h->lock);
    uint64_t bytes = heat_bytes(h->heat);
    (void)pthread_mutex_unlock(&h->lock);
    return bytes;
}

void heats_set_clock(struct heats *h, uint64_t ahead_ms)
{
    (void)pthread_mutex_lock(&h->lock);
    h->ahead_ms = ahead_ms;
    (void)pthread_mutex_unlock(&h->lock);
}

uint64_t heats_clock(struct heats *h, uint64_t now_ms)
{
    (void)pthread_mutex_lock(&h->lock);
    uint64_t clock_ms = now_ms + h->ahead_ms;
    (void)pthread_mutex_unlock(&h->lock);
    return clock_ms;
}

/* --- for followers --- */

void heats_put_page(struct heats *h,
                    const struct heat_page *page,
                    size_t enough,
                    uint64_t now_ms,
                    struct buf *b)
{
    (void)pthread_mutex_lock(&h->lock);
    heat_put_page(h->heat, page, enough, now_ms + h->ahead_ms, b);
    (void)pthread_mutex_unlock(&h->lock);
}

static void agree(struct heats *h, uint64_t clock_ms, uint64_t now_ms)
{
    uint64_t own = now_ms + h->ahead_ms;
    uint64_t apart = own > clock_ms ? own - clock_ms : clock_ms - own;
    if (apart > CLOCK_APART_MS) {
        h->ahead_ms = clock_ms - now_ms; /* may wrap, and so does what is added to it */
        heat_free(h->heat);
        h->heat = heat_new(HEAT_BYTES_MAX);
    }
}

bool heats_take_page(struct heats *h,
                     struct slice bytes,
                     uint64_t now_ms,
                     struct heat_page *page,
                     uint64_t *ret_clock_ms)
{
    bool ok = heat_page_begin(bytes, ret_clock_ms);
    (void)pthread_mutex_lock(&h->lock);
    if (ok) {
        agree(h, *ret_clock_ms, now_ms);
        ok = heat_take_page(h->heat, bytes, page);
    }
    (void)pthread_mutex_unlock(&h->lock);
    return ok;
}
