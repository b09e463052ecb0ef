/* SPDX-License-Identifier: Apache-2.0 */
/* A load report from protobuf (load.proto). */
#include "api/load_in.h"

#include "api/exchange.h"
#include "api/load.pb-c.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Messages are decoded whole, and each takes some 100 bytes however little was sent: a report of
 * empty ones is held to this. */
enum { DECODED_MAX = 64 << 20 };

struct arena {
    size_t taken;
};

/* protobuf-c gives up cleanly when it gets no memory. */
static void *take(void *arena, size_t size)
{
    struct arena *a = arena;
    a->taken += size + 16;
    return a->taken <= DECODED_MAX ? mem_alloc(size) : NULL;
}

static void give_back(void *arena, void *p)
{
    (void)arena;
    mem_free(p);
}

static struct batch_text put_bytes(struct load_batch *b, ProtobufCBinaryData bytes)
{
    return batch_put(b, slice_of(bytes.data, bytes.len));
}

static void take_keys(struct load_batch *b, const Cadastre__PartitionLoad *from)
{
    for (size_t k = 0; k < from->n_keys; k++) {
        const Cadastre__KeyWeight *key = from->keys[k];
        struct batch_key *to = batch_add_key(b);
        to->has_key = key->has_key;
        to->has_end = key->has_end;
        to->has_weight = key->has_weight;
        to->weight = key->weight;
        to->key = put_bytes(b, key->key);
        to->end = put_bytes(b, key->end);
    }
}

static struct batch_text put_text(struct load_batch *b, const char *text)
{
    return text != NULL ? batch_put(b, slice_of(text, strlen(text))) : (struct batch_text){0};
}

static void take_parts(struct load_batch *b, const Cadastre__PartitionLoad *from)
{
    for (size_t k = 0; k < from->n_by; k++) {
        const Cadastre__PartLoad *part = from->by[k];
        struct batch_part *to = batch_add_part(b);
        to->name[HEAT_BY_OPERATION] = put_text(b, part->operation);
        to->name[HEAT_BY_OUTCOME] = put_text(b, part->outcome);
        to->name[HEAT_BY_TENANT] = put_text(b, part->tenant);
        to->has_tenant = part->tenant != NULL;
        to->has_requests = part->has_requests;
        to->requests = part->requests;
    }
}

#define TAKE(field, resource)                                                                      \
    if (from->has_##field) {                                                                       \
        s->has |= 1U << (resource);                                                                \
        s->value[resource] = from->field;                                                          \
    }

static void take_values(struct batch_sample *s, const Cadastre__PartitionLoad *from)
{
    TAKE(reads, LOAD_READS)
    TAKE(writes, LOAD_WRITES)
    TAKE(read_bytes, LOAD_READ_BYTES)
    TAKE(write_bytes, LOAD_WRITE_BYTES)
    TAKE(cpu_ms, LOAD_CPU)
    TAKE(errors, LOAD_ERRORS)
    TAKE(throttles, LOAD_THROTTLES)
    TAKE(cache_misses, LOAD_CACHE_MISSES)
    TAKE(background_bytes, LOAD_BACKGROUND_BYTES)
    TAKE(queue_ms_p99, LOAD_QUEUE_P99)
    TAKE(storage_latency_ms_p99, LOAD_STORAGE_P99)
    TAKE(size_bytes, LOAD_SIZE)
    TAKE(items, LOAD_ITEMS)
    TAKE(tombstones, LOAD_TOMBSTONES)
}
#undef TAKE

static void take_node(struct loads_node *n, const Cadastre__NodeLoad *from)
{
    const struct {
        enum loads_figure figure;
        bool has;
        uint64_t value;
    } all[] = {{LOADS_CPU, from->has_cpu_milli, from->cpu_milli},
               {LOADS_LATENCY_P99, from->has_latency_ms_p99, from->latency_ms_p99},
               {LOADS_QUEUE_P99, from->has_queue_ms_p99, from->queue_ms_p99},
               {LOADS_ERRORS, from->has_errors, from->errors},
               {LOADS_CHECKSUM_FAILURES, from->has_checksum_failures, from->checksum_failures},
               {LOADS_DISK_FREE, from->has_disk_free_bytes, from->disk_free_bytes},
               {LOADS_DISK_USED, from->has_disk_used_bytes, from->disk_used_bytes},
               {LOADS_MEMORY_FREE, from->has_memory_free_bytes, from->memory_free_bytes}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].has) {
            n->has |= 1U << all[i].figure;
            n->figure[all[i].figure] = all[i].value;
        }
    }
}

static enum err_code
take_partitions(struct load_batch *b, const Cadastre__LoadReport *from, struct err *e)
{
    b->has_partitions = true;
    for (size_t i = 0; i < from->n_partitions; i++) {
        const Cadastre__PartitionLoad *p = from->partitions[i];
        struct batch_sample *s = batch_add(b);
        if (s == NULL) {
            return err_set_at(e, ERR_INVALID_REQUEST, "/partitions",
                              "more partitions than one report may have");
        }
        s->keyspace = put_text(b, p->keyspace);
        s->partition = p->partition;
        s->epoch = p->epoch;
        take_values(s, p);
        take_keys(b, p);
        take_parts(b, p);
    }
    return ERR_OK;
}

enum err_code load_read_protobuf(struct slice body, struct load_batch *ret, struct err *e)
{
    struct arena arena = {0};
    ProtobufCAllocator allocator = {take, give_back, &arena};
    *ret = (struct load_batch){.encoded = false};
    buf_init(&ret->text, API_BODY_MAX);
    Cadastre__LoadReport *m = cadastre__load_report__unpack(&allocator, body.len, body.data);
    if (m == NULL) {
        return err_set(e, ERR_INVALID_REQUEST, "the body is no cadastre.LoadReport%s",
                       arena.taken > DECODED_MAX ? " of a size that is taken" : "");
    }
    ret->session = m->session;
    ret->interval_ms = m->interval_ms;
    ret->has_revision = m->has_revision;
    ret->revision = m->revision;
    ret->has_seq = m->has_seq;
    ret->seq = m->seq;
    enum err_code code = take_partitions(ret, m, e);
    if (m->node != NULL) {
        take_node(&ret->node, m->node);
    }
    cadastre__load_report__free_unpacked(m, &allocator);
    return code == ERR_OK ? batch_check(ret, e) : code;
}
