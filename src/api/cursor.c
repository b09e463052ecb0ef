/* SPDX-License-Identifier: Apache-2.0 */
/* Lists in pages that all show one revision. A page that is not the last keeps its view in a small
 * table, found again by (generation, revision): pages of different lists at one revision share it.
 * The cursor that a client holds is checked bytes: what is listed, the revision, and where to go
 * on; it holds no pointer. */
#include "api/handlers.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

struct kept {
    const struct dir_view *view; /* pinned; NULL for none */
    uint64_t expires_ms;
};

struct cursors {
    pthread_mutex_t lock;
    struct kept kept[CURSOR_VIEWS_MAX];
};

/* The token: kind, scope, generation, revision, position, then XXH3-64 of all that; in hex. */
enum { TOKEN_FIXED = 1 + 8 + 8 + 8, TOKEN_SUM = 8 };
enum { TOKEN_MAX = TOKEN_FIXED + DIR_ROUTING_KEY_MAX + TOKEN_SUM };

struct cursors *cursors_new(void)
{
    struct cursors *c = mem_zalloc(sizeof *c);
    (void)pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void let_go(struct kept *k)
{
    if (k->view != NULL) {
        view_unpin(k->view);
        k->view = NULL;
    }
}

void cursors_free(struct cursors *c)
{
    for (unsigned i = 0; i < CURSOR_VIEWS_MAX; i++) {
        let_go(&c->kept[i]);
    }
    (void)pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

static void sweep(struct cursors *c, uint64_t now)
{
    for (unsigned i = 0; i < CURSOR_VIEWS_MAX; i++) {
        if (c->kept[i].expires_ms <= now) {
            let_go(&c->kept[i]);
        }
    }
}

void cursors_sweep(struct cursors *c)
{
    (void)pthread_mutex_lock(&c->lock);
    sweep(c, clock_mono_ms());
    (void)pthread_mutex_unlock(&c->lock);
}

static struct kept *find(struct cursors *c, uint64_t generation, dir_rev revision)
{
    for (unsigned i = 0; i < CURSOR_VIEWS_MAX; i++) {
        const struct dir_view *v = c->kept[i].view;
        if (v != NULL && v->generation == generation && v->revision == revision) {
            return &c->kept[i];
        }
    }
    return NULL;
}

static void ref(const struct dir_view *view)
{
    union {
        const struct dir_view *in;
        struct dir_view *out;
    } u = {view};
    (void)atomic_fetch_add(&u.out->refs, 1);
}

/* The view of a cursor, pinned once more; NULL when it is gone. */
static const struct dir_view *resume(struct cursors *c, uint64_t generation, dir_rev revision)
{
    uint64_t now = clock_mono_ms();
    const struct dir_view *view = NULL;
    struct kept *k;
    (void)pthread_mutex_lock(&c->lock);
    sweep(c, now);
    k = find(c, generation, revision);
    if (k != NULL) {
        view = k->view;
        ref(view);
        k->expires_ms = now + CURSOR_TTL_MS;
    }
    (void)pthread_mutex_unlock(&c->lock);
    return view;
}

/* An empty place, or that of the one that expires first. */
static struct kept *make_room(struct cursors *c)
{
    struct kept *oldest = &c->kept[0];
    for (unsigned i = 0; i < CURSOR_VIEWS_MAX; i++) {
        if (c->kept[i].view == NULL) {
            return &c->kept[i];
        }
        if (c->kept[i].expires_ms < oldest->expires_ms) {
            oldest = &c->kept[i];
        }
    }
    let_go(oldest);
    return oldest;
}

static void keep(struct cursors *c, const struct dir_view *view)
{
    uint64_t now = clock_mono_ms();
    struct kept *k;
    (void)pthread_mutex_lock(&c->lock);
    sweep(c, now);
    k = find(c, view->generation, view->revision);
    if (k == NULL) {
        k = make_room(c);
        k->view = view;
        ref(view);
    }
    k->expires_ms = now + CURSOR_TTL_MS;
    (void)pthread_mutex_unlock(&c->lock);
}

/* --- tokens --- */

static uint64_t get_u64(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static void token_put(struct buf *b, const struct listing *l, struct slice position)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t token[TOKEN_MAX];
    size_t len = TOKEN_FIXED;
    uint64_t sum;
    token[0] = (uint8_t)l->of;
    memcpy(token + 1, &l->scope, 8);
    memcpy(token + 9, &l->view->generation, 8);
    memcpy(token + 17, &l->revision, 8);
    if (position.len > 0) {
        memcpy(token + len, position.data, position.len);
        len += position.len;
    }
    sum = hash_xxh3_64(token, len);
    memcpy(token + len, &sum, TOKEN_SUM);
    len += TOKEN_SUM;
    for (size_t i = 0; i < len; i++) {
        buf_put_u8(b, (uint8_t)digits[token[i] >> 4]);
        buf_put_u8(b, (uint8_t)digits[token[i] & 15]);
    }
}

/* False when it is not a cursor of this very list. */
static bool token_get(struct slice text, struct listing *l, uint64_t *ret_generation)
{
    uint8_t token[TOKEN_MAX];
    size_t len = 0;
    if (!parse_hex(text, token, sizeof token, &len) || len < TOKEN_FIXED + TOKEN_SUM ||
        hash_xxh3_64(token, len - TOKEN_SUM) != get_u64(token + len - TOKEN_SUM) ||
        token[0] != (uint8_t)l->of || get_u64(token + 1) != l->scope) {
        return false;
    }
    *ret_generation = get_u64(token + 9);
    l->revision = get_u64(token + 17);
    l->position_len = len - TOKEN_FIXED - TOKEN_SUM;
    memcpy(l->position, token + TOKEN_FIXED, l->position_len);
    l->resumed = true;
    return true;
}

/* --- pages --- */

static uint64_t scope_of(const struct exchange *x, const char *const *filters)
{
    struct buf b;
    uint64_t scope;
    buf_init(&b, API_RESPONSE_MAX);
    for (unsigned i = 0; i < path_count(x); i++) {
        struct slice part = exchange_path(x, i);
        buf_put(&b, &part.len, sizeof part.len);
        buf_put(&b, part.data, part.len);
    }
    for (; filters != NULL && *filters != NULL; filters++) {
        const struct slice *value = exchange_param(x, *filters);
        size_t len = value != NULL ? value->len : SIZE_MAX;
        buf_put(&b, &len, sizeof len);
        if (value != NULL) {
            buf_put(&b, value->data, value->len);
        }
    }
    scope = hash_xxh3_64(b.data, b.len);
    buf_close(&b);
    return scope;
}

bool listing_begin(struct exchange *x,
                   enum listing_of of,
                   const char *const *filters,
                   bool pinned,
                   struct listing *ret)
{
    const struct slice *cursor = exchange_param(x, "cursor");
    uint64_t generation = 0;
    *ret = (struct listing){.of = of, .limit = API_LIMIT_DEFAULT, .pinned = pinned};
    if (!param_u64(x, "limit", 1, API_LIMIT_MAX, &ret->limit)) {
        return false;
    }
    ret->scope = scope_of(x, filters);
    if (cursor == NULL) {
        ret->view = view_pin(api_slot(x));
        ret->revision = ret->view->revision;
        return true;
    }
    if (!token_get(*cursor, ret, &generation)) {
        reply_problem(
            x, ERR_INVALID_REQUEST,
            "query parameter cursor is not one that this list gave, or its filters differ");
        return false;
    }
    if (pinned) {
        ret->view = resume(exchange_api(x)->cursors, generation, ret->revision);
    } else {
        ret->view = view_pin(api_slot(x));
    }
    if (ret->view == NULL || ret->view->generation != generation) {
        listing_end(ret);
        reply_problem(x, ERR_CURSOR_EXPIRED, "the pages are no longer kept: list again");
        return false;
    }
    return true;
}

void listing_next(struct exchange *x, struct listing *l, struct slice position)
{
    struct buf *out = exchange_out(x);
    buf_put_str(out, ",\"next\":\"");
    token_put(out, l, position);
    buf_put_u8(out, '"');
    if (l->pinned) {
        keep(exchange_api(x)->cursors, l->view);
    }
}

void listing_end(struct listing *l)
{
    if (l->view != NULL) {
        view_unpin(l->view);
        l->view = NULL;
    }
}

uint64_t listing_u64(const struct listing *l, size_t offset)
{
    uint64_t v = 0;
    if (offset + 8 <= l->position_len) {
        for (size_t i = offset; i < offset + 8; i++) {
            v = v << 8 | l->position[i];
        }
    }
    return v;
}
