/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/server.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS_EACH = 500 };

static struct api_world world;
static unsigned inputs;

static void populate(struct api_world *w)
{
    static const char *const requests[][2] = {
        {"PUT /v1/nodes/n1", "{\"address\":\"10.0.0.1:9000\",\"lease\":\"static\"}"},
        {"PUT /v1/nodes/n2",
         "{\"address\":\"10.0.0.2:9000\",\"lease\":\"static\",\"labels\":{\"zone\":\"b\"}}"},
        {"POST /v1/keyspaces",
         "{\"name\":\"a\",\"scheme\":\"range\",\"splits\":[\"d\",\"m\",\"t\"]}"},
        {"POST /v1/keyspaces", "{\"name\":\"b\",\"scheme\":\"hash\",\"partitions\":4}"},
        {"POST /v1/keyspaces",
         "{\"name\":\"c\",\"scheme\":\"range\",\"key_encoding\":\"hex\",\"splits\":[\"80\"]}"},
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        api_call(w, requests[i][0], NULL, requests[i][1]);
        ASSERT(w->answer.status == 200 || w->answer.status == 201);
    }
}

static void report(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "violated: %s\n", line);
}

static void check_state(const struct api_world *w)
{
    const struct dir_view *v = view_pin(control_published(w->control));
    uint64_t violations = dir_check(v, report, NULL, 8);
    ASSERT(violations == 0);
    view_unpin(v);
}

static void finish(void)
{
    check_state(&world);
    api_world_close(&world);
    inputs = 0;
}

struct api_world *server(void)
{
    static bool registered;
    if (inputs == INPUTS_EACH) {
        finish();
    }
    if (inputs == 0) {
        api_world_open(&world);
        populate(&world);
    }
    if (!registered) {
        registered = true;
        ASSERT(atexit(finish) == 0);
    }
    inputs++;
    return &world;
}

dir_rev server_revision(const struct api_world *w)
{
    dir_rev revision = view_enter(control_published(w->control))->revision;
    view_leave();
    return revision;
}

void server_judge(struct api_world *w)
{
    static const int statuses[] = {200, 201, 202, 304, 400, 404, 405, 409,
                                   410, 413, 414, 415, 422, 431, 503};
    bool known = false;
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        known = known || w->answer.status == statuses[i];
    }
    if (!known) {
        (void)fprintf(stderr, "status %d\n%s\n%s\n", w->answer.status, w->answer.head, api_body(w));
    }
    ASSERT(known);
}
