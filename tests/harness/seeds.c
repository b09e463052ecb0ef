/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/seeds.h"

#include "base/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void seeds_read(const char *name, uint64_t from, uint64_t to, uint64_t *ret_from, uint64_t *ret_to)
{
    const char *text = getenv(name);
    char first[24] = "";
    *ret_from = from;
    *ret_to = to;
    if (text == NULL) {
        return;
    }
    const char *colon = strchr(text, ':');
    if (colon != NULL) {
        (void)snprintf(first, sizeof first, "%.*s", (int)(colon - text), text);
    }
    if (colon == NULL || !parse_u64(first, UINT64_MAX, ret_from) ||
        !parse_u64(colon + 1, UINT64_MAX, ret_to) || *ret_to <= *ret_from) {
        (void)printf("Bail out! %s is not from:to\n", name);
        exit(2);
    }
}
