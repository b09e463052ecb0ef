/* SPDX-License-Identifier: Apache-2.0 */
/* How sessions end, and what people say of nodes. */
#include "base/mem.h"
#include "directory/operation.h"

#include <inttypes.h>

/* Which sessions' grants are released: those in [from, upto]. */
struct ending {
    dir_rev from, upto;
};

static void release_all(struct apply *a, const struct dir_node *n, const struct ending *e)
{
    struct part_list held = {NULL, 0, 0};
    grant_held(a->s, n, &held);
    for (uint64_t i = 0; i < held.count; i++) {
        const struct dir_partition *p = held.items[i];
        if (partition_has_primary(p) && p->replicas[0].node == n->id && p->session >= e->from &&
            p->session <= e->upto) {
            grant_release(a, p, true);
            a->kind = DIR_CHANGE_LAPSE;
        } else if (n->ended) {
            operation_session_ended(a, p, n);
        }
    }
    parts_close(&held);
}

static void note_lapse(const struct apply *a, struct dir_node *n)
{
    bool soon = n->lapsed_ms != 0 && a->s->time_ms - n->lapsed_ms < DIR_LAPSES_FORGOTTEN_MS;
    n->lapses = !soon ? 1 : n->lapses < DIR_LAPSES_MAX ? n->lapses + 1 : DIR_LAPSES_MAX;
    n->lapsed_ms = a->s->time_ms;
}

/* The node's row first: to whom a grant may go depends on it. */
static const struct dir_node *end_present(struct apply *a, const struct dir_node *n, bool lapsed)
{
    struct dir_node *next = row_copy(n, dir_node_size(n));
    next->ended = true;
    next->ended_ms = a->s->time_ms;
    if (lapsed) {
        note_lapse(a, next);
    }
    next->mod_revision = next->task_revision = a->rev;
    apply_put(a, next);
    return next;
}

/* It came back before that one had lapsed, with nothing to prove that it had ended. */
static const struct dir_node *end_older(struct apply *a, const struct dir_node *n)
{
    struct dir_node *next = row_copy(n, dir_node_size(n));
    note_lapse(a, next);
    next->mod_revision = a->rev;
    apply_put(a, next);
    return next;
}

static void note_ended(struct apply *a, const struct dir_node *n)
{
    dir_rev newest = grant_newest_ended(a->s, n);
    if (newest != n->ended_session) {
        struct dir_node *next = row_copy(n, dir_node_size(n));
        next->ended_session = newest;
        next->ended_lease_ms = newest != 0 ? n->ended_lease_ms : 0;
        next->mod_revision = next->task_revision = a->rev;
        apply_put(a, next);
    }
}

enum err_code apply_session_end(struct apply *a)
{
    const Cadastre__SessionEnd *m = a->cmd->session_end;
    const struct dir_node *n = view_node(a->s, slice_of(m->node, strlen(m->node)));
    if (n == NULL) {
        return err_set(&a->err, ERR_NODE_NOT_FOUND, "there is no such node");
    }
    apply_subject(a, "node=%s session=%" PRIu64 " %s", n->name, m->session,
                  m->released ? "released" : "lapsed");
    a->session = m->session;
    bool unending = m->session == n->session && n->is_static;
    if (m->session > n->session || m->session == 0 || unending) {
        return err_set(&a->err, ERR_SESSION_ENDED, "\"%s\" has no session %" PRIu64, n->name,
                       m->session);
    }
    struct ending e = {m->session, m->session};
    if (m->session == n->session) {
        if (n->ended) {
            return ERR_OK; /* it ended before: saying so again is fine */
        }
        n = end_present(a, n, !m->released);
        a->changed = true;
    } else if (m->session == n->ended_session && !m->released) {
        e.from = 1; /* the older ones lapsed before it */
        n = end_older(a, n);
        a->changed = true;
    } else if (!m->released || n->ended_session == 0) {
        return ERR_OK;
    }
    release_all(a, n, &e);
    uint8_t key[8];
    note_ended(a, ptree_get(&a->s->nodes, ptree_u64_key(n->id, key)));
    a->changed = a->changed || a->row_count > 0;
    return ERR_OK;
}

static uint8_t scheduled(uint8_t now, Cadastre__SchedulingVerb verb)
{
    switch (verb) {
    case CADASTRE__SCHEDULING_VERB__CORDON:
        return now == DIR_OPEN || now == DIR_DRAINING ? DIR_CORDONED : now;
    case CADASTRE__SCHEDULING_VERB__UNCORDON:
        return now == DIR_QUARANTINED ? now : DIR_OPEN;
    case CADASTRE__SCHEDULING_VERB__DRAIN:
        return now == DIR_QUARANTINED ? now : DIR_DRAINING;
    case CADASTRE__SCHEDULING_VERB__QUARANTINE:
        return DIR_QUARANTINED;
    case CADASTRE__SCHEDULING_VERB__UNQUARANTINE:
        return now == DIR_QUARANTINED ? DIR_OPEN : now;
    case _CADASTRE__SCHEDULING_VERB_IS_INT_SIZE:
        break;
    }
    return now;
}

enum err_code apply_node_scheduling(struct apply *a)
{
    const Cadastre__NodeScheduling *m = a->cmd->node_scheduling;
    const struct dir_node *n = view_node(a->s, slice_of(m->node, strlen(m->node)));
    if (n == NULL) {
        return err_set(&a->err, ERR_NODE_NOT_FOUND, "there is no such node");
    }
    if ((unsigned)m->verb > CADASTRE__SCHEDULING_VERB__UNQUARANTINE) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "the verb is unknown");
    }
    if (m->reason[0] != '\0' && !valid_text(m->reason, DIR_TEXT_MAX)) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/reason",
                          "a reason is a text of at most %d bytes", DIR_TEXT_MAX);
    }
    uint8_t next = scheduled(n->scheduling, m->verb);
    apply_subject(a, "node=%s scheduling=%u", n->name, next);
    if (next != n->scheduling) {
        struct dir_node *now = row_copy(n, dir_node_size(n));
        now->scheduling = next;
        now->scheduling_ms = a->s->time_ms;
        now->mod_revision = a->rev;
        apply_put(a, now);
        a->changed = true;
        if (n->scheduling == DIR_DRAINING) {
            drain_cancel(a, n->id);
        }
        if (next != DIR_OPEN) {
            drain_divert(a, n->id, "destination_closed");
        }
        if (next == DIR_OPEN && place_waiting(a, 0) > 0) {
            a->kind = DIR_CHANGE_PLACE;
        }
        n = view_node_by_id(a->s, now->id); /* counts may have changed */
    }
    struct dir_node *shown = row_copy(n, dir_node_size(n));
    shown->partition_count =
        (uint64_t)((int64_t)n->partition_count + counts_get(&a->counts, n->id));
    a->node = shown;
    return ERR_OK;
}
