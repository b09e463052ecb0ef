/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/model.h"

struct model model = {.bounds = &model_scenarios[MOVES], .mutant = NO_MUTANT};

const struct scenario model_scenarios[SCENARIO_COUNT] = {
    [LEASES] = {.name = "leases", .writes = 1, .faults = 3, .ops = 1, .beats = true},
    [TWINS] = {.name = "twins", .writes = 1, .faults = 2, .ops = 1, .twins = true, .late = true},
    [MOVES] = {.name = "moves", .writes = 2, .faults = 3, .ops = 1, .late = true, .damage = true},
    [REPLICAS] = {.name = "replicas",
                  .writes = 2,
                  .faults = 2,
                  .versions = 4,
                  .replicas = true,
                  .late = true,
                  .damage = true},
    [MIXED] = {.name = "mixed", .writes = 1, .faults = 2, .ops = 1, .replicas = true},
    [RETURNS] = {.name = "returns", .writes = 1, .faults = 2, .ops = 2, .late = true},
    [POSITIONS] = {.name = "positions", .writes = 2, .faults = 2, .ops = 1},
};

const struct mutant_row model_mutants[MUTANT_COUNT] = {
#define X(name, rule, scenario, text) [MUT_##name] = {#name, rule, text, scenario},
    MUTANTS(X)
#undef X
};
