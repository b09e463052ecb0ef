/* SPDX-License-Identifier: Apache-2.0 */
#include "base/plan.h"

#include "base/parse.h"

#include <stdio.h>

enum { TEXT_MAX = 64 };

uint64_t plan_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? PLAN_TOO_LARGE : sum;
}

uint64_t plan_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    bool large =
        a == PLAN_TOO_LARGE || b == PLAN_TOO_LARGE || __builtin_mul_overflow(a, b, &product);
    return large ? PLAN_TOO_LARGE : product;
}

uint64_t plan_ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

uint64_t plan_scale(uint64_t a, uint64_t part, uint64_t whole)
{
    return a == PLAN_TOO_LARGE ? a : plan_add(plan_mul(a / whole, part), a % whole * part / whole);
}

enum err_code plan_too_large(struct err *e)
{
    return err_set(e, ERR_INVALID_REQUEST, "the figures would pass 2^53: give smaller ones");
}

static enum err_code check_move(const struct plan_move_input *in, struct err *e)
{
    const uint64_t values[] = {in->size,          in->copy_rate,       in->live_rate, in->budget,
                               in->dual_write_ms, in->checksum_passes, in->replicas};
    for (unsigned i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (values[i] > PARSE_INT_MAX) {
            return plan_too_large(e);
        }
    }
    if (in->copy_rate == 0) {
        return err_set(e, ERR_INVALID_REQUEST, "--copy-rate must be above 0");
    }
    if (in->budget == 0) {
        return err_set(e, ERR_INVALID_REQUEST, "--budget must be above 0");
    }
    return ERR_OK;
}

static bool put_components(const struct plan_move_input *in, struct plan_move *p)
{
    uint64_t changes = plan_mul(in->live_rate, p->copy_s);
    uint64_t written = plan_add(in->size, changes),
             received = plan_add(written, p->dual_write_bytes);
    const struct plan_component all[PLAN_COMPONENTS] = {
        {"source_reads", "size", true, false, in->size},
        {"destination_writes", "size + live rate x copy time", true, true, written},
        {"checksums", "size x 2 sides x checksum passes", true, false,
         plan_mul(plan_mul(in->size, 2), in->checksum_passes)},
        {"change_capture", "live rate x copy time", true, true, changes},
        {"dual_writes", "live rate x dual-write time", false, true, p->dual_write_bytes},
        {"index_work", "index work x (destination writes + dual writes)", true, true,
         plan_scale(received, in->index_work_ppm, PLAN_PPM)},
        {"cache_warmup", "cache warm-up x size", true, false,
         plan_scale(in->size, in->cache_warmup_ppm, PLAN_PPM)},
        {"replica_work", "replicas x (destination writes + dual writes)", true, true,
         plan_mul(received, in->replicas)}};
    bool fits = true;
    for (unsigned i = 0; i < PLAN_COMPONENTS; i++) {
        p->components[i] = all[i];
        fits = fits && all[i].bytes <= PARSE_INT_MAX;
    }
    return fits;
}

/* Rounded up: seconds and milliseconds apart, so that only the result need fit. */
static uint64_t dual_bytes(const struct plan_move_input *in)
{
    uint64_t rest = plan_mul(in->dual_write_ms % 1000, in->live_rate);
    return plan_add(plan_mul(in->dual_write_ms / 1000, in->live_rate), plan_ceil_div(rest, 1000));
}

enum err_code plan_move(const struct plan_move_input *in, struct plan_move *ret_plan, struct err *e)
{
    enum err_code code = check_move(in, e);
    if (code != ERR_OK) {
        return code;
    }
    if (in->reserve_ppm >= PLAN_PPM) {
        return err_set(e, ERR_INVALID_REQUEST, "--reserve must be below 100%%");
    }
    struct plan_move p = {.copy_s = plan_ceil_div(in->size, in->copy_rate),
                          .peak = in->copy_rate + in->live_rate,
                          .margin =
                              (int64_t)in->budget - (int64_t)in->copy_rate - (int64_t)in->live_rate,
                          .dual_write_bytes = dual_bytes(in),
                          .falls_behind = in->live_rate >= in->copy_rate};
    uint64_t usable = plan_scale(in->budget, PLAN_PPM - in->reserve_ppm, PLAN_PPM);
    p.wanted_margin = in->budget - usable;
    p.too_thin = p.margin < (int64_t)p.wanted_margin;
    if (usable > in->live_rate) {
        p.advised_rate = usable - in->live_rate;
        p.advised_s = plan_ceil_div(in->size, p.advised_rate);
    }
    if (!put_components(in, &p) || p.peak > PARSE_INT_MAX || p.dual_write_bytes > PARSE_INT_MAX) {
        return plan_too_large(e);
    }
    *ret_plan = p;
    return ERR_OK;
}

void plan_put_bytes(struct buf *b, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    unsigned unit = 0;
    while (unit < 5 && bytes >> (10 * (unit + 1)) != 0) {
        unit++;
    }
    uint64_t one = UINT64_C(1) << (10 * unit);
    uint64_t tenths = bytes / one * 10 + (bytes % one * 10 + one / 2) / one;
    buf_put_u64_dec(b, tenths / 10);
    if (tenths % 10 != 0) {
        buf_printf(b, ".%u", (unsigned)(tenths % 10));
    }
    buf_printf(b, " %s", units[unit]);
}

struct words {
    char bytes[TEXT_MAX];
};

static struct words in_words(uint64_t bytes)
{
    struct words w;
    struct buf b = {.data = (uint8_t *)w.bytes, .cap = sizeof w.bytes, .max = sizeof w.bytes - 1};
    plan_put_bytes(&b, bytes);
    w.bytes[b.len] = '\0';
    return w;
}

unsigned plan_move_advice(const struct plan_move *p,
                          uint32_t reserve_ppm,
                          char lines[PLAN_ADVICE][PLAN_ADVICE_MAX])
{
    unsigned n = 0;
    if (p->margin < 0) {
        (void)snprintf(lines[n++], PLAN_ADVICE_MAX, "the peak is above the budget by %s/s",
                       in_words((uint64_t)-p->margin).bytes);
    } else if (p->too_thin) {
        (void)snprintf(lines[n++], PLAN_ADVICE_MAX,
                       "the margin of %s/s is too thin: a reserve of %g%% is %s/s",
                       in_words((uint64_t)p->margin).bytes, (double)reserve_ppm / 10000.0,
                       in_words(p->wanted_margin).bytes);
    }
    if (p->advised_rate == 0) {
        (void)snprintf(lines[n++], PLAN_ADVICE_MAX,
                       "the live changes alone take what the reserve leaves of the budget: raise "
                       "the budget, or move at a quieter time");
    } else if (p->too_thin) {
        (void)snprintf(lines[n++], PLAN_ADVICE_MAX,
                       "copy at %s/s at most: the copy then takes %llu s",
                       in_words(p->advised_rate).bytes, (unsigned long long)p->advised_s);
    }
    if (p->falls_behind) {
        (void)snprintf(lines[n++], PLAN_ADVICE_MAX,
                       "changes come as fast as they are copied: catching up may never end");
    }
    return n;
}
