/* SPDX-License-Identifier: Apache-2.0 */
/* `writers_check [OPTIONS] FILE` (`-`: standard input): the writer-interval checker for histories
 * of real processes, one JSON object a line:
 *
 *     {"event":"accepted","time":NS,"since":NS,"node":"a","key":"p1","epoch":3,
 *      "session":"s","sequence":7,"id":"m1"}
 *
 * with `event` one of acted, accepted, acknowledged, refused, final (see writers.h); what does not
 * apply is left out. Names may be strings or integers. Options: --partial, --no-final,
 * --min-acknowledged N, --min-epochs N (of one key). Exit: 0 nothing found, 1 violations or too
 * little to prove anything, 2 not a history. */
#include "base/mem.h"
#include "base/parse.h"
#include "tests/harness/writers.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_MAX = 50 };

struct input {
    struct writers writers;
    char **lines; /* owns; as they were read */
    size_t lines_room;
    json_t *names; /* name -> number */
    size_t shown;
    uint64_t min_acknowledged, min_epochs;
};

static const char *const kinds[] = {[WRITERS_ACTED] = "acted",
                                    [WRITERS_ACCEPTED] = "accepted",
                                    [WRITERS_ACKNOWLEDGED] = "acknowledged",
                                    [WRITERS_REFUSED] = "refused",
                                    [WRITERS_FINAL] = "final"};

static bool read_kind(const json_t *row, enum writers_event_kind *ret_kind)
{
    const char *name = json_string_value(json_object_get(row, "event"));
    for (unsigned i = 0; name != NULL && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i], name) == 0) {
            *ret_kind = (enum writers_event_kind)i;
            return true;
        }
    }
    return false;
}

/* Absent is 0. */
static bool read_number(const json_t *row, const char *field, uint64_t *ret_value)
{
    const json_t *value = json_object_get(row, field);
    if (value == NULL || json_is_null(value)) {
        *ret_value = 0;
        return true;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *ret_value = (uint64_t)json_integer_value(value);
    return true;
}

/* A string or an integer, as a number of our own above 0; absent is 0. */
static bool read_name(struct input *in, const json_t *row, const char *field, uint64_t *ret_value)
{
    const json_t *value = json_object_get(row, field);
    char digits[32];
    const char *name = json_string_value(value);
    *ret_value = 0;
    if (value == NULL || json_is_null(value)) {
        return true;
    }
    if (json_is_integer(value)) {
        (void)snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        name = digits;
    }
    if (name == NULL) {
        return false;
    }
    json_t *known = json_object_get(in->names, name);
    if (known == NULL) {
        known = json_integer((json_int_t)json_object_size(in->names) + 1);
        if (json_object_set_new(in->names, name, known) != 0) {
            return false;
        }
    }
    *ret_value = (uint64_t)json_integer_value(known);
    return true;
}

/* Is what its kind needs there? */
static bool is_whole(const struct writers_event *e)
{
    bool stamped = e->time != 0 || e->kind == WRITERS_FINAL;
    bool placed = e->kind != WRITERS_ACCEPTED || (e->node != 0 && e->epoch != 0);
    bool named = e->kind == WRITERS_ACTED || e->id != 0;
    return e->key != 0 && stamped && placed && named;
}

static bool read_event(struct input *in, const json_t *row, struct writers_event *e)
{
    memset(e, 0, sizeof *e);
    bool numbers = read_kind(row, &e->kind) && read_number(row, "time", &e->time) &&
                   read_number(row, "since", &e->since) && read_number(row, "epoch", &e->epoch) &&
                   read_number(row, "sequence", &e->sequence);
    return numbers && read_name(in, row, "node", &e->node) && read_name(in, row, "key", &e->key) &&
           read_name(in, row, "session", &e->session) && read_name(in, row, "id", &e->id) &&
           is_whole(e);
}

static bool read_line(struct input *in, const char *line, size_t len, size_t number)
{
    json_error_t error;
    json_t *row = json_loadb(line, len, JSON_REJECT_DUPLICATES, &error);
    struct writers_event event;
    bool ok = row != NULL && read_event(in, row, &event);
    json_decref(row);
    if (!ok) {
        (void)fprintf(stderr, "line %zu is not an event: %.*s\n", number, (int)len, line);
        return false;
    }
    if (in->writers.count == in->lines_room) {
        in->lines_room = in->lines_room == 0 ? SHOWN_MAX : 2 * in->lines_room;
        in->lines = mem_realloc(in->lines, in->lines_room * sizeof *in->lines);
    }
    in->lines[in->writers.count] = mem_printf("line %zu %.*s", number, (int)len, line);
    writers_add(&in->writers, &event);
    return true;
}

static bool read_all(struct input *in, FILE *file)
{
    char *line = NULL;
    size_t size = 0, number = 0;
    ssize_t len = 0;
    bool ok = true;
    while (ok && (len = getline(&line, &size, file)) >= 0) {
        number++;
        while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r')) {
            len--;
        }
        ok = len == 0 || read_line(in, line, (size_t)len, number);
    }
    free(line); /* getline's own */
    return ok && !ferror(file);
}

static void show(void *arg, enum writers_flaw flaw, size_t a, size_t b)
{
    struct input *in = arg;
    if (in->shown++ >= SHOWN_MAX) {
        return;
    }
    (void)printf("violation: %s\n  %s\n", writers_flaw_text(flaw), in->lines[a]);
    if (a != b) {
        (void)printf("  %s\n", in->lines[b]);
    }
}

static bool read_options(struct input *in, int argc, char **argv, const char **ret_path)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--partial") == 0) {
            in->writers.partial = true;
        } else if (strcmp(argv[i], "--no-final") == 0) {
            in->writers.no_final = true;
        } else if (strcmp(argv[i], "--min-acknowledged") == 0 && i + 1 < argc) {
            if (!parse_u64(argv[++i], UINT64_MAX, &in->min_acknowledged)) {
                return false;
            }
        } else if (strcmp(argv[i], "--min-epochs") == 0 && i + 1 < argc) {
            if (!parse_u64(argv[++i], UINT64_MAX, &in->min_epochs)) {
                return false;
            }
        } else if (*ret_path == NULL && (argv[i][0] != '-' || argv[i][1] == '\0')) {
            *ret_path = argv[i];
        } else {
            return false;
        }
    }
    return *ret_path != NULL;
}

static int judge(struct input *in)
{
    size_t flaws = writers_check(&in->writers, show, in);
    struct writers_counts n = writers_count(&in->writers);
    bool enough = n.acknowledged >= in->min_acknowledged && n.most_epochs >= in->min_epochs;
    (void)printf("%zu violations in %zu events: %" PRIu64 " accepted, %" PRIu64
                 " acknowledged, %" PRIu64 " refused, %" PRIu64 " keys, at most %" PRIu64
                 " epochs of one key%s\n",
                 flaws, in->writers.count, n.accepted, n.acknowledged, n.refused, n.keys,
                 n.most_epochs, enough ? "" : "; too little to prove anything");
    return flaws == 0 && enough ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct input in = {.min_acknowledged = 0};
    const char *path = NULL;
    writers_init(&in.writers);
    if (!read_options(&in, argc, argv, &path)) {
        (void)fprintf(stderr, "usage: writers_check [--partial] [--no-final] [--min-acknowledged "
                              "N] [--min-epochs N] FILE|-\n");
        return 2;
    }
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (file == NULL) {
        (void)fprintf(stderr, "can't open %s: %s\n", path, strerror(errno));
        return 2;
    }
    in.names = json_object();
    int status = read_all(&in, file) ? judge(&in) : 2;
    (void)fclose(file);
    json_decref(in.names);
    for (size_t i = 0; i < in.writers.count; i++) {
        mem_free(in.lines[i]);
    }
    mem_free(in.lines);
    writers_close(&in.writers);
    return status;
}
