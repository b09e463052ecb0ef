/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/types.h"

#include "base/assert.h"
#include "base/mem.h"
#include "directory/view.h"

#include <stdatomic.h>

void *dir_ref(void *object)
{
    struct dir_object *o = object;
    if (o != NULL) {
        atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
    }
    return o;
}

void dir_unref(void *object)
{
    struct dir_object *o = object;
    if (o == NULL) {
        return;
    }
    uint32_t before = atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel);
    ASSERT(before > 0);
    if (before > 1) {
        return;
    }
    if (o->kind == DIR_KIND_MAP) {
        ptree_unref(&((struct dir_map *)object)->by_start);
    }
    mem_free(o);
}

const char *dir_change_name(enum dir_change_kind kind)
{
    static const char *const names[] = {
        [DIR_CHANGE_CREATE] = "create",     [DIR_CHANGE_SPLIT] = "split",
        [DIR_CHANGE_MERGE] = "merge",       [DIR_CHANGE_MOVE] = "move",
        [DIR_CHANGE_PLACE] = "place",       [DIR_CHANGE_NODE] = "node",
        [DIR_CHANGE_LIMIT] = "limit",       [DIR_CHANGE_PIN] = "pin",
        [DIR_CHANGE_DELETE] = "delete",     [DIR_CHANGE_RESTORE] = "restore",
        [DIR_CHANGE_LOST] = "lost",         [DIR_CHANGE_LAPSE] = "lapse",
        [DIR_CHANGE_FAILOVER] = "failover", [DIR_CHANGE_GRANT] = "grant",
        [DIR_CHANGE_ROLES] = "roles",       [DIR_CHANGE_STAGE] = "stage",
    };
    ASSERT(kind >= DIR_CHANGE_CREATE && kind <= DIR_CHANGE_LAST);
    return names[kind];
}

const char *dir_scheme_name(enum dir_scheme scheme)
{
    ASSERT(scheme == DIR_SCHEME_RANGE || scheme == DIR_SCHEME_HASH);
    return scheme == DIR_SCHEME_RANGE ? "range" : "hash";
}

const char *dir_role_name(enum dir_role role)
{
    static const char *const names[] = {
        [DIR_ROLE_PRIMARY] = "primary",
        [DIR_ROLE_SYNC] = "sync",
        [DIR_ROLE_ASYNC] = "async",
        [DIR_ROLE_JOINING] = "joining",
    };
    ASSERT(role >= DIR_ROLE_PRIMARY && role <= DIR_ROLE_JOINING);
    return names[role];
}

const char *dir_state_name(enum dir_state_of state)
{
    static const char *const names[] = {
        [DIR_ACTIVE] = "active",
        [DIR_FENCING] = "fencing",
        [DIR_UNAVAILABLE] = "unavailable",
    };
    ASSERT(state >= DIR_ACTIVE && state <= DIR_UNAVAILABLE);
    return names[state];
}

const char *dir_stage_name(enum dir_stage stage)
{
    static const char *const names[] = {
        [DIR_STAGE_QUEUED] = "QUEUED",     [DIR_STAGE_PREPARE] = "PREPARE",
        [DIR_STAGE_SNAPSHOT] = "SNAPSHOT", [DIR_STAGE_COPY] = "COPY",
        [DIR_STAGE_CATCH_UP] = "CATCH_UP", [DIR_STAGE_DUAL_WRITE] = "DUAL_WRITE",
        [DIR_STAGE_VALIDATE] = "VALIDATE", [DIR_STAGE_FENCE] = "FENCE",
        [DIR_STAGE_CUTOVER] = "CUTOVER",   [DIR_STAGE_JOIN] = "JOIN",
        [DIR_STAGE_WINDOW] = "WINDOW",     [DIR_STAGE_CLEANUP] = "CLEANUP",
        [DIR_STAGE_DONE] = "DONE",         [DIR_STAGE_ABORTED] = "ABORTED",
        [DIR_STAGE_FAILED] = "FAILED",
    };
    ASSERT(stage >= DIR_STAGE_QUEUED && stage <= DIR_STAGE_FAILED);
    return names[stage];
}

const char *dir_operation_kind_name(enum dir_operation_kind kind)
{
    static const char *const names[] = {
        [DIR_OPERATION_MOVE] = "move",
        [DIR_OPERATION_ADD_REPLICA] = "add_replica",
        [DIR_OPERATION_REMOVE_REPLICA] = "remove_replica",
        [DIR_OPERATION_TRANSFER] = "transfer",
        [DIR_OPERATION_FAILOVER] = "failover",
    };
    ASSERT(kind >= DIR_OPERATION_MOVE && kind <= DIR_OPERATION_FAILOVER);
    return names[kind];
}

const char *dir_operation_state_name(enum dir_operation_state state)
{
    static const char *const names[] = {
        [DIR_OPERATION_QUEUED] = "queued", [DIR_OPERATION_RUNNING] = "running",
        [DIR_OPERATION_DONE] = "done",     [DIR_OPERATION_ABORTED] = "aborted",
        [DIR_OPERATION_FAILED] = "failed",
    };
    ASSERT(state >= DIR_OPERATION_QUEUED && state <= DIR_OPERATION_FAILED);
    return names[state];
}

const char *dir_class_name(uint32_t class_of)
{
    static const struct {
        uint32_t from;
        const char *name;
    } names[] = {
        {DIR_CLASS_UNAVAILABLE, "unavailable"},
        {DIR_CLASS_LAST_COPY, "last_copy"},
        {DIR_CLASS_UNDER_REPLICATED, "under_replicated"},
        {DIR_CLASS_CONSTRAINT, "constraint"},
        {DIR_CLASS_DRAIN, "drain"},
        {DIR_CLASS_OVERLOAD, "overload"},
        {DIR_CLASS_HOT, "hot"},
        {DIR_CLASS_OPERATOR, "operator"},
        {DIR_CLASS_BALANCE, "balance"},
        {DIR_CLASS_MERGE, "merge"},
        {0, "optimise"},
    };
    unsigned i = 0;
    while (class_of < names[i].from) {
        i++;
    }
    return names[i].name;
}

const char *dir_proposal_kind_name(enum dir_proposal_kind kind)
{
    static const char *const names[] = {
        [DIR_PROPOSAL_MOVE] = "move",
        [DIR_PROPOSAL_TRANSFER] = "transfer",
        [DIR_PROPOSAL_ADD_REPLICA] = "add_replica",
        [DIR_PROPOSAL_REMOVE_REPLICA] = "remove_replica",
        [DIR_PROPOSAL_SWAP] = "swap",
        [DIR_PROPOSAL_SPLIT] = "split",
        [DIR_PROPOSAL_MERGE] = "merge",
        [DIR_PROPOSAL_ADVICE] = "advice",
    };
    ASSERT(kind >= DIR_PROPOSAL_MOVE && kind <= DIR_PROPOSAL_ADVICE);
    return names[kind];
}

const char *dir_proposal_state_name(enum dir_proposal_state state)
{
    static const char *const names[] = {
        [DIR_PROPOSAL_OPEN] = "open",         [DIR_PROPOSAL_RUNNING] = "running",
        [DIR_PROPOSAL_DONE] = "done",         [DIR_PROPOSAL_FAILED] = "failed",
        [DIR_PROPOSAL_REJECTED] = "rejected", [DIR_PROPOSAL_EXPIRED] = "expired",
    };
    ASSERT(state >= DIR_PROPOSAL_OPEN && state <= DIR_PROPOSAL_EXPIRED);
    return names[state];
}

const char *dir_figure_group_name(enum dir_figure_group group)
{
    static const char *const names[] = {
        [DIR_FIGURE_EVIDENCE] = "evidence",
        [DIR_FIGURE_PREDICTED] = "predicted",
        [DIR_FIGURE_COST] = "cost",
        [DIR_FIGURE_MEASURED] = "measured",
    };
    ASSERT(group >= DIR_FIGURE_EVIDENCE && group <= DIR_FIGURE_MEASURED);
    return names[group];
}
