/* SPDX-License-Identifier: Apache-2.0 */
/* A node's partitions: what the agent is told of them, and what may be done with them. */
#ifndef SHARDKV_NODE_H
#define SHARDKV_NODE_H

#include "client/cadastre.h"
#include "examples/shardkv/kv.h"
#include "examples/shardkv/peer.h"

#include <pthread.h>
#include <stdatomic.h>

enum { WRITE_MS = 5000, JOBS_MAX = 1024, WORKERS = 8, MEMBERS_MAX = 16 };

struct part {
    struct part *next; /* parts are never freed */
    struct cadastre_partition *handle;
    char keyspace[CADASTRE_NAME_MAX + 1];
    uint64_t id;
    pthread_mutex_t writer; /* held by a primary's write from when it is applied to its answer */
    struct peer peer;       /* guarded by `writer`, like what follows */
    /* What was asked of the directory and is not in an order yet: see replicate.c. */
    struct cadastre_member wanted[MEMBERS_MAX];
    size_t wanted_count;
    uint64_t wanted_epoch;  /* 0: nothing */
    bool wanted_open;       /* a request's fate is not known */
    pthread_mutex_t repair; /* held while a copy is repaired; taken after `writer` */
    pthread_mutex_t lock;   /* guards what follows; taken last */
    struct kv *store;       /* NULL: no copy is open */
    enum cadastre_role role;
    uint64_t epoch, copy; /* of the grant */
    uint64_t start;       /* a primary's position when the epoch began */
    uint64_t validate_at; /* a position to sum up at, 0 none */
    bool validated;
    struct kv_sums sums;     /* when `validated` */
    bool moving;             /* an operation holds the partition */
    _Atomic uint64_t serial; /* of the last stage task */
};

struct job {
    struct job *next;
    struct part *part;
    struct cadastre_task *task; /* owns */
    uint64_t serial;            /* of a stage task: the part's, when it came */
};

struct node {
    struct cadastre_agent *agent;
    const char *data_dir, *endpoints;
    pthread_mutex_t lock; /* guards the lists */
    pthread_cond_t changed;
    struct part *parts;
    struct job *jobs;
    unsigned job_count;
    bool ending; /* the worker stops when its list is empty */
    _Atomic bool stopping;
};

/* What becomes of a request. */
enum outcome {
    DONE,
    WRONG_EPOCH, /* 421: the router has to look again */
    NOT_NOW,     /* 503: surely not applied */
    UNKNOWN,     /* 503: perhaps applied; the same mutation id may be sent again */
    MISSING,     /* 404 */
    ELSEWHERE    /* 409: the log does not go on from there */
};

/* The agent's callbacks, with the node as their argument. */
extern const struct cadastre_agent_callbacks node_callbacks;

/* NULL when nothing was ever heard of it. */
struct part *node_part(struct node *n, const char *keyspace, uint64_t id);

struct mutation {
    uint64_t epoch;
    const char *id, *key, *value;
};
/* As the primary: acknowledged (DONE) only when every node of the grant's must_have has it. */
enum outcome node_write(struct node *n,
                        struct part *p,
                        const struct mutation *m,
                        uint64_t *ret_position,
                        bool *ret_repeated);
/* `*ret_value` is for the caller to free. */
enum outcome node_read(struct node *n,
                       struct part *p,
                       uint64_t epoch,
                       const char *key,
                       char **ret_value,
                       uint64_t *ret_position);
/* As a copy: takes what the primary of `epoch` sends to this session (0: to any). */
enum outcome node_follow(struct node *n,
                         struct part *p,
                         uint64_t session,
                         const struct kv_batch *b,
                         uint64_t *ret_position);

/* Sums up if the position is the one to do so at. With `lock`. */
void node_capture(struct part *p);

/* Carries out what callbacks handed over, until node_end(). */
void *node_work(void *node);
/* Admits nothing more, waits for the writes that were admitted. */
void node_settle(struct node *n);
/* When the agent has stopped: ends node_work(). */
void node_end(struct node *n);
/* Closes what is open. */
void node_close(struct node *n);

/* The HTTP side (http.c). NULL when it can't listen. */
struct MHD_Daemon *http_start(struct node *n, const char *address);

#endif
