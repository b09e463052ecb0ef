/* SPDX-License-Identifier: Apache-2.0 */
/* A node's partitions: what the agent is told of them, and what may be done with them. */
#ifndef SHARDKV_NODE_H
#define SHARDKV_NODE_H

#include "client/cadastre.h"
#include "examples/shardkv/kv.h"
#include "examples/shardkv/meter.h"
#include "examples/shardkv/peer.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    WRITE_MS = 5000,
    JOBS_MAX = 1024,
    WORKERS = 8,
    MEMBERS_MAX = 16,
    SNAPSHOT_KEPT_MS = 30000, /* after it was last asked for, while nothing moves */
    SCHEMA_VERSION = 2        /* of the files: both sides of a move have the same */
};

enum derived { DERIVED_NOT, DERIVING, DERIVED_FAILED };

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
    char *low, *high;       /* own: the range; low NULL: not known; high NULL: open */
    enum cadastre_role role;
    uint64_t epoch, copy; /* of the grant */
    uint64_t start;       /* a primary's position when the epoch began */
    uint64_t validate_at; /* a position to sum up at, 0 none */
    bool validated;
    char *sum_low, *sum_high; /* own: of what range; low NULL: of all */
    struct kv_sums sums;      /* when `validated` */
    bool moving;              /* an operation holds the partition */
    bool window;              /* it is in WINDOW, and this is the other side, once that is known: */
    char way_back[CADASTRE_NAME_MAX + 1];
    bool back_flows;           /* this primary's changes go to the other side */
    bool gap;                  /* this copy is behind its primary's log: it wants a snapshot */
    uint64_t drained;          /* an epoch that reads are still served at, though it is over */
    uint64_t fenced, final;    /* an epoch that was fenced, and its last position */
    uint64_t late_told;        /* how many writes after that a cleanup has reported */
    uint64_t snapshot_used_ms; /* when a snapshot was last asked for */
    uint64_t items, items_ms;  /* as they were last counted, and when */
    struct meter meter;        /* has its own lock */
    _Atomic uint64_t open_operations, stale_reads;
    _Atomic bool joining;    /* by its last grant */
    _Atomic int derived;     /* enum derived */
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
    const char *data_dir, *endpoints, *address;
    uint64_t log_keep;
    uint64_t free_bytes;  /* for tests: no more than that is free */
    uint64_t report_ms;   /* the load is reported so often */
    uint64_t damage;      /* for tests: each so many-th chunk that is sent is damaged, 0 none */
    pthread_mutex_t lock; /* guards the lists */
    pthread_cond_t changed, ended;
    struct part *parts;
    struct job *jobs;
    unsigned job_count;
    bool ending; /* the workers stop when their list is empty */
    _Atomic bool stopping, collect;
    pthread_mutex_t collecting; /* one collects at a time, and others wait until it has */
    _Atomic uint64_t chunks_sent;
};

/* What becomes of a request. */
enum outcome {
    DONE,
    WRONG_EPOCH, /* 421: the router has to look again */
    WRONG_RANGE, /* 421: the key is another partition's */
    NOT_NOW,     /* 503: surely not applied */
    UNKNOWN,     /* 503: perhaps applied; the same mutation id may be sent again */
    MISSING,     /* 404 */
    ELSEWHERE,   /* 409: the log does not go on from there */
    GAP          /* 410: no log leads there */
};

/* The agent's callbacks, with the node as their argument. */
extern const struct cadastre_agent_callbacks node_callbacks;

/* NULL when nothing was ever heard of it. */
struct part *node_part(struct node *n, const char *keyspace, uint64_t id);
/* The newest; follow `next`. */
struct part *node_parts(struct node *n);

/* A disk that fails, or a file that is not what it should be: nothing that was promised can be kept
 * from here on, so the node must not go on. Its session lapses. */
_Noreturn void node_die(const struct part *p, const char *what);

/* Hands the task to a worker. False: there are too many. */
bool node_hand_over(struct node *n, struct part *p, const struct cadastre_task *t, uint64_t serial);
/* Carries out what was handed over, until node_end(). */
void *node_work(void *node);
/* When the agent has stopped: ends node_work(). */
void node_end(struct node *n);
/* Closes what is open. */
void node_close(struct node *n);

/* --- requests (request.c) --- */

struct mutation {
    uint64_t epoch;
    const char *id, *key, *value;
};
/* As the primary: acknowledged (DONE) only when every node of the grant's must_have has it. A key
 * of "" changes no item. */
enum outcome node_write(struct node *n,
                        struct part *p,
                        const struct mutation *m,
                        uint64_t *ret_position,
                        bool *ret_repeated);
struct value {
    char *text; /* for the caller to free */
    uint64_t position;
    bool stale; /* of an epoch that is over, by the source of a move in its WINDOW */
};
enum outcome
node_read(struct node *n, struct part *p, uint64_t epoch, const char *key, struct value *ret);
/* As a copy: takes what the primary of `epoch` sends to this session (0: to any). */
enum outcome node_follow(struct node *n,
                         struct part *p,
                         uint64_t session,
                         const struct kv_batch *b,
                         uint64_t *ret_position);
/* As a copy: takes the next chunk of a snapshot. GAP: the whole was damaged, it begins anew. */
enum outcome node_install(struct node *n, struct part *p, uint64_t epoch, const struct kv_chunk *c);
/* Sums up if the position is the one to do so at. With `lock`. */
void node_capture(struct part *p);
/* Admits nothing more, waits for the writes that were admitted. */
void node_settle(struct node *n);

/* --- HTTP (http.c) --- */

/* NULL when it can't listen. */
struct MHD_Daemon *http_start(struct node *n, const char *address);

#endif
