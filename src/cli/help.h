/* SPDX-License-Identifier: Apache-2.0 */
/* What --help and `completion` print, made from the table of commands. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "cli/args.h"

/* About the command, else the noun, else the whole program. */
void help_put(const struct cli_grammar *g, const struct args *about, struct buf *out);

/* Completion scripts. False when the shell is none of bash, zsh and fish. */
bool completion_put(const struct cli_grammar *g, const char *shell, struct buf *out);

#endif
