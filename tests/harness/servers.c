/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/servers.h"

#include "base/clock.h"
#include "base/parse.h"
#include "tests/harness/tap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Between looks at a condition that nothing announces. */
static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

bool wait_for(bool (*ok)(void *arg), void *arg, unsigned wait_ms)
{
    uint64_t deadline = clock_mono_ms() + wait_ms;
    while (!ok(arg)) {
        if (clock_mono_ms() >= deadline) {
            return false;
        }
        pause_ms(10);
    }
    return true;
}

/* --- the set --- */

static uint16_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) != 0) {
        (void)printf("Bail out! no free port: %s\n", strerror(errno));
        exit(2);
    }
    (void)close(fd);
    return ntohs(a.sin_port);
}

/* So that the same port is not handed out twice. */
static uint16_t fresh_port(const struct servers *s)
{
    for (;;) {
        uint16_t port = free_port();
        bool taken = false;
        for (unsigned i = 1; i <= SERVERS_MAX; i++) {
            taken = taken || s->at[i].port == port;
        }
        if (!taken) {
            return port;
        }
    }
}

static void prepare(struct servers *s, uint64_t id)
{
    struct server *v = &s->at[id];
    *v = (struct server){.all = s, .id = id, .in = -1, .out = -1};
    v->port = fresh_port(s);
    char dir[sizeof v->dir];
    (void)snprintf(dir, sizeof dir, "%s/%" PRIu64, s->dir, id);
    memcpy(v->dir, dir, sizeof dir);
}

void servers_open(struct servers *s, unsigned count, const char *extra)
{
    char peers[1024] = "peers=";
    size_t at = strlen(peers);
    const char *base = getenv("TMPDIR");
    *s = (struct servers){.count = count};
    (void)snprintf(s->dir, sizeof s->dir, "%s/replica-test-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(s->dir) == NULL) {
        (void)printf("Bail out! mkdtemp: %s\n", strerror(errno));
        exit(2);
    }
    for (unsigned id = 1; id <= count; id++) {
        prepare(s, id);
        at += (size_t)snprintf(peers + at, sizeof peers - at, "%s%u=127.0.0.1:%u",
                               id > 1 ? "," : "", id, s->at[id].port);
    }
    for (unsigned id = 1; id <= count; id++) {
        if (count > 1) {
            (void)snprintf(s->at[id].extra[0], sizeof s->at[id].extra[0], "%s", peers);
        }
        (void)snprintf(s->at[id].extra[1], sizeof s->at[id].extra[1], "%s", extra);
    }
}

struct server *servers_joiner(struct servers *s, uint64_t id, struct server *by)
{
    char answer[SERVERS_TEXT], cluster[64], instance[64];
    char peers[1024] = "peers=";
    size_t at = strlen(peers);
    struct server *v = &s->at[id];
    prepare(s, id);
    for (unsigned i = 1; i <= SERVERS_MAX; i++) {
        if (i != id && s->at[i].pid != 0 && server_ask(&s->at[i], answer, "identity")) {
            answer_word(answer, "instance", instance, sizeof instance);
            at += (size_t)snprintf(peers + at, sizeof peers - at, "%s%u=127.0.0.1:%u=%s",
                                   at > 6 ? "," : "", i, s->at[i].port, instance);
        }
    }
    if (!CHECK(server_ask(by, answer, "identity"))) {
        return v;
    }
    answer_word(answer, "cluster", cluster, sizeof cluster);
    (void)snprintf(v->extra[0], sizeof v->extra[0], "%s", peers);
    (void)snprintf(v->extra[1], sizeof v->extra[1], "%s", by->extra[1]);
    (void)snprintf(v->extra[2], sizeof v->extra[2], "join=%s,%" PRIu64, cluster,
                   answer_u64(answer, "generation"));
    return v;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

void server_wipe(struct server *v)
{
    (void)nftw(v->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void servers_close(struct servers *s)
{
    for (unsigned id = 1; id <= SERVERS_MAX; id++) {
        if (s->at[id].pid != 0) {
            server_kill(&s->at[id]);
        }
    }
    if (tap_failures() > 0) {
        (void)printf("# left for a look: %s\n", s->dir);
        return;
    }
    (void)nftw(s->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- one server --- */

/* build/<variant>/tests/harness/counter_server, beside build/<variant>/tests/integration/<this
 * test>. */
static void find_binary(char *out, size_t size)
{
    char self[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(self, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    }
    (void)snprintf(out, size, "%s/harness/counter_server", self);
}

static void run_child(struct server *v, int in, int out)
{
    char binary[1200], dir[600], id[40], address[64], log[600];
    char *argv[16];
    unsigned n = 0;
    find_binary(binary, sizeof binary);
    (void)snprintf(dir, sizeof dir, "dir=%s", v->dir);
    (void)snprintf(id, sizeof id, "id=%" PRIu64, v->id);
    (void)snprintf(address, sizeof address, "addr=127.0.0.1:%u", v->port);
    (void)snprintf(log, sizeof log, "%s/%" PRIu64 ".log", v->all->dir, v->id);
    argv[n++] = binary;
    argv[n++] = dir;
    argv[n++] = id;
    argv[n++] = address;
    for (unsigned i = 0; i < 5; i++) {
        char *save = NULL;
        for (char *word = strtok_r(v->extra[i], " ", &save); word != NULL && n < 15;
             word = strtok_r(NULL, " ", &save)) {
            argv[n++] = word;
        }
    }
    argv[n] = NULL;
    int err = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)dup2(in, STDIN_FILENO);
    (void)dup2(out, STDOUT_FILENO);
    (void)dup2(err, STDERR_FILENO);
    execv(binary, argv);
    _exit(127);
}

void server_spawn(struct server *v)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
        (void)printf("Bail out! pipe: %s\n", strerror(errno));
        exit(2);
    }
    (void)fflush(stdout);
    v->pid = fork();
    if (v->pid == 0) {
        run_child(v, in[0], out[1]);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    v->in = in[1];
    v->out = out[0];
    v->len = 0;
}

static void reaped(struct server *v)
{
    (void)close(v->in);
    (void)close(v->out);
    v->in = v->out = -1;
    v->pid = 0;
}

int server_exit(struct server *v, unsigned wait_ms)
{
    uint64_t deadline = clock_mono_ms() + wait_ms;
    int status = 0;
    while (waitpid(v->pid, &status, WNOHANG) != v->pid) {
        if (clock_mono_ms() >= deadline) {
            return -1;
        }
        pause_ms(10);
    }
    reaped(v);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void server_signal(struct server *v, int signal)
{
    if (v->pid > 0) {
        (void)kill(v->pid, signal);
    }
}

void server_kill(struct server *v)
{
    int status;
    server_signal(v, SIGKILL);
    (void)waitpid(v->pid, &status, 0);
    reaped(v);
}

/* Takes the first line that begins with `prefix` out of what was read; older lines before it stay.
 */
static bool take_line(struct server *v, const char *prefix, char answer[SERVERS_TEXT])
{
    for (char *at = v->buf, *end; (end = memchr(at, '\n', v->len - (size_t)(at - v->buf))) != NULL;
         at = end + 1) {
        if (strncmp(at, prefix, strlen(prefix)) == 0) {
            size_t skip = strlen(prefix);
            (void)snprintf(answer, SERVERS_TEXT, "%.*s", (int)((size_t)(end - at) - skip),
                           at + skip);
            v->len -= (size_t)(end + 1 - at);
            memmove(at, end + 1, v->len - (size_t)(at - v->buf));
            return true;
        }
    }
    return false;
}

/* Events that nobody waits for must not fill the buffer. */
static void make_room(struct server *v)
{
    if (v->len > sizeof v->buf / 2) {
        char *end = memchr(v->buf, '\n', v->len);
        size_t used = end != NULL ? (size_t)(end + 1 - v->buf) : v->len;
        v->len -= used;
        memmove(v->buf, v->buf + used, v->len);
    }
}

static bool await_line(struct server *v, const char *prefix, unsigned wait_ms, char *answer)
{
    uint64_t deadline = clock_mono_ms() + wait_ms;
    while (!take_line(v, prefix, answer)) {
        uint64_t now = clock_mono_ms();
        struct pollfd p = {.fd = v->out, .events = POLLIN};
        if (v->pid == 0 || now >= deadline || poll(&p, 1, (int)(deadline - now)) <= 0) {
            return false;
        }
        make_room(v);
        ssize_t n = read(v->out, v->buf + v->len, sizeof v->buf - v->len);
        if (n <= 0) {
            return false;
        }
        v->len += (size_t)n;
    }
    return true;
}

bool server_start(struct server *v)
{
    char answer[SERVERS_TEXT];
    server_spawn(v);
    return await_line(v, "* up", SERVERS_WAIT_MS, answer);
}

void servers_start_all(struct servers *s)
{
    for (unsigned id = 1; id <= s->count; id++) {
        CHECK(server_start(&s->at[id]));
    }
}

static bool send_line(struct server *v, unsigned tag, const char *fmt, va_list args)
{
    char line[1024];
    int head = snprintf(line, sizeof line, "%u ", tag);
    int n = vsnprintf(line + head, sizeof line - (size_t)head - 1, fmt, args);
    line[head + n] = '\n';
    size_t size = (size_t)(head + n + 1);
    return v->pid != 0 && write(v->in, line, size) == (ssize_t)size;
}

bool server_answer(struct server *v, unsigned tag, unsigned wait_ms, char answer[SERVERS_TEXT])
{
    char prefix[24];
    (void)snprintf(prefix, sizeof prefix, "%u ", tag);
    return await_line(v, prefix, wait_ms, answer);
}

bool server_event(struct server *v, const char *event, unsigned wait_ms, char answer[SERVERS_TEXT])
{
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "* %s", event);
    return await_line(v, prefix, wait_ms, answer);
}

unsigned server_send(struct server *v, const char *fmt, ...)
{
    va_list args;
    unsigned tag = ++v->all->asked;
    va_start(args, fmt);
    bool sent = send_line(v, tag, fmt, args);
    va_end(args);
    return sent ? tag : 0;
}

bool server_ask_within(struct server *v,
                       unsigned wait_ms,
                       char answer[SERVERS_TEXT],
                       const char *fmt,
                       ...)
{
    va_list args;
    unsigned tag = ++v->all->asked;
    va_start(args, fmt);
    bool sent = send_line(v, tag, fmt, args);
    va_end(args);
    return sent && server_answer(v, tag, wait_ms, answer);
}

bool server_ask(struct server *v, char answer[SERVERS_TEXT], const char *fmt, ...)
{
    va_list args;
    unsigned tag = ++v->all->asked;
    va_start(args, fmt);
    bool sent = send_line(v, tag, fmt, args);
    va_end(args);
    return sent && server_answer(v, tag, SERVERS_WAIT_MS, answer);
}

/* --- answers --- */

bool answer_is(const char *answer, const char *status)
{
    size_t len = strlen(status);
    return strncmp(answer, status, len) == 0 && (answer[len] == '\0' || answer[len] == ' ');
}

void answer_word(const char *answer, const char *name, char *out, size_t size)
{
    char key[64];
    (void)snprintf(key, sizeof key, " %s=", name);
    const char *at = strstr(answer, key);
    out[0] = '\0';
    if (at != NULL) {
        at += strlen(key);
        (void)snprintf(out, size, "%.*s", (int)strcspn(at, " "), at);
    }
}

uint64_t answer_u64(const char *answer, const char *name)
{
    char word[64];
    uint64_t value = 0;
    answer_word(answer, name, word, sizeof word);
    return parse_u64(word, UINT64_MAX, &value) ? value : 0;
}

/* --- the cluster --- */

struct leader_search {
    struct servers *s;
    const struct server *except;
    struct server *found;
};

static bool find_leader(void *arg)
{
    struct leader_search *search = arg;
    char answer[SERVERS_TEXT];
    for (unsigned id = 1; id <= SERVERS_MAX; id++) {
        struct server *v = &search->s->at[id];
        if (v->pid != 0 && v != search->except && server_ask_within(v, 200, answer, "status") &&
            answer_u64(answer, "active") == 1) {
            search->found = v;
            return true;
        }
    }
    return false;
}

struct server *servers_leader(struct servers *s, const struct server *except)
{
    struct leader_search search = {s, except, NULL};
    (void)wait_for(find_leader, &search, SERVERS_WAIT_MS);
    return search.found;
}

struct server *servers_other(struct servers *s, const struct server *v, const struct server *other)
{
    for (unsigned id = 1; id <= SERVERS_MAX; id++) {
        if (s->at[id].pid != 0 && &s->at[id] != v && &s->at[id] != other) {
            return &s->at[id];
        }
    }
    return NULL;
}

static bool all_agree(void *arg)
{
    struct servers *s = arg;
    char first[64] = "", hash[64], answer[SERVERS_TEXT];
    uint64_t applied = 0;
    unsigned running = 0;
    for (unsigned id = 1; id <= SERVERS_MAX; id++) {
        if (s->at[id].pid == 0) {
            continue;
        }
        if (!server_ask_within(&s->at[id], 1000, answer, "status")) {
            return false;
        }
        answer_word(answer, "hash", hash, sizeof hash);
        if (running++ == 0) {
            applied = answer_u64(answer, "applied");
            (void)snprintf(first, sizeof first, "%s", hash);
        } else if (applied != answer_u64(answer, "applied") || strcmp(first, hash) != 0) {
            return false;
        }
    }
    return running > 0 && applied > 0;
}

bool servers_agree(struct servers *s)
{
    return wait_for(all_agree, s, SERVERS_WAIT_MS);
}

bool servers_count(struct servers *s, uint64_t n, uint64_t *acked, uint64_t *unknown)
{
    char answer[SERVERS_TEXT];
    struct server *leader = NULL;
    uint64_t deadline = clock_mono_ms() + SERVERS_WAIT_MS * 2;
    while (n > 0 && clock_mono_ms() < deadline) {
        leader = leader != NULL ? leader : servers_leader(s, NULL);
        if (leader == NULL) {
            return false;
        }
        if (!server_ask_within(leader, SERVERS_WAIT_MS, answer, "inc 1") ||
            answer_is(answer, "outcome_unknown")) {
            ++*unknown;
            leader = NULL;
        } else if (answer_is(answer, "ok")) {
            ++*acked;
            n--;
        } else {
            leader = NULL; /* refused: surely not applied */
        }
    }
    return n == 0;
}

void servers_check_count(struct servers *s, uint64_t acked, uint64_t unknown)
{
    char answer[SERVERS_TEXT];
    struct server *leader = servers_leader(s, NULL);
    CHECK(servers_agree(s));
    if (CHECK(leader != NULL) && CHECK(server_ask(leader, answer, "status"))) {
        uint64_t count = answer_u64(answer, "count");
        tap_note("%s acked=%" PRIu64 " unknown=%" PRIu64, answer, acked, unknown);
        CHECK(count >= acked);
        CHECK(count <= acked + unknown);
    }
}

bool servers_do(struct servers *s, const char *want, const char *fmt, ...)
{
    char line[128], answer[SERVERS_TEXT];
    va_list args;
    struct server *leader = servers_leader(s, NULL);
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (leader == NULL || !server_ask(leader, answer, "%s", line)) {
        return false;
    }
    tap_note("%s -> %s", line, answer);
    return answer_is(answer, want);
}

bool server_logged(const struct server *v, const char *words)
{
    char path[600], line[4096];
    bool found = false;
    (void)snprintf(path, sizeof path, "%s/%" PRIu64 ".log", v->all->dir, v->id);
    FILE *f = fopen(path, "re");
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
        found = strstr(line, words) != NULL;
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return found;
}

struct log_search {
    const struct server *v;
    const char *words;
};

static bool has_logged(void *arg)
{
    const struct log_search *search = arg;
    return server_logged(search->v, search->words);
}

bool server_wait_logged(const struct server *v, const char *words)
{
    struct log_search search = {v, words};
    return wait_for(has_logged, &search, SERVERS_WAIT_MS);
}
