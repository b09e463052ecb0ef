/* SPDX-License-Identifier: Apache-2.0 */
/* A keyspace's policy: a JSON object that is kept as it is given, and what of it the directory
 * itself goes by. */
#ifndef API_POLICY_JSON_H
#define API_POLICY_JSON_H

#include "api/json.h"
#include "directory/directory.h"
#include "directory/policy.h"

enum { POLICY_MAX = 16 << 10 }; /* bytes of its canonical form */

/* As a command wants it. Everything in it points into itself: it is never copied. */
struct policy_rules {
    Cadastre__PolicyRules message;
    Cadastre__PolicyValue values[DIR_POLICY_VALUES];
    Cadastre__PolicyValue *value_of[DIR_POLICY_VALUES];
    char names[DIR_CHECKS_MAX][DIR_NAME_MAX + 1];
    char *name_of[DIR_CHECKS_MAX];
};

/* Of an empty policy. */
void policy_rules_init(struct policy_rules *r);

/* Merges {"name": scalar or array…} at "/policy" into `old` (canonical JSON, "{}" for none),
 * appends the canonical result, at most POLICY_MAX bytes, and gives what it says of movement. */
enum err_code policy_merge(json_t *patch,
                           struct slice old,
                           struct buf *out,
                           struct policy_rules *rules,
                           struct err *e) MUST_CHECK;

#endif
