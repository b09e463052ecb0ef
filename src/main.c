/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include "api/router.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    struct config config;
    struct err e;
    if (config_read(argc, argv, &config, &e) != ERR_OK) {
        (void)fprintf(stderr, "cadastred: %s\ntry 'cadastred --help'\n", e.detail);
        return EXIT_FLAGS;
    }
    switch (config.action) {
    case CONFIG_HELP:
        config_help(stdout);
        return 0;
    case CONFIG_VERSION:
        (void)printf("cadastred %s\n", CADASTRE_VERSION);
        return 0;
    case CONFIG_PRINT:
        config_print(&config, stdout);
        return 0;
    case CONFIG_LIST_ROUTES:
        api_list_routes(stdout);
        return 0;
    case CONFIG_CHECK:
        return server_check(config.data_dir);
    case CONFIG_SERVE:
        break;
    }
    /* libraft's writes and snapshots share libuv's pool: four threads would make them wait for each
     * other. */
    if (setenv("UV_THREADPOOL_SIZE", "12", 0) != 0) {
        return EXIT_DATA;
    }
    return server_run(&config);
}
