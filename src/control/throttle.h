/* SPDX-License-Identifier: Apache-2.0 */
/* How fast routine copies from and to a node may go, by what the node says of itself: at once down
 * to a quarter when it is beyond a guardrail's limit, to half of what it was when it is close to
 * it, and up again step by step (docs/balancing.md, "Guardrails"). Pure: times are the caller's, of
 * one clock, in ms. One thread. */
#ifndef CONTROL_THROTTLE_H
#define CONTROL_THROTTLE_H

#include "directory/budget.h"

enum {
    THROTTLE_FLOOR_PPM = 250000, /* never slower than that */
    THROTTLE_STEP_PPM = 100000,  /* of the full rate, up at a time */
    THROTTLE_NEAR_PERCENT = 90   /* of the limit: close to it */
};

/* The guardrail that a node is closest to. `limit` 0: none is watched, or nothing was said. */
struct throttle_reading {
    uint64_t node;
    const char *code; /* static: the guardrail's name */
    uint64_t value, limit;
};

/* One node that is, or was a moment ago, in trouble. */
struct throttle_node {
    struct throttle_reading why; /* the last that was bad */
    uint64_t share_ppm;          /* of the reserved rate, at most DIR_SHARE_FULL_PPM */
    bool tripped;                /* beyond the limit: nothing routine begins */
    bool good;                   /* since then */
    uint64_t good_since_ms;
};

struct throttle {
    struct throttle_node *nodes; /* by id; owns; those of the directory, at the most */
    uint32_t count, cap;
};

void throttle_close(struct throttle *t);
/* One step of a node. `resume_ms`: so long it has to be good before routine work begins again. */
void throttle_take(struct throttle *t,
                   const struct throttle_reading *r,
                   uint64_t resume_ms,
                   uint64_t now_ms);
/* What an earlier leader had come to; of several, the lowest share. */
void throttle_restore(struct throttle *t,
                      const struct throttle_reading *r,
                      uint64_t share_ppm,
                      uint64_t now_ms);
/* Forgets the nodes that the view does not have. */
void throttle_prune(struct throttle *t, const struct dir_view *v);
/* What copies between the two may take; below the full share, because of `*ret_why`. */
uint64_t throttle_share(const struct throttle *t,
                        uint64_t source,
                        uint64_t destination,
                        const struct throttle_reading **ret_why);
/* NULL: routine work may begin. */
const struct throttle_reading *throttle_stops(const struct throttle *t);
bool throttle_is_over(const struct throttle_reading *r);

#endif
