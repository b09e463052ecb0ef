/* SPDX-License-Identifier: Apache-2.0 */
/* The store's speed: store_bench [PARTITIONS [COMMANDS]], default 1 000 000 and 100 000. Prints
 *
 *   rows written a second for single-row effects at random (one primary changes) and for splits,
 * with the largest WAL while readers page through events and history; the image's size; the time
 * for a snapshot, for a restore (open + load) of it, and for a plain copy of the file.
 *
 * Needs three times the image's size in TMPDIR. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "tests/harness/past.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct past w;
static atomic_bool stop;
static uint64_t keyspace, reader_events;
static uint64_t largest_wal;

static double seconds(uint64_t since_ns)
{
    return (double)(clock_mono_ns() - since_ns) / 1e9;
}

static uint64_t file_bytes(const char *path, const char *end)
{
    struct stat st;
    char *name = mem_printf("%s%s", path, end);
    uint64_t bytes = stat(name, &st) == 0 ? (uint64_t)st.st_size : 0;
    mem_free(name);
    return bytes;
}

static bool count_event(void *arg, const struct store_event *ev)
{
    (void)ev;
    ++*(uint64_t *)arg;
    return !atomic_load(&stop);
}

static void *read_events(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        struct err e;
        dir_rev now = store_revision(w.s);
        if (store_events(w.s, keyspace, 0, now, count_event, &reader_events, &e) != ERR_OK) {
            (void)printf("a read failed: %s\n", e.detail);
            return NULL;
        }
    }
    return NULL;
}

static void watch_wal(void)
{
    uint64_t bytes = file_bytes(w.path, "-wal");
    largest_wal = bytes > largest_wal ? bytes : largest_wal;
}

/* CPU of every thread but this one: the store's, and what frees memory for readers. */
static double others_cpu(void)
{
    struct timespec all, mine;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all); /* can't fail with these clocks */
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mine);
    return (double)(all.tv_sec - mine.tv_sec) + (double)(all.tv_nsec - mine.tv_nsec) / 1e9;
}

static void moves(const char *what, uint64_t commands, uint64_t first, uint64_t count)
{
    uint64_t begun = clock_mono_ns();
    double cpu = others_cpu();
    for (uint64_t i = 0; i < commands; i++) {
        char to[8];
        (void)snprintf(to, sizeof to, "n%" PRIu64, tap_rand_below(&w.rand, 16));
        (void)past_move(&w, first + tap_rand_below(&w.rand, count), to);
        if (i % 1000 == 0) {
            watch_wal();
        }
    }
    double applied = seconds(begun);
    store_flush(w.s);
    double all = seconds(begun), spent = others_cpu() - cpu;
    (void)printf("%-28s %" PRIu64 " in %.2f s (%.2f s until all was pushed): %.0f a second, "
                 "%.0f us of the store's CPU each, largest WAL %" PRIu64 " MB\n",
                 what, commands, all, applied, (double)commands / all,
                 spent * 1e6 / (double)commands, largest_wal >> 20);
}

static void splits(uint64_t commands)
{
    uint64_t begun = clock_mono_ns(), done = 0;
    for (uint64_t i = 0; i < commands; i++) {
        uint8_t key[12];
        for (unsigned k = 0; k < sizeof key; k++) {
            key[k] = (uint8_t)tap_rand(&w.rand);
        }
        const struct dir_view *v = directory_state(w.d);
        const struct dir_keyspace *ks = view_keyspace_by_id(v, keyspace);
        const struct dir_partition *p = view_route(v, ks, slice_of(key, sizeof key));
        done += past_split(&w, p->id, key, sizeof key) == ERR_OK;
    }
    store_flush(w.s);
    double all = seconds(begun);
    (void)printf("%-28s %" PRIu64 " in %.2f s: %.0f a second (3 versions and a tombstone each)\n",
                 "splits", done, all, (double)done / all);
}

static double copy_file(const char *from, const char *to)
{
    uint64_t begun = clock_mono_ns();
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    while (in >= 0 && out >= 0 && sendfile(out, in, NULL, 1 << 30) > 0) {
        continue;
    }
    (void)close(in); /* a bench */
    (void)close(out);
    return seconds(begun);
}

static void snapshots(void)
{
    struct err e;
    size_t len;
    uint64_t begun = clock_mono_ns();
    uint8_t *bytes = past_snapshot(&w, &len);
    (void)printf("%-28s %.2f s, %zu MB\n", "snapshot", seconds(begun), len >> 20);
    struct past other;
    past_open(&other, 1, false);
    begun = clock_mono_ns();
    if (store_restore(other.s, other.d, slice_of(bytes, len), &e) != ERR_OK) {
        (void)printf("restore failed: %s\n", e.detail);
    }
    (void)printf("%-28s %.2f s\n", "restore (open and load)", seconds(begun));
    mem_free(bytes);
    char *copy = mem_printf("%s.copy", other.path);
    double copied = copy_file(other.path, copy);
    uint64_t megabytes = file_bytes(copy, "") >> 20;
    (void)printf("%-28s %.2f s for %" PRIu64 " MB\n", "plain copy", copied, megabytes);
    mem_free(copy);
    past_close(&other);
}

int main(int argc, char **argv)
{
    uint64_t partitions = 1000000, commands = 100000;
    if ((argc > 1 && !parse_u64(argv[1], DIR_PARTITIONS_MAX, &partitions)) ||
        (argc > 2 && !parse_u64(argv[2], 100000000, &commands))) {
        (void)fprintf(stderr, "usage: store_bench [PARTITIONS [COMMANDS]]\n");
        return 2;
    }
    past_open(&w, 1, false);
    past_start(&w, 16);
    uint64_t begun = clock_mono_ns();
    past_large(&w, "bench", partitions);
    store_flush(w.s);
    (void)printf("%-28s %" PRIu64 " partitions in %.2f s, image %" PRIu64 " MB\n", "bulk creation",
                 directory_state(w.d)->partitions.count, seconds(begun),
                 store_image_bytes(w.s) >> 20);
    const struct dir_partition *p = past_any_partition(&w);
    keyspace = p->keyspace;
    struct ptree_iter it;
    ptree_seek(&directory_state(w.d)->partitions, slice_of(NULL, 0), &it);
    p = ptree_iter_get(&it, NULL);
    uint64_t first = p->id;
    snapshots();
    moves("moves, uniform", commands, first, partitions);
    moves("moves, 10 000 hot", commands, first, partitions < 10000 ? partitions : 10000);
    splits(commands / 2);
    pthread_t thread;
    if (pthread_create(&thread, NULL, read_events, NULL) == 0) {
        largest_wal = 0;
        moves("moves beside a long reader", commands, first, partitions);
        atomic_store(&stop, true);
        (void)pthread_join(thread, NULL);
        (void)printf("%-28s %" PRIu64 "\n", "events that it read", reader_events);
    }
    snapshots();
    past_close(&w);
    return 0;
}
