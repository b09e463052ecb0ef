/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol's model within small bounds: `make model` runs the whole of it. */
#include "tests/harness/tap.h"
#include "tests/model/model.h"

enum { STATES_MAX = 3000000 };

static struct verdict run(enum scenario_id id, unsigned faults, enum mutant mutant)
{
    struct scenario bounds = model_scenarios[id];
    bounds.faults = (uint8_t)faults;
    model = (struct model){.bounds = &bounds, .mutant = mutant};
    return model_explore(STATES_MAX, false);
}

static void protocol_holds_with_few_faults(void)
{
    static const struct {
        enum scenario_id id;
        unsigned faults, states_min;
    } runs[] = {{LEASES, 2, 10000}, {TWINS, 1, 1000},   {MOVES, 1, 10000},    {REPLICAS, 1, 1000},
                {MIXED, 1, 10000},  {RETURNS, 1, 5000}, {POSITIONS, 2, 50000}};
    for (unsigned i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct verdict v = run(runs[i].id, runs[i].faults, NO_MUTANT);
        tap_note("scenario %s: %s, %zu states", model_scenarios[runs[i].id].name,
                 v.violation != NULL ? v.violation : "holds", v.states);
        CHECK(v.violation == NULL && v.complete);
        CHECK(v.states > runs[i].states_min);
    }
}

static void unsafe_readings_are_caught(void)
{
    static const enum mutant cheap[] = {
        MUT_ended_is_released,    MUT_order_of_any_session, MUT_in_sync_before_counted,
        MUT_failover_to_async,    MUT_forward_unjoined,     MUT_back_after_lapse,
        MUT_replica_not_cut,      MUT_cleanup_of_any_copy,  MUT_cutover_unfenced,
        MUT_fence_admits,         MUT_back_keeps_epoch,     MUT_stuck_in_cutover,
        MUT_released_before_stop, MUT_revived_session};
    for (unsigned i = 0; i < sizeof cheap / sizeof cheap[0]; i++) {
        const struct mutant_row *row = &model_mutants[cheap[i]];
        struct verdict v = run(row->scenario, model_scenarios[row->scenario].faults, cheap[i]);
        tap_note("mutant %s: %zu states", row->name, v.states);
        CHECK(v.violation != NULL);
    }
}

static void every_mutant_has_a_rule(void)
{
    for (unsigned i = 0; i < MUTANT_COUNT; i++) {
        CHECK(model_mutants[i].name != NULL && model_mutants[i].rule != NULL);
        CHECK(model_mutants[i].scenario < SCENARIO_COUNT);
    }
}

int main(void)
{
    RUN(protocol_holds_with_few_faults);
    RUN(unsafe_readings_are_caught);
    RUN(every_mutant_has_a_rule);
    return tap_done();
}
