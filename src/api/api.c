/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the API together: what handlers share, the HTTP server, and the feed that wakes those who
 * wait. */
#include "api/api.h"

#include "api/endpoints.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

static const char *scratch_dir(const struct api_options *options)
{
    const char *dir = options->scratch_dir;
    if (dir == NULL) {
        dir = getenv("TMPDIR");
    }
    return dir != NULL && dir[0] != '\0' ? dir : "/tmp";
}

static void api_free(struct api *api)
{
    if (api->http != NULL) {
        http_server_stop(api->http);
    }
    jobs_free(api->jobs);
    cursors_free(api->cursors);
    watchers_free(api->watchers);
    patch_gate_free(api->patches);
    mem_free(api->version);
    mem_free(api->scratch_dir);
    mem_free(api);
}

enum err_code api_start(struct control *control,
                        const struct api_options *options,
                        struct api **ret_api,
                        struct err *e)
{
    struct api *api = mem_zalloc(sizeof *api);
    struct http_options http = {
        .addr = options->addr,
        .threads = options->threads,
        .connections_max = options->connections_max,
        .app = api,
    };
    http.routes = api_routes(&http.route_count);
    api->control = control;
    api->version = mem_strdup(options->version);
    api->scratch_dir = mem_strdup(scratch_dir(options));
    api->election_ms = options->election_ms > 0 ? options->election_ms : 1000;
    api->started_ms = clock_mono_ms();
    api->cursors = cursors_new();
    api->watchers = watchers_new();
    api->patches = patch_gate_new();
    api->jobs = jobs_new(api);
    if (http_server_start(&http, &api->http, e) != ERR_OK) {
        api_free(api);
        return e->code;
    }
    feed_listen(control_feed(control), http_server_published, api->http);
    *ret_api = api;
    return ERR_OK;
}

uint16_t api_port(const struct api *api)
{
    return http_server_port(api->http);
}

void api_stop(struct api *api)
{
    api_free(api);
}
