/* SPDX-License-Identifier: Apache-2.0 */
/* Commands to the directory, and what each change of a row means to the model. */
#include "simulate/internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- finding --- */

struct fm_node *fm_node_of(const struct fm *x, uint64_t id)
{
    uint32_t low = 0, high = x->node_count;
    while (low < high && x->node[high - 1].id == 0) {
        high--; /* those that have not joined are the last */
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (x->node[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < x->node_count && id != 0 && x->node[low].id == id ? &x->node[low] : NULL;
}

struct fm_node *fm_node_named(const struct fm *x, const char *name)
{
    for (uint32_t n = 0; n < x->node_count; n++) {
        if (strcmp(x->node[n].name, name) == 0) {
            return &x->node[n];
        }
    }
    return NULL;
}

bool fm_is_allowed(const struct fm *x, const struct fm_node *n)
{
    uint32_t met = 0;
    for (uint32_t i = 0; i < x->s->require_count; i++) {
        const struct dir_label *wanted = &x->s->require[i];
        for (uint32_t k = 0; k < n->label_count; k++) {
            met += strcmp(n->labels[k].name, wanted->name) == 0 &&
                   strcmp(n->labels[k].value, wanted->value) == 0;
        }
    }
    return met == x->s->require_count;
}

struct fm_part *fm_part_of(const struct fm *x, uint64_t id)
{
    for (uint32_t p = 0; p < x->part_count; p++) {
        if (x->part[p].id == id) {
            return &x->part[p];
        }
    }
    return NULL;
}

uint64_t fm_bytes_of(const struct fm *x, uint64_t partition)
{
    if (x->live != NULL) {
        return fm_live_bytes(x, partition);
    }
    const struct fm_part *p = fm_part_of(x, partition);
    return p != NULL ? fm_part_bytes(p) : 0;
}

const struct dir_partition *fm_row(const struct fm *x, const struct fm_part *p)
{
    uint8_t key[8];
    return ptree_get(&fm_view(x)->partitions, ptree_u64_key(p->id, key));
}

/* --- operations that are watched --- */

static bool is_watched(const struct dir_operation *o)
{
    return o->state == DIR_OPERATION_RUNNING || o->reserved.releasing;
}

void fm_watch(struct fm *x, const struct dir_operation *o)
{
    uint32_t at = 0;
    while (at < x->open_count && x->open[at].id < o->id) {
        at++;
    }
    bool known = at < x->open_count && x->open[at].id == o->id;
    if (!is_watched(o)) {
        if (known) {
            x->open_count--;
            memmove(&x->open[at], &x->open[at + 1], (x->open_count - at) * sizeof x->open[0]);
        }
        return;
    }
    if (!known) {
        if (x->open_count == x->open_room) {
            x->open_room = x->open_room > 0 ? 2 * x->open_room : 64;
            x->open = mem_realloc(x->open, x->open_room * sizeof x->open[0]);
        }
        memmove(&x->open[at + 1], &x->open[at], (x->open_count - at) * sizeof x->open[0]);
        x->open_count++;
        x->open[at] = (struct fm_open){o->id, fm_log_ms(x), UINT8_MAX};
    }
    if (o->reserved.releasing && x->open[at].step != o->reserved.step) {
        x->open[at].step = o->reserved.step;
        x->open[at].since_ms = fm_log_ms(x);
    }
}

static void
on_operation(struct fm *x, const struct dir_operation *was, const struct dir_operation *o)
{
    if (o == NULL) {
        return; /* an old one made room */
    }
    fm_watch(x, o);
    if (was != NULL && x->live == NULL) {
        fm_moved(x, was, o);
    }
}

static void on_rows(struct fm *x, const struct dir_effects *e)
{
    bool budgets = false;
    for (uint64_t i = 0; i < e->row_count; i++) {
        const void *was = e->rows[i].before, *is = e->rows[i].after;
        const struct dir_object *any =
            e->rows[i].after != NULL ? e->rows[i].after : e->rows[i].before;
        if (any->kind == DIR_KIND_OPERATION) {
            on_operation(x, was, is);
            budgets = true;
        } else if (any->kind == DIR_KIND_PARTITION && is != NULL) {
            fm_check_row(x, is);
        }
    }
    x->dirty = x->dirty || e->row_count > 0;
    if (x->live != NULL) {
        fm_live_rows(x, e);
    }
    if (budgets) {
        fm_check_budgets(x);
        fm_check_ways(x);
    }
}

/* --- commands --- */

static void
envelope(const struct fm *x, Cadastre__Command *c, Cadastre__Command__BodyCase which, void *body)
{
    cadastre__command__init(c);
    c->required_version = DIR_COMMAND_VERSION;
    c->time_ms = fm_log_ms(x);
    c->body_case = which;
    c->keyspace_create = body; /* one union of pointers */
}

enum err_code fm_do(struct fm *x, Cadastre__Command__BodyCase which, void *body)
{
    Cadastre__Command c;
    struct dir_effects *effects = NULL;
    envelope(x, &c, which, body);
    size_t len = cadastre__command__get_packed_size(&c);
    uint8_t *bytes = mem_alloc(len);
    (void)cadastre__command__pack(&c, bytes);
    result_unref(x->result);
    x->result = directory_apply(x->d, ++x->index, slice_of(bytes, len), &effects);
    mem_free(bytes);
    x->out->commands++;
    if (effects != NULL) {
        on_rows(x, effects);
    }
    dir_effects_free(effects);
    return x->result->err.code;
}

bool fm_try(struct fm *x, Cadastre__Command__BodyCase which, void *body)
{
    return fm_do(x, which, body) == ERR_OK;
}

void fm_register(struct fm *x, struct fm_node *n)
{
    Cadastre__NodePut m;
    Cadastre__Label labels[SCENARIO_LABELS_MAX + 1], *pointers[SCENARIO_LABELS_MAX + 1];
    char address[DIR_NAME_MAX + 8];
    cadastre__node_put__init(&m);
    (void)snprintf(address, sizeof address, "%s:7000", n->name);
    m.name = n->name;
    m.address = address;
    m.previous_session = n->session;
    m.n_labels = n->label_count;
    m.labels = pointers;
    for (uint32_t i = 0; i < n->label_count; i++) {
        cadastre__label__init(&labels[i]);
        labels[i].name = n->labels[i].name;
        labels[i].value = n->labels[i].value;
        pointers[i] = &labels[i];
    }
    enum err_code code = fm_do(x, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
    ASSERT(code == ERR_OK);
    n->id = x->result->node->id;
    n->session = x->result->session;
    n->up = true;
    n->changed_ms = fm_log_ms(x);
}

/* --- the model of what the rows say --- */

static void refresh_part(struct fm *x, struct fm_part *p)
{
    const struct dir_partition *row = fm_row(x, p);
    ASSERT(row != NULL);
    p->copy_count = 0;
    p->owned = view_primary(fm_view(x), row) != NULL;
    for (uint8_t i = 0; i < row->replica_count; i++) {
        const struct fm_node *n = fm_node_of(x, row->replicas[i].node);
        p->copy[p->copy_count++] = (struct fm_copy){(uint16_t)(n - x->node), row->replicas[i].role};
    }
    if (row->owner_since_ms > FM_EPOCH_MS && row->owner_since_ms > p->moved_ms) {
        p->moved_ms = row->owner_since_ms; /* after a failover too */
    }
}

void fm_refresh(struct fm *x)
{
    if (!x->dirty) {
        return;
    }
    x->dirty = false;
    for (uint32_t n = 0; n < x->node_count; n++) {
        x->node[n].stored = 0;
        x->node[n].held = 0;
    }
    for (uint32_t i = 0; i < x->part_count; i++) {
        struct fm_part *p = &x->part[i];
        refresh_part(x, p);
        for (uint8_t c = 0; c < p->copy_count; c++) {
            x->node[p->copy[c].node].stored += fm_part_bytes(p);
            x->node[p->copy[c].node].held++;
        }
    }
}
