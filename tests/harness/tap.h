/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: TAP on stdout, for `prove`. A test program is
 *
 *     int main(void) { RUN(split_keeps_coverage); RUN(...); return tap_done(); }
 *
 * RUN prints one `ok`/`not ok` line for each function; CHECK records a failure with its place and
 * goes on; tap_note() says what inputs or seeds it was (printed only if the function fails). */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#include <stdbool.h>
#include <stdint.h>

#define CHECK(cond) tap_check((cond), #cond, __FILE__, __LINE__)
#define CHECK_U64(got, want)                                                                       \
    tap_check_u64((uint64_t)(got), (uint64_t)(want), #got " == " #want, __FILE__, __LINE__)
#define CHECK_STR(got, want) tap_check_str((got), (want), #got " is " #want, __FILE__, __LINE__)
#define RUN(fn)              tap_run(#fn, (fn))

bool tap_check(bool ok, const char *text, const char *file, int line);
bool tap_check_u64(uint64_t got, uint64_t want, const char *text, const char *file, int line);
bool tap_check_str(const char *got, const char *want, const char *text, const char *file, int line);
void tap_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Failures of the running test so far: loops of random cases stop early on them. */
unsigned tap_failures(void);
void tap_run(const char *name, void (*fn)(void));
/* Prints the plan. Returns the exit status. */
int tap_done(void);

/* A deterministic generator (SplitMix64), seeded by TEST_SEED in the environment or by the given
 * number. */
struct tap_rand {
    uint64_t state;
};
uint64_t tap_seed(uint64_t fallback);
uint64_t tap_rand(struct tap_rand *r);
/* In [0, n). */
uint64_t tap_rand_below(struct tap_rand *r, uint64_t n);

#endif
