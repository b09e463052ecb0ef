/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP API: docs/ARCHITECTURE.md and openapi.yaml are the contract. */
#ifndef API_API_H
#define API_API_H

#include "base/err.h"
#include "control/control.h"

struct api;

struct api_options {
    const char *addr;         /* host:port to listen on; "" of port 0 takes any */
    unsigned threads;         /* 0: the number of cores, at most 8 */
    unsigned connections_max; /* 0: 20000, or what RLIMIT_NOFILE leaves */
    const char *version;      /* for /metrics and the Server header */
    const char *scratch_dir;  /* where backups are made to be sent; NULL: TMPDIR, or /tmp */
    uint64_t election_ms; /* 0: 1000. A server is ready if it heard a leader within twice that. */
};

/* Listens and serves until the process ends. ERR_IO naming the address when it is in use. */
enum err_code api_start(struct control *control,
                        const struct api_options *options,
                        struct api **ret_api,
                        struct err *e) MUST_CHECK;
/* The port really bound. */
uint16_t api_port(const struct api *api);
/* Ends it all, for tests. The feed may still publish: its listener must be gone or the loop ended
 * before. */
void api_stop(struct api *api);

#endif
