/* SPDX-License-Identifier: Apache-2.0 */
/* Faults, each of which costs one of the scenario's budget, and what follows from one without
 * another. */
#include "tests/model/model.h"

#include <string.h>

static bool affordable(const struct state *s)
{
    return s->faults < model.bounds->faults;
}

static void fail_process(struct steps *to, unsigned node)
{
    const struct state *s = to->now;
    struct state t = *s;
    t.faults++;
    if (s->p[node].up) {
        model_stop(&t, node);
        t.p[node] = (struct proc){.up = 0};
        model_say(to, &t, "%s crashes", model_names[node]);
    }
    bool wanted = node == s->d.dest || (s->d.sync & 1U << node) != 0;
    if (s->p[node].up && wanted && node != s->d.home && model.bounds->damage) {
        memset(&t.disk[node], 0, sizeof t.disk[node]);
        model_register(&t, node);
        model_say(to, &t, "%s starts again without its disk: session %d, epoch %d, attempt %d",
                  model_names[node], t.d.sess[node], t.d.epoch, t.d.att);
    }
    if (s->p[node].lease) {
        t = *s;
        t.faults++;
        t.p[node].lease = 0;
        model_say(to, &t, "%s's lease runs out", model_names[node]);
    }
    bool stopping = s->p[node].sess == s->d.sess[node] && s->d.live[node] && s->p[node].sess != 0;
    if (stopping && model.bounds->beats) {
        t = *s;
        t.faults++;
        if (!mutated(MUT_released_before_stop)) {
            model_stop(&t, node);
            t.p[node] = (struct proc){.up = 1};
        }
        model_lapse(&t, node);
        model_say(to, &t, "%s stops and releases its session", model_names[node]);
    }
}

/* Whether a process with this session of the node may still count on its lease. */
static bool leased(const struct state *s, unsigned node, uint8_t sess)
{
    bool old = node == S && s->p[OLD].up && s->p[OLD].sess == sess && s->p[OLD].lease;
    return old || (s->p[node].up && s->p[node].sess == sess && s->p[node].lease);
}

static bool waits(const struct state *s, unsigned node)
{
    return s->p[node].beat == BEAT_WAITS && s->p[node].sess == s->d.sess[node] &&
           !mutated(MUT_end_with_beat_waiting);
}

/* The leader's clock ran out on a session: at the earliest when the agent's own has. */
static void lapse(struct steps *to, unsigned node)
{
    const struct state *s = to->now;
    struct state t = *s;
    bool early = mutated(MUT_no_drift_allowance) || (mutated(MUT_new_leader_at_once) && s->elected);
    if (s->d.ending[node]) {
        model_lapse(&t, node);
        model_say(to, &t, "directory: the session of %s has ended", model_names[node]);
        t = *s;
        t.d.ending[node] = 0;
        model_say(to, &t, "the command that ends the session of %s is lost", model_names[node]);
        return;
    }
    if (s->d.live[node] && (early || !leased(s, node, s->d.sess[node])) && !waits(s, node)) {
        t.d.ending[node] = 1;
        if (t.p[node].beat == BEAT_ANSWERED && t.p[node].sess == s->d.sess[node]) {
            t.p[node].beat = BEAT_TOO_OLD;
        }
        model_say(to, &t, "the leader proposes the end of the session of %s", model_names[node]);
    }
    bool held = s->d.home == node && !s->d.released && s->d.grant != s->d.sess[node];
    if (held && !leased(s, node, s->d.grant)) {
        t = *s;
        t.d.released = 1;
        model_say(to, &t, "directory: what the old session of %s held is released",
                  model_names[node]);
    }
}

static void old_process(struct steps *to)
{
    const struct state *s = to->now;
    struct state t = *s;
    if (!s->p[OLD].up && s->p[S].up && s->p[S].sess != 0 && affordable(s)) {
        t.p[OLD] = s->p[S];
        for (unsigned w = 0; w < WRITES; w++) {
            if (t.w[w].by == S && t.w[w].state == PENDING) {
                t.w[w].by = OLD;
            }
        }
        t.p[S] = (struct proc){.up = 0};
        t.faults++;
        model_say(to, &t, "a second process of S is started beside the first");
    }
    if (s->p[OLD].up) {
        t = *s;
        if (s->p[OLD].lease) {
            t.p[OLD].lease = 0;
            model_say(to, &t, "the lease of the old process of S runs out");
        } else {
            model_stop(&t, OLD);
            memset(&t.p[OLD], 0, sizeof t.p[OLD]);
            model_say(to, &t, "the old process of S ends");
        }
    }
}

static void give_trouble(struct steps *to)
{
    struct state t = *to->now;
    t.faults++;
    struct state u = t;
    if (model_back(&u)) {
        model_say(to, &u, "directory: %s times out: back to CATCH_UP, attempt %d, epoch %d",
                  model_stages[to->now->d.stage], u.d.att, u.d.epoch);
    }
    u = t;
    if (model_abort(&u)) {
        model_say(to, &u, "directory: aborted in %s, epoch %d", model_stages[to->now->d.stage],
                  u.d.epoch);
    }
    if (model.bounds->beats && !to->now->elected) {
        t.elected = 1;
        model_say(to, &t, "another leader is elected");
    }
}

/* A message that was sent is seen later too, and again. */
static void hold_back(struct steps *to, unsigned node)
{
    const struct state *s = to->now;
    struct state t = *s;
    t.faults++;
    t.late = (struct late){.node = (uint8_t)node};
    const struct proc *p = &s->p[node];
    if (!p->up || p->sess == 0 || p->sess != s->d.sess[node] || !s->d.live[node]) {
        return;
    }
    struct order o = model_order(s, node);
    if (o.epoch != 0 || o.att != 0) {
        t.late.kind = LATE_ORDER;
        t.late.order = o;
        model_say(to, &t, "an order for %s is late: epoch %d, must have %x, attempt %d",
                  model_names[node], o.epoch, o.must, o.att);
    }
    for (unsigned kind = ACTIVE; kind <= OUT_OF_SYNC; kind++) {
        bool there = kind < IN_SYNC || model.bounds->replicas;
        if (there && kind != UNEQUAL &&
            model_report(s, (enum report_kind)kind, node, &t.late.report)) {
            t.late.kind = LATE_REPORT;
            t.late.order = (struct order){.node = 0};
            model_say(to, &t, "a report of %s is late: kind %u, position %d, attempt %d",
                      model_names[node], kind, t.late.report.pos, t.late.report.att);
        }
    }
    if (s->d.duty[node] != 0) {
        t = *s;
        t.faults++;
        t.late = (struct late){
            .kind = LATE_CLEANUP, .node = (uint8_t)node, .sess = p->sess, .copy = s->d.duty[node]};
        model_say(to, &t, "the order that %s deletes copy %d is late", model_names[node],
                  t.late.copy);
    }
}

static void hold_back_write(struct steps *to, unsigned w)
{
    const struct state *s = to->now;
    const struct proc *p = &s->p[s->w[w].by];
    unsigned dest = model_node(s->w[w].by) == S ? D : S;
    if (s->w[w].state != PENDING || !p->up || p->att == 0 || (p->must & 1U << dest) == 0) {
        return;
    }
    struct state t = *s;
    t.faults++;
    t.late = (struct late){.kind = LATE_DUAL,
                           .write = (uint8_t)w,
                           .att = p->att,
                           .epoch = p->epoch,
                           .node = (uint8_t)dest};
    model_say(to, &t, "write %u is late on its way to %s", w, model_names[dest]);
    if (s->disk[dest].log[s->w[w].pos] == w + 1 && s->disk[dest].att == p->att) {
        t.late.kind = LATE_ACK;
        model_say(to, &t, "the acknowledgement of write %u by %s is late", w, model_names[dest]);
    }
}

static void land(struct steps *to, struct state *t)
{
    const struct late *late = &to->now->late;
    struct disk *disk = &t->disk[late->node];
    const struct proc *p = &t->p[late->node];
    if (late->kind == LATE_ACK) {
        struct write *write = &t->w[late->write];
        bool same = t->p[write->by].att == late->att || mutated(MUT_dual_of_any_attempt);
        bool counts = same && write->state == PENDING;
        write->acks = (uint8_t)(write->acks | (counts ? 1U << late->node : 0U));
        return;
    }
    bool same = disk->att == late->att || mutated(MUT_dual_of_any_attempt);
    same = (same && p->att != 0 && p->epoch == 0) || mutated(MUT_change_of_any_epoch);
    if (p->up && same && (p->att == disk->att || mutated(MUT_change_of_any_epoch))) {
        disk->log[t->w[late->write].pos] = (uint8_t)(late->write + 1);
    }
}

static void come_late(struct steps *to)
{
    struct state t = *to->now;
    const struct late *late = &to->now->late;
    if (late->kind == LATE_ORDER) {
        if (!late->stale || mutated(MUT_order_of_any_revision)) {
            model_obey(&t, &late->order);
        }
    } else if (late->kind == LATE_REPORT) {
        (void)model_take(&t, &late->report);
    } else if (late->kind == LATE_CLEANUP) {
        const struct proc *p = &t.p[late->node];
        if (p->up && p->sess == late->sess) {
            (void)model_clean_up(&t, late->node, late->copy);
        }
    } else {
        land(to, &t);
    }
    if (memcmp(&t, to->now, sizeof t) != 0) {
        model_say(to, &t, "what was late arrives and has an effect (attempt %d, stage %s)", t.d.att,
                  model_stages[t.d.stage]);
    }
}

void model_faults(struct steps *to)
{
    const struct state *s = to->now;
    unsigned nodes = model.bounds->replicas ? NODES : NODES - 1;
    for (unsigned n = 0; n < nodes; n++) {
        lapse(to, n);
        if (affordable(s)) {
            fail_process(to, n);
        }
        if (affordable(s) && model.bounds->late && s->late.kind == NOTHING) {
            hold_back(to, n);
        }
    }
    for (unsigned w = 0; w < model.bounds->writes; w++) {
        if (affordable(s) && model.bounds->late && s->late.kind == NOTHING) {
            hold_back_write(to, w);
        }
    }
    if (model.bounds->twins) {
        old_process(to);
    }
    if (affordable(s)) {
        give_trouble(to);
    }
    if (s->late.kind != NOTHING) {
        come_late(to);
    }
}
