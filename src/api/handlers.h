/* SPDX-License-Identifier: Apache-2.0 */
/* What the handlers share: the API's state, and the conventions of every request (openapi.yaml,
 * "Conventions").
 *
 * Handlers run on the worker thread of their exchange. A handler that says "answers" has replied,
 * parked the exchange or started a stream when it returns. */
#ifndef API_HANDLERS_H
#define API_HANDLERS_H

#include "api/api.h"
#include "api/http.h"
#include "api/json.h"

#include <stdatomic.h>

enum {
    API_TIMEOUT_DEFAULT_MS = 5000,
    API_TIMEOUT_MAX_MS = 60000,
    API_COMMAND_TIMEOUT_MS = 30000, /* then the outcome is unknown */
    API_LIMIT_DEFAULT = 1000,
    API_LIMIT_MAX = 10000,
    API_BATCH_MAX = 10000,  /* keys, or routes, of one request */
    API_BACKUPS_MAX = 4,    /* made or downloaded at once; more are 503 */
    API_COUNTED_MAX = 65536 /* partitions looked through for a count; beyond, it is left out */
};

struct cursors;
struct jobs;
struct patch_gate;
struct watchers;

struct api {
    struct control *control;
    struct http_server *http;
    struct cursors *cursors;
    struct jobs *jobs;
    struct watchers *watchers;
    char *version, *scratch_dir;
    uint64_t election_ms, started_ms;
    _Atomic unsigned backups;
    _Atomic uint64_t skewed; /* partitions that GET /v1/skew has in memory, or will: h_skew.c */
    _Atomic bool simulates;  /* one at a time */
    struct patch_gate *patches;
};

/* The contract, embedded when the server is built. */
extern const char openapi_yaml[];
extern const size_t openapi_yaml_len;

/* --- state of an exchange that waits (exchange.h has the rest) --- */

const struct dir_published *api_slot(const struct exchange *x);

/* --- query parameters: false when the value is wrong, which has been answered with 400 --- */

bool param_u64(struct exchange *x, const char *name, uint64_t min, uint64_t max, uint64_t *value);
bool param_flag(struct exchange *x, const char *name, bool *value);
/* Copies the value as a string; false also when it is longer than size - 1 or holds NUL. "" when
 * absent. */
bool param_text(struct exchange *x, const char *name, char *out, size_t size);
/* How many variables the matched path has. */
unsigned path_count(const struct exchange *x);
/* A path variable as an id; false when it isn't one (not answered). */
bool path_id(const struct exchange *x, unsigned i, uint64_t *ret_id);

/* --- answers --- */

void reply_problem(struct exchange *x, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* 404 of this code with the revision at which it is so. */
void reply_missing(struct exchange *x,
                   const struct dir_view *v,
                   enum err_code code,
                   const char *fmt,
                   ...) PRINTF_LIKE(4, 5);
/* For the members of a problem: the revision that it shows, with its header. */
void put_revision(struct exchange *x, struct buf *out, dir_rev revision);
/* 503 of this code with the present revision and the leader. */
void reply_unavailable(struct exchange *x, enum err_code code, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* 410 compacted, with revision and generation. */
void reply_compacted(struct exchange *x, const struct dir_view *v, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* 307 to the leader's API, or 503 no_leader when `url` is "" or this server's own. */
void reply_to_leader(struct exchange *x, const char *url);
/* 410 partition_retired or 404 partition_not_found for an id that is not in the map. */
void reply_no_partition(struct exchange *x,
                        const struct dir_view *v,
                        const struct dir_tombstone *tombstone);
/* Cadastre-Revision and Cadastre-Staleness-Ms. */
void set_read_headers(struct exchange *x, dir_rev revision);
/* 200 of what is in exchange_out(), as JSON, with the headers of a read. */
void reply_read(struct exchange *x, dir_rev revision);
/* Whether If-None-Match names this entity tag (given with its quotes). */
bool etag_matches(const struct exchange *x, const char *etag);
/* Sets ETag; when If-None-Match has it, answers 304 and returns true. */
bool reply_not_modified(struct exchange *x, const char *etag, dir_rev revision);
/* 1000 to 3000, different at each call. */
uint64_t jitter_ms(void);

/* --- reads: read.c --- */

/* Called inside view_enter(): `v` lives until it returns. Answers. */
typedef void (*read_fn)(struct exchange *x, const struct dir_view *v);

/* Runs `fn` once the published view is what consistency, min_revision and max_staleness_ms ask for;
 * else answers itself. */
void read_begin(struct exchange *x, read_fn fn);
/* The same outside of any view, for streams: `fn` pins one. */
void read_begin_pinning(struct exchange *x, void (*fn)(struct exchange *x));
/* As read_begin() with consistency=linearizable whatever the request says. */
void read_begin_linearizable(struct exchange *x, read_fn fn);

/* The keyspace of path variable 0, or NULL after a 404. */
const struct dir_keyspace *read_keyspace(struct exchange *x, const struct dir_view *v);
/* The partition of path variable 1, or NULL after a 404 or 410. */
const struct dir_partition *
read_partition(struct exchange *x, const struct dir_view *v, const struct dir_keyspace *ks);

/* A range of bounds given by parameters start and end. */
struct bounds {
    uint8_t start[DIR_ROUTING_KEY_MAX], end[DIR_ROUTING_KEY_MAX];
    size_t start_len, end_len;
    bool end_open;
};
/* False when answered: they don't decode, or the range is empty. */
bool param_bounds(struct exchange *x, const struct dir_keyspace *ks, struct bounds *ret_bounds);
/* One of a body, in memory of the exchange. */
enum err_code bound_read(struct exchange *x,
                         const struct dir_keyspace *ks,
                         const json_t *text,
                         const char *pointer,
                         struct slice *ret,
                         struct err *e) MUST_CHECK;
/* The bounds of a body's array, in memory of the exchange; NULL with the pointer of the wrong one.
 */
struct slice *bounds_read(struct exchange *x,
                          const struct dir_keyspace *ks,
                          const json_t *array,
                          const char *member,
                          struct err *e) MUST_CHECK;
/* protobuf-c wants pointers to what is not const; commands are only read and copied. */
ProtobufCBinaryData bytes_lent(struct slice s);

/* --- mutations: mutate.c --- */

struct mutation;
/* Answers from the result alone, so that a replay gives the same bytes. The result is no refusal.
 */
typedef void (*mutation_render)(struct exchange *x,
                                const struct mutation *m,
                                const struct dir_result *r);

/* Lives as long as the exchange. */
struct mutation {
    Cadastre__Command
        command; /* the handler sets its body; what it points to lives until it is submitted */
    mutation_render render;
    json_t *body;      /* {} when there was none */
    struct json_in in; /* of the body */
    struct err err;
    uint8_t digest[16];
    char idempotency_key[DIR_IDEMPOTENCY_KEY_MAX + 1];
    /* Runs once the outcome is there, or is given up, before the answer; NULL: nothing. */
    void (*settled)(void *arg);
    void *settled_arg;
    /* A creation in chunks. */
    const struct slice *bounds;
    uint64_t bound_count;
    bool chunked;
};

/* Checks that this server leads, the idempotency key and the body, and answers a replay. NULL when
 * answered. `verb` and the path's variables say what the request is, for the digest. */
struct mutation *mutation_begin(struct exchange *x, const char *verb, mutation_render render);
/* Takes expect_revision, and closes the body: false when answered with 400. */
bool mutation_close(struct exchange *x, struct mutation *m);
/* Takes expect_epoch into the two fields of a partition command. */
void mutation_expect_epoch(struct mutation *m, protobuf_c_boolean *has, uint64_t *epoch);
/* The keyspace of path variable 0 (and the partition's id of variable 1) in the present state: for
 * refusing early. False when answered. */
bool mutation_keyspace(struct exchange *x, uint64_t *ret_id);
bool mutation_partition(struct exchange *x, uint64_t *ret_id);
/* Runs it; answers when the outcome is there. */
void mutation_submit(struct exchange *x, struct mutation *m);
/* 200 {"revision":R}. */
void render_revision(struct exchange *x, const struct mutation *m, const struct dir_result *r);
/* What another thread's outcome becomes: answers for ERR_NOT_LEADER and the 503s; false for ERR_OK.
 */
bool reply_outcome(struct exchange *x, enum err_code status, const char *leader_url);
/* Whether this server leads; else answers with the redirect. */
bool leads(struct exchange *x);

/* Hands a control outcome from the loop to the worker of `ticket`. */
struct handover {
    struct exchange_ticket *ticket;
    enum err_code status;
    struct dir_result *result; /* owns; or NULL */
    char leader_url[DIR_ADDRESS_MAX + 1];
};
/* Parks the exchange with `ready`, whose argument is the struct handover, to be freed with
 * handover_free(). */
struct handover *
handover_park(struct exchange *x, exchange_ready ready, exchange_gone gone, uint64_t timeout_ms);
void handover_done(void *handover, const struct control_outcome *outcome); /* a control_done */
/* The call was refused at once: `ready` runs with this status. */
void handover_refused(struct handover *h, enum err_code status);
void handover_free(void *handover);

/* --- long work off the workers: jobs.c --- */

/* Two for reads, and one more that a simulation may hold: of those there is one at a time. */
enum { JOBS_THREADS = 3, JOBS_QUEUE_MAX = 64 };

struct job {
    struct api *api;
    /* Runs on a job thread; writes to out, err, revision and its own fields; never touches the
     * exchange. */
    void (*work)(struct job *job);
    /* Runs on the worker after it, unless the exchange has ended. */
    void (*answer)(struct exchange *x, struct job *job);
    /* Frees what the job's own fields own; may be NULL. */
    void (*close)(struct job *job);
    struct buf out;
    struct err err; /* code ERR_OK at first */
    dir_rev revision;
    struct exchange_ticket *ticket;
};

struct jobs *jobs_new(struct api *api);
/* Ends the threads; jobs that wait are dropped. */
void jobs_free(struct jobs *j);
/* Whether work that takes long has to end. Any thread. */
bool jobs_stopping(struct jobs *j);
/* A zeroed job of `size` bytes, a struct that begins with struct job. */
void *job_new(struct exchange *x, size_t size);
/* Parks the exchange and queues the job, which is freed after its answer; 503 when the queue is
 * full. */
void job_start(struct exchange *x, struct job *job);
/* The same at once, on the worker, for one that is known to be short. */
void job_run(struct exchange *x, struct job *job);
/* For `answer`: replies out, or the problem in err. */
void job_reply(struct exchange *x, struct job *job);

/* --- lists: cursor.c --- */

enum { CURSOR_VIEWS_MAX = 64, CURSOR_TTL_MS = 60000 };

struct cursors *cursors_new(void);
void cursors_free(struct cursors *c);
/* Lets go of views that expired. Any thread. */
void cursors_sweep(struct cursors *c);

enum listing_of {
    LIST_KEYSPACES = 1,
    LIST_PARTITIONS,
    LIST_ROUTES,
    LIST_NODES,
    LIST_OPERATIONS,
    LIST_SERVERS,
    LIST_WATCHERS,
    LIST_AUDIT,
    LIST_DIFF,
    LIST_REPLICATION,
    LIST_PROPOSALS
};

/* One page of a list. */
struct listing {
    const struct dir_view *view; /* pinned; the same one for all pages */
    enum listing_of of;
    uint64_t scope;   /* what is listed: a hash of path and filters, which a cursor must match */
    dir_rev revision; /* of the first page */
    uint64_t limit, count;
    bool pinned;
    bool resumed; /* `position` is where the next page begins */
    size_t position_len;
    uint8_t position[DIR_ROUTING_KEY_MAX];
};

/* Reads limit and cursor and pins the view. False when answered; otherwise listing_end() is owed.
 * `scope` is computed from the path's variables and the parameters named (NULL-terminated; may be
 * NULL). A list that lives outside the directory (pinned false) keeps its revision only as a
 * number. */
bool listing_begin(struct exchange *x,
                   enum listing_of of,
                   const char *const *filters,
                   bool pinned,
                   struct listing *ret);
/* Writes ,"next":"…" for a page that goes on at `position`, and keeps the view for it. */
void listing_next(struct exchange *x, struct listing *l, struct slice position);
/* job_reply() of a listing: the job has written an object but for its end, and the next page begins
 * at `next` (empty: there is none). */
void job_reply_page(struct exchange *x, struct job *job, struct listing *l, struct slice next);
void listing_end(struct listing *l);
/* A number in the position (ptree_u64_key), 0 when there is none. */
uint64_t listing_u64(const struct listing *l, size_t offset);

#endif
