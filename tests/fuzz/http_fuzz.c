/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes on a connection: each answer is well-formed, no input ends the server or leaves it
 * without an answer for the next one. */
#include "base/assert.h"
#include "tests/fuzz/server.h"
#include "tests/fuzz/target.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { ANSWERS_MAX = 64, WAIT_MS = 50 };

static void next_is_answered(struct api_world *w)
{
    struct client c;
    struct answer a = {0};
    client_open(&c, w->port);
    bool sent = client_print(&c, "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client_read(&c, &a, false, 20000);
    ASSERT(sent && a.status == 200);
    answer_close(&a);
    client_reset(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned runs;
    struct api_world *w = server();
    struct client c;
    client_open(&c, w->port);
    (void)client_send(&c, data, size);
    (void)shutdown(c.fd, SHUT_WR);
    for (unsigned i = 0; i < ANSWERS_MAX; i++) {
        answer_close(&w->answer);
        client_read(&c, &w->answer, size > 5 && memcmp(data, "HEAD ", 5) == 0, WAIT_MS);
        if (w->answer.status == 0) {
            break;
        }
        ASSERT(w->answer.status != 500);
    }
    client_reset(&c);
    if (runs++ % 16 == 0) {
        next_is_answered(w);
    }
    return 0;
}
