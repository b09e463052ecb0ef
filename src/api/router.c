/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of path segments. At each place the literals are tried first, then the variable. */
#include "api/router.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

#define METHODS ((unsigned)API_METHOD_OTHER)

struct node {
    struct slice literal;
    struct node *children, *variable, *next;
    const struct api_route *routes[METHODS];
};

struct router {
    struct node root;
};

static struct node *child(struct node *n, struct slice segment)
{
    bool variable =
        segment.len > 2 && segment.data[0] == '{' && segment.data[segment.len - 1] == '}';
    struct node **at = variable ? &n->variable : &n->children;
    if (!variable) {
        while (*at != NULL && !slice_eq((*at)->literal, segment)) {
            at = &(*at)->next;
        }
    }
    if (*at == NULL) {
        *at = mem_zalloc(sizeof **at);
        (*at)->literal = segment;
    }
    return *at;
}

static void add(struct router *r, const struct api_route *route)
{
    struct node *n = &r->root;
    const char *p = route->pattern;
    unsigned depth = 0;
    ASSERT(p[0] == '/' && (unsigned)route->method < METHODS && route->method != API_HEAD &&
           route->handler != NULL);
    while (*p == '/' && p[1] != '\0') {
        size_t len = strcspn(++p, "/");
        ASSERT(len > 0 && ++depth <= API_PATH_SEGMENTS_MAX);
        n = child(n, slice_of(p, len));
        p += len;
    }
    ASSERT(n->routes[route->method] == NULL);
    n->routes[route->method] = route;
}

struct router *router_new(const struct api_route *routes, size_t count)
{
    struct router *r = mem_zalloc(sizeof *r);
    for (size_t i = 0; i < count; i++) {
        add(r, &routes[i]);
    }
    return r;
}

static void free_children(struct node *n)
{
    while (n->children != NULL) {
        struct node *c = n->children;
        n->children = c->next;
        free_children(c);
        mem_free(c);
    }
    if (n->variable != NULL) {
        free_children(n->variable);
        mem_free(n->variable);
    }
}

void router_free(struct router *r)
{
    if (r != NULL) {
        free_children(&r->root);
        mem_free(r);
    }
}

static bool has_routes(const struct node *n)
{
    for (unsigned m = 0; m < METHODS; m++) {
        if (n->routes[m] != NULL) {
            return true;
        }
    }
    return false;
}

/* As deep as API_PATH_SEGMENTS_MAX. Notes which segments were variables. */
static const struct node *find(const struct node *n,
                               const struct slice *segments,
                               unsigned count,
                               unsigned at,
                               struct router_match *m)
{
    if (at == count) {
        return has_routes(n) ? n : NULL;
    }
    for (const struct node *c = n->children; c != NULL; c = c->next) {
        if (c->literal.len == segments[at].len &&
            memcmp(c->literal.data, segments[at].data, c->literal.len) == 0) {
            const struct node *found = find(c, segments, count, at + 1, m);
            if (found != NULL) {
                return found;
            }
            break;
        }
    }
    if (n->variable == NULL || segments[at].len == 0) {
        return NULL;
    }
    unsigned before = m->variable_count;
    m->variables[m->variable_count++] = (uint8_t)at;
    const struct node *found = find(n->variable, segments, count, at + 1, m);
    if (found == NULL) {
        m->variable_count = before;
    }
    return found;
}

bool router_find(const struct router *r,
                 enum api_method method,
                 const struct slice *segments,
                 unsigned segment_count,
                 struct router_match *ret_match)
{
    *ret_match = (struct router_match){.route = NULL};
    if (segment_count > API_PATH_SEGMENTS_MAX) {
        return false;
    }
    const struct node *n = find(&r->root, segments, segment_count, 0, ret_match);
    if (n == NULL) {
        return false;
    }
    for (unsigned m = 0; m < METHODS; m++) {
        ret_match->allowed |= n->routes[m] != NULL ? 1U << m : 0;
    }
    if ((ret_match->allowed & 1U << API_GET) != 0) {
        ret_match->allowed |= 1U << API_HEAD;
    }
    enum api_method as = method == API_HEAD ? API_GET : method;
    ret_match->route = (unsigned)as < METHODS ? n->routes[as] : NULL;
    return true;
}

static const char *const method_names[METHODS] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};

const char *api_method_name(enum api_method method)
{
    return (unsigned)method < METHODS ? method_names[method] : "OTHER";
}

enum api_method api_method_of(const char *text)
{
    for (unsigned m = 0; m < METHODS; m++) {
        if (strcmp(text, method_names[m]) == 0) {
            return (enum api_method)m;
        }
    }
    return API_METHOD_OTHER;
}

void router_allow(unsigned allowed, char out[ROUTER_ALLOW_SIZE])
{
    size_t len = 0;
    for (unsigned m = 0; m < METHODS; m++) {
        if ((allowed & 1U << m) == 0) {
            continue;
        }
        const char *comma = len > 0 ? ", " : "";
        size_t n = strlen(comma), k = strlen(method_names[m]);
        ASSERT(len + n + k < ROUTER_ALLOW_SIZE);
        memcpy(out + len, comma, n);
        memcpy(out + len + n, method_names[m], k);
        len += n + k;
    }
    out[len] = '\0';
}

static bool in_list(const char *const *names, struct slice name)
{
    for (; names != NULL && *names != NULL; names++) {
        if (strlen(*names) == name.len && memcmp(*names, name.data, name.len) == 0) {
            return true;
        }
    }
    return false;
}

bool router_takes_param(const struct api_route *route, struct slice name)
{
    static const char *const reads[] = {"consistency", "min_revision", "timeout_ms",
                                        "max_staleness_ms", NULL};
    return in_list(route->params, name) ||
           ((route->flags & API_ROUTE_READS) != 0 && in_list(reads, name));
}
