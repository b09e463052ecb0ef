/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: exact at their index, refused when damaged, whole after a restore. */
#include "base/mem.h"
#include "tests/harness/past.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct past w;

static bool same_state(const struct dir_view *a, const struct dir_view *b)
{
    return CHECK(a->hash.lo == b->hash.lo && a->hash.hi == b->hash.hi) &&
           CHECK_U64(a->revision, b->revision) && CHECK_U64(a->next_id, b->next_id) &&
           CHECK_U64(a->time_ms, b->time_ms) && CHECK_U64(a->partitions.count, b->partitions.count);
}

static void print_line(void *arg, const char *line)
{
    (void)arg;
    tap_note("%s", line);
}

static void is_clean(struct slice snapshot)
{
    struct err e = {0};
    uint64_t violations = 0;
    char *scratch = mem_printf("%s.copy", w.path);
    CHECK(store_check_snapshot(snapshot, scratch, print_line, NULL, &violations, &e) == ERR_OK);
    CHECK_U64(violations, 0);
    CHECK(access(scratch, F_OK) != 0);
    mem_free(scratch);
}

static void open_random(uint64_t seed, unsigned commands)
{
    tap_note("seed %" PRIu64, seed);
    past_open(&w, seed, false);
    past_start(&w, 4);
    for (unsigned i = 0; i < commands; i++) {
        (void)past_random(&w);
    }
}

static void a_snapshot_restores_to_the_same_state(void)
{
    struct err e = {0};
    uint64_t seed = tap_seed(1);
    for (uint64_t k = 0; k < 4 && tap_failures() == 0; k++) {
        struct past other;
        size_t len;
        open_random(seed + k, 300);
        uint8_t *bytes = past_snapshot(&w, &len);
        is_clean(slice_of(bytes, len));
        past_open(&other, 7, false);
        if (!CHECK(store_restore(other.s, other.d, slice_of(bytes, len), &e) == ERR_OK)) {
            tap_note("%s", e.detail);
        }
        (void)same_state(directory_state(other.d), directory_state(w.d));
        CHECK_U64(directory_state(other.d)->applied_index, w.index);
        CHECK_U64(store_revision(other.s), directory_state(w.d)->revision);
        mem_free(bytes);
        past_close(&other);
        past_close(&w);
    }
}

static void put_leased(const char *name)
{
    Cadastre__NodePut put;
    Cadastre__Command cmd;
    cadastre__node_put__init(&put);
    cadastre__command__init(&cmd);
    char text[32], address[32];
    (void)snprintf(text, sizeof text, "%s", name);
    (void)snprintf(address, sizeof address, "%s:9000", name);
    put.name = text;
    put.address = address;
    cmd.body_case = CADASTRE__COMMAND__BODY_NODE_PUT;
    cmd.node_put = &put;
    cmd.idempotency_key = text;
    uint8_t digest[16] = {1};
    cmd.digest = (ProtobufCBinaryData){sizeof digest, digest};
    CHECK_U64(past_apply(&w, &cmd), ERR_OK);
}

static void put_proposal(const struct dir_partition *p)
{
    Cadastre__ProposalMake make;
    Cadastre__Command cmd;
    cadastre__proposal_make__init(&make);
    cadastre__command__init(&cmd);
    char reason[] = "hot_node";
    make.kind = DIR_PROPOSAL_ADVICE;
    make.partition = p->id;
    make.epoch = p->epoch;
    make.reason_code = reason;
    make.reason = reason;
    make.expires_in_ms = DIR_REVISION_MAX / 2;
    cmd.body_case = CADASTRE__COMMAND__BODY_PROPOSAL_MAKE;
    cmd.proposal_make = &make;
    CHECK_U64(past_apply(&w, &cmd), ERR_OK);
}

static void put_balancer(void)
{
    Cadastre__BalancerPause pause;
    Cadastre__BalancerNote note;
    Cadastre__Command cmd;
    char text[] = "migration";
    cadastre__balancer_pause__init(&pause);
    cadastre__balancer_note__init(&note);
    cadastre__command__init(&cmd);
    pause.pause = true;
    pause.reason = text;
    cmd.body_case = CADASTRE__COMMAND__BODY_BALANCER_PAUSE;
    cmd.balancer_pause = &pause;
    CHECK_U64(past_apply(&w, &cmd), ERR_OK);
    note.code = text;
    cmd.body_case = CADASTRE__COMMAND__BODY_BALANCER_NOTE;
    cmd.balancer_note = &note;
    CHECK_U64(past_apply(&w, &cmd), ERR_OK);
}

/* One of each table, so that a kind that can be written and not read is found here. */
static void every_kind_of_row_comes_back(void)
{
    struct err e = {0};
    struct past other;
    size_t len;
    past_open(&w, 5, false);
    past_start(&w, 1);
    put_leased("leased");
    CHECK_U64(past_keyspace(&w, "goes", 8), ERR_OK);
    CHECK_U64(past_keyspace(&w, "stays", 8), ERR_OK);
    const struct dir_view *v = directory_state(w.d);
    const struct dir_keyspace *goes = view_keyspace(v, slice_of("goes", 4));
    CHECK_U64(past_delete(&w, goes->id), ERR_OK);
    for (int i = 0; i < 50 && v->operations.count == 0; i++) {
        (void)past_random(&w);
    }
    CHECK(v->keyspaces.count > 0 && v->partitions.count > 0 && v->nodes.count > 0);
    CHECK(v->servers.count > 0 && v->duties.count > 0 && v->dedupe.count > 0);
    put_proposal(past_any_partition(&w));
    put_balancer();
    CHECK(v->operations.count > 0 && v->proposals.count > 0 && v->balancer.count == 1);
    uint8_t *bytes = past_snapshot(&w, &len);
    is_clean(slice_of(bytes, len));
    past_open(&other, 7, false);
    if (!CHECK(store_restore(other.s, other.d, slice_of(bytes, len), &e) == ERR_OK)) {
        tap_note("%s", e.detail);
    }
    (void)same_state(directory_state(other.d), directory_state(w.d));
    mem_free(bytes);
    past_close(&other);
    past_close(&w);
}

static void an_empty_store_has_a_snapshot_too(void)
{
    struct err e = {0};
    size_t len;
    past_open(&w, 1, false);
    uint8_t *bytes = past_snapshot(&w, &len);
    is_clean(slice_of(bytes, len));
    CHECK(store_restore(w.s, w.d, slice_of(bytes, len), &e) == ERR_OK);
    mem_free(bytes);
    past_close(&w);
}

/* The restored server goes on with the same commands, and stays equal; its history has what came
 * before. */
static void a_restored_store_goes_on(void)
{
    struct err e = {0};
    struct past other;
    size_t len;
    open_random(tap_seed(3), 200);
    uint8_t *bytes = past_snapshot(&w, &len);
    past_open(&other, 9, false);
    past_start(&other, 2); /* content of its own, some of it not yet written */
    for (unsigned i = 0; i < 100; i++) {
        (void)past_random(&other);
    }
    CHECK(store_restore(other.s, other.d, slice_of(bytes, len), &e) == ERR_OK);
    CHECK_U64(store_lag(other.s), 0);
    other.rand = w.rand;
    other.index = w.index;
    other.time_ms = w.time_ms;
    mem_free(bytes);
    for (unsigned i = 0; i < 200; i++) {
        (void)past_random(&w);
        (void)past_random(&other);
    }
    (void)same_state(directory_state(other.d), directory_state(w.d));
    bytes = past_snapshot(&other, &len);
    is_clean(slice_of(bytes, len));
    mem_free(bytes);
    past_close(&other);
    past_close(&w);
}

struct waiter {
    struct store_snapshot *snap;
    struct slice pieces[2];
    struct err err;
    enum err_code code;
};

static void *wait_for(void *arg)
{
    struct waiter *t = arg;
    t->code = store_snapshot_wait(t->snap, t->pieces, &t->err);
    return NULL;
}

/* Markers in the middle of a stream that goes on: each image is the state at its index. */
static void a_snapshot_is_exact_while_more_is_written(void)
{
    struct err e = {0};
    open_random(tap_seed(4), 100);
    for (unsigned k = 0; k < 8 && tap_failures() == 0; k++) {
        for (uint64_t i = tap_rand_below(&w.rand, 60); i > 0; i--) {
            (void)past_random(&w);
        }
        struct dir_view_meta want = {.revision = directory_state(w.d)->revision,
                                     .hash = directory_state(w.d)->hash};
        pthread_t thread;
        struct waiter t = {.snap = store_snapshot_begin(w.s, w.index)};
        uint64_t index = w.index;
        CHECK(t.snap != NULL && store_snapshot_begin(w.s, w.index) == NULL);
        CHECK(pthread_create(&thread, NULL, wait_for, &t) == 0);
        for (unsigned i = 0; i < 60; i++) {
            (void)past_random(&w);
        }
        CHECK(pthread_join(thread, NULL) == 0 && t.code == ERR_OK);
        size_t len = t.pieces[0].len + t.pieces[1].len;
        uint8_t *bytes = mem_alloc(len);
        memcpy(bytes, t.pieces[0].data, t.pieces[0].len);
        memcpy(bytes + t.pieces[0].len, t.pieces[1].data, t.pieces[1].len);
        store_snapshot_end(t.snap);
        struct past other;
        past_open(&other, 1, false);
        CHECK(store_restore(other.s, other.d, slice_of(bytes, len), &e) == ERR_OK);
        const struct dir_view *got = directory_state(other.d);
        CHECK(got->hash.lo == want.hash.lo && got->hash.hi == want.hash.hi);
        CHECK_U64(got->revision, want.revision);
        CHECK_U64(got->applied_index, index);
        past_close(&other);
        mem_free(bytes);
    }
    past_close(&w);
}

/* Every byte of the header, and bytes all over the image. */
static void a_flipped_bit_anywhere_is_refused(void)
{
    struct err e = {0};
    struct past other;
    size_t len;
    open_random(tap_seed(5), 120);
    uint8_t *bytes = past_snapshot(&w, &len);
    past_open(&other, 1, false);
    past_start(&other, 3);
    store_flush(other.s);
    struct dir_view_meta before = {.hash = directory_state(other.d)->hash};
    dir_rev revision = store_revision(other.s);
    for (unsigned i = 0; i < 700 && tap_failures() == 0; i++) {
        size_t at = i < 160 ? i / 2 : tap_rand_below(&w.rand, len);
        uint8_t bit = (uint8_t)(1u << (i < 160 ? i % 2 * 7 : tap_rand_below(&w.rand, 8)));
        tap_note("bit %u of byte %zu", bit, at);
        bytes[at] ^= bit;
        CHECK(store_restore(other.s, other.d, slice_of(bytes, len), &e) == ERR_CORRUPT);
        bytes[at] ^= bit;
    }
    for (size_t cut = 0; cut < len && tap_failures() == 0; cut += 1 + cut) {
        CHECK(store_restore(other.s, other.d, slice_of(bytes, cut), &e) == ERR_CORRUPT);
    }
    CHECK(store_revision(other.s) == revision);
    CHECK(directory_state(other.d)->hash.lo == before.hash.lo);
    CHECK(past_keyspace(&other, "still-works", 4) == ERR_OK);
    store_flush(other.s);
    CHECK(store_revision(other.s) == revision + 1);
    CHECK(store_restore(other.s, other.d, slice_of(bytes, len), &e) == ERR_OK);
    (void)same_state(directory_state(other.d), directory_state(w.d));
    mem_free(bytes);
    past_close(&other);
    past_close(&w);
}

/* A restore overtakes a snapshot that waits, and one that is ready but was never fetched. */
static void a_restore_cancels_a_snapshot_in_the_making(void)
{
    struct err e = {0};
    struct slice pieces[2];
    size_t len;
    open_random(tap_seed(6), 50);
    uint8_t *bytes = past_snapshot(&w, &len);
    for (unsigned k = 0; k < 2; k++) {
        (void)past_random(&w);
        struct store_snapshot *snap = store_snapshot_begin(w.s, w.index);
        if (k == 1) {
            store_flush(w.s);
        }
        CHECK(store_restore(w.s, w.d, slice_of(bytes, len), &e) == ERR_OK);
        CHECK(store_snapshot_wait(snap, pieces, &e) == ERR_NOT_READY);
        store_snapshot_end(snap);
    }
    struct store_snapshot *unused = store_snapshot_begin(w.s, w.index);
    store_snapshot_end(unused); /* at any time before it is waited for */
    mem_free(bytes);
    bytes = past_snapshot(&w, &len);
    is_clean(slice_of(bytes, len));
    mem_free(bytes);
    past_close(&w);
}

static void a_backup_is_a_store_of_its_own(void)
{
    struct err e = {0};
    dir_rev revision = 0;
    uint64_t violations = 1;
    open_random(tap_seed(8), 200);
    char *path = mem_printf("%s.backup", w.path);
    store_flush(w.s);
    CHECK(store_backup(w.s, path, &revision, &e) == ERR_OK);
    CHECK_U64(revision, directory_state(w.d)->revision);
    CHECK(store_backup(w.s, path, &revision, &e) == ERR_OK); /* over the earlier one */
    CHECK(store_check_file(path, print_line, NULL, &violations, &e) == ERR_OK);
    CHECK_U64(violations, 0);
    CHECK(store_backup(w.s, "/nowhere/at/all", &revision, &e) == ERR_IO);
    mem_free(path);
    past_close(&w);
}

int main(void)
{
    RUN(a_snapshot_restores_to_the_same_state);
    RUN(every_kind_of_row_comes_back);
    RUN(an_empty_store_has_a_snapshot_too);
    RUN(a_restored_store_goes_on);
    RUN(a_snapshot_is_exact_while_more_is_written);
    RUN(a_flipped_bit_anywhere_is_refused);
    RUN(a_restore_cancels_a_snapshot_in_the_making);
    RUN(a_backup_is_a_store_of_its_own);
    return tap_done();
}
