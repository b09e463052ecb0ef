/* SPDX-License-Identifier: Apache-2.0 */
/* libcadastre: Cadastre's client library. Two independent sides:
 *
 *   router  a cached map of one keyspace that follows the directory, for whoever sends requests
 *           to the nodes that hold the data: cadastre_route() costs nanoseconds and no I/O;
 *   agent   a data node's side: its session and lease, what it may write, the directory's orders
 *           and the reports on them.
 *
 * Threads: every function may be called from any thread unless it says otherwise; an object is
 * freed once, when no other thread uses it. Routers and agents have threads of their own; after
 * fork() a child may only exec. Strings are UTF-8 and end in NUL; keys are bytes. Text and memory
 * that is passed in is copied, unless a function says that it borrows. Times are milliseconds. A
 * function that waits is told for how long at the most, and never waits longer by more than what
 * scheduling costs. Running out of memory ends the process. No signal handler is installed and no
 * environment variable is read; call curl_global_init() yourself first if other threads of yours
 * use libcurl. */
#ifndef CADASTRE_H
#define CADASTRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define CADASTRE_KEY_MAX     1024 /* bytes of a key */
#define CADASTRE_NAME_MAX    63   /* of a keyspace's, node's or label's name */
#define CADASTRE_ADDRESS_MAX 255
#define CADASTRE_ID_MAX      63         /* of an operation's or task's id */
#define CADASTRE_PARENTS_MAX 2          /* partitions that one may have come of */
#define CADASTRE_NONE        UINT64_MAX /* a number that is not there */

enum cadastre_status {
    CADASTRE_OK = 0,
    CADASTRE_MISS,        /* not cached (yet) */
    CADASTRE_STALE,       /* older than allowed; or a report or epoch that has passed */
    CADASTRE_TIMEOUT,     /* not within the time given; a mutation's outcome is unknown */
    CADASTRE_UNAVAILABLE, /* no server answers, or none can: 5xx */
    CADASTRE_BUSY,        /* too much of this is going on: try again later */
    CADASTRE_NOT_FOUND,   /* the directory says that there is no such thing */
    CADASTRE_INVALID,     /* an argument, or the server's answer, makes no sense */
    CADASTRE_REFUSED,     /* the directory says no: 4xx; `code` says which */
    CADASTRE_DENIED,      /* 401 or 403 */
    CADASTRE_UNSUPPORTED, /* a keyspace's scheme this library does not know */
    CADASTRE_LOCKED,      /* another process uses the data directory */
    CADASTRE_IO,          /* a file of the data directory failed */
    CADASTRE_NO_SESSION,  /* the agent has no live session */
    CADASTRE_CLOSED       /* it is being stopped */
};

/* What went wrong, for a person (`detail`) and a program (`code`: the API's problem code, or "").
 */
struct cadastre_error {
    enum cadastre_status status;
    char code[48];
    char detail[256];
};

/* "ok", "miss", … Never NULL. */
const char *cadastre_status_name(enum cadastre_status status);
/* The version of the library, such as "0.1.0". */
const char *cadastre_version(void);

/* Writes the value of the Authorization header for a request to `server` (an origin such as
 * "http://10.0.0.1:7400"), with its NUL, to `out`; false sends none. Called before every request,
 * on a thread of the library, one call at a time, only for servers that are endpoints or members of
 * the cluster. */
typedef bool (*cadastre_credentials_fn)(void *arg, const char *server, char *out, size_t out_size);

/* Something worth a log line: `name` such as "router.endpoint.failed". On a thread of the library,
 * one call at a time; must not call the library. Both are borrowed for the call. */
typedef void (*cadastre_event_fn)(void *arg, const char *name, const char *detail);

enum cadastre_authority {
    CADASTRE_EXCLUSIVE =
        1,             /* at most one node writes, at the price of the directory's availability */
    CADASTRE_AFFINITY, /* goes on at the last epoch while the directory can't be reached */
    CADASTRE_STATIC    /* a node without an agent: nothing is promised */
};

enum cadastre_role {
    CADASTRE_ROLE_NONE = 0,
    CADASTRE_ROLE_PRIMARY,
    CADASTRE_ROLE_SYNC,
    CADASTRE_ROLE_ASYNC,
    CADASTRE_ROLE_JOINING
};

/* === Router ============================================================================= */

struct cadastre_router;

enum cadastre_router_mode {
    CADASTRE_WHOLE_MAP = 0, /* fetches the map once and follows every change */
    CADASTRE_LAZY           /* knows what was asked for, and follows changes to it */
};

/* Zero-initialise; a zero is the default everywhere. */
struct cadastre_router_options {
    const char *endpoints; /* "http://a:7400,http://b:7400": required, at most 32 */
    const char *keyspace;  /* required */
    enum cadastre_router_mode mode;
    /* A route is served without a word as long as the map was confirmed within this (by a server
     * that itself has heard from a leader); past it, cadastre_route() says CADASTRE_STALE. Default:
     * what each route says, 30 s. A larger value than that is cut to it. */
    uint64_t max_age_ms;
    uint64_t timeout_ms;  /* for one request, but for the map's download: default 5 s */
    uint64_t entries_max; /* lazy: routes kept at the most, default 65 536 */
    const char *ca_file;  /* of https servers; NULL: libcurl's default */
    cadastre_credentials_fn credentials; /* NULL: none */
    cadastre_event_fn event;             /* NULL: nothing */
    void *arg;                           /* of both */
};

enum cadastre_route_state {
    CADASTRE_ACTIVE = 1,
    CADASTRE_FENCING,   /* writes wait: authority is about to change hands */
    CADASTRE_NO_PRIMARY /* "unavailable" */
};

/* Where a key lives. A plain value in the caller's memory: nothing to free, valid for ever. */
struct cadastre_route {
    uint64_t partition;
    uint64_t epoch;        /* goes along with every request to the node */
    uint64_t mod_revision; /* changes with anything visible here */
    uint64_t age_ms;       /* since it was last known to be right */
    uint64_t rate_limit;   /* requests per second, 0: none */
    enum cadastre_route_state state;
    enum cadastre_authority authority;
    char node[CADASTRE_NAME_MAX + 1];       /* the primary's, "" without one */
    char address[CADASTRE_ADDRESS_MAX + 1]; /* the primary's, "" without one */
};

struct cadastre_replica {
    enum cadastre_role role;
    char node[CADASTRE_NAME_MAX + 1];
    char address[CADASTRE_ADDRESS_MAX + 1];
};

/* Starts the router's threads and returns at once: the map arrives in the background. NULL and `e`
 * (may be NULL) when the options make no sense. */
struct cadastre_router *cadastre_router_new(const struct cadastre_router_options *options,
                                            struct cadastre_error *e);
/* Stops and frees it; waits for its threads, which takes no longer than a callback of yours.
 * Accepts NULL. Callers of cadastre_route_wait() & co. must have returned. */
void cadastre_router_free(struct cadastre_router *r);

/* Waits until the map is there (lazy: until the keyspace is known). CADASTRE_OK, or why not:
 * CADASTRE_TIMEOUT, CADASTRE_NOT_FOUND, CADASTRE_DENIED, CADASTRE_UNSUPPORTED; `e` (may be NULL)
 * says more, among it what the last request failed with. */
enum cadastre_status
cadastre_router_ready(struct cadastre_router *r, uint64_t timeout_ms, struct cadastre_error *e);

/* The cached route of a key. No lock, no I/O, no waiting. CADASTRE_OK; CADASTRE_STALE, with the
 * last good route in `ret_route` (using it is safe where nodes check epochs); CADASTRE_MISS,
 * CADASTRE_NOT_FOUND (no such keyspace), CADASTRE_INVALID (longer than CADASTRE_KEY_MAX) without.
 */
enum cadastre_status cadastre_route(struct cadastre_router *r,
                                    const void *key,
                                    size_t key_len,
                                    struct cadastre_route *ret_route);

/* The same, but a route that is not cached, or stale, is fetched first, waiting up to
 * `timeout_ms`. */
enum cadastre_status cadastre_route_wait(struct cadastre_router *r,
                                         const void *key,
                                         size_t key_len,
                                         uint64_t timeout_ms,
                                         struct cadastre_route *ret_route);

/* A node refused a request that was routed at `used_epoch`, knowing `known_epoch` of the partition
 * (0: it did not say, or it could not be reached). Refreshes the routes of that range once, however
 * many callers say so at the same time and not more often than each 50 ms, and waits for it up to
 * `timeout_ms` (0: does not wait). A server that has not reached `known_epoch` is not listened to.
 * CADASTRE_OK: the route is newer than `used_epoch`, or was confirmed: call cadastre_route().
 * CADASTRE_TIMEOUT: not yet. CADASTRE_BUSY: too many ranges are being refreshed. Others: as
 * cadastre_route(). */
enum cadastre_status cadastre_router_stale(struct cadastre_router *r,
                                           const void *key,
                                           size_t key_len,
                                           uint64_t used_epoch,
                                           uint64_t known_epoch,
                                           uint64_t timeout_ms);

/* The partition's copies, the primary first; `*ret_count` is how many there are, of which up to
 * `max` are written. As cadastre_route() otherwise. */
enum cadastre_status cadastre_route_replicas(struct cadastre_router *r,
                                             const void *key,
                                             size_t key_len,
                                             struct cadastre_replica *ret_replicas,
                                             size_t max,
                                             size_t *ret_count);

/* Calls `fn` for the cached routes that overlap [start, end), in order, until it returns false;
 * `end` NULL is past the highest key. Bounds (borrowed) are routing keys: the key of a range
 * keyspace; the token, 8 bytes big-endian, and perhaps a key after it, of a hash keyspace. All are
 * of one moment. `fn` must be quick and not call the library. Returns how many it called. */
typedef bool (*cadastre_each_fn)(void *arg,
                                 const struct cadastre_route *route,
                                 const void *start,
                                 size_t start_len,
                                 const void *end, /* NULL: open */
                                 size_t end_len);
uint64_t cadastre_router_each(struct cadastre_router *r,
                              const void *start,
                              size_t start_len,
                              const void *end,
                              size_t end_len,
                              cadastre_each_fn fn,
                              void *arg);

struct cadastre_router_stats {
    uint64_t revision;  /* everything up to here has been seen */
    uint64_t entries;   /* routes cached */
    uint64_t age_ms;    /* since the map was last confirmed; CADASTRE_NONE: never */
    uint64_t maps;      /* whole maps fetched */
    uint64_t deltas;    /* answers with changes */
    uint64_t changes;   /* applied */
    uint64_t refreshes; /* requests for single routes */
    uint64_t refused;   /* answers older than what was cached */
    uint64_t failures;  /* requests that failed */
};
void cadastre_router_stats(struct cadastre_router *r, struct cadastre_router_stats *ret_stats);

/* XXH64 with seed 0: the hash of hash keyspaces. */
uint64_t cadastre_hash(const void *bytes, size_t len);

/* === Agent =============================================================================== */

struct cadastre_agent;
struct cadastre_partition; /* a partition as this node knows it; lives as long as its agent */

struct cadastre_label {
    const char *name, *value;
};

struct cadastre_capacity {
    const char *name; /* "bytes", "requests_per_s", "cpu", … */
    uint64_t value;
};

enum cadastre_task_kind {
    CADASTRE_GRANT = 1, /* this node holds the partition, in this role, at this epoch */
    CADASTRE_FENCE,     /* it must stop writing, and say at which position it stopped */
    CADASTRE_REVOKE,    /* it no longer holds it in any role */
    CADASTRE_STAGE,     /* it takes part in this stage of an operation */
    CADASTRE_CLEANUP    /* it owes the deletion of a copy */
};

enum cadastre_stage {
    CADASTRE_STAGE_NONE = 0,
    CADASTRE_STAGE_PREPARE,
    CADASTRE_STAGE_SNAPSHOT,
    CADASTRE_STAGE_COPY,
    CADASTRE_STAGE_CATCH_UP,
    CADASTRE_STAGE_DUAL_WRITE,
    CADASTRE_STAGE_VALIDATE,
    CADASTRE_STAGE_FENCE,
    CADASTRE_STAGE_CUTOVER,
    CADASTRE_STAGE_JOIN,
    CADASTRE_STAGE_WINDOW,
    CADASTRE_STAGE_CLEANUP,
    CADASTRE_STAGE_OTHER /* one that is newer than this library: see stage_name */
};

struct cadastre_member {
    char node[CADASTRE_NAME_MAX + 1];
    char address[CADASTRE_ADDRESS_MAX + 1];
    uint64_t session;
    /* Of a must_have: SYNC, or JOINING of a destination, which no insync can drop; else NONE. */
    enum cadastre_role role;
};

/* An order of the directory. What is not in it is "", CADASTRE_NONE, NULL or 0 by its type. */
struct cadastre_task {
    char id[CADASTRE_ID_MAX + 1];
    enum cadastre_task_kind kind;
    uint64_t revision; /* of the order: a later one of the same partition replaces it */
    uint64_t session;
    char keyspace[CADASTRE_NAME_MAX + 1];
    uint64_t partition;
    uint64_t epoch;
    enum cadastre_role role;
    enum cadastre_authority authority;
    bool fenced;
    bool end_open; /* there is no `end` */
    /* As the API writes bounds: of hash keyspaces, and of those whose keys are in hex, hex digits;
     * else the bytes themselves. Owned by the task. */
    const uint8_t *start, *end;
    size_t start_len, end_len;
    const struct cadastre_member *must_have; /* owned by the task; this node is not in it */
    size_t must_have_count;
    /* A replica cuts its log to this before it counts. Of a stage: up to here the destination's log
     * is the source's, from where a move back catches up. */
    uint64_t start_position;
    uint64_t copy; /* the id of the copy that this is about */
    uint64_t duty; /* CLEANUP: which duty of this node's it is */
    /* Of an operation: */
    char operation[CADASTRE_ID_MAX + 1];
    uint64_t attempt;
    enum cadastre_stage stage;
    char stage_name[32];
    bool is_source;              /* false: the destination */
    char snapshot[128];          /* its name, as the source reported it */
    uint64_t position;           /* of the snapshot */
    uint64_t final_position;     /* where the source stopped */
    uint64_t validate_at;        /* sum up when exactly this has been applied */
    uint64_t rate_bytes_per_s;   /* that the copy may take; it may change while it runs */
    struct cadastre_member peer; /* the other side */
    /* In WINDOW: the destination, which is the primary, sends its changes from `start_position` on
     * to the source, which keeps up as a read-only replica. */
    bool reverse;
    /* Of a grant: the partitions that this one came of by a split, a merge or the move of a part. A
     * node that held them has its data under their ids, and takes what lies in this range. */
    uint64_t parents[CADASTRE_PARENTS_MAX];
    size_t parent_count;
};

/* A copy that lives until cadastre_task_free(), for work on another thread. */
struct cadastre_task *cadastre_task_copy(const struct cadastre_task *task);
void cadastre_task_free(struct cadastre_task *task);
const char *cadastre_stage_name(enum cadastre_stage stage);

enum cadastre_session_event {
    CADASTRE_SESSION_STARTED = 1, /* grants follow */
    CADASTRE_SESSION_ENDED, /* nothing may be written any more; a new session is being asked for */
    CADASTRE_LEASE_EXPIRED, /* exclusive partitions may not be written until a heartbeat succeeds */
    CADASTRE_LEASE_RENEWED  /* after it had expired */
};

/* All are called on one thread of the agent, one at a time and in the order of the directory's
 * orders; they must not block for long, because the next order waits: hand work over with
 * cadastre_task_copy(). They may call the library, but not stop or free the agent. Any may be NULL.
 * `task` is borrowed for the call. */
struct cadastre_agent_callbacks {
    void (*session)(void *arg, enum cadastre_session_event event, uint64_t session);
    /* The epoch is stored durably by now, and every change of an earlier epoch must be refused from
     * here on. cadastre_may_write() allows writing after this returned true; false means not yet,
     * and it is called again, after a while or with a newer grant. Called again for a grant of the
     * same epoch that differs in must_have or role: what is acknowledged from its return on needs
     * the new must_have. A node that keeps the data records `task->copy` with
     * cadastre_agent_set_copy() before it returns true: what a later registration does not name is
     * taken for lost. */
    bool (*grant)(void *arg, struct cadastre_partition *p, const struct cadastre_task *task);
    /* cadastre_may_write() refuses by now. Settle what was admitted, then report `fenced`. */
    void (*fence)(void *arg, struct cadastre_partition *p, const struct cadastre_task *task);
    /* cadastre_may_write() refuses by now. The data stays until a cleanup says otherwise. What an
     * earlier session held and the new one does not is revoked as well. */
    void (*revoke)(void *arg, struct cadastre_partition *p, const struct cadastre_task *task);
    /* Once for every (operation, attempt, stage, revision). Do the stage's work and report. The
     * same stage once more, from the same peer, has another `rate_bytes_per_s`: go on at that. */
    void (*stage)(void *arg, struct cadastre_partition *p, const struct cadastre_task *task);
    /* Delete the copy `task->copy` and no other, then cadastre_agent_cleaned(). Not called for a
     * copy that the present grant names. A task with an operation is what that one waits for in its
     * stage CLEANUP: cadastre_agent_report() with old_epoch_writes and deleted_bytes, once
     * cadastre_agent_set_copy() has forgotten the copy, completes both. */
    void (*cleanup)(void *arg, struct cadastre_partition *p, const struct cadastre_task *task);
    cadastre_event_fn event;
};

struct cadastre_agent_options {
    const char *endpoints; /* as a router's */
    const char *node;      /* this node's name */
    const char *address;   /* where routers reach it */
    const struct cadastre_label *labels;
    size_t label_count;
    const struct cadastre_capacity *capacity;
    size_t capacity_count;
    /* A directory that exists and is this node's alone: the lock, and what must survive. */
    const char *data_dir;
    uint64_t heartbeat_ms; /* default 3 000, and never more than a third of the lease */
    uint64_t timeout_ms;   /* for one request: default 5 s */
    const char *ca_file;
    cadastre_credentials_fn credentials;
    struct cadastre_agent_callbacks callbacks;
    void *arg; /* of callbacks and credentials */
};

/* Takes the data directory's lock and reads what is stored there; talks to nobody yet. NULL and `e`
 * on CADASTRE_LOCKED, CADASTRE_IO, CADASTRE_INVALID. */
struct cadastre_agent *cadastre_agent_new(const struct cadastre_agent_options *options,
                                          struct cadastre_error *e);
/* Registers the node, in the background and for as long as it takes, and begins to follow orders.
 * Once. */
void cadastre_agent_start(struct cadastre_agent *a);
/* Writing ends at once; then the session is released, so that others may take over without waiting
 * for the lease: settle or drop what was admitted before you call this. CADASTRE_TIMEOUT and
 * others: it could not be released and will lapse. No callback runs after it. */
enum cadastre_status
cadastre_agent_stop(struct cadastre_agent *a, uint64_t timeout_ms, struct cadastre_error *e);
/* Stops without releasing when cadastre_agent_stop() was not called, gives the lock back, frees.
 * Accepts NULL. Reports that are under way must have returned. */
void cadastre_agent_free(struct cadastre_agent *a);

/* The present session, 0 without one. */
uint64_t cadastre_agent_session(const struct cadastre_agent *a);
/* Of the lease, by CLOCK_BOOTTIME; 0 when it ran out. */
uint64_t cadastre_agent_lease_left_ms(const struct cadastre_agent *a);

/* The handle of a partition; made when there is none. Never NULL. */
struct cadastre_partition *
cadastre_agent_partition(struct cadastre_agent *a, const char *keyspace, uint64_t partition);

/* May this node write to the partition as its primary at `epoch`, now? Ask at admission, before
 * applying and before acknowledging. No lock: a few atomic loads and, for exclusive partitions,
 * the clock. Says no up to 20 ms before the lease runs out. */
bool cadastre_may_write(struct cadastre_agent *a,
                        const struct cadastre_partition *p,
                        uint64_t epoch);
/* The epoch at which this node may write if its lease is good, 0 when it may not. No lock. */
uint64_t cadastre_partition_epoch(const struct cadastre_partition *p);
/* The highest epoch ever acted on, durable: a change of a lower one is refused. No lock. */
uint64_t cadastre_partition_known_epoch(const struct cadastre_partition *p);
/* The revision of the order in force: changes with must_have. No lock. */
uint64_t cadastre_partition_revision(const struct cadastre_partition *p);

/* Which nodes must have a write of `epoch` durably before it is acknowledged (beside this one).
 * Read it at admission; what is acknowledged needs that set, or the one read when
 * cadastre_partition_revision() has moved since. CADASTRE_OK; CADASTRE_STALE: that epoch is not the
 * granted one. `*ret_count` is how many there are, of which up to `max` are written. */
enum cadastre_status cadastre_must_have(const struct cadastre_partition *p,
                                        uint64_t epoch,
                                        struct cadastre_member *ret_members,
                                        size_t max,
                                        size_t *ret_count);

/* Reports on an operation's stage (kinds FENCE and STAGE). `fields` is a JSON object with what the
 * stage asks for, such as {"ready":true,"free_bytes":1000}; node, session, attempt, stage and seq
 * are added. Waits for the answer, and sends the same report again as long as its fate is unknown.
 * CADASTRE_OK; CADASTRE_STALE: the directory has moved on, forget it; CADASTRE_REFUSED;
 * CADASTRE_TIMEOUT; CADASTRE_NO_SESSION: the task is of an earlier session. */
enum cadastre_status cadastre_agent_report(struct cadastre_agent *a,
                                           const struct cadastre_task *task,
                                           const char *fields,
                                           uint64_t timeout_ms,
                                           struct cadastre_error *e);
/* The copy of a CLEANUP task is gone: forgets it durably and tells the directory. */
enum cadastre_status cadastre_agent_cleaned(struct cadastre_agent *a,
                                            const struct cadastre_task *task,
                                            uint64_t deleted_bytes,
                                            uint64_t timeout_ms,
                                            struct cadastre_error *e);
/* Asks the directory for another in-sync set, as the partition's primary at `epoch`. Nothing
 * changes here until the order that says so arrives as a grant. CADASTRE_REFUSED when the partition
 * has changed since the order that this node acts on: read the newer order, then ask again. */
enum cadastre_status cadastre_agent_insync(struct cadastre_agent *a,
                                           const struct cadastre_partition *p,
                                           uint64_t epoch,
                                           const char *const *nodes,
                                           size_t count,
                                           uint64_t timeout_ms);

/* What a partition was asked for during an interval. Counts are of the interval, sizes as they are
 * now. What is not in `has` is not known, which is not 0. */
enum {
    CADASTRE_LOAD_ERRORS = 1 << 0,
    CADASTRE_LOAD_THROTTLES = 1 << 1,
    CADASTRE_LOAD_CACHE_MISSES = 1 << 2,
    CADASTRE_LOAD_BACKGROUND_BYTES = 1 << 3,
    CADASTRE_LOAD_QUEUE = 1 << 4,
    CADASTRE_LOAD_STORAGE_LATENCY = 1 << 5,
    CADASTRE_LOAD_ITEMS = 1 << 6,
    CADASTRE_LOAD_TOMBSTONES = 1 << 7,
    CADASTRE_LOAD_KEYS_MAX = 64,
    CADASTRE_LOAD_BY_MAX = 16
};
struct cadastre_load_key {
    const char *key, *end; /* as the keyspace's key_encoding writes them; `end` NULL: no range */
    size_t key_len, end_len;
    uint64_t weight; /* requests that this one stands for, or their cost; at least 1 */
};
/* Of the reads and writes, those of an operation that ended so. Names are as those of keyspaces
 * ("get", "ok"; what is not "ok" is taken to have gone wrong), and none comes twice. */
struct cadastre_load_by {
    const char *operation, *outcome;
    const char *tenant; /* NULL: none is told apart */
    uint64_t requests;  /* all together at most reads and writes */
};
struct cadastre_load {
    const char *keyspace;
    uint64_t partition;
    uint64_t epoch; /* in force during the whole interval: else leave the partition out */
    uint64_t reads, writes, read_bytes, write_bytes, cpu_ms, size_bytes;
    uint32_t has; /* CADASTRE_LOAD_… of those below */
    uint64_t errors, throttles, cache_misses, background_bytes, queue_ms_p99;
    uint64_t storage_latency_ms_p99, items, tombstones;
    const struct cadastre_load_key *keys; /* a sample of the keys asked for */
    size_t key_count;
    const struct cadastre_load_by *by; /* what they were, if that is counted */
    size_t by_count;                   /* at most CADASTRE_LOAD_BY_MAX, beyond they are not sent */
};
struct cadastre_load_report {
    uint64_t interval_ms; /* 100 to 600000 */
    const struct cadastre_load *loads;
    size_t count;
    const char *node; /* a JSON object, such as {"cpu":2.5,"latency_ms_p99":8}; or NULL */
};
/* Tells the directory the load of partitions that this node holds, in as many requests as it takes.
 * `*ret_counted` (may be NULL): of how many it was taken; the others have moved on. One thread at a
 * time. CADASTRE_OK; CADASTRE_NO_SESSION; CADASTRE_REFUSED: `e` says which value is not believed;
 * CADASTRE_TIMEOUT: it may have counted in part. Never needed for correctness: on any failure go
 * on, and report the next interval. */
enum cadastre_status cadastre_agent_report_load(struct cadastre_agent *a,
                                                const struct cadastre_load_report *report,
                                                uint64_t timeout_ms,
                                                size_t *ret_counted,
                                                struct cadastre_error *e);

/* Which copy of a partition this node durably holds: what it registers with, and what a cleanup is
 * checked against. Stored durably when it returns; `copy` 0 forgets it. */
enum cadastre_status cadastre_agent_set_copy(struct cadastre_agent *a,
                                             const char *keyspace,
                                             uint64_t partition,
                                             uint64_t copy);
/* 0 when it holds none. */
uint64_t cadastre_agent_copy(struct cadastre_agent *a, const char *keyspace, uint64_t partition);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
