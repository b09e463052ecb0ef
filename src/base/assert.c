/* SPDX-License-Identifier: Apache-2.0 */
#include "base/assert.h"

#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void assert_fail(const char *cond, const char *file, int line, const char *func)
{
    void *frames[32];
    (void)fprintf(stderr, "%s:%d: %s: assertion failed: %s\n", file, line, func, cond);
    backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
    abort();
}
