/* SPDX-License-Identifier: Apache-2.0 */
#include "client/codec.h"

#include "base/hash.h"
#include "base/parse.h"

#include <string.h>

enum { TOKEN_SIZE = 8 };

static bool is(const json_t *text, const char *want)
{
    const char *s = json_string_value(text);
    return s != NULL && strcmp(s, want) == 0;
}

enum cadastre_status cl_codec_read(const json_t *keyspace, struct cl_codec *ret_codec)
{
    const json_t *scheme = json_object_get(keyspace, "scheme");
    const json_t *encoding = json_object_get(keyspace, "key_encoding");
    const json_t *partition_key = json_object_get(keyspace, "partition_key");
    struct cl_codec c = {.hash = is(scheme, "hash"), .hex = is(encoding, "hex")};
    if (!json_is_string(scheme)) {
        return CADASTRE_INVALID;
    }
    if (!(c.hash || is(scheme, "range")) || !(c.hex || encoding == NULL || is(encoding, "utf8"))) {
        return CADASTRE_UNSUPPORTED;
    }
    if (c.hash && json_is_object(partition_key)) {
        const json_t *delimiter = json_object_get(partition_key, "delimiter");
        json_int_t fields = json_integer_value(json_object_get(partition_key, "fields"));
        if (json_string_length(delimiter) != 1 || fields < 1) {
            return CADASTRE_UNSUPPORTED;
        }
        c.has_fields = true;
        c.delimiter = (uint8_t)json_string_value(delimiter)[0];
        c.fields = (uint64_t)fields;
    }
    *ret_codec = c;
    return CADASTRE_OK;
}

/* What of the key is hashed: all of it when it has fewer fields. */
static struct slice hashed_part(const struct cl_codec *c, struct slice key)
{
    uint64_t left = c->fields;
    for (size_t i = 0; c->has_fields && i < key.len; i++) {
        if (key.data[i] == c->delimiter && --left == 0) {
            return slice_of(key.data, i);
        }
    }
    return key;
}

struct slice cl_codec_routing_key(const struct cl_codec *c, struct slice key, uint8_t *space)
{
    if (!c->hash) {
        return key;
    }
    struct slice part = hashed_part(c, key);
    uint64_t token = __builtin_bswap64(hash_xxh64(part.data, part.len));
    memcpy(space, &token, TOKEN_SIZE);
    if (key.len > 0) {
        memcpy(space + TOKEN_SIZE, key.data, key.len);
    }
    return slice_of(space, TOKEN_SIZE + key.len);
}

json_t *cl_codec_write_key(const struct cl_codec *c, struct slice key)
{
    static const char digits[] = "0123456789abcdef";
    char text[2 * CADASTRE_KEY_MAX];
    if (!c->hex) {
        return json_stringn(key.len > 0 ? (const char *)key.data : "", key.len);
    }
    for (size_t i = 0; i < key.len; i++) {
        text[2 * i] = digits[key.data[i] >> 4];
        text[2 * i + 1] = digits[key.data[i] & 15];
    }
    return json_stringn(text, 2 * key.len);
}

bool cl_codec_read_bound(const struct cl_codec *c,
                         const json_t *text,
                         uint8_t *out,
                         size_t *ret_len)
{
    if (!json_is_string(text)) {
        return false;
    }
    struct slice s = slice_of(json_string_value(text), json_string_length(text));
    size_t max = c->hash ? CL_BOUND_MAX : CADASTRE_KEY_MAX;
    if (c->hash || c->hex) {
        return parse_hex(s, out, max, ret_len);
    }
    if (s.len > max) {
        return false;
    }
    memcpy(out, s.data, s.len);
    *ret_len = s.len;
    return true;
}
