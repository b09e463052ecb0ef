/* SPDX-License-Identifier: Apache-2.0 */
/* The heat map against a naive one that keeps every sample; what is dropped when it is full; and
 * whom it blames. */
#include "balancer/heat.h"

#include "tests/harness/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEYSPACE = 7, LETTERS = 26, SAMPLES = 300, KEPT = 400, ROWS_MAX = 300 };

static uint8_t letters[LETTERS];

/* Bound i of 26: bound 0 is the empty one. */
static struct slice bound(unsigned i)
{
    letters[i] = (uint8_t)('a' + i);
    return slice_of(&letters[i], i > 0 ? 1 : 0);
}

/* Columns as a set of bounds, bit 0 always there. */
static void set_columns(struct heat *h, uint32_t set, uint64_t now_ms)
{
    struct slice starts[LETTERS];
    struct heat_columns c = {.starts = starts, .partitions = 26};
    for (unsigned i = 0; i < LETTERS; i++) {
        if (i == 0 || (set & 1U << i) != 0) {
            starts[c.count++] = bound(i);
        }
    }
    heat_set_columns(h, KEYSPACE, &c, now_ms);
}

/* --- the naive map: letters for keys, a list of all samples --- */

struct sample {
    uint64_t from, to, reads, size, queue;
    unsigned start, end; /* letters [start, end) */
};
struct naive {
    struct sample all[SAMPLES];
    unsigned n;
    struct {
        uint64_t from, to;
        uint32_t set; /* its columns: those in force at its first sample */
    } rows[ROWS_MAX];
    unsigned rows_n;
    uint32_t now_set;
};

static bool is_start(uint32_t set, unsigned letter)
{
    return letter == 0 || (set & 1U << letter) != 0;
}

/* The columns of `set` that [start, end) touches, told by where they begin. */
static unsigned touched(uint32_t set, unsigned start, unsigned end, bool ret[LETTERS])
{
    unsigned count = 0, column = 0;
    memset(ret, 0, LETTERS * sizeof ret[0]);
    for (unsigned i = 0; i < end; i++) {
        column = is_start(set, i) ? i : column;
        if (i >= start && !ret[column]) {
            ret[column] = true;
            count++;
        }
    }
    return count;
}

static void naive_rows(struct naive *m, const struct sample *s)
{
    static const uint64_t sizes[] = {HEAT_FINE_MS, HEAT_COARSE_MS};
    for (unsigned k = 0; k < 2; k++) {
        for (uint64_t from = s->from / sizes[k] * sizes[k]; from < s->to; from += sizes[k]) {
            bool known = false;
            for (unsigned i = 0; i < m->rows_n; i++) {
                known |= m->rows[i].from == from && m->rows[i].to == from + sizes[k];
            }
            if (!known) {
                m->rows[m->rows_n].from = from;
                m->rows[m->rows_n].to = from + sizes[k];
                m->rows[m->rows_n++].set = m->now_set;
            }
        }
    }
}

static uint64_t overlap(const struct sample *s, uint64_t from, uint64_t to)
{
    uint64_t a = s->from > from ? s->from : from, b = s->to < to ? s->to : to;
    return b > a ? b - a : 0;
}

/* What the row's columns have, then what the present columns have of that. */
static void naive_values(const struct naive *m, unsigned row, unsigned r, double out[LETTERS])
{
    double cells[LETTERS] = {0};
    uint64_t from = m->rows[row].from, to = m->rows[row].to, first = to, last = from;
    bool in[LETTERS];
    for (unsigned i = 0; i < m->n; i++) {
        const struct sample *s = &m->all[i];
        uint64_t ms = overlap(s, from, to);
        double parts = touched(m->rows[row].set, s->start, s->end, in);
        if (ms == 0) {
            continue;
        }
        first = s->from > from ? (s->from < first ? s->from : first) : from;
        last = s->to < to ? (s->to > last ? s->to : last) : to;
        for (unsigned c = 0; c < LETTERS; c++) {
            double reads = (double)s->reads * (double)ms / (double)(s->to - s->from) / parts;
            double size = (double)s->size * (double)ms / parts, queue = (double)s->queue;
            if (in[c]) {
                cells[c] = r == LOAD_QUEUE_P99 ? fmax(cells[c], queue)
                                               : cells[c] + (r == LOAD_READS ? reads : size);
            }
        }
    }
    memset(out, 0, LETTERS * sizeof out[0]);
    for (unsigned c = 0; c < LETTERS; c++) {
        unsigned end = c + 1;
        while (end < LETTERS && !is_start(m->rows[row].set, end)) {
            end++;
        }
        double parts = touched(m->now_set, c, end, in);
        double scale = r == LOAD_READS ? 1000 / (double)(last - first) : 1 / (double)(last - first);
        for (unsigned k = 0; k < LETTERS && is_start(m->rows[row].set, c); k++) {
            if (in[k]) {
                out[k] = r == LOAD_QUEUE_P99 ? fmax(out[k], cells[c])
                                             : out[k] + cells[c] * scale / parts;
            }
        }
    }
}

static const char *
row_differs(const struct naive *m, const struct heat_map *got, unsigned i, unsigned r)
{
    double want[LETTERS];
    unsigned row = 0, c = 0;
    while (row < m->rows_n &&
           (m->rows[row].from != got->row[i].from_ms || m->rows[row].to != got->row[i].to_ms)) {
        row++;
    }
    if (row == m->rows_n) {
        return "a row that should not be there";
    }
    naive_values(m, row, r, want);
    for (unsigned k = 0; k < LETTERS; k++) {
        if (is_start(m->now_set, k)) {
            if (fabs(got->row[i].values[c] - want[k]) > 1e-9 * (1 + want[k])) {
                return "another value";
            }
            c++;
        }
    }
    return c == got->columns ? NULL : "other columns";
}

static void put(struct heat *h, struct naive *m, struct tap_rand *r, uint64_t now)
{
    struct sample *s = &m->all[m->n++];
    uint64_t interval = 100 + tap_rand_below(r, 200000);
    s->to = now;
    s->from = now - interval;
    s->start = (unsigned)tap_rand_below(r, LETTERS);
    s->end = s->start + 1 + (unsigned)tap_rand_below(r, LETTERS - s->start);
    s->reads = tap_rand_below(r, 1000000);
    s->size = tap_rand_below(r, UINT64_C(1) << 40);
    s->queue = tap_rand_below(r, 1000);
    struct load_sample sample = {.partition = 1,
                                 .epoch = 1,
                                 .interval_ms = interval,
                                 .has = 1U << LOAD_READS | 1U << LOAD_SIZE | 1U << LOAD_QUEUE_P99};
    sample.value[LOAD_READS] = s->reads;
    sample.value[LOAD_SIZE] = s->size;
    sample.value[LOAD_QUEUE_P99] = s->queue;
    struct slice end = bound(s->end < LETTERS ? s->end : 0);
    naive_rows(m, s);
    heat_put(h, KEYSPACE, bound(s->start), s->end < LETTERS ? &end : NULL, &sample, now);
}

static void values_are_those_of_the_naive_map(void)
{
    static const unsigned resources[] = {LOAD_READS, LOAD_SIZE, LOAD_QUEUE_P99};
    const uint64_t first = tap_seed(500);
    for (uint64_t seed = 0; seed < 30 && tap_failures() == 0; seed++) {
        struct tap_rand r = {first + seed};
        struct naive m = {.now_set = (uint32_t)tap_rand(&r)};
        struct heat *h = heat_new(HEAT_BYTES_MAX);
        uint64_t now = 100 * HEAT_COARSE_MS + tap_rand_below(&r, HEAT_COARSE_MS);
        set_columns(h, m.now_set, now);
        for (unsigned i = 0; i < SAMPLES; i++) {
            now += tap_rand_below(&r, 20000); /* within the hour of fine rows, mostly */
            if (heat_is_due(h, KEYSPACE, now)) {
                m.now_set ^= UINT32_C(1) << tap_rand_below(&r, LETTERS); /* a split or a merge */
                set_columns(h, m.now_set, now);
            }
            put(h, &m, &r, now);
        }
        for (unsigned k = 0; k < 3; k++) {
            struct heat_map got;
            CHECK(heat_read(h, KEYSPACE, resources[k], 0, UINT64_MAX, &got));
            CHECK(got.rows > 10);
            for (unsigned i = 0; i < got.rows; i++) {
                const char *wrong = row_differs(&m, &got, i, resources[k]);
                CHECK(i == 0 || got.row[i].from_ms >= got.row[i - 1].to_ms);
                if (!CHECK(wrong == NULL)) {
                    tap_note("seed %llu resource %u row %u: %s", (unsigned long long)seed,
                             resources[k], i, wrong);
                    break;
                }
            }
            heat_map_close(&got);
        }
        heat_free(h);
    }
}

static struct load_sample minute_of(uint64_t reads)
{
    struct load_sample s = {
        .partition = 1, .epoch = 1, .interval_ms = 60000, .has = 1U << LOAD_READS};
    s.value[LOAD_READS] = reads;
    return s;
}

/* --- operations, outcomes, tenants --- */

enum { OPERATIONS = 4, OUTCOMES = 3, TOLD = 200 };

/* Against sums: what each operation and outcome had, of which no more is left than of all. */
static void requests_are_told_apart(void)
{
    static const char *const operations[] = {"del", "get", "put", "scan"};
    static const char *const outcomes[] = {"error", "ok", "slow"};
    struct tap_rand r = {tap_seed(900)};
    struct heat *h = heat_new(HEAT_BYTES_MAX);
    double sums[OPERATIONS][OUTCOMES] = {{0}}, all = 0;
    uint64_t now = 100 * HEAT_COARSE_MS;
    for (unsigned i = 0; i < TOLD; i++) { /* half an hour, all in fine rows */
        struct load_part parts[OPERATIONS];
        struct load_sample s = {.interval_ms = 5000, .has = 1U << LOAD_READS | 1U << LOAD_WRITES};
        s.value[LOAD_READS] = 2000;
        s.value[LOAD_WRITES] = tap_rand_below(&r, 1000);
        all += (double)(s.value[LOAD_READS] + s.value[LOAD_WRITES]);
        for (unsigned k = 0; k < OPERATIONS; k++) {
            unsigned outcome = (unsigned)tap_rand_below(&r, OUTCOMES);
            uint64_t n = tap_rand_below(&r, 500);
            parts[k] = (struct load_part){slice_of(operations[k], strlen(operations[k])),
                                          slice_of(outcomes[outcome], strlen(outcomes[outcome])),
                                          slice_of(NULL, 0), n};
            sums[k][outcome] += (double)n;
        }
        s.parts = parts;
        s.part_count = OPERATIONS;
        now += 9000;
        set_columns(h, (uint32_t)tap_rand(&r), now - 1);
        struct slice end = bound(20);
        heat_put(h, KEYSPACE, bound(3), &end, &s, now);
    }
    double seen[OPERATIONS + 1] = {0}, part = 0;
    struct heat_by by = {.name = HEAT_BY_OPERATION};
    struct heat_map m;
    CHECK(heat_read_by(h, KEYSPACE, &by, 0, UINT64_MAX, &m));
    CHECK_U64(m.columns, OPERATIONS + 1);
    for (unsigned c = 0; c < m.columns; c++) {
        for (unsigned i = 0; i < m.rows; i++) {
            seen[c] += m.row[i].values[c] * (double)m.row[i].heard_ms / 1000;
        }
        CHECK(c == OPERATIONS
                  ? m.starts[c].data == NULL
                  : slice_eq(m.starts[c], slice_of(operations[c], strlen(operations[c]))));
    }
    for (unsigned c = 0; c < OPERATIONS; c++) {
        double sum = sums[c][0] + sums[c][1] + sums[c][2];
        CHECK(fabs(seen[c] - sum) < 1e-6);
        all -= sum;
    }
    CHECK(fabs(seen[OPERATIONS] - all) < 1e-3); /* whom nobody told of */
    heat_map_close(&m);
    struct heat_filter only = {{slice_of("get", 3), slice_of("slow", 4)}};
    CHECK(heat_read_part(h, KEYSPACE, &only, 0, UINT64_MAX, &m));
    for (unsigned i = 0; i < m.rows; i++) {
        for (unsigned c = 0; c < m.columns; c++) {
            part += m.row[i].values[c] * (double)m.row[i].heard_ms / 1000;
        }
    }
    CHECK(fabs(part - sums[1][2]) < 1e-6);
    heat_map_close(&m);
    heat_free(h);
}

static void put_tenant(struct heat *h, unsigned tenant, uint64_t now)
{
    char name[16];
    (void)snprintf(name, sizeof name, "t%u", tenant);
    struct load_sample s = minute_of(60);
    struct load_part part = {slice_of("get", 3), slice_of("ok", 2), slice_of(name, strlen(name)),
                             60};
    s.parts = &part;
    s.part_count = 1;
    set_columns(h, 1U << 13, now - 1);
    heat_put(h, KEYSPACE, bound(0), NULL, &s, now);
}

static double last_of(struct heat *h, struct heat_filter only, uint64_t now)
{
    struct heat_map m;
    double sum = 0;
    CHECK(heat_read_part(h, KEYSPACE, &only, now - 1, now, &m));
    for (unsigned c = 0; c < m.columns; c++) {
        sum += m.row[0].values[c];
    }
    heat_map_close(&m);
    return sum;
}

/* More tenants than are told apart count without one; more operations as others. */
static void names_are_bounded(void)
{
    struct heat *h = heat_new(HEAT_BYTES_MAX);
    uint64_t now = 1000 * HEAT_COARSE_MS;
    const struct heat_filter get = {{slice_of("get", 3)}}, other = {{slice_of("other", 5)}},
                             first = {{{0}, {0}, slice_of("t0", 2)}},
                             late = {{{0}, {0}, slice_of("t199", 4)}};
    for (unsigned i = 0; i < 200; i++) {
        put_tenant(h, i, now);
    }
    CHECK(fabs(last_of(h, get, now) - 200) < 1e-9);
    CHECK(fabs(last_of(h, first, now) - 1) < 1e-9 && last_of(h, late, now) == 0);
    for (unsigned i = 0; i < 200; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "op%u", i);
        struct load_sample s = minute_of(60);
        struct load_part part = {slice_of(name, strlen(name)), slice_of("ok", 2), slice_of(NULL, 0),
                                 60};
        s.parts = &part;
        s.part_count = 1;
        heat_put(h, KEYSPACE, bound(0), NULL, &s, now);
    }
    /* 48 tenants, get without one, 14 operations of their own: 63, and all others. */
    CHECK(fabs(last_of(h, other, now) - 186) < 1e-9);
    CHECK(fabs(last_of(h, get, now) - 200) < 1e-9);
    /* Who was silent for longer than is kept makes room, and is not mistaken for its successor. */
    now += HEAT_COARSE_ROWS * HEAT_COARSE_MS + 1;
    put_tenant(h, 199, now);
    CHECK(fabs(last_of(h, late, now) - 1) < 1e-9);
    struct heat_map m;
    CHECK(heat_read_part(h, KEYSPACE, &late, 0, now - HEAT_COARSE_MS, &m));
    for (unsigned i = 0; i < m.rows; i++) {
        CHECK(m.row[i].values[0] == 0);
    }
    heat_map_close(&m);
    heat_free(h);
}

static void a_day_is_kept_and_grows_coarse(void)
{
    struct heat *h = heat_new(HEAT_BYTES_MAX);
    uint64_t start = 1000 * HEAT_COARSE_MS, minutes = 2 * 1440, now = start;
    struct heat_map m;
    CHECK(!heat_read(h, KEYSPACE, LOAD_READS, 0, UINT64_MAX, &m));
    heat_map_close(&m);
    for (uint64_t i = 1; i <= minutes; i++) {
        struct load_sample s = minute_of(600);
        now = start + i * HEAT_FINE_MS;
        set_columns(h, 1U << 13, now - 1);
        heat_put(h, KEYSPACE, bound(0), NULL, &s, now);
    }
    CHECK(heat_read(h, KEYSPACE, HEAT_REQUESTS, 0, UINT64_MAX, &m));
    CHECK_U64(m.columns, 2);
    CHECK_U64(m.rows, HEAT_COARSE_ROWS - 6 + HEAT_FINE_ROWS);
    CHECK_U64(m.row[m.rows - 1].to_ms, now);
    CHECK_U64(m.row[0].to_ms - m.row[0].from_ms, HEAT_COARSE_MS);
    for (unsigned i = 0; i < m.rows; i++) {
        CHECK(fabs(m.row[i].values[0] - 5) < 1e-9 && fabs(m.row[i].values[1] - 5) < 1e-9);
        CHECK(i == 0 || m.row[i].from_ms == m.row[i - 1].to_ms); /* no gap, nothing twice */
    }
    heat_map_close(&m);
    CHECK(heat_read(h, KEYSPACE, LOAD_READS, now - 90000, now, &m));
    CHECK_U64(m.rows, 2);
    heat_map_close(&m);
    CHECK(heat_read(h, KEYSPACE, LOAD_WRITES, 0, UINT64_MAX, &m));
    CHECK(m.row[0].values[0] == 0); /* never reported */
    heat_map_close(&m);
    heat_free(h);
}

static void bytes_and_keyspaces_are_bounded(void)
{
    struct heat *h = heat_new(200000);
    struct slice starts[] = {bound(0), bound(3), bound(9)};
    struct heat_columns c = {starts, 3, 3};
    uint64_t now = 1000 * HEAT_COARSE_MS;
    for (uint64_t i = 1; i <= 100; i++) {
        now += HEAT_FINE_MS;
        for (uint64_t k = 1; k <= HEAT_KEYSPACES_MAX + 3; k++) {
            struct load_sample s = minute_of(600);
            heat_set_columns(h, k, &c, now - 1);
            heat_put(h, k, bound(0), NULL, &s, now);
        }
        CHECK(heat_bytes(h) <= 200000);
    }
    struct heat_map m;
    CHECK(heat_read(h, 1, LOAD_READS, now - HEAT_FINE_MS, now, &m)); /* the newest are there */
    CHECK_U64(m.rows, 1);
    heat_map_close(&m);
    CHECK(!heat_read(h, HEAT_KEYSPACES_MAX + 3, LOAD_READS, 0, now, &m));
    heat_map_close(&m);
    CHECK(!heat_is_due(h, HEAT_KEYSPACES_MAX + 3, now)); /* nobody looks for columns in vain */
    /* A keyspace that was silent for longer than is kept makes room. */
    now += (HEAT_COARSE_ROWS + 1) * HEAT_COARSE_MS;
    heat_set_columns(h, 999, &c, now);
    CHECK_U64(heat_columns_of(h, 999).count, 3);
    heat_free(h);
}

/* --- blame --- */

enum { MINUTES = 10, TENANTS = 4 };

static struct heat_blame blame(double load[MINUTES][TENANTS])
{
    static const uint32_t group[TENANTS] = {0, 1, 2, 3};
    struct heat_row rows[MINUTES];
    struct heat_map m = {.columns = TENANTS, .rows = MINUTES, .row = rows};
    for (unsigned i = 0; i < MINUTES; i++) {
        rows[i] =
            (struct heat_row){i * HEAT_FINE_MS, (i + 1) * HEAT_FINE_MS, HEAT_FINE_MS, load[i]};
    }
    return heat_blame(&m, group, TENANTS);
}

static void fill(double load[MINUTES][TENANTS])
{
    for (unsigned i = 0; i < MINUTES; i++) {
        for (unsigned g = 0; g < TENANTS; g++) {
            load[i][g] = 100 + (i + g) % 3; /* some noise */
        }
    }
}

static void the_cause_is_told_apart(void)
{
    double load[MINUTES][TENANTS];
    fill(load);
    CHECK_U64(blame(load).kind, HEAT_EVEN);
    for (unsigned i = 0; i < MINUTES; i++) {
        load[i][2] *= 8;
    }
    struct heat_blame b = blame(load);
    CHECK_U64(b.kind, HEAT_TENANT);
    CHECK(b.group == 2 && b.row == HEAT_NONE && fabs(b.share - 8.0 / 11) < .01);
    fill(load);
    for (unsigned g = 0; g < TENANTS; g++) {
        load[6][g] *= 5;
    }
    b = blame(load);
    CHECK_U64(b.kind, HEAT_TIME);
    CHECK(b.row == 6 && b.group == HEAT_NONE && fabs(b.times_median - 5) < .1);
    fill(load);
    load[3][1] *= 20;
    b = blame(load);
    CHECK_U64(b.kind, HEAT_TENANT_AND_TIME);
    CHECK(b.row == 3 && b.group == 1 && fabs(b.times_median - 20) < .5);
    /* The tenant that is always the largest is not the one whose minute it was. */
    for (unsigned i = 0; i < MINUTES; i++) {
        load[i][0] *= 2;
    }
    b = blame(load);
    CHECK(b.kind == HEAT_TENANT_AND_TIME && b.group == 1 && b.row == 3);
    memset(load, 0, sizeof load);
    CHECK_U64(blame(load).kind, HEAT_EVEN);
}

int main(void)
{
    RUN(values_are_those_of_the_naive_map);
    RUN(requests_are_told_apart);
    RUN(names_are_bounded);
    RUN(a_day_is_kept_and_grows_coarse);
    RUN(bytes_and_keyspaces_are_bounded);
    RUN(the_cause_is_told_apart);
    return tap_done();
}
