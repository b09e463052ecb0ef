/* SPDX-License-Identifier: Apache-2.0 */
/* Breadth-first search over all states: every state once, in a table of its own, with the number of
 * its parent. */
#include "base/hash.h"
#include "base/mem.h"
#include "tests/model/model.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct state) == sizeof(struct directory) + PROCS * sizeof(struct proc) +
                                           NODES * sizeof(struct disk) +
                                           WRITES * sizeof(struct write) + sizeof(struct late) + 3,
               "a state has no padding, so that it can be compared as bytes");

struct space {
    struct state *states;
    uint32_t *parents, *table; /* The table holds a state's number + 1; 0: empty. */
    size_t count, room, slots, max;
};

static size_t slot_of(const struct space *space, const struct state *s)
{
    size_t at = hash_xxh3_64(s, sizeof *s) & (space->slots - 1);
    while (space->table[at] != 0 &&
           memcmp(&space->states[space->table[at] - 1], s, sizeof *s) != 0) {
        at = (at + 1) & (space->slots - 1);
    }
    return at;
}

static void grow(struct space *space)
{
    space->room *= 2;
    space->slots *= 2;
    space->states = mem_realloc(space->states, space->room * sizeof *space->states);
    space->parents = mem_realloc(space->parents, space->room * sizeof *space->parents);
    mem_free(space->table);
    space->table = mem_zalloc(space->slots * sizeof *space->table);
    for (size_t i = 0; i < space->count; i++) {
        space->table[slot_of(space, &space->states[i])] = (uint32_t)i + 1;
    }
}

static void add(struct space *space, const struct state *s, size_t parent)
{
    size_t at = slot_of(space, s);
    if (space->table[at] != 0) {
        return;
    }
    space->states[space->count] = *s;
    space->parents[space->count] = (uint32_t)parent;
    space->table[at] = (uint32_t)++space->count;
    if (space->count == space->room) {
        grow(space);
    }
}

struct growth {
    struct space *space;
    size_t parent;
};

static void on_next(void *arg, const struct state *next, const char *label)
{
    struct growth *growth = arg;
    (void)label;
    add(growth->space, next, growth->parent);
}

struct wanted {
    const struct state *state;
    char label[160];
};

static void on_label(void *arg, const struct state *next, const char *label)
{
    struct wanted *wanted = arg;
    if (memcmp(next, wanted->state, sizeof *next) == 0) {
        (void)snprintf(wanted->label, sizeof wanted->label, "%s", label);
    }
}

static void print_trace(const struct space *space, size_t last)
{
    enum { TRACE_MAX = 256 };
    size_t path[TRACE_MAX], n = 0;
    for (size_t i = last; i != 0 && n < TRACE_MAX; i = space->parents[i]) {
        path[n++] = i;
    }
    for (size_t step = n; step-- > 0;) {
        struct wanted wanted = {.state = &space->states[path[step]]};
        struct steps to = {.now = &space->states[space->parents[path[step]]],
                           .emit = on_label,
                           .arg = &wanted,
                           .labels = true};
        model_steps(&to);
        model_faults(&to);
        (void)printf("#   %2zu %s\n", n - step, wanted.label);
    }
}

void model_init(struct state *s)
{
    memset(s, 0, sizeof *s);
    s->d = (struct directory){.home = S, .epoch = 1, .grant = 1, .copies = 2};
    s->disk[S].copy = 1;
    s->disk[S].follows = 1;
    unsigned nodes = model.bounds->replicas ? NODES : NODES - 1;
    for (unsigned n = 0; n < nodes; n++) {
        s->d.sess[n] = s->d.live[n] = 1;
        s->p[n] = (struct proc){.up = 1, .sess = 1, .lease = 1};
    }
    if (model.bounds->replicas) {
        s->d.sync = 1U << R;
        s->disk[R].copy = 2;
        s->disk[R].follows = 1;
    }
    s->p[S].epoch = 1;
    s->p[S].must = s->d.sync;
}

struct verdict model_explore(size_t states_max, bool trace)
{
    enum { ROOM = 1 << 14 };
    struct space space = {.room = ROOM, .slots = 4 * (size_t)ROOM, .max = states_max};
    space.states = mem_alloc(space.room * sizeof *space.states);
    space.parents = mem_alloc(space.room * sizeof *space.parents);
    space.table = mem_zalloc(space.slots * sizeof *space.table);
    struct verdict verdict = {.complete = true};
    struct state first;
    model_init(&first);
    add(&space, &first, 0);
    size_t level_end = 1;
    for (size_t i = 0; i < space.count; i++) {
        struct state now = space.states[i]; /* The array moves when it grows. */
        if (i == level_end) {
            verdict.depth++;
            level_end = space.count;
        }
        verdict.violation = model_violation(&now);
        if (verdict.violation != NULL) {
            if (trace) {
                print_trace(&space, i);
            }
            break;
        }
        if (space.count > space.max) {
            verdict.complete = false;
            break;
        }
        struct growth growth = {.space = &space, .parent = i};
        struct steps to = {.now = &now, .emit = on_next, .arg = &growth};
        model_steps(&to);
        model_faults(&to);
    }
    verdict.states = space.count;
    mem_free(space.states);
    mem_free(space.parents);
    mem_free(space.table);
    return verdict;
}
