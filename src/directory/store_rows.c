/* SPDX-License-Identifier: Apache-2.0 */
/* Objects <-> columns. Partitions, tombstones and idempotency keys are columns alone; the others
 * carry their canonical bytes too, and columns that matter are held against them at each load. */
#include "directory/store_internal.h"

#include "base/assert.h"
#include "base/mem.h"
#include "base/parse.h"

#include <string.h>

/* --- partitions --- */

/* "12=primary:40,15=sync:40": node, role, copy */
static void put_replicas(const struct dir_partition *p, struct buf *out)
{
    buf_reset(out);
    for (unsigned i = 0; i < p->replica_count; i++) {
        if (i > 0) {
            buf_put_u8(out, ',');
        }
        buf_put_u64_dec(out, p->replicas[i].node);
        buf_put_u8(out, '=');
        buf_put_str(out, dir_role_name(p->replicas[i].role));
        buf_put_u8(out, ':');
        buf_put_u64_dec(out, p->replicas[i].copy);
    }
}

void store_bind_version(sqlite3_stmt *st,
                        const struct dir_partition *p,
                        const struct store_span *span,
                        struct buf *scratch)
{
    const uint64_t *parents = dir_partition_parents(p);
    put_replicas(p, scratch);
    buf_put_u8(scratch, '\0');
    ASSERT(!scratch->overflow);
    store_bind_u64(st, 1, p->id);
    store_bind_u64(st, 2, span->from);
    store_bind_u64_or_null(st, 3, span->to);
    store_bind_u64(st, 4, p->keyspace);
    store_bind_bytes(st, 5, dir_partition_start(p));
    if (p->end_open) {
        store_bind_u64_or_null(st, 6, 0);
    } else {
        store_bind_bytes(st, 6, dir_partition_end(p));
    }
    store_bind_u64(st, 7, p->epoch);
    store_bind_u64(st, 8, p->mod_revision);
    store_bind_u64(st, 9, p->created);
    store_bind_u64(st, 10, p->state);
    store_bind_u64(st, 11, p->cause);
    store_bind_u64_or_null(st, 12, span->ended);
    store_bind_text(st, 13, (const char *)scratch->data);
    store_bind_u64_or_null(st, 14, p->parent_count > 0 ? parents[0] : 0);
    store_bind_u64_or_null(st, 15, p->parent_count > 1 ? parents[1] : 0);
    store_bind_u64_or_null(st, 16, span->operation);
    store_bind_u64(st, 17, p->rate_limit);
    store_bind_u64(st, 18, p->pinned);
    store_bind_u64(st, 19, p->holds_data);
    store_bind_u64(st, 20, p->owner_since_ms);
    store_bind_u64(st, 21, span->from_ms);
    store_bind_u64_or_null(st, 22, span->to_ms);
    store_bind_u64_or_null(st, 23, p->session);
    store_bind_u64_or_null(st, 24, p->home);
    store_bind_u64_or_null(st, 25, p->operation);
    store_bind_u64_or_null(st, 26, p->start_position);
}

static bool take_digits(struct slice *text, uint64_t *ret_value)
{
    uint64_t v = 0;
    size_t n = 0;
    for (; n < text->len && text->data[n] >= '0' && text->data[n] <= '9'; n++) {
        if (v > (DIR_REVISION_MAX - 9) / 10) {
            return false;
        }
        v = v * 10 + (uint64_t)(text->data[n] - '0');
    }
    *text = slice_of(text->data + n, text->len - n);
    *ret_value = v;
    return n > 0;
}

static bool take_byte(struct slice *text, char c)
{
    if (text->len == 0 || text->data[0] != (uint8_t)c) {
        return false;
    }
    *text = slice_of(text->data + 1, text->len - 1);
    return true;
}

static bool take_role(struct slice *text, uint8_t *ret_role)
{
    for (uint8_t role = DIR_ROLE_PRIMARY; role <= DIR_ROLE_JOINING; role++) {
        const char *name = dir_role_name(role);
        size_t len = strlen(name);
        if (text->len >= len && memcmp(text->data, name, len) == 0) {
            *text = slice_of(text->data + len, text->len - len);
            *ret_role = role;
            return true;
        }
    }
    return false;
}

static bool read_replicas(struct slice text, struct store_columns *c)
{
    c->replica_count = 0;
    while (text.len > 0) {
        struct dir_replica *r = &c->replicas[c->replica_count];
        if (c->replica_count == DIR_REPLICAS_MAX ||
            (c->replica_count > 0 && !take_byte(&text, ',')) || !take_digits(&text, &r->node) ||
            !take_byte(&text, '=') || !take_role(&text, &r->role) || !take_byte(&text, ':') ||
            !take_digits(&text, &r->copy)) {
            return false;
        }
        c->replica_count++;
    }
    return true;
}

static bool is_change(uint64_t kind)
{
    return kind >= DIR_CHANGE_CREATE && kind <= DIR_CHANGE_LAST;
}

/* The columns of few values. */
static bool read_flags(sqlite3_stmt *st, struct store_columns *c)
{
    uint64_t state = store_column_u64(st, 9), cause = store_column_u64(st, 10);
    uint64_t ended = store_column_u64(st, 11);
    uint64_t pinned = store_column_u64(st, 17), holds_data = store_column_u64(st, 18);
    bool ok = state >= DIR_ACTIVE && state <= DIR_UNAVAILABLE && is_change(cause) &&
              (ended == 0 || is_change(ended)) && pinned <= 1 && holds_data <= 1;
    c->state = (uint8_t)state;
    c->cause = (uint8_t)cause;
    c->ended = (uint8_t)ended;
    c->pinned = pinned != 0;
    c->holds_data = holds_data != 0;
    return ok;
}

bool store_read_columns(sqlite3_stmt *st, struct store_columns *c)
{
    *c = (struct store_columns){
        .id = store_column_u64(st, 0),
        .from_revision = store_column_u64(st, 1),
        .to_revision = store_column_u64(st, 2),
        .keyspace = store_column_u64(st, 3),
        .start = store_column_bytes(st, 4),
        .end = store_column_bytes(st, 5),
        .end_open = sqlite3_column_type(st, 5) == SQLITE_NULL,
        .epoch = store_column_u64(st, 6),
        .mod_revision = store_column_u64(st, 7),
        .created = store_column_u64(st, 8),
        .parents = {store_column_u64(st, 13), store_column_u64(st, 14)},
        .operation = store_column_u64(st, 15),
        .rate_limit = store_column_u64(st, 16),
        .owner_since_ms = store_column_u64(st, 19),
        .from_ms = store_column_u64(st, 20),
        .to_ms = store_column_u64(st, 21),
        .session = store_column_u64(st, 22),
        .home = store_column_u64(st, 23),
        .held_by = store_column_u64(st, 24),
        .start_position = store_column_u64(st, 25),
    };
    if (c->parents[0] != 0) {
        c->parent_count = c->parents[1] != 0 ? 2 : 1;
    }
    return read_flags(st, c) && c->start.len <= DIR_ROUTING_KEY_MAX &&
           c->end.len <= DIR_ROUTING_KEY_MAX && (c->parents[0] != 0 || c->parents[1] == 0) &&
           read_replicas(store_column_bytes(st, 12), c);
}

static void copy_keys(uint8_t *out, struct slice start, struct slice end)
{
    if (start.len > 0) {
        memcpy(out, start.data, start.len);
    }
    if (end.len > 0) {
        memcpy(out + start.len, end.data, end.len);
    }
}

/* The layout of types.h. */
struct dir_object *store_partition_of(const struct store_columns *c)
{
    size_t size = sizeof(struct dir_partition) + c->replica_count * sizeof(struct dir_replica) +
                  c->parent_count * sizeof(uint64_t) + c->start.len + c->end.len;
    struct dir_partition *p = mem_zalloc(size);
    p->object.refs = 1;
    p->object.kind = DIR_KIND_PARTITION;
    p->end_open = c->end_open;
    p->pinned = c->pinned;
    p->holds_data = c->holds_data;
    p->state = c->state;
    p->replica_count = c->replica_count;
    p->parent_count = c->parent_count;
    p->cause = c->cause;
    p->start_len = (uint16_t)c->start.len;
    p->end_len = (uint16_t)c->end.len;
    p->id = c->id;
    p->keyspace = c->keyspace;
    p->epoch = c->epoch;
    p->mod_revision = c->mod_revision;
    p->created = c->created;
    p->owner_since_ms = c->owner_since_ms;
    p->rate_limit = c->rate_limit;
    p->session = c->session;
    p->home = c->home;
    p->operation = c->held_by;
    p->start_position = c->start_position;
    uint8_t *at = (uint8_t *)p + sizeof *p;
    for (unsigned i = 0; i < c->replica_count; i++) {
        p->replicas[i].node = c->replicas[i].node;
        p->replicas[i].role = c->replicas[i].role;
        p->replicas[i].copy = c->replicas[i].copy;
    }
    at += c->replica_count * sizeof(struct dir_replica);
    memcpy(at, c->parents, c->parent_count * sizeof(uint64_t));
    at += c->parent_count * sizeof(uint64_t);
    copy_keys(at, c->start, c->end);
    return &p->object;
}

/* --- kinds with their canonical bytes --- */

struct slice store_encode(const struct dir_object *o, struct buf *scratch)
{
    buf_reset(scratch);
    dir_object_encode(o, scratch);
    ASSERT(!scratch->overflow);
    return slice_of(scratch->data, scratch->len);
}

void store_put_keyspace(struct store_conn *c,
                        const struct dir_keyspace *ks,
                        const struct store_span *span,
                        struct buf *scratch)
{
    sqlite3_stmt *st = store_write_stmt(c, SQL_KEYSPACE_PUT);
    store_bind_u64(st, 1, ks->id);
    store_bind_u64(st, 2, span->from);
    store_bind_u64(st, 3, span->from_ms);
    store_bind_text(st, 4, ks->name);
    store_bind_text(st, 5, dir_scheme_name(ks->scheme));
    store_bind_u64(st, 6, ks->hidden);
    store_bind_u64(st, 7, ks->sync_replicas);
    store_bind_u64(st, 8, ks->async_replicas);
    store_bind_text(st, 9, ks->policy);
    store_bind_u64(st, 10, ks->created);
    store_bind_bytes(st, 11, store_encode(&ks->object, scratch));
    store_write_run(c, st);
}

void store_put_node(struct store_conn *c, const struct dir_node *n, struct buf *scratch)
{
    sqlite3_stmt *st = store_write_stmt(c, SQL_NODE_PUT);
    store_bind_u64(st, 1, n->id);
    store_bind_text(st, 2, n->name);
    store_bind_text(st, 3, n->address);
    store_bind_u64(st, 4, n->is_static);
    store_bind_u64(st, 5, n->lost);
    store_bind_u64(st, 6, n->scheduling);
    store_bind_u64(st, 7, n->session);
    store_bind_u64(st, 8, n->ended);
    store_bind_u64(st, 9, n->partition_count);
    store_bind_u64(st, 10, n->created);
    store_bind_u64(st, 11, n->mod_revision);
    store_bind_bytes(st, 12, store_encode(&n->object, scratch));
    store_write_run(c, st);
}

void store_put_server(struct store_conn *c, const struct dir_server *v, struct buf *scratch)
{
    sqlite3_stmt *st = store_write_stmt(c, SQL_SERVER_PUT);
    store_bind_u64(st, 1, v->id);
    store_bind_u64(st, 2, v->role);
    store_bind_text(st, 3, v->raft_address);
    store_bind_text(st, 4, v->api_url);
    store_bind_u64(st, 5, v->removed);
    store_bind_bytes(st, 6, store_encode(&v->object, scratch));
    store_write_run(c, st);
}

static bool text_is(sqlite3_stmt *st, int at, const char *want)
{
    char text[DIR_ADDRESS_MAX + 1];
    return store_column_text(st, at, text, sizeof text) && strcmp(text, want) == 0;
}

/* What the columns say of a decoded object: do they agree? */
static bool columns_agree(sqlite3_stmt *st, const struct dir_object *o)
{
    const void *object = o; /* each kind begins with it */
    uint64_t id = store_column_u64(st, 1);
    if (o->kind == DIR_KIND_KEYSPACE) {
        const struct dir_keyspace *ks = object;
        return ks->id == id && text_is(st, 2, ks->name);
    }
    if (o->kind == DIR_KIND_NODE) {
        const struct dir_node *n = object;
        return n->id == id && text_is(st, 2, n->name) && text_is(st, 3, n->address);
    }
    if (o->kind == DIR_KIND_SERVER) {
        const struct dir_server *v = object;
        return v->id == id && text_is(st, 2, v->raft_address);
    }
    if (o->kind == DIR_KIND_DUTY) {
        const struct dir_duty *d = object;
        return d->id == id && d->node == store_column_u64(st, 2);
    }
    if (o->kind == DIR_KIND_PROPOSAL) {
        const struct dir_proposal *p = object;
        return p->id == id && p->partition == store_column_u64(st, 2);
    }
    const struct dir_operation *op = object;
    return op->id == id && op->partition == store_column_u64(st, 2);
}

/* What the objects of a statement have to be. */
static uint8_t kind_of(enum store_sql which)
{
    switch ((int)which) {
    case SQL_LOAD_KEYSPACES:
    case SQL_KEYSPACE_AT:
        return DIR_KIND_KEYSPACE;
    case SQL_LOAD_NODES:
        return DIR_KIND_NODE;
    case SQL_LOAD_SERVERS:
        return DIR_KIND_SERVER;
    case SQL_LOAD_DUTIES:
        return DIR_KIND_DUTY;
    case SQL_LOAD_PROPOSALS:
        return DIR_KIND_PROPOSAL;
    case SQL_LOAD_OPERATIONS:
        return DIR_KIND_OPERATION;
    default:
        UNREACHABLE();
    }
}

static struct dir_object *read_object(enum store_sql which, sqlite3_stmt *st, struct err *e)
{
    struct dir_object *o = dir_object_decode(store_column_bytes(st, 0), e);
    if (o == NULL) {
        (void)err_set(e, ERR_CORRUPT, "row %llu: its object does not decode",
                      (unsigned long long)store_column_u64(st, 1));
        return NULL;
    }
    if (o->kind != kind_of(which) || !columns_agree(st, o)) {
        (void)err_set(e, ERR_CORRUPT, "row %llu: its columns and its object differ",
                      (unsigned long long)store_column_u64(st, 1));
        dir_unref(o);
        return NULL;
    }
    return o;
}

/* --- kinds that are columns alone --- */

void store_put_tombstone(struct store_conn *c, const struct dir_tombstone *t, struct buf *scratch)
{
    buf_reset(scratch);
    for (uint32_t i = 0; i < t->successor_count; i++) {
        if (i > 0) {
            buf_put_u8(scratch, ',');
        }
        buf_put_u64_dec(scratch, t->successors[i]);
    }
    buf_put_u8(scratch, '\0');
    ASSERT(!scratch->overflow);
    sqlite3_stmt *st = store_write_stmt(c, SQL_TOMBSTONE_PUT);
    store_bind_u64(st, 1, t->id);
    store_bind_u64(st, 2, t->keyspace);
    store_bind_u64(st, 3, t->cause);
    store_bind_u64(st, 4, t->retired);
    store_bind_u64(st, 5, t->last_epoch);
    store_bind_bytes(st, 6, dir_tombstone_start(t));
    if (t->end_open) {
        store_bind_u64_or_null(st, 7, 0);
    } else {
        store_bind_bytes(st, 7, dir_tombstone_end(t));
    }
    store_bind_text(st, 8, (const char *)scratch->data);
    store_write_run(c, st);
}

static uint32_t count_items(struct slice text)
{
    uint32_t count = text.len > 0 ? 1 : 0;
    for (size_t i = 0; i < text.len; i++) {
        count += text.data[i] == ',';
    }
    return count;
}

static struct dir_object *read_tombstone(sqlite3_stmt *st)
{
    struct slice start = store_column_bytes(st, 5), end = store_column_bytes(st, 6);
    struct slice text = store_column_bytes(st, 7);
    uint64_t cause = store_column_u64(st, 2);
    uint32_t count = count_items(text);
    if (!is_change(cause) || count > DIR_SPLIT_KEYS_MAX + 1 || start.len > DIR_ROUTING_KEY_MAX ||
        end.len > DIR_ROUTING_KEY_MAX) {
        return NULL;
    }
    size_t items = count * sizeof(uint64_t);
    struct dir_tombstone *t = mem_zalloc(sizeof *t + items + start.len + end.len);
    t->object.refs = 1;
    t->object.kind = DIR_KIND_TOMBSTONE;
    t->end_open = sqlite3_column_type(st, 6) == SQLITE_NULL;
    t->cause = (uint8_t)cause;
    t->start_len = (uint16_t)start.len;
    t->end_len = (uint16_t)end.len;
    t->successor_count = count;
    t->id = store_column_u64(st, 0);
    t->keyspace = store_column_u64(st, 1);
    t->retired = store_column_u64(st, 3);
    t->last_epoch = store_column_u64(st, 4);
    for (uint32_t i = 0; i < count; i++) {
        if ((i > 0 && !take_byte(&text, ',')) || !take_digits(&text, &t->successors[i])) {
            dir_unref(t);
            return NULL;
        }
    }
    copy_keys((uint8_t *)t + sizeof *t + items, start, end);
    return &t->object;
}

static void bind_text_bytes(sqlite3_stmt *st, int at, const uint8_t *text, size_t len)
{
    int rc = sqlite3_bind_text64(st, at, (const char *)text, len, SQLITE_STATIC, SQLITE_UTF8);
    ASSERT(rc == SQLITE_OK);
}

void store_put_dedupe(struct store_conn *c, const struct dir_dedupe *d)
{
    const uint8_t *key = d->bytes + d->principal_len;
    sqlite3_stmt *st = store_write_stmt(c, SQL_DEDUPE_PUT);
    store_bind_u64(st, 1, d->index);
    bind_text_bytes(st, 2, d->bytes, d->principal_len);
    bind_text_bytes(st, 3, key, d->key_len);
    store_bind_u64(st, 4, d->at_ms);
    store_bind_u64(st, 5, d->revision);
    store_bind_bytes(st, 6, slice_of(d->digest, sizeof d->digest));
    store_bind_bytes(st, 7, slice_of(key + d->key_len, d->result_len));
    store_write_run(c, st);
}

static struct dir_object *read_dedupe(sqlite3_stmt *st)
{
    struct slice principal = store_column_bytes(st, 1), key = store_column_bytes(st, 2);
    struct slice digest = store_column_bytes(st, 5), result = store_column_bytes(st, 6);
    struct dir_dedupe *d;
    if (principal.len > DIR_TEXT_MAX || key.len > DIR_IDEMPOTENCY_KEY_MAX || key.len == 0 ||
        digest.len != sizeof d->digest) {
        return NULL;
    }
    d = mem_zalloc(sizeof *d + principal.len + key.len + result.len);
    d->object.refs = 1;
    d->object.kind = DIR_KIND_DEDUPE;
    d->index = store_column_u64(st, 0);
    d->at_ms = store_column_u64(st, 3);
    d->revision = store_column_u64(st, 4);
    memcpy(d->digest, digest.data, sizeof d->digest);
    d->principal_len = (uint16_t)principal.len;
    d->key_len = (uint16_t)key.len;
    d->result_len = (uint32_t)result.len;
    const struct slice parts[] = {principal, key, result};
    uint8_t *at = d->bytes;
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].len > 0) {
            memcpy(at, parts[i].data, parts[i].len);
            at += parts[i].len;
        }
    }
    return &d->object;
}

static struct dir_object *read_partition(sqlite3_stmt *st)
{
    struct store_columns c;
    return store_read_columns(st, &c) ? store_partition_of(&c) : NULL;
}

struct dir_object *store_read_row(enum store_sql which, sqlite3_stmt *st, struct err *e)
{
    struct dir_object *o = NULL;
    const char *table;
    if (which == SQL_LOAD_PARTITIONS) {
        o = read_partition(st);
        table = "partition_versions";
    } else if (which == SQL_LOAD_TOMBSTONES) {
        o = read_tombstone(st);
        table = "tombstones";
    } else if (which == SQL_LOAD_DEDUPE) {
        o = read_dedupe(st);
        table = "dedupe";
    } else {
        return read_object(which, st, e);
    }
    if (o == NULL) {
        (void)err_set(e, ERR_CORRUPT, "%s: row %llu is out of its bounds", table,
                      (unsigned long long)store_column_u64(st, 0));
    }
    return o;
}

/* --- meta --- */

void store_put_meta(struct store_conn *c, const struct dir_view_meta *m, struct buf *scratch)
{
    char hash[HASH128_HEX_SIZE];
    hash128_hex(m->hash, hash);
    buf_reset(scratch);
    dir_meta_encode(m, scratch);
    ASSERT(!scratch->overflow);
    sqlite3_stmt *st = store_write_stmt(c, SQL_META_PUT);
    store_bind_u64(st, 1, STORE_FORMAT);
    store_bind_text(st, 2, m->cluster);
    store_bind_u64(st, 3, m->generation);
    store_bind_u64(st, 4, m->applied_index);
    store_bind_u64(st, 5, m->revision);
    store_bind_u64(st, 6, m->time_ms);
    store_bind_u64(st, 7, m->compacted);
    store_bind_u64(st, 8, m->next_id);
    store_bind_u64(st, 9, m->unplaced);
    store_bind_text(st, 10, hash);
    store_bind_u64(st, 11, m->settings.history_retention_ms);
    store_bind_u64(st, 12, m->settings.history_max);
    store_bind_u64(st, 13, m->settings.dedupe_retention_ms);
    store_bind_u64(st, 14, m->settings.lease_ms);
    store_bind_u64(st, 15, m->settings.heartbeat_ms);
    store_bind_bytes(st, 16, slice_of(scratch->data, scratch->len));
    store_write_run(c, st);
}

static bool read_hash(sqlite3_stmt *st, int at, struct hash128 *ret_hash)
{
    uint8_t bytes[16];
    size_t len;
    if (!parse_hex(store_column_bytes(st, at), bytes, sizeof bytes, &len) || len != sizeof bytes) {
        return false;
    }
    *ret_hash = (struct hash128){0};
    for (unsigned i = 0; i < 8; i++) {
        ret_hash->hi = ret_hash->hi << 8 | bytes[i];
        ret_hash->lo = ret_hash->lo << 8 | bytes[8 + i];
    }
    return true;
}

static enum err_code
meta_of_row(const struct store_conn *c, sqlite3_stmt *st, struct dir_view_meta *m, struct err *e)
{
    uint64_t format = store_column_u64(st, 1);
    if (format != STORE_FORMAT) {
        return err_set(e, ERR_CORRUPT, "%s: format %llu, this server knows %d", c->path,
                       (unsigned long long)format, STORE_FORMAT);
    }
    if (dir_meta_decode(store_column_bytes(st, 0), m, e) != ERR_OK || !read_hash(st, 6, &m->hash) ||
        m->generation != store_column_u64(st, 2) || m->revision != store_column_u64(st, 4) ||
        m->compacted != store_column_u64(st, 5)) {
        return err_set(e, ERR_CORRUPT, "%s: its meta row is damaged", c->path);
    }
    m->applied_index = store_column_u64(st, 3);
    return ERR_OK;
}

enum err_code store_read_meta(struct store_conn *c, struct dir_view_meta *m, struct err *e)
{
    sqlite3_stmt *st = store_conn_stmt(c, SQL_META_GET);
    int rc = st != NULL ? sqlite3_step(st) : SQLITE_ERROR;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        return store_judge_failed(c, e);
    }
    enum err_code code = rc == SQLITE_ROW
                             ? meta_of_row(c, st, m, e)
                             : err_set(e, ERR_CORRUPT, "%s: it has no meta row", c->path);
    (void)sqlite3_reset(st); /* the step's outcome is known */
    return code;
}
