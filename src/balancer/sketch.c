/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/sketch.h"

#include "base/hash.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    NONE = UINT16_MAX,
    KEYS_MAX = 2 * SKETCH_SLOTS + 2, /* that all slots name, and those of one sample */
    ALLOCATION = 16,                 /* what the heap keeps beside each key */
    PPM = 1000000
};

/* A key that slots name; free when `refs` is 0. */
struct sketch_key {
    uint8_t *bytes; /* owns */
    uint32_t hash;
    uint16_t len, refs;
};

struct edge {
    uint8_t *bytes; /* owns; NULL: none yet */
    size_t len;
};

struct sketch {
    uint64_t rand;
    uint64_t weight; /* of all that was told, older windows halved */
    uint64_t window_ms;
    size_t bytes; /* of the keys, and of the edges */
    struct sketch_key *keys;
    uint16_t key_count, key_cap;
    struct {
        uint16_t key, end; /* indices; end NONE: a single key */
    } slots[SKETCH_SLOTS];
    /* Of the present window, and the edges of the one before. */
    uint64_t now_weight, above, below;
    struct edge low, high, before_low, before_high;
    uint8_t rising, falling; /* windows in a row */
};

static uint64_t draw(struct sketch *s) /* SplitMix64 */
{
    uint64_t z = (s->rand += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

struct sketch *sketch_new(uint64_t seed, uint64_t now_ms)
{
    struct sketch *s = mem_zalloc(sizeof *s);
    s->rand = seed;
    s->window_ms = now_ms;
    for (int i = 0; i < SKETCH_SLOTS; i++) {
        s->slots[i].key = s->slots[i].end = NONE;
    }
    return s;
}

void sketch_free(struct sketch *s)
{
    if (s == NULL) {
        return;
    }
    for (unsigned i = 0; i < s->key_count; i++) {
        mem_free(s->keys[i].bytes);
    }
    mem_free(s->keys);
    mem_free(s->low.bytes);
    mem_free(s->high.bytes);
    mem_free(s->before_low.bytes);
    mem_free(s->before_high.bytes);
    mem_free(s);
}

size_t sketch_bytes(const struct sketch *s)
{
    return sizeof *s + s->key_cap * sizeof s->keys[0] + s->bytes;
}

/* --- keys --- */

static struct slice key_slice(const struct sketch *s, uint16_t i)
{
    return slice_of(s->keys[i].bytes, s->keys[i].len);
}

static uint16_t find_key(const struct sketch *s, struct slice key, uint32_t hash)
{
    for (uint16_t i = 0; i < s->key_count; i++) {
        if (s->keys[i].hash == hash && s->keys[i].refs > 0 && slice_eq(key_slice(s, i), key)) {
            return i;
        }
    }
    return NONE;
}

static uint16_t free_key(struct sketch *s)
{
    for (uint16_t i = 0; i < s->key_count; i++) {
        if (s->keys[i].refs == 0) {
            return i;
        }
    }
    if (s->key_count == s->key_cap) {
        s->key_cap = s->key_cap == 0 ? 8 : (uint16_t)(2 * s->key_cap);
        s->keys = mem_realloc(s->keys, s->key_cap * sizeof s->keys[0]);
    }
    return s->key_count++;
}

/* With a reference for the caller; NONE when there is no room. */
static uint16_t hold_key(struct sketch *s, struct slice key, size_t room)
{
    uint32_t hash = (uint32_t)hash_xxh3_64(key.data, key.len);
    uint16_t i = find_key(s, key, hash);
    size_t takes = key.len + ALLOCATION;
    if (i != NONE) {
        s->keys[i].refs++;
        return i;
    }
    if (takes > room || s->bytes + takes > SKETCH_BYTES_MAX) {
        return NONE;
    }
    i = free_key(s);
    s->keys[i] = (struct sketch_key){mem_dup(key.data, key.len), hash, (uint16_t)key.len, 1};
    s->bytes += takes;
    return i;
}

static void let_go(struct sketch *s, uint16_t i)
{
    if (i != NONE && --s->keys[i].refs == 0) {
        s->bytes -= s->keys[i].len + ALLOCATION;
        mem_free(s->keys[i].bytes);
        s->keys[i].bytes = NULL;
    }
}

/* --- the edges, for a frontier --- */

static void edge_set(struct sketch *s, struct edge *e, struct slice key)
{
    s->bytes = s->bytes - e->len + key.len;
    e->bytes = mem_realloc(e->bytes, key.len);
    e->len = key.len;
    if (key.len > 0) {
        memcpy(e->bytes, key.data, key.len);
    }
}

static void edge_drop(struct sketch *s, struct edge *e)
{
    s->bytes -= e->len;
    mem_free(e->bytes);
    *e = (struct edge){0};
}

static int edge_cmp(const struct edge *e, struct slice key)
{
    return slice_cmp(slice_of(e->bytes, e->len), key);
}

static void note_edges(struct sketch *s, struct slice key, struct slice last, uint64_t weight)
{
    s->now_weight += weight;
    if (s->before_high.bytes != NULL && edge_cmp(&s->before_high, key) < 0) {
        s->above += weight;
    }
    if (s->before_low.bytes != NULL && edge_cmp(&s->before_low, last) > 0) {
        s->below += weight;
    }
    if (s->high.bytes == NULL || edge_cmp(&s->high, last) < 0) {
        edge_set(s, &s->high, last);
    }
    if (s->low.bytes == NULL || edge_cmp(&s->low, key) > 0) {
        edge_set(s, &s->low, key);
    }
}

static uint8_t in_a_row(uint8_t before, bool again)
{
    if (!again) {
        return 0;
    }
    return before < UINT8_MAX ? (uint8_t)(before + 1) : before;
}

static void end_window(struct sketch *s, uint64_t now_ms)
{
    uint64_t windows = now_ms > s->window_ms ? (now_ms - s->window_ms) / SKETCH_WINDOW_MS : 0;
    if (windows == 0) {
        return;
    }
    s->window_ms += windows * SKETCH_WINDOW_MS;
    s->weight = windows < 64 ? s->weight >> windows : 0;
    if (s->now_weight >= SKETCH_EVIDENCE_MIN) {
        s->rising = in_a_row(s->rising, 2 * s->above > s->now_weight);
        s->falling = in_a_row(s->falling, 2 * s->below > s->now_weight);
        edge_drop(s, &s->before_low);
        edge_drop(s, &s->before_high);
        s->before_low = s->low;
        s->before_high = s->high;
        s->low = s->high = (struct edge){0};
        s->now_weight = s->above = s->below = 0;
    }
}

/* --- adding --- */

/* weight / total as a fraction of 2^32. */
static uint64_t chance(uint64_t weight, uint64_t total)
{
    unsigned shift = 0;
    while (total >> shift >> 32 != 0) {
        shift++;
    }
    return (weight >> shift << 32) / (total >> shift);
}

/* Weights lie below 2^40 and windows halve them, but a flood could still pass any bound. */
static void grow_weight(struct sketch *s, uint64_t weight)
{
    if (s->weight > UINT64_MAX / 4) {
        s->weight /= 2;
    }
    if (s->now_weight > UINT64_MAX / 4) {
        s->now_weight /= 2;
        s->above /= 2;
        s->below /= 2;
    }
    s->weight += weight;
}

static void fill_slots(struct sketch *s, uint16_t key, uint16_t end, uint64_t weight)
{
    uint64_t p = chance(weight, s->weight), bits = 0;
    for (int i = 0; i < SKETCH_SLOTS; i++) {
        bits = (i & 1) == 0 ? draw(s) : bits >> 32;
        if ((bits & 0xffffffff) >= p) {
            continue;
        }
        s->keys[key].refs++;
        if (end != NONE) {
            s->keys[end].refs++;
        }
        let_go(s, s->slots[i].key);
        let_go(s, s->slots[i].end);
        s->slots[i].key = key;
        s->slots[i].end = end;
    }
}

bool sketch_add(struct sketch *s,
                struct slice key,
                const struct slice *end,
                uint64_t weight,
                size_t room,
                uint64_t now_ms)
{
    end_window(s, now_ms);
    uint16_t k = hold_key(s, key, room), e = NONE;
    if (k != NONE && end != NULL) {
        size_t taken = key.len + ALLOCATION;
        e = hold_key(s, *end, room > taken ? room - taken : 0);
    }
    if (k == NONE || (end != NULL && e == NONE)) {
        let_go(s, k);
        return false;
    }
    grow_weight(s, weight);
    note_edges(s, key, end != NULL ? *end : key, weight);
    fill_slots(s, k, e, weight);
    let_go(s, k);
    let_go(s, e);
    return true;
}

/* --- asking --- */

static bool has_evidence(const struct sketch *s)
{
    return s->weight >= SKETCH_EVIDENCE_MIN;
}

static bool is_in(struct slice key, struct slice start, const struct slice *end)
{
    return slice_cmp(key, start) >= 0 && (end == NULL || slice_cmp(key, *end) < 0);
}

uint32_t
sketch_share(const struct sketch *s, struct slice start, const struct slice *end, uint32_t unknown)
{
    uint32_t halves = 0;
    if (!has_evidence(s)) {
        return unknown;
    }
    for (int i = 0; i < SKETCH_SLOTS; i++) {
        uint16_t key = s->slots[i].key, last = s->slots[i].end;
        last = last != NONE ? last : key;
        halves += is_in(key_slice(s, key), start, end) ? 1 : 0;
        halves += is_in(key_slice(s, last), start, end) ? 1 : 0;
    }
    return (uint32_t)((uint64_t)halves * PPM / (UINT64_C(2) * SKETCH_SLOTS));
}

static uint64_t root(uint64_t v)
{
    uint64_t r = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit != 0; bit >>= 1) {
        if ((r | bit) * (r | bit) <= v) {
            r |= bit;
        }
    }
    return r;
}

/* Wilson's lower bound at z = 1.96 for a share seen in `n` draws. */
static uint32_t lower_bound(uint64_t share_ppm, uint64_t n)
{
    uint64_t spread =
        root(share_ppm * (PPM - share_ppm) / n + UINT64_C(960400000000) / (n * n)) * 196 / 100;
    uint64_t middle = share_ppm + 1920800 / n;
    return middle > spread ? (uint32_t)((middle - spread) * n * 10000 / (n * 10000 + 38416)) : 0;
}

bool sketch_top(const struct sketch *s, struct sketch_top *ret)
{
    uint16_t counts[KEYS_MAX] = {0};
    uint16_t best = NONE;
    uint64_t n = s->weight < SKETCH_SLOTS ? s->weight : SKETCH_SLOTS;
    if (!has_evidence(s)) {
        return false;
    }
    for (int i = 0; i < SKETCH_SLOTS; i++) {
        uint16_t key = s->slots[i].key;
        if (s->slots[i].end != NONE) {
            continue;
        }
        counts[key]++;
        if (best == NONE || counts[key] > counts[best] ||
            (counts[key] == counts[best] && slice_cmp(key_slice(s, key), key_slice(s, best)) < 0)) {
            best = key;
        }
    }
    if (best == NONE) {
        return false;
    }
    ret->key = key_slice(s, best);
    ret->share_ppm = (uint32_t)((uint64_t)counts[best] * PPM / SKETCH_SLOTS);
    ret->share_low_ppm = lower_bound(ret->share_ppm, n);
    return true;
}

/* A place where load begins, or a range does or ends. */
struct place {
    struct slice key;
    uint32_t halves, starts, ends;
};

static int place_order(const void *a, const void *b)
{
    return slice_cmp(((const struct place *)a)->key, ((const struct place *)b)->key);
}

static unsigned take_places(const struct sketch *s, struct place places[KEYS_MAX])
{
    unsigned n = 0;
    for (uint16_t i = 0; i < s->key_count; i++) {
        places[i] = (struct place){.key = key_slice(s, i)};
    }
    for (int i = 0; i < SKETCH_SLOTS; i++) {
        uint16_t key = s->slots[i].key, end = s->slots[i].end;
        places[key].halves += end == NONE ? 2 : 1;
        if (end != NONE) {
            places[key].starts++;
            places[end].halves++;
            places[end].ends++;
        }
    }
    for (unsigned i = 0; i < s->key_count; i++) {
        if (places[i].halves > 0) {
            places[n++] = places[i];
        }
    }
    qsort(places, n, sizeof places[0], place_order);
    return n;
}

static uint32_t gap(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

struct sketch_split sketch_split(const struct sketch *s, struct slice start)
{
    const uint32_t whole = 2 * SKETCH_SLOTS;
    struct sketch_split best = {.verdict = SKETCH_UNKNOWN};
    struct place places[KEYS_MAX];
    struct sketch_top top;
    uint32_t left = 0, open = 0, best_left = 0, best_open = 0;
    if (!has_evidence(s)) {
        return best;
    }
    unsigned n = take_places(s, places);
    for (unsigned i = 0; i < n; i++) {
        open -= places[i].ends;
        if (slice_cmp(places[i].key, start) > 0 &&
            (best.at.data == NULL || gap(left, whole - left) < gap(best_left, whole - best_left))) {
            best.at = places[i].key;
            best_left = left;
            best_open = open;
        }
        left += places[i].halves;
        open += places[i].starts;
    }
    best.left_ppm = (uint32_t)((uint64_t)best_left * PPM / whole);
    best.right_ppm = PPM - best.left_ppm;
    best.contained_ppm = (uint32_t)((uint64_t)best_open * PPM / SKETCH_SLOTS);
    uint32_t side = best_left < whole - best_left ? best_left : whole - best_left;
    if (best.at.data != NULL && best_open * 2 >= SKETCH_SLOTS) {
        best.verdict = SKETCH_CONTAINED;
    } else if (best.at.data != NULL && side * 4 >= whole) {
        best.verdict = SKETCH_BALANCED;
    } else if (sketch_top(s, &top)) {
        best.verdict = SKETCH_ISOLATE;
        best.at = top.key;
    } else {
        best.verdict = SKETCH_CONTAINED;
    }
    return best;
}

enum sketch_frontier sketch_frontier(const struct sketch *s)
{
    if (s->rising >= SKETCH_FRONTIER_WINDOWS) {
        return SKETCH_RISING;
    }
    return s->falling >= SKETCH_FRONTIER_WINDOWS ? SKETCH_FALLING : SKETCH_STILL;
}

/* --- digests --- */

enum { DIGEST_KEY_MAX = 1032 };

/* Slots in key order, equal ones beside each other. */
struct part {
    struct slice key, end; /* end.data NULL: a single key */
    uint16_t slots;
};

static int part_order(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int order = slice_cmp(x->key, y->key);
    return order != 0 ? order : slice_cmp(x->end, y->end);
}

static unsigned take_parts(const struct sketch *s, struct part parts[SKETCH_SLOTS])
{
    unsigned n = 0, distinct = 0;
    for (int i = 0; i < SKETCH_SLOTS; i++) {
        uint16_t key = s->slots[i].key, end = s->slots[i].end;
        if (key != NONE) {
            parts[n++] = (struct part){key_slice(s, key),
                                       end != NONE ? key_slice(s, end) : slice_of(NULL, 0), 1};
        }
    }
    qsort(parts, n, sizeof parts[0], part_order);
    for (unsigned i = 0; i < n; i++) {
        if (distinct > 0 && part_order(&parts[distinct - 1], &parts[i]) == 0) {
            parts[distinct - 1].slots++;
        } else {
            parts[distinct++] = parts[i];
        }
    }
    return distinct;
}

/* The largest part stays by itself; of the others, runs of about equal weight become one each, in
 * the place of the run's first. */
static unsigned fold_parts(struct part *parts, unsigned n)
{
    unsigned top = 0, out = 0, rest = 0, taken = 0;
    for (unsigned i = 0; i < n; i++) {
        top = parts[i].slots > parts[top].slots ? i : top;
        rest += parts[i].slots;
    }
    rest -= parts[top].slots;
    if (n <= SKETCH_PARTS_MAX) {
        return n;
    }
    unsigned runs = SKETCH_PARTS_MAX - 3, last = UINT32_MAX; /* the top one cuts one run in two */
    for (unsigned i = 0; i < n; i++) {
        struct part p = parts[i];
        unsigned run = i == top ? UINT32_MAX - 1 : taken * runs / rest;
        if (out > 0 && run == last) {
            parts[out - 1].slots = (uint16_t)(parts[out - 1].slots + p.slots);
        } else {
            parts[out++] = p;
        }
        last = run;
        taken += i == top ? 0 : p.slots;
    }
    return out;
}

void sketch_put_digest(const struct sketch *s, struct buf *b)
{
    struct part parts[SKETCH_SLOTS];
    unsigned n = fold_parts(parts, take_parts(s, parts));
    wire_put_u64(b, s->weight);
    buf_put_u8(b, s->rising);
    buf_put_u8(b, s->falling);
    buf_put_u8(b, (uint8_t)n);
    for (unsigned i = 0; i < n; i++) {
        wire_put_u16(b, parts[i].slots);
        wire_put_bytes(b, parts[i].key);
        buf_put_u8(b, parts[i].end.data != NULL);
        if (parts[i].end.data != NULL) {
            wire_put_bytes(b, parts[i].end);
        }
    }
}

/* Slots [from, from + count) name it. */
static void name_slots(struct sketch *s, uint16_t key, uint16_t end, unsigned from, unsigned count)
{
    for (unsigned i = from; i < from + count && key != NONE; i++) {
        s->slots[i].key = key;
        s->slots[i].end = end;
        s->keys[key].refs++;
        if (end != NONE) {
            s->keys[end].refs++;
        }
    }
}

/* One part, whose slots follow the `told` ones. */
static void take_part(struct sketch *s, struct wire_reader *r, unsigned *told, unsigned *filled)
{
    unsigned count = wire_u16(r);
    struct slice key = wire_bytes(r, DIGEST_KEY_MAX, "a key of a sketch"), end = {0};
    bool range = wire_bool(r);
    if (range) {
        end = wire_bytes(r, DIGEST_KEY_MAX, "the end of a range of keys");
    }
    if (count == 0 || count > SKETCH_SLOTS - *told) {
        wire_fail(r, "slots of a sketch");
    }
    if (r->wrong != NULL) {
        return;
    }
    uint16_t k = hold_key(s, key, SIZE_MAX), e = range ? hold_key(s, end, SIZE_MAX) : NONE;
    *told += count;
    if (k != NONE && (e != NONE || !range)) { /* else there is no room for such long keys */
        name_slots(s, k, e, *filled, count);
        *filled += count;
    }
    let_go(s, k);
    let_go(s, e);
}

struct sketch *sketch_take_digest(struct wire_reader *r, uint64_t seed, uint64_t now_ms)
{
    struct sketch *s = sketch_new(seed, now_ms);
    unsigned told = 0, filled = 0;
    s->weight = wire_u64(r);
    s->rising = wire_u8(r);
    s->falling = wire_u8(r);
    unsigned n = wire_enum(r, 0, SKETCH_PARTS_MAX, "parts of a sketch");
    for (unsigned i = 0; i < n && r->wrong == NULL; i++) {
        take_part(s, r, &told, &filled);
    }
    if ((told != 0 && told != SKETCH_SLOTS) || s->weight > UINT64_MAX / 4) {
        wire_fail(r, "slots of a sketch"); /* a reservoir is full or empty */
    }
    if (r->wrong != NULL || filled == 0) {
        sketch_free(s);
        return NULL;
    }
    name_slots(s, s->slots[0].key, s->slots[0].end, filled, SKETCH_SLOTS - filled);
    return s;
}
