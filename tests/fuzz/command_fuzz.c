/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a committed command, on a populated state: apply never aborts, a refusal changes
 * nothing, and the state stays whole. One input is several commands, each with a length byte pair
 * before it. */
#include "base/assert.h"
#include "directory/directory.h"
#include "tests/fuzz/target.h"

#include <stdio.h>
#include <string.h>

static void apply(struct directory *d, uint64_t index, struct slice bytes)
{
    struct dir_effects *effects = NULL;
    const struct dir_view *state = directory_state(d);
    dir_rev before = state->revision;
    struct dir_result *r = directory_apply(d, index, bytes, &effects);
    dir_rev after = directory_state(d)->revision;
    ASSERT(after == before || (after == before + 1 && r->err.code == ERR_OK));
    result_unref(r);
    while (effects != NULL) {
        struct dir_effects *next = effects->next;
        effects->next = NULL;
        dir_effects_free(effects);
        effects = next;
    }
    directory_publish(d);
}

static void apply_message(struct directory *d, uint64_t index, const Cadastre__Command *message)
{
    uint8_t packed[4096];
    size_t n = cadastre__command__get_packed_size(message);
    ASSERT(n <= sizeof packed);
    (void)cadastre__command__pack(message, packed);
    apply(d, index, slice_of(packed, n));
}

static void populate(struct directory *d)
{
    Cadastre__Command message;
    Cadastre__NodePut node;
    Cadastre__KeyspaceCreate keyspace;
    uint8_t first[] = "d", second[] = "m", policy[] = "{}";
    char name[] = "n1", address[] = "h:1", ks[] = "ks", hashed[] = "hs";
    ProtobufCBinaryData splits[] = {{1, first}, {1, second}};
    cadastre__command__init(&message);
    cadastre__node_put__init(&node);
    cadastre__keyspace_create__init(&keyspace);
    node.name = name;
    node.address = address;
    node.is_static = true;
    message.required_version = DIR_COMMAND_VERSION;
    message.body_case = CADASTRE__COMMAND__BODY_NODE_PUT;
    message.node_put = &node;
    apply_message(d, 1, &message);
    keyspace.name = ks;
    keyspace.scheme = DIR_SCHEME_RANGE;
    keyspace.key_encoding = DIR_ENCODING_UTF8;
    keyspace.authority = DIR_AUTHORITY_EXCLUSIVE;
    keyspace.splits = splits;
    keyspace.n_splits = 2;
    keyspace.policy = (ProtobufCBinaryData){2, policy};
    message.body_case = CADASTRE__COMMAND__BODY_KEYSPACE_CREATE;
    message.keyspace_create = &keyspace;
    apply_message(d, 2, &message);
    keyspace.name = hashed;
    keyspace.scheme = DIR_SCHEME_HASH;
    keyspace.n_splits = 0;
    keyspace.partitions = 4;
    apply_message(d, 3, &message);
    ASSERT(directory_state(d)->partitions.count == 7);
}

static void fail(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "%s\n", line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct directory *d = directory_new();
    uint64_t index = 4;
    populate(d);
    while (size >= 2) {
        size_t len = (size_t)data[0] << 8 | data[1];
        data += 2;
        size -= 2;
        len = len < size ? len : size;
        apply(d, index++, slice_of(data, len));
        data += len;
        size -= len;
    }
    uint64_t violations = dir_check(directory_state(d), fail, NULL, 8);
    ASSERT(violations == 0);
    directory_free(d);
    return 0;
}
