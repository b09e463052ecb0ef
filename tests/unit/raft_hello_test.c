/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/hello.h"

#include "base/mem.h"
#include "raft/bytes.h"
#include "tests/harness/tap.h"

#include <string.h>

static struct hello sample(unsigned records)
{
    struct hello h = {.type = HELLO_ACCEPT,
                      .state = HELLO_MEMBER,
                      .from = 3,
                      .to = 1,
                      .generation = 2,
                      .founders = UINT64_C(0x1122334455667788),
                      .address = "server-3.example:7401",
                      .record_count = records};
    memset(h.cluster, 0xc1, sizeof h.cluster);
    memset(h.instance, 0x1e, sizeof h.instance);
    for (unsigned i = 0; i < records; i++) {
        h.record[i].id = i + 1;
        memset(h.record[i].instance, (int)i, sizeof h.record[i].instance);
    }
    return h;
}

static bool same(const struct hello *a, const struct hello *b)
{
    bool equal = a->type == b->type && a->state == b->state && a->refusal == b->refusal &&
                 a->from == b->from && a->to == b->to && a->generation == b->generation &&
                 a->founders == b->founders && strcmp(a->address, b->address) == 0 &&
                 memcmp(a->cluster, b->cluster, sizeof a->cluster) == 0 &&
                 memcmp(a->instance, b->instance, sizeof a->instance) == 0 &&
                 a->record_count == b->record_count;
    for (unsigned i = 0; equal && i < a->record_count; i++) {
        equal = a->record[i].id == b->record[i].id &&
                memcmp(a->record[i].instance, b->record[i].instance, REPLICA_INSTANCE_SIZE) == 0;
    }
    return equal;
}

static void decode_gives_back_what_was_encoded(void)
{
    for (unsigned records = 0; records <= REPLICA_SERVERS_MAX; records++) {
        struct hello h = sample(records), got = {0};
        uint8_t frame[HELLO_FRAME_MAX];
        size_t body = 0;
        memset(h.address, 'a', records * 10);
        size_t size = hello_encode(&h, frame);
        tap_note("records=%u", records);
        CHECK_U64(hello_header(frame, &body), HELLO_FINE);
        CHECK_U64(body + HELLO_HEADER_SIZE, size);
        CHECK(hello_decode(frame + HELLO_HEADER_SIZE, body, &got));
        CHECK(same(&h, &got));
    }
}

static void other_lengths_are_refused(void)
{
    struct hello h = sample(3), got;
    uint8_t frame[HELLO_FRAME_MAX] = {0};
    size_t size = hello_encode(&h, frame) - HELLO_HEADER_SIZE;
    for (size_t len = 0; len <= HELLO_BODY_MAX; len++) {
        if (len != size) {
            uint8_t *body = mem_zalloc(len);
            memcpy(body, frame + HELLO_HEADER_SIZE, len < size ? len : size);
            tap_note("len=%zu instead of %zu", len, size);
            CHECK(!hello_decode(body, len, &got));
            mem_free(body);
        }
    }
}

static void bad_headers_are_refused(void)
{
    struct hello h = sample(0);
    uint8_t frame[HELLO_FRAME_MAX];
    size_t len = 0;
    (void)hello_encode(&h, frame);
    static const uint32_t lengths[] = {0, 1, 69, HELLO_BODY_MAX + 1, 1u << 20, UINT32_MAX};
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        bytes_put_u32(frame + 12, lengths[i]);
        tap_note("length=%u", lengths[i]);
        CHECK_U64(hello_header(frame, &len), HELLO_FOREIGN);
    }
    (void)hello_encode(&h, frame);
    bytes_put_u16(frame + 8, HELLO_VERSION + 1);
    CHECK_U64(hello_header(frame, &len), HELLO_OTHER_VERSION);
    (void)hello_encode(&h, frame);
    frame[0] = 'C';
    CHECK_U64(hello_header(frame, &len), HELLO_FOREIGN);
}

static void bad_fields_are_refused(void)
{
    static const struct {
        const char *name;
        unsigned at;
        uint8_t value;
    } rows[] = {{"no type", 0, 0},
                {"unknown type", 0, 4},
                {"no state", 1, 0},
                {"unknown state", 1, 3},
                {"unknown refusal", 2, REFUSE_COUNT},
                {"accepted with a reason not to", 2, REFUSE_CLUSTER},
                {"more records than there are", 3, 17},
                {"a zero byte in the address", 71, 0}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hello h = sample(2), got;
        uint8_t frame[HELLO_FRAME_MAX];
        size_t size = hello_encode(&h, frame) - HELLO_HEADER_SIZE;
        frame[HELLO_HEADER_SIZE + rows[i].at] = rows[i].value;
        tap_note("%s", rows[i].name);
        CHECK(!hello_decode(frame + HELLO_HEADER_SIZE, size, &got));
    }
}

int main(void)
{
    RUN(decode_gives_back_what_was_encoded);
    RUN(other_lengths_are_refused);
    RUN(bad_headers_are_refused);
    RUN(bad_fields_are_refused);
    return tap_done();
}
