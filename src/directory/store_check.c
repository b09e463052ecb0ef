/* SPDX-License-Identifier: Apache-2.0 */
/* The offline check: SQLite's own, the state (loaded as at a restore, which verifies the state hash
 * and every invariant of it), and what only history can break: coverage at every kept revision
 * (I1), the epoch law along versions and lineages (I4), and retired ids that lead nowhere. */
#include "directory/store_internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINES_MAX = 100 }; /* of one kind of violation */

struct check {
    struct store_conn *c;
    void (*report)(void *arg, const char *line);
    void *arg;
    uint64_t violations;
    dir_rev compacted;
};

static void violation(struct check *k, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void violation(struct check *k, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    k->violations++;
    k->report(k->arg, line);
}

/* The check's own statements run once. NULL with `e`. */
static sqlite3_stmt *prepare(struct check *k, const char *sql, struct err *e)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(k->c->db, sql, -1, &st, NULL) != SQLITE_OK) {
        enum err_code code = store_judge_failed(k->c, e);
        ASSERT(code != ERR_OK);
    }
    return st;
}

static enum err_code finish(struct check *k, sqlite3_stmt *st, int rc, struct err *e)
{
    enum err_code code =
        rc == SQLITE_DONE || rc == SQLITE_ROW ? ERR_OK : store_judge_failed(k->c, e);
    (void)sqlite3_finalize(st); /* repeats the step's outcome */
    return code;
}

/* --- SQLite's own --- */

static enum err_code check_pages(struct check *k, struct err *e)
{
    sqlite3_stmt *st = prepare(k, "PRAGMA integrity_check(100)", e);
    if (st == NULL) {
        return e->code;
    }
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        char line[256];
        if (store_column_text(st, 0, line, sizeof line) && strcmp(line, "ok") == 0) {
            continue;
        }
        violation(k, "sqlite: %.200s", (const char *)sqlite3_column_text(st, 0));
    }
    return finish(k, st, rc, e);
}

/* --- queries whose every row is a violation --- */

struct rule {
    const char *text; /* of the violation; the numbers of the row follow */
    const char *sql;  /* ?1 is the compacted revision */
};

#define KEPT "(v.to_revision IS NULL OR v.to_revision > ?1)"

static const struct rule rules[] = {
    {"a partition has two live versions (partition, count)",
     "SELECT id, count(*) FROM partition_versions WHERE to_revision IS NULL GROUP BY id"
     " HAVING count(*) > 1"},
    {"a version ends before it begins (partition, revision)",
     "SELECT id, from_revision FROM partition_versions"
     " WHERE to_revision <= from_revision OR to_ms < from_ms"},
    {"versions of a partition overlap or leave a gap (partition, revision)",
     "SELECT id, from_revision FROM (SELECT id, from_revision, lag(to_revision, 1, from_revision)"
     " OVER (PARTITION BY id ORDER BY from_revision) AS expected FROM partition_versions)"
     " WHERE expected IS NOT from_revision"},
    {"the first version of a partition is missing (partition, revision)",
     "SELECT id, min(from_revision) FROM partition_versions GROUP BY id"
     " HAVING min(from_revision) > ?1 AND min(from_revision) <> min(created)"},
    {"a partition changed its range, keyspace or parents (partition, revision)",
     "SELECT v.id, v.from_revision FROM partition_versions v JOIN partition_versions w"
     " ON w.id = v.id AND w.from_revision = v.to_revision WHERE v.keyspace <> w.keyspace OR"
     " v.start_key <> w.start_key OR v.created <> w.created OR v.parent1 IS NOT w.parent1 OR"
     " v.parent2 IS NOT w.parent2 OR (v.end_key IS NOT w.end_key AND NOT EXISTS ("
     "SELECT 1 FROM keyspace_versions k WHERE k.id = v.keyspace AND k.hidden = 1 AND"
     " k.from_revision <= v.from_revision AND ifnull(k.to_revision, 1 << 53) > v.from_revision))"},
    {"an epoch goes back (partition, revision)",
     "SELECT v.id, w.from_revision FROM partition_versions v JOIN partition_versions w"
     " ON w.id = v.id AND w.from_revision = v.to_revision WHERE w.epoch < v.epoch"},
    {"one epoch has two primaries (partition, epoch)",
     "SELECT id, epoch FROM partition_versions WHERE replicas LIKE '%=primary%'"
     " GROUP BY id, epoch HAVING count(DISTINCT CAST(replicas AS INTEGER)) > 1"},
    {"an epoch is ahead of the revision it began at (partition, revision)",
     "SELECT id, from_revision FROM partition_versions"
     " WHERE epoch > from_revision OR mod_revision > from_revision"},
    {"a child's epoch is not above its parent's (child, parent)",
     "SELECT v.id, p.id FROM partition_versions v JOIN partition_versions p"
     " ON p.id IN (v.parent1, v.parent2)"
     " WHERE v.from_revision = v.created AND p.epoch >= v.epoch"},
    {"a parent lives on beside its child (child, parent)",
     "SELECT v.id, p.id FROM partition_versions v JOIN partition_versions p"
     " ON p.id IN (v.parent1, v.parent2) WHERE v.from_revision = v.created AND"
     " ifnull(p.to_revision, 1 << 53) > v.from_revision"},
    {"a retired partition is live (partition)",
     "SELECT v.id, v.from_revision FROM partition_versions v JOIN tombstones t ON t.id = v.id"
     " WHERE v.to_revision IS NULL"},
    {"a version is of an unknown keyspace (partition, keyspace)",
     "SELECT v.id, v.keyspace FROM partition_versions v WHERE " KEPT
     " AND NOT EXISTS (SELECT 1 FROM keyspace_versions k WHERE k.id = v.keyspace)"},
    {"a keyspace's name has two versions at once (keyspace, revision)",
     "SELECT id, from_revision FROM (SELECT id, from_revision,"
     " lag(ifnull(to_revision, 1 << 53), 1, 0) OVER (PARTITION BY name ORDER BY from_revision)"
     " AS earlier FROM keyspace_versions) WHERE earlier > from_revision"},
    {"a live node has no version, or another address in it (node, revision)",
     "SELECT n.id, n.mod_revision FROM nodes n LEFT JOIN node_versions v"
     " ON v.id = n.id AND v.to_revision IS NULL"
     " WHERE v.address IS NOT n.address OR v.name IS NOT n.name"},
    {"a node was removed, its version lives (node, revision)",
     "SELECT v.id, v.from_revision FROM node_versions v WHERE v.to_revision IS NULL"
     " AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = v.id)"},
    {"an audit row is of a later entry or revision than the state (index, revision)",
     "SELECT c.idx, c.revision FROM commands c, meta m"
     " WHERE c.idx > m.applied_index OR c.revision > m.revision"},
};

static enum err_code check_rule(struct check *k, const struct rule *rule, struct err *e)
{
    sqlite3_stmt *st = prepare(k, rule->sql, e);
    if (st == NULL) {
        return e->code;
    }
    if (sqlite3_bind_parameter_count(st) > 0) {
        store_bind_u64(st, 1, k->compacted);
    }
    int rc;
    unsigned lines = 0;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && lines < LINES_MAX) {
        lines++;
        violation(k, "%s: %" PRIu64 ", %" PRIu64, rule->text, store_column_u64(st, 0),
                  store_column_u64(st, 1));
    }
    return finish(k, st, rc, e);
}

/* --- coverage at every kept revision --- */

/* A run of ranges in key order, and how far they reach without a gap or an overlap. */
struct sweep {
    uint8_t start[DIR_ROUTING_KEY_MAX], end[DIR_ROUTING_KEY_MAX];
    size_t start_len, end_len;
    bool open, any;
};

/* The runs of one revision: what ended and what began cover the same, run by run. */
struct step {
    uint64_t keyspace;
    dir_rev at;
    struct sweep runs[2]; /* ended, began */
};

static void sweep_begin(struct sweep *s, struct slice start)
{
    s->any = true;
    s->open = false;
    s->start_len = start.len;
    if (start.len > 0) {
        memcpy(s->start, start.data, start.len);
    }
}

static void sweep_reach(struct sweep *s, struct slice end, bool open)
{
    s->open = open;
    s->end_len = open ? 0 : end.len;
    if (s->end_len > 0) {
        memcpy(s->end, end.data, end.len);
    }
}

static struct slice reach_of(const struct sweep *s)
{
    return slice_of(s->end, s->end_len);
}

/* What a boundary is compared by: the place where coverage of one side stands. */
static int compare_reach(const struct sweep *a, const struct sweep *b)
{
    if (a->open || b->open) {
        return (int)a->open - (int)b->open;
    }
    return slice_cmp(reach_of(a), reach_of(b));
}

struct range {
    struct slice start, end;
    bool open;
    uint64_t id;
};

static bool read_range(sqlite3_stmt *st, int at, struct range *r)
{
    r->start = store_column_bytes(st, at);
    r->end = store_column_bytes(st, at + 1);
    r->open = sqlite3_column_type(st, at + 1) == SQLITE_NULL;
    r->id = store_column_u64(st, at + 2);
    return r->start.len <= DIR_ROUTING_KEY_MAX && r->end.len <= DIR_ROUTING_KEY_MAX;
}

/* Appends a range to the map that `s` sweeps over from the lowest key. */
static void sweep_map(struct check *k, struct sweep *s, const struct range *r, dir_rev at)
{
    int c =
        s->any ? (s->open ? 1 : slice_cmp(reach_of(s), r->start)) : (r->start.len == 0 ? 0 : -1);
    if (c != 0) {
        violation(k, "at revision %" PRIu64 ": %s before partition %" PRIu64, at,
                  c < 0 ? "a gap" : "an overlap", r->id);
    }
    s->any = true;
    sweep_reach(s, r->end, r->open);
}

/* The map of a keyspace at its first kept revision. */
static enum err_code check_map(struct check *k, uint64_t keyspace, dir_rev at, struct err *e)
{
    sqlite3_stmt *st = prepare(k,
                               "SELECT start_key, end_key, id FROM partition_versions"
                               " WHERE keyspace = ?1 AND from_revision <= ?2 AND"
                               " (to_revision IS NULL OR to_revision > ?2) ORDER BY start_key",
                               e);
    if (st == NULL) {
        return e->code;
    }
    struct sweep sweep = {0};
    struct range r;
    store_bind_u64(st, 1, keyspace);
    store_bind_u64(st, 2, at);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (read_range(st, 0, &r)) {
            sweep_map(k, &sweep, &r, at);
        } else {
            violation(k, "partition %" PRIu64 " has a bound that is too long", r.id);
        }
    }
    if (rc == SQLITE_DONE && !sweep.open) {
        violation(k,
                  "at revision %" PRIu64 ": the map of keyspace %" PRIu64
                  " does not reach the highest key",
                  at, keyspace);
    }
    return finish(k, st, rc, e);
}

/* Both sides stand at the end of a run. */
static void end_runs(struct check *k, const struct step *s)
{
    const struct sweep *ended = &s->runs[0], *began = &s->runs[1];
    bool same = ended->any == began->any;
    if (same && ended->any) {
        same = slice_eq(slice_of(ended->start, ended->start_len),
                        slice_of(began->start, began->start_len)) &&
               compare_reach(ended, began) == 0;
    }
    if (!same) {
        violation(k,
                  "at revision %" PRIu64 ": what ended and what began in keyspace %" PRIu64
                  " cover different keys",
                  s->at, s->keyspace);
    }
}

/* The next range of one side at a revision: it goes on where that side stands, or begins a run that
 * no side reaches into. Ranges come by start, ended ones before begun ones. */
static void add_range(struct check *k, struct step *s, bool began, const struct range *r)
{
    struct sweep *side = &s->runs[began], *other = &s->runs[!began];
    int c = side->any ? (side->open ? 1 : slice_cmp(reach_of(side), r->start)) : -1;
    if (c > 0) {
        violation(k,
                  "at revision %" PRIu64 ": partition %" PRIu64 " overlaps another that %s there",
                  s->at, r->id, began ? "began" : "ended");
    }
    bool fresh = c < 0;
    if (fresh && side->any) { /* this side's run is over: so must the other's be */
        end_runs(k, s);
        side->any = other->any = false;
    }
    if (fresh) {
        sweep_begin(side, r->start);
    }
    sweep_reach(side, r->end, r->open);
}

static bool run_is_over(const struct step *s, const struct range *r)
{
    for (unsigned i = 0; i < 2; i++) {
        if (s->runs[i].any &&
            (s->runs[i].open || slice_cmp(reach_of(&s->runs[i]), r->start) >= 0)) {
            return false;
        }
    }
    return true;
}

/* Every later revision: by induction, the map stays whole if what began covers what ended. */
static enum err_code
check_steps(struct check *k, uint64_t keyspace, dir_rev after, dir_rev removed, struct err *e)
{
    sqlite3_stmt *st = prepare(k,
                               "SELECT from_revision AS r, start_key AS s, 1 AS began, end_key, id"
                               " FROM partition_versions WHERE keyspace = ?1 AND from_revision > ?2"
                               " UNION ALL SELECT to_revision, start_key, 0, end_key, id"
                               " FROM partition_versions WHERE keyspace = ?1 AND to_revision > ?2"
                               " AND to_revision IS NOT ?3 ORDER BY 1, 2, 3",
                               e);
    if (st == NULL) {
        return e->code;
    }
    struct step step = {.keyspace = keyspace};
    store_bind_u64(st, 1, keyspace);
    store_bind_u64(st, 2, after);
    store_bind_u64_or_null(st, 3, removed);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct range r = {.start = store_column_bytes(st, 1),
                          .end = store_column_bytes(st, 3),
                          .open = sqlite3_column_type(st, 3) == SQLITE_NULL,
                          .id = store_column_u64(st, 4)};
        if (r.start.len > DIR_ROUTING_KEY_MAX || r.end.len > DIR_ROUTING_KEY_MAX) {
            violation(k, "partition %" PRIu64 " has a bound that is too long", r.id);
            continue;
        }
        dir_rev at = store_column_u64(st, 0);
        if (at != step.at || run_is_over(&step, &r)) {
            end_runs(k, &step);
            step = (struct step){.keyspace = keyspace, .at = at};
        }
        add_range(k, &step, store_column_u64(st, 2) != 0, &r);
    }
    if (rc == SQLITE_DONE) {
        end_runs(k, &step);
    }
    return finish(k, st, rc, e);
}

/* What was there when the keyspace was removed ended then. */
static enum err_code check_removed(struct check *k, uint64_t keyspace, dir_rev at, struct err *e)
{
    sqlite3_stmt *st =
        prepare(k,
                "SELECT id, from_revision FROM partition_versions WHERE keyspace = ?1"
                " AND (to_revision IS NULL OR to_revision > ?2) LIMIT 100",
                e);
    if (st == NULL) {
        return e->code;
    }
    store_bind_u64(st, 1, keyspace);
    store_bind_u64(st, 2, at);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        violation(k, "partition %" PRIu64 " outlives its keyspace %" PRIu64,
                  store_column_u64(st, 0), keyspace);
    }
    return finish(k, st, rc, e);
}

static enum err_code check_keyspaces(struct check *k, struct err *e)
{
    sqlite3_stmt *st = prepare(k,
                               "SELECT id, min(from_revision) FILTER (WHERE hidden = 0),"
                               " CASE WHEN sum(to_revision IS NULL) = 0 THEN max(to_revision) END"
                               " FROM keyspace_versions GROUP BY id",
                               e);
    if (st == NULL) {
        return e->code;
    }
    int rc;
    enum err_code code = ERR_OK;
    while (code == ERR_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        uint64_t id = store_column_u64(st, 0);
        dir_rev visible = store_column_u64(st, 1), removed = store_column_u64(st, 2);
        if (visible == 0 || (removed != 0 && removed <= k->compacted)) {
            continue; /* never seen, or forgotten */
        }
        dir_rev first = visible > k->compacted ? visible : k->compacted;
        code = check_map(k, id, first, e);
        if (code == ERR_OK) {
            code = check_steps(k, id, first, removed, e);
        }
        if (code == ERR_OK && removed != 0) {
            code = check_removed(k, id, removed, e);
        }
    }
    enum err_code end = finish(k, st, code == ERR_OK ? rc : SQLITE_DONE, e);
    return code == ERR_OK ? end : code;
}

/* --- objects of history, and the state --- */

static enum err_code check_keyspace_objects(struct check *k, struct err *e)
{
    sqlite3_stmt *st = prepare(k, "SELECT object, id, name FROM keyspace_versions", e);
    if (st == NULL) {
        return e->code;
    }
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct err why;
        struct dir_object *o = store_read_row(SQL_LOAD_KEYSPACES, st, &why);
        if (o == NULL) {
            violation(k, "keyspace_versions: %s", why.detail);
        }
        dir_unref(o);
    }
    return finish(k, st, rc, e);
}

/* History can be shown only while it knows the nodes that it names. */
static enum err_code check_names(struct check *k, const struct store_columns *row, struct err *e)
{
    for (unsigned i = 0; i < row->replica_count; i++) {
        sqlite3_stmt *st = store_conn_stmt(k->c, SQL_NODE_EARLIEST);
        if (st == NULL) {
            return store_judge_failed(k->c, e);
        }
        store_bind_u64(st, 1, row->replicas[i].node);
        int rc = sqlite3_step(st);
        if (rc == SQLITE_DONE) {
            violation(k, "partition %" PRIu64 ", version of %" PRIu64 ": unknown node %" PRIu64,
                      row->id, row->from_revision, row->replicas[i].node);
        } else if (rc != SQLITE_ROW) {
            return store_judge_failed(k->c, e);
        }
        (void)sqlite3_reset(st); /* the step's outcome is known */
    }
    return ERR_OK;
}

static enum err_code check_version_columns(struct check *k, struct err *e)
{
    sqlite3_stmt *st = prepare(k, "SELECT " STORE_VERSION_COLUMNS " FROM partition_versions", e);
    if (st == NULL) {
        return e->code;
    }
    int rc = SQLITE_DONE;
    enum err_code code = ERR_OK;
    struct store_columns row;
    while (code == ERR_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (store_read_columns(st, &row)) {
            bool kept = row.to_revision == 0 || row.to_revision > k->compacted;
            code = kept ? check_names(k, &row, e) : ERR_OK;
        } else {
            violation(k, "partition %" PRIu64 ", version of %" PRIu64 ": out of its bounds", row.id,
                      row.from_revision);
        }
    }
    enum err_code end = finish(k, st, code == ERR_OK ? rc : SQLITE_DONE, e);
    return code == ERR_OK ? end : code;
}

static enum err_code check_state(struct check *k, struct err *e)
{
    struct err why;
    struct directory *d = directory_new();
    enum err_code code = store_load(k->c, d, 0, &why);
    if (code == ERR_CORRUPT) {
        violation(k, "state: %s", why.detail);
    } else if (code != ERR_OK) {
        code = err_set(e, code, "%s", why.detail);
        directory_free(d);
        return code;
    } else {
        k->violations += dir_check(directory_state(d), k->report, k->arg, LINES_MAX);
    }
    directory_free(d);
    return ERR_OK;
}

static enum err_code check_all(struct check *k, struct err *e)
{
    enum err_code code = check_pages(k, e);
    if (code != ERR_OK || k->violations > 0) {
        return code; /* damaged pages make the rest meaningless */
    }
    struct dir_view_meta meta;
    struct err why;
    code = store_read_meta(k->c, &meta, &why);
    if (code == ERR_CORRUPT) {
        violation(k, "meta: %s", why.detail);
        return ERR_OK;
    }
    if (code != ERR_OK) {
        return err_set(e, code, "%s", why.detail);
    }
    k->compacted = meta.compacted;
    enum err_code (*const parts[])(struct check *, struct err *) = {
        check_state, check_version_columns, check_keyspace_objects, check_keyspaces};
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0] && code == ERR_OK; i++) {
        code = parts[i](k, e);
    }
    for (unsigned i = 0; i < sizeof rules / sizeof rules[0] && code == ERR_OK; i++) {
        code = check_rule(k, &rules[i], e);
    }
    return code;
}

/* Bytes that are no database, or one with damaged pages, are a violation and not an error of the
 * check. With a header, it has to say the same as the file. */
static enum err_code
check_path(struct check *k, const char *path, const struct store_header *h, struct err *e)
{
    struct store_conn c;
    enum err_code code = store_conn_open(&c, path, STORE_READ, e);
    c.is_lent = true;
    if (code == ERR_OK) {
        k->c = &c;
        code = check_all(k, e);
        if (code == ERR_OK && h != NULL) {
            code = store_header_matches(h, &c, e);
        }
        store_conn_close(&c);
    }
    if (code == ERR_CORRUPT) {
        violation(k, "%s", e->detail);
        code = ERR_OK;
    }
    return code;
}

enum err_code store_check_file(const char *path,
                               void (*report)(void *arg, const char *line),
                               void *arg,
                               uint64_t *ret_violations,
                               struct err *e)
{
    struct err own;
    struct check k = {.report = report, .arg = arg};
    enum err_code code = check_path(&k, path, NULL, e != NULL ? e : &own);
    *ret_violations = k.violations;
    return code;
}

enum err_code store_check_snapshot(struct slice snapshot,
                                   const char *scratch_path,
                                   void (*report)(void *arg, const char *line),
                                   void *arg,
                                   uint64_t *ret_violations,
                                   struct err *e)
{
    struct err own;
    struct store_header h;
    struct check k = {.report = report, .arg = arg};
    e = e != NULL ? e : &own;
    enum err_code code = store_header_parse(snapshot, &h, e);
    if (code == ERR_OK) {
        code = store_write_image(h.image, scratch_path, e);
    }
    if (code == ERR_OK) {
        code = check_path(&k, scratch_path, &h, e);
        store_unlink(scratch_path);
    }
    if (code == ERR_CORRUPT) {
        violation(&k, "%s", e->detail);
        code = ERR_OK;
    }
    *ret_violations = k.violations;
    return code;
}
