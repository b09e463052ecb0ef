/* SPDX-License-Identifier: Apache-2.0 */
/* The API over a real directory and store, spoken to over a real socket. */
#ifndef TESTS_API_WORLD_H
#define TESTS_API_WORLD_H

#include "api/api.h"
#include "tests/harness/http_client.h"
#include "tests/harness/local_control.h"

#include <jansson.h>

struct api_world {
    char dir[64];
    struct control *control;
    struct api *api;
    uint16_t port;
    struct client client; /* kept alive */
    struct answer answer; /* of the last call */
    json_t *json;         /* its body, when that is JSON; owned */
};

void api_world_open(struct api_world *w);
void api_world_close(struct api_world *w);

/* `request` is "GET /v1/nodes"; `headers` are whole lines with CRLF, or NULL; `body` NULL: none. */
void api_call(struct api_world *w, const char *request, const char *headers, const char *body);
/* The same with any body of any type; data NULL: none. */
void api_send(struct api_world *w,
              const char *request,
              const char *headers,
              const char *type,
              struct slice body);
/* A request with what is expected of it. */
struct api_row {
    int line;
    const char *request, *body;
    int status;
    const char *code; /* problem code; NULL: it is no problem */
    const char *has;  /* text that the body must hold; NULL: any */
};
#define ROW(...)                                                                                   \
    {                                                                                              \
        __LINE__, __VA_ARGS__                                                                      \
    }
/* The call, and whether its answer is as expected. Prints both when not. */
bool api_expect(struct api_world *w,
                const struct api_row *row,
                const char *headers,
                const char *file);
#define EXPECT_WITH(w, request, headers, body, status, code)                                       \
    api_expect((w), &(struct api_row){__LINE__, (request), (body), (status), (code), NULL},        \
               (headers), __FILE__)
#define EXPECT(w, request, body, status, code) EXPECT_WITH(w, request, NULL, body, status, code)
/* Each in turn. */
void api_rows(struct api_world *w, const struct api_row *rows, size_t count, const char *file);

/* A member of the last body by path, "route/primary/node" or "nodes/0/session"; NULL when absent.
 */
json_t *api_at(const struct api_world *w, const char *path);
uint64_t api_u64(const struct api_world *w, const char *path);     /* UINT64_MAX when it is none */
const char *api_text(const struct api_world *w, const char *path); /* "(none)" when it is none */
/* A header of the last answer; "" when absent. Good until the next two calls. */
const char *api_header(const struct api_world *w, const char *name);
/* The last body. */
const char *api_body(struct api_world *w);
/* printf into one of a few static buffers. */
const char *text(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Nodes n1 … nN, registered. */
void api_nodes(struct api_world *w, unsigned n);

#endif
