/* SPDX-License-Identifier: Apache-2.0 */
/* What the process of a data node does with its grant, its log and its orders. */
#include "tests/model/model.h"

#include <string.h>

enum who model_node(unsigned proc)
{
    return proc == OLD ? S : (enum who)proc;
}

unsigned model_highest(const struct disk *disk)
{
    unsigned n = WRITES;
    while (n > 0 && disk->log[n - 1] == HOLE) {
        n--;
    }
    return n;
}

unsigned model_prefix(const struct disk *disk)
{
    unsigned n = 0;
    while (n < WRITES && disk->log[n] != HOLE) {
        n++;
    }
    return n;
}

bool model_may_write(const struct state *s, unsigned proc)
{
    const struct proc *p = &s->p[proc];
    bool leased = p->lease || mutated(MUT_write_without_lease);
    bool fenced = p->fenced && !mutated(MUT_fence_admits);
    return p->up && p->sess != 0 && p->epoch != 0 && !fenced && leased;
}

void model_stop(struct state *s, unsigned proc)
{
    for (unsigned w = 0; w < WRITES; w++) {
        if (s->w[w].state == PENDING && s->w[w].by == proc) {
            s->w[w].state = UNKNOWN;
        }
    }
}

/* A new primary goes on above everything it holds: what lies above a hole may be acknowledged, what
 * is missing below is not, and will never come. */
static void take_over(struct disk *disk)
{
    unsigned end = model_highest(disk);
    if (mutated(MUT_takeover_cuts_at_hole)) {
        for (unsigned pos = model_prefix(disk); pos < WRITES; pos++) {
            disk->log[pos] = HOLE;
        }
        return;
    }
    for (unsigned pos = 0; pos < end; pos++) {
        if (disk->log[pos] == HOLE) {
            disk->log[pos] = FILLED;
        }
    }
}

static void change_attempt(struct state *s, const struct order *o)
{
    struct proc *p = &s->p[o->node];
    struct disk *disk = &s->disk[o->node];
    if (o->att != p->att) {
        for (unsigned w = 0; w < WRITES; w++) {
            if (s->w[w].by == o->node) {
                s->w[w].acks &= (uint8_t)(1U << R);
            }
        }
    }
    if (o->att != 0 && o->source != o->node && o->epoch == 0) {
        if (disk->copy != o->copy) {
            memset(disk->log, HOLE, sizeof disk->log);
            disk->copy = o->copy;
            disk->follows = 0;
        }
        disk->att = o->att;
    }
    p->att = o->att;
    p->source = o->source;
    p->dual = o->dual;
}

void model_obey(struct state *s, const struct order *o)
{
    struct proc *p = &s->p[o->node];
    if (!p->up || p->sess == 0) {
        return;
    }
    if (o->sess != p->sess && !mutated(MUT_order_of_any_session)) {
        return;
    }
    if (o->epoch != p->epoch) {
        if (!mutated(MUT_ack_across_grants)) {
            model_stop(s, o->node);
        }
        p->fenced = 0;
        p->counts = 0;
        if (o->epoch != 0) {
            take_over(&s->disk[o->node]);
        }
    }
    if (o->version != p->version) {
        p->counts = 0;
    }
    p->epoch = o->epoch;
    p->version = o->version;
    p->fenced = (uint8_t)((p->fenced || o->fenced) && o->epoch != 0);
    p->must = o->must;
    if (mutated(MUT_active_before_sending) && !o->active) {
        p->must &= (uint8_t)(1U << R);
    }
    change_attempt(s, o);
}

static bool pending(const struct state *s, unsigned proc)
{
    for (unsigned w = 0; w < WRITES; w++) {
        if (s->w[w].state == PENDING && s->w[w].by == proc) {
            return true;
        }
    }
    return false;
}

/* Each side sums when it applies one position that was named; here both are asked at once, at the
 * highest position that D has applied. */
static bool equal_up_to(const struct state *s, unsigned a, unsigned b, unsigned end)
{
    return mutated(MUT_sums_ignored) || mutated(MUT_applied_by_highest) ||
           memcmp(s->disk[a].log, s->disk[b].log, end) == 0;
}

static bool source_report(const struct state *s, unsigned node, struct report *r)
{
    const struct proc *p = &s->p[node];
    if (p->att == 0 || p->source != node || p->epoch == 0) {
        return false;
    }
    r->pos = (uint8_t)model_highest(&s->disk[node]);
    unsigned dest = node == S ? D : S;
    if (r->kind == ACTIVE) {
        bool counted = (p->must & 1U << dest) != 0 || mutated(MUT_active_before_sending);
        return p->dual && !p->fenced && counted;
    }
    return p->fenced && !pending(s, node);
}

static bool dest_report(const struct state *s, unsigned node, struct report *r)
{
    const struct proc *p = &s->p[node];
    const struct disk *disk = &s->disk[node];
    if (p->att == 0 || p->source == node || p->epoch != 0 || disk->att != p->att) {
        return false;
    }
    bool highest = mutated(MUT_applied_by_highest);
    r->pos = (uint8_t)(highest ? model_highest(disk) : model_prefix(disk));
    if (r->kind == APPLIED) {
        return p->dual;
    }
    bool both = s->p[p->source].up && s->p[p->source].att == p->att;
    bool equal = equal_up_to(s, node, p->source, r->pos);
    if (r->kind == EQUAL || r->kind == UNEQUAL) {
        return p->dual && both && equal == (r->kind == EQUAL);
    }
    r->about = (uint8_t)equal_up_to(s, node, p->source, s->d.final);
    return p->dual;
}

/* A primary asks for a change of the in-sync set: of R, or of S when R is primary. It counts the
 * replica first. */
static bool primary_report(const struct state *s, unsigned node, struct report *r)
{
    const struct proc *p = &s->p[node];
    unsigned other = node == R ? S : R;
    if (p->epoch == 0) {
        return false;
    }
    r->about = (uint8_t)other;
    r->version = p->version;
    if (r->kind == OUT_OF_SYNC) {
        return (p->must & 1U << other) != 0;
    }
    bool counted = (p->counts & 1U << other) != 0 || mutated(MUT_in_sync_before_counted);
    const struct disk *disk = &s->disk[other];
    return (p->must & 1U << other) == 0 && counted && disk->follows == p->epoch &&
           model_prefix(disk) >= model_highest(&s->disk[node]);
}

bool model_report(const struct state *s, enum report_kind kind, unsigned node, struct report *r)
{
    const struct proc *p = &s->p[node];
    memset(r, 0, sizeof *r);
    if (!p->up || p->sess == 0) {
        return false;
    }
    *r = (struct report){.kind = (uint8_t)kind,
                         .node = (uint8_t)node,
                         .sess = p->sess,
                         .att = p->att,
                         .epoch = p->epoch};
    if (kind == IN_SYNC || kind == OUT_OF_SYNC) {
        return primary_report(s, node, r);
    }
    if (kind == ACTIVE || kind == FENCED) {
        return source_report(s, node, r);
    }
    return dest_report(s, node, r);
}

bool model_clean_up(struct state *s, unsigned node, uint8_t copy)
{
    struct disk *disk = &s->disk[node];
    if (disk->copy == 0 || (disk->copy != copy && !mutated(MUT_cleanup_of_any_copy))) {
        return false;
    }
    if (s->d.home == node) {
        s->flaw = OWN_COPY_DELETED;
    }
    memset(disk, 0, sizeof *disk);
    return true;
}

/* Two logs agree at a position if the entry there was written at the same epoch: a log position is
 * (epoch, position). */
static uint8_t epoch_at(const struct state *s, const struct disk *disk, unsigned pos)
{
    uint8_t entry = disk->log[pos];
    return entry == HOLE || entry == FILLED ? entry : s->w[(entry & 0x3F) - 1].epoch;
}

void model_follow(struct disk *replica,
                  const struct disk *primary,
                  uint8_t epoch,
                  const struct state *s)
{
    unsigned pos = 0;
    while (pos < WRITES && replica->log[pos] != HOLE &&
           epoch_at(s, replica, pos) == epoch_at(s, primary, pos)) {
        pos++;
    }
    if (!mutated(MUT_replica_not_cut)) {
        memset(replica->log + pos, HOLE, WRITES - pos);
    }
    replica->follows = epoch;
}
