/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part in an operation, as docs/movement.md has it: the source's and the destination's
 * side of each stage, and the copies that it has to delete. */
#include "tests/sim/movement_internal.h"

#include <string.h>

enum { REPORT_MS = 160, PULL_MS = 50, KEEP = 60 };

static bool in_stages(const struct assignment *w, enum dir_stage from, enum dir_stage upto)
{
    return w->operation != 0 && w->stage >= from && w->stage <= upto;
}

static struct copy *my_copy(struct sim *s, unsigned seat)
{
    const struct hold *h = &s->holds[seat];
    uint64_t id = h->part.work.source ? h->copy : h->part.work.copy;
    return copy_find(&s->disks[sim_node(seat)], h->partition, id);
}

/* --- orders --- */

/* An unproven candidate of before, under another name. */
static void reuse(struct sim *s, struct disk *d, const struct assignment *w, const struct hold *h)
{
    bool any = sim_mutated(s, MOVEMENT_candidate_reused);
    bool retried = sim_mutated(s, MOVEMENT_retry_keeps_candidate);
    for (unsigned i = 0; (any || retried) && i < COPIES; i++) {
        struct copy *c = &d->copies[i];
        bool wanted = c->partition == h->partition && copy_find(d, h->partition, w->copy) == NULL;
        bool same = c->operation == w->operation && c->attempt < w->attempt;
        if (c->id != 0 && c->id != h->copy && wanted && (any || same)) {
            c->id = w->copy;
        }
    }
}

/* The copy of before is the candidate of the way back: up to there the two logs are one. What
 * follows is the source's if it is of its epoch. */
static void cut_to_base(struct copy *c, const struct assignment *w)
{
    uint32_t at = (uint32_t)w->base;
    while (at < c->len && c->log[at].epoch == w->epoch) {
        at++;
    }
    copy_cut(c, at);
}

static void record(struct sim *s, unsigned seat, const struct assignment *w)
{
    struct disk *d = &s->disks[sim_node(seat)];
    if (w->source || !in_stages(w, DIR_STAGE_PREPARE, DIR_STAGE_CUTOVER) || !sim_is_present(seat)) {
        return;
    }
    reuse(s, d, w, &s->holds[seat]);
    struct copy *c = copy_make(d, s->holds[seat].partition, w->copy, w->keys);
    if (c == NULL) {
        return;
    }
    if (w->stage < DIR_STAGE_COPY && !sim_mutated(s, MOVEMENT_retry_keeps_candidate)) {
        c->chunk = 0; /* of no snapshot yet */
    }
    if (w->returns && c->operation != w->operation) {
        cut_to_base(c, w);
    }
    c->operation = w->operation;
    c->attempt = w->attempt;
}

/* Each side sums when it applies exactly the position that was named. */
static void look_for_sum(struct sim *s, struct part *t, const struct copy *c, uint32_t applied)
{
    const struct assignment *w = &t->work;
    uint64_t at = sim_mutated(s, MOVEMENT_sums_of_snapshot) ? w->position : w->validate_at;
    if (w->stage != DIR_STAGE_VALIDATE || t->summed || t->passed || c == NULL) {
        return;
    }
    if (applied == w->validate_at || at != w->validate_at) {
        t->summed = true;
        t->sum = copy_sum(c, (uint32_t)at, w->keys);
    } else if (applied > w->validate_at) {
        t->passed = true;
        t->passed_at = applied;
    }
}

void agent_take(struct sim *s, unsigned seat, const struct assignment *w)
{
    struct hold *h = &s->holds[seat];
    struct proc *p = sim_proc(s, seat);
    struct part *t = &h->part;
    if (t->work.operation != w->operation || t->work.attempt != w->attempt) {
        if (t->work.operation != 0) {
            p->was_operation = t->work.operation;
            p->was_attempt = t->work.attempt;
        }
        *t = (struct part){.summed = false};
    } else if (t->work.stage != w->stage || t->work.validate_at != w->validate_at) {
        t->summed = t->passed = false;
        t->next_report = 0;
    }
    if (w->stage == DIR_STAGE_COPY && t->work.stage != DIR_STAGE_COPY) {
        t->next_pull = s->now + s->entry_wait * w->chunk_entries;
    }
    t->work = *w;
    if (w->stage == DIR_STAGE_CATCH_UP && !w->source && w->returns && w->base == 0) {
        t->gap = true; /* nobody said where its log ended */
    }
    record(s, seat, w);
    const struct copy *c = my_copy(s, seat);
    look_for_sum(s, t, c, c == NULL ? 0 : w->source ? c->len : c->prefix);
}

/* --- reports --- */

static void say(struct sim *s, unsigned seat, const struct said *said)
{
    struct hold *h = &s->holds[seat];
    struct proc *p = sim_proc(s, seat);
    const struct assignment *w = &h->part.work;
    struct event e = {.kind = EV_REPORT, .proc = seat, .born = p->born, .session = p->session};
    e.operation = w->operation;
    e.attempt = w->attempt;
    e.stage = w->stage;
    e.said = *said;
    e.said.seq = ++p->seq;
    sim_send(s, &e, sim_node(seat), sim_node(seat));
    uint64_t more = w->stage == DIR_STAGE_COPY ? s->entry_wait : 0;
    h->part.next_report = s->now + REPORT_MS * MS + sim_below(s, REPORT_MS * MS) + more;
}

static void say_sum(struct sim *s, unsigned seat)
{
    const struct part *t = &s->holds[seat].part;
    struct said said = {.has = DIR_REPORT_AT_POSITION, .passed = t->passed};
    said.position = t->passed ? t->passed_at : t->work.validate_at;
    said.items = t->work.validate_at;
    said.checksum = t->sum;
    if (!t->passed) {
        said.has |= DIR_REPORT_ITEMS | DIR_REPORT_CHECKSUM;
    }
    if (t->passed || t->summed) {
        say(s, seat, &said);
    }
}

static void source_turn(struct sim *s, unsigned seat, const struct copy *c)
{
    struct hold *h = &s->holds[seat];
    struct part *t = &h->part;
    struct said said = {.position = c->len, .epoch = h->epoch};
    switch ((int)t->work.stage) {
    case DIR_STAGE_SNAPSHOT:
        said.has = DIR_REPORT_SNAPSHOT | DIR_REPORT_POSITION | DIR_REPORT_BYTES_TOTAL;
        said.bytes = c->len * s->entry_bytes;
        said.chunk = 3 + sim_below(s, BATCH - 2); /* so many entries to each */
        break;
    case DIR_STAGE_DUAL_WRITE:
        if (t->work.active) {
            return;
        }
        said.has = DIR_REPORT_ACTIVE | DIR_REPORT_FROM_POSITION;
        said.active = true;
        break;
    case DIR_STAGE_FENCE:
        if (!h->fenced || (h->acked < c->len && !sim_mutated(s, MOVEMENT_fence_admits))) {
            return;
        }
        said.has = DIR_REPORT_FENCED | DIR_REPORT_FINAL_POSITION | DIR_REPORT_CHECKSUM;
        said.fenced = true;
        said.checksum = copy_sum(c, c->len, t->work.keys);
        break;
    case DIR_STAGE_VALIDATE:
        say_sum(s, seat);
        return;
    default:
        return;
    }
    say(s, seat, &said);
}

static void destination_turn(struct sim *s, unsigned seat, const struct copy *c)
{
    const struct hold *h = &s->holds[seat];
    const struct part *t = &h->part;
    const struct assignment *w = &t->work;
    bool highest = sim_mutated(s, MOVEMENT_applied_above_hole);
    struct said said = {.has = DIR_REPORT_APPLIED_POSITION, .gap = t->gap};
    said.position = highest ? c->len : c->prefix;
    if (sim_mutated(s, MOVEMENT_back_not_caught_up) && w->returns && t->counted > c->prefix) {
        said.position = t->counted;
    }
    switch ((int)w->stage) {
    case DIR_STAGE_PREPARE:
        said.has = DIR_REPORT_READY | DIR_REPORT_FREE_BYTES;
        said.ready = true;
        said.free_bytes = s->disks[sim_node(seat)].free_bytes;
        break;
    case DIR_STAGE_COPY:
        said.has = DIR_REPORT_CHUNK | DIR_REPORT_BYTES_DONE | DIR_REPORT_COMPLETE;
        said.chunk = c->chunk;
        said.bytes = c->prefix * s->entry_bytes;
        said.failures = t->failures;
        said.complete = (uint64_t)c->chunk * w->chunk_entries >= w->position;
        break;
    case DIR_STAGE_CATCH_UP:
        if (t->counted < c->prefix && !said.gap) {
            return; /* it has not heard how far the source is */
        }
        said.has |= DIR_REPORT_LAG_BYTES;
        said.lag = (t->counted - (said.position < t->counted ? said.position : t->counted)) *
                   s->entry_bytes;
        break;
    case DIR_STAGE_DUAL_WRITE:
        break;
    case DIR_STAGE_VALIDATE:
        say_sum(s, seat);
        return;
    case DIR_STAGE_CUTOVER:
        if (said.position < w->final_position) {
            return;
        }
        said.position = w->final_position;
        said.has |= DIR_REPORT_CHECKSUM;
        said.checksum = copy_sum(c, (uint32_t)w->final_position, w->keys);
        break;
    default:
        return;
    }
    say(s, seat, &said);
}

static void window_turn(struct sim *s, unsigned seat)
{
    struct said said = {.has = DIR_REPORT_OPEN_OPERATIONS | DIR_REPORT_STALE_READS};
    said.open = sim_chance(s, 60);
    if (s->holds[seat].part.work.source) {
        say(s, seat, &said);
    }
}

/* --- the copy and the change log --- */

static struct event message(struct sim *s, unsigned from, enum event_kind kind, unsigned to)
{
    const struct hold *h = &s->holds[from];
    const struct assignment *w = &h->part.work;
    struct event e = {.kind = kind, .born = sim_proc(s, from)->born, .epoch = w->epoch};
    e.proc = from - from % PROCS + to % PROCS;
    e.peer = from;
    e.partition = h->partition;
    e.operation = w->operation;
    e.attempt = w->attempt;
    return e;
}

static void pull(struct sim *s, unsigned seat, const struct copy *c)
{
    struct hold *h = &s->holds[seat];
    const struct assignment *w = &h->part.work;
    bool copying = w->stage == DIR_STAGE_COPY;
    struct event e = message(s, seat, copying ? EV_PULL_CHUNK : EV_PULL_CHANGES, w->peer);
    e.chunk = c->chunk + 1;
    e.position = c->prefix;
    bool whole = copying && (uint64_t)c->chunk * w->chunk_entries >= w->position;
    if (!whole) {
        sim_send(s, &e, sim_node(seat), w->peer);
    }
    bool slow = copying && !whole && s->entry_wait > 0;
    h->part.next_pull = s->now + (slow ? s->entry_wait * w->chunk_entries : PULL_MS * MS);
}

/* Whether this message is of the present part. */
static bool is_mine(const struct sim *s, const struct hold *h, const struct event *e)
{
    const struct assignment *w = &h->part.work;
    bool same = e->operation == w->operation && e->attempt == w->attempt && e->epoch == w->epoch;
    return w->operation != 0 && e->partition == h->partition &&
           (same || (sim_mutated(s, MOVEMENT_attempt_unchecked) && e->operation != 0));
}

static void fill_answer(struct sim *s, const struct copy *c, struct event *a, uint32_t upto)
{
    struct keys keys = s->holds[a->peer].part.work.keys;
    while (a->count < BATCH && a->position + a->count < upto) {
        a->entries[a->count] = copy_within(c->log[a->position + a->count], keys);
        a->sum += a->entries[a->count].id;
        a->count++;
    }
    /* Bits turn over on the way. */
    if (a->kind == EV_CHUNK && s->noise == NOISE_FULL && a->count > 0 && sim_chance(s, 2)) {
        a->entries[0].id ^= UINT64_C(1) << 60;
    }
}

/* The source answers: a chunk of its snapshot, or changes from a position on. */
static void serve(struct sim *s, const struct event *e)
{
    const struct hold *h = &s->holds[e->proc];
    const struct assignment *w = &h->part.work;
    struct copy *c = my_copy(s, e->proc);
    if (c == NULL || !w->source || !is_mine(s, h, e) || !h->granted || h->epoch != w->epoch ||
        !in_stages(w, DIR_STAGE_COPY, DIR_STAGE_CUTOVER)) {
        return;
    }
    bool chunk = e->kind == EV_PULL_CHUNK;
    struct event a = message(s, e->proc, chunk ? EV_CHUNK : EV_CHANGES, e->peer);
    a.born = e->born;
    a.chunk = e->chunk;
    a.changed = c->len;
    a.position = chunk ? (e->chunk - 1) * w->chunk_entries : e->position;
    uint32_t end = chunk ? a.position + w->chunk_entries : c->len;
    a.gap = !chunk && e->position < c->trimmed;
    if (!a.gap) {
        fill_answer(s, c, &a, chunk && end > w->position ? (uint32_t)w->position : end);
    }
    sim_send(s, &a, sim_node(e->proc), sim_node(e->peer));
    if (!chunk) { /* it asks from there on because it durably has what is below */
        struct part *t = &s->holds[e->proc].part;
        t->counted = e->position > t->counted ? e->position : t->counted;
        node_acknowledge(s, e->proc);
    }
}

/* A disk may write something else than it was given, and not say so: sums are there to find it.
 * What it spoils above the position that was validated, a cutover's running checksum finds; a
 * source that lapses before leaves nothing to compare with, so dual writes are not spoilt here. */
static void keep(struct sim *s, struct copy *c, uint32_t position, struct entry e, uint8_t stage)
{
    bool bad = s->noise == NOISE_FULL && !c->damaged && sim_below(s, 2000) == 0;
    if (bad && stage <= DIR_STAGE_CATCH_UP && position < LOG_MAX && c->log[position].id == 0) {
        e.id ^= UINT64_C(1) << 61;
        c->damaged = true;
    }
    copy_store(c, position, e);
}

static void on_chunk(struct sim *s, const struct event *e, struct copy *c)
{
    struct part *t = &s->holds[e->proc].part;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        sum += e->entries[i].id;
    }
    if (t->work.stage != DIR_STAGE_COPY || e->chunk != c->chunk + 1) {
        return;
    }
    if (sum != e->sum) {
        t->failures++;
        return;
    }
    uint32_t from = (e->chunk - 1) * t->work.chunk_entries;
    for (uint32_t i = 0; i < e->count; i++) {
        keep(s, c, from + i, e->entries[i], t->work.stage);
    }
    c->chunk = e->chunk;
    if (s->entry_wait == 0) {
        t->next_pull = 0;
    }
}

static void on_changes(struct sim *s, const struct event *e, struct copy *c)
{
    struct part *t = &s->holds[e->proc].part;
    t->gap = t->gap || e->gap;
    s->run.gaps += e->gap;
    for (uint32_t i = 0; i < e->count; i++) {
        keep(s, c, e->position + i, e->entries[i], t->work.stage);
        look_for_sum(s, t, c, c->prefix);
    }
    /* How far the source was. */
    t->counted = e->changed > t->counted ? (uint32_t)e->changed : t->counted;
    if (c->prefix < t->counted && e->count == BATCH) {
        t->next_pull = 0;
    }
}

static void on_dual(struct sim *s, const struct event *e, struct copy *c)
{
    struct hold *h = &s->holds[e->proc];
    copy_store(c, e->position, e->entries[0]);
    look_for_sum(s, &h->part, c, c->prefix);
    struct event a = message(s, e->proc, EV_DUAL_ACK, e->peer);
    a.operation = e->operation;
    a.attempt = e->attempt;
    a.epoch = e->epoch;
    a.born = e->born;
    a.position = e->position;
    sim_send(s, &a, sim_node(e->proc), sim_node(e->peer));
}

/* The destination takes what is of its present part, and while that is a copy's. */
static void receive(struct sim *s, const struct event *e)
{
    struct hold *h = &s->holds[e->proc];
    struct copy *c = my_copy(s, e->proc);
    bool old = e->epoch < s->disks[sim_node(e->proc)].epochs[e->proc / PROCS];
    if (c == NULL || h->part.work.source || !is_mine(s, h, e) || old || h->granted ||
        !in_stages(&h->part.work, DIR_STAGE_COPY, DIR_STAGE_CUTOVER)) {
        return;
    }
    if (e->kind == EV_CHUNK) {
        on_chunk(s, e, c);
    } else if (e->kind == EV_CHANGES) {
        on_changes(s, e, c);
    } else {
        on_dual(s, e, c);
    }
}

/* --- dual writes --- */

static bool is_dual(const struct sim *s, const struct hold *h)
{
    bool late = sim_mutated(s, MOVEMENT_active_before_sending) && !h->part.work.active;
    return h->granted && h->part.work.source && h->joining != 0 && !late;
}

static void send_dual(struct sim *s, unsigned seat, const struct copy *c, uint32_t position)
{
    struct hold *h = &s->holds[seat];
    struct event e = message(s, seat, EV_DUAL, h->part.work.peer);
    e.position = position;
    e.entries[0] = copy_within(c->log[position], h->part.work.keys);
    sim_send(s, &e, sim_node(seat), h->part.work.peer);
}

void agent_written(struct sim *s, unsigned seat, uint32_t position)
{
    struct hold *h = &s->holds[seat];
    const struct copy *c = my_copy(s, seat);
    if (!h->part.work.source || c == NULL) {
        return;
    }
    look_for_sum(s, &h->part, c, position + 1);
    if (is_dual(s, h)) {
        send_dual(s, seat, c, position);
    }
}

bool agent_counted(const struct hold *h, uint32_t end)
{
    return h->part.counted >= end || h->part.dual[end - 1] != 0;
}

static void on_dual_ack(struct sim *s, const struct event *e)
{
    struct hold *h = &s->holds[e->proc];
    if (h->part.work.source && is_mine(s, h, e) && e->position < LOG_MAX) {
        h->part.dual[e->position] = 1;
        node_acknowledge(s, e->proc);
    }
}

static void send_again(struct sim *s, unsigned seat, const struct copy *c)
{
    struct hold *h = &s->holds[seat];
    unsigned sent = 0;
    for (uint32_t i = h->acked; i < c->len && sent < BATCH && is_dual(s, h); i++) {
        if (!agent_counted(h, i + 1)) {
            send_dual(s, seat, c, i);
            sent++;
        }
    }
}

/* --- what has to be deleted --- */

static bool is_kept(const struct sim *s, const struct hold *h, const struct duty *d)
{
    bool used = d->copy == h->copy || d->copy == h->part.work.copy;
    return s->held || (d->partition == h->partition && used);
}

static void clean(struct sim *s, unsigned proc)
{
    struct proc *p = &s->procs[proc];
    struct disk *d = &s->disks[sim_node(proc)];
    struct duty duty = p->duties[sim_below(s, p->duty_count)];
    struct copy *c = copy_find(d, duty.partition, duty.copy);
    for (unsigned seat = proc; seat < SEATS; seat += PROCS) {
        const struct hold *h = &s->holds[seat];
        if (sim_mutated(s, MOVEMENT_cleanup_of_grant) && h->copy != 0) {
            c = copy_find(d, h->partition, h->copy);
        } else if (sim_mutated(s, MOVEMENT_duty_without_copy) && h->part.work.copy != 0 &&
                   !h->part.work.source) {
            c = copy_find(d, h->partition, h->part.work.copy);
        } else if (is_kept(s, h, &duty)) {
            return;
        }
    }
    if (c != NULL && !sim_mutated(s, MOVEMENT_retry_keeps_candidate)) {
        copy_delete(c);
    }
    struct event e = {.kind = EV_DUTY, .proc = proc, .born = p->born, .session = p->session};
    e.changed = duty.id;
    e.previous = duty.copy;
    e.operation = p->was_operation;
    e.attempt = p->was_attempt;
    e.mask = (uint8_t)sim_below(s, 2); /* as a report of CLEANUP, or as a duty */
    s->run.cleanups++;
    sim_send(s, &e, sim_node(proc), sim_node(proc));
}

/* --- time --- */

void agent_duties(struct sim *s, unsigned proc)
{
    struct proc *p = &s->procs[proc];
    if (sim_is_present(proc) && p->duty_count > 0 && p->clean_at <= s->now) {
        if (p->clean_at > 0) {
            clean(s, proc);
        }
        p->clean_at = s->now + SECOND + sim_below(s, 12 * SECOND);
    }
}

void agent_turn(struct sim *s, unsigned seat)
{
    struct hold *h = &s->holds[seat];
    struct part *t = &h->part;
    struct copy *c = my_copy(s, seat);
    if (t->work.stage == DIR_STAGE_WINDOW && t->next_report <= s->now) {
        window_turn(s, seat);
    }
    if (c == NULL || !in_stages(&t->work, DIR_STAGE_PREPARE, DIR_STAGE_CUTOVER)) {
        return;
    }
    bool source = t->work.source && h->granted && h->epoch == t->work.epoch;
    if (source && c->len > c->trimmed + 2 * KEEP && s->automatic) {
        c->trimmed = c->len - KEEP;
    }
    if (source && t->next_pull <= s->now) {
        send_again(s, seat, c);
        t->next_pull = s->now + PULL_MS * MS;
    }
    bool destination = !t->work.source && sim_is_present(seat);
    if (destination && t->next_pull <= s->now && t->work.stage >= DIR_STAGE_COPY) {
        pull(s, seat, c);
    }
    if (t->next_report <= s->now && source) {
        source_turn(s, seat, c);
    } else if (t->next_report <= s->now && destination) {
        destination_turn(s, seat, c);
    }
}

void agent_event(struct sim *s, const struct event *e)
{
    switch ((int)e->kind) {
    case EV_PULL_CHUNK:
    case EV_PULL_CHANGES:
        serve(s, e);
        break;
    case EV_CHUNK:
    case EV_CHANGES:
    case EV_DUAL:
        receive(s, e);
        break;
    case EV_DUAL_ACK:
        on_dual_ack(s, e);
        break;
    default:
        break;
    }
}
