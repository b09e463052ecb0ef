/* SPDX-License-Identifier: Apache-2.0 */
/* crash_run.c's own, and crash_events.c's: how each event happens. */
#ifndef TESTS_CRASH_INTERNAL_H
#define TESTS_CRASH_INTERNAL_H

#include "tests/sim/crash_run.h"

struct crash_state {
    uint8_t stage;
    uint32_t attempt;
    uint64_t revision, epoch, owner, duties;
    bool attention;
};

struct crash {
    const struct crash_case *of;
    struct sim *s;
    char *flaw;
    size_t size;
    unsigned source, destination;
    unsigned dead;     /* for good; NODES: nobody */
    uint64_t patience; /* 0: enough for the sizes of a test */
    bool over;         /* the partition or a node is gone: there is nothing to go on with */
    uint64_t since, session, changed; /* changed: revisions that the test itself made */
    uint32_t attempt;
};

void crash_wrong(struct crash *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Runs on until it is so, or for long enough. */
bool crash_until(struct crash *c, bool (*fn)(const struct crash *c));
/* A world, and an operation that is driven to the case's stage. */
void crash_open(struct crash *c);
void crash_close(struct crash *c);
void crash_inject(struct crash *c);
/* What is now, and whether the table expected it. */
struct crash_state crash_look(const struct sim *s);
void crash_compare(struct crash *c, const struct crash_state *was);
/* Runs on until the operation ends or asks for a person, and the owner acknowledges writes. */
void crash_finish(struct crash *c);

#endif
