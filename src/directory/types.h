/* SPDX-License-Identifier: Apache-2.0 */
/* What the directory holds: immutable, reference-counted objects, and the limits they are held to.
 *
 * An object never changes after it was published; a change makes a new one. Whoever stores a
 * pointer holds a reference (dir_ref / dir_unref, any thread); a pointer read from a view is
 * borrowed for as long as the view is. */
#ifndef DIRECTORY_TYPES_H
#define DIRECTORY_TYPES_H

#include "base/buf.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t dir_rev; /* the directory's one counter; an epoch is a revision too */

enum {
    DIR_KEY_MAX = 1024, /* bytes of a key as given; a hash keyspace's routing key has 8 more */
    DIR_ROUTING_KEY_MAX = 1032,
    DIR_NAME_MAX = 63,
    DIR_ADDRESS_MAX = 255,
    DIR_TEXT_MAX = 255, /* a principal, a reason */
    DIR_IDEMPOTENCY_KEY_MAX = 128,
    DIR_REPLICAS_MAX = 8,       /* copies of one partition, the primary included */
    DIR_LABELS_MAX = 16,        /* labels, or capacities, of one node */
    DIR_REQUIRE_MAX = 16,       /* label=value alternatives of one placement */
    DIR_PARENTS_MAX = 2,        /* a split has one parent, a merge two */
    DIR_SPLIT_KEYS_MAX = 10000, /* keys of one split command */
    DIR_COMMAND_MAX = 1 << 20,  /* bytes of one encoded command */
    DIR_KEYSPACES_MAX = 10000,
    DIR_NODES_MAX = 20000,
    DIR_SERVERS_MAX = 16,
    DIR_SERVER_IDS_MAX = 4096,  /* members and former members */
    DIR_OPERATIONS_MAX = 10000, /* operations remembered; the oldest that has ended makes room */
    DIR_ATTEMPTS_MAX = 8,       /* of one operation, each time it is asked for; then it aborts */
    DIR_STAGES_MAX = 64,        /* stage transitions remembered of one operation, the newest */
    DIR_SNAPSHOT_MAX = 63,      /* bytes of a snapshot's name */
    DIR_PROPOSALS_MAX = 2000,   /* proposals remembered; the oldest that is settled makes room */
    DIR_FIGURES_MAX = 48,       /* numbers that one proposal carries */
    DIR_CANDIDATES_MAX = 16,    /* destinations that it names as rejected */
    DIR_PROPOSAL_KEYS_MAX = 2,  /* keys that it would split at: around one hot key */
    DIR_LEASE_MS_MIN = 100,
    DIR_LEASE_MS_MAX = 3600000,
    DIR_POLICY_MAX = 65536, /* bytes of a keyspace's policy */
    DIR_CHECKS_MAX = 16,    /* checks that a keyspace's policy may require */
    DIR_MARKS_MAX = 8,
    DIR_DEDUPE_MAX = 262144,      /* remembered idempotency keys; the oldest makes room */
    DIR_TOMBSTONES_MAX = 1000000, /* retired ids that still name their successors */
    DIR_PLACE_BATCH = 8192,       /* partitions placed by one command */
    DIR_CREATE_BATCH = 8192 /* partitions created by one command; more come in hidden chunks */
};
#define DIR_PARTITIONS_MAX UINT64_C(2000000)
#define DIR_REVISION_MAX   ((UINT64_C(1) << 53) - 1)

enum dir_kind {
    DIR_KIND_KEYSPACE = 1,
    DIR_KIND_PARTITION,
    DIR_KIND_TOMBSTONE,
    DIR_KIND_NODE,
    DIR_KIND_SERVER,
    DIR_KIND_DEDUPE,
    DIR_KIND_OPERATION,
    DIR_KIND_BYTES, /* anything else that is only bytes, such as a test's value */
    DIR_KIND_MAP,   /* struct dir_map of view.h: not a row */
    DIR_KIND_DUTY,
    DIR_KIND_PROPOSAL,
    DIR_KIND_BALANCER
};

struct dir_object {
    _Atomic uint32_t refs;
    uint8_t kind; /* enum dir_kind */
};

/* Accept NULL. */
void *dir_ref(void *object);
void dir_unref(void *object);

enum dir_scheme { DIR_SCHEME_RANGE = 1, DIR_SCHEME_HASH = 2 };
enum dir_key_encoding { DIR_ENCODING_UTF8 = 1, DIR_ENCODING_HEX = 2 };
enum dir_authority { DIR_AUTHORITY_EXCLUSIVE = 1, DIR_AUTHORITY_AFFINITY = 2 };
enum dir_role { DIR_ROLE_PRIMARY = 1, DIR_ROLE_SYNC = 2, DIR_ROLE_ASYNC = 3, DIR_ROLE_JOINING = 4 };
enum dir_scheduling { DIR_OPEN = 0, DIR_CORDONED, DIR_DRAINING, DIR_QUARANTINED };
enum dir_state_of { DIR_ACTIVE = 1, DIR_FENCING = 2, DIR_UNAVAILABLE = 3 };

struct dir_label {
    char name[DIR_NAME_MAX + 1];
    char value[DIR_NAME_MAX + 1]; /* of a capacity: a decimal number */
};

/* Which nodes may hold a keyspace. `require`: for each label named, the node's value must be one of
 * those given. `spread`: copies of one partition go to nodes of different values of this label
 * while there are enough. */
struct dir_placement {
    uint32_t require_count;
    struct dir_label require[DIR_REQUIRE_MAX];
    char spread[DIR_NAME_MAX + 1]; /* "" for none */
};

/* A key codec's parameters: how a client's key becomes a routing key (directory/codec.h). */
struct dir_partition_key {
    char delimiter; /* 0: the whole key is hashed */
    uint32_t fields;
};

/* What a keyspace's policy says of movement (directory/policy.h). They are numbers in commands and
 * rows: only ever added, at the end. */
enum dir_policy_value {
    DIR_POLICY_CUTOVER_LAG_BYTES,
    DIR_POLICY_HEADROOM_PPM, /* free space that a copy needs, in millionths of its size */
    DIR_POLICY_MAX_CHECKSUM_FAILURES,
    DIR_POLICY_VALIDATION_WINDOW_MS,
    DIR_POLICY_STAGE_TIMEOUT_MS,
    DIR_POLICY_DUAL_WRITE_MAX_MS,
    DIR_POLICY_FENCE_MAX_MS,
    DIR_POLICY_RELEASE_MS, /* in which a reservation steps down after CLEANUP */
    DIR_POLICY_REQUIRE_WARM,
    DIR_POLICY_REVERSE_REPLICATION,
    DIR_POLICY_VALUES
};

struct dir_policy {
    uint32_t set;                       /* bits: 1 << enum dir_policy_value */
    uint64_t values[DIR_POLICY_VALUES]; /* 0 where none is set */
    uint32_t check_count;
    char checks[DIR_CHECKS_MAX][DIR_NAME_MAX + 1]; /* a destination has to report each as passed */
};

struct dir_keyspace {
    struct dir_object object;
    uint64_t id; /* a re-created keyspace of the same name has another */
    char name[DIR_NAME_MAX + 1];
    uint8_t scheme, key_encoding, authority;
    bool hidden; /* still being created in chunks: invisible to everything but the commands that
                    fill it */
    bool custom_partition_key;
    struct dir_partition_key partition_key;
    uint32_t sync_replicas, async_replicas; /* wanted copies beside the primary */
    uint64_t replicas_ms;                   /* log time when that was last said */
    dir_rev replicas_revision;              /* and at which revision */
    struct dir_placement placement;
    struct dir_policy rules; /* of `policy`, what the directory itself goes by */
    uint32_t policy_len;
    dir_rev created, mod_revision;
    uint64_t created_ms;
    char policy[]; /* canonical JSON object of policy_len bytes, NUL-terminated; "{}" when none */
};

struct dir_replica {
    uint64_t node; /* id */
    dir_rev copy;  /* the copy's id: the revision of the command that made it */
    uint8_t role;  /* enum dir_role */
    bool asked; /* a person asked for it beside what the keyspace wants: only a person removes it */
};

/* Lives in one allocation; the arrays follow the struct: replicas, parents, start, end. The
 * primary, when there is one, is replicas[0]. */
struct dir_partition {
    struct dir_object object;
    bool end_open; /* `end` is past the highest key */
    bool pinned;
    bool holds_data; /* false: nobody was ever told that it may write here, or a person said so */
    uint8_t state;   /* enum dir_state_of */
    uint8_t moving;  /* enum dir_stage of `operation`, 0 without one: routes show it */
    uint8_t replica_count, parent_count;
    uint8_t cause; /* enum dir_change_kind: what made this version */
    uint16_t start_len, end_len;
    uint64_t id, keyspace;
    dir_rev epoch, mod_revision, created;
    uint64_t owner_since_ms; /* log time when the primary last changed: residence */
    uint64_t rate_limit;     /* requests per second, 0 for none */
    uint64_t
        session;   /* the primary's session that the authority is granted to; 0 without a primary */
    uint64_t home; /* without a primary: the node that held it last, 0 for none */
    uint64_t operation;      /* that holds it, or 0 */
    uint64_t start_position; /* of the epoch's first change; 0: not known here */
    uint64_t under_since_ms; /* log time since when it has fewer copies of a role than are wanted;
                                0: it has enough (whether their nodes live or not) */
    struct dir_replica replicas[];
};

static inline const uint64_t *dir_partition_parents(const struct dir_partition *p)
{
    return (const uint64_t *)(const void *)(p->replicas + p->replica_count);
}

/* Routing keys: for a hash keyspace 8 bytes of token first. */
static inline struct slice dir_partition_start(const struct dir_partition *p)
{
    return slice_of(dir_partition_parents(p) + p->parent_count, p->start_len);
}

/* Meaningless when end_open. */
static inline struct slice dir_partition_end(const struct dir_partition *p)
{
    struct slice start = dir_partition_start(p);
    return slice_of(start.data + start.len, p->end_len);
}

/* A retired partition id: what became of its range. In one allocation: successors, start, end. The
 * range is kept because it alone says which live partitions cover it now: the successors of
 * successors may lie beside it. */
struct dir_tombstone {
    struct dir_object object;
    bool end_open;
    uint8_t cause; /* enum dir_change_kind: split, merge, delete */
    uint16_t start_len, end_len;
    uint32_t successor_count;
    uint64_t id, keyspace;
    dir_rev retired, last_epoch;
    uint64_t successors[];
};

static inline struct slice dir_tombstone_start(const struct dir_tombstone *t)
{
    return slice_of(t->successors + t->successor_count, t->start_len);
}

/* Meaningless when end_open. */
static inline struct slice dir_tombstone_end(const struct dir_tombstone *t)
{
    struct slice start = dir_tombstone_start(t);
    return slice_of(start.data + start.len, t->end_len);
}

struct dir_node {
    struct dir_object object;
    uint64_t id; /* a node removed and registered again has another */
    char name[DIR_NAME_MAX + 1];
    char address[DIR_ADDRESS_MAX + 1];
    uint64_t session;  /* the revision that began it */
    bool is_static;    /* never lapses */
    bool ended;        /* the session has lapsed or was given up, and no other has begun */
    uint32_t lease_ms; /* of the session, for all its life; 0 for a static one */
    /* The newest session that a registration ended while it held grants, which are its own until it
     * has lapsed: then all that sessions up to it hold are released together. 0: none. */
    uint64_t ended_session;
    uint32_t ended_lease_ms; /* the longest of theirs */
    uint64_t ended_ms;       /* log time when the present session ended; 0: it has not */
    bool lost;          /* declared lost for good (?force=true), kept while something names it */
    uint8_t scheduling; /* enum dir_scheduling */
    uint8_t lapses; /* of its sessions, each soon after the one before; at most DIR_LAPSES_MAX */
    uint64_t scheduling_ms, lapsed_ms; /* log time since when; of the last lapse, 0: none */
    uint32_t label_count, capacity_count;
    dir_rev created, mod_revision;
    dir_rev route_revision;   /* when something a route shows (the address) last changed */
    uint64_t partition_count; /* copies it holds */
    dir_rev task_revision;    /* when something that its tasks show last changed, but for names and
                                 addresses of others */
    struct dir_label tags[];  /* the labels, then the capacities */
};

static inline const struct dir_label *dir_node_capacity(const struct dir_node *n)
{
    return n->tags + n->label_count;
}

/* Of its allocation: a node is copied with every partition that comes or goes. */
static inline size_t dir_node_size(const struct dir_node *n)
{
    return sizeof *n + (n->label_count + n->capacity_count) * sizeof n->tags[0];
}

/* Of one that may yet get all labels there may be. */
enum {
    DIR_NODE_SIZE_MAX = sizeof(struct dir_node) + 2 * DIR_LABELS_MAX * sizeof(struct dir_label)
};

/* A member of the directory's own Raft group. */
struct dir_server {
    struct dir_object object;
    uint64_t id;
    uint8_t role; /* 1 voter, 2 observer: the wanted role; Raft's own configuration has the present
                     one */
    char raft_address[DIR_ADDRESS_MAX + 1];
    char api_url[DIR_ADDRESS_MAX + 1];
    uint8_t instance[16]; /* the data directory's random id */
    bool removed;         /* its id is never used again */
    dir_rev mod_revision;
};

enum dir_operation_kind {
    DIR_OPERATION_MOVE = 1,
    DIR_OPERATION_ADD_REPLICA,
    DIR_OPERATION_REMOVE_REPLICA,
    DIR_OPERATION_TRANSFER,
    DIR_OPERATION_FAILOVER
};

/* What an operation is for: the higher, the sooner it is admitted. */
enum dir_class {
    DIR_CLASS_OPTIMISE = 100,
    DIR_CLASS_MERGE = 150,
    DIR_CLASS_BALANCE = 200,
    DIR_CLASS_OPERATOR = 250,
    DIR_CLASS_HOT = 300,
    DIR_CLASS_OVERLOAD = 450, /* a split of what is overloaded */
    DIR_CLASS_DRAIN = 500,
    DIR_CLASS_CONSTRAINT = 600,
    DIR_CLASS_UNDER_REPLICATED = 700, /* from here on the recovery reserve may be used */
    DIR_CLASS_LAST_COPY = 800,
    DIR_CLASS_UNAVAILABLE = 900
};

/* What operations share, and what is limited (directory/budget.h). They are numbers in commands:
 * only ever added. */
enum dir_budget {
    DIR_BUDGET_SOURCE = 1, /* a node that bytes come from */
    DIR_BUDGET_DESTINATION,
    DIR_BUDGET_RACK, /* a value of the node label of this name, as the next two */
    DIR_BUDGET_ZONE,
    DIR_BUDGET_DEVICE,
    DIR_BUDGET_CLUSTER,
    DIR_BUDGET_TRANSFER, /* a node whose role changes without bytes that flow */
    DIR_BUDGETS = DIR_BUDGET_TRANSFER
};

#define DIR_BUDGET_COMPUTED UINT64_MAX /* of the cluster: by the number of nodes */

struct dir_budget_limit {
    uint64_t moves, bytes_per_s; /* at a time */
};

struct dir_budgets {
    struct dir_budget_limit limits[DIR_BUDGETS + 1]; /* by enum dir_budget */
    uint64_t reserve_percent; /* of each, for classes from DIR_CLASS_UNDER_REPLICATED on alone */
    uint64_t release_ms;      /* in which a reservation steps down */
};

enum { DIR_RELEASE_STEPS = 4, DIR_RESERVED_LABELS = 3 };

/* What an operation has taken of the budgets, by the labels that its nodes had then. */
struct dir_reservation {
    uint64_t source, destination; /* nodes by id, 0 for none; of a transfer, both ends */
    uint64_t bytes_per_s;         /* before it began to step down */
    uint8_t moves;                /* 1, or 0: it holds nothing */
    uint8_t step;                 /* of DIR_RELEASE_STEPS, that have been given back */
    bool transfer;
    bool releasing; /* its work is done: an operator's next move does not wait for it */
    char source_labels[DIR_RESERVED_LABELS][DIR_NAME_MAX + 1]; /* rack, zone, device; "": none */
    char destination_labels[DIR_RESERVED_LABELS][DIR_NAME_MAX + 1];
};

enum dir_operation_state {
    DIR_OPERATION_QUEUED = 1,
    DIR_OPERATION_RUNNING,
    DIR_OPERATION_DONE,
    DIR_OPERATION_ABORTED,
    DIR_OPERATION_FAILED
};

enum dir_stage {
    DIR_STAGE_QUEUED = 1,
    DIR_STAGE_PREPARE,
    DIR_STAGE_SNAPSHOT,
    DIR_STAGE_COPY,
    DIR_STAGE_CATCH_UP,
    DIR_STAGE_DUAL_WRITE,
    DIR_STAGE_VALIDATE,
    DIR_STAGE_FENCE,
    DIR_STAGE_CUTOVER,
    DIR_STAGE_JOIN, /* where a replica is added or moved: no authority changes hands */
    DIR_STAGE_WINDOW,
    DIR_STAGE_CLEANUP,
    DIR_STAGE_DONE,
    DIR_STAGE_ABORTED,
    DIR_STAGE_FAILED
};

/* What a report gave: bits of OperationReport.has. */
enum dir_report_field {
    DIR_REPORT_READY = 1 << 0,
    DIR_REPORT_FREE_BYTES = 1 << 1,
    DIR_REPORT_SNAPSHOT = 1 << 2,
    DIR_REPORT_POSITION = 1 << 3,
    DIR_REPORT_BYTES_TOTAL = 1 << 4,
    DIR_REPORT_ITEMS_TOTAL = 1 << 5,
    DIR_REPORT_CHUNK = 1 << 6,
    DIR_REPORT_BYTES_DONE = 1 << 7,
    DIR_REPORT_COMPLETE = 1 << 8,
    DIR_REPORT_APPLIED_POSITION = 1 << 9,
    DIR_REPORT_LAG_BYTES = 1 << 10,
    DIR_REPORT_ACTIVE = 1 << 11,
    DIR_REPORT_FROM_POSITION = 1 << 12,
    DIR_REPORT_AT_POSITION = 1 << 13,
    DIR_REPORT_ITEMS = 1 << 14,
    DIR_REPORT_CHECKSUM = 1 << 15,
    DIR_REPORT_EXTRAS = 1 << 16,
    DIR_REPORT_FENCED = 1 << 17,
    DIR_REPORT_FINAL_POSITION = 1 << 18,
    DIR_REPORT_OPEN_OPERATIONS = 1 << 19,
    DIR_REPORT_STALE_READS = 1 << 20,
    DIR_REPORT_OLD_EPOCH_WRITES = 1 << 21
};

/* One change of stage. */
struct dir_stage_entry {
    uint8_t stage; /* enum dir_stage: that was entered */
    uint64_t at_ms;
    dir_rev revision;
    char by[DIR_NAME_MAX + 1]; /* the node whose report it was, a principal, or "directory" */
};

/* What one side of an operation said of the present stage. */
struct dir_evidence {
    uint64_t session, seq; /* of the last report that counted */
    uint64_t digest;       /* of its content: the same again gets the same answer */
    bool has_values, passed;
    uint64_t at_position, items, checksum, extras;
};

/* A part of a partition, in routing keys: strictly less than all of it. */
struct dir_part {
    bool is_set;
    bool end_open;
    bool hex; /* how the API writes its bounds */
    uint16_t start_len, end_len;
    uint8_t start[DIR_ROUTING_KEY_MAX], end[DIR_ROUTING_KEY_MAX]; /* end: meaningless when open */
};

static inline struct slice dir_part_start(const struct dir_part *part)
{
    return slice_of(part->start, part->start_len);
}

static inline struct slice dir_part_end(const struct dir_part *part)
{
    return slice_of(part->end, part->end_len);
}

/* Why a running copy goes slower than was reserved for it (docs/balancing.md, "Guardrails"). */
struct dir_throttle {
    uint64_t share_ppm, since_ms; /* of the reserved rate, 0: all of it; log time */
    uint64_t node, value, limit;  /* whose report it was, what that said, and what it may */
    char code[DIR_NAME_MAX + 1];  /* the guardrail */
};

/* A piece of work on one partition. Names are kept because nodes and keyspaces may go. */
struct dir_operation {
    struct dir_object object;
    uint64_t id, keyspace, partition, source, destination; /* nodes by id, 0 for none */
    uint64_t
        leaving; /* whose copy goes when the destination has joined; the source when that moves */
    dir_rev leaving_copy; /* its id, once that is settled */
    struct dir_part part; /* if set, only that moves */
    uint64_t retired;     /* what it was a part of; `partition` is the part itself since. Or 0 */
    uint64_t reverses,
        reversed_by; /* the operation that this one takes back, or that does so; or 0 */
    dir_rev epoch_before, epoch_after, revision; /* revision: when it last changed */
    uint64_t at_ms;                              /* when it began */
    uint8_t kind, state, stage;
    bool moves_primary; /* a move whose source is the primary */
    bool complete, active, fenced, joined;
    bool warm;    /* the destination has said so in this attempt */
    bool reverse; /* in WINDOW the source follows the destination */
    uint8_t role; /* of the new copy: enum dir_role */
    uint32_t attempt;
    uint32_t first_attempt; /* since somebody last asked for it: DIR_ATTEMPTS_MAX count from here */
    uint32_t validations;   /* failed ones: one goes back to COPY, the next one aborts */
    uint32_t class_of;      /* enum dir_class */
    uint64_t stage_since_ms;
    dir_rev stage_revision;
    dir_rev copy; /* the candidate's id */
    /* Sessions that the attempt began with; joined_session is D's when `joined` was set. */
    uint64_t source_session, destination_session, joined_session;
    /* Evidence of the present attempt. */
    /* Up to where the candidate's log is the source's; of one that reverses another. */
    uint64_t base_position;
    uint64_t position, bytes_total, items_total, chunk, bytes_done, checksum_failures, free_bytes;
    uint64_t applied_position, lag_bytes, from_position, validate_at, final_position, checksum;
    uint64_t open_operations, stale_reads, old_epoch_writes, deleted_bytes;
    uint64_t max_bytes_per_s, rate_bytes_per_s; /* asked for; as reserved */
    bool has_size, has_live;                    /* whoever asked said how large, how busy it is */
    uint64_t size_bytes, live_bytes_per_s;
    uint64_t stage_bytes; /* bytes_done when the stage began */
    struct dir_reservation reserved;
    struct dir_throttle throttle;
    dir_rev rate_revision; /* when a copy that ran was last told to go slower or faster */
    struct dir_evidence source_says, destination_says;
    char snapshot[DIR_SNAPSHOT_MAX + 1];
    char attention_code[DIR_NAME_MAX + 1]; /* "" when nobody is needed */
    char attention[DIR_TEXT_MAX + 1];
    uint64_t attention_since_ms;
    char keyspace_name[DIR_NAME_MAX + 1];
    char source_name[DIR_NAME_MAX + 1], destination_name[DIR_NAME_MAX + 1];
    char initiator[DIR_TEXT_MAX + 1], reason[DIR_TEXT_MAX + 1];
    uint32_t stage_count;
    struct dir_stage_entry stages[]; /* oldest first */
};

/* A copy that its node has to delete. Outlives sessions and operations. */
struct dir_duty {
    struct dir_object object;
    uint64_t id, node, keyspace, partition, operation; /* operation 0: none */
    dir_rev copy, revision;                            /* revision: when it was made */
    char keyspace_name[DIR_NAME_MAX + 1];
};

enum dir_proposal_kind {
    DIR_PROPOSAL_MOVE = 1,
    DIR_PROPOSAL_TRANSFER,
    DIR_PROPOSAL_ADD_REPLICA,
    DIR_PROPOSAL_REMOVE_REPLICA,
    DIR_PROPOSAL_SWAP, /* `partition` goes from `from` to `to`, and `with` the other way */
    DIR_PROPOSAL_SPLIT,
    DIR_PROPOSAL_MERGE,
    DIR_PROPOSAL_ADVICE /* nothing that the directory could do */
};

enum dir_proposal_state {
    DIR_PROPOSAL_OPEN = 1, /* waits for somebody to approve or reject it */
    DIR_PROPOSAL_RUNNING,  /* its operations have begun */
    DIR_PROPOSAL_DONE,
    DIR_PROPOSAL_FAILED,
    DIR_PROPOSAL_REJECTED,
    DIR_PROPOSAL_EXPIRED
};

enum dir_figure_group {
    DIR_FIGURE_EVIDENCE = 1,
    DIR_FIGURE_PREDICTED,
    DIR_FIGURE_COST,
    DIR_FIGURE_MEASURED
};

/* A number with the name of what it counts, its unit at the end of the name. */
struct dir_figure {
    char name[DIR_NAME_MAX + 1];
    uint8_t group; /* enum dir_figure_group */
    uint64_t value;
};

struct dir_candidate {
    char node[DIR_NAME_MAX + 1];
    char code[DIR_NAME_MAX + 1]; /* why not */
};

struct dir_proposal_key {
    uint16_t len;
    uint8_t bytes[DIR_ROUTING_KEY_MAX];
};

/* What the balancer would do, or has done, and why. Names are kept because nodes and keyspaces may
 * go. */
struct dir_proposal {
    struct dir_object object;
    uint64_t id, keyspace, partition, with; /* with: of a swap or merge, else 0 */
    uint64_t operation, with_operation;     /* 0: none was started */
    dir_rev epoch, revision; /* epoch: it holds for no other; revision: last changed */
    uint64_t made_ms, expires_ms, settled_ms; /* log time; settled: approved, rejected, expired */
    uint64_t ended_ms;                        /* when what it started was over */
    uint8_t kind, state;
    uint32_t class_of; /* enum dir_class */
    char reason_code[DIR_NAME_MAX + 1];
    char reason[DIR_TEXT_MAX + 1];
    char settled_by[DIR_TEXT_MAX + 1], settled_why[DIR_TEXT_MAX + 1];
    char keyspace_name[DIR_NAME_MAX + 1];
    char from_name[DIR_NAME_MAX + 1], to_name[DIR_NAME_MAX + 1];
    uint32_t figure_count, candidate_count, key_count;
    struct dir_figure figures[DIR_FIGURES_MAX];
    struct dir_candidate candidates[DIR_CANDIDATES_MAX];
    struct dir_proposal_key keys[DIR_PROPOSAL_KEYS_MAX];
};

enum dir_change_kind {
    DIR_CHANGE_CREATE = 1, /* a keyspace and its partitions appeared */
    DIR_CHANGE_SPLIT,
    DIR_CHANGE_MERGE,
    DIR_CHANGE_MOVE,  /* another primary */
    DIR_CHANGE_PLACE, /* a partition without an owner got one */
    DIR_CHANGE_NODE,  /* the address of a node */
    DIR_CHANGE_LIMIT, /* a rate limit */
    DIR_CHANGE_PIN,
    DIR_CHANGE_DELETE,   /* the keyspace was removed */
    DIR_CHANGE_RESTORE,  /* every epoch was lifted */
    DIR_CHANGE_LOST,     /* a node was declared lost */
    DIR_CHANGE_LAPSE,    /* the primary's session lapsed, and nobody could follow it */
    DIR_CHANGE_FAILOVER, /* it did, and a replica followed; or a person forced one */
    DIR_CHANGE_GRANT,    /* the same node again, in a new session */
    DIR_CHANGE_ROLES,    /* the in-sync set, a copy more or less */
    DIR_CHANGE_STAGE,    /* an operation went on */
    DIR_CHANGE_LAST = DIR_CHANGE_STAGE
};

/* "split", "merge", …: the API's words. */
const char *dir_change_name(enum dir_change_kind kind);
const char *dir_scheme_name(enum dir_scheme scheme);
const char *dir_role_name(enum dir_role role);
const char *dir_state_name(enum dir_state_of state);
const char *dir_stage_name(enum dir_stage stage);                   /* "COPY" */
const char *dir_proposal_kind_name(enum dir_proposal_kind kind);    /* "add_replica" */
const char *dir_proposal_state_name(enum dir_proposal_state state); /* "open" */
const char *dir_figure_group_name(enum dir_figure_group group);     /* "predicted" */
const char *dir_operation_kind_name(enum dir_operation_kind kind);  /* "add_replica" */
/* "operator": of what lies between two, the lower one's. */
const char *dir_class_name(uint32_t class_of);
const char *dir_operation_state_name(enum dir_operation_state state);

#endif
