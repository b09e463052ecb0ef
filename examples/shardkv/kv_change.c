/* SPDX-License-Identifier: Apache-2.0 */
/* The store changes: a primary's puts, and a copy's log that cuts itself to the primary's. */
#include "examples/shardkv/kv_inside.h"

#include <stdlib.h>
#include <string.h>

/* --- inside a transaction --- */

static bool log_it(struct kv *s, const struct change *c, const char *old_value, uint64_t old)
{
    sqlite3_stmt *q = kv_use(s, LOG_PUT), *id = kv_use(s, ID_PUT);
    return kv_bind(q, 1, c->position) && kv_bind(q, 2, c->epoch) && kv_bind_text(q, 3, c->id) &&
           kv_bind_text(q, 4, c->key) && kv_bind_text(q, 5, c->value) &&
           kv_bind_text(q, 6, old_value) && kv_bind(q, 7, old) && kv_done(q) &&
           kv_bind_text(id, 1, c->id) && kv_bind(id, 2, c->position) && kv_done(id);
}

bool kv_put_item(struct kv *s, const char *key, const char *value, uint64_t position)
{
    sqlite3_stmt *q = kv_use(s, ITEM_PUT);
    s->running += kv_digest(key, value, position);
    return kv_bind_text(q, 1, key) && kv_bind_text(q, 2, value) && kv_bind(q, 3, position) &&
           kv_done(q);
}

/* After a split the log still has what happened to the other part's keys, so that positions stay
 * what they are. */
static bool is_item(const struct kv *s, const char *key)
{
    return key[0] != '\0' && kv_in_range(s, key);
}

static bool add(struct kv *s, const struct change *c)
{
    sqlite3_stmt *old = kv_use(s, ITEM_GET);
    bool item = is_item(s, c->key), ok;
    int step = !item                          ? SQLITE_DONE
               : kv_bind_text(old, 1, c->key) ? sqlite3_step(old)
                                              : SQLITE_ERROR;
    if (step == SQLITE_ROW) {
        const char *value = kv_text(old, 0);
        uint64_t position = kv_column(old, 1);
        s->running -= kv_digest(c->key, value, position);
        ok = log_it(s, c, value, position);
    } else {
        ok = step == SQLITE_DONE && log_it(s, c, NULL, 0);
    }
    (void)sqlite3_reset(old);
    ok = ok && (!item || kv_put_item(s, c->key, c->value, c->position));
    s->position = c->position;
    s->epoch = c->epoch;
    return ok;
}

static bool undo_item(struct kv *s, sqlite3_stmt *log)
{
    const char *key = kv_text(log, 1), *old_value = kv_text(log, 3);
    sqlite3_stmt *gone = kv_use(s, ITEM_DELETE);
    if (!is_item(s, key)) {
        return true;
    }
    s->running -= kv_digest(key, kv_text(log, 2), s->position);
    return old_value != NULL ? kv_put_item(s, key, old_value, kv_column(log, 4))
                             : kv_bind_text(gone, 1, key) && kv_done(gone);
}

/* Takes the last change back. */
static bool undo(struct kv *s)
{
    sqlite3_stmt *log = kv_use(s, LOG_AT), *entry = kv_use(s, LOG_DELETE);
    sqlite3_stmt *id = kv_use(s, ID_DELETE);
    uint64_t before = 0;
    bool ok = kv_bind(log, 1, s->position) && sqlite3_step(log) == SQLITE_ROW &&
              undo_item(s, log) && kv_bind_text(id, 1, kv_text(log, 5)) && kv_done(id);
    (void)sqlite3_reset(log);
    ok = ok && kv_bind(entry, 1, s->position) && kv_done(entry);
    s->position--;
    ok = ok && kv_epoch_at(s, s->position, &before);
    s->epoch = before;
    return ok;
}

/* Back to `position`, which is not before the log's beginning. */
static bool undo_after(struct kv *s, uint64_t position)
{
    bool ok = true;
    while (ok && s->position > position) {
        ok = undo(s);
    }
    return ok;
}

/* Entries that nobody should need any more go, a quarter of what is kept at a time. */
static bool trim(struct kv *s)
{
    uint64_t keep = s->keep;
    if (s->pinned < s->position && s->position - s->pinned > keep) {
        uint64_t most = keep * KV_LOG_PINNED;
        keep = s->position - s->pinned < most ? s->position - s->pinned : most;
    }
    if (s->position - s->base <= keep + s->keep / 4) {
        return true;
    }
    uint64_t base = s->position - keep, epoch = 0, ids = s->keep * KV_IDS_KEEP;
    sqlite3_stmt *log = kv_use(s, LOG_TRIM), *id = kv_use(s, ID_TRIM);
    bool ok = kv_epoch_at(s, base, &epoch) && kv_bind(log, 1, base) && kv_done(log) &&
              (base < ids || (kv_bind(id, 1, base - ids) && kv_done(id)));
    s->base = base;
    s->base_epoch = epoch;
    return ok;
}

bool kv_finish(struct kv *s, const struct kv *before, bool ok)
{
    sqlite3_stmt *q = kv_use(s, META_PUT);
    ok = ok && trim(s) && kv_bind(q, 1, s->running) && kv_bind(q, 2, s->base) &&
         kv_bind(q, 3, s->base_epoch) && kv_bind_text(q, 4, s->origin) &&
         kv_bind_text(q, 5, s->install) && kv_bind(q, 6, s->chunk) && kv_done(q) &&
         kv_done(kv_use(s, COMMIT));
    if (!ok) {
        (void)kv_done(kv_use(s, ROLLBACK));
        *s = *before;
    }
    return ok;
}

enum kv_result kv_put(struct kv *s,
                      uint64_t epoch,
                      const char *id,
                      const char *key,
                      const char *value,
                      uint64_t *ret_position)
{
    const struct kv before = *s;
    sqlite3_stmt *q = kv_use(s, ID_GET);
    int step = kv_bind_text(q, 1, id) ? sqlite3_step(q) : SQLITE_ERROR;
    *ret_position = step == SQLITE_ROW ? kv_column(q, 0) : s->position + 1;
    (void)sqlite3_reset(q);
    if (step != SQLITE_DONE) {
        return step == SQLITE_ROW ? KV_REPEATED : KV_IO;
    }
    const struct change c = {*ret_position, epoch, id, key, value};
    bool ok = kv_done(kv_use(s, BEGIN)) && add(s, &c);
    return kv_finish(s, &before, ok) ? KV_OK : KV_IO;
}

/* --- following --- */

/* One of the primary's changes: there already, or in the place of what is there, or new. */
static bool follow_one(struct kv *s, const struct change *c)
{
    uint64_t epoch = 0;
    if (c->position <= s->position) {
        if (!kv_epoch_at(s, c->position, &epoch)) {
            return false;
        }
        if (epoch == c->epoch) {
            return true;
        }
        if (!undo_after(s, c->position - 1)) {
            return false;
        }
    }
    return c->position == s->position + 1 && add(s, c);
}

/* Does no log lead from here to the primary's? What was trimmed can't be compared, nor undone. */
static bool is_gap(const struct kv *s, const struct kv_batch *b)
{
    bool too_far = s->base > b->start && s->base_epoch < b->epoch;
    return kv_incomplete(s) || strcmp(s->origin, b->origin) != 0 || s->position < b->base ||
           s->base > b->last || too_far;
}

/* Entries of earlier epochs past the start of this one are not in the primary's log. */
static bool cut(struct kv *s, const struct kv_batch *b)
{
    bool ok = true;
    while (ok && s->position > b->start && s->epoch < b->epoch) {
        ok = undo(s);
    }
    return ok;
}

/* Is entry `after` here? What is in its place goes. KV_IO: that failed. */
static enum kv_result meet(struct kv *s, const struct kv_batch *b)
{
    uint64_t epoch = 0;
    if (b->after > s->position) {
        return KV_ELSEWHERE;
    }
    if (!kv_epoch_at(s, b->after, &epoch)) {
        return KV_IO;
    }
    if (epoch == b->after_epoch) {
        return KV_OK;
    }
    if (b->after == s->base) {
        return KV_GAP;
    }
    return undo_after(s, b->after - 1) ? KV_ELSEWHERE : KV_IO;
}

enum kv_result kv_follow(struct kv *s, const struct kv_batch *b, uint64_t *ret_position)
{
    const struct kv before = *s;
    *ret_position = s->position;
    if (is_gap(s, b)) {
        return KV_GAP;
    }
    if (b->after < s->base) {
        *ret_position = s->base;
        return KV_ELSEWHERE;
    }
    bool ok = kv_done(kv_use(s, BEGIN)) && cut(s, b);
    enum kv_result result = ok ? meet(s, b) : KV_IO;
    ok = result != KV_IO;
    for (unsigned i = 0; ok && result == KV_OK && i < b->count; i++) {
        ok = follow_one(s, &b->changes[i]);
    }
    *ret_position = result == KV_OK ? b->after + b->count : s->position;
    return kv_finish(s, &before, ok) ? result : KV_IO;
}
