/* SPDX-License-Identifier: Apache-2.0 */
/* The route table and the search in it. The table is constant data (routes.c); the index over it is
 * built once when the server starts and then only read, by all workers. */
#ifndef API_ROUTER_H
#define API_ROUTER_H

#include "api/exchange.h"

#include <stdio.h>

enum {
    API_ROUTE_MUTATES = 1, /* a command: http.c only counts them apart; guards may ask */
    API_ROUTE_READS = 2, /* also takes consistency, min_revision, timeout_ms and max_staleness_ms */
    API_ROUTE_BODY =
        4, /* may have a JSON body; without this flag a non-empty body is refused with 400 */
    API_ROUTE_BODY_NEEDED = 8,  /* must have one (implies API_ROUTE_BODY) */
    API_ROUTE_MERGE_PATCH = 16, /* application/merge-patch+json is accepted too */
    API_ROUTE_PROTOBUF = 64,    /* application/x-protobuf is accepted too */
    API_ROUTE_OPEN = 32         /* needs no credential: /livez and the like */
};

struct api_route {
    enum api_method method; /* API_GET serves HEAD too */
    /* "/v1/keyspaces/{ks}/route": literal segments and {variables}, at most API_PATH_SEGMENTS_MAX;
     * "/" is the root. A literal wins over a variable at the same place. */
    const char *pattern;
    void (*handler)(struct exchange *x);
    /* Names of allowed query parameters, NULL-terminated; NULL: none. Any other is 400, naming it.
     */
    const char *const *params;
    unsigned flags;
};

/* The server's table: routes.c. */
const struct api_route *api_routes(size_t *ret_count);

/* "GET"; "OTHER" for API_METHOD_OTHER. */
const char *api_method_name(enum api_method method);
enum api_method api_method_of(const char *text);

/* "METHOD /path" a line, for comparing with openapi.yaml. */
void api_list_routes(FILE *out);

struct router;

/* Borrows the table, which must outlive it. Two routes of one method and pattern are a programming
 * error. */
struct router *router_new(const struct api_route *routes, size_t count);
void router_free(struct router *r);

struct router_match {
    const struct api_route *route; /* NULL: this path has no such method */
    unsigned variable_count;
    uint8_t variables[API_PATH_SEGMENTS_MAX]; /* which segments are the variables, in order */
    unsigned allowed; /* bit 1 << method for each that the path has, HEAD included; 0: there is no
                         such path */
};

/* Finds the route of a path given as unescaped segments. False when no route has this path; when
 * the path is known but not for this method, true with route NULL. */
bool router_find(const struct router *r,
                 enum api_method method,
                 const struct slice *segments,
                 unsigned segment_count,
                 struct router_match *ret_match) MUST_CHECK;

/* "GET, HEAD, POST": the value of Allow for a match's `allowed`. */
#define ROUTER_ALLOW_SIZE 64
void router_allow(unsigned allowed, char out[ROUTER_ALLOW_SIZE]);

/* Whether a route takes this query parameter. */
bool router_takes_param(const struct api_route *route, struct slice name);

#endif
