/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the directory: JSON to values. Members that are not known are ignored, so that an
 * older library understands a newer server; what is there must make sense. */
#ifndef CLIENT_DECODE_H
#define CLIENT_DECODE_H

#include "client/codec.h"

/* One value and nothing after it; NULL when it is none. The caller releases it. */
json_t *cl_json_parse(struct slice text);

/* An integer within [0, 2^53); false when it is not there or is not one. */
bool cl_json_u64(const json_t *object, const char *name, uint64_t *ret_value);
/* "" and false when it is not there, is no text, or does not fit. */
bool cl_json_text(const json_t *object, const char *name, char *out, size_t size);

enum cadastre_role cl_role_read(const json_t *text);
/* 0: none that is known. */
enum cadastre_authority cl_authority_read(const json_t *text);

/* A Route. NULL when it makes no sense. */
struct cl_entry *cl_decode_route(const struct cl_codec *c, const json_t *route);

#endif
