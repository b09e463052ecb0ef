/* SPDX-License-Identifier: Apache-2.0 */
/* Chunked answers. libmicrohttpd sends the headers and the end. Between them the connection is
 * suspended and the chunks go into the socket from here: libmicrohttpd would copy them through the
 * connection's small memory, and search all suspended connections for each one that goes on. When
 * the socket is full, or the source has nothing, the stream waits for the one or the other. Only
 * the old HTTP/1.0, which has no chunks, is pulled by libmicrohttpd. */
#include "api/internal.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <zlib.h>

enum {
    STREAM_GZIP_MAX =
        64, /* compressing streams of one worker (256 KiB each); others are sent as they are */
    STREAM_EMPTY_MAX = 16, /* pieces in a row that gave no bytes before others get their turn */
    STREAM_PIECES_MAX = 8, /* pieces in a row that were sent, likewise */
    STREAM_KEEP_BYTES = 1024
};

struct stream {
    const struct stream_ops *ops;
    void *state;
    size_t sent; /* of x->out; of a chunk in the socket's hands, of all its bytes */
    bool waiting, ended, aborted, gzip;
    bool full; /* the socket took a part of a chunk */
    z_stream z;
};

/* --- start --- */

/* "gzip;q=0" is a refusal. */
static bool wants_gzip(const char *accept)
{
    for (const char *p = accept; p != NULL && *p != '\0';) {
        p += strspn(p, ", \t");
        size_t len = strcspn(p, ","), name = strcspn(p, ",; \t");
        if (name == 4 && strncasecmp(p, "gzip", 4) == 0) {
            const char *q = memchr(p, '=', len);
            return q == NULL || strspn(q + 1, "0.") < (size_t)(p + len - q - 1);
        }
        p += len;
    }
    return false;
}

static void start_gzip(struct exchange *x, struct stream *s)
{
    if (x->worker->gzip_count >= STREAM_GZIP_MAX || x->method == API_HEAD) {
        return;
    }
    if (deflateInit2(&s->z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK) {
        s->gzip = true;
        x->worker->gzip_count++;
        exchange_set_header(x, "Content-Encoding", "gzip");
    }
}

void exchange_stream(struct exchange *x,
                     int status,
                     const char *content_type,
                     bool may_gzip,
                     const struct stream_ops *ops,
                     void *state)
{
    ASSERT(x->stream == NULL);
    struct stream *s = exchange_alloc(x, sizeof *s);
    *s = (struct stream){.ops = ops, .state = state};
    x->stream = s;
    exchange_set_header(x, "Content-Type", content_type);
    if (may_gzip) {
        exchange_set_header(x, "Vary", "Accept-Encoding");
        if (wants_gzip(exchange_header(x, "Accept-Encoding"))) {
            start_gzip(x, s);
        }
    }
    buf_reset(&x->out);
    exchange_answer(x, status, true);
}

void stream_close(struct exchange *x)
{
    struct stream *s = x->stream;
    if (s == NULL) {
        return;
    }
    x->stream = NULL;
    s->ops->end(s->state);
    if (s->gzip) {
        (void)deflateEnd(&s->z);
        x->worker->gzip_count--;
    }
}

/* --- pieces --- */

static void compress_piece(struct stream *s, const struct buf *piece, int flush, struct buf *out)
{
    s->z.next_in = piece->data;
    s->z.avail_in = (unsigned)piece->len;
    do {
        if (!buf_reserve(out, 4096)) {
            return;
        }
        size_t room = out->cap - out->len;
        s->z.next_out = out->data + out->len;
        s->z.avail_out = (unsigned)room;
        (void)deflate(&s->z, flush);
        out->len += room - s->z.avail_out;
    } while (s->z.avail_out == 0);
}

/* Asks the source for its next piece. */
static void fill(struct exchange *x)
{
    struct stream *s = x->stream;
    struct buf *piece = s->gzip ? &x->worker->scratch : &x->out;
    uint64_t again_ms = UINT64_MAX;
    buf_reset(&x->out);
    buf_reset(piece);
    s->sent = 0;
    s->waiting = x->kick = false;
    enum stream_next next = s->ops->next(s->state, piece, &again_ms);
    s->waiting = next == STREAM_WAIT;
    s->ended = next == STREAM_END;
    x->deadline_ms = s->waiting ? again_ms : UINT64_MAX;
    if (s->gzip) {
        /* What a waiting reader gets must be all there is; a sync marker without new bytes would be
         * noise. */
        int flush = s->ended ? Z_FINISH : s->waiting && piece->len > 0 ? Z_SYNC_FLUSH : Z_NO_FLUSH;
        compress_piece(s, piece, flush, &x->out);
    }
    s->aborted = next == STREAM_ABORT || piece->overflow || x->out.overflow;
}

/* Whether libmicrohttpd has something to do. Else the source waits; x->kick tells that it only took
 * a break. */
static bool fill_some(struct exchange *x)
{
    const struct stream *s = x->stream;
    for (unsigned i = 0; i < STREAM_EMPTY_MAX; i++) {
        fill(x);
        if (s->aborted || s->ended || x->out.len > 0) {
            return true;
        }
        if (s->waiting) {
            return false;
        }
    }
    x->kick = true;
    return false;
}

static int64_t abort_stream(struct exchange *x)
{
    if (x->http_1_0) {
        /* There the end of the connection is the end of the answer: only a reset tells it from a
         * cut. */
        conn_reset(x->conn);
    }
    return -2;
}

/* There may be ten thousand that wait. */
static void forget_piece(struct exchange *x)
{
    if (x->out.cap > STREAM_KEEP_BYTES) {
        buf_close(&x->out);
        x->stream->sent = 0;
    }
}

/* --- HTTP/1.0 --- */

static int64_t pull_bytes(struct exchange *x, char *buf, size_t max)
{
    struct stream *s = x->stream;
    if (s->sent == x->out.len && !s->ended && (!s->waiting || x->kick)) {
        (void)fill_some(x);
        if (s->aborted) {
            return abort_stream(x);
        }
    }
    size_t n = x->out.len - s->sent < max ? x->out.len - s->sent : max;
    if (n > 0) {
        memcpy(buf, x->out.data + s->sent, n);
        s->sent += n;
        return (int64_t)n;
    }
    if (s->ended) {
        return -1;
    }
    if (x->conn->gone) {
        count_add(&x->worker->count.client_gone, 1);
        return abort_stream(x);
    }
    forget_piece(x);
    exchange_suspend(x);
    return 0;
}

/* --- chunks --- */

/* Sends what is left of the piece's chunk. False: the socket is full, or broken, which its events
 * tell. */
static bool send_chunk(struct exchange *x)
{
    static const char line_end[] = "\r\n";
    struct stream *s = x->stream;
    char size[24];
    int size_len = snprintf(size, sizeof size, "%zx\r\n", x->out.len);
    struct iovec parts[3] = {
        {size, (size_t)size_len}, {x->out.data, x->out.len}, {(void *)(uintptr_t)line_end, 2}};
    size_t total = (size_t)size_len + x->out.len + 2, skip = s->sent;
    for (unsigned i = 0; i < 3; i++) {
        size_t part = skip < parts[i].iov_len ? skip : parts[i].iov_len;
        parts[i].iov_base = (char *)parts[i].iov_base + part;
        parts[i].iov_len -= part;
        skip -= part;
    }
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    ssize_t n = sendmsg(x->conn->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    s->sent += n > 0 ? (size_t)n : 0;
    s->full = s->sent < total;
    if (!s->full) {
        buf_reset(&x->out);
        s->sent = 0;
    }
    return !s->full;
}

/* True: libmicrohttpd's turn, the stream has ended or must be cut. False: it waits. */
static bool send_pieces(struct exchange *x)
{
    struct stream *s = x->stream;
    for (unsigned i = 0; i < STREAM_PIECES_MAX; i++) {
        if (x->out.len > 0 && !send_chunk(x)) {
            conn_watch_room(x->conn);
            return false;
        }
        if (s->ended || s->aborted) {
            return true;
        }
        if (s->waiting && !x->kick) {
            forget_piece(x);
            return false;
        }
        if (!fill_some(x)) {
            forget_piece(x);
            return false;
        }
    }
    x->kick = true;
    return false;
}

int64_t stream_pull(struct exchange *x, char *buf, size_t max)
{
    struct stream *s = x->stream;
    if (x->conn->cut || s->aborted) {
        return abort_stream(x);
    }
    if (x->http_1_0) {
        return pull_bytes(x, buf, max);
    }
    if (send_pieces(x)) {
        return s->aborted ? abort_stream(x) : -1;
    }
    if (x->conn->gone) {
        count_add(&x->worker->count.client_gone, 1);
        return abort_stream(x);
    }
    exchange_suspend(x);
    return 0;
}

static void go_on(struct exchange *x)
{
    if (x->http_1_0 ? fill_some(x) : send_pieces(x)) {
        timer_clear(x);
        mhd_resume(x);
    } else if (!x->stream->full) {
        exchange_arm(x);
    }
}

void stream_run(struct exchange *x)
{
    ASSERT(x->state == X_STREAMING && x->suspended);
    x->kick = true;
    if (!x->stream->full) { /* else it goes on when there is room */
        go_on(x);
    }
}

void stream_room(struct exchange *x)
{
    struct stream *s = x->stream;
    if (x->state == X_STREAMING && x->suspended && s != NULL && s->full) {
        s->full = false;
        go_on(x);
    }
}
