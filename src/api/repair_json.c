/* SPDX-License-Identifier: Apache-2.0 */
#include "api/repair_json.h"

#include "base/clock.h"

#include <inttypes.h>
#include <string.h>

enum {
    DRAIN_BLOCKED_MAX = 16,   /* named; more are only counted */
    DRAIN_LOOKED_MAX = 10000, /* copies looked at for what blocks them */
    DRAIN_COST_MAX = 20000    /* of looking for destinations */
};

static bool is_gone(void *arg, const struct dir_node *n)
{
    const struct dir_view *v = arg;
    return n->ended_ms + v->settings.recovery_delay_ms <= repair_json_now(v);
}

uint64_t repair_json_now(const struct dir_view *v)
{
    uint64_t wall = clock_wall_ms();
    return wall > v->time_ms ? wall : v->time_ms;
}

struct repair *repair_json_open(const struct dir_view *v)
{
    union {
        const struct dir_view *in;
        void *out;
    } lent = {v};
    struct repair_clock clock = {repair_json_now(v), is_gone, lent.out};
    return repair_open(v, &clock);
}

static const char *name_of(const struct dir_view *v, uint64_t node)
{
    const struct dir_node *n = view_node_by_id(v, node);
    return n != NULL ? n->name : "";
}

static void put_problems(struct buf *b, unsigned problems)
{
    static const char *const names[] = {"under_replicated", "unavailable", "surplus",  "misplaced",
                                        "crowded",          "draining",    "dead_copy"};
    bool first = true;
    buf_put_str(b, ",\"problems\":[");
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if ((problems >> i & 1) != 0) {
            buf_printf(b, first ? "\"%s\"" : ",\"%s\"", names[i]);
            first = false;
        }
    }
    buf_put_u8(b, ']');
}

static void put_next(struct buf *b, const struct dir_view *v, const struct repair_step *s)
{
    buf_printf(b, ",\"next\":{\"kind\":\"%s\",\"class\":%" PRIu32, dir_operation_kind_name(s->kind),
               s->class_of);
    if (s->from != 0) {
        buf_printf(b, ",\"from\":\"%s\"", name_of(v, s->from));
    }
    if (s->to != 0) {
        buf_printf(b, ",\"to\":\"%s\"", name_of(v, s->to));
    }
    if (s->role != 0) {
        buf_printf(b, ",\"role\":\"%s\"", dir_role_name(s->role));
    }
    buf_put_str(b, ",\"reason\":");
    json_put_cstring(b, s->reason);
    buf_put_u8(b, '}');
}

static void put_blocked(struct buf *b, const struct repair_step *s)
{
    buf_printf(b, "\"code\":\"%s\",\"detail\":", s->code);
    json_put_cstring(b, s->detail);
}

void repair_json_put(struct buf *b,
                     const struct dir_view *v,
                     const struct dir_partition *p,
                     const struct repair_step *s)
{
    const struct dir_keyspace *ks = view_keyspace_by_id(v, p->keyspace);
    buf_printf(b, "{\"keyspace\":\"%s\",\"partition\":%" PRIu64, ks->name, p->id);
    put_problems(b, s->problems);
    buf_printf(b, ",\"sync\":{\"live\":%u,\"wanted\":%u},\"async\":{\"live\":%u,\"wanted\":%u}",
               s->sync_live, s->sync_wanted, s->async_live, s->async_wanted);
    if (s->under_since_ms != 0) {
        uint64_t now = repair_json_now(v);
        buf_put_str(b, ",\"since\":");
        json_put_time(b, s->under_since_ms);
        buf_printf(b, ",\"for_ms\":%" PRIu64,
                   now > s->under_since_ms ? now - s->under_since_ms : 0);
    }
    if (s->operation != 0) {
        buf_printf(b, ",\"operation\":%" PRIu64, s->operation);
    }
    if (s->kind != 0) {
        put_next(b, v, s);
    } else if (s->code != NULL) {
        buf_put_str(b, ",\"blocked\":{");
        put_blocked(b, s);
        buf_put_u8(b, '}');
    }
    buf_put_u8(b, '}');
}

/* --- a drain --- */

struct drain {
    const struct dir_view *v;
    const struct dir_node *node;
    struct repair *repair;
    struct buf *out;
    uint64_t primaries, looked, blocked;
    uint64_t running, queued, done;
    uint64_t eta_sum_ms, eta_count; /* of running copies, as fast as they are now */
};

static bool look(void *arg, struct dir_partition *p)
{
    struct drain *d = arg;
    struct repair_step s;
    d->primaries += p->replicas[0].node == d->node->id && p->replicas[0].role == DIR_ROLE_PRIMARY;
    if (d->looked++ >= DRAIN_LOOKED_MAX || repair_cost(d->repair) > DRAIN_COST_MAX ||
        view_keyspace_by_id(d->v, p->keyspace) == NULL) {
        return true;
    }
    repair_next(d->repair, p, &s);
    if (s.code == NULL || s.operation != 0) {
        return true;
    }
    if (d->blocked++ < DRAIN_BLOCKED_MAX) {
        buf_printf(d->out, "%s{\"keyspace\":\"%s\",\"partition\":%" PRIu64 ",",
                   d->blocked > 1 ? "," : "", view_keyspace_by_id(d->v, p->keyspace)->name, p->id);
        put_blocked(d->out, &s);
        buf_put_u8(d->out, '}');
    }
    return true;
}

static void count_operation(struct drain *d, const struct dir_operation *o, uint64_t now)
{
    bool copies = o->stage == DIR_STAGE_COPY && o->bytes_done > 0 && now > o->stage_since_ms;
    d->queued += o->state == DIR_OPERATION_QUEUED;
    d->running += o->state == DIR_OPERATION_RUNNING;
    d->done += o->state == DIR_OPERATION_DONE && o->kind == DIR_OPERATION_MOVE &&
               o->stage_since_ms >= d->node->scheduling_ms;
    if (o->state == DIR_OPERATION_RUNNING && copies) {
        uint64_t left = o->bytes_total > o->bytes_done ? o->bytes_total - o->bytes_done : 0;
        uint64_t per_s = o->bytes_done * 1000 / (now - o->stage_since_ms);
        d->eta_sum_ms += left / (per_s / 1000 + 1);
        d->eta_count++;
    }
}

static void count_operations(struct drain *d, uint64_t now)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    for (ptree_seek(&d->v->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (o->leaving == d->node->id) {
            count_operation(d, o, now);
        }
    }
}

/* By how many moves were done since it began; before the first one, by how fast those that run
 * copy; else it is not known. */
static void put_eta(const struct drain *d, uint64_t now)
{
    uint64_t left = d->node->partition_count;
    uint64_t took = now > d->node->scheduling_ms ? now - d->node->scheduling_ms : 0;
    buf_put_str(d->out, ",\"eta_ms\":");
    if (left == 0) {
        buf_put_u8(d->out, '0');
    } else if (d->done > 0) {
        buf_put_u64_dec(d->out, took / d->done * left);
    } else if (d->eta_count > 0) {
        uint64_t rounds = (left + d->eta_count - 1) / d->eta_count;
        buf_put_u64_dec(d->out, d->eta_sum_ms / d->eta_count * rounds);
    } else {
        buf_put_str(d->out, "null");
    }
}

void repair_json_put_drain(struct buf *b, const struct dir_view *v, const struct dir_node *n)
{
    struct drain d = {.v = v, .node = n, .out = b};
    uint64_t now = repair_json_now(v);
    if (n->scheduling != DIR_DRAINING) {
        return;
    }
    d.repair = repair_json_open(v);
    count_operations(&d, now);
    buf_put_str(b, ",\"drain\":{\"since\":");
    json_put_time(b, n->scheduling_ms);
    buf_put_str(b, ",\"blocked\":[");
    view_node_partitions(v, n->id, look, &d);
    buf_printf(b,
               "],\"blocked_count\":%" PRIu64 ",\"partitions_left\":%" PRIu64
               ",\"copies_left\":%" PRIu64 ",\"operations_running\":%" PRIu64
               ",\"operations_queued\":%" PRIu64,
               d.blocked, d.primaries, n->partition_count, d.running, d.queued);
    put_eta(&d, now);
    buf_put_u8(b, '}');
    repair_close(d.repair);
}
