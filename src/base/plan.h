/* SPDX-License-Identifier: Apache-2.0 */
/* What a move costs: `cadastre plan move` and the plan of a queued operation. Whole numbers, so
 * that the figures are the same everywhere, to the digit. Pure; any thread. Every input and result
 * is at most PARSE_INT_MAX; ERR_INVALID_REQUEST with a line for a person when one is not, or an
 * input makes no sense. */
#ifndef BASE_PLAN_H
#define BASE_PLAN_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* --- numbers that don't wrap: PLAN_TOO_LARGE absorbs whatever is done with it --- */

#define PLAN_TOO_LARGE UINT64_MAX

uint64_t plan_add(uint64_t a, uint64_t b);
uint64_t plan_mul(uint64_t a, uint64_t b);
uint64_t plan_ceil_div(uint64_t a, uint64_t b);
/* floor(a * part / whole) for part and whole below 2^32, without a product that is larger than the
 * result. */
uint64_t plan_scale(uint64_t a, uint64_t part, uint64_t whole);
enum err_code plan_too_large(struct err *e);

enum { PLAN_COMPONENTS = 8, PLAN_ADVICE = 3, PLAN_ADVICE_MAX = 160, PLAN_PPM = 1000000 };

/* --- moving a partition --- */

struct plan_move_input {
    uint64_t size, copy_rate, live_rate, budget; /* bytes, bytes/s */
    uint64_t dual_write_ms;
    uint64_t checksum_passes;                  /* whole reads of each side for its checksum */
    uint64_t replicas;                         /* of the destination, which get what it gets */
    uint32_t reserve_ppm;                      /* of the budget, for what is not known */
    uint32_t index_work_ppm, cache_warmup_ppm; /* of the destination's writes; of the size */
};

struct plan_component {
    const char *name, *from; /* literals; `from` says what it is computed from */
    bool of_size, of_live;   /* of which inputs */
    uint64_t bytes;
};

struct plan_move {
    uint64_t copy_s;           /* rounded up */
    uint64_t peak;             /* bytes/s: copying beside live changes */
    int64_t margin;            /* bytes/s: what the peak leaves of the budget; may be negative */
    uint64_t wanted_margin;    /* bytes/s: the reserve */
    uint64_t dual_write_bytes; /* rounded up */
    uint64_t advised_rate;     /* bytes/s, rounded down; 0: nothing is left for copying */
    uint64_t advised_s;        /* rounded up; 0 when advised_rate is */
    bool too_thin;             /* margin < wanted_margin */
    bool falls_behind;         /* changes come at least as fast as they can be copied */
    struct plan_component components[PLAN_COMPONENTS];
};

enum err_code
plan_move(const struct plan_move_input *in, struct plan_move *ret_plan, struct err *e) MUST_CHECK;

/* At most PLAN_ADVICE lines for a person, each a text; returns how many. */
unsigned plan_move_advice(const struct plan_move *p,
                          uint32_t reserve_ppm,
                          char ret_lines[PLAN_ADVICE][PLAN_ADVICE_MAX]);

/* For people, one decimal, but none that is 0: "56.4 MiB". */
void plan_put_bytes(struct buf *b, uint64_t bytes);

#endif
