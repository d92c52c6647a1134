/*
 * The sender's end of a tcp link.
 *
 *      queue     posted, and not all in the kernel:  first, second, ...
 *      headers   [0 .. made) belong to the first `made` of these; a ring buffer
 *      sent      bytes of the first one, with its header, that the kernel has
 *      taken     xfers that the kernel has completely; progress will report them
 *
 * A header, with its payload's check, is made when it is its turn to be sent, so that the payload
 * is still in the cache when the kernel copies it. It is kept until it is sent completely: the
 * payload must not change meanwhile, so its check stays valid.
 *
 * An xfer is done when the kernel has taken its last byte. Nothing is copied here, except with
 * HOOP_CHECK=aead: then several headers and payloads are encrypted into one buffer, and the next
 * ones when the kernel has all of it.
 *
 * A message that may wait is held by the kernel (MSG_MORE), for what follows, or for 200 ms: so an
 * empty message costs a system call but no packet of its own. This is done only shortly after
 * another such message, so that a single one is on time; and never for as many as the receiver
 * would wait for.
 */
#include "base/settings.h"
#include "transports/tcp/tcp_ends.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define TCP_QUEUE 16u /* posted and not sent; a further one gets HOOP_AGAIN */
/* Enough for one call: more would leave the cache while the kernel copies. */
#define TCP_BATCH_BYTES ((size_t)64 << 10)
/* At most this many are sent together, if each follows the last one within this time. */
#define TCP_KEPT_MOST 16u
#define TCP_KEPT_NS HOOP_NS_PER_MS

struct tcp_sender {
    struct hoop_tcp_link tcp;
    struct hoop_xfer_queue taken;
    uint32_t queued;
    uint32_t first, made;
    size_t sent;
    uint32_t kept;      /* messages that may wait and that the kernel holds */
    uint64_t may_at_ns; /* when the last one that may wait was posted */
    struct hoop_tcp_header headers[TCP_QUEUE];
    /* [at .. end) is to be sent; those `made` lie here, after what is sent. NULL: not encrypted. */
    uint8_t *sealed;
    size_t at, end;
};

static struct tcp_sender *sender_from(struct hoop_tcp_link *tcp)
{
    return (struct tcp_sender *)(void *)tcp;
}

struct hoop_tcp_link *hoop_tcp_sender_create(const struct hoop_link_params *params)
{
    struct tcp_sender *sender = calloc(1, sizeof(*sender));
    size_t bytes = 0;
    if (sender == NULL || params->check != HOOP_CHECK_AEAD) {
        return sender != NULL ? &sender->tcp : NULL;
    }
    if (!__builtin_add_overflow(params->chunk_bytes, TCP_BATCH_BYTES + HOOP_TCP_HEADER_BYTES,
                                &bytes)) {
        sender->sealed = malloc(bytes);
    }
    if (sender->sealed == NULL) {
        free(sender);
        return NULL;
    }
    return &sender->tcp;
}

/* Lists what is encrypted and not sent; if there is nothing, encrypts what to send next. Returns
 * the number of bytes. */
static size_t sender_seal(struct tcp_sender *sender, struct iovec *parts, size_t *ret_count)
{
    if (sender->made == 0) {
        sender->at = sender->end = 0;
        for (struct hoop_xfer *xfer = sender->tcp.queue.first;
             xfer != NULL && sender->end < TCP_BATCH_BYTES; xfer = xfer->next) {
            uint8_t *const to = sender->sealed + sender->end;
            const struct hoop_tcp_header header =
                hoop_tcp_header(&sender->tcp, HOOP_TCP_DATA, xfer, to + HOOP_TCP_HEADER_BYTES);
            memcpy(to, &header, sizeof(header));
            sender->end += HOOP_TCP_HEADER_BYTES + xfer->bytes;
            sender->made++;
        }
    }
    parts[0] = (struct iovec){sender->sealed + sender->at, sender->end - sender->at};
    *ret_count = 1;
    return sender->end - sender->at;
}

/* Lists what to send next; parts has room for 2 * TCP_QUEUE. Returns the number of bytes. */
static size_t sender_gather(struct tcp_sender *sender, struct iovec *parts, size_t *ret_count)
{
    size_t bytes = 0, count = 0;
    uint32_t i = 0;
    for (struct hoop_xfer *xfer = sender->tcp.queue.first; xfer != NULL && bytes < TCP_BATCH_BYTES;
         xfer = xfer->next) {
        struct hoop_tcp_header *header = &sender->headers[(sender->first + i) % TCP_QUEUE];
        if (i == sender->made) {
            *header = hoop_tcp_header(&sender->tcp, HOOP_TCP_DATA, xfer, NULL);
            sender->made++;
        }
        parts[count++] = (struct iovec){header, HOOP_TCP_HEADER_BYTES};
        parts[count++] = (struct iovec){xfer->data, xfer->bytes};
        bytes += HOOP_TCP_HEADER_BYTES + xfer->bytes;
        i++;
    }
    /* Part of the first one may be sent already. */
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

/* The kernel has taken so many bytes. */
static void sender_count(struct tcp_sender *sender, size_t bytes)
{
    struct hoop_xfer_queue *queue = &sender->tcp.queue;
    sender->sent += bytes;
    sender->at += bytes;
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
        const size_t bytes = (sender->sealed != NULL ? sender_seal : sender_gather)(
            sender, parts, &message.msg_iovlen);
        if (tcp->base.failure.code != HOOP_OK) {
            break;
        }
        const ssize_t taken =
            sendmsg(tcp->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | (keep ? MSG_MORE : 0));
        if (taken < 0) {
            hoop_tcp_stopped(tcp, errno);
            break;
        }
        tcp->starved_ns = 0;
        sender->kept = keep ? sender->kept + 1 : 0;
        sender_count(sender, (size_t)taken);
        full = (size_t)taken < bytes;
        moved = true;
    }
    return moved;
}

/* May the kernel hold this message, the only one posted? */
static bool sender_keeps(struct tcp_sender *sender, const struct hoop_xfer *xfer)
{
    if (!xfer->may_wait || sender->tcp.peer_holds < 2 * TCP_KEPT_MOST) {
        return false;
    }
    const uint64_t before = sender->may_at_ns;
    sender->may_at_ns = hoop_now_ns();
    return sender->may_at_ns - before < TCP_KEPT_NS && sender->kept + 1 < TCP_KEPT_MOST;
}

/* Sent at once if nothing is queued before it, to be on its way as early as possible. */
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

/* Setting TCP_NODELAY again sends what the kernel holds. */
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

/* A goodbye for which the kernel has no room is left out: then the peer waits a little longer
 * before it takes the link for ended. */
void hoop_tcp_sender_finish(struct hoop_tcp_link *tcp)
{
    struct tcp_sender *sender = sender_from(tcp);
    const bool healthy = tcp->base.failure.code == HOOP_ABORTED && tcp->lost_ns == 0;
    if (tcp->fd >= 0 && healthy && tcp->queue.first == NULL) {
        const struct hoop_xfer nothing = {.bytes = 0};
        const struct hoop_tcp_header goodbye =
            hoop_tcp_header(tcp, HOOP_TCP_GOODBYE, &nothing, NULL);
        (void)send(tcp->fd, &goodbye, sizeof(goodbye), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    (void)hoop_xfer_queue_finish(&sender->taken, HOOP_ABORTED);
    (void)hoop_xfer_queue_finish(&tcp->queue, HOOP_ABORTED);
    free(sender->sealed);
}
