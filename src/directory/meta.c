/* SPDX-License-Identifier: Apache-2.0 */
/* The scalars of a state as bytes: big-endian, in the order of the fields, the cluster's id in 32
 * bytes. */
#include "directory/directory.h"
#include "directory/ptree.h"

#include <string.h>

enum {
    CLUSTER_SIZE = 32,
    BUDGETS = 2 * DIR_BUDGETS + 2,
    SCALARS = 17 + BUDGETS + 2 * DIR_MARKS_MAX,
    META_SIZE = CLUSTER_SIZE + 8 * SCALARS
};

static void put(struct buf *out, uint64_t v)
{
    uint8_t bytes[8];
    buf_put(out, ptree_u64_key(v, bytes).data, 8);
}

static void put_budgets(struct buf *out, const struct dir_budgets *b)
{
    for (int i = 1; i <= DIR_BUDGETS; i++) {
        put(out, b->limits[i].moves);
        put(out, b->limits[i].bytes_per_s);
    }
    put(out, b->reserve_percent);
    put(out, b->release_ms);
}

void dir_meta_encode(const struct dir_view_meta *m, struct buf *out)
{
    char cluster[CLUSTER_SIZE] = {0};
    memcpy(cluster, m->cluster, strnlen(m->cluster, CLUSTER_SIZE));
    buf_put(out, cluster, sizeof cluster);
    put(out, m->generation);
    put(out, m->next_id);
    put(out, m->time_ms);
    put(out, m->revision);
    put(out, m->compacted);
    put(out, m->settings.history_retention_ms);
    put(out, m->settings.history_max);
    put(out, m->settings.dedupe_retention_ms);
    put(out, m->settings.lease_ms);
    put(out, m->settings.heartbeat_ms);
    put(out, m->settings.stage_timeout_ms);
    put(out, m->settings.dual_write_max_ms);
    put(out, m->settings.fence_max_ms);
    put(out, m->settings.validation_window_ms);
    put(out, m->settings.cutover_lag_bytes);
    put(out, m->settings.recovery_delay_ms);
    put(out, m->settings.distrust_ms);
    put_budgets(out, &m->settings.budgets);
    for (int i = 0; i < DIR_MARKS_MAX; i++) {
        put(out, m->marks[i].at_ms);
        put(out, m->marks[i].revision);
    }
}

static uint64_t get(const uint8_t **at)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) {
        v = v << 8 | *(*at)++;
    }
    return v;
}

static void get_budgets(const uint8_t **at, struct dir_budgets *b)
{
    for (int i = 1; i <= DIR_BUDGETS; i++) {
        b->limits[i].moves = get(at);
        b->limits[i].bytes_per_s = get(at);
    }
    b->reserve_percent = get(at);
    b->release_ms = get(at);
}

enum err_code dir_meta_decode(struct slice bytes, struct dir_view_meta *ret_meta, struct err *e)
{
    if (bytes.len != META_SIZE) {
        return err_set(e, ERR_CORRUPT, "the directory's scalars have %zu bytes", bytes.len);
    }
    struct dir_view_meta m;
    const uint8_t *at = bytes.data + CLUSTER_SIZE;
    memset(&m, 0, sizeof m);
    memcpy(m.cluster, bytes.data, CLUSTER_SIZE);
    m.generation = get(&at);
    m.next_id = get(&at);
    m.time_ms = get(&at);
    m.revision = get(&at);
    m.compacted = get(&at);
    m.settings.history_retention_ms = get(&at);
    m.settings.history_max = get(&at);
    m.settings.dedupe_retention_ms = get(&at);
    m.settings.lease_ms = get(&at);
    m.settings.heartbeat_ms = get(&at);
    m.settings.stage_timeout_ms = get(&at);
    m.settings.dual_write_max_ms = get(&at);
    m.settings.fence_max_ms = get(&at);
    m.settings.validation_window_ms = get(&at);
    m.settings.cutover_lag_bytes = get(&at);
    m.settings.recovery_delay_ms = get(&at);
    m.settings.distrust_ms = get(&at);
    get_budgets(&at, &m.settings.budgets);
    for (int i = 0; i < DIR_MARKS_MAX; i++) {
        m.marks[i].at_ms = get(&at);
        m.marks[i].revision = get(&at);
    }
    *ret_meta = m;
    return ERR_OK;
}
