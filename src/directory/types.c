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
        [DIR_CHANGE_CREATE] = "create", [DIR_CHANGE_SPLIT] = "split",
        [DIR_CHANGE_MERGE] = "merge",   [DIR_CHANGE_MOVE] = "move",
        [DIR_CHANGE_PLACE] = "place",   [DIR_CHANGE_NODE] = "node",
        [DIR_CHANGE_LIMIT] = "limit",   [DIR_CHANGE_PIN] = "pin",
        [DIR_CHANGE_DELETE] = "delete", [DIR_CHANGE_RESTORE] = "restore",
        [DIR_CHANGE_LOST] = "lost",
    };
    ASSERT(kind >= DIR_CHANGE_CREATE && kind <= DIR_CHANGE_LOST);
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
