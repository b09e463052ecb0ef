/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets under random fleets, limits, operations and labels, held at every revision against a sum
 * of our own over the operations' rows:
 *
 *   I16 whoever is admitted finds room in every budget it touches, and routine work leaves the
 *       reserve; nothing but an admission ever makes a sum larger;
 *   I17 only what runs holds a reservation, each its own, and what steps down is done;
 *   I18 nothing routine is admitted while a recovery that could be waits;
 *   no node gives and takes routine copies at once;
 *   whoever is told another rate has at most what was reserved, and only routine work is;
 *   and what is taken is what the index says (dir_check). */
#include "base/mem.h"
#include "directory/budget_internal.h"
#include "tests/harness/agents.h"
#include "tests/harness/fleet.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SEEDS = 400, COMMANDS = 70, NODES = 6, PARTITIONS = 14, ROWS = 256 };
#define MIB (UINT64_C(1) << 20)

static struct world w;
static struct tap_rand rng;
static uint64_t admitted, refused_by_budget, refused_by_recovery, recoveries, released, slowed,
    kept;

static uint64_t below(uint64_t n)
{
    return tap_rand_below(&rng, n);
}

static bool chance(unsigned percent)
{
    return below(100) < percent;
}

static const char *name_of(uint64_t i)
{
    static const char *const names[NODES] = {"n0", "n1", "n2", "n3", "n4", "n5"};
    return names[i];
}

static const char *label(const char *const names[3])
{
    return names[below(3)];
}

static void put_node(uint64_t i)
{
    static const char *const racks[] = {"", "r1", "r2"}, *const zones[] = {"", "z1", "z2"},
                             *const devices[] = {"", "x1", "x2"};
    (void)fleet_node(&w, name_of(i), label(racks), label(zones), label(devices));
}

/* --- the sum of our own --- */

struct row {
    char name[96];
    uint64_t moves, bytes; /* of what runs */
    uint64_t routine_moves, routine_bytes;
    uint64_t small_moves;          /* of classes below a drain */
    uint64_t all_moves, all_bytes; /* and of what steps down */
};

struct sums {
    struct row rows[ROWS];
    unsigned count;
};

static struct row *row_of(struct sums *s, const char *name)
{
    for (unsigned i = 0; i < s->count; i++) {
        if (strcmp(s->rows[i].name, name) == 0) {
            return &s->rows[i];
        }
    }
    struct row *r = &s->rows[s->count++];
    memset(r, 0, sizeof *r);
    (void)snprintf(r->name, sizeof r->name, "%s", name);
    return r;
}

static void add(struct sums *s, const char *name, const struct dir_operation *o, uint64_t bytes)
{
    struct row *r = row_of(s, name);
    r->all_moves++;
    r->all_bytes += bytes;
    if (o->reserved.releasing) {
        return;
    }
    r->moves++;
    r->bytes += bytes;
    r->routine_moves += o->class_of < 700;
    r->routine_bytes += o->class_of < 700 ? bytes : 0;
    r->small_moves += o->class_of < 500;
}

/* The names of all budgets that a reservation touches: "rack r1", "source 17", … */
static unsigned names_of(const struct dir_operation *o, char out[9][96], uint64_t times[9])
{
    static const char *const kinds[] = {"rack", "zone", "device"};
    const struct dir_reservation *r = &o->reserved;
    unsigned n = 0;
    for (unsigned i = 0; i < 9; i++) {
        times[i] = 1;
    }
    if (r->transfer) {
        (void)snprintf(out[n++], 96, "transfer %" PRIu64, r->source);
        (void)snprintf(out[n++], 96, "transfer %" PRIu64, r->destination);
        return n;
    }
    (void)snprintf(out[n++], 96, "source %" PRIu64, r->source);
    (void)snprintf(out[n++], 96, "destination %" PRIu64, r->destination);
    (void)snprintf(out[n++], 96, "cluster");
    for (unsigned i = 0; i < 3; i++) {
        const char *a = r->source_labels[i], *b = r->destination_labels[i];
        if (a[0] != '\0') {
            times[n] = i == 2 && strcmp(a, b) == 0 ? 2 : 1;
            (void)snprintf(out[n++], 96, "%s %s", kinds[i], a);
        }
        if (b[0] != '\0' && strcmp(a, b) != 0) {
            (void)snprintf(out[n++], 96, "%s %s", kinds[i], b);
        }
    }
    return n;
}

static void sum_up(struct sums *s)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    s->count = 0;
    for (ptree_seek(&world_state(&w)->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        char names[9][96];
        uint64_t times[9];
        if (o->reserved.moves == 0) {
            continue;
        }
        uint64_t bytes = o->reserved.bytes_per_s * (4 - (uint64_t)o->reserved.step) / 4;
        unsigned n = names_of(o, names, times);
        for (unsigned i = 0; i < n; i++) {
            add(s, names[i], o, bytes * times[i]);
        }
    }
}

static struct dir_budget_limit limit_of(const char *name)
{
    for (int b = DIR_BUDGET_SOURCE; b <= DIR_BUDGETS; b++) {
        const char *kind = dir_budget_name((enum dir_budget)b);
        if (strncmp(name, kind, strlen(kind)) == 0) {
            struct dir_budget_limit l = world_state(&w)->settings.budgets.limits[b];
            uint64_t moves = 16 + NODES / 20;
            l.moves = l.moves == UINT64_MAX ? moves : l.moves;
            l.bytes_per_s = l.bytes_per_s == UINT64_MAX ? moves * 96 * MIB : l.bytes_per_s;
            return l;
        }
    }
    CHECK(false);
    return (struct dir_budget_limit){0, 0};
}

/* --- what must hold --- */

static void check_room(const struct dir_operation *o, struct sums *s)
{
    char names[9][96];
    uint64_t times[9], percent = world_state(&w)->settings.budgets.reserve_percent;
    unsigned n = names_of(o, names, times);
    for (unsigned i = 0; i < n; i++) {
        struct dir_budget_limit l = limit_of(names[i]);
        const struct row *r = row_of(s, names[i]);
        bool ok = r->moves <= l.moves && (o->reserved.transfer || r->bytes <= l.bytes_per_s);
        if (o->class_of < 700) {
            ok = ok && r->routine_moves <= l.moves - l.moves * percent / 100;
            ok = ok && (o->reserved.transfer ||
                        r->routine_bytes <= l.bytes_per_s - l.bytes_per_s * percent / 100);
        }
        /* The balancer's own work waits for what steps down, too. */
        if (o->class_of < 500 && o->class_of != 250) {
            ok = ok && r->all_moves <= l.moves;
        }
        if (!CHECK(ok)) {
            tap_note("%s: %" PRIu64 " moves, %" PRIu64 " bytes/s, of %" PRIu64 " and %" PRIu64,
                     names[i], r->moves, r->bytes, l.moves, l.bytes_per_s);
        }
    }
}

static void check_directions(const struct sums *s)
{
    for (unsigned i = 0; i < s->count; i++) {
        const char *rest = s->rows[i].name + strlen("source ");
        if (strncmp(s->rows[i].name, "source ", 7) != 0 || s->rows[i].small_moves == 0) {
            continue;
        }
        for (unsigned j = 0; j < s->count; j++) {
            bool same = strncmp(s->rows[j].name, "destination ", 12) == 0 &&
                        strcmp(s->rows[j].name + 12, rest) == 0;
            CHECK(!same || s->rows[j].small_moves == 0);
        }
    }
}

static void check_growth(const struct sums *before, struct sums *after)
{
    struct sums *b = mem_dup(before, sizeof *before);
    for (unsigned i = 0; i < after->count; i++) {
        const struct row *a = &after->rows[i], *was = row_of(b, a->name);
        CHECK(a->all_moves <= was->all_moves && a->all_bytes <= was->all_bytes);
    }
    mem_free(b);
}

/* The index says what we have summed up. */
static void check_index(struct sums *s)
{
    const struct dir_usage *u;
    struct ptree_iter it;
    uint64_t n = 0;
    for (ptree_seek(&world_state(&w)->usage, slice_of(NULL, 0), &it);
         (u = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it), n++) {
        char name[96];
        const char *kind = dir_budget_name((enum dir_budget)u->budget);
        if (u->node != 0) {
            (void)snprintf(name, sizeof name, "%s %" PRIu64, kind, u->node);
        } else {
            (void)snprintf(name, sizeof name, "%s%s%s", kind, u->label[0] != '\0' ? " " : "",
                           u->label);
        }
        struct dir_budget_limit all = dir_usage_total(u);
        CHECK_U64(all.moves, row_of(s, name)->all_moves);
        CHECK_U64(all.bytes_per_s, row_of(s, name)->all_bytes);
    }
    CHECK_U64(n, s->count);
}

/* I17 */
static void check_holders(void)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        bool runs = o->state == DIR_OPERATION_RUNNING && o->stage < DIR_STAGE_CLEANUP;
        bool over = o->stage == DIR_STAGE_CLEANUP || o->stage == DIR_STAGE_DONE;
        bool takes = o->kind != DIR_OPERATION_REMOVE_REPLICA && o->kind != DIR_OPERATION_FAILOVER;
        bool held = o->reserved.moves == 1 && !o->reserved.releasing;
        CHECK(held == (runs && takes));
        CHECK(o->reserved.moves == 0 || runs || (over && o->reserved.releasing));
    }
}

/* --- commands --- */

static const struct dir_operation *any_operation(bool queued)
{
    const struct dir_operation *o, *found = NULL;
    struct ptree_iter it;
    uint64_t n = 0;
    for (ptree_seek(&world_state(&w)->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        bool fits = queued ? o->state == DIR_OPERATION_QUEUED : o->state == DIR_OPERATION_RUNNING;
        if (fits && below(++n) == 0) {
            found = o;
        }
    }
    return found;
}

static void do_start(void)
{
    static const uint32_t classes[] = {0, 100, 200, 250, 300, 450, 500, 600, 700, 800, 900};
    static const enum dir_operation_kind kinds[] = {
        DIR_OPERATION_MOVE,        DIR_OPERATION_MOVE,           DIR_OPERATION_MOVE,
        DIR_OPERATION_ADD_REPLICA, DIR_OPERATION_REMOVE_REPLICA, DIR_OPERATION_TRANSFER};
    const struct dir_partition *p, *found = NULL;
    struct ptree_iter it;
    uint64_t n = 0;
    for (ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
         (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        found = p->operation == 0 && below(++n) == 0 ? p : found;
    }
    if (found == NULL) {
        return;
    }
    struct fleet_start s = {.kind = kinds[below(6)],
                            .partition = found->id,
                            .to = name_of(below(NODES)),
                            .class_of = classes[below(11)],
                            .rate = chance(50) ? 0 : (1 + below(60)) * MIB,
                            .has_live = chance(30),
                            .live = below(40) * MIB};
    s.from = s.kind == DIR_OPERATION_REMOVE_REPLICA || chance(20) ? name_of(below(NODES)) : NULL;
    s.to = s.kind == DIR_OPERATION_REMOVE_REPLICA ? NULL : s.to;
    (void)fleet_start(&w, &s);
}

static bool a_recovery_could_begin(uint64_t but)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (o->state == DIR_OPERATION_QUEUED && o->class_of >= 700 && o->id != but &&
            fleet_try_admit(&w, o->id) == ERR_OK) {
            return true;
        }
    }
    return false;
}

static void do_admit(struct sums *after)
{
    const struct dir_operation *o = any_operation(true);
    if (o == NULL) {
        return;
    }
    uint64_t id = o->id;
    bool copies = dir_operation_copies(o), routine = o->class_of < 700;
    bool first = routine && copies && a_recovery_could_begin(id);
    struct dir_waiting why;
    bool waits = dir_budget_waits(world_state(&w), o, &why);
    enum err_code code = fleet_admit(&w, id);
    CHECK(waits == (code != ERR_OK) && (!waits || why.code == code));
    CHECK(!first || code != ERR_OK);
    refused_by_recovery += first;
    refused_by_budget += code == ERR_BUDGET_EXCEEDED && !first;
    if (code == ERR_OK) {
        admitted++;
        recoveries += !routine;
        sum_up(after);
        check_room(fleet_operation(&w, id), after);
    }
}

static void do_release(void)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (o->reserved.releasing) {
            (void)fleet_release(&w, o->id, o->reserved.step + (chance(20) ? 0U : 1U));
            released++;
            return;
        }
    }
}

/* A reservation stays whole while its copy is held back. */
static void do_rate(const struct dir_operation *o)
{
    uint64_t id = o->id, rate = o->rate_bytes_per_s, share = below(12) * 100000;
    struct dir_reservation reserved = o->reserved;
    bool may = dir_operation_may_slow(o);
    enum err_code code = fleet_rate(&w, id, (uint32_t)share);
    o = fleet_operation(&w, id);
    CHECK(share != 0 || code != ERR_OK);
    CHECK(share <= 1000000 || code != ERR_OK);
    CHECK(may || share == 1000000 || code != ERR_OK);
    CHECK(o->rate_bytes_per_s == rate && memcmp(&o->reserved, &reserved, sizeof reserved) == 0);
    slowed += code == ERR_OK && share < 1000000;
    kept += code != ERR_OK;
}

static void check_rates(void)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        uint64_t rate = dir_operation_rate(o);
        bool copies = o->stage >= DIR_STAGE_PREPARE && o->stage <= DIR_STAGE_CATCH_UP;
        CHECK(rate <= o->rate_bytes_per_s && (rate > 0) == (o->rate_bytes_per_s > 0));
        CHECK(rate == o->rate_bytes_per_s || o->throttle.share_ppm > 0);
        CHECK(o->throttle.share_ppm == 0 || (o->class_of < 500 && copies));
    }
}

static void do_limit(void)
{
    enum dir_budget b = (enum dir_budget)(1 + below(DIR_BUDGETS));
    if (chance(20)) {
        (void)fleet_reserve(&w, below(4) * 25);
    } else if (chance(10)) {
        (void)fleet_release_ms(&w, below(2) * 1000);
    } else {
        (void)fleet_limit(&w, b, below(5), below(6) * 40 * MIB);
    }
}

/* True for an admission: then alone sums may grow. */
static bool do_something(struct sums *after)
{
    const struct dir_operation *o = any_operation(false);
    uint64_t dice = below(100), which = below(NODES);
    if (dice < 25) {
        do_start();
    } else if (dice < 60) {
        do_admit(after);
        return true;
    } else if (dice < 80 && o != NULL) {
        fleet_step(&w, o->id);
    } else if (dice < 84 && o != NULL) {
        fleet_abort(&w, o->id);
    } else if (dice < 89) {
        do_release();
    } else if (dice < 91) {
        do_limit();
    } else if (dice < 94 && o != NULL) {
        do_rate(o);
    } else if (dice < 97) {
        put_node(which);
    } else if (view_node_is_live(agent_node(&w, name_of(which)))) {
        (void)agent_end(&w, name_of(which), agent_node(&w, name_of(which))->session, true);
    }
    return false;
}

static void one_fleet(void)
{
    static struct sums before, after;
    world_open(&w);
    for (uint64_t i = 0; i < NODES; i++) {
        put_node(i);
    }
    agent_keyspace(&w, (uint32_t)below(2));
    for (char c = 'a'; c < 'a' + PARTITIONS - 1; c++) {
        char at[2] = {c, '\0'};
        (void)world_split(&w, agent_partition(&w, "~")->id, at);
    }
    (void)world_hash(&w, "k", 2 * NODES);
    before.count = 0;
    for (unsigned i = 0; i < COMMANDS && tap_failures() == 0; i++) {
        bool may_grow = do_something(&after);
        sum_up(&after);
        if (!may_grow) {
            check_growth(&before, &after);
        }
        check_directions(&after);
        check_index(&after);
        check_holders();
        check_rates();
        CHECK_U64(world_check(world_state(&w)), 0);
        before = after;
    }
    struct err e = {.code = ERR_OK};
    struct directory *d = world_reload(&w, &e);
    CHECK(d != NULL && directory_state(d)->hash.lo == world_state(&w)->hash.lo &&
          directory_state(d)->usage.count == world_state(&w)->usage.count);
    directory_free(d);
    world_close(&w);
}

static void random_fleets_keep_their_budgets(void)
{
    uint64_t seed = tap_seed(20270105);
    for (uint64_t i = 0; i < SEEDS && tap_failures() == 0; i++) {
        rng.state = seed + i;
        one_fleet();
        if (tap_failures() > 0) {
            tap_note("fleet of seed %" PRIu64, seed + i);
        }
    }
    tap_note("%" PRIu64 " admitted (%" PRIu64 " recoveries), %" PRIu64
             " refused by budgets, %" PRIu64 " by recoveries, %" PRIu64 " steps down, %" PRIu64
             " slowed, %" PRIu64 " not",
             admitted, recoveries, refused_by_budget, refused_by_recovery, released, slowed, kept);
    CHECK(slowed > SEEDS / 10 && kept > SEEDS / 10);
    CHECK(admitted > SEEDS && recoveries > SEEDS / 4 && refused_by_budget > SEEDS);
    CHECK(refused_by_recovery > SEEDS / 4 && released > SEEDS / 10);
}

int main(void)
{
    RUN(random_fleets_keep_their_budgets);
    return tap_done();
}
