/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct row {
    const char *slug, *title;
    int http, cli_exit;
};

static const struct row rows[ERR_COUNT] = {
    [ERR_OK] = {"ok", "ok", 200, 0},
#define X(name, s, h, x, t)                                                                        \
    [ERR_##name] = {.slug = (s), .title = (t), .http = (h), .cli_exit = (x)},
    ERR_LIST(X)
#undef X
        [ERR_NOT_LEADER] = {"not_leader", "This server is not the leader", 500, 1},
    [ERR_IO] = {"io", "Input or output failed", 500, 1},
    [ERR_CORRUPT] = {"corrupt", "Stored bytes are damaged", 500, 1},
};

static const struct row *row_of(enum err_code code)
{
    return (unsigned)code < ERR_COUNT ? &rows[code] : &rows[ERR_INTERNAL];
}

const char *err_slug(enum err_code code)
{
    return row_of(code)->slug;
}

const char *err_title(enum err_code code)
{
    return row_of(code)->title;
}

int err_http_status(enum err_code code)
{
    return row_of(code)->http;
}

int err_cli_exit(enum err_code code)
{
    return row_of(code)->cli_exit;
}

enum err_code err_from_slug(const char *slug)
{
    for (unsigned i = 0; i < ERR_COUNT; i++) {
        if (strcmp(rows[i].slug, slug) == 0) {
            return (enum err_code)i;
        }
    }
    return ERR_COUNT;
}

PRINTF_LIKE(4, 0)
static enum err_code
set(struct err *e, enum err_code code, const char *pointer, const char *fmt, va_list args)
{
    if (e != NULL) {
        e->code = code;
        (void)vsnprintf(e->detail, sizeof e->detail, fmt, args);
        (void)snprintf(e->pointer, sizeof e->pointer, "%s", pointer);
    }
    return code;
}

enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(e, code, "", fmt, args);
    va_end(args);
    return code;
}

enum err_code
err_set_at(struct err *e, enum err_code code, const char *pointer, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(e, code, pointer, fmt, args);
    va_end(args);
    return code;
}

enum err_code err_wrap(struct err *e, const char *what)
{
    char old[sizeof e->detail];
    memcpy(old, e->detail, sizeof old);
    (void)snprintf(e->detail, sizeof e->detail, "%s: %s", what, old);
    return e->code;
}
