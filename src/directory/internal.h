/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the state machine: one command on one state. For src/directory/ and its tests
 * alone.
 *
 * apply_run() is the whole of it, and a function of its arguments: directory_apply() runs it on the
 * working state, directory_try() on a copy that it throws away. A handler validates everything
 * before it changes anything. */
#ifndef DIRECTORY_INTERNAL_H
#define DIRECTORY_INTERNAL_H

#include "directory/directory.h"
#include "directory/place.h"

#include <string.h>

struct dir_published {
    struct dir_view *view; /* a reference */
};

/* --- object_operation.c: the rows of movement as bytes --- */

struct wire_reader;
void object_put_operation(struct buf *b, const struct dir_operation *o);
void *object_get_operation(struct wire_reader *r);
/* Bytes of the row, its stages included. */
static inline size_t operation_size(const struct dir_operation *o)
{
    return sizeof *o + o->stage_count * sizeof o->stages[0];
}
void object_put_duty(struct buf *b, const struct dir_duty *d);
void *object_get_duty(struct wire_reader *r);

/* --- object_proposal.c --- */

void object_put_proposal(struct buf *b, const struct dir_proposal *p);
void *object_get_proposal(struct wire_reader *r);

/* --- balancer.c --- */

struct dir_balancer;
struct dir_window;
void object_put_balancer(struct buf *out, const struct dir_balancer *b);
void *object_get_balancer(struct wire_reader *r);
/* What is wrong with the row, or NULL. */
const char *check_balancer(const struct dir_view *v);

/* --- lists --- */

struct part_list {
    struct dir_partition **items; /* a reference each */
    uint64_t count, cap;
};
void parts_add(struct part_list *l, struct dir_partition *p); /* takes over the reference */
void parts_close(struct part_list *l);
/* By keyspace, then start. */
void parts_sort(struct part_list *l);

/* Changes to the partition counts of nodes, gathered so that each node's row changes once. */
struct count_slot {
    uint64_t node; /* 0: free */
    int64_t delta;
};
struct counts {
    struct count_slot *slots;
    uint64_t used, cap; /* cap is 0 or a power of two */
};
void counts_add(struct counts *c, uint64_t node, int64_t delta);
int64_t counts_get(const struct counts *c, uint64_t node);
void counts_close(struct counts *c);

/* --- state.c: the trees and their indexes, kept in step --- */

#define STATE_TREES(X)                                                                             \
    X(keyspaces_by_name)                                                                           \
    X(keyspaces)                                                                                   \
    X(keyspace_maps)                                                                               \
    X(partitions)                                                                                  \
    X(waiting)                                                                                     \
    X(tombstones)                                                                                  \
    X(tombstones_by_age)                                                                           \
    X(nodes_by_name)                                                                               \
    X(nodes)                                                                                       \
    X(servers)                                                                                     \
    X(operations)                                                                                  \
    X(queued)                                                                                      \
    X(usage)                                                                                       \
    X(by_node)                                                                                     \
    X(duties)                                                                                      \
    X(duties_by_node)                                                                              \
    X(proposals)                                                                                   \
    X(proposals_open)                                                                              \
    X(balancer)                                                                                    \
    X(dedupe)                                                                                      \
    X(dedupe_by_age)

/* Two numbers as a key of an index. */
struct slice state_pair_key(uint64_t a, uint64_t b, uint8_t out[16]);

void state_init(struct dir_view *s);
void state_close(struct dir_view *s);
/* O(1): shares the trees. */
void state_copy(const struct dir_view *from, struct dir_view *ret_to);

/* Puts a row into its table and indexes; takes over the reference. Returns the row that it
 * replaced, with its reference, or NULL. Neither knows the hash. */
struct dir_object *state_put(struct dir_view *s, struct dir_object *row) MUST_CHECK;
/* Removes the row of the same kind and id. Returns it with its reference; it must be there. */
struct dir_object *state_remove(struct dir_view *s, const struct dir_object *row) MUST_CHECK;
/* Takes a keyspace's map out of the index; its partitions are still in their table. NULL when there
 * is none. */
struct dir_map *state_detach_map(struct dir_view *s, uint64_t keyspace);

struct hash128 state_scalar_hash(const struct dir_view *s);
struct hash128 state_row_hash(const struct dir_object *row, struct buf *scratch);

/* Hidden ones too. */
struct dir_keyspace *state_keyspace(const struct dir_view *s, uint64_t id);
const struct ptree *state_map(const struct dir_view *s, uint64_t keyspace);
/* Has no owner and never had one: Place may give it one. */
bool state_is_waiting(const struct dir_partition *p);

enum { STATE_DEDUPE_KEY_MAX = DIR_TEXT_MAX + 1 + DIR_IDEMPOTENCY_KEY_MAX };
struct slice
state_dedupe_key(struct slice principal, struct slice key, uint8_t out[STATE_DEDUPE_KEY_MAX]);

/* Copies all but the header: a reader may be counting its reference in there. */
void object_assign(void *to, const void *from, size_t size);
/* A copy of one reference. */
void *row_copy(const void *row, size_t size);

/* New versions, of one reference; `like` gives all that is not an array. */
struct partition_arrays {
    const struct dir_replica *replicas;
    const uint64_t *parents;
    uint8_t replica_count, parent_count;
    bool end_open;
    struct slice start, end;
};
struct dir_partition *partition_new(const struct dir_partition *like,
                                    const struct partition_arrays *arrays);
/* All that is not an array. */
struct dir_partition partition_like(const struct dir_partition *p);
struct dir_partition *partition_copy(const struct dir_partition *p);
struct partition_arrays partition_arrays(const struct dir_partition *p);
bool partition_has_primary(const struct dir_partition *p);
/* The index of the node's copy, or -1. */
int partition_copy_on(const struct dir_partition *p, uint64_t node);

/* --- apply.c --- */

/* What routers of one keyspace are told about one command. */
struct touched {
    uint64_t keyspace;
    enum dir_change_kind kind;
    bool oversize;
    struct part_list routes;
    uint64_t *removed;
    uint32_t removed_count, removed_cap;
};

struct handler; /* apply.c's table: a name and a function for each body */

struct apply {
    struct dir_view *s;
    const Cadastre__Command *cmd;
    const struct handler *handler;
    dir_rev rev; /* that the command takes if it changes anything */

    /* what it comes to */
    struct err err;
    bool changed;
    bool retired;
    enum dir_change_kind kind;
    uint64_t partition, session;
    dir_rev current_epoch, current_revision;
    struct dir_keyspace *keyspace; /* references */
    struct dir_node *node;
    struct dir_operation *operation;
    struct dir_proposal *proposal;
    struct part_list routes;
    struct dir_result *replay; /* the stored outcome, when there was one */

    /* what it changes */
    struct dir_row *rows;
    uint64_t row_count, row_cap;
    struct touched *touched;
    uint64_t touched_count, touched_cap;
    struct counts counts;
    char subject[160];
    struct buf scratch;
};

struct apply_outcome {
    struct dir_result *result;
    struct dir_effects *effects; /* NULL: nothing changed, not even time */
    struct dir_change **changes; /* references, `change_count` of them; the array from mem_alloc */
    uint64_t change_count;
};

void apply_run(struct dir_view *s,
               uint64_t index,
               const Cadastre__Command *cmd,
               struct apply_outcome *ret);
void apply_outcome_close(struct apply_outcome *o);
/* The command, or NULL with the reason. Free with apply_free(). */
Cadastre__Command *apply_decode(struct slice bytes, struct err *e);
void apply_free(Cadastre__Command *cmd);

/* The row's hash comes and goes with it. Both take effect at once. */
void apply_put(struct apply *a, void *row); /* takes over the reference */
void apply_remove(struct apply *a, const void *row);
uint64_t apply_id(struct apply *a);
void apply_subject(struct apply *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* What changed for the routers of a keyspace. The result is good until the next call. */
struct touched *apply_touch(struct apply *a, uint64_t keyspace, enum dir_change_kind kind);
void touched_route(struct touched *t, struct dir_partition *p);
void touched_removed(struct touched *t, uint64_t partition);
/* As the feed carries it; of one reference. */
struct dir_change *touched_change(const struct apply *a, struct touched *t);
/* One entry a keyspace: a watcher that resumes at a revision has seen all of it. */
void touched_coalesce(struct apply *a);
/* The keyspace, if it is there and not hidden, else ERR_KEYSPACE_NOT_FOUND. */
enum err_code
apply_find_keyspace(struct apply *a, uint64_t id, const struct dir_keyspace **ret_ks) MUST_CHECK;
void apply_count(struct apply *a, const struct dir_partition *p, int64_t delta);

/* Handlers, by the body of a->cmd. On a refusal they have changed nothing. */
enum err_code apply_bootstrap(struct apply *a) MUST_CHECK;
enum err_code apply_server_put(struct apply *a) MUST_CHECK;
enum err_code apply_server_remove(struct apply *a) MUST_CHECK;
enum err_code apply_settings_patch(struct apply *a) MUST_CHECK;
enum err_code apply_keyspace_create(struct apply *a) MUST_CHECK;
enum err_code apply_keyspace_grow(struct apply *a) MUST_CHECK;
enum err_code apply_keyspace_patch(struct apply *a) MUST_CHECK;
enum err_code apply_keyspace_delete(struct apply *a) MUST_CHECK;
enum err_code apply_split(struct apply *a) MUST_CHECK;
enum err_code apply_merge(struct apply *a) MUST_CHECK;
enum err_code apply_reassign(struct apply *a) MUST_CHECK;
enum err_code apply_partition_patch(struct apply *a) MUST_CHECK;
enum err_code apply_node_put(struct apply *a) MUST_CHECK;
enum err_code apply_node_delete(struct apply *a) MUST_CHECK;
enum err_code apply_place(struct apply *a) MUST_CHECK;

enum err_code apply_session_end(struct apply *a) MUST_CHECK;
enum err_code apply_node_scheduling(struct apply *a) MUST_CHECK;
enum err_code apply_insync_change(struct apply *a) MUST_CHECK;
enum err_code apply_forced_failover(struct apply *a) MUST_CHECK;

enum err_code apply_operation_start(struct apply *a) MUST_CHECK;
enum err_code apply_operation_admit(struct apply *a) MUST_CHECK;
enum err_code apply_operation_report(struct apply *a) MUST_CHECK;
enum err_code apply_operation_verb(struct apply *a) MUST_CHECK;
enum err_code apply_operation_timeout(struct apply *a) MUST_CHECK;
enum err_code apply_operation_release(struct apply *a) MUST_CHECK;
enum err_code apply_balancer_patch(struct apply *a) MUST_CHECK;
enum err_code apply_balancer_pause(struct apply *a) MUST_CHECK;
enum err_code apply_balancer_note(struct apply *a) MUST_CHECK;

/* --- window.c: the balancer's windows --- */

/* Those of the command, checked, into a row's; without any in it, nothing is changed. */
enum err_code
windows_take_patch(struct apply *a, struct dir_window *into, uint32_t *count) MUST_CHECK;
void windows_put(struct buf *out, const struct dir_balancer *b);
void windows_get(struct wire_reader *r, struct dir_balancer *b);
/* What is wrong with them, or NULL. */
const char *windows_check(const struct dir_balancer *b);

/* What apply_operation_start would say, and nothing else. */
enum err_code operation_check_start(struct apply *a) MUST_CHECK;

/* --- proposal.c --- */

enum err_code apply_proposal_make(struct apply *a) MUST_CHECK;
enum err_code apply_proposal_settle(struct apply *a) MUST_CHECK;
enum err_code apply_proposal_measure(struct apply *a) MUST_CHECK;
/* Those that nobody settled in time. */
void proposals_expire(struct apply *a);

/* ERR_PARTITION_BUSY with the operation that holds p. */
enum err_code operation_check_free(struct apply *a, struct dir_partition *p) MUST_CHECK;

/* --- apply_partition.c --- */

/* The live partition of this id in a keyspace that can be seen. For a retired id the refusal
 * carries what is there now. */
enum err_code
apply_find_partition(struct apply *a, uint64_t id, struct dir_partition **ret_p) MUST_CHECK;
enum err_code apply_expect_epoch(struct apply *a,
                                 struct dir_partition *p,
                                 bool has_expected,
                                 uint64_t expected) MUST_CHECK;
/* The rows of a range that takes new ids: the old id names the new ones. */
void partition_retire(struct apply *a,
                      const struct dir_partition *p,
                      enum dir_change_kind cause,
                      const uint64_t *successors,
                      uint32_t count);
/* The range as a whole was admitted that much: its parts share it, for there is no telling their
 * loads. */
uint64_t partition_share(uint64_t rate_limit, uint64_t parts);
/* The partition as it is goes with the refusal. */
void apply_show_present(struct apply *a, struct dir_partition *p);

/* --- grant.c --- */

/* Somebody may write it until a lease is over: not so when nobody, or a static node, has it. */
bool grant_is_leased(const struct dir_view *s, const struct dir_partition *p);
/* Makes this copy's node the primary, in its present session, at the command's epoch. */
void grant_to(struct apply *a, const struct dir_partition *p, int copy, enum dir_change_kind cause);
/* The session that p is granted to is no more: to the node's next session, else to a live sync
 * replica, else to nobody. `holds`: the primary's copy is still there. */
void grant_release(struct apply *a, const struct dir_partition *p, bool holds);
/* If p has no primary: to a live sync replica, when there is one. */
void grant_recover(struct apply *a, const struct dir_partition *p);
/* This copy no longer counts as one that has every acknowledged write. */
void grant_demote(struct apply *a, const struct dir_partition *p, int copy);
/* The newest session before the node's present one that something is granted to, or 0. */
uint64_t grant_newest_ended(const struct dir_view *s, const struct dir_node *n);
/* The partitions with a copy on the node, by keyspace and start. */
void grant_held(const struct dir_view *s, const struct dir_node *n, struct part_list *out);

/* --- operation.c --- */

/* An operation that is done in the command that starts it; in a->operation too. */
struct dir_operation *operation_done(struct apply *a,
                                     const struct dir_partition *p,
                                     enum dir_operation_kind kind,
                                     const struct dir_node *to,
                                     const char *reason);

/* --- duty.c --- */

/* The node has to delete this copy; of this operation, or 0. */
void duty_make(struct apply *a,
               const struct dir_keyspace *ks,
               const struct dir_partition *p,
               const struct dir_replica *r,
               uint64_t operation);
/* The node is gone for good: nobody will. */
void duty_drop_all(struct apply *a, uint64_t node);
enum err_code apply_duty_done(struct apply *a) MUST_CHECK;
/* Whether the node has yet to delete a copy of this partition: a new one would be mixed up with it.
 */
bool duty_is_owed(const struct dir_view *s, uint64_t node, uint64_t partition);

/* --- drain.c --- */

/* The node's drain is over before it is done: what was begun for it and can go back without harm
 * ends. */
void drain_cancel(struct apply *a, uint64_t node);
/* The node takes nothing new: what waits to be copied to it ends. */
void drain_divert(struct apply *a, uint64_t node, const char *code);

/* --- copies.c --- */

/* What a registration says of the copies that its data directory holds. */
struct copies;
struct copies *copies_read(const struct dir_view *s, const Cadastre__NodePut *m);
void copies_free(struct copies *c);
/* Whether the node's copy of p is among them; true when the registration says nothing of copies. */
bool copies_hold(const struct copies *c,
                 const struct dir_partition *p,
                 const struct dir_replica *r);

/* --- place.c --- */

struct placer;
struct placer *placer_new(struct apply *a);
void placer_free(struct placer *p);
/* Chooses nodes for the copies of one partition, counts them, and returns how many there are. */
uint8_t placer_pick(struct placer *p,
                    const struct dir_keyspace *ks,
                    struct dir_replica out[DIR_REPLICAS_MAX]);
/* Gives owners to partitions that wait for one, DIR_PLACE_BATCH at the most; of one keyspace, or
 * (0) of all. Returns how many got one. */
uint64_t place_waiting(struct apply *a, uint64_t keyspace);
bool place_equal(const struct dir_placement *a, const struct dir_placement *b);

/* --- policy.c --- */

enum err_code policy_check_text(struct err *e, const ProtobufCBinaryData *policy) MUST_CHECK;
/* NULL: none. Refuses what is unknown or out of range, at "/policy/NAME". */
enum err_code
policy_read(struct err *e, const Cadastre__PolicyRules *in, struct dir_policy *out) MUST_CHECK;
/* As policy_read() lets them in. */
bool policy_in_range(const struct dir_policy *p);
bool policy_equal(const struct dir_policy *a, const struct dir_policy *b);

/* --- retain.c --- */

/* What log time and the limits take away, a bounded number a command. */
void retain_expire(struct apply *a);
struct dir_dedupe *retain_find(const struct dir_view *s, const char *principal, const char *key);
void retain_remember(struct apply *a, const struct dir_result *r);

/* --- result.c --- */

/* Of one reference; the routes are zero until they are opened. */
struct dir_result *result_new(const struct err *e, dir_rev revision, uint64_t route_count);

/* --- valid.c: the rules for what commands carry --- */

/* 1 to `max` bytes of UTF-8 without control characters. */
bool valid_text(const char *s, size_t max);
bool valid_address(const char *s);
enum err_code valid_labels(struct err *e,
                           const char *pointer,
                           Cadastre__Label **in,
                           size_t count,
                           struct dir_label *out) MUST_CHECK;
enum err_code
valid_placement(struct err *e, const Cadastre__Placement *in, struct dir_placement *out) MUST_CHECK;

#endif
