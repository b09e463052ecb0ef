/* SPDX-License-Identifier: Apache-2.0 */
/* A load report as it came, in either of its two forms, checked field by field against what can be
 * known without the directory. Pure; any thread. */
#ifndef API_LOAD_IN_H
#define API_LOAD_IN_H

#include "base/buf.h"
#include "base/err.h"
#include "control/loads.h"

enum { LOAD_BATCH_MAX = 100000 }; /* partitions of one report */

/* Text lies in load_batch.text: from `at` on, `len` bytes. */
struct batch_text {
    uint32_t at, len;
};

struct batch_key {
    struct batch_text key, end;
    bool has_key, has_end, has_weight;
    uint64_t weight;
};

struct batch_part {
    struct batch_text name[HEAT_NAMES]; /* len 0: not given */
    bool has_tenant, has_requests;
    uint64_t requests;
};

struct batch_sample {
    struct batch_text keyspace;
    uint64_t partition, epoch; /* 0: not given */
    uint64_t value[LOAD_RESOURCES];
    uint32_t has;
    uint32_t key_from, key_count;   /* in load_batch.keys */
    uint32_t part_from, part_count; /* in load_batch.parts */
};

struct load_batch {
    bool encoded; /* keys are as the keyspace's key_encoding says; else the bytes themselves */
    bool has_partitions, has_revision, has_seq;
    uint64_t session, interval_ms, revision, seq; /* 0: not given */
    struct batch_sample *samples;                 /* owns */
    struct batch_key *keys;                       /* owns */
    struct batch_part *parts;                     /* owns */
    uint32_t count, cap, key_count, key_cap, part_count, part_cap;
    struct buf text;
    struct loads_node node; /* its figures */
};

/* `ret` is to be freed, however it goes. ERR_INVALID_REQUEST with the pointer of what is wrong. */
enum err_code load_read_json(struct slice body, struct load_batch *ret, struct err *e) MUST_CHECK;
enum err_code
load_read_protobuf(struct slice body, struct load_batch *ret, struct err *e) MUST_CHECK;
void load_batch_free(struct load_batch *b);

static inline struct slice batch_slice(const struct load_batch *b, struct batch_text t)
{
    return t.len > 0 ? slice_of(b->text.data + t.at, t.len) : slice_of("", 0);
}

/* --- for the two readers --- */
struct batch_sample *batch_add(struct load_batch *b);  /* NULL: LOAD_BATCH_MAX */
struct batch_key *batch_add_key(struct load_batch *b); /* of the last sample */
struct batch_part *batch_add_part(struct load_batch *b);
struct batch_text batch_put(struct load_batch *b, struct slice text);
enum err_code batch_check(const struct load_batch *b, struct err *e) MUST_CHECK;

#endif
