/* SPDX-License-Identifier: Apache-2.0 */
/* What would come of a change: a simulation from the leader's present state and loads, on a thread
 * for long reads, one at a time. It ends at a bound of processor time, and when the server stops.
 */
#include "api/endpoints.h"

#include "api/whatif_json.h"
#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

/* Of one simulation; then it is truncated. The second is for a machine that is busy. */
enum { CPU_MAX_MS = 20000, TIME_MAX_MS = 45000 };

struct whatif_job {
    struct job job;
    struct whatif question;
    uint64_t until_cpu_ms; /* of the thread's own processor time */
    uint64_t until_ms;     /* monotonic */
    bool holds;            /* it is the one at a time */
};

static void let_go(struct whatif_job *j)
{
    if (j->holds) {
        j->holds = false;
        atomic_store(&j->job.api->simulates, false);
    }
}

static bool is_over(void *arg)
{
    const struct whatif_job *j = arg;
    return clock_thread_cpu_ms() >= j->until_cpu_ms || clock_mono_ms() >= j->until_ms ||
           jobs_stopping(j->job.api->jobs);
}

static void simulate(struct whatif_job *j, const struct dir_view *v)
{
    struct control *control = j->job.api->control;
    struct control_planning planning = {.memory = NULL};
    uint64_t wall = clock_wall_ms();
    struct whatif_state s = {.view = v,
                             .loads = control_loads(control),
                             .mono_ms = clock_mono_ms(),
                             .log_ms = v->time_ms > wall ? v->time_ms : wall,
                             .stop = is_over,
                             .stop_arg = j};
    struct whatif_answer answer;
    if (control_planning(control, &planning)) {
        s.memory = planning.memory;
        s.births = planning.births;
        s.birth_count = planning.birth_count;
        s.log_ms = planning.log_ms > v->time_ms ? planning.log_ms : v->time_ms;
    }
    j->until_cpu_ms = clock_thread_cpu_ms() + CPU_MAX_MS;
    j->until_ms = s.mono_ms + TIME_MAX_MS;
    if (whatif_run(&j->question, &s, &answer, &j->job.err) == ERR_OK) {
        whatif_put(&j->job.out, v, &j->question, &answer);
        whatif_answer_close(&answer);
    }
    bal_memory_free(planning.memory);
    mem_free(planning.births);
}

static void work(struct job *job)
{
    struct whatif_job *j = (struct whatif_job *)(void *)job;
    const struct dir_view *v = view_pin(control_published(job->api->control));
    job->revision = v->revision;
    simulate(j, v);
    view_unpin(v);
    if (jobs_stopping(job->api->jobs)) {
        (void)err_set(&job->err, ERR_NOT_READY, "the server stops");
    }
    let_go(j); /* before the answer: whoever has it may ask again */
}

/* Also of a job that never ran. */
static void close_job(struct job *job)
{
    struct whatif_job *j = (struct whatif_job *)(void *)job;
    whatif_close(&j->question);
    let_go(j);
}

void h_balancer_simulate(struct exchange *x)
{
    struct api *api = exchange_api(x);
    struct whatif question;
    struct err e;
    if (!leads(x)) {
        return;
    }
    json_t *body = json_parse_object(exchange_body(x), &e);
    if (body == NULL || whatif_read(body, &question, &e) != ERR_OK) {
        exchange_problem(x, &e, NULL, NULL);
        json_decref(body);
        return;
    }
    json_decref(body);
    if (atomic_exchange(&api->simulates, true)) {
        whatif_close(&question);
        reply_unavailable(x, ERR_OVERLOADED, "another simulation is under way: try again later");
        return;
    }
    struct whatif_job *j = job_new(x, sizeof *j);
    j->job.work = work;
    j->job.answer = job_reply;
    j->job.close = close_job;
    memcpy(&j->question, &question, sizeof question);
    j->holds = true;
    job_start(x, &j->job);
}
