/* SPDX-License-Identifier: Apache-2.0 */
/* Rows to bytes and back, and bytes that are no rows. */
#include "base/mem.h"
#include "directory/balancer.h"
#include "directory/directory.h"
#include "directory/internal.h"
#include "tests/harness/tap.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 32, ROW_BYTES_MAX = 1 << 20 };

static struct dir_object *head(void *row, enum dir_kind kind)
{
    struct dir_object *o = row;
    o->refs = 1;
    o->kind = (uint8_t)kind;
    return o;
}

static void fill_text(char *out, size_t size, char c)
{
    memset(out, c, size - 1);
    out[size - 1] = '\0';
}

static struct dir_object *keyspace_row(bool full)
{
    static const char policy[] = "{\"a\":1}";
    struct dir_keyspace *k = mem_zalloc(sizeof *k + sizeof policy);
    k->id = full ? UINT64_MAX : 1;
    k->scheme = full ? DIR_SCHEME_HASH : DIR_SCHEME_RANGE;
    k->key_encoding = DIR_ENCODING_HEX;
    k->authority = DIR_AUTHORITY_AFFINITY;
    (void)snprintf(k->name, sizeof k->name, "orders");
    if (full) {
        k->hidden = k->custom_partition_key = true;
        k->partition_key = (struct dir_partition_key){(char)0xff, 3};
        k->sync_replicas = 2;
        k->async_replicas = UINT32_MAX;
        k->replicas_ms = 5;
        k->replicas_revision = 6;
        k->placement.require_count = DIR_REQUIRE_MAX;
        for (unsigned i = 0; i < DIR_REQUIRE_MAX; i++) {
            fill_text(k->placement.require[i].name, sizeof k->placement.require[i].name, 'n');
            fill_text(k->placement.require[i].value, sizeof k->placement.require[i].value, 'v');
        }
        fill_text(k->placement.spread, sizeof k->placement.spread, 's');
        for (unsigned i = 0; i < DIR_POLICY_VALUES; i++) {
            k->rules.set |= 1U << i;
            k->rules.values[i] = 50U + i;
        }
        k->rules.check_count = DIR_CHECKS_MAX;
        for (unsigned i = 0; i < DIR_CHECKS_MAX; i++) {
            fill_text(k->rules.checks[i], sizeof k->rules.checks[i], 'c');
        }
        k->policy_len = sizeof policy - 1;
        memcpy(k->policy, policy, sizeof policy);
    }
    k->created = 2;
    k->mod_revision = 3;
    k->created_ms = 4;
    return head(k, DIR_KIND_KEYSPACE);
}

static struct dir_object *partition_row(bool full)
{
    static uint8_t start[DIR_ROUTING_KEY_MAX], end[DIR_ROUTING_KEY_MAX];
    static const uint64_t parents[DIR_PARENTS_MAX] = {5, 6};
    struct dir_replica replicas[DIR_REPLICAS_MAX] = {{0}};
    for (uint8_t i = 0; i < DIR_REPLICAS_MAX; i++) {
        replicas[i] = (struct dir_replica){.node = 100U + i,
                                           .copy = 200U + i,
                                           .role = (uint8_t)(1 + i % DIR_ROLE_JOINING),
                                           .asked = i == 5};
    }
    memset(end, 0xff, sizeof end);
    struct dir_partition like = {.pinned = full,
                                 .holds_data = full,
                                 .moving = full ? DIR_STAGE_COPY : 0,
                                 .state = full ? DIR_UNAVAILABLE : DIR_ACTIVE,
                                 .cause = full ? DIR_CHANGE_LOST : DIR_CHANGE_CREATE,
                                 .id = 7,
                                 .keyspace = 8,
                                 .epoch = 9,
                                 .mod_revision = 10,
                                 .created = 11,
                                 .owner_since_ms = 12,
                                 .rate_limit = full ? UINT64_MAX : 0,
                                 .session = 13,
                                 .home = 14,
                                 .operation = full ? 15 : 0,
                                 .start_position = 16,
                                 .under_since_ms = 17};
    struct partition_arrays arrays = {.replicas = replicas,
                                      .parents = parents,
                                      .replica_count = full ? DIR_REPLICAS_MAX : 0,
                                      .parent_count = full ? DIR_PARENTS_MAX : 0,
                                      .end_open = !full,
                                      .start = slice_of(start, full ? sizeof start : 0),
                                      .end = slice_of(end, full ? sizeof end : 0)};
    return head(partition_new(&like, &arrays), DIR_KIND_PARTITION);
}

static struct dir_object *tombstone_row(bool full)
{
    uint32_t count = full ? 3 : 0;
    size_t keys = full ? 5 : 0;
    struct dir_tombstone *t = mem_zalloc(sizeof *t + count * sizeof(uint64_t) + keys);
    t->end_open = !full;
    t->cause = DIR_CHANGE_MERGE;
    t->start_len = full ? 2 : 0;
    t->end_len = full ? 3 : 0;
    t->successor_count = count;
    t->id = 1;
    t->keyspace = 2;
    t->retired = 3;
    t->last_epoch = 4;
    for (uint32_t i = 0; i < count; i++) {
        t->successors[i] = 50 + i;
    }
    memset(t->successors + count, 'k', keys);
    return head(t, DIR_KIND_TOMBSTONE);
}

static struct dir_object *node_row(bool full)
{
    struct dir_node *n = mem_zalloc(DIR_NODE_SIZE_MAX);
    n->id = 1;
    if (full) {
        fill_text(n->name, sizeof n->name, 'n');
        fill_text(n->address, sizeof n->address, 'a');
        n->is_static = n->lost = n->ended = true;
        n->lease_ms = n->ended_lease_ms = UINT32_MAX;
        n->ended_session = 7;
        n->scheduling = DIR_QUARANTINED;
        n->scheduling_ms = 8;
        n->ended_ms = 9;
        n->lapses = DIR_LAPSES_MAX;
        n->lapsed_ms = 10;
        n->label_count = n->capacity_count = DIR_LABELS_MAX;
        for (unsigned i = 0; i < DIR_LABELS_MAX; i++) {
            (void)snprintf(n->tags[i].name, sizeof n->tags[i].name, "label%u", i);
            (void)snprintf(n->tags[i].value, sizeof n->tags[i].value, "v%u", i);
            (void)snprintf(n->tags[DIR_LABELS_MAX + i].name,
                           sizeof n->tags[DIR_LABELS_MAX + i].name, "cap%u", i);
            (void)snprintf(n->tags[DIR_LABELS_MAX + i].value,
                           sizeof n->tags[DIR_LABELS_MAX + i].value, "%u", i);
        }
    }
    n->session = 2;
    n->created = 3;
    n->mod_revision = 4;
    n->route_revision = 5;
    n->partition_count = 6;
    n->task_revision = 8;
    return head(n, DIR_KIND_NODE);
}

static struct dir_object *server_row(bool full)
{
    struct dir_server *s = mem_zalloc(sizeof *s);
    s->id = 1;
    s->role = full ? 2 : 1;
    if (full) {
        fill_text(s->raft_address, sizeof s->raft_address, 'r');
        fill_text(s->api_url, sizeof s->api_url, 'u');
        memset(s->instance, 0xab, sizeof s->instance);
        s->removed = true;
    }
    s->mod_revision = 2;
    return head(s, DIR_KIND_SERVER);
}

static struct dir_object *operation_row(bool full)
{
    uint32_t stages = full ? DIR_STAGES_MAX : 0;
    struct dir_operation *o = mem_zalloc(sizeof *o + stages * sizeof o->stages[0]);
    o->id = 1;
    o->keyspace = 2;
    o->partition = 3;
    o->source = 4;
    o->destination = 5;
    o->epoch_before = 6;
    o->epoch_after = 7;
    o->revision = 8;
    o->at_ms = 9;
    o->kind = full ? DIR_OPERATION_FAILOVER : DIR_OPERATION_MOVE;
    o->state = full ? DIR_OPERATION_FAILED : DIR_OPERATION_QUEUED;
    o->stage = full ? DIR_STAGE_FAILED : DIR_STAGE_QUEUED;
    if (full) {
        o->role = DIR_ROLE_SYNC;
        o->joined = o->active = o->fenced = o->complete = o->moves_primary = true;
        o->warm = true;
        o->attempt = 10;
        o->validations = 11;
        o->class_of = 12;
        o->source_says = (struct dir_evidence){.session = 13, .seq = 14, .checksum = 15};
        o->destination_says = (struct dir_evidence){.digest = 16, .passed = true};
        o->part.is_set = o->part.hex = true;
        o->part.start_len = 2;
        memset(o->part.start, 's', 2);
        o->part.end_len = DIR_ROUTING_KEY_MAX;
        memset(o->part.end, 'e', DIR_ROUTING_KEY_MAX);
        o->retired = 24;
        o->reverse = true;
        o->reverses = 21;
        o->reversed_by = 22;
        o->base_position = 23;
        o->first_attempt = 19;
        o->leaving_copy = 20;
        o->chunk = 17;
        o->final_position = 18;
        o->has_size = o->has_live = true;
        o->size_bytes = 31;
        o->live_bytes_per_s = 32;
        o->stage_bytes = 33;
        o->reserved = (struct dir_reservation){.source = 34,
                                               .destination = 35,
                                               .bytes_per_s = 36,
                                               .moves = 1,
                                               .step = DIR_RELEASE_STEPS - 1,
                                               .transfer = true,
                                               .releasing = true};
        for (unsigned i = 0; i < DIR_RESERVED_LABELS; i++) {
            fill_text(o->reserved.source_labels[i], sizeof o->reserved.source_labels[i], 'l');
            fill_text(o->reserved.destination_labels[i], sizeof o->reserved.destination_labels[i],
                      'm');
        }
        o->throttle = (struct dir_throttle){
            .share_ppm = 37, .since_ms = 38, .node = 39, .value = 40, .limit = 41};
        fill_text(o->throttle.code, sizeof o->throttle.code, 'c');
        o->rate_revision = 42;
        o->stage_count = stages;
        for (uint32_t i = 0; i < stages; i++) {
            o->stages[i].stage = DIR_STAGE_COPY;
            o->stages[i].at_ms = i;
            fill_text(o->stages[i].by, sizeof o->stages[i].by, 'b');
        }
        fill_text(o->keyspace_name, sizeof o->keyspace_name, 'k');
        fill_text(o->source_name, sizeof o->source_name, 's');
        fill_text(o->destination_name, sizeof o->destination_name, 'd');
        fill_text(o->initiator, sizeof o->initiator, 'i');
        fill_text(o->reason, sizeof o->reason, 'r');
        fill_text(o->attention, sizeof o->attention, 'a');
    }
    return head(o, DIR_KIND_OPERATION);
}

static struct dir_object *duty_row(bool full)
{
    struct dir_duty *d = mem_zalloc(sizeof *d);
    d->id = 1;
    d->node = 2;
    d->keyspace = 3;
    d->partition = 4;
    d->operation = 5;
    d->copy = 6;
    d->revision = 7;
    if (full) {
        fill_text(d->keyspace_name, sizeof d->keyspace_name, 'k');
    }
    return head(d, DIR_KIND_DUTY);
}

static struct dir_object *proposal_row(bool full)
{
    struct dir_proposal *p = mem_zalloc(sizeof *p);
    p->id = 1;
    p->kind = DIR_PROPOSAL_MOVE;
    p->state = DIR_PROPOSAL_OPEN;
    p->epoch = 2;
    if (full) {
        p->kind = DIR_PROPOSAL_ADVICE;
        p->state = DIR_PROPOSAL_EXPIRED;
        p->class_of = DIR_CLASS_UNAVAILABLE;
        p->with = p->operation = p->with_operation = p->made_ms = p->settled_ms = DIR_REVISION_MAX;
        fill_text(p->reason, sizeof p->reason, 'r');
        fill_text(p->settled_why, sizeof p->settled_why, 'w');
        p->figure_count = DIR_FIGURES_MAX;
        for (int i = 0; i < DIR_FIGURES_MAX; i++) {
            fill_text(p->figures[i].name, sizeof p->figures[i].name, 'f');
            p->figures[i].group = (uint8_t)(1 + i % DIR_FIGURE_MEASURED);
            p->figures[i].value = UINT64_MAX - (uint64_t)i;
        }
        p->candidate_count = DIR_CANDIDATES_MAX;
        for (int i = 0; i < DIR_CANDIDATES_MAX; i++) {
            fill_text(p->candidates[i].node, sizeof p->candidates[i].node, 'n');
            fill_text(p->candidates[i].code, sizeof p->candidates[i].code, 'c');
        }
        p->key_count = DIR_PROPOSAL_KEYS_MAX;
        for (int i = 0; i < DIR_PROPOSAL_KEYS_MAX; i++) {
            p->keys[i].len = DIR_ROUTING_KEY_MAX;
            memset(p->keys[i].bytes, 0xfe, DIR_ROUTING_KEY_MAX);
        }
    }
    return head(p, DIR_KIND_PROPOSAL);
}

static struct dir_object *balancer_row(bool full)
{
    struct dir_balancer *b = mem_zalloc(sizeof *b);
    b->revision = 3;
    if (full) {
        for (int i = 0; i < DIR_BALANCER_VALUES; i++) {
            b->values[i] = UINT64_MAX - (uint64_t)i;
        }
        b->pause_since_ms = 1;
        b->pause_until_ms = 2;
        fill_text(b->pause_by, sizeof b->pause_by, 'b');
        fill_text(b->pause_reason, sizeof b->pause_reason, 'r');
        b->note_count = DIR_BALANCER_NOTES_MAX;
        for (int i = 0; i < DIR_BALANCER_NOTES_MAX; i++) {
            fill_text(b->notes[i].code, sizeof b->notes[i].code, 'c');
            fill_text(b->notes[i].detail, sizeof b->notes[i].detail, 'd');
            b->notes[i].at_ms = (uint64_t)i;
            b->notes[i].proposed = b->notes[i].rejected = b->notes[i].open = UINT64_MAX;
            b->notes[i].rounds = 4;
            b->notes[i].value = 5;
            b->notes[i].limit = 6;
            fill_text(b->notes[i].node, sizeof b->notes[i].node, 'n');
            fill_text(b->notes[i].metric, sizeof b->notes[i].metric, 'm');
        }
        b->window_count = DIR_WINDOWS_MAX;
        for (int i = 0; i < DIR_WINDOWS_MAX; i++) {
            struct dir_window *w = &b->windows[i];
            fill_text(w->name, sizeof w->name, 'w');
            fill_text(w->time_zone, sizeof w->time_zone, 'z');
            w->kind = w->days = UINT8_MAX;
            w->start = w->end = UINT16_MAX;
            w->from_ms = w->to_ms = UINT64_MAX - (uint64_t)i;
        }
    }
    return head(b, DIR_KIND_BALANCER);
}

static struct dir_object *dedupe_row(bool full)
{
    struct dir_dedupe *d = mem_zalloc(sizeof *d + 1000);
    d->index = 1;
    d->at_ms = 2;
    d->revision = 3;
    if (full) {
        memset(d->digest, 0xcd, sizeof d->digest);
        d->principal_len = DIR_TEXT_MAX;
        d->key_len = DIR_IDEMPOTENCY_KEY_MAX;
        d->result_len = 500;
        memset(d->bytes, 'x', 255 + 128 + 500);
    }
    return head(d, DIR_KIND_DEDUPE);
}

static unsigned all_rows(struct dir_object *rows[ROWS_MAX])
{
    static struct dir_object *(*const makers[])(bool) = {
        keyspace_row,  partition_row, tombstone_row, node_row,     server_row,
        operation_row, dedupe_row,    duty_row,      proposal_row, balancer_row};
    unsigned count = 0;
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        rows[count++] = makers[i](false);
        rows[count++] = makers[i](true);
    }
    return count;
}

static void free_rows(struct dir_object **rows, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        dir_unref(rows[i]);
    }
}

static struct slice encode(const struct dir_object *o, struct buf *b)
{
    buf_reset(b);
    dir_object_encode(o, b);
    CHECK(!b->overflow);
    return slice_of(b->data, b->len);
}

/* Whatever decodes must be what encode writes. */
static bool decodes(struct slice bytes)
{
    struct err e = {0};
    struct dir_object *o = dir_object_decode(bytes, &e);
    if (o == NULL) {
        CHECK(e.code == ERR_CORRUPT && e.detail[0] != '\0');
        return false;
    }
    struct buf again;
    buf_init(&again, ROW_BYTES_MAX);
    CHECK(slice_eq(encode(o, &again), bytes));
    buf_close(&again);
    CHECK_U64(o->refs, 1);
    dir_unref(o);
    return true;
}

static void every_row_comes_back(void)
{
    struct dir_object *rows[ROWS_MAX];
    unsigned count = all_rows(rows);
    struct buf b;
    buf_init(&b, ROW_BYTES_MAX);
    for (unsigned i = 0; i < count; i++) {
        tap_note("row %u", i);
        CHECK(decodes(encode(rows[i], &b)));
    }
    buf_close(&b);
    free_rows(rows, count);
}

/* The row as it comes back. */
static void *round_trip(struct dir_object *row)
{
    struct buf b;
    buf_init(&b, ROW_BYTES_MAX);
    struct dir_object *back = dir_object_decode(encode(row, &b), NULL);
    buf_close(&b);
    dir_unref(row);
    return back;
}

/* Two fields that are swapped in both directions survive a round trip; these show it. */
static void partition_fields_land_where_they_belong(void)
{
    struct dir_partition *p = round_trip(partition_row(true));
    const uint64_t got[] = {p->id,      p->keyspace,       p->epoch,     p->mod_revision,
                            p->created, p->owner_since_ms, p->rate_limit};
    const uint64_t want[] = {7, 8, 9, 10, 11, 12, UINT64_MAX};
    CHECK(memcmp(got, want, sizeof want) == 0);
    CHECK(p->pinned && p->holds_data && !p->end_open);
    CHECK(p->state == DIR_UNAVAILABLE && p->cause == DIR_CHANGE_LOST);
    CHECK(p->replica_count == DIR_REPLICAS_MAX && p->replicas[7].node == 107);
    CHECK(p->session == 13 && p->home == 14 && p->operation == 15 && p->start_position == 16);
    CHECK(p->under_since_ms == 17 && p->replicas[5].asked && !p->replicas[7].asked);
    CHECK(p->replicas[7].copy == 207);
    CHECK(p->replicas[1].role == DIR_ROLE_SYNC && dir_partition_parents(p)[1] == 6);
    CHECK_U64(dir_partition_start(p).len, DIR_ROUTING_KEY_MAX);
    CHECK_U64(dir_partition_end(p).data[0], 0xff);
    dir_unref(p);
}

static void tombstone_fields_land_where_they_belong(void)
{
    struct dir_tombstone *t = round_trip(tombstone_row(true));
    CHECK(t->id == 1 && t->keyspace == 2 && t->retired == 3 && t->last_epoch == 4);
    CHECK(t->successor_count == 3 && t->successors[2] == 52 && t->cause == DIR_CHANGE_MERGE);
    CHECK(slice_eq(dir_tombstone_end(t), slice_of("kkk", 3)));
    dir_unref(t);
}

static void keyspace_fields_land_where_they_belong(void)
{
    struct dir_keyspace *k = round_trip(keyspace_row(true));
    CHECK(k->id == UINT64_MAX && k->scheme == DIR_SCHEME_HASH && k->hidden);
    CHECK(k->key_encoding == DIR_ENCODING_HEX && k->authority == DIR_AUTHORITY_AFFINITY);
    CHECK(k->custom_partition_key && k->partition_key.fields == 3);
    CHECK((uint8_t)k->partition_key.delimiter == 0xff);
    CHECK(k->sync_replicas == 2 && k->async_replicas == UINT32_MAX);
    CHECK(k->replicas_ms == 5 && k->replicas_revision == 6);
    CHECK(k->placement.require_count == DIR_REQUIRE_MAX && k->placement.spread[0] == 's');
    CHECK(k->placement.require[15].name[62] == 'n' && k->placement.require[15].value[0] == 'v');
    CHECK(k->rules.check_count == DIR_CHECKS_MAX && k->rules.checks[15][62] == 'c');
    CHECK(k->rules.values[DIR_POLICY_VALUES - 1] == 50 + DIR_POLICY_VALUES - 1);
    CHECK(k->created == 2 && k->mod_revision == 3 && k->created_ms == 4);
    CHECK_STR(k->policy, "{\"a\":1}");
    dir_unref(k);
}

static void fixed_rows_come_back_byte_for_byte(void)
{
    static const struct {
        struct dir_object *(*make)(bool full);
        size_t size;
    } rows[] = {{operation_row,
                 sizeof(struct dir_operation) + DIR_STAGES_MAX * sizeof(struct dir_stage_entry)},
                {duty_row, sizeof(struct dir_duty)},
                {proposal_row, sizeof(struct dir_proposal)},
                {balancer_row, sizeof(struct dir_balancer)},
                {node_row, DIR_NODE_SIZE_MAX},
                {server_row, sizeof(struct dir_server)}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dir_object *row = rows[i].make(true), *back = round_trip(dir_ref(row));
        tap_note("row %zu", i);
        CHECK(row->refs == 1 && memcmp(back, row, rows[i].size) == 0);
        dir_unref(back);
        dir_unref(row);
    }
}

/* The encoding is what the state hash of every server is over: it may never change by accident. */
static void the_encoding_is_frozen(void)
{
    struct dir_object *rows[ROWS_MAX];
    unsigned count = all_rows(rows);
    struct buf b, all;
    buf_init(&b, ROW_BYTES_MAX);
    buf_init(&all, ROW_BYTES_MAX);
    for (unsigned i = 0; i < count; i++) {
        struct slice bytes = encode(rows[i], &b);
        buf_put(&all, bytes.data, bytes.len);
    }
    char hex[HASH128_HEX_SIZE];
    hash128_hex(hash_xxh3_128(all.data, all.len), hex);
    CHECK_STR(hex, "99d66d06a85cbb0d7257d60111e81f7d");
    buf_close(&all);
    buf_close(&b);
    free_rows(rows, count);
}

static void no_truncation_is_a_row(void)
{
    struct dir_object *rows[ROWS_MAX];
    unsigned count = all_rows(rows);
    struct buf b;
    buf_init(&b, ROW_BYTES_MAX);
    for (unsigned i = 0; i < count; i++) {
        struct slice bytes = encode(rows[i], &b);
        for (size_t len = 0; len < bytes.len; len++) {
            uint8_t *cut = mem_dup(bytes.data, len); /* exact size: ASan sees a read past it */
            tap_note("row %u cut to %zu", i, len);
            CHECK(!decodes(slice_of(cut, len)));
            mem_free(cut);
        }
        buf_put_u8(&b, 0);
        CHECK(!decodes(slice_of(b.data, b.len)));
    }
    buf_close(&b);
    free_rows(rows, count);
}

static void damage_never_harms(void)
{
    struct tap_rand r = {tap_seed(5)};
    struct dir_object *rows[ROWS_MAX];
    unsigned count = all_rows(rows), refused = 0;
    struct buf b;
    buf_init(&b, ROW_BYTES_MAX);
    for (unsigned i = 0; i < 20000 && tap_failures() == 0; i++) {
        struct slice bytes = encode(rows[tap_rand_below(&r, count)], &b);
        uint8_t *copy = mem_dup(bytes.data, bytes.len);
        for (uint64_t flips = 1 + tap_rand_below(&r, 4); flips > 0; flips--) {
            size_t near = bytes.len < 64 || tap_rand_below(&r, 2) == 0 ? bytes.len : 64;
            copy[tap_rand_below(&r, near)] ^= (uint8_t)(1U << tap_rand_below(&r, 8));
        }
        tap_note("case %u", i);
        refused += !decodes(slice_of(copy, bytes.len));
        mem_free(copy);
    }
    CHECK(refused > 1000);
    buf_close(&b);
    free_rows(rows, count);
}

static void errors_say_what_was_wrong(void)
{
    static const struct {
        size_t at;
        uint8_t byte;
        const char *detail;
    } rows[] = {
        {0, 9, "unknown row of 109 bytes: the version is unknown"},
        {1, 99, "unknown row of 109 bytes: the kind is unknown"},
        {18, 2, "partition row of 109 bytes: a flag is neither 0 nor 1"},
        {20, 0, "partition row of 109 bytes: the state is unknown"},
        {21, 200, "partition row of 109 bytes: the cause is unknown"},
        {102, 9, "partition row of 109 bytes: there are too many replicas"},
        {103, 3, "partition row of 109 bytes: there are too many parents"},
    };
    struct buf b;
    buf_init(&b, ROW_BYTES_MAX);
    struct dir_object *row = partition_row(false);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e = {0};
        (void)encode(row, &b);
        b.data[rows[i].at] = rows[i].byte;
        CHECK(dir_object_decode(slice_of(b.data, b.len), &e) == NULL);
        CHECK_STR(e.detail, rows[i].detail);
    }
    dir_unref(row);
    buf_close(&b);
}

int main(void)
{
    RUN(every_row_comes_back);
    RUN(partition_fields_land_where_they_belong);
    RUN(tombstone_fields_land_where_they_belong);
    RUN(keyspace_fields_land_where_they_belong);
    RUN(fixed_rows_come_back_byte_for_byte);
    RUN(the_encoding_is_frozen);
    RUN(no_truncation_is_a_row);
    RUN(damage_never_harms);
    RUN(errors_say_what_was_wrong);
    return tap_done();
}
