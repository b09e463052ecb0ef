/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *or_die(void *p, size_t size)
{
    if (p == NULL) {
        (void)fprintf(stderr, "out of memory: %zu bytes\n", size);
        abort();
    }
    return p;
}

void *mem_alloc(size_t size)
{
    return or_die(malloc(size > 0 ? size : 1), size);
}

void *mem_zalloc(size_t size)
{
    return or_die(calloc(1, size > 0 ? size : 1), size);
}

void *mem_realloc(void *p, size_t size)
{
    return or_die(realloc(p, size > 0 ? size : 1), size);
}

void *mem_dup(const void *p, size_t size)
{
    void *copy = mem_alloc(size);
    if (size > 0) {
        memcpy(copy, p, size);
    }
    return copy;
}

char *mem_strdup(const char *s)
{
    return mem_dup(s, strlen(s) + 1);
}

char *mem_printf(const char *fmt, ...)
{
    char *s = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&s, fmt, args);
    va_end(args);
    return or_die(n < 0 ? NULL : s, 0);
}

void mem_free(void *p)
{
    free(p);
}
