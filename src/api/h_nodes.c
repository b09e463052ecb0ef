/* SPDX-License-Identifier: Apache-2.0 */
/* Data nodes: list, one, register, remove, keep from taking anything. */
#include "api/endpoints.h"

#include "api/repair_json.h"
#include "api/task_json.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- how many copies, by role --- */

struct role_counts {
    uint64_t node;
    uint64_t of[DIR_ROLE_JOINING + 1];
};

static int count_order(const void *a, const void *b)
{
    uint64_t x = ((const struct role_counts *)a)->node, y = ((const struct role_counts *)b)->node;
    return x < y ? -1 : x > y;
}

static const struct role_counts *
count_find(const struct role_counts *counts, size_t n, uint64_t node)
{
    struct role_counts key = {.node = node};
    return n > 0 ? bsearch(&key, counts, n, sizeof counts[0], count_order) : NULL;
}

/* Sorts `counts` by node and fills them in one pass over all partitions; false when there are too
 * many of these. */
static bool count_roles(const struct dir_view *v, struct role_counts *counts, size_t n)
{
    struct ptree_iter it;
    const struct dir_partition *p;
    if (v->partitions.count > API_COUNTED_MAX) {
        return false;
    }
    qsort(counts, n, sizeof counts[0], count_order);
    ptree_seek(&v->partitions, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        for (unsigned i = 0; i < p->replica_count; i++) {
            struct role_counts key = {.node = p->replicas[i].node};
            struct role_counts *c = bsearch(&key, counts, n, sizeof counts[0], count_order);
            if (c != NULL) {
                c->of[p->replicas[i].role]++;
            }
        }
    }
    return true;
}

/* --- out --- */

static void put_labels(struct buf *b, const struct dir_label *labels, uint32_t n, bool numbers)
{
    buf_put_u8(b, '{');
    for (uint32_t i = 0; i < n; i++) {
        buf_printf(b, i > 0 ? ",\"%s\":" : "\"%s\":", labels[i].name);
        if (numbers) {
            buf_put_str(b, labels[i].value);
        } else {
            json_put_cstring(b, labels[i].value);
        }
    }
    buf_put_u8(b, '}');
}

static const char *scheduling_name(uint8_t scheduling)
{
    static const char *const names[] = {"open", "cordoned", "draining", "quarantined"};
    return scheduling < 4 ? names[scheduling] : "open";
}

/* A leader's own count says how much of the lease is left. */
static void put_lease(struct buf *b, const struct dir_node *n, uint64_t left_ms)
{
    if (n->is_static) {
        buf_put_str(b, "\"static\"");
    } else if (n->ended) {
        buf_put_str(b, "null");
    } else {
        buf_printf(b, "{\"lease_ms\":%" PRIu32, n->lease_ms);
        if (left_ms != UINT64_MAX) {
            buf_printf(b, ",\"remaining_ms\":%" PRIu64, left_ms);
        }
        buf_put_u8(b, '}');
    }
}

static void put_distrust(struct buf *b, const struct dir_settings *s, const struct dir_node *n)
{
    uint64_t until_ms = view_node_distrusted_until(s, n);
    buf_printf(b, ",\"lapses\":%u,\"distrusted_until\":", n->lapses);
    if (until_ms > clock_wall_ms()) {
        json_put_time(b, until_ms);
    } else {
        buf_put_str(b, "null");
    }
}

/* `counts` NULL: only the total is said. */
static void put_node_open(struct exchange *x,
                          const struct dir_node *n,
                          const struct dir_settings *settings,
                          const struct role_counts *counts)
{
    static const char *const states[] = {"up", "suspect", "down"};
    struct buf *b = exchange_out(x);
    uint64_t left_ms;
    enum control_node_state state =
        control_node_state(exchange_api(x)->control, n, settings->heartbeat_ms, &left_ms);
    buf_printf(b, "{\"node\":\"%s\",\"address\":", n->name);
    json_put_cstring(b, n->address);
    buf_printf(b, ",\"state\":\"%s\",\"scheduling\":\"%s\",\"lease\":", states[state],
               scheduling_name(n->scheduling));
    put_lease(b, n, left_ms);
    buf_put_str(b, ",\"labels\":");
    put_labels(b, n->tags, n->label_count, false);
    buf_put_str(b, ",\"capacity\":");
    put_labels(b, dir_node_capacity(n), n->capacity_count, true);
    put_distrust(b, settings, n);
    buf_printf(b, ",\"session\":%" PRIu64 ",\"partitions\":{\"total\":%" PRIu64, n->session,
               n->partition_count);
    if (counts != NULL) {
        buf_printf(b, ",\"primary\":%" PRIu64 ",\"sync\":%" PRIu64 ",\"async\":%" PRIu64,
                   counts->of[DIR_ROLE_PRIMARY], counts->of[DIR_ROLE_SYNC],
                   counts->of[DIR_ROLE_ASYNC]);
    }
    buf_printf(b, "},\"created_revision\":%" PRIu64 ",\"mod_revision\":%" PRIu64, n->created,
               n->mod_revision);
}

static void get_one(struct exchange *x, const struct dir_view *v)
{
    const struct dir_node *n = view_node(v, exchange_path(x, 0));
    struct buf *out = exchange_out(x);
    struct role_counts counts = {0};
    bool counted;
    if (n == NULL) {
        reply_missing(x, v, ERR_NODE_NOT_FOUND, "there is no node of this name");
        return;
    }
    counts.node = n->id;
    counted = count_roles(v, &counts, 1);
    put_node_open(x, n, &v->settings, counted ? &counts : NULL);
    repair_json_put_drain(out, v, n);
    load_put_node(out, control_loads(exchange_api(x)->control), v, n, true);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", v->revision);
    reply_read(x, v->revision);
}

void h_node_get(struct exchange *x)
{
    read_begin(x, get_one);
}

static void put_page(struct exchange *x, struct listing *l)
{
    struct buf *out = exchange_out(x);
    const struct ptree *all = &l->view->nodes_by_name;
    struct slice from = slice_of(l->position, l->position_len), name;
    struct role_counts *counts = mem_zalloc((l->limit + 1) * sizeof *counts);
    const struct dir_node *n;
    struct ptree_iter it;
    bool counted;
    ptree_seek(all, from, &it);
    for (; (n = ptree_iter_get(&it, NULL)) != NULL && l->count < l->limit; ptree_iter_next(&it)) {
        counts[l->count++].node = n->id;
    }
    counted = count_roles(l->view, counts, l->count);
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"nodes\":[", l->revision);
    ptree_seek(all, from, &it);
    for (uint64_t i = 0; i < l->count; i++, ptree_iter_next(&it)) {
        n = ptree_iter_get(&it, NULL);
        if (i > 0) {
            buf_put_u8(out, ',');
        }
        put_node_open(x, n, &l->view->settings,
                      counted ? count_find(counts, l->count, n->id) : NULL);
        load_put_node(out, control_loads(exchange_api(x)->control), l->view, n, false);
        buf_put_u8(out, '}');
    }
    buf_put_u8(out, ']');
    if (ptree_iter_get(&it, &name) != NULL) {
        listing_next(x, l, name);
    }
    buf_put_u8(out, '}');
    mem_free(counts);
}

static void get_list(struct exchange *x, const struct dir_view *v)
{
    struct listing l;
    (void)v;
    if (listing_begin(x, LIST_NODES, NULL, true, &l)) {
        put_page(x, &l);
        reply_read(x, l.revision);
        listing_end(&l);
    }
}

void h_nodes_list(struct exchange *x)
{
    read_begin(x, get_list);
}

/* --- register: the answer names what the node holds --- */

struct grants_job {
    struct job job;
    uint64_t node;
    dir_rev revision, session;
    uint64_t heartbeat_ms;
    uint32_t lease_ms;
};

static void put_session(struct buf *out, const struct grants_job *j)
{
    buf_printf(out,
               "{\"session\":%" PRIu64 ",\"lease_ms\":%" PRIu32 ",\"heartbeat_ms\":%" PRIu64
               ",\"revision\":%" PRIu64 ",\"partitions\":",
               j->session, j->lease_ms, j->heartbeat_ms, j->revision);
}

/* What it held at the revision of its registration and still holds so: what changed since then is
 * newer than the revision that the answer names. */
static void grants_work(struct job *job)
{
    struct grants_job *j = (struct grants_job *)(void *)job;
    const struct dir_view *v = view_pin(control_published(job->api->control));
    const struct dir_node *n = view_node_by_id(v, j->node);
    put_session(&job->out, j);
    if (n != NULL) {
        tasks_put(&job->out, v, n, 0, j->revision);
    } else {
        buf_put_str(&job->out, "[]");
    }
    buf_put_u8(&job->out, '}');
    view_unpin(v);
}

static void grants_answer(struct exchange *x, struct job *job)
{
    buf_put(exchange_out(x), job->out.data, job->out.len);
    exchange_reply(x, 200, NULL);
}

static void
render_registered(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    struct grants_job like = {.session = r->session, .revision = r->revision}, *j;
    (void)m;
    like.heartbeat_ms = view_enter(api_slot(x))->settings.heartbeat_ms;
    view_leave();
    if (r->node != NULL) {
        like.lease_ms = r->node->lease_ms;
        like.node = r->node->id;
    }
    if (r->node == NULL || r->node->partition_count == 0) {
        put_session(out, &like);
        buf_put_str(out, "[]}");
        exchange_reply(x, 200, NULL);
        return;
    }
    j = job_new(x, sizeof *j);
    j->job.work = grants_work;
    j->job.answer = grants_answer;
    j->node = like.node;
    j->session = like.session;
    j->revision = like.revision;
    j->lease_ms = like.lease_ms;
    j->heartbeat_ms = like.heartbeat_ms;
    job_start(x, &j->job);
}

struct registration {
    Cadastre__NodePut put;
    Cadastre__Label labels[2 * DIR_LABELS_MAX];
    Cadastre__Label *label_of[2 * DIR_LABELS_MAX];
    Cadastre__Copy *copies, **copy_of;
    char numbers[DIR_LABELS_MAX][24];
    char name[DIR_NAME_MAX + 1];
};

/* One label or capacity; false when its type or value is wrong. */
static bool
read_value(struct registration *r, Cadastre__Label *label, const json_t *value, size_t i)
{
    struct buf text = {.data = (uint8_t *)r->numbers[i], .cap = 24, .max = 24};
    json_int_t number = json_integer_value(value);
    if (label >= r->labels + DIR_LABELS_MAX) {
        if (!json_is_integer(value) || number < 0 || (uint64_t)number > PARSE_INT_MAX) {
            return false;
        }
        buf_put_u64_dec(&text, (uint64_t)number);
        buf_put_u8(&text, '\0');
        label->value = r->numbers[i];
        return true;
    }
    label->value = text_lent(json_string_value(value));
    return json_is_string(value) && json_string_length(value) > 0 &&
           json_string_length(value) <= DIR_NAME_MAX &&
           strlen(json_string_value(value)) == json_string_length(value);
}

static size_t read_labels(struct mutation *m, struct registration *r, const char *member)
{
    json_t *given = json_in_object(&m->in, member, false), *value;
    size_t first = strcmp(member, "capacity") == 0 ? DIR_LABELS_MAX : 0, n = 0;
    struct json_in in;
    const char *name;
    if (given == NULL) {
        return 0;
    }
    if (json_object_size(given) > DIR_LABELS_MAX) {
        json_in_fail(&m->in, member, ERR_INVALID_REQUEST, "at most %d of them", DIR_LABELS_MAX);
        return 0;
    }
    json_in_open(&in, given, first > 0 ? "/capacity" : "/labels", &m->err);
    json_object_foreach(given, name, value)
    {
        Cadastre__Label *label = &r->labels[first + n];
        cadastre__label__init(label);
        label->name = text_lent(name);
        if (!parse_is_name(slice_of(name, strlen(name))) || !read_value(r, label, value, n)) {
            json_in_fail(&in, name, ERR_INVALID_REQUEST,
                         first > 0 ? "must be a name and an integer"
                                   : "must be a name and a text of 1 to 63 bytes");
            m->in.code = in.code;
            return 0;
        }
        r->label_of[first + n++] = label;
    }
    return n;
}

/* What an agent says of its data directory. */
static void read_copies(struct exchange *x, struct mutation *m, struct registration *r)
{
    bool present = false;
    r->put.previous_session =
        json_in_u64(&m->in, "previous_session", false, 0, PARSE_INT_MAX, &present);
    json_t *copies = json_in_array(&m->in, "copies", false, 0, API_BATCH_MAX);
    if (copies == NULL || m->in.code != ERR_OK) {
        return;
    }
    r->put.has_copies = true;
    r->copies = exchange_alloc(x, (json_array_size(copies) + 1) * sizeof *r->copies);
    r->copy_of = exchange_alloc(x, (json_array_size(copies) + 1) * sizeof(Cadastre__Copy *));
    r->put.copies = r->copy_of;
    for (size_t i = 0; i < json_array_size(copies) && m->in.code == ERR_OK; i++) {
        json_t *item = json_array_get(copies, i);
        Cadastre__Copy *copy = &r->copies[i];
        struct json_in in;
        cadastre__copy__init(copy);
        char base[32];
        (void)snprintf(base, sizeof base, "/copies/%zu", i);
        json_in_open(&in, item, base, &m->err);
        struct slice keyspace = json_in_name(&in, "keyspace", true);
        copy->partition = json_in_u64(&in, "partition", true, 0, PARSE_INT_MAX, NULL);
        copy->copy = json_in_u64(&in, "copy", true, 0, PARSE_INT_MAX, NULL);
        m->in.code = json_in_close(&in);
        if (m->in.code == ERR_OK) {
            copy->keyspace = text_lent((const char *)keyspace.data);
            r->copy_of[r->put.n_copies++] = copy;
        }
    }
}

static void read_address(struct mutation *m, struct registration *r)
{
    struct slice address = json_in_string(&m->in, "address", true, 1, DIR_ADDRESS_MAX);
    for (size_t i = 0; i < address.len; i++) {
        if (address.data[i] <= 0x20 || address.data[i] >= 0x7f) {
            json_in_fail(&m->in, "address", ERR_INVALID_REQUEST,
                         "must be visible ASCII characters");
            return;
        }
    }
    r->put.address = text_lent((const char *)address.data);
}

void h_node_put(struct exchange *x)
{
    static const char *const leases[] = {"static", NULL};
    struct mutation *m = mutation_begin(x, "node_put", render_registered);
    struct slice name;
    struct registration *r;
    if (m == NULL) {
        return;
    }
    name = exchange_path(x, 0);
    if (!parse_is_name(name)) {
        reply_problem(x, ERR_INVALID_REQUEST,
                      "the node's name must be [a-z0-9]([a-z0-9._-]{0,62})");
        return;
    }
    r = exchange_alloc(x, sizeof *r);
    memset(r, 0, sizeof *r);
    cadastre__node_put__init(&r->put);
    memcpy(r->name, name.data, name.len);
    r->put.name = r->name;
    read_address(m, r);
    r->put.is_static = json_in_enum(&m->in, "lease", false, leases, -1) == 0;
    read_copies(x, m, r);
    r->put.n_labels = read_labels(m, r, "labels");
    r->put.labels = r->label_of;
    r->put.n_capacity = read_labels(m, r, "capacity");
    r->put.capacity = r->label_of + DIR_LABELS_MAX;
    if (!mutation_close(x, m)) {
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_NODE_PUT;
    m->command.node_put = &r->put;
    mutation_submit(x, m);
}

/* --- remove --- */

void h_node_delete(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "node_delete", render_revision);
    Cadastre__NodeDelete *command;
    char *name;
    bool force = false;
    struct slice given;
    if (m == NULL || !mutation_close(x, m) || !param_flag(x, "force", &force)) {
        return;
    }
    given = exchange_path(x, 0);
    if (!parse_is_name(given)) {
        reply_problem(x, ERR_NODE_NOT_FOUND, "there is no node of this name");
        return;
    }
    name = exchange_alloc(x, given.len + 1);
    memcpy(name, given.data, given.len);
    name[given.len] = '\0';
    command = exchange_alloc(x, sizeof *command);
    cadastre__node_delete__init(command);
    command->name = name;
    command->force = force;
    m->command.body_case = CADASTRE__COMMAND__BODY_NODE_DELETE;
    m->command.node_delete = command;
    mutation_submit(x, m);
}

/* --- scheduling --- */

static void
render_scheduling(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    if (r->node == NULL) {
        render_revision(x, m, r);
        return;
    }
    put_node_open(x, r->node, &view_enter(api_slot(x))->settings, NULL);
    view_leave();
    buf_printf(exchange_out(x), ",\"revision\":%" PRIu64 "}", r->revision);
    exchange_reply(x, 200, NULL);
}

static void schedule(struct exchange *x, const char *verb, Cadastre__SchedulingVerb what)
{
    struct mutation *m = mutation_begin(x, verb, render_scheduling);
    Cadastre__NodeScheduling *command;
    struct slice given = exchange_path(x, 0), reason;
    char *name;
    if (m == NULL) {
        return;
    }
    reason = json_in_string(&m->in, "reason", false, 0, DIR_TEXT_MAX);
    if (reason.data != NULL && strlen((const char *)reason.data) != reason.len) {
        json_in_fail(&m->in, "reason", ERR_INVALID_REQUEST, "must not hold NUL");
    }
    if (!mutation_close(x, m)) {
        return;
    }
    if (!parse_is_name(given)) {
        reply_problem(x, ERR_NODE_NOT_FOUND, "there is no node of this name");
        return;
    }
    name = exchange_alloc(x, given.len + 1);
    memcpy(name, given.data, given.len);
    name[given.len] = '\0';
    command = exchange_alloc(x, sizeof *command);
    cadastre__node_scheduling__init(command);
    command->node = name;
    command->verb = what;
    command->reason = text_lent(reason.data != NULL ? (const char *)reason.data : "");
    m->command.body_case = CADASTRE__COMMAND__BODY_NODE_SCHEDULING;
    m->command.node_scheduling = command;
    mutation_submit(x, m);
}

void h_node_cordon(struct exchange *x)
{
    schedule(x, "cordon", CADASTRE__SCHEDULING_VERB__CORDON);
}

void h_node_uncordon(struct exchange *x)
{
    schedule(x, "uncordon", CADASTRE__SCHEDULING_VERB__UNCORDON);
}

void h_node_drain(struct exchange *x)
{
    schedule(x, "drain", CADASTRE__SCHEDULING_VERB__DRAIN);
}

void h_node_quarantine(struct exchange *x)
{
    schedule(x, "quarantine", CADASTRE__SCHEDULING_VERB__QUARANTINE);
}

void h_node_unquarantine(struct exchange *x)
{
    schedule(x, "unquarantine", CADASTRE__SCHEDULING_VERB__UNQUARANTINE);
}
