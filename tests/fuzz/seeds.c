/* SPDX-License-Identifier: Apache-2.0 */
/* Writes valid inputs for the targets whose inputs are binary: seeds CORPUS_FOLDER. */
#include "base/assert.h"
#include "raft/group.h"
#include "raft/hello.h"
#include "tests/harness/world.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *root;

static void save(const char *target, const char *name, struct slice bytes)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, target);
    (void)mkdir(path, 0755);
    (void)snprintf(path, sizeof path, "%s/%s/seed-%s", root, target, name);
    FILE *f = fopen(path, "wb");
    ASSERT(f != NULL);
    size_t n = fwrite(bytes.data, 1, bytes.len, f);
    ASSERT(n == bytes.len && fclose(f) == 0);
}

static void save_last(const struct world *w, const char *name)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_put_u8(&b, (uint8_t)(w->len >> 8));
    buf_put_u8(&b, (uint8_t)w->len);
    buf_put(&b, w->bytes, w->len);
    save("command", name, slice_of(b.data, b.len));
    buf_reset(&b);
    result_encode(w->result, &b);
    save("object", name, slice_of(b.data, b.len));
    buf_close(&b);
}

static void save_rows(const struct world *w)
{
    struct ptree_iter it;
    const struct dir_object *o;
    unsigned n = 0;
    for (ptree_seek(&w->rows, slice_of(NULL, 0), &it); (o = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        struct buf b;
        char name[32];
        buf_init(&b, SIZE_MAX);
        dir_object_encode(o, &b);
        (void)snprintf(name, sizeof name, "row-%u-%u", o->kind, n++);
        if (n < 40) {
            save("object", name, slice_of(b.data, b.len));
        }
        buf_close(&b);
    }
}

static void change_partitions(struct world *w)
{
    Cadastre__PartitionPatch change;
    cadastre__partition_patch__init(&change);
    (void)world_split(w, world_at(w, "ks", "a")->id, "m");
    save_last(w, "split");
    (void)world_merge(w, world_at(w, "ks", "a")->id, world_at(w, "ks", "z")->id);
    save_last(w, "merge");
    const struct dir_partition *p = world_at(w, "ks", "a");
    (void)world_move(w, p->id, p->replicas[0].node == 1 ? "n2" : "n1");
    save_last(w, "move");
    change.partition = world_at(w, "ks", "a")->id;
    change.has_pinned = change.pinned = change.has_rate_limit = true;
    change.rate_limit = 9;
    (void)world_do(w, CADASTRE__COMMAND__BODY_PARTITION_PATCH, &change);
    save_last(w, "partition-patch");
}

static void save_commands(void)
{
    struct world w;
    Cadastre__KeyspaceDelete gone;
    Cadastre__NodeDelete node;
    Cadastre__Tick tick;
    Cadastre__SettingsPatch settings;
    char n1[] = "n1";
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    save_last(&w, "node");
    (void)world_zoned(&w, "n2", "a");
    save_last(&w, "zoned");
    w.key = "k1";
    (void)world_range(&w, "ks");
    save_last(&w, "range");
    (void)world_hash(&w, "hs", 3);
    save_last(&w, "hash");
    change_partitions(&w);
    cadastre__settings_patch__init(&settings);
    settings.has_history_max = true;
    settings.history_max = 5;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_SETTINGS_PATCH, &settings);
    save_last(&w, "settings");
    cadastre__tick__init(&tick);
    (void)world_do(&w, CADASTRE__COMMAND__BODY_TICK, &tick);
    save_last(&w, "tick");
    cadastre__node_delete__init(&node);
    node.name = n1;
    node.force = true;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_NODE_DELETE, &node);
    save_last(&w, "node-delete");
    save_rows(&w);
    cadastre__keyspace_delete__init(&gone);
    gone.keyspace = world_keyspace(&w, "ks")->id;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_DELETE, &gone);
    save_last(&w, "keyspace-delete");
    world_close(&w);
}

static void save_groups(void)
{
    struct slice commands[] = {slice_of("one", 3), slice_of("", 0), slice_of("second", 6)};
    for (unsigned n = 1; n <= 3; n++) {
        size_t payload = 0;
        uint8_t entry[128];
        char name[16];
        for (unsigned i = 0; i < n; i++) {
            payload += commands[i].len;
        }
        size_t size = group_size(payload, n);
        ASSERT(size <= sizeof entry);
        group_encode(commands, n, entry, size);
        (void)snprintf(name, sizeof name, "%u", n);
        save("group", name, slice_of(entry, size));
        (void)snprintf(name, sizeof name, "body-%u", n);
        entry[size] = (uint8_t)n;
        save("group", name, slice_of(entry + GROUP_HEADER_SIZE, size + 1 - GROUP_HEADER_SIZE));
    }
}

static void save_hellos(void)
{
    struct hello h = {.type = HELLO_DIAL, .state = HELLO_MEMBER, .from = 1, .to = 2};
    uint8_t frame[HELLO_FRAME_MAX];
    (void)snprintf(h.address, sizeof h.address, "host:7401");
    size_t n = hello_encode(&h, frame);
    save("hello", "dial", slice_of(frame, n));
    save("hello", "dial-body", slice_of(frame + HELLO_HEADER_SIZE, n - HELLO_HEADER_SIZE));
    h.type = HELLO_ACCEPT;
    h.record_count = 2;
    n = hello_encode(&h, frame);
    save("hello", "accept", slice_of(frame, n));
    h.type = HELLO_REFUSE;
    h.refusal = REFUSE_CLUSTER;
    n = hello_encode(&h, frame);
    save("hello", "refuse", slice_of(frame, n));
    save("hello", "refuse-body", slice_of(frame + HELLO_HEADER_SIZE, n - HELLO_HEADER_SIZE));
}

int main(int argc, char **argv)
{
    ASSERT(argc == 2);
    root = argv[1];
    save_commands();
    save_groups();
    save_hellos();
    return 0;
}
