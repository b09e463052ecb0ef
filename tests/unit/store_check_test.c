/* SPDX-License-Identifier: Apache-2.0 */
/* The offline check: silent on what the store writes, and loud on damage made with SQL. */
#include "base/mem.h"
#include "tests/harness/past.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct past w;
static char *copy;
static char lines[1 << 16];

static void collect(void *arg, const char *line)
{
    (void)arg;
    size_t len = strlen(lines);
    (void)snprintf(lines + len, sizeof lines - len, "%s\n", line);
}

static uint64_t check_copy(void)
{
    struct err e = {0};
    uint64_t violations = 0;
    lines[0] = '\0';
    if (!CHECK(store_check_file(copy, collect, NULL, &violations, &e) == ERR_OK)) {
        tap_note("%s", e.detail);
    }
    return violations;
}

static bool run_sql(const char *sql)
{
    sqlite3 *db = NULL;
    int rc = sqlite3_open(copy, &db);
    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    }
    bool changed = rc == SQLITE_OK && sqlite3_total_changes(db) > 0;
    (void)sqlite3_close(db); /* nothing is prepared */
    return changed;
}

/* A world whose history has every kind of event, and a fresh copy of its file. */
static void set_up(uint64_t seed, unsigned commands)
{
    past_open(&w, seed, false);
    past_start(&w, 5);
    for (unsigned i = 0; i < commands; i++) {
        (void)past_random(&w);
    }
    store_flush(w.s);
    copy = mem_printf("%s.copy", w.path);
}

static void fresh_copy(void)
{
    struct err e = {0};
    dir_rev revision;
    bool ok = store_backup(w.s, copy, &revision, &e) == ERR_OK;
    if (!CHECK(ok)) {
        (void)printf("# backup: %s\n", e.detail);
    }
}

static void tear_down(void)
{
    mem_free(copy);
    past_close(&w);
}

static void what_the_store_writes_is_clean(void)
{
    uint64_t seed = tap_seed(100);
    for (uint64_t k = 0; k < 8 && tap_failures() == 0; k++) {
        set_up(seed + k, 500);
        fresh_copy();
        CHECK_U64(check_copy(), 0);
        tap_note("seed %" PRIu64 ": %.400s", seed + k, lines);
        CHECK(past_history_max(&w, 100) == ERR_OK);
        for (unsigned i = 0; i < 700; i++) {
            (void)past_random(&w);
        }
        store_flush(w.s);
        fresh_copy();
        CHECK_U64(check_copy(), 0);
        tap_note("trimmed, seed %" PRIu64 ": %.400s", seed + k, lines);
        CHECK(tap_failures() == 0);
        tear_down();
    }
}

/* The file of a running server, beside its writer. */
static void a_live_file_can_be_checked(void)
{
    struct err e = {0};
    uint64_t violations = 1;
    set_up(5, 100);
    lines[0] = '\0';
    CHECK(store_check_file(w.path, collect, NULL, &violations, &e) == ERR_OK);
    CHECK_U64(violations, 0);
    tear_down();
}

#define CLOSED "(SELECT id FROM partition_versions WHERE to_revision IS NOT NULL"

static const struct {
    const char *sql, *says; /* in one of the lines */
} damage[] = {
    /* the state */
    {"DELETE FROM partition_versions WHERE to_revision IS NULL AND id ="
     " (SELECT max(id) FROM partition_versions WHERE to_revision IS NULL)",
     "state: "},
    {"UPDATE partition_versions SET end_key = x'aabb', start_key = x'aa' WHERE id ="
     " (SELECT max(id) FROM partition_versions WHERE to_revision IS NULL) AND to_revision IS NULL",
     "state: "},
    {"UPDATE partition_versions SET epoch = epoch - 1 WHERE to_revision IS NULL AND id ="
     " (SELECT max(id) FROM partition_versions WHERE to_revision IS NULL)",
     "state: "},
    {"UPDATE partition_versions SET rate_limit = rate_limit + 1 WHERE to_revision IS NULL",
     "state: "},
    {"UPDATE tombstones SET successors = '1' WHERE id = (SELECT max(id) FROM tombstones)",
     "state: "},
    {"DELETE FROM dedupe WHERE arrival = (SELECT min(arrival) FROM dedupe)", "state: "},
    {"UPDATE dedupe SET result = x'00' WHERE arrival = (SELECT min(arrival) FROM dedupe)",
     "state: "},
    {"UPDATE nodes SET address = '10.9.9.9:9' WHERE id = (SELECT max(id) FROM nodes)", "differ"},
    {"UPDATE keyspace_versions SET name = 'other' WHERE to_revision IS NULL AND id ="
     " (SELECT max(id) FROM keyspace_versions WHERE to_revision IS NULL)",
     "differ"},
    {"UPDATE servers SET object = x'0102'", "does not decode"},
    {"UPDATE operations SET partition = partition + 1", "differ"},
    {"UPDATE meta SET hash = '00000000000000000000000000000000'", "state: "},
    {"UPDATE meta SET revision = revision + 1", "meta"},
    {"UPDATE meta SET format = 99", "format"},
    {"DELETE FROM meta", "meta"},
    {"UPDATE partition_versions SET replicas = '1=king:1' WHERE to_revision IS NULL",
     "out of its bounds"},
    /* history: a gap, an overlap, an epoch with two primaries, one that falls, orphans */
    {"DELETE FROM partition_versions WHERE (id, from_revision) = (SELECT id, from_revision FROM"
     " partition_versions WHERE to_revision IS NOT NULL AND from_revision > 40 LIMIT 1)",
     "cover different keys"},
    {"UPDATE partition_versions SET end_key = CAST(start_key || x'00' AS BLOB) WHERE (id, "
     "from_revision) ="
     " (SELECT id, from_revision FROM partition_versions WHERE ended = 2 LIMIT 1)",
     "cover different keys"},
    {"UPDATE partition_versions SET start_key = x'01' WHERE (id, from_revision) ="
     " (SELECT id, from_revision FROM partition_versions WHERE ended = 2 AND start_key = x'' LIMIT "
     "1)",
     "cover different keys"},
    {"INSERT INTO partition_versions SELECT id + 1000000, from_revision, to_revision, keyspace,"
     " start_key, end_key, epoch, mod_revision, created, state, cause, ended, replicas, NULL, NULL,"
     " operation, rate_limit, pinned, holds_data, owner_since_ms, from_ms, to_ms, session, home,"
     " held_by, start_position, moving, under_since_ms"
     " FROM partition_versions WHERE from_revision > 40 AND ended = 2 LIMIT 1",
     "overlap"},
    {"UPDATE partition_versions SET replicas = '999=primary:1', ended = 4 WHERE (id, "
     "from_revision) ="
     " (SELECT v.id, v.from_revision FROM partition_versions v JOIN partition_versions n"
     " ON n.id = v.id AND n.from_revision = v.to_revision AND n.epoch = v.epoch"
     " AND n.replicas <> '' AND v.replicas <> '' LIMIT 1)",
     "two primaries"},
    {"UPDATE partition_versions SET epoch = (SELECT n.epoch FROM partition_versions n WHERE"
     " n.id = partition_versions.id AND n.from_revision = partition_versions.to_revision)"
     " WHERE ended = 4",
     "two primaries"},
    {"UPDATE partition_versions SET epoch = from_revision + 100 WHERE ended = 4",
     "an epoch goes back"},
    {"UPDATE partition_versions SET from_revision = from_revision + 1 WHERE (id, from_revision) ="
     " (SELECT id, from_revision FROM partition_versions WHERE ended = 4 AND"
     " to_revision > from_revision + 1 LIMIT 1)",
     "cover different keys"},
    {"UPDATE partition_versions SET keyspace = 999999 WHERE (id, from_revision) ="
     " (SELECT id, from_revision FROM partition_versions WHERE ended = 2 LIMIT 1)",
     "unknown keyspace"},
    {"UPDATE partition_versions SET epoch = created + 100000 WHERE (id, from_revision) ="
     " (SELECT id, from_revision FROM partition_versions WHERE ended = 2 LIMIT 1)",
     "not above its parent's"},
    {"UPDATE partition_versions SET replicas = '999=primary:1' WHERE ended = 2", "unknown node"},
    {"DELETE FROM partition_versions WHERE (id, from_revision) = (SELECT id, from_revision FROM"
     " partition_versions WHERE from_revision = created AND ended = 4 LIMIT 1)",
     "first version of a partition is missing"},
    {"UPDATE node_versions SET address = 'x:1' WHERE to_revision IS NULL", "another address"},
    {"UPDATE keyspace_versions SET object = x'00' WHERE to_revision IS NOT NULL",
     "keyspace_versions: "},
    {"UPDATE commands SET revision = revision + 1000000", "audit row"},
};

static void seeded_damage_is_found(void)
{
    set_up(7, 700); /* the damage is made for what this seed gives */
    for (unsigned i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        fresh_copy();
        if (!CHECK(run_sql(damage[i].sql))) {
            tap_note("not applied: %.300s", damage[i].sql);
            continue;
        }
        uint64_t violations = check_copy();
        if (!CHECK(violations > 0 && strstr(lines, damage[i].says) != NULL)) {
            tap_note("damage %u", i);
            (void)printf("# %.300s\n# gave %" PRIu64 ": %.500s\n", damage[i].sql, violations,
                         lines);
        }
    }
    tear_down();
}

static void damaged_pages_are_found(void)
{
    struct err e = {0};
    uint64_t violations = 0;
    set_up(9, 300);
    fresh_copy();
    FILE *f = fopen(copy, "r+b");
    CHECK(f != NULL && fseek(f, 4096 * 3, SEEK_SET) == 0);
    for (unsigned i = 0; f != NULL && i < 4096; i++) {
        (void)fputc(0x5a, f);
    }
    CHECK(f != NULL && fclose(f) == 0);
    CHECK(check_copy() > 0);
    f = fopen(copy, "wb");
    CHECK(f != NULL && fputs("this is not a database, however long it may be", f) >= 0);
    CHECK(f != NULL && fclose(f) == 0);
    CHECK(check_copy() > 0);
    CHECK(unlink(copy) == 0);
    CHECK(store_check_file(copy, collect, NULL, &violations, &e) == ERR_IO);
    tear_down();
}

/* Whoever reads a backup is told; it is not the store of the process, whose damage ends it. */
static void damage_of_a_file_that_is_read_is_told(void)
{
    enum { PAGE = 4096 };
    static char page[PAGE];
    unsigned bad = 0;
    bool more = true;
    (void)memset(page, 0x5a, sizeof page);
    set_up(9, 300);
    for (long at = 0; more; at += PAGE) {
        struct directory *d = NULL;
        struct err e = {0};
        fresh_copy();
        FILE *f = fopen(copy, "r+b");
        CHECK(f != NULL && fseek(f, 0, SEEK_END) == 0);
        more = ftell(f) > at + PAGE;
        /* The header of the first page stays, so that it is SQLite's. */
        long from = at == 0 ? 100 : at;
        CHECK(fseek(f, from, SEEK_SET) == 0);
        CHECK(fwrite(page, 1, (size_t)(at + PAGE - from), f) > 0 && fclose(f) == 0);
        if (store_read_file(copy, &d, &e) == ERR_OK) {
            directory_free(d);
        } else {
            bad++;
            CHECK(e.detail[0] != '\0');
        }
    }
    CHECK(bad > 2);
    tear_down();
}

int main(void)
{
    RUN(what_the_store_writes_is_clean);
    RUN(a_live_file_can_be_checked);
    RUN(seeded_damage_is_found);
    RUN(damaged_pages_are_found);
    RUN(damage_of_a_file_that_is_read_is_told);
    return tap_done();
}
