/* SPDX-License-Identifier: Apache-2.0 */
/* Drives counter servers (counter_server.c) as child processes over pipes. Every wait has a
 * deadline; only processes that were started here are signalled, by pid. */
#ifndef TESTS_SERVERS_H
#define TESTS_SERVERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SERVERS_MAX = 8, SERVERS_WAIT_MS = 15000, SERVERS_TEXT = 2048 };

struct server {
    struct servers *all;
    uint64_t id;
    uint16_t port;
    char dir[512];
    char extra[5][1024]; /* arguments beside dir, id and addr; empty: none */
    pid_t pid;           /* 0: not running */
    int in, out;         /* its stdin and stdout */
    char buf[16384];
    size_t len;
};

struct servers {
    char dir[256];  /* a fresh one for each set */
    unsigned asked; /* tags */
    unsigned count;
    struct server at[SERVERS_MAX + 1]; /* by id, from 1 */
};

/* A fresh directory, and `count` servers that will found a cluster together (1 alone). None is
 * started. */
void servers_open(struct servers *s, unsigned count, const char *extra);
/* One more, that joins `by`'s cluster under a fresh id and is to be added. Returns it, not started.
 */
struct server *servers_joiner(struct servers *s, uint64_t id, struct server *by);
/* Kills what runs and removes the directory (unless a check failed: it is named then). */
void servers_close(struct servers *s);

/* Waits until it is up. */
bool server_start(struct server *v);
/* Starts without waiting. */
void server_spawn(struct server *v);
void servers_start_all(struct servers *s);
void server_signal(struct server *v, int signal);
/* SIGKILL and reaped. */
void server_kill(struct server *v);
/* Its exit code, or -1 if it still runs at the deadline. */
int server_exit(struct server *v, unsigned wait_ms);
/* Removes its data directory. */
void server_wipe(struct server *v);

/* Sends a line, waits for its answer (without the tag) up to wait_ms. False when none came. */
bool server_ask_within(struct server *v,
                       unsigned wait_ms,
                       char answer[SERVERS_TEXT],
                       const char *fmt,
                       ...) __attribute__((format(printf, 4, 5)));
bool server_ask(struct server *v, char answer[SERVERS_TEXT], const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Sends without waiting; the answer is had with server_answer(). Returns the tag. */
unsigned server_send(struct server *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool server_answer(struct server *v, unsigned tag, unsigned wait_ms, char answer[SERVERS_TEXT]);
/* Waits for the line "* event …"; the rest of it goes to `answer`. */
bool server_event(struct server *v, const char *event, unsigned wait_ms, char answer[SERVERS_TEXT]);
/* Does the answer begin with this status? */
bool answer_is(const char *answer, const char *status);
/* The value of " name=" in an answer, 0 when it is not there. */
uint64_t answer_u64(const char *answer, const char *name);
/* Copies the word; empty when it is not there. */
void answer_word(const char *answer, const char *name, char *out, size_t size);

/* Waits until one of the running servers (but `except`, which may be NULL) leads and is active.
 * NULL: none. */
struct server *servers_leader(struct servers *s, const struct server *except);
/* A running one that is not `v` nor `other`. */
struct server *servers_other(struct servers *s, const struct server *v, const struct server *other);
/* Waits until all running servers have applied the same index with the same hash. False at the
 * deadline. */
bool servers_agree(struct servers *s);
/* Increments through the leader, whichever it is, until `n` are acknowledged. Unknown outcomes are
 * counted beside. */
bool servers_count(struct servers *s, uint64_t n, uint64_t *acked, uint64_t *unknown);

/* Everything acknowledged is there, and nothing that was surely refused; all running servers agree.
 * Checks. */
void servers_check_count(struct servers *s, uint64_t acked, uint64_t unknown);
/* Sends a line to the leader, whichever it is. Is its answer's status `want`? */
bool servers_do(struct servers *s, const char *want, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Has this server logged the words? And the same, waiting for it. */
bool server_logged(const struct server *v, const char *words);
bool server_wait_logged(const struct server *v, const char *words);

/* Polls `ok` every few milliseconds until it is true or the deadline passed. */
bool wait_for(bool (*ok)(void *arg), void *arg, unsigned wait_ms);

#endif
