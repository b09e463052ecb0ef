/* SPDX-License-Identifier: Apache-2.0 */
/* Objects <-> columns, of the kinds that are columns alone: partitions, tombstones, idempotency
 * keys. store_objects.c has the others. */
#include "directory/store_internal.h"

#include "base/assert.h"
#include "base/mem.h"
#include "base/parse.h"

#include <string.h>

/* --- partitions --- */

/* "12=primary:40,15=sync:40+": node, role, copy, and whether a person asked for it */
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
        if (p->replicas[i].asked) {
            buf_put_u8(out, '+');
        }
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
    store_bind_u64_or_null(st, 27, p->moving);
    store_bind_u64_or_null(st, 28, p->under_since_ms);
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
        r->asked = take_byte(&text, '+');
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
    uint64_t moving = store_column_u64(st, 26);
    bool ok = state >= DIR_ACTIVE && state <= DIR_UNAVAILABLE && is_change(cause) &&
              (ended == 0 || is_change(ended)) && pinned <= 1 && holds_data <= 1 &&
              moving <= DIR_STAGE_FAILED && (moving == 0) == (store_column_u64(st, 24) == 0);
    c->state = (uint8_t)state;
    c->cause = (uint8_t)cause;
    c->ended = (uint8_t)ended;
    c->moving = (uint8_t)moving;
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
        .under_since_ms = store_column_u64(st, 27),
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
    p->moving = c->moving;
    p->start_position = c->start_position;
    p->under_since_ms = c->under_since_ms;
    uint8_t *at = (uint8_t *)p + sizeof *p;
    for (unsigned i = 0; i < c->replica_count; i++) {
        p->replicas[i].node = c->replicas[i].node;
        p->replicas[i].role = c->replicas[i].role;
        p->replicas[i].copy = c->replicas[i].copy;
        p->replicas[i].asked = c->replicas[i].asked;
    }
    at += c->replica_count * sizeof(struct dir_replica);
    memcpy(at, c->parents, c->parent_count * sizeof(uint64_t));
    at += c->parent_count * sizeof(uint64_t);
    copy_keys(at, c->start, c->end);
    return &p->object;
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
        return store_read_object(which, st, e);
    }
    if (o == NULL) {
        (void)err_set(e, ERR_CORRUPT, "%s: row %llu is out of its bounds", table,
                      (unsigned long long)store_column_u64(st, 0));
    }
    return o;
}
