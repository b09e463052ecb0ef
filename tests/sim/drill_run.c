/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/drill_run.h"

#include "base/mem.h"
#include "directory/operation_authority.h"
#include "tests/sim/crash_internal.h"

#include <inttypes.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB        (UINT64_C(1) << 20)
#define SIZE       (512 * 1024 * MIB)
#define COPY_RATE  (64 * MIB)
#define LIVE_RATE  (30 * MIB)
#define ENTRY      (1024 * MIB) /* one write stands for so many bytes */
#define EVERY(b)   (ENTRY * SECOND / (b) / (5 * MS) * (5 * MS))
#define COPY_TAKES (SIZE / COPY_RATE)

struct point {
    const char *name;
    enum dir_stage stage;
    unsigned stage_index; /* of crash_stages */
    uint64_t after;       /* the stage began */
    /* As docs/movement.md has it. */
    bool destination, fenced;
    enum dir_recovery recovery;
    enum dir_way_back way_back;
};

static const struct point points[] = {
    {"in the copy", DIR_STAGE_COPY, 3, COPY_TAKES / 4 * SECOND, false, false, DIR_RECOVERY_RESUME,
     DIR_WAY_BACK_DISCARD},
    {"in catch-up", DIR_STAGE_CATCH_UP, 4, 0, false, false, DIR_RECOVERY_RESUME,
     DIR_WAY_BACK_DISCARD},
    {"immediately before the epoch is published", DIR_STAGE_CUTOVER, 8, 0, false, true,
     DIR_RECOVERY_STAY, DIR_WAY_BACK_NEW_EPOCH},
    {"immediately after the epoch is published", DIR_STAGE_WINDOW, 9, 0, true, false,
     DIR_RECOVERY_FORWARD, DIR_WAY_BACK_IMPOSSIBLE},
};

static const enum crash_event deaths[] = {
    CRASH_LEADER_KILLED,    CRASH_SOURCE_RESTARTS,      CRASH_SOURCE_DIES,
    CRASH_DESTINATION_DIES, CRASH_DESTINATION_RESTARTS, CRASH_DESTINATION_EMPTY,
};

/* The table's outcomes in the drill's words. */
static const char *word(enum crash_outcome outcome)
{
    switch ((int)outcome) {
    case CRASH_GOES_ON:
    case CRASH_NO_EFFECT:
        return "goes on";
    case CRASH_SAME_STAGE:
    case CRASH_TRIES_AGAIN:
        return "resumes with the copy that is there, in a new attempt";
    case CRASH_OWNER_AGAIN:
        return "stays: its new session has a new epoch";
    case CRASH_CATCH_UP:
    case CRASH_CATCH_UP_NEW_EPOCH:
        return "stays with the source at a new epoch, and catches up again";
    case CRASH_SNAPSHOT:
    case CRASH_COPY:
        return "discards the candidate, and copies again";
    case CRASH_FORWARD:
        return "goes forward to the destination";
    case CRASH_NOBODY:
        return "waits for whom nobody can follow, and asks for a person";
    default:
        return "is not expected";
    }
}

static void print_authority(FILE *out, const struct sim *s)
{
    struct operation_authority a;
    const struct dir_operation *o = leader_operation(s);
    operation_authority_of(world_state(&s->world), o, &a);
    (void)fprintf(out, "  authority: %s%s, epoch %" PRIu64 ", attempt %" PRIu32 " in %s\n",
                  a.node != NULL ? a.node->name : "nobody", a.fenced ? " (fenced)" : "", a.epoch,
                  o->attempt, dir_stage_name((enum dir_stage)o->stage));
    (void)fprintf(out, "  recovery: %s; way back: %s\n  %s\n", dir_recovery_name(a.recovery),
                  dir_way_back_name(a.way_back), a.why);
}

/* Of the keys on both sides of the part, at 0 and at 2: with the source as long as they are of one
 * partition with it, and afterwards. Returns how many are elsewhere. */
static unsigned print_rest(FILE *out, const struct crash *c, bool with_part)
{
    static const unsigned slots[] = {0, 2};
    const struct dir_partition *part = sim_partition(c->s);
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        const struct dir_partition *p = sim_at(c->s, slots[i]);
        const struct dir_node *owner = view_primary(world_state(&c->s->world), p);
        unsigned has = owner != NULL ? sim_node_of(c->s, owner->id) : NODES;
        unsigned should = c->dead == c->source ? NODES : c->source;
        wrong += has != should || (p->id == part->id) != with_part;
        (void)fprintf(out, "%s %s, epoch %" PRIu64, i == 0 ? "  the rest: below it" : ", above it",
                      owner != NULL ? owner->name : "nobody", p->epoch);
    }
    (void)fprintf(out, "\n");
    return wrong;
}

static unsigned check_authority(const struct crash *c, const struct point *p)
{
    struct operation_authority a;
    operation_authority_of(world_state(&c->s->world), leader_operation(c->s), &a);
    unsigned owner = a.node != NULL ? sim_node_of(c->s, a.node->id) : NODES;
    bool right = owner == (p->destination ? c->destination : c->source) && a.fenced == p->fenced &&
                 a.recovery == p->recovery && a.way_back == p->way_back;
    return right ? 0 : 1;
}

/* In a process of its own, which begins where the drill is. */
static int die(struct crash *c, const struct point *p, enum crash_event event, FILE *out)
{
    char flaw[200] = "";
    struct crash_case of = {.event = event, .stage_index = p->stage_index};
    of.expect = crash_expect(event, p->stage_index);
    c->of = &of;
    c->flaw = flaw;
    c->size = sizeof flaw;
    c->s->held = true;
    struct crash_state was = crash_look(c->s);
    crash_inject(c);
    crash_compare(c, &was);
    const struct dir_partition *part = sim_partition(c->s);
    const struct dir_node *owner = view_primary(world_state(&c->s->world), part);
    (void)fprintf(out, "  %-38s %s, epoch %" PRIu64 ": %s\n", crash_event_name(event),
                  owner != NULL ? owner->name : "nobody", part->epoch, word(of.expect.outcome));
    bool forward = p->destination || of.expect.outcome == CRASH_FORWARD;
    if (print_rest(out, c, !forward) > 0) {
        crash_wrong(c, "the rest is not where it should be");
    }
    crash_finish(c);
    sim_judge(c->s);
    if (c->s->run.violation != NULL) {
        crash_wrong(c, "%s", c->s->run.violation);
    }
    const struct dir_operation *o = leader_operation(c->s);
    owner = view_primary(world_state(&c->s->world), sim_partition(c->s));
    (void)fprintf(out, "  %-38s then %s in %s%s%s, %s has the authority%s%s\n", "",
                  o->state == DIR_OPERATION_RUNNING ? "waiting" : "it has ended",
                  dir_stage_name((enum dir_stage)o->stage),
                  o->attention_code[0] != '\0' ? ", because " : "", o->attention_code,
                  owner != NULL ? owner->name : "nobody", flaw[0] != '\0' ? "; WRONG: " : "", flaw);
    (void)fflush(out);
    return flaw[0] != '\0';
}

static unsigned each_dies(struct crash *c, const struct point *p, FILE *out)
{
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++) {
        if (crash_outcome(deaths[i], p->stage_index) == CRASH_NOT_THERE) {
            continue;
        }
        (void)fflush(out);
        pid_t pid = fork();
        if (pid == 0) {
            _exit(die(c, p, deaths[i], out));
        }
        int status = 0;
        wrong += pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
                 WEXITSTATUS(status) != 0;
        (void)fseek(out, 0, SEEK_END); /* behind what the other process has written */
    }
    return wrong;
}

static bool reach(struct sim *s, const struct point *p)
{
    uint64_t limit = s->now + 3 * COPY_TAKES * SECOND;
    while (leader_operation(s)->stage != p->stage && s->now < limit && s->run.violation == NULL) {
        sim_turn(s);
    }
    uint64_t upto = s->now + p->after;
    while (s->now < upto) {
        sim_turn(s);
    }
    return leader_operation(s)->stage == p->stage && s->run.violation == NULL;
}

static unsigned each_point(struct crash *c, FILE *out)
{
    struct sim *s = c->s;
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        const struct point *p = &points[i];
        if (!reach(s, p)) {
            (void)fprintf(out, "WRONG: %s was not reached: %s\n", p->name, s->run.violation);
            return wrong + 1;
        }
        (void)fprintf(out, "\n%s, %" PRIu64 " s after the start, %" PRIu64 " GiB copied\n", p->name,
                      (s->now - c->since) / SECOND, leader_operation(s)->bytes_done / (1024 * MIB));
        print_authority(out, s);
        unsigned bad = check_authority(c, p) + print_rest(out, c, !p->destination);
        (void)fprintf(out, "%s", bad > 0 ? "  WRONG: that is not as docs/movement.md says\n" : "");
        wrong += bad + each_dies(c, p, out);
    }
    return wrong;
}

unsigned drill_run(FILE *out)
{
    struct sim *s = mem_alloc(sizeof *s);
    struct leader_start m = {.kind = DIR_OPERATION_MOVE, .to = 1, .keys = {1, 2}};
    struct crash c = {.s = s, .dead = NODES, .patience = 8 * COPY_TAKES * SECOND};
    sim_begin(s, 1, MOVEMENT_MOVES, MOVEMENT_AS_WRITTEN);
    s->noise = NOISE_NONE;
    s->entry_bytes = ENTRY;
    s->entry_wait = EVERY(COPY_RATE);
    s->write_every = EVERY(LIVE_RATE);
    leader_settings(s, &(struct limits){600, 60, 30, 600}); /* the defaults */
    sim_fill(s, SIZE / ENTRY);
    c.source = sim_node_of(s, sim_partition(s)->replicas[0].node);
    c.destination = 1;
    while (s->now < SECOND) {
        sim_turn(s);
    }
    c.since = s->now;
    (void)fprintf(
        out,
        "a part, [g, n), of a partition of 512 GiB moves from %s to %s at 64 MiB/s, under 30 "
        "MiB/s of writes: its log is copied as a whole\n",
        sim_names[c.source], sim_names[c.destination]);
    (void)leader_start(s, &m);
    unsigned wrong = each_point(&c, out);
    (void)fprintf(out, "\n%s\n",
                  wrong == 0 ? "all as docs/movement.md says" : "NOT as it should be");
    sim_close(s);
    mem_free(s);
    return wrong;
}
