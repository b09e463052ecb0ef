/* SPDX-License-Identifier: Apache-2.0 */
/* How fast copies of a node in trouble may go, at any time that a test likes. */
#include "control/throttle.h"

#include "tests/harness/agents.h"
#include "tests/harness/tap.h"

enum { RESUME = 120000, STEP = 10000, A = 7, B = 8, C = 9, FULL = DIR_SHARE_FULL_PPM };

static struct throttle t;
static uint64_t now;

static void says(uint64_t node, uint64_t value)
{
    struct throttle_reading r = {node, "queue_ms_p99", value, 100};
    throttle_take(&t, &r, RESUME, now);
}

static uint64_t share(uint64_t source, uint64_t destination)
{
    const struct throttle_reading *why;
    uint64_t s = throttle_share(&t, source, destination, &why);
    CHECK((why != NULL) == (s < FULL));
    return s;
}

static void open_at(uint64_t at)
{
    throttle_close(&t);
    now = at;
}

static void beyond_the_limit_it_is_a_quarter(void)
{
    open_at(0);
    says(A, 90);
    CHECK(share(A, B) == FULL && t.count == 0);
    says(A, 101);
    CHECK_U64(share(A, B), 250000);
    CHECK_U64(share(B, A), 250000);
    CHECK_U64(share(B, C), FULL);
    const struct throttle_reading *why = throttle_stops(&t);
    CHECK(why != NULL && why->node == A && why->value == 101 && why->limit == 100);
    says(A, 5000);
    CHECK_U64(share(A, B), 250000);
}

static void close_to_it_the_rate_is_halved(void)
{
    open_at(0);
    says(A, 91);
    CHECK_U64(share(A, B), 500000);
    CHECK(throttle_stops(&t) == NULL); /* new work goes on */
    says(A, 100);
    CHECK_U64(share(A, B), 250000);
    says(A, 100);
    CHECK_U64(share(A, B), 250000);
    CHECK(throttle_stops(&t) == NULL);
}

static void it_comes_back_by_tenths(void)
{
    open_at(0);
    says(A, 200);
    for (uint64_t want = 350000; want < FULL; want += 100000) {
        now += STEP;
        says(A, 10);
        CHECK_U64(share(A, B), want);
        CHECK(throttle_stops(&t) != NULL);
    }
    now += STEP;
    says(A, 10);
    CHECK_U64(share(A, B), FULL);
    CHECK(throttle_stops(&t) != NULL && t.count == 1);
    now = STEP + RESUME - 1;
    says(A, 10);
    CHECK(throttle_stops(&t) != NULL);
    now++;
    says(A, 10);
    CHECK(throttle_stops(&t) == NULL && t.count == 0);
}

static void one_bad_step_begins_it_again(void)
{
    open_at(0);
    says(A, 200);
    now += STEP;
    says(A, 10);
    now += STEP;
    says(A, 95); /* not good */
    CHECK_U64(share(A, B), 250000);
    now = RESUME + STEP;
    says(A, 10);
    CHECK(throttle_stops(&t) != NULL);
    now += RESUME;
    says(A, 10);
    CHECK(throttle_stops(&t) == NULL);
}

static void the_slower_end_counts(void)
{
    open_at(0);
    says(B, 95);
    says(A, 200);
    CHECK_U64(share(B, A), 250000);
    CHECK_U64(share(B, C), 500000);
    const struct throttle_reading *why;
    (void)throttle_share(&t, B, A, &why);
    CHECK_U64(why->node, A);
}

static void silence_and_what_is_not_watched_count_as_good(void)
{
    open_at(0);
    says(A, 200);
    struct throttle_reading nothing = {.node = A, .code = ""};
    throttle_take(&t, &nothing, 0, now);
    CHECK_U64(share(A, B), 350000);
    CHECK(throttle_stops(&t) == NULL); /* it need not be good for any time */
}

static void a_new_leader_goes_on_where_the_rows_are(void)
{
    open_at(1000);
    struct throttle_reading r = {A, "queue_ms_p99", 200, 100}, near = {B, "queue_ms_p99", 95, 100};
    throttle_restore(&t, &r, 450000, now);
    throttle_restore(&t, &r, 350000, now);
    throttle_restore(&t, &near, 500000, now);
    CHECK_U64(share(A, C), 350000);
    CHECK_U64(share(B, C), 500000);
    CHECK(throttle_stops(&t) != NULL && throttle_stops(&t)->node == A);
    now += RESUME - 1;
    says(A, 10);
    CHECK(throttle_stops(&t) != NULL && share(A, C) == 450000);
    now++;
    says(A, 10);
    CHECK(throttle_stops(&t) == NULL);
}

static void nodes_that_are_gone_are_forgotten(void)
{
    static struct world w;
    open_at(0);
    world_open(&w);
    (void)agent_put(&w, "n1", 0);
    uint64_t here = agent_node(&w, "n1")->id;
    says(here, 200);
    says(here + 1000, 200);
    throttle_prune(&t, world_state(&w));
    CHECK(t.count == 1 && t.nodes[0].why.node == here);
    world_close(&w);
}

static void many_nodes_keep_their_own(void)
{
    open_at(0);
    for (uint64_t i = 100; i > 0; i--) {
        says(i * 3 % 101, 200);
    }
    CHECK_U64(t.count, 100);
    for (uint32_t i = 1; i < t.count; i++) {
        CHECK(t.nodes[i].why.node > t.nodes[i - 1].why.node);
    }
    CHECK_U64(share(50, 1000), 250000);
}

int main(void)
{
    RUN(beyond_the_limit_it_is_a_quarter);
    RUN(close_to_it_the_rate_is_halved);
    RUN(it_comes_back_by_tenths);
    RUN(one_bad_step_begins_it_again);
    RUN(the_slower_end_counts);
    RUN(silence_and_what_is_not_watched_count_as_good);
    RUN(a_new_leader_goes_on_where_the_rows_are);
    RUN(nodes_that_are_gone_are_forgotten);
    RUN(many_nodes_keep_their_own);
    throttle_close(&t);
    return tap_done();
}
