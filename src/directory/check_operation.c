/* SPDX-License-Identifier: Apache-2.0 */
/* What holds between operations, partitions and duties at every revision (check.c has the rest).
 * Gives what is wrong with one of them, or NULL. */
#include "directory/budget_internal.h"

static bool is_open(const struct dir_operation *o)
{
    return o->state == DIR_OPERATION_QUEUED ||
           (o->state == DIR_OPERATION_RUNNING && o->stage < DIR_STAGE_CLEANUP);
}

static bool is_copying(const struct dir_operation *o)
{
    return o->state == DIR_OPERATION_RUNNING && o->stage >= DIR_STAGE_PREPARE &&
           o->stage <= DIR_STAGE_CUTOVER;
}

static bool is_fenced(const struct dir_operation *o)
{
    return o->state == DIR_OPERATION_RUNNING &&
           (o->stage == DIR_STAGE_FENCE || o->stage == DIR_STAGE_CUTOVER);
}

static bool is_candidate(const struct dir_operation *o, const struct dir_replica *r)
{
    return o != NULL && is_copying(o) && o->destination == r->node && o->copy == r->copy;
}

/* The source of a move whose window is open is nobody's heir. */
static bool is_heir(const struct dir_operation *o, const struct dir_partition *p)
{
    int at = o->stage == DIR_STAGE_WINDOW ? partition_copy_on(p, o->source) : -1;
    return at >= 0 && p->replicas[at].role == DIR_ROLE_SYNC && partition_has_primary(p);
}

static const char *check_fence(const struct dir_operation *o, const struct dir_partition *p)
{
    bool fenced = o != NULL && is_fenced(o);
    if (p->state == DIR_FENCING && !fenced) {
        return "it is fenced by no operation";
    }
    return p->state == DIR_ACTIVE && fenced ? "its operation's fence is not there" : NULL;
}

const char *check_partition_operation(const struct dir_view *v, const struct dir_partition *p)
{
    const struct dir_operation *o = operation_of_partition(v, p);
    if (p->operation != 0 && (o == NULL || o->partition != p->id || !is_open(o))) {
        return "the operation that holds it does not";
    }
    if (p->moving != (o != NULL ? o->stage : 0)) {
        return "its route shows another stage than its operation's";
    }
    for (uint8_t i = 0; i < p->replica_count; i++) {
        if (p->replicas[i].role == DIR_ROLE_JOINING && !is_candidate(o, &p->replicas[i])) {
            return "a copy joins in no operation";
        }
    }
    if (o != NULL && is_heir(o, p)) {
        return "the source of a move is an heir";
    }
    return check_fence(o, p);
}

static const char *check_marks(const struct dir_operation *o)
{
    if (o->joined &&
        (o->joined_session == 0 || o->stage < DIR_STAGE_VALIDATE || o->stage > DIR_STAGE_CUTOVER)) {
        return "it is joined in another stage";
    }
    if (o->reverse && o->epoch_after == 0) {
        return "it is followed before its cutover";
    }
    if (o->reversed_by != 0 && o->state != DIR_OPERATION_DONE) {
        return "it is taken back and goes on";
    }
    return NULL;
}

static const char *check_stage(const struct dir_operation *o)
{
    static const uint8_t states[] = {
        [DIR_STAGE_QUEUED] = DIR_OPERATION_QUEUED,
        [DIR_STAGE_DONE] = DIR_OPERATION_DONE,
        [DIR_STAGE_ABORTED] = DIR_OPERATION_ABORTED,
        [DIR_STAGE_FAILED] = DIR_OPERATION_FAILED,
    };
    uint8_t want = states[o->stage] != 0 ? states[o->stage] : DIR_OPERATION_RUNNING;
    if (o->state != want || o->stage_count == 0 ||
        o->stages[o->stage_count - 1].stage != o->stage || o->first_attempt == 0 ||
        o->attempt < o->first_attempt || o->attempt - o->first_attempt >= DIR_ATTEMPTS_MAX) {
        return "its stage, state and attempt do not go together";
    }
    if (o->stage == DIR_STAGE_WINDOW && o->epoch_after <= o->epoch_before) {
        return "its cutover made no new epoch";
    }
    return check_marks(o);
}

/* The part is within its partition before the cutover, and is the partition after it. */
static bool part_fits(const struct dir_operation *o, const struct dir_partition *p)
{
    struct slice start = dir_part_start(&o->part), end = dir_part_end(&o->part);
    bool same_end =
        o->part.end_open ? p->end_open : !p->end_open && slice_eq(end, dir_partition_end(p));
    bool same = slice_eq(start, dir_partition_start(p)) && same_end;
    if (o->retired != 0) {
        return same && p->parent_count == 1 && dir_partition_parents(p)[0] == o->retired;
    }
    bool in_end = same_end ||
                  (!o->part.end_open && (p->end_open || slice_cmp(end, dir_partition_end(p)) < 0));
    return !same && in_end && slice_cmp(start, dir_partition_start(p)) >= 0;
}

/* Against the partition that it is about, which may be gone. */
static const char *check_hold(const struct dir_operation *o, const struct dir_partition *p)
{
    if (is_open(o) && (p == NULL || p->operation != o->id)) {
        return "it does not hold its partition";
    }
    if (is_open(o) && o->part.is_set && !part_fits(o, p)) {
        return "the part that it moves is not one of its partition";
    }
    if (is_copying(o) && o->kind != DIR_OPERATION_TRANSFER) {
        int at = partition_copy_on(p, o->destination);
        if (at < 0 || p->replicas[at].role != DIR_ROLE_JOINING || p->replicas[at].copy != o->copy) {
            return "its candidate is not there";
        }
    }
    return NULL;
}

const char *check_operation(const struct dir_view *v, const struct dir_operation *o)
{
    uint8_t key[8];
    const char *wrong = check_stage(o);
    if (wrong == NULL) {
        wrong = check_hold(o, ptree_get(&v->partitions, ptree_u64_key(o->partition, key)));
    }
    if (wrong == NULL) {
        wrong = check_reservation(o);
    }
    if (wrong == NULL) {
        wrong = check_throttle(v, o);
    }
    if (wrong == NULL && o->stage == DIR_STAGE_CLEANUP && duty_of_operation(v, o) == NULL) {
        wrong = "nobody has to clean up";
    }
    return wrong;
}
