/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that can happen next without a fault. A message that is lost is a step that is never
 * taken. */
#include "tests/model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const model_stages[] = {"IDLE",  "CATCH_UP", "DUAL_WRITE", "VALIDATE",
                                    "FENCE", "CUTOVER",  "WINDOW"};
const char *const model_names[] = {"S", "D", "R", "the old process of S", "nobody"};

static const char *const report_names[] = {"nothing",    "active",       "applied",
                                           "equal sums", "unequal sums", "fenced",
                                           "final",      "in sync",      "out of sync"};

void model_say(struct steps *to, const struct state *next, const char *fmt, ...)
{
    char label[160] = "";
    if (to->labels) {
        va_list args;
        va_start(args, fmt);
        (void)vsnprintf(label, sizeof label, fmt, args);
        va_end(args);
    }
    to->emit(to->arg, next, label);
}

static unsigned nodes(void)
{
    return model.bounds->replicas ? NODES : NODES - 1;
}

static bool current(const struct state *s, unsigned node)
{
    return s->p[node].sess == s->d.sess[node] && s->d.live[node];
}

static void renew(struct steps *to, unsigned node)
{
    const struct state *s = to->now;
    if (s->p[node].lease || s->p[node].sess == 0) {
        return;
    }
    bool answered = current(s, node) && !s->d.ending[node];
    bool revived =
        mutated(MUT_revived_session) && s->p[node].sess == s->d.sess[node] && !s->d.live[node];
    if (answered || revived) {
        struct state t = *s;
        t.p[node].lease = 1;
        t.d.live[node] = 1;
        model_say(to, &t, "%s renews its lease%s", model_names[node],
                  revived ? " of an ended session" : "");
    }
}

/* A heartbeat waits at the leader for a quorum, is answered, and its answer arrives. */
static void heartbeat(struct steps *to, unsigned node)
{
    const struct state *s = to->now;
    const struct proc *p = &s->p[node];
    struct state t = *s;
    if (p->sess == 0) {
        return;
    }
    if (p->beat == NO_BEAT && !p->lease &&
        (!s->d.ending[node] || mutated(MUT_answer_while_ending))) {
        t.p[node].beat = BEAT_WAITS;
        model_say(to, &t, "%s sends a heartbeat", model_names[node]);
    } else if (p->beat == BEAT_WAITS) {
        bool same = p->sess == s->d.sess[node];
        bool revived = same && mutated(MUT_revived_session);
        if (current(s, node) || mutated(MUT_unconfirmed_beat) || revived) {
            t.p[node].beat = BEAT_ANSWERED;
            t.d.live[node] |= (uint8_t)revived;
            model_say(to, &t, "the heartbeat of %s is answered", model_names[node]);
        }
    } else if (p->beat != NO_BEAT) {
        t.p[node].beat = NO_BEAT;
        t.p[node].lease = p->beat == BEAT_ANSWERED || mutated(MUT_lease_from_receipt);
        model_say(to, &t, "%s gets the answer%s", model_names[node],
                  t.p[node].lease ? "" : ", too late");
    }
    if (p->beat != NO_BEAT) {
        t = *s;
        t.p[node].beat = NO_BEAT;
        model_say(to, &t, "the heartbeat of %s or its answer is lost", model_names[node]);
    }
}

static void read_orders(struct steps *to, unsigned node)
{
    const struct state *s = to->now;
    struct state t = *s;
    if (s->p[node].sess == 0) {
        return;
    }
    if (!current(s, node)) {
        if (!mutated(MUT_ack_across_grants)) {
            model_stop(&t, node);
        }
        t.p[node] = (struct proc){.up = 1};
        model_say(to, &t, "%s learns that its session has ended, and stops", model_names[node]);
        return;
    }
    struct order o = model_order(s, node);
    model_obey(&t, &o);
    if (memcmp(&t, s, sizeof t) != 0) {
        if (t.late.kind == LATE_ORDER && t.late.order.node == node) {
            t.late.stale = 1;
        }
        model_say(to, &t, "%s reads its orders: epoch %d%s, must have %x, attempt %d%s",
                  model_names[node], o.epoch, o.fenced ? " fenced" : "", o.must, o.att,
                  o.dual ? ", dual write" : "");
    }
}

static void report(struct steps *to, unsigned node)
{
    const struct state *s = to->now;
    for (unsigned kind = ACTIVE; kind <= OUT_OF_SYNC; kind++) {
        struct report r;
        if (kind >= IN_SYNC && !model.bounds->replicas) {
            break;
        }
        if (!model_report(s, (enum report_kind)kind, node, &r)) {
            continue;
        }
        struct state t = *s;
        if (model_take(&t, &r)) {
            model_say(to, &t, "%s reports %s at %d in attempt %d: stage %s", model_names[node],
                      report_names[kind], r.pos, r.att, model_stages[t.d.stage]);
        }
    }
}

static void clean_up(struct steps *to, unsigned node)
{
    const struct state *s = to->now;
    uint8_t copy = s->d.duty[node];
    if (copy == 0 || !current(s, node)) {
        return;
    }
    struct state t = *s;
    (void)model_clean_up(&t, node, copy);
    t.d.duty[node] = 0;
    model_say(to, &t, "%s deletes copy %d and reports it", model_names[node], copy);
}

static void write(struct steps *to, unsigned proc)
{
    const struct state *s = to->now;
    struct state t = *s;
    unsigned node = model_node(proc), w = 0;
    unsigned pos = model_highest(&s->disk[node]);
    while (w < model.bounds->writes && s->w[w].state != FREE) {
        w++;
    }
    if (w == model.bounds->writes || pos >= WRITES || !model_may_write(s, proc)) {
        return;
    }
    const struct proc *p = &s->p[proc];
    t.w[w] = (struct write){.state = PENDING,
                            .by = (uint8_t)proc,
                            .epoch = p->epoch,
                            .sess = p->sess,
                            .pos = (uint8_t)pos};
    for (unsigned i = 0; i < w; i++) {
        if (s->w[i].epoch == p->epoch &&
            (model_node(s->w[i].by) != node || s->w[i].sess != p->sess)) {
            t.flaw = SAME_EPOCH_TWICE;
        }
    }
    t.disk[node].log[pos] = (uint8_t)(w + 1);
    model_say(to, &t, "%s admits write %u at position %u, epoch %d", model_names[proc], w, pos,
              p->epoch);
}

/* D copies the oldest entry that it lacks, through its present attempt. */
static void copy(struct steps *to, unsigned node)
{
    const struct state *s = to->now;
    const struct proc *p = &s->p[node];
    if (p->att == 0 || p->source == node || p->epoch != 0 || s->disk[node].att != p->att ||
        !s->p[p->source].up || s->p[p->source].att != p->att) {
        return;
    }
    for (unsigned pos = 0; pos < WRITES; pos++) {
        uint8_t entry = s->disk[p->source].log[pos];
        if (entry != HOLE && s->disk[node].log[pos] == HOLE) {
            struct state t = *s;
            t.disk[node].log[pos] = entry;
            model_say(to, &t, "%s copies position %u from %s", model_names[node], pos,
                      model_names[p->source]);
            if (model.bounds->damage && s->d.stage <= DUAL_WRITE &&
                s->faults < model.bounds->faults) {
                t.disk[node].log[pos] = DAMAGED | 1;
                t.faults++;
                model_say(to, &t, "%s copies position %u, and it arrives damaged",
                          model_names[node], pos);
            }
            return;
        }
    }
}

/* A synchronous replica cuts its log to a new primary's, and then takes its entries in order. */
static void replicate(struct steps *to, unsigned node)
{
    const struct state *s = to->now;
    unsigned home = s->d.home;
    const struct proc *p = &s->p[home];
    if (node == home || !p->up || p->epoch == 0 || s->disk[node].copy == 0 ||
        (s->d.duty[node] != 0) || (model_moving(s) && node == s->d.dest)) {
        return;
    }
    struct state t = *s;
    if (s->disk[node].follows < p->epoch) {
        model_follow(&t.disk[node], &s->disk[home], p->epoch, s);
        model_say(to, &t, "%s cuts its log to the primary's", model_names[node]);
        return;
    }
    unsigned pos = model_prefix(&s->disk[node]);
    if (s->disk[node].follows == p->epoch && pos < model_highest(&s->disk[home])) {
        t.disk[node].log[pos] = s->disk[home].log[pos];
        model_say(to, &t, "%s takes position %u from the primary", model_names[node], pos);
    }
    if (s->disk[node].follows == p->epoch && (p->counts & 1U << node) == 0 &&
        (p->must & 1U << node) == 0) {
        t = *s;
        t.p[home].counts |= (uint8_t)(1U << node);
        model_say(to, &t, "%s begins to count %s", model_names[home], model_names[node]);
    }
}

/* The nodes that have the write, as its primary can know; the way to D is a step of its own. */
static uint8_t send(struct steps *to, unsigned w)
{
    const struct state *s = to->now;
    const struct write *write = &s->w[w];
    unsigned self = model_node(write->by), dest = self == S ? D : S;
    const struct proc *p = &s->p[write->by];
    bool held = s->disk[dest].log[write->pos] == w + 1;
    bool same = s->p[dest].att == p->att && s->disk[dest].att == p->att;
    bool present = s->p[dest].up && (same || mutated(MUT_dual_of_any_attempt)) && p->att != 0;
    if (self == R || !present) {
        return write->acks;
    }
    if ((p->must & 1U << dest) != 0 && !held && s->p[dest].epoch == 0) {
        struct state t = *s;
        t.disk[dest].log[write->pos] = (uint8_t)(w + 1);
        model_say(to, &t, "%s has write %u from %s", model_names[dest], w, model_names[write->by]);
    }
    return (uint8_t)(write->acks | (held ? 1U << dest : 0U));
}

static uint8_t replicas_with(const struct state *s, unsigned w)
{
    const struct proc *p = &s->p[s->w[w].by];
    uint8_t have = 0;
    for (unsigned n = 0; p->epoch != 0 && n < nodes(); n++) {
        if (s->disk[n].follows == p->epoch && s->disk[n].log[s->w[w].pos] == w + 1) {
            have |= (uint8_t)(1U << n);
        }
    }
    return have;
}

/* The way of one write to D and to the client. */
static void carry(struct steps *to, unsigned w)
{
    const struct state *s = to->now;
    const struct write *write = &s->w[w];
    const struct proc *p = &s->p[write->by];
    if (write->state != PENDING || !p->up) {
        return;
    }
    unsigned have = send(to, w) | replicas_with(s, w) | 1U << model_node(write->by);
    unsigned must = (unsigned)(p->must | p->counts);
    if (mutated(MUT_primary_drops_alone)) {
        must &= 1U << R;
    }
    struct state t = *s;
    bool bound = p->epoch == write->epoch || mutated(MUT_ack_across_grants);
    if ((must & ~have) == 0 && bound) {
        t.w[w].state = ACKED;
        model_say(to, &t, "%s acknowledges write %u", model_names[write->by], w);
    } else if (p->fenced) {
        t.w[w].state = UNKNOWN;
        model_say(to, &t, "%s answers write %u \"outcome unknown\"", model_names[write->by], w);
    }
}

static void decide(struct steps *to, const char *what, bool (*command)(struct state *))
{
    struct state t = *to->now;
    if (command(&t)) {
        model_say(to, &t, "directory: %s (epoch %d, attempt %d, stage %s)", what, t.d.epoch,
                  t.d.att, model_stages[t.d.stage]);
    }
}

void model_steps(struct steps *to)
{
    const struct state *s = to->now;
    for (unsigned n = 0; n < nodes(); n++) {
        struct state t = *s;
        if (!s->p[n].up || s->p[n].sess == 0) {
            model_register(&t, n);
            model_say(to, &t, "%s registers session %d (epoch %d, stage %s)", model_names[n],
                      t.d.sess[n], t.d.epoch, model_stages[t.d.stage]);
            continue;
        }
        if (model.bounds->beats) {
            heartbeat(to, n);
        } else {
            renew(to, n);
        }
        read_orders(to, n);
        report(to, n);
        clean_up(to, n);
        copy(to, n);
        if (model.bounds->replicas) {
            replicate(to, n);
        }
        if (model_failover(&t, n)) {
            model_say(to, &t, "directory: failover to %s, epoch %d", model_names[n], t.d.epoch);
        }
    }
    for (unsigned proc = 0; proc < PROCS; proc++) {
        write(to, proc);
    }
    for (unsigned w = 0; w < model.bounds->writes; w++) {
        carry(to, w);
    }
    decide(to, "a move starts", model_start);
    decide(to, "dual write", model_dual_write);
    decide(to, "forward to D", model_forward);
    decide(to, "the window is over", model_window_over);
    decide(to, "a grant to the new session", model_regrant);
}
