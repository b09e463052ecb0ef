/* SPDX-License-Identifier: Apache-2.0 */
/* What the balancer's windows hold back at the leader, by its wall clock: new rounds' work, the
 * admission of what was made before, and a person's approval. Loop thread: the files of the zones
 * are small, local, and read when the row changes and once an hour. */
#include "control/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

void hold_look(struct control *c, struct windows_hold *ret)
{
    windows_read(&c->windows, view_balancer(directory_state(c->parts.directory)), clock_mono_ms());
    windows_look(&c->windows, clock_wall_ms(), ret);
}

uint64_t hold_keep(struct control *c, struct admission_candidate *waiting, uint64_t count)
{
    struct windows_hold h;
    hold_look(c, &h);
    return windows_keep(&h, directory_state(c->parts.directory), waiting, count);
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
