/* SPDX-License-Identifier: Apache-2.0 */
/* What the balancer's windows hold back at the leader, by its wall clock: new rounds' work, the
 * admission of what was made before, and a person's approval. Loop thread: the files of the zones
 * are small, local, and read when the row changes and once an hour. */
#include "control/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void hold_look(struct control *c, struct windows_hold *ret)
{
    windows_read(&c->windows, view_balancer(directory_state(c->parts.directory)), clock_mono_ms());
    windows_look(&c->windows, clock_wall_ms(), ret);
}

/* --- what waits for its admission --- */

static int by_operation(const void *key, const void *candidate)
{
    uint64_t id = *(const uint64_t *)key;
    uint64_t other = ((const struct admission_candidate *)candidate)->o->id;
    return id < other ? -1 : id > other;
}

static void
find_own(const struct admission_candidate *waiting, uint64_t count, uint64_t id, bool *held)
{
    const struct admission_candidate *found =
        id != 0 ? bsearch(&id, waiting, count, sizeof waiting[0], by_operation) : NULL;
    if (found != NULL) {
        held[found - waiting] = true;
    }
}

/* Of proposals that no person has approved. */
static void find_all_own(const struct dir_view *v,
                         const struct admission_candidate *waiting,
                         uint64_t count,
                         bool *held)
{
    const struct dir_proposal *p;
    struct ptree_iter it;
    ptree_seek(&v->proposals, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (windows_is_own(p)) {
            find_own(waiting, count, p->operation, held);
            find_own(waiting, count, p->with_operation, held);
        }
    }
}

/* As windows_holds() says of each, with one walk over the proposals. */
uint64_t hold_keep(struct control *c, struct admission_candidate *waiting, uint64_t count)
{
    struct windows_hold h;
    uint64_t kept = 0;
    hold_look(c, &h);
    if (h.code == NULL || count == 0) {
        return count;
    }
    bool all = strcmp(h.code, WINDOWS_FREEZE) == 0, *held = mem_zalloc(count * sizeof held[0]);
    if (!all) {
        find_all_own(directory_state(c->parts.directory), waiting, count, held);
    }
    for (uint64_t i = 0; i < count; i++) {
        if (!windows_is_routine(waiting[i].o->class_of) || !(all || held[i])) {
            waiting[kept++] = waiting[i];
        }
    }
    mem_free(held);
    return kept;
}

/* --- what a person approves --- */

struct dir_result *hold_refusal(struct control *c, const Cadastre__Command *command)
{
    const struct dir_view *v = directory_state(c->parts.directory);
    struct windows_hold h;
    uint8_t key[8];
    if (command->body_case != CADASTRE__COMMAND__BODY_PROPOSAL_SETTLE ||
        command->proposal_settle->verb != CADASTRE__PROPOSAL_VERB__APPROVE) {
        return NULL;
    }
    const struct dir_proposal *p =
        ptree_get(&v->proposals, ptree_u64_key(command->proposal_settle->proposal, key));
    hold_look(c, &h);
    if (p == NULL || p->state != DIR_PROPOSAL_OPEN || h.code == NULL ||
        strcmp(h.code, WINDOWS_FREEZE) != 0) {
        return NULL;
    }
    struct dir_result *r = mem_zalloc(sizeof *r);
    atomic_init(&r->refs, 1);
    r->revision = v->revision;
    (void)err_set(&r->err, ERR_FROZEN, "a freeze is in force: %s", h.detail);
    return r;
}
