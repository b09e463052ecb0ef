/* SPDX-License-Identifier: Apache-2.0 */
/* Founding a cluster of several. Each founder dials each other one until all have said that they
 * are as fresh and have the same list. Only then it writes down all instances, which makes the
 * cluster's id, and starts Raft with all as voters. One that comes late (a peer has founded
 * already) takes the record over, if its own instance is in it. So a majority that lost its disks
 * finds nobody to found with but the survivor, whose record does not have it. */
#include "raft/internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FORMATION_LOG_MS = 10000 };

/* Addresses go into a file of words and lines. */
static bool is_word(const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p <= ' ' || (unsigned char)*p == 0x7f) {
            return false;
        }
    }
    return true;
}

static enum err_code check_peer(const struct replica_peer *p, struct err *e)
{
    char host[REPLICA_ADDRESS_MAX + 1];
    uint16_t port;
    if (p->id == 0 || !parse_host_port(p->raft_address, host, sizeof host, &port) ||
        !is_word(p->raft_address) || !is_word(p->api_url)) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "server %" PRIu64 " has a bad address: \"%s\", \"%s\"", p->id,
                       p->raft_address, p->api_url);
    }
    return ERR_OK;
}

static enum err_code check_list(const struct replica_peer *peers, unsigned count, struct err *e)
{
    if (count > REPLICA_SERVERS_MAX) {
        return err_set(e, ERR_INVALID_REQUEST, "more than %d servers", REPLICA_SERVERS_MAX);
    }
    for (unsigned i = 0; i < count; i++) {
        enum err_code code = check_peer(&peers[i], e);
        if (code != ERR_OK) {
            return code;
        }
        for (unsigned k = 0; k < i; k++) {
            if (peers[k].id == peers[i].id ||
                strcmp(peers[k].raft_address, peers[i].raft_address) == 0) {
                return err_set(e, ERR_INVALID_REQUEST,
                               "server %" PRIu64 " or its address is listed twice", peers[i].id);
            }
        }
    }
    return ERR_OK;
}

enum err_code formation_check(const struct replica *r, struct err *e)
{
    const struct replica_options *o = &r->options;
    if (o->join) {
        uint8_t cluster[16] = {0}, none[16] = {0};
        identity_unhex(o->join_cluster, cluster);
        if (memcmp(cluster, none, sizeof none) == 0 || o->join_peer_count == 0) {
            return err_set(e, ERR_INVALID_REQUEST, "the cluster to join is not known");
        }
        return check_list(o->join_peers, o->join_peer_count, e);
    }
    enum err_code code = check_list(o->founders, o->founder_count, e);
    for (unsigned i = 0; code == ERR_OK && i < o->founder_count; i++) {
        if (o->founders[i].id == r->identity.is.id) {
            return ERR_OK;
        }
    }
    return code != ERR_OK || o->founder_count == 0
               ? code
               : err_set(e, ERR_INVALID_REQUEST,
                         "server %" PRIu64 " is not in the list of founders", r->identity.is.id);
}

/* --- becoming a cluster --- */

static enum err_code
become_used(struct replica *r, const struct replica_peer *peers, unsigned count, struct err *e)
{
    struct identity next = r->identity;
    next.is.used = true;
    next.is.founder_count = count;
    memcpy(next.is.founders, peers, count * sizeof peers[0]);
    enum err_code code = identity_save(r->options.data_dir, &next, e);
    if (code == ERR_OK) {
        r->identity = next;
        log_event(LOG_INFO, next.joined ? "raft.joined" : "raft.founded",
                  "id=%" PRIu64 " cluster=%s generation=%" PRIu64 " servers=%u", next.is.id,
                  next.is.cluster, next.is.generation, count);
    }
    return code;
}

enum err_code formation_alone(struct replica *r, struct err *e)
{
    struct replica_peer self = {.id = r->identity.is.id};
    memcpy(self.instance, r->identity.is.instance, sizeof self.instance);
    (void)snprintf(self.raft_address, sizeof self.raft_address, "%s", r->options.raft_address);
    (void)snprintf(self.api_url, sizeof self.api_url, "%s", r->options.api_url);
    identity_cluster_of(&self, 1, r->identity.is.cluster);
    r->identity.is.generation = 1;
    return become_used(r, &self, 1, e);
}

enum err_code formation_join(struct replica *r, struct err *e)
{
    const struct replica_options *o = &r->options;
    r->identity.joined = true;
    r->identity.is.generation = o->join_generation;
    (void)snprintf(r->identity.is.cluster, sizeof r->identity.is.cluster, "%s", o->join_cluster);
    return become_used(r, o->join_peers, o->join_peer_count, e);
}

/* Writes the record down and starts Raft, out of the connection's callback. */
static void complete(void *arg)
{
    struct replica *r = arg;
    struct replica_peer peers[REPLICA_SERVERS_MAX];
    struct err e = {0};
    unsigned count = r->options.founder_count;
    for (unsigned i = 0; i < count; i++) {
        peers[i] = r->options.founders[i];
        memcpy(peers[i].instance, r->formation.founders[i].instance, sizeof peers[i].instance);
    }
    identity_cluster_of(peers, count, r->identity.is.cluster);
    if (become_used(r, peers, count, &e) != ERR_OK) {
        log_fatal(EXIT_DATA, "raft.write.failed", "reason=\"%s\"", e.detail);
    }
    start_raft(r);
}

static void finish(struct replica *r, uint64_t generation)
{
    if (!r->formation.done) {
        r->formation.done = true;
        r->identity.is.generation = generation;
        uv_timer_stop(&r->formation.timer);
        replica_post(r, complete, r);
    }
}

static int slot_of(const struct replica *r, uint64_t id)
{
    for (unsigned i = 0; i < r->options.founder_count; i++) {
        if (r->options.founders[i].id == id) {
            return (int)i;
        }
    }
    return -1;
}

static void note(struct replica *r, int slot, const uint8_t *instance)
{
    if (r->formation.done) {
        return;
    }
    if (!r->formation.founders[slot].heard) {
        r->formation.founders[slot].heard = true;
        log_event(LOG_INFO, "raft.founder.heard", "peer=%" PRIu64 " address=%s",
                  r->options.founders[slot].id, r->options.founders[slot].raft_address);
    }
    memcpy(r->formation.founders[slot].instance, instance, REPLICA_INSTANCE_SIZE);
    for (unsigned i = 0; i < r->options.founder_count; i++) {
        if (!r->formation.founders[i].heard) {
            return;
        }
    }
    finish(r, 1);
}

static bool same_founders(const struct replica *r, const struct hello *peer)
{
    return peer->founders ==
           identity_founders_digest(r->options.founders, r->options.founder_count);
}

/* --- hearing the others --- */

enum hello_refusal formation_judge(struct replica *r, const struct hello *peer)
{
    int slot = slot_of(r, peer->from);
    if (peer->state != HELLO_FOUNDING) {
        if (slot >= 0) {
            r->formation.founders[slot].heard =
                false; /* it founded meanwhile: dial it for its record */
        }
        return REFUSE_NOT_READY;
    }
    if (r->options.founder_count == 0 || !same_founders(r, peer)) {
        return REFUSE_FOUNDERS;
    }
    if (slot < 0) {
        return REFUSE_UNKNOWN;
    }
    note(r, slot, peer->instance);
    return REFUSE_NONE;
}

/* A peer has founded with this very instance: its record becomes ours. */
static void adopt(struct replica *r, const struct hello *peer)
{
    struct replica_peer peers[REPLICA_SERVERS_MAX];
    char cluster[33], theirs[33];
    unsigned count = r->options.founder_count;
    bool matches = peer->record_count == count;
    for (unsigned i = 0; matches && i < count; i++) {
        int slot = slot_of(r, peer->record[i].id);
        if (slot < 0) {
            matches = false;
            break;
        }
        peers[slot] = r->options.founders[slot];
        memcpy(peers[slot].instance, peer->record[i].instance, REPLICA_INSTANCE_SIZE);
    }
    int self = slot_of(r, r->identity.is.id);
    matches = matches &&
              memcmp(peers[self].instance, r->identity.is.instance, REPLICA_INSTANCE_SIZE) == 0;
    if (matches) {
        identity_cluster_of(peers, count, cluster);
        identity_hex(peer->cluster, theirs);
        matches = strcmp(cluster, theirs) == 0;
    }
    if (!matches) {
        peers_refused(r, peer, REFUSE_CLUSTER);
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        memcpy(r->formation.founders[i].instance, peers[i].instance, REPLICA_INSTANCE_SIZE);
    }
    finish(r, peer->generation);
}

static void on_answer(void *arg, const struct hello *answer)
{
    struct replica *r = *(struct replica **)arg;
    int slot = -1;
    for (unsigned i = 0; i < r->options.founder_count; i++) {
        if ((void *)&r->formation.founders[i] == arg) {
            slot = (int)i;
        }
    }
    ASSERT(slot >= 0);
    r->formation.founders[slot].dialling = false;
    if (answer == NULL || r->formation.done) {
        return;
    }
    if (answer->type == HELLO_REFUSE) {
        peers_refused(r, answer, REFUSE_NONE);
    } else if (answer->from != r->options.founders[slot].id) {
        peers_refused(r, answer, REFUSE_WRONG_SERVER);
    } else if (!same_founders(r, answer)) {
        peers_refused(r, answer, REFUSE_FOUNDERS);
    } else if (answer->state == HELLO_MEMBER) {
        adopt(r, answer);
    } else {
        note(r, slot, answer->instance);
    }
}

static void log_missing(struct replica *r)
{
    char missing[256] = "";
    size_t len = 0;
    if (uv_now(r->loop) - r->formation.logged_ms < FORMATION_LOG_MS) {
        return;
    }
    r->formation.logged_ms = uv_now(r->loop);
    for (unsigned i = 0; i < r->options.founder_count && len < sizeof missing; i++) {
        if (!r->formation.founders[i].heard) {
            len += (size_t)snprintf(missing + len, sizeof missing - len, "%s%" PRIu64,
                                    len > 0 ? "," : "", r->options.founders[i].id);
        }
    }
    log_event(LOG_INFO, "raft.founding", "waits_for=%s", missing);
}

static void on_timer(uv_timer_t *timer)
{
    struct replica *r = timer->data;
    for (unsigned i = 0; i < r->options.founder_count; i++) {
        const struct replica_peer *p = &r->options.founders[i];
        if (!r->formation.founders[i].heard && !r->formation.founders[i].dialling) {
            r->formation.founders[i].dialling = true;
            transport_greet(r->transport, p->id, p->raft_address, on_answer,
                            &r->formation.founders[i]);
        }
    }
    log_missing(r);
}

void formation_start(struct replica *r)
{
    int self = slot_of(r, r->identity.is.id);
    ASSERT(self >= 0);
    r->formation.founders[self].heard = true;
    memcpy(r->formation.founders[self].instance, r->identity.is.instance, REPLICA_INSTANCE_SIZE);
    for (unsigned i = 0; i < r->options.founder_count; i++) {
        r->formation.founders[i].r = r;
    }
    r->formation.logged_ms = uv_now(r->loop);
    uv_timer_init(r->loop, &r->formation.timer);
    r->formation.timer.data = r;
    uv_timer_start(&r->formation.timer, on_timer, 0, FORMATION_PERIOD_MS);
}
