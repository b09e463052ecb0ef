/* SPDX-License-Identifier: Apache-2.0 */
/* Every copy has a file of its own, KEYSPACE.PARTITION.COPY.db, so that none is ever taken for
 * another. After a split or a merge a partition's file is made of those that its range was in
 * before, by range: the newest that has a key has it as it is now, for it was made of the older
 * ones. They are deleted once all that they had is in newer files. */
#include "examples/shardkv/copy.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CLEANED_MS = 10000, DERIVE_WAIT_MS = 100, DERIVE_POLL_MS = 2 };

uint64_t copy_now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void copy_pause_ms(uint64_t ms)
{
    const struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

void copy_path(const struct node *n, const char *keyspace, uint64_t id, uint64_t copy, char *out)
{
    (void)snprintf(out, COPY_PATH_SIZE, "%s/%s.%" PRIu64 ".%" PRIu64 ".db", n->data_dir, keyspace,
                   id, copy);
}

/* To open or close it: nobody else uses it then. */
static void lock_store(struct part *p)
{
    (void)pthread_mutex_lock(&p->writer);
    (void)pthread_mutex_lock(&p->repair);
    (void)pthread_mutex_lock(&p->lock);
}

static void unlock_store(struct part *p)
{
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_mutex_unlock(&p->repair);
    (void)pthread_mutex_unlock(&p->writer);
}

static void close_store(struct part *p)
{
    kv_close(p->store);
    p->store = NULL;
    p->copy = 0;
}

/* --- opening --- */

/* Opens the copy in the place of another one, making it when there is none. */
static void open_copy(struct node *n, struct part *p, uint64_t copy, bool lost)
{
    char path[COPY_PATH_SIZE];
    const struct kv_spec spec = {copy, p->low, p->high};
    copy_path(n, p->keyspace, p->id, copy, path);
    lock_store(p); /* what is under way still reads the other */
    close_store(p);
    p->store = kv_open(path, &spec);
    if (p->store == NULL || (lost && !kv_lose(p->store))) {
        node_die(p, "the copy can't be opened");
    }
    kv_keep(p->store, n->log_keep, UINT64_MAX);
    p->copy = copy;
    p->gap = kv_incomplete(p->store);
    unlock_store(p);
}

static bool wait_for_derived(struct node *n, struct part *p, const struct cadastre_task *t)
{
    int not_yet = DERIVED_NOT;
    if (atomic_compare_exchange_strong(&p->derived, &not_yet, DERIVING) &&
        !node_hand_over(n, p, t, 0)) {
        atomic_store(&p->derived, DERIVED_NOT);
    }
    uint64_t begun = copy_now_ms();
    while (atomic_load(&p->derived) == DERIVING && copy_now_ms() - begun < DERIVE_WAIT_MS) {
        copy_pause_ms(DERIVE_POLL_MS); /* a small one is there at once */
    }
    return atomic_load(&p->derived) != DERIVING;
}

/* Opens it, making it first of its parents' when it is new. False: not yet, or not at all. */
static bool open_granted(struct node *n, struct part *p, const struct cadastre_task *t)
{
    char path[COPY_PATH_SIZE];
    copy_path(n, p->keyspace, p->id, t->copy, path);
    bool joins = t->role == CADASTRE_ROLE_JOINING;
    bool was_here = cadastre_agent_copy(n->agent, p->keyspace, p->id) == t->copy;
    bool derives = !joins && !was_here && t->parent_count > 0 && access(path, F_OK) != 0;
    if (derives && !wait_for_derived(n, p, t)) {
        return false;
    }
    bool lost = access(path, F_OK) != 0 && (derives || (was_here && !joins));
    /* What was not derived yet may be later: it is given up only once it does not count. */
    bool counts = t->role == CADASTRE_ROLE_PRIMARY || (derives && t->role == CADASTRE_ROLE_SYNC);
    if (lost && counts) {
        (void)fprintf(stderr, "shardkv: %s/%" PRIu64 ": the data is gone\n", p->keyspace, p->id);
    } else {
        open_copy(n, p, t->copy, lost);
    }
    atomic_store(&p->derived, DERIVED_NOT);
    return !lost || !counts;
}

bool copy_ready(struct node *n, struct part *p, const struct cadastre_task *t)
{
    (void)pthread_mutex_lock(&p->lock);
    bool open = p->store != NULL && p->copy == t->copy;
    (void)pthread_mutex_unlock(&p->lock);
    if (!open && !open_granted(n, p, t)) {
        return false;
    }
    (void)pthread_mutex_lock(&p->lock);
    bool whole = !kv_incomplete(p->store);
    (void)pthread_mutex_unlock(&p->lock);
    return whole || t->role != CADASTRE_ROLE_PRIMARY;
}

/* --- the files that are here --- */

struct file {
    char path[COPY_PATH_SIZE];
    uint64_t partition, copy;
    char *start, *end; /* own */
    bool whole;
};

/* KEYSPACE.PARTITION.COPY.db of this keyspace (NULL: of any, which it is put into). */
static bool read_name(const char *name, char *keyspace, struct file *ret)
{
    char text[256], *ends[3] = {NULL};
    size_t len = strlen(name);
    if (len >= sizeof text) {
        return false;
    }
    memcpy(text, name, len + 1);
    for (unsigned i = 0; i < 3; i++) { /* from its end */
        ends[i] = strrchr(text, '.');
        if (ends[i] == NULL) {
            return false;
        }
        *ends[i]++ = '\0';
    }
    char *end1 = NULL, *end2 = NULL;
    ret->copy = strtoull(ends[1], &end1, 10);
    ret->partition = strtoull(ends[2], &end2, 10);
    (void)snprintf(keyspace, CADASTRE_NAME_MAX + 1, "%s", text);
    return strcmp(ends[0], "db") == 0 && *end1 == '\0' && *end2 == '\0' && ret->partition > 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    return (x->partition < y->partition) - (x->partition > y->partition);
}

/* Calls fn for every file. */
static void each_file(const struct node *n,
                      void (*fn)(void *arg, const char *keyspace, struct file *f),
                      void *arg)
{
    DIR *d = opendir(n->data_dir);
    const struct dirent *entry;
    while (d != NULL && (entry = readdir(d)) != NULL) {
        char keyspace[CADASTRE_NAME_MAX + 1];
        struct file f = {.start = NULL};
        if (read_name(entry->d_name, keyspace, &f)) {
            copy_path(n, keyspace, f.partition, f.copy, f.path);
            fn(arg, keyspace, &f);
        }
        free(f.start);
        free(f.end);
    }
    if (d != NULL) {
        (void)closedir(d);
    }
}

/* --- deriving --- */

struct sources {
    struct node *node;
    const struct part *part;
    struct file all[KV_SOURCES_MAX];
    size_t count;
    bool unknown; /* one can't be read now, and may be the newest that has a key */
};

static bool overlaps(const struct file *f, const struct part *p)
{
    return (f->end == NULL || strcmp(p->low, f->end) < 0) &&
           (p->high == NULL || strcmp(f->start, p->high) < 0);
}

/* Of too many the newest. */
static void take_source(struct sources *to, struct file *f)
{
    struct file *at = &to->all[0];
    if (to->count < KV_SOURCES_MAX) {
        at = &to->all[to->count++];
    } else {
        for (size_t i = 1; i < to->count; i++) {
            at = to->all[i].partition < at->partition ? &to->all[i] : at;
        }
    }
    if (at->start == NULL || at->partition < f->partition) {
        const struct file before = *at;
        *at = *f;
        *f = before; /* for who made it to free */
    }
}

/* Takes those that this node holds, which is what the directory counts by as well. */
static void note_source(void *arg, const char *keyspace, struct file *f)
{
    struct sources *to = arg;
    uint64_t copy = 0;
    if (f->partition == to->part->id || strcmp(keyspace, to->part->keyspace) != 0 ||
        cadastre_agent_copy(to->node->agent, keyspace, f->partition) != f->copy) {
        return;
    }
    enum kv_result r = kv_describe(f->path, &copy, &f->start, &f->end);
    f->whole = r == KV_OK;
    if (r == KV_IO || copy != f->copy) {
        to->unknown = true;
    } else if (overlaps(f, to->part)) {
        take_source(to, f);
    }
}

/* What a parent has that is held here, no older file has: without it there is nothing to derive
 * from. */
static bool has_parents(const struct sources *from, const struct cadastre_task *t)
{
    for (unsigned i = 0; i < t->parent_count; i++) {
        size_t at = 0;
        while (at < from->count && from->all[at].partition != t->parents[i]) {
            at++;
        }
        if (at == from->count &&
            cadastre_agent_copy(from->node->agent, from->part->keyspace, t->parents[i]) != 0) {
            return false;
        }
    }
    return true;
}

/* What the new partition's authority is over, no other's is: nothing more goes into the files. */
static void retire(struct node *n, const struct part *child, const struct file *f)
{
    struct part *p = node_part(n, child->keyspace, f->partition);
    if (p != NULL) {
        lock_store(p);
        p->role = CADASTRE_ROLE_NONE;
        close_store(p);
        unlock_store(p);
    }
}

static const char *lower(const char *end, const char *other)
{
    return other != NULL && (end == NULL || strcmp(other, end) < 0) ? other : end;
}

/* The newest file that has the key, SIZE_MAX without; `*end` comes down to where that is over. */
static size_t newest_with(const struct sources *from, const char *at, const char **end)
{
    for (size_t i = 0; i < from->count; i++) {
        const struct file *f = &from->all[i];
        bool begun = strcmp(f->start, at) <= 0;
        if (begun && (f->end == NULL || strcmp(at, f->end) < 0)) {
            *end = lower(*end, f->end);
            return i;
        }
        *end = begun ? *end : lower(*end, f->start); /* a newer one begins there */
    }
    return SIZE_MAX;
}

/* Cuts the range into pieces, each from the newest file that has it. 0: some of it is nowhere, or
 * was lost. */
static size_t cut(const struct sources *from, struct kv_piece *pieces, size_t max)
{
    const char *at = from->part->low, *last = from->part->high;
    size_t count = 0;
    for (bool more = true; more; count++) {
        const char *end = last;
        size_t i = newest_with(from, at, &end);
        if (i == SIZE_MAX || !from->all[i].whole || count == max) {
            return 0;
        }
        pieces[count] = (struct kv_piece){from->all[i].path, at, end};
        more = end != NULL && (last == NULL || strcmp(end, last) < 0);
        at = end;
    }
    return count;
}

static bool derive(struct sources *from, const struct cadastre_task *t, const char *path)
{
    const struct part *p = from->part;
    struct kv_piece pieces[KV_SOURCES_MAX];
    const struct kv_spec spec = {t->copy, p->low, p->high};
    each_file(from->node, note_source, from);
    qsort(from->all, from->count, sizeof from->all[0], newest_first);
    size_t count = !from->unknown && has_parents(from, t) ? cut(from, pieces, KV_SOURCES_MAX) : 0;
    for (size_t i = 0; i < from->count; i++) {
        retire(from->node, p, &from->all[i]);
    }
    return count > 0 && kv_derive(path, &spec, pieces, count);
}

void copy_derive(struct node *n, struct part *p, const struct cadastre_task *t)
{
    struct sources *from = calloc(1, sizeof *from);
    char path[COPY_PATH_SIZE];
    copy_path(n, p->keyspace, p->id, t->copy, path);
    /* One that is there may have been written to since, and is never made again. */
    bool ok = access(path, F_OK) == 0;
    if (!ok && from != NULL) {
        from->node = n;
        from->part = p;
        ok = derive(from, t, path);
    }
    for (size_t i = 0; from != NULL && i < from->count; i++) {
        free(from->all[i].start);
        free(from->all[i].end);
    }
    free(from);
    atomic_store(&p->derived, ok ? DERIVED_NOT : DERIVED_FAILED);
}

/* --- deleting --- */

/* Has a newer file the key, of a partition that this node has whole and says that it holds? Then
 * `*end` is where that is over (NULL: nowhere), for the caller to free. */
static bool
has_key(struct node *n, struct part *p, uint64_t newer_than, const char *key, char **end)
{
    (void)pthread_mutex_lock(&p->lock);
    bool counts = p->store != NULL && p->role != CADASTRE_ROLE_JOINING && !kv_incomplete(p->store);
    bool has = counts && p->id > newer_than && kv_in_range(p->store, key);
    uint64_t copy = p->copy;
    *end = has && p->high != NULL ? strdup(p->high) : NULL;
    has = has && (p->high == NULL || *end != NULL);
    (void)pthread_mutex_unlock(&p->lock);
    if (has && cadastre_agent_copy(n->agent, p->keyspace, p->id) != copy) {
        free(*end); /* were this node to stop now, nobody would know that it has this one */
        *end = NULL;
        has = false;
    }
    return has;
}

/* Is all of the file's range in such files? */
static bool is_covered(struct node *n, const char *keyspace, const struct file *f)
{
    char *at = strdup(f->start);
    bool found = at != NULL, covered = false;
    while (found && !covered) {
        char *end = NULL;
        struct part *p = node_parts(n);
        while (p != NULL &&
               (strcmp(p->keyspace, keyspace) != 0 || !has_key(n, p, f->partition, at, &end))) {
            p = p->next;
        }
        found = p != NULL;
        covered = found && (end == NULL || (f->end != NULL && strcmp(end, f->end) >= 0));
        free(at);
        at = end;
    }
    free(at);
    return covered;
}

static void collect_file(void *arg, const char *keyspace, struct file *f)
{
    struct node *n = arg;
    struct part *p = node_part(n, keyspace, f->partition);
    uint64_t copy;
    bool open = false;
    if (p != NULL) {
        (void)pthread_mutex_lock(&p->lock);
        open = p->role != CADASTRE_ROLE_NONE || p->store != NULL;
        (void)pthread_mutex_unlock(&p->lock);
    }
    if (open || kv_describe(f->path, &copy, &f->start, &f->end) != KV_OK || copy != f->copy ||
        !is_covered(n, keyspace, f)) {
        return;
    }
    /* Not held from before it is gone: what is held is looked for. */
    if (cadastre_agent_copy(n->agent, keyspace, f->partition) != copy ||
        cadastre_agent_set_copy(n->agent, keyspace, f->partition, 0) == CADASTRE_OK) {
        (void)kv_delete(f->path);
    }
}

void copy_collect(struct node *n)
{
    (void)pthread_mutex_lock(&n->collecting);
    if (atomic_exchange(&n->collect, false)) {
        each_file(n, collect_file, n);
    }
    (void)pthread_mutex_unlock(&n->collecting);
}

static void report_cleaned(struct node *n,
                           struct part *p,
                           const struct cadastre_task *t,
                           uint64_t late,
                           int64_t deleted)
{
    bool gone = deleted >= 0;
    uint64_t bytes = gone ? (uint64_t)deleted : 0;
    char fields[128];
    struct cadastre_error e;
    enum cadastre_status s = CADASTRE_STALE;
    if (t->operation[0] != '\0') { /* which waits for this */
        if (gone && cadastre_agent_copy(n->agent, p->keyspace, p->id) == t->copy) {
            (void)cadastre_agent_set_copy(n->agent, p->keyspace, p->id, 0);
        }
        (void)snprintf(fields, sizeof fields,
                       "{\"old_epoch_writes\":%" PRIu64 ",\"deleted_bytes\":%" PRIu64 "}", late,
                       bytes);
        s = cadastre_agent_report(n->agent, t, fields, CLEANED_MS, &e);
    }
    if (s == CADASTRE_STALE && gone) {
        s = cadastre_agent_cleaned(n->agent, t, bytes, CLEANED_MS, &e);
    }
    if (s != CADASTRE_OK) {
        (void)fprintf(stderr, "shardkv: cleanup %s: %s\n", t->id, e.detail);
    }
}

void copy_clean(struct node *n, struct part *p, const struct cadastre_task *t)
{
    char path[COPY_PATH_SIZE], snapshot[COPY_PATH_SIZE];
    int64_t bytes = -1;
    uint64_t late = 0;
    copy_path(n, p->keyspace, p->id, t->copy, path);
    copy_collect(n); /* as long as this copy shows what its parent's file is not needed for */
    lock_store(p);
    bool mine = p->copy == t->copy;
    if (mine && p->role != CADASTRE_ROLE_NONE) { /* never what a newer grant stands for */
        unlock_store(p);
        return;
    }
    if (mine && p->store != NULL && p->fenced != 0) {
        late = kv_late(p->store, p->fenced, p->final);
    }
    bool looked_at = late <= p->late_told; /* who tries again has seen what there is */
    p->late_told = late;
    if (looked_at) {
        if (mine) {
            copy_snapshot_path(n, p, snapshot);
            close_store(p);
            (void)kv_delete(snapshot);
        }
        bytes = kv_delete(path);
    }
    unlock_store(p);
    if (bytes >= 0 || !looked_at) {
        report_cleaned(n, p, t, late, bytes);
    }
}
