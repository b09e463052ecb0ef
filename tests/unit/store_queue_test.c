/* SPDX-License-Identifier: Apache-2.0 */
/* The queue and the pool: bounds, waits, readers beside the writer, and a disk that fills up. */
#include "base/clock.h"
#include "base/mem.h"
#include "directory/store_internal.h"
#include "tests/harness/past.h"
#include "tests/harness/tap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static struct past w;

/* --- a full disk; forks, so it runs before there are threads --- */

_Noreturn static void fill_disk(const char *folder, int log)
{
    (void)dup2(log, STDERR_FILENO);
    (void)setenv("TMPDIR", folder, 1);
    past_open(&w, 1, false);
    past_start(&w, 2);
    (void)past_keyspace(&w, "a", 64);
    for (unsigned i = 0; i < 200000; i++) {
        (void)past_random(&w);
    }
    store_flush(w.s);
    _exit(0); /* it never filled */
}

static void a_full_disk_ends_the_process(void)
{
    char folder[] = "/tmp/store-full-XXXXXX";
    int ends[2], status = 0;
    static char text[1 << 17];
    size_t len = 0;
    CHECK(mkdtemp(folder) != NULL && pipe(ends) == 0);
    if (mount("tmpfs", folder, "tmpfs", 0, "size=1m") != 0) {
        (void)printf("# skipped: no tmpfs can be mounted here: %s\n", strerror(errno));
        CHECK(rmdir(folder) == 0);
        return;
    }
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fill_disk(folder, ends[1]);
    }
    (void)close(ends[1]); /* the child has its own */
    ssize_t n;
    while (len < sizeof text - 1 && (n = read(ends[0], text + len, sizeof text - 1 - len)) > 0) {
        len += (size_t)n;
    }
    text[len] = '\0';
    (void)close(ends[0]); /* read to its end */
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(strstr(text, "store.write.failed") != NULL);
    CHECK(strstr(text, folder) != NULL && strstr(text, "store.db") != NULL);
    CHECK(strstr(text, "full") != NULL);
    tap_note("%.400s", text);
    CHECK(umount(folder) == 0 && rmdir(folder) == 0);
}

/* --- the queue --- */

static void the_queue_is_bounded_and_drains(void)
{
    past_open(&w, 1, false);
    past_start(&w, 1);
    store_flush(w.s);
    struct dir_view_meta meta;
    dir_meta_of(directory_state(w.d), &meta);
    for (uint64_t i = 0; i < STORE_QUEUE_MAX + 5000; i++) {
        struct dir_effects *e = mem_zalloc(sizeof *e);
        e->index = 1000 + i;
        e->revision = meta.revision;
        e->meta = meta;
        e->meta.applied_index = e->index;
        store_push(w.s, e);
        if (!CHECK(store_lag(w.s) <= STORE_QUEUE_MAX)) {
            break;
        }
    }
    store_flush(w.s);
    CHECK_U64(store_lag(w.s), 0);
    CHECK(store_image_bytes(w.s) > 0);
    past_close(&w);
}

static void what_waits_is_written_at_the_end(void)
{
    struct err e;
    struct store_conn c;
    struct dir_view_meta meta;
    past_open(&w, tap_seed(2), false);
    past_start(&w, 3);
    for (unsigned i = 0; i < 300; i++) {
        (void)past_random(&w);
    }
    struct dir_view_meta want;
    dir_meta_of(directory_state(w.d), &want);
    store_close(w.s);
    CHECK(store_conn_open(&c, w.path, STORE_READ, &e) == ERR_OK);
    CHECK(store_read_meta(&c, &meta, &e) == ERR_OK);
    CHECK_U64(meta.revision, want.revision);
    CHECK(meta.hash.lo == want.hash.lo && meta.hash.hi == want.hash.hi);
    store_conn_close(&c);
    CHECK(store_open(w.path, &w.s, &e) == ERR_OK); /* anew: the old file is gone */
    CHECK_U64(store_revision(w.s), 0);
    past_close(&w);
}

struct awaiter {
    dir_rev revision;
    enum err_code code;
};

static void *await(void *arg)
{
    struct err e;
    struct awaiter *a = arg;
    a->code = store_await(w.s, a->revision, 30000, &e);
    return NULL;
}

static void a_read_can_wait_for_its_revision(void)
{
    struct err e;
    pthread_t thread;
    past_open(&w, 3, false);
    past_start(&w, 1);
    dir_rev now = directory_state(w.d)->revision;
    CHECK(store_await(w.s, now, 30000, &e) == ERR_OK);
    CHECK(store_await(w.s, now + 1, 5, &e) == ERR_BEHIND);
    struct awaiter a = {.revision = now + 1};
    CHECK(pthread_create(&thread, NULL, await, &a) == 0);
    CHECK(past_keyspace(&w, "a", 3) == ERR_OK);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(a.code == ERR_OK);
    past_close(&w);
}

static void readers_beyond_the_pool_are_told(void)
{
    struct err e = {0};
    struct store_conn *taken[STORE_READERS_MAX];
    past_open(&w, 4, false);
    past_start(&w, 1);
    store_flush(w.s);
    for (unsigned i = 0; i < STORE_READERS_MAX; i++) {
        taken[i] = store_readers_take(w.s, &e);
        CHECK(taken[i] != NULL);
    }
    dir_rev revision;
    CHECK(store_backup(w.s, "/tmp/never-made", &revision, &e) == ERR_OVERLOADED);
    for (unsigned i = 0; i < STORE_READERS_MAX; i++) {
        store_readers_give(w.s, taken[i]);
    }
    CHECK(store_readers_take(w.s, &e) == taken[0]);
    store_readers_give(w.s, taken[0]);
    past_close(&w);
}

/* --- readers beside the writer --- */

enum { READERS = 10 };

static atomic_bool stop;
static atomic_uint reads, failures, restores; /* restores: begun and ended */
static _Atomic uint64_t keyspace_id, partition_id;

static void see_route(void *arg, const struct store_version *v)
{
    *(uint64_t *)arg = v->partition;
}

static bool see_version(void *arg, const struct store_version *v)
{
    (void)v;
    return ++*(unsigned *)arg < 100;
}

static bool see_event(void *arg, const struct store_event *ev)
{
    dir_rev *last = arg;
    if (ev->revision < *last) {
        atomic_fetch_add(&failures, 1);
    }
    *last = ev->revision;
    return true;
}

static void see_row(void *arg, const struct store_audit *row)
{
    uint64_t *last = arg;
    if (*last != 0 && row->index > *last) {
        atomic_fetch_add(&failures, 1);
    }
    *last = row->index;
}

static void *read_all(void *arg)
{
    struct tap_rand rand = {(uint64_t)(uintptr_t)arg};
    while (!atomic_load(&stop)) {
        struct err e = {0};
        uint64_t seen = 0, last_index = 0;
        unsigned count = 0;
        unsigned before = atomic_load(&restores);
        dir_rev last = 0, now = store_revision(w.s);
        enum err_code codes[] = {
            store_route_at(w.s, keyspace_id, slice_of("k", 1), now, see_route, &seen, &e),
            store_history(w.s, partition_id, see_version, &count, &e),
            store_events(w.s, keyspace_id, tap_rand_below(&rand, now), now, see_event, &last, &e),
            store_audit(w.s, 0, 50, see_row, &last_index, &e),
        };
        for (unsigned i = 0; i < sizeof codes / sizeof codes[0]; i++) {
            bool went_back =
                codes[i] == ERR_BEHIND && (before % 2 == 1 || atomic_load(&restores) != before);
            if (codes[i] != ERR_OK && codes[i] != ERR_OVERLOADED && !went_back &&
                atomic_fetch_add(&failures, 1) < 10) {
                (void)printf("# read %u: %s\n", i, e.detail);
            }
        }
        atomic_fetch_add(&reads, 1);
    }
    return NULL;
}

/* More readers than connections, a writer, snapshots and restores in between. */
static void readers_run_beside_the_writer(void)
{
    struct err e = {0};
    pthread_t threads[READERS];
    past_open(&w, 5, false);
    past_start(&w, 4);
    CHECK(past_keyspace(&w, "stays", 8) == ERR_OK);
    partition_id = past_any_partition(&w)->id;
    keyspace_id = past_any_partition(&w)->keyspace;
    store_flush(w.s);
    for (uintptr_t i = 0; i < READERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, read_all, (void *)(i + 1)) == 0);
    }
    uint64_t deadline = clock_mono_ms() + 60000;
    for (unsigned k = 0; (k < 5 || atomic_load(&reads) < 40) && clock_mono_ms() < deadline; k++) {
        size_t len;
        uint8_t *bytes = past_snapshot(&w, &len);
        for (unsigned i = 0; i < 40; i++) {
            const struct dir_partition *p = past_any_partition(&w);
            uint8_t key[4] = {(uint8_t)tap_rand(&w.rand), (uint8_t)tap_rand(&w.rand), 1, 2};
            (void)past_split(&w, p->id, key, sizeof key);
            (void)past_move(&w, past_any_partition(&w)->id, i % 2 == 0 ? "n1" : "n2");
        }
        if (k < 3) { /* back to before: readers see an older store, never a broken one */
            store_flush(w.s);
            atomic_fetch_add(&restores, 1);
            CHECK(store_restore(w.s, w.d, slice_of(bytes, len), &e) == ERR_OK);
            atomic_fetch_add(&restores, 1);
        }
        mem_free(bytes);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < READERS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(atomic_load(&reads) >= 40);
    CHECK_U64(atomic_load(&failures), 0);
    past_close(&w);
}

/* --- audit --- */

struct audit_list {
    uint64_t count, last;
    unsigned moves, refused;
};

static void count_row(void *arg, const struct store_audit *row)
{
    struct audit_list *l = arg;
    CHECK(l->last == 0 || row->index <= l->last);
    CHECK_STR(row->principal, "tester");
    CHECK_STR(row->remote, "127.0.0.1");
    CHECK_STR(row->request_id, "r-1");
    l->last = row->index;
    l->count++;
    if (strcmp(row->what, "reassign") == 0) {
        l->moves++;
        l->refused += strcmp(row->outcome, "ok") != 0;
        CHECK(strncmp(row->idempotency_key, "move-", 5) == 0);
    }
}

static void the_audit_has_every_command(void)
{
    struct err e;
    struct audit_list l = {0};
    past_open(&w, 6, false);
    past_start(&w, 2);
    CHECK(past_keyspace(&w, "a", 4) == ERR_OK);
    for (unsigned i = 0; i < 200; i++) {
        (void)past_move(&w, past_any_partition(&w)->id, "n1"); /* most are refused */
    }
    store_flush(w.s);
    uint64_t before = 0, seen;
    do {
        seen = l.count;
        CHECK(store_audit(w.s, before, 17, count_row, &l, &e) == ERR_OK);
        before = l.last;
    } while (l.count > seen);
    CHECK_U64(l.count, 1 + 2 + 1 + 200);
    CHECK_U64(l.moves, 200);
    CHECK(l.refused > 150 && l.refused < 200);
    past_close(&w);
}

int main(void)
{
    RUN(a_full_disk_ends_the_process);
    RUN(the_queue_is_bounded_and_drains);
    RUN(what_waits_is_written_at_the_end);
    RUN(a_read_can_wait_for_its_revision);
    RUN(readers_beyond_the_pool_are_told);
    RUN(readers_run_beside_the_writer);
    RUN(the_audit_has_every_command);
    return tap_done();
}
