/* SPDX-License-Identifier: Apache-2.0 */
#include "api/whatif_json.h"

#include "api/balancer_patch.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- in --- */

static void take_name(struct json_in *in, const char *member, bool required, struct whatif_name *to)
{
    struct slice name = json_in_name(in, member, required);
    if (name.len > 0) {
        memcpy(to->text, name.data, name.len);
    }
}

static bool is_name(const json_t *value)
{
    return json_is_string(value) &&
           parse_is_name(slice_of(json_string_value(value), json_string_length(value)));
}

/* A list of names, each once. */
static struct whatif_name *take_names(struct json_in *in, const char *member, uint32_t *ret_count)
{
    json_t *list = json_in_array(in, member, false, 0, WHATIF_NAMES_MAX), *value;
    size_t i;
    *ret_count = 0;
    if (list == NULL) {
        return NULL;
    }
    struct whatif_name *names = mem_zalloc((json_array_size(list) + 1) * sizeof names[0]);
    json_array_foreach(list, i, value)
    {
        char at[32];
        struct json_in item;
        (void)snprintf(at, sizeof at, "%zu", i);
        json_in_open_member(&item, in, json_object(), member);
        if (!is_name(value)) {
            json_in_fail(&item, at, ERR_INVALID_REQUEST, "must be a name");
        } else {
            memcpy(names[i].text, json_string_value(value), json_string_length(value));
        }
        for (uint32_t k = 0; k < i && item.code == ERR_OK; k++) {
            if (strcmp(names[k].text, names[i].text) == 0) {
                json_in_fail(&item, at, ERR_INVALID_REQUEST, "is there twice");
            }
        }
        json_decref(item.object);
        if (item.code != ERR_OK) {
            in->code = item.code;
            break;
        }
        *ret_count += 1;
    }
    return names;
}

static bool take_label(struct dir_label *l, const char *name, const json_t *value, bool number)
{
    json_int_t n = json_integer_value(value);
    (void)snprintf(l->name, sizeof l->name, "%s", name);
    if (!parse_is_name(slice_of(name, strlen(name)))) {
        return false;
    }
    if (number) {
        (void)snprintf(l->value, sizeof l->value, "%" PRId64, (int64_t)n);
        return json_is_integer(value) && n >= 0 && (uint64_t)n <= PARSE_INT_MAX;
    }
    size_t len = json_string_length(value);
    bool good = json_is_string(value) && len > 0 && len <= DIR_NAME_MAX &&
                strlen(json_string_value(value)) == len;
    if (good) {
        memcpy(l->value, json_string_value(value), len + 1);
    }
    return good;
}

static uint32_t
take_labels(struct json_in *in, const char *member, bool numbers, struct dir_label *labels)
{
    json_t *given = json_in_object(in, member, false), *value;
    struct json_in inner;
    const char *name;
    uint32_t count = 0;
    if (given == NULL) {
        return 0;
    }
    if (json_object_size(given) > DIR_LABELS_MAX) {
        json_in_fail(in, member, ERR_INVALID_REQUEST, "at most %d of them", DIR_LABELS_MAX);
        return 0;
    }
    json_in_open_member(&inner, in, given, member);
    json_object_foreach(given, name, value)
    {
        if (!take_label(&labels[count++], name, value, numbers)) {
            json_in_fail(&inner, name, ERR_INVALID_REQUEST,
                         numbers ? "must be a name and an integer"
                                 : "must be a name and a text of 1 to 63 bytes");
            in->code = inner.code;
            return 0;
        }
    }
    return count;
}

static void read_added(struct json_in *in, struct whatif_added *a)
{
    bool present;
    take_name(in, "name", true, &a->name);
    take_name(in, "like", false, &a->like);
    a->count = json_in_u64(in, "count", false, 1, WHATIF_NODES_MAX, &present);
    a->label_count = take_labels(in, "labels", false, a->labels);
    a->capacity_count = take_labels(in, "capacity", true, a->capacity);
    if (a->like.text[0] != '\0' && a->label_count + a->capacity_count > 0) {
        json_in_fail(in, "like", ERR_INVALID_REQUEST, "brings labels and capacity itself");
    }
    if (strlen(a->name.text) > DIR_NAME_MAX - 8 && a->count > 0) {
        json_in_fail(in, "name", ERR_INVALID_REQUEST, "is too long for a number at its end");
    }
}

static void read_scale(struct json_in *in, struct whatif_scale *s)
{
    take_name(in, "keyspace", false, &s->keyspace);
    s->factor_ppm = json_in_u64(in, "factor_ppm", true, 0, WHATIF_FACTOR_MAX, NULL);
}

/* The objects of an array, each by `fn(in, into)`. */
static uint32_t read_each(struct json_in *in,
                          const char *member,
                          json_t *list,
                          void (*fn)(struct json_in *in, char *into),
                          char *into,
                          size_t size)
{
    json_t *value;
    size_t i;
    json_array_foreach(list, i, value)
    {
        struct json_in item;
        json_in_open_element(&item, in, value, member, i);
        fn(&item, into + i * size);
        if (json_in_close(&item) != ERR_OK) {
            in->code = item.code;
            return 0;
        }
    }
    return (uint32_t)json_array_size(list);
}

static void each_added(struct json_in *in, char *into)
{
    read_added(in, (struct whatif_added *)(void *)into);
}

static void each_scale(struct json_in *in, char *into)
{
    read_scale(in, (struct whatif_scale *)(void *)into);
}

static void read_policy(struct json_in *in, struct whatif *w)
{
    json_t *given = json_in_object(in, "policy", false);
    struct balancer_patch patch;
    struct json_in inner;
    if (given == NULL || in->code != ERR_OK) {
        return;
    }
    json_in_open_member(&inner, in, given, "policy");
    balancer_read_patch(&inner, &patch);
    in->code = json_in_close(&inner);
    size_t len = in->code == ERR_OK ? cadastre__balancer_patch__get_packed_size(&patch.m) : 0;
    if (len > 0 && buf_reserve(&w->policy, len)) {
        w->policy.len = cadastre__balancer_patch__pack(&patch.m, w->policy.data);
    }
}

static void read_changes(struct json_in *in, struct whatif *w)
{
    json_t *added = json_in_array(in, "nodes_added", false, 0, WHATIF_NODES_MAX);
    json_t *scaled = json_in_array(in, "load_scaled", false, 0, WHATIF_SCALES_MAX);
    if (added != NULL) {
        w->added = mem_zalloc((json_array_size(added) + 1) * sizeof w->added[0]);
        w->added_count =
            read_each(in, "nodes_added", added, each_added, (char *)w->added, sizeof w->added[0]);
    }
    if (scaled != NULL && in->code == ERR_OK) {
        w->scale_count = read_each(in, "load_scaled", scaled, each_scale, (char *)w->scales,
                                   sizeof w->scales[0]);
    }
    w->lost = take_names(in, "nodes_lost", &w->lost_count);
    w->drained = take_names(in, "nodes_drained", &w->drained_count);
    struct slice zone = json_in_string(in, "zone_lost", false, 1, DIR_NAME_MAX);
    if (zone.len > 0) {
        memcpy(w->zone.text, zone.data, zone.len);
    }
    if (strlen(w->zone.text) != zone.len) {
        json_in_fail(in, "zone_lost", ERR_INVALID_REQUEST, "must not hold NUL");
    }
    read_policy(in, w);
}

enum err_code whatif_read(json_t *body, struct whatif *ret, struct err *e)
{
    struct json_in in, changes;
    bool has_hours, has_seed;
    whatif_init(ret);
    json_in_open(&in, body, "", e);
    uint64_t hours = json_in_u64(&in, "hours", false, 1, WHATIF_HOURS_MAX, &has_hours);
    uint64_t seed = json_in_u64(&in, "seed", false, 0, PARSE_INT_MAX, &has_seed);
    json_t *given = json_in_object(&in, "changes", false);
    ret->hours = has_hours ? hours : ret->hours;
    ret->seed = has_seed ? seed : ret->seed;
    if (given != NULL && in.code == ERR_OK) {
        json_in_open(&changes, given, "/changes", e);
        read_changes(&changes, ret);
        in.code = json_in_close(&changes);
    }
    enum err_code code = json_in_close(&in);
    if (code != ERR_OK) {
        whatif_close(ret);
    }
    return code;
}

/* --- out --- */

struct putting {
    struct buf *b;
    const struct dir_view *v;
    const struct whatif *w;
    const struct whatif_answer *a;
};

static void put_u64(struct buf *b, const char *member, uint64_t v)
{
    buf_printf(b, "\"%s\":%" PRIu64, member, v);
}

static void put_time(struct buf *b, const char *member, uint64_t ms)
{
    if (ms == UINT64_MAX) {
        buf_printf(b, ",\"%s\":null", member);
    } else {
        buf_printf(b, ",\"%s\":%" PRIu64, member, ms);
    }
}

static void put_text(struct buf *b, const char *member, const char *text)
{
    buf_printf(b, ",\"%s\":", member);
    if (text[0] == '\0') {
        buf_put_str(b, "null");
    } else {
        json_put_cstring(b, text);
    }
}

static void put_keyspace(const struct putting *p, uint64_t keyspace)
{
    const struct dir_keyspace *ks = view_keyspace_by_id(p->v, keyspace);
    buf_put_str(p->b, "\"keyspace\":");
    json_put_cstring(p->b, ks != NULL ? ks->name : "");
}

static void put_totals(const struct putting *p)
{
    const struct whatif_answer *a = p->a;
    const struct {
        const char *member;
        uint64_t value;
    } totals[] = {
        {"moves", a->moves},
        {"replica_moves", a->copies},
        {"transfers", a->transfers},
        {"splits", a->splits},
        {"merges", a->merges},
        {"recoveries", a->recoveries},
        {"failovers", a->failovers},
        {"failed", a->failed},
        {"under_way", a->under_way},
        {"bytes", a->bytes},
        {"recovery_bytes", a->recovery_bytes},
        {"last_ms", a->last_ms},
        {"rounds", a->rounds},
        {"refused", a->refused},
    };
    buf_put_str(p->b, ",\"totals\":{");
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
        buf_put_str(p->b, i > 0 ? "," : "");
        put_u64(p->b, totals[i].member, totals[i].value);
    }
    buf_put_u8(p->b, '}');
}

static void put_budgets(const struct putting *p)
{
    const char *comma = "";
    buf_put_str(p->b, ",\"budgets\":[");
    for (int i = DIR_BUDGET_SOURCE; i <= DIR_BUDGETS; i++) {
        const struct whatif_peak *k = &p->a->peak[i];
        if (k->used.moves == 0 && k->used.bytes_per_s == 0) {
            continue;
        }
        buf_printf(p->b, "%s{\"budget\":\"%s\",", comma, dir_budget_name((enum dir_budget)i));
        put_u64(p->b, "moves", k->used.moves);
        buf_printf(p->b, ",\"moves_limit\":%" PRIu64, k->limit.moves);
        put_text(p->b, "moves_of", k->moves_of);
        if (i != DIR_BUDGET_TRANSFER) {
            buf_printf(p->b, ",\"bytes_per_s\":%" PRIu64 ",\"bytes_per_s_limit\":%" PRIu64,
                       k->used.bytes_per_s, k->limit.bytes_per_s);
            put_text(p->b, "bytes_per_s_of", k->bytes_of);
        }
        buf_put_u8(p->b, '}');
        comma = ",";
    }
    buf_put_u8(p->b, ']');
}

static void put_balance(struct buf *b, const char *member, const struct whatif_balance *s)
{
    buf_printf(b, "\"%s\":{\"resource\":\"%s\",\"max_over_mean_ppm\":%" PRIu64, member,
               fleet_resource_name(s->resource), s->most_ppm);
    put_time(b, "utilisation_ppm", s->said ? s->mean_ppm : UINT64_MAX);
    put_time(b, "utilisation_max_ppm", s->said ? s->worst_ppm : UINT64_MAX);
    buf_printf(b, ",\"nodes\":%" PRIu64 ",\"unavailable\":%" PRIu64 "}", s->nodes, s->unserved);
}

static void put_load(struct buf *b, const char *member, const struct whatif_load *l, bool said)
{
    buf_printf(b, ",\"%s\":{\"serves\":%s,\"level_ppm\":%" PRIu64, member,
               l->serves ? "true" : "false", l->level_ppm);
    put_time(b, "utilisation_ppm", said ? l->utilisation_ppm : UINT64_MAX);
    buf_printf(b,
               ",\"requests_per_s\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"primaries\":%" PRIu32
               ",\"replicas\":%" PRIu32 "}",
               l->requests / 1000, l->bytes, l->primaries, l->copies);
}

static void put_nodes(const struct putting *p)
{
    buf_put_str(p->b, ",\"nodes\":[");
    for (uint64_t i = 0; i < p->a->node_count; i++) {
        const struct whatif_node *n = &p->a->nodes[i];
        buf_printf(p->b, "%s{\"node\":", i > 0 ? "," : "");
        json_put_cstring(p->b, n->name.text);
        put_text(p->b, "change",
                 n->added     ? "added"
                 : n->lost    ? "lost"
                 : n->drained ? "drained"
                              : "");
        put_load(p->b, "before", &n->before, p->a->before.said);
        put_load(p->b, "after", &n->after, p->a->after.said);
        buf_put_u8(p->b, '}');
    }
    buf_put_u8(p->b, ']');
}

static void put_step(const struct putting *p, const struct whatif_step *s)
{
    struct buf *b = p->b;
    buf_printf(b, "{\"kind\":\"%s\",", s->kind);
    put_keyspace(p, s->keyspace);
    buf_printf(b, ",\"partition\":%" PRIu64, s->partition);
    put_time(b, "with", s->with != 0 ? s->with : UINT64_MAX);
    put_text(b, "from", s->from.text);
    put_text(b, "to", s->to.text);
    put_text(b, "role", s->role != 0 ? dir_role_name((enum dir_role)s->role) : "");
    put_text(b, "class", dir_class_name(s->class_of));
    put_text(b, "reason", s->reason);
    put_text(b, "state", dir_operation_state_name((enum dir_operation_state)s->state));
    put_time(b, "bytes", s->bytes);
    put_time(b, "queued_ms", s->queued_ms);
    put_time(b, "begin_ms", s->begin_ms);
    put_time(b, "end_ms", s->end_ms);
    buf_put_u8(b, '}');
}

static uint64_t left_out(uint64_t count, uint64_t max)
{
    return count > max ? count - max : 0;
}

static void put_plan(const struct putting *p)
{
    buf_put_str(p->b, ",\"plan\":[");
    for (uint64_t i = 0; i < p->a->step_count && i < WHATIF_STEPS_MAX; i++) {
        buf_put_str(p->b, i > 0 ? "," : "");
        put_step(p, &p->a->steps[i]);
    }
    buf_put_str(p->b, "],");
    put_u64(p->b, "plan_left_out", left_out(p->a->step_count, WHATIF_STEPS_MAX));
}

static void put_problems(struct buf *b, unsigned problems)
{
    static const char *const names[] = {"under_replicated", "unavailable", "surplus",  "misplaced",
                                        "crowded",          "drains",      "dead_copy"};
    const char *comma = "";
    buf_put_str(b, ",\"problems\":[");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if ((problems >> i & 1) != 0) {
            buf_printf(b, "%s\"%s\"", comma, names[i]);
            comma = ",";
        }
    }
    buf_put_u8(b, ']');
}

static void put_unplaced(const struct putting *p)
{
    buf_put_str(p->b, ",\"unplaced\":[");
    for (uint64_t i = 0; i < p->a->unplaced_count && i < WHATIF_UNPLACED_MAX; i++) {
        const struct whatif_unplaced *u = &p->a->unplaced[i];
        buf_put_str(p->b, i > 0 ? ",{" : "{");
        put_keyspace(p, u->keyspace);
        buf_printf(p->b, ",\"partition\":%" PRIu64, u->partition);
        put_problems(p->b, u->problems);
        put_text(p->b, "code", u->code);
        put_text(p->b, "detail", u->detail);
        buf_put_u8(p->b, '}');
    }
    buf_put_str(p->b, "],");
    put_u64(p->b, "unplaced_left_out", left_out(p->a->unplaced_count, WHATIF_UNPLACED_MAX));
}

static void put_reason(struct buf *b, unsigned reason)
{
    buf_printf(b, "{\"code\":\"%s\",\"text\":", bal_reason_slug((enum bal_reason)reason));
    json_put_cstring(b, bal_reason_text((enum bal_reason)reason));
}

static void put_advice(const struct putting *p)
{
    const char *comma = "";
    buf_put_str(p->b, ",\"advice\":[");
    for (uint64_t i = 0; i < p->a->advice_count && i < WHATIF_ADVICE_MAX; i++) {
        const struct whatif_advice *one = &p->a->advice[i];
        buf_put_str(p->b, i > 0 ? "," : "");
        put_reason(p->b, one->reason);
        buf_put_u8(p->b, ',');
        put_keyspace(p, one->keyspace);
        buf_printf(p->b, ",\"partition\":%" PRIu64 ",\"first_ms\":%" PRIu64 "}", one->partition,
                   one->at_ms);
    }
    buf_put_str(p->b, "],\"turned_down\":[");
    for (unsigned r = BAL_REASON_NONE + 1; r < BAL_REASON_COUNT; r++) {
        if (p->a->turned_down[r] > 0) {
            buf_put_str(p->b, comma);
            put_reason(p->b, r);
            buf_printf(p->b, ",\"count\":%" PRIu32 "}", p->a->turned_down[r]);
            comma = ",";
        }
    }
    buf_put_u8(p->b, ']');
}

static void put_findings(const struct putting *p)
{
    buf_put_str(p->b, ",\"findings\":[");
    for (uint64_t i = 0; i < p->a->finding_count && i < WHATIF_FINDINGS_MAX; i++) {
        buf_put_str(p->b, i > 0 ? "," : "");
        json_put_cstring(p->b, p->a->findings[i]);
    }
    buf_put_str(p->b, "],");
    put_u64(p->b, "findings_left_out", left_out(p->a->finding_count, WHATIF_FINDINGS_MAX));
}

void whatif_put(struct buf *b,
                const struct dir_view *v,
                const struct whatif *w,
                const struct whatif_answer *a)
{
    struct putting p = {b, v, w, a};
    buf_put_u8(b, '{');
    put_u64(b, "seed", w->seed);
    buf_printf(b, ",\"hours\":%" PRIu64 ",\"virtual_ms\":%" PRIu64 ",\"settled\":%s", w->hours,
               a->virtual_ms, a->end == WHATIF_SETTLED ? "true" : "false");
    put_text(b, "truncated",
             a->end == WHATIF_OUT_OF_HOURS ? "hours"
             : a->end == WHATIF_STOPPED    ? "time"
                                           : "");
    buf_printf(b, ",\"breaker\":%s", a->breaker ? "true" : "false");
    put_totals(&p);
    put_budgets(&p);
    buf_put_str(b, ",\"load\":{");
    put_balance(b, "before", &a->before);
    buf_put_u8(b, ',');
    put_balance(b, "after", &a->after);
    buf_put_u8(b, '}');
    put_nodes(&p);
    put_plan(&p);
    put_unplaced(&p);
    put_advice(&p);
    put_findings(&p);
    buf_printf(b, ",\"revision\":%" PRIu64 "}", a->revision);
}
