/* SPDX-License-Identifier: Apache-2.0 */
/* `check [--trace] [NAME…]`: the protocol as written in every scenario, and each mutant with its
 * shortest trace. A NAME is a scenario or a mutant; none: all of them. Prints TAP, and `N passed, N
 * failed` at the end. */
#include "tests/model/model.h"

#include <stdio.h>
#include <string.h>

enum { STATES_MAX = 30000000 };

static unsigned passed, failed;

static void result(bool ok, const char *name, const char *what, const struct verdict *v)
{
    passed += ok;
    failed += !ok;
    (void)printf("%s %u - %s: %s, %zu states, depth %zu\n", ok ? "ok" : "not ok", passed + failed,
                 name, what, v->states, v->depth);
    (void)fflush(stdout);
}

static bool asked(const char *name, int argc, char **argv)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        any |= argv[i][0] != '-';
        if (strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return !any;
}

int main(int argc, char **argv)
{
    bool quiet = argc > 1 && strcmp(argv[1], "--quiet") == 0;
    for (unsigned i = 0; i < SCENARIO_COUNT; i++) {
        if (asked(model_scenarios[i].name, argc, argv)) {
            model = (struct model){.bounds = &model_scenarios[i], .mutant = NO_MUTANT};
            struct verdict v = model_explore(STATES_MAX, true);
            bool ok = v.violation == NULL && v.complete;
            const char *what = v.violation != NULL ? v.violation : "every state holds";
            result(ok, model_scenarios[i].name,
                   v.complete || v.violation ? what : "too many states", &v);
        }
    }
    for (unsigned i = 0; i < MUTANT_COUNT; i++) {
        const struct mutant_row *row = &model_mutants[i];
        if (asked(row->name, argc, argv)) {
            model =
                (struct model){.bounds = &model_scenarios[row->scenario], .mutant = (enum mutant)i};
            struct verdict v = model_explore(STATES_MAX, !quiet);
            result(v.violation != NULL, row->name, v.violation != NULL ? v.violation : "NOT CAUGHT",
                   &v);
        }
    }
    (void)printf("1..%u\n# %u passed, %u failed\n", passed + failed, passed, failed);
    (void)printf("%u passed, %u failed\n", passed, failed);
    return failed > 0 ? 1 : 0;
}
