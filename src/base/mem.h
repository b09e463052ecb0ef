/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation. Running out of memory ends the process with a message: state is rebuilt from snapshot
 * and log, so dying is safe and half an apply is not. No function here returns NULL. Any thread. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t size) __attribute__((malloc, returns_nonnull));
void *mem_zalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *mem_realloc(void *p, size_t size) __attribute__((returns_nonnull));
void *mem_dup(const void *p, size_t size) __attribute__((returns_nonnull));
char *mem_strdup(const char *s) __attribute__((returns_nonnull));
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2), returns_nonnull));

/* Accepts NULL. */
void mem_free(void *p);

#endif
