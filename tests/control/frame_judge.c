/* See frame_judge.h. */
#include "control/frame_judge.h"
#include <string.h>

static bool ends(const char *text, size_t bytes)
{
    return memchr(text, 0, bytes) != NULL;
}

uint32_t judge_fds(const union hoop_frame *f, bool far)
{
    uint32_t count = 0;
    switch (f->header.type) {
    case HOOP_FRAME_JOIN:
    case HOOP_FRAME_ROSTER:
        return far ? 0 : 1;
    case HOOP_FRAME_REGION_IS:
        return f->region_is.code == HOOP_OK ? 1 : 0;
    case HOOP_FRAME_ROSTER_PART:
        for (uint32_t i = 0; i < f->part.count && i < HOOP_MAX_FDS; i++) {
            count += f->part.entries[i].has_fd;
        }
        return count;
    default:
        return 0;
    }
}

/* ---- Every string, every index ------------------------------------------------------------ */

/* The fields that are strings. Of a roster part the first entry stands for all. */
#define STRINGS(X)                                                                                 \
    X(HELLO, hello.rendezvous)                                                                     \
    X(REJECT, reject.text)                                                                         \
    X(FAIL, fail.text)                                                                             \
    X(INFO, info.host)                                                                             \
    X(JOIN, join.who.host)                                                                         \
    X(JOIN, join.who.listener)                                                                     \
    X(ROSTER_PART, part.entries[0].host)                                                           \
    X(ROSTER_PART, part.entries[0].listener)                                                       \
    X(DEAD, fate.why)                                                                              \
    X(LEFT, fate.why)                                                                              \
    X(REGION_IS, region_is.why)

/* The fields that are indices: X(type, field, the first number that is too large) */
#define INDEXES(X)                                                                                 \
    X(HELLO, hello.kind, HOOP_HELLO_KINDS)                                                         \
    X(HELLO, hello.from, HOOP_MAX_RANKS)                                                           \
    X(HELLO, hello.to, HOOP_MAX_RANKS)                                                             \
    X(HELLO, hello.lane, HOOP_FRAME_MAX_LANES)                                                     \
    X(REJECT, reject.rank, HOOP_MAX_RANKS)                                                         \
    X(FAIL, fail.rank, HOOP_MAX_RANKS)                                                             \
    X(INFO, info.machine, HOOP_MAX_RANKS)                                                          \
    X(JOIN, join.rank, HOOP_MAX_RANKS)                                                             \
    X(JOIN, join.n, HOOP_MAX_RANKS + 1)                                                            \
    X(JOIN, join.no_membarrier, 2)                                                                 \
    X(JOIN, join.agreed.oversubscribed, 1)                                                         \
    X(JOIN, join.who.cpus.local_n, HOOP_MAX_RANKS + 1)                                             \
    X(JOIN, join.agreed.no_rdma, 2)                                                                \
    X(JOIN, join.agreed.no_cma, 1)                                                                 \
    X(VIEW, view.phase, HOOP_VIEW_PHASES)                                                          \
    X(VIEW, view.exact, 2)                                                                         \
    X(PLACE, place.machine, HOOP_MAX_RANKS)                                                        \
    X(PLACE, place.machines, HOOP_MAX_RANKS + 1)                                                   \
    X(ROSTER, roster.n, HOOP_MAX_RANKS + 1)                                                        \
    X(ROSTER, roster.need_fence, 2)                                                                \
    X(ROSTER, roster.no_rdma, 2)                                                                   \
    X(ROSTER, roster.machines, HOOP_MAX_RANKS + 1)                                                 \
    X(ROSTER_PART, part.first, HOOP_MAX_RANKS)                                                     \
    X(ROSTER_PART, part.count, HOOP_MAX_FDS + 1)                                                   \
    X(ROSTER_PART, part.entries[0].machine, HOOP_MAX_RANKS)                                        \
    X(ROSTER_PART, part.entries[0].has_fd, 2)                                                      \
    X(DEAD, fate.rank, HOOP_MAX_RANKS)                                                             \
    X(DEAD, fate.how, 1)                                                                           \
    X(LEFT, fate.rank, HOOP_MAX_RANKS)                                                             \
    X(BLOB, blob.from, HOOP_MAX_RANKS)                                                             \
    X(BLOB, blob.to, HOOP_MAX_RANKS)                                                               \
    X(BLOB, blob.lane, HOOP_FRAME_MAX_LANES)                                                       \
    X(BLOB, blob.sending, 2)                                                                       \
    X(BLOB, blob.bytes, HOOP_FRAME_BLOB_BYTES + 1)                                                 \
    X(REGION_IS, region_is.kind, HOOP_MEM_KINDS)

#define FIELD_BYTES(field) sizeof(((union hoop_frame *)NULL)->field)
#define STRING_ROW(type, field)                                                                    \
    {HOOP_FRAME_##type, offsetof(union hoop_frame, field), FIELD_BYTES(field), 0},
#define INDEX_ROW(type, field, below)                                                              \
    {HOOP_FRAME_##type, offsetof(union hoop_frame, field), FIELD_BYTES(field), below},

const struct judge_field judge_fields[] = {STRINGS(STRING_ROW) INDEXES(INDEX_ROW)};
const size_t judge_field_count = sizeof(judge_fields) / sizeof(judge_fields[0]);

static uint64_t field_number(const struct judge_field *field, const union hoop_frame *f)
{
    uint64_t number = 0;
    memcpy(&number, (const uint8_t *)f + field->at, field->bytes); /* little-endian, like frames */
    return number;
}

static bool fields_are_safe(const union hoop_frame *f)
{
    for (size_t i = 0; i < judge_field_count; i++) {
        const struct judge_field *field = &judge_fields[i];
        const uint64_t number = field->below != 0 ? field_number(field, f) : 0;
        /* a failure may have no rank; a failed region has no kind */
        const bool none =
            (f->header.type == HOOP_FRAME_REGION_IS && f->region_is.code != 0) ||
            ((f->header.type == HOOP_FRAME_REJECT || f->header.type == HOOP_FRAME_FAIL) &&
             number == UINT32_MAX);
        if (field->type != f->header.type) {
            continue;
        }
        if (field->below == 0 ? !ends((const char *)f + field->at, field->bytes)
                              : number >= field->below && !none) {
            return false;
        }
    }
    return true;
}

/* ---- What is safe ------------------------------------------------------------------------- */

static bool part_is_safe(const struct hoop_frame_roster_part *part, size_t bytes)
{
    bool safe =
        part->count <= HOOP_MAX_FDS && (uint64_t)part->first + part->count <= HOOP_MAX_RANKS;
    for (uint32_t i = 0; safe && i < part->count; i++) {
        const struct hoop_frame_entry *entry = &part->entries[i];
        safe = (size_t)((const char *)(entry + 1) - (const char *)part) <= bytes &&
               entry->machine < HOOP_MAX_RANKS && ends(entry->host, sizeof(entry->host)) &&
               ends(entry->listener, sizeof(entry->listener));
    }
    return safe;
}

static bool is_failure(int32_t code)
{
    return code != HOOP_OK && code != HOOP_IN_PROGRESS && code != HOOP_AGAIN;
}

static bool address_is_safe(const struct hoop_address *address, bool must_be)
{
    char text[HOOP_ADDRESS_TEXT_BYTES];
    hoop_address_format(address, text, sizeof(text));
    return address->family == 4 || address->family == 6 || (!must_be && address->family == 0);
}

/* Rules that concern more than one field. */
static bool whole_is_safe(const union hoop_frame *f, size_t bytes, bool far)
{
    switch (f->header.type) {
    case HOOP_FRAME_HELLO:
        return address_is_safe(&f->hello.dialled, far);
    case HOOP_FRAME_REJECT:
        return is_failure(f->reject.code) || f->reject.code == HOOP_IN_PROGRESS;
    case HOOP_FRAME_FAIL:
        return is_failure(f->fail.code);
    case HOOP_FRAME_INFO:
        return address_is_safe(&f->info.address, false) && f->info.process != 0;
    case HOOP_FRAME_JOIN:
        return f->join.rank < f->join.n && f->join.left_ms <= f->join.timeout_ms &&
               f->join.segment_bytes > 0 && address_is_safe(&f->join.who.address, false);
    case HOOP_FRAME_PLACE:
        return f->place.machine < f->place.machines &&
               address_is_safe(&f->place.parent, f->place.machine != 0);
    case HOOP_FRAME_ROSTER:
        return f->roster.n > 0 && f->roster.segment_bytes > 0 && f->roster.machines > 0 &&
               f->roster.machines <= f->roster.n &&
               !(far && strnlen((const char *)f->roster.secret, HOOP_SECRET_BYTES) > 0);
    case HOOP_FRAME_ROSTER_PART:
        return part_is_safe(&f->part, bytes);
    case HOOP_FRAME_BLOB:
        return f->blob.comm_id != 0;
    case HOOP_FRAME_REGION_GET:
    case HOOP_FRAME_REGION_IS:
    case HOOP_FRAME_REGION_DEAD:
        return !far;
    default:
        return true;
    }
}

bool judge_is_safe(const union hoop_frame *f, size_t bytes, uint32_t fds, bool far)
{
    union hoop_frame whole; /* fields of a short frame are read by their offset */
    union hoop_frame right;
    if (bytes < sizeof(f->header) || bytes > sizeof(*f) || f->header.bytes != bytes ||
        fds != judge_fds(f, far)) {
        return false;
    }
    hoop_frame_init(&right, (enum hoop_frame_type)f->header.type);
    if (bytes != right.header.bytes && f->header.type != HOOP_FRAME_ROSTER_PART) {
        return false;
    }
    memset(&whole, 0, sizeof(whole));
    memcpy(&whole, f, bytes);
    return fields_are_safe(&whole) && whole_is_safe(f, bytes, far);
}
