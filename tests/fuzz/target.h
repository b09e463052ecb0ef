/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target: any bytes, and nothing but our own assertions and the sanitizers to say that
 * something is wrong. */
#ifndef TESTS_FUZZ_TARGET_H
#define TESTS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
