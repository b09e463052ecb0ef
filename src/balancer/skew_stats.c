/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/skew.h"

#include <stdlib.h>
#include <string.h>

const struct skew_limits skew_limits_default = {.part = .20,
                                                .high = .10,
                                                .low = .03,
                                                .full = .80,
                                                .safe = .80,
                                                .idle = .25,
                                                .uneven_access = 2,
                                                .uneven_size = 100,
                                                .too_many_items = 100000,
                                                .too_large_bytes = 33554432};

const char *skew_resource_name(unsigned r)
{
    return r == SKEW_REQUESTS ? "requests" : load_name((enum load_resource)r);
}

const char *skew_capacity_name(unsigned r, uint64_t *ret_unit)
{
    static const struct {
        const char *name;
        uint64_t unit;
    } names[SKEW_RESOURCES] = {
        [LOAD_READS] = {"reads_per_s", 1000},
        [LOAD_WRITES] = {"writes_per_s", 1000},
        [LOAD_READ_BYTES] = {"read_bytes_per_s", 1000},
        [LOAD_WRITE_BYTES] = {"write_bytes_per_s", 1000},
        [LOAD_CPU] = {"cpu", 1000000}, /* a core is 1 000 ms a second */
        [LOAD_SIZE] = {"bytes", 1},
        [LOAD_ITEMS] = {"items", 1},
        [SKEW_REQUESTS] = {"requests_per_s", 1000},
    };
    *ret_unit = names[r].unit;
    return names[r].name;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* By nearest rank. */
static double quantile(const double *sorted, uint64_t n, uint64_t percent)
{
    uint64_t rank = (n * percent + 99) / 100;
    return sorted[rank > 0 ? rank - 1 : 0];
}

static double top(const double *sorted, uint64_t n, uint64_t k)
{
    double sum = 0;
    for (uint64_t i = n > k ? n - k : 0; i < n; i++) {
        sum += sorted[i];
    }
    return sum;
}

void skew_measure(double *values, uint64_t n, double bound, struct skew_stats *ret)
{
    double squares = 0, ranked = 0, above = 0;
    *ret = (struct skew_stats){.count = n, .jain = 1};
    if (n == 0) {
        return;
    }
    qsort(values, n, sizeof values[0], by_value);
    for (uint64_t i = 0; i < n; i++) {
        ret->total += values[i];
        squares += values[i] * values[i];
        ranked += (2 * (double)(i + 1) - (double)n - 1) * values[i];
        above += bound > 0 && values[i] > bound ? values[i] - bound : 0;
    }
    ret->mean = ret->total / (double)n;
    ret->median = (values[(n - 1) / 2] + values[n / 2]) / 2;
    ret->p90 = quantile(values, n, 90);
    ret->p99 = quantile(values, n, 99);
    ret->max = values[n - 1];
    ret->max_to_mean = ratio(ret->max, ret->mean);
    ret->max_to_median = ratio(ret->max, ret->median);
    ret->p99_to_median = ratio(ret->p99, ret->median);
    ret->p90_to_median = ratio(ret->p90, ret->median);
    ret->top1 = ratio(ret->max, ret->total);
    ret->top10 = ratio(top(values, n, 10), ret->total);
    ret->top100 = ratio(top(values, n, 100), ret->total);
    ret->above_bound = ratio(above, ret->total);
    if (squares > 0) {
        ret->jain = ret->total / (double)n * ret->total / squares;
        ret->cv2 = 1 / ret->jain - 1;
        ret->gini = ranked / ((double)n * ret->total);
    }
}

/* --- the fleet --- */

void skew_add_up(struct skew_fleet *f)
{
    for (uint32_t i = 0; i < f->node_count; i++) {
        struct skew_node *n = &f->nodes[i];
        memset(n->load, 0, sizeof n->load);
        n->size_growth = n->partitions = 0;
    }
    for (uint32_t i = 0; i < f->partition_count; i++) {
        struct skew_partition *p = &f->partitions[i];
        p->load[SKEW_REQUESTS] = p->load[LOAD_READS] + p->load[LOAD_WRITES];
        if (p->node == SKEW_NONE) {
            continue;
        }
        struct skew_node *n = &f->nodes[p->node];
        n->partitions++;
        n->size_growth += (double)p->size_growth;
        for (unsigned r = 0; r < SKEW_RESOURCES; r++) {
            double v = (double)p->load[r];
            if (r == LOAD_QUEUE_P99 || r == LOAD_STORAGE_P99) {
                n->load[r] = v > n->load[r] ? v : n->load[r];
            } else {
                n->load[r] += v;
            }
        }
    }
}

bool skew_has_capacity(const struct skew_fleet *f, unsigned r)
{
    bool any = false;
    for (uint32_t i = 0; i < f->node_count; i++) {
        if (f->nodes[i].alive && f->nodes[i].capacity[r] <= 0) {
            return false;
        }
        any |= f->nodes[i].alive;
    }
    return any;
}

static double total_load(const struct skew_fleet *f, unsigned r)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->partition_count; i++) {
        sum += (double)f->partitions[i].load[r];
    }
    return sum;
}

static bool has_label(const struct skew_node *n, const char *label, const char *value)
{
    for (uint32_t i = 0; label != NULL && i < n->label_count; i++) {
        if (strcmp(n->labels[i].name, label) == 0 && strcmp(n->labels[i].value, value) == 0) {
            return true;
        }
    }
    return false;
}

double skew_headroom(const struct skew_fleet *f, unsigned r, const char *label, const char *value)
{
    double capacity = 0, load = total_load(f, r);
    for (uint32_t i = 0; i < f->node_count; i++) {
        const struct skew_node *n = &f->nodes[i];
        capacity += n->alive && !has_label(n, label, value) ? n->capacity[r] : 0;
    }
    if (capacity <= 0) {
        return load > 0 ? -1 : 0;
    }
    return 1 - load / capacity;
}

/* Of a node, as the others are counted. */
static double weight_of(const struct skew_node *n, unsigned r, bool by_capacity)
{
    return by_capacity ? n->capacity[r] : 1;
}

struct skew_yardstick skew_yardstick_of(const struct skew_fleet *f, unsigned r)
{
    struct skew_yardstick y = {.by_capacity = skew_has_capacity(f, r)};
    double capacity = 0;
    for (uint32_t i = 0; i < f->node_count; i++) {
        if (f->nodes[i].alive) {
            double c = weight_of(&f->nodes[i], r, y.by_capacity);
            y.smallest = capacity <= 0 || c < y.smallest ? c : y.smallest;
            y.largest = c > y.largest ? c : y.largest;
            capacity += c;
        }
    }
    y.mean = ratio(total_load(f, r), capacity);
    return y;
}

void skew_of_partitions(const struct skew_fleet *f,
                        unsigned r,
                        double *scratch,
                        struct skew_stats *ret)
{
    struct skew_yardstick y = skew_yardstick_of(f, r);
    for (uint32_t i = 0; i < f->partition_count; i++) {
        scratch[i] = (double)f->partitions[i].load[r];
    }
    skew_measure(scratch, f->partition_count, f->limits.part * y.mean * y.smallest, ret);
}

void skew_of_nodes(const struct skew_fleet *f, unsigned r, double *scratch, struct skew_stats *ret)
{
    bool by_capacity = skew_has_capacity(f, r);
    double above = 0, all = 0;
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->node_count; i++) {
        const struct skew_node *node = &f->nodes[i];
        if (node->alive) {
            double safe = f->limits.safe * node->capacity[r];
            scratch[n++] = node->load[r] / weight_of(node, r, by_capacity);
            above += by_capacity && node->load[r] > safe ? node->load[r] - safe : 0;
            all += node->load[r];
        }
    }
    skew_measure(scratch, n, 0, ret);
    ret->above_bound = ratio(above, all);
}

/* A key is the least that can be moved, and half a partition about what a split leaves of it. */
static double unsplittable(const struct skew_partition *p, unsigned r)
{
    double share = p->keys != NULL && p->keys->has_top ? p->keys->top.share_low_ppm / 1e6 : 0;
    return (double)p->load[r] * share;
}

double skew_floor(const struct skew_fleet *f, unsigned r)
{
    struct skew_yardstick y = skew_yardstick_of(f, r);
    double largest = 0;
    for (uint32_t i = 0; i < f->partition_count; i++) {
        double lump = unsplittable(&f->partitions[i], r);
        largest = lump > largest ? lump : largest;
    }
    double least = ratio(ratio(largest, y.largest), y.mean);
    return least > 1 ? least : 1;
}
