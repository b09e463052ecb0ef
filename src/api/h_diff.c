/* SPDX-License-Identifier: Apache-2.0 */
/* What changed in a keyspace between two revisions, partition by partition: which ones the store's
 * events name, and for each how it was at both ends. */
#include "api/endpoints.h"

#include "api/route_json.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DIFF_EVENTS_MAX = 4 << 20 };

struct diff_job {
    struct job job;
    struct listing list; /* its view gives names, and is not kept: the past does not change */
    struct dir_keyspace *keyspace; /* a reference */
    dir_rev from, to;
    uint64_t *ids;
    size_t count, cap;
    bool too_many, more;
    uint64_t last;
    /* of the partition that is looked at */
    struct buf before, after, *side;
    size_t start_len;
    uint8_t start[DIR_ROUTING_KEY_MAX];
};

static bool on_event(void *arg, const struct store_event *ev)
{
    struct diff_job *j = arg;
    uint64_t id = ev->version.partition;
    if (id <= listing_u64(&j->list, 0) || (j->count > 0 && j->ids[j->count - 1] == id)) {
        return true;
    }
    if (j->count == DIFF_EVENTS_MAX) {
        j->too_many = true;
        return false;
    }
    if (j->count == j->cap) {
        j->cap = j->cap > 0 ? 2 * j->cap : 256;
        j->ids = mem_realloc(j->ids, j->cap * sizeof j->ids[0]);
    }
    j->ids[j->count++] = id;
    return true;
}

static int id_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* A range never changes, so its start finds the partition wherever it was. */
static bool on_version(void *arg, const struct store_version *v)
{
    struct diff_job *j = arg;
    j->start_len = v->start.len;
    if (v->start.len > 0) {
        memcpy(j->start, v->start.data, v->start.len);
    }
    return false;
}

static void on_route(void *arg, const struct store_version *v)
{
    struct diff_job *j = arg;
    struct route_image image;
    if (v->partition == j->last) {
        route_of_version(&image, j->list.view, j->keyspace, v);
        route_put(j->side, &image);
    }
}

/* As it was at one of the ends; nothing when it was not there. */
static void look_at(struct diff_job *j, struct store *store, dir_rev at, struct buf *side)
{
    struct slice start = slice_of(j->start, j->start_len);
    enum err_code code;
    buf_reset(side);
    j->side = side;
    code = store_route_at(store, j->keyspace->id, start, at, on_route, j, &j->job.err);
    if (code == ERR_OK || code == ERR_PARTITION_NOT_FOUND) {
        j->job.err.code = ERR_OK;
    }
}

static void put_partition(struct diff_job *j, uint64_t id)
{
    struct buf *out = &j->job.out;
    bool had = j->before.len > 0, has = j->after.len > 0;
    const char *change = had && has ? "changed" : has ? "created" : "retired";
    if (!had && !has) {
        return; /* it came and went in between */
    }
    if (j->list.count++ > 0) {
        buf_put_u8(out, ',');
    }
    buf_printf(out, "{\"partition\":%" PRIu64 ",\"change\":\"%s\"", id, change);
    if (had) {
        buf_put_str(out, ",\"before\":");
        buf_put(out, j->before.data, j->before.len);
    }
    if (has) {
        buf_put_str(out, ",\"after\":");
        buf_put(out, j->after.data, j->after.len);
    }
    buf_put_u8(out, '}');
}

static void put_partitions(struct diff_job *j, struct store *store)
{
    struct err *e = &j->job.err;
    uint64_t previous = 0;
    for (size_t i = 0; i < j->count && e->code == ERR_OK; i++) {
        uint64_t id = j->ids[i];
        if (id == previous) {
            continue;
        }
        if (j->list.count == j->list.limit) {
            j->more = true;
            return;
        }
        previous = j->last = id;
        e->code = store_history(store, id, on_version, j, e);
        if (e->code == ERR_OK) {
            look_at(j, store, j->from, &j->before);
        }
        if (e->code == ERR_OK) {
            look_at(j, store, j->to, &j->after);
        }
        if (e->code == ERR_OK) {
            put_partition(j, id);
        }
    }
}

/* Compaction may have taken away, while this ran, what it should have seen. */
static void check_compacted(struct diff_job *j)
{
    const struct dir_view *v = view_pin(control_published(j->job.api->control));
    if (j->from < v->compacted) {
        (void)err_set(&j->job.err, ERR_COMPACTED,
                      "states before revision %" PRIu64 " are no longer kept", v->compacted);
    }
    view_unpin(v);
}

static void diff_work(struct job *job)
{
    struct diff_job *j = (struct diff_job *)(void *)job;
    struct store *store = control_store(job->api->control);
    struct err *e = &job->err;
    job->revision = j->list.revision;
    buf_printf(&job->out,
               "{\"revision\":%" PRIu64 ",\"from\":%" PRIu64 ",\"to\":%" PRIu64 ",\"partitions\":[",
               job->revision, j->from, j->to);
    if (store_await(store, j->to, API_TIMEOUT_DEFAULT_MS, e) != ERR_OK ||
        store_events(store, j->keyspace->id, j->from, j->to, on_event, j, e) != ERR_OK) {
        return;
    }
    if (j->too_many) {
        (void)err_set(e, ERR_LIMIT_EXCEEDED, "too much changed in between: ask for less");
        return;
    }
    if (j->count > 0) {
        qsort(j->ids, j->count, sizeof j->ids[0], id_order);
    }
    put_partitions(j, store);
    buf_put_u8(&job->out, ']');
    if (e->code == ERR_OK) {
        check_compacted(j);
    }
}

static void diff_answer(struct exchange *x, struct job *job)
{
    struct diff_job *j = (struct diff_job *)(void *)job;
    uint8_t key[8];
    job_reply_page(x, job, &j->list, j->more ? ptree_u64_key(j->last, key) : slice_of(NULL, 0));
}

static void diff_close(struct job *job)
{
    struct diff_job *j = (struct diff_job *)(void *)job;
    listing_end(&j->list);
    dir_unref(j->keyspace);
    mem_free(j->ids);
    buf_close(&j->before);
    buf_close(&j->after);
}

/* from is required, to defaults to the revision of the first page. False when answered. */
static bool
read_ends(struct exchange *x, const struct listing *l, dir_rev *ret_from, dir_rev *ret_to)
{
    const struct dir_view *v = l->view;
    *ret_to = l->revision;
    if (exchange_param(x, "from") == NULL) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameter from is missing");
        return false;
    }
    if (!param_u64(x, "from", 0, PARSE_INT_MAX, ret_from) ||
        !param_u64(x, "to", 0, PARSE_INT_MAX, ret_to)) {
        return false;
    }
    if (*ret_from > *ret_to) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameter to must not be below from");
        return false;
    }
    if (*ret_to > v->revision) {
        reply_unavailable(x, ERR_BEHIND, "revision %" PRIu64 " was not reached yet", *ret_to);
        return false;
    }
    if (*ret_from < v->compacted) {
        reply_compacted(x, v, "states before revision %" PRIu64 " are no longer kept",
                        v->compacted);
        return false;
    }
    return true;
}

static void get_diff(struct exchange *x, const struct dir_view *v)
{
    static const char *const filters[] = {"from", "to", NULL};
    const struct dir_keyspace *ks;
    struct listing l;
    struct diff_job *j;
    dir_rev from = 0, to = 0;
    (void)v;
    if (!listing_begin(x, LIST_DIFF, filters, false, &l)) {
        return;
    }
    ks = read_keyspace(x, l.view);
    if (ks == NULL || !read_ends(x, &l, &from, &to)) {
        listing_end(&l);
        return;
    }
    union {
        const struct dir_keyspace *in;
        struct dir_keyspace *out;
    } share = {ks};
    j = job_new(x, sizeof *j);
    j->job.work = diff_work;
    j->job.answer = diff_answer;
    j->job.close = diff_close;
    j->list = l;
    j->keyspace = dir_ref(share.out);
    j->from = from;
    j->to = to;
    buf_init(&j->before, API_RESPONSE_MAX);
    buf_init(&j->after, API_RESPONSE_MAX);
    job_start(x, &j->job);
}

void h_diff(struct exchange *x)
{
    read_begin(x, get_diff);
}
