/* SPDX-License-Identifier: Apache-2.0 */
/* A request in text: "METHOD TARGET", header lines, an empty line, a body; sent with the right
 * framing to the whole API. Placeholders stand for what a client knows: {p} and {q} are the first
 * two partitions of keyspace a, {e} the epoch of {p}, {r} the revision, and {cHEX} a cursor of the
 * same list with another position. Nothing that is refused may change anything. */
#include "base/assert.h"
#include "base/hash.h"
#include "base/parse.h"
#include "tests/fuzz/server.h"
#include "tests/fuzz/target.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_MS = 2000, TOKEN_FIXED = 25, POSITION_MAX = 1100, TARGET_MAX = 8192 };

struct known {
    uint64_t partition[2], epoch;
    dir_rev revision;
};

static void know(const struct api_world *w, struct known *k)
{
    const struct dir_view *v = view_enter(control_published(w->control));
    const struct dir_keyspace *ks = view_keyspace(v, slice_of("a", 1));
    struct ptree_iter it;
    const struct dir_partition *p;
    *k = (struct known){.revision = v->revision};
    if (ks != NULL) {
        ptree_seek(view_map(v, ks), slice_of(NULL, 0), &it);
        for (unsigned i = 0; i < 2 && (p = ptree_iter_get(&it, NULL)) != NULL; i++) {
            k->partition[i] = p->id;
            k->epoch = i == 0 ? p->epoch : k->epoch;
            ptree_iter_next(&it);
        }
    }
    view_leave();
}

/* A cursor that this list gave, with the position replaced. */
static void put_cursor(struct api_world *w, struct buf *out, struct slice list, struct slice hex)
{
    uint8_t token[TOKEN_FIXED + POSITION_MAX + 8];
    size_t fixed = 0, len = 0;
    struct buf ask;
    buf_init(&ask, TARGET_MAX);
    buf_put_str(&ask, "GET ");
    buf_put(&ask, list.data, list.len);
    buf_put_str(&ask, "?limit=1");
    buf_put_u8(&ask, '\0');
    api_call(w, (const char *)ask.data, NULL, NULL);
    buf_close(&ask);
    const char *next = api_text(w, "next");
    if (!parse_hex(slice_of(next, strlen(next)), token, sizeof token, &fixed) ||
        fixed < TOKEN_FIXED || !parse_hex(hex, token + TOKEN_FIXED, POSITION_MAX, &len)) {
        return;
    }
    uint64_t sum = hash_xxh3_64(token, TOKEN_FIXED + len);
    memcpy(token + TOKEN_FIXED + len, &sum, sizeof sum);
    for (size_t i = 0; i < TOKEN_FIXED + len + sizeof sum; i++) {
        buf_printf(out, "%02x", token[i]);
    }
}

/* Up to the ?, when it is a list's path of plain bytes. */
static bool list_path(const struct buf *line, struct slice *ret_path)
{
    const uint8_t *from = memchr(line->data, ' ', line->len);
    const uint8_t *mark = memchr(line->data, '?', line->len);
    if (from == NULL || mark == NULL || mark < from || mark - from > 200 ||
        memchr(from, 0, (size_t)(mark - from)) != NULL ||
        memchr(from + 1, ' ', (size_t)(mark - from - 1)) != NULL) {
        return false;
    }
    *ret_path = slice_of(from + 1, (size_t)(mark - from - 1));
    return true;
}

static size_t
expand_one(struct api_world *w, const struct known *k, struct slice s, struct buf *out)
{
    const uint8_t *end = s.len > 2 ? memchr(s.data, '}', s.len) : NULL;
    struct slice path;
    if (end != NULL && end == s.data + 2) {
        const char *letters = "pqer", *at = strchr(letters, s.data[1]);
        uint64_t values[] = {k->partition[0], k->partition[1], k->epoch, k->revision};
        if (s.data[1] != '\0' && at != NULL) {
            buf_printf(out, "%" PRIu64, values[at - letters]);
            return 3;
        }
    }
    if (end != NULL && s.data[1] == 'c' && out->len > 0 && list_path(out, &path)) {
        put_cursor(w, out, path, slice_of(s.data + 2, (size_t)(end - s.data) - 2));
        return (size_t)(end - s.data) + 1;
    }
    buf_put_u8(out, '{');
    return 1;
}

static void expand(struct api_world *w, struct slice in, struct buf *out)
{
    struct known k;
    know(w, &k);
    for (size_t i = 0; i < in.len;) {
        if (in.data[i] == '{') {
            i += expand_one(w, &k, slice_of(in.data + i, in.len - i), out);
        } else {
            buf_put_u8(out, in.data[i++]);
        }
    }
}

/* The line that begins at `*at`, without its end. */
static struct slice take_line(struct slice text, size_t *at)
{
    size_t from = *at;
    const uint8_t *end = from < text.len ? memchr(text.data + from, '\n', text.len - from) : NULL;
    size_t to = end != NULL ? (size_t)(end - text.data) : text.len;
    *at = end != NULL ? to + 1 : text.len;
    return slice_of(text.data + from, to - from);
}

/* False when it is no request at all. */
static bool build(struct api_world *w, struct slice input, struct buf *out)
{
    size_t at = 0;
    struct slice line = take_line(input, &at);
    struct buf body;
    if (line.len == 0 || line.len > TARGET_MAX || memchr(line.data, '\r', line.len) != NULL) {
        return false;
    }
    expand(w, line, out);
    buf_put_str(out, " HTTP/1.1\r\nHost: fuzz\r\n");
    while ((line = take_line(input, &at)).len > 0) {
        buf_put(out, line.data, line.len);
        buf_put_str(out, "\r\n");
    }
    buf_init(&body, SIZE_MAX);
    expand(w, slice_of(input.data + at, input.len - at), &body);
    if (body.len > 0) {
        buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body.len);
    }
    buf_put_str(out, "\r\n");
    buf_put(out, body.data, body.len);
    buf_close(&body);
    return true;
}

static void renew(struct api_world *w)
{
    client_reset(&w->client);
    client_open(&w->client, w->port);
}

static bool waits(const struct buf *request)
{
    return memmem(request->data, request->len, "/watch", 6) != NULL ||
           memmem(request->data, request->len, "wait_ms", 7) != NULL ||
           memmem(request->data, request->len, "min_revision", 12) != NULL;
}

static void exchange(struct api_world *w, const struct buf *request)
{
    dir_rev before = server_revision(w);
    bool head = request->len > 5 && memcmp(request->data, "HEAD ", 5) == 0;
    answer_close(&w->answer);
    (void)client_send(&w->client, request->data, request->len);
    client_read(&w->client, &w->answer, head, waits(request) ? 10 : WAIT_MS);
    int status = w->answer.status;
    if (status == 0) {
        renew(w);
        return;
    }
    server_judge(w);
    ASSERT(status < 400 || status >= 500 || server_revision(w) == before);
    /* The next input gets a connection on which nothing is left. */
    if (w->client.in.len > 0 || w->answer.cut || strstr(w->answer.head, "close") != NULL) {
        renew(w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct api_world *w = server();
    struct buf request;
    buf_init(&request, SIZE_MAX);
    if (build(w, slice_of(data, size), &request)) {
        exchange(w, &request);
    }
    buf_close(&request);
    return 0;
}
