/* Sizes and checks of control messages, without I/O. frame.h says what they mean. */
#include "control/frame.h"
#include "base/clock.h"
#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are the memory of structs");
_Static_assert(sizeof(struct hoop_address) == 24 && sizeof(struct hoop_cpus) == 16, "no padding");

/* Returns the name of a field that is wrong, or NULL. */
typedef const char *frame_check_fn(const union hoop_frame *frame);

/* Does the string end within its field, without control characters? */
#define FRAME_STRING_OK(field)                                                                     \
    (memchr(field, 0, sizeof(field)) != NULL && !hoop_text_has_control(field))

static bool frame_between(uint64_t number, uint64_t least, uint64_t most)
{
    return number >= least && number <= most;
}

static const char *frame_check_nothing(const union hoop_frame *frame)
{
    (void)frame;
    return NULL;
}

static const char *frame_check_hello(const union hoop_frame *frame)
{
    const struct hoop_frame_hello *m = &frame->hello;
    const bool of_comm = m->kind == HOOP_HELLO_PEER || m->kind == HOOP_HELLO_DATA;
    const bool ranks = m->from < HOOP_MAX_RANKS && m->to < HOOP_MAX_RANKS;
    const uint32_t lanes = m->kind == HOOP_HELLO_DATA ? HOOP_FRAME_MAX_LANES : 1;
    return !frame_between(m->kind, 1, HOOP_HELLO_KINDS - 1) ? "kind"
           : !ranks || (of_comm && m->from == m->to)        ? "rank"
           : !FRAME_STRING_OK(m->rendezvous)                ? "rendezvous"
           : !hoop_address_is_valid(&m->dialled)            ? "dialled"
           : m->lane >= lanes                               ? "lane"
           : m->encrypts > 1 || m->reserved != 0            ? "encrypts"
                                                            : NULL;
}

static const char *frame_check_fail(const union hoop_frame *frame)
{
    const struct hoop_frame_failure *m = &frame->reject;
    return !hoop_is_failure(m->code)                            ? "code"
           : m->rank < -1 || m->rank >= (int32_t)HOOP_MAX_RANKS ? "rank"
           : !FRAME_STRING_OK(m->text)                          ? "text"
                                                                : NULL;
}

static const char *frame_check_reject(const union hoop_frame *frame)
{
    const struct hoop_frame_failure *m = &frame->reject;
    if (m->code != HOOP_IN_PROGRESS) {
        return frame_check_fail(frame);
    }
    return m->rank == -1 && FRAME_STRING_OK(m->text) ? NULL : "text";
}

static const char *frame_check_entry(const struct hoop_frame_entry *m)
{
    return m->process == 0 || m->pid < 0 || m->has_fd > 1               ? "process"
           : m->machine >= HOOP_MAX_RANKS                               ? "machine"
           : m->cpus.count == 0 || m->cpus.local_n > HOOP_MAX_RANKS     ? "cpus"
           : !hoop_address_is_valid(&m->address)                        ? "address"
           : !FRAME_STRING_OK(m->host) || !FRAME_STRING_OK(m->listener) ? "name"
                                                                        : NULL;
}

static const char *frame_check_join(const union hoop_frame *frame)
{
    const struct hoop_frame_join *m = &frame->join;
    const struct hoop_frame_entry *who = &m->who;
    const bool timed = frame_between(m->timeout_ms, 1, HOOP_FRAME_MAX_MS) &&
                       frame_between(m->dead_after_ms, 1, HOOP_FRAME_MAX_MS) &&
                       m->left_ms <= m->timeout_ms;
    const bool whole = (who->address.family != 0) == (who->address.port != 0);
    return !frame_between(m->n, 1, HOOP_MAX_RANKS) || m->rank >= m->n          ? "rank"
           : who->pid == 0 || who->machine != 0 || who->has_fd != 0            ? "process"
           : m->no_membarrier > 1 || m->reserved != 0                          ? "no_membarrier"
           : m->agreed.oversubscribed != 0                                     ? "oversubscribed"
           : m->agreed.no_rdma > 1                                             ? "no_rdma"
           : m->agreed.no_cma != 0                                             ? "no_cma"
           : !timed                                                            ? "time"
           : !frame_between(m->segment_bytes, 1, HOOP_FRAME_MAX_SEGMENT_BYTES) ? "segment_bytes"
           : !whole                                                            ? "address"
           : who->listener[0] == 0                                             ? "name"
                                   : frame_check_entry(who);
}

static const char *frame_check_roster(const union hoop_frame *frame)
{
    const struct hoop_frame_roster *m = &frame->roster;
    return m->comm_id == 0                                                     ? "comm_id"
           : !frame_between(m->n, 1, HOOP_MAX_RANKS)                           ? "n"
           : m->need_fence > 1                                                 ? "need_fence"
           : !frame_between(m->segment_bytes, 1, HOOP_FRAME_MAX_SEGMENT_BYTES) ? "segment_bytes"
           : m->no_rdma > 1                                                    ? "no_rdma"
           : !frame_between(m->machines, 1, m->n)                              ? "machines"
           : !frame_between(m->dead_after_ms, 1, HOOP_FRAME_MAX_MS)            ? "time"
                                                                               : NULL;
}

static const char *frame_check_part(const union hoop_frame *frame)
{
    const struct hoop_frame_roster_part *m = &frame->part;
    const char *wrong = m->first >= HOOP_MAX_RANKS || m->count > HOOP_MAX_RANKS - m->first ? "first"
                        /* else a complete roster could be completed again and again */
                        : m->count == 0 ? "count"
                                        : NULL;
    for (uint32_t i = 0; wrong == NULL && i < m->count; i++) {
        wrong = frame_check_entry(&m->entries[i]);
    }
    return wrong;
}

static const char *frame_check_fate(const union hoop_frame *frame)
{
    const struct hoop_frame_fate *m = &frame->fate;
    const bool how = (frame->header.type == HOOP_FRAME_LEFT) == (m->how != 0);
    return m->rank >= HOOP_MAX_RANKS  ? "rank"
           : !how                     ? "how"
           : !FRAME_STRING_OK(m->why) ? "why"
                                      : NULL;
}

static const char *frame_check_info(const union hoop_frame *frame)
{
    const struct hoop_frame_info *m = &frame->info;
    const bool whole = (m->address.family != 0) == (m->address.port != 0);
    return !hoop_address_is_valid(&m->address) || !whole ? "address"
           : m->process == 0 || m->pid <= 0              ? "process"
           : m->machine >= HOOP_MAX_RANKS                ? "machine"
           : !FRAME_STRING_OK(m->host)                   ? "host"
                                                         : NULL;
}

static const char *frame_check_place(const union hoop_frame *frame)
{
    const struct hoop_frame_place *m = &frame->place;
    const bool has_parent = m->parent.family != 0 && m->parent.port != 0;
    return m->machines > HOOP_MAX_RANKS || m->machine >= m->machines               ? "machine"
           : !hoop_address_is_valid(&m->parent) || has_parent != (m->machine != 0) ? "parent"
                                                                                   : NULL;
}

static const char *frame_check_region(const union hoop_frame *frame)
{
    const struct hoop_frame_region *m = &frame->region;
    const bool asks = m->header.type == HOOP_FRAME_REGION_GET; /* a dead region is of no comm */
    return (m->comm_id != 0) != asks ? "comm_id" : m->id == 0 || m->reserved != 0 ? "id" : NULL;
}

static const char *frame_check_region_is(const union hoop_frame *frame)
{
    const struct hoop_frame_region_is *m = &frame->region_is;
    const bool comes = m->code == HOOP_OK;
    return m->comm_id == 0                                   ? "comm_id"
           : m->id == 0                                      ? "id"
           : !comes && !hoop_is_failure(m->code)             ? "code"
           : comes && m->kind >= HOOP_MEM_KINDS              ? "kind"
           : comes && !frame_between(m->bytes, 1, INT64_MAX) ? "bytes"
           : !FRAME_STRING_OK(m->why)                        ? "why"
                                                             : NULL;
}

static const char *frame_check_blob(const union hoop_frame *frame)
{
    const struct hoop_frame_blob *m = &frame->blob;
    return m->comm_id == 0                                                            ? "comm_id"
           : m->from >= HOOP_MAX_RANKS || m->to >= HOOP_MAX_RANKS || m->from == m->to ? "rank"
           : m->lane >= HOOP_FRAME_MAX_LANES                                          ? "lane"
           : m->sending > 1 || m->reserved != 0                                       ? "sending"
           : m->bytes > HOOP_FRAME_BLOB_BYTES                                         ? "bytes"
                                                                                      : NULL;
}

static const char *frame_check_view(const union hoop_frame *frame)
{
    const struct hoop_frame_view *m = &frame->view;
    return m->phase >= HOOP_VIEW_PHASES || m->exact > 1 ? "phase"
           : m->left_ms > HOOP_FRAME_MAX_MS             ? "time"
                                                        : NULL;
}

#define FRAME_FORM(type, fields, check)                                                            \
    [HOOP_FRAME_##type] = {#type, sizeof(struct hoop_frame_##fields), frame_check_##check}

static const struct frame_form {
    const char *name;
    uint32_t bytes;
    frame_check_fn *check;
} frame_forms[HOOP_FRAME_TYPE_COUNT] = {
    FRAME_FORM(HELLO, hello, hello),
    FRAME_FORM(CHALLENGE, challenge, nothing),
    FRAME_FORM(PROOF, proof, nothing),
    FRAME_FORM(WELCOME, header, nothing),
    FRAME_FORM(REJECT, failure, reject),
    FRAME_FORM(INFO, info, info),
    FRAME_FORM(JOIN, join, join),
    FRAME_FORM(PLACE, place, place),
    FRAME_FORM(ROSTER, roster, roster),
    [HOOP_FRAME_ROSTER_PART] = {"ROSTER_PART", offsetof(struct hoop_frame_roster_part, entries),
                                frame_check_part},
    FRAME_FORM(READY, header, nothing),
    FRAME_FORM(GO, header, nothing),
    FRAME_FORM(DEAD, fate, fate),
    FRAME_FORM(LEFT, fate, fate),
    FRAME_FORM(FAIL, failure, fail),
    FRAME_FORM(BEAT, beat, nothing),
    FRAME_FORM(BLOB, blob, blob),
    FRAME_FORM(REGION_GET, region, region),
    FRAME_FORM(REGION_IS, region_is, region_is),
    FRAME_FORM(REGION_DEAD, region, region),
    FRAME_FORM(VIEW, view, view),
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

void hoop_frame_make_beat(union hoop_frame *frame, uint64_t since_ns, uint64_t now_ns)
{
    hoop_frame_init(frame, HOOP_FRAME_BEAT);
    frame->beat.waited_ms = since_ns == HOOP_NEVER ? HOOP_NEVER
                            : since_ns < now_ns    ? (now_ns - since_ns) / HOOP_NS_PER_MS
                                                   : 0;
}

uint64_t hoop_frame_waiting_since(const struct hoop_frame_beat *beat, uint64_t now_ns)
{
    if (beat->waited_ms == HOOP_NEVER) {
        return HOOP_NEVER;
    }
    const bool fits = beat->waited_ms <= now_ns / HOOP_NS_PER_MS;
    return fits ? now_ns - beat->waited_ms * HOOP_NS_PER_MS : 0;
}

const char *hoop_frame_name(uint32_t type)
{
    if (type >= HOOP_FRAME_TYPE_COUNT || frame_forms[type].name == NULL) {
        return "unknown";
    }
    return frame_forms[type].name;
}

/* The number of descriptors that come with a checked message on a Unix socket. */
static uint32_t frame_fd_count(const union hoop_frame *frame)
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

/* Can a message of this type have this size? The count of a roster part is not read. */
static bool frame_size_ok(uint32_t type, size_t bytes)
{
    if (type != HOOP_FRAME_ROSTER_PART) {
        return bytes == frame_forms[type].bytes;
    }
    const size_t empty = frame_part_bytes(0);
    return bytes >= empty && bytes <= frame_part_bytes(HOOP_MAX_FDS) &&
           (bytes - empty) % sizeof(struct hoop_frame_entry) == 0;
}

hoop_result_t hoop_frame_check_header(const struct hoop_frame_header *header)
{
    if (header->magic != HOOP_FRAME_MAGIC) {
        return hoop_error(HOOP_NOT_AUTHENTICATED, "a message does not begin like a hoop message");
    }
    if (header->version != HOOP_FRAME_VERSION) {
        return hoop_error(HOOP_MISMATCH,
                          "a message has protocol version %u, this process speaks %u: their "
                          "libhoops have different versions",
                          header->version, HOOP_FRAME_VERSION);
    }
    if (header->type == 0 || header->type >= HOOP_FRAME_TYPE_COUNT) {
        return hoop_error(HOOP_NOT_AUTHENTICATED, "a message has the unknown type %u",
                          header->type);
    }
    if (header->reserved != 0 || !frame_size_ok(header->type, header->bytes)) {
        return hoop_error(HOOP_NOT_AUTHENTICATED,
                          "a message says that it has %u bytes, which is no valid size of a %s",
                          header->bytes, hoop_frame_name(header->type));
    }
    return HOOP_OK;
}

/* Checks all but the descriptors, and the MAC, which the reader has verified and cleared. */
static hoop_result_t frame_check(const union hoop_frame *frame, size_t bytes)
{
    const struct hoop_frame_header none = {.magic = 0};
    const struct hoop_frame_header *header = bytes < sizeof(none) ? &none : &frame->header;
    const hoop_result_t result = hoop_frame_check_header(header);
    if (result != HOOP_OK) {
        return result;
    }
    const char *name = hoop_frame_name(header->type);
    if (header->bytes != bytes ||
        (header->type == HOOP_FRAME_ROSTER_PART &&
         (frame->part.count > HOOP_MAX_FDS || bytes != frame_part_bytes(frame->part.count)))) {
        return hoop_error(HOOP_NOT_AUTHENTICATED,
                          "a message has %zu bytes, which is no valid size of a %s", bytes, name);
    }
    const char *field = frame_forms[header->type].check(frame);
    return field == NULL
               ? HOOP_OK
               : hoop_error(HOOP_NOT_AUTHENTICATED, "a message is a %s with a bad %s", name, field);
}

hoop_result_t hoop_frame_check(const union hoop_frame *frame, size_t bytes, uint32_t fd_count)
{
    const hoop_result_t result = frame_check(frame, bytes);
    if (result == HOOP_OK && fd_count != frame_fd_count(frame)) {
        return hoop_error(HOOP_NOT_AUTHENTICATED,
                          "a message is a %s with %u descriptors, expected %u",
                          hoop_frame_name(frame->header.type), fd_count, frame_fd_count(frame));
    }
    return result;
}

/* Why the message must not cross a network; NULL if it may. */
static const char *frame_check_travels(const union hoop_frame *frame)
{
    static const uint8_t none[HOOP_SECRET_BYTES];
    switch (frame->header.type) {
    case HOOP_FRAME_ROSTER:
        return memcmp(frame->roster.secret, none, sizeof(none)) != 0 ? "tells a secret" : NULL;
    case HOOP_FRAME_HELLO:
        return frame->hello.dialled.port == 0 ? "dialled nowhere" : NULL;
    case HOOP_FRAME_ROSTER_PART:
        return frame_fd_count(frame) != 0 ? "promises descriptors" : NULL;
    case HOOP_FRAME_REGION_GET:
    case HOOP_FRAME_REGION_IS:
    case HOOP_FRAME_REGION_DEAD:
        return "is about shared memory";
    default:
        return NULL;
    }
}

hoop_result_t hoop_frame_check_far(const union hoop_frame *frame, size_t bytes)
{
    const hoop_result_t result = frame_check(frame, bytes);
    const char *wrong = result == HOOP_OK ? frame_check_travels(frame) : NULL;
    return wrong == NULL
               ? result
               : hoop_error(HOOP_NOT_AUTHENTICATED, "a message over a network is a %s that %s",
                            hoop_frame_name(frame->header.type), wrong);
}
