/* SPDX-License-Identifier: Apache-2.0 */
/* A small real server on src/raft: a counter as the state machine, lines on stdin, answers on
 * stdout.
 *
 *     counter_server dir=D id=1 addr=127.0.0.1:7001 [peers=1=h:p,2=h:p] [join=CLUSTER,GENERATION
 * peers=1=h:p=INSTANCE,…] [election=300] [threshold=N] [trailing=N] [stall=ms]
 *
 * A line is "tag verb arguments"; its answer "tag status name=value …". Lines that begin with "*"
 * are events. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"
#include "raft/bytes.h"
#include "raft/replica.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum { MEMBERS_MAX = 32, LINE_SIZE = 8192, WORDS_MAX = 8, TAG_SIZE = 32, LATENCIES_MAX = 1 << 20 };

struct member {
    uint64_t id;
    uint8_t instance[REPLICA_INSTANCE_SIZE];
    uint64_t removed;
};

/* All of the replicated state but the blob. Padding-free: it is its own snapshot. */
struct state {
    uint64_t count, total, hash, blob_len, member_count;
    struct member members[MEMBERS_MAX];
};

static struct state state;
static uint8_t *blob;
static struct replica *replica;
static uint64_t applied_index;
static char line[LINE_SIZE];
static size_t line_len;

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vprintf(fmt, args);
    va_end(args);
    (void)putchar('\n');
    (void)fflush(stdout);
}

/* --- the state machine --- */

static void grow_blob(uint64_t bytes)
{
    blob = mem_realloc(blob, state.blob_len + bytes);
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        bytes_put_u64(blob + state.blob_len + i, hash_xxh64(&i, sizeof i));
    }
    state.blob_len += bytes;
}

static struct member *find_member(uint64_t id)
{
    for (uint64_t i = 0; i < state.member_count; i++) {
        if (state.members[i].id == id) {
            return &state.members[i];
        }
    }
    return NULL;
}

static void apply_member(const uint8_t *command, size_t len)
{
    uint64_t id = bytes_u64(command + 1);
    struct member *m = find_member(id);
    if (m == NULL && state.member_count < MEMBERS_MAX && len == 9 + REPLICA_INSTANCE_SIZE) {
        m = &state.members[state.member_count++];
        m->id = id;
        memcpy(m->instance, command + 9, REPLICA_INSTANCE_SIZE);
    } else if (m != NULL && command[0] == 'r') {
        m->removed = 1;
    }
}

static void *machine_apply(void *ctx, uint64_t index, const uint8_t *command, size_t len)
{
    struct {
        uint64_t index, hash, digest;
    } mixed = {index, state.hash, hash_xxh3_64(command, len)};
    (void)ctx;
    if (len >= 9 && command[0] == 'a') {
        state.total += bytes_u64(command + 1);
        state.count++;
    } else if (len >= 9 && command[0] == 'b') {
        grow_blob(bytes_u64(command + 1));
    } else if (len >= 9) {
        apply_member(command, len);
    }
    state.hash = hash_xxh3_64(&mixed, sizeof mixed);
    uint64_t result[3] = {state.count, state.total, state.hash};
    return mem_dup(result, sizeof result);
}

static void machine_drop_result(void *ctx, void *result)
{
    (void)ctx;
    mem_free(result);
}

static void machine_applied(void *ctx, uint64_t index)
{
    (void)ctx;
    applied_index = index;
}

struct snapshot {
    struct state state;
    uint8_t *blob;
    uint64_t index, check;
};

static void *machine_snapshot_begin(void *ctx, uint64_t index)
{
    (void)ctx;
    struct snapshot *s = mem_zalloc(sizeof *s);
    s->state = state;
    s->blob = mem_dup(blob != NULL ? blob : (const uint8_t *)"", state.blob_len);
    s->index = index;
    return s;
}

static int
machine_snapshot_wait(void *ctx, void *snapshot, const uint8_t *ret_piece[2], size_t ret_len[2])
{
    struct snapshot *s = snapshot;
    (void)ctx;
    ret_piece[0] = (const uint8_t *)&s->state;
    ret_len[0] = sizeof s->state;
    ret_piece[1] = s->blob;
    ret_len[1] = s->state.blob_len;
    return 0;
}

static void machine_snapshot_end(void *ctx, void *snapshot)
{
    struct snapshot *s = snapshot;
    (void)ctx;
    mem_free(s->blob);
    mem_free(s);
}

static int machine_restore(void *ctx, const uint8_t *bytes, size_t len)
{
    (void)ctx;
    if (len < sizeof state) {
        return 1;
    }
    memcpy(&state, bytes, sizeof state);
    if (state.blob_len != len - sizeof state) {
        return 1;
    }
    mem_free(blob);
    blob = mem_dup(bytes + sizeof state, state.blob_len);
    say("* restored count=%" PRIu64, state.count);
    return 0;
}

static int machine_knows(void *ctx, uint64_t id, const uint8_t instance[REPLICA_INSTANCE_SIZE])
{
    (void)ctx;
    const struct member *m = find_member(id);
    if (m == NULL) {
        return -1;
    }
    return m->removed == 0 && memcmp(m->instance, instance, REPLICA_INSTANCE_SIZE) == 0;
}

static void ignore_result(void *arg, enum err_code status, void *result)
{
    (void)arg;
    (void)status;
    mem_free(result);
}

static bool propose_member(uint8_t verb, uint64_t id, const uint8_t *instance)
{
    uint8_t command[9 + REPLICA_INSTANCE_SIZE] = {verb};
    bytes_put_u64(command + 1, id);
    memcpy(command + 9, instance, REPLICA_INSTANCE_SIZE);
    return replica_propose(replica, command, sizeof command, ignore_result, NULL) == ERR_OK;
}

/* The first leader writes the founders into the member table. */
static void name_founders(void *arg)
{
    struct replica_identity identity;
    (void)arg;
    replica_identity(replica, &identity);
    for (unsigned i = 0; i < identity.founder_count && state.member_count == 0; i++) {
        (void)propose_member('m', identity.founders[i].id, identity.founders[i].instance);
    }
}

static void machine_leadership(void *ctx, bool active, uint64_t term)
{
    (void)ctx;
    say("* %s term=%" PRIu64, active ? "leads" : "lost", term);
    if (active) {
        replica_post(replica, name_founders, NULL);
    }
}

/* --- requests --- */

struct request {
    char tag[TAG_SIZE];
};

static struct request *request_new(const char *tag)
{
    struct request *q = mem_zalloc(sizeof *q);
    (void)snprintf(q->tag, sizeof q->tag, "%s", tag);
    return q;
}

static void on_proposed(void *arg, enum err_code status, void *result)
{
    struct request *q = arg;
    const uint64_t *values = result;
    if (values != NULL) {
        say("%s %s count=%" PRIu64 " total=%" PRIu64 " hash=%016" PRIx64, q->tag, err_slug(status),
            values[0], values[1], values[2]);
    } else {
        say("%s %s", q->tag, err_slug(status));
    }
    mem_free(result);
    mem_free(q);
}

static void on_done(void *arg, enum err_code status)
{
    struct request *q = arg;
    say("%s %s", q->tag, err_slug(status));
    mem_free(q);
}

static void propose_number(const char *tag, uint8_t verb, uint64_t n)
{
    uint8_t command[9] = {verb};
    struct request *q = request_new(tag);
    bytes_put_u64(command + 1, n);
    enum err_code code = replica_propose(replica, command, sizeof command, on_proposed, q);
    if (code != ERR_OK) {
        on_proposed(q, code, NULL);
    }
}

static void do_confirm(const char *tag)
{
    struct request *q = request_new(tag);
    enum err_code code = replica_confirm(replica, on_done, q);
    if (code != ERR_OK) {
        on_done(q, code);
    }
}

static void do_status(const char *tag)
{
    static const char *const roles[] = {"founding", "follower", "candidate", "leader"};
    struct replica_status s;
    char members[512] = "";
    size_t at = 0;
    replica_status(replica, &s);
    for (unsigned i = 0; i < s.member_count; i++) {
        const struct replica_member *m = &s.members[i];
        at += (size_t)snprintf(members + at, sizeof members - at, "%s%" PRIu64 "%c%c",
                               i > 0 ? "," : "", m->id, m->voter ? 'v' : 'o',
                               m->connected ? '+' : '-');
    }
    say("%s ok role=%s active=%d leader=%" PRIu64 " term=%" PRIu64 " commit=%" PRIu64
        " applied=%" PRIu64 " last=%" PRIu64 " snapshot=%" PRIu64 " snapshots=%" PRIu64
        " elections=%" PRIu64 " queue=%" PRIu64 " heard_ago=%" PRId64 " members=%s count=%" PRIu64
        " total=%" PRIu64 " hash=%016" PRIx64 " blob=%" PRIu64,
        tag, roles[s.role], s.active, s.leader, s.term, s.commit_index, s.applied_index,
        s.last_index, s.snapshot_index, s.snapshots, s.elections, s.queue,
        (int64_t)(clock_mono_ms() - s.heard_ms), members[0] != '\0' ? members : "-", state.count,
        state.total, state.hash, state.blob_len);
}

static void do_identity(const char *tag)
{
    struct replica_identity identity;
    replica_identity(replica, &identity);
    char instance[33];
    for (unsigned i = 0; i < 16; i++) {
        (void)snprintf(instance + (size_t)i * 2, 3, "%02x", identity.instance[i]);
    }
    say("%s ok id=%" PRIu64 " cluster=%s generation=%" PRIu64 " instance=%s", tag, identity.id,
        identity.cluster[0] != '\0' ? identity.cluster : "-", identity.generation, instance);
}

/* --- load --- */

struct load {
    char tag[TAG_SIZE];
    uint64_t left, ok, unknown, refused, until_ns;
    unsigned in_flight, window;
    size_t size, latency_count;
    uint32_t *latencies_us;
    bool barriers, pumping;
    uint8_t *command;
    uint64_t began_ns;
};

struct shot {
    struct load *load;
    uint64_t began_ns;
};

static void load_pump(struct load *l);

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void load_end(struct load *l)
{
    uint64_t took_us = (clock_mono_ns() - l->began_ns) / 1000;
    qsort(l->latencies_us, l->latency_count, sizeof l->latencies_us[0], by_value);
    size_t n = l->latency_count;
    say("%s ok done=%" PRIu64 " unknown=%" PRIu64 " refused=%" PRIu64 " per_s=%" PRIu64
        " p50_us=%u p99_us=%u max_us=%u",
        l->tag, l->ok, l->unknown, l->refused, took_us > 0 ? l->ok * 1000000 / took_us : 0,
        n > 0 ? l->latencies_us[n / 2] : 0, n > 0 ? l->latencies_us[n * 99 / 100] : 0,
        n > 0 ? l->latencies_us[n - 1] : 0);
    mem_free(l->latencies_us);
    mem_free(l->command);
    mem_free(l);
}

static void shot_done(struct shot *shot, enum err_code status)
{
    struct load *l = shot->load;
    l->in_flight--;
    if (status == ERR_OK) {
        l->ok++;
        if (l->latency_count < LATENCIES_MAX) {
            l->latencies_us[l->latency_count++] =
                (uint32_t)((clock_mono_ns() - shot->began_ns) / 1000);
        }
    } else if (status == ERR_OUTCOME_UNKNOWN) {
        l->unknown++;
    } else {
        l->refused++;
        l->left = 0; /* the leadership is gone, or the queue is full */
    }
    mem_free(shot);
    if (!l->pumping) {
        load_pump(l);
    }
}

static void on_shot(void *arg, enum err_code status, void *result)
{
    mem_free(result);
    shot_done(arg, status);
}

static void on_shot_confirmed(void *arg, enum err_code status)
{
    shot_done(arg, status);
}

static void load_pump(struct load *l)
{
    l->pumping = true;
    while (l->left > 0 && l->in_flight < l->window) {
        struct shot *shot = mem_alloc(sizeof *shot);
        *shot = (struct shot){l, clock_mono_ns()};
        if (l->until_ns != 0 && shot->began_ns > l->until_ns) {
            l->left = 0;
            mem_free(shot);
            break;
        }
        l->left--;
        l->in_flight++;
        enum err_code code = l->barriers
                                 ? replica_confirm(replica, on_shot_confirmed, shot)
                                 : replica_propose(replica, l->command, l->size, on_shot, shot);
        if (code != ERR_OK) {
            shot_done(shot, code);
        }
    }
    l->pumping = false;
    if (l->left == 0 && l->in_flight == 0) {
        load_end(l);
    }
}

static void do_load(const char *tag, const uint64_t *n, bool barriers)
{
    struct load *l = mem_zalloc(sizeof *l);
    (void)snprintf(l->tag, sizeof l->tag, "%s", tag);
    l->left = n[0] != 0 ? n[0] : UINT64_MAX;
    l->window = (unsigned)n[1];
    l->size = n[2] < 9 ? 9 : (size_t)n[2];
    l->began_ns = clock_mono_ns();
    l->until_ns = n[3] != 0 ? l->began_ns + n[3] * 1000000 : 0;
    l->barriers = barriers;
    l->command = mem_zalloc(l->size);
    l->command[0] = 'a';
    bytes_put_u64(l->command + 1, 1);
    l->latencies_us = mem_alloc(sizeof l->latencies_us[0] * LATENCIES_MAX);
    load_pump(l);
}

/* --- lines --- */

static uint64_t number(const char *word)
{
    uint64_t value = 0;
    if (word == NULL || !parse_u64(word, UINT64_MAX, &value)) {
        return 0;
    }
    return value;
}

static void unhex(const char *hex, uint8_t out[REPLICA_INSTANCE_SIZE])
{
    size_t len;
    memset(out, 0, REPLICA_INSTANCE_SIZE);
    (void)parse_hex(slice_of(hex, strlen(hex)), out, REPLICA_INSTANCE_SIZE, &len);
}

static void do_member(const char *tag, const char *verb, char *const *words)
{
    struct request *q = request_new(tag);
    struct replica_peer peer = {.id = number(words[0])};
    if (strcmp(verb, "add") == 0) {
        (void)snprintf(peer.raft_address, sizeof peer.raft_address, "%s", words[1]);
        unhex(words[2], peer.instance);
        (void)propose_member('m', peer.id, peer.instance);
        replica_add(replica, &peer, on_done, q);
    } else if (strcmp(verb, "promote") == 0) {
        replica_promote(replica, peer.id, on_done, q);
    } else if (strcmp(verb, "demote") == 0) {
        replica_demote(replica, peer.id, on_done, q);
    } else if (strcmp(verb, "remove") == 0) {
        replica_remove(replica, peer.id, on_done, q);
    } else {
        replica_transfer(replica, peer.id, on_done, q);
    }
}

static void on_retired(void *arg)
{
    (void)arg;
    _exit(0);
}

static bool do_simple(const char *tag, const char *verb, char *const *words)
{
    if (strcmp(verb, "inc") == 0) {
        propose_number(tag, 'a', number(words[0]));
    } else if (strcmp(verb, "blob") == 0) {
        propose_number(tag, 'b', number(words[0]));
    } else if (strcmp(verb, "confirm") == 0) {
        do_confirm(tag);
    } else if (strcmp(verb, "status") == 0) {
        do_status(tag);
    } else if (strcmp(verb, "identity") == 0) {
        do_identity(tag);
    } else if (strcmp(verb, "snapshot") == 0) {
        replica_snapshot(replica);
        say("%s ok", tag);
    } else if (strcmp(verb, "hold") == 0) {
        replica_hold(replica, number(words[0]) != 0);
        say("%s ok", tag);
    } else {
        return false;
    }
    return true;
}

static void do_line(char *text)
{
    char *words[WORDS_MAX] = {NULL};
    unsigned count = 0;
    for (char *at = text; count < WORDS_MAX && at != NULL && *at != '\0';) {
        words[count++] = at;
        at = strchr(at, ' ');
        if (at != NULL) {
            *at++ = '\0';
        }
    }
    if (count < 2) {
        say("* bad line");
        return;
    }
    const char *tag = words[0], *verb = words[1];
    uint64_t numbers[4] = {number(words[2]), number(words[3]), number(words[4]), number(words[5])};
    if (do_simple(tag, verb, words + 2)) {
        return;
    }
    if (strcmp(verb, "forget") == 0) {
        uint8_t none[REPLICA_INSTANCE_SIZE] = {0};
        say("%s %s", tag, propose_member('r', numbers[0], none) ? "ok" : "not_leader");
    } else if (strcmp(verb, "load") == 0) {
        do_load(tag, numbers, false);
    } else if (strcmp(verb, "barriers") == 0) {
        do_load(tag, numbers, true);
    } else if (strcmp(verb, "retire") == 0) {
        replica_retire(replica, on_retired, NULL);
    } else {
        do_member(tag, verb, words + 2);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    (void)handle;
    (void)suggested;
    *ret_buf = uv_buf_init(line + line_len, (unsigned)(sizeof line - line_len - 1));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)stream;
    (void)buf;
    if (n < 0) {
        _exit(0); /* the test is gone */
    }
    line_len += (size_t)n;
    line[line_len] = '\0';
    for (char *end; (end = strchr(line, '\n')) != NULL;) {
        *end = '\0';
        do_line(line);
        size_t used = (size_t)(end + 1 - line);
        memmove(line, line + used, line_len - used + 1);
        line_len -= used;
    }
}

/* --- the start --- */

/* "1=host:port=instance,2=…", the instance may be missing. */
static unsigned parse_peers(char *text, struct replica_peer *peers)
{
    unsigned count = 0;
    while (text != NULL && *text != '\0' && count < REPLICA_SERVERS_MAX) {
        char *next = strchr(text, ','), *address = strchr(text, '=');
        if (next != NULL) {
            *next++ = '\0';
        }
        if (address == NULL) {
            break;
        }
        *address++ = '\0';
        char *instance = strchr(address, '=');
        if (instance != NULL) {
            *instance++ = '\0';
            unhex(instance, peers[count].instance);
        }
        peers[count].id = number(text);
        (void)snprintf(peers[count].raft_address, sizeof peers[count].raft_address, "%s", address);
        count++;
        text = next;
    }
    return count;
}

static struct replica_peer peers[REPLICA_SERVERS_MAX];

static void take_join(struct replica_options *o, char *value)
{
    char *generation = strchr(value, ',');
    if (generation != NULL) {
        *generation++ = '\0';
        o->join_generation = number(generation);
    }
    o->join = true;
    (void)snprintf(o->join_cluster, sizeof o->join_cluster, "%s", value);
}

static bool take_argument(struct replica_options *o, char *argument)
{
    char *value = strchr(argument, '=');
    if (value == NULL) {
        return false;
    }
    *value++ = '\0';
    if (strcmp(argument, "dir") == 0) {
        o->data_dir = value;
    } else if (strcmp(argument, "id") == 0) {
        o->id = number(value);
    } else if (strcmp(argument, "addr") == 0) {
        o->raft_address = value;
        o->raft_bind = value;
    } else if (strcmp(argument, "peers") == 0) {
        o->founder_count = parse_peers(value, peers);
    } else if (strcmp(argument, "join") == 0) {
        take_join(o, value);
    } else if (strcmp(argument, "election") == 0) {
        o->election_ms = number(value);
    } else if (strcmp(argument, "threshold") == 0) {
        o->snapshot_threshold = (unsigned)number(value);
    } else if (strcmp(argument, "trailing") == 0) {
        o->snapshot_trailing = (unsigned)number(value);
    } else if (strcmp(argument, "stall") == 0) {
        o->stall_ms = number(value);
    } else {
        return false;
    }
    return true;
}

static const struct replica_machine machine = {.apply = machine_apply,
                                               .drop_result = machine_drop_result,
                                               .applied = machine_applied,
                                               .snapshot_begin = machine_snapshot_begin,
                                               .snapshot_wait = machine_snapshot_wait,
                                               .snapshot_end = machine_snapshot_end,
                                               .restore = machine_restore,
                                               .leadership = machine_leadership,
                                               .knows = machine_knows};

int main(int argc, char **argv)
{
    struct replica_options options = {.api_url = "http://127.0.0.1:1", .founders = peers};
    struct replica_identity identity;
    struct err e = {0};
    uv_loop_t loop;
    uv_pipe_t in;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)setenv("UV_THREADPOOL_SIZE", "12", 1);
    for (int i = 1; i < argc; i++) {
        if (!take_argument(&options, argv[i])) {
            say("* bad argument %s", argv[i]);
            return EXIT_FLAGS;
        }
    }
    options.heartbeat_ms = options.election_ms / 10;
    if (options.join) {
        options.join_peers = peers;
        options.join_peer_count = options.founder_count;
        options.founder_count = 0;
    }
    uv_loop_init(&loop);
    enum err_code code = replica_identity_open(options.data_dir, options.id, &identity, &e);
    if (code == ERR_OK) {
        code = replica_start(&loop, &options, &machine, &replica, &e);
    }
    if (code != ERR_OK) {
        say("* failed %s %s", err_slug(code), e.detail);
        (void)uv_loop_close(&loop); /* busy when the replica listens already: the process ends */
        return code == ERR_INVALID_REQUEST ? EXIT_FLAGS : EXIT_DATA;
    }
    uv_pipe_init(&loop, &in, 0);
    uv_pipe_open(&in, STDIN_FILENO);
    uv_read_start((uv_stream_t *)&in, on_alloc, on_read);
    say("* up");
    return uv_run(&loop, UV_RUN_DEFAULT);
}
