/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 2048 };

static enum log_level threshold = LOG_INFO;
static bool as_json;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_init(enum log_level least, bool json)
{
    threshold = least;
    as_json = json;
}

bool log_level_parse(const char *name, enum log_level *ret_level)
{
    for (unsigned i = 0; i < sizeof level_names / sizeof level_names[0]; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

const char *log_quote(const char *text, char *out, size_t size)
{
    size_t at = 0;
    out[at++] = '"';
    for (; *text != '\0' && at + 6 < size; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            out[at++] = '\\';
            out[at++] = (char)c;
        } else if (c < 0x20 || c == 0x7f) {
            at += (size_t)snprintf(out + at, size - at, "\\x%02x", c);
        } else {
            out[at++] = (char)c;
        }
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}

/* One `name=value` or `name="va lue"` of logfmt, as a JSON member. Returns the rest. */
static const char *field_as_json(const char *field, char *line, size_t size, size_t *at)
{
    const char *eq = strchr(field, '=');
    if (eq == NULL) {
        return field + strlen(field);
    }
    const char *value = eq + 1;
    bool quoted = *value == '"';
    const char *end = value + (quoted ? 1 : 0);
    while (*end != '\0' && (quoted ? *end != '"' : *end != ' ')) {
        end += quoted && *end == '\\' && end[1] != '\0' ? 2 : 1;
    }
    if (quoted && *end == '"') {
        end++;
    }
    int n = snprintf(line + *at, size - *at, quoted ? ",\"%.*s\":%.*s" : ",\"%.*s\":\"%.*s\"",
                     (int)(eq - field), field, (int)(end - value), value);
    *at += n > 0 && (size_t)n < size - *at ? (size_t)n : 0;
    return *end == ' ' ? end + 1 : end;
}

static size_t format_json(char *line, size_t size, const char *head, const char *fields)
{
    size_t at = (size_t)snprintf(line, size, "%s", head);
    while (*fields != '\0') {
        fields = field_as_json(fields, line, size - 4, &at);
    }
    return at + (size_t)snprintf(line + at, size - at, "}\n");
}

static void write_line(enum log_level level, const char *event, const char *fields, va_list args)
{
    char when[CLOCK_RFC3339_SIZE], text[LINE_MAX_BYTES - 256], head[256], line[LINE_MAX_BYTES];
    clock_rfc3339(clock_wall_ms(), when);
    (void)vsnprintf(text, sizeof text, fields, args);
    size_t n;
    if (as_json) {
        (void)snprintf(head, sizeof head, "{\"ts\":\"%s\",\"level\":\"%s\",\"event\":\"%s\"", when,
                       level_names[level], event);
        n = format_json(line, sizeof line, head, text);
    } else {
        n = (size_t)snprintf(line, sizeof line, "ts=%s level=%s event=%s%s%s\n", when,
                             level_names[level], event, text[0] != '\0' ? " " : "", text);
    }
    ssize_t ignored = write(STDERR_FILENO, line, n); /* nowhere to report it */
    (void)ignored;
}

void log_event(enum log_level level, const char *event, const char *fields, ...)
{
    if (level < threshold) {
        return;
    }
    va_list args;
    va_start(args, fields);
    write_line(level, event, fields, args);
    va_end(args);
}

void log_fatal(int exit_code, const char *event, const char *fields, ...)
{
    va_list args;
    va_start(args, fields);
    write_line(LOG_ERROR, event, fields, args);
    va_end(args);
    _exit(exit_code);
}
