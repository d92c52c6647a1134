/* Headers, and what both ends do when a connection breaks; see tcp_wire.h. */
#include "transports/tcp/tcp_wire.h"
#include "transports/agree.h"
#include "transports/check/checksum.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* ---- Headers --------------------------------------------------------------------------------- */

/* The bytes before a header's own check. */
#define TCP_CHECKED offsetof(struct hoop_tcp_header, header)

/* The two messages of a chunk. */
enum tcp_part { TCP_PART_HEADER, TCP_PART_PAYLOAD };

static struct hoop_tcp_check tcp_seal(struct hoop_tcp_link *tcp, enum tcp_part part,
                                      const void *data, size_t bytes, void *ret_data)
{
    const struct hoop_link_params *params = &tcp->base.params;
    struct hoop_tcp_check check = {{0}};
    const hoop_result_t result =
        hoop_aead_seal(tcp->aead, tcp->number, part, data, bytes, ret_data, (uint8_t *)check.words);
    if (result != HOOP_OK) {
        (void)hoop_failure_set(&tcp->base.failure, result, (int)params->me,
                               "rank %u cannot encrypt data for rank %u: %s", params->me,
                               params->peer, hoop_thread_error());
    }
    return check;
}

struct hoop_tcp_header hoop_tcp_header(struct hoop_tcp_link *tcp, uint64_t kind,
                                       const struct hoop_xfer *xfer, void *sealed)
{
    const enum hoop_check check = (enum hoop_check)tcp->base.params.check;
    struct hoop_tcp_header header = {.kind = kind, .chunk = hoop_chunk_header(&tcp->base, xfer)};
    if (tcp->aead != NULL) {
        header.payload = tcp_seal(tcp, TCP_PART_PAYLOAD, xfer->data, xfer->bytes, sealed);
        header.header = tcp_seal(tcp, TCP_PART_HEADER, &header, TCP_CHECKED, &header);
    } else {
        header.payload.words[0] = hoop_checksum(check, xfer->data, xfer->bytes);
        header.header.words[0] = hoop_checksum(HOOP_CHECK_SUM, &header, TCP_CHECKED);
    }
    tcp->number++;
    return header;
}

/* Is this what the peer sealed? */
static bool tcp_open(struct hoop_tcp_link *tcp, enum tcp_part part, void *data, size_t bytes,
                     const struct hoop_tcp_check *said)
{
    return hoop_aead_open(tcp->aead, tcp->number, part, data, bytes,
                          (const uint8_t *)said->words) == HOOP_OK;
}

bool hoop_tcp_header_open(struct hoop_tcp_link *tcp, struct hoop_tcp_header *header)
{
    const struct hoop_link_params *params = &tcp->base.params;
    if (tcp->aead != NULL) {
        if (!tcp_open(tcp, TCP_PART_HEADER, header, TCP_CHECKED, &header->header)) {
            (void)hoop_failure_set(&tcp->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                                   "the header of what rank %u sent to rank %u (lane %u) has a "
                                   "wrong tag: the data were damaged on the way",
                                   params->peer, params->me, params->lane);
        }
        return tcp->base.failure.code == HOOP_OK;
    }
    const struct hoop_tcp_check sum = {{hoop_checksum(HOOP_CHECK_SUM, header, TCP_CHECKED)}};
    if (memcmp(&sum, &header->header, sizeof(sum)) != 0) {
        (void)hoop_failure_set(&tcp->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                               "the header of what rank %u sent to rank %u (lane %u) has the check "
                               "%016llx and says %016llx: the data were damaged on the way",
                               params->peer, params->me, params->lane,
                               (unsigned long long)sum.words[0],
                               (unsigned long long)header->header.words[0]);
    }
    return tcp->base.failure.code == HOOP_OK;
}

bool hoop_tcp_payload_open(struct hoop_tcp_link *tcp, const struct hoop_xfer *xfer, void *data,
                           const struct hoop_tcp_check *said)
{
    const struct hoop_link_params *params = &tcp->base.params;
    if (tcp->aead == NULL) {
        const uint64_t sum = hoop_checksum((enum hoop_check)params->check, data, xfer->bytes);
        if (sum != said->words[0]) {
            hoop_chunk_damaged(&tcp->base, xfer, said->words[0], sum);
        }
    } else if (!tcp_open(tcp, TCP_PART_PAYLOAD, data, xfer->bytes, said)) {
        (void)hoop_failure_set(&tcp->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                               "rank %u sent chunk %llu of operation %u to rank %u (lane %u, %zu "
                               "bytes), but what came has a wrong tag (aead): the data were "
                               "damaged on the way",
                               params->peer, (unsigned long long)xfer->chunk, xfer->op, params->me,
                               params->lane, xfer->bytes);
    }
    return tcp->base.failure.code == HOOP_OK;
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
