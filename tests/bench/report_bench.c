/* SPDX-License-Identifier: Apache-2.0 */
/* What the load reports of a fleet cost one server, over HTTP on loopback, Raft left out.
 *
 *   report_bench NODES PARTITIONS_EACH REPORTS KEYED BY
 *
 * A directory of NODES * PARTITIONS_EACH partitions. Each report is of all partitions of a node, of
 * which KEYED have 16 key samples; each says of BY operations what they were. Prints one JSON
 * object: for either form its bytes and the processor time of the server's side per report, what
 * share of one core that is when each node reports every ten seconds, and the memory that the loads
 * take; then what one GET /v1/skew takes. */
#include "api/load.pb-c.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "tests/harness/api_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 16, FORMS = 2 };
static const char *const operations[LOAD_PARTS_MAX] = {
    "get", "put",    "scan",  "delete", "list", "touch",  "incr", "append",
    "cas", "expire", "merge", "watch",  "lock", "unlock", "stat", "ping"};

struct fleet {
    struct api_world w;
    uint64_t nodes, each, keyed, by, *sessions;
    struct part {
        uint64_t id, epoch;
    } * parts; /* of node i: from i * each on */
    uint64_t *counts;
};

static uint64_t cpu_ns(clockid_t clock)
{
    struct timespec ts;
    (void)clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static uint64_t resident_bytes(void)
{
    unsigned long total = 0, resident = 0;
    char line[128] = "";
    FILE *f = fopen("/proc/self/statm", "re");
    if (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *end;
        total = strtoul(line, &end, 10);
        resident = strtoul(end, NULL, 10);
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    (void)total;
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void found_fleet(struct fleet *f)
{
    api_world_open(&f->w);
    for (uint64_t i = 0; i < f->nodes; i++) {
        api_call(&f->w, text("PUT /v1/nodes/n%" PRIu64, i), NULL,
                 text("{\"address\":\"n%" PRIu64 ":9000\",\"lease\":\"static\"}", i));
        f->sessions[i] = api_u64(&f->w, "session");
        if (f->w.answer.status != 200) {
            (void)fprintf(stderr, "%d: %s\n", f->w.answer.status, api_body(&f->w));
            exit(1);
        }
    }
    api_call(&f->w, "POST /v1/keyspaces", NULL,
             text("{\"name\":\"ks\",\"scheme\":\"hash\",\"partitions\":%" PRIu64 "}",
                  f->nodes * f->each));
}

static void find_parts(struct fleet *f)
{
    const struct dir_view *v = view_pin(control_published(f->w.control));
    struct ptree_iter it;
    const struct dir_partition *p;
    ptree_seek(&v->partitions, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        const struct dir_node *n = view_primary(v, p);
        uint64_t node = 0;
        if (n != NULL && parse_u64(n->name + 1, f->nodes - 1, &node) && f->counts[node] < f->each) {
            f->parts[node * f->each + f->counts[node]++] = (struct part){p->id, p->epoch};
        }
    }
    view_unpin(v);
}

static void write_json(const struct fleet *f, uint64_t node, struct buf *b)
{
    buf_printf(b, "{\"session\":%" PRIu64 ",\"interval_ms\":10000,\"partitions\":[",
               f->sessions[node]);
    for (uint64_t i = 0; i < f->counts[node]; i++) {
        const struct part *p = &f->parts[node * f->each + i];
        buf_printf(
            b,
            "%s{\"keyspace\":\"ks\",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64
            ",\"reads\":%" PRIu64 ",\"writes\":%" PRIu64 ",\"read_bytes\":%" PRIu64
            ",\"write_bytes\":123456,\"cpu_ms\":345,\"queue_ms_p99\":3,\"size_bytes\":33554432,"
            "\"items\":65536",
            i > 0 ? "," : "", p->id, p->epoch, p->id % 5000, p->id % 700, p->id % 900000);
        for (uint64_t k = 0; i < f->keyed && k < KEYS; k++) {
            buf_printf(b, "%s{\"key\":\"user:%06" PRIu64 "\",\"weight\":%" PRIu64 "}",
                       k == 0 ? ",\"keys\":[" : ",", k * 7919 % 100000, 1 + k);
        }
        buf_put_str(b, i < f->keyed ? "]" : "");
        for (uint64_t k = 0; k < f->by; k++) {
            buf_printf(b, "%s{\"operation\":\"%s\",\"outcome\":\"ok\",\"requests\":%" PRIu64 "}",
                       k == 0 ? ",\"by\":[" : ",", operations[k], p->id % 700 / f->by);
        }
        buf_put_str(b, f->by > 0 ? "]}" : "}");
    }
    buf_put_str(b, "]}");
}

#define SET(m, field, v) ((m)->has_##field = true, (m)->field = (v))

static void fill(Cadastre__PartitionLoad *m, const struct part *p, char *keyspace)
{
    cadastre__partition_load__init(m);
    m->keyspace = keyspace;
    SET(m, partition, p->id);
    SET(m, epoch, p->epoch);
    SET(m, reads, p->id % 5000);
    SET(m, writes, p->id % 700);
    SET(m, read_bytes, p->id % 900000);
    SET(m, write_bytes, 123456);
    SET(m, cpu_ms, 345);
    SET(m, queue_ms_p99, 3);
    SET(m, size_bytes, 33554432);
    SET(m, items, 65536);
}

static void write_protobuf(const struct fleet *f, uint64_t node, struct buf *b)
{
    static char keyspace[] = "ks", ok[] = "ok", names[KEYS][16];
    Cadastre__KeyWeight key[KEYS], *keys[KEYS];
    uint64_t n = f->counts[node];
    Cadastre__PartitionLoad *loads = mem_alloc((n + 1) * sizeof *loads);
    Cadastre__PartitionLoad **list = mem_alloc((n + 1) * sizeof(void *));
    Cadastre__PartLoad *part = mem_alloc((n * f->by + 1) * sizeof *part);
    Cadastre__PartLoad **parts = mem_alloc((n * f->by + 1) * sizeof(void *));
    Cadastre__LoadReport m;
    for (unsigned k = 0; k < KEYS; k++) {
        int len = snprintf(names[k], sizeof names[k], "user:%06u", k * 7919 % 100000);
        cadastre__key_weight__init(&key[k]);
        SET(&key[k], key, ((ProtobufCBinaryData){(size_t)len, (uint8_t *)names[k]}));
        SET(&key[k], weight, 1 + k);
        keys[k] = &key[k];
    }
    cadastre__load_report__init(&m);
    SET(&m, session, f->sessions[node]);
    SET(&m, interval_ms, 10000);
    for (uint64_t i = 0; i < n; i++) {
        fill(&loads[i], &f->parts[node * f->each + i], keyspace);
        loads[i].n_keys = i < f->keyed ? KEYS : 0;
        loads[i].keys = keys;
        loads[i].n_by = f->by;
        loads[i].by = parts + i * f->by;
        for (uint64_t k = i * f->by; k < (i + 1) * f->by; k++) {
            cadastre__part_load__init(&part[k]);
            part[k].operation = (char *)(uintptr_t)operations[k % f->by];
            part[k].outcome = ok;
            SET(&part[k], requests, loads[i].writes / f->by);
            parts[k] = &part[k];
        }
        list[i] = &loads[i];
    }
    m.n_partitions = n;
    m.partitions = list;
    size_t len = cadastre__load_report__get_packed_size(&m);
    if (buf_reserve(b, len)) {
        b->len += cadastre__load_report__pack(&m, b->data + b->len);
    }
    mem_free(loads);
    mem_free(list);
    mem_free(part);
    mem_free(parts);
}

/* Of every node once, or of the first `reports`. Processor time of all threads but this one. */
static uint64_t send_all(struct fleet *f, unsigned form, uint64_t reports, uint64_t *ret_bytes)
{
    uint64_t spent = 0, counted = 0;
    *ret_bytes = 0;
    for (uint64_t i = 0; i < reports; i++) {
        uint64_t node = i % f->nodes;
        struct buf b;
        buf_init(&b, 8 << 20);
        (form == 0 ? write_json : write_protobuf)(f, node, &b);
        uint64_t all = cpu_ns(CLOCK_PROCESS_CPUTIME_ID), mine = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        api_send(&f->w, text("POST /v1/nodes/n%" PRIu64 "/load", node), NULL,
                 form == 0 ? "application/json" : "application/x-protobuf",
                 slice_of(b.data, b.len));
        spent +=
            (cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - all) - (cpu_ns(CLOCK_THREAD_CPUTIME_ID) - mine);
        counted += api_u64(&f->w, "counted");
        *ret_bytes += b.len;
        if (f->w.answer.status != 202) {
            (void)fprintf(stderr, "%d: %s\n", f->w.answer.status, api_body(&f->w));
            exit(1);
        }
        buf_close(&b);
    }
    (void)fprintf(stderr, "%" PRIu64 " of %" PRIu64 " counted\n", counted, reports * f->each);
    return spent;
}

/* What it takes at most, above what was there before; with the answer, which this process reads. */
static uint64_t peak_bytes(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            kib = strtoul(line + 6, NULL, 10);
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return (uint64_t)kib << 10;
}

static void forget_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (f != NULL) {
        (void)fputs("5", f);
        (void)fclose(f);
    }
}

static void print_skew(struct fleet *f)
{
    forget_peak();
    uint64_t before = resident_bytes(), all = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    api_call(&f->w, "GET /v1/skew", NULL, NULL);
    (void)printf(",\"skew\":{\"status\":%d,\"ms\":%" PRIu64 ",\"bytes\":%" PRIu64 "}",
                 f->w.answer.status, (cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - all) / 1000000,
                 peak_bytes() - before);
}

int main(int argc, char **argv)
{
    static const char *const forms[FORMS] = {"json", "protobuf"};
    struct fleet f = {.nodes = 1000, .each = 1000};
    uint64_t reports = 300, bytes;
    if (argc != 6 || !parse_u64(argv[5], LOAD_PARTS_MAX, &f.by) ||
        !parse_u64(argv[1], 20000, &f.nodes) || !parse_u64(argv[2], 100000, &f.each) ||
        !parse_u64(argv[3], 100000, &reports) || !parse_u64(argv[4], 100000, &f.keyed) ||
        f.nodes == 0 || reports == 0) {
        (void)fprintf(stderr, "usage: report_bench NODES PARTITIONS_EACH REPORTS KEYED BY\n");
        return 2;
    }
    f.sessions = mem_zalloc(f.nodes * sizeof f.sessions[0]);
    f.counts = mem_zalloc(f.nodes * sizeof f.counts[0]);
    f.parts = mem_zalloc(f.nodes * f.each * sizeof f.parts[0]);
    found_fleet(&f);
    find_parts(&f);
    uint64_t before = resident_bytes();
    (void)send_all(&f, 1, f.nodes, &bytes); /* so that every partition has a load */
    uint64_t memory = resident_bytes() - before, heard = loads_count(control_loads(f.w.control));
    (void)printf("{\"nodes\":%" PRIu64 ",\"partitions_each\":%" PRIu64 ",\"keyed\":%" PRIu64
                 ",\"loads\":%" PRIu64 ",\"bytes_a_load\":%" PRIu64,
                 f.nodes, f.each, f.keyed, heard, heard > 0 ? memory / heard : 0);
    for (unsigned form = 0; form < FORMS; form++) {
        uint64_t ns = send_all(&f, form, reports, &bytes);
        (void)printf(",\"%s\":{\"bytes\":%" PRIu64 ",\"us_per_report\":%" PRIu64
                     ",\"ns_per_partition\":%" PRIu64 ",\"percent_of_a_core\":%.1f}",
                     forms[form], bytes / reports, ns / reports / 1000,
                     ns / reports / (f.each > 0 ? f.each : 1),
                     (double)ns / (double)reports * (double)f.nodes / 10 / 1e9 * 100);
    }
    print_skew(&f);
    (void)printf("}\n");
    api_world_close(&f.w);
    return 0;
}
