/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions begin, lapse and are given up at random, while partitions split and merge: what must hold
 * at every revision, whatever order it came in.
 *
 *   an epoch never falls, and stands for one node and one session of it;
 *   who is granted something has a session that may hold it (dir_check);
 *   a session that lapsed or was given up is never granted anything again;
 *   a node that asks for what is newer is told all that changed for it;
 *   the same commands give the same state, and so do its rows. */
#include "base/mem.h"
#include "directory/internal.h"
#include "directory/tasks.h"
#include "tests/harness/agents.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NODES = 5, COMMANDS = 6000, PARTITIONS = 1 << 16 };

struct grant {
    dir_rev epoch;
    uint64_t node, session;
};

static struct world w;
static struct tap_rand rand_;
static struct grant grants[PARTITIONS]; /* by partition id */
static uint64_t gone[1 << 16];          /* sessions that were released */
static uint64_t gone_count, accepted, failovers, unavailable;

static uint64_t below(uint64_t n)
{
    return tap_rand_below(&rand_, n);
}

static const char *name_of(uint64_t i)
{
    static const char *const names[NODES] = {"n0", "n1", "n2", "n3", "n4"};
    return names[i];
}

static const struct dir_partition *any_partition(void)
{
    struct ptree_iter it;
    uint8_t key[8];
    ptree_seek(&world_state(&w)->partitions, ptree_u64_key(below(world_state(&w)->next_id), key),
               &it);
    const struct dir_partition *p = ptree_iter_get(&it, NULL);
    if (p == NULL) {
        ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
        p = ptree_iter_get(&it, NULL);
    }
    return p;
}

static void forget(uint64_t session)
{
    gone[gone_count++ % (1 << 16)] = session;
}

static bool is_gone(uint64_t session)
{
    for (uint64_t i = 0; i < gone_count; i++) {
        if (gone[i] == session) {
            return true;
        }
    }
    return false;
}

static void do_put(const char *name)
{
    const struct dir_node *n = agent_node(&w, name);
    uint64_t session = n != NULL ? n->session : 0;
    switch (below(5)) {
    case 0:
        (void)world_node(&w, name, name_of(0)[0] == 'n' && below(2) == 0 ? "s:1" : "s:2");
        break;
    case 1:
        if (n != NULL) {
            const struct dir_partition *p = any_partition();
            int at = p != NULL ? partition_copy_on(p, n->id) : -1;
            uint64_t copies[1][2] = {{p != NULL ? p->id : 0, at >= 0 ? p->replicas[at].copy : 1}};
            (void)agent_put_copies(&w, name, (const uint64_t(*)[2])copies, below(2));
            break;
        }
        (void)agent_put(&w, name, session);
        break;
    case 2:
        (void)agent_put(&w, name, session);
        break;
    default:
        (void)agent_put(&w, name, 0);
        break;
    }
}

static void do_end(const char *name)
{
    const struct dir_node *n = agent_node(&w, name);
    if (n == NULL) {
        return;
    }
    bool before = n->ended_session != 0 && below(2) == 0;
    uint64_t session = before ? n->ended_session : n->session;
    bool released = below(2) == 0, is_static = n->is_static;
    const struct dir_result *r = agent_end(&w, name, session, released);
    if (r->err.code == ERR_OK && !is_static) {
        forget(session);
    }
}

static void do_something(void)
{
    const char *name = name_of(below(NODES));
    const struct dir_partition *p = any_partition();
    char at[8];
    (void)snprintf(at, sizeof at, "%c%c", (char)('a' + below(26)), (char)('a' + below(26)));
    switch (below(12)) {
    case 0:
    case 1:
    case 2:
        do_put(name);
        break;
    case 3:
    case 4:
    case 5:
        do_end(name);
        break;
    case 6:
        (void)world_split(&w, p->id, at);
        break;
    case 7:
        (void)world_merge(&w, p->id, any_partition()->id);
        break;
    case 8:
        (void)agent_insync(&w, p, p->session, below(2) == 0 ? "" : name);
        break;
    case 9:
        (void)agent_failover(&w, p->id, name, true);
        break;
    case 10:
        (void)agent_schedule(&w, name, (Cadastre__SchedulingVerb)below(5));
        break;
    default:
        (void)world_move(&w, p->id, name);
        break;
    }
    accepted += w.result->err.code == ERR_OK;
}

static void check_partition(const struct dir_partition *p)
{
    if (p->id >= PARTITIONS) {
        return;
    }
    struct grant *g = &grants[p->id];
    tap_note("partition %" PRIu64 " after command %" PRIu64, p->id, w.index);
    CHECK(p->epoch >= g->epoch);
    if (!partition_has_primary(p)) {
        unavailable++;
        CHECK(p->session == 0);
        g->epoch = p->epoch;
        return;
    }
    struct grant now = {p->epoch, p->replicas[0].node, p->session};
    if (g->epoch == now.epoch && g->session != 0) {
        CHECK(g->node == now.node && g->session == now.session);
    } else {
        CHECK(!is_gone(now.session));
    }
    failovers += p->cause == DIR_CHANGE_FAILOVER && p->epoch == world_state(&w)->revision;
    *g = now;
}

struct told {
    uint64_t grants;
};

static bool count_grant(void *arg, const struct dir_task *t)
{
    struct told *told = arg;
    told->grants += t->kind == DIR_TASK_GRANT;
    return true;
}

/* Whatever changed for a node since `before`, its row says that something did. */
static void check_tasks(dir_rev before)
{
    for (uint64_t i = 0; i < NODES; i++) {
        const struct dir_node *n = agent_node(&w, name_of(i));
        if (n == NULL) {
            continue;
        }
        struct told news = {0}, all = {0};
        (void)dir_tasks(world_state(&w), n, before > 0 ? before : 1, count_grant, &news);
        (void)dir_tasks(world_state(&w), n, 0, count_grant, &all);
        CHECK(news.grants == 0 || n->task_revision > before);
        CHECK_U64(all.grants, n->partition_count);
    }
}

static void check_all(dir_rev before)
{
    const struct dir_partition *p;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
         (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        check_partition(p);
    }
    check_tasks(before);
    CHECK_U64(world_check(world_state(&w)), 0);
}

static void reload(void)
{
    struct err e = {.code = ERR_OK};
    struct directory *d = world_reload(&w, &e);
    if (CHECK(d != NULL)) {
        CHECK(directory_state(d)->hash.lo == world_state(&w)->hash.lo &&
              directory_state(d)->hash.hi == world_state(&w)->hash.hi);
    } else {
        tap_note("%s", e.detail);
    }
    directory_free(d);
}

static void random_sessions_keep_the_rules(void)
{
    rand_.state = tap_seed(20261201);
    tap_note("seed %" PRIu64, rand_.state);
    world_open(&w);
    for (uint64_t i = 0; i < NODES; i++) {
        (void)agent_put(&w, name_of(i), 0);
    }
    agent_keyspace(&w, 2);
    for (unsigned i = 0; i < COMMANDS && tap_failures() == 0; i++) {
        dir_rev before = world_state(&w)->revision;
        do_something();
        check_all(before);
        CHECK(w.rows_consistent);
        if (i % 1500 == 0) {
            reload();
        }
    }
    CHECK(accepted > COMMANDS / 3 && failovers > 50 && unavailable > 50);
    world_close(&w);
}

int main(void)
{
    RUN(random_sessions_keep_the_rules);
    return tap_done();
}
