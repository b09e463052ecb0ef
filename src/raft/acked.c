/* SPDX-License-Identifier: Apache-2.0 */
/* A file of its own: <linux/tcp.h>, which has the field, and <netinet/tcp.h>, which <uv.h>
 * includes, exclude each other. */
#include "raft/acked.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

bool acked_bytes(int fd, uint64_t *ret_acked, uint64_t *ret_waiting)
{
    int waiting = 0;
    struct tcp_info info;
    socklen_t len = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
        len < offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked ||
        ioctl(fd, SIOCOUTQ, &waiting) != 0) {
        return false;
    }
    *ret_acked = info.tcpi_bytes_acked;
    *ret_waiting = (uint64_t)waiting;
    return true;
}

uint64_t acked_socket(int fd)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof cookie;
    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) == 0 ? cookie : 0;
}
