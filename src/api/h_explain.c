/* SPDX-License-Identifier: Apache-2.0 */
/* Why a partition is or is not moved, split or merged: the planner's own answer, by a job, for it
 * plans a round. */
#include "api/endpoints.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <string.h>

struct explain_job {
    struct job job;
    char keyspace[DIR_NAME_MAX + 1], to[DIR_NAME_MAX + 1]; /* to "": none */
    uint64_t partition;
};

static void put_reason(struct buf *b, const char *member, uint8_t reason)
{
    buf_printf(b, ",\"%s\":{\"code\":\"%s\",\"text\":", member,
               bal_reason_slug((enum bal_reason)reason));
    json_put_cstring(b, bal_reason_text((enum bal_reason)reason));
    buf_put_u8(b, '}');
}

static void put_planned(struct buf *b, const struct dir_view *v, const struct bal_explanation *e)
{
    const struct bal_proposal *p = &e->proposal;
    const struct dir_node *to = p->to != 0 ? view_node_by_id(v, p->to) : NULL;
    if (!e->planned) {
        buf_put_str(b, ",\"planned\":null");
        return;
    }
    buf_printf(b, ",\"planned\":{\"kind\":\"%s\",\"code\":\"%s\",\"text\":",
               bal_kind_name((enum bal_kind)p->kind), bal_reason_slug((enum bal_reason)p->reason));
    json_put_cstring(b, bal_reason_text((enum bal_reason)p->reason));
    if (to != NULL) {
        buf_put_str(b, ",\"to\":");
        json_put_cstring(b, to->name);
    }
    buf_put_u8(b, '}');
}

static void put(struct explain_job *j,
                const struct dir_view *v,
                const struct dir_partition *p,
                const struct bal_explanation *e)
{
    struct buf *b = &j->job.out;
    const struct dir_node *node = view_primary(v, p);
    const struct dir_operation *o = p->operation != 0 ? view_operation(v, p->operation) : NULL;
    buf_printf(b, "{\"keyspace\":\"%s\",\"partition\":%" PRIu64 ",\"node\":", j->keyspace, p->id);
    if (node != NULL) {
        json_put_cstring(b, node->name);
    } else {
        buf_put_str(b, "null");
    }
    buf_printf(b, ",\"level_ppm\":%" PRIu64, bal_scale(1000000, e->from_level));
    put_planned(b, v, e);
    if (o != NULL) {
        buf_printf(b, ",\"operation\":%" PRIu64, o->id);
        operation_put_throttled(b, v, o);
    }
    put_reason(b, "round", e->round_reason);
    put_reason(b, "source", e->source_reason);
    put_reason(b, "move", e->partition_reason);
    put_reason(b, "split", e->split_reason);
    put_reason(b, "merge", e->merge_reason);
    if (j->to[0] != '\0') {
        buf_printf(
            b,
            ",\"to\":{\"node\":\"%s\",\"level_ppm\":%" PRIu64 ",\"code\":\"%s\",\"text\":", j->to,
            bal_scale(1000000, e->to_level), bal_reason_slug((enum bal_reason)e->node_reason));
        json_put_cstring(b, bal_reason_text((enum bal_reason)e->node_reason));
        buf_put_u8(b, '}');
    }
    buf_printf(b, ",\"revision\":%" PRIu64 "}", v->revision);
}

static void
explain(struct explain_job *j, const struct dir_view *v, const struct bal_question *question)
{
    struct control *control = j->job.api->control;
    struct control_planning planning;
    struct bal_explanation answer;
    struct bal_settings settings;
    struct bal_fleet fleet;
    uint8_t key[8];
    if (!control_planning(control, &planning)) {
        (void)err_set(&j->job.err, ERR_NOT_READY, "no round has been planned here yet");
        return;
    }
    struct fleet_input in = {v,
                             control_loads(control),
                             clock_mono_ms(),
                             planning.log_ms,
                             planning.births,
                             planning.birth_count};
    fleet_settings(view_balancer(v), &settings);
    enum err_code code = fleet_build(&fleet, &in, &j->job.err);
    if (code == ERR_OK) {
        code = bal_explain(&fleet, &settings, in.log_ms, planning.memory, question, &answer);
        bal_fleet_close(&fleet);
        if (code == ERR_OK) {
            put(j, v, ptree_get(&v->partitions, ptree_u64_key(question->partition, key)), &answer);
        } else {
            (void)err_set(&j->job.err, code, "the planner does not know it");
        }
    }
    bal_memory_free(planning.memory);
    mem_free(planning.births);
}

static void explain_work(struct job *job)
{
    struct explain_job *j = (struct explain_job *)(void *)job;
    const struct dir_view *v = view_pin(control_published(job->api->control));
    const struct dir_keyspace *ks = view_keyspace(v, slice_of(j->keyspace, strlen(j->keyspace)));
    const struct dir_node *to =
        j->to[0] != '\0' ? view_node(v, slice_of(j->to, strlen(j->to))) : NULL;
    struct bal_question question = {j->partition, to != NULL ? to->id : 0};
    job->revision = v->revision;
    if (ks == NULL) {
        (void)err_set(&job->err, ERR_KEYSPACE_NOT_FOUND, "there is no keyspace \"%s\"",
                      j->keyspace);
    } else if (view_partition(v, ks, j->partition, NULL) == NULL) {
        (void)err_set(&job->err, ERR_PARTITION_NOT_FOUND, "it has no partition of this id");
    } else if (j->to[0] != '\0' && to == NULL) {
        (void)err_set(&job->err, ERR_NODE_NOT_FOUND, "there is no node \"%s\"", j->to);
    } else {
        explain(j, v, &question);
    }
    view_unpin(v);
}

static bool is_name(const char *text)
{
    return parse_is_name(slice_of(text, strlen(text)));
}

void h_balancer_explain(struct exchange *x)
{
    char keyspace[DIR_NAME_MAX + 1], to[DIR_NAME_MAX + 1];
    uint64_t partition = 0;
    if (!leads(x) || !param_text(x, "keyspace", keyspace, sizeof keyspace) ||
        !param_text(x, "to", to, sizeof to) ||
        !param_u64(x, "partition", 1, PARSE_INT_MAX, &partition)) {
        return;
    }
    if (keyspace[0] == '\0' || partition == 0) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameters keyspace and partition are needed");
        return;
    }
    if (!is_name(keyspace) || (to[0] != '\0' && !is_name(to))) {
        reply_problem(x, is_name(keyspace) ? ERR_NODE_NOT_FOUND : ERR_KEYSPACE_NOT_FOUND,
                      "there is none of this name");
        return;
    }
    struct explain_job *j = job_new(x, sizeof *j);
    j->job.work = explain_work;
    j->job.answer = job_reply;
    memcpy(j->keyspace, keyspace, sizeof keyspace);
    memcpy(j->to, to, sizeof to);
    j->partition = partition;
    job_start(x, &j->job);
}
