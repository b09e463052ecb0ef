/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RAFT_ACKED_H
#define RAFT_ACKED_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes that the peer's kernel has acknowledged on a TCP connection so far, and those in ours that
 * it has not. False when it can't be asked. */
bool acked_bytes(int fd, uint64_t *ret_acked, uint64_t *ret_waiting);

/* The kernel's name for this socket, never given twice while it runs; 0 when it can't be asked. */
uint64_t acked_socket(int fd);

#endif
