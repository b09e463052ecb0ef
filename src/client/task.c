/* SPDX-License-Identifier: Apache-2.0 */
#include "client/task.h"

#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* An id is a text or a number. */
static void read_id(const json_t *json, const char *name, char *out, size_t size)
{
    uint64_t number;
    if (!cl_json_text(json, name, out, size) && cl_json_u64(json, name, &number)) {
        (void)snprintf(out, size, "%" PRIu64, number);
    }
}

static void read_member(const json_t *json, struct cadastre_member *m)
{
    (void)cl_json_text(json, "node", m->node, sizeof m->node);
    (void)cl_json_text(json, "address", m->address, sizeof m->address);
    (void)cl_json_u64(json, "session", &m->session);
    m->role = cl_role_read(json_object_get(json, "role"));
}

static enum cadastre_task_kind read_kind(const json_t *json)
{
    static const char *const names[] = {"grant", "fence", "revoke", "stage", "cleanup"};
    const char *s = json_string_value(json_object_get(json, "kind"));
    for (unsigned i = 0; s != NULL && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(s, names[i]) == 0) {
            return (enum cadastre_task_kind)(i + 1);
        }
    }
    return (enum cadastre_task_kind)0;
}

static void read_stage(const json_t *json, struct cadastre_task *t)
{
    if (!cl_json_text(json, "stage", t->stage_name, sizeof t->stage_name)) {
        return;
    }
    t->stage = CADASTRE_STAGE_OTHER;
    for (int i = CADASTRE_STAGE_PREPARE; i < CADASTRE_STAGE_OTHER; i++) {
        if (strcmp(t->stage_name, cadastre_stage_name((enum cadastre_stage)i)) == 0) {
            t->stage = (enum cadastre_stage)i;
        }
    }
}

static bool read_must_have(const json_t *json, struct cadastre_task *t)
{
    const json_t *list = json_object_get(json, "must_have");
    size_t n = json_array_size(list);
    if (n > CL_MUST_HAVE_MAX || (list != NULL && !json_is_array(list) && !json_is_null(list))) {
        return false;
    }
    struct cadastre_member *members = mem_zalloc(n * sizeof *members);
    for (size_t i = 0; i < n; i++) {
        read_member(json_array_get(list, i), &members[i]);
        if (members[i].node[0] == '\0') {
            mem_free(members);
            return false;
        }
    }
    t->must_have = members;
    t->must_have_count = n;
    return true;
}

/* As they are written: which encoding that is, the keyspace says. */
static bool read_bound(const json_t *text, const uint8_t **ret, size_t *ret_len)
{
    size_t len = json_string_length(text);
    if ((text != NULL && !json_is_null(text) && !json_is_string(text)) || len > 2 * CL_BOUND_MAX) {
        return false;
    }
    *ret = mem_dup(len > 0 ? json_string_value(text) : "", len);
    *ret_len = len;
    return true;
}

static bool read_bounds(const json_t *json, struct cadastre_task *t)
{
    const json_t *end = json_object_get(json, "end");
    t->end_open = end == NULL || json_is_null(end);
    return read_bound(json_object_get(json, "start"), &t->start, &t->start_len) &&
           read_bound(end, &t->end, &t->end_len);
}

/* Which side of the operation this node is. */
static bool read_is_source(const json_t *json)
{
    const char *side = json_string_value(json_object_get(json, "side"));
    const char *role = json_string_value(json_object_get(json, "role"));
    return json_is_true(json_object_get(json, "is_source")) ||
           (side != NULL && strcmp(side, "source") == 0) ||
           (role != NULL && strcmp(role, "source") == 0);
}

static void read_operation(const json_t *json, struct cadastre_task *t)
{
    read_id(json, "operation", t->operation, sizeof t->operation);
    read_stage(json, t);
    (void)cl_json_text(json, "snapshot", t->snapshot, sizeof t->snapshot);
    t->is_source = read_is_source(json);
    t->reverse = json_is_true(json_object_get(json, "reverse"));
    read_member(json_object_get(json, "peer"), &t->peer);
}

static bool read_parents(const json_t *json, struct cadastre_task *t)
{
    const json_t *list = json_object_get(json, "parents");
    t->parent_count = json_array_size(list);
    for (size_t i = 0; i < t->parent_count && i < CADASTRE_PARENTS_MAX; i++) {
        const json_t *id = json_array_get(list, i);
        t->parents[i] = json_is_integer(id) ? (uint64_t)json_integer_value(id) : 0;
        if (t->parents[i] == 0) {
            return false;
        }
    }
    return t->parent_count <= CADASTRE_PARENTS_MAX;
}

static void read_numbers(const json_t *json, struct cadastre_task *t)
{
    const struct {
        const char *name;
        uint64_t *to;
    } numbers[] = {
        {"epoch", &t->epoch},
        {"start_position", &t->start_position},
        {"copy", &t->copy},
        {"attempt", &t->attempt},
        {"position", &t->position},
        {"final_position", &t->final_position},
        {"validate_at", &t->validate_at},
        {"rate_bytes_per_s", &t->rate_bytes_per_s},
    };
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        *numbers[i].to = CADASTRE_NONE;
        (void)cl_json_u64(json, numbers[i].name, numbers[i].to);
    }
}

static bool grant_ok(const struct cadastre_task *t)
{
    bool primary = t->role == CADASTRE_ROLE_PRIMARY;
    return t->role != CADASTRE_ROLE_NONE && t->epoch != CADASTRE_NONE && t->epoch > 0 &&
           (!primary || t->authority != 0);
}

struct cadastre_task *cl_task_read(const json_t *json)
{
    struct cadastre_task *t = mem_zalloc(sizeof *t);
    t->kind = read_kind(json);
    read_id(json, "id", t->id, sizeof t->id);
    if (t->kind == CADASTRE_CLEANUP) {
        t->duty = CADASTRE_NONE;
        (void)cl_json_u64(json, "duty", &t->duty);
    }
    t->role = cl_role_read(json_object_get(json, "role"));
    t->authority = cl_authority_read(json_object_get(json, "authority"));
    t->fenced = json_is_true(json_object_get(json, "fenced"));
    read_numbers(json, t);
    read_operation(json, t);
    (void)cl_json_u64(json, "session", &t->session);
    bool ok = t->kind != 0 && cl_json_u64(json, "revision", &t->revision) &&
              cl_json_u64(json, "partition", &t->partition) &&
              cl_json_text(json, "keyspace", t->keyspace, sizeof t->keyspace);
    ok = ok && read_must_have(json, t) && read_bounds(json, t) && read_parents(json, t);
    ok = ok && (t->kind != CADASTRE_GRANT || grant_ok(t)) &&
         (t->kind != CADASTRE_CLEANUP || t->duty != CADASTRE_NONE);
    if (!ok) {
        cadastre_task_free(t);
        return NULL;
    }
    return t;
}

struct cadastre_task *cadastre_task_copy(const struct cadastre_task *task)
{
    struct cadastre_task *t = mem_dup(task, sizeof *task);
    t->start = mem_dup(task->start, task->start_len);
    t->end = mem_dup(task->end, task->end_len);
    t->must_have = mem_dup(task->must_have, task->must_have_count * sizeof *task->must_have);
    return t;
}

static void free_const(const void *p)
{
    union {
        const void *in;
        void *out;
    } u = {p};
    mem_free(u.out);
}

void cadastre_task_free(struct cadastre_task *t)
{
    if (t != NULL) {
        free_const(t->start);
        free_const(t->end);
        free_const(t->must_have);
        mem_free(t);
    }
}
