/* SPDX-License-Identifier: Apache-2.0 */
/* Who may talk to whom: every rule of peers.c and formation.c on its own. */
#include "raft/internal.h"

#include "base/mem.h"
#include "tests/harness/tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int known;
static struct replica *kept;

static int knows(void *ctx, uint64_t id, const uint8_t instance[REPLICA_INSTANCE_SIZE])
{
    (void)ctx;
    (void)id;
    (void)instance;
    return known;
}

static struct replica_peer list[3] = {{.id = 1, .raft_address = "a:1"},
                                      {.id = 2, .raft_address = "b:1"},
                                      {.id = 3, .raft_address = "c:1"}};
static char address_a[] = "a:1", address_b[] = "b:9", address_e[] = "e:1";
static struct raft_server configured[] = {{1, address_a, RAFT_VOTER},
                                          {2, address_b, RAFT_VOTER},
                                          {5, address_e, RAFT_STANDBY}};
static uv_loop_t loop;

/* Server 1, a founder of the cluster of `list`, whose instances are their ids, repeated. */
static struct replica *make_member(void)
{
    struct replica *r = mem_zalloc(sizeof *r);
    r->loop = &loop;
    r->machine.knows = knows;
    r->options.raft_address = "a:1";
    r->options.founders = list;
    r->options.founder_count = 3;
    r->identity.is =
        (struct replica_identity){.id = 1, .generation = 4, .used = true, .founder_count = 3};
    for (unsigned i = 0; i < 3; i++) {
        memset(list[i].instance, (int)list[i].id, REPLICA_INSTANCE_SIZE);
    }
    memcpy(r->identity.is.founders, list, sizeof list);
    memset(r->identity.is.instance, 1, REPLICA_INSTANCE_SIZE);
    identity_cluster_of(list, 3, r->identity.is.cluster);
    r->up = true;
    r->raft.configuration.servers = configured;
    r->raft.configuration.n = 3;
    known = -1;
    return r;
}

/* A hello of server `id` of the same cluster to server 1. */
static struct hello hello_of(const struct replica *r, uint64_t id)
{
    struct hello h = {.type = HELLO_DIAL,
                      .state = HELLO_MEMBER,
                      .from = id,
                      .to = 1,
                      .generation = 4,
                      .founders = identity_founders_digest(list, 3),
                      .address = "claimed:1"};
    identity_unhex(r->identity.is.cluster, h.cluster);
    memset(h.instance, (int)id, sizeof h.instance);
    return h;
}

static enum hello_refusal judge(struct replica *r, const struct hello *h, char *ret_address)
{
    char address[REPLICA_ADDRESS_MAX + 1] = "untouched";
    enum hello_refusal refusal = peers_judge(r, h, h->type == HELLO_ACCEPT, address);
    if (ret_address != NULL) {
        memcpy(ret_address, address, sizeof address);
    }
    return refusal;
}

static void members_are_told_from_strangers(void)
{
    static const struct {
        const char *name;
        uint64_t id, to, generation;
        int known;
        uint8_t instance, cluster_xor;
        enum hello_refusal want;
        const char *address;
    } rows[] = {
        {"known to the machine", 2, 1, 4, 1, 2, 0, REFUSE_NONE, "b:9"},
        {"known to the machine, joined later", 5, 1, 4, 1, 50, 0, REFUSE_NONE, "e:1"},
        {"a founder, before the log is applied", 3, 1, 4, -1, 3, 0, REFUSE_NONE, "c:1"},
        {"in the configuration only", 5, 1, 4, -1, 50, 0, REFUSE_NONE, "e:1"},
        {"replaced or removed", 2, 1, 4, 0, 2, 0, REFUSE_INSTANCE, NULL},
        {"a founder's id, another directory", 3, 1, 4, -1, 9, 0, REFUSE_INSTANCE, NULL},
        {"nobody we know", 6, 1, 4, -1, 6, 0, REFUSE_UNKNOWN, NULL},
        {"another cluster", 2, 1, 4, 1, 2, 1, REFUSE_CLUSTER, NULL},
        {"before the restore", 2, 1, 3, 1, 2, 0, REFUSE_GENERATION, NULL},
        {"meant for another", 2, 3, 4, 1, 2, 0, REFUSE_WRONG_SERVER, NULL},
        {"our own id", 1, 1, 4, 1, 1, 0, REFUSE_WRONG_SERVER, NULL},
        {"no id", 0, 1, 4, 1, 0, 0, REFUSE_WRONG_SERVER, NULL},
    };
    struct replica *r = make_member();
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char address[REPLICA_ADDRESS_MAX + 1];
        struct hello h = hello_of(r, rows[i].id);
        h.to = rows[i].to;
        h.generation = rows[i].generation;
        memset(h.instance, rows[i].instance, sizeof h.instance);
        h.cluster[5] ^= rows[i].cluster_xor;
        known = rows[i].known;
        tap_note("%s", rows[i].name);
        CHECK_U64(judge(r, &h, address), rows[i].want);
        CHECK_STR(address, rows[i].address != NULL ? rows[i].address : "untouched");
    }
    mem_free(r);
}

static void joiner_without_a_log_takes_any_member(void)
{
    struct replica *r = make_member();
    char address[REPLICA_ADDRESS_MAX + 1];
    r->raft.configuration.n = 0;
    r->identity.joined = true;
    struct hello h = hello_of(r, 6);
    CHECK_U64(judge(r, &h, address), REFUSE_NONE);
    CHECK_STR(address, "claimed:1");
    h.cluster[0] ^= 1;
    CHECK_U64(judge(r, &h, NULL), REFUSE_CLUSTER);
    mem_free(r);
}

static void late_founder_must_be_in_the_record(void)
{
    struct replica *r = make_member();
    struct hello h = hello_of(r, 2);
    h.state = HELLO_FOUNDING;
    CHECK_U64(judge(r, &h, NULL), REFUSE_NONE);
    known = 1;
    CHECK_U64(judge(r, &h, NULL), REFUSE_NONE);
    known = 0; /* it was removed before it ever started */
    CHECK_U64(judge(r, &h, NULL), REFUSE_INSTANCE);
    known = -1;
    memset(h.instance, 9, sizeof h.instance); /* its directory was lost */
    CHECK_U64(judge(r, &h, NULL), REFUSE_INSTANCE);
    h = hello_of(r, 2);
    h.state = HELLO_FOUNDING;
    h.founders ^= 1;
    CHECK_U64(judge(r, &h, NULL), REFUSE_FOUNDERS);
    h = hello_of(r, 6);
    h.state = HELLO_FOUNDING;
    CHECK_U64(judge(r, &h, NULL), REFUSE_INSTANCE);
    mem_free(r);
}

static void copy_beside_its_original_is_refused(void)
{
    struct replica *r = make_member();
    struct hello h = hello_of(r, 2);
    r->options.election_ms = 1000;
    uv_update_time(&loop);
    CHECK_U64(judge(r, &h, NULL), REFUSE_NONE); /* it has moved: nobody is heard where it was */
    r->watch.heard[0].id = 2;
    r->watch.heard[0].at_ms = uv_now(&loop);
    CHECK_U64(judge(r, &h, NULL), REFUSE_TWICE);
    h.type = HELLO_ACCEPT; /* dialled, where it is known to be */
    CHECK_U64(judge(r, &h, NULL), REFUSE_NONE);
    h = hello_of(r, 2);
    (void)snprintf(h.address, sizeof h.address, "b:1"); /* the founders' record of it */
    CHECK_U64(judge(r, &h, NULL), REFUSE_NONE);
    h = hello_of(r, 2);
    r->identity.moves[0].id = 2;
    (void)snprintf(r->identity.moves[0].raft_address, REPLICA_ADDRESS_MAX, "%s", h.address);
    r->identity.move_count = 1;
    CHECK_U64(judge(r, &h, NULL), REFUSE_NONE); /* the table has it there */
    mem_free(r);
}

static void members_are_dialled_where_the_table_has_them(void)
{
    char dir[] = "/tmp/cadastre-peers-XXXXXX", file[64];
    struct replica_peer table[] = {{.id = 1, .raft_address = "a:1"},
                                   {.id = 2, .raft_address = "moved:2"},
                                   {.id = 5, .raft_address = "moved:5"},
                                   {.id = 9, .raft_address = "unknown:9"}};
    struct identity kept_identity;
    struct err e = {0};
    struct replica *r = make_member();
    CHECK(mkdtemp(dir) != NULL);
    r->options.data_dir = dir;
    CHECK_STR(peers_locate(r, 2), "b:1"); /* the record is never older than the configuration */
    CHECK_STR(peers_locate(r, 5), "e:1");
    CHECK(peers_locate(r, 9) == NULL);
    r->start_last_index = 7;
    r->raft.last_applied = 6;
    CHECK(!replica_locate(r, table, 4)); /* what is being replayed may be older than the file */
    CHECK_STR(peers_locate(r, 2), "b:1");
    r->raft.last_applied = 7;
    CHECK(replica_locate(r, table, 4));
    CHECK_STR(peers_locate(r, 1), "a:1");
    CHECK_STR(peers_locate(r, 2), "moved:2");
    CHECK_STR(peers_locate(r, 5), "moved:5");
    CHECK_U64(identity_load(dir, &kept_identity, &e), ERR_OK);
    CHECK_STR(identity_moved(&kept_identity, 2), "moved:2");
    (void)snprintf(table[1].raft_address, sizeof table[1].raft_address, "b:1");
    CHECK(replica_locate(r, table, 2)); /* it moved back, and the other one was removed */
    CHECK_U64(identity_load(dir, &kept_identity, &e), ERR_OK);
    CHECK_U64(kept_identity.move_count, 0);
    (void)snprintf(file, sizeof file, "%s/identity", dir);
    CHECK(unlink(file) == 0 && rmdir(dir) == 0);
    mem_free(r);
}

static struct replica *make_founder(void)
{
    struct replica *r = make_member();
    r->identity.is.used = false;
    r->identity.is.generation = 0;
    r->up = false;
    r->formation.founders[0].heard = true;
    memset(r->formation.founders[0].instance, 1, REPLICA_INSTANCE_SIZE);
    post_init(r);
    uv_timer_init(&loop, &r->formation.timer);
    return r;
}

static void founders_are_heard_once_each_is_fresh(void)
{
    struct replica *r = make_founder();
    struct hello h = hello_of(r, 2);
    h.state = HELLO_FOUNDING;
    CHECK_U64(judge(r, &h, NULL), REFUSE_NONE);
    CHECK(r->formation.founders[1].heard && !r->formation.done);
    memset(h.instance, 22, sizeof h.instance); /* it was wiped meanwhile: the later word counts */
    CHECK_U64(judge(r, &h, NULL), REFUSE_NONE);
    CHECK_U64(r->formation.founders[1].instance[0], 22);
    h.state = HELLO_MEMBER; /* it has founded: its record has to be asked for */
    CHECK_U64(judge(r, &h, NULL), REFUSE_NOT_READY);
    CHECK(!r->formation.founders[1].heard);
    h = hello_of(r, 3);
    h.state = HELLO_FOUNDING;
    h.founders ^= 1;
    CHECK_U64(judge(r, &h, NULL), REFUSE_FOUNDERS);
    CHECK(!r->formation.founders[2].heard);
    h = hello_of(r, 4);
    h.state = HELLO_FOUNDING;
    CHECK_U64(judge(r, &h, NULL), REFUSE_UNKNOWN);
    CHECK(!r->formation.done);
    for (uint64_t id = 2; id <= 3; id++) {
        h = hello_of(r, id);
        h.state = HELLO_FOUNDING;
        CHECK_U64(judge(r, &h, NULL), REFUSE_NONE);
    }
    CHECK(r->formation.done);
    CHECK_U64(r->identity.is.generation, 1);
    kept = r; /* its handles stay in the loop, which never runs */
}

/* The exit code of telling a replica of this refusal. */
static int exit_of(struct replica *r, const struct hello *answer)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        (void)dup2(nowhere, STDERR_FILENO);
        peers_refused(r, answer, REFUSE_NONE);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void replaced_server_ends(void)
{
    struct replica *r = make_member();
    struct hello h = hello_of(r, 2);
    h.type = HELLO_REFUSE;
    h.refusal = REFUSE_INSTANCE;
    CHECK_U64(exit_of(r, &h), 3);
    h.refusal = REFUSE_UNKNOWN; /* may pass */
    CHECK_U64(exit_of(r, &h), 0);
    h.refusal = REFUSE_INSTANCE;
    h.cluster[0] ^= 1; /* not its business */
    CHECK_U64(exit_of(r, &h), 0);
    h.cluster[0] ^= 1;
    h.generation++;
    CHECK_U64(exit_of(r, &h), 0);
    mem_free(r);
}

static void bad_lists_are_refused(void)
{
    static const struct {
        const char *name;
        struct replica_peer peers[2];
        enum err_code want;
    } rows[] = {
        {"good", {{.id = 1, .raft_address = "a:1"}, {.id = 2, .raft_address = "[::1]:2"}}, ERR_OK},
        {"not in it",
         {{.id = 3, .raft_address = "a:1"}, {.id = 2, .raft_address = "b:2"}},
         ERR_INVALID_REQUEST},
        {"an id twice",
         {{.id = 1, .raft_address = "a:1"}, {.id = 1, .raft_address = "b:2"}},
         ERR_INVALID_REQUEST},
        {"an address twice",
         {{.id = 1, .raft_address = "a:1"}, {.id = 2, .raft_address = "a:1"}},
         ERR_INVALID_REQUEST},
        {"no port",
         {{.id = 1, .raft_address = "a:1"}, {.id = 2, .raft_address = "b"}},
         ERR_INVALID_REQUEST},
        {"a blank",
         {{.id = 1, .raft_address = "a:1"}, {.id = 2, .raft_address = "b :1"}},
         ERR_INVALID_REQUEST},
        {"id 0",
         {{.id = 1, .raft_address = "a:1"}, {.id = 0, .raft_address = "b:1"}},
         ERR_INVALID_REQUEST},
    };
    struct replica *r = make_member();
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e = {0};
        r->options.founders = rows[i].peers;
        r->options.founder_count = 2;
        tap_note("%s", rows[i].name);
        CHECK_U64(formation_check(r, &e), rows[i].want);
    }
    mem_free(r);
}

int main(void)
{
    uv_loop_init(&loop);
    uv_update_time(&loop);
    RUN(members_are_told_from_strangers);
    RUN(joiner_without_a_log_takes_any_member);
    RUN(late_founder_must_be_in_the_record);
    RUN(copy_beside_its_original_is_refused);
    RUN(members_are_dialled_where_the_table_has_them);
    RUN(founders_are_heard_once_each_is_fresh);
    RUN(replaced_server_ends);
    RUN(bad_lists_are_refused);
    return tap_done() + (kept == NULL);
}
