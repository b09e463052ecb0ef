/* SPDX-License-Identifier: Apache-2.0 */
/* Where in a partition its load lies, from weighted samples of keys: a reservoir of SKETCH_SLOTS
 * draws with replacement, so that any range's share is known to within sqrt(s(1-s)/256) <= .032
 * (one standard deviation) whatever the weights are, in bounded memory.
 *
 * What was told earlier counts half as much after each window: the reservoir follows the load and
 * is never empty between windows. Keys are routing keys. The draws follow from the seed alone.
 * Owned and called by one thread at a time. */
#ifndef BALANCER_SKETCH_H
#define BALANCER_SKETCH_H

#include "base/wire.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SKETCH_SLOTS = 256,
    SKETCH_BYTES_MAX = 32 << 10, /* of keys in one sketch; a key beyond is counted, not kept */
    SKETCH_EVIDENCE_MIN = 100,   /* weight below which nothing is concluded */
    SKETCH_FRONTIER_WINDOWS = 3  /* in a row, after which a moving edge is called one */
};
#define SKETCH_WINDOW_MS UINT64_C(60000)
#define SKETCH_WEIGHT_MAX                                                                          \
    (UINT64_C(1) << 40) /* of one sample; larger ones are refused upstream                         \
                         */

struct sketch; /* opaque */

struct sketch *sketch_new(uint64_t seed, uint64_t now_ms);
void sketch_free(struct sketch *s); /* accepts NULL */
/* Bytes that it takes at present, all in all. */
size_t sketch_bytes(const struct sketch *s);

/* Load of `weight` (requests, or their cost) on a key, or on the range [key, end) when `end` is not
 * NULL. `room`: how many more bytes it may take. False: the key was not kept for want of room; its
 * weight went to waste. */
bool sketch_add(struct sketch *s,
                struct slice key,
                const struct slice *end,
                uint64_t weight,
                size_t room,
                uint64_t now_ms);

/* The share of the load in [start, end) in millionths (a range counts half at either end); `end`
 * NULL: to the highest key. `unknown` when there is too little evidence. */
uint32_t
sketch_share(const struct sketch *s, struct slice start, const struct slice *end, uint32_t unknown);

/* The key with the largest share. Borrowed until the next sketch_add(). */
struct sketch_top {
    struct slice key;
    uint32_t share_ppm;     /* as drawn */
    uint32_t share_low_ppm; /* the true share is above this with 97.5 % probability */
};
/* False: too little evidence. */
bool sketch_top(const struct sketch *s, struct sketch_top *ret);

enum sketch_verdict {
    SKETCH_UNKNOWN,  /* too little evidence */
    SKETCH_BALANCED, /* split at `at`: both sides get at least a quarter */
    SKETCH_ISOLATE,  /* no such key: one key is most of the load; split at it and just after it */
    SKETCH_CONTAINED /* most of the load is ranges that any split would cut */
};
struct sketch_split {
    enum sketch_verdict verdict;
    struct slice at; /* goes to the right part; borrowed until the next sketch_add() */
    uint32_t left_ppm, right_ppm, contained_ppm;
};
/* The best key to split a partition at that begins at `start` (which itself is no split key). */
struct sketch_split sketch_split(const struct sketch *s, struct slice start);

/* A digest for another server: the top key, and what lies around it, in SKETCH_PARTS_MAX parts at
 * most; so the other one knows shares to within some percent. */
enum { SKETCH_PARTS_MAX = 16 };
void sketch_put_digest(const struct sketch *s, struct buf *b);
/* A sketch that goes on from it; NULL when it is empty, or can't be read (the reader is wrong). */
struct sketch *sketch_take_digest(struct wire_reader *r, uint64_t seed, uint64_t now_ms);

enum sketch_frontier { SKETCH_STILL, SKETCH_RISING, SKETCH_FALLING };
/* Whether the load has run ahead of its own edge for SKETCH_FRONTIER_WINDOWS windows in a row: most
 * of each window's weight beyond all that the window before had seen. */
enum sketch_frontier sketch_frontier(const struct sketch *s);

#endif
