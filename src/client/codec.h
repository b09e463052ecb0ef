/* SPDX-License-Identifier: Apache-2.0 */
/* How a keyspace turns keys into routing keys, and writes both in JSON. Plain values; any thread.
 */
#ifndef CLIENT_CODEC_H
#define CLIENT_CODEC_H

#include "client/entry.h"

#include <jansson.h>

struct cl_codec {
    bool hash;       /* token, then key; else the key itself */
    bool hex;        /* how keys are written; bounds of a hash keyspace are in hex always */
    bool has_fields; /* hashes the first `fields` fields only */
    uint8_t delimiter;
    uint64_t fields;
    struct cl_codec *before; /* of a router: the one it replaced, which readers may still use */
};

/* From GET /v1/keyspaces/{ks}. CADASTRE_UNSUPPORTED: a scheme that is not known here. */
enum cadastre_status cl_codec_read(const json_t *keyspace, struct cl_codec *ret_codec);

/* The routing key: `key` itself, or in `space`, which holds CL_BOUND_MAX bytes. */
struct slice cl_codec_routing_key(const struct cl_codec *c, struct slice key, uint8_t *space);

/* A key as JSON; NULL when it can't be written: not UTF-8 where it has to be. */
json_t *cl_codec_write_key(const struct cl_codec *c, struct slice key);
/* A bound; `out` holds CL_BOUND_MAX bytes. */
bool cl_codec_read_bound(const struct cl_codec *c,
                         const json_t *text,
                         uint8_t *out,
                         size_t *ret_len);

#endif
