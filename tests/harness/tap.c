/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/tap.h"

#include "base/parse.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned tests_run, tests_failed, failures_here;
static char note[512];

bool tap_check(bool ok, const char *text, const char *file, int line)
{
    if (!ok) {
        failures_here++;
        (void)printf("# %s:%d: failed: %s%s%s\n", file, line, text, note[0] != '\0' ? " with " : "",
                     note);
    }
    return ok;
}

bool tap_check_u64(uint64_t got, uint64_t want, const char *text, const char *file, int line)
{
    bool ok = tap_check(got == want, text, file, line);
    if (!ok) {
        (void)printf("#   got %" PRIu64 ", want %" PRIu64 "\n", got, want);
    }
    return ok;
}

bool tap_check_str(const char *got, const char *want, const char *text, const char *file, int line)
{
    bool ok = tap_check(got != NULL && strcmp(got, want) == 0, text, file, line);
    if (!ok) {
        (void)printf("#   got %s\n#   want %s\n", got != NULL ? got : "(null)", want);
    }
    return ok;
}

void tap_note(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(note, sizeof note, fmt, args);
    va_end(args);
}

unsigned tap_failures(void)
{
    return failures_here;
}

void tap_run(const char *name, void (*fn)(void))
{
    failures_here = 0;
    note[0] = '\0';
    fn();
    tests_run++;
    tests_failed += failures_here > 0;
    (void)printf("%s %u - %s\n", failures_here > 0 ? "not ok" : "ok", tests_run, name);
    (void)fflush(stdout);
}

int tap_done(void)
{
    (void)printf("1..%u\n", tests_run);
    return tests_failed > 0 ? 1 : 0;
}

uint64_t tap_seed(uint64_t fallback)
{
    uint64_t seed = fallback;
    const char *text = getenv("TEST_SEED");
    if (text != NULL && !parse_u64(text, UINT64_MAX, &seed)) {
        (void)printf("Bail out! TEST_SEED is not a number\n");
        exit(2);
    }
    (void)printf("# seed %" PRIu64 " (TEST_SEED=n for another)\n", seed);
    return seed;
}

/* Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators". */
uint64_t tap_rand(struct tap_rand *r)
{
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t tap_rand_below(struct tap_rand *r, uint64_t n)
{
    return tap_rand(r) % n;
}
