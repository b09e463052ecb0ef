/* SPDX-License-Identifier: Apache-2.0 */
/* A barrier is an entry of the log: once it is applied, a quorum took this server for its leader
 * after the barrier was asked for, and all before it is applied. It serves every one that asked
 * before it was submitted. */
#include "raft/internal.h"

#include "base/log.h"
#include "base/mem.h"

enum err_code replica_confirm(struct replica *r, replica_confirm_cb cb, void *arg)
{
    if (!replica_leads(r)) {
        return ERR_NOT_LEADER;
    }
    if (r->confirm.count >= REPLICA_CONFIRMS_MAX) {
        return ERR_OVERLOADED;
    }
    struct confirm_waiter *w = mem_alloc(sizeof *w);
    *w = (struct confirm_waiter){r->confirm.waiting, cb, arg};
    r->confirm.waiting = w;
    r->confirm.count++;
    return ERR_OK;
}

static void answer_all(struct replica *r, struct confirm_waiter **list, enum err_code status)
{
    struct confirm_waiter *w = *list;
    *list = NULL;
    while (w != NULL) {
        struct confirm_waiter *next = w->next;
        r->confirm.count--;
        w->cb(w->arg, status);
        mem_free(w);
        w = next;
    }
}

void confirm_fail_waiting(struct replica *r)
{
    answer_all(r, &r->confirm.waiting, ERR_NOT_LEADER);
}

static void on_barrier(struct raft_barrier *request, int status)
{
    struct replica *r = request->data;
    r->confirm.in_flight = false;
    if (status != 0) {
        r->confirm.lost = r->confirm.riding; /* told in the next turn */
        r->confirm.riding = NULL;
        return;
    }
    r->confirmed_ms = r->confirm.submitted_ms;
    answer_all(r, &r->confirm.riding, ERR_OK);
}

void confirm_turn(struct replica *r)
{
    struct confirm *c = &r->confirm;
    answer_all(r, &c->lost, ERR_NOT_LEADER);
    if ((c->waiting == NULL && !c->nudged) || c->in_flight || !replica_leads(r) ||
        r->transfer.busy) {
        return;
    }
    c->riding = c->waiting;
    c->waiting = NULL;
    c->nudged = false;
    c->in_flight = true;
    c->submitted_ms = uv_now(r->loop);
    c->request.data = r;
    int rv = raft_barrier(&r->raft, &c->request, on_barrier);
    if (rv == 0) {
        return;
    }
    if (rv != RAFT_NOTLEADER) {
        log_fatal(EXIT_DATA, "raft.write.failed", "dir=%s reason=\"%s\"", r->raft_dir,
                  raft_strerror(rv));
    }
    c->in_flight = false;
    answer_all(r, &c->riding, ERR_NOT_LEADER);
}
