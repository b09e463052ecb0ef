/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/identity.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/parse.h"
#include "raft/bytes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILE_MAX = 32 * 1024, /* 16 founders of two addresses, and 16 moves, take less than 15 KiB */
    PATH_SIZE = 4096,
    WORDS_MAX = 5
};

static const char HEADING[] = "cadastre-identity 1\n";

void identity_hex(const uint8_t bytes[16], char ret_hex[33])
{
    for (unsigned i = 0; i < 16; i++) {
        (void)snprintf(ret_hex + (size_t)i * 2, 3, "%02x", bytes[i]);
    }
}

void identity_unhex(const char *hex, uint8_t ret_bytes[16])
{
    size_t len;
    uint8_t bytes[16];
    if (parse_hex(slice_of(hex, strlen(hex)), bytes, sizeof bytes, &len) && len == sizeof bytes) {
        memcpy(ret_bytes, bytes, sizeof bytes);
    } else {
        memset(ret_bytes, 0, sizeof bytes);
    }
}

const struct replica_peer *identity_founder(const struct identity *identity, uint64_t id)
{
    for (unsigned i = 0; i < identity->is.founder_count; i++) {
        if (identity->is.founders[i].id == id) {
            return &identity->is.founders[i];
        }
    }
    return NULL;
}

const char *identity_moved(const struct identity *identity, uint64_t id)
{
    for (unsigned i = 0; i < identity->move_count; i++) {
        if (identity->moves[i].id == id) {
            return identity->moves[i].raft_address;
        }
    }
    return NULL;
}

/* Sums, so that the order of a flag's items does not matter; ids are unique, so no two items are
 * the same. */
static struct hash128 digest(const struct replica_peer *peers, unsigned count, bool instances)
{
    struct hash128 sum = {count, instances};
    for (unsigned i = 0; i < count; i++) {
        uint8_t item[8 + REPLICA_INSTANCE_SIZE + REPLICA_ADDRESS_MAX + 1] = {0};
        size_t len = strlen(peers[i].raft_address);
        bytes_put_u64(item, peers[i].id);
        if (instances) {
            memcpy(item + 8, peers[i].instance, REPLICA_INSTANCE_SIZE);
        }
        memcpy(item + 8 + REPLICA_INSTANCE_SIZE, peers[i].raft_address, len);
        hash128_add(&sum, hash_xxh3_128(item, 8 + REPLICA_INSTANCE_SIZE + len));
    }
    return sum;
}

uint64_t identity_founders_digest(const struct replica_peer *peers, unsigned count)
{
    return digest(peers, count, false).lo;
}

void identity_cluster_of(const struct replica_peer *peers, unsigned count, char ret_cluster[33])
{
    hash128_hex(digest(peers, count, true), ret_cluster);
}

/* --- the file's text --- */

static const char *or_dash(const char *text)
{
    return text[0] != '\0' ? text : "-";
}

static void put_text(struct buf *out, const struct identity *identity)
{
    char hex[33];
    const struct replica_identity *is = &identity->is;
    buf_put_str(out, HEADING);
    identity_hex(is->instance, hex);
    buf_printf(out, "id %" PRIu64 "\ninstance %s\n", is->id, hex);
    if (is->used) {
        buf_printf(out, "cluster %s\ngeneration %" PRIu64 "\norigin %s\nstarted %u\n", is->cluster,
                   is->generation, identity->joined ? "joined" : "founded",
                   (unsigned)identity->started);
    }
    for (unsigned i = 0; i < is->founder_count; i++) {
        const struct replica_peer *p = &is->founders[i];
        identity_hex(p->instance, hex);
        buf_printf(out, "peer %" PRIu64 " %s %s %s\n", p->id, hex, or_dash(p->raft_address),
                   or_dash(p->api_url));
    }
    for (unsigned i = 0; i < identity->move_count; i++) {
        buf_printf(out, "moved %" PRIu64 " %s\n", identity->moves[i].id,
                   identity->moves[i].raft_address);
    }
    buf_printf(out, "check %016" PRIx64 "\n", hash_xxh3_64(out->data, out->len));
}

static bool take_text(char *out, const char *word)
{
    size_t len = strcmp(word, "-") == 0 ? 0 : strlen(word);
    if (len > REPLICA_ADDRESS_MAX) {
        return false;
    }
    memcpy(out, word, len);
    out[len] = '\0';
    return true;
}

static bool take_hex(uint8_t out[16], const char *word)
{
    size_t len;
    return parse_hex(slice_of(word, strlen(word)), out, 16, &len) && len == 16;
}

static bool take_peer(struct replica_identity *is, char *const *words, unsigned count)
{
    if (count != 5 || is->founder_count == REPLICA_SERVERS_MAX) {
        return false;
    }
    struct replica_peer *p = &is->founders[is->founder_count++];
    return parse_u64(words[1], UINT64_MAX, &p->id) && take_hex(p->instance, words[2]) &&
           take_text(p->raft_address, words[3]) && take_text(p->api_url, words[4]);
}

static bool take_move(struct identity *identity, char *const *words, unsigned count)
{
    if (count != 3 || identity->move_count == REPLICA_SERVERS_MAX) {
        return false;
    }
    struct identity_move *m = &identity->moves[identity->move_count++];
    return parse_u64(words[1], UINT64_MAX, &m->id) && take_text(m->raft_address, words[2]);
}

static bool take_line(struct identity *identity, char *const *words, unsigned count)
{
    struct replica_identity *is = &identity->is;
    uint8_t cluster[16];
    if (strcmp(words[0], "peer") == 0) {
        return take_peer(is, words, count);
    }
    if (strcmp(words[0], "moved") == 0) {
        return take_move(identity, words, count);
    }
    if (count != 2) {
        return false;
    }
    if (strcmp(words[0], "id") == 0) {
        return parse_u64(words[1], UINT64_MAX, &is->id);
    }
    if (strcmp(words[0], "instance") == 0) {
        return take_hex(is->instance, words[1]);
    }
    if (strcmp(words[0], "cluster") == 0) {
        is->used = true;
        (void)snprintf(is->cluster, sizeof is->cluster, "%s", words[1]);
        return take_hex(cluster, words[1]);
    }
    if (strcmp(words[0], "generation") == 0) {
        return parse_u64(words[1], UINT64_MAX, &is->generation);
    }
    if (strcmp(words[0], "origin") == 0) {
        identity->joined = strcmp(words[1], "joined") == 0;
        return true;
    }
    if (strcmp(words[0], "started") == 0) {
        identity->started = strcmp(words[1], "1") == 0;
        return true;
    }
    return false; /* from a later release, or nothing of ours */
}

/* Cuts `line` at its blanks. */
static unsigned split_words(char *line, char *ret_words[WORDS_MAX])
{
    unsigned count = 0;
    while (count < WORDS_MAX) {
        ret_words[count++] = line;
        char *blank = strchr(line, ' ');
        if (blank == NULL) {
            break;
        }
        *blank = '\0';
        line = blank + 1;
    }
    return count;
}

static bool parse_text(char *text, size_t len, struct identity *ret)
{
    enum { CHECK_SIZE = 6 + 16 + 1 };
    char check[CHECK_SIZE + 1];
    struct identity identity = {0};
    size_t heading = sizeof HEADING - 1;
    if (len < heading + CHECK_SIZE || memcmp(text, HEADING, heading) != 0) {
        return false;
    }
    size_t body = len - CHECK_SIZE;
    (void)snprintf(check, sizeof check, "check %016" PRIx64 "\n", hash_xxh3_64(text, body));
    if (memcmp(text + body, check, CHECK_SIZE) != 0 || text[body - 1] != '\n') {
        return false;
    }
    text[body] = '\0';
    for (char *line = text + heading; line < text + body;) {
        char *words[WORDS_MAX], *end = strchr(line, '\n');
        if (end == NULL) {
            return false; /* a zero byte inside */
        }
        *end = '\0';
        if (!take_line(&identity, words, split_words(line, words))) {
            return false;
        }
        line = end + 1;
    }
    *ret = identity;
    return identity.is.id != 0;
}

/* --- files --- */

static enum err_code io_error(struct err *e, const char *what, const char *path)
{
    return err_set(e, ERR_IO, "%s %s: %s", what, path, strerror(errno));
}

static enum err_code
join_path(char out[PATH_SIZE], const char *dir, const char *name, struct err *e)
{
    int n = snprintf(out, PATH_SIZE, "%s/%s", dir, name);
    return n > 0 && n < PATH_SIZE ? ERR_OK : err_set(e, ERR_IO, "the path of %s is too long", name);
}

enum err_code identity_load(const char *data_dir, struct identity *ret, struct err *e)
{
    char path[PATH_SIZE], text[FILE_MAX + 1];
    if (join_path(path, data_dir, "identity", e) != ERR_OK) {
        return ERR_IO;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? err_set(e, ERR_NOT_FOUND, "%s does not exist", path)
                               : io_error(e, "open", path);
    }
    size_t len = 0;
    ssize_t n;
    while ((n = read(fd, text + len, FILE_MAX - len)) > 0) {
        len += (size_t)n;
    }
    int failed = n < 0 ? errno : 0;
    (void)close(fd); /* read only */
    if (failed != 0) {
        errno = failed;
        return io_error(e, "read", path);
    }
    text[len] = '\0';
    if (!parse_text(text, len, ret)) {
        return err_set(e, ERR_CORRUPT, "%s is damaged, or a later release wrote it", path);
    }
    return ERR_OK;
}

static bool write_all(int fd, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static enum err_code sync_dir(const char *dir, struct err *e)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return io_error(e, "open", dir);
    }
    enum err_code code = fsync(fd) == 0 ? ERR_OK : io_error(e, "sync", dir);
    (void)close(fd); /* synced, or reported */
    return code;
}

/* Replaces <dir>/<name>: a crash leaves the old file or the new one, whole. */
static enum err_code
write_atomic(const char *dir, const char *name, struct slice text, struct err *e)
{
    char path[PATH_SIZE], temporary[PATH_SIZE], temporary_name[64];
    (void)snprintf(temporary_name, sizeof temporary_name, "%s.tmp", name);
    if (join_path(path, dir, name, e) != ERR_OK ||
        join_path(temporary, dir, temporary_name, e) != ERR_OK) {
        return ERR_IO;
    }
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return io_error(e, "create", temporary);
    }
    bool ok = write_all(fd, text.data, text.len) && fsync(fd) == 0;
    int failed = errno;
    ok = close(fd) == 0 && ok;
    if (!ok) {
        errno = failed;
        return io_error(e, "write", temporary);
    }
    if (rename(temporary, path) != 0) {
        return io_error(e, "rename to", path);
    }
    return sync_dir(dir, e);
}

enum err_code identity_save(const char *data_dir, const struct identity *identity, struct err *e)
{
    struct buf text;
    buf_init(&text, FILE_MAX);
    put_text(&text, identity);
    enum err_code code = text.overflow
                             ? err_set(e, ERR_IO, "the identity is too long")
                             : write_atomic(data_dir, "identity", slice_of(text.data, text.len), e);
    buf_close(&text);
    return code;
}

/* Takes the lock for the life of the process: its descriptor is never closed. */
static enum err_code take_lock(const char *data_dir, struct err *e)
{
    char path[PATH_SIZE], holder[24] = "?";
    if (join_path(path, data_dir, "lock", e) != ERR_OK) {
        return ERR_IO;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return io_error(e, "open", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = pread(fd, holder, sizeof holder - 1, 0);
        holder[n > 0 ? strcspn(holder, "\n") : 0] = '\0';
        (void)close(fd); /* nothing was written */
        return err_set(e, ERR_IO, "%s is in use by process %s", data_dir, holder);
    }
    int len = snprintf(holder, sizeof holder, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, holder, (size_t)len, 0) != len) {
        return io_error(e, "write", path);
    }
    return ERR_OK;
}

static bool has_files(const char *dir)
{
    bool found = false;
    DIR *d = opendir(dir);
    if (d == NULL) {
        return false;
    }
    for (struct dirent *entry; !found && (entry = readdir(d)) != NULL;) {
        found = entry->d_name[0] != '.';
    }
    (void)closedir(d); /* read only */
    return found;
}

static enum err_code
make_fresh(const char *data_dir, uint64_t id, struct identity *ret, struct err *e)
{
    char raft_dir[PATH_SIZE];
    struct identity fresh = {.is = {.id = id != 0 ? id : 1}};
    if (join_path(raft_dir, data_dir, "raft", e) != ERR_OK) {
        return ERR_IO;
    }
    if (has_files(raft_dir)) {
        return err_set(e, ERR_CORRUPT, "%s/identity is missing, but %s is not empty", data_dir,
                       raft_dir);
    }
    if (getrandom(fresh.is.instance, sizeof fresh.is.instance, 0) !=
        (ssize_t)sizeof fresh.is.instance) {
        return err_set(e, ERR_IO, "no random bytes: %s", strerror(errno));
    }
    *ret = fresh;
    return identity_save(data_dir, &fresh, e);
}

enum err_code replica_identity_open(const char *data_dir,
                                    uint64_t id,
                                    struct replica_identity *ret_identity,
                                    struct err *e)
{
    struct identity identity;
    if (mkdir(data_dir, 0700) != 0 && errno != EEXIST) {
        return io_error(e, "create", data_dir);
    }
    enum err_code code = take_lock(data_dir, e);
    if (code != ERR_OK) {
        return code;
    }
    code = identity_load(data_dir, &identity, e);
    if (code == ERR_NOT_FOUND) {
        code = make_fresh(data_dir, id, &identity, e);
    }
    if (code != ERR_OK) {
        return code;
    }
    if (id != 0 && id != identity.is.id) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "%s belongs to server %" PRIu64 ", not to server %" PRIu64, data_dir,
                       identity.is.id, id);
    }
    *ret_identity = identity.is;
    return ERR_OK;
}
