/* SPDX-License-Identifier: Apache-2.0 */
/* Which partitions have not what their keyspace wants, since when, and what is done about it. One
 * pass over all partitions, on a job thread. */
#include "api/endpoints.h"

#include "api/repair_json.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

enum {
    REPLICATION_LAGS_MAX = 100,    /* operations whose lag is listed */
    REPLICATION_COST_MAX = 1 << 20 /* of looking for destinations for one page */
};

struct replication_job {
    struct job job;
    struct listing list;
    uint64_t keyspace; /* 0: all */
    uint64_t last;     /* of this page */
    bool more;
    uint64_t partitions, under, unavailable, misplaced, crowded, surplus, draining, blocked;
    uint64_t oldest_ms, oldest;
    struct buf page;
};

static void
count(struct replication_job *j, const struct dir_partition *p, const struct repair_step *s)
{
    j->under += (s->problems & REPAIR_UNDER_REPLICATED) != 0;
    j->unavailable += (s->problems & REPAIR_UNAVAILABLE) != 0;
    j->misplaced += (s->problems & REPAIR_MISPLACED) != 0;
    j->crowded += (s->problems & REPAIR_CROWDED) != 0;
    j->surplus += (s->problems & (REPAIR_SURPLUS | REPAIR_DEAD_COPY)) != 0;
    j->draining += (s->problems & REPAIR_DRAINS) != 0;
    j->blocked += s->code != NULL && s->operation == 0;
    if (s->under_since_ms != 0 && (j->oldest_ms == 0 || s->under_since_ms < j->oldest_ms)) {
        j->oldest_ms = s->under_since_ms;
        j->oldest = p->id;
    }
}

static void list_it(struct replication_job *j,
                    struct repair *r,
                    const struct dir_partition *p,
                    struct repair_step *s)
{
    bool before = j->list.resumed && p->id < listing_u64(&j->list, 0);
    if (s->problems == 0 || before || j->more) {
        return;
    }
    if (j->list.count == j->list.limit || repair_cost(r) > REPLICATION_COST_MAX) {
        j->more = true;
        j->last = p->id;
        return;
    }
    repair_choose(r, p, 0, s);
    if (j->list.count++ > 0) {
        buf_put_u8(&j->page, ',');
    }
    repair_json_put(&j->page, j->list.view, p, s);
}

static void walk(struct replication_job *j)
{
    const struct dir_view *v = j->list.view;
    struct repair *r = repair_json_open(v);
    const struct dir_partition *p;
    struct ptree_iter it;
    ptree_seek(&v->partitions, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        struct repair_step s;
        if ((j->keyspace != 0 && p->keyspace != j->keyspace) ||
            view_keyspace_by_id(v, p->keyspace) == NULL) {
            continue;
        }
        j->partitions++;
        repair_look(r, p, &s);
        count(j, p, &s);
        list_it(j, r, p, &s);
    }
    repair_close(r);
}

/* --- operations --- */

struct transfers {
    uint64_t waiting_bytes, unknown, lag_max, lags;
    const struct dir_operation *divergence; /* the oldest that no later operation has repaired */
};

static bool diverged(const struct dir_operation *o)
{
    return (o->state == DIR_OPERATION_ABORTED || o->state == DIR_OPERATION_FAILED) &&
           (strcmp(o->attention_code, "validation_mismatch") == 0 ||
            strcmp(o->attention_code, "old_epoch_writes") == 0);
}

/* By a later one of the same partition that came to its end. */
static bool is_repaired(const struct dir_view *v, const struct dir_operation *o)
{
    const struct dir_operation *later;
    struct ptree_iter it;
    uint8_t key[8];
    if (ptree_get(&v->partitions, ptree_u64_key(o->partition, key)) == NULL) {
        return true;
    }
    for (ptree_seek(&v->operations, ptree_u64_key(o->id + 1, key), &it);
         (later = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (later->partition == o->partition && later->state == DIR_OPERATION_DONE) {
            return true;
        }
    }
    return false;
}

static void put_lag(struct buf *out, struct transfers *t, const struct dir_operation *o)
{
    t->lag_max = o->lag_bytes > t->lag_max ? o->lag_bytes : t->lag_max;
    if (t->lags < REPLICATION_LAGS_MAX) {
        buf_printf(out,
                   "%s{\"operation\":%" PRIu64 ",\"keyspace\":\"%s\",\"partition\":%" PRIu64
                   ",\"node\":\"%s\",\"lag_bytes\":%" PRIu64 "}",
                   t->lags > 0 ? "," : "", o->id, o->keyspace_name, o->partition,
                   o->destination_name, o->lag_bytes);
        t->lags++;
    }
}

static void put_transfers(struct replication_job *j)
{
    const struct dir_view *v = j->list.view;
    struct buf *out = &j->job.out;
    struct transfers t = {0};
    const struct dir_operation *o;
    struct ptree_iter it;
    buf_put_str(out, ",\"lag\":[");
    for (ptree_seek(&v->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        bool copies = o->kind == DIR_OPERATION_MOVE || o->kind == DIR_OPERATION_ADD_REPLICA;
        if (t.divergence == NULL && diverged(o) && !is_repaired(v, o)) {
            t.divergence = o;
        }
        if (!copies || o->state > DIR_OPERATION_RUNNING || o->stage > DIR_STAGE_CUTOVER) {
            continue;
        }
        t.unknown += o->bytes_total == 0;
        t.waiting_bytes += o->bytes_total > o->bytes_done ? o->bytes_total - o->bytes_done : 0;
        if (o->stage >= DIR_STAGE_CATCH_UP) {
            put_lag(out, &t, o);
        }
    }
    buf_printf(out,
               "],\"lag_bytes_max\":%" PRIu64 ",\"bytes_awaiting_transfer\":%" PRIu64
               ",\"transfers_of_unknown_size\":%" PRIu64 ",\"oldest_divergence\":",
               t.lag_max, t.waiting_bytes, t.unknown);
    if (t.divergence != NULL) {
        buf_printf(out,
                   "{\"keyspace\":\"%s\",\"partition\":%" PRIu64 ",\"operation\":%" PRIu64
                   ",\"code\":\"%s\",\"since\":",
                   t.divergence->keyspace_name, t.divergence->partition, t.divergence->id,
                   t.divergence->attention_code);
        json_put_time(out, t.divergence->attention_since_ms);
        buf_put_u8(out, '}');
    } else {
        buf_put_str(out, "null");
    }
}

/* --- the answer --- */

static void put_recovery(struct replication_job *j)
{
    const struct dir_view *v = j->list.view;
    struct repair_breaker b = repair_breaker(v);
    buf_printf(&j->job.out,
               ",\"recovery\":{\"paused\":%s,\"delay_ms\":%" PRIu64 ",\"nodes\":%" PRIu64
               ",\"away\":%" PRIu64,
               b.tripped ? "true" : "false", v->settings.recovery_delay_ms, b.nodes, b.away);
    if (b.tripped) {
        buf_printf(&j->job.out,
                   ",\"reason\":\"%" PRIu64 " of %" PRIu64
                   " nodes are away at once: nothing is made anew or moved unasked before they "
                   "are back or declared lost\"",
                   b.away, b.nodes);
    }
    buf_put_u8(&j->job.out, '}');
}

static void replication_work(struct job *job)
{
    struct replication_job *j = (struct replication_job *)(void *)job;
    struct buf *out = &job->out;
    job->revision = j->list.revision;
    walk(j);
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"totals\":{\"partitions\":%" PRIu64, job->revision,
               j->partitions);
    buf_printf(out,
               ",\"under_replicated\":%" PRIu64 ",\"unavailable\":%" PRIu64
               ",\"misplaced\":%" PRIu64 ",\"crowded\":%" PRIu64 ",\"surplus\":%" PRIu64
               ",\"draining\":%" PRIu64 ",\"blocked\":%" PRIu64 "},\"oldest_under_replicated\":",
               j->under, j->unavailable, j->misplaced, j->crowded, j->surplus, j->draining,
               j->blocked);
    if (j->oldest_ms != 0) {
        buf_printf(out, "{\"partition\":%" PRIu64 ",\"since\":", j->oldest);
        json_put_time(out, j->oldest_ms);
        buf_put_u8(out, '}');
    } else {
        buf_put_str(out, "null");
    }
    put_recovery(j);
    put_transfers(j);
    buf_put_str(out, ",\"partitions\":[");
    buf_put(out, j->page.data, j->page.len);
    buf_put_u8(out, ']');
    if (out->overflow || j->page.overflow) {
        (void)err_set(&job->err, ERR_LIMIT_EXCEEDED, "the page is too long: ask for less");
    }
}

static void replication_answer(struct exchange *x, struct job *job)
{
    struct replication_job *j = (struct replication_job *)(void *)job;
    uint8_t key[8];
    job_reply_page(x, job, &j->list, j->more ? ptree_u64_key(j->last, key) : slice_of(NULL, 0));
}

static void replication_close(struct job *job)
{
    struct replication_job *j = (struct replication_job *)(void *)job;
    listing_end(&j->list);
    buf_close(&j->page);
}

static void get_replication(struct exchange *x, const struct dir_view *v)
{
    static const char *const filters[] = {"keyspace", NULL};
    const struct dir_keyspace *ks = NULL;
    char name[DIR_NAME_MAX + 1];
    struct replication_job *j;
    struct listing l;
    (void)v;
    if (!param_text(x, "keyspace", name, sizeof name) ||
        !listing_begin(x, LIST_REPLICATION, filters, true, &l)) {
        return;
    }
    if (name[0] != '\0') {
        ks = view_keyspace(l.view, slice_of(name, strlen(name)));
        if (ks == NULL) {
            reply_missing(x, l.view, ERR_KEYSPACE_NOT_FOUND, "there is no keyspace of this name");
            listing_end(&l);
            return;
        }
    }
    j = job_new(x, sizeof *j);
    j->job.work = replication_work;
    j->job.answer = replication_answer;
    j->job.close = replication_close;
    j->list = l;
    j->keyspace = ks != NULL ? ks->id : 0;
    buf_init(&j->page, API_RESPONSE_MAX);
    job_start(x, &j->job);
}

void h_replication(struct exchange *x)
{
    read_begin(x, get_replication);
}
