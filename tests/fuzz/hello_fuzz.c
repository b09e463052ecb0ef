/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a handshake: refused, or read to a hello that is written as the same bytes. */
#include "base/assert.h"
#include "raft/hello.h"
#include "tests/fuzz/target.h"

#include <string.h>

static void check_body(const uint8_t *body, size_t len)
{
    struct hello h;
    uint8_t frame[HELLO_FRAME_MAX];
    if (len <= HELLO_BODY_MAX && hello_decode(body, len, &h)) {
        size_t size = hello_encode(&h, frame), again_len;
        ASSERT(size == HELLO_HEADER_SIZE + len &&
               memcmp(frame + HELLO_HEADER_SIZE, body, len) == 0);
        ASSERT(hello_header(frame, &again_len) == HELLO_FINE && again_len == len);
        ASSERT(hello_refusal_text(h.refusal) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t len = 0;
    check_body(data, size);
    if (size >= HELLO_HEADER_SIZE && hello_header(data, &len) == HELLO_FINE) {
        ASSERT(len <= HELLO_BODY_MAX);
        check_body(data + HELLO_HEADER_SIZE, size - HELLO_HEADER_SIZE);
    }
    return 0;
}
