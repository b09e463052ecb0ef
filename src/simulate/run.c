/* SPDX-License-Identifier: Apache-2.0 */
/* How a run begins, and its loop. */
#include "simulate/internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROW_BATCH = 4096 };

/* --- nodes --- */

static void label(struct fm_node *n, const char *name, const char *value)
{
    struct dir_label *l = &n->labels[n->label_count++];
    (void)snprintf(l->name, sizeof l->name, "%s", name);
    (void)snprintf(l->value, sizeof l->value, "%s", value);
}

static uint32_t zone_number(struct fm *x, const char *zone)
{
    uint32_t most = 0;
    for (uint32_t n = 0; n < x->node_count; n++) {
        const struct fm_node *other = &x->node[n];
        for (uint32_t i = 0; i < other->label_count; i++) {
            if (strcmp(other->labels[i].name, "zone") == 0 &&
                strcmp(other->labels[i].value, zone) == 0 && other->zone != 0) {
                return other->zone;
            }
        }
        most = other->zone > most ? other->zone : most;
    }
    return most + 1;
}

static enum err_code
add_node(struct fm *x, const struct scenario_group *g, uint64_t i, struct err *e)
{
    struct fm_node *n = &x->node[x->node_count];
    char zone[DIR_NAME_MAX + 1];
    *n = (struct fm_node){.group = g};
    if (g->count == 1) {
        memcpy(n->name, g->name, sizeof n->name);
    } else {
        (void)snprintf(n->name, sizeof n->name, "%.50s%" PRIu64, g->name, i + 1);
    }
    if (fm_node_named(x, n->name) != NULL) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/nodes", "two nodes are \"%s\"", n->name);
    }
    for (uint32_t k = 0; k < g->label_count; k++) {
        label(n, g->labels[k].name, g->labels[k].value);
    }
    if (g->zones > 0) {
        (void)snprintf(zone, sizeof zone, "z%" PRIu64, i % g->zones);
        label(n, "zone", zone);
    }
    for (uint32_t k = 0; k < n->label_count; k++) {
        if (strcmp(n->labels[k].name, "zone") == 0) {
            n->zone = zone_number(x, n->labels[k].value);
        }
    }
    n->up = g->joins_ms == 0;
    x->node_count++;
    return ERR_OK;
}

static int by_joining(const void *a, const void *b)
{
    const struct scenario_group *x = *(const struct scenario_group *const *)a;
    const struct scenario_group *y = *(const struct scenario_group *const *)b;
    if (x->joins_ms != y->joins_ms) {
        return x->joins_ms < y->joins_ms ? -1 : 1;
    }
    return x < y ? -1 : x > y; /* of one array: as they were listed */
}

/* In the order of joining, so that ids ascend. */
static enum err_code make_nodes(struct fm *x, struct err *e)
{
    const struct scenario_group *order[SCENARIO_GROUPS_MAX];
    enum err_code code = ERR_OK;
    x->node = mem_zalloc(SCENARIO_NODES_MAX * sizeof x->node[0]);
    for (uint32_t g = 0; g < x->s->group_count; g++) {
        order[g] = &x->s->groups[g];
    }
    qsort(order, x->s->group_count, sizeof order[0], by_joining);
    if (x->s->sync + x->s->async > 0 && x->s->owners != SCENARIO_DIRECTORY) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/partitions/owners",
                          "where there are several copies, the directory chooses");
    }
    if (order[0]->joins_ms > 0) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/nodes", "some have to be there at the start");
    }
    for (uint32_t g = 0; g < x->s->group_count; g++) {
        for (uint64_t i = 0; i < order[g]->count && code == ERR_OK; i++) {
            code = add_node(x, order[g], i, e);
        }
    }
    return code;
}

/* --- settings --- */

static enum err_code set_directory(struct fm *x, struct err *e)
{
    Cadastre__SettingsPatch s;
    cadastre__settings_patch__init(&s);
    s.has_validation_window_ms = s.has_lease_ms = s.has_recovery_delay_ms = true;
    s.validation_window_ms = x->s->window_ms;
    s.lease_ms = x->s->lease_ms;
    s.recovery_delay_ms = x->s->recovery_delay_ms;
    if (fm_do(x, CADASTRE__COMMAND__BODY_SETTINGS_PATCH, &s) != ERR_OK) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/settings", "%s", x->result->err.detail);
    }
    Cadastre__BalancerPatch m;
    Cadastre__BudgetLimit limits[DIR_BUDGETS], *pointers[DIR_BUDGETS];
    struct fm_windows windows;
    cadastre__balancer_patch__init(&m);
    fm_put_windows(x, &windows, &m);
    for (int b = DIR_BUDGET_SOURCE; b <= DIR_BUDGETS; b++) {
        Cadastre__BudgetLimit *l = pointers[b - 1] = &limits[b - 1];
        cadastre__budget_limit__init(l);
        l->budget = (uint32_t)b;
        l->has_moves = true;
        l->moves = x->s->budgets.limits[b].moves;
        l->has_bytes_per_s = b != DIR_BUDGET_TRANSFER;
        l->bytes_per_s = x->s->budgets.limits[b].bytes_per_s;
    }
    m.n_limits = DIR_BUDGETS;
    m.limits = pointers;
    m.has_recovery_reserve_percent = m.has_release_ms = true;
    m.recovery_reserve_percent = x->s->budgets.reserve_percent;
    m.release_ms = x->s->budgets.release_ms;
    if (fm_do(x, CADASTRE__COMMAND__BODY_BALANCER_PATCH, &m) != ERR_OK) {
        return err_set_at(e, ERR_INVALID_REQUEST, x->result->err.pointer, "%s",
                          x->result->err.detail);
    }
    return ERR_OK;
}

/* --- partitions --- */

static void make_parts(struct fm *x)
{
    const struct scenario *s = x->s;
    uint32_t at = 0;
    x->part = mem_zalloc(SCENARIO_PARTS_MAX * sizeof x->part[0]);
    for (uint64_t i = 0; i < s->part_count; i++) {
        struct fm_part *p = &x->part[x->part_count++];
        p->bytes = (double)(s->listed != NULL ? s->listed[i].bytes : s->bytes);
        p->low = s->listed != NULL ? at : (uint32_t)(i * s->keys / s->part_count);
        p->high = s->listed != NULL ? at + (uint32_t)s->listed[i].keys
                                    : (uint32_t)((i + 1) * s->keys / s->part_count);
        at = p->high;
    }
}

static uint32_t starting_nodes(const struct fm *x)
{
    uint32_t n = 0;
    while (n < x->node_count && x->node[n].group->joins_ms == 0) {
        n++;
    }
    return n;
}

/* Which node is to hold partition i, or NULL: as the directory places. */
static enum err_code owner_of(struct fm *x, uint32_t i, const struct fm_node **ret, struct err *e)
{
    const struct scenario *s = x->s;
    uint32_t nodes = starting_nodes(x);
    char at[FIELD_AT_MAX];
    *ret = NULL;
    if (s->listed == NULL) {
        *ret = s->owners == SCENARIO_RANDOM    ? &x->node[fm_random(x) % nodes]
               : s->owners == SCENARIO_IN_TURN ? &x->node[i % nodes]
                                               : NULL;
        return ERR_OK;
    }
    if (s->listed[i].owner[0] == '\0') {
        return ERR_OK;
    }
    *ret = fm_node_named(x, s->listed[i].owner);
    if (*ret == NULL || (*ret)->group->joins_ms > 0) {
        (void)snprintf(at, sizeof at, "/partitions/%" PRIu32 "/owner", i);
        return err_set_at(e, ERR_INVALID_REQUEST, at, "there is no such node at the start");
    }
    return ERR_OK;
}

static void schedule(struct fm *x, const struct fm_node *n, Cadastre__SchedulingVerb verb)
{
    Cadastre__NodeScheduling m;
    cadastre__node_scheduling__init(&m);
    m.node = text_lent(n->name);
    m.verb = verb;
    enum err_code code = fm_do(x, CADASTRE__COMMAND__BODY_NODE_SCHEDULING, &m);
    ASSERT(code == ERR_OK);
}

/* Only `n` takes what is placed next; NULL: all do. */
static void open_only(struct fm *x, const struct fm_node *n, bool *closed)
{
    for (uint32_t i = 0; i < starting_nodes(x); i++) {
        bool close = n != NULL && n != &x->node[i];
        if (close != closed[i]) {
            schedule(x, &x->node[i],
                     close ? CADASTRE__SCHEDULING_VERB__CORDON
                           : CADASTRE__SCHEDULING_VERB__UNCORDON);
            closed[i] = close;
        }
    }
}

static void put_bound(uint32_t key, uint8_t out[4])
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(key >> (24 - 8 * i));
    }
}

static enum err_code create_keyspace(struct fm *x, struct err *e)
{
    Cadastre__KeyspaceCreate m;
    Cadastre__Placement placement;
    Cadastre__Label require[SCENARIO_LABELS_MAX], *pointers[SCENARIO_LABELS_MAX];
    cadastre__keyspace_create__init(&m);
    cadastre__placement__init(&placement);
    placement.spread = text_lent(x->s->spread);
    placement.n_require = x->s->require_count;
    placement.require = pointers;
    for (uint32_t i = 0; i < x->s->require_count; i++) {
        cadastre__label__init(&require[i]);
        require[i].name = text_lent(x->s->require[i].name);
        require[i].value = text_lent(x->s->require[i].value);
        pointers[i] = &require[i];
    }
    m.name = text_lent(FM_KEYSPACE);
    m.scheme = DIR_SCHEME_RANGE;
    m.key_encoding = DIR_ENCODING_HEX;
    m.authority = DIR_AUTHORITY_EXCLUSIVE;
    m.sync_replicas = (uint32_t)x->s->sync;
    m.async_replicas = (uint32_t)x->s->async;
    m.placement = &placement;
    m.policy = (ProtobufCBinaryData){2, (uint8_t[]){'{', '}'}};
    m.more = true;
    if (fm_do(x, CADASTRE__COMMAND__BODY_KEYSPACE_CREATE, &m) != ERR_OK) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/copies", "%s", x->result->err.detail);
    }
    x->keyspace = x->result->keyspace->id;
    return ERR_OK;
}

/* Partitions [from, upto) of the keyspace, placed as nodes are open now. */
static void grow(struct fm *x, uint32_t from, uint32_t upto)
{
    Cadastre__KeyspaceGrow m;
    ProtobufCBinaryData *at = mem_alloc((upto - from + 1) * sizeof *at);
    uint8_t(*bytes)[4] = mem_alloc((upto - from + 1) * sizeof *bytes);
    cadastre__keyspace_grow__init(&m);
    for (uint32_t i = from; i < upto; i++) {
        put_bound(x->part[i].low, bytes[i - from]);
        at[i - from] = (ProtobufCBinaryData){4, bytes[i - from]};
    }
    m.keyspace = x->keyspace;
    m.n_splits = upto - from;
    m.splits = at;
    m.last = upto == x->part_count;
    enum err_code code = fm_do(x, CADASTRE__COMMAND__BODY_KEYSPACE_GROW, &m);
    ASSERT(code == ERR_OK);
    mem_free(at);
    mem_free(bytes);
}

static void name_parts(struct fm *x)
{
    const struct dir_keyspace *ks = view_keyspace_by_id(fm_view(x), x->keyspace);
    const struct dir_partition *p;
    struct ptree_iter it;
    uint32_t i = 0;
    ptree_seek(view_map(fm_view(x), ks), slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        x->part[i++].id = p->id;
    }
    ASSERT(i == x->part_count);
}

static enum err_code choose_owners(struct fm *x, const struct fm_node **owner, struct err *e)
{
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < x->part_count && code == ERR_OK; i++) {
        code = owner_of(x, i, &owner[i], e);
    }
    return code;
}

/* What is to go to a node may go there; what goes anywhere has a node. */
static enum err_code
check_allowed(const struct fm *x, const struct fm_node *const *owner, struct err *e)
{
    uint32_t allowed = 0;
    for (uint32_t n = 0; n < starting_nodes(x); n++) {
        allowed += fm_is_allowed(x, &x->node[n]);
    }
    for (uint32_t i = 0; i < x->part_count; i++) {
        if (allowed == 0 || (owner[i] != NULL && !fm_is_allowed(x, owner[i]))) {
            return err_set_at(e, ERR_INVALID_REQUEST, "/copies/require",
                              "partition %" PRIu32 " could not be where it begins", i);
        }
    }
    return ERR_OK;
}

/* The directory places a partition when it makes it, so those that are to go to one node are made
 * while only that one is open. */
static enum err_code place_parts(struct fm *x, struct err *e)
{
    const struct fm_node **owner = mem_zalloc(x->part_count * sizeof *owner);
    bool *closed = mem_zalloc(SCENARIO_NODES_MAX * sizeof *closed);
    enum err_code code = choose_owners(x, owner, e);
    if (code == ERR_OK) {
        code = check_allowed(x, owner, e);
    }
    if (code == ERR_OK) {
        open_only(x, owner[0], closed);
        code = create_keyspace(x, e);
    }
    for (uint32_t i = 1, upto = 1; code == ERR_OK && i < x->part_count; i = upto) {
        while (upto < x->part_count && owner[upto] == owner[i] && upto - i < GROW_BATCH) {
            upto++;
        }
        open_only(x, owner[i], closed);
        grow(x, i, upto);
    }
    if (code == ERR_OK && x->part_count == 1) {
        grow(x, 1, 1);
    }
    open_only(x, NULL, closed);
    mem_free(closed);
    mem_free(owner);
    return code;
}

/* --- events --- */

static bool concerns(const struct scenario_event *v, const struct fm_node *n)
{
    bool zoned = false;
    for (uint32_t i = 0; i < n->label_count; i++) {
        zoned |= strcmp(n->labels[i].name, "zone") == 0 && strcmp(n->labels[i].value, v->zone) == 0;
    }
    return v->node[0] != '\0' ? strcmp(v->node, n->name) == 0 : zoned;
}

static void lose(struct fm *x, struct fm_node *n)
{
    if (n->up && n->id != 0) {
        n->up = false;
        n->changed_ms = fm_log_ms(x);
        x->lost_ms = x->lost_ms < 0 ? (int64_t)x->now_ms : x->lost_ms;
    }
}

static void happen(struct fm *x, const struct scenario_event *v, struct fm_node *n)
{
    if (n->id == 0) {
        return; /* it has not joined */
    }
    switch (v->kind) {
    case SCENARIO_LOSE:
        lose(x, n);
        break;
    case SCENARIO_RETURN:
        if (!n->up) {
            n->joined_ms = fm_log_ms(x);
            fm_register(x, n);
        }
        break;
    case SCENARIO_DRAIN:
        x->drain_ms = x->drain_ms < 0 ? (int64_t)x->now_ms : x->drain_ms;
        schedule(x, n, CADASTRE__SCHEDULING_VERB__DRAIN);
        break;
    case SCENARIO_CORDON:
        schedule(x, n, CADASTRE__SCHEDULING_VERB__CORDON);
        break;
    case SCENARIO_UNCORDON:
        schedule(x, n, CADASTRE__SCHEDULING_VERB__UNCORDON);
        break;
    case SCENARIO_ELECT:
        UNREACHABLE(); /* it is about no node */
    }
}

/* What a leader has heard of loads its successor has too; what its planner remembers it has not. */
static void elect(struct fm *x)
{
    bal_memory_free(x->memory);
    x->memory = bal_memory_new(fm_log_ms(x));
}

static void join_nodes(struct fm *x)
{
    for (uint32_t n = 0; n < x->node_count; n++) {
        struct fm_node *node = &x->node[n];
        if (node->id == 0 && node->group->joins_ms <= x->now_ms) {
            node->joined_ms = x->now_ms > 0 ? fm_log_ms(x) : 0;
            fm_register(x, node);
        }
    }
}

static void events(struct fm *x)
{
    for (; x->next_event < x->s->event_count && x->s->events[x->next_event].at_ms <= x->now_ms;
         x->next_event++) {
        if (x->s->events[x->next_event].kind == SCENARIO_ELECT) {
            elect(x);
        }
        for (uint32_t n = 0; n < x->node_count; n++) {
            if (concerns(&x->s->events[x->next_event], &x->node[n])) {
                happen(x, &x->s->events[x->next_event], &x->node[n]);
            }
        }
    }
}

static enum err_code check_events(const struct fm *x, struct err *e)
{
    char at[FIELD_AT_MAX];
    for (uint32_t i = 0; i < x->s->event_count; i++) {
        bool found = x->s->events[i].kind == SCENARIO_ELECT;
        for (uint32_t n = 0; n < x->node_count; n++) {
            found |= concerns(&x->s->events[i], &x->node[n]);
        }
        if (!found) {
            (void)snprintf(at, sizeof at, "/events/%" PRIu32, i);
            return err_set_at(e, ERR_INVALID_REQUEST, at, "no node is there of that name or zone");
        }
    }
    return ERR_OK;
}

/* --- a run --- */

static enum err_code begin(struct fm *x, struct err *e)
{
    enum err_code code = make_nodes(x, e);
    if (code == ERR_OK) {
        code = check_events(x, e);
    }
    make_parts(x);
    fm_loads_open(x);
    if (code == ERR_OK) {
        code = set_directory(x, e);
    }
    if (code == ERR_OK) {
        join_nodes(x);
        code = place_parts(x, e);
    }
    if (code == ERR_OK) {
        name_parts(x);
        x->dirty = true;
    }
    return code;
}

static void tick(struct fm *x)
{
    join_nodes(x);
    events(x);
    fm_sessions(x);
    fm_loads_tick(x);
    fm_refresh(x);
    fm_measure(x);
    fm_timers(x);
    fm_agents(x);
    if (x->now_ms % x->s->round_ms == 0) {
        fm_refresh(x);
        fm_recover(x);
        if (x->s->balance) {
            fm_round(x);
        }
    }
    fm_admit(x);
    fm_agents(x); /* of what began now */
    directory_publish(x->d);
    if (x->now_ms - x->checked_ms >= FM_CHECK_MS) {
        fm_check_all(x);
    }
}

static void open_run(struct fm *x)
{
    struct bal_fleet f;
    double least = HUGE_VAL;
    bal_fleet_init(&f);
    x->follower = f.follower[BAL_CPU];
    bal_fleet_close(&f);
    for (uint32_t g = 0; g < x->s->group_count; g++) {
        double capacity = x->s->groups[g].capacity;
        least = capacity < least ? capacity : least;
    }
    x->unit = FM_NODE_UNITS / least;
    x->d = directory_new();
    x->memory = bal_memory_new(FM_EPOCH_MS);
    bal_plan_init(&x->plan);
    size_t ticks = (size_t)(x->s->duration_ms / x->s->tick_ms) + 1;
    x->out->samples = mem_zalloc(ticks * sizeof x->out->samples[0]);
    x->ratios = mem_zalloc(ticks * sizeof x->ratios[0]);
}

void fm_close(struct fm *x)
{
    result_unref(x->result);
    directory_free(x->d);
    windows_close(&x->windows);
    bal_memory_free(x->memory);
    bal_plan_close(&x->plan);
    mem_free(x->node);
    mem_free(x->part);
    mem_free(x->key);
    mem_free(x->key_base);
    mem_free(x->prefix);
    mem_free(x->open);
    mem_free(x->ratios);
}

enum err_code
simulate_run(const struct scenario *s, uint64_t seed, struct simulate_outcome *ret, struct err *e)
{
    struct fm *x = mem_zalloc(sizeof *x);
    *ret = (struct simulate_outcome){.recovered_ms = -1, .drained_ms = -1, .settled_ms = -1};
    *x = (struct fm){.s = s,
                     .out = ret,
                     .epoch_ms = FM_EPOCH_MS,
                     .random = seed * UINT64_C(0x5851f42d4c957f2d) + 1,
                     .lost_ms = -1,
                     .drain_ms = -1,
                     .unsettled_ms = -1};
    open_run(x);
    enum err_code code = begin(x, e);
    for (x->now_ms = 0; code == ERR_OK && x->now_ms < s->duration_ms; x->now_ms += s->tick_ms) {
        tick(x);
    }
    if (code == ERR_OK) {
        fm_refresh(x);
        fm_check_all(x);
        fm_finish(x);
    }
    fm_close(x);
    mem_free(x);
    if (code != ERR_OK) {
        simulate_close(ret);
    }
    return code;
}

void simulate_close(struct simulate_outcome *o)
{
    mem_free(o->samples);
    mem_free(o->nodes);
    o->samples = NULL;
    o->nodes = NULL;
}
