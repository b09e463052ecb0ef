/* SPDX-License-Identifier: Apache-2.0 */
/* Load reports: read and put by the worker, or by a job when they are large; never by the loop. */
#include "api/endpoints.h"

#include "api/load_in.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "directory/codec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    INLINE_MAX = 256 << 10, /* bytes of a report that a worker takes itself */
    IGNORED_MAX = 100       /* partitions that were not counted and are named */
};

struct load_job {
    struct job job;
    struct slice body;
    uint8_t *owned; /* the body's copy, or NULL: it is the exchange's */
    bool protobuf;
    char node[DIR_NAME_MAX + 1];
    struct load_batch batch;
    struct load_sample *samples; /* owns; epoch 0: not counted, and answered so */
    struct buf routing;          /* of the keys, in place of their text */
    uint64_t counted, ignored, keys_dropped;
    uint64_t now_ms;
    /* The last keyspace by name: most reports have few. */
    struct batch_text keyspace_name;
    const struct dir_keyspace *keyspace;
};

static void load_close(struct job *job)
{
    struct load_job *j = (struct load_job *)(void *)job;
    load_batch_free(&j->batch);
    buf_close(&j->routing);
    mem_free(j->samples);
    mem_free(j->owned);
}

/* --- what was not counted --- */

static void ignore(struct load_job *j, uint32_t i, const char *code, dir_rev epoch)
{
    struct buf *out = &j->job.out;
    if (j->ignored++ >= IGNORED_MAX) {
        return;
    }
    buf_printf(out, "%s{\"pointer\":\"/partitions/%" PRIu32 "\",\"code\":\"%s\"",
               j->ignored > 1 ? "," : "", i, code);
    if (epoch != 0) {
        buf_printf(out, ",\"epoch\":%" PRIu64, epoch);
    }
    buf_put_u8(out, '}');
}

static void ignore_code(struct load_job *j, uint32_t i, enum err_code code, dir_rev epoch)
{
    ignore(j, i, err_slug(code), epoch);
}

/* --- against the directory --- */

static const struct dir_keyspace *
find_keyspace(struct load_job *j, const struct dir_view *v, struct batch_text name)
{
    struct slice given = batch_slice(&j->batch, name);
    if (j->keyspace_name.len == 0 || !slice_eq(batch_slice(&j->batch, j->keyspace_name), given)) {
        j->keyspace = view_keyspace(v, given);
        j->keyspace_name = name;
    }
    return j->keyspace;
}

static enum err_code
decode_key(struct load_job *j, const struct dir_keyspace *ks, struct batch_text *key, struct err *e)
{
    uint8_t bytes[DIR_KEY_MAX], routing[DIR_ROUTING_KEY_MAX];
    struct slice given = batch_slice(&j->batch, *key);
    size_t len = 0;
    if (j->batch.encoded) {
        if (dir_codec_decode(ks, given, bytes, &len, e) != ERR_OK) {
            return e->code;
        }
        given = slice_of(bytes, len);
    } else if (ks->key_encoding == DIR_ENCODING_UTF8 && !parse_is_utf8(given)) {
        return err_set(e, ERR_INVALID_KEY, "keys of this keyspace are UTF-8");
    }
    if (dir_codec_routing_key(ks, given, routing, &len, e) != ERR_OK) {
        return e->code;
    }
    *key = (struct batch_text){(uint32_t)j->routing.len, (uint32_t)len};
    buf_put(&j->routing, routing, len);
    return ERR_OK;
}

/* A range of nothing, or of less, would count against what is around it. */
static enum err_code check_range(const struct load_job *j, const struct batch_key *k, struct err *e)
{
    const uint8_t *text = j->routing.data;
    struct slice start = slice_of(text + k->key.at, k->key.len);
    struct slice end = slice_of(text + k->end.at, k->end.len);
    return slice_cmp(start, end) < 0 ? ERR_OK
                                     : err_set(e, ERR_INVALID_KEY, "it is not above the key");
}

static enum err_code
decode_keys(struct load_job *j, const struct dir_keyspace *ks, uint32_t i, struct err *e)
{
    const struct batch_sample *s = &j->batch.samples[i];
    for (uint32_t k = 0; k < s->key_count; k++) {
        struct batch_key *key = &j->batch.keys[s->key_from + k];
        bool at_end = false;
        enum err_code code = decode_key(j, ks, &key->key, e);
        if (code == ERR_OK && key->has_end) {
            at_end = true;
            code = ks->scheme == DIR_SCHEME_HASH
                       ? err_set(e, ERR_INVALID_KEY, "a hash keyspace has no ranges of keys")
                       : decode_key(j, ks, &key->end, e);
            code = code == ERR_OK ? check_range(j, key, e) : code;
        }
        if (code != ERR_OK) {
            (void)snprintf(e->pointer, sizeof e->pointer,
                           "/partitions/%" PRIu32 "/keys/%" PRIu32 "/%s", i, k,
                           at_end ? "end" : "key");
            return code;
        }
    }
    return ERR_OK;
}

static const struct dir_replica *replica_of(const struct dir_partition *p, uint64_t node)
{
    for (unsigned i = 0; i < p->replica_count; i++) {
        if (p->replicas[i].node == node) {
            return &p->replicas[i];
        }
    }
    return NULL;
}

/* Fills the sample, or says why it does not count. */
static void bind_sample(struct load_job *j,
                        const struct dir_view *v,
                        const struct dir_keyspace *ks,
                        const struct dir_node *n,
                        uint32_t i)
{
    const struct batch_sample *from = &j->batch.samples[i];
    const struct dir_tombstone *tombstone = NULL;
    const struct dir_partition *p = view_partition(v, ks, from->partition, &tombstone);
    const struct dir_replica *r = p != NULL ? replica_of(p, n->id) : NULL;
    if (p == NULL) {
        ignore_code(j, i, tombstone != NULL ? ERR_PARTITION_RETIRED : ERR_PARTITION_NOT_FOUND, 0);
    } else if (from->epoch != p->epoch) {
        ignore_code(j, i, from->epoch < p->epoch ? ERR_STALE_EPOCH : ERR_FUTURE_EPOCH, p->epoch);
    } else if (r == NULL) {
        ignore_code(j, i, ERR_NOT_OWNER, p->epoch);
    } else if (j->batch.has_revision && j->batch.revision < p->epoch) {
        ignore(j, i, "before_epoch", p->epoch); /* its interval began before the node knew */
    } else {
        struct load_sample *s = &j->samples[i];
        *s = (struct load_sample){.partition = p->id,
                                  .node = r->role == DIR_ROLE_PRIMARY ? 0 : n->id,
                                  .epoch = p->epoch,
                                  .interval_ms = j->batch.interval_ms,
                                  .has = from->has,
                                  .key_count = from->key_count,
                                  .part_count = from->part_count};
        memcpy(s->value, from->value, sizeof s->value);
    }
}

static enum err_code
bind_all(struct load_job *j, const struct dir_view *v, const struct dir_node *n, struct err *e)
{
    j->samples = mem_zalloc((j->batch.count + 1) * sizeof j->samples[0]);
    for (uint32_t i = 0; i < j->batch.count; i++) {
        const struct dir_keyspace *ks = find_keyspace(j, v, j->batch.samples[i].keyspace);
        if (ks == NULL) {
            ignore_code(j, i, ERR_KEYSPACE_NOT_FOUND, 0);
        } else if (decode_keys(j, ks, i, e) != ERR_OK) {
            return e->code;
        } else {
            bind_sample(j, v, ks, n, i);
        }
    }
    return ERR_OK;
}

static enum err_code check_node(const struct load_job *j,
                                const struct dir_view *v,
                                const struct dir_node *n,
                                struct err *e)
{
    const struct load_batch *b = &j->batch;
    if (n == NULL) {
        return err_set(e, ERR_NODE_NOT_FOUND, "there is no node of this name");
    }
    if (n->session != b->session || n->ended) {
        return err_set(e, ERR_SESSION_ENDED, "the session has ended: register again");
    }
    if (b->has_revision && b->revision > v->revision) {
        return err_set(e, ERR_BEHIND, "revision %" PRIu64 " was not reached yet", b->revision);
    }
    return ERR_OK;
}

/* --- counting --- */

static struct slice higher(struct slice a, struct slice b)
{
    return slice_cmp(a, b) > 0 ? a : b;
}

static struct slice lower(struct slice a, struct slice b)
{
    return slice_cmp(a, b) < 0 ? a : b;
}

/* Those that are the partition's, and what ranges have in common with it: a key of elsewhere says
 * nothing of it, such as one that was asked for before a split. */
static uint32_t take_keys(const struct load_job *j,
                          const struct dir_partition *p,
                          uint32_t i,
                          struct load_key ret[LOAD_KEYS_MAX])
{
    const struct batch_key *from = j->batch.keys + j->batch.samples[i].key_from;
    const uint8_t *text = j->routing.data;
    struct slice first = dir_partition_start(p), end = dir_partition_end(p);
    uint32_t count = 0;
    for (uint32_t k = 0; k < j->batch.samples[i].key_count; k++) {
        struct load_key key = {.key = slice_of(text + from[k].key.at, from[k].key.len),
                               .weight = from[k].weight};
        if (from[k].has_end) {
            key.end = slice_of(text + from[k].end.at, from[k].end.len);
            key.end = p->end_open ? key.end : lower(key.end, end);
            key.key = higher(key.key, first);
        }
        if (slice_cmp(key.key, first) >= 0 && (p->end_open || slice_cmp(key.key, end) < 0) &&
            (!from[k].has_end || slice_cmp(key.key, key.end) < 0)) {
            ret[count++] = key;
        }
    }
    return count;
}

static void take_parts(const struct load_batch *b, uint32_t i, struct load_part *ret)
{
    const struct batch_part *from = b->parts + b->samples[i].part_from;
    for (uint32_t k = 0; k < b->samples[i].part_count; k++) {
        ret[k] = (struct load_part){.operation = batch_slice(b, from[k].name[HEAT_BY_OPERATION]),
                                    .outcome = batch_slice(b, from[k].name[HEAT_BY_OUTCOME]),
                                    .tenant = batch_slice(b, from[k].name[HEAT_BY_TENANT]),
                                    .requests = from[k].requests};
    }
}

static void
put_sample(struct load_job *j, struct loads *loads, const struct dir_view *v, uint32_t i)
{
    struct load_sample *s = &j->samples[i];
    struct load_key keys[LOAD_KEYS_MAX];
    struct load_part parts[LOAD_PARTS_MAX];
    uint8_t key[8];
    /* The view has it, or the sample would not be bound. */
    const struct dir_partition *p = ptree_get(&v->partitions, ptree_u64_key(s->partition, key));
    take_parts(&j->batch, i, parts);
    s->key_count = take_keys(j, p, i, keys);
    s->keys = keys;
    s->parts = parts;
    enum load_outcome outcome = loads_put(loads, s, j->now_ms);
    if (s->node == 0 && (outcome == LOAD_COUNTED || outcome == LOAD_KEYS_DROPPED)) {
        heats_put(loads_heats(loads), v, p, s, j->now_ms);
    }
    s->keys = NULL;
    s->parts = NULL;
    switch (outcome) {
    case LOAD_KEYS_DROPPED:
        j->keys_dropped++;
        j->counted++;
        break;
    case LOAD_COUNTED:
        j->counted++;
        break;
    case LOAD_EARLY:
        ignore(j, i, "before_epoch", s->epoch);
        break;
    case LOAD_STALE:
        ignore_code(j, i, ERR_STALE_EPOCH, 0);
        break;
    case LOAD_FULL:
        ignore_code(j, i, ERR_LIMIT_EXCEEDED, 0);
        break;
    }
}

static void count_all(struct load_job *j, const struct dir_view *v, const struct dir_node *n)
{
    struct loads *loads = control_loads(j->job.api->control);
    struct loads_node report = j->batch.node;
    report.node = n->id;
    report.session = n->session;
    report.seq = j->batch.seq;
    report.at_ms = j->now_ms;
    report.interval_ms = j->batch.interval_ms;
    if (!loads_begin(loads, &report)) {
        (void)err_set_at(&j->job.err, ERR_STALE_REPORT, "/seq",
                         "this report, or a later one of the session, was taken before");
        return;
    }
    for (uint32_t i = 0; i < j->batch.count; i++) {
        if (j->samples[i].epoch != 0) {
            put_sample(j, loads, v, i);
        }
    }
}

static void load_work(struct job *job)
{
    struct load_job *j = (struct load_job *)(void *)job;
    enum err_code code = j->protobuf ? load_read_protobuf(j->body, &j->batch, &job->err)
                                     : load_read_json(j->body, &j->batch, &job->err);
    if (code != ERR_OK) {
        return;
    }
    job->err = (struct err){.code = ERR_OK};
    const struct dir_view *v = view_pin(control_published(job->api->control));
    const struct dir_node *n = view_node(v, slice_of(j->node, strlen(j->node)));
    job->revision = v->revision;
    buf_printf(&job->out, "{\"revision\":%" PRIu64 ",\"ignored\":[", v->revision);
    code = check_node(j, v, n, &job->err);
    if (code == ERR_OK) {
        code = bind_all(j, v, n, &job->err);
    }
    if (code == ERR_OK) {
        count_all(j, v, n);
    }
    view_unpin(v);
    buf_printf(&job->out,
               "],\"counted\":%" PRIu64 ",\"ignored_count\":%" PRIu64 ",\"keys_dropped\":%" PRIu64
               "}",
               j->counted, j->ignored, j->keys_dropped);
}

static void load_answer(struct exchange *x, struct job *job)
{
    if (job->err.code != ERR_OK) {
        job_reply(x, job);
        return;
    }
    buf_put(exchange_out(x), job->out.data, job->out.len);
    exchange_u64_header(x, "Cadastre-Revision", job->revision);
    exchange_reply(x, 202, NULL);
}

void h_node_load(struct exchange *x)
{
    struct slice name = exchange_path(x, 0);
    struct load_job *j;
    if (!leads(x)) {
        return;
    }
    if (name.len > DIR_NAME_MAX) {
        reply_problem(x, ERR_NODE_NOT_FOUND, "there is no node of this name");
        return;
    }
    j = job_new(x, sizeof *j);
    j->job.work = load_work;
    j->job.answer = load_answer;
    j->job.close = load_close;
    j->body = exchange_body(x);
    j->protobuf = exchange_body_is_protobuf(x);
    j->now_ms = clock_mono_ms();
    memcpy(j->node, name.data, name.len);
    buf_init(&j->routing, 4 * (size_t)API_BODY_MAX);
    if (j->body.len <= INLINE_MAX) {
        job_run(x, &j->job);
        return;
    }
    j->owned = mem_dup(j->body.data, j->body.len);
    j->body.data = j->owned;
    job_start(x, &j->job);
}

/* --- what has been heard --- */

static uint64_t rounded(uint64_t thousandths)
{
    return thousandths / 1000 + (thousandths % 1000 >= 500 ? 1 : 0);
}

/* Another thread may have put it after the caller looked at its clock. */
static uint64_t since(uint64_t then_ms, uint64_t now_ms)
{
    return now_ms > then_ms ? now_ms - then_ms : 0;
}

/* "reads" is "reads_per_s", "cpu_ms" "cpu_ms_per_s"; times and sizes keep their names. */
static void put_value(struct buf *b, enum load_resource r, uint64_t value)
{
    buf_printf(b, ",\"%s%s\":%" PRIu64, load_name(r), load_is_count(r) ? "_per_s" : "",
               r < LOAD_SIZE ? rounded(value) : value);
}

void load_put_partition(struct buf *b, struct loads *loads, uint64_t partition)
{
    uint64_t now = clock_mono_ms();
    struct load_entry e;
    if (!loads_get(loads, partition, 0, &e) || e.has == 0) {
        return;
    }
    if ((e.has & 1U << LOAD_SIZE) != 0) {
        put_value(b, LOAD_SIZE, load_value(&e, LOAD_SIZE, LOAD_FAST));
    }
    buf_printf(b, ",\"load\":{\"known\":%s,\"measured_ms_ago\":%" PRIu64,
               load_known(&e, now) ? "true" : "false", since(e.last_ms, now));
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        if ((e.has & 1U << r) != 0 && r != LOAD_SIZE) {
            put_value(b, (enum load_resource)r,
                      load_value(&e, (enum load_resource)r, r < LOAD_SIZE ? LOAD_MEAN : LOAD_FAST));
        }
    }
    buf_put_u8(b, '}');
}

struct node_sum {
    struct loads *loads;
    uint64_t node, sum[LOAD_RESOURCES], partitions, known, now_ms;
};

static bool add_up(void *arg, struct dir_partition *p)
{
    struct node_sum *s = arg;
    struct load_entry e;
    if (p->replica_count == 0 || p->replicas[0].role != DIR_ROLE_PRIMARY ||
        p->replicas[0].node != s->node || !loads_get(s->loads, p->id, 0, &e)) {
        return true;
    }
    s->partitions++;
    s->known += load_known(&e, s->now_ms) ? 1 : 0;
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        uint64_t v = load_value(&e, (enum load_resource)r, r < LOAD_SIZE ? LOAD_MEAN : LOAD_FAST);
        if (r == LOAD_QUEUE_P99 || r == LOAD_STORAGE_P99) {
            s->sum[r] = v > s->sum[r] ? v : s->sum[r];
        } else {
            s->sum[r] += v;
        }
    }
    return true;
}

static void put_reported(struct buf *b, const struct loads_node *n, uint64_t now_ms)
{
    static const char *const names[LOADS_FIGURES] = {
#define X(name, member, max) member,
        LOADS_FIGURE_LIST(X)
#undef X
    };
    buf_printf(b, ",\"reported\":{\"measured_ms_ago\":%" PRIu64, since(n->at_ms, now_ms));
    for (unsigned f = 0; f < LOADS_FIGURES; f++) {
        if ((n->has & 1U << f) != 0) {
            buf_printf(b, ",\"%s\":%" PRIu64, names[f],
                       f == LOADS_CPU ? n->figure[f] / 1000 : n->figure[f]);
        }
        if ((n->has & 1U << f) != 0 && f == LOADS_CPU) {
            buf_printf(b, ".%03" PRIu64, n->figure[f] % 1000);
        }
    }
    buf_put_u8(b, '}');
}

void load_put_node(struct buf *b,
                   struct loads *loads,
                   const struct dir_view *v,
                   const struct dir_node *n,
                   bool sum)
{
    struct node_sum s = {.loads = loads, .node = n->id, .now_ms = clock_mono_ms()};
    struct loads_node reported;
    if (loads_node(loads, n->id, &reported) && reported.session == n->session) {
        put_reported(b, &reported, s.now_ms);
    }
    if (!sum || n->partition_count > API_COUNTED_MAX) {
        return;
    }
    view_node_partitions(v, n->id, add_up, &s);
    if (s.partitions > 0) {
        buf_printf(b, ",\"load\":{\"partitions\":%" PRIu64 ",\"known\":%" PRIu64, s.partitions,
                   s.known);
        for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
            put_value(b, (enum load_resource)r, s.sum[r]);
        }
        buf_put_u8(b, '}');
    }
}
