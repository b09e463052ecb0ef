/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/moves.h"

#include "directory/internal.h"

#include <stdio.h>
#include <string.h>

const struct dir_result *
moves_node(struct world *w, const char *name, const char *zone, const char *disk)
{
    Cadastre__NodePut m;
    Cadastre__Label labels[2];
    Cadastre__Label *pointers[] = {&labels[0], &labels[1]};
    char address[80];
    cadastre__node_put__init(&m);
    cadastre__label__init(&labels[0]);
    cadastre__label__init(&labels[1]);
    (void)snprintf(address, sizeof address, "%s:9000", name);
    m.name = text_lent(name);
    m.address = address;
    m.previous_session = agent_node(w, name) != NULL ? agent_node(w, name)->session : 0;
    m.n_labels = disk[0] != '\0' ? 2 : 1;
    m.labels = disk[0] != '\0' ? pointers : pointers + 1;
    labels[0].name = text_lent("disk");
    labels[0].value = text_lent(disk);
    labels[1].name = text_lent("zone");
    labels[1].value = text_lent(zone);
    return world_do(w, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
}

struct rules {
    Cadastre__Placement placement;
    Cadastre__Label disk;
    Cadastre__Label *pointer;
};

static void fill(struct rules *r, const struct moves_wish *wish)
{
    cadastre__placement__init(&r->placement);
    cadastre__label__init(&r->disk);
    r->pointer = &r->disk;
    r->disk.name = text_lent("disk");
    r->disk.value = text_lent(wish->disk);
    r->placement.spread = text_lent(wish->spread);
    r->placement.n_require = wish->disk[0] != '\0';
    r->placement.require = &r->pointer;
}

void moves_keyspace(struct world *w, const char *name, const struct moves_wish *wish)
{
    Cadastre__KeyspaceCreate m;
    struct rules rules;
    ProtobufCBinaryData splits[16];
    uint8_t keys[16];
    cadastre__keyspace_create__init(&m);
    fill(&rules, wish);
    for (uint32_t i = 0; i + 1 < wish->partitions && i < 16; i++) {
        keys[i] = (uint8_t)('b' + i);
        splits[m.n_splits++] = (ProtobufCBinaryData){1, &keys[i]};
    }
    m.name = text_lent(name);
    m.scheme = DIR_SCHEME_RANGE;
    m.key_encoding = DIR_ENCODING_UTF8;
    m.authority = DIR_AUTHORITY_EXCLUSIVE;
    m.sync_replicas = wish->sync;
    m.async_replicas = wish->async;
    m.placement = &rules.placement;
    m.splits = splits;
    (void)world_do(w, CADASTRE__COMMAND__BODY_KEYSPACE_CREATE, &m);
}

const struct dir_result *
moves_patch(struct world *w, const char *name, const struct moves_wish *wish)
{
    Cadastre__KeyspacePatch m;
    struct rules rules;
    cadastre__keyspace_patch__init(&m);
    fill(&rules, wish);
    m.keyspace = world_keyspace(w, name)->id;
    m.has_replicas = m.has_placement = true;
    m.sync_replicas = wish->sync;
    m.async_replicas = wish->async;
    m.placement = &rules.placement;
    return world_do(w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m);
}

static const char *name_of(const struct world *w, uint64_t node)
{
    const struct dir_node *n = node != 0 ? view_node_by_id(world_state(w), node) : NULL;
    return n != NULL ? n->name : "";
}

const struct dir_result *
moves_start(struct world *w, const struct dir_partition *p, const struct repair_step *s)
{
    Cadastre__OperationStart m;
    char from[DIR_NAME_MAX + 1], to[DIR_NAME_MAX + 1];
    cadastre__operation_start__init(&m);
    (void)snprintf(from, sizeof from, "%s", name_of(w, s->from));
    (void)snprintf(to, sizeof to, "%s", name_of(w, s->to));
    m.kind = s->kind;
    m.partition = p->id;
    m.from = from;
    m.to = to;
    m.role = s->role;
    m.class_ = s->class_of;
    m.reason = text_lent(s->reason);
    return world_do(w, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
}

static void admit(struct world *w, const struct dir_operation *o)
{
    Cadastre__OperationAdmit m;
    cadastre__operation_admit__init(&m);
    m.operation = o->id;
    m.attempt = o->attempt;
    (void)world_do(w, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m);
}

/* Says everything that any stage may ask for. */
static void tell(struct world *w, const struct dir_operation *o, uint64_t node)
{
    Cadastre__OperationReport m;
    const struct dir_node *n = view_node_by_id(world_state(w), node);
    char name[DIR_NAME_MAX + 1];
    if (n == NULL) {
        return;
    }
    cadastre__operation_report__init(&m);
    (void)snprintf(name, sizeof name, "%s", n->name);
    m.operation = o->id;
    m.node = name;
    m.session = n->session;
    m.attempt = o->attempt;
    m.stage = o->stage;
    m.seq = w->index + 1;
    m.has = UINT64_MAX;
    m.ready = true;
    m.free_bytes = 10000;
    m.snapshot = text_lent("s");
    m.bytes_total = m.bytes_done = 1000;
    m.complete = m.active = m.fenced = true;
    m.from_position = 100;
    m.applied_position = 1000;
    m.at_position = o->validate_at;
    m.items = 5;
    m.checksum = 7;
    m.epoch = o->epoch_before;
    m.final_position = 200;
    (void)world_do(w, CADASTRE__COMMAND__BODY_OPERATION_REPORT, &m);
}

static void end_window(struct world *w, const struct dir_operation *o)
{
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = o->id;
    m.verb = CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION;
    (void)world_do(w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m);
}

void moves_clean(struct world *w)
{
    const struct dir_duty *d;
    struct ptree_iter it;
    dir_rev revision = 0;
    while (revision != world_state(w)->revision) {
        revision = world_state(w)->revision;
        ptree_seek(&world_state(w)->duties, slice_of(NULL, 0), &it);
        for (; (d = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
            const struct dir_node *n = view_node_by_id(world_state(w), d->node);
            if (!view_node_is_live(n)) {
                continue;
            }
            Cadastre__DutyDone m;
            char name[DIR_NAME_MAX + 1];
            cadastre__duty_done__init(&m);
            (void)snprintf(name, sizeof name, "%s", n->name);
            m.duty = d->id;
            m.node = name;
            m.session = n->session;
            m.copy = d->copy;
            (void)world_do(w, CADASTRE__COMMAND__BODY_DUTY_DONE, &m);
            break;
        }
    }
}

void moves_until(struct world *w, uint64_t operation, enum dir_stage stage_wanted)
{
    enum { STEPS = 40 };
    for (int i = 0; i < STEPS; i++) {
        const struct dir_operation *o = view_operation(world_state(w), operation);
        if (o == NULL || o->state >= DIR_OPERATION_DONE || o->stage == stage_wanted) {
            return;
        }
        uint64_t source = o->source, destination = o->destination;
        if (o->stage == DIR_STAGE_QUEUED) {
            admit(w, o);
        } else if (o->stage == DIR_STAGE_WINDOW) {
            end_window(w, o);
        } else if (o->stage == DIR_STAGE_CLEANUP) {
            moves_clean(w);
        } else {
            enum dir_stage stage = o->stage;
            tell(w, o, source);
            o = view_operation(world_state(w), operation);
            if (o->stage == stage) {
                tell(w, o, destination);
            }
        }
    }
}

void moves_finish(struct world *w, uint64_t operation)
{
    moves_until(w, operation, DIR_STAGE_DONE);
}
