/* SPDX-License-Identifier: Apache-2.0 */
/* A copy has at most one snapshot, in a file beside its own; it survives a restart, so that who
 * copies it goes on. */
#include "examples/shardkv/copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void copy_snapshot_path(const struct node *n, const struct part *p, char *out)
{
    (void)snprintf(out, COPY_PATH_SIZE, "%s/%s.%" PRIu64 ".%" PRIu64 ".snapshot", n->data_dir,
                   p->keyspace, p->id, p->copy);
}

/* Only one of all that the copy has will do for others. */
static bool will_do(const struct kv_snapshot *s, uint64_t base)
{
    const char *end = strrchr(s->name, '-');
    return s->position >= base && (end == NULL || strcmp(end, "-part") != 0);
}

/* With `repair`: the store stays open, and one is made at a time. */
static bool
snapshot(struct node *n, struct part *p, const struct copy_part *what, struct kv_snapshot *ret)
{
    char path[COPY_PATH_SIZE], to[COPY_PATH_SIZE], own[KV_NAME_SIZE];
    (void)pthread_mutex_lock(&p->lock);
    bool open = p->store != NULL;
    uint64_t position = open ? kv_position(p->store) : 0, base = open ? kv_base(p->store) : 0;
    p->snapshot_used_ms = copy_now_ms();
    if (open) {
        kv_keep(p->store, n->log_keep, position); /* what comes after it will be asked for */
    }
    copy_snapshot_path(n, p, to);
    copy_path(n, p->keyspace, p->id, p->copy, path);
    (void)pthread_mutex_unlock(&p->lock);
    (void)snprintf(own, sizeof own, "rebuild-%" PRIu64, position);
    if (open && what == NULL && kv_snapshot_read(to, ret) && will_do(ret, base)) {
        return true;
    }
    const struct kv_piece piece = {path, what != NULL ? what->start : "",
                                   what != NULL ? what->end : NULL};
    return open && kv_delete(to) >= 0 &&
           kv_snapshot_make(&piece, to, what != NULL ? what->name : own) &&
           kv_snapshot_read(to, ret);
}

bool copy_snapshot(struct node *n,
                   struct part *p,
                   const struct copy_part *what,
                   struct kv_snapshot *ret)
{
    (void)pthread_mutex_lock(&p->repair);
    bool ok = snapshot(n, p, what, ret);
    (void)pthread_mutex_unlock(&p->repair);
    return ok;
}

void copy_snapshot_age(struct node *n, struct part *p)
{
    char path[COPY_PATH_SIZE];
    (void)pthread_mutex_lock(&p->repair);
    (void)pthread_mutex_lock(&p->lock);
    bool old =
        p->store != NULL && !p->moving && copy_now_ms() - p->snapshot_used_ms > SNAPSHOT_KEPT_MS;
    if (old) {
        kv_keep(p->store, n->log_keep, UINT64_MAX);
        copy_snapshot_path(n, p, path);
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (old && access(path, F_OK) == 0) {
        (void)kv_delete(path);
    }
    (void)pthread_mutex_unlock(&p->repair);
}
