/* SPDX-License-Identifier: Apache-2.0 */
/* raft_fuzz: random schedules over libraft behind the guard, or without it. See --help. */
#include "base/parse.h"
#include "tests/sim/sim_schedule.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: raft_fuzz [--servers N] [--seeds A:B] [--steps N] [--classes LIST] [--guard "
    "on|off|MASK]\n"
    "  --servers N     voters at first, 1 to 7 (3)\n"
    "  --seeds A:B     seeds A to B-1 (0:100)\n"
    "  --steps N       actions in a schedule (150)\n"
    "  --classes LIST  of net, crash, snapshot, member, with commas; or all (all)\n"
    "  --guard WHICH   on, off, or a mask of measures in decimal (raft/guard.h) (on)\n"
    "Prints the failing seeds and `N passed, N failed`; fails if any failed or too little "
    "happened.\n";

struct fuzz {
    struct schedule_options schedule;
    uint64_t first, end;
};

static bool parse_range(char *text, uint64_t *first, uint64_t *end)
{
    char *colon = strchr(text, ':');
    if (colon == NULL) {
        return false;
    }
    *colon = '\0';
    return parse_u64(text, PARSE_INT_MAX, first) && parse_u64(colon + 1, PARSE_INT_MAX, end) &&
           *first < *end;
}

static bool parse_classes(char *text, unsigned *classes)
{
    static const struct {
        const char *name;
        unsigned bits;
    } names[] = {{"net", CLASS_NET},
                 {"crash", CLASS_CRASH},
                 {"snapshot", CLASS_SNAPSHOT},
                 {"member", CLASS_MEMBER},
                 {"all", CLASS_ALL}};
    *classes = 0;
    char *rest = text;
    for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
        size_t i = 0;
        while (i < sizeof names / sizeof names[0] && strcmp(names[i].name, word) != 0) {
            i++;
        }
        if (i == sizeof names / sizeof names[0]) {
            return false;
        }
        *classes |= names[i].bits;
    }
    return true;
}

static bool parse_guard(const char *text, unsigned *measures)
{
    uint64_t mask = 0;
    if (strcmp(text, "on") == 0) {
        mask = GUARD_ALL | GUARD_TELL | GUARD_PARK;
    } else if (strcmp(text, "off") != 0 &&
               !parse_u64(text, GUARD_ALL | GUARD_TELL | GUARD_PARK, &mask)) {
        return false;
    }
    *measures = (unsigned)mask;
    return true;
}

/* 0: go on; otherwise the exit code, plus one. */
static int parse_args(int argc, char **argv, struct fuzz *f)
{
    static const struct option options[] = {{"servers", required_argument, NULL, 's'},
                                            {"seeds", required_argument, NULL, 'r'},
                                            {"steps", required_argument, NULL, 'n'},
                                            {"classes", required_argument, NULL, 'c'},
                                            {"guard", required_argument, NULL, 'g'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    uint64_t servers = 3;
    uint64_t steps = 150;
    bool ok = true;
    for (int opt; ok && (opt = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (opt) {
        case 's':
            ok = parse_u64(optarg, SIM_NODES_MAX - 1, &servers) && servers > 0;
            break;
        case 'r':
            ok = parse_range(optarg, &f->first, &f->end);
            break;
        case 'n':
            ok = parse_u64(optarg, 100000, &steps);
            break;
        case 'c':
            ok = parse_classes(optarg, &f->schedule.classes);
            break;
        case 'g':
            ok = parse_guard(optarg, &f->schedule.measures);
            break;
        case 'h':
            (void)fputs(help, stdout);
            return 1;
        default:
            ok = false;
            break;
        }
    }
    f->schedule.servers = (unsigned)servers;
    f->schedule.steps = (unsigned)steps;
    if (!ok || optind != argc) {
        (void)fputs("raft_fuzz: wrong usage, try --help\n", stderr);
        return 3;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct fuzz f = {
        .schedule = {.classes = CLASS_ALL, .measures = GUARD_ALL | GUARD_TELL | GUARD_PARK},
        .first = 0,
        .end = 100};
    int rv = parse_args(argc, argv, &f);
    if (rv != 0) {
        return rv - 1;
    }
    struct schedule_result sum = {0};
    uint64_t failed = 0;
    for (uint64_t seed = f.first; seed < f.end; seed++) {
        struct schedule_result result = schedule_run(seed, &f.schedule);
        schedule_add(&sum, &result);
        if (result.outcome != SCHEDULE_HELD) {
            failed++;
            printf("seed %" PRIu64 ": %s\n", seed, result.violation);
            (void)fflush(stdout);
        }
    }
    bool valid = schedule_valid(&sum, &f.schedule, f.end - f.first);
    printf("%" PRIu64 " passed, %" PRIu64 " failed%s\n", f.end - f.first - failed, failed,
           valid ? "" : "; too little happened for this to mean much");
    return failed == 0 && valid ? 0 : 1;
}
