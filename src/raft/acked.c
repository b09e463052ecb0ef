/* SPDX-License-Identifier: Apache-2.0 */
/* A file of its own: <linux/tcp.h>, which has the field, and <netinet/tcp.h>, which <uv.h>
 * includes, exclude each other. */
#include "raft/acked.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

bool acked_bytes(int fd, uint64_t *ret_bytes)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
        len < offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked) {
        return false;
    }
    *ret_bytes = info.tcpi_bytes_acked;
    return true;
}
