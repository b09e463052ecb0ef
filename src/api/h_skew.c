/* SPDX-License-Identifier: Apache-2.0 */
/* How uneven the load is, as the leader has heard: by a job, for it looks at every partition. */
#include "api/endpoints.h"

#include "api/skew_view.h"
#include "base/clock.h"
#include "base/parse.h"

#include <string.h>

struct skew_job {
    struct job job;
    char keyspace[DIR_NAME_MAX + 1]; /* "": all */
};

static void skew_work(struct job *job)
{
    struct skew_job *j = (struct skew_job *)(void *)job;
    struct control *control = job->api->control;
    const struct dir_view *v = view_pin(control_published(control));
    const struct dir_keyspace *ks = NULL;
    struct skew_view s;
    job->revision = v->revision;
    if (j->keyspace[0] != '\0') {
        ks = view_keyspace(v, slice_of(j->keyspace, strlen(j->keyspace)));
    }
    if (ks == NULL && j->keyspace[0] != '\0') {
        (void)err_set(&job->err, ERR_KEYSPACE_NOT_FOUND, "there is no keyspace \"%s\"",
                      j->keyspace);
    } else {
        skew_view_open(&s, v, ks, control_loads(control), clock_mono_ms());
        skew_put(&job->out, &s);
        skew_view_close(&s);
    }
    view_unpin(v);
}

void h_skew(struct exchange *x)
{
    char name[DIR_NAME_MAX + 1];
    struct skew_job *j;
    if (!leads(x) || !param_text(x, "keyspace", name, sizeof name)) {
        return;
    }
    if (name[0] != '\0' && !parse_is_name(slice_of(name, strlen(name)))) {
        reply_problem(x, ERR_KEYSPACE_NOT_FOUND, "there is no keyspace of this name");
        return;
    }
    j = job_new(x, sizeof *j);
    j->job.work = skew_work;
    j->job.answer = job_reply;
    memcpy(j->keyspace, name, sizeof name);
    job_start(x, &j->job);
}
