/*
 * Links over TCP: each has its own connection, on which payload flows from the sender to the
 * receiver and nothing the other way.
 *
 *      | header | payload | header | payload | ... | goodbye |
 *
 * This file makes and destroys links. tcp_send.c and tcp_recv.c do the work of the two ends,
 * tcp_wire.c what both need. docs/inside/tcp.md has the format, and the meaning of a connection's
 * end.
 *
 * The connection comes from params.stream, after the other end has proved who it is. Payload is
 * checked against accidents on the way; with HOOP_CHECK=aead it is encrypted instead.
 */
#include "base/sizes.h"
#include "runtime/watch.h"
#include "transports/agree.h"
#include "transports/check/checksum.h"
#include "transports/table.h"
#include "transports/tcp/tcp_ends.h"
#include <assert.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

#define TCP_HOLDS 64u
#define TCP_MAGIC 0x31706374u /* "tcp1" */

struct tcp_blob {
    struct hoop_blob_head head;
    uint32_t check;
    uint32_t holds;                   /* the receiver's hoop_link_holds(); 0 from a sender */
    struct hoop_address data_address; /* the receiver's; all zero from a sender */
};
_Static_assert(sizeof(struct tcp_blob) <= HOOP_BLOB_BYTES, "the blob is too small");

/* Empty messages that the kernel at this end holds; each takes a packet, of a page at most. */
static uint32_t tcp_holds_of(const struct hoop_link_params *params)
{
    const uint64_t pages = params->buffer_bytes / HOOP_PAGE_BYTES;
    return params->buffer_bytes == 0 || pages > TCP_HOLDS ? TCP_HOLDS : (uint32_t)pages;
}

static bool tcp_reaches(bool same_process, bool same_machine)
{
    (void)same_process;
    (void)same_machine;
    return true;
}

/* ---- Birth ----------------------------------------------------------------------------------- */

static void tcp_destroy(struct hoop_link *link);

static hoop_result_t tcp_create(const struct hoop_link_params *params, struct hoop_link **ret_link,
                                struct hoop_blob *ret_blob, struct hoop_failure *failure)
{
    struct tcp_blob blob = {.head = hoop_blob_head(params, TCP_MAGIC),
                            .check = params->check,
                            .holds = params->sending ? 0 : tcp_holds_of(params)};
    struct hoop_tcp_link *tcp =
        params->sending ? hoop_tcp_sender_create(params) : hoop_tcp_receiver_create(params);
    if (tcp == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, (int)params->me,
                                "rank %u has no memory for a link with rank %u: %u buffers of %llu "
                                "bytes",
                                params->me, params->peer, params->slots,
                                (unsigned long long)params->chunk_bytes);
    }
    tcp->base.params = *params;
    tcp->fd = -1;
    assert(params->data_address != NULL && params->stream != NULL);
    const hoop_result_t result =
        params->sending
            ? HOOP_OK
            : params->data_address(params->arg, params->peer, params->lane, &blob.data_address);
    if (result != HOOP_OK) {
        tcp_destroy(&tcp->base);
        return hoop_failure_set(failure, result, (int)params->me,
                                "rank %u cannot accept data connections: %s", params->me,
                                hoop_thread_error());
    }
    hoop_blob_fill(ret_blob, &blob, sizeof(blob));
    *ret_link = &tcp->base;
    return HOOP_OK;
}

/* A receiver sends an address, a sender none. */
static bool tcp_address_fits(const struct hoop_address *data_address, bool sending)
{
    return hoop_address_is_valid(data_address) &&
           (sending ? data_address->family != 0 && data_address->port != 0
                    : data_address->family == 0);
}

/* Sizes are requests: the kernel has limits, and does not report them. */
static void tcp_set_options(const struct hoop_tcp_link *tcp)
{
    const struct hoop_link_params *params = &tcp->base.params;
    const int one = 1;
    const int bytes = params->buffer_bytes < INT_MAX ? (int)params->buffer_bytes : INT_MAX;
    (void)setsockopt(tcp->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (bytes > 0) {
        (void)setsockopt(tcp->fd, SOL_SOCKET, params->sending ? SO_SNDBUF : SO_RCVBUF, &bytes,
                         sizeof(bytes));
    }
}

/* Prepares encryption, if it is wanted, and wipes the key. */
static hoop_result_t tcp_encrypt(struct hoop_tcp_link *tcp, struct hoop_secret *key)
{
    const struct hoop_link_params *params = &tcp->base.params;
    const hoop_result_t result = params->check == HOOP_CHECK_AEAD
                                     ? hoop_aead_create(key, params->sending, &tcp->aead)
                                     : HOOP_OK;
    hoop_secret_wipe(key, sizeof(*key));
    return result == HOOP_OK ? HOOP_OK
                             : hoop_failure_set(&tcp->base.failure, result, (int)params->me,
                                                "rank %u cannot encrypt its link with rank %u: %s",
                                                params->me, params->peer, hoop_thread_error());
}

static hoop_result_t tcp_bind(struct hoop_link *link, const struct hoop_blob *peer)
{
    struct hoop_tcp_link *tcp = hoop_tcp_from(link);
    const struct hoop_link_params *params = &link->params;
    struct tcp_blob blob;
    hoop_result_t result = hoop_blob_open(link, peer, TCP_MAGIC, &blob, sizeof(blob));
    if (result != HOOP_OK) {
        return result;
    }
    if (blob.check != params->check) {
        return hoop_failure_set(&link->failure, HOOP_MISMATCH, (int)params->peer,
                                "rank %u checks its data by %s, rank %u by %s (HOOP_CHECK)",
                                params->peer, hoop_check_name(blob.check), params->me,
                                hoop_check_name(params->check));
    }
    if (blob.holds > (params->sending ? TCP_HOLDS : 0) ||
        !tcp_address_fits(&blob.data_address, params->sending)) {
        char text[HOOP_ADDRESS_TEXT_BYTES] = "no valid address";
        if (hoop_address_is_valid(&blob.data_address)) {
            hoop_address_format(&blob.data_address, text, sizeof(text));
        }
        return hoop_failure_set(&link->failure, HOOP_REMOTE_ERROR, (int)params->peer,
                                "rank %u accepts data of lane %u at %s, expected %s", params->peer,
                                params->lane, text,
                                params->sending ? "address and port" : "nowhere");
    }
    struct hoop_secret key;
    result = params->stream(params->arg, params->peer, params->lane, params->sending,
                            params->sending ? &blob.data_address : NULL, &tcp->fd, &key);
    if (result == HOOP_OK) {
        tcp->peer_holds = blob.holds;
        tcp_set_options(tcp);
        return tcp_encrypt(tcp, &key);
    }
    return result == HOOP_AGAIN ? result
                                : hoop_failure_set(&link->failure, result, (int)params->peer,
                                                   "no data connection with rank %u (lane %u): %s",
                                                   params->peer, params->lane, hoop_thread_error());
}

/* ---- Both ends ------------------------------------------------------------------------------- */

static bool tcp_progress(struct hoop_link *link)
{
    struct hoop_tcp_link *tcp = hoop_tcp_from(link);
    return link->params.sending ? hoop_tcp_sender_progress(tcp) : hoop_tcp_receiver_progress(tcp);
}

static int tcp_watch_fd(struct hoop_link *link)
{
    return hoop_tcp_from(link)->fd;
}

static uint32_t tcp_holds(const struct hoop_link *link)
{
    return tcp_holds_of(&link->params);
}

/* Data that the kernel has accepted still arrive: a receiver that has read everything closes
 * without a reset, and a sender never has anything to read. */
static void tcp_destroy(struct hoop_link *link)
{
    struct hoop_tcp_link *tcp = hoop_tcp_from(link);
    if (link->params.sending) {
        hoop_tcp_sender_finish(tcp);
    } else {
        hoop_tcp_receiver_finish(tcp);
    }
    if (tcp->fd >= 0) {
        (void)shutdown(tcp->fd, SHUT_WR);
        hoop_fork_close(tcp->fd);
    }
    hoop_aead_destroy(tcp->aead);
    free(tcp);
}

const struct hoop_transport hoop_transport_tcp = {
    .name = "tcp",
    .reaches = tcp_reaches,
    .create = tcp_create,
    .bind = tcp_bind,
    .send = hoop_tcp_sender_post,
    .recv = hoop_tcp_receiver_post,
    .release = hoop_tcp_receiver_release,
    .holds = tcp_holds,
    .push = hoop_tcp_sender_push,
    .progress = tcp_progress,
    .watch_fd = tcp_watch_fd,
    .destroy = tcp_destroy,
};
