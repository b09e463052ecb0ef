/* SPDX-License-Identifier: Apache-2.0 */
/* A directory with its store in a temporary folder, commands at random for it, and what routes
 * showed at each revision: the naive model that history is held against. One thread. */
#ifndef TESTS_PAST_H
#define TESTS_PAST_H

#include "directory/store.h"
#include "tests/harness/tap.h"

/* One keyspace at one revision: a line of text for each route, in key order. */
struct past_route {
    uint64_t id;
    uint8_t *start; /* owns */
    size_t start_len;
    char *text; /* owns */
};

struct past_map {
    uint64_t keyspace;
    char name[DIR_NAME_MAX + 1];
    struct past_route *routes;
    uint64_t count;
};

struct past_state {
    struct past_map *maps;
    uint64_t count;
};

struct past {
    struct directory *d;
    struct store *s;
    char *folder, *path;
    uint64_t index, time_ms;
    struct tap_rand rand;
    bool remember;
    struct past_state *states; /* by revision */
    uint64_t state_count;
};

void past_open(struct past *w, uint64_t seed, bool remember);
void past_close(struct past *w);

/* Applies, publishes, pushes. Returns the outcome. */
enum err_code past_apply(struct past *w, Cadastre__Command *cmd);
/* Bootstrap, and `nodes` static nodes. */
void past_start(struct past *w, unsigned nodes);
enum err_code past_keyspace(struct past *w, const char *name, uint64_t hash_partitions);
/* A hash keyspace of many partitions, in chunks. */
void past_large(struct past *w, const char *name, uint64_t partitions);
enum err_code past_node(struct past *w, const char *name, const char *address);
enum err_code past_split(struct past *w, uint64_t partition, const void *at, size_t at_len);
enum err_code past_move(struct past *w, uint64_t partition, const char *to);
enum err_code past_delete(struct past *w, uint64_t keyspace);
enum err_code past_history_max(struct past *w, uint64_t revisions);
/* A command of any kind, most of them sensible. */
enum err_code past_random(struct past *w);

/* The partition at random, or NULL. Borrowed from the working state. */
const struct dir_partition *past_any_partition(struct past *w);

/* A version as the lines of past_route are. Caller frees. */
char *past_version_text(const struct store_version *v);

/* NULL when the keyspace was not there. */
const struct past_map *past_map_at(const struct past *w, dir_rev revision, uint64_t keyspace);

/* A whole snapshot of the store, one run of bytes. Caller frees. */
uint8_t *past_snapshot(struct past *w, size_t *ret_len);

#endif
