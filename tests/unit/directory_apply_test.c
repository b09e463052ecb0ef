/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

static void smoke(void)
{
    struct world w;
    world_open(&w);
    CHECK_U64(world_range(&w, "orders")->err.code, ERR_OK);
    CHECK_U64(world_state(&w)->unplaced, 1);
    CHECK_U64(world_node(&w, "n1", "h:1")->err.code, ERR_OK);
    CHECK_U64(world_state(&w)->unplaced, 0);
    CHECK_U64(world_split(&w, world_at(&w, "orders", "")->id, "m")->route_count, 2);
    CHECK_U64(
        world_merge(&w, world_at(&w, "orders", "")->id, world_at(&w, "orders", "z")->id)->err.code,
        ERR_OK);
    CHECK_U64(world_node(&w, "n2", "h:2")->err.code, ERR_OK);
    CHECK_U64(world_move(&w, world_at(&w, "orders", "")->id, "n2")->err.code, ERR_OK);
    CHECK_U64(world_state(&w)->revision, 6);
    CHECK_U64(world_check(world_state(&w)), 0);
    CHECK(w.rows_consistent);
    struct err e = {.code = ERR_OK};
    struct directory *d = world_reload(&w, &e);
    CHECK_STR(e.detail, "");
    CHECK(d != NULL);
    directory_free(d);
    world_close(&w);
}

int main(void)
{
    RUN(smoke);
    return tap_done();
}
