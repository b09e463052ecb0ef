/* SPDX-License-Identifier: Apache-2.0 */
/* From what the planner says to what the directory keeps: names, figures, keys. */
#include "control/balancer.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- levels --- */

static bal_q32 level_of(const struct bal_fleet *f,
                        const struct bal_settings *s,
                        const struct bal_plan *plan,
                        uint16_t n)
{
    bal_q32 level = 0;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        bal_q32 mean = bal_max(plan->mean[r], s->floor[r]);
        uint64_t share = bal_scale(f->node[n].capacity[r], mean);
        if ((f->resources >> r & 1) != 0 && share > 0) {
            level = bal_max(level, bal_ratio(f->node_load[(size_t)n * BAL_RESOURCES + r], share));
        }
    }
    return level;
}

void balancer_measure_levels(const struct bal_fleet *f,
                             const struct bal_settings *s,
                             const struct bal_plan *plan,
                             struct balancer_levels *ret)
{
    ret->count = f->node_count;
    ret->of = mem_alloc((f->node_count + 1) * sizeof ret->of[0]);
    for (uint16_t n = 0; n < f->node_count; n++) {
        const uint64_t *load = &f->node_load[(size_t)n * BAL_RESOURCES];
        ret->of[n] = (struct balancer_level){f->node_id[n], level_of(f, s, plan, n),
                                             bal_more(load[BAL_READ], load[BAL_WRITE])};
    }
}

/* --- figures --- */

static uint64_t ppm(bal_q32 q)
{
    return bal_scale(1000000, q);
}

void balancer_figures_open(struct balancer_figures *f)
{
    f->count = 0;
}

static void
put(struct balancer_figures *f, enum dir_figure_group group, const char *name, uint64_t value)
{
    size_t i = f->count++;
    (void)snprintf(f->names[i], sizeof f->names[i], "%s", name);
    cadastre__figure__init(&f->figures[i]);
    f->figures[i].name = f->names[i];
    f->figures[i].group = group;
    f->figures[i].value = value;
    f->of[i] = &f->figures[i];
}

static void put_level(struct balancer_figures *f,
                      const struct dir_view *v,
                      const struct balancer_levels *levels,
                      const char *node,
                      const char *name)
{
    const struct dir_node *n = view_node(v, slice_of(node, strlen(node)));
    for (uint32_t i = 0; n != NULL && i < levels->count; i++) {
        if (levels->of[i].node == n->id) {
            put(f, DIR_FIGURE_MEASURED, name, ppm(levels->of[i].level));
        }
    }
}

void balancer_put_effect(struct balancer_figures *f,
                         const struct dir_view *v,
                         const struct balancer_levels *levels,
                         const struct dir_proposal *p)
{
    put_level(f, v, levels, p->from_name, "from_level_ppm");
    put_level(f, v, levels, p->to_name, "to_level_ppm");
}

static bool is_structural(const struct bal_proposal *p)
{
    return p->kind == BAL_SPLIT || p->kind == BAL_MERGE || p->kind == BAL_ADVICE;
}

static void put_figures(struct balancer_figures *f, const struct bal_proposal *p)
{
    char name[DIR_NAME_MAX + 1];
    balancer_figures_open(f);
    (void)snprintf(name, sizeof name, "load_%s", fleet_resource_name(p->resource));
    if (is_structural(p)) { /* of the partition, against the threshold */
        put(f, DIR_FIGURE_EVIDENCE, "heat_ppm", ppm(p->from_level));
        put(f, DIR_FIGURE_EVIDENCE, "load", p->load);
        if (p->kind == BAL_ADVICE) {
            put(f, DIR_FIGURE_EVIDENCE, "ways", p->ways);
        }
        return;
    }
    put(f, DIR_FIGURE_EVIDENCE, "from_level_ppm", ppm(p->from_level));
    put(f, DIR_FIGURE_EVIDENCE, "to_level_ppm", ppm(p->to_level));
    put(f, DIR_FIGURE_EVIDENCE, "threshold_ppm", ppm(p->threshold));
    put(f, DIR_FIGURE_EVIDENCE, name, p->load);
    put(f, DIR_FIGURE_PREDICTED, "from_level_ppm", ppm(p->from_after));
    put(f, DIR_FIGURE_PREDICTED, "to_level_ppm", ppm(p->to_after));
    put(f, DIR_FIGURE_PREDICTED, "benefit", p->benefit);
    put(f, DIR_FIGURE_COST, "bytes", p->bytes);
    put(f, DIR_FIGURE_COST, "time_ms", p->time_ms);
}

/* --- names --- */

static bool name_node(char out[DIR_NAME_MAX + 1], const struct dir_view *v, uint64_t node)
{
    const struct dir_node *n = node != 0 ? view_node_by_id(v, node) : NULL;
    (void)snprintf(out, DIR_NAME_MAX + 1, "%s", n != NULL ? n->name : "");
    return node == 0 || n != NULL;
}

static void put_candidates(struct balancer_make *m,
                           const struct dir_view *v,
                           const struct bal_plan *plan,
                           uint64_t partition)
{
    for (uint32_t i = 0; i < plan->rejection_count; i++) {
        const struct bal_rejection *r = &plan->rejection[i];
        size_t at = m->body.n_candidates;
        if (r->partition != partition || r->node == 0 || at == DIR_CANDIDATES_MAX ||
            !name_node(m->nodes[at], v, r->node)) {
            continue;
        }
        (void)snprintf(m->codes[at], sizeof m->codes[at], "%s",
                       bal_reason_slug((enum bal_reason)r->reason));
        cadastre__candidate__init(&m->candidates[at]);
        m->candidates[at].node = m->nodes[at];
        m->candidates[at].code = m->codes[at];
        m->candidate_of[at] = &m->candidates[at];
        m->body.n_candidates++;
    }
}

static const char *remedy_of(const struct bal_proposal *p)
{
    switch (p->remedy) {
    case BAL_REMEDY_REPLICAS:
        return "; read replicas would relieve it";
    case BAL_REMEDY_SALT:
        return "; spreading the key over sub-shards would relieve it";
    case BAL_REMEDY_LIMIT:
        return "; only a rate limit helps";
    default:
        return "";
    }
}

static void put_texts(struct balancer_make *m, const struct bal_proposal *p)
{
    enum bal_reason reason = (enum bal_reason)p->reason;
    (void)snprintf(m->code, sizeof m->code, "%s", bal_reason_slug(reason));
    if (is_structural(p)) {
        (void)snprintf(m->reason, sizeof m->reason, "%s%s", bal_reason_text(reason), remedy_of(p));
    } else {
        (void)snprintf(m->reason, sizeof m->reason,
                       "%s: %s has %" PRIu64 " %% of its share, %s %" PRIu64 " %%",
                       bal_reason_text(reason), m->from, bal_scale(100, p->from_level), m->to,
                       bal_scale(100, p->to_level));
    }
}

/* --- where to split --- */

struct cut {
    struct balancer_make *m;
    const struct dir_partition *p;
    bool isolate;
};

static void add_key(struct balancer_make *m, const struct dir_partition *p, struct slice key)
{
    struct slice end = dir_partition_end(p);
    bool inside =
        slice_cmp(key, dir_partition_start(p)) > 0 && (p->end_open || slice_cmp(key, end) < 0);
    if (!inside || key.len > DIR_ROUTING_KEY_MAX || m->body.n_at == DIR_PROPOSAL_KEYS_MAX) {
        return;
    }
    size_t at = m->body.n_at++;
    memcpy(m->keys[at], key.data, key.len);
    m->at[at] = (ProtobufCBinaryData){key.len, m->keys[at]};
}

/* Where the load is even; around one key when that has most of it. */
static void take_keys(void *arg, const struct load_entry *e)
{
    struct cut *c = arg;
    uint8_t after[DIR_ROUTING_KEY_MAX + 1];
    struct sketch_top top;
    if (e->sketch == NULL) {
        return;
    }
    struct sketch_split split = sketch_split(e->sketch, dir_partition_start(c->p));
    if (split.at.data != NULL && !c->isolate) {
        add_key(c->m, c->p, split.at);
    } else if (sketch_top(e->sketch, &top) && top.key.len < DIR_ROUTING_KEY_MAX) {
        memcpy(after, top.key.data, top.key.len);
        after[top.key.len] = 0;
        add_key(c->m, c->p, top.key);
        add_key(c->m, c->p, slice_of(after, top.key.len + 1));
    }
}

/* --- all of it --- */

static enum dir_proposal_kind kind_of(const struct bal_proposal *p)
{
    switch (p->kind) {
    case BAL_TRANSFER:
        return DIR_PROPOSAL_TRANSFER;
    case BAL_SWAP:
        return DIR_PROPOSAL_SWAP;
    case BAL_SPLIT:
        return DIR_PROPOSAL_SPLIT;
    case BAL_MERGE:
        return DIR_PROPOSAL_MERGE;
    case BAL_ADVICE:
        return DIR_PROPOSAL_ADVICE;
    default:
        return DIR_PROPOSAL_MOVE;
    }
}

bool balancer_make_open(struct balancer_make *m,
                        const struct dir_view *v,
                        struct loads *loads,
                        const struct bal_plan *plan,
                        const struct bal_proposal *p)
{
    uint8_t key[8];
    const struct dir_partition *on = ptree_get(&v->partitions, ptree_u64_key(p->partition, key));
    cadastre__command__init(&m->command);
    cadastre__proposal_make__init(&m->body);
    if (on == NULL || !name_node(m->from, v, p->from) || !name_node(m->to, v, p->to)) {
        return false;
    }
    put_texts(m, p);
    put_figures(&m->figures, p);
    put_candidates(m, v, plan, p->partition);
    if (p->kind == BAL_SPLIT) {
        struct cut cut = {m, on, p->cut == BAL_CUT_KEY};
        loads_look(loads, p->partition, take_keys, &cut);
    }
    m->body.kind = kind_of(p);
    m->body.partition = p->partition;
    m->body.with = p->partner;
    m->body.epoch = p->version;
    m->body.from = m->from;
    m->body.to = m->to;
    m->body.class_ = p->class_of;
    m->body.at = m->at;
    m->body.reason_code = m->code;
    m->body.reason = m->reason;
    m->body.figures = m->figures.of;
    m->body.n_figures = m->figures.count;
    m->body.candidates = m->candidate_of;
    m->body.size_bytes = p->bytes;
    m->command.body_case = CADASTRE__COMMAND__BODY_PROPOSAL_MAKE;
    m->command.proposal_make = &m->body;
    return p->kind != BAL_SPLIT || m->body.n_at > 0;
}
