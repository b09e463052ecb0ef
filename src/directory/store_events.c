/* SPDX-License-Identifier: Apache-2.0 */
/* What changed in a keyspace between two revisions, from history: three streams.
 *
 *   begun     versions by (revision, start); those that a split or merge retired come before what
 * replaced them touches   versions that stayed while the address of one of their nodes changed:
 * looked for once, then merged in deleted   the last map of a keyspace that was removed
 *
 * A keyspace that is created in chunks appears whole at the revision that makes it visible. */
#include "directory/store_internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_EVENTS = STORE_PAGE_ROWS * (1 + DIR_PARENTS_MAX) };

struct change { /* of a node's address */
    uint64_t node;
    dir_rev revision;
};

struct touch {
    dir_rev revision;
    uint64_t partition;
    dir_rev version; /* from_revision of the version that saw it */
    uint8_t *start;  /* owns */
    size_t start_len;
};

struct held_event {
    struct store_event ev;
    uint8_t *keys; /* owns what ev.version's range points to */
};

struct events {
    struct store *s;
    uint64_t keyspace;
    dir_rev from, to;
    dir_rev visible, removed; /* of the keyspace; 0: never, not yet */
    bool (*fn)(void *arg, const struct store_event *ev);
    void *arg;
    bool stopped;
    struct change *changes; /* by (node, revision) */
    uint64_t change_count;
    struct touch *touches; /* by (revision, start) */
    uint64_t touch_count, touch_cap, touch_at;
    struct held_event *page;
    unsigned page_count;
};

/* --- pages --- */

static struct store_conn *enter(const struct events *x, struct err *e)
{
    dir_rev compacted, newest;
    struct store_conn *c = store_enter(x->s, e);
    if (c == NULL) {
        return NULL;
    }
    enum err_code code = store_read_extent(c, &compacted, &newest, e);
    if (code == ERR_OK && x->from < compacted) {
        code = err_set(e, ERR_COMPACTED, "changes are kept since revision %" PRIu64, compacted);
    }
    if (code == ERR_OK && x->to > newest) {
        code = err_set(e, ERR_BEHIND, "the store has reached revision %" PRIu64, newest);
    }
    if (code != ERR_OK) {
        store_leave(x->s, c);
        c = NULL;
    }
    return c;
}

static enum err_code hold(struct events *x,
                          struct store_conn *c,
                          const struct store_columns *row,
                          const struct store_event *as,
                          struct err *e)
{
    struct store_held held;
    enum err_code code = store_copy_version(c, row, as->revision, &held, e);
    if (code == ERR_OK) {
        struct held_event *h = &x->page[x->page_count++];
        h->ev = *as;
        h->ev.version = held.v;
        h->keys = held.keys;
    }
    return code;
}

static void drop_page(struct events *x)
{
    for (unsigned i = 0; i < x->page_count; i++) {
        mem_free(x->page[i].keys);
    }
    x->page_count = 0;
}

/* --- touches --- */

static int compare_changes(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->node != y->node) {
        return x->node < y->node ? -1 : 1;
    }
    return (x->revision > y->revision) - (x->revision < y->revision);
}

static int compare_touches(const void *a, const void *b)
{
    const struct touch *x = a, *y = b;
    if (x->revision != y->revision) {
        return x->revision < y->revision ? -1 : 1;
    }
    return slice_cmp(slice_of(x->start, x->start_len), slice_of(y->start, y->start_len));
}

static enum err_code too_many(struct err *e)
{
    return err_set(e, ERR_COMPACTED, "address changes touched over %d routes: fetch the map",
                   STORE_NODE_EVENTS_MAX);
}

static enum err_code read_changes(struct events *x, struct store_conn *c, struct err *e)
{
    dir_rev from = x->from > x->visible ? x->from : x->visible;
    dir_rev to = x->removed != 0 && x->removed <= x->to ? x->removed - 1 : x->to;
    uint64_t cap = 0;
    sqlite3_stmt *st = store_read_stmt(c, SQL_EVENTS_NODES, e);
    if (st == NULL) {
        return e->code;
    }
    store_bind_u64(st, 1, from);
    store_bind_u64(st, 2, to);
    int rc;
    while ((rc = store_read_step(c, st, e)) == 1) {
        if (x->change_count == STORE_NODE_EVENTS_MAX) {
            return too_many(e);
        }
        if (x->change_count == cap) {
            cap = cap == 0 ? 64 : cap * 2;
            x->changes = mem_realloc(x->changes, cap * sizeof *x->changes);
        }
        x->changes[x->change_count++] =
            (struct change){store_column_u64(st, 0), store_column_u64(st, 1)};
    }
    if (x->change_count > 0) {
        qsort(x->changes, x->change_count, sizeof *x->changes, compare_changes);
    }
    return rc < 0 ? e->code : ERR_OK;
}

/* The first change of this node after this revision. */
static uint64_t first_change(const struct events *x, uint64_t node, dir_rev after)
{
    uint64_t low = 0, high = x->change_count;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        const struct change *c = &x->changes[mid];
        if (c->node < node || (c->node == node && c->revision <= after)) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static enum err_code touch(struct events *x, const struct store_columns *row, struct err *e)
{
    for (unsigned r = 0; r < row->replica_count; r++) {
        uint64_t node = row->replicas[r].node;
        for (uint64_t i = first_change(x, node, row->from_revision);
             i < x->change_count && x->changes[i].node == node &&
             (row->to_revision == 0 || x->changes[i].revision < row->to_revision);
             i++) {
            if (x->touch_count == STORE_NODE_EVENTS_MAX) {
                return too_many(e);
            }
            if (x->touch_count == x->touch_cap) {
                x->touch_cap = x->touch_cap == 0 ? 64 : x->touch_cap * 2;
                x->touches = mem_realloc(x->touches, x->touch_cap * sizeof *x->touches);
            }
            x->touches[x->touch_count++] = (struct touch){
                .revision = x->changes[i].revision,
                .partition = row->id,
                .version = row->from_revision,
                .start = mem_dup(row->start.data, row->start.len),
                .start_len = row->start.len,
            };
        }
    }
    return ERR_OK;
}

/* Looks through versions after (*id, *version), a bounded number; moves them on. `*ret_end`: there
 * are no more. */
static enum err_code
scan_page(struct events *x, uint64_t *id, dir_rev *version, bool *ret_end, struct err *e)
{
    struct store_conn *c = enter(x, e);
    if (c == NULL) {
        return e->code;
    }
    enum err_code code = ERR_OK;
    unsigned count = 0;
    struct store_columns row;
    int rc = -1;
    sqlite3_stmt *st = store_read_stmt(c, SQL_SCAN, e);
    if (st != NULL) {
        store_bind_u64(st, 1, *id);
        store_bind_u64(st, 2, *version);
        store_bind_u64(st, 3, STORE_SCAN_ROWS);
        while (code == ERR_OK && (rc = store_one_version(c, st, &row, e)) == 1) {
            *id = row.id;
            *version = row.from_revision;
            count++;
            code = row.keyspace == x->keyspace ? touch(x, &row, e) : ERR_OK;
        }
    }
    store_leave(x->s, c);
    *ret_end = count < STORE_SCAN_ROWS;
    return rc < 0 ? e->code : code;
}

static enum err_code find_touches(struct events *x, struct err *e)
{
    struct store_conn *c = enter(x, e);
    if (c == NULL) {
        return e->code;
    }
    enum err_code code = read_changes(x, c, e);
    store_leave(x->s, c);
    uint64_t id = 0;
    dir_rev version = 0;
    bool end = x->change_count == 0;
    while (code == ERR_OK && !end) {
        code = scan_page(x, &id, &version, &end, e);
    }
    if (x->touch_count > 0) {
        qsort(x->touches, x->touch_count, sizeof *x->touches, compare_touches);
    }
    return code;
}

static bool touch_before(const struct touch *t, dir_rev revision, struct slice start)
{
    return t->revision < revision ||
           (t->revision == revision && slice_cmp(slice_of(t->start, t->start_len), start) < 0);
}

/* Delivers the touches before this place. The page that is being delivered stays as it is. */
static enum err_code
deliver_touches(struct events *x, dir_rev revision, struct slice start, struct err *e)
{
    while (!x->stopped && x->touch_at < x->touch_count &&
           touch_before(&x->touches[x->touch_at], revision, start)) {
        const struct touch *t = &x->touches[x->touch_at++];
        struct store_columns row;
        struct store_held held = {0};
        struct store_conn *c = enter(x, e);
        if (c == NULL) {
            return e->code;
        }
        int rc = store_version_by_id(c, SQL_VERSION_ONE, t->partition, t->version, &row, e);
        enum err_code code = rc == 1 ? store_copy_version(c, &row, t->revision, &held, e) : ERR_OK;
        store_leave(x->s, c);
        if (rc != 1 || code != ERR_OK) {
            return rc == 0 ? err_set(e, ERR_COMPACTED, "history was trimmed meanwhile") : e->code;
        }
        struct store_event ev = {
            .revision = t->revision, .kind = DIR_CHANGE_NODE, .version = held.v};
        x->stopped = !x->fn(x->arg, &ev);
        mem_free(held.keys);
    }
    return ERR_OK;
}

static enum err_code deliver_page(struct events *x, struct err *e)
{
    enum err_code code = ERR_OK;
    for (unsigned i = 0; i < x->page_count && !x->stopped && code == ERR_OK; i++) {
        const struct store_event *ev = &x->page[i].ev;
        code = deliver_touches(x, ev->revision, ev->version.start, e);
        if (code == ERR_OK && !x->stopped) {
            x->stopped = !x->fn(x->arg, ev);
        }
    }
    drop_page(x);
    return code;
}

/* --- begun --- */

/* Of a split, the first child speaks for the parent; of a merge, the child for both. */
static enum err_code hold_parents(struct events *x,
                                  struct store_conn *c,
                                  const struct store_columns *child,
                                  struct err *e)
{
    for (unsigned i = 0; i < child->parent_count; i++) {
        struct store_columns row;
        int rc = store_version_by_id(c, SQL_VERSION_ANY, child->parents[i], 0, &row, e);
        if (rc < 0) {
            return e->code;
        }
        if (rc == 1 && row.to_revision == child->from_revision &&
            slice_cmp(row.start, child->start) >= 0) {
            struct store_event as = {
                .revision = child->from_revision, .kind = child->cause, .removed = true};
            enum err_code code = hold(x, c, &row, &as, e);
            if (code != ERR_OK) {
                return code;
            }
        }
    }
    return ERR_OK;
}

static enum err_code
hold_begun(struct events *x, struct store_conn *c, const struct store_columns *row, struct err *e)
{
    struct store_event as = {.revision = row->from_revision, .kind = row->cause};
    if (row->from_revision <= x->visible) {
        if (row->to_revision != 0 && row->to_revision <= x->visible) {
            return ERR_OK; /* nobody saw it */
        }
        as.revision = x->visible;
        as.kind = DIR_CHANGE_CREATE;
    } else if (row->from_revision == row->created) {
        enum err_code code = hold_parents(x, c, row, e);
        if (code != ERR_OK) {
            return code;
        }
    }
    return hold(x, c, row, &as, e);
}

/* The next row is at or after this. */
struct place {
    dir_rev revision;
    uint8_t start[DIR_ROUTING_KEY_MAX + 1];
    size_t start_len;
};

static void place_after(struct place *p, dir_rev revision, struct slice start)
{
    p->revision = revision;
    if (start.len > 0) {
        memcpy(p->start, start.data, start.len);
    }
    p->start[start.len] = 0;
    p->start_len = start.len + 1;
}

/* Reads a page from `place` on, and moves it. `*ret_end`: it was the last. */
static enum err_code
read_page(struct events *x, enum store_sql which, struct place *place, bool *ret_end, struct err *e)
{
    struct store_conn *c = enter(x, e);
    if (c == NULL) {
        return e->code;
    }
    bool begun = which == SQL_EVENTS_BEGUN;
    enum err_code code = ERR_OK;
    unsigned count = 0;
    int rc = -1;
    sqlite3_stmt *st = store_read_stmt(c, which, e);
    if (st != NULL) {
        store_bind_u64(st, 1, x->keyspace);
        store_bind_bytes(st, 2, slice_of(place->start, place->start_len));
        store_bind_u64(st, 3, STORE_PAGE_ROWS);
        if (begun) {
            store_bind_u64(st, 4, place->revision);
            store_bind_u64(st, 5, x->to);
        }
        struct store_columns row;
        struct store_event gone = {
            .revision = x->removed, .kind = DIR_CHANGE_DELETE, .removed = true};
        while (code == ERR_OK && (rc = store_one_version(c, st, &row, e)) == 1) {
            count++;
            code = begun ? hold_begun(x, c, &row, e) : hold(x, c, &row, &gone, e);
            place_after(place, row.from_revision, row.start);
        }
    }
    store_leave(x->s, c);
    *ret_end = count < STORE_PAGE_ROWS;
    return rc < 0 ? e->code : code;
}

static enum err_code
deliver_all(struct events *x, enum store_sql which, dir_rev from, struct err *e)
{
    struct place place = {.revision = from};
    enum err_code code = ERR_OK;
    bool end = false;
    while (code == ERR_OK && !end && !x->stopped) {
        code = read_page(x, which, &place, &end, e);
        if (code == ERR_OK) {
            code = deliver_page(x, e);
        }
    }
    drop_page(x);
    return code;
}

/* --- the keyspace --- */

static enum err_code read_life(struct events *x, struct err *e)
{
    struct store_conn *c = enter(x, e);
    if (c == NULL) {
        return e->code;
    }
    sqlite3_stmt *st = store_read_stmt(c, SQL_KEYSPACE_LIFE, e);
    int rc = -1;
    if (st != NULL) {
        store_bind_u64(st, 1, x->keyspace);
        rc = store_read_step(c, st, e);
    }
    if (rc == 1) {
        x->visible = store_column_u64(st, 0);
        x->removed = store_column_u64(st, 2) == 0 ? store_column_u64(st, 1) : 0;
    }
    store_leave(x->s, c);
    return rc < 0 ? e->code : ERR_OK;
}

static enum err_code run(struct events *x, struct err *e)
{
    enum err_code code = read_life(x, e);
    if (code != ERR_OK || x->visible == 0 || x->to < x->visible) {
        return code;
    }
    code = find_touches(x, e);
    if (code == ERR_OK) {
        code = deliver_all(x, SQL_EVENTS_BEGUN, x->from < x->visible ? 0 : x->from + 1, e);
    }
    if (code == ERR_OK) {
        code = deliver_touches(x, UINT64_MAX, slice_of(NULL, 0), e);
    }
    if (code == ERR_OK && x->removed > x->from && x->removed <= x->to) {
        code = deliver_all(x, SQL_EVENTS_DELETED, 0, e);
    }
    return code;
}

enum err_code store_events(struct store *s,
                           uint64_t keyspace,
                           dir_rev from,
                           dir_rev to,
                           bool (*fn)(void *arg, const struct store_event *ev),
                           void *arg,
                           struct err *e)
{
    struct err own;
    struct events x = {.s = s, .keyspace = keyspace, .from = from, .to = to, .fn = fn, .arg = arg};
    x.page = mem_alloc(PAGE_EVENTS * sizeof *x.page);
    enum err_code code = run(&x, e != NULL ? e : &own);
    for (uint64_t i = 0; i < x.touch_count; i++) {
        mem_free(x.touches[i].start);
    }
    mem_free(x.touches);
    mem_free(x.changes);
    mem_free(x.page);
    return code;
}
