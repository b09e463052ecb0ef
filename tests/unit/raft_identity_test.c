/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/identity.h"

#include "tests/harness/tap.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], data_dir[128], path[160];

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(name);
}

static void begin(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/replica-identity-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(data_dir, sizeof data_dir, "%s/data", dir);
    (void)snprintf(path, sizeof path, "%s/identity", data_dir);
}

static void end(void)
{
    CHECK(nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

/* replica_identity_open in a child: the lock lives as long as the process. */
static enum err_code open_in_child(uint64_t id)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        struct replica_identity identity;
        struct err e = {0};
        _exit((int)replica_identity_open(data_dir, id, &identity, &e));
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return (enum err_code)WEXITSTATUS(status);
}

static size_t read_file(char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(out, 1, size, f) : 0;
    if (f != NULL) {
        (void)fclose(f);
    }
    return n;
}

static void write_file(const char *text, size_t len)
{
    FILE *f = fopen(path, "we");
    CHECK(f != NULL && fwrite(text, 1, len, f) == len);
    CHECK(f != NULL && fclose(f) == 0);
}

static struct identity full(void)
{
    struct identity identity = {.is = {.id = 7,
                                       .generation = 3,
                                       .used = true,
                                       .founder_count = REPLICA_SERVERS_MAX,
                                       .cluster = "00112233445566778899aabbccddeeff"},
                                .started = true};
    memset(identity.is.instance, 0xa5, sizeof identity.is.instance);
    for (unsigned i = 0; i < REPLICA_SERVERS_MAX; i++) {
        struct replica_peer *p = &identity.is.founders[i];
        p->id = i + 1;
        memset(p->instance, (int)i, sizeof p->instance);
        memset(p->raft_address, 'h', REPLICA_ADDRESS_MAX);
        (void)snprintf(p->api_url, sizeof p->api_url, i % 2 == 0 ? "" : "http://[::1]:%u", i);
        identity.moves[i].id = i + 1;
        memset(identity.moves[i].raft_address, 'm', REPLICA_ADDRESS_MAX);
    }
    identity.move_count = REPLICA_SERVERS_MAX;
    return identity;
}

static void saved_identity_is_loaded(void)
{
    struct identity want = full(), got;
    struct err e = {0};
    begin();
    CHECK(mkdir(data_dir, 0700) == 0);
    CHECK_U64(identity_load(data_dir, &got, &e), ERR_NOT_FOUND);
    CHECK_U64(identity_save(data_dir, &want, &e), ERR_OK);
    CHECK_U64(identity_load(data_dir, &got, &e), ERR_OK);
    CHECK_U64(got.is.id, 7);
    CHECK_U64(got.is.generation, 3);
    CHECK(got.is.used && got.started && !got.joined);
    CHECK_STR(got.is.cluster, want.is.cluster);
    CHECK(memcmp(got.is.instance, want.is.instance, sizeof want.is.instance) == 0);
    CHECK_U64(got.is.founder_count, REPLICA_SERVERS_MAX);
    for (unsigned i = 0; i < got.is.founder_count; i++) {
        CHECK_U64(got.is.founders[i].id, want.is.founders[i].id);
        CHECK_STR(got.is.founders[i].raft_address, want.is.founders[i].raft_address);
        CHECK_STR(got.is.founders[i].api_url, want.is.founders[i].api_url);
        CHECK_STR(identity_moved(&got, i + 1), want.moves[i].raft_address);
    }
    CHECK(identity_moved(&got, REPLICA_SERVERS_MAX + 1) == NULL);
    want.joined = true;
    want.started = false;
    CHECK_U64(identity_save(data_dir, &want, &e), ERR_OK);
    CHECK_U64(identity_load(data_dir, &got, &e), ERR_OK);
    CHECK(got.joined && !got.started);
    end();
}

static void torn_or_changed_file_is_refused(void)
{
    struct identity want = full(), got;
    struct err e = {0};
    char text[32768];
    begin();
    want.is.founder_count = 2;
    want.move_count = 1;
    (void)snprintf(want.moves[0].raft_address, 40, "c:1");
    (void)snprintf(want.is.founders[0].raft_address, 40, "a:1");
    (void)snprintf(want.is.founders[1].raft_address, 40, "b:1");
    CHECK(mkdir(data_dir, 0700) == 0);
    CHECK_U64(identity_save(data_dir, &want, &e), ERR_OK);
    size_t len = read_file(text, sizeof text);
    CHECK(len > 100);
    for (size_t cut = 0; cut < len; cut++) {
        write_file(text, cut);
        tap_note("cut at %zu of %zu", cut, len);
        CHECK_U64(identity_load(data_dir, &got, &e), ERR_CORRUPT);
    }
    for (size_t at = 0; at < len; at++) {
        text[at] ^= 4;
        write_file(text, len);
        tap_note("byte %zu of %zu", at, len);
        CHECK_U64(identity_load(data_dir, &got, &e), ERR_CORRUPT);
        text[at] ^= 4;
    }
    CHECK_U64(open_in_child(0), ERR_CORRUPT);
    end();
}

static void fresh_directory_gets_an_instance_of_its_own(void)
{
    struct identity first, second;
    struct err e = {0};
    begin();
    CHECK_U64(open_in_child(0), ERR_OK);
    CHECK_U64(identity_load(data_dir, &first, &e), ERR_OK);
    CHECK_U64(first.is.id, 1);
    CHECK(!first.is.used);
    CHECK_U64(open_in_child(0), ERR_OK); /* the same one again */
    CHECK_U64(identity_load(data_dir, &second, &e), ERR_OK);
    CHECK(memcmp(first.is.instance, second.is.instance, REPLICA_INSTANCE_SIZE) == 0);
    CHECK(remove(path) == 0);
    CHECK_U64(open_in_child(5), ERR_OK);
    CHECK_U64(identity_load(data_dir, &second, &e), ERR_OK);
    CHECK_U64(second.is.id, 5);
    CHECK(memcmp(first.is.instance, second.is.instance, REPLICA_INSTANCE_SIZE) != 0);
    end();
}

static void contradictions_are_refused(void)
{
    char raft_file[160], raft_dir[160];
    begin();
    CHECK_U64(open_in_child(2), ERR_OK);
    CHECK_U64(open_in_child(2), ERR_OK);
    CHECK_U64(open_in_child(3), ERR_INVALID_REQUEST);
    (void)snprintf(raft_dir, sizeof raft_dir, "%s/raft", data_dir);
    (void)snprintf(raft_file, sizeof raft_file, "%s/metadata1", raft_dir);
    CHECK(mkdir(raft_dir, 0700) == 0);
    CHECK(remove(path) == 0);
    CHECK_U64(open_in_child(2), ERR_OK); /* an empty raft directory is fresh */
    FILE *f = fopen(raft_file, "we");
    CHECK(f != NULL && fclose(f) == 0);
    CHECK(remove(path) == 0);
    CHECK_U64(open_in_child(2), ERR_CORRUPT); /* a log without an identity is not */
    end();
}

static void lock_names_its_holder(void)
{
    struct replica_identity identity;
    struct err e = {0};
    char holder[32];
    int ready[2], go[2], status;
    char c = 0;
    begin();
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        enum err_code code = replica_identity_open(data_dir, 1, &identity, &e);
        (void)!write(ready[1], "x", 1);
        (void)!read(go[0], &c, 1);
        _exit((int)code);
    }
    CHECK(read(ready[0], &c, 1) == 1);
    (void)snprintf(holder, sizeof holder, "process %d", (int)pid);
    CHECK_U64(replica_identity_open(data_dir, 1, &identity, &e), ERR_IO);
    CHECK(strstr(e.detail, holder) != NULL);
    CHECK(write(go[1], "x", 1) == 1);
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == ERR_OK);
    CHECK_U64(open_in_child(1), ERR_OK); /* free with its process */
    end();
}

static void unwritable_directory_is_told(void)
{
    struct replica_identity identity;
    struct err e = {0};
    begin();
    (void)snprintf(data_dir, sizeof data_dir, "%s/no/such", dir);
    CHECK_U64(replica_identity_open(data_dir, 1, &identity, &e), ERR_IO);
    CHECK(strstr(e.detail, "no/such") != NULL);
    end();
}

static void cluster_depends_on_instances_and_not_on_order(void)
{
    struct replica_peer a[3] = {{.id = 1, .raft_address = "a:1"},
                                {.id = 2, .raft_address = "b:1"},
                                {.id = 3, .raft_address = "c:1"}};
    struct replica_peer b[3] = {a[2], a[0], a[1]};
    char first[33], second[33];
    identity_cluster_of(a, 3, first);
    identity_cluster_of(b, 3, second);
    CHECK_STR(first, second);
    CHECK_U64(identity_founders_digest(a, 3), identity_founders_digest(b, 3));
    b[1].instance[4] = 1;
    identity_cluster_of(b, 3, second);
    CHECK(strcmp(first, second) != 0);
    CHECK_U64(identity_founders_digest(a, 3), identity_founders_digest(b, 3));
    (void)snprintf(b[1].raft_address, sizeof b[1].raft_address, "a:2");
    CHECK(identity_founders_digest(a, 3) != identity_founders_digest(b, 3));
    CHECK(identity_founders_digest(a, 3) != identity_founders_digest(a, 2));
}

int main(void)
{
    RUN(saved_identity_is_loaded);
    RUN(torn_or_changed_file_is_refused);
    RUN(fresh_directory_gets_an_instance_of_its_own);
    RUN(contradictions_are_refused);
    RUN(lock_names_its_holder);
    RUN(unwritable_directory_is_told);
    RUN(cluster_depends_on_instances_and_not_on_order);
    return tap_done();
}
