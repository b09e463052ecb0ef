/* SPDX-License-Identifier: Apache-2.0 */
/* The router's inside. Two threads: one follows the keyspace's changes, the other fetches single
 * routes for whoever waits for them. Both change the map, under `writing`; readers never lock. */
#ifndef CLIENT_ROUTER_H
#define CLIENT_ROUTER_H

#include "client/decode.h"
#include "client/fetch.h"
#include "client/map.h"

enum {
    CL_FLIGHTS_MAX = 256,   /* ranges that are refreshed at the same time */
    CL_BATCH_MAX = 128,     /* of them in one request */
    CL_COOL_MS = 50,        /* between two refreshes of a range */
    CL_CHANGES_MAX = 1000,  /* in one answer */
    CL_CUT_BYTES = 1 << 20, /* a longer one may have been cut by its size */
    CL_MAX_AGE_MS = 30000,
    CL_AGE_PARTS = 6, /* how often within max_age_ms the map is confirmed */
    CL_WAIT_MIN_MS = 20,
    CL_GAP_MS = 5,      /* between answers while changes keep coming */
    CL_BEHIND_MS = 500, /* how long a server may take to reach an epoch */
    CL_WAIT_MAX_MS = 20000,
    CL_ENTRIES_DEFAULT = 65536,
    CL_VALIDATE_MAX = 10000, /* routes in one request that asks whether they are good */
    CL_SULK_MS = 1000        /* after an answer that another try does not better */
};

/* One refresh of a range, and who waits for it. */
struct cl_flight {
    bool used;
    enum { FLIGHT_WAITS, FLIGHT_FLIES, FLIGHT_DONE } state;
    unsigned waiters;
    uint64_t rounds;        /* completed */
    uint64_t wanted;        /* waits for round `wanted`, which begins after what was asked last */
    uint64_t partition;     /* of the entry that is in doubt; CADASTRE_NONE: none was cached */
    uint64_t known_epoch;   /* a server that has not reached it is not listened to */
    uint64_t flying_epoch;  /* the same of the round under way */
    uint64_t not_before_ms; /* boot time */
    enum cadastre_status status; /* of the last round */
    size_t key_len;
    uint8_t key[CADASTRE_KEY_MAX];
};

struct cadastre_router {
    struct cl_map map;
    _Atomic(struct cl_codec *)
        codec;                     /* owns, with those before it; set when `state` is CADASTRE_OK */
    _Atomic int state;             /* enum cadastre_status: CADASTRE_MISS until it is known */
    _Atomic uint64_t confirmed_ms; /* boot time when all of the map was right; 0: never */
    uint64_t max_age_ms;
    char keyspace[CADASTRE_NAME_MAX + 1];
    bool lazy;
    uint64_t entries_max, timeout_ms;
    struct cl_hooks hooks;

    pthread_mutex_t writing;   /* the map, codec, and: */
    _Atomic uint64_t revision; /* all changes up to here are in the map */
    uint64_t starts;           /* how often following began anew */
    uint8_t evict_at[CL_BOUND_MAX];
    size_t evict_at_len;

    pthread_mutex_t lock; /* flights, failure; taken after `writing`, if both */
    pthread_cond_t changed;
    _Atomic unsigned waiting; /* for a flight, or for a newer route */
    struct cl_flight flights[CL_FLIGHTS_MAX];
    struct cadastre_error failure; /* of the last request that failed */
    bool stopping;

    pthread_t follower, refresher;
    struct cl_fetch *follow, *refresh;
    _Atomic uint64_t maps, deltas, changes, refreshes, refused;
};

/* --- applying answers --- */

struct cl_applied {
    uint64_t taken, older, broken;
};

/* Offers the routes of an array to the map, all at one moment. `wanted` picks those that are (NULL:
 * all). The caller holds `writing` and publishes. */
void cl_router_offer(struct cadastre_router *r,
                     const json_t *routes,
                     uint64_t seen_ms,
                     bool (*wanted)(struct cadastre_router *r, const struct cl_entry *e),
                     struct cl_applied *applied);
/* Shows the map to readers, after throwing out what is over the limit of a lazy one. */
void cl_router_publish(struct cadastre_router *r);
/* Lazy: is the entry about something cached, or asked for at present? */
bool cl_router_wants(struct cadastre_router *r, const struct cl_entry *e);
void cl_router_confirm(struct cadastre_router *r, const struct cl_answer *a);
void cl_router_set_state(struct cadastre_router *r, enum cadastre_status state);
void cl_router_failed(struct cadastre_router *r, const struct cadastre_error *e);

/* --- the two threads --- */

void *cl_router_follow(void *router);
/* Fetches the map, or validates what is cached. CADASTRE_NOT_FOUND with the code
 * keyspace_not_found: a quorum says so, not only a server that may be behind. */
enum cadastre_status cl_router_sync(struct cadastre_router *r, struct cadastre_error *e);
void *cl_router_refresh(void *router);
/* Why a route is doubted. */
struct cl_doubt {
    struct slice key;
    uint64_t used_epoch, known_epoch; /* CADASTRE_NONE, 0: any answer will do */
};
/* A newer route than the doubted one is cached. */
bool cl_router_knows_better(struct cadastre_router *r, const struct cl_doubt *doubt);
/* Joins the refresh of the range that holds the key, or begins it; until it has an answer, or the
 * changes that are followed have brought a newer route. */
enum cadastre_status
cl_router_join(struct cadastre_router *r, const struct cl_doubt *doubt, uint64_t timeout_ms);

/* Boot time `ms` from now, as an absolute time of the condition variable's clock. */
struct timespec cl_deadline(uint64_t ms);

#endif
