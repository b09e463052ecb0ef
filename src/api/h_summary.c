/* SPDX-License-Identifier: Apache-2.0 */
/* What this leader has heard, for its followers: by a job, for it copies many loads. */
#include "api/endpoints.h"

#include "base/clock.h"
#include "base/parse.h"

enum { SUMMARY_ENOUGH_BYTES = 1 << 20 };

struct summary_job {
    struct job job;
    uint64_t page;
};

static void summary_work(struct job *job)
{
    const struct summary_job *j = (struct summary_job *)(void *)job;
    loads_put_summary(control_loads(job->api->control), (unsigned)j->page, SUMMARY_ENOUGH_BYTES,
                      clock_mono_ms(), &job->out);
}

static void summary_answer(struct exchange *x, struct job *job)
{
    buf_put(exchange_out(x), job->out.data, job->out.len);
    exchange_reply(x, 200, "application/octet-stream");
}

/* --- the heat map --- */

struct heat_page_job {
    struct job job;
    struct heat_page page;
};

static void heat_page_work(struct job *job)
{
    const struct heat_page_job *j = (struct heat_page_job *)(void *)job;
    heats_put_page(loads_heats(control_loads(job->api->control)), &j->page, SUMMARY_ENOUGH_BYTES,
                   clock_mono_ms(), &job->out);
}

void h_load_heat(struct exchange *x)
{
    uint64_t since = 0, next = 0;
    if (!leads(x) || !param_u64(x, "since_ms", 0, PARSE_INT_MAX, &since) ||
        !param_u64(x, "next", 0, HEAT_PAGES - 1, &next)) {
        return;
    }
    struct heat_page_job *j = job_new(x, sizeof *j);
    j->job.work = heat_page_work;
    j->job.answer = summary_answer;
    j->page = (struct heat_page){.since_ms = since, .next = (uint32_t)next};
    job_start(x, &j->job);
}

/* --- loads --- */

void h_load_summary(struct exchange *x)
{
    uint64_t page = 0;
    if (!leads(x) || !param_u64(x, "page", 0, LOADS_PAGES - 1, &page)) {
        return;
    }
    struct summary_job *j = job_new(x, sizeof *j);
    j->job.work = summary_work;
    j->job.answer = summary_answer;
    j->page = page;
    job_start(x, &j->job);
}
