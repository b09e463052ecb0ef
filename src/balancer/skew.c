/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/skew.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const unsigned judged[] = {SKEW_REQUESTS, LOAD_CPU,        LOAD_READS,
                                  LOAD_WRITES,   LOAD_READ_BYTES, LOAD_WRITE_BYTES};
enum { JUDGED = sizeof judged / sizeof judged[0] };

const char *skew_kind_name(enum skew_kind kind)
{
    static const char *const names[] = {
#define X(name, slug) slug,
        SKEW_KIND_LIST(X)
#undef X
    };
    return names[kind];
}

const char *skew_remedy_name(enum skew_remedy remedy)
{
    static const char *const names[] = {
#define X(name, slug) slug,
        SKEW_REMEDY_LIST(X)
#undef X
    };
    return names[remedy];
}

/* --- findings of one kind, the worst kept --- */

struct found {
    struct skew_finding *list; /* owns */
    uint32_t count, cap, left_out;
};

static double badness(const struct skew_finding *x)
{
    return x->bound > 0 ? x->value / x->bound : x->value;
}

static int worst_first(const void *a, const void *b)
{
    const struct skew_finding *x = a, *y = b;
    double p = badness(x), q = badness(y);
    if (p != q) {
        return p > q ? -1 : 1;
    }
    if (x->partition != y->partition) {
        return x->partition < y->partition ? -1 : 1;
    }
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Makes room for as many again by letting the mildest go. */
static void add(struct found *all, const struct skew_finding *x)
{
    if (all->count == all->cap) {
        if (all->cap < 2 * SKEW_FINDINGS_MAX) {
            all->cap = all->cap == 0 ? 8 : 2 * all->cap;
            all->list = mem_realloc(all->list, all->cap * sizeof all->list[0]);
        } else {
            qsort(all->list, all->count, sizeof all->list[0], worst_first);
            all->left_out += all->count - SKEW_FINDINGS_MAX;
            all->count = SKEW_FINDINGS_MAX;
        }
    }
    all->list[all->count] = *x;
    all->count++;
}

/* --- one key over several owners --- */

void skew_salt(const double *cold, double hot, const double *limits, struct skew_salts *s)
{
    double each = hot / s->salts;
    s->shared = 0;
    s->largest_load = 0;
    s->limit = 0;
    s->fits = true;
    for (uint32_t i = 0; i < s->salts; i++) {
        uint32_t here = 0;
        bool before = false;
        for (uint32_t j = 0; j < s->salts; j++) {
            here += s->owner[j] == s->owner[i];
            before |= j < i && s->owner[j] == s->owner[i];
        }
        s->shared += before ? 1 : 0;
        double load = cold[s->owner[i]] + each * here, limit = limits[s->owner[i]];
        if (load > s->largest_load) {
            s->largest_load = load;
            s->limit = limit;
        }
        s->fits &= limit <= 0 || load <= limit;
    }
}

/* The living node with the least to bear, by what it can. */
static uint32_t quietest(const struct skew_fleet *f, const double *load, const double *limits)
{
    uint32_t best = SKEW_NONE;
    double least = 0;
    for (uint32_t i = 0; i < f->node_count; i++) {
        double u = limits[i] > 0 ? load[i] / limits[i] : load[i];
        if (f->nodes[i].alive && (best == SKEW_NONE || u < least)) {
            best = i;
            least = u;
        }
    }
    return best;
}

static void place_salts(const struct skew_fleet *f,
                        uint32_t partition,
                        double each,
                        const double *cold,
                        const double *limits,
                        struct skew_salts *s)
{
    double *load = mem_dup(cold, f->node_count * sizeof cold[0]);
    s->placed = f->salt_owner != NULL;
    for (uint32_t i = 0; i < s->salts; i++) {
        uint32_t owner =
            s->placed ? f->salt_owner(f->arg, partition, i, s->salts) : (uint32_t)SKEW_NONE;
        if (owner == SKEW_NONE) {
            s->placed = false;
            owner = quietest(f, load, limits);
        }
        s->owner[i] = owner;
        load[owner] += each;
    }
    mem_free(load);
}

/* The fewest salts that fit, doubling; the most when none do. */
static void
advise_salts(const struct skew_fleet *f, const struct skew_yardstick *yards, struct skew_finding *x)
{
    const struct skew_partition *p = &f->partitions[x->partition];
    struct skew_yardstick y = yards[x->resource];
    struct skew_salts *s = &x->salts;
    double hot = (double)p->load[x->resource] * p->keys->top.share_ppm / 1e6;
    double *cold = mem_alloc(f->node_count * sizeof cold[0]);
    double *limits = mem_alloc(f->node_count * sizeof limits[0]);
    for (uint32_t i = 0; i < f->node_count; i++) {
        const struct skew_node *n = &f->nodes[i];
        cold[i] = n->load[x->resource] - (i == p->node ? hot : 0);
        /* Without a capacity, as much over the mean as is still well. */
        limits[i] = y.by_capacity ? n->capacity[x->resource] : y.mean * (1 + f->limits.high);
    }
    if (p->node != SKEW_NONE && quietest(f, cold, limits) != SKEW_NONE) {
        s->unsplit_load = cold[p->node] + hot;
        for (s->salts = 2; s->salts <= SKEW_SALTS_MAX; s->salts *= 2) {
            place_salts(f, x->partition, hot / s->salts, cold, limits, s);
            skew_salt(cold, hot, limits, s);
            if (s->fits || s->salts == SKEW_SALTS_MAX) {
                break;
            }
        }
    }
    mem_free(cold);
    mem_free(limits);
}

/* --- partitions --- */

/* The resource in which it is largest against a lump, of those that nodes say their limit of if it
 * is one there; how many times, 0 when it is none in any. */
static double largest_lump(const struct skew_partition *p,
                           const double *lump,
                           const struct skew_yardstick *yards,
                           unsigned *ret_resource)
{
    double most = 0;
    bool limited = false;
    for (unsigned i = 0; i < JUDGED; i++) {
        unsigned r = judged[i];
        double times = lump[r] > 0 ? (double)p->load[r] / lump[r] : 0;
        bool limits = yards[r].by_capacity && times > 1;
        if (limits == limited ? times > most : limits) {
            most = times;
            limited = limits;
            *ret_resource = r;
        }
    }
    return most;
}

static void remedy_key(const struct skew_partition *p, struct skew_finding *x)
{
    double reads = (double)p->load[LOAD_READS], all = (double)p->load[SKEW_REQUESTS];
    bool counts_reads =
        x->resource == SKEW_REQUESTS || x->resource == LOAD_READS || x->resource == LOAD_READ_BYTES;
    if (counts_reads && all > 0 && reads >= .7 * all) {
        double copies = reads * p->keys->top.share_ppm / 1e6 / (.6 * x->bound);
        x->remedy = SKEW_DO_READ_REPLICAS;
        x->replicas = copies < DIR_REPLICAS_MAX - 1 ? (uint32_t)copies + 1 : DIR_REPLICAS_MAX;
        x->why =
            "this is one key, which is mostly read: read from more copies, or spread the key, or "
            "limit its rate; no split and no move makes it smaller";
        return;
    }
    x->remedy = SKEW_DO_SPREAD_KEY;
    x->why = "this is one key: spread it over salted keys, or limit its rate; no split and no move "
             "makes it smaller";
}

static void judge_lump(const struct skew_partition *p, struct skew_finding *x)
{
    const struct skew_keys *k = p->keys;
    double key =
        k != NULL && k->has_top ? (double)p->load[x->resource] * k->top.share_low_ppm / 1e6 : 0;
    x->kind = SKEW_HOT_PARTITION;
    if (k != NULL && k->has_top && k->top.share_low_ppm > 500000 && key > .7 * x->bound) {
        x->kind = SKEW_HOT_KEY;
        remedy_key(p, x);
    } else if (k != NULL && k->frontier != SKETCH_STILL) {
        x->kind = SKEW_FRONTIER;
        x->remedy = SKEW_DO_PREFIX;
        x->why =
            "the load runs ahead of its own edge: a split is outrun; put a hash prefix or a time "
            "bucket before the key";
    } else if (k != NULL &&
               (k->split.verdict == SKETCH_BALANCED || k->split.verdict == SKETCH_ISOLATE)) {
        x->remedy = SKEW_DO_SPLIT;
        x->why = "the load lies on several keys: split here, then move a part";
    } else if (k != NULL && k->split.verdict == SKETCH_CONTAINED) {
        x->remedy = SKEW_DO_MOVE;
        x->why = "most of the load is ranges that any split would cut: move it whole";
    } else {
        x->remedy = SKEW_DO_NOTHING;
        x->why = "nothing until its node reports keys: where to split is not known";
    }
}

static bool node_is_hot(const struct skew_fleet *f,
                        struct skew_yardstick y,
                        uint32_t node,
                        unsigned r,
                        double above)
{
    const struct skew_node *n = &f->nodes[node];
    double load = n->load[r] / (y.by_capacity ? n->capacity[r] : 1);
    double mean = y.by_capacity && y.mean < f->limits.idle ? f->limits.idle : y.mean;
    return n->alive && load > mean * (1 + above);
}

static void
find_lumps(const struct skew_fleet *f, const struct skew_yardstick *yards, struct found *found)
{
    double lump[SKEW_RESOURCES] = {0};
    for (unsigned i = 0; i < JUDGED; i++) {
        const struct skew_yardstick *y = &yards[judged[i]];
        lump[judged[i]] = f->limits.part * y->mean * y->smallest;
    }
    for (uint32_t i = 0; i < f->partition_count; i++) {
        const struct skew_partition *p = &f->partitions[i];
        struct skew_finding x = {.partition = i, .node = p->node};
        if (largest_lump(p, lump, yards, &x.resource) <= 1 || p->node == SKEW_NONE ||
            !node_is_hot(f, yards[x.resource], p->node, x.resource, f->limits.low)) {
            continue;
        }
        x.value = (double)p->load[x.resource];
        x.bound = lump[x.resource];
        judge_lump(p, &x);
        add(&found[x.kind], &x);
    }
}

/* --- nodes and the whole --- */

static void
find_hot_nodes(const struct skew_fleet *f, struct skew_yardstick y, struct found *found, unsigned r)
{
    double *largest = mem_zalloc(f->node_count * sizeof largest[0]);
    for (uint32_t i = 0; i < f->partition_count; i++) {
        const struct skew_partition *p = &f->partitions[i];
        if (p->node != SKEW_NONE && (double)p->load[r] > largest[p->node]) {
            largest[p->node] = (double)p->load[r];
        }
    }
    for (uint32_t i = 0; i < f->node_count; i++) {
        double c = y.by_capacity ? f->nodes[i].capacity[r] : 1;
        double excess = f->nodes[i].load[r] - y.mean * c;
        if (!node_is_hot(f, y, i, r, f->limits.high) || excess <= largest[i]) {
            continue; /* one partition explains it, and is found as such */
        }
        struct skew_finding x = {.kind = SKEW_HOT_NODE,
                                 .resource = r,
                                 .partition = SKEW_NONE,
                                 .node = i,
                                 .value = f->nodes[i].load[r],
                                 .bound = y.mean * c * (1 + f->limits.high)};
        bool full = y.by_capacity && y.mean > f->limits.full;
        x.remedy = full ? SKEW_DO_NOTHING : SKEW_DO_MOVE;
        x.why = full ? "nothing: all nodes are full, and a move only shifts the load"
                     : "no one partition is at fault: move some of them to quieter nodes";
        add(&found[SKEW_HOT_NODE], &x);
    }
    mem_free(largest);
}

static void
find_full(const struct skew_fleet *f, struct skew_yardstick y, struct found *found, unsigned r)
{
    if (y.by_capacity && y.mean > f->limits.full) {
        struct skew_finding x = {.kind = SKEW_HOT_CLUSTER,
                                 .resource = r,
                                 .partition = SKEW_NONE,
                                 .node = SKEW_NONE,
                                 .value = y.mean,
                                 .bound = f->limits.full,
                                 .remedy = SKEW_DO_ADD_CAPACITY,
                                 .why = "the fleet is too small for its load: moves don't help"};
        add(&found[SKEW_HOT_CLUSTER], &x);
    }
}

/* --- what the keyspace calls a bad partition --- */

static double median_of(const struct skew_fleet *f, unsigned r, double *scratch)
{
    struct skew_stats stats;
    skew_of_partitions(f, r, scratch, &stats);
    return stats.median;
}

static void check_rule(struct found *found, struct skew_finding x, double value, double bound)
{
    x.value = value;
    x.bound = bound;
    if (bound > 0 && value > bound) {
        add(&found[x.kind], &x);
    }
}

static void find_bad(const struct skew_fleet *f, struct found *found)
{
    double *scratch = mem_alloc((f->partition_count + 1) * sizeof scratch[0]);
    double access = median_of(f, SKEW_REQUESTS, scratch) * f->limits.uneven_access;
    double size = median_of(f, LOAD_SIZE, scratch) * f->limits.uneven_size;
    mem_free(scratch);
    for (uint32_t i = 0; i < f->partition_count; i++) {
        const struct skew_partition *p = &f->partitions[i];
        struct skew_finding x = {.kind = SKEW_UNEVEN_ACCESS,
                                 .resource = SKEW_REQUESTS,
                                 .partition = i,
                                 .node = p->node,
                                 .remedy = SKEW_DO_SPLIT,
                                 .why = "it is asked for far more than the others"};
        check_rule(found, x, (double)p->load[SKEW_REQUESTS], access);
        x.kind = SKEW_UNEVEN_SIZE;
        x.resource = LOAD_SIZE;
        x.why = "it is far larger than the others";
        check_rule(found, x, (double)p->load[LOAD_SIZE], size);
        x.kind = SKEW_TOO_LARGE;
        x.why = "it holds more bytes than its keyspace allows";
        check_rule(found, x, (double)p->load[LOAD_SIZE], (double)f->limits.too_large_bytes);
        x.kind = SKEW_TOO_MANY_ITEMS;
        x.resource = LOAD_ITEMS;
        x.why = "it holds more items than its keyspace allows";
        check_rule(found, x, (double)p->load[LOAD_ITEMS], (double)f->limits.too_many_items);
    }
}

uint32_t skew_findings(const struct skew_fleet *f, struct skew_finding *ret, uint32_t *ret_left_out)
{
    struct found found[SKEW_KINDS] = {{0}};
    struct skew_yardstick yards[SKEW_RESOURCES];
    uint32_t n = 0;
    *ret_left_out = 0;
    for (unsigned r = 0; r < SKEW_RESOURCES; r++) {
        yards[r] = skew_yardstick_of(f, r);
    }
    find_lumps(f, yards, found);
    for (unsigned i = 0; i < JUDGED; i++) {
        find_hot_nodes(f, yards[judged[i]], found, judged[i]);
        find_full(f, yards[judged[i]], found, judged[i]);
    }
    find_full(f, yards[LOAD_SIZE], found, LOAD_SIZE);
    find_bad(f, found);
    for (unsigned kind = 0; kind < SKEW_KINDS; kind++) {
        struct found *all = &found[kind];
        if (all->count > 0) {
            qsort(all->list, all->count, sizeof all->list[0], worst_first);
        }
        uint32_t take = all->count < SKEW_FINDINGS_MAX ? all->count : SKEW_FINDINGS_MAX;
        for (uint32_t i = 0; i < take; i++) {
            ret[n] = all->list[i];
            if (kind == SKEW_HOT_KEY) {
                advise_salts(f, yards, &ret[n]);
            }
            n++;
        }
        *ret_left_out += all->left_out + all->count - take;
        mem_free(all->list);
    }
    return n;
}
