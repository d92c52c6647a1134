/* What a connection has yet to say. See outbox.h. */
#include "outbox.h"
#include "packet.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTBOX_COUNT 16384u /* letters that wait for the other end to read */

struct hoop_letter {
    struct hoop_letter *next;
    uint32_t bytes, sent;
    uint32_t fd_count;
    bool early;
    int fds[HOOP_FRAME_MAX_FDS]; /* duplicates, owned */
    uint8_t data[];
};

void hoop_outbox_init(struct hoop_outbox *outbox)
{
    *outbox = (struct hoop_outbox){.last = &outbox->first};
}

static void outbox_free(struct hoop_letter *letter)
{
    for (uint32_t i = 0; i < letter->fd_count; i++) {
        close(letter->fds[i]);
    }
    hoop_secret_wipe(letter->data, letter->bytes); /* there is one that tells the secret */
    free(letter);
}

/* Takes away the letters from *at on. */
static void outbox_cut(struct hoop_outbox *outbox, struct hoop_letter **at)
{
    struct hoop_letter *letter = *at;
    *at = NULL;
    outbox->last = at;
    while (letter != NULL) {
        struct hoop_letter *next = letter->next;
        outbox_free(letter);
        outbox->count--;
        letter = next;
    }
}

void hoop_outbox_finish(struct hoop_outbox *outbox)
{
    outbox_cut(outbox, &outbox->first);
}

void hoop_outbox_drop(struct hoop_outbox *outbox)
{
    const bool begun = outbox->first != NULL && outbox->first->sent > 0;
    outbox_cut(outbox, begun ? &outbox->first->next : &outbox->first);
}

static bool outbox_duplicate(struct hoop_letter *letter, const int *fds, uint32_t fd_count)
{
    for (uint32_t i = 0; i < fd_count; i++) {
        const int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            return false;
        }
        letter->fds[letter->fd_count++] = fd;
    }
    return true;
}

static void outbox_link(struct hoop_outbox *outbox, struct hoop_letter *letter)
{
    struct hoop_letter **at = outbox->last;
    if (letter->early) {
        at = &outbox->first;
        while (*at != NULL && (*at)->early) {
            at = &(*at)->next;
        }
        assert(*at == NULL || (*at)->sent == 0);
    }
    letter->next = *at;
    *at = letter;
    if (letter->next == NULL) {
        outbox->last = &letter->next;
    }
    outbox->count++;
}

hoop_result_t hoop_outbox_put(struct hoop_outbox *outbox, const struct hoop_frame_header *frame,
                              size_t sent, const int *fds, uint32_t fd_count, bool early)
{
    if (outbox->count >= OUTBOX_COUNT) {
        return hoop_error(HOOP_REMOTE_ERROR, "it leaves %u messages unread", outbox->count);
    }
    struct hoop_letter *letter = malloc(sizeof(*letter) + frame->bytes);
    if (letter == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a message");
    }
    letter->bytes = frame->bytes;
    letter->sent = (uint32_t)sent;
    letter->early = early;
    letter->fd_count = 0;
    memcpy(letter->data, frame, frame->bytes);
    if (!outbox_duplicate(letter, fds, fd_count)) {
        const int err = errno;
        outbox_free(letter);
        return hoop_error(HOOP_SYSTEM_ERROR, "cannot duplicate a descriptor: %s",
                          hoop_errno_name(err));
    }
    outbox_link(outbox, letter);
    return HOOP_OK;
}

bool hoop_outbox_has(const struct hoop_outbox *outbox, bool open)
{
    return outbox->first != NULL && (open || outbox->first->early);
}

int hoop_outbox_send(struct hoop_outbox *outbox, int fd, bool open)
{
    while (hoop_outbox_has(outbox, open)) {
        struct hoop_letter *letter = outbox->first;
        const ssize_t sent =
            hoop_packet_send(fd, letter->data + letter->sent, letter->bytes - letter->sent,
                             letter->fds, letter->fd_count);
        if (sent < 0) {
            return (int)-sent;
        }
        letter->sent += (uint32_t)sent;
        if (letter->sent == letter->bytes) {
            outbox->first = letter->next;
            outbox->last = outbox->first == NULL ? &outbox->first : outbox->last;
            outbox->count--;
            outbox_free(letter);
        }
    }
    return 0;
}
