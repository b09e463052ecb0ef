/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/help.h"
#include "tests/harness/tap.h"

#include <limits.h>
#include <string.h>

enum { WORDS_MAX = 32, TEXT_MAX = 1 << 20 };

/* Splits at blanks, in place. */
static int split_words(char *line, char **words)
{
    int n = 0;
    words[n++] = line;
    for (char *p = line; *p != '\0' && n < WORDS_MAX; p++) {
        if (*p == ' ') {
            *p = '\0';
            words[n++] = p + 1;
        }
    }
    return n;
}

static enum err_code parse(const char *line, char *copy, struct args *a, struct err *e)
{
    static char *words[WORDS_MAX];
    (void)snprintf(copy, 256, "cadastre %s", line);
    int n = line[0] == '\0' ? 1 : split_words(copy, words);
    words[0] = copy;
    return args_parse(&cli_grammar, n, words, a, e);
}

static void reads_options_anywhere(void)
{
    static const char *const lines[] = {
        "-o json keyspace get orders",       "keyspace -o json get orders",
        "keyspace get --output json orders", "keyspace get orders --output=json",
        "keyspace get orders -ojson",        "keyspace get orders -o table -o json",
        "-o json keyspace get -- orders"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct args a;
        struct err e;
        char copy[256];
        tap_note("%s", lines[i]);
        CHECK(parse(lines[i], copy, &a, &e) == ERR_OK);
        CHECK(a.noun != NULL && strcmp(a.noun->name, "keyspace") == 0);
        CHECK(a.command != NULL && strcmp(a.command->verb, "get") == 0);
        CHECK_U64(a.operand_count, 1);
        CHECK_STR(a.operands[0], "orders");
        CHECK_STR(args_get(&a, "output"), "json");
        args_close(&a);
    }
}

static void reads_a_commands_flag_before_the_command(void)
{
    struct args a;
    struct err e;
    char copy[256];
    CHECK(parse("--at m partition split orders 17 --at=p -qy", copy, &a, &e) == ERR_OK);
    unsigned at = 0;
    CHECK_STR(args_next(&a, "at", &at), "m");
    CHECK_STR(args_next(&a, "at", &at), "p");
    CHECK(args_next(&a, "at", &at) == NULL);
    CHECK(args_has(&a, "quiet") && args_has(&a, "yes") && !args_has(&a, "no-headers"));
    CHECK_U64(a.operand_count, 2);
    args_close(&a);
}

static void reads_numbers_and_durations(void)
{
    struct args a;
    struct err e;
    char copy[256];
    CHECK(parse("watch orders --since 41 --timeout 2s", copy, &a, &e) == ERR_OK);
    CHECK_U64(args_number(&a, "since", 7), 41);
    CHECK_U64(args_number(&a, "timeout", 7), 2000);
    CHECK_U64(args_number(&a, "count", 7), 7);
    args_close(&a);
}

static void refuses_with_one_line(void)
{
    static const struct {
        const char *line, *detail, *command;
    } table[] = {
        {"", "a command is missing", "cadastre"},
        {"frob", "unknown command 'frob'", "cadastre"},
        {"keyspace", "'keyspace' needs a verb", "cadastre keyspace"},
        {"keyspace frob", "unknown command 'keyspace frob'", "cadastre keyspace"},
        {"keyspace get", "KEYSPACE is missing", "cadastre keyspace get"},
        {"keyspace get a b", "unexpected argument 'b'", "cadastre keyspace get"},
        {"route batch orders", "KEY is missing", "cadastre route batch"},
        {"keyspace list --frob", "unknown flag --frob", "cadastre keyspace list"},
        {"keyspace list -x", "unknown flag -x", "cadastre keyspace list"},
        {"keyspace list --at m", "unknown flag --at", "cadastre keyspace list"},
        {"keyspace list --lim 3", "unknown flag --lim", "cadastre keyspace list"},
        {"keyspace list --limit", "--limit needs a value", "cadastre keyspace list"},
        {"keyspace list --limit=", "--limit takes a whole number, not ''",
         "cadastre keyspace list"},
        {"keyspace list --limit -3", "--limit takes a whole number, not '-3'",
         "cadastre keyspace list"},
        {"keyspace list --limit 9007199254740992",
         "--limit takes a whole number, not '9007199254740992'", "cadastre keyspace list"},
        {"keyspace list --yes=1", "--yes takes no value", "cadastre keyspace list"},
        {"keyspace list -o xml", "--output takes table|json|jsonl|name|svg, not 'xml'",
         "cadastre keyspace list"},
        {"keyspace list -o jso", "--output takes table|json|jsonl|name|svg, not 'jso'",
         "cadastre keyspace list"},
        {"keyspace list --timeout 5",
         "--timeout takes a duration such as 500ms, 30s or 5m, not '5'", "cadastre keyspace list"},
        {"keyspace list --timeout 0s",
         "--timeout takes a duration such as 500ms, 30s or 5m, not '0s'", "cadastre keyspace list"},
        {"partition split orders 17", "--at is missing", "cadastre partition split"},
        {"status now", "unexpected argument 'now'", "cadastre status"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct args a;
        struct err e = {0};
        char copy[256];
        struct buf name;
        tap_note("%s", table[i].line);
        buf_init(&name, 256);
        CHECK(parse(table[i].line, copy, &a, &e) == ERR_INVALID_REQUEST);
        CHECK_STR(e.detail, table[i].detail);
        args_put_command(&a, &name);
        buf_put_u8(&name, '\0');
        CHECK_STR((const char *)name.data, table[i].command);
        buf_close(&name);
        args_close(&a);
    }
}

static void helps_at_every_level(void)
{
    static const struct {
        const char *line, *has;
    } table[] = {{"--help", "Usage: cadastre [flags] NOUN"},
                 {"help", "Usage: cadastre [flags] NOUN"},
                 {"keyspace --help", "Usage: cadastre keyspace VERB"},
                 {"help keyspace", "Usage: cadastre keyspace VERB"},
                 {"keyspace get -h", "Usage: cadastre keyspace get KEYSPACE [flags]"},
                 {"help partition split", "--at KEY"},
                 {"watch --help", "Usage: cadastre watch KEYSPACE [flags]"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct args a;
        struct err e;
        char copy[256];
        struct buf text;
        tap_note("%s", table[i].line);
        buf_init(&text, TEXT_MAX);
        CHECK(parse(table[i].line, copy, &a, &e) == ERR_OK && a.help);
        help_put(&cli_grammar, &a, &text);
        buf_put_u8(&text, '\0');
        CHECK(!text.overflow && strstr((const char *)text.data, table[i].has) != NULL);
        CHECK(strstr((const char *)text.data, "Examples:\n  cadastre ") != NULL);
        buf_close(&text);
        args_close(&a);
    }
}

static void counts_operands(void)
{
    static const struct {
        const char *text;
        unsigned min, max;
    } table[] = {{"", 0, 0},
                 {"A", 1, 1},
                 {"A B", 2, 2},
                 {"A [B]", 1, 2},
                 {"A B...", 2, UINT_MAX},
                 {"[A...]", 0, UINT_MAX}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        unsigned min, max;
        args_operand_bounds(table[i].text, &min, &max);
        CHECK_U64(min, table[i].min);
        CHECK_U64(max, table[i].max);
    }
}

/* --- the table itself --- */

static void each_flag(void (*fn)(const char *where, const struct cli_flag *f))
{
    for (const struct cli_flag *f = cli_grammar.globals; f->name != NULL; f++) {
        fn("", f);
    }
    for (const struct cli_noun *n = cli_grammar.nouns; n->name != NULL; n++) {
        for (const struct cli_command *c = n->commands; c->verb != NULL; c++) {
            for (const struct cli_flag *f = c->flags; f != NULL && f->name != NULL; f++) {
                fn(n->name, f);
            }
        }
    }
}

static const struct cli_flag *one;

static void agrees(const char *where, const struct cli_flag *f)
{
    tap_note("--%s of %s", f->name, where);
    if (strcmp(f->name, one->name) == 0) {
        CHECK((f->kind == ARGS_SWITCH) == (one->kind == ARGS_SWITCH));
        CHECK(f->letter == one->letter);
    } else {
        CHECK(f->letter == '\0' || f->letter != one->letter);
    }
    CHECK((f->kind == ARGS_SWITCH) == (f->value == NULL));
    CHECK(strpbrk(f->help, "\"`$\\") == NULL); /* it is quoted in completion scripts */
}

static void agrees_with_all(const char *where, const struct cli_flag *f)
{
    (void)where;
    one = f;
    each_flag(agrees);
}

static void a_flag_means_one_thing(void)
{
    each_flag(agrees_with_all);
}

/* Checks one line of examples, which is a command of this noun; others (eval …) are left alone. */
static void example_parses(const struct cli_noun *n, const struct cli_command *c, struct slice line)
{
    struct args a;
    struct err e = {0};
    char text[256], copy[256];
    (void)snprintf(text, sizeof text, "%.*s", (int)line.len, (const char *)line.data);
    text[strcspn(text, ">")] = '\0';
    size_t len = strlen(text);
    text[len > 0 && text[len - 1] == ' ' ? len - 1 : len] = '\0';
    if (strncmp(text, "cadastre ", 9) == 0) {
        enum err_code code = parse(text + 9, copy, &a, &e);
        tap_note("%s: %s", text, e.detail);
        CHECK(code == ERR_OK && a.noun == n && a.command == c);
        args_close(&a);
    }
}

static void examples_parse(void)
{
    for (const struct cli_noun *n = cli_grammar.nouns; n->name != NULL; n++) {
        for (const struct cli_command *c = n->commands; c->verb != NULL; c++) {
            CHECK(strstr(c->examples, "cadastre ") != NULL);
            for (const char *p = c->examples; *p != '\0';) {
                size_t len = strcspn(p, "\n");
                example_parses(n, c, slice_of(p, len));
                p += len + (p[len] == '\n');
            }
        }
    }
}

static void completes_every_command(void)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    for (size_t i = 0; i < 3; i++) {
        struct buf script;
        buf_init(&script, TEXT_MAX);
        CHECK(completion_put(&cli_grammar, shells[i], &script));
        buf_put_u8(&script, '\0');
        CHECK(!script.overflow);
        for (const struct cli_noun *n = cli_grammar.nouns; n->name != NULL; n++) {
            tap_note("%s %s", shells[i], n->name);
            CHECK(strstr((const char *)script.data, n->name) != NULL);
            for (const struct cli_command *c = n->commands; c->verb != NULL; c++) {
                CHECK(strstr((const char *)script.data, c->verb) != NULL);
            }
        }
        CHECK(strstr((const char *)script.data, "expect-epoch") != NULL);
        buf_close(&script);
    }
    struct buf script;
    buf_init(&script, TEXT_MAX);
    CHECK(!completion_put(&cli_grammar, "tcsh", &script));
    CHECK_U64(script.len, 0);
    buf_close(&script);
}

int main(void)
{
    RUN(reads_options_anywhere);
    RUN(reads_a_commands_flag_before_the_command);
    RUN(reads_numbers_and_durations);
    RUN(refuses_with_one_line);
    RUN(helps_at_every_level);
    RUN(counts_operands);
    RUN(a_flag_means_one_thing);
    RUN(examples_parse);
    RUN(completes_every_command);
    return tap_done();
}
