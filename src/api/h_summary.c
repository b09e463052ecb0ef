/* SPDX-License-Identifier: Apache-2.0 */
/* What this leader has heard, for its followers: by a job, for it copies many loads. */
#include "api/endpoints.h"

#include "base/clock.h"

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
