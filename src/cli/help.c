/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/help.h"

#include <string.h>

enum { HELP_INDENT = 30 };

static void put_flag(struct buf *out, const struct cli_flag *f)
{
    size_t start = out->len;
    buf_put_str(out, "  ");
    if (f->letter != '\0') {
        buf_printf(out, "-%c, ", f->letter);
    }
    buf_printf(out, "--%s", f->name);
    if (f->value != NULL) {
        buf_printf(out, " %s", f->value);
    }
    size_t width = out->len - start;
    if (width + 2 > HELP_INDENT) {
        buf_put_str(out, "\n");
        width = 0;
    }
    buf_printf(out, "%*s%s%s%s\n", (int)(HELP_INDENT - width), "", f->help,
               f->required ? " (required)" : "", f->repeats ? " (may be repeated)" : "");
}

static void put_flags(struct buf *out, const char *title, const struct cli_flag *flags)
{
    if (flags == NULL || flags->name == NULL) {
        return;
    }
    buf_printf(out, "\n%s:\n", title);
    for (; flags->name != NULL; flags++) {
        put_flag(out, flags);
    }
}

static void put_usage(struct buf *out, const char *noun, const struct cli_command *c)
{
    buf_printf(out, "cadastre %s", noun);
    if (c->verb[0] != '\0') {
        buf_printf(out, " %s", c->verb);
    }
    if (c->operands[0] != '\0') {
        buf_printf(out, " %s", c->operands);
    }
}

static void put_command(struct buf *out, const struct cli_noun *noun, const struct cli_command *c)
{
    buf_put_str(out, "Usage: ");
    put_usage(out, noun->name, c);
    for (const struct cli_flag *f = c->flags; f != NULL && f->name != NULL; f++) {
        if (f->required) {
            buf_printf(out, " --%s %s", f->name, f->value);
        }
    }
    buf_printf(out, " [flags]\n\n%s.\n", c->summary);
    put_flags(out, "Flags", c->flags);
}

static void put_examples(struct buf *out, const struct cli_command *c)
{
    for (const char *p = c->examples; *p != '\0';) {
        size_t len = strcspn(p, "\n");
        buf_printf(out, "  %.*s\n", (int)len, p);
        p += len + (p[len] == '\n');
    }
}

static void put_noun(struct buf *out, const struct cli_noun *noun)
{
    buf_printf(out, "Usage: cadastre %s VERB [flags]\n\n%s.\n\nVerbs:\n", noun->name,
               noun->summary);
    for (const struct cli_command *c = noun->commands; c->verb != NULL; c++) {
        buf_printf(out, "  %-*s%s\n", HELP_INDENT - 2, c->verb, c->summary);
    }
    buf_put_str(out, "\nExamples:\n");
    for (const struct cli_command *c = noun->commands; c->verb != NULL; c++) {
        put_examples(out, c);
    }
    buf_printf(out, "\nMore: cadastre %s VERB --help\n", noun->name);
}

static void put_program(struct buf *out, const struct cli_grammar *g)
{
    buf_put_str(out, "Usage: cadastre [flags] NOUN [VERB] [arguments]\n\n"
                     "Looks at and changes a Cadastre directory.\n\nCommands:\n");
    for (const struct cli_noun *n = g->nouns; n->name != NULL; n++) {
        buf_printf(out, "  %-*s%s\n", HELP_INDENT - 2, n->name, n->summary);
    }
    put_flags(out, "Flags", g->globals);
    buf_put_str(
        out,
        "\nExamples:\n"
        "  cadastre status\n"
        "  cadastre keyspace create orders --split g --split p\n"
        "  cadastre route get orders melon -o json\n"
        "  cadastre -e http://10.0.0.1:7400,http://10.0.0.2:7400 watch orders\n\n"
        "Exit status: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict, 5 unavailable,\n"
        "6 timeout, 7 not allowed.\n\nMore: cadastre NOUN [VERB] --help\n");
}

void help_put(const struct cli_grammar *g, const struct args *about, struct buf *out)
{
    if (about->command != NULL) {
        put_command(out, about->noun, about->command);
        put_flags(out, "Global flags", g->globals);
        buf_put_str(out, "\nExamples:\n");
        put_examples(out, about->command);
    } else if (about->noun != NULL) {
        put_noun(out, about->noun);
    } else {
        put_program(out, g);
    }
}
