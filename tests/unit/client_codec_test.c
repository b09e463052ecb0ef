/* SPDX-License-Identifier: Apache-2.0 */
/* Keys to routing keys as the directory makes them, and both as JSON writes them. */
#include "client/codec.h"

#include "base/mem.h"
#include "client/decode.h"
#include "directory/codec.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum cadastre_status read_codec(const char *keyspace, struct cl_codec *ret_codec)
{
    json_t *json = cl_json_parse(slice_of(keyspace, strlen(keyspace)));
    enum cadastre_status status = cl_codec_read(json, ret_codec);
    json_decref(json);
    return status;
}

/* XXH64 with seed 0, from its specification and well known implementations. */
static void hashes_are_xxh64(void)
{
    static const struct {
        const char *text;
        uint64_t hash;
    } rows[] = {
        {"", UINT64_C(0xef46db3751d8e999)},
        {"a", UINT64_C(0xd24ec4f1a98c6e5b)},
        {"abc", UINT64_C(0x44bc2cf5ad770999)},
        {"Nobody inspects the spammish repetition", UINT64_C(0xfbcea83c8a378bf1)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tap_note("text \"%s\"", rows[i].text);
        CHECK_U64(cadastre_hash(rows[i].text, strlen(rows[i].text)), rows[i].hash);
    }
}

static void keyspaces_are_read(void)
{
    static const struct {
        const char *json;
        enum cadastre_status status;
    } rows[] = {
        {"{\"scheme\":\"range\"}", CADASTRE_OK},
        {"{\"scheme\":\"range\",\"key_encoding\":\"hex\",\"new\":1}", CADASTRE_OK},
        {"{\"scheme\":\"hash\",\"partition_key\":{\"delimiter\":\"/\",\"fields\":2}}", CADASTRE_OK},
        {"{\"scheme\":\"hash\",\"partition_key\":{\"delimiter\":\"\",\"fields\":2}}",
         CADASTRE_UNSUPPORTED},
        {"{\"scheme\":\"hash\",\"partition_key\":{\"delimiter\":\"/\",\"fields\":0}}",
         CADASTRE_UNSUPPORTED},
        {"{\"scheme\":\"composite\"}", CADASTRE_UNSUPPORTED},
        {"{\"scheme\":\"range\",\"key_encoding\":\"base64\"}", CADASTRE_UNSUPPORTED},
        {"{\"scheme\":7}", CADASTRE_INVALID},
        {"[]", CADASTRE_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct cl_codec c;
        tap_note("row %zu: %s", i, rows[i].json);
        CHECK_U64(read_codec(rows[i].json, &c), rows[i].status);
    }
}

/* The server's own codec is the other implementation. */
static void routing_keys_are_the_servers(void)
{
    uint64_t seed = tap_seed(11);
    struct tap_rand r = {seed};
    for (unsigned i = 0; i < 5000 && tap_failures() == 0; i++) {
        uint32_t fields = (uint32_t)tap_rand_below(&r, 4);
        struct dir_keyspace ks = {.scheme = tap_rand_below(&r, 2) == 0 ? DIR_SCHEME_RANGE
                                                                       : DIR_SCHEME_HASH,
                                  .custom_partition_key = fields > 0,
                                  .partition_key = {.delimiter = '/', .fields = fields}};
        struct cl_codec c = {.hash = ks.scheme == DIR_SCHEME_HASH,
                             .has_fields = fields > 0,
                             .delimiter = '/',
                             .fields = fields};
        uint8_t key[CADASTRE_KEY_MAX], want[DIR_ROUTING_KEY_MAX], space[CL_BOUND_MAX];
        size_t len = tap_rand_below(&r, 4) == 0 ? tap_rand_below(&r, CADASTRE_KEY_MAX + 1)
                                                : tap_rand_below(&r, 20);
        size_t want_len = 0;
        struct err e;
        for (size_t k = 0; k < len; k++) {
            key[k] = tap_rand_below(&r, 3) == 0 ? '/' : (uint8_t)tap_rand(&r);
        }
        tap_note("seed %" PRIu64 ", case %u, fields %u, length %zu", seed, i, fields, len);
        CHECK(dir_codec_routing_key(&ks, slice_of(key, len), want, &want_len, &e) == ERR_OK);
        CHECK(slice_eq(cl_codec_routing_key(&c, slice_of(key, len), space),
                       slice_of(want, want_len)));
    }
}

static void keys_are_written_and_bounds_read(void)
{
    struct cl_codec text = {0}, hex = {.hex = true}, hash = {.hash = true};
    static const uint8_t bytes[] = {0x00, 0xff, 0x20};
    uint8_t out[CL_BOUND_MAX];
    size_t len = 0;
    json_t *j = cl_codec_write_key(&hex, slice_of(bytes, 3));
    CHECK_STR(json_string_value(j), "00ff20");
    CHECK(cl_codec_read_bound(&hex, j, out, &len));
    CHECK(slice_eq(slice_of(out, len), slice_of(bytes, 3)));
    CHECK(cl_codec_read_bound(&hash, j, out, &len) && len == 3);
    CHECK(cl_codec_read_bound(&text, j, out, &len) && len == 6);
    json_decref(j);
    CHECK(cl_codec_write_key(&text, slice_of(bytes, 3)) == NULL); /* not UTF-8 */
    j = cl_codec_write_key(&text, slice_of("a\0b", 3));
    CHECK_U64(json_string_length(j), 3);
    json_decref(j);
    static const char *const wrong[] = {"0", "0G", "0A", "ff "};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        j = json_string(wrong[i]);
        tap_note("bound \"%s\"", wrong[i]);
        CHECK(!cl_codec_read_bound(&hex, j, out, &len));
        json_decref(j);
    }
    char *large = mem_zalloc(CADASTRE_KEY_MAX + 2);
    memset(large, 'x', CADASTRE_KEY_MAX + 1);
    j = json_string(large);
    CHECK(!cl_codec_read_bound(&text, j, out, &len));
    json_decref(j);
    mem_free(large);
}

static const char good_route[] =
    "{\"keyspace\":\"ks\",\"partition\":17,\"epoch\":42,\"mod_revision\":43,\"start\":\"m\","
    "\"end\":\"t\",\"state\":\"active\",\"primary\":{\"node\":\"n1\",\"address\":\"10.0.0.1:9000\"}"
    ","
    "\"authority\":\"exclusive\",\"replicas\":[{\"node\":\"n1\",\"address\":\"10.0.0.1:9000\","
    "\"role\":\"primary\"},{\"node\":\"n2\",\"address\":\"h:1\",\"role\":\"sync\"},"
    "{\"node\":\"n3\",\"address\":\"h:2\",\"role\":\"something new\"}],"
    "\"rate_limit\":{\"requests_per_s\":9000},\"max_age_ms\":30000,\"future\":[]}";

static struct cl_entry *decode(const char *text)
{
    struct cl_codec c = {0};
    json_t *json = cl_json_parse(slice_of(text, strlen(text)));
    struct cl_entry *e = cl_decode_route(&c, json);
    json_decref(json);
    return e;
}

static void routes_are_read(void)
{
    struct cadastre_route route;
    struct cadastre_replica replicas[2];
    struct cl_entry *e = decode(good_route);
    CHECK(e != NULL);
    if (e == NULL) {
        return;
    }
    cl_entry_show(e, &route);
    CHECK_U64(route.partition, 17);
    CHECK_U64(route.epoch, 42);
    CHECK_U64(route.mod_revision, 43);
    CHECK_U64(route.rate_limit, 9000);
    CHECK(route.state == CADASTRE_ACTIVE && route.authority == CADASTRE_EXCLUSIVE);
    CHECK_STR(route.node, "n1");
    CHECK_STR(route.address, "10.0.0.1:9000");
    CHECK(slice_eq(cl_entry_start(e), slice_of("m", 1)));
    CHECK(slice_eq(cl_entry_end(e), slice_of("t", 1)) && !e->end_open);
    CHECK_U64(cl_entry_replicas(e, replicas, 2), 3);
    CHECK_STR(replicas[1].node, "n2");
    CHECK(replicas[0].role == CADASTRE_ROLE_PRIMARY && replicas[1].role == CADASTRE_ROLE_SYNC);
    struct cl_entry *copy = cl_entry_copy(e);
    CHECK(memcmp(copy->bytes, e->bytes, 40) == 0 && copy->mod_revision == 43);
    mem_free(copy);
    mem_free(e);
}

/* `from` replaced by `to` in a good route makes it none. */
static void nonsense_is_refused(void)
{
    static const struct {
        const char *from, *to;
    } rows[] = {
        {"\"partition\":17", "\"partition\":-17"},
        {"\"partition\":17", "\"partition\":17.0"},
        {"\"epoch\":42", "\"epoch\":9007199254740992"},
        {"\"epoch\":42,", ""},
        {"\"mod_revision\":43", "\"mod_revision\":\"43\""},
        {"\"end\":\"t\"", "\"end\":\"m\""},
        {"\"end\":\"t\"", "\"end\":\"a\""},
        {"\"start\":\"m\"", "\"start\":1"},
        {"\"state\":\"active\"", "\"state\":\"odd\""},
        {"\"authority\":\"exclusive\"", "\"authority\":null"},
        {"\"max_age_ms\":30000", "\"max_age_ms\":true"},
        {"\"node\":\"n2\"", "\"node\":\"n2\\u0000\""},
        {"\"address\":\"h:1\"", "\"addr\":\"h:1\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *at = strstr(good_route, rows[i].from);
        CHECK(at != NULL);
        if (at == NULL) {
            continue;
        }
        char *bad = mem_printf("%.*s%s%s", (int)(at - good_route), good_route, rows[i].to,
                               at + strlen(rows[i].from));
        tap_note("row %zu: %s", i, rows[i].to);
        struct cl_entry *e = decode(bad);
        CHECK(e == NULL);
        mem_free(e);
        mem_free(bad);
    }
}

int main(void)
{
    RUN(hashes_are_xxh64);
    RUN(keyspaces_are_read);
    RUN(routing_keys_are_the_servers);
    RUN(keys_are_written_and_bounds_read);
    RUN(routes_are_read);
    RUN(nonsense_is_refused);
    return tap_done();
}
