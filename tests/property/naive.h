/* SPDX-License-Identifier: Apache-2.0 */
/* A naive directory: sorted lists of ranges, written from the API's text, that foretells what
 * commands come to. Shares nothing with src/directory but names of outcomes, roles and limits. */
#ifndef TESTS_NAIVE_H
#define TESTS_NAIVE_H

#include "base/err.h"
#include "directory/types.h"

enum { KEY_MAX = 6, NODES = 6, KEYSPACES = 3, PARTS_MAX = 300, RETIRED_MAX = 512, COPIES = 3 };

struct key {
    uint8_t bytes[KEY_MAX];
    size_t len;
};

struct copy {
    int node;
    uint8_t role;
};

struct part {
    uint64_t id, epoch, limit;
    struct key start, end;
    bool open, pinned;
    struct copy copies[COPIES + 1];
    int copy_count;
};

struct keyspace {
    bool exists, zoned; /* zoned: only nodes of zone "a" */
    uint64_t id;
    unsigned sync;
    struct part parts[PARTS_MAX];
    int count;
};

struct node {
    bool exists, is_static;
    int zone, address; /* zone 0 is "a" */
};

struct retired {
    uint64_t id;
    int keyspace;
    uint64_t keyspace_id;
};

struct model {
    struct keyspace keyspaces[KEYSPACES];
    struct node nodes[NODES];
    struct retired retired[RETIRED_MAX];
    uint64_t retired_count;
    uint64_t revision;
};

/* A partition command's target, its expectation of the epoch, and what comes of those two. */
struct target {
    uint64_t id;
    struct part *part;
    int keyspace;
    bool has_epoch;
    uint64_t epoch;
    enum err_code code;
};

int key_compare(const struct key *a, const struct key *b);
bool part_inside(const struct part *p, const struct key *k);
bool part_has_primary(const struct part *p);
int part_copy_on(const struct part *p, int node);
int model_copies(const struct model *m, int node);
struct part *model_find(struct model *m, uint64_t id, int *ret_keyspace);
void model_retire(struct model *m, uint64_t id, int keyspace);
bool model_may_hold(const struct model *m, const struct keyspace *ks, int node);
void keyspace_make_room(struct keyspace *ks, int at, int more);
enum err_code judge_id(struct model *m, uint64_t id, struct part **ret_part, int *ret_ks);
enum err_code judge_keys(const struct part *p, const struct key *keys, size_t n);
enum err_code judge_merge(const struct part *p, const struct part *q, bool one_keyspace);
enum err_code judge_move(const struct model *m, const struct target *t, int from, int to);
enum err_code judge_node(const struct model *m, int n, const struct node *next);

#endif
