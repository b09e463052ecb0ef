/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RAFT_ACKED_H
#define RAFT_ACKED_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes that the peer's kernel has acknowledged on a TCP connection so far. False when it can't be
 * asked. */
bool acked_bytes(int fd, uint64_t *ret_bytes);

#endif
