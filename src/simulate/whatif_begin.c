/* SPDX-License-Identifier: Apache-2.0 */
/* How a run from a live state begins: the fork, its nodes, and the changes that are asked about. */
#include "simulate/whatif_internal.h"

#include "base/assert.h"
#include "base/mem.h"
#include "base/parse.h"
#include "directory/place.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Numbers of reports, above any that a node's agent has used. */
#define REPORTS_FROM (UINT64_C(1) << 52)

enum { POINTER_MAX = 96 };

static enum err_code
wrong(struct err *e, const char *list, uint32_t i, const char *member, const char *detail)
{
    char at[POINTER_MAX];
    (void)snprintf(at, sizeof at, "/changes/%s/%" PRIu32 "%s", list, i, member);
    return err_set_at(e, ERR_INVALID_SETTINGS, at, "%s", detail);
}

static enum err_code no_such(struct err *e, const char *at, const char *what, const char *name)
{
    return err_set_at(e, ERR_INVALID_SETTINGS, at, "there is no %s \"%s\"", what, name);
}

static enum err_code no_node(struct err *e, const char *list, uint32_t i, const char *name)
{
    char at[POINTER_MAX];
    (void)snprintf(at, sizeof at, "/changes/%s/%" PRIu32, list, i);
    return no_such(e, at, "node", name);
}

/* --- nodes --- */

/* What its disk holds; without a word on it, anything. */
static uint64_t disk_of(const struct dir_label *capacity, uint32_t count)
{
    uint64_t bytes;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(capacity[i].name, "bytes") == 0 &&
            parse_u64(capacity[i].value, PARSE_INT_MAX, &bytes)) {
            return bytes;
        }
    }
    return PARSE_INT_MAX;
}

static struct fm_node *take_node(struct fm *x, const struct dir_node *row)
{
    struct scenario_group *g = &x->live->groups[x->node_count];
    struct fm_node *n = &x->node[x->node_count++];
    *g = (struct scenario_group){.count = 1,
                                 .bytes = disk_of(dir_node_capacity(row), row->capacity_count)};
    *n = (struct fm_node){.group = g, .id = row->id};
    memcpy(n->name, row->name, sizeof n->name);
    n->up = view_node_is_live(row) && !row->lost;
    n->session = n->up ? row->session : 0;
    n->changed_ms = fm_log_ms(x);
    return n;
}

static void take_nodes(struct fm *x)
{
    const struct dir_node *row;
    struct ptree_iter it;
    ptree_seek(&fm_view(x)->nodes, slice_of(NULL, 0), &it);
    for (; (row = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        struct fm_node *n = take_node(x, row);
        if (!n->up && row->ended_ms + x->s->recovery_delay_ms > fm_log_ms(x)) {
            uint64_t left = row->ended_ms + x->s->recovery_delay_ms - fm_log_ms(x);
            x->live->waits_ms = left > x->live->waits_ms ? left : x->live->waits_ms;
        }
    }
}

/* --- those that are added --- */

static void put_labels(Cadastre__Label *labels,
                       Cadastre__Label **pointers,
                       const struct dir_label *from,
                       uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        cadastre__label__init(&labels[i]);
        labels[i].name = text_lent(from[i].name);
        labels[i].value = text_lent(from[i].value);
        pointers[i] = &labels[i];
    }
}

static enum err_code add_one(struct fm *x, const struct whatif_added *a, const char *name)
{
    Cadastre__Label labels[2 * DIR_LABELS_MAX], *pointers[2 * DIR_LABELS_MAX];
    char address[DIR_NAME_MAX + 8];
    Cadastre__NodePut m;
    cadastre__node_put__init(&m);
    (void)snprintf(address, sizeof address, "%s:7000", name);
    m.name = text_lent(name);
    m.address = address;
    put_labels(labels, pointers, a->labels, a->label_count);
    put_labels(labels + a->label_count, pointers + a->label_count, a->capacity, a->capacity_count);
    m.n_labels = a->label_count;
    m.labels = pointers;
    m.n_capacity = a->capacity_count;
    m.capacity = pointers + a->label_count;
    enum err_code code = fm_do(x, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
    if (code == ERR_OK) {
        struct fm_node *n = take_node(x, x->result->node);
        n->session = x->result->session;
        n->up = true;
        n->joined_ms = fm_log_ms(x);
    }
    return code;
}

static void copy_like(struct whatif_added *to, const struct dir_node *row)
{
    to->label_count = row->label_count;
    to->capacity_count = row->capacity_count;
    memcpy(to->labels, row->tags, row->label_count * sizeof row->tags[0]);
    memcpy(to->capacity, dir_node_capacity(row), row->capacity_count * sizeof row->tags[0]);
}

static enum err_code add_nodes(struct fm *x, uint32_t i, struct err *e)
{
    struct whatif_added a = x->live->w->added[i];
    uint64_t count = a.count > 0 ? a.count : 1;
    struct slice like = slice_of(a.like.text, strlen(a.like.text));
    if (like.len > 0) {
        const struct dir_node *row = view_node(fm_view(x), like);
        if (row == NULL) {
            char at[POINTER_MAX];
            (void)snprintf(at, sizeof at, "/changes/nodes_added/%" PRIu32 "/like", i);
            return no_such(e, at, "node", a.like.text);
        }
        copy_like(&a, row);
    }
    for (uint64_t k = 0; k < count; k++) {
        char name[DIR_NAME_MAX + 24]; /* with a number it is no longer than names are: read so */
        (void)snprintf(name, sizeof name, "%s", a.name.text);
        if (a.count > 0) {
            (void)snprintf(name, sizeof name, "%s%" PRIu64, a.name.text, k + 1);
        }
        if (x->node_count >= WHATIF_NODES_MAX) {
            return err_set_at(e, ERR_LIMIT_EXCEEDED, "/changes/nodes_added",
                              "there would be more than %d nodes", WHATIF_NODES_MAX);
        }
        if (fm_node_named(x, name) != NULL) {
            return wrong(e, "nodes_added", i, "/name", "there is a node of this name already");
        }
        if (add_one(x, &a, name) != ERR_OK) {
            return wrong(e, "nodes_added", i, "", x->result->err.detail);
        }
    }
    return ERR_OK;
}

/* --- those that are lost or drained --- */

static void lose(struct fm *x, struct fm_node *n)
{
    const struct dir_node *row = view_node_by_id(fm_view(x), n->id);
    uint64_t until = 2 * (uint64_t)row->lease_ms + x->s->recovery_delay_ms;
    n->up = false;
    n->changed_ms = fm_log_ms(x);
    x->live->waits_ms = until > x->live->waits_ms ? until : x->live->waits_ms;
}

/* NULL: it can be lost. A static node's process is nothing that the directory looks at. */
static const char *why_not_lost(const struct fm *x, const struct fm_node *n)
{
    return !n->up                                          ? "the node is away already"
           : view_node_by_id(fm_view(x), n->id)->is_static ? "a static node is never found to be "
                                                             "lost"
                                                           : NULL;
}

static enum err_code lose_named(struct fm *x, uint32_t i, struct err *e)
{
    const char *name = x->live->w->lost[i].text;
    struct fm_node *n = fm_node_named(x, name);
    if (n == NULL) {
        return no_node(e, "nodes_lost", i, name);
    }
    const char *why = why_not_lost(x, n);
    if (why != NULL) {
        return wrong(e, "nodes_lost", i, "", why);
    }
    lose(x, n);
    return ERR_OK;
}

static enum err_code lose_zone(struct fm *x, struct err *e)
{
    const char *zone = x->live->w->zone.text;
    bool any = zone[0] == '\0';
    for (uint32_t i = 0; i < x->node_count && zone[0] != '\0'; i++) {
        struct fm_node *n = &x->node[i];
        if (strcmp(place_label(view_node_by_id(fm_view(x), n->id), "zone"), zone) == 0) {
            any = true;
            if (why_not_lost(x, n) == NULL) {
                lose(x, n);
            }
        }
    }
    return any ? ERR_OK : no_such(e, "/changes/zone_lost", "node in a zone", zone);
}

static enum err_code drain(struct fm *x, uint32_t i, struct err *e)
{
    const char *name = x->live->w->drained[i].text;
    struct fm_node *n = fm_node_named(x, name);
    Cadastre__NodeScheduling m;
    if (n == NULL) {
        return no_node(e, "nodes_drained", i, name);
    }
    if (!n->up) {
        return wrong(e, "nodes_drained", i, "", "the node is away or lost");
    }
    cadastre__node_scheduling__init(&m);
    m.node = n->name;
    m.verb = CADASTRE__SCHEDULING_VERB__DRAIN;
    if (fm_do(x, CADASTRE__COMMAND__BODY_NODE_SCHEDULING, &m) != ERR_OK) {
        return wrong(e, "nodes_drained", i, "", x->result->err.detail);
    }
    return ERR_OK;
}

/* --- load and settings --- */

/* Its own entry goes before the one of all. */
static uint64_t factor_of(const struct whatif *w, const struct dir_keyspace *ks)
{
    uint64_t factor = 1000000;
    for (uint32_t i = 0; i < w->scale_count; i++) {
        const char *name = w->scales[i].keyspace.text;
        if (strcmp(name, ks->name) == 0) {
            return w->scales[i].factor_ppm;
        }
        factor = name[0] == '\0' ? w->scales[i].factor_ppm : factor;
    }
    return factor;
}

static enum err_code scale(struct fm *x, struct err *e)
{
    const struct whatif *w = x->live->w;
    const struct dir_partition *p;
    struct ptree_iter it;
    for (uint32_t i = 0; i < w->scale_count; i++) {
        const char *name = w->scales[i].keyspace.text;
        if (name[0] != '\0' && view_keyspace(fm_view(x), slice_of(name, strlen(name))) == NULL) {
            char at[POINTER_MAX];
            (void)snprintf(at, sizeof at, "/changes/load_scaled/%" PRIu32 "/keyspace", i);
            return no_such(e, at, "keyspace", name);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(w->scales[k].keyspace.text, name) == 0) {
                return wrong(e, "load_scaled", i, name[0] != '\0' ? "/keyspace" : "",
                             name[0] != '\0' ? "is there twice" : "that of all is there twice");
            }
        }
    }
    ptree_seek(&fm_view(x)->partitions, slice_of(NULL, 0), &it);
    for (; w->scale_count > 0 && (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        const struct dir_keyspace *ks = view_keyspace_by_id(fm_view(x), p->keyspace);
        if (ks != NULL) {
            loads_scale(x->live->loads, p, (uint32_t)factor_of(w, ks));
        }
    }
    return ERR_OK;
}

/* What waits for a person would be counted as done, and hold the planner up. */
static void set_auto(struct fm *x)
{
    Cadastre__BalancerValue mode, *values[] = {&mode};
    Cadastre__BalancerPatch m;
    cadastre__balancer_patch__init(&m);
    cadastre__balancer_value__init(&mode);
    mode.which = DIR_BALANCER_MODE;
    mode.value = DIR_BALANCER_AUTO;
    m.n_values = 1;
    m.values = values;
    (void)fm_do(x, CADASTRE__COMMAND__BODY_BALANCER_PATCH, &m);
}

static enum err_code set_policy(struct fm *x, struct err *e)
{
    const struct buf *bytes = &x->live->w->policy;
    enum err_code code = ERR_OK;
    Cadastre__BalancerPatch *m =
        bytes->len > 0 ? cadastre__balancer_patch__unpack(NULL, bytes->len, bytes->data) : NULL;
    if (m == NULL) {
        return ERR_OK;
    }
    if (fm_do(x, CADASTRE__COMMAND__BODY_BALANCER_PATCH, m) != ERR_OK) {
        char at[POINTER_MAX];
        (void)snprintf(at, sizeof at, "/changes/policy%.60s", x->result->err.pointer);
        code = err_set_at(e, ERR_INVALID_SETTINGS, at, "%s", x->result->err.detail);
    }
    for (size_t i = 0; i < m->n_values; i++) {
        x->live->off |=
            m->values[i]->which == DIR_BALANCER_MODE && m->values[i]->value == DIR_BALANCER_OFF;
    }
    cadastre__balancer_patch__free_unpacked(m, NULL);
    set_auto(x); /* whatever was said: with off nothing is planned */
    return code;
}

/* --- all of it --- */

static enum err_code change(struct fm *x, struct err *e)
{
    const struct whatif *w = x->live->w;
    enum err_code code = set_policy(x, e);
    for (uint32_t i = 0; code == ERR_OK && i < w->added_count; i++) {
        code = add_nodes(x, i, e);
    }
    for (uint32_t i = 0; code == ERR_OK && i < w->lost_count; i++) {
        code = lose_named(x, i, e);
    }
    if (code == ERR_OK) {
        code = lose_zone(x, e);
    }
    for (uint32_t i = 0; code == ERR_OK && i < w->drained_count; i++) {
        code = drain(x, i, e);
    }
    return code;
}

static void follow_open(struct fm *x)
{
    struct ptree_iter it;
    const struct dir_operation *o;
    ptree_seek(&fm_view(x)->operations, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        fm_watch(x, o);
        if (o->state < DIR_OPERATION_DONE) {
            fm_live_step(x, o);
        }
    }
}

static enum err_code check_size(const struct dir_view *v, struct err *e)
{
    if (v->partitions.count > WHATIF_PARTITIONS_MAX) {
        return err_set(e, ERR_LIMIT_EXCEEDED, "of more than %d partitions this is not simulated",
                       WHATIF_PARTITIONS_MAX);
    }
    if (v->nodes.count > WHATIF_NODES_MAX) {
        return err_set(e, ERR_LIMIT_EXCEEDED, "of more than %d nodes this is not simulated",
                       WHATIF_NODES_MAX);
    }
    return ERR_OK;
}

enum err_code fm_live_begin(struct fm *x, struct err *e)
{
    struct fm_live *l = x->live;
    const struct whatif_state *s = l->s;
    enum err_code code = check_size(s->view, e);
    if (code != ERR_OK) {
        return code;
    }
    x->d = directory_fork(s->view);
    x->index = s->view->applied_index;
    x->seq = REPORTS_FROM;
    l->loads = loads_copy(s->loads, s->view, s->mono_ms);
    l->births.count = l->births.told = s->birth_count;
    if (s->birth_count > 0) {
        memcpy(l->births.of, s->births, s->birth_count * sizeof s->births[0]);
    }
    x->memory = s->memory != NULL
                    ? bal_memory_copy(s->memory)
                    : bal_memory_new(
                          bal_less(s->log_ms, dir_balancer_value(s->view, DIR_BALANCER_QUIET_MS)));
    take_nodes(x);
    code = scale(x, e);
    if (code == ERR_OK) {
        follow_open(x);
        set_auto(x);
        fm_live_before(x);
        code = change(x, e);
    }
    x->settling = true;
    fm_check_budgets(x);
    return code;
}
