/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a partition that moves. Until the cutover it is a move like any other, whose candidate
 * has less than all. A partition's range never changes, so the cutover's one command retires the
 * id: the part goes to the destination and the rest stays, each under an id and an epoch of its
 * own. */
#include "directory/operation.h"

#include "base/assert.h"
#include "directory/codec.h"

enum { PARTS_MAX = 3 };

static void copy_key(struct slice from, uint8_t *to, uint16_t *ret_len)
{
    if (from.len > 0) {
        memcpy(to, from.data, from.len);
    }
    *ret_len = (uint16_t)from.len;
}

/* How two ends compare; an open one is above all keys. */
static int compare_ends(bool a_open, struct slice a, bool b_open, struct slice b)
{
    if (a_open || b_open) {
        return a_open - b_open;
    }
    return slice_cmp(a, b);
}

static bool has_left(const struct dir_partition *p, const struct dir_part *part)
{
    return slice_cmp(dir_part_start(part), dir_partition_start(p)) > 0;
}

static bool has_right(const struct dir_partition *p, const struct dir_part *part)
{
    return compare_ends(part->end_open, dir_part_end(part), p->end_open, dir_partition_end(p)) < 0;
}

static enum err_code
check_inside(struct apply *a, const struct dir_partition *p, const struct dir_part *part)
{
    if (slice_cmp(dir_part_start(part), dir_partition_start(p)) < 0) {
        return err_set_at(&a->err, ERR_BAD_SPLIT_KEY, "/range/start",
                          "it is below the partition's start");
    }
    if (compare_ends(part->end_open, dir_part_end(part), p->end_open, dir_partition_end(p)) > 0) {
        return err_set_at(&a->err, ERR_BAD_SPLIT_KEY, "/range/end",
                          "it is above the partition's end");
    }
    if (!part->end_open && slice_cmp(dir_part_start(part), dir_part_end(part)) >= 0) {
        return err_set_at(&a->err, ERR_BAD_SPLIT_KEY, "/range/end", "it is not above the start");
    }
    if (!has_left(p, part) && !has_right(p, part)) {
        return err_set_at(&a->err, ERR_BAD_SPLIT_KEY, "/range",
                          "it is the whole partition, which moves without a range");
    }
    if (a->s->partitions.count + PARTS_MAX - 1 > DIR_PARTITIONS_MAX) {
        return err_set(&a->err, ERR_LIMIT_EXCEEDED,
                       "the directory has no room for the partitions that it would come to");
    }
    return ERR_OK;
}

enum err_code part_read(struct apply *a, const struct dir_partition *p, struct dir_part *out)
{
    const Cadastre__OperationStart *m = a->cmd->operation_start;
    const struct dir_keyspace *ks = state_keyspace(a->s, p->keyspace);
    size_t max = ks->scheme == DIR_SCHEME_HASH ? DIR_ROUTING_KEY_MAX : DIR_KEY_MAX;
    memset(out, 0, sizeof *out);
    if (m->range_start.len > max || m->range_end.len > max) {
        return err_set_at(&a->err, ERR_BAD_SPLIT_KEY,
                          m->range_start.len > max ? "/range/start" : "/range/end",
                          "it is longer than a key may be");
    }
    out->is_set = true;
    out->hex = dir_codec_bounds_are_hex(ks);
    out->end_open = m->range_end_open && p->end_open;
    struct slice start = slice_of(m->range_start.data, m->range_start.len);
    copy_key(start.len > 0 ? start : dir_partition_start(p), out->start, &out->start_len);
    if (!out->end_open) {
        struct slice end = slice_of(m->range_end.data, m->range_end.len);
        copy_key(m->range_end_open ? dir_partition_end(p) : end, out->end, &out->end_len);
    }
    return check_inside(a, p, out);
}

bool part_bounds(const struct dir_operation *o,
                 const struct dir_partition *p,
                 struct slice *ret_start,
                 struct slice *ret_end)
{
    if (o != NULL && o->part.is_set) {
        *ret_start = dir_part_start(&o->part);
        *ret_end = o->part.end_open ? slice_of(NULL, 0) : dir_part_end(&o->part);
        return o->part.end_open;
    }
    *ret_start = dir_partition_start(p);
    *ret_end = p->end_open ? slice_of(NULL, 0) : dir_partition_end(p);
    return p->end_open;
}

/* --- the cutover --- */

struct pieces {
    struct moving *m;
    struct touched *t;
    uint64_t ids[PARTS_MAX];
    uint32_t count, total;
};

static void put_piece(struct pieces *x, struct dir_partition *like, struct partition_arrays *arrays)
{
    struct moving *m = x->m;
    bool is_moved = like->operation == m->o->id;
    like->id = x->ids[x->count++] = apply_id(m->a);
    like->created = like->epoch = like->mod_revision = m->a->rev;
    like->rate_limit = partition_share(m->old->rate_limit, x->total);
    arrays->parents = &m->old->id;
    arrays->parent_count = 1;
    struct dir_partition *now = partition_new(like, arrays);
    apply_count(m->a, now, 1);
    if (is_moved || !m->quiet_source) {
        touched_route(x->t, now);
    }
    apply_put(m->a, now);
}

/* What stays is as it was, but for the candidate and the fence. */
static void put_rest(struct pieces *x, const struct partition_arrays *bounds)
{
    const struct dir_partition *old = x->m->old;
    struct dir_replica replicas[DIR_REPLICAS_MAX];
    struct partition_arrays arrays = *bounds;
    struct dir_partition like = partition_like(old);
    arrays.replicas = replicas;
    arrays.replica_count = 0;
    for (uint8_t i = 0; i < old->replica_count; i++) {
        if (old->replicas[i].node != x->m->o->destination) {
            replicas[arrays.replica_count++] = old->replicas[i];
        }
    }
    like.state = partition_has_primary(old) ? DIR_ACTIVE : DIR_UNAVAILABLE;
    like.operation = 0;
    like.moving = 0;
    like.start_position = 0;
    like.cause = DIR_CHANGE_SPLIT;
    put_piece(x, &like, &arrays);
}

void part_put(struct moving *m)
{
    const struct dir_partition *old = m->old;
    const struct dir_part *part = &m->o->part;
    bool left = has_left(old, part), right = has_right(old, part);
    struct pieces x = {.m = m, .total = 1U + left + right};
    struct partition_arrays arrays = partition_arrays(old);
    apply_count(m->a, old, -1);
    x.t = apply_touch(m->a, old->keyspace, DIR_CHANGE_SPLIT);
    touched_removed(x.t, old->id);
    arrays.end_open = false;
    arrays.end = dir_part_start(part);
    if (left) {
        put_rest(&x, &arrays);
    }
    arrays.start = dir_part_start(part);
    arrays.end_open = part->end_open;
    arrays.end = dir_part_end(part);
    arrays.replicas = m->replicas;
    arrays.replica_count = m->replica_count;
    put_piece(&x, m->like, &arrays);
    m->o->retired = old->id;
    m->o->partition = x.ids[x.count - 1];
    arrays.start = arrays.end;
    arrays.end_open = old->end_open;
    arrays.end = dir_partition_end(old);
    if (right) {
        put_rest(&x, &arrays);
    }
    ASSERT(x.count == x.total);
    partition_retire(m->a, old, DIR_CHANGE_SPLIT, x.ids, x.count);
    m->a->kind = DIR_CHANGE_SPLIT;
}
