/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in pieces to whole lines, and lines to Server-Sent Events. */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include "base/buf.h"

enum {
    LINES_MAX = 16 << 20, /* bytes of one line, or of one event's data */
    SSE_ID_MAX = 63,
    SSE_NAME_MAX = 31
};

struct lines {
    struct buf partial;
    bool after_cr; /* a LF now belongs to the line that just ended */
};

/* Without its end (LF, CR LF or CR). False stops. */
typedef bool (*lines_fn)(void *arg, struct slice line);

void lines_init(struct lines *l);
void lines_close(struct lines *l);
/* False when `fn` was, or a line is longer than LINES_MAX. */
bool lines_feed(struct lines *l, struct slice bytes, lines_fn fn, void *arg);

/* The HTML standard's event stream, but that a named event without data is given too: a reset needs
 * none. */
struct sse {
    struct lines lines;
    struct buf data;
    char name[SSE_NAME_MAX + 1]; /* "" is "message" */
    char id[SSE_ID_MAX + 1];     /* the last one seen: what Last-Event-ID sends */
    uint64_t retry_ms;           /* 0: not said */
    uint64_t comments;           /* heartbeats */
};

typedef bool (*sse_fn)(void *arg, const char *name, struct slice data);

void sse_init(struct sse *s);
void sse_close(struct sse *s);
/* A new connection: half an event is forgotten, the id is kept. */
void sse_restart(struct sse *s);
bool sse_feed(struct sse *s, struct slice bytes, sse_fn fn, void *arg);

#endif
