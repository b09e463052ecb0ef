/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: one table of nouns, verbs and flags drives parsing, help and completion.
 *
 * Options may stand anywhere, also before the noun. A flag's name means the same kind of value in
 * every command, so that it can be read before the command is known (a test holds the table to it).
 */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct cli;

enum args_kind { ARGS_SWITCH, ARGS_TEXT, ARGS_NUMBER, ARGS_DURATION, ARGS_CHOICE };

struct cli_flag {
    const char *name; /* without dashes; NULL ends a table */
    const char
        *value; /* what help calls the value, or the choices: "table|json"; NULL for a switch */
    const char *help;
    enum args_kind kind;
    char letter; /* 0: none */
    bool required;
    bool repeats;
};

struct cli_command {
    const char *verb;     /* "" for a command of one word; NULL ends a table */
    const char *operands; /* "KEYSPACE [KEY...]" */
    const char *summary;
    const char *examples; /* lines, each with its newline */
    const struct cli_flag *flags;
    int (*run)(struct cli *c); /* returns the exit status */
};

struct cli_noun {
    const char *name; /* NULL ends a table */
    const char *summary;
    const struct cli_command *commands;
};

struct cli_grammar {
    const struct cli_noun *nouns;
    const struct cli_flag *globals;
};

struct args_value {
    const struct cli_flag *flag;
    const char *text; /* borrows argv; "" for a switch */
};

/* Borrows argv and the grammar. */
struct args {
    const struct cli_noun *noun;       /* NULL: none was given */
    const struct cli_command *command; /* NULL: none, or help about the noun was asked for */
    const char **operands;             /* owns the array */
    struct args_value *values;         /* owns */
    unsigned operand_count, value_count;
    bool help;
};

/* ERR_INVALID_REQUEST with a line for a person; then `ret_args` says as much as was understood, for
 * args_try(). The caller closes it in either case. */
enum err_code args_parse(const struct cli_grammar *g,
                         int argc,
                         char *const *argv,
                         struct args *ret_args,
                         struct err *e) MUST_CHECK;
void args_close(struct args *a);

/* Appends "cadastre keyspace create", as far as it is known. */
void args_put_command(const struct args *a, struct buf *out);

bool args_has(const struct args *a, const char *name);
/* The last one given, or NULL. */
const char *args_get(const struct args *a, const char *name);
/* The next one of a repeated flag; `*at` is 0 first. NULL at the end. */
const char *args_next(const struct args *a, const char *name, unsigned *at);
/* Numbers and durations (in ms); they were checked when parsed. */
uint64_t args_number(const struct args *a, const char *name, uint64_t fallback);

/* How many operands a command takes, from its text. */
void args_operand_bounds(const char *operands, unsigned *ret_min, unsigned *ret_max);

#endif
