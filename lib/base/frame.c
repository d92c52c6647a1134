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
_Static_assert(sizeof(struct hoop_frame_join) == 16 + 112 + 64 + 64 + 32, "frame layout");
_Static_assert(sizeof(struct hoop_frame_roster) == 16 + 56 + 24, "frame layout");
_Static_assert(sizeof(struct hoop_frame_entry) == 24 + 128, "frame layout");
_Static_assert(offsetof(struct hoop_frame_roster_part, entries) == 16 + 8, "frame layout");
_Static_assert(sizeof(struct hoop_frame_plain) == 16, "frame layout");
_Static_assert(sizeof(struct hoop_frame_lost) == 16 + 8 + HOOP_FRAME_WHY_BYTES, "frame layout");
_Static_assert(sizeof(struct hoop_frame_rank) == 16 + 8, "frame layout");
_Static_assert(sizeof(struct hoop_frame_beat) == 16 + 8, "frame layout");
_Static_assert(sizeof(struct hoop_address) == 24, "frame layout");
_Static_assert(sizeof(struct hoop_frame_machine) == 16 + 24 + 8 + 64, "frame layout");
_Static_assert(sizeof(struct hoop_frame_tree) == 16 + 8 + 24, "frame layout");
_Static_assert(sizeof(struct hoop_frame_gate) == 16 + 16, "frame layout");
_Static_assert(sizeof(struct hoop_frame_region) == 16 + 16, "frame layout");
_Static_assert(sizeof(struct hoop_frame_region_is) == 16 + 32, "frame layout");
_Static_assert(sizeof(struct hoop_frame_blob) == 16 + 24 + HOOP_FRAME_BLOB_BYTES, "frame layout");

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
    if (m->kind < HOOP_HELLO_JOIN || m->kind > HOOP_HELLO_DATA) {
        return "kind";
    }
    const bool between_ranks = m->kind == HOOP_HELLO_PEER || m->kind == HOOP_HELLO_DATA;
    if (m->want_secret > 1 || (m->want_secret == 1 && m->kind != HOOP_HELLO_JOIN)) {
        return "want_secret";
    }
    if (m->from >= HOOP_FRAME_MAX_RANKS || m->to >= HOOP_FRAME_MAX_RANKS) {
        return "rank";
    }
    if (between_ranks && m->from == m->to) {
        return "rank";
    }
    if (!FRAME_STRING_OK(m->meeting)) {
        return "meeting";
    }
    const bool laned = m->kind == HOOP_HELLO_DATA && m->lane < HOOP_FRAME_MAX_LANES;
    return m->lane != 0 && !laned ? "lane" : NULL;
}

/* A failure of the public list; HOOP_AGAIN is not in it. */
static bool frame_code_ok(int32_t code)
{
    switch (code) {
#define FRAME_CODE(name, value, text) case value:
        HOOP_RESULTS(FRAME_CODE)
#undef FRAME_CODE
        return code != HOOP_OK && code != HOOP_IN_PROGRESS;
    default:
        return false;
    }
}

static const char *frame_check_fail(const union hoop_frame *frame)
{
    const struct hoop_frame_reject *m = &frame->reject;
    if (!frame_code_ok(m->code)) {
        return "code";
    }
    if (m->rank < -1 || m->rank >= (int32_t)HOOP_FRAME_MAX_RANKS) {
        return "rank";
    }
    return FRAME_STRING_OK(m->text) ? NULL : "text";
}

static const char *frame_check_reject(const union hoop_frame *frame)
{
    const struct hoop_frame_reject *m = &frame->reject;
    if (m->code != HOOP_IN_PROGRESS) {
        return frame_check_fail(frame);
    }
    return m->rank == -1 && FRAME_STRING_OK(m->text) ? NULL : "text";
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
    if (m->machines == 0 || m->machines > m->n || m->reserved != 0) {
        return "machines";
    }
    if (!hoop_address_is_valid(&m->address) || m->address.port != 0) {
        return "address";
    }
    return m->dead_after_ms == 0 || m->dead_after_ms > HOOP_FRAME_MAX_MS ? "time" : NULL;
}

static const char *frame_check_part(const union hoop_frame *frame)
{
    const struct hoop_frame_roster_part *m = &frame->part;
    if (m->first >= HOOP_FRAME_MAX_RANKS || m->count > HOOP_FRAME_MAX_RANKS - m->first) {
        return "first";
    }
    if (m->count == 0) { /* after the last one, it would complete a roster again and again */
        return "count";
    }
    for (uint32_t i = 0; i < m->count; i++) {
        const struct hoop_frame_entry *entry = &m->entries[i];
        if (entry->process == 0 || entry->pid < 0 || entry->has_fd > 1) {
            return "process";
        }
        if (entry->machine >= HOOP_FRAME_MAX_RANKS) {
            return "machine";
        }
        if (!FRAME_STRING_OK(entry->host) || !FRAME_STRING_OK(entry->listener)) {
            return "name";
        }
    }
    return NULL;
}

static const char *frame_check_lost(const union hoop_frame *frame)
{
    const struct hoop_frame_lost *m = &frame->lost;
    if (m->rank >= HOOP_FRAME_MAX_RANKS) {
        return "rank";
    }
    return m->certain <= 1 && FRAME_STRING_OK(m->why) ? NULL : "why";
}

static const char *frame_check_rank(const union hoop_frame *frame)
{
    const struct hoop_frame_rank *m = &frame->gone;
    return m->rank < HOOP_FRAME_MAX_RANKS && m->reserved == 0 ? NULL : "rank";
}

static const char *frame_check_beat(const union hoop_frame *frame)
{
    return frame->beat.waiting <= 1 && frame->beat.reserved == 0 ? NULL : "waiting";
}

static const char *frame_check_machine(const union hoop_frame *frame)
{
    const struct hoop_frame_machine *m = &frame->machine;
    if (!hoop_address_is_valid(&m->address) || m->address.family == 0 || m->address.port == 0) {
        return "address";
    }
    return m->process != 0 && FRAME_STRING_OK(m->host) ? NULL : "process";
}

static const char *frame_check_tree(const union hoop_frame *frame)
{
    const struct hoop_frame_tree *m = &frame->tree;
    if (m->machines == 0 || m->machines > HOOP_FRAME_MAX_RANKS || m->machine >= m->machines) {
        return "machine";
    }
    const bool has_parent = m->parent.family != 0 && m->parent.port != 0;
    return hoop_address_is_valid(&m->parent) && has_parent == (m->machine != 0) ? NULL : "parent";
}

static const char *frame_check_gate(const union hoop_frame *frame)
{
    const struct hoop_frame_gate *m = &frame->gate;
    return m->machine < HOOP_FRAME_MAX_RANKS && m->process != 0 && m->pid > 0 ? NULL : "process";
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
    if (m->code != HOOP_OK && !frame_code_ok(m->code)) {
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
    if (m->from >= HOOP_FRAME_MAX_RANKS || m->to >= HOOP_FRAME_MAX_RANKS || m->from == m->to) {
        return "rank";
    }
    if (m->lane >= HOOP_FRAME_MAX_LANES) {
        return "lane";
    }
    if (m->sending > 1 || m->reserved != 0) {
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
    [HOOP_FRAME_MACHINE] = {"MACHINE", sizeof(struct hoop_frame_machine), frame_check_machine},
    [HOOP_FRAME_TREE] = {"TREE", sizeof(struct hoop_frame_tree), frame_check_tree},
    [HOOP_FRAME_GATE] = {"GATE", sizeof(struct hoop_frame_gate), frame_check_gate},
    [HOOP_FRAME_GONE] = {"GONE", sizeof(struct hoop_frame_rank), frame_check_rank},
    [HOOP_FRAME_FAIL] = {"FAIL", sizeof(struct hoop_frame_reject), frame_check_fail},
    [HOOP_FRAME_BEAT] = {"BEAT", sizeof(struct hoop_frame_beat), frame_check_beat},
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

uint32_t hoop_frame_fd_count(const union hoop_frame *frame)
{
    uint32_t count = 0;
    switch (frame->header.type) {
    case HOOP_FRAME_JOIN:
    case HOOP_FRAME_ROSTER:
        return 1;
    case HOOP_FRAME_ROSTER_PART:
        for (uint32_t i = 0; i < frame->part.count; i++) {
            count += frame->part.entries[i].has_fd != 0 ? 1 : 0;
        }
        return count;
    case HOOP_FRAME_REGION_IS:
        return frame->region_is.code == HOOP_OK ? 1 : 0;
    default:
        return 0;
    }
}

/* Can a message of this type have this size? A roster part's depends on its count, which is not
 * looked at. */
static bool frame_size_ok(uint32_t type, size_t bytes)
{
    if (type != HOOP_FRAME_ROSTER_PART) {
        return bytes == frame_forms[type].bytes;
    }
    const size_t empty = frame_part_bytes(0);
    return bytes >= empty && bytes <= frame_part_bytes(HOOP_FRAME_MAX_FDS) &&
           (bytes - empty) % sizeof(struct hoop_frame_entry) == 0;
}

static hoop_result_t frame_check_header(const struct hoop_frame_header *header, char *ret_text,
                                        size_t text_bytes)
{
    if (header->magic != HOOP_FRAME_MAGIC) {
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
    if (header->reserved != 0 || !frame_size_ok(header->type, header->bytes)) {
        (void)snprintf(ret_text, text_bytes, "says that it has %u bytes, which no %s has",
                       header->bytes, hoop_frame_name(header->type));
        return HOOP_INVALID_ARGUMENT;
    }
    return HOOP_OK;
}

hoop_result_t hoop_frame_stream_bytes(const struct hoop_frame_header *header, size_t *ret_bytes,
                                      char *ret_text, size_t text_bytes)
{
    const hoop_result_t result = frame_check_header(header, ret_text, text_bytes);
    if (result == HOOP_OK) {
        *ret_bytes = header->bytes;
    }
    return result;
}

/* Its header's size is possible and is what came. */
static bool frame_count_ok(const union hoop_frame *frame)
{
    return frame->header.type != HOOP_FRAME_ROSTER_PART ||
           (frame->part.count <= HOOP_FRAME_MAX_FDS &&
            frame->header.bytes == frame_part_bytes(frame->part.count));
}

/* All but the descriptors. */
static hoop_result_t frame_check(const union hoop_frame *frame, size_t bytes, char *ret_text,
                                 size_t text_bytes)
{
    const struct hoop_frame_header *header = &frame->header;
    if (bytes < sizeof(*header)) {
        (void)snprintf(ret_text, text_bytes, "does not begin like a message of hoop");
        return HOOP_INVALID_ARGUMENT;
    }
    const hoop_result_t result = frame_check_header(header, ret_text, text_bytes);
    if (result != HOOP_OK) {
        return result;
    }
    const char *name = hoop_frame_name(header->type);
    if (header->bytes != bytes || !frame_count_ok(frame)) {
        (void)snprintf(ret_text, text_bytes, "has %zu bytes, which no %s has", bytes, name);
        return HOOP_INVALID_ARGUMENT;
    }
    const char *field = frame_forms[header->type].check(frame);
    if (field != NULL) {
        (void)snprintf(ret_text, text_bytes, "is a %s with a bad %s", name, field);
        return HOOP_INVALID_ARGUMENT;
    }
    return HOOP_OK;
}

hoop_result_t hoop_frame_check(const union hoop_frame *frame, size_t bytes, uint32_t fd_count,
                               char *ret_text, size_t text_bytes)
{
    const hoop_result_t result = frame_check(frame, bytes, ret_text, text_bytes);
    if (result == HOOP_OK && fd_count != hoop_frame_fd_count(frame)) {
        (void)snprintf(ret_text, text_bytes, "is a %s with %u descriptors, expected %u",
                       hoop_frame_name(frame->header.type), fd_count, hoop_frame_fd_count(frame));
        return HOOP_INVALID_ARGUMENT;
    }
    return result;
}

/* What must not cross a network; NULL: nothing of that. */
static const char *frame_check_travels(const union hoop_frame *frame)
{
    switch (frame->header.type) {
    case HOOP_FRAME_SECRET:
        return "hands out a secret";
    case HOOP_FRAME_HELLO:
        return frame->hello.want_secret != 0 ? "asks for a secret" : NULL;
    case HOOP_FRAME_ROSTER_PART:
    case HOOP_FRAME_REGION_IS:
        return hoop_frame_fd_count(frame) != 0 ? "promises descriptors" : NULL;
    default:
        return NULL;
    }
}

hoop_result_t hoop_frame_check_far(const union hoop_frame *frame, size_t bytes, char *ret_text,
                                   size_t text_bytes)
{
    const hoop_result_t result = frame_check(frame, bytes, ret_text, text_bytes);
    const char *wrong = result == HOOP_OK ? frame_check_travels(frame) : NULL;
    if (wrong != NULL) {
        (void)snprintf(ret_text, text_bytes, "is a %s that %s over a network",
                       hoop_frame_name(frame->header.type), wrong);
        return HOOP_INVALID_ARGUMENT;
    }
    return result;
}
