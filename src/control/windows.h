/* SPDX-License-Identifier: Apache-2.0 */
/* What the balancer's windows mean now: which are open, and whether they hold routine work back.
 * The row says them in local times; what those are comes from this server's files of time zones.
 *
 * A window that repeats in a zone that can't be read here holds: a freeze counts as in force, a
 * maintenance window as closed. One from an instant to another needs no zone for that. */
#ifndef CONTROL_WINDOWS_H
#define CONTROL_WINDOWS_H

#include "control/admission.h"
#include "directory/balancer.h"

enum {
    WINDOWS_READ_AGAIN_MS = 3600000, /* zones are looked at anew: their files may be replaced */
    WINDOWS_RETRY_MS = 10000         /* while one of them can't be read */
};

/* Copies of a row's windows, with their zones. {0} has none. One thread at a time. */
struct windows {
    uint32_t count;
    struct dir_window of[DIR_WINDOWS_MAX];
    struct zone *zone[DIR_WINDOWS_MAX]; /* owns; NULL: it can't be read */
    uint64_t read_ms;                   /* monotonic */
    bool lacks_one;
};
/* Reads the zones' files when the row's windows are others, or were read long ago. */
void windows_read(struct windows *w, const struct dir_balancer *row, uint64_t mono_ms);
void windows_close(struct windows *w);

struct windows_state {
    bool open;
    uint64_t changes_ms; /* wall clock; 0: not within two weeks, or not known */
    bool unknown;        /* its zone can't be read, and it depends on that */
};
struct windows_state windows_state(const struct windows *w, uint32_t i, uint64_t wall_ms);

#define WINDOWS_FREEZE  "freeze"
#define WINDOWS_OUTSIDE "outside_window"
/* Why routine work does not begin: `code` is one of the above, NULL when it may. */
struct windows_hold {
    const char *code;
    char detail[DIR_BALANCER_NOTE_TEXT_MAX + 1]; /* which window, until when */
};
void windows_look(const struct windows *w, uint64_t wall_ms, struct windows_hold *ret);

/* Of the balancer: neither recovery, a drain nor placement, nor what a person asked for. */
bool windows_is_routine(uint32_t class_of);

/* Whether the proposal was begun by the balancer itself, without a person. */
bool windows_is_own(const struct dir_proposal *p);
/* Whether it holds this operation, which is queued: a freeze what is routine, no open window what
 * is the balancer's own. O(proposals) in the latter case. */
bool windows_holds(const struct windows_hold *h,
                   const struct dir_view *v,
                   const struct dir_operation *o);
/* As it says of each, with one walk over the proposals: takes out what is held, keeps the order of
 * the rest, returns how many they are. */
uint64_t windows_keep(const struct windows_hold *h,
                      const struct dir_view *v,
                      struct admission_candidate *waiting,
                      uint64_t count);

#endif
