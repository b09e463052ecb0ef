/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd.h"
#include "cli/help.h"

#include "base/mem.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 10000, HELP_MAX = 1 << 20 };

static int usage_error(const struct args *a, const struct err *e)
{
    struct buf name;
    buf_init(&name, HELP_MAX);
    args_put_command(a, &name);
    (void)fprintf(stderr, "cadastre: %s; try '%.*s --help'\n", e->detail, (int)name.len,
                  (char *)name.data);
    buf_close(&name);
    return EXIT_USAGE;
}

static int print_help(const struct args *a)
{
    struct buf text;
    buf_init(&text, HELP_MAX);
    help_put(&cli_grammar, a, &text);
    (void)fwrite(text.data, 1, text.len, stdout);
    buf_close(&text);
    return EXIT_DONE;
}

static void set_output(struct cli *c)
{
    const char *format = args_get(c->args, "output"), *no_color = getenv("NO_COLOR");
    c->out.file = stdout;
    c->out.headers = !args_has(c->args, "no-headers");
    c->out.bold = isatty(STDOUT_FILENO) != 0 && (no_color == NULL || no_color[0] == '\0');
    if (format != NULL) {
        (void)out_format_parse(format, &c->out.format); /* one of the choices */
    }
}

static bool is_key(const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '!' || text[i] > '~') {
            return false;
        }
    }
    return len >= 1 && len <= 128;
}

static int run(const struct args *a)
{
    struct cli c = {
        .grammar = &cli_grammar,
        .args = a,
        .timeout_ms = args_number(
            a, "timeout", a->command->run == cmd_whatif_ask ? CMD_WHATIF_TIMEOUT_MS : TIMEOUT_MS),
        .quiet = args_has(a, "quiet"),
        .yes = args_has(a, "yes")};
    set_output(&c);
    if (c.out.format == OUT_SVG && a->command != &simulate_commands[0]) {
        return cli_fail(EXIT_USAGE, "only simulate prints svg");
    }
    const char *key = args_get(a, "idempotency-key");
    if (key != NULL && !is_key(key)) {
        return cli_fail(EXIT_USAGE, "--idempotency-key takes 1 to 128 visible ASCII characters");
    }
    const char *given = args_get(a, "endpoints"), *env = getenv("CADASTRE_ENDPOINTS");
    const char *endpoints = given != NULL                   ? given
                            : env != NULL && env[0] != '\0' ? env
                                                            : "http://127.0.0.1:7400";
    struct err e;
    c.http = http_new(endpoints, c.timeout_ms, &e);
    if (c.http == NULL) {
        return cli_fail(EXIT_USAGE, "%s", e.detail);
    }
    int code = a->command->run(&c);
    http_free(c.http);
    if (!out_flush(&c.out) && code == EXIT_DONE) {
        code = cli_fail(EXIT_FAILED, "stdout can't be written");
    }
    return code;
}

int main(int argc, char **argv)
{
    struct args a;
    struct err e;
    int code;
    json_set_alloc_funcs(mem_alloc, mem_free);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        (void)fputs("cadastre: libcurl does not start\n", stderr);
        return EXIT_FAILED;
    }
    if (args_parse(&cli_grammar, argc, argv, &a, &e) != ERR_OK) {
        code = usage_error(&a, &e);
    } else if (args_has(&a, "version")) {
        (void)puts("cadastre " CADASTRE_VERSION);
        code = EXIT_DONE;
    } else if (a.help) {
        code = print_help(&a);
    } else {
        code = run(&a);
    }
    args_close(&a);
    curl_global_cleanup();
    return code;
}
