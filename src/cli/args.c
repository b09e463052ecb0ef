/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/args.h"

#include "base/mem.h"
#include "base/parse.h"

#include <limits.h>
#include <string.h>

struct parser {
    const struct cli_grammar *grammar;
    struct args *args;
    struct err *e;
    char *const *argv;
    int argc, at;
};

static const struct cli_flag *
find_in(const struct cli_flag *flags, const char *name, size_t len, char letter)
{
    for (; flags != NULL && flags->name != NULL; flags++) {
        bool same_name =
            name != NULL && strlen(flags->name) == len && strncmp(flags->name, name, len) == 0;
        if (same_name || (letter != '\0' && flags->letter == letter)) {
            return flags;
        }
    }
    return NULL;
}

/* In the globals, else in the command's own flags, else anywhere: the command may not be known yet.
 */
static const struct cli_flag *
find_flag(const struct parser *p, const char *name, size_t len, char letter)
{
    const struct cli_flag *f = find_in(p->grammar->globals, name, len, letter);
    if (f == NULL && p->args->command != NULL) {
        f = find_in(p->args->command->flags, name, len, letter);
    }
    for (const struct cli_noun *n = p->grammar->nouns; f == NULL && n->name != NULL; n++) {
        for (const struct cli_command *c = n->commands; f == NULL && c->verb != NULL; c++) {
            f = find_in(c->flags, name, len, letter);
        }
    }
    return f;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t len = strlen(text);
    for (const char *p = choices; len > 0 && p != NULL; p = strchr(p, '|')) {
        p += *p == '|';
        if (strncmp(p, text, len) == 0 && (p[len] == '\0' || p[len] == '|')) {
            return true;
        }
    }
    return false;
}

static enum err_code check_value(const struct cli_flag *f, const char *text, struct err *e)
{
    uint64_t number;
    bool ok = true;
    const char *wanted = "";
    if (f->kind == ARGS_NUMBER) {
        ok = parse_u64(text, PARSE_INT_MAX, &number);
        wanted = "a whole number";
    } else if (f->kind == ARGS_DURATION) {
        ok = parse_duration_ms(text, &number) && number > 0 && number <= INT_MAX;
        wanted = "a duration such as 500ms, 30s or 5m";
    } else if (f->kind == ARGS_CHOICE) {
        ok = is_choice(f->value, text);
        wanted = f->value;
    }
    return ok ? ERR_OK
              : err_set(e, ERR_INVALID_REQUEST, "--%s takes %s, not '%.80s'", f->name, wanted,
                        text);
}

static enum err_code take_value(struct parser *p, const struct cli_flag *f, const char *text)
{
    if (f->kind == ARGS_SWITCH) {
        if (text != NULL) {
            return err_set(p->e, ERR_INVALID_REQUEST, "--%s takes no value", f->name);
        }
        text = "";
    } else if (text == NULL) {
        if (p->at + 1 >= p->argc) {
            return err_set(p->e, ERR_INVALID_REQUEST, "--%s needs a value", f->name);
        }
        text = p->argv[++p->at];
    }
    p->args->values[p->args->value_count++] = (struct args_value){f, text};
    p->args->help = p->args->help || strcmp(f->name, "help") == 0;
    return check_value(f, text, p->e);
}

static enum err_code take_long(struct parser *p, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t len = equals != NULL ? (size_t)(equals - word) : strlen(word);
    const struct cli_flag *f = find_flag(p, word, len, '\0');
    if (f == NULL) {
        return err_set(p->e, ERR_INVALID_REQUEST, "unknown flag --%.*s", (int)len, word);
    }
    return take_value(p, f, equals != NULL ? equals + 1 : NULL);
}

/* "-o json", "-ojson", "-qy". */
static enum err_code take_short(struct parser *p, const char *letters)
{
    enum err_code code = ERR_OK;
    for (; code == ERR_OK && *letters != '\0'; letters++) {
        const struct cli_flag *f = find_flag(p, NULL, 0, *letters);
        if (f == NULL) {
            return err_set(p->e, ERR_INVALID_REQUEST, "unknown flag -%c", *letters);
        }
        if (f->kind != ARGS_SWITCH) {
            return take_value(p, f, letters[1] != '\0' ? letters + 1 : NULL);
        }
        code = take_value(p, f, NULL);
    }
    return code;
}

static const struct cli_command *find_verb(const struct cli_noun *noun, const char *verb)
{
    for (const struct cli_command *c = noun->commands; c->verb != NULL; c++) {
        if (strcmp(c->verb, verb) == 0) {
            return c;
        }
    }
    return NULL;
}

static enum err_code take_word(struct parser *p, const char *word)
{
    struct args *a = p->args;
    if (a->command != NULL) {
        a->operands[a->operand_count++] = word;
        return ERR_OK;
    }
    if (a->noun != NULL) {
        a->command = find_verb(a->noun, word);
        return a->command != NULL ? ERR_OK
                                  : err_set(p->e, ERR_INVALID_REQUEST, "unknown command '%s %.80s'",
                                            a->noun->name, word);
    }
    if (strcmp(word, "help") == 0) {
        a->help = true;
        return ERR_OK;
    }
    for (const struct cli_noun *n = p->grammar->nouns; n->name != NULL; n++) {
        if (strcmp(n->name, word) == 0) {
            a->noun = n;
            a->command = find_verb(n, "");
            return ERR_OK;
        }
    }
    return err_set(p->e, ERR_INVALID_REQUEST, "unknown command '%.80s'", word);
}

void args_operand_bounds(const char *operands, unsigned *ret_min, unsigned *ret_max)
{
    unsigned min = 0, max = 0;
    for (const char *p = operands; *p != '\0'; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        max = len > 3 && memmem(p, len, "...", 3) != NULL ? UINT_MAX : max + 1;
        min += *p != '[';
        p += len;
    }
    *ret_min = min;
    *ret_max = max;
}

/* The name of operand `n`, for a message. */
static int operand_name(const char *operands, unsigned n, const char **ret_name)
{
    const char *p = operands;
    for (; n > 0; n--) {
        p += strcspn(p, " ");
        p += strspn(p, " ");
    }
    *ret_name = p;
    return (int)strcspn(p, " .");
}

static enum err_code check_operands(const struct args *a, struct err *e)
{
    unsigned min, max;
    args_operand_bounds(a->command->operands, &min, &max);
    if (a->operand_count < min) {
        const char *name;
        int len = operand_name(a->command->operands, a->operand_count, &name);
        return err_set(e, ERR_INVALID_REQUEST, "%.*s is missing", len, name);
    }
    if (a->operand_count > max) {
        return err_set(e, ERR_INVALID_REQUEST, "unexpected argument '%.80s'", a->operands[max]);
    }
    return ERR_OK;
}

static enum err_code check_flags(const struct parser *p)
{
    const struct args *a = p->args;
    const struct cli_flag *own = a->command->flags;
    for (unsigned i = 0; i < a->value_count; i++) {
        const char *name = a->values[i].flag->name;
        if (find_in(p->grammar->globals, name, strlen(name), '\0') == NULL &&
            find_in(own, name, strlen(name), '\0') == NULL) {
            return err_set(p->e, ERR_INVALID_REQUEST, "unknown flag --%s", name);
        }
    }
    for (; own != NULL && own->name != NULL; own++) {
        if (own->required && args_get(a, own->name) == NULL) {
            return err_set(p->e, ERR_INVALID_REQUEST, "--%s is missing", own->name);
        }
    }
    return ERR_OK;
}

static enum err_code check_whole(const struct parser *p)
{
    const struct args *a = p->args;
    if (a->help || args_has(a, "version")) {
        return ERR_OK;
    }
    if (a->command == NULL) {
        return a->noun == NULL
                   ? err_set(p->e, ERR_INVALID_REQUEST, "a command is missing")
                   : err_set(p->e, ERR_INVALID_REQUEST, "'%s' needs a verb", a->noun->name);
    }
    enum err_code code = check_flags(p);
    return code != ERR_OK ? code : check_operands(a, p->e);
}

enum err_code args_parse(const struct cli_grammar *g,
                         int argc,
                         char *const *argv,
                         struct args *ret_args,
                         struct err *e)
{
    size_t count = argc > 0 ? (size_t)argc : 1;
    *ret_args = (struct args){.operands = mem_zalloc(count * sizeof(char *))};
    /* A word of n letters may be n switches. */
    size_t values = 1;
    for (int i = 1; i < argc; i++) {
        values += strlen(argv[i]) + 1;
    }
    ret_args->values = mem_zalloc(values * sizeof(struct args_value));
    struct parser p = {.grammar = g, .args = ret_args, .e = e, .argv = argv, .argc = argc, .at = 1};
    bool only_words = false;
    enum err_code code = ERR_OK;
    for (; code == ERR_OK && p.at < argc; p.at++) {
        const char *word = argv[p.at];
        if (only_words || word[0] != '-' || word[1] == '\0') {
            code = take_word(&p, word);
        } else if (strcmp(word, "--") == 0) {
            only_words = true;
        } else if (word[1] == '-') {
            code = take_long(&p, word + 2);
        } else {
            code = take_short(&p, word + 1);
        }
    }
    return code == ERR_OK ? check_whole(&p) : code;
}

void args_close(struct args *a)
{
    mem_free(a->operands);
    mem_free(a->values);
    *a = (struct args){0};
}

void args_put_command(const struct args *a, struct buf *out)
{
    buf_put_str(out, "cadastre");
    if (a->noun != NULL) {
        buf_printf(out, " %s", a->noun->name);
    }
    if (a->command != NULL && a->command->verb[0] != '\0') {
        buf_printf(out, " %s", a->command->verb);
    }
}

const char *args_next(const struct args *a, const char *name, unsigned *at)
{
    while (*at < a->value_count) {
        const struct args_value *v = &a->values[(*at)++];
        if (strcmp(v->flag->name, name) == 0) {
            return v->text;
        }
    }
    return NULL;
}

const char *args_get(const struct args *a, const char *name)
{
    const char *last = NULL;
    unsigned at = 0;
    for (const char *text = args_next(a, name, &at); text != NULL; text = args_next(a, name, &at)) {
        last = text;
    }
    return last;
}

bool args_has(const struct args *a, const char *name)
{
    return args_get(a, name) != NULL;
}

uint64_t args_number(const struct args *a, const char *name, uint64_t fallback)
{
    const char *text = args_get(a, name);
    uint64_t value;
    if (text == NULL ||
        (!parse_u64(text, PARSE_INT_MAX, &value) && !parse_duration_ms(text, &value))) {
        return fallback;
    }
    return value;
}
