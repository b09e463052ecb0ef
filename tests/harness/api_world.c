/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/api_world.h"

#include "base/assert.h"
#include "base/parse.h"
#include "tests/harness/tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void api_world_open(struct api_world *w)
{
    struct api_options options = {.addr = "127.0.0.1:0", .threads = 2, .version = "1.2.3"};
    struct err e;
    memset(w, 0, sizeof *w);
    (void)snprintf(w->dir, sizeof w->dir, "/tmp/cadastre-api-test-XXXXXX");
    ASSERT(mkdtemp(w->dir) != NULL);
    options.scratch_dir = w->dir;
    w->control = local_control_start(text("%s/store.db", w->dir));
    ASSERT(api_start(w->control, &options, &w->api, &e) == ERR_OK);
    w->port = api_port(w->api);
    client_open(&w->client, w->port);
}

void api_world_close(struct api_world *w)
{
    static const char *const files[] = {"store.db", "store.db-wal", "store.db-shm"};
    client_close(&w->client);
    answer_close(&w->answer);
    json_decref(w->json);
    local_control_drain(w->control);
    api_stop(w->api);
    local_control_stop(w->control);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        (void)unlink(text("%s/%s", w->dir, files[i])); /* not all of them need be there */
    }
    CHECK(rmdir(w->dir) == 0); /* nothing else was left behind */
}

void api_send(struct api_world *w,
              const char *request,
              const char *headers,
              const char *type,
              struct slice body)
{
    struct buf b;
    bool head = strncmp(request, "HEAD ", 5) == 0;
    answer_close(&w->answer);
    json_decref(w->json);
    w->json = NULL;
    buf_init(&b, 64 << 20);
    buf_put_str(&b, request);
    buf_put_str(&b, " HTTP/1.1\r\nHost: test\r\n");
    buf_put_str(&b, headers != NULL ? headers : "");
    if (body.data != NULL) {
        buf_printf(&b, "Content-Type: %s\r\nContent-Length: %zu\r\n", type, body.len);
    }
    buf_put_str(&b, "\r\n");
    buf_put(&b, body.data, body.len);
    for (unsigned tries = 0; tries < 2; tries++) {
        bool sent = client_send(&w->client, b.data, b.len);
        client_read(&w->client, &w->answer, head, 20000);
        if (sent && w->answer.status != 0) {
            break;
        }
        /* The server closes connections after some refusals. */
        client_close(&w->client);
        client_open(&w->client, w->port);
    }
    buf_close(&b);
    if (strstr(api_header(w, "Content-Type"), "json") != NULL && w->answer.body.len > 0) {
        w->json =
            json_loadb((const char *)w->answer.body.data, w->answer.body.len, JSON_ALLOW_NUL, NULL);
    }
    if (strcmp(api_header(w, "Connection"), "close") == 0) {
        client_close(&w->client);
        client_open(&w->client, w->port);
    }
}

void api_call(struct api_world *w, const char *request, const char *headers, const char *body)
{
    api_send(w, request, headers, "application/json",
             slice_of(body, body != NULL ? strlen(body) : 0));
}

const char *api_body(struct api_world *w)
{
    return answer_text(&w->answer);
}

bool api_expect(struct api_world *w,
                const struct api_row *row,
                const char *headers,
                const char *file)
{
    api_call(w, row->request, headers, row->body);
    const char *code = row->code != NULL ? row->code : "(none)";
    bool problem = strcmp(api_header(w, "Content-Type"), "application/problem+json") == 0;
    bool ok = w->answer.status == row->status && problem == (row->code != NULL) &&
              (!problem || strcmp(api_text(w, "code"), code) == 0) &&
              (row->has == NULL || strstr(api_body(w), row->has) != NULL);
    if (!ok) {
        (void)printf("# %.200s %.300s\n#   got %d %.900s\n#   want %d %s %s\n", row->request,
                     row->body != NULL ? row->body : "", w->answer.status, api_body(w), row->status,
                     code, row->has != NULL ? row->has : "");
    }
    return tap_check(ok, "the answer is as expected", file, row->line);
}

void api_rows(struct api_world *w, const struct api_row *rows, size_t count, const char *file)
{
    for (size_t i = 0; i < count; i++) {
        (void)api_expect(w, &rows[i], NULL, file);
    }
}

json_t *api_at(const struct api_world *w, const char *path)
{
    json_t *at = w->json;
    while (at != NULL && *path != '\0') {
        char name[64] = "";
        size_t len = strcspn(path, "/");
        uint64_t i;
        memcpy(name, path, len < sizeof name ? len : sizeof name - 1);
        path += len + (path[len] == '/');
        if (json_is_array(at)) {
            at = parse_u64(name, 1000000, &i) ? json_array_get(at, i) : NULL;
        } else {
            at = json_object_get(at, name);
        }
    }
    return at;
}

uint64_t api_u64(const struct api_world *w, const char *path)
{
    const json_t *v = api_at(w, path);
    return json_is_integer(v) ? (uint64_t)json_integer_value(v) : UINT64_MAX;
}

const char *api_text(const struct api_world *w, const char *path)
{
    const json_t *v = api_at(w, path);
    return json_is_string(v) ? json_string_value(v) : "(none)";
}

const char *api_header(const struct api_world *w, const char *name)
{
    static char values[4][1024];
    static unsigned next;
    char *out = values[next++ % 4];
    out[0] = '\0';
    (void)answer_header(&w->answer, name, out, sizeof values[0]);
    return out;
}

const char *text(const char *fmt, ...)
{
    static char texts[8][4096];
    static unsigned next;
    char *out = texts[next++ % 8];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(out, sizeof texts[0], fmt, args);
    va_end(args);
    ASSERT(n >= 0 && (size_t)n < sizeof texts[0]);
    return out;
}

void api_nodes(struct api_world *w, unsigned n)
{
    for (unsigned i = 1; i <= n; i++) {
        (void)EXPECT(w, text("PUT /v1/nodes/n%u", i),
                     text("{\"address\":\"10.0.0.%u:9000\",\"lease\":\"static\",\"labels\":{"
                          "\"zone\":\"z%u\"}}",
                          i, i % 3),
                     200, NULL);
    }
}
