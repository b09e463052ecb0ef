/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes are applied or refused: commands that once were valid, with bits turned, bytes cut and
 * pieces joined, never bring down the directory, never leave it inconsistent, and do the same to
 * two of them. */
#include "base/mem.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUNDS = 30000 };
#else
enum { ROUNDS = 150000 };
#endif

enum { SEEDS_MAX = 24, BYTES_MAX = 512 };

struct seed {
    uint8_t bytes[BYTES_MAX];
    size_t len;
};

struct garbage {
    struct tap_rand rand;
    struct world a, b;
    struct seed seeds[SEEDS_MAX];
    size_t count;
    uint64_t ok, refused, nonsense;
};

static void keep(struct garbage *g)
{
    if (g->count < SEEDS_MAX && g->a.len <= BYTES_MAX) {
        memcpy(g->seeds[g->count].bytes, g->a.bytes, g->a.len);
        g->seeds[g->count++].len = g->a.len;
    }
    (void)world_apply(&g->b, g->a.bytes, g->a.len);
}

static void small_commands(struct garbage *g)
{
    Cadastre__ServerPut server, *servers[] = {&server};
    Cadastre__Bootstrap bootstrap;
    Cadastre__SettingsPatch settings;
    Cadastre__StateCheck check;
    Cadastre__Place place;
    Cadastre__ServerRemove removal;
    uint8_t instance[16] = {7};
    cadastre__server_put__init(&server);
    cadastre__bootstrap__init(&bootstrap);
    cadastre__settings_patch__init(&settings);
    cadastre__state_check__init(&check);
    cadastre__place__init(&place);
    cadastre__server_remove__init(&removal);
    server.id = 1;
    server.raft_address = text_lent("h:7401");
    server.role = 1;
    server.instance = (ProtobufCBinaryData){16, instance};
    bootstrap.cluster = text_lent("c1");
    bootstrap.n_servers = 1;
    bootstrap.servers = servers;
    settings.has_dedupe_retention_ms = true;
    settings.dedupe_retention_ms = 3600000;
    settings.has_history_max = true;
    settings.history_max = 500;
    removal.id = 2;
    (void)world_do(&g->a, CADASTRE__COMMAND__BODY_BOOTSTRAP, &bootstrap);
    keep(g);
    server.id = 2;
    (void)world_do(&g->a, CADASTRE__COMMAND__BODY_SERVER_PUT, &server);
    keep(g);
    (void)world_do(&g->a, CADASTRE__COMMAND__BODY_SERVER_REMOVE, &removal);
    keep(g);
    (void)world_do(&g->a, CADASTRE__COMMAND__BODY_SETTINGS_PATCH, &settings);
    keep(g);
    (void)world_do(&g->a, CADASTRE__COMMAND__BODY_STATE_CHECK, &check);
    keep(g);
    (void)world_do(&g->a, CADASTRE__COMMAND__BODY_PLACE, &place);
    keep(g);
}

static void keyspace_commands(struct garbage *g)
{
    Cadastre__KeyspacePatch patch;
    Cadastre__KeyspaceDelete removal;
    Cadastre__KeyspaceGrow grow;
    Cadastre__PartitionPatch limit;
    ProtobufCBinaryData split = {1, (uint8_t *)text_lent("q")};
    cadastre__keyspace_patch__init(&patch);
    cadastre__keyspace_delete__init(&removal);
    cadastre__keyspace_grow__init(&grow);
    cadastre__partition_patch__init(&limit);
    patch.keyspace = world_keyspace(&g->a, "orders")->id;
    patch.has_policy = true;
    patch.policy = (ProtobufCBinaryData){2, (uint8_t *)text_lent("{}")};
    patch.has_replicas = true;
    (void)world_do(&g->a, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &patch);
    keep(g);
    removal.keyspace = patch.keyspace + 20;
    (void)world_do(&g->a, CADASTRE__COMMAND__BODY_KEYSPACE_DELETE, &removal);
    keep(g);
    grow.keyspace = patch.keyspace;
    grow.splits = &split;
    grow.n_splits = 1;
    (void)world_do(&g->a, CADASTRE__COMMAND__BODY_KEYSPACE_GROW, &grow);
    keep(g);
    limit.partition = world_at(&g->a, "orders", "")->id;
    limit.has_rate_limit = true;
    limit.rate_limit = 100;
    limit.has_expect_epoch = true;
    limit.expect_epoch = world_at(&g->a, "orders", "")->epoch;
    (void)world_do(&g->a, CADASTRE__COMMAND__BODY_PARTITION_PATCH, &limit);
    keep(g);
}

static void plant(struct garbage *g)
{
    world_open(&g->a);
    world_open(&g->b);
    (void)world_zoned(&g->a, "n1", "a");
    keep(g);
    g->a.key = "key-1";
    g->a.principal = "alice";
    (void)world_zoned(&g->a, "n2", "b");
    keep(g);
    (void)world_range(&g->a, "orders");
    keep(g);
    (void)world_hash(&g->a, "logs", 8);
    keep(g);
    (void)world_split(&g->a, world_at(&g->a, "orders", "")->id, "m");
    keep(g);
    g->a.key = "key-2";
    (void)world_split(&g->a, world_at(&g->a, "orders", "z")->id, "t");
    keep(g);
    (void)world_merge(&g->a, world_at(&g->a, "orders", "n")->id,
                      world_at(&g->a, "orders", "z")->id);
    keep(g);
    (void)world_move(&g->a, world_at(&g->a, "orders", "")->id, "n2");
    keep(g);
    keyspace_commands(g);
    small_commands(g);
}

static uint64_t below(struct garbage *g, uint64_t n)
{
    return tap_rand_below(&g->rand, n);
}

/* Small numbers in place of a byte find other ids and kinds. */
static void mutate(struct garbage *g, struct seed *s)
{
    static const uint8_t odd[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0x08, 0x0a, 0x10};
    for (uint64_t n = below(g, 3); n > 0 && s->len > 0; n--) {
        size_t at = below(g, s->len);
        switch (below(g, 20)) {
        case 0:
        case 1:
            s->bytes[at] ^= (uint8_t)(1U << below(g, 8));
            break;
        case 2:
        case 3:
            s->bytes[at] = odd[below(g, sizeof odd)];
            break;
        default:
            s->bytes[at] = (uint8_t)below(g, 40);
            break;
        case 4:
            s->len = below(g, s->len + 1);
            break;
        case 5:
            memmove(s->bytes + at, s->bytes + at + 1, s->len - at - 1);
            s->len--;
            break;
        case 6:
            if (s->len < BYTES_MAX) {
                memmove(s->bytes + at + 1, s->bytes + at, s->len - at);
                s->bytes[at] = (uint8_t)below(g, 256);
                s->len++;
            }
            break;
        case 7: { /* two commands in one: protobuf merges what comes twice */
            const struct seed *other = &g->seeds[below(g, g->count)];
            size_t from = below(g, other->len), len = other->len - from;
            len = len <= BYTES_MAX - s->len ? len : BYTES_MAX - s->len;
            memcpy(s->bytes + s->len, other->bytes + from, len);
            s->len += len;
            break;
        }
        }
    }
}

static void any_bytes_are_applied_or_refused(void)
{
    struct garbage *g = mem_zalloc(sizeof *g);
    g->rand.state = tap_seed(4711);
    tap_note("seed %llu", (unsigned long long)g->rand.state);
    plant(g);
    CHECK(g->count >= 17);
    for (int i = 1; i <= ROUNDS && tap_failures() == 0; i++) {
        struct seed s = g->seeds[below(g, g->count)];
        mutate(g, &s);
        dir_rev before = world_state(&g->a)->revision;
        const struct dir_result *r = world_apply(&g->a, s.bytes, s.len);
        (void)world_apply(&g->b, s.bytes, s.len);
        const struct dir_view *x = world_state(&g->a), *y = world_state(&g->b);
        CHECK(x->hash.lo == y->hash.lo && x->hash.hi == y->hash.hi);
        CHECK(x->revision == before || x->revision == before + 1);
        CHECK(r->err.code == ERR_OK || x->revision == before);
        g->nonsense += g->a.effects == NULL;
        g->ok += g->a.effects != NULL && r->err.code == ERR_OK;
        g->refused += g->a.effects != NULL && r->err.code != ERR_OK;
        if (i % 1000 == 0) {
            CHECK_U64(world_check(x), 0);
            CHECK(g->a.rows_consistent);
        }
    }
    CHECK(g->ok > ROUNDS / 20 && g->refused > ROUNDS / 20 && g->nonsense > ROUNDS / 20);
    tap_note("%llu took effect, %llu were refused, %llu were no commands",
             (unsigned long long)g->ok, (unsigned long long)g->refused,
             (unsigned long long)g->nonsense);
    world_close(&g->a);
    world_close(&g->b);
    mem_free(g);
}

int main(void)
{
    RUN(any_bytes_are_applied_or_refused);
    return tap_done();
}
