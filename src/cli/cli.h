/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the command, as the handlers of its nouns (cmd_*.c) see it. Handlers return the exit
 * status. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "cli/args.h"
#include "cli/http.h"
#include "cli/out.h"

#include <jansson.h>

enum cli_exit {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_UNAVAILABLE = 5,
    EXIT_TIMED_OUT = 6,
    CLI_EXCUSED = -1 /* never the process's: see cli.excused */
};

enum { CLI_TARGET_MAX = 16 << 10, CLI_PAGES_MAX = 100000, CLI_PAGE_MAX = 10000 };

struct cli {
    const struct cli_grammar *grammar;
    const struct args *args;
    struct http *http;
    struct out out;
    uint64_t timeout_ms;
    bool quiet, yes;
    /* A refusal of this code is no message but CLI_EXCUSED: the caller tries again. ERR_OK: none.
     */
    enum err_code excused;
};

extern const struct cli_grammar cli_grammar; /* commands.c: the table of everything */

/* --- targets --- */

struct target {
    struct buf b;
    bool has_query;
};
/* `path` is literal. */
void target_init(struct target *t, const char *path);
/* Appends "/" and the text, escaped. */
void target_segment(struct target *t, const char *text);
void target_segment_u64(struct target *t, uint64_t value);
void target_query(struct target *t, const char *name, const char *value);
void target_query_u64(struct target *t, const char *name, uint64_t value);
/* The flag of the same name (with "-" for "_"), if it was given. */
void target_flag(struct target *t, const struct cli *c, const char *name);
/* --consistency, --min-revision and --max-staleness, for the calls that take them. */
void target_read_flags(struct target *t, const struct cli *c);
void target_close(struct target *t);

/* --- calls: EXIT_DONE, or a message was written and this is the exit status --- */

/* `*ret_body` is owned by the caller; NULL unless EXIT_DONE. These close `t`. */
int cli_read(struct cli *c, struct target *t, json_t **ret_body);
/* A read that needs a body (routes, validate, check). Takes over `body`. */
int cli_ask(struct cli *c, struct target *t, json_t *body, json_t **ret_body);
/* With an Idempotency-Key. Takes over `body` (NULL: none). */
int cli_write(struct cli *c, const char *method, struct target *t, json_t *body, json_t **ret_body);
/* Writes the pages of a list as they come, at most --limit entries. */
int cli_list(struct cli *c, struct target *t, const char *member, const struct out_view *view);
/* cli_read, then the one object. */
int cli_show(struct cli *c, struct target *t, const struct out_view *view);

/* What went wrong, on stderr; the exit status. */
int cli_fail(int exit_code, const char *fmt, ...) PRINTF_LIKE(2, 3);
int cli_fail_result(enum http_result result, const struct err *e);
/* A response that is no success. */
int cli_fail_response(const struct http_response *r);
/* "cadastre: …" on stderr unless --quiet. */
void cli_note(const struct cli *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Whether to go on with something that can't be undone: --yes, or an answer at the terminal; else
 * EXIT_USAGE. */
int cli_confirm(const struct cli *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* --- bodies --- */

/* A number operand: false after a message. */
bool cli_operand_u64(const struct cli *c, unsigned i, const char *what, uint64_t *ret_value);
/* Members from flags of the same name (with "-" for "_"), if they were given. */
void body_text(json_t *body, const struct cli *c, const char *member);
void body_number(json_t *body, const struct cli *c, const char *member);
/* expect_epoch and expect_revision. */
void body_expect(json_t *body, const struct cli *c);
/* "mode=auto", "thresholds.high_ppm=120000"; "default" is null. False after a message. */
bool body_setting(json_t *body, const char *setting);

/* Flags that several nouns' commands have. */
#define CLI_FLAG_LIMIT                                                                             \
    {                                                                                              \
        "limit", "N", "Show at most N entries", ARGS_NUMBER, 0, false, false                       \
    }
#define CLI_FLAG_EXPECT_EPOCH                                                                      \
    {                                                                                              \
        "expect-epoch", "E", "Refuse unless this is the partition's epoch", ARGS_NUMBER, 0, false, \
            false                                                                                  \
    }
#define CLI_FLAG_EXPECT_REVISION                                                                   \
    {                                                                                              \
        "expect-revision", "R", "Refuse unless this is the directory's revision", ARGS_NUMBER, 0,  \
            false, false                                                                           \
    }
#define CLI_FLAG_START                                                                             \
    {                                                                                              \
        "start", "KEY", "The first key of the range", ARGS_TEXT, 0, false, false                   \
    }
#define CLI_FLAG_END                                                                               \
    {                                                                                              \
        "end", "KEY", "The first key past the range", ARGS_TEXT, 0, false, false                   \
    }
#define CLI_FLAG_PARTITION                                                                         \
    {                                                                                              \
        "partition", "P", "Only what touches this partition", ARGS_NUMBER, 0, false, false         \
    }
#define CLI_FLAG_SINCE                                                                             \
    {                                                                                              \
        "since", "R", "Changes after this revision", ARGS_NUMBER, 0, false, false                  \
    }
#define CLI_FLAGS_END                                                                              \
    {                                                                                              \
        NULL, NULL, NULL, ARGS_SWITCH, 0, false, false                                             \
    }

#endif
