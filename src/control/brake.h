/* SPDX-License-Identifier: Apache-2.0 */
/* How much of what each class of routine work has moved was moved for nothing (docs/balancing.md,
 * "Oscillation"). A function of the proposals in a view: any server says the same. Any thread. */
#ifndef CONTROL_BRAKE_H
#define CONTROL_BRAKE_H

#include "directory/balancer.h"

enum {
    BRAKE_CLASSES = 5,
    BRAKE_RETURNS_MAX = 3, /* so many of them brake their class */
    BRAKE_TIMES = 8,       /* of return_ms: how far back is looked, */
    BRAKE_HALF = 4         /* and of that a quarter is the half-life */
};

struct brake_class {
    uint32_t class_of;
    uint64_t moves;   /* of primaries, done in that time */
    uint64_t returns; /* those to where the partition had been in that time */
    /* In millionths of a node's share, each halved as it ages: all that was moved, and of that what
     * is now elsewhere than before. */
    uint64_t variation_ppm, net_ppm;
    bool braked; /* nothing more of it is begun */
};

struct brake {
    struct brake_class of[BRAKE_CLASSES];
};

void brake_measure(const struct dir_view *v, uint64_t now_ms, struct brake *ret);
bool brake_holds(const struct brake *b, uint32_t class_of);

#endif
