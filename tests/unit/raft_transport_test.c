/* SPDX-License-Identifier: Apache-2.0 */
/* Two transports on one loop, and clients that misbehave. */
#include "raft/transport.h"

#include "base/clock.h"
#include "base/mem.h"
#include "raft/bytes.h"
#include "tests/harness/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HANDSHAKE_MS = 400, STALL_MS = 400, WAIT_MS = 10000, IDLE_COUNT = 100 };

struct side {
    uint64_t id;
    uint8_t cluster;
    uint8_t instance;
    struct transport *t;
    struct raft_uv_transport uv;
    unsigned accepted, refused_by_us, refused_by_peer;
    uint64_t accepted_id;
    char accepted_address[64];
    enum hello_refusal last_refusal;
    uv_stream_t *incoming;
};

static uv_loop_t loop;
static struct side a, b;

static void introduce(void *ctx, struct hello *ret_self)
{
    const struct side *s = ctx;
    *ret_self = (struct hello){.state = HELLO_MEMBER, .from = s->id, .generation = 1};
    memset(ret_self->cluster, s->cluster, sizeof ret_self->cluster);
    memset(ret_self->instance, s->instance, sizeof ret_self->instance);
    (void)snprintf(ret_self->address, sizeof ret_self->address, "claimed:1");
}

/* An instance is the id, repeated, unless it was lost. */
static enum hello_refusal judge(void *ctx, const struct hello *peer, bool answer, char *ret_address)
{
    const struct side *s = ctx;
    if (!answer && peer->to != s->id) {
        return REFUSE_WRONG_SERVER;
    }
    if (peer->cluster[0] != s->cluster) {
        return REFUSE_CLUSTER;
    }
    if (peer->instance[0] != peer->from) {
        return REFUSE_INSTANCE;
    }
    (void)snprintf(ret_address, REPLICA_ADDRESS_MAX + 1, "configured:1");
    return REFUSE_NONE;
}

static void refused(void *ctx, const struct hello *peer, enum hello_refusal by_us)
{
    struct side *s = ctx;
    if (by_us != REFUSE_NONE) {
        s->refused_by_us++;
        s->last_refusal = by_us;
    } else {
        s->refused_by_peer++;
        s->last_refusal = peer->refusal;
    }
}

static void
on_accept(struct raft_uv_transport *uv, raft_id id, const char *address, uv_stream_t *stream)
{
    struct side *s = uv->data;
    s->accepted++;
    s->accepted_id = id;
    (void)snprintf(s->accepted_address, sizeof s->accepted_address, "%s", address);
    s->incoming = stream;
}

static void open_side(struct side *s, uint64_t id, const char *bind)
{
    struct err e = {0};
    struct transport_options options = {.loop = &loop,
                                        .stall_ms = STALL_MS,
                                        .handshake_ms = HANDSHAKE_MS,
                                        .ctx = s,
                                        .introduce = introduce,
                                        .judge = judge,
                                        .refused = refused};
    *s = (struct side){.id = id, .cluster = 7, .instance = (uint8_t)id};
    s->t = transport_new(&options, &s->uv);
    s->uv.data = s;
    CHECK_U64(transport_listen(s->t, bind, &e), ERR_OK);
    CHECK_U64(s->uv.init(&s->uv, id, "self:1"), 0);
    CHECK_U64(s->uv.listen(&s->uv, on_accept), 0);
}

static void reset(void)
{
    a.accepted = a.refused_by_us = a.refused_by_peer = 0;
    b.accepted = b.refused_by_us = b.refused_by_peer = 0;
    a.last_refusal = b.last_refusal = REFUSE_NONE;
    a.cluster = b.cluster = 7;
    b.instance = 2;
    a.incoming = b.incoming = NULL;
}

/* Turns the loop until `*what` is at least `n`. */
static bool turn_until(const unsigned *what, unsigned n)
{
    uint64_t deadline = clock_mono_ms() + WAIT_MS;
    while (*what < n && clock_mono_ms() < deadline) {
        (void)uv_run(&loop, UV_RUN_ONCE); /* the transports' timers wake it */
    }
    return *what >= n;
}

struct dialled {
    struct raft_uv_connect request;
    unsigned done;
    int status;
    uv_stream_t *stream;
};

static void on_dialled(struct raft_uv_connect *request, uv_stream_t *stream, int status)
{
    struct dialled *d = (struct dialled *)request;
    d->done++;
    d->status = status;
    d->stream = stream;
}

static void dial(struct dialled *d, const char *address, uint64_t id)
{
    *d = (struct dialled){0};
    CHECK_U64(b.uv.connect(&b.uv, &d->request, id, address, on_dialled), 0);
    CHECK(turn_until(&d->done, 1));
}

static const char *address_of(const struct side *s, const char *host)
{
    static char text[64];
    (void)snprintf(text, sizeof text, "%s:%u", host, transport_port(s->t));
    return text;
}

static unsigned closed_streams;

static void on_closed(uv_handle_t *handle)
{
    closed_streams++;
    raft_free(handle);
}

static void drop(uv_stream_t *stream)
{
    unsigned want = closed_streams + 1;
    if (stream != NULL) {
        uv_close((uv_handle_t *)stream, on_closed);
        CHECK(turn_until(&closed_streams, want));
    }
}

/* What arrives on a stream. */
static char received[256];
static unsigned received_len, ended;

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    (void)handle;
    (void)suggested;
    *ret_buf = uv_buf_init(received + received_len, (unsigned)(sizeof received - received_len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    if (n < 0) {
        (void)uv_read_stop(stream);
        ended++;
    } else {
        received_len += (unsigned)n;
    }
}

static void read_from(uv_stream_t *stream)
{
    received_len = 0;
    ended = 0;
    CHECK(uv_read_start(stream, on_alloc, on_read) == 0);
}

/* --- raw clients --- */

static int raw_connect(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(transport_port(a.t))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    return fd;
}

/* Turns the loop until the server has closed the connection; what it said before is dropped. */
static bool raw_closed(int fd)
{
    uint64_t deadline = clock_mono_ms() + WAIT_MS;
    char buf[2048];
    while (clock_mono_ms() < deadline) {
        ssize_t n = recv(fd, buf, sizeof buf, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) {
            return true;
        }
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    return false;
}

static size_t good_hello(uint8_t frame[HELLO_FRAME_MAX])
{
    struct hello h;
    introduce(&b, &h);
    h.type = HELLO_DIAL;
    h.to = 1;
    return hello_encode(&h, frame);
}

/* --- tests --- */

static void members_meet_and_bytes_flow(void)
{
    struct dialled d;
    uv_write_t write;
    uv_buf_t out = uv_buf_init((char[]){"raft"}, 4);
    reset();
    dial(&d, address_of(&a, "127.0.0.1"), 1);
    CHECK_U64(d.status, 0);
    CHECK(turn_until(&a.accepted, 1));
    CHECK_U64(a.accepted_id, 2);
    CHECK_STR(a.accepted_address, "configured:1"); /* ours, not what the peer claims */
    read_from(a.incoming);
    CHECK(uv_write(&write, d.stream, &out, 1, NULL) == 0);
    CHECK(turn_until(&received_len, 4));
    CHECK(memcmp(received, "raft", 4) == 0);
    drop(d.stream);
    CHECK(turn_until(&ended, 1));
    drop(a.incoming);
    CHECK_U64(transport_counts(a.t).pending, 0);
}

static void names_are_resolved(void)
{
    struct dialled d;
    reset();
    dial(&d, address_of(&a, "localhost"), 1);
    CHECK_U64(d.status, 0);
    CHECK(turn_until(&a.accepted, 1));
    drop(d.stream);
    drop(a.incoming);
    static const char *const bad[] = {"no.such.host.invalid:1", "nonsense", "127.0.0.1:1", ":1"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tap_note("%s", bad[i]);
        dial(&d, bad[i], 1);
        CHECK(d.status != 0 && d.stream == NULL);
    }
}

static void each_refusal_is_told(void)
{
    static const struct {
        const char *name;
        uint64_t id;
        uint8_t cluster, instance;
        enum hello_refusal want;
    } rows[] = {{"another cluster", 1, 8, 2, REFUSE_CLUSTER},
                {"another instance", 1, 7, 3, REFUSE_INSTANCE},
                {"another server", 9, 7, 2, REFUSE_WRONG_SERVER}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dialled d;
        reset();
        tap_note("%s", rows[i].name);
        b.cluster = rows[i].cluster;
        b.instance = rows[i].instance;
        dial(&d, address_of(&a, "127.0.0.1"), rows[i].id);
        CHECK(d.status != 0);
        CHECK_U64(b.refused_by_peer, 1);
        CHECK_U64(b.last_refusal, rows[i].want);
        CHECK_U64(a.refused_by_us, 1);
        CHECK_U64(a.accepted, 0);
    }
    reset();
}

static struct hello greeted;
static unsigned greetings;
static bool greeted_any;

static void on_greeted(void *arg, const struct hello *answer)
{
    (void)arg;
    greetings++;
    greeted_any = answer != NULL;
    if (answer != NULL) {
        greeted = *answer;
    }
}

static void greeting_brings_the_answer_and_no_stream(void)
{
    unsigned want = greetings + 1;
    reset();
    transport_greet(b.t, 1, address_of(&a, "127.0.0.1"), on_greeted, NULL);
    CHECK(turn_until(&greetings, want));
    CHECK(greeted_any && greeted.type == HELLO_ACCEPT && greeted.from == 1);
    CHECK(
        turn_until(&a.accepted, 1)); /* a member that only greets hangs up: libraft sees the end */
    read_from(a.incoming);
    CHECK(turn_until(&ended, 1));
    drop(a.incoming);
    transport_greet(b.t, 1, "127.0.0.1:1", on_greeted, NULL);
    CHECK(turn_until(&greetings, want + 1));
    CHECK(!greeted_any);
}

static void garbage_is_dropped(void)
{
    struct tap_rand rand = {tap_seed(3)};
    reset();
    for (unsigned round = 0; round < 50; round++) {
        uint8_t bytes[512];
        size_t len = HELLO_HEADER_SIZE + tap_rand_below(&rand, sizeof bytes - HELLO_HEADER_SIZE);
        for (size_t i = 0; i < len; i++) {
            bytes[i] = (uint8_t)tap_rand(&rand);
        }
        int fd = raw_connect();
        tap_note("round=%u", round);
        CHECK(send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
        CHECK(raw_closed(fd));
        (void)close(fd);
    }
    CHECK_U64(a.accepted, 0);
}

static void lengths_are_bounded(void)
{
    static const uint32_t lengths[] = {0, HELLO_BODY_MAX + 1, 1u << 30, UINT32_MAX};
    reset();
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint8_t frame[HELLO_FRAME_MAX];
        (void)good_hello(frame);
        bytes_put_u32(frame + 12, lengths[i]);
        int fd = raw_connect();
        tap_note("length=%u", lengths[i]);
        CHECK(send(fd, frame, HELLO_HEADER_SIZE, MSG_NOSIGNAL) == HELLO_HEADER_SIZE);
        CHECK(raw_closed(fd));
        (void)close(fd);
    }
    CHECK_U64(a.accepted, 0);
}

/* Every prefix of a good hello, then silence: the deadline ends it. One of the lengths at a time
 * would take minutes. */
static void silence_is_ended_by_the_deadline(void)
{
    uint8_t frame[HELLO_FRAME_MAX];
    int fds[8];
    size_t size = good_hello(frame);
    reset();
    uint64_t began = clock_mono_ms();
    for (unsigned i = 0; i < 8; i++) {
        size_t len = (size - 1) * i / 7;
        fds[i] = raw_connect();
        CHECK(send(fds[i], frame, len, MSG_NOSIGNAL) == (ssize_t)len);
    }
    for (unsigned i = 0; i < 8; i++) {
        CHECK(raw_closed(fds[i]));
        (void)close(fds[i]);
    }
    CHECK(clock_mono_ms() - began >= HANDSHAKE_MS - 1);
    CHECK_U64(a.accepted, 0);
    CHECK_U64(transport_counts(a.t).pending, 0);
}

static void slow_hello_is_fine_and_not_read_past(void)
{
    uint8_t frame[HELLO_FRAME_MAX + 8];
    size_t size = good_hello(frame);
    reset();
    memcpy(frame + size, "beyond", 6);
    int fd = raw_connect();
    for (size_t i = 0; i + 1 < size; i++) {
        CHECK(send(fd, frame + i, 1, MSG_NOSIGNAL) == 1);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    /* The last byte comes together with what is libraft's. */
    CHECK(send(fd, frame + size - 1, 7, MSG_NOSIGNAL) == 7);
    CHECK(turn_until(&a.accepted, 1));
    read_from(a.incoming);
    CHECK(turn_until(&received_len, 6));
    CHECK(memcmp(received, "beyond", 6) == 0);
    (void)close(fd);
    drop(a.incoming);
}

static void idle_connections_are_bounded(void)
{
    int fds[IDLE_COUNT];
    struct dialled d;
    reset();
    unsigned away = transport_counts(a.t).turned_away;
    for (unsigned i = 0; i < IDLE_COUNT; i++) {
        fds[i] = raw_connect();
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        CHECK(transport_counts(a.t).pending <= TRANSPORT_PENDING_MAX);
    }
    for (unsigned i = 0; i < IDLE_COUNT; i++) {
        CHECK(raw_closed(fds[i]));
        (void)close(fds[i]);
    }
    CHECK(transport_counts(a.t).turned_away >= away + 1);
    CHECK_U64(transport_counts(a.t).pending, 0);
    dial(&d, address_of(&a, "127.0.0.1"), 1);
    CHECK_U64(d.status, 0);
    CHECK(turn_until(&a.accepted, 1));
    drop(d.stream);
    drop(a.incoming);
}

static void other_version_is_told(void)
{
    uint8_t frame[HELLO_FRAME_MAX], got[HELLO_FRAME_MAX];
    size_t size = good_hello(frame), len = 0, body;
    struct hello said;
    reset();
    bytes_put_u16(frame + 8, HELLO_VERSION + 1);
    int fd = raw_connect();
    CHECK(send(fd, frame, size, MSG_NOSIGNAL) == (ssize_t)size);
    uint64_t deadline = clock_mono_ms() + WAIT_MS;
    while (clock_mono_ms() < deadline && len < HELLO_HEADER_SIZE + 70) {
        (void)uv_run(&loop, UV_RUN_ONCE);
        ssize_t n = recv(fd, got + len, sizeof got - len, 0);
        len += n > 0 ? (size_t)n : 0;
    }
    CHECK_U64(hello_header(got, &body), HELLO_FINE);
    CHECK(hello_decode(got + HELLO_HEADER_SIZE, len - HELLO_HEADER_SIZE, &said));
    CHECK_U64(said.refusal, REFUSE_VERSION);
    (void)close(fd);
}

static void newer_connection_replaces_the_older(void)
{
    struct dialled first, second;
    reset();
    dial(&first, address_of(&a, "127.0.0.1"), 1);
    CHECK(turn_until(&a.accepted, 1));
    uv_stream_t *old = a.incoming;
    read_from(old);
    dial(&second, address_of(&a, "127.0.0.1"), 1);
    CHECK(turn_until(&a.accepted, 2));
    CHECK(turn_until(&ended, 1));
    drop(old);
    drop(first.stream);
    drop(second.stream);
    drop(a.incoming);
}

/* libraft frees handles without a word, and the next one may get the same memory: replacing a
 * connection must never cut what took the old one's place. */
static void reused_memory_is_not_mistaken(void)
{
    for (unsigned i = 0; i < 40; i++) {
        struct dialled d;
        reset();
        tap_note("round=%u", i);
        dial(&d, address_of(&a, "127.0.0.1"), 1);
        CHECK_U64(d.status, 0);
        CHECK(turn_until(&a.accepted, 1));
        uv_write_t write;
        uv_buf_t out = uv_buf_init((char[]){"raft"}, 4);
        read_from(a.incoming);
        CHECK(uv_write(&write, d.stream, &out, 1, NULL) == 0);
        CHECK(turn_until(&received_len, 4));
        drop(i % 2 == 0 ? d.stream : a.incoming);
        drop(i % 2 == 0 ? a.incoming : d.stream);
    }
}

static unsigned written;
static int written_status;

static void on_written(uv_write_t *write, int status)
{
    (void)write;
    written++;
    written_status = status;
}

static void peer_that_takes_nothing_is_cut(void)
{
    enum { BIG = 16 << 20 };
    struct dialled d;
    uv_write_t write;
    char *big = mem_zalloc(BIG);
    reset();
    written = 0;
    unsigned stalled = transport_counts(b.t).stalled;
    dial(&d, address_of(&a, "127.0.0.1"), 1);
    CHECK(turn_until(&a.accepted, 1)); /* and reads nothing */
    uv_buf_t out = uv_buf_init(big, BIG);
    CHECK(uv_write(&write, d.stream, &out, 1, on_written) == 0);
    CHECK(turn_until(&written, 1));
    CHECK(written_status != 0);
    CHECK_U64(transport_counts(b.t).stalled, stalled + 1);
    drop(d.stream);
    drop(a.incoming);
    mem_free(big);
}

static void port_in_use_is_told(void)
{
    struct side c;
    struct err e = {0};
    struct transport_options options = {
        .loop = &loop, .stall_ms = STALL_MS, .ctx = &c, .introduce = introduce, .judge = judge};
    struct transport *t = transport_new(&options, &c.uv);
    CHECK_U64(transport_listen(t, address_of(&a, "127.0.0.1"), &e), ERR_IO);
    CHECK(strstr(e.detail, "address already in use") != NULL);
}

static void version_six_works(void)
{
    static struct side c;
    struct dialled d;
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool have = fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof any) == 0;
    (void)close(fd);
    if (!have) {
        (void)printf("# skipped: no IPv6 here\n");
        return;
    }
    open_side(&c, 3, "[::1]:0");
    reset();
    dial(&d, address_of(&c, "[::1]"), 3);
    CHECK_U64(d.status, 0);
    CHECK(turn_until(&c.accepted, 1));
    drop(d.stream);
    drop(c.incoming);
}

int main(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    uv_loop_init(&loop);
    open_side(&a, 1, "127.0.0.1:0");
    open_side(&b, 2, "127.0.0.1:0");
    RUN(reused_memory_is_not_mistaken); /* first: it needs a table without marks of what was cut */
    RUN(members_meet_and_bytes_flow);
    RUN(names_are_resolved);
    RUN(each_refusal_is_told);
    RUN(greeting_brings_the_answer_and_no_stream);
    RUN(garbage_is_dropped);
    RUN(lengths_are_bounded);
    RUN(silence_is_ended_by_the_deadline);
    RUN(slow_hello_is_fine_and_not_read_past);
    RUN(idle_connections_are_bounded);
    RUN(other_version_is_told);
    RUN(newer_connection_replaces_the_older);
    RUN(peer_that_takes_nothing_is_cut);
    RUN(port_in_use_is_told);
    RUN(version_six_works);
    return tap_done();
}
