/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of src/control share. All fields but `shared` and the atomics belong to the loop
 * thread. */
#ifndef CONTROL_INTERNAL_H
#define CONTROL_INTERNAL_H

#include "control/admission.h"
#include "control/control.h"
#include "control/leases.h"
#include "control/throttle.h"
#include "control/windows.h"

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

enum {
    CONTROL_SAMPLE_MS = 50,       /* status is copied so often */
    CONTROL_TICK_MS = 600000,     /* an idle directory's log time moves on so often */
    CONTROL_LEAP_MS = 900000,     /* a new leader's clock may be so far ahead of the last one's */
    CONTROL_CHECK_ENTRIES = 4096, /* entries between two state checks */
    CONTROL_CHECK_MS = 60000,     /* or, when something was applied, so much time */
    CONTROL_RECONCILE_MS = 500,   /* wanted and present membership are compared so often */
    CONTROL_BUCKETS = 1024,       /* of the table of keys in flight */
    CONTROL_CHUNK_BYTES = 768 << 10, /* bounds of one creation chunk; a command holds 1 MiB */
    CONTROL_STALL_MS = 1000,        /* a loop that stood still so long may have missed heartbeats */
    CONTROL_LAPSES_A_TURN = 64,     /* sessions whose end is proposed between two samples */
    CONTROL_OPERATIONS_MS = 100,    /* operations are looked through so often */
    CONTROL_OPERATIONS_A_TURN = 16, /* commands proposed for them each time */
    CONTROL_ASK_AGAIN_MS = 2000,    /* after which a command for one is proposed again */
    CONTROL_ADMIT_AGAIN_MS = 300,   /* an admission: another may have taken its place */
    CONTROL_RATES_A_TURN = 16,      /* copies told another rate between two samples */
    BEATS_BATCH_MS = 50,            /* heartbeats of this time share a confirmation */
    RECOVERY_TURN_MS = 50,          /* the walk over the partitions goes on so often */
    RECOVERY_WALK_MS = 200,         /* and begins again no sooner than after so long */
    RECOVERY_COST_A_TURN = 5000,    /* partitions looked at in a turn */
    RECOVERY_QUEUED_MAX = 64,       /* operations of one class that wait before no more are made */
    RECOVERY_OPEN_MAX = 2048,       /* of its own that have begun and not ended */
    RECOVERY_ATTEMPTS = 8192,       /* partitions for which it is remembered what was tried */
    RECOVERY_AGAIN_MS = 2000,       /* what failed is tried again after so long, then twice */
    RECOVERY_AGAIN_MAX_MS = 600000, /* that, up to so much */
};

struct request;
struct beat;
struct recovery;
struct balancer;

/* What guardrails.c keeps. */
struct guardrails {
    struct throttle throttle;
    uint64_t stepped_ms; /* monotonic */
    bool held;           /* some copy was told another rate since the last step */
    bool telling;        /* the rates of that step are being told; up to this operation they are: */
    uint64_t told;
};

struct control {
    struct control_parts parts;
    struct replica *replica;
    struct replica_machine machine;
    uv_timer_t sample_timer, reconcile_timer;

    bool active;
    uint64_t term;
    /* Log time: anchor_time_ms was the time at anchor_mono_ms; it runs on by the monotonic clock.
     */
    uint64_t anchor_time_ms, anchor_mono_ms;
    uint64_t seen_time_ms, seen_mono_ms; /* log time when it was last seen to move on, and when */
    uint64_t last_command_ms;            /* monotonic */
    const void *seen_servers; /* root of the member table that the replica was told; not followed */
    uint64_t check_index, check_ms;
    bool placing;                               /* a Place command is in flight */
    bool member_busy;                           /* a membership change is in flight */
    struct request *in_flight[CONTROL_BUCKETS]; /* by principal and idempotency key */
    uint64_t loop_lag_max_ms, sampled_ms;

    struct loads *loads; /* owns; any thread */
    struct guardrails guardrails;
    struct leases leases;    /* this leader's count; changed by the loop thread alone */
    uint64_t turned_boot_ms; /* when the loop was last seen turning */
    struct beat *beats_waiting, *beats_riding; /* for the next confirmation; on the one in flight */
    bool beats_in_flight;
    uint64_t beats_sent_ms;
    uv_timer_t beats_timer;
    _Atomic uint64_t beats_queued, beats;

    struct operation_timer *timers; /* of operations that time goes on for, by id; owns */
    uint64_t timer_count, timers_ms;
    struct admission admission;
    unsigned timer_proposals;

    struct recovery *recovery; /* owns */
    struct balancer *balancer; /* owns */
    struct windows windows;    /* as last looked at */

    _Atomic uint64_t queued; /* requests handed over and not answered */
    _Atomic uint64_t commands, refused, replayed, confirms;
    _Atomic uint64_t heard_ms;
    _Atomic bool stopping;
    pthread_mutex_t lock;
    struct control_status shared; /* under `lock` */
};

/* One command on its way, or several of one creation. */
struct request {
    struct control *control;
    Cadastre__Command *command; /* owns */
    uint8_t *packed;            /* owns: the command without its time */
    size_t packed_len;
    control_done done;
    void *arg;
    bool listed;    /* in in_flight */
    bool confirmed; /* a refusal was confirmed to be the leader's */
    struct request *next_in_bucket;
    struct request *joined; /* retries that wait for this one's outcome */
    unsigned joined_count;
    struct creation *creation; /* owns; NULL for a plain command */
};

/* --- control.c --- */
void control_sample(struct control *c);
void control_leader_url(const struct control *c, char out[DIR_ADDRESS_MAX + 1]);
uint64_t control_log_time(const struct control *c);
/* Proposes a command of the leader's own; its outcome is nobody's. False when it was not taken. */
bool control_propose_own(struct control *c,
                         Cadastre__Command *command,
                         replica_propose_cb cb,
                         void *arg);

/* --- submit.c --- */
/* NULL when CONTROL_QUEUE_MAX requests wait already. Any thread. */
struct request *
submit_new(struct control *c, const Cadastre__Command *command, control_done done, void *arg);
void submit_run(void *request);
void submit_finish(struct request *r, enum err_code status, struct dir_result *result);
enum err_code
submit_propose(struct request *r, const uint8_t *packed, size_t len, replica_propose_cb cb);

/* --- create.c --- */
void create_step(struct request *r);
void create_free(struct creation *creation);

/* --- members.c --- */
void members_reconcile(struct control *c);

/* --- heartbeat.c --- */
void heartbeat_init(struct control *c);
void heartbeat_attach(struct control *c);
/* This server leads from this moment on. */
void heartbeat_on_active(struct control *c);
/* A command was applied. */
void heartbeat_on_rows(struct control *c, const struct dir_effects *effects);
void heartbeat_on_sample(struct control *c);

/* --- operations.c --- */
void operations_on_active(struct control *c);
void operations_on_sample(struct control *c);

/* --- guardrails.c: copies go slower while nodes say that they are in trouble --- */
void guardrails_on_active(struct control *c);
void guardrails_on_sample(struct control *c);
/* Whether a guardrail keeps routine work from being begun, as of now; then which. */
bool guardrails_stop(struct control *c, struct throttle_reading *ret);

/* --- recovery.c: the copies that partitions lack --- */
void recovery_init(struct control *c);
void recovery_on_active(struct control *c);
void recovery_on_sample(struct control *c);
struct control_recovery recovery_last(const struct control *c);

/* --- balancer.c: what evens out the load --- */
void balancer_init(struct control *c);
void balancer_on_active(struct control *c);
/* A command was applied. */
void balancer_on_rows(struct control *c, const struct dir_effects *effects);
void balancer_on_sample(struct control *c);
/* Thousandths of requests a second that a node's partitions had in the last round; false: not
 * known. */
bool balancer_requests(const struct control *c, uint64_t node, uint64_t *ret_requests);

/* --- hold.c: what windows hold back now --- */
void hold_look(struct control *c, struct windows_hold *ret);
/* windows_keep(), by what holds now. */
uint64_t hold_keep(struct control *c, struct admission_candidate *waiting, uint64_t count);
/* ERR_FROZEN for the approval of an open proposal in a freeze, the caller's; else NULL. */
struct dir_result *hold_refusal(struct control *c, const Cadastre__Command *command);

/* --- duties.c: what a leader does unasked --- */
void duties_after_apply(struct control *c);
void duties_on_active(struct control *c);
void duties_on_sample(struct control *c);

#endif
