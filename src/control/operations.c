/* SPDX-License-Identifier: Apache-2.0 */
/* What a leader does for operations over time: admits those that wait, and ends stages that take
 * too long. Its list and its clock are a hint: apply decides, and a time-out is void if the
 * operation has moved on. */
#include "control/internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "directory/policy.h"

struct operation_timer {
    uint64_t id;
    dir_rev seen;      /* what was there when it began to count, */
    uint64_t said;     /* and the last report of progress */
    uint64_t since_ms; /* CLOCK_BOOTTIME */
    uint64_t asked_ms; /* when something was last proposed for it; 0: never */
};

void operations_on_active(struct control *c)
{
    mem_free(c->timers);
    c->timers = NULL;
    c->timer_count = 0;
}

static bool is_timed(const struct dir_operation *o)
{
    return o->state == DIR_OPERATION_QUEUED || o->state == DIR_OPERATION_RUNNING ||
           o->reserved.releasing;
}

/* Where progress counts, the stage takes too long only when nothing moves. Being told another rate
 * is no progress. */
static struct operation_timer timer_of(const struct dir_operation *o, uint64_t now)
{
    bool progresses = o->stage == DIR_STAGE_COPY || o->stage == DIR_STAGE_CATCH_UP;
    return (struct operation_timer){.id = o->id,
                                    .seen = o->reserved.releasing ? o->revision : o->stage_revision,
                                    .said = progresses ? o->destination_says.seq : 0,
                                    .since_ms = now};
}

static void propose_admit(struct control *c, const struct dir_operation *o)
{
    Cadastre__OperationAdmit body;
    cadastre__operation_admit__init(&body);
    Cadastre__Command command;
    cadastre__command__init(&command);
    body.operation = o->id;
    body.attempt = o->attempt;
    command.body_case = CADASTRE__COMMAND__BODY_OPERATION_ADMIT;
    command.operation_admit = &body;
    (void)control_propose_own(c, &command, NULL, NULL);
}

static void propose_release(struct control *c, const struct dir_operation *o)
{
    Cadastre__OperationRelease body;
    cadastre__operation_release__init(&body);
    Cadastre__Command command;
    cadastre__command__init(&command);
    body.operation = o->id;
    body.step = o->reserved.step + UINT32_C(1);
    command.body_case = CADASTRE__COMMAND__BODY_OPERATION_RELEASE;
    command.operation_release = &body;
    (void)control_propose_own(c, &command, NULL, NULL);
}

static void propose_timeout(struct control *c, const struct dir_operation *o)
{
    Cadastre__OperationTimeout body;
    cadastre__operation_timeout__init(&body);
    Cadastre__Command command;
    cadastre__command__init(&command);
    body.operation = o->id;
    body.attempt = o->attempt;
    body.stage = o->stage;
    body.since = o->stage_revision;
    command.body_case = CADASTRE__COMMAND__BODY_OPERATION_TIMEOUT;
    command.operation_timeout = &body;
    (void)control_propose_own(c, &command, NULL, NULL);
}

static void
look_at(struct control *c, const struct dir_operation *o, struct operation_timer *t, uint64_t now)
{
    bool asked = t->asked_ms != 0 && now < t->asked_ms + CONTROL_ASK_AGAIN_MS;
    uint64_t limit = dir_policy_stage_limit_ms(directory_state(c->parts.directory), o);
    if (asked || c->timer_proposals >= CONTROL_OPERATIONS_A_TURN) {
        return;
    }
    if (o->reserved.releasing) {
        const struct dir_view *v = directory_state(c->parts.directory);
        const struct dir_keyspace *ks = view_keyspace_by_id(v, o->keyspace);
        uint64_t release_ms = dir_policy_get(v, ks, DIR_POLICY_RELEASE_MS);
        if (now - t->since_ms < release_ms / DIR_RELEASE_STEPS) {
            return;
        }
        propose_release(c, o);
    } else if (limit != UINT64_MAX && now - t->since_ms > limit) {
        propose_timeout(c, o);
    } else {
        return;
    }
    t->asked_ms = now;
    c->timer_proposals++;
}

/* Both lists are by id: the old one gives what it knows to the new one. */
static void carry_over(struct control *c,
                       uint64_t *at,
                       struct operation_timer *t,
                       const struct dir_operation *o)
{
    while (*at < c->timer_count && c->timers[*at].id < o->id) {
        ++*at;
    }
    if (*at < c->timer_count && c->timers[*at].id == o->id && c->timers[*at].seen == t->seen &&
        c->timers[*at].said == t->said) {
        *t = c->timers[*at];
    }
}

/* What waits, of all that is timed. */
static void admit_some(struct control *c, uint64_t now)
{
    const struct dir_view *v = directory_state(c->parts.directory);
    const struct admission_candidate *chosen[CONTROL_OPERATIONS_A_TURN];
    struct admission_candidate *waiting;
    uint64_t count = 0;
    if (v->queued.count == 0 || c->timer_proposals >= CONTROL_OPERATIONS_A_TURN) {
        return;
    }
    waiting = mem_alloc(v->queued.count * sizeof waiting[0]);
    for (uint64_t i = 0; i < c->timer_count; i++) {
        const struct operation_timer *t = &c->timers[i];
        const struct dir_operation *o = view_operation(v, t->id);
        if (o != NULL && o->state == DIR_OPERATION_QUEUED && count < v->queued.count) {
            bool asked = t->asked_ms != 0 && now < t->asked_ms + CONTROL_ADMIT_AGAIN_MS;
            waiting[count++] = (struct admission_candidate){o, now - t->since_ms, asked, i};
        }
    }
    count = hold_keep(c, waiting, count);
    unsigned n = admission_choose(&c->admission, v, waiting, count, chosen,
                                  CONTROL_OPERATIONS_A_TURN - c->timer_proposals);
    for (unsigned i = 0; i < n; i++) {
        propose_admit(c, chosen[i]->o);
        c->timers[chosen[i]->tag].asked_ms = now;
        c->timer_proposals++;
    }
    mem_free(waiting);
}

void operations_on_sample(struct control *c)
{
    uint64_t now = clock_boot_ms(), count = 0, cap = 0, at = 0;
    struct operation_timer *timers = NULL;
    const struct dir_operation *o;
    struct ptree_iter it;
    if (!c->active || now < c->timers_ms + CONTROL_OPERATIONS_MS) {
        return;
    }
    bool stalled = now > c->timers_ms + CONTROL_OPERATIONS_MS + CONTROL_STALL_MS;
    c->timers_ms = now;
    c->timer_proposals = 0;
    ptree_seek(&directory_state(c->parts.directory)->operations, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (!is_timed(o)) {
            continue;
        }
        if (count == cap) {
            cap = cap > 0 ? cap * 2 : 16;
            timers = mem_realloc(timers, cap * sizeof timers[0]);
        }
        struct operation_timer *t = &timers[count++];
        *t = timer_of(o, now);
        if (!stalled) {
            carry_over(c, &at, t, o);
        }
        if (o->state != DIR_OPERATION_QUEUED) {
            look_at(c, o, t, now);
        }
    }
    mem_free(c->timers);
    c->timers = timers;
    c->timer_count = count;
    admit_some(c, now);
}
