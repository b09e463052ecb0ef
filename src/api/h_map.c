/* SPDX-License-Identifier: Apache-2.0 */
/* The whole map of a keyspace at one revision, streamed from a pinned view: memory stays flat
 * however large it is. */
#include "api/endpoints.h"

#include "api/route_json.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct map_stream {
    const struct dir_view *view; /* pinned */
    const struct dir_keyspace *keyspace;
    struct ptree_iter it;
    bool ndjson, begun, any;
};

static enum stream_next map_next(void *state, struct buf *out, uint64_t *ret_again_ms)
{
    struct map_stream *s = state;
    size_t until = out->len + API_STREAM_CHUNK;
    const struct dir_partition *p;
    *ret_again_ms = UINT64_MAX;
    if (!s->begun) {
        s->begun = true;
        ptree_seek(view_map(s->view, s->keyspace), slice_of(NULL, 0), &s->it);
        if (!s->ndjson) {
            buf_printf(out, "{\"revision\":%" PRIu64 ",\"routes\":[", s->view->revision);
        }
    }
    for (; (p = ptree_iter_get(&s->it, NULL)) != NULL; ptree_iter_next(&s->it)) {
        struct route_image image;
        if (out->len >= until) {
            return STREAM_MORE;
        }
        if (s->any && !s->ndjson) {
            buf_put_u8(out, ',');
        }
        s->any = true;
        route_of_view(&image, s->view, s->keyspace, p);
        route_put(out, &image);
        if (s->ndjson) {
            buf_put_u8(out, '\n');
        }
    }
    if (!s->ndjson) {
        buf_put_str(out, "]}");
    }
    return STREAM_END;
}

static void map_end(void *state)
{
    struct map_stream *s = state;
    view_unpin(s->view);
    mem_free(s);
}

static bool wants_ndjson(const struct exchange *x)
{
    const char *accept = exchange_header(x, "Accept");
    return accept != NULL && strstr(accept, "application/x-ndjson") != NULL;
}

static void get_map(struct exchange *x)
{
    static const struct stream_ops ops = {map_next, map_end};
    const struct dir_view *pinned = view_pin(api_slot(x));
    const struct dir_keyspace *ks = read_keyspace(x, pinned);
    char etag[32];
    struct map_stream *s;
    (void)snprintf(etag, sizeof etag, "\"%" PRIu64 "\"", pinned->revision);
    if (ks == NULL || reply_not_modified(x, etag, pinned->revision)) {
        view_unpin(pinned);
        return;
    }
    s = mem_zalloc(sizeof *s);
    s->view = pinned;
    s->keyspace = ks;
    s->ndjson = wants_ndjson(x);
    set_read_headers(x, pinned->revision);
    exchange_set_header(x, "Vary", "Accept");
    exchange_stream(x, 200, s->ndjson ? "application/x-ndjson" : "application/json", true, &ops, s);
}

void h_map(struct exchange *x)
{
    read_begin_pinning(x, get_map);
}
