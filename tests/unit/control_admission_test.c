/* SPDX-License-Identifier: Apache-2.0 */
/* Who is admitted next: by class and age, never past a recovery, and nobody waits for ever. */
#include "control/admission.h"
#include "tests/harness/agents.h"
#include "tests/harness/fleet.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

enum { NODES = 40, PARTITIONS = 8000, MANY = 1500, TURNS_MAX = 300, TURN_MS = 10000 };

static struct world w;
static struct admission admission;
static const struct admission_candidate *chosen[16];
static uint64_t last_partition; /* one after the other: an abort leaves a duty to its node */

static void open_world(void)
{
    char name[16];
    world_open(&w);
    for (int i = 0; i < NODES / 2; i++) {
        (void)snprintf(name, sizeof name, "s%d", i);
        (void)fleet_node(&w, name, "", "", "");
    }
    (void)world_hash(&w, "k", PARTITIONS);
    for (int i = 0; i < NODES / 2; i++) {
        (void)snprintf(name, sizeof name, "d%d", i);
        (void)fleet_node(&w, name, "", "", "");
    }
    fleet_unlimited(&w);
    (void)fleet_release_ms(&w, 0);
    admission = (struct admission){0};
    last_partition = 0;
}

static void close_world(void)
{
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static uint64_t queue_of(const char *from, const char *to, uint32_t class_of)
{
    const struct dir_partition *p;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
         (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        const struct dir_node *n = view_primary(world_state(&w), p);
        if (p->id > last_partition && p->operation == 0 && strcmp(n->name, from) == 0) {
            last_partition = p->id;
            break;
        }
    }
    struct fleet_start s = {.partition = p != NULL ? p->id : 0, .to = to, .class_of = class_of};
    uint64_t id = fleet_start(&w, &s);
    CHECK(id != 0);
    return id;
}

static struct admission_candidate candidate(uint64_t id, uint64_t waited_ms)
{
    return (struct admission_candidate){.o = fleet_operation(&w, id), .waited_ms = waited_ms};
}

static unsigned choose(struct admission_candidate *c, uint64_t count, unsigned max)
{
    return admission_choose(&admission, world_state(&w), c, count, chosen, max);
}

static void waiting_lifts_up_to_recovery(void)
{
    open_world();
    const struct dir_operation *o = fleet_operation(&w, queue_of("s0", "d0", DIR_CLASS_BALANCE));
    CHECK_U64(admission_class(o, 0), 200);
    CHECK_U64(admission_class(o, ADMISSION_AGE_MS - 1), 200);
    CHECK_U64(admission_class(o, ADMISSION_AGE_MS), 250);
    CHECK_U64(admission_class(o, UINT64_C(1) << 40), 699);
    o = fleet_operation(&w, queue_of("s0", "d0", DIR_CLASS_LAST_COPY));
    CHECK_U64(admission_class(o, UINT64_C(1) << 40), 800);
    close_world();
}

static void further_tries_wait_longer(void)
{
    static const uint64_t waits[] = {0, 0, 1000, 2000, 4000, 8000, 16000, 32000, 64000};
    for (uint32_t times = 0; times < 9; times++) {
        CHECK_U64(admission_backoff_ms(times), waits[times]);
    }
    CHECK_U64(admission_backoff_ms(UINT32_MAX), ADMISSION_BACKOFF_MAX_MS);
    open_world();
    uint64_t id = queue_of("s0", "d0", DIR_CLASS_OPERATOR);
    fleet_abort(&w, id);
    fleet_retry(&w, id);
    struct admission_candidate c = candidate(id, 999);
    CHECK_U64(choose(&c, 1, 16), 0);
    c.waited_ms = 1000;
    CHECK_U64(choose(&c, 1, 16), 1);
    fleet_abort(&w, id);
    fleet_retry(&w, id);
    c = candidate(id, 1999);
    CHECK_U64(choose(&c, 1, 16), 0);
    c.waited_ms = 2000;
    CHECK_U64(choose(&c, 1, 16), 1);
    close_world();
}

static void the_highest_class_goes_first_then_the_oldest(void)
{
    open_world();
    uint64_t balance = queue_of("s0", "d0", DIR_CLASS_BALANCE);
    uint64_t older = queue_of("s1", "d1", DIR_CLASS_OPERATOR);
    uint64_t younger = queue_of("s2", "d2", DIR_CLASS_OPERATOR);
    uint64_t drain = queue_of("s3", "d3", DIR_CLASS_DRAIN);
    struct admission_candidate c[] = {candidate(balance, 0), candidate(younger, 0),
                                      candidate(older, 0), candidate(drain, 0)};
    CHECK_U64(choose(c, 4, 16), 4);
    CHECK(chosen[0]->o->id == drain && chosen[1]->o->id == older);
    CHECK(chosen[2]->o->id == younger && chosen[3]->o->id == balance);
    CHECK_U64(choose(c, 4, 2), 2);
    c[0].asked = true; /* the drain's, by now the first */
    CHECK_U64(choose(c, 4, 16), 3);
    CHECK(chosen[0]->o->id == older);
    close_world();
}

static void a_recovery_goes_before_all(void)
{
    open_world();
    uint64_t old = queue_of("s0", "d0", DIR_CLASS_DRAIN);
    uint64_t recovery = queue_of("s1", "d1", DIR_CLASS_UNDER_REPLICATED);
    struct admission_candidate c[] = {candidate(old, UINT64_C(1) << 40), candidate(recovery, 0)};
    CHECK_U64(choose(c, 2, 16), 1);
    CHECK(chosen[0]->o->id == recovery);
    CHECK_U64(fleet_admit(&w, recovery), ERR_OK);
    c[0] = candidate(old, 0);
    CHECK_U64(choose(c, 1, 16), 1);
    close_world();
}

static void one_turn_takes_a_node_once(void)
{
    open_world();
    uint64_t a = queue_of("s0", "d0", DIR_CLASS_OPERATOR);
    uint64_t b = queue_of("s0", "d1", DIR_CLASS_OPERATOR);
    uint64_t other = queue_of("s1", "d2", DIR_CLASS_OPERATOR);
    struct admission_candidate c[] = {candidate(a, 0), candidate(b, 0), candidate(other, 0)};
    CHECK_U64(choose(c, 3, 16), 2);
    CHECK(chosen[0]->o->id == a && chosen[1]->o->id == other);
    close_world();
}

/* B needs what A could have alone, and A's budget goes to others again and again. */
static void what_the_starved_waits_for_is_kept(void)
{
    open_world();
    (void)fleet_limit(&w, DIR_BUDGET_SOURCE, 8, 100);
    uint64_t running = queue_of("s0", "d0", DIR_CLASS_OPERATOR);
    CHECK_U64(fleet_admit(&w, running), ERR_OK); /* 12 of 100 */
    const struct dir_partition *p;
    struct ptree_iter it;
    ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
    const char *s0 = "s0";
    while ((p = ptree_iter_get(&it, NULL)) != NULL &&
           (p->operation != 0 || strcmp(view_primary(world_state(&w), p)->name, s0) != 0)) {
        ptree_iter_next(&it);
    }
    struct fleet_start large = {.partition = p->id, .to = "d1", .class_of = 100, .rate = 95};
    uint64_t starved = fleet_start(&w, &large);
    uint64_t small = queue_of("s0", "d2", DIR_CLASS_HOT);
    uint64_t elsewhere = queue_of("s1", "d3", DIR_CLASS_OPTIMISE);
    struct admission_candidate c[] = {candidate(starved, ADMISSION_STARVED_MS - 1),
                                      candidate(small, 0), candidate(elsewhere, 0)};
    CHECK_U64(choose(c, 3, 16), 2);
    struct admission_candidate again[] = {candidate(starved, ADMISSION_STARVED_MS),
                                          candidate(small, 0), candidate(elsewhere, 0)};
    CHECK_U64(choose(again, 3, 16), 1);
    CHECK(chosen[0]->o->id == elsewhere);
    /* One that is never going to fit keeps nothing. */
    (void)fleet_limit(&w, DIR_BUDGET_SOURCE, 0, 100);
    (void)fleet_limit(&w, DIR_BUDGET_SOURCE, 8, DIR_BUDGET_BYTES_MAX);
    (void)fleet_limit(&w, DIR_BUDGET_DESTINATION, 0, 0);
    CHECK_U64(choose(again, 3, 16), 0);
    close_world();
}

/* So many budgets are kept that they can't be remembered: then nobody passes. */
static unsigned beside_starved(int starved)
{
    struct admission_candidate c[ADMISSION_KEPT_MAX + 2];
    uint64_t ids[ADMISSION_KEPT_MAX + 2];
    char from[16], to[16];
    open_world();
    (void)fleet_limit(&w, DIR_BUDGET_SOURCE, 1, DIR_BUDGET_BYTES_MAX);
    for (int i = 0; i < starved; i++) {
        (void)snprintf(from, sizeof from, "s%d", i);
        (void)snprintf(to, sizeof to, "d%d", i);
        CHECK_U64(fleet_admit(&w, queue_of(from, to, DIR_CLASS_HOT)), ERR_OK);
        ids[i] = queue_of(from, to, DIR_CLASS_OPTIMISE);
    }
    ids[starved] = queue_of("s19", "d19", DIR_CLASS_OPTIMISE);
    for (int i = 0; i <= starved; i++) {
        c[i] = candidate(ids[i], i < starved ? ADMISSION_STARVED_MS : 0);
    }
    unsigned n = choose(c, (uint64_t)starved + 1, 16);
    close_world();
    return n;
}

static void too_much_that_is_kept_stops_all(void)
{
    CHECK_U64(beside_starved(ADMISSION_KEPT_MAX), 1);
    CHECK_U64(beside_starved(ADMISSION_KEPT_MAX + 1), 0);
}

/* They can't begin, but nobody looks at more of them than that. */
static void more_recoveries_than_are_looked_at_go_first(void)
{
    open_world();
    uint64_t routine = queue_of("s1", "d1", DIR_CLASS_OPERATOR);
    uint64_t first = queue_of("s0", "d0", DIR_CLASS_LAST_COPY);
    for (int i = 1; i < DIR_BUDGET_RECOVERIES_MAX; i++) {
        char from[16];
        (void)snprintf(from, sizeof from, "s%d", i % (NODES / 2));
        (void)queue_of(from, "d0", DIR_CLASS_UNDER_REPLICATED);
    }
    CHECK_U64(dir_budget_first(world_state(&w)), first);
    (void)agent_end(&w, "d0", agent_node(&w, "d0")->session, false);
    CHECK_U64(dir_budget_first(world_state(&w)), 0);
    CHECK_U64(fleet_try_admit(&w, routine), ERR_OK);
    (void)fleet_node(&w, "d0", "", "", "");
    uint64_t last = queue_of("s0", "d0", DIR_CLASS_UNDER_REPLICATED);
    (void)agent_end(&w, "d0", agent_node(&w, "d0")->session, false);
    CHECK_U64(dir_budget_first(world_state(&w)), last);
    CHECK_U64(fleet_try_admit(&w, routine), ERR_BUDGET_EXCEEDED);
    close_world();
}

/* The balancer is never done, and something small wants its turn. */
static uint64_t turns_until_admitted(uint32_t class_of, uint32_t of_others)
{
    open_world();
    (void)fleet_limit(&w, DIR_BUDGET_CLUSTER, 1, DIR_BUDGET_COMPUTED);
    uint64_t id = queue_of("s0", "d0", class_of), others[2] = {0, 0}, turn = 0;
    uint64_t since[2] = {0, 0};
    for (; turn < TURNS_MAX; turn++) {
        struct admission_candidate c[3] = {candidate(id, turn * TURN_MS)};
        for (int i = 0; i < 2; i++) {
            if (others[i] == 0) {
                others[i] = queue_of(i == 0 ? "s1" : "s2", i == 0 ? "d1" : "d2", of_others);
                since[i] = turn;
            }
            c[1 + i] = candidate(others[i], (turn - since[i]) * TURN_MS);
        }
        if (choose(c, 3, 1) == 0) {
            continue;
        }
        uint64_t next = chosen[0]->o->id;
        CHECK_U64(fleet_admit(&w, next), ERR_OK);
        if (next == id) {
            break;
        }
        fleet_abort(&w, next);
        others[next == others[0] ? 0 : 1] = 0;
    }
    close_world();
    return turn;
}

static void nobody_starves(void)
{
    CHECK_U64(turns_until_admitted(DIR_CLASS_DRAIN, DIR_CLASS_BALANCE), 0);
    CHECK_U64(turns_until_admitted(DIR_CLASS_BALANCE, DIR_CLASS_BALANCE), 0);
    /* From 100 to above 300, by 50 a minute. */
    uint64_t turns = turns_until_admitted(DIR_CLASS_OPTIMISE, DIR_CLASS_HOT);
    CHECK(turns >= 20 && turns <= 30);
    turns = turns_until_admitted(DIR_CLASS_OPTIMISE, DIR_CLASS_CONSTRAINT);
    CHECK(turns > 50 && turns <= 80);
    CHECK_U64(turns_until_admitted(DIR_CLASS_OPTIMISE, DIR_CLASS_LAST_COPY), TURNS_MAX);
}

/* Thousands wait for one full node; those behind them have their turn all the same. */
static void a_long_queue_is_looked_through_in_parts(void)
{
    static struct admission_candidate c[MANY + 1];
    open_world();
    (void)fleet_limit(&w, DIR_BUDGET_DESTINATION, 1, DIR_BUDGET_BYTES_MAX);
    uint64_t running = queue_of("s0", "d0", DIR_CLASS_OPERATOR);
    CHECK_U64(fleet_admit(&w, running), ERR_OK);
    uint64_t ids[MANY];
    const struct dir_partition *p;
    struct ptree_iter it;
    uint64_t n = 0, partitions[MANY];
    for (ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
         n < MANY && (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (p->operation == 0) {
            partitions[n++] = p->id;
        }
    }
    for (uint64_t i = 0; i < MANY; i++) {
        struct fleet_start s = {
            .partition = partitions[i], .to = i == MANY - 1 ? "d1" : "d0", .class_of = 100};
        ids[i] = fleet_start(&w, &s);
        CHECK(ids[i] != 0);
    }
    unsigned turns = 0, found = 0;
    while (found == 0 && turns++ < 4) {
        for (uint64_t i = 0; i < MANY; i++) {
            c[i] = candidate(ids[i], 0);
        }
        found = choose(c, MANY, 16);
    }
    CHECK(found == 1 && turns == 2 && chosen[0]->o->id == ids[MANY - 1]);
    close_world();
}

int main(void)
{
    RUN(waiting_lifts_up_to_recovery);
    RUN(further_tries_wait_longer);
    RUN(the_highest_class_goes_first_then_the_oldest);
    RUN(a_recovery_goes_before_all);
    RUN(one_turn_takes_a_node_once);
    RUN(what_the_starved_waits_for_is_kept);
    RUN(too_much_that_is_kept_stops_all);
    RUN(more_recoveries_than_are_looked_at_go_first);
    RUN(nobody_starves);
    RUN(a_long_queue_is_looked_through_in_parts);
    return tap_done();
}
