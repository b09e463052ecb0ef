/* SPDX-License-Identifier: Apache-2.0 */
/* What one command costs the loop at a given number of partitions (argument; default 1000000) on
 * 1000 nodes. Each row:
 *
 *     name  commands  microseconds of CPU a command
 *
 * Commands come in groups of 16, published together, as entries of the log do; the effects are
 * dropped at once, as the store thread would later. */
#include "base/mem.h"
#include "base/parse.h"
#include "directory/internal.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { NODES = 1000, GROUP = 16, COMMANDS = 20000 };

struct bench {
    struct directory *d;
    struct tap_rand rand;
    uint64_t index, spent_ns, commands;
    bool is_try;
};

/* CPU time: the machine is shared. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void run(struct bench *b, Cadastre__Command__BodyCase which, void *body)
{
    static uint8_t bytes[1 << 16];
    Cadastre__Command c;
    cadastre__command__init(&c);
    c.body_case = which;
    c.bootstrap = body;
    size_t n = cadastre__command__pack(&c, bytes);
    struct dir_effects *effects = NULL;
    uint64_t from = cpu_ns();
    struct dir_result *r =
        b->is_try ? directory_try(b->d, &c)
                  : directory_apply(b->d, b->index / GROUP, slice_of(bytes, n), &effects);
    if (!b->is_try && ++b->index % GROUP == 0) {
        directory_publish(b->d);
    }
    b->spent_ns += cpu_ns() - from;
    b->commands++;
    if (r->err.code != ERR_OK) {
        (void)fprintf(stderr, "refused: %s\n", r->err.detail);
        abort();
    }
    result_unref(r);
    dir_effects_free(effects);
}

static void report(struct bench *b, const char *name)
{
    printf("%-12s %8" PRIu64 " %10.2f\n", name, b->commands,
           (double)b->spent_ns / 1000 / (double)(b->commands > 0 ? b->commands : 1));
    (void)fflush(stdout);
    b->spent_ns = b->commands = 0;
}

static void create(struct bench *b, uint64_t partitions)
{
    char name[16] = "ks";
    Cadastre__KeyspaceCreate m;
    Cadastre__KeyspaceGrow grow;
    cadastre__keyspace_create__init(&m);
    cadastre__keyspace_grow__init(&grow);
    m.name = name;
    m.scheme = DIR_SCHEME_HASH;
    m.key_encoding = m.authority = 1;
    m.partitions = partitions;
    m.sync_replicas = 2;
    run(b, CADASTRE__COMMAND__BODY_KEYSPACE_CREATE, &m);
    grow.keyspace = NODES + 1;
    for (uint64_t n = DIR_CREATE_BATCH; n < partitions; n += DIR_CREATE_BATCH) {
        grow.last = n + DIR_CREATE_BATCH >= partitions;
        run(b, CADASTRE__COMMAND__BODY_KEYSPACE_GROW, &grow);
    }
    report(b, "create 8192");
}

static const struct dir_partition *any(struct bench *b)
{
    const struct dir_view *s = directory_state(b->d);
    const struct dir_partition *p = NULL;
    while (p == NULL) {
        uint8_t key[8];
        struct slice k = ptree_u64_key(tap_rand(&b->rand), key);
        p = ptree_floor(state_map(s, NODES + 1), k);
    }
    return p;
}

static void split_one(struct bench *b)
{
    const struct dir_partition *p = any(b);
    uint8_t key[DIR_ROUTING_KEY_MAX] = {0};
    struct slice start = dir_partition_start(p);
    /* Just above the start, which is a token or a token and what follows. */
    memcpy(key, start.data, start.len);
    size_t n = start.len < 8 ? 8 : start.len + 1;
    key[n - 1] = 1;
    ProtobufCBinaryData at = {n, key};
    Cadastre__Split m;
    cadastre__split__init(&m);
    m.partition = p->id;
    m.at = &at;
    m.n_at = 1;
    run(b, CADASTRE__COMMAND__BODY_SPLIT, &m);
}

static void move_one(struct bench *b)
{
    const struct dir_partition *p = any(b);
    char name[16];
    Cadastre__Reassign m;
    cadastre__reassign__init(&m);
    do {
        (void)snprintf(name, sizeof name, "n%d", (int)tap_rand_below(&b->rand, NODES));
    } while (partition_copy_on(
                 p, view_node(directory_state(b->d), slice_of(name, strlen(name)))->id) >= 0);
    m.partition = p->id;
    m.to = name;
    run(b, CADASTRE__COMMAND__BODY_REASSIGN, &m);
}

static void put_node(struct bench *b, int i, int port)
{
    char name[16], address[32];
    Cadastre__NodePut m;
    cadastre__node_put__init(&m);
    (void)snprintf(name, sizeof name, "n%d", i);
    (void)snprintf(address, sizeof address, "h%d:%d", i, port);
    m.name = name;
    m.address = address;
    m.is_static = true;
    run(b, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
}

static void reload(struct bench *b)
{
    struct world w = {.d = b->d};
    uint64_t from = cpu_ns();
    uint64_t found = world_check(directory_state(w.d));
    printf("%-12s %8d %10.0f ms\n", "check", 1, (double)(cpu_ns() - from) / 1e6);
    if (found > 0) {
        abort();
    }
    const struct dir_view *s = directory_state(b->d);
    struct directory *d = directory_new();
    struct dir_view_meta meta;
    struct ptree_iter it;
    void *row;
    dir_meta_of(s, &meta);
    const struct ptree *tables[] = {&s->keyspaces, &s->partitions, &s->tombstones, &s->nodes,
                                    &s->operations};
    from = cpu_ns();
    directory_load_begin(d, &meta);
    for (int t = 0; t < 5; t++) {
        for (ptree_seek(tables[t], slice_of(NULL, 0), &it);
             (row = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
            directory_load_row(d, dir_ref(row));
        }
    }
    struct err e;
    if (directory_load_end(d, &e) != ERR_OK) {
        printf("%s\n", e.detail);
        abort();
    }
    printf("%-12s %8d %10.0f ms\n", "load", 1, (double)(cpu_ns() - from) / 1e6);
    directory_free(d);
}

int main(int argc, char **argv)
{
    uint64_t partitions = 1000000;
    struct bench b = {.d = directory_new(), .rand = {1}};
    if (argc > 1 && !parse_u64(argv[1], DIR_PARTITIONS_MAX / 2, &partitions)) {
        return 2;
    }
    for (int i = 0; i < NODES; i++) {
        put_node(&b, i, 1);
    }
    report(&b, "node new");
    create(&b, partitions);
    for (int i = 0; i < COMMANDS; i++) {
        split_one(&b);
    }
    report(&b, "split");
    for (int i = 0; i < COMMANDS; i++) {
        move_one(&b);
    }
    report(&b, "reassign");
    b.is_try = true;
    for (int i = 0; i < COMMANDS; i++) {
        move_one(&b);
    }
    report(&b, "try reassign");
    b.is_try = false;
    for (int i = 0; i < 20; i++) {
        put_node(&b, i, 2);
    }
    report(&b, "node moved");
    reload(&b);
    directory_free(b.d);
    rcu_drain();
    return 0;
}
