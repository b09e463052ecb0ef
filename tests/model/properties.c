/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold in every state. */
#include "tests/model/model.h"

#include <string.h>

static bool two_writers(const struct state *s)
{
    unsigned writers = 0;
    for (unsigned proc = 0; proc < PROCS; proc++) {
        writers += model_may_write(s, proc);
    }
    return writers > 1;
}

static bool write_lost(const struct state *s)
{
    for (unsigned w = 0; w < model.bounds->writes; w++) {
        if (s->w[w].state == ACKED && s->disk[s->d.home].log[s->w[w].pos] != w + 1) {
            return true;
        }
    }
    return false;
}

static void come_back(struct state *s, unsigned node)
{
    struct proc *p = &s->p[node];
    if (s->d.ending[node]) {
        model_lapse(s, node);
    }
    if (!p->up || p->sess != s->d.sess[node] || !s->d.live[node]) {
        model_stop(s, node);
        model_register(s, node);
    }
    p->lease = 1;
    struct order o = model_order(s, node);
    model_obey(s, &o);
    if (p->fenced) {
        model_stop(s, node);
    }
}

static bool go_on(struct state *s)
{
    bool any = false;
    for (unsigned node = S; node <= D; node++) {
        struct proc *p = &s->p[node];
        if (p->att != 0 && p->source != node && p->epoch == 0 && s->disk[node].att == p->att) {
            memcpy(s->disk[node].log, s->disk[p->source].log, sizeof s->disk[node].log);
        }
        for (unsigned kind = ACTIVE; kind <= FINAL; kind++) {
            struct report r;
            any |= model_report(s, (enum report_kind)kind, node, &r) && model_take(s, &r);
        }
    }
    return any;
}

/* With every message in time and no further fault: does the authority come to write again? */
static bool recovers(const struct state *now, bool without_d)
{
    enum { ROUNDS = 16, PATIENCE = 4 };
    struct state s = *now;
    unsigned nodes = model.bounds->replicas ? NODES : NODES - 1;
    memset(&s.late, 0, sizeof s.late);
    memset(&s.p[OLD], 0, sizeof s.p[OLD]);
    if (without_d && s.d.home != S) {
        return true;
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned node = 0; node < nodes; node++) {
            if (without_d && node == D) {
                memset(&s.p[D], 0, sizeof s.p[D]);
                s.d.live[D] = 0;
            } else {
                come_back(&s, node);
            }
        }
        if (s.d.grant != s.d.sess[s.d.home]) {
            s.d.released = 1; /* The old session's time is over. */
            (void)model_regrant(&s);
        }
        if (model_may_write(&s, s.d.home)) {
            return true;
        }
        if (!go_on(&s) && round > PATIENCE) {
            (void)model_back(&s);
        }
    }
    return false;
}

const char *model_violation(const struct state *s)
{
    static const char *const flaws[] = {
        NULL, "the only way forward was thrown away", "a cleanup deleted the authority's own copy",
        "two sessions wrote at one epoch", "D was behind the source at the cutover"};
    if (two_writers(s)) {
        return "two processes may accept writes";
    }
    if (write_lost(s)) {
        return "an acknowledged write is not at the authority";
    }
    if (s->flaw != FINE) {
        return flaws[s->flaw];
    }
    if (!recovers(s, false)) {
        return "all is well again, and nobody may write";
    }
    return recovers(s, true) ? NULL : "D is gone, S is well, and nobody may write";
}
