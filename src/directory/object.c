/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as bytes: version, kind, then the fields in the order of types.h, little-endian, of fixed
 * size or with their length first (base/wire.h). There is one encoding of a row, because the state
 * hash is over it: decode refuses what encode would not have written. */
#include "base/assert.h"
#include "base/mem.h"
#include "base/wire.h"
#include "directory/directory.h"
#include "directory/internal.h"

#include <inttypes.h>
#include <stddef.h>

enum { ROW_VERSION = 1 };

static void put_u64s(struct buf *b, const uint64_t *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        wire_put_u64(b, values[i]);
    }
}

/* Gives `count` numbers, of which at most `max` may be there; the caller frees them. */
static uint64_t *get_u64s(struct wire_reader *r, uint32_t count, uint32_t max, const char *what)
{
    if (count > max || count > r->rest.len / sizeof(uint64_t)) {
        wire_fail(r, what);
        count = 0;
    }
    uint64_t *values = mem_alloc(count * sizeof *values);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = wire_u64(r);
    }
    return values;
}

static void put_labels(struct buf *b, const struct dir_label *labels, uint32_t count)
{
    wire_put_u32(b, count);
    for (uint32_t i = 0; i < count; i++) {
        wire_put_text(b, labels[i].name);
        wire_put_text(b, labels[i].value);
    }
}

static uint32_t get_labels(struct wire_reader *r, struct dir_label *out, uint32_t max)
{
    uint32_t count = wire_u32(r);
    if (count > max) {
        wire_fail(r, "there are too many labels");
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        wire_text(r, out[i].name, sizeof out[i].name, "a label's name is wrong");
        wire_text(r, out[i].value, sizeof out[i].value, "a label's value is wrong");
    }
    return count;
}

/* The bounds of a partition or a tombstone. */
struct range {
    bool end_open;
    struct slice start, end;
};

static void put_range(struct buf *b, const struct range *range)
{
    buf_put_u8(b, range->end_open);
    wire_put_bytes(b, range->start);
    wire_put_bytes(b, range->end_open ? slice_of(NULL, 0) : range->end);
}

static struct range get_range(struct wire_reader *r)
{
    struct range range;
    range.end_open = wire_bool(r);
    range.start = wire_bytes(r, DIR_ROUTING_KEY_MAX, "the start is too long");
    range.end = wire_bytes(r, DIR_ROUTING_KEY_MAX, "the end is too long");
    if (range.end_open && range.end.len > 0) {
        wire_fail(r, "an open end has a key");
    }
    return range;
}

static void put_rules(struct buf *b, const struct dir_policy *rules)
{
    wire_put_u32(b, rules->set);
    for (uint32_t i = 0; i < DIR_POLICY_VALUES; i++) {
        if ((rules->set >> i & 1) != 0) {
            wire_put_u64(b, rules->values[i]);
        }
    }
    wire_put_u32(b, rules->check_count);
    for (uint32_t i = 0; i < rules->check_count; i++) {
        wire_put_text(b, rules->checks[i]);
    }
}

static void get_rules(struct wire_reader *r, struct dir_policy *out)
{
    out->set = wire_u32(r);
    if (out->set >> DIR_POLICY_VALUES != 0) {
        wire_fail(r, "a value of the policy is unknown");
        out->set = 0;
    }
    for (uint32_t i = 0; i < DIR_POLICY_VALUES; i++) {
        out->values[i] = (out->set >> i & 1) != 0 ? wire_u64(r) : 0;
    }
    out->check_count = wire_u32(r);
    if (out->check_count > DIR_CHECKS_MAX) {
        wire_fail(r, "there are too many checks");
        out->check_count = 0;
    }
    for (uint32_t i = 0; i < out->check_count; i++) {
        wire_text(r, out->checks[i], sizeof out->checks[i], "the name of a check is wrong");
    }
}

static void put_keyspace(struct buf *b, const struct dir_keyspace *k)
{
    wire_put_u64(b, k->id);
    wire_put_text(b, k->name);
    buf_put_u8(b, k->scheme);
    buf_put_u8(b, k->key_encoding);
    buf_put_u8(b, k->authority);
    buf_put_u8(b, k->hidden);
    buf_put_u8(b, k->custom_partition_key);
    buf_put_u8(b, (uint8_t)k->partition_key.delimiter);
    wire_put_u32(b, k->partition_key.fields);
    wire_put_u32(b, k->sync_replicas);
    wire_put_u32(b, k->async_replicas);
    wire_put_u64(b, k->replicas_ms);
    wire_put_u64(b, k->replicas_revision);
    put_labels(b, k->placement.require, k->placement.require_count);
    wire_put_text(b, k->placement.spread);
    put_rules(b, &k->rules);
    wire_put_u64(b, k->created);
    wire_put_u64(b, k->mod_revision);
    wire_put_u64(b, k->created_ms);
    wire_put_long(b, slice_of(k->policy, k->policy_len));
}

static void *get_keyspace(struct wire_reader *r)
{
    struct dir_keyspace k = {.id = wire_u64(r)};
    wire_text(r, k.name, sizeof k.name, "the name is wrong");
    k.scheme = wire_enum(r, DIR_SCHEME_RANGE, DIR_SCHEME_HASH, "the scheme is unknown");
    k.key_encoding = wire_enum(r, DIR_ENCODING_UTF8, DIR_ENCODING_HEX, "the encoding is unknown");
    k.authority =
        wire_enum(r, DIR_AUTHORITY_EXCLUSIVE, DIR_AUTHORITY_AFFINITY, "the authority is unknown");
    k.hidden = wire_bool(r);
    k.custom_partition_key = wire_bool(r);
    k.partition_key.delimiter = (char)wire_u8(r);
    k.partition_key.fields = wire_u32(r);
    k.sync_replicas = wire_u32(r);
    k.async_replicas = wire_u32(r);
    k.replicas_ms = wire_u64(r);
    k.replicas_revision = wire_u64(r);
    k.placement.require_count = get_labels(r, k.placement.require, DIR_REQUIRE_MAX);
    wire_text(r, k.placement.spread, sizeof k.placement.spread, "the spread label is wrong");
    get_rules(r, &k.rules);
    k.created = wire_u64(r);
    k.mod_revision = wire_u64(r);
    k.created_ms = wire_u64(r);
    struct slice policy = wire_long(r, DIR_POLICY_MAX, "the policy is too long");
    k.policy_len = (uint32_t)policy.len;
    struct dir_keyspace *copy = mem_zalloc(sizeof k + policy.len + 1);
    *copy = k;
    if (policy.len > 0) {
        memcpy(copy->policy, policy.data, policy.len);
    }
    copy->policy[policy.len] = '\0';
    return copy;
}

static void put_partition(struct buf *b, const struct dir_partition *p)
{
    struct range range = {p->end_open, dir_partition_start(p), dir_partition_end(p)};
    wire_put_u64(b, p->id);
    wire_put_u64(b, p->keyspace);
    buf_put_u8(b, p->pinned);
    buf_put_u8(b, p->holds_data);
    buf_put_u8(b, p->state);
    buf_put_u8(b, p->cause);
    wire_put_u64(b, p->epoch);
    wire_put_u64(b, p->mod_revision);
    wire_put_u64(b, p->created);
    wire_put_u64(b, p->owner_since_ms);
    wire_put_u64(b, p->rate_limit);
    wire_put_u64(b, p->session);
    wire_put_u64(b, p->home);
    wire_put_u64(b, p->operation);
    if (p->operation != 0) {
        buf_put_u8(b, p->moving);
    }
    wire_put_u64(b, p->start_position);
    wire_put_u64(b, p->under_since_ms);
    buf_put_u8(b, p->replica_count);
    for (uint8_t i = 0; i < p->replica_count; i++) {
        wire_put_u64(b, p->replicas[i].node);
        buf_put_u8(b, p->replicas[i].role);
        buf_put_u8(b, p->replicas[i].asked);
        wire_put_u64(b, p->replicas[i].copy);
    }
    buf_put_u8(b, p->parent_count);
    put_u64s(b, dir_partition_parents(p), p->parent_count);
    put_range(b, &range);
}

static void *get_partition(struct wire_reader *r)
{
    struct dir_replica replicas[DIR_REPLICAS_MAX] = {{0}};
    uint64_t parents[DIR_PARENTS_MAX] = {0};
    struct partition_arrays arrays = {.replicas = replicas, .parents = parents};
    struct dir_partition p = {.id = wire_u64(r), .keyspace = wire_u64(r)};
    p.pinned = wire_bool(r);
    p.holds_data = wire_bool(r);
    p.state = wire_enum(r, DIR_ACTIVE, DIR_UNAVAILABLE, "the state is unknown");
    p.cause = wire_enum(r, DIR_CHANGE_CREATE, DIR_CHANGE_LAST, "the cause is unknown");
    p.epoch = wire_u64(r);
    p.mod_revision = wire_u64(r);
    p.created = wire_u64(r);
    p.owner_since_ms = wire_u64(r);
    p.rate_limit = wire_u64(r);
    p.session = wire_u64(r);
    p.home = wire_u64(r);
    p.operation = wire_u64(r);
    if (p.operation != 0) {
        p.moving = wire_enum(r, DIR_STAGE_QUEUED, DIR_STAGE_FAILED, "the stage is unknown");
    }
    p.start_position = wire_u64(r);
    p.under_since_ms = wire_u64(r);
    arrays.replica_count = wire_enum(r, 0, DIR_REPLICAS_MAX, "there are too many replicas");
    for (uint8_t i = 0; i < arrays.replica_count; i++) {
        replicas[i].node = wire_u64(r);
        replicas[i].role = wire_enum(r, DIR_ROLE_PRIMARY, DIR_ROLE_JOINING, "a role is unknown");
        replicas[i].asked = wire_bool(r);
        replicas[i].copy = wire_u64(r);
    }
    arrays.parent_count = wire_enum(r, 0, DIR_PARENTS_MAX, "there are too many parents");
    for (uint8_t i = 0; i < arrays.parent_count; i++) {
        parents[i] = wire_u64(r);
    }
    struct range range = get_range(r);
    arrays.end_open = range.end_open;
    arrays.start = range.start;
    arrays.end = range.end;
    return partition_new(&p, &arrays);
}

static void put_tombstone(struct buf *b, const struct dir_tombstone *t)
{
    struct range range = {t->end_open, dir_tombstone_start(t), dir_tombstone_end(t)};
    wire_put_u64(b, t->id);
    wire_put_u64(b, t->keyspace);
    buf_put_u8(b, t->cause);
    wire_put_u64(b, t->retired);
    wire_put_u64(b, t->last_epoch);
    put_range(b, &range);
    wire_put_u32(b, t->successor_count);
    put_u64s(b, t->successors, t->successor_count);
}

static void *get_tombstone(struct wire_reader *r)
{
    struct dir_tombstone t = {.id = wire_u64(r), .keyspace = wire_u64(r)};
    t.cause = wire_enum(r, DIR_CHANGE_CREATE, DIR_CHANGE_LAST, "the cause is unknown");
    t.retired = wire_u64(r);
    t.last_epoch = wire_u64(r);
    struct range range = get_range(r);
    uint32_t count = wire_u32(r);
    uint64_t *successors =
        get_u64s(r, count, DIR_SPLIT_KEYS_MAX + 1, "there are too many successors");
    t.successor_count = r->wrong == NULL ? count : 0;
    t.end_open = range.end_open;
    t.start_len = (uint16_t)range.start.len;
    t.end_len = (uint16_t)range.end.len;
    size_t size = t.successor_count * sizeof(uint64_t);
    struct dir_tombstone *copy = mem_alloc(sizeof t + size + range.start.len + range.end.len);
    *copy = t;
    memcpy(copy->successors, successors, size);
    uint8_t *keys = (uint8_t *)(copy->successors + t.successor_count);
    if (range.start.len > 0) {
        memcpy(keys, range.start.data, range.start.len);
    }
    if (range.end.len > 0) {
        memcpy(keys + range.start.len, range.end.data, range.end.len);
    }
    mem_free(successors);
    return copy;
}

static void put_node(struct buf *b, const struct dir_node *n)
{
    wire_put_u64(b, n->id);
    wire_put_text(b, n->name);
    wire_put_text(b, n->address);
    wire_put_u64(b, n->session);
    buf_put_u8(b, n->is_static);
    buf_put_u8(b, n->lost);
    buf_put_u8(b, n->ended);
    buf_put_u8(b, n->scheduling);
    wire_put_u64(b, n->scheduling_ms);
    wire_put_u64(b, n->ended_ms);
    buf_put_u8(b, n->lapses);
    wire_put_u64(b, n->lapsed_ms);
    wire_put_u32(b, n->lease_ms);
    wire_put_u64(b, n->ended_session);
    wire_put_u32(b, n->ended_lease_ms);
    put_labels(b, n->tags, n->label_count);
    put_labels(b, dir_node_capacity(n), n->capacity_count);
    wire_put_u64(b, n->created);
    wire_put_u64(b, n->mod_revision);
    wire_put_u64(b, n->route_revision);
    wire_put_u64(b, n->partition_count);
    wire_put_u64(b, n->task_revision);
}

static void *get_node(struct wire_reader *r)
{
    struct dir_node *n = mem_zalloc(DIR_NODE_SIZE_MAX);
    n->id = wire_u64(r);
    wire_text(r, n->name, sizeof n->name, "the name is wrong");
    wire_text(r, n->address, sizeof n->address, "the address is wrong");
    n->session = wire_u64(r);
    n->is_static = wire_bool(r);
    n->lost = wire_bool(r);
    n->ended = wire_bool(r);
    n->scheduling = wire_enum(r, DIR_OPEN, DIR_QUARANTINED, "the scheduling is unknown");
    n->scheduling_ms = wire_u64(r);
    n->ended_ms = wire_u64(r);
    n->lapses = wire_enum(r, 0, DIR_LAPSES_MAX, "its lapses are too many");
    n->lapsed_ms = wire_u64(r);
    n->lease_ms = wire_u32(r);
    n->ended_session = wire_u64(r);
    n->ended_lease_ms = wire_u32(r);
    n->label_count = get_labels(r, n->tags, DIR_LABELS_MAX);
    n->capacity_count = get_labels(r, n->tags + n->label_count, DIR_LABELS_MAX);
    n->created = wire_u64(r);
    n->mod_revision = wire_u64(r);
    n->route_revision = wire_u64(r);
    n->partition_count = wire_u64(r);
    n->task_revision = wire_u64(r);
    return mem_realloc(n, dir_node_size(n));
}

static void put_server(struct buf *b, const struct dir_server *s)
{
    wire_put_u64(b, s->id);
    buf_put_u8(b, s->role);
    wire_put_text(b, s->raft_address);
    wire_put_text(b, s->api_url);
    buf_put(b, s->instance, sizeof s->instance);
    buf_put_u8(b, s->removed);
    wire_put_u64(b, s->mod_revision);
}

static void *get_server(struct wire_reader *r)
{
    struct dir_server *s = mem_zalloc(sizeof *s);
    s->id = wire_u64(r);
    s->role = wire_enum(r, 1, 2, "the role is unknown");
    wire_text(r, s->raft_address, sizeof s->raft_address, "the Raft address is wrong");
    wire_text(r, s->api_url, sizeof s->api_url, "the API URL is wrong");
    struct slice instance = wire_raw(r, sizeof s->instance);
    if (instance.len > 0) {
        memcpy(s->instance, instance.data, sizeof s->instance);
    }
    s->removed = wire_bool(r);
    s->mod_revision = wire_u64(r);
    return s;
}

static void put_dedupe(struct buf *b, const struct dir_dedupe *d)
{
    size_t key_at = d->principal_len, result_at = key_at + d->key_len;
    wire_put_u64(b, d->index);
    wire_put_u64(b, d->at_ms);
    wire_put_u64(b, d->revision);
    buf_put(b, d->digest, sizeof d->digest);
    wire_put_bytes(b, slice_of(d->bytes, d->principal_len));
    wire_put_bytes(b, slice_of(d->bytes + key_at, d->key_len));
    wire_put_long(b, slice_of(d->bytes + result_at, d->result_len));
}

static void *get_dedupe(struct wire_reader *r)
{
    uint64_t index = wire_u64(r), at_ms = wire_u64(r), revision = wire_u64(r);
    struct slice digest = wire_raw(r, sizeof((struct dir_dedupe *)NULL)->digest);
    struct slice parts[3];
    parts[0] = wire_bytes(r, DIR_TEXT_MAX, "the principal is too long");
    parts[1] = wire_bytes(r, DIR_IDEMPOTENCY_KEY_MAX, "the idempotency key is too long");
    parts[2] = wire_long(r, UINT32_MAX, "the result is too long");
    struct dir_dedupe *d = mem_zalloc(sizeof *d + parts[0].len + parts[1].len + parts[2].len);
    d->index = index;
    d->at_ms = at_ms;
    d->revision = revision;
    d->principal_len = (uint16_t)parts[0].len;
    d->key_len = (uint16_t)parts[1].len;
    d->result_len = (uint32_t)parts[2].len;
    if (digest.len > 0) {
        memcpy(d->digest, digest.data, sizeof d->digest);
    }
    uint8_t *at = d->bytes;
    for (unsigned i = 0; i < 3; i++) {
        if (parts[i].len > 0) {
            memcpy(at, parts[i].data, parts[i].len);
            at += parts[i].len;
        }
    }
    return d;
}

/* --- both ways, by kind --- */

void dir_object_encode(const struct dir_object *o, struct buf *out)
{
    const void *row = o;
    buf_put_u8(out, ROW_VERSION);
    buf_put_u8(out, o->kind);
    switch ((enum dir_kind)o->kind) {
    case DIR_KIND_KEYSPACE:
        put_keyspace(out, row);
        return;
    case DIR_KIND_PARTITION:
        put_partition(out, row);
        return;
    case DIR_KIND_TOMBSTONE:
        put_tombstone(out, row);
        return;
    case DIR_KIND_NODE:
        put_node(out, row);
        return;
    case DIR_KIND_SERVER:
        put_server(out, row);
        return;
    case DIR_KIND_DEDUPE:
        put_dedupe(out, row);
        return;
    case DIR_KIND_OPERATION:
        object_put_operation(out, row);
        return;
    case DIR_KIND_DUTY:
        object_put_duty(out, row);
        return;
    case DIR_KIND_PROPOSAL:
        object_put_proposal(out, row);
        return;
    case DIR_KIND_BALANCER:
        object_put_balancer(out, row);
        return;
    case DIR_KIND_BYTES:
    case DIR_KIND_MAP:
        break;
    }
    UNREACHABLE(); /* not a row */
}

static void *get_row(struct wire_reader *r, uint8_t kind)
{
    switch (kind) {
    case DIR_KIND_KEYSPACE:
        return get_keyspace(r);
    case DIR_KIND_PARTITION:
        return get_partition(r);
    case DIR_KIND_TOMBSTONE:
        return get_tombstone(r);
    case DIR_KIND_NODE:
        return get_node(r);
    case DIR_KIND_SERVER:
        return get_server(r);
    case DIR_KIND_DEDUPE:
        return get_dedupe(r);
    case DIR_KIND_OPERATION:
        return object_get_operation(r);
    case DIR_KIND_DUTY:
        return object_get_duty(r);
    case DIR_KIND_PROPOSAL:
        return object_get_proposal(r);
    case DIR_KIND_BALANCER:
        return object_get_balancer(r);
    default:
        wire_fail(r, "the kind is unknown");
        return NULL;
    }
}

static const char *kind_name(uint8_t kind)
{
    static const char *const names[] = {
        [DIR_KIND_KEYSPACE] = "keyspace",   [DIR_KIND_PARTITION] = "partition",
        [DIR_KIND_TOMBSTONE] = "tombstone", [DIR_KIND_NODE] = "node",
        [DIR_KIND_SERVER] = "server",       [DIR_KIND_DEDUPE] = "dedupe",
        [DIR_KIND_OPERATION] = "operation", [DIR_KIND_DUTY] = "duty",
        [DIR_KIND_PROPOSAL] = "proposal",   [DIR_KIND_BALANCER] = "balancer",
    };
    bool known = kind < sizeof names / sizeof names[0] && names[kind] != NULL;
    return known ? names[kind] : "unknown";
}

struct dir_object *dir_object_decode(struct slice bytes, struct err *e)
{
    struct wire_reader r = wire_reader(bytes);
    if (wire_u8(&r) != ROW_VERSION) {
        wire_fail(&r, "the version is unknown");
    }
    uint8_t kind = wire_u8(&r);
    struct dir_object *o = r.wrong == NULL ? get_row(&r, kind) : NULL;
    if (o != NULL) {
        o->refs = 1;
        o->kind = kind;
    }
    if (!wire_end(&r)) {
        (void)err_set(e, ERR_CORRUPT, "%s row of %zu bytes: %s", kind_name(kind), bytes.len,
                      r.wrong);
        mem_free(o);
        return NULL;
    }
    return o;
}
