/* SPDX-License-Identifier: Apache-2.0 */
/* A directory to send commands to, for tests of the state machine. Each command is encoded, applied
 * and published as the only one of its entry. The rows that its effects name are kept, so that a
 * second directory can be loaded. */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H

#include "directory/directory.h"

struct world {
    struct directory *d;
    uint64_t index, time_ms;
    struct ptree rows;           /* kind and id -> row */
    bool rows_consistent;        /* every `before` was the row that was there */
    struct dir_result *result;   /* of the last command, owned */
    struct dir_effects *effects; /* of the last command, owned */
    /* For the next command only. */
    const char *principal, *key;
    const uint8_t *digest;
    bool has_expect;
    uint64_t expect;
    /* The last command, encoded. */
    uint8_t *bytes;
    size_t len;
};

void world_open(struct world *w);
void world_close(struct world *w);

/* Borrowed until the next command. `body` is the message that `which` says. */
const struct dir_result *world_do(struct world *w, Cadastre__Command__BodyCase which, void *body);
/* What apply would say to the same. The caller owns it. */
struct dir_result *world_try(struct world *w, Cadastre__Command__BodyCase which, void *body);
const struct dir_result *world_apply(struct world *w, const uint8_t *bytes, size_t len);

static inline const struct dir_view *world_state(const struct world *w)
{
    return directory_state(w->d);
}

/* A new directory loaded from the rows and scalars; NULL with the reason. */
struct directory *world_reload(const struct world *w, struct err *e);
/* Prints the violations as notes; returns how many. */
uint64_t world_check(const struct dir_view *v);
/* Its invariants hold, and it is the same when it is loaded from its rows; then it is closed. */
void world_close_checked(struct world *w);

/* Commands that many tests want. */
const struct dir_result *world_node(struct world *w, const char *name, const char *address);
const struct dir_result *world_zoned(struct world *w, const char *name, const char *zone);
const struct dir_result *world_range(struct world *w, const char *name);
const struct dir_result *world_hash(struct world *w, const char *name, uint64_t partitions);
const struct dir_result *world_split(struct world *w, uint64_t partition, const char *at);
const struct dir_result *world_merge(struct world *w, uint64_t partition, uint64_t with);
const struct dir_result *world_move(struct world *w, uint64_t partition, const char *to);
const struct dir_keyspace *world_keyspace(const struct world *w, const char *name);
/* The partition that holds this key. */
const struct dir_partition *world_at(const struct world *w, const char *keyspace, const char *key);

#endif
