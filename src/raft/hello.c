/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/hello.h"

#include "base/assert.h"
#include "raft/bytes.h"

#include <string.h>

static const uint8_t HELLO_MAGIC[8] = {'c', 'a', 'd', 'r', 'a', 'f', 't', 0x1a};

/* The fixed part: type, state, refusal, record count, from, to, generation, founders, cluster,
 * instance, length of the address. The address and the records follow. */
enum {
    FIXED_SIZE = 4 + 4 * 8 + HELLO_CLUSTER_SIZE + REPLICA_INSTANCE_SIZE + 2,
    RECORD_SIZE = 8 + REPLICA_INSTANCE_SIZE
};
_Static_assert(FIXED_SIZE + REPLICA_ADDRESS_MAX + REPLICA_SERVERS_MAX * RECORD_SIZE <=
                   HELLO_BODY_MAX,
               "every hello fits");

size_t hello_encode(const struct hello *h, uint8_t out[HELLO_FRAME_MAX])
{
    size_t address_len = strlen(h->address);
    ASSERT(address_len <= REPLICA_ADDRESS_MAX && h->record_count <= REPLICA_SERVERS_MAX);
    uint8_t *at = out + HELLO_HEADER_SIZE;
    at[0] = (uint8_t)h->type;
    at[1] = (uint8_t)h->state;
    at[2] = (uint8_t)h->refusal;
    at[3] = (uint8_t)h->record_count;
    bytes_put_u64(at + 4, h->from);
    bytes_put_u64(at + 12, h->to);
    bytes_put_u64(at + 20, h->generation);
    bytes_put_u64(at + 28, h->founders);
    memcpy(at + 36, h->cluster, HELLO_CLUSTER_SIZE);
    memcpy(at + 52, h->instance, REPLICA_INSTANCE_SIZE);
    bytes_put_u16(at + 68, (uint16_t)address_len);
    at += FIXED_SIZE;
    memcpy(at, h->address, address_len);
    at += address_len;
    for (unsigned i = 0; i < h->record_count; i++, at += RECORD_SIZE) {
        bytes_put_u64(at, h->record[i].id);
        memcpy(at + 8, h->record[i].instance, REPLICA_INSTANCE_SIZE);
    }
    size_t size = (size_t)(at - out);
    memcpy(out, HELLO_MAGIC, sizeof HELLO_MAGIC);
    bytes_put_u16(out + 8, HELLO_VERSION);
    bytes_put_u16(out + 10, 0);
    bytes_put_u32(out + 12, (uint32_t)(size - HELLO_HEADER_SIZE));
    return size;
}

enum hello_fault hello_header(const uint8_t *header, size_t *ret_body_len)
{
    if (memcmp(header, HELLO_MAGIC, sizeof HELLO_MAGIC) != 0 || bytes_u16(header + 10) != 0) {
        return HELLO_FOREIGN;
    }
    if (bytes_u16(header + 8) != HELLO_VERSION) {
        return HELLO_OTHER_VERSION;
    }
    size_t len = bytes_u32(header + 12);
    if (len < FIXED_SIZE || len > HELLO_BODY_MAX) {
        return HELLO_FOREIGN;
    }
    *ret_body_len = len;
    return HELLO_FINE;
}

bool hello_decode(const uint8_t *body, size_t len, struct hello *ret_hello)
{
    if (len < FIXED_SIZE) {
        return false;
    }
    size_t address_len = bytes_u16(body + 68);
    unsigned records = body[3];
    if (body[0] < HELLO_DIAL || body[0] > HELLO_REFUSE || body[1] < HELLO_FOUNDING ||
        body[1] > HELLO_MEMBER || body[2] >= REFUSE_COUNT ||
        (body[0] == HELLO_REFUSE) != (body[2] != REFUSE_NONE) || records > REPLICA_SERVERS_MAX ||
        address_len > REPLICA_ADDRESS_MAX ||
        len != FIXED_SIZE + address_len + (size_t)records * RECORD_SIZE ||
        memchr(body + FIXED_SIZE, '\0', address_len) != NULL) {
        return false;
    }
    struct hello h = {.type = body[0], .state = body[1], .refusal = body[2]};
    h.from = bytes_u64(body + 4);
    h.to = bytes_u64(body + 12);
    h.generation = bytes_u64(body + 20);
    h.founders = bytes_u64(body + 28);
    memcpy(h.cluster, body + 36, HELLO_CLUSTER_SIZE);
    memcpy(h.instance, body + 52, REPLICA_INSTANCE_SIZE);
    memcpy(h.address, body + FIXED_SIZE, address_len);
    h.record_count = records;
    const uint8_t *at = body + FIXED_SIZE + address_len;
    for (unsigned i = 0; i < records; i++, at += RECORD_SIZE) {
        h.record[i].id = bytes_u64(at);
        memcpy(h.record[i].instance, at + 8, REPLICA_INSTANCE_SIZE);
    }
    *ret_hello = h;
    return true;
}

const char *hello_refusal_text(enum hello_refusal refusal)
{
    static const char *const texts[REFUSE_COUNT] = {
        [REFUSE_NONE] = "none",
        [REFUSE_VERSION] = "another protocol version",
        [REFUSE_CLUSTER] = "another cluster",
        [REFUSE_GENERATION] = "another generation of the cluster",
        [REFUSE_WRONG_SERVER] = "another server than the one dialled",
        [REFUSE_INSTANCE] = "the id belongs to another data directory or was removed",
        [REFUSE_UNKNOWN] = "the id is not known",
        [REFUSE_FOUNDERS] = "another list of founders",
        [REFUSE_NOT_READY] = "not ready",
        [REFUSE_TWICE] = "a server of this id is connected from the address the cluster knows",
    };
    return refusal < REFUSE_COUNT ? texts[refusal] : "unknown";
}
