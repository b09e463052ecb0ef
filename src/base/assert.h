/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions that stay on in release builds. For our own mistakes only; input is answered with an
 * error. */
#ifndef BASE_ASSERT_H
#define BASE_ASSERT_H

#define ASSERT(cond) ((cond) ? (void)0 : assert_fail(#cond, __FILE__, __LINE__, __func__))

#define UNREACHABLE() assert_fail("unreachable", __FILE__, __LINE__, __func__)

/* Prints the condition, the place and a backtrace to stderr, then aborts. */
_Noreturn void assert_fail(const char *cond, const char *file, int line, const char *func);

#endif
