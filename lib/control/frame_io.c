/* Reads and writes frames on a socket. See frame_io.h. */
#include "control/frame_io.h"
#include "base/clock.h"
#include "base/settings.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUEUE_COUNT 16384u /* most messages that wait because the other end does not read */

/* ---- Sealing ------------------------------------------------------------------------------ */

void hoop_frame_seal_finish(struct hoop_frame_seal *seal)
{
    hoop_aead_destroy(seal->aead);
    hoop_secret_wipe(seal, sizeof(*seal));
}

/* Type and size, which the header has in clear. */
static uint32_t seal_part(const struct hoop_frame_header *frame)
{
    _Static_assert(sizeof(union hoop_frame) < 1u << 24 && HOOP_FRAME_TYPE_COUNT <= 256,
                   "both make a part");
    return (uint32_t)frame->type << 24 | frame->bytes;
}

static uint8_t *seal_body(struct hoop_frame_header *frame)
{
    return (uint8_t *)frame + sizeof(*frame);
}

/* The MAC of the next message in clear. Clears the message's own mac first. */
static hoop_result_t seal_compute(const struct hoop_frame_seal *seal,
                                  struct hoop_frame_header *frame,
                                  uint8_t ret_mac[HOOP_FRAME_MAC_BYTES])
{
    uint8_t mac[HOOP_MAC_BYTES];
    memset(frame->mac, 0, sizeof(frame->mac));
    const hoop_result_t result = hoop_hmac(&seal->key, "hoop frame", &seal->number,
                                           sizeof(seal->number), frame, frame->bytes, mac);
    memcpy(ret_mac, mac, HOOP_FRAME_MAC_BYTES);
    return result;
}

/* Makes a message the next one. */
static hoop_result_t seal_put(const struct hoop_frame_seal *seal, struct hoop_frame_header *frame)
{
    return seal->aead == NULL
               ? seal_compute(seal, frame, frame->mac)
               : hoop_aead_seal(seal->aead, seal->number, seal_part(frame), seal_body(frame),
                                frame->bytes - sizeof(*frame), seal_body(frame), frame->mac);
}

/* Checks a received message, decrypts it, and clears its mac: is it the next one, from the end that
 * has the key? */
static hoop_result_t seal_open(struct hoop_frame_seal *seal, struct hoop_frame_header *frame)
{
    uint8_t said[HOOP_MAC_BYTES] = {0};
    uint8_t mac[HOOP_MAC_BYTES] = {0};
    memcpy(said, frame->mac, sizeof(frame->mac));
    memset(frame->mac, 0, sizeof(frame->mac));
    const hoop_result_t result =
        seal->aead == NULL ? seal_compute(seal, frame, mac)
                           : hoop_aead_open(seal->aead, seal->number, seal_part(frame),
                                            seal_body(frame), frame->bytes - sizeof(*frame), said);
    const bool same = seal->aead != NULL || hoop_mac_equal(mac, said);
    seal->number++;
    return result == HOOP_NOT_AUTHENTICATED || (result == HOOP_OK && !same)
               ? hoop_error(HOOP_NOT_AUTHENTICATED,
                            "a %s was changed on the way, or belongs to another connection",
                            hoop_frame_name(frame->type))
               : result;
}

/* ---- In ----------------------------------------------------------------------------------- */

void hoop_frame_reader_init(struct hoop_frame_reader *reader)
{
    reader->got = reader->bytes = 0;
    reader->frame.header = (struct hoop_frame_header){.magic = 0};
    reader->extras.fd_count = 0;
    memset(reader->extras.fds, -1, sizeof(reader->extras.fds));
}

void hoop_frame_reader_clear(struct hoop_frame_reader *reader)
{
    struct hoop_socket_extras *extras = &reader->extras;
    for (uint32_t i = 0; i < extras->fd_count; i++) {
        if (extras->fds[i] >= 0) {
            close(extras->fds[i]);
        }
    }
    if (reader->frame.header.type == HOOP_FRAME_ROSTER) {
        hoop_secret_wipe(&reader->frame, sizeof(reader->frame.roster));
    }
    reader->got = reader->bytes = 0;
    extras->fd_count = 0;
}

/* The connection is over, by end of file or an error. */
static hoop_result_t reader_over(ssize_t got)
{
    return got == 0 ? hoop_error(HOOP_REMOTE_ERROR, "the other end closed the connection")
                    : hoop_error(HOOP_REMOTE_ERROR, "the connection broke: %s",
                                 hoop_errno_name((int)-got));
}

/* Is there nothing to read now, or no memory to read it with? Then the watch reports again. */
static bool reader_waits(ssize_t got)
{
    return got == -EAGAIN || got == -ENOMEM || got == -ENOBUFS;
}

static hoop_result_t reader_expect(const struct hoop_handshake *handshake, uint32_t type)
{
    return handshake == NULL || hoop_handshake_expects(handshake, type)
               ? HOOP_OK
               : hoop_error(HOOP_NOT_AUTHENTICATED,
                            "it sent %s before it proved that it knows the secret",
                            hoop_frame_name(type));
}

/* Is it a REGION_IS that lost its descriptor, because this process has too many open? Then only the
 * rank that asked is affected, and it can do without. Ending the connection would not help: over
 * the next one it would ask again. */
static bool reader_lacks_region(const struct hoop_frame_reader *reader)
{
    return reader->extras.fds_missing && reader->extras.fd_count == 0 &&
           reader->frame.header.type == HOOP_FRAME_REGION_IS;
}

static hoop_result_t reader_check_packet(const struct hoop_frame_reader *reader, size_t bytes,
                                         const struct hoop_handshake *handshake)
{
    const struct hoop_socket_extras *extras = &reader->extras;
    const bool lacks = reader_lacks_region(reader);
    if (extras->fds_missing && !lacks) {
        return hoop_error(HOOP_SYSTEM_ERROR, "descriptors were lost: the limit of open files is "
                                             "low (raise ulimit -n)");
    }
    if (extras->truncated) {
        return hoop_error(HOOP_NOT_AUTHENTICATED, "what it sent is not a hoop message");
    }
    const uint32_t fd_count = lacks ? 1 : extras->fd_count; /* as the sender sent it */
    const hoop_result_t result = hoop_frame_check(&reader->frame, bytes, fd_count);
    return result == HOOP_OK ? reader_expect(handshake, reader->frame.header.type) : result;
}

static hoop_result_t reader_read_packet(struct hoop_frame_reader *reader, int fd,
                                        const struct hoop_handshake *handshake)
{
    hoop_frame_reader_init(reader);
    /* no descriptors before the proof */
    const ssize_t got = hoop_socket_receive_packet(fd, &reader->frame, sizeof(reader->frame),
                                                   handshake == NULL, &reader->extras);
    if (reader_waits(got)) {
        return HOOP_AGAIN;
    }
    if (got == -ECONNRESET) {
        /* it closed with messages unread, reported once; what it sent before can still be read */
        return HOOP_IN_PROGRESS;
    }
    if (got <= 0) {
        return reader_over(got);
    }
    const hoop_result_t result = reader_check_packet(reader, (size_t)got, handshake);
    if (result != HOOP_OK) {
        hoop_frame_reader_clear(reader);
    }
    return result;
}

static hoop_result_t reader_read_stream(struct hoop_frame_reader *reader, int fd,
                                        const struct hoop_handshake *handshake,
                                        struct hoop_frame_seal *seal)
{
    union hoop_frame *frame = &reader->frame;
    const size_t want = reader->bytes == 0 ? sizeof(frame->header) : reader->bytes;
    const ssize_t got = hoop_socket_receive(fd, (uint8_t *)frame + reader->got, want - reader->got);
    if (reader_waits(got)) {
        return HOOP_AGAIN;
    }
    if (got <= 0) {
        return reader_over(got);
    }
    reader->got += (size_t)got;
    hoop_result_t result = HOOP_OK;
    if (reader->bytes == 0 && reader->got == want) { /* judge the header before reading on */
        result = hoop_frame_check_header(&frame->header);
        if (result == HOOP_OK) {
            result = reader_expect(handshake, frame->header.type);
            reader->bytes = frame->header.bytes;
        }
    }
    if (result == HOOP_OK && reader->got != reader->bytes) {
        return HOOP_IN_PROGRESS;
    }
    if (result == HOOP_OK && seal != NULL) {
        result = seal_open(seal, &frame->header);
    }
    return result != HOOP_OK ? result : hoop_frame_check_far(frame, reader->bytes);
}

hoop_result_t hoop_frame_read(struct hoop_frame_reader *reader, int fd, bool far,
                              const struct hoop_handshake *handshake, struct hoop_frame_seal *seal)
{
    return far ? reader_read_stream(reader, fd, handshake, seal)
               : reader_read_packet(reader, fd, handshake);
}

/* ---- Out ---------------------------------------------------------------------------------- */

/* A message in a queue. */
struct queue_letter {
    struct hoop_list_node node;
    uint32_t bytes, sent;
    bool sealed;
    uint32_t fd_count;
    int fds[HOOP_MAX_FDS]; /* duplicates that it owns */
    _Alignas(struct hoop_frame_header) uint8_t data[];
};

/* For a message when there is no memory: most are sent at once, so that one is enough. */
static union {
    struct queue_letter letter;
    uint8_t room[sizeof(struct queue_letter) + sizeof(union hoop_frame)];
} queue_spare;

/* Returns NULL if there is no memory. */
static struct queue_letter *queue_alloc(uint32_t bytes)
{
    struct queue_letter *letter = malloc(sizeof(*letter) + bytes);
    if (letter == NULL && queue_spare.letter.bytes == 0) {
        letter = &queue_spare.letter;
    }
    if (letter != NULL) {
        *letter = (struct queue_letter){.bytes = bytes};
    }
    return letter;
}

static struct queue_letter *queue_letter(struct hoop_list_node *node)
{
    return HOOP_CONTAINER_OF(node, struct queue_letter, node);
}

void hoop_frame_queue_init(struct hoop_frame_queue *queue)
{
    hoop_list_init(&queue->waiting);
    queue->count = 0;
    queue->starved_ns = 0;
}

static void queue_free(struct queue_letter *letter)
{
    for (uint32_t i = 0; i < letter->fd_count; i++) {
        close(letter->fds[i]);
    }
    hoop_secret_wipe(letter->data, letter->bytes); /* a ROSTER holds a secret */
    if (letter == &queue_spare.letter) {
        letter->bytes = 0;
    } else {
        free(letter);
    }
}

static void queue_remove(struct hoop_frame_queue *queue, struct queue_letter *letter)
{
    hoop_list_remove(&letter->node);
    queue->count--;
    queue_free(letter);
}

void hoop_frame_queue_finish(struct hoop_frame_queue *queue)
{
    HOOP_LIST_EACH(struct queue_letter, letter, &queue->waiting, node) {
        queue_remove(queue, letter);
    }
}

void hoop_frame_queue_drop(struct hoop_frame_queue *queue)
{
    HOOP_LIST_EACH(struct queue_letter, letter, &queue->waiting, node) {
        if (letter->sent == 0) {
            queue_remove(queue, letter);
        }
    }
}

static bool queue_duplicate(struct queue_letter *letter, const int *fds, uint32_t fd_count)
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

hoop_result_t hoop_frame_queue_put(struct hoop_frame_queue *queue,
                                   const struct hoop_frame_header *frame, const int *fds,
                                   uint32_t fd_count)
{
    if (queue->count >= QUEUE_COUNT) {
        return hoop_error(HOOP_REMOTE_ERROR, "it leaves %u messages unread", queue->count);
    }
    struct queue_letter *letter = queue_alloc(frame->bytes);
    if (letter == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a message");
    }
    memcpy(letter->data, frame, frame->bytes);
    if (!queue_duplicate(letter, fds, fd_count)) {
        const int err = errno;
        queue_free(letter);
        return hoop_errno_error(err, "cannot duplicate a descriptor");
    }
    hoop_list_push_back(&queue->waiting, &letter->node);
    queue->count++;
    return HOOP_OK;
}

hoop_result_t hoop_frame_queue_take(struct hoop_frame_queue *queue, bool open,
                                    struct hoop_frame_reader *reader)
{
    struct hoop_list_node *first = hoop_list_first(&queue->waiting);
    hoop_frame_reader_init(reader);
    if (first == NULL) {
        return open ? HOOP_AGAIN : reader_over(0);
    }
    struct queue_letter *letter = queue_letter(first);
    memcpy(&reader->frame, letter->data, letter->bytes);
    memcpy(reader->extras.fds, letter->fds, letter->fd_count * sizeof(int));
    reader->extras.fd_count = letter->fd_count;
    letter->fd_count = 0; /* the reader owns them now */
    queue_remove(queue, letter);
    return HOOP_OK;
}

/* Returns 0 or an errno. */
static int queue_send_first(struct hoop_frame_queue *queue, int fd, struct hoop_frame_seal *seal)
{
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a freed element has left the list */
    struct queue_letter *letter = queue_letter(queue->waiting.next);
    struct hoop_frame_header *header = (struct hoop_frame_header *)(void *)letter->data;
    const bool begins = seal != NULL && letter->sent == 0;
    if (begins && !letter->sealed && seal_put(seal, header) != HOOP_OK) {
        return EIO;
    }
    letter->sealed = begins;
    const ssize_t sent =
        hoop_socket_send(fd, letter->data + letter->sent, letter->bytes - letter->sent, letter->fds,
                         letter->fd_count);
    if (sent < 0) {
        return (int)-sent;
    }
    queue->starved_ns = 0;
    if (begins) { /* only now, since a message that has not begun may still be dropped */
        seal->number++;
    }
    letter->sent += (uint32_t)sent;
    if (letter->sent == letter->bytes) {
        queue_remove(queue, letter);
    }
    return 0;
}

bool hoop_frame_starves(int err)
{
    return err == ETOOMANYREFS || err == ENOBUFS || err == ENOMEM;
}

bool hoop_frame_queue_gives_up(struct hoop_frame_queue *queue)
{
    const uint64_t now = hoop_now_ns();
    queue->starved_ns = queue->starved_ns != 0 ? queue->starved_ns : now;
    return now - queue->starved_ns >= hoop_settings()->dead_after_ms * HOOP_NS_PER_MS / 2;
}

int hoop_frame_queue_send(struct hoop_frame_queue *queue, int fd, struct hoop_frame_seal *seal)
{
    int err = 0;
    while (err == 0 && queue->count > 0) {
        err = queue_send_first(queue, fd, seal);
    }
    return err;
}
