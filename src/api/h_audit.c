/* SPDX-License-Identifier: Apache-2.0 */
/* The audit: one entry a command, the newest first, from the store. */
#include "api/endpoints.h"

#include <inttypes.h>
#include <string.h>

struct audit_job {
    struct job job;
    struct listing list; /* its view is not kept: entries don't change */
    /* Commands of one log entry share an index, so the cursor also says how many of them were
     * shown. */
    uint64_t before, skip;
    uint64_t seen, count, last_index, last_shown;
    bool more;
};

static void put_text(struct buf *b, const char *member, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        buf_printf(b, ",\"%s\":", member);
        json_put_cstring(b, text);
    }
}

/* At least one row more than the page is asked for, to know whether there is more. */
static void on_row(void *arg, const struct store_audit *row)
{
    struct audit_job *j = arg;
    struct buf *b = &j->job.out;
    if (j->count == j->list.limit) {
        j->more = true;
        return;
    }
    j->last_shown = row->index == j->last_index ? j->last_shown + 1 : 1;
    j->last_index = row->index;
    if (j->seen++ < j->skip) {
        return;
    }
    if (j->count++ > 0) {
        buf_put_u8(b, ',');
    }
    buf_printf(b, "{\"index\":%" PRIu64 ",\"revision\":%" PRIu64, row->index, row->revision);
    buf_put_str(b, ",\"at\":");
    json_put_time(b, row->at_ms);
    put_text(b, "command", row->what);
    put_text(b, "outcome", row->outcome);
    put_text(b, "subject", row->subject);
    put_text(b, "reason", row->reason);
    put_text(b, "principal", row->principal);
    put_text(b, "remote", row->remote);
    put_text(b, "request_id", row->request_id);
    put_text(b, "idempotency_key", row->idempotency_key);
    buf_put_u8(b, '}');
}

static void audit_work(struct job *job)
{
    struct audit_job *j = (struct audit_job *)(void *)job;
    struct store *store = control_store(job->api->control);
    job->revision = j->list.revision;
    buf_printf(&job->out, "{\"revision\":%" PRIu64 ",\"entries\":[", job->revision);
    if (store_await(store, job->revision, API_TIMEOUT_DEFAULT_MS, &job->err) == ERR_OK) {
        job->err.code =
            store_audit(store, j->before, j->skip + j->list.limit + 1, on_row, j, &job->err);
    }
    buf_put_u8(&job->out, ']');
}

static void audit_answer(struct exchange *x, struct job *job)
{
    struct audit_job *j = (struct audit_job *)(void *)job;
    uint8_t position[16];
    (void)ptree_u64_key(j->last_index + 1, position);
    (void)ptree_u64_key(j->last_shown, position + 8);
    job_reply_page(x, job, &j->list, slice_of(position, j->more ? sizeof position : 0));
}

static void audit_close(struct job *job)
{
    struct audit_job *j = (struct audit_job *)(void *)job;
    listing_end(&j->list);
}

static void get_audit(struct exchange *x, const struct dir_view *v)
{
    struct audit_job *j;
    struct listing l;
    (void)v;
    if (!listing_begin(x, LIST_AUDIT, NULL, false, &l)) {
        return;
    }
    j = job_new(x, sizeof *j);
    j->job.work = audit_work;
    j->job.answer = audit_answer;
    j->job.close = audit_close;
    j->list = l;
    j->before = listing_u64(&l, 0);
    j->skip = listing_u64(&l, 8);
    job_start(x, &j->job);
}

void h_audit(struct exchange *x)
{
    read_begin(x, get_audit);
}
