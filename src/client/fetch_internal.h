/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLIENT_FETCH_INTERNAL_H
#define CLIENT_FETCH_INTERNAL_H

#include "client/fetch.h"

#include <curl/curl.h>
#include <stdatomic.h>

struct server {
    char url[CL_URL_MAX + 1];
    bool endpoint;          /* given; else a member that an endpoint named */
    uint64_t not_before_ms; /* boot time */
    unsigned failures;      /* in a row */
};

struct cl_fetch {
    CURLM *multi;
    CURL *easy;
    struct cl_hooks *hooks;
    uint64_t timeout_ms;
    struct server servers[CL_SERVERS_MAX];
    unsigned count, current;
    _Atomic bool stopped;     /* for good */
    _Atomic bool interrupted; /* until the next request or pause */
    _Atomic uint64_t failures;
};

/* How one transfer ended. */
enum try_end { TRY_ANSWERED, TRY_FAILED, TRY_STOPPED, TRY_BROKEN };

struct attempt {
    enum try_end end;
    uint64_t retry_after_ms; /* the server's wish, 0 without */
    char location[CL_URL_MAX * 4];
    char why[160];
};

static inline bool cl_fetch_ended(const struct cl_fetch *f)
{
    return atomic_load(&f->stopped) || atomic_load(&f->interrupted);
}

/* One request to one server. `limit_ms` is for all of it, but for a stream. */
void cl_transfer(struct cl_fetch *f,
                 const char *server,
                 const struct cl_request *rq,
                 uint64_t limit_ms,
                 struct cl_answer *answer,
                 struct attempt *ret_attempt);

#endif
