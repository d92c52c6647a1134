/* What arrives on a control connection. See inbox.h. */
#include "inbox.h"
#include "stream.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define INBOX_TEXT_BYTES 160

void hoop_inbox_init(struct hoop_inbox *inbox)
{
    inbox->got = inbox->bytes = 0;
    inbox->packet.frame.header = (struct hoop_frame_header){.magic = 0};
    inbox->packet.fd_count = 0;
    memset(inbox->packet.fds, -1, sizeof(inbox->packet.fds));
}

void hoop_inbox_clear(struct hoop_inbox *inbox)
{
    struct hoop_packet *packet = &inbox->packet;
    for (uint32_t i = 0; i < packet->fd_count; i++) {
        if (packet->fds[i] >= 0) {
            close(packet->fds[i]);
        }
    }
    if (packet->frame.header.type == HOOP_FRAME_SECRET) {
        hoop_secret_wipe(&packet->frame, sizeof(packet->frame.secret));
    }
    inbox->got = inbox->bytes = 0;
    packet->fd_count = 0;
}

/* The end, or an error that means it. */
static hoop_result_t inbox_over(ssize_t got, struct hoop_failure *failure)
{
    return got == 0 ? hoop_failure_set(failure, HOOP_REMOTE_ERROR, -1,
                                       "the other end closed the connection")
                    : hoop_failure_set(failure, HOOP_REMOTE_ERROR, -1, "the connection broke: %s",
                                       hoop_errno_name((int)-got));
}

/* result: of a check, with its text. */
static hoop_result_t inbox_judge(hoop_result_t result, const char *text,
                                 struct hoop_failure *failure)
{
    if (result == HOOP_OK) {
        return HOOP_OK;
    }
    return hoop_failure_set(failure,
                            result == HOOP_MISMATCH ? HOOP_MISMATCH : HOOP_NOT_AUTHENTICATED, -1,
                            "a message %s", text);
}

static hoop_result_t inbox_expect(const struct hoop_handshake *shaking, uint32_t type,
                                  struct hoop_failure *failure)
{
    if (shaking == NULL || hoop_handshake_expects(shaking, type)) {
        return HOOP_OK;
    }
    return hoop_failure_set(failure, HOOP_NOT_AUTHENTICATED, -1, "it sent %s before any proof",
                            hoop_frame_name(type));
}

/* ---- Packets ------------------------------------------------------------------------------ */

static hoop_result_t inbox_check_packet(const struct hoop_packet *packet, size_t bytes,
                                        const struct hoop_handshake *shaking,
                                        struct hoop_failure *failure)
{
    char text[INBOX_TEXT_BYTES] = "";
    if (packet->fds_missing) {
        return hoop_failure_set(
            failure, HOOP_SYSTEM_ERROR, -1,
            "descriptors were lost: the limit of open files (ulimit -n) is low");
    }
    if (packet->truncated) {
        return hoop_failure_set(failure, HOOP_NOT_AUTHENTICATED, -1, "it sent no message of hoop");
    }
    const hoop_result_t result =
        hoop_frame_check(&packet->frame, bytes, packet->fd_count, text, sizeof(text));
    return result == HOOP_OK ? inbox_expect(shaking, packet->frame.header.type, failure)
                             : inbox_judge(result, text, failure);
}

static hoop_result_t inbox_receive_packet(struct hoop_inbox *inbox, int fd,
                                          const struct hoop_handshake *shaking,
                                          struct hoop_failure *failure)
{
    /* strangers' descriptors stay out */
    const ssize_t got = hoop_packet_receive(fd, shaking == NULL, &inbox->packet);
    if (got == -EAGAIN) {
        return HOOP_AGAIN;
    }
    if (got == -ECONNRESET) {
        return HOOP_IN_PROGRESS; /* reported once; messages may be queued behind it */
    }
    if (got <= 0) {
        return inbox_over(got, failure);
    }
    const hoop_result_t result = inbox_check_packet(&inbox->packet, (size_t)got, shaking, failure);
    if (result != HOOP_OK) {
        hoop_inbox_clear(inbox);
    }
    return result;
}

/* ---- Streams ------------------------------------------------------------------------------ */

/* The header is complete: is it worth while to read on? */
static hoop_result_t inbox_take_header(struct hoop_inbox *inbox,
                                       const struct hoop_handshake *shaking,
                                       struct hoop_failure *failure)
{
    char text[INBOX_TEXT_BYTES] = "";
    const struct hoop_frame_header *header = &inbox->packet.frame.header;
    const hoop_result_t result = hoop_frame_stream_bytes(header, &inbox->bytes, text, sizeof(text));
    return result == HOOP_OK ? inbox_expect(shaking, header->type, failure)
                             : inbox_judge(result, text, failure);
}

static hoop_result_t inbox_receive_stream(struct hoop_inbox *inbox, int fd,
                                          const struct hoop_handshake *shaking,
                                          struct hoop_failure *failure)
{
    char text[INBOX_TEXT_BYTES] = "";
    union hoop_frame *frame = &inbox->packet.frame;
    const size_t want = inbox->bytes == 0 ? sizeof(frame->header) : inbox->bytes;
    const ssize_t got = hoop_stream_receive(fd, (uint8_t *)frame + inbox->got, want - inbox->got);
    if (got == -EAGAIN) {
        return HOOP_AGAIN;
    }
    if (got <= 0) {
        return inbox_over(got, failure);
    }
    inbox->got += (size_t)got;
    if (inbox->bytes == 0 && inbox->got == want) {
        const hoop_result_t result = inbox_take_header(inbox, shaking, failure);
        if (result != HOOP_OK) {
            return result;
        }
    }
    if (inbox->got != inbox->bytes) {
        return HOOP_IN_PROGRESS;
    }
    return inbox_judge(hoop_frame_check_far(frame, inbox->bytes, text, sizeof(text)), text,
                       failure);
}

hoop_result_t hoop_inbox_receive(struct hoop_inbox *inbox, int fd, bool far,
                                 const struct hoop_handshake *shaking, struct hoop_failure *failure)
{
    return far ? inbox_receive_stream(inbox, fd, shaking, failure)
               : inbox_receive_packet(inbox, fd, shaking, failure);
}
