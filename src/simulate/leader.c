/* SPDX-License-Identifier: Apache-2.0 */
/* What a leader does over time, by virtual time: ends sessions that lapsed, stages that take too
 * long, reservations step by step; admits what waits (control/admission.h chooses); proposes what
 * partitions lack (directory/repair.h says what). */
#include "simulate/internal.h"

#include "base/mem.h"
#include "control/admission.h"
#include "control/windows.h"
#include "directory/policy.h"
#include "directory/repair.h"

#include <inttypes.h>

enum {
    ADMITTED_A_TURN = 64,
    TURNS_A_TICK = 8,             /* a leader takes one each second or so, a tick is several */
    RECOVERIES_WAITING_MAX = 256, /* of a class */
    FOUND_MAX = 1024              /* in one walk; the next one finds more */
};

/* --- sessions --- */

/* Of a session that runs: each has had its own since it began. */
static uint64_t lease_of(const struct fm *x, const struct fm_node *node)
{
    const struct dir_node *row = view_node_by_id(fm_view(x), node->id);
    return row != NULL ? row->lease_ms : x->s->lease_ms;
}

void fm_sessions(struct fm *x)
{
    for (uint32_t n = 0; n < x->node_count; n++) {
        struct fm_node *node = &x->node[n];
        uint64_t lease = lease_of(x, node), allowance = lease / 100 + 500;
        if (node->up || node->session == 0 || fm_log_ms(x) < node->changed_ms + lease + allowance) {
            continue;
        }
        Cadastre__SessionEnd m;
        cadastre__session_end__init(&m);
        m.node = node->name;
        m.session = node->session;
        (void)fm_do(x, CADASTRE__COMMAND__BODY_SESSION_END, &m);
        node->session = 0;
    }
}

/* --- timers --- */

static bool is_up(const struct fm *x, uint64_t node)
{
    const struct fm_node *n = fm_node_of(x, node);
    return n == NULL || n->up;
}

/* Where progress counts, a node that is up makes some. */
static uint64_t limit_of(const struct fm *x, const struct dir_operation *o)
{
    bool copies = o->stage == DIR_STAGE_COPY && is_up(x, o->source) && is_up(x, o->destination);
    return copies ? UINT64_MAX : dir_policy_stage_limit_ms(fm_view(x), o);
}

static void end_stage(struct fm *x, const struct dir_operation *o)
{
    Cadastre__OperationTimeout m;
    cadastre__operation_timeout__init(&m);
    m.operation = o->id;
    m.attempt = o->attempt;
    m.stage = o->stage;
    m.since = o->stage_revision;
    (void)fm_do(x, CADASTRE__COMMAND__BODY_OPERATION_TIMEOUT, &m);
}

static void step_down(struct fm *x, const struct dir_operation *o)
{
    Cadastre__OperationRelease m;
    cadastre__operation_release__init(&m);
    m.operation = o->id;
    m.step = o->reserved.step + UINT32_C(1);
    (void)fm_do(x, CADASTRE__COMMAND__BODY_OPERATION_RELEASE, &m);
}

static void time_one(struct fm *x, const struct dir_operation *o, uint64_t since_ms)
{
    const struct dir_view *v = fm_view(x);
    if (o->reserved.releasing) {
        const struct dir_keyspace *ks = view_keyspace_by_id(v, o->keyspace);
        uint64_t release = dir_policy_get(v, ks, DIR_POLICY_RELEASE_MS);
        if (fm_log_ms(x) - since_ms >= release / DIR_RELEASE_STEPS) {
            step_down(x, o);
        }
        return;
    }
    uint64_t limit = limit_of(x, o);
    if (limit != UINT64_MAX && fm_log_ms(x) - o->stage_since_ms > limit) {
        end_stage(x, o);
    }
}

void fm_timers(struct fm *x)
{
    uint32_t count = x->open_count;
    struct fm_open *open = mem_alloc((count + 1) * sizeof *open);
    for (uint32_t i = 0; i < count; i++) {
        open[i] = x->open[i]; /* it changes with each command */
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct dir_operation *o = view_operation(fm_view(x), open[i].id);
        if (o != NULL) {
            time_one(x, o, open[i].since_ms);
        }
    }
    mem_free(open);
}

/* --- admission --- */

static void admit_one(struct fm *x, uint64_t id, uint32_t attempt)
{
    const struct dir_operation *o = view_operation(fm_view(x), id);
    uint64_t first = dir_budget_first(fm_view(x));
    bool routine = o->class_of < DIR_CLASS_UNDER_REPLICATED && dir_operation_copies(o);
    Cadastre__OperationAdmit m;
    cadastre__operation_admit__init(&m);
    m.operation = id;
    m.attempt = attempt;
    (void)fm_do(x, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m);
    o = view_operation(fm_view(x), id);
    if (routine && first != 0 && o != NULL && o->state == DIR_OPERATION_RUNNING) {
        fm_violated(x, "operation %" PRIu64 " was admitted before recovery %" PRIu64, id, first);
    }
}

static unsigned admit_some(struct fm *x)
{
    const struct dir_view *v = fm_view(x);
    struct admission admission = {0};
    const struct admission_candidate *chosen[ADMITTED_A_TURN];
    struct admission_candidate *waiting = mem_alloc((v->queued.count + 1) * sizeof waiting[0]);
    uint64_t ids[ADMITTED_A_TURN], count = 0;
    uint32_t attempts[ADMITTED_A_TURN];
    const struct dir_operation *o;
    struct ptree_iter it;
    struct windows_hold hold;
    ptree_seek(&v->queued, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        uint64_t waited = fm_log_ms(x) - o->stage_since_ms;
        waiting[count++] = (struct admission_candidate){o, waited, false, 0};
    }
    fm_hold(x, &hold);
    if (x->live == NULL && hold.code != NULL) {
        hold.code = WINDOWS_FREEZE; /* a scenario has no proposals, and nobody who approves */
    }
    count = windows_keep(&hold, v, waiting, count);
    unsigned n = admission_choose(&admission, v, waiting, count, chosen, ADMITTED_A_TURN);
    for (unsigned i = 0; i < n; i++) {
        ids[i] = chosen[i]->o->id; /* the commands change the rows */
        attempts[i] = chosen[i]->o->attempt;
    }
    mem_free(waiting);
    for (unsigned i = 0; i < n; i++) {
        admit_one(x, ids[i], attempts[i]);
    }
    return n;
}

void fm_admit(struct fm *x)
{
    for (int turn = 0; turn < TURNS_A_TICK && fm_view(x)->queued.count > 0; turn++) {
        if (admit_some(x) == 0) {
            return;
        }
    }
}

/* --- recovery --- */

static bool is_gone(void *arg, const struct dir_node *n)
{
    const struct fm *x = arg;
    return n->ended && fm_log_ms(x) >= n->ended_ms + x->s->recovery_delay_ms;
}

static void start_step(struct fm *x, const struct dir_partition *p, const struct repair_step *s)
{
    const struct fm_node *from = fm_node_of(x, s->from), *to = fm_node_of(x, s->to);
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    m.kind = s->kind;
    m.partition = p->id;
    m.from = text_lent(from != NULL ? from->name : "");
    m.to = text_lent(to != NULL ? to->name : "");
    m.role = s->role;
    m.class_ = s->class_of;
    m.reason = text_lent(s->reason);
    m.has_expect_epoch = true;
    m.expect_epoch = p->epoch;
    m.size_bytes = fm_bytes_of(x, p->id);
    m.has_size_bytes = x->live == NULL || m.size_bytes > 0; /* else nobody has said */
    (void)fm_do(x, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
}

static void abort_moot(struct fm *x, uint64_t operation)
{
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = operation;
    m.verb = CADASTRE__OPERATION_VERB_KIND__ABORT;
    m.reason = text_lent("it is not needed any more, or its destination is lost");
    (void)fm_do(x, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m);
}

/* What one walk found, in order: nothing is changed while it looks. */
struct finding {
    struct dir_partition *p; /* a reference */
    uint64_t moot;           /* operation */
    struct repair_step step;
};

struct walk {
    struct finding *found; /* room for FOUND_MAX */
    uint32_t count;
};

static void look(struct walk *w, struct repair *r, const struct fm *x, struct dir_partition *p)
{
    struct finding *f = &w->found[w->count];
    *f = (struct finding){.p = p};
    if (p->operation != 0) {
        const struct dir_operation *o = view_operation(fm_view(x), p->operation);
        f->moot = o != NULL && repair_is_moot(r, p, o) ? o->id : 0;
    } else {
        repair_look(r, p, &f->step);
        if (f->step.kind != 0 && repair_queued(r, f->step.class_of) < RECOVERIES_WAITING_MAX) {
            repair_choose(r, p, 0, &f->step);
        } else {
            f->step.kind = 0;
        }
    }
    if (f->step.kind != 0) {
        repair_take(r, &f->step);
    }
    if (f->step.kind != 0 || f->moot != 0) {
        (void)dir_ref(p);
        w->count++;
    }
}

/* In the order of keys; of a live state in that of ids. */
static void look_at_all(struct walk *w, struct repair *r, const struct fm *x)
{
    uint8_t key[8];
    struct ptree_iter it;
    struct dir_partition *p;
    for (uint32_t i = 0; i < x->part_count && w->count < FOUND_MAX; i++) {
        look(w, r, x, ptree_get(&fm_view(x)->partitions, ptree_u64_key(x->part[i].id, key)));
    }
    ptree_seek(&fm_view(x)->partitions, slice_of(NULL, 0), &it);
    for (; x->live != NULL && w->count < FOUND_MAX && (p = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        look(w, r, x, p);
    }
}

void fm_recover(struct fm *x)
{
    struct repair_clock clock = {fm_log_ms(x), is_gone, x};
    struct repair *r = repair_open(fm_view(x), &clock);
    struct walk w = {.found = mem_alloc(FOUND_MAX * sizeof w.found[0])};
    if (!repair_breaker(fm_view(x)).tripped) {
        look_at_all(&w, r, x);
    }
    repair_close(r);
    for (uint32_t i = 0; i < w.count; i++) {
        if (w.found[i].moot != 0) {
            abort_moot(x, w.found[i].moot);
        } else {
            start_step(x, w.found[i].p, &w.found[i].step);
        }
        dir_unref(w.found[i].p);
    }
    mem_free(w.found);
}
