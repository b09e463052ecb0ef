/* SPDX-License-Identifier: Apache-2.0 */
/* Completion scripts with the words written into them: nothing runs while completing, so an old
 * shell with a new binary completes what it knew. */
#include "cli/help.h"

#include <string.h>

enum { COMPLETION_CONDITION_MAX = 256 };

static void put_flag_words(struct buf *out, const struct cli_flag *flags)
{
    for (; flags != NULL && flags->name != NULL; flags++) {
        buf_printf(out, " --%s", flags->name);
    }
}

static void put_nouns(struct buf *out, const struct cli_grammar *g)
{
    for (const struct cli_noun *n = g->nouns; n->name != NULL; n++) {
        buf_printf(out, "%s%s", n == g->nouns ? "" : " ", n->name);
    }
}

static bool has_verbs(const struct cli_noun *n)
{
    return n->commands[0].verb[0] != '\0';
}

/* `case` arms "noun|noun verb) words=…;;" for bash and zsh. */
static void put_cases(struct buf *out, const struct cli_grammar *g)
{
    for (const struct cli_noun *n = g->nouns; n->name != NULL; n++) {
        if (has_verbs(n)) {
            buf_printf(out, "    '%s') words='", n->name);
            for (const struct cli_command *c = n->commands; c->verb != NULL; c++) {
                buf_printf(out, "%s ", c->verb);
            }
            buf_put_str(out, "' ;;\n");
        }
        for (const struct cli_command *c = n->commands; c->verb != NULL; c++) {
            buf_printf(out, "    '%s%s%s') flags=\"$flags", n->name, c->verb[0] != '\0' ? " " : "",
                       c->verb);
            put_flag_words(out, c->flags);
            buf_put_str(out, "\" ;;\n");
        }
    }
}

/* The part that bash and zsh share: the noun and verb among the words before, and what may follow.
 */
static void put_choose(struct buf *out, const struct cli_grammar *g)
{
    buf_put_str(out, "  flags='");
    put_flag_words(out, g->globals);
    buf_put_str(out, "'\n"
                     "  case \"$previous\" in\n"
                     "    -o|--output) words='table json jsonl name'; flags='' ;;\n"
                     "    --consistency) words='local linearizable'; flags='' ;;\n"
                     "    *) case \"$command\" in\n"
                     "    '') words='");
    put_nouns(out, g);
    buf_put_str(out, "' ;;\n");
    put_cases(out, g);
    buf_put_str(out, "    esac ;;\n  esac\n");
}

/* "-e|--endpoints|…": those whose next word is a value, not a noun. */
static void put_value_flags(struct buf *out, const struct cli_flag *flags)
{
    const char *before = "";
    for (; flags->name != NULL; flags++) {
        if (flags->kind == ARGS_SWITCH) {
            continue;
        }
        buf_printf(out, "%s--%s", before, flags->name);
        if (flags->letter != '\0') {
            buf_printf(out, "|-%c", flags->letter);
        }
        before = "|";
    }
}

/* Without the verb in it, only a noun that has verbs is a prefix of anything, so two words are
 * enough. */
static void put_bash(struct buf *out, const struct cli_grammar *g)
{
    buf_put_str(
        out,
        "_cadastre() {\n"
        "  local words='' flags='' command='' noun='' i\n"
        "  local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
        "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "    case \"${COMP_WORDS[i]}\" in\n"
        "      ");
    put_value_flags(out, g->globals);
    buf_put_str(out,
                ") ((i++)) ;;\n"
                "      -*) ;;\n"
                "      *) if [ -z \"$noun\" ]; then noun=\"${COMP_WORDS[i]}\"; command=\"$noun\"\n"
                "         elif [ \"$command\" = \"$noun\" ]; then case \"$noun\" in\n"
                "           ");
    bool first = true;
    for (const struct cli_noun *n = g->nouns; n->name != NULL; n++) {
        if (has_verbs(n)) {
            buf_printf(out, "%s%s", first ? "" : "|", n->name);
            first = false;
        }
    }
    buf_put_str(out, ") command=\"$noun ${COMP_WORDS[i]}\" ;; esac; fi ;;\n    esac\n  done\n");
    put_choose(out, g);
    buf_put_str(out, "  case \"$current\" in -*) words=\"$flags\" ;; esac\n"
                     "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
                     "}\n"
                     "complete -o default -F _cadastre cadastre\n");
}

static void put_fish_flag(struct buf *out, const char *condition, const struct cli_flag *f)
{
    buf_put_str(out, "complete -c cadastre");
    if (condition[0] != '\0') {
        buf_printf(out, " -n '%s'", condition);
    }
    buf_printf(out, " -l %s", f->name);
    if (f->letter != '\0') {
        buf_printf(out, " -s %c", f->letter);
    }
    if (f->kind == ARGS_CHOICE) {
        buf_put_str(out, " -x -a '");
        for (const char *p = f->value; *p != '\0'; p++) {
            buf_put_u8(out, *p == '|' ? ' ' : (uint8_t)*p);
        }
        buf_put_str(out, "'");
    } else if (f->kind != ARGS_SWITCH) {
        buf_put_str(out, " -r");
    }
    buf_printf(out, " -d \"%s\"\n", f->help);
}

static void put_fish_noun(struct buf *out, const struct cli_noun *n)
{
    buf_printf(out, "complete -c cadastre -n __fish_use_subcommand -f -a %s -d \"%s\"\n", n->name,
               n->summary);
    for (const struct cli_command *c = n->commands; c->verb != NULL; c++) {
        struct buf b;
        buf_init(&b, COMPLETION_CONDITION_MAX);
        buf_printf(&b, "__fish_seen_subcommand_from %s", n->name);
        if (c->verb[0] != '\0') {
            buf_printf(out, "complete -c cadastre -n '%.*s' -f -a %s -d \"%s\"\n", (int)b.len,
                       (const char *)b.data, c->verb, c->summary);
            buf_printf(&b, "; and __fish_seen_subcommand_from %s", c->verb);
        }
        buf_put_u8(&b, '\0');
        for (const struct cli_flag *f = c->flags; f != NULL && f->name != NULL; f++) {
            put_fish_flag(out, (const char *)b.data, f);
        }
        buf_close(&b);
    }
}

static void put_fish(struct buf *out, const struct cli_grammar *g)
{
    for (const struct cli_flag *f = g->globals; f->name != NULL; f++) {
        put_fish_flag(out, "", f);
    }
    for (const struct cli_noun *n = g->nouns; n->name != NULL; n++) {
        put_fish_noun(out, n);
    }
}

bool completion_put(const struct cli_grammar *g, const char *shell, struct buf *out)
{
    if (strcmp(shell, "bash") == 0) {
        put_bash(out, g);
    } else if (strcmp(shell, "zsh") == 0) {
        buf_put_str(out, "#compdef cadastre\nautoload -U +X bashcompinit && bashcompinit\n");
        put_bash(out, g);
    } else if (strcmp(shell, "fish") == 0) {
        put_fish(out, g);
    } else {
        return false;
    }
    return true;
}
