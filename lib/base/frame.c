/* Sizes and checks of control messages: pure, no I/O. What they mean is in frame.h. */
#include "base/frame.h"
#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are the memory of structs");
_Static_assert(sizeof(struct hoop_frame_header) == 16, "frame layout");
_Static_assert(sizeof(struct hoop_frame_hello) == 16 + 32 + 64 + 32, "frame layout");
_Static_assert(sizeof(struct hoop_frame_secret) == 16 + 32, "frame layout");
_Static_assert(sizeof(struct hoop_frame_challenge) == 16 + 64, "frame layout");
_Static_assert(sizeof(struct hoop_frame_proof) == 16 + 32, "frame layout");
_Static_assert(sizeof(struct hoop_frame_reject) == 16 + 8 + HOOP_FAILURE_TEXT_BYTES, "layout");
_Static_assert(sizeof(struct hoop_frame_join) == 16 + 96 + 64 + 64 + 32, "frame layout");
_Static_assert(sizeof(struct hoop_frame_roster) == 16 + 48, "frame layout");
_Static_assert(sizeof(struct hoop_frame_entry) == 24 + 128, "frame layout");
_Static_assert(offsetof(struct hoop_frame_roster_part, entries) == 16 + 8, "frame layout");
_Static_assert(sizeof(struct hoop_frame_plain) == 16, "frame layout");
_Static_assert(sizeof(struct hoop_frame_lost) == 16 + 8, "frame layout");
_Static_assert(sizeof(struct hoop_frame_region) == 16 + 16, "frame layout");
_Static_assert(sizeof(struct hoop_frame_region_is) == 16 + 32, "frame layout");
_Static_assert(sizeof(struct hoop_frame_blob) == 16 + 16 + HOOP_FRAME_BLOB_BYTES, "frame layout");

/* Returns the field that is wrong, NULL when all are right. */
typedef const char *frame_check_fn(const union hoop_frame *frame);

/* A string that ends within its field and cannot disturb a log or a terminal. */
static bool frame_string_ok(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == 0) {
            return true;
        }
        if (c < 0x20 || c == 0x7f) {
            return false;
        }
    }
    return false;
}

#define FRAME_STRING_OK(field) frame_string_ok(field, sizeof(field))

static const char *frame_check_nothing(const union hoop_frame *frame)
{
    (void)frame;
    return NULL;
}

static const char *frame_check_hello(const union hoop_frame *frame)
{
    const struct hoop_frame_hello *m = &frame->hello;
    if (m->kind != HOOP_HELLO_JOIN && m->kind != HOOP_HELLO_PEER) {
        return "kind";
    }
    if (m->want_secret > 1 || (m->want_secret == 1 && m->kind != HOOP_HELLO_JOIN)) {
        return "want_secret";
    }
    if (m->from >= HOOP_FRAME_MAX_RANKS || m->to >= HOOP_FRAME_MAX_RANKS) {
        return "rank";
    }
    if (m->kind == HOOP_HELLO_PEER && m->from == m->to) {
        return "rank";
    }
    if (!FRAME_STRING_OK(m->meeting)) {
        return "meeting";
    }
    return m->reserved != 0 ? "reserved" : NULL;
}

static const char *frame_check_reject(const union hoop_frame *frame)
{
    const struct hoop_frame_reject *m = &frame->reject;
    if (m->code <= 0 || m->code >= (int32_t)HOOP_AGAIN || m->code == (int32_t)HOOP_IN_PROGRESS) {
        return "code";
    }
    if (m->rank < -1 || m->rank >= (int32_t)HOOP_FRAME_MAX_RANKS) {
        return "rank";
    }
    return FRAME_STRING_OK(m->text) ? NULL : "text";
}

static const char *frame_check_join(const union hoop_frame *frame)
{
    const struct hoop_frame_join *m = &frame->join;
    if (m->n == 0 || m->n > HOOP_FRAME_MAX_RANKS || m->rank >= m->n) {
        return "rank";
    }
    if (m->process == 0 || m->pid <= 0) {
        return "process";
    }
    if (m->no_membarrier > 1) {
        return "no_membarrier";
    }
    if (m->crowded > 1) {
        return "crowded";
    }
    if (m->timeout_ms == 0 || m->left_ms > m->timeout_ms || m->dead_after_ms == 0 ||
        m->timeout_ms > HOOP_FRAME_MAX_MS || m->dead_after_ms > HOOP_FRAME_MAX_MS) {
        return "time";
    }
    if (m->segment_bytes == 0 || m->segment_bytes > HOOP_FRAME_MAX_SEGMENT_BYTES) {
        return "segment_bytes";
    }
    if (!FRAME_STRING_OK(m->host) || !FRAME_STRING_OK(m->listener) ||
        !FRAME_STRING_OK(m->comm_name) || m->listener[0] == 0) {
        return "name";
    }
    return NULL;
}

static const char *frame_check_roster(const union hoop_frame *frame)
{
    const struct hoop_frame_roster *m = &frame->roster;
    if (m->comm_id == 0) {
        return "comm_id";
    }
    if (m->n == 0 || m->n > HOOP_FRAME_MAX_RANKS) {
        return "n";
    }
    if (m->need_fence > 1) {
        return "need_fence";
    }
    if (m->crowded > 1) {
        return "crowded";
    }
    if (m->segment_bytes == 0 || m->segment_bytes > HOOP_FRAME_MAX_SEGMENT_BYTES) {
        return "segment_bytes";
    }
    return m->dead_after_ms == 0 || m->dead_after_ms > HOOP_FRAME_MAX_MS ? "time" : NULL;
}

static const char *frame_check_part(const union hoop_frame *frame)
{
    const struct hoop_frame_roster_part *m = &frame->part;
    if (m->first >= HOOP_FRAME_MAX_RANKS || m->count > HOOP_FRAME_MAX_RANKS - m->first) {
        return "first";
    }
    for (uint32_t i = 0; i < m->count; i++) {
        const struct hoop_frame_entry *entry = &m->entries[i];
        if (entry->process == 0 || entry->pid < 0) {
            return "process";
        }
        if (!FRAME_STRING_OK(entry->host) || !FRAME_STRING_OK(entry->listener)) {
            return "name";
        }
    }
    return NULL;
}

static const char *frame_check_lost(const union hoop_frame *frame)
{
    return frame->lost.rank < HOOP_FRAME_MAX_RANKS ? NULL : "rank";
}

static const char *frame_check_region(const union hoop_frame *frame)
{
    return frame->region.id != 0 ? NULL : "id";
}

static const char *frame_check_region_is(const union hoop_frame *frame)
{
    const struct hoop_frame_region_is *m = &frame->region_is;
    if (m->id == 0) {
        return "id";
    }
    if (m->code < 0 || m->code >= (int32_t)HOOP_AGAIN) {
        return "code";
    }
    if (m->code == HOOP_OK && m->kind > HOOP_MEM_DEVICE) {
        return "kind";
    }
    if (m->code == HOOP_OK && (m->bytes == 0 || m->bytes > INT64_MAX)) {
        return "bytes";
    }
    return NULL;
}

static const char *frame_check_blob(const union hoop_frame *frame)
{
    const struct hoop_frame_blob *m = &frame->blob;
    if (m->lane >= HOOP_FRAME_MAX_LANES) {
        return "lane";
    }
    if (m->sending > 1) {
        return "sending";
    }
    return m->bytes <= HOOP_FRAME_BLOB_BYTES ? NULL : "bytes";
}

static const struct frame_form {
    const char *name;
    uint32_t bytes;
    frame_check_fn *check;
} frame_forms[HOOP_FRAME_TYPE_COUNT] = {
    [HOOP_FRAME_HELLO] = {"HELLO", sizeof(struct hoop_frame_hello), frame_check_hello},
    [HOOP_FRAME_SECRET] = {"SECRET", sizeof(struct hoop_frame_secret), frame_check_nothing},
    [HOOP_FRAME_CHALLENGE] = {"CHALLENGE", sizeof(struct hoop_frame_challenge),
                              frame_check_nothing},
    [HOOP_FRAME_PROOF] = {"PROOF", sizeof(struct hoop_frame_proof), frame_check_nothing},
    [HOOP_FRAME_WELCOME] = {"WELCOME", sizeof(struct hoop_frame_plain), frame_check_nothing},
    [HOOP_FRAME_REJECT] = {"REJECT", sizeof(struct hoop_frame_reject), frame_check_reject},
    [HOOP_FRAME_JOIN] = {"JOIN", sizeof(struct hoop_frame_join), frame_check_join},
    [HOOP_FRAME_ROSTER] = {"ROSTER", sizeof(struct hoop_frame_roster), frame_check_roster},
    [HOOP_FRAME_ROSTER_PART] = {"ROSTER_PART", offsetof(struct hoop_frame_roster_part, entries),
                                frame_check_part},
    [HOOP_FRAME_READY] = {"READY", sizeof(struct hoop_frame_plain), frame_check_nothing},
    [HOOP_FRAME_GO] = {"GO", sizeof(struct hoop_frame_plain), frame_check_nothing},
    [HOOP_FRAME_LOST] = {"LOST", sizeof(struct hoop_frame_lost), frame_check_lost},
    [HOOP_FRAME_REGION_GET] = {"REGION_GET", sizeof(struct hoop_frame_region), frame_check_region},
    [HOOP_FRAME_REGION_IS] = {"REGION_IS", sizeof(struct hoop_frame_region_is),
                              frame_check_region_is},
    [HOOP_FRAME_REGION_DEAD] = {"REGION_DEAD", sizeof(struct hoop_frame_region),
                                frame_check_region},
    [HOOP_FRAME_REGION_DROPPED] = {"REGION_DROPPED", sizeof(struct hoop_frame_region),
                                   frame_check_region},
    [HOOP_FRAME_BLOB] = {"BLOB", sizeof(struct hoop_frame_blob), frame_check_blob},
};

static uint32_t frame_part_bytes(uint32_t count)
{
    return (uint32_t)(offsetof(struct hoop_frame_roster_part, entries) +
                      count * sizeof(struct hoop_frame_entry));
}

void hoop_frame_init(union hoop_frame *frame, enum hoop_frame_type type)
{
    assert(type > 0 && type < HOOP_FRAME_TYPE_COUNT);
    memset(frame, 0, sizeof(*frame));
    frame->header.magic = HOOP_FRAME_MAGIC;
    frame->header.type = (uint16_t)type;
    frame->header.version = HOOP_FRAME_VERSION;
    frame->header.bytes = frame_forms[type].bytes;
}

void hoop_frame_set_count(union hoop_frame *frame, uint32_t first, uint32_t count)
{
    assert(frame->header.type == HOOP_FRAME_ROSTER_PART && count <= HOOP_FRAME_MAX_FDS);
    frame->part.first = first;
    frame->part.count = count;
    frame->header.bytes = frame_part_bytes(count);
}

const char *hoop_frame_name(uint32_t type)
{
    if (type >= HOOP_FRAME_TYPE_COUNT || frame_forms[type].name == NULL) {
        return "unknown";
    }
    return frame_forms[type].name;
}

/* How many descriptors come with it. */
static uint32_t frame_fd_count(const union hoop_frame *frame)
{
    switch (frame->header.type) {
    case HOOP_FRAME_JOIN:
    case HOOP_FRAME_ROSTER:
        return 1;
    case HOOP_FRAME_ROSTER_PART:
        return frame->part.count;
    case HOOP_FRAME_REGION_IS:
        return frame->region_is.code == HOOP_OK ? 1 : 0;
    default:
        return 0;
    }
}

static bool frame_size_ok(const union hoop_frame *frame, size_t bytes)
{
    if (frame->header.type != HOOP_FRAME_ROSTER_PART) {
        return bytes == frame_forms[frame->header.type].bytes;
    }
    return bytes >= frame_part_bytes(0) && frame->part.count <= HOOP_FRAME_MAX_FDS &&
           bytes == frame_part_bytes(frame->part.count);
}

hoop_result_t hoop_frame_check(const union hoop_frame *frame, size_t bytes, uint32_t fd_count,
                               char *ret_text, size_t text_bytes)
{
    const struct hoop_frame_header *header = &frame->header;
    if (bytes < sizeof(*header) || header->magic != HOOP_FRAME_MAGIC) {
        (void)snprintf(ret_text, text_bytes, "does not begin like a message of hoop");
        return HOOP_INVALID_ARGUMENT;
    }
    if (header->version != HOOP_FRAME_VERSION) {
        (void)snprintf(ret_text, text_bytes, "is of protocol version %u, this process speaks %u",
                       header->version, HOOP_FRAME_VERSION);
        return HOOP_MISMATCH;
    }
    if (header->type == 0 || header->type >= HOOP_FRAME_TYPE_COUNT) {
        (void)snprintf(ret_text, text_bytes, "is of unknown type %u", header->type);
        return HOOP_INVALID_ARGUMENT;
    }
    const char *name = hoop_frame_name(header->type);
    if (header->bytes != bytes || header->reserved != 0 || !frame_size_ok(frame, bytes)) {
        (void)snprintf(ret_text, text_bytes, "has %zu bytes, which no %s has", bytes, name);
        return HOOP_INVALID_ARGUMENT;
    }
    if (fd_count != frame_fd_count(frame)) {
        (void)snprintf(ret_text, text_bytes, "is a %s with %u descriptors, expected %u", name,
                       fd_count, frame_fd_count(frame));
        return HOOP_INVALID_ARGUMENT;
    }
    const char *field = frame_forms[header->type].check(frame);
    if (field != NULL) {
        (void)snprintf(ret_text, text_bytes, "is a %s with a bad %s", name, field);
        return HOOP_INVALID_ARGUMENT;
    }
    return HOOP_OK;
}
