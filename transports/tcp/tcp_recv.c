/*
 * The receiver's end of a tcp link.
 *
 *      socket ---> ahead: | header, beginning of the payload, perhaps more |
 *         \                               | copied
 *          `-----> to:    the rest of the payload, straight into its place
 *
 * `ahead` takes in a header and whatever small data follow it, so that small chunks cost one system
 * call or less. The rest of a payload goes where the poster wants it, or into a lent slot of
 * staging memory; the same call takes the next header into `ahead`.
 *
 * Nothing is read while no receive is posted: what a fast sender sends waits in the socket, and
 * then at the sender. Nothing is used before it is checked: a header by its own check and against
 * the receive that waits for it (agree.h); a payload as soon as it is complete, while it is in the
 * cache. A damaged payload may then lie in the poster's memory, but `done` says that the receive
 * failed.
 */
#include "base/sizes.h"
#include "transports/agree.h"
#include "transports/tcp/tcp_ends.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* A header and a page: the largest chunk that arrives with its header in one call. */
#define TCP_AHEAD_BYTES (HOOP_TCP_HEADER_BYTES + HOOP_PAGE_BYTES)
/* Chunks per progress, so that a fast sender does not keep the thread in here. */
#define TCP_ROUND 16u

struct tcp_receiver {
    struct hoop_tcp_link tcp;
    /* The chunk that is being received, for queue.first. */
    bool open; /* its header has been checked */
    uint8_t *to;
    size_t got;                    /* bytes of its payload so far */
    struct hoop_tcp_check payload; /* what its header says */
    uint32_t slot;                 /* if staging is lent */
    /* ahead[at .. end) was received and not processed yet. */
    size_t at, end;
    uint8_t ahead[TCP_AHEAD_BYTES];
    uint8_t *staging; /* slots of `stride` bytes, whose pages appear when first used */
    size_t stride, staging_bytes;
    uint32_t idle_count;
    uint32_t idle[]; /* [slots], first idle_count valid: a stack, so the latest is reused */
};

static struct tcp_receiver *receiver_from(struct hoop_tcp_link *tcp)
{
    return (struct tcp_receiver *)(void *)tcp;
}

/* ---- Birth and end --------------------------------------------------------------------------- */

/* False: the sizes overflow. */
static bool receiver_measure(const struct hoop_link_params *params, size_t *ret_stride,
                             size_t *ret_bytes)
{
    size_t stride = 0;
    if (__builtin_add_overflow(params->chunk_bytes, HOOP_PAGE_BYTES - 1, &stride)) {
        return false;
    }
    stride = stride < HOOP_PAGE_BYTES ? HOOP_PAGE_BYTES : stride - stride % HOOP_PAGE_BYTES;
    *ret_stride = stride;
    return !__builtin_mul_overflow(stride, params->slots, ret_bytes) && *ret_bytes <= PTRDIFF_MAX;
}

struct hoop_tcp_link *hoop_tcp_receiver_create(const struct hoop_link_params *params)
{
    size_t stride = 0, bytes = 0;
    if (!receiver_measure(params, &stride, &bytes)) {
        return NULL;
    }
    struct tcp_receiver *receiver =
        calloc(1, sizeof(*receiver) + params->slots * sizeof(receiver->idle[0]));
    if (receiver == NULL) {
        return NULL;
    }
    void *staging = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (staging == MAP_FAILED) {
        free(receiver);
        return NULL;
    }
    receiver->staging = staging;
    receiver->staging_bytes = bytes;
    receiver->stride = stride;
    for (uint32_t i = 0; i < params->slots; i++) {
        receiver->idle[i] = i;
    }
    receiver->idle_count = params->slots;
    return &receiver->tcp;
}

void hoop_tcp_receiver_finish(struct hoop_tcp_link *tcp)
{
    struct tcp_receiver *receiver = receiver_from(tcp);
    (void)hoop_xfer_queue_finish(&tcp->queue, HOOP_ABORTED);
    (void)munmap(receiver->staging, receiver->staging_bytes);
}

hoop_result_t hoop_tcp_receiver_post(struct hoop_link *link, struct hoop_xfer *xfer)
{
    hoop_xfer_queue_push(&hoop_tcp_from(link)->queue, xfer);
    return HOOP_OK;
}

void hoop_tcp_receiver_release(struct hoop_link *link, struct hoop_xfer *xfer)
{
    struct tcp_receiver *receiver = receiver_from(hoop_tcp_from(link));
    assert(xfer->position < link->params.slots && receiver->idle_count < link->params.slots);
    receiver->idle[receiver->idle_count++] = (uint32_t)xfer->position;
}

/* ---- One chunk ------------------------------------------------------------------------------- */

/* Opens the header. Does the first xfer wait for it? If not, the link fails. */
static bool receiver_admits(struct tcp_receiver *receiver, struct hoop_tcp_header *header)
{
    struct hoop_link *link = &receiver->tcp.base;
    const struct hoop_link_params *params = &link->params;
    const struct hoop_xfer *xfer = receiver->tcp.queue.first;
    if (!hoop_tcp_header_open(&receiver->tcp, header)) {
        return false;
    }
    if (header->kind == HOOP_TCP_GOODBYE) {
        (void)hoop_failure_set(&link->failure, HOOP_REMOTE_ERROR, (int)params->peer,
                               "rank %u has left the communicator, but rank %u waits for its chunk "
                               "%llu of operation %u (lane %u)",
                               params->peer, params->me, (unsigned long long)xfer->chunk, xfer->op,
                               params->lane);
        return false;
    }
    if (header->kind != HOOP_TCP_DATA) {
        (void)hoop_failure_set(
            &link->failure, HOOP_REMOTE_ERROR, (int)params->peer,
            "rank %u sent a header of kind %016llx to rank %u (lane %u), which is not known",
            params->peer, (unsigned long long)header->kind, params->me, params->lane);
        return false;
    }
    return hoop_chunk_header_check(link, &header->chunk, xfer) == HOOP_OK;
}

/* Begins the chunk whose header is in ahead. False: no slot is free, or the link has failed. */
static bool receiver_begin(struct tcp_receiver *receiver)
{
    const struct hoop_xfer *xfer = receiver->tcp.queue.first;
    const bool lend = xfer->data == NULL;
    struct hoop_tcp_header header;
    memcpy(&header, receiver->ahead + receiver->at, sizeof(header));
    if ((lend && receiver->idle_count == 0) || !receiver_admits(receiver, &header)) {
        return false;
    }
    receiver->at += sizeof(header);
    receiver->open = true;
    receiver->got = 0;
    receiver->payload = header.payload;
    if (lend) {
        receiver->slot = receiver->idle[--receiver->idle_count];
        receiver->to = receiver->staging + receiver->slot * receiver->stride;
    } else {
        receiver->to = xfer->data;
    }
    return true;
}

/* Copies the part of the payload that is already in ahead. */
static void receiver_copy(struct tcp_receiver *receiver)
{
    const size_t here = receiver->end - receiver->at;
    const size_t missing = receiver->tcp.queue.first->bytes - receiver->got;
    const size_t bytes = here < missing ? here : missing;
    if (bytes > 0) {
        memcpy(receiver->to + receiver->got, receiver->ahead + receiver->at, bytes);
        receiver->at += bytes;
        receiver->got += bytes;
    }
}

/* Completes a chunk that has arrived. False: it is damaged, and the link has failed. */
static bool receiver_complete(struct tcp_receiver *receiver)
{
    struct hoop_tcp_link *tcp = &receiver->tcp;
    struct hoop_xfer *xfer = tcp->queue.first;
    if (!hoop_tcp_payload_open(tcp, xfer, receiver->to, &receiver->payload)) {
        return false;
    }
    (void)hoop_xfer_queue_pop(&tcp->queue);
    tcp->number++;
    receiver->open = false;
    if (xfer->data == NULL) {
        xfer->data = receiver->to;
        xfer->position = receiver->slot;
        xfer->lent = true;
    }
    xfer->done(xfer, HOOP_OK);
    return true;
}

/* ---- The socket ------------------------------------------------------------------------------ */

/* One system call. False: nothing came. *ret_dry: there is no more for now. */
static bool receiver_read(struct tcp_receiver *receiver, bool *ret_dry)
{
    struct hoop_tcp_link *tcp = &receiver->tcp;
    struct iovec parts[2];
    struct msghdr message = {.msg_iov = parts};
    memmove(receiver->ahead, receiver->ahead + receiver->at, receiver->end - receiver->at);
    receiver->end -= receiver->at;
    receiver->at = 0;
    const size_t missing = receiver->open ? tcp->queue.first->bytes - receiver->got : 0;
    const size_t room = sizeof(receiver->ahead) - receiver->end;
    if (missing > 0) {
        parts[message.msg_iovlen++] = (struct iovec){receiver->to + receiver->got, missing};
    }
    parts[message.msg_iovlen++] = (struct iovec){receiver->ahead + receiver->end, room};
    const ssize_t came = recvmsg(tcp->fd, &message, MSG_DONTWAIT);
    if (came <= 0) {
        hoop_tcp_stopped(tcp, came == 0 ? 0 : errno);
        return false;
    }
    tcp->starved_ns = 0;
    const size_t direct = (size_t)came < missing ? (size_t)came : missing;
    receiver->got += direct;
    receiver->end += (size_t)came - direct;
    *ret_dry = (size_t)came < missing + room;
    return true;
}

static bool receiver_move(struct tcp_receiver *receiver)
{
    struct hoop_tcp_link *tcp = &receiver->tcp;
    bool moved = false, dry = false;
    uint32_t chunks = 0;
    while (chunks < TCP_ROUND && tcp->queue.first != NULL) {
        const bool header = receiver->end - receiver->at >= HOOP_TCP_HEADER_BYTES;
        if (!receiver->open && header && !receiver_begin(receiver)) {
            break;
        }
        if (receiver->open) {
            receiver_copy(receiver);
        }
        if (receiver->open && receiver->got == tcp->queue.first->bytes) {
            if (!receiver_complete(receiver)) {
                break;
            }
            moved = true;
            chunks++;
        } else {
            if (dry || tcp->lost_ns != 0 || !receiver_read(receiver, &dry)) {
                break;
            }
            moved = true;
        }
    }
    return moved;
}

bool hoop_tcp_receiver_progress(struct hoop_tcp_link *tcp)
{
    bool moved = false;
    if (tcp->queue.first == NULL) {
        return false;
    }
    if (tcp->base.failure.code == HOOP_OK) {
        moved = receiver_move(receiver_from(tcp));
        if (!moved) {
            hoop_tcp_blame(tcp);
        }
    }
    if (tcp->base.failure.code != HOOP_OK) {
        moved |= hoop_xfer_queue_finish(&tcp->queue, tcp->base.failure.code);
    }
    return moved;
}
