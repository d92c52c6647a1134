/* Sizes and checks of control messages: pure, no I/O. What they mean is in frame.h. */
#include "control/frame.h"
#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are the memory of structs");
#define FRAME_HEAD 24
#define FRAME_LAYOUT(name, body)                                                                   \
    _Static_assert(sizeof(struct hoop_frame_##name) == (body), "frame layout")
FRAME_LAYOUT(header, FRAME_HEAD);
FRAME_LAYOUT(hello, FRAME_HEAD + 64 + HOOP_NAME_BYTES + HOOP_NONCE_BYTES);
FRAME_LAYOUT(secret, FRAME_HEAD + HOOP_SECRET_BYTES);
FRAME_LAYOUT(challenge, FRAME_HEAD + HOOP_NONCE_BYTES + HOOP_MAC_BYTES);
FRAME_LAYOUT(proof, FRAME_HEAD + HOOP_MAC_BYTES);
FRAME_LAYOUT(failure, FRAME_HEAD + 8 + HOOP_FAILURE_TEXT_BYTES);
FRAME_LAYOUT(join, FRAME_HEAD + 64 + sizeof(struct hoop_agreement) + 2ul * HOOP_NAME_BYTES +
                       HOOP_FRAME_COMM_NAME_BYTES);
FRAME_LAYOUT(roster, FRAME_HEAD + 56 + 24);
FRAME_LAYOUT(entry, 24 + 2 * HOOP_NAME_BYTES);
FRAME_LAYOUT(plain, FRAME_HEAD);
FRAME_LAYOUT(dead, FRAME_HEAD + 8 + HOOP_FRAME_WHY_BYTES);
FRAME_LAYOUT(left, FRAME_HEAD + 8);
FRAME_LAYOUT(beat, FRAME_HEAD + 8);
FRAME_LAYOUT(info, FRAME_HEAD + 24 + 16 + HOOP_NAME_BYTES);
FRAME_LAYOUT(place, FRAME_HEAD + 8 + 24);
FRAME_LAYOUT(region, FRAME_HEAD + 24);
FRAME_LAYOUT(region_is, FRAME_HEAD + 40);
FRAME_LAYOUT(blob, FRAME_HEAD + 32 + HOOP_FRAME_BLOB_BYTES);
_Static_assert(offsetof(struct hoop_frame_roster_part, entries) == FRAME_HEAD + 8, "frame layout");
_Static_assert(sizeof(struct hoop_address) == 24, "frame layout");

/* Returns the field that is wrong, NULL when all are right. */
typedef const char *frame_check_fn(const union hoop_frame *frame);

/* A string that ends within its field and cannot disturb a log or a terminal. */
static bool frame_string_ok(const char *text, size_t bytes)
{
    return memchr(text, 0, bytes) != NULL && !hoop_text_has_control(text);
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
    if (m->kind == 0 || m->kind >= HOOP_HELLO_KINDS) {
        return "kind";
    }
    const bool child = m->kind == HOOP_HELLO_CHILD;
    if (m->role >= HOOP_ROLES || child != (m->role != HOOP_ROLE_NONE)) {
        return "role";
    }
    if (m->want_secret > 1 || (m->want_secret == 1 && m->role != HOOP_ROLE_RANK) ||
        m->reserved != 0) {
        return "want_secret";
    }
    if (m->from >= HOOP_MAX_RANKS || m->to >= HOOP_MAX_RANKS || (!child && m->from == m->to)) {
        return "rank";
    }
    if (!FRAME_STRING_OK(m->rendezvous)) {
        return "rendezvous";
    }
    if (!hoop_address_is_valid(&m->dialled)) {
        return "dialled";
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
    const struct hoop_frame_failure *m = &frame->reject;
    if (!frame_code_ok(m->code)) {
        return "code";
    }
    if (m->rank < -1 || m->rank >= (int32_t)HOOP_MAX_RANKS) {
        return "rank";
    }
    return FRAME_STRING_OK(m->text) ? NULL : "text";
}

static const char *frame_check_reject(const union hoop_frame *frame)
{
    const struct hoop_frame_failure *m = &frame->reject;
    if (m->code != HOOP_IN_PROGRESS) {
        return frame_check_fail(frame);
    }
    return m->rank == -1 && FRAME_STRING_OK(m->text) ? NULL : "text";
}

static const char *frame_check_join(const union hoop_frame *frame)
{
    const struct hoop_frame_join *m = &frame->join;
    if (m->n == 0 || m->n > HOOP_MAX_RANKS || m->rank >= m->n) {
        return "rank";
    }
    if (m->process == 0 || m->pid <= 0) {
        return "process";
    }
    if (m->no_membarrier > 1) {
        return "no_membarrier";
    }
    if (m->agreed.oversubscribed > 1) {
        return "oversubscribed";
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
    if (m->n == 0 || m->n > HOOP_MAX_RANKS) {
        return "n";
    }
    if (m->need_fence > 1) {
        return "need_fence";
    }
    if (m->oversubscribed > 1) {
        return "oversubscribed";
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
    if (m->first >= HOOP_MAX_RANKS || m->count > HOOP_MAX_RANKS - m->first) {
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
        if (entry->machine >= HOOP_MAX_RANKS) {
            return "machine";
        }
        if (!FRAME_STRING_OK(entry->host) || !FRAME_STRING_OK(entry->listener)) {
            return "name";
        }
    }
    return NULL;
}

static const char *frame_check_dead(const union hoop_frame *frame)
{
    const struct hoop_frame_dead *m = &frame->dead;
    if (m->rank >= HOOP_MAX_RANKS) {
        return "rank";
    }
    return m->certain <= 1 && FRAME_STRING_OK(m->why) ? NULL : "why";
}

static const char *frame_check_left(const union hoop_frame *frame)
{
    const struct hoop_frame_left *m = &frame->left;
    return m->rank < HOOP_MAX_RANKS && m->reserved == 0 ? NULL : "rank";
}

static const char *frame_check_beat(const union hoop_frame *frame)
{
    return frame->beat.waiting <= 1 && frame->beat.reserved == 0 ? NULL : "waiting";
}

static const char *frame_check_info(const union hoop_frame *frame)
{
    const struct hoop_frame_info *m = &frame->info;
    if (!hoop_address_is_valid(&m->address) || (m->address.family != 0) != (m->address.port != 0)) {
        return "address";
    }
    if (m->process == 0 || m->pid <= 0) {
        return "process";
    }
    if (m->machine >= HOOP_MAX_RANKS) {
        return "machine";
    }
    return FRAME_STRING_OK(m->host) ? NULL : "host";
}

static const char *frame_check_place(const union hoop_frame *frame)
{
    const struct hoop_frame_place *m = &frame->place;
    if (m->machines == 0 || m->machines > HOOP_MAX_RANKS || m->machine >= m->machines) {
        return "machine";
    }
    const bool has_parent = m->parent.family != 0 && m->parent.port != 0;
    return hoop_address_is_valid(&m->parent) && has_parent == (m->machine != 0) ? NULL : "parent";
}

static const char *frame_check_region(const union hoop_frame *frame)
{
    const struct hoop_frame_region *m = &frame->region;
    const bool asks = m->header.type == HOOP_FRAME_REGION_GET; /* a region itself is of no comm */
    if ((m->comm_id != 0) != asks) {
        return "comm_id";
    }
    return m->id != 0 && m->reserved == 0 ? NULL : "id";
}

static const char *frame_check_region_is(const union hoop_frame *frame)
{
    const struct hoop_frame_region_is *m = &frame->region_is;
    if (m->comm_id == 0) {
        return "comm_id";
    }
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
    if (m->comm_id == 0) {
        return "comm_id";
    }
    if (m->from >= HOOP_MAX_RANKS || m->to >= HOOP_MAX_RANKS || m->from == m->to) {
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

#define FRAME_FORM(type, fields, check)                                                            \
    [HOOP_FRAME_##type] = {#type, sizeof(struct hoop_frame_##fields), frame_check_##check}

static const struct frame_form {
    const char *name;
    uint32_t bytes;
    frame_check_fn *check;
} frame_forms[HOOP_FRAME_TYPE_COUNT] = {
    FRAME_FORM(HELLO, hello, hello),
    FRAME_FORM(SECRET, secret, nothing),
    FRAME_FORM(CHALLENGE, challenge, nothing),
    FRAME_FORM(PROOF, proof, nothing),
    FRAME_FORM(WELCOME, plain, nothing),
    FRAME_FORM(REJECT, failure, reject),
    FRAME_FORM(INFO, info, info),
    FRAME_FORM(JOIN, join, join),
    FRAME_FORM(PLACE, place, place),
    FRAME_FORM(ROSTER, roster, roster),
    [HOOP_FRAME_ROSTER_PART] = {"ROSTER_PART", offsetof(struct hoop_frame_roster_part, entries),
                                frame_check_part},
    FRAME_FORM(READY, plain, nothing),
    FRAME_FORM(GO, plain, nothing),
    FRAME_FORM(DEAD, dead, dead),
    FRAME_FORM(LEFT, left, left),
    FRAME_FORM(FAIL, failure, fail),
    FRAME_FORM(BEAT, beat, beat),
    FRAME_FORM(BLOB, blob, blob),
    FRAME_FORM(REGION_GET, region, region),
    FRAME_FORM(REGION_IS, region_is, region_is),
    FRAME_FORM(REGION_DEAD, region, region),
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
    assert(frame->header.type == HOOP_FRAME_ROSTER_PART && count <= HOOP_MAX_FDS);
    frame->part.first = first;
    frame->part.count = count;
    frame->header.bytes = frame_part_bytes(count);
}

void hoop_frame_from_failure(union hoop_frame *frame, enum hoop_frame_type type,
                             const struct hoop_failure *failure)
{
    assert(type == HOOP_FRAME_REJECT || type == HOOP_FRAME_FAIL);
    hoop_frame_init(frame, type);
    frame->reject.code = failure->code == HOOP_AGAIN ? HOOP_IN_PROGRESS : (int32_t)failure->code;
    frame->reject.rank = failure->rank;
    memcpy(frame->reject.text, failure->text, sizeof(frame->reject.text));
    hoop_text_clean(frame->reject.text);
}

struct hoop_failure hoop_frame_to_failure(const struct hoop_frame_failure *frame)
{
    struct hoop_failure failure = {
        .code = frame->code == HOOP_IN_PROGRESS ? HOOP_AGAIN : (hoop_result_t)frame->code,
        .rank = frame->rank,
    };
    memcpy(failure.text, frame->text, sizeof(failure.text));
    return failure;
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
    return bytes >= empty && bytes <= frame_part_bytes(HOOP_MAX_FDS) &&
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
           (frame->part.count <= HOOP_MAX_FDS &&
            frame->header.bytes == frame_part_bytes(frame->part.count));
}

/* All but the descriptors. Who knows a key has checked the MAC and cleared it. */
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
        if (frame->hello.want_secret != 0) {
            return "asks for a secret";
        }
        return frame->hello.dialled.port == 0 ? "dialled nowhere" : NULL;
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
