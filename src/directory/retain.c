/* SPDX-License-Identifier: Apache-2.0 */
/* What is forgotten, and when: idempotency keys and history by log time and by count, retired ids
 * with the history. All of it happens inside commands, so that every server forgets the same things
 * at the same index. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/internal.h"

enum { EXPIRE_A_COMMAND = 64 };

struct dir_dedupe *retain_find(const struct dir_view *s, const char *principal, const char *key)
{
    uint8_t bytes[STATE_DEDUPE_KEY_MAX];
    size_t principal_len = strlen(principal), key_len = strlen(key);
    if (principal_len > DIR_TEXT_MAX || key_len > DIR_IDEMPOTENCY_KEY_MAX) {
        return NULL;
    }
    return ptree_get(&s->dedupe, state_dedupe_key(slice_of(principal, principal_len),
                                                  slice_of(key, key_len), bytes));
}

static void *first(const struct ptree *t)
{
    struct ptree_iter it;
    ptree_seek(t, slice_of(NULL, 0), &it);
    return ptree_iter_get(&it, NULL);
}

static void expire_dedupe(struct apply *a)
{
    const struct dir_view *s = a->s;
    for (int i = 0; i < EXPIRE_A_COMMAND; i++) {
        const struct dir_dedupe *d = first(&s->dedupe_by_age);
        if (d == NULL || d->at_ms + s->settings.dedupe_retention_ms > s->time_ms) {
            return;
        }
        apply_remove(a, d);
    }
}

static void push_mark(struct dir_view *s)
{
    uint32_t n = 0;
    while (n < DIR_MARKS_MAX && s->marks[n].at_ms != 0) {
        n++;
    }
    uint64_t step = s->settings.history_retention_ms / DIR_MARKS_MAX;
    bool due = n == 0 || s->time_ms - s->marks[n - 1].at_ms >= step;
    /* When they are all taken (the retention was raised), the next one waits: what it keeps is
     * more, not less. */
    if (due && n < DIR_MARKS_MAX && s->time_ms > 0) {
        s->marks[n] = (struct dir_mark){s->time_ms, s->revision};
    }
}

/* History reaches back to the newest mark that is as old as the retention, and never past
 * history_max revisions. */
static void compact(struct dir_view *s)
{
    while (s->marks[0].at_ms != 0 &&
           s->marks[0].at_ms + s->settings.history_retention_ms <= s->time_ms) {
        if (s->marks[0].revision > s->compacted) {
            s->compacted = s->marks[0].revision;
        }
        memmove(&s->marks[0], &s->marks[1], (DIR_MARKS_MAX - 1) * sizeof s->marks[0]);
        s->marks[DIR_MARKS_MAX - 1] = (struct dir_mark){0, 0};
    }
    if (s->revision > s->settings.history_max &&
        s->revision - s->settings.history_max > s->compacted) {
        s->compacted = s->revision - s->settings.history_max;
    }
    push_mark(s);
}

static void expire_tombstones(struct apply *a)
{
    const struct dir_view *s = a->s;
    for (int i = 0; i < EXPIRE_A_COMMAND; i++) {
        const struct dir_tombstone *t = first(&s->tombstones_by_age);
        if (t == NULL || (t->retired > s->compacted && s->tombstones.count <= DIR_TOMBSTONES_MAX)) {
            return;
        }
        apply_remove(a, t);
    }
}

void retain_expire(struct apply *a)
{
    expire_dedupe(a);
    compact(a->s);
    expire_tombstones(a);
    proposals_expire(a);
}

void retain_remember(struct apply *a, const struct dir_result *r)
{
    const Cadastre__Command *cmd = a->cmd;
    struct buf result = {0};
    buf_init(&result, 64 << 20);
    result_encode(r, &result);
    ASSERT(!result.overflow && cmd->digest.len == 16);
    size_t principal_len = strlen(cmd->principal), key_len = strlen(cmd->idempotency_key);
    struct dir_dedupe *d = mem_zalloc(sizeof *d + principal_len + key_len + result.len);
    d->object.refs = 1;
    d->object.kind = DIR_KIND_DEDUPE;
    d->index = apply_id(a);
    d->at_ms = a->s->time_ms;
    d->revision = r->revision;
    memcpy(d->digest, cmd->digest.data, sizeof d->digest);
    d->principal_len = (uint16_t)principal_len;
    d->key_len = (uint16_t)key_len;
    d->result_len = (uint32_t)result.len;
    memcpy(d->bytes, cmd->principal, principal_len);
    memcpy(d->bytes + principal_len, cmd->idempotency_key, key_len);
    memcpy(d->bytes + principal_len + key_len, result.data, result.len);
    buf_close(&result);
    while (a->s->dedupe.count >= DIR_DEDUPE_MAX) {
        apply_remove(a, first(&a->s->dedupe_by_age));
    }
    apply_put(a, d);
}

uint64_t directory_dedupe_since_ms(const struct dir_view *v)
{
    uint64_t since = v->time_ms > v->settings.dedupe_retention_ms
                         ? v->time_ms - v->settings.dedupe_retention_ms
                         : 0;
    const struct dir_dedupe *oldest = first(&v->dedupe_by_age);
    if (v->dedupe.count >= DIR_DEDUPE_MAX && oldest->at_ms > since) {
        since = oldest->at_ms; /* older ones made room */
    }
    return since;
}
