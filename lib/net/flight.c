/* See flight.h. */
#include "net/flight.h"
#include <linux/sockios.h>
#include <linux/tcp.h> /* the struct tcp_info of netinet/tcp.h is older */
#include <netinet/in.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

bool hoop_flight_look(int fd, struct hoop_flight *ret)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);
    int queued = 0;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        bytes < offsetof(struct tcp_info, tcpi_bytes_received) ||
        ioctl(fd, SIOCOUTQ, &queued) != 0) {
        return false;
    }
    ret->landed_bytes = info.tcpi_bytes_acked;
    /* Data queued with no packet in flight waits for room at the receiver, which is no loss. But if
     * the window has room, this machine has no route, and TCP does not even begin to send. A
     * receiver that has dropped a packet for lack of room says that it has none at all. */
    const bool stuck = info.tcpi_snd_mss > 0 && info.tcpi_snd_wnd >= info.tcpi_snd_mss;
    const bool full = bytes > offsetof(struct tcp_info, tcpi_snd_wnd) && info.tcpi_snd_wnd == 0;
    ret->bytes = queued > 0 && !full && (info.tcpi_unacked > 0 || stuck) ? (uint64_t)queued : 0;
    return true;
}
