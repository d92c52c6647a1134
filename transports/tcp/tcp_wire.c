/* Headers, and what both ends do when a connection breaks; see tcp_wire.h. */
#include "transports/tcp/tcp_wire.h"
#include "transports/agree.h"
#include "transports/check/checksum.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* ---- Headers --------------------------------------------------------------------------------- */

/* The first 8 bytes of HMAC-SHA256(key, label, number, data). */
static uint64_t tcp_mac(struct hoop_tcp_link *tcp, const char *label, const void *data,
                        size_t bytes)
{
    const struct hoop_link_params *params = &tcp->base.params;
    uint8_t mac[HOOP_MAC_BYTES] = {0};
    uint64_t check;
    const hoop_result_t result =
        hoop_hmac(&tcp->key, label, &tcp->number, sizeof(tcp->number), data, bytes, mac);
    if (result != HOOP_OK) {
        (void)hoop_failure_set(&tcp->base.failure, result, (int)params->me,
                               "rank %u cannot check the data of its link with rank %u: %s",
                               params->me, params->peer, hoop_thread_error());
    }
    memcpy(&check, mac, sizeof(check));
    return check;
}

uint64_t hoop_tcp_header_check(struct hoop_tcp_link *tcp, const struct hoop_tcp_header *header)
{
    const size_t bytes = offsetof(struct hoop_tcp_header, header_check);
    return tcp->base.params.check == HOOP_CHECK_MAC
               ? tcp_mac(tcp, "hoop chunk header", header, bytes)
               : hoop_checksum(HOOP_CHECK_SUM, header, bytes);
}

uint64_t hoop_tcp_payload_check(struct hoop_tcp_link *tcp, const void *data, size_t bytes)
{
    const enum hoop_check check = (enum hoop_check)tcp->base.params.check;
    return check == HOOP_CHECK_MAC ? tcp_mac(tcp, "hoop chunk", data, bytes)
                                   : hoop_checksum(check, data, bytes);
}

struct hoop_tcp_header hoop_tcp_header(struct hoop_tcp_link *tcp, uint64_t kind,
                                       const struct hoop_xfer *xfer)
{
    struct hoop_tcp_header header = {
        .kind = kind,
        .chunk = hoop_chunk_header(&tcp->base, xfer),
        .payload_check = hoop_tcp_payload_check(tcp, xfer->data, xfer->bytes),
    };
    header.header_check = hoop_tcp_header_check(tcp, &header);
    tcp->number++;
    return header;
}

/* ---- The end of a connection ----------------------------------------------------------------- */

void hoop_tcp_stopped(struct hoop_tcp_link *tcp, int err)
{
    const struct hoop_link_params *params = &tcp->base.params;
    if (err != ENOBUFS && err != ENOMEM && err != ETOOMANYREFS) {
        tcp->starved_ns = 0;
    }
    switch (err) {
    case EAGAIN:
    case EINTR:
        return;
    case ENOBUFS:
    case ENOMEM:
    case ETOOMANYREFS: /* the kernel's, temporarily */
        tcp->starved_ns = tcp->starved_ns == 0 ? hoop_now_ns() : tcp->starved_ns;
        tcp->starved_errno = err;
        return;
    case 0:
    case ECONNABORTED:
    case ECONNRESET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ENETUNREACH:
    case EPIPE:
    case EPROTO:
    case ETIMEDOUT:
        tcp->lost_ns = hoop_now_ns();
        tcp->lost_errno = err;
        return;
    default:
        (void)hoop_failure_set(&tcp->base.failure, hoop_from_errno(err), (int)params->me,
                               "rank %u cannot %s rank %u (lane %u): %s", params->me,
                               params->sending ? "send to" : "receive from", params->peer,
                               params->lane, hoop_errno_name(err));
    }
}

void hoop_tcp_blame(struct hoop_tcp_link *tcp)
{
    const struct hoop_link_params *params = &tcp->base.params;
    const int err = tcp->lost_errno, lacking = tcp->starved_errno;
    if (tcp->starved_ns != 0 && hoop_now_ns() - tcp->starved_ns >= HOOP_TCP_STARVED_NS) {
        (void)hoop_failure_set(&tcp->base.failure, hoop_from_errno(lacking), (int)params->me,
                               "rank %u cannot %s rank %u (lane %u), and tried for %llu s: %s",
                               params->me, params->sending ? "send to" : "receive from",
                               params->peer, params->lane, HOOP_TCP_STARVED_NS / HOOP_NS_PER_S,
                               hoop_errno_name(lacking));
    }
    if (tcp->lost_ns == 0 || hoop_now_ns() - tcp->lost_ns < HOOP_TCP_PATIENCE_NS) {
        return;
    }
    if (err == 0 || err == ECONNRESET || err == EPIPE) {
        (void)hoop_failure_set(&tcp->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                               "rank %u closed its data connection with rank %u (lane %u) without "
                               "a goodbye: %s",
                               params->peer, params->me, params->lane,
                               err == 0 ? "end of stream" : hoop_errno_name(err));
    } else {
        (void)hoop_failure_set(
            &tcp->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
            "the data connection of rank %u with rank %u (lane %u) is broken: %s", params->me,
            params->peer, params->lane, hoop_errno_name(err));
    }
}
