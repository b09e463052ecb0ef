/* SPDX-License-Identifier: Apache-2.0 */
/* Load reports over any bytes: the first one's lowest bit says JSON or protobuf. What is taken
 * keeps its bounds and can be counted; what is not names a field, or is no report at all. */
#include "api/load_in.h"
#include "base/assert.h"
#include "base/parse.h"
#include "tests/fuzz/target.h"

static void check_text(const struct load_batch *b, struct batch_text t)
{
    ASSERT(t.len == 0 || ((size_t)t.at + t.len <= b->text.len && !b->text.overflow));
}

static void check_keys(const struct load_batch *b, const struct batch_sample *s)
{
    ASSERT(s->key_count <= LOAD_KEYS_MAX && s->key_from + s->key_count <= b->key_count);
    for (uint32_t k = 0; k < s->key_count; k++) {
        const struct batch_key *key = &b->keys[s->key_from + k];
        check_text(b, key->key);
        check_text(b, key->end);
        ASSERT(key->has_key && key->weight >= 1 && key->weight <= SKETCH_WEIGHT_MAX);
    }
}

static void put_heat(struct heat *h, const struct load_batch *b, const struct batch_sample *s)
{
    struct load_part parts[LOAD_PARTS_MAX];
    struct load_sample sample = {
        .interval_ms = b->interval_ms, .has = s->has, .parts = parts, .part_count = s->part_count};
    uint64_t all = 0;
    ASSERT(s->part_count <= LOAD_PARTS_MAX && s->part_from + s->part_count <= b->part_count);
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        sample.value[r] = s->value[r];
    }
    for (uint32_t k = 0; k < s->part_count; k++) {
        const struct batch_part *p = &b->parts[s->part_from + k];
        struct slice names[HEAT_NAMES];
        for (unsigned n = 0; n < HEAT_NAMES; n++) {
            check_text(b, p->name[n]);
            names[n] = batch_slice(b, p->name[n]);
            ASSERT(parse_is_name(names[n]) || (n == HEAT_BY_TENANT && !p->has_tenant));
        }
        parts[k] = (struct load_part){names[0], names[1], names[2], p->requests};
        all += p->requests;
    }
    ASSERT(all <= s->value[LOAD_READS] + s->value[LOAD_WRITES]);
    heat_put(h, 1, slice_of("", 0), NULL, &sample, 1000000);
}

static void
count(struct load *l, const struct load_batch *b, const struct batch_sample *s, uint64_t now)
{
    struct load_key keys[LOAD_KEYS_MAX];
    struct load_sample sample = {.partition = s->partition,
                                 .epoch = s->epoch,
                                 .interval_ms = b->interval_ms,
                                 .has = s->has,
                                 .keys = keys,
                                 .key_count = s->key_count};
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        sample.value[r] = s->value[r];
    }
    for (uint32_t k = 0; k < s->key_count; k++) {
        const struct batch_key *key = &b->keys[s->key_from + k];
        struct slice text = batch_slice(b, key->key), end = batch_slice(b, key->end);
        text.len = text.len < DIR_ROUTING_KEY_MAX ? text.len : DIR_ROUTING_KEY_MAX;
        end.len = end.len < DIR_ROUTING_KEY_MAX ? end.len : DIR_ROUTING_KEY_MAX;
        keys[k] = (struct load_key){.key = text, .weight = key->weight};
        if (key->has_end) {
            keys[k].end = end;
        }
    }
    ASSERT(load_put(l, &sample, now) != LOAD_FULL);
    const struct load_entry *e = load_get(l, s->partition, 0);
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        uint64_t most = load_limit((enum load_resource)r) * (r < LOAD_SIZE ? 1000 : 1);
        ASSERT(load_value(e, (enum load_resource)r, LOAD_FAST) <= most + most / 1000 + 1);
    }
    if (e->sketch != NULL) {
        struct sketch_top top;
        struct sketch_split split = sketch_split(e->sketch, slice_of("", 0));
        ASSERT(split.left_ppm + split.right_ppm == 1000000 || split.verdict == SKETCH_UNKNOWN);
        ASSERT(!sketch_top(e->sketch, &top) || top.share_low_ppm <= top.share_ppm);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct load_batch b;
    struct err e = {.code = ERR_OK};
    if (size == 0) {
        return 0;
    }
    struct slice body = slice_of(data + 1, size - 1);
    enum err_code code =
        (data[0] & 1) == 0 ? load_read_json(body, &b, &e) : load_read_protobuf(body, &b, &e);
    ASSERT(code == ERR_OK || (code == ERR_INVALID_REQUEST && e.code == code));
    if (code == ERR_OK) {
        struct heat *h = heat_new(HEAT_BYTES_MAX);
        struct slice start = slice_of("", 0);
        heat_set_columns(h, 1, &(struct heat_columns){&start, 1, 1}, 1000000);
        struct load *l = load_new(LOAD_BATCH_MAX, LOAD_SKETCH_BYTES_MAX);
        ASSERT(b.session > 0 && b.interval_ms >= LOAD_INTERVAL_MIN_MS &&
               b.interval_ms <= LOAD_INTERVAL_MAX_MS);
        for (uint32_t i = 0; i < b.count; i++) {
            ASSERT(parse_is_name(batch_slice(&b, b.samples[i].keyspace)));
            check_keys(&b, &b.samples[i]);
            put_heat(h, &b, &b.samples[i]);
            count(l, &b, &b.samples[i], 1000000);
            count(l, &b, &b.samples[i], 1900000);
        }
        load_free(l);
        heat_free(h);
    }
    load_batch_free(&b);
    return 0;
}
