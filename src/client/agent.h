/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's inside. Two threads: one keeps the session and its lease, the other reads orders and
 * runs the callbacks. What may_write reads is atomic; all else is under `lock`. */
#ifndef CLIENT_AGENT_H
#define CLIENT_AGENT_H

#include "client/decode.h"
#include "client/fetch.h"
#include "client/now.h"
#include "client/task.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    CL_BUCKETS = 1024,
    CL_SENDERS_MAX = 4,  /* reports on their way at the same time */
    CL_SEQ_BLOCK = 1000, /* sequence numbers that are reserved by one write to the disk */
    CL_TASKS_WAIT_MS = 10000,
    CL_PENDING_MS = 200, /* until a grant that was not ready is offered again */
    CL_RETRY_MS = 1000,
    CL_HEARTBEAT_MS = 3000,
    CL_HEARTBEAT_TRY_MIN_MS = 200
};

struct cadastre_partition {
    struct cadastre_partition *next; /* in its bucket */
    char keyspace[CADASTRE_NAME_MAX + 1];
    uint64_t id;
    /* epoch * 2, + 1 when the lease does not matter; 0: no writing. */
    _Atomic uint64_t may;
    _Atomic uint64_t known_epoch;      /* durable */
    _Atomic uint64_t revision;         /* of the order in force */
    pthread_mutex_t lock;              /* must_have; a leaf */
    uint64_t must_have_epoch;          /* 0: none */
    struct cadastre_member *must_have; /* owns */
    size_t must_have_count;
    uint64_t copy; /* that this node durably holds, 0: none; under the agent's lock */
    /* The order thread's alone: */
    uint64_t seen; /* the highest revision of a grant, fence or revoke acted on in this session */
    bool held;     /* granted in some role */
    bool told;     /* the application knows a grant of it, maybe of an earlier session */
    uint64_t grant_copy;
    struct cadastre_task *pending;        /* owns: a grant to offer again; or NULL */
    char stage_key[CADASTRE_ID_MAX + 96]; /* the last stage order that was handed over */
    uint64_t stage_seen;
    char duty_key[CADASTRE_ID_MAX + 32], fence_key[CADASTRE_ID_MAX + 64];
};

struct cl_sender {
    struct cl_fetch *fetch;
    bool busy;
};

struct cadastre_agent {
    _Atomic uint64_t session; /* 0: none */
    struct cl_until lease;    /* boot time */
    struct cadastre_agent_callbacks callbacks;
    void *arg;
    struct cl_hooks hooks;
    char node[CADASTRE_NAME_MAX + 1], *address, *data_dir; /* own */
    char *endpoints;
    json_t *labels, *capacity; /* own */
    uint64_t heartbeat_ms, timeout_ms;
    int lock_fd;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct cadastre_partition *buckets[CL_BUCKETS];
    uint64_t last_session;     /* on disk */
    uint64_t previous_session; /* the same of the process before, until it was named */
    uint64_t session_revision; /* orders of the present session are read from here on */
    uint64_t lease_ms;
    uint64_t next_seq, seq_reserved;
    uint64_t load_seq; /* of the last load report */
    uint64_t ended;    /* a session whose end is to be told; 0: none */
    bool expired, tell_expired, tell_renewed;
    bool started, stopping;
    struct cl_sender senders[CL_SENDERS_MAX];

    pthread_t lease_thread, order_thread;
    struct cl_fetch *lease_fetch, *order_fetch, *stop_fetch;
};

/* --- state on disk; the caller holds `lock` but for the first --- */

enum cadastre_status cl_state_open(struct cadastre_agent *a, struct cadastre_error *e);
/* Durable when it returns CADASTRE_OK; else the disk has what it had. */
enum cadastre_status cl_state_save(struct cadastre_agent *a, struct cadastre_error *e);
void cl_state_close(struct cadastre_agent *a);

/* --- partitions --- */

/* NULL when there is none and `make` is false. Holds `lock`. */
struct cadastre_partition *
cl_partition(struct cadastre_agent *a, const char *keyspace, uint64_t id, bool make);
/* Calls `fn` for all. Holds `lock`. */
void cl_partition_each(struct cadastre_agent *a,
                       void (*fn)(struct cadastre_partition *p, void *arg),
                       void *arg);

/* --- sending --- */

/* A free sender, or NULL when the deadline (boot time) came first. */
struct cl_sender *cl_sender_take(struct cadastre_agent *a, uint64_t deadline_ms);
void cl_sender_give(struct cadastre_agent *a, struct cl_sender *s);

/* --- threads --- */

void *cl_agent_keep(void *agent);
void *cl_agent_obey(void *agent);
/* The directory said that this session is over: no writing from here on. */
void cl_agent_session_over(struct cadastre_agent *a, uint64_t session);
/* Is the answer that? */
bool cl_session_ended(enum cadastre_status status, const struct cadastre_error *e);

#endif
