/* SPDX-License-Identifier: Apache-2.0 */
/* Who may talk Raft with this server. The cluster and its generation must be the same; then the
 * machine's member table decides, then (before the log is applied again after a start) the record
 * of the founders or of the join, then Raft's own configuration. A data directory that was lost
 * comes back with another instance and is refused for good: its empty log under a known id could
 * undo what a majority holds. */
#include "raft/internal.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { REFUSAL_LOG_MS = 10000, REFUSAL_LOG_ANY_MS = 1000, TWICE_MS = 5000 };

void peers_introduce(void *ctx, struct hello *ret_self)
{
    const struct replica *r = ctx;
    const struct replica_identity *is = &r->identity.is;
    *ret_self = (struct hello){.state = is->used ? HELLO_MEMBER : HELLO_FOUNDING,
                               .from = is->id,
                               .generation = is->generation};
    memcpy(ret_self->instance, is->instance, sizeof ret_self->instance);
    (void)snprintf(ret_self->address, sizeof ret_self->address, "%s", r->options.raft_address);
    if (!is->used) {
        ret_self->founders =
            identity_founders_digest(r->options.founders, r->options.founder_count);
        return;
    }
    identity_unhex(is->cluster, ret_self->cluster);
    ret_self->founders = identity_founders_digest(is->founders, is->founder_count);
    if (!r->identity.joined) {
        for (unsigned i = 0; i < is->founder_count; i++) {
            struct hello_record *record = &ret_self->record[ret_self->record_count++];
            record->id = is->founders[i].id;
            memcpy(record->instance, is->founders[i].instance, sizeof record->instance);
        }
    }
}

static bool same_instance(const struct replica_peer *peer, const struct hello *hello)
{
    return memcmp(peer->instance, hello->instance, REPLICA_INSTANCE_SIZE) == 0;
}

/* A founder that has not heard yet that the cluster exists. Was it there when it was founded? */
static enum hello_refusal judge_late_founder(const struct replica *r, const struct hello *peer)
{
    const struct replica_peer *founder = identity_founder(&r->identity, peer->from);
    int known = r->machine.knows(r->machine.ctx, peer->from, peer->instance);
    if (known == 0 || founder == NULL || !same_instance(founder, peer)) {
        return REFUSE_INSTANCE;
    }
    const struct replica_identity *is = &r->identity.is;
    bool same_list = !r->identity.joined &&
                     identity_founders_digest(is->founders, is->founder_count) == peer->founders;
    return same_list ? REFUSE_NONE : REFUSE_FOUNDERS;
}

/* Where a member is without having moved: its record is never older than Raft's configuration. */
static const char *first_address(const struct replica *r, uint64_t id)
{
    const struct replica_peer *founder = identity_founder(&r->identity, id);
    const struct raft_server *server = r->up ? replica_server(r, id) : NULL;
    return founder != NULL ? founder->raft_address : server != NULL ? server->address : NULL;
}

const char *peers_locate(void *ctx, uint64_t id)
{
    const struct replica *r = ctx;
    const char *moved = identity_moved(&r->identity, id);
    return moved != NULL ? moved : first_address(r, id);
}

bool replica_locate(struct replica *r, const struct replica_peer *peers, unsigned count)
{
    if (!r->up || raft_last_applied(&r->raft) < r->start_last_index) {
        return false;
    }
    struct identity next = r->identity;
    struct err e = {0};
    memset(next.moves, 0, sizeof next.moves);
    next.move_count = 0;
    for (unsigned i = 0; i < count && next.move_count < REPLICA_SERVERS_MAX; i++) {
        const char *first = first_address(r, peers[i].id);
        if (first != NULL && strcmp(first, peers[i].raft_address) != 0) {
            struct identity_move *m = &next.moves[next.move_count++];
            m->id = peers[i].id;
            (void)snprintf(m->raft_address, sizeof m->raft_address, "%s", peers[i].raft_address);
        }
    }
    if (next.move_count == r->identity.move_count &&
        memcmp(next.moves, r->identity.moves, sizeof next.moves) == 0) {
        return true;
    }
    if (identity_save(r->options.data_dir, &next, &e) != ERR_OK) {
        log_fatal(EXIT_DATA, "identity.failed", "detail=\"%s\"", e.detail);
    }
    r->identity = next;
    return true;
}

/* A copy of a data directory that runs beside the original, from where nobody expects it. One that
 * has moved is the same to see, but then its old process is no longer heard. */
static bool runs_twice(const struct replica *r, const struct hello *peer)
{
    const char *moved = identity_moved(&r->identity, peer->from);
    const char *expected = moved != NULL ? moved : first_address(r, peer->from);
    return expected != NULL && strcmp(expected, peer->address) != 0 &&
           members_connected(r, peer->from);
}

static enum hello_refusal
judge_member(const struct replica *r, const struct hello *peer, char *ret_address)
{
    uint8_t cluster[HELLO_CLUSTER_SIZE];
    const struct replica_peer *founder = identity_founder(&r->identity, peer->from);
    const struct raft_server *server = r->up ? replica_server(r, peer->from) : NULL;
    identity_unhex(r->identity.is.cluster, cluster);
    if (memcmp(cluster, peer->cluster, sizeof cluster) != 0) {
        return REFUSE_CLUSTER;
    }
    if (peer->generation != r->identity.is.generation) {
        return REFUSE_GENERATION;
    }
    int known = r->machine.knows(r->machine.ctx, peer->from, peer->instance);
    if (known == 0 || (known < 0 && founder != NULL && !same_instance(founder, peer))) {
        return REFUSE_INSTANCE;
    }
    /* A server that joined and has no log yet takes its first from any member of its own cluster.
     */
    bool empty = r->up && r->raft.configuration.n == 0;
    if (known < 0 && founder == NULL && server == NULL && !empty) {
        return REFUSE_UNKNOWN;
    }
    const char *address = server != NULL    ? server->address
                          : founder != NULL ? founder->raft_address
                                            : peer->address;
    (void)snprintf(ret_address, REPLICA_ADDRESS_MAX + 1, "%s", address);
    return REFUSE_NONE;
}

enum hello_refusal peers_judge(void *ctx,
                               const struct hello *peer,
                               bool answer,
                               char ret_address[REPLICA_ADDRESS_MAX + 1])
{
    struct replica *r = ctx;
    if (peer->from == r->identity.is.id || peer->from == 0 ||
        (!answer && peer->to != r->identity.is.id)) {
        return REFUSE_WRONG_SERVER;
    }
    if (!r->identity.is.used) {
        return formation_judge(r, peer);
    }
    if (peer->state == HELLO_FOUNDING) {
        return answer ? REFUSE_NOT_READY : judge_late_founder(r, peer);
    }
    char address[REPLICA_ADDRESS_MAX + 1];
    enum hello_refusal refusal = judge_member(r, peer, address);
    if (refusal == REFUSE_NONE && !answer && r->up && runs_twice(r, peer)) {
        refusal = REFUSE_TWICE;
    }
    if (refusal == REFUSE_NONE) {
        memcpy(ret_address, address, sizeof address);
    }
    return refusal;
}

/* A peer dials ten times a second, and anyone may dial: the same reason is logged once in a while,
 * and a stranger's at most once a second. */
static bool may_log(struct replica *r, uint64_t id, enum hello_refusal refusal)
{
    struct refusal_log *slot = &r->refusals[id % REFUSAL_LOG_SLOTS];
    uint64_t now = uv_now(r->loop);
    bool same = slot->id == id && slot->refusal == refusal;
    uint64_t since = now - (same ? slot->at_ms : r->refusal_logged_ms);
    if (since < (same ? REFUSAL_LOG_MS : REFUSAL_LOG_ANY_MS)) {
        return false;
    }
    *slot = (struct refusal_log){id, now, refusal};
    r->refusal_logged_ms = now;
    return true;
}

static void die_if_replaced(const struct replica *r, const struct hello *peer)
{
    uint8_t cluster[HELLO_CLUSTER_SIZE];
    identity_unhex(r->identity.is.cluster, cluster);
    bool ours = !r->identity.is.used || (memcmp(cluster, peer->cluster, sizeof cluster) == 0 &&
                                         peer->generation == r->identity.is.generation);
    if (peer->type == HELLO_REFUSE && peer->refusal == REFUSE_INSTANCE && ours) {
        log_fatal(
            EXIT_DATA, "raft.refused",
            "id=%" PRIu64 " by=%" PRIu64 " reason=\"the cluster knows this id with another data "
            "directory, or has removed it\" hint=\"clear the data directory and use --join, as "
            "a new server\"",
            r->identity.is.id, peer->from);
    }
}

/* A process that has just moved is let in within two election timeouts; one that is refused for
 * much longer is one too many. */
static void die_if_twice(struct replica *r, const struct hello *peer)
{
    uint64_t now = uv_now(r->loop), patience = TWICE_MS + 4 * r->options.election_ms;
    if (peer->type != HELLO_REFUSE || peer->refusal != REFUSE_TWICE) {
        return;
    }
    if (r->twice_ms == 0 || now - r->twice_last_ms > TWICE_MS) {
        r->twice_ms = now;
    }
    r->twice_last_ms = now;
    if (now - r->twice_ms > patience) {
        log_fatal(EXIT_DATA, "raft.refused",
                  "id=%" PRIu64 " by=%" PRIu64 " reason=\"%s\" hint=\"a copy of a data directory "
                  "is no second server: clear it and use --join with a new id\"",
                  r->identity.is.id, peer->from, hello_refusal_text(REFUSE_TWICE));
    }
}

void peers_refused(void *ctx, const struct hello *peer, enum hello_refusal by_us)
{
    struct replica *r = ctx;
    enum hello_refusal refusal = by_us != REFUSE_NONE ? by_us : peer->refusal;
    if (by_us == REFUSE_NONE) {
        die_if_replaced(r, peer);
        die_if_twice(r, peer);
    }
    if (refusal != REFUSE_NOT_READY && may_log(r, peer->from, refusal)) {
        char address[REPLICA_ADDRESS_MAX * 2];
        log_event(LOG_WARN, "raft.peer.refused", "peer=%" PRIu64 " address=%s by=%s reason=\"%s\"",
                  peer->from, log_quote(peer->address, address, sizeof address),
                  by_us != REFUSE_NONE ? "us" : "peer", hello_refusal_text(refusal));
    }
}
