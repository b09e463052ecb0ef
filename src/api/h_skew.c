/* SPDX-License-Identifier: Apache-2.0 */
/* How uneven the load is, as the leader has heard: by a job, for it looks at every partition. */
#include "api/endpoints.h"

#include "api/skew_view.h"
#include "base/clock.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

/* Of all answers that are made at one time, at some 100 bytes each; a single one may be larger. */
enum { PARTITIONS_AT_ONCE = 1 << 20 };

struct skew_job {
    struct job job;
    uint64_t partitions;             /* that count in api->skewed */
    char keyspace[DIR_NAME_MAX + 1]; /* "": all */
};

static void release(struct skew_job *j)
{
    atomic_fetch_sub(&j->job.api->skewed, j->partitions);
    j->partitions = 0;
}

static void skew_close(struct job *job)
{
    release((struct skew_job *)(void *)job);
}

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
    release(j);
}

/* Of the keyspace, or of all of them ("") as the next view has them. */
static uint64_t count_partitions(struct exchange *x, const char *keyspace)
{
    const struct dir_view *v = view_enter(api_slot(x));
    const struct dir_keyspace *ks = view_keyspace(v, slice_of(keyspace, strlen(keyspace)));
    uint64_t all = v->partitions.count, count = ks != NULL ? view_map(v, ks)->count : 0;
    view_leave();
    return keyspace[0] == '\0' ? all : count;
}

/* False, and answered: others take all the memory that there is for it. */
static bool reserve(struct exchange *x, uint64_t partitions)
{
    struct api *api = exchange_api(x);
    uint64_t before = atomic_fetch_add(&api->skewed, partitions);
    if (before > 0 && before + partitions > PARTITIONS_AT_ONCE) {
        atomic_fetch_sub(&api->skewed, partitions);
        reply_unavailable(x, ERR_OVERLOADED, "%" PRIu64 " partitions are being looked at already",
                          before);
        return false;
    }
    return true;
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
    uint64_t partitions = count_partitions(x, name);
    if (!reserve(x, partitions)) {
        return;
    }
    j = job_new(x, sizeof *j);
    j->partitions = partitions;
    j->job.close = skew_close;
    j->job.work = skew_work;
    j->job.answer = job_reply;
    memcpy(j->keyspace, name, sizeof name);
    job_start(x, &j->job);
}
