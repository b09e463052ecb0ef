/* SPDX-License-Identifier: Apache-2.0 */
/* Chunked answers. libmicrohttpd pulls bytes when the socket takes them; when the source has
 * nothing, the connection is suspended until the source is kicked or its time comes. */
#include "api/internal.h"

#include "base/assert.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <zlib.h>

enum {
    STREAM_GZIP_MAX =
        64, /* compressing streams of one worker (256 KiB each); others are sent as they are */
    STREAM_EMPTY_MAX = 16, /* pieces in a row that gave no bytes before others get their turn */
    STREAM_KEEP_BYTES = 1024,
    STREAM_CORK_BYTES = 16384
};

struct stream {
    const struct stream_ops *ops;
    void *state;
    size_t sent; /* of x->out */
    bool waiting, ended, aborted, gzip, corked;
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

/* Chunks are as small as the connection's memory. While there is more to come the kernel may join
 * them. */
static void cork(struct exchange *x, bool on)
{
    struct stream *s = x->stream;
    int value = on;
    if (s->corked != on) {
        s->corked = on;
        (void)setsockopt(x->conn->fd, IPPROTO_TCP, TCP_CORK, &value, sizeof value);
    }
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
    cork(x, next == STREAM_MORE && piece->len >= STREAM_CORK_BYTES);
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

int64_t stream_pull(struct exchange *x, char *buf, size_t max)
{
    struct stream *s = x->stream;
    if (x->conn->cut || s->aborted) {
        return abort_stream(x);
    }
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
    if (x->out.cap > STREAM_KEEP_BYTES) {
        buf_close(&x->out); /* there may be ten thousand that wait */
        s->sent = 0;
    }
    exchange_suspend(x);
    return 0;
}

void stream_run(struct exchange *x)
{
    ASSERT(x->state == X_STREAMING && x->suspended);
    if (fill_some(x)) {
        timer_clear(x);
        mhd_resume(x);
    } else {
        exchange_arm(x);
    }
}
