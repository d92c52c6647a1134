/*
 * The sender's end of a tcp link.
 *
 *      queue     posted, and not all in the kernel:  first, second, ...
 *      headers   [0 .. made) belong to the first `made` of them; a ring
 *      sent      bytes of the first, with its header, that the kernel has
 *      taken     all in the kernel; progress will say so
 *
 * A header, with its payload's check, is made when its turn to be sent comes, so that the payload
 * is still in the cache when the kernel copies it. It is kept until all of it is sent: a payload
 * may not change meanwhile, nor does what was said about it.
 *
 * An xfer is done when the kernel has taken its last byte. Nothing is copied here.
 *
 * What may wait the kernel keeps (MSG_MORE), for what follows, or for 200 ms: so a message of
 * nothing costs a call, and not the way of a packet. Only where one has just been sent before, so
 * that a single one is on time; and never so many that the receiver waits for them.
 */
#include "transports/tcp/tcp_ends.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

#define TCP_QUEUE 16u /* posted and not sent; more get HOOP_AGAIN */
/* Enough for one call: what would be added behind it cools down while the kernel copies. */
#define TCP_BATCH_BYTES ((size_t)64 << 10)
/* So many go at once, if they follow each other so soon. */
#define TCP_KEPT_MOST 16u
#define TCP_KEPT_NS HOOP_NS_PER_MS

struct tcp_sender {
    struct hoop_tcp_link tcp;
    struct hoop_xfer_queue taken;
    uint32_t queued;
    uint32_t first, made;
    size_t sent;
    uint32_t kept;      /* that may wait, and that the kernel keeps */
    uint64_t may_at_ns; /* when the last one was posted that may */
    struct hoop_tcp_header headers[TCP_QUEUE];
};

static struct tcp_sender *sender_from(struct hoop_tcp_link *tcp)
{
    return (struct tcp_sender *)(void *)tcp;
}

struct hoop_tcp_link *hoop_tcp_sender_create(void)
{
    struct tcp_sender *sender = calloc(1, sizeof(*sender));
    return sender != NULL ? &sender->tcp : NULL;
}

/* Fills in what goes out next; parts has room for 2 * TCP_QUEUE. Returns their bytes. */
static size_t sender_gather(struct tcp_sender *sender, struct iovec *parts, size_t *ret_count)
{
    size_t bytes = 0, count = 0;
    uint32_t i = 0;
    for (struct hoop_xfer *xfer = sender->tcp.queue.first; xfer != NULL && bytes < TCP_BATCH_BYTES;
         xfer = xfer->next) {
        struct hoop_tcp_header *header = &sender->headers[(sender->first + i) % TCP_QUEUE];
        if (i == sender->made) {
            *header = hoop_tcp_header(&sender->tcp, HOOP_TCP_DATA, xfer);
            sender->made++;
        }
        parts[count++] = (struct iovec){header, HOOP_TCP_HEADER_BYTES};
        parts[count++] = (struct iovec){xfer->data, xfer->bytes};
        bytes += HOOP_TCP_HEADER_BYTES + xfer->bytes;
        i++;
    }
    /* Of the first some may be gone. */
    const size_t header_sent =
        sender->sent < HOOP_TCP_HEADER_BYTES ? sender->sent : HOOP_TCP_HEADER_BYTES;
    const size_t payload_sent = sender->sent - header_sent;
    parts[0].iov_base = (uint8_t *)parts[0].iov_base + header_sent;
    parts[0].iov_len -= header_sent;
    if (payload_sent > 0) {
        parts[1].iov_base = (uint8_t *)parts[1].iov_base + payload_sent;
        parts[1].iov_len -= payload_sent;
    }
    *ret_count = count;
    return bytes - sender->sent;
}

/* The kernel took so many bytes. */
static void sender_count(struct tcp_sender *sender, size_t bytes)
{
    struct hoop_xfer_queue *queue = &sender->tcp.queue;
    sender->sent += bytes;
    while (queue->first != NULL && sender->sent >= HOOP_TCP_HEADER_BYTES + queue->first->bytes) {
        sender->sent -= HOOP_TCP_HEADER_BYTES + queue->first->bytes;
        sender->first++;
        sender->made--;
        sender->queued--;
        hoop_xfer_queue_push(&sender->taken, hoop_xfer_queue_pop(queue));
    }
}

/* Gives the kernel what it takes now. True: it took something. */
static bool sender_flush(struct tcp_sender *sender, bool keep)
{
    struct hoop_tcp_link *tcp = &sender->tcp;
    bool moved = false, full = false;
    while (!full && tcp->queue.first != NULL && tcp->lost_ns == 0) {
        struct iovec parts[2 * TCP_QUEUE];
        struct msghdr message = {.msg_iov = parts};
        const size_t bytes = sender_gather(sender, parts, &message.msg_iovlen);
        const ssize_t taken =
            sendmsg(tcp->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | (keep ? MSG_MORE : 0));
        if (taken < 0) {
            hoop_tcp_stopped(tcp, errno);
            break;
        }
        sender->kept = keep ? sender->kept + 1 : 0;
        sender_count(sender, (size_t)taken);
        full = (size_t)taken < bytes;
        moved = true;
    }
    return moved;
}

/* May the kernel keep the only one that is posted? */
static bool sender_keeps(struct tcp_sender *sender, const struct hoop_xfer *xfer)
{
    if (!xfer->may_wait || sender->tcp.peer_holds < 2 * TCP_KEPT_MOST) {
        return false;
    }
    const uint64_t before = sender->may_at_ns;
    sender->may_at_ns = hoop_now_ns();
    return sender->may_at_ns - before < TCP_KEPT_NS && sender->kept + 1 < TCP_KEPT_MOST;
}

/* At once if nothing waits before it: the sooner it is on its way, the better. */
hoop_result_t hoop_tcp_sender_post(struct hoop_link *link, struct hoop_xfer *xfer)
{
    struct tcp_sender *sender = sender_from(hoop_tcp_from(link));
    if (sender->queued == TCP_QUEUE) {
        return HOOP_AGAIN;
    }
    hoop_xfer_queue_push(&sender->tcp.queue, xfer);
    sender->queued++;
    if (sender->queued == 1) {
        (void)sender_flush(sender, sender_keeps(sender, xfer));
    }
    return HOOP_OK;
}

/* To say again that nothing is to be delayed sends what is. */
void hoop_tcp_sender_push(struct hoop_link *link)
{
    struct tcp_sender *sender = sender_from(hoop_tcp_from(link));
    const int one = 1;
    if (sender->kept > 0) {
        sender->kept = 0;
        (void)setsockopt(sender->tcp.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
}

bool hoop_tcp_sender_progress(struct hoop_tcp_link *tcp)
{
    struct tcp_sender *sender = sender_from(tcp);
    bool moved = false;
    if (tcp->queue.first != NULL && tcp->base.failure.code == HOOP_OK) {
        moved = sender_flush(sender, false);
        hoop_tcp_blame(tcp);
    }
    moved |= hoop_xfer_queue_finish(&sender->taken, HOOP_OK);
    if (tcp->base.failure.code != HOOP_OK) {
        moved |= hoop_xfer_queue_finish(&tcp->queue, tcp->base.failure.code);
    }
    return moved;
}

/* A goodbye that the kernel has no room for is left out: the peer then waits a little longer before
 * it believes the end. */
void hoop_tcp_sender_finish(struct hoop_tcp_link *tcp)
{
    struct tcp_sender *sender = sender_from(tcp);
    const bool healthy = tcp->base.failure.code == HOOP_ABORTED && tcp->lost_ns == 0;
    if (tcp->fd >= 0 && healthy && tcp->queue.first == NULL) {
        const struct hoop_xfer nothing = {.bytes = 0};
        const struct hoop_tcp_header goodbye = hoop_tcp_header(tcp, HOOP_TCP_GOODBYE, &nothing);
        (void)send(tcp->fd, &goodbye, sizeof(goodbye), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    (void)hoop_xfer_queue_finish(&sender->taken, HOOP_ABORTED);
    (void)hoop_xfer_queue_finish(&tcp->queue, HOOP_ABORTED);
}
