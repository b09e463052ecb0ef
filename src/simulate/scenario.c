/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/scenario_parts.h"

#include "base/mem.h"
#include "base/parse.h"
#include "directory/budget.h"

#include <stdio.h>
#include <string.h>

const char *const scenario_generator_name[SCENARIO_GENERATORS] = {
    "listed", "noise", "zipf", "zipford", "drift", "flash", "diurnal", "mono", "hotkey", "shift",
};

#define AT(type, member) offsetof(struct type, member)

static const struct field top_fields[] = {
    {"name", FIELD_NAME, AT(scenario, name), 0, 0, true},
    {"description", FIELD_TEXT, AT(scenario, description), 0, 0, false},
    {"seed", FIELD_COUNT, AT(scenario, seed), 0, 0, false},
    {"duration", FIELD_DURATION, AT(scenario, duration_ms), 1000, 7 * 24 * 3600e3, true},
    {"tick", FIELD_DURATION, AT(scenario, tick_ms), 1000, 60000, false},
    {"warmup", FIELD_DURATION, AT(scenario, warmup_ms), 0, 7 * 24 * 3600e3, false},
    {"round", FIELD_DURATION, AT(scenario, round_ms), 1000, 3600e3, false},
    {"balance", FIELD_FLAG, AT(scenario, balance), 0, 0, false},
    {"nodes", FIELD_OTHER, 0, 0, 0, true},
    {"partitions", FIELD_OTHER, 0, 0, 0, true},
    {"copies", FIELD_OTHER, 0, 0, 0, false},
    {"load", FIELD_OTHER, 0, 0, 0, false},
    {"events", FIELD_OTHER, 0, 0, 0, false},
    {"planner", FIELD_OTHER, 0, 0, 0, false},
    {"budgets", FIELD_OTHER, 0, 0, 0, false},
    {"settings", FIELD_OTHER, 0, 0, 0, false},
    {"windows", FIELD_OTHER, 0, 0, 0, false},
    {"expect", FIELD_OTHER, 0, 0, 0, false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

static const struct field group_fields[] = {
    {"name", FIELD_NAME, AT(scenario_group, name), 0, 0, true},
    {"count", FIELD_COUNT, AT(scenario_group, count), 1, SCENARIO_NODES_MAX, false},
    {"capacity", FIELD_NUMBER, AT(scenario_group, capacity), 0.001, 1e9, true},
    {"bytes", FIELD_SIZE, AT(scenario_group, bytes), 1, (double)(UINT64_C(1) << 50), true},
    {"zones", FIELD_COUNT, AT(scenario_group, zones), 1, BAL_ZONES_MAX, false},
    {"joins", FIELD_DURATION, AT(scenario_group, joins_ms), 0, 0, false},
    {"labels", FIELD_OTHER, 0, 0, 0, false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

static const struct field count_fields[] = {
    {"count", FIELD_COUNT, AT(scenario, part_count), 1, SCENARIO_PARTS_MAX / 2.0, true},
    {"keys", FIELD_COUNT, AT(scenario, keys), 1, SCENARIO_KEYS_MAX, false},
    {"bytes", FIELD_SIZE, AT(scenario, bytes), 0, (double)(UINT64_C(1) << 42), true},
    {"owners", FIELD_OTHER, 0, 0, 0, false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

static const struct field part_fields[] = {
    {"load", FIELD_NUMBER, AT(scenario_part, load), 0, 1e9, false},
    {"bytes", FIELD_SIZE, AT(scenario_part, bytes), 0, (double)(UINT64_C(1) << 42), true},
    {"keys", FIELD_COUNT, AT(scenario_part, keys), 1, 100000, false},
    {"owner", FIELD_NAME, AT(scenario_part, owner), 0, 0, false},
    {"repeat", FIELD_DURATION, AT(scenario_part, repeat_ms), 1000, 7 * 24 * 3600e3, false},
    {"series", FIELD_OTHER, 0, 0, 0, false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

static const struct field point_fields[] = {
    {"at", FIELD_DURATION, AT(scenario_point, at_ms), 0, 0, true},
    {"load", FIELD_NUMBER, AT(scenario_point, load), 0, 1e9, true},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

static const struct field copies_fields[] = {
    {"sync", FIELD_COUNT, AT(scenario, sync), 0, DIR_REPLICAS_MAX - 2, false},
    {"async", FIELD_COUNT, AT(scenario, async), 0, DIR_REPLICAS_MAX - 2, false},
    {"spread", FIELD_NAME, AT(scenario, spread), 0, 0, false},
    {"require", FIELD_OTHER, 0, 0, 0, false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

static const struct field load_fields[] = {
    {"generator", FIELD_OTHER, 0, 0, 0, true},
    {"utilisation", FIELD_NUMBER, AT(scenario_load, utilisation), 0.001, 10, false},
    {"sigma", FIELD_NUMBER, AT(scenario_load, sigma), 0, 2, false},
    {"correlation", FIELD_DURATION, AT(scenario_load, correlation_ms), 1000, 3600e3, false},
    {"exponent", FIELD_NUMBER, AT(scenario_load, exponent), 0, 3, false},
    {"cut", FIELD_NUMBER, AT(scenario_load, cut), 0, 1e6, false},
    {"share", FIELD_NUMBER, AT(scenario_load, share), 0, 1, false},
    {"width", FIELD_NUMBER, AT(scenario_load, width), 0.000001, 0.25, false},
    {"times", FIELD_NUMBER, AT(scenario_load, times), 0, 1000, false},
    {"begin", FIELD_NUMBER, AT(scenario_load, begin), 0, 1, false},
    {"advance", FIELD_NUMBER, AT(scenario_load, advance), 0, 1, false},
    {"per_day", FIELD_NUMBER, AT(scenario_load, per_day), 0, 100, false},
    {"from", FIELD_DURATION, AT(scenario_load, from_ms), 0, 0, false},
    {"every", FIELD_DURATION, AT(scenario_load, every_ms), 60e3, 7 * 24 * 3600e3, false},
    {"lasts", FIELD_DURATION, AT(scenario_load, lasts_ms), 60e3, 7 * 24 * 3600e3, false},
    {"tenants", FIELD_COUNT, AT(scenario_load, tenants), 1, 256, false},
    {"swing_min", FIELD_NUMBER, AT(scenario_load, swing_min), 0, 1, false},
    {"swing_max", FIELD_NUMBER, AT(scenario_load, swing_max), 0, 1, false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

static const struct field event_fields[] = {
    {"at", FIELD_DURATION, AT(scenario_event, at_ms), 0, 0, true},
    {"kind", FIELD_OTHER, 0, 0, 0, true},
    {"node", FIELD_NAME, AT(scenario_event, node), 0, 0, false},
    {"zone", FIELD_NAME, AT(scenario_event, zone), 0, 0, false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

#define SHARE(member, top)                                                                         \
    {                                                                                              \
#member, FIELD_SHARE, AT(bal_settings, member), 0, top, false                              \
    }
#define COUNT(member, top)                                                                         \
    {                                                                                              \
#member, FIELD_COUNT32, AT(bal_settings, member), 0, top, false                            \
    }
#define SPAN(name, member)                                                                         \
    {                                                                                              \
        name, FIELD_DURATION, AT(bal_settings, member), 0, 0, false                                \
    }
static const struct field planner_fields[] = {
    SHARE(high, 1),
    SHARE(low, 1),
    SHARE(band_max, 1),
    SHARE(under, 1),
    SHARE(piece_min, 1),
    SHARE(lump_gain, 1),
    SHARE(kappa, 100),
    SHARE(side_rise, 1),
    SHARE(split_share, 1),
    SHARE(capacity_cap, 1),
    SHARE(cluster_hot, 10),
    SHARE(urgent_utilisation, 10),
    SHARE(urgent_level, 10),
    SHARE(vanished_share, 1),
    COUNT(per_node_target, 100000),
    COUNT(per_node_max, 100000),
    COUNT(per_node_min, 100000),
    COUNT(merge_fraction, 1000),
    COUNT(vanished_max, 100000),
    COUNT(moves_per_node_hour, 100000),
    COUNT(moves_burst, 100000),
    COUNT(hot_per_node_hour, 100000),
    COUNT(hot_burst, 100000),
    SPAN("sustain", sustain_ms),
    SPAN("residence", residence_ms),
    SPAN("residence_urgent", residence_urgent_ms),
    SPAN("return", return_ms),
    SPAN("role_cooldown", role_cooldown_ms),
    SPAN("horizon", horizon_ms),
    SPAN("merge_after", merge_after_ms),
    SPAN("merge_cold", merge_cold_ms),
    SPAN("recovery_hold", recovery_hold_ms),
    SPAN("quiet", quiet_ms),
    {"split_bytes", FIELD_SIZE, AT(bal_settings, split_bytes), 0, 0, false},
    {"one_way", FIELD_FLAG, AT(bal_settings, one_way), 0, 0, false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

static const struct field limit_fields[] = {
    {"moves", FIELD_COUNT, AT(dir_budget_limit, moves), 0, DIR_BUDGET_MOVES_MAX, false},
    {"bytes_per_s", FIELD_RATE, AT(dir_budget_limit, bytes_per_s), 0, (double)DIR_BUDGET_BYTES_MAX,
     false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

static const struct field budget_fields[] = {
    {"source", FIELD_OTHER, 0, 0, 0, false},
    {"destination", FIELD_OTHER, 0, 0, 0, false},
    {"rack", FIELD_OTHER, 0, 0, 0, false},
    {"zone", FIELD_OTHER, 0, 0, 0, false},
    {"device", FIELD_OTHER, 0, 0, 0, false},
    {"cluster", FIELD_OTHER, 0, 0, 0, false},
    {"transfer", FIELD_OTHER, 0, 0, 0, false},
    {"recovery_reserve_percent", FIELD_COUNT, AT(dir_budgets, reserve_percent), 0, 100, false},
    {"release", FIELD_DURATION, AT(dir_budgets, release_ms), 0, DIR_BUDGET_RELEASE_MS_MAX, false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

static const struct field settings_fields[] = {
    {"validation_window", FIELD_DURATION, AT(scenario, window_ms), 1000, 24 * 3600e3, false},
    {"lease", FIELD_DURATION, AT(scenario, lease_ms), 1000, 3600e3, false},
    {"recovery_delay", FIELD_DURATION, AT(scenario, recovery_delay_ms), 0, 24 * 3600e3, false},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

#define MOST(name, member)                                                                         \
    {                                                                                              \
        name, FIELD_NUMBER, AT(scenario_expect, member), 0, 1e12, false                            \
    }
static const struct field expect_fields[] = {MOST("median_max", median),
                                             MOST("p99_max", p99),
                                             MOST("end_max", end),
                                             MOST("moves_min", moves_min),
                                             MOST("moves_max", moves_max),
                                             MOST("late_moves_max", late_moves_max),
                                             MOST("bounces_max", bounces_max),
                                             MOST("returns_max", returns_max),
                                             MOST("splits_min", splits_min),
                                             MOST("splits_max", splits_max),
                                             MOST("merges_min", merges_min),
                                             MOST("merges_max", merges_max),
                                             MOST("recoveries_min", recoveries_min),
                                             {"recovered_within", FIELD_OTHER, 0, 0, 0, false},
                                             {"drained_within", FIELD_OTHER, 0, 0, 0, false},
                                             {"settled_within", FIELD_OTHER, 0, 0, 0, false},
                                             {"advice", FIELD_OTHER, 0, 0, 0, false},
                                             {NULL, FIELD_OTHER, 0, 0, 0, false}};

static void at_item(char at[FIELD_AT_MAX], const char *list, size_t i)
{
    (void)snprintf(at, FIELD_AT_MAX, "%s/%zu", list, i);
}

/* A list of at most `max`; its length. */
static size_t list_of(struct reading *r, const json_t *list, const char *at, size_t max)
{
    if (!r->failed && (!json_is_array(list) || json_array_size(list) > max)) {
        char why[64];
        (void)snprintf(why, sizeof why, "a list of at most %zu is wanted", max);
        fields_fail(r, at, "", why);
    }
    return r->failed ? 0 : json_array_size(list);
}

/* One of the words; its place. */
static int word_of(struct reading *r,
                   const json_t *object,
                   const char *at,
                   const char *name,
                   const char *const *words)
{
    const char *text = json_string_value(fields_get(r, object, name));
    for (int i = 0; text != NULL && words[i] != NULL; i++) {
        if (strcmp(words[i], text) == 0) {
            return i;
        }
    }
    fields_fail(r, at, name, "there is no such one");
    return 0;
}

/* --- nodes --- */

/* Label names and values; how many. */
static uint32_t read_labels(struct reading *r,
                            const json_t *object,
                            const char *at,
                            const char *member,
                            struct dir_label labels[SCENARIO_LABELS_MAX])
{
    json_t *list = json_object_get(object, member), *value;
    char below[FIELD_AT_MAX];
    const char *name;
    uint32_t count = 0;
    (void)snprintf(below, sizeof below, "%.64s/%s", at, member);
    if (!json_is_object(list) || json_object_size(list) > SCENARIO_LABELS_MAX) {
        fields_fail(r, at, member, "an object of at most 8 labels is wanted");
        return 0;
    }
    json_object_foreach(list, name, value)
    {
        struct dir_label *l = &labels[count++];
        const struct field pair[] = {{name, FIELD_NAME, 0, 0, 0, true},
                                     {NULL, FIELD_OTHER, 0, 0, 0, false}};
        json_t *one = json_pack("{sO}", name, value);
        if (!parse_is_name(slice_of(name, strlen(name)))) {
            fields_fail(r, at, member, "a label's name is no name");
        }
        (void)snprintf(l->name, sizeof l->name, "%s", name);
        fields_read(r, one, below, pair, l->value);
        json_decref(one);
    }
    return count;
}

static void read_nodes(struct reading *r, const json_t *list, struct scenario *s)
{
    char at[FIELD_AT_MAX];
    uint64_t nodes = 0;
    size_t n = list_of(r, list, "/nodes", SCENARIO_GROUPS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct scenario_group *g = &s->groups[s->group_count++];
        const json_t *one = json_array_get(list, i);
        *g = (struct scenario_group){.count = 1};
        at_item(at, "/nodes", i);
        fields_read(r, one, at, group_fields, g);
        if (fields_get(r, one, "labels") != NULL) {
            g->label_count = read_labels(r, one, at, "labels", g->labels);
        }
        for (uint32_t k = 0; k < g->label_count; k++) {
            if (g->zones > 0 && strcmp(g->labels[k].name, "zone") == 0) {
                fields_fail(r, at, "zones", "the group is labelled with a zone already");
            }
        }
        nodes += g->count;
        if (strlen(g->name) > FIELD_NAME_MAX - 8) {
            fields_fail(r, at, "name", "it is too long");
        }
    }
    if (nodes == 0 || nodes > SCENARIO_NODES_MAX) {
        fields_fail(r, "/nodes", "", "there must be from 1 to 1000 nodes in all");
    }
}

/* --- partitions --- */

static void
read_series(struct reading *r, const json_t *list, const char *at, struct scenario_part *p)
{
    char below[FIELD_AT_MAX], item[FIELD_AT_MAX];
    (void)snprintf(below, sizeof below, "%.64s/series", at);
    size_t n = list_of(r, list, below, SCENARIO_POINTS_MAX);
    p->points = n > 0 ? mem_zalloc(n * sizeof p->points[0]) : NULL;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(item, sizeof item, "%.100s/%zu", below, i);
        fields_read(r, json_array_get(list, i), item, point_fields, &p->points[i]);
        p->point_count++;
        if (i > 0 && p->points[i].at_ms <= p->points[i - 1].at_ms) {
            fields_fail(r, item, "at", "it must be later than the one before");
        }
    }
}

static void read_listed(struct reading *r, const json_t *list, struct scenario *s)
{
    char at[FIELD_AT_MAX];
    size_t n = list_of(r, list, "/partitions", SCENARIO_LISTED_MAX);
    s->listed = mem_zalloc((n + 1) * sizeof s->listed[0]);
    for (size_t i = 0; i < n && !r->failed; i++) {
        struct scenario_part *p = &s->listed[s->part_count++];
        const json_t *one = json_array_get(list, i), *series;
        *p = (struct scenario_part){.keys = 100};
        at_item(at, "/partitions", i);
        fields_read(r, one, at, part_fields, p);
        series = fields_get(r, one, "series");
        if (series != NULL) {
            read_series(r, series, at, p);
        }
        s->keys += p->keys;
    }
    if (s->part_count == 0 || s->keys > SCENARIO_KEYS_MAX) {
        fields_fail(r, "/partitions", "", "there must be one, and at most 2000000 keys in all");
    }
}

static void read_partitions(struct reading *r, const json_t *value, struct scenario *s)
{
    static const char *const owners[] = {"directory", "random", "in_turn", NULL};
    if (json_is_array(value)) {
        read_listed(r, value, s);
        return;
    }
    fields_read(r, value, "/partitions", count_fields, s);
    if (fields_get(r, value, "owners") != NULL) {
        s->owners = (enum scenario_owners)word_of(r, value, "/partitions", "owners", owners);
    }
    if (s->keys == 0) {
        s->keys = s->part_count * 100;
    }
    if (s->keys < s->part_count || s->keys > SCENARIO_KEYS_MAX) {
        fields_fail(r, "/partitions", "keys", "from as many as partitions to 2000000");
    }
}

/* --- load --- */

static void read_load(struct reading *r, const json_t *value, struct scenario *s)
{
    const char *names[SCENARIO_GENERATORS + 1] = {NULL};
    struct scenario_load *l = &s->load;
    memcpy(names, scenario_generator_name, sizeof scenario_generator_name);
    l->generator = SCENARIO_LISTED;
    if (value != NULL) {
        l->generator = (enum scenario_generator)word_of(r, value, "/load", "generator", names);
    }
    if ((l->generator == SCENARIO_LISTED) != (s->listed != NULL)) {
        fields_fail(r, "/load", "generator",
                    s->listed != NULL ? "listed partitions bring their own load: listed"
                                      : "counted partitions need another one than listed");
    }
    scenario_default_load(l);
    if (value != NULL) {
        fields_read(r, value, "/load", load_fields, l);
    }
    if (l->swing_max < l->swing_min) {
        fields_fail(r, "/load", "swing_max", "it must not be below swing_min");
    }
}

/* --- events --- */

static void read_events(struct reading *r, const json_t *list, struct scenario *s)
{
    static const char *const kinds[] = {"",       "lose",     "return", "drain",
                                        "cordon", "uncordon", "elect",  NULL};
    char at[FIELD_AT_MAX];
    size_t n = list_of(r, list, "/events", SCENARIO_EVENTS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct scenario_event *v = &s->events[s->event_count++];
        const json_t *one = json_array_get(list, i);
        at_item(at, "/events", i);
        fields_read(r, one, at, event_fields, v);
        v->kind = (enum scenario_event_kind)word_of(r, one, at, "kind", kinds);
        if (v->kind == 0) {
            fields_fail(r, at, "kind", "there is no such one");
        }
        if ((v->node[0] != '\0') + (v->zone[0] != '\0') != (v->kind != SCENARIO_ELECT)) {
            fields_fail(r, at, "node", "a node or a zone is to be named, and neither to elect");
        }
        if (i > 0 && v->at_ms < s->events[i - 1].at_ms) {
            fields_fail(r, at, "at", "it must not be earlier than the one before");
        }
    }
}

static void read_budgets(struct reading *r, const json_t *value, struct scenario *s)
{
    fields_read(r, value, "/budgets", budget_fields, &s->budgets);
    for (int b = DIR_BUDGET_SOURCE; b <= DIR_BUDGETS; b++) {
        const char *name = dir_budget_name((enum dir_budget)b);
        const json_t *limit = fields_get(r, value, name);
        char at[FIELD_AT_MAX];
        (void)snprintf(at, sizeof at, "/budgets/%s", name);
        if (limit != NULL) {
            fields_read(r, limit, at, limit_fields, &s->budgets.limits[b]);
        }
    }
}

static void read_within(struct reading *r, const json_t *value, const char *name, double *ret_ms)
{
    uint64_t ms = 0;
    const json_t *within = fields_get(r, value, name);
    const struct field one[] = {{name, FIELD_DURATION, 0, 0, 0, true},
                                {NULL, FIELD_OTHER, 0, 0, 0, false}};
    if (within != NULL) {
        union {
            const json_t *in;
            json_t *out;
        } u = {.in = within};
        json_t *alone = json_pack("{sO}", name, u.out);
        fields_read(r, alone, "/expect", one, &ms);
        json_decref(alone);
        *ret_ms = (double)ms;
    }
}

static void read_expect(struct reading *r, const json_t *value, struct scenario_expect *x)
{
    fields_read(r, value, "/expect", expect_fields, x);
    read_within(r, value, "recovered_within", &x->recovered_ms);
    read_within(r, value, "drained_within", &x->drained_ms);
    read_within(r, value, "settled_within", &x->settled_ms);
    const json_t *advice = fields_get(r, value, "advice");
    size_t n = advice != NULL ? list_of(r, advice, "/expect/advice", SCENARIO_ADVICE_MAX) : 0;
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(advice, i));
        if (text == NULL || strlen(text) > FIELD_NAME_MAX) {
            fields_fail(r, "/expect", "advice", "a list of reasons is wanted");
            return;
        }
        memcpy(x->advice[x->advice_count++], text, strlen(text) + 1);
    }
}

static void expect_nothing(struct scenario_expect *x)
{
    const double none = -1;
    for (const struct field *f = expect_fields; f->name != NULL; f++) {
        if (f->kind == FIELD_NUMBER) {
            memcpy((char *)x + f->offset, &none, sizeof none);
        }
    }
    x->recovered_ms = x->drained_ms = x->settled_ms = none;
}

static void check_together(struct reading *r, struct scenario *s)
{
    struct err wrong;
    char at[FIELD_AT_MAX];
    if (!r->failed && s->duration_ms / s->tick_ms > SCENARIO_TICKS_MAX) {
        fields_fail(r, "/tick", "", "the run would have more than 200000 ticks");
    }
    if (!r->failed && (s->round_ms % s->tick_ms != 0)) {
        fields_fail(r, "/round", "", "it must be a multiple of the tick");
    }
    if (!r->failed && s->sync + s->async + 1 > DIR_REPLICAS_MAX) {
        fields_fail(r, "/copies", "async", "there would be too many copies");
    }
    for (uint32_t i = 0; i < s->event_count; i++) {
        if (!r->failed && s->events[i].at_ms >= s->duration_ms) {
            at_item(at, "/events", i);
            fields_fail(r, at, "at", "the run is over by then");
        }
    }
    if (!r->failed && bal_settings_check(&s->planner, &wrong) != ERR_OK) {
        (void)snprintf(at, sizeof at, "/planner%.100s", wrong.pointer);
        fields_fail(r, at, "", wrong.detail);
    }
}

static void read_all(struct reading *r, const json_t *top, struct scenario *s)
{
    const json_t *v;
    fields_read(r, top, "", top_fields, s);
    read_nodes(r, fields_get(r, top, "nodes"), s);
    v = fields_get(r, top, "partitions");
    if (v != NULL) {
        read_partitions(r, v, s);
    }
    read_load(r, fields_get(r, top, "load"), s);
    if ((v = fields_get(r, top, "copies")) != NULL) {
        fields_read(r, v, "/copies", copies_fields, s);
        if (fields_get(r, v, "require") != NULL) {
            s->require_count = read_labels(r, v, "/copies", "require", s->require);
        }
    }
    if ((v = fields_get(r, top, "events")) != NULL) {
        read_events(r, v, s);
    }
    if ((v = fields_get(r, top, "planner")) != NULL) {
        fields_read(r, v, "/planner", planner_fields, &s->planner);
    }
    if ((v = fields_get(r, top, "budgets")) != NULL) {
        read_budgets(r, v, s);
    }
    if ((v = fields_get(r, top, "settings")) != NULL) {
        fields_read(r, v, "/settings", settings_fields, s);
    }
    if ((v = fields_get(r, top, "windows")) != NULL) {
        scenario_read_windows(r, v, s);
    }
    if ((v = fields_get(r, top, "expect")) != NULL) {
        read_expect(r, v, &s->expect);
    }
}

enum err_code scenario_read(const char *text, size_t len, struct scenario *ret, struct err *e)
{
    json_error_t wrong;
    struct err local;
    struct reading r = {.e = e != NULL ? e : &local};
    json_t *top = json_loadb(text, len, JSON_REJECT_DUPLICATES, &wrong);
    if (top == NULL) {
        return err_set_at(e, ERR_INVALID_REQUEST, "", "line %d: %s", wrong.line, wrong.text);
    }
    scenario_defaults(ret);
    expect_nothing(&ret->expect);
    read_all(&r, top, ret);
    check_together(&r, ret);
    json_decref(top);
    if (r.failed) {
        scenario_close(ret);
        return ERR_INVALID_REQUEST;
    }
    return ERR_OK;
}

void scenario_close(struct scenario *s)
{
    for (uint64_t i = 0; s->listed != NULL && i < s->part_count; i++) {
        mem_free(s->listed[i].points);
    }
    mem_free(s->listed);
    s->listed = NULL;
}
