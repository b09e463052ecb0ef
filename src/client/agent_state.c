/* SPDX-License-Identifier: Apache-2.0 */
/* What a node must not forget: its session, the epochs it acted on, the copies it holds, and which
 * sequence numbers may have been used. One small file, replaced whole; and a lock that the process
 * holds for life, so that whoever gets it knows the one before is gone. */
#include "base/hash.h"
#include "base/mem.h"
#include "base/parse.h"
#include "client/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE_MAX = 256 << 20, WORDS = 4, FILE_MODE = 0640 };

static const char head[] = "cadastre-agent 1\n";

static enum cadastre_status io_error(struct cadastre_error *e, const char *what, const char *path)
{
    return cl_error(e, CADASTRE_IO, "", "%s %s: %s", what, path, strerror(errno));
}

static char *path_of(const struct cadastre_agent *a, const char *name)
{
    return mem_printf("%s/%s", a->data_dir, name);
}

static enum cadastre_status take_lock(struct cadastre_agent *a, struct cadastre_error *e)
{
    char *path = path_of(a, "cadastre-agent.lock");
    enum cadastre_status status = CADASTRE_OK;
    a->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, FILE_MODE);
    if (a->lock_fd < 0) {
        status = io_error(e, "open", path);
    } else if (flock(a->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        status = errno == EWOULDBLOCK
                     ? cl_error(e, CADASTRE_LOCKED, "", "%s: another process uses it", a->data_dir)
                     : io_error(e, "lock", path);
    }
    mem_free(path);
    return status;
}

/* --- reading --- */

/* "name node", "session N", "seq N", "epoch KEYSPACE PARTITION EPOCH", "copy KEYSPACE PARTITION
 * COPY". */
static bool read_line(struct cadastre_agent *a, char *line)
{
    char *words[WORDS] = {NULL}, *word;
    unsigned n = 0;
    uint64_t id = 0, value = 0;
    while (n < WORDS && (word = strsep(&line, " ")) != NULL) {
        words[n++] = word;
    }
    if (n == 2 && strcmp(words[0], "node") == 0) {
        return strcmp(words[1], a->node) == 0;
    }
    if (n == 2 && parse_u64(words[1], PARSE_INT_MAX, &value)) {
        bool session = strcmp(words[0], "session") == 0;
        *(session ? &a->last_session : &a->seq_reserved) = value;
        return session || strcmp(words[0], "seq") == 0;
    }
    if (n != WORDS || !parse_u64(words[2], PARSE_INT_MAX, &id) ||
        !parse_u64(words[3], PARSE_INT_MAX, &value) || strlen(words[1]) > CADASTRE_NAME_MAX) {
        return false;
    }
    struct cadastre_partition *p = cl_partition(a, words[1], id, true);
    if (strcmp(words[0], "copy") == 0) {
        p->copy = value;
        return true;
    }
    atomic_store(&p->known_epoch, value);
    return strcmp(words[0], "epoch") == 0;
}

/* The last line is the checksum of all before it. */
static bool read_text(struct cadastre_agent *a, char *text, size_t len)
{
    static const char mark[] = "check ";
    char want[32];
    char *check = len > 0 && text[len - 1] == '\n' ? memrchr(text, '\n', len - 1) : NULL;
    if (check == NULL || strncmp(text, head, strlen(head)) != 0) {
        return false;
    }
    check++;
    (void)snprintf(want, sizeof want, "%s%016" PRIx64 "\n", mark,
                   hash_xxh64(text, (size_t)(check - text)));
    if (strcmp(check, want) != 0) {
        return false;
    }
    check[-1] = '\0'; /* the lines before it, the last without its end */
    char *rest = text + strlen(head), *line;
    bool ok = true;
    if (rest < check) {
        while (ok && (line = strsep(&rest, "\n")) != NULL) {
            ok = read_line(a, line);
        }
    }
    return ok;
}

static enum cadastre_status
read_file(struct cadastre_agent *a, int fd, const char *path, struct cadastre_error *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size > STATE_MAX) {
        return io_error(e, "read", path);
    }
    size_t size = (size_t)st.st_size, len = 0;
    char *text = mem_zalloc(size + 1);
    ssize_t n = 1;
    while (len < size && (n = read(fd, text + len, size - len)) > 0) {
        len += (size_t)n;
    }
    enum cadastre_status status = CADASTRE_OK;
    if (n < 0) {
        status = io_error(e, "read", path);
    } else if (!read_text(a, text, len)) {
        status = cl_error(e, CADASTRE_IO, "",
                          "%s is damaged, or is another node's; it says which copies and epochs "
                          "this node knows, so nothing starts without it",
                          path);
    }
    mem_free(text);
    return status;
}

enum cadastre_status cl_state_open(struct cadastre_agent *a, struct cadastre_error *e)
{
    enum cadastre_status status = take_lock(a, e);
    if (status != CADASTRE_OK) {
        return status;
    }
    char *path = path_of(a, "cadastre-agent.state");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        status = read_file(a, fd, path, e);
        (void)close(fd);
    } else if (errno != ENOENT) {
        status = io_error(e, "open", path);
    }
    a->next_seq = a->seq_reserved + 1;
    a->previous_session = a->last_session;
    mem_free(path);
    return status;
}

/* --- writing --- */

static void write_partition(struct cadastre_partition *p, void *arg)
{
    struct buf *b = arg;
    uint64_t epoch = atomic_load(&p->known_epoch);
    if (epoch > 0) {
        buf_printf(b, "epoch %s %" PRIu64 " %" PRIu64 "\n", p->keyspace, p->id, epoch);
    }
    if (p->copy > 0) {
        buf_printf(b, "copy %s %" PRIu64 " %" PRIu64 "\n", p->keyspace, p->id, p->copy);
    }
}

static void write_text(struct cadastre_agent *a, struct buf *b)
{
    buf_put_str(b, head);
    buf_printf(b, "node %s\nsession %" PRIu64 "\nseq %" PRIu64 "\n", a->node, a->last_session,
               a->seq_reserved);
    cl_partition_each(a, write_partition, b);
    buf_printf(b, "check %016" PRIx64 "\n", hash_xxh64(b->data, b->len));
}

static bool write_all(int fd, struct slice bytes)
{
    while (bytes.len > 0) {
        ssize_t n = write(fd, bytes.data, bytes.len);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        size_t done = n > 0 ? (size_t)n : 0;
        bytes = slice_of(bytes.data + done, bytes.len - done);
    }
    return fsync(fd) == 0;
}

static bool sync_folder(const struct cadastre_agent *a)
{
    int fd = open(a->data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return ok;
}

enum cadastre_status cl_state_save(struct cadastre_agent *a, struct cadastre_error *e)
{
    char *path = path_of(a, "cadastre-agent.state"), *temporary = path_of(a, "cadastre-agent.new");
    struct buf b;
    buf_init(&b, STATE_MAX);
    write_text(a, &b);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, FILE_MODE);
    bool ok = fd >= 0 && !b.overflow && write_all(fd, slice_of(b.data, b.len));
    if (fd >= 0) {
        ok = close(fd) == 0 && ok;
    }
    ok = ok && rename(temporary, path) == 0 && sync_folder(a);
    enum cadastre_status status = ok ? CADASTRE_OK : io_error(e, "write", path);
    if (!ok) {
        cl_event(&a->hooks, "agent.disk", "%s: %s", path, strerror(errno));
    }
    buf_close(&b);
    mem_free(path);
    mem_free(temporary);
    return status;
}

void cl_state_close(struct cadastre_agent *a)
{
    if (a->lock_fd >= 0) {
        (void)close(a->lock_fd);
        a->lock_fd = -1;
    }
}
