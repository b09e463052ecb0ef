/* SPDX-License-Identifier: Apache-2.0 */
/* Lines as command line arguments: refused with a reason, or a configuration that can be shown. */
#include "base/assert.h"
#include "base/mem.h"
#include "config.h"
#include "tests/fuzz/target.h"

#include <stdio.h>
#include <string.h>

enum { ARGS_MAX = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char program[] = "cadastred";
    static FILE *nowhere;
    char *text = mem_alloc(size + 1), *argv[ARGS_MAX + 2] = {program};
    int argc = 1;
    struct config c;
    struct err e;
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *at = text; *at != '\0' && argc <= ARGS_MAX;) {
        argv[argc++] = at;
        at += strcspn(at, "\n");
        if (*at == '\n') {
            *at++ = '\0';
        }
    }
    if (nowhere == NULL) {
        nowhere = fopen("/dev/null", "w");
        ASSERT(nowhere != NULL);
    }
    if (config_read(argc, argv, &c, &e) == ERR_OK) {
        config_print(&c, nowhere);
    } else {
        ASSERT(e.detail[0] != '\0');
    }
    mem_free(text);
    return 0;
}
