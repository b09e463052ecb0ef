/* SPDX-License-Identifier: Apache-2.0 */
/* Routes keys from standard input by a cached map, and says when they move:
 *
 *     cc -o router router.c $(pkg-config --cflags --libs libcadastre)
 *     seq 100 | ./router http://127.0.0.1:7400 orders
 *
 * A real program sends its request to `address` with the epoch, and calls cadastre_router_stale()
 * when the node answers that it knows another one, or does not answer. */
#include <cadastre.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { READY_MS = 10000, WAIT_MS = 2000, LINE_SIZE = CADASTRE_KEY_MAX + 2 };

static void log_event(void *arg, const char *name, const char *detail)
{
    (void)arg;
    (void)fprintf(stderr, "%s: %s\n", name, detail);
}

static void show(struct cadastre_router *router, const char *key)
{
    struct cadastre_route route;
    enum cadastre_status status = cadastre_route_wait(router, key, strlen(key), WAIT_MS, &route);
    if (status != CADASTRE_OK && status != CADASTRE_STALE) {
        (void)printf("%s: %s\n", key, cadastre_status_name(status));
        return;
    }
    (void)printf("%s: partition %" PRIu64 " at epoch %" PRIu64 " on %s (%s), seen %" PRIu64
                 " ms ago\n",
                 key, route.partition, route.epoch, route.node[0] != '\0' ? route.node : "no node",
                 route.address, route.age_ms);
}

int main(int argc, char **argv)
{
    char line[LINE_SIZE];
    struct cadastre_error error = {CADASTRE_OK, "", ""};
    if (argc != 3) {
        (void)fprintf(stderr, "usage: router ENDPOINTS KEYSPACE <KEYS\n");
        return 2;
    }
    struct cadastre_router_options options = {
        .endpoints = argv[1], .keyspace = argv[2], .event = log_event};
    struct cadastre_router *router = cadastre_router_new(&options, &error);
    if (router == NULL || cadastre_router_ready(router, READY_MS, &error) != CADASTRE_OK) {
        (void)fprintf(stderr, "router: %s: %s\n", cadastre_status_name(error.status), error.detail);
        cadastre_router_free(router);
        return 1;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        show(router, line);
        (void)fflush(stdout);
    }
    cadastre_router_free(router);
    return 0;
}
