/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/guard_config.h"
#include "tests/harness/tap.h"

static struct raft_buffer encoded(unsigned servers, int role)
{
    struct raft_configuration c;
    raft_configuration_init(&c);
    for (unsigned i = 0; i < servers; i++) {
        char address[] = "host:0000";
        address[5] = (char)('1' + i);
        CHECK(raft_configuration_add(&c, i + 1, address, role) == 0);
    }
    struct raft_buffer buf = {0};
    CHECK(raft_configuration_encode(&c, &buf) == 0);
    raft_configuration_close(&c);
    return buf;
}

static void add(struct guard_configs *c, raft_index index, unsigned servers)
{
    struct raft_buffer buf = encoded(servers, RAFT_VOTER);
    CHECK(guard_configs_add_entry(c, index, &buf));
    raft_free(buf.base);
}

static void entries_of_libraft_are_read(void)
{
    static const int roles[] = {RAFT_VOTER, RAFT_STANDBY, RAFT_SPARE};
    for (unsigned k = 0; k < 3; k++) {
        struct raft_buffer buf = encoded(7, roles[k]);
        struct guard_configs c = {0};
        CHECK(guard_configs_add_entry(&c, 5, &buf));
        const struct guard_config *got = guard_configs_at(&c, 5);
        CHECK(got != NULL && got->configuration.n == 7);
        CHECK(got != NULL && got->configuration.servers[6].id == 7);
        CHECK(got != NULL && got->configuration.servers[6].role == roles[k]);
        CHECK_STR(got->configuration.servers[6].address, "host:7000");
        guard_configs_close(&c);
        raft_free(buf.base);
    }
}

static void a_cut_entry_is_refused(void)
{
    struct raft_buffer buf = encoded(3, RAFT_VOTER);
    size_t used = 1 + 8 + 3 * (8 + 10 + 1); /* the rest is padding */
    CHECK(used <= buf.len);
    for (size_t len = 0; len < used; len++) {
        struct guard_configs c = {0};
        struct raft_buffer cut = {buf.base, len};
        tap_note("%zu bytes of %zu", len, used);
        CHECK(!guard_configs_add_entry(&c, 1, &cut));
        guard_configs_close(&c);
    }
    *(uint8_t *)buf.base = 9; /* another format */
    struct guard_configs c = {0};
    CHECK(!guard_configs_add_entry(&c, 1, &buf));
    guard_configs_close(&c);
    raft_free(buf.base);
}

static void the_latest_at_an_index(void)
{
    struct guard_configs c = {0};
    CHECK(guard_configs_at(&c, 100) == NULL);
    add(&c, 1, 1);
    add(&c, 10, 2);
    add(&c, 20, 3);
    CHECK(guard_configs_at(&c, 0) == NULL);
    CHECK_U64(guard_configs_at(&c, 1)->index, 1);
    CHECK_U64(guard_configs_at(&c, 9)->index, 1);
    CHECK_U64(guard_configs_at(&c, 10)->index, 10);
    CHECK_U64(guard_configs_at(&c, 99)->index, 20);
    guard_configs_truncate(&c, 15);
    CHECK_U64(guard_configs_at(&c, 99)->index, 10);
    add(&c, 10, 4); /* in the place of what was there */
    CHECK_U64(guard_configs_at(&c, 99)->configuration.n, 4);
    CHECK_U64(c.count, 2);
    guard_configs_close(&c);
    CHECK_U64(c.count, 0);
}

static void pruning_keeps_the_committed_one(void)
{
    struct guard_configs c = {0};
    guard_configs_prune(&c, 10);
    for (unsigned i = 1; i <= 5; i++) {
        add(&c, 10 * i, i);
    }
    guard_configs_prune(&c, 9);
    CHECK_U64(c.count, 5);
    guard_configs_prune(&c, 35);
    CHECK_U64(c.count, 3);
    CHECK_U64(guard_configs_at(&c, 35)->index, 30);
    CHECK_U64(guard_configs_at(&c, 35)->configuration.n, 3);
    guard_configs_prune(&c, 1000);
    CHECK_U64(c.count, 1);
    CHECK_U64(guard_configs_at(&c, 1000)->index, 50);
    guard_configs_close(&c);
}

static void a_reset_copies(void)
{
    struct guard_configs a = {0};
    struct guard_configs b = {0};
    add(&a, 1, 3);
    add(&b, 7, 1);
    add(&b, 8, 2);
    guard_configs_reset(&b, 4, &guard_configs_at(&a, 1)->configuration);
    CHECK_U64(b.count, 1);
    const struct raft_configuration *x = &guard_configs_at(&a, 1)->configuration;
    const struct raft_configuration *y = &guard_configs_at(&b, 4)->configuration;
    CHECK(x->servers != y->servers && guard_configuration_equal(x, y));
    y->servers[1].role = RAFT_SPARE;
    CHECK(!guard_configuration_equal(x, y));
    guard_configs_close(&a);
    guard_configs_close(&b);
}

int main(void)
{
    RUN(entries_of_libraft_are_read);
    RUN(a_cut_entry_is_refused);
    RUN(the_latest_at_an_index);
    RUN(pruning_keeps_the_committed_one);
    RUN(a_reset_copies);
    return tap_done();
}
