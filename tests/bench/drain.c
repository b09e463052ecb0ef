/* SPDX-License-Identifier: Apache-2.0 */
/* Takes one whole answer and throws it away, as fast as it comes.
 *
 *   drain PORT PATH        prints one JSON object: bytes, first_ms, seconds */
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "tests/bench/load.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

enum { READ_BYTES = 256 << 10, REQUEST_BYTES = 1024, DEADLINE_MS = 60000 };

int main(int argc, char **argv)
{
    uint64_t port = 0, bytes = 0, first = 0;
    char request[REQUEST_BYTES];
    if (argc != 3 || !parse_u64(argv[1], 65535, &port)) {
        (void)fprintf(stderr, "usage: drain PORT PATH\n");
        return 2;
    }
    int fd = load_connect((uint16_t)port);
    int len = snprintf(request, sizeof request,
                       "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", argv[2]);
    char *buffer = mem_alloc(READ_BYTES);
    uint64_t from = clock_mono_ns();
    load_write(fd, request, (size_t)len);
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, DEADLINE_MS) != 1) {
            (void)fprintf(stderr, "drain: nothing came for %d ms\n", DEADLINE_MS);
            return 1;
        }
        ssize_t n = read(fd, buffer, READ_BYTES);
        if (n <= 0) {
            break;
        }
        first = first == 0 ? clock_mono_ns() : first;
        bytes += (uint64_t)n;
    }
    (void)printf("{\"bytes\":%" PRIu64 ",\"first_ms\":%.3f,\"seconds\":%.4f}\n", bytes,
                 (double)(first - from) / 1e6, (double)(clock_mono_ns() - from) / 1e9);
    mem_free(buffer);
    return 0;
}
