/* SPDX-License-Identifier: Apache-2.0 */
/* What changes and watch have in common: which part of which keyspace is followed, since when, how
 * a change is written, and who follows. */
#ifndef API_FOLLOW_H
#define API_FOLLOW_H

#include "api/handlers.h"
#include "directory/feed.h"

enum {
    FOLLOW_READ_MAX = 16, /* changes taken from the ring at a time */
    /* Bytes of changes in one answer, and of those from the store before a stream; the revision
     * that passes the former is still given whole, beyond the latter the watcher is reset. */
    FOLLOW_BYTES_MAX = 4 << 20,
    FOLLOW_PREFACE_MAX = 1 << 20,
    FOLLOW_HEARTBEAT_MS = 15000
};

struct watcher;

/* Lives in the exchange's memory, or in a stream's state; follow_close() lets go. */
struct follow {
    struct api *api;
    struct dir_keyspace *keyspace; /* a reference */
    uint64_t generation;
    dir_rev since;           /* everything up to here has been seen */
    struct bounds *part;     /* owns; NULL: all of it */
    struct watcher *watcher; /* registered; or NULL */
};

/* Reads the keyspace, start, end, partition and generation; `since` is left to the caller. False
 * when answered. */
bool follow_open(struct exchange *x, const struct dir_view *v, struct follow *f);
void follow_close(struct follow *f);
/* Another one of the same, without its watcher: for a job. */
void follow_copy(const struct follow *f, struct follow *ret_copy);
/* Registers it as a watcher of `remote`. Its acknowledged revision is f->since as of the last
 * follow_seen(). */
void follow_register(struct follow *f, const struct exchange *x);
void follow_seen(struct follow *f, dir_rev revision);

/* Whether the range [start, end) is of the followed part. */
bool follow_covers(const struct follow *f, struct slice start, struct slice end, bool end_open);
bool follow_wants(const struct follow *f, const struct dir_change *c);

/* The change as JSON, made once and shared; lives as long as the change. */
struct slice change_json(struct dir_change *c);
/* As a list's next item, or as a server-sent event with its id. */
void change_put(struct buf *out, bool sse, bool first, dir_rev revision, struct slice json);

/* Reads changes older than the ring from the store, in (f->since, upto], as list items or events.
 * Job thread. */
struct catch_up {
    const struct follow *follow;
    bool sse;
    dir_rev upto;
    uint64_t limit, count;
    size_t bytes_max;
    dir_rev last; /* everything up to here has been read */
    bool cut;     /* by limit or bytes_max */
};
enum err_code catch_up_read(struct catch_up *c, struct buf *out, struct err *e) MUST_CHECK;

#endif
