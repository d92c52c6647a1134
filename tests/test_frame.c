/*
 * The checks of control messages: what is right passes; whatever else arrives, on a Unix socket or
 * on a stream, only what cannot hurt does. Built with -DHOOP_FUZZ and clang's -fsanitize=fuzzer,
 * the same judges run under libFuzzer; without, over a seeded stream of random and mutated
 * messages.
 */
#include "base/frame.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool ends(const char *text, size_t bytes)
{
    return memchr(text, 0, bytes) != NULL;
}

/* How many descriptors a reader would look for. far: over a network none can come. */
static uint32_t fds_wanted(const union hoop_frame *f, bool far)
{
    uint32_t count = 0;
    switch (f->header.type) {
    case HOOP_FRAME_JOIN:
    case HOOP_FRAME_ROSTER:
        return far ? 0 : 1;
    case HOOP_FRAME_REGION_IS:
        return f->region_is.code == HOOP_OK ? 1 : 0;
    case HOOP_FRAME_ROSTER_PART:
        for (uint32_t i = 0; i < f->part.count && i < HOOP_FRAME_MAX_FDS; i++) {
            count += f->part.entries[i].has_fd;
        }
        return count;
    default:
        return 0;
    }
}

static bool part_is_safe(const struct hoop_frame_roster_part *part, size_t bytes)
{
    bool safe = part->count <= HOOP_FRAME_MAX_FDS &&
                (uint64_t)part->first + part->count <= HOOP_FRAME_MAX_RANKS;
    for (uint32_t i = 0; safe && i < part->count; i++) {
        const struct hoop_frame_entry *entry = &part->entries[i];
        safe = (size_t)((const char *)(entry + 1) - (const char *)part) <= bytes &&
               entry->machine < HOOP_FRAME_MAX_RANKS && ends(entry->host, sizeof(entry->host)) &&
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

/* Could a reader that trusts the frame come to harm? Written apart from the checks. */
static bool is_safe(const union hoop_frame *f, size_t bytes, uint32_t fds, bool far)
{
    if (bytes < sizeof(f->header) || bytes > sizeof(*f) || f->header.bytes != bytes ||
        fds != fds_wanted(f, far)) {
        return false;
    }
    switch (f->header.type) {
    case HOOP_FRAME_HELLO:
        return bytes == sizeof(f->hello) && ends(f->hello.meeting, sizeof(f->hello.meeting)) &&
               f->hello.lane < HOOP_FRAME_MAX_LANES && !(far && f->hello.want_secret != 0);
    case HOOP_FRAME_SECRET:
        return bytes == sizeof(f->secret) && !far;
    case HOOP_FRAME_REJECT:
        return bytes == sizeof(f->reject) && ends(f->reject.text, sizeof(f->reject.text)) &&
               (is_failure(f->reject.code) || f->reject.code == HOOP_IN_PROGRESS);
    case HOOP_FRAME_FAIL:
        return bytes == sizeof(f->reject) && ends(f->reject.text, sizeof(f->reject.text)) &&
               is_failure(f->reject.code);
    case HOOP_FRAME_JOIN:
        return bytes == sizeof(f->join) && f->join.rank < f->join.n &&
               f->join.n <= HOOP_FRAME_MAX_RANKS && f->join.left_ms <= f->join.timeout_ms &&
               f->join.segment_bytes > 0 && ends(f->join.host, sizeof(f->join.host)) &&
               ends(f->join.listener, sizeof(f->join.listener)) &&
               ends(f->join.comm_name, sizeof(f->join.comm_name));
    case HOOP_FRAME_ROSTER:
        return bytes == sizeof(f->roster) && f->roster.n > 0 &&
               f->roster.n <= HOOP_FRAME_MAX_RANKS && f->roster.segment_bytes > 0 &&
               f->roster.machines > 0 && f->roster.machines <= f->roster.n;
    case HOOP_FRAME_ROSTER_PART:
        return part_is_safe(&f->part, bytes);
    case HOOP_FRAME_LOST:
        return bytes == sizeof(f->lost) && f->lost.rank < HOOP_FRAME_MAX_RANKS &&
               ends(f->lost.why, sizeof(f->lost.why));
    case HOOP_FRAME_GONE:
        return bytes == sizeof(f->gone) && f->gone.rank < HOOP_FRAME_MAX_RANKS;
    case HOOP_FRAME_REGION_IS:
        return bytes == sizeof(f->region_is);
    case HOOP_FRAME_BLOB:
        return bytes == sizeof(f->blob) && f->blob.bytes <= HOOP_FRAME_BLOB_BYTES &&
               f->blob.lane < HOOP_FRAME_MAX_LANES && f->blob.from < HOOP_FRAME_MAX_RANKS &&
               f->blob.to < HOOP_FRAME_MAX_RANKS;
    case HOOP_FRAME_MACHINE:
        return bytes == sizeof(f->machine) && address_is_safe(&f->machine.address, true) &&
               ends(f->machine.host, sizeof(f->machine.host));
    case HOOP_FRAME_TREE:
        return bytes == sizeof(f->tree) && f->tree.machine < f->tree.machines &&
               f->tree.machines <= HOOP_FRAME_MAX_RANKS &&
               address_is_safe(&f->tree.parent, f->tree.machine != 0);
    case HOOP_FRAME_GATE:
        return bytes == sizeof(f->gate) && f->gate.machine < HOOP_FRAME_MAX_RANKS;
    default:
        return bytes >= sizeof(f->header);
    }
}

/* The data lies in memory of exactly its size, so that ASan sees a read past its end. */
static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, data, bytes);
    return copy;
}

static bool passes(const uint8_t *data, size_t bytes, uint32_t fds, char *text, size_t text_bytes)
{
    union hoop_frame *frame = copy_of(data, bytes);
    const hoop_result_t result = hoop_frame_check(frame, bytes, fds, text, text_bytes);
    const bool safe = result != HOOP_OK || is_safe(frame, bytes, fds, false);
    free(frame);
    if (!safe) {
        abort(); /* the finding */
    }
    return result == HOOP_OK;
}

static bool passes_far(const uint8_t *data, size_t bytes, char *text, size_t text_bytes)
{
    union hoop_frame *frame = copy_of(data, bytes);
    const hoop_result_t result = hoop_frame_check_far(frame, bytes, text, text_bytes);
    const bool safe = result != HOOP_OK || is_safe(frame, bytes, 0, true);
    free(frame);
    if (!safe) {
        abort();
    }
    return result == HOOP_OK;
}

/*
 * Reads a stream of messages as a connection does: header, then the rest of the message, then the
 * next. Returns how many it took before the first bad one.
 */
static uint32_t read_stream(const uint8_t *data, size_t bytes)
{
    char text[160];
    uint32_t count = 0;
    while (bytes >= sizeof(struct hoop_frame_header)) {
        size_t length = 0;
        struct hoop_frame_header *header = copy_of(data, sizeof(*header));
        const hoop_result_t result = hoop_frame_stream_bytes(header, &length, text, sizeof(text));
        if (result == HOOP_OK && (length < sizeof(*header) || length > sizeof(union hoop_frame) ||
                                  length != header->bytes)) {
            abort();
        }
        free(header);
        if (result != HOOP_OK || length > bytes || !passes_far(data, length, text, sizeof(text))) {
            break;
        }
        data += length;
        bytes -= length;
        count++;
    }
    return count;
}

#ifdef HOOP_FUZZ

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[160];
    if (bytes >= 1 && bytes - 1 <= sizeof(union hoop_frame)) {
        (void)passes(data + 1, bytes - 1, data[0] % (HOOP_FRAME_MAX_FDS + 1), text, sizeof(text));
        (void)passes_far(data + 1, bytes - 1, text, sizeof(text));
    }
    (void)read_stream(data, bytes);
    return 0;
}

#else

/* A right message of every type. */
static void make(union hoop_frame *f, enum hoop_frame_type type)
{
    hoop_frame_init(f, type);
    switch (type) {
    case HOOP_FRAME_HELLO:
        f->hello.kind = HOOP_HELLO_PEER;
        f->hello.from = 3;
        break;
    case HOOP_FRAME_REJECT:
    case HOOP_FRAME_FAIL:
        f->reject.code = HOOP_TIMEOUT;
        f->reject.rank = -1;
        (void)snprintf(f->reject.text, sizeof(f->reject.text), "rank 2 did not arrive");
        break;
    case HOOP_FRAME_JOIN:
        f->join.rank = 4;
        f->join.n = 5;
        f->join.process = 77;
        f->join.pid = 1234;
        f->join.timeout_ms = f->join.left_ms = f->join.dead_after_ms = 1000;
        f->join.segment_bytes = 4096;
        (void)snprintf(f->join.listener, sizeof(f->join.listener), "hoop-1");
        break;
    case HOOP_FRAME_ROSTER:
        f->roster.comm_id = 9;
        f->roster.n = 5;
        f->roster.segment_bytes = 4096;
        f->roster.dead_after_ms = 1000;
        f->roster.machines = 2;
        break;
    case HOOP_FRAME_ROSTER_PART:
        hoop_frame_set_count(f, 7, 3);
        for (uint32_t i = 0; i < 3; i++) {
            f->part.entries[i].process = i + 1;
            f->part.entries[i].has_fd = i < 2;
        }
        break;
    case HOOP_FRAME_REGION_GET:
    case HOOP_FRAME_REGION_DEAD:
    case HOOP_FRAME_REGION_DROPPED:
        f->region.id = 5;
        break;
    case HOOP_FRAME_REGION_IS:
        f->region_is.id = 5;
        f->region_is.bytes = 1;
        break;
    case HOOP_FRAME_BLOB:
        f->blob.to = 1;
        break;
    case HOOP_FRAME_MACHINE:
        f->machine.address = (struct hoop_address){.family = 4, .port = 29500, .ip = {10, 0, 0, 1}};
        f->machine.process = 77;
        break;
    case HOOP_FRAME_TREE:
        f->tree.machine = 1;
        f->tree.machines = 2;
        f->tree.parent = (struct hoop_address){.family = 6, .port = 29500, .ip = {0xfd, 0, 1}};
        break;
    case HOOP_FRAME_GATE:
        f->gate.pid = 1234;
        f->gate.process = 77;
        break;
    default:
        break;
    }
}

static bool frame_passes(const union hoop_frame *f, size_t bytes, uint32_t fds)
{
    char text[160] = "";
    const bool good = passes((const uint8_t *)f, bytes, fds, text, sizeof(text));
    assert_true(good || text[0] != 0);
    return good;
}

static void test_right(void **state)
{
    union hoop_frame f;
    (void)state;
    for (int type = 1; type < HOOP_FRAME_TYPE_COUNT; type++) {
        make(&f, (enum hoop_frame_type)type);
        assert_true(frame_passes(&f, f.header.bytes, fds_wanted(&f, false)));
        assert_string_not_equal(hoop_frame_name((uint32_t)type), "unknown");
    }
    assert_string_equal(hoop_frame_name(0), "unknown");
    assert_string_equal(hoop_frame_name(HOOP_FRAME_TYPE_COUNT), "unknown");
}

static void test_wrong_form(void **state)
{
    union hoop_frame f;
    char text[160];
    (void)state;
    for (int type = 1; type < HOOP_FRAME_TYPE_COUNT; type++) {
        make(&f, (enum hoop_frame_type)type);
        const uint32_t bytes = f.header.bytes;
        const uint32_t fds = fds_wanted(&f, false);
        for (size_t length = 0; length < sizeof(f); length++) {
            assert_true(frame_passes(&f, length, fds) == (length == bytes));
            f.header.bytes = (uint32_t)length; /* the header lies along */
            assert_true(frame_passes(&f, length, fds) == (length == bytes));
            f.header.bytes = bytes;
        }
        assert_false(frame_passes(&f, bytes, fds + 1));
        assert_false(fds > 0 && frame_passes(&f, bytes, fds - 1));
        f.header.magic ^= 1;
        assert_false(frame_passes(&f, bytes, fds));
        f.header.magic ^= 1;
        f.header.reserved = 1;
        assert_false(frame_passes(&f, bytes, fds));
        f.header.reserved = 0;
        f.header.version++;
        assert_int_equal(hoop_frame_check(&f, bytes, fds, text, sizeof(text)), HOOP_MISMATCH);
        assert_non_null(strstr(text, "version 3, this process speaks 2"));
    }
    make(&f, HOOP_FRAME_GO);
    f.header.type = HOOP_FRAME_TYPE_COUNT;
    assert_false(frame_passes(&f, f.header.bytes, 0));
}

static void test_wrong_fields(void **state)
{
    union hoop_frame f;
    (void)state;
#define REJECTS(type, change)                                                                      \
    make(&f, type);                                                                                \
    change;                                                                                        \
    assert_false(frame_passes(&f, f.header.bytes, fds_wanted(&f, false)))
    REJECTS(HOOP_FRAME_HELLO, f.hello.kind = HOOP_HELLO_DATA + 1);
    REJECTS(HOOP_FRAME_HELLO, f.hello.kind = 0);
    REJECTS(HOOP_FRAME_HELLO, f.hello.lane = 1);
    REJECTS(HOOP_FRAME_HELLO,
            (f.hello.kind = HOOP_HELLO_DATA, f.hello.lane = HOOP_FRAME_MAX_LANES));
    REJECTS(HOOP_FRAME_HELLO, f.hello.want_secret = 1);
    REJECTS(HOOP_FRAME_HELLO, f.hello.to = f.hello.from);
    REJECTS(HOOP_FRAME_HELLO, f.hello.to = HOOP_FRAME_MAX_RANKS);
    REJECTS(HOOP_FRAME_HELLO, memset(f.hello.meeting, 'a', sizeof(f.hello.meeting)));
    REJECTS(HOOP_FRAME_REJECT, f.reject.code = HOOP_OK);
    REJECTS(HOOP_FRAME_REJECT, f.reject.code = HOOP_AGAIN);
    REJECTS(HOOP_FRAME_REJECT, f.reject.text[3] = '\n');
    REJECTS(HOOP_FRAME_REJECT, f.reject.rank = -2);
    REJECTS(HOOP_FRAME_REJECT, f.reject.code = 63); /* no code of ours */
    REJECTS(HOOP_FRAME_REJECT, (f.reject.code = HOOP_IN_PROGRESS, f.reject.rank = 0));
    REJECTS(HOOP_FRAME_FAIL, f.reject.code = HOOP_IN_PROGRESS);
    REJECTS(HOOP_FRAME_FAIL, f.reject.code = HOOP_OK);
    REJECTS(HOOP_FRAME_FAIL, f.reject.text[3] = 0x1b);
    REJECTS(HOOP_FRAME_JOIN, f.join.rank = f.join.n);
    REJECTS(HOOP_FRAME_JOIN, f.join.n = HOOP_FRAME_MAX_RANKS + 1);
    REJECTS(HOOP_FRAME_JOIN, f.join.pid = 0);
    REJECTS(HOOP_FRAME_JOIN, f.join.process = 0);
    REJECTS(HOOP_FRAME_JOIN, f.join.timeout_ms = UINT64_MAX);
    REJECTS(HOOP_FRAME_JOIN, f.join.left_ms = f.join.timeout_ms + 1);
    REJECTS(HOOP_FRAME_JOIN, f.join.segment_bytes = 0);
    REJECTS(HOOP_FRAME_JOIN, f.join.segment_bytes = HOOP_FRAME_MAX_SEGMENT_BYTES + 1);
    REJECTS(HOOP_FRAME_JOIN, f.join.listener[0] = 0);
    REJECTS(HOOP_FRAME_ROSTER, f.roster.n = 0);
    REJECTS(HOOP_FRAME_ROSTER, f.roster.need_fence = 2);
    REJECTS(HOOP_FRAME_ROSTER, f.roster.crowded = 2);
    REJECTS(HOOP_FRAME_JOIN, f.join.crowded = 2);
    REJECTS(HOOP_FRAME_ROSTER_PART, f.part.first = HOOP_FRAME_MAX_RANKS - 2);
    REJECTS(HOOP_FRAME_ROSTER_PART, f.part.first = UINT32_MAX);
    REJECTS(HOOP_FRAME_ROSTER_PART, hoop_frame_set_count(&f, 7, 0));
    REJECTS(HOOP_FRAME_ROSTER_PART, f.part.count = UINT32_MAX);
    REJECTS(HOOP_FRAME_ROSTER_PART, f.part.count += 1u << 29); /* the product wraps around */
    REJECTS(HOOP_FRAME_ROSTER_PART, f.part.entries[2].pid = -1);
    REJECTS(HOOP_FRAME_ROSTER_PART, f.part.entries[2].has_fd = 2);
    REJECTS(HOOP_FRAME_ROSTER_PART, f.part.entries[2].machine = HOOP_FRAME_MAX_RANKS);
    REJECTS(HOOP_FRAME_ROSTER, f.roster.machines = f.roster.n + 1);
    REJECTS(HOOP_FRAME_ROSTER, f.roster.machines = 0);
    REJECTS(HOOP_FRAME_LOST, f.lost.rank = HOOP_FRAME_MAX_RANKS);
    REJECTS(HOOP_FRAME_LOST, f.lost.why[0] = '\n');
    REJECTS(HOOP_FRAME_GONE, f.gone.rank = HOOP_FRAME_MAX_RANKS);
    REJECTS(HOOP_FRAME_BEAT, f.beat.waiting = 2);
    REJECTS(HOOP_FRAME_MACHINE, f.machine.address.port = 0);
    REJECTS(HOOP_FRAME_MACHINE, f.machine.address = (struct hoop_address){0});
    REJECTS(HOOP_FRAME_MACHINE, f.machine.address.family = 5);
    REJECTS(HOOP_FRAME_MACHINE, f.machine.process = 0);
    REJECTS(HOOP_FRAME_TREE, f.tree.machine = 0);
    REJECTS(HOOP_FRAME_TREE, f.tree.machine = f.tree.machines);
    REJECTS(HOOP_FRAME_TREE, f.tree.machines = HOOP_FRAME_MAX_RANKS + 1);
    REJECTS(HOOP_FRAME_TREE, f.tree.parent = (struct hoop_address){0});
    REJECTS(HOOP_FRAME_GATE, f.gate.machine = HOOP_FRAME_MAX_RANKS);
    REJECTS(HOOP_FRAME_GATE, f.gate.pid = 0);
    REJECTS(HOOP_FRAME_BLOB, f.blob.to = HOOP_FRAME_MAX_RANKS);
    REJECTS(HOOP_FRAME_BLOB, f.blob.from = f.blob.to);
    REJECTS(HOOP_FRAME_REGION_GET, f.region.id = 0);
    REJECTS(HOOP_FRAME_REGION_IS, f.region_is.kind = 7);
    REJECTS(HOOP_FRAME_REGION_IS, f.region_is.bytes = 0);
    REJECTS(HOOP_FRAME_BLOB, f.blob.lane = HOOP_FRAME_MAX_LANES);
    REJECTS(HOOP_FRAME_BLOB, f.blob.bytes = HOOP_FRAME_BLOB_BYTES + 1);
    REJECTS(HOOP_FRAME_BLOB, f.blob.sending = 2);
#undef REJECTS
}

static bool frame_passes_far(const union hoop_frame *f)
{
    char text[160] = "";
    const bool good = passes_far((const uint8_t *)f, f->header.bytes, text, sizeof(text));
    assert_true(good || text[0] != 0);
    return good;
}

/* Over a network the same messages, without descriptors and secrets. */
static void test_far(void **state)
{
    union hoop_frame f;
    (void)state;
    for (int type = 1; type < HOOP_FRAME_TYPE_COUNT; type++) {
        const bool travels = type != HOOP_FRAME_SECRET && type != HOOP_FRAME_ROSTER_PART &&
                             type != HOOP_FRAME_REGION_IS;
        make(&f, (enum hoop_frame_type)type);
        assert_true(frame_passes_far(&f) == travels);
    }
    make(&f, HOOP_FRAME_ROSTER_PART);
    f.part.entries[0].has_fd = f.part.entries[1].has_fd = 0;
    assert_true(frame_passes_far(&f));
    make(&f, HOOP_FRAME_REGION_IS);
    f.region_is.code = HOOP_INVALID_USAGE;
    assert_true(frame_passes_far(&f));
    make(&f, HOOP_FRAME_HELLO);
    f.hello.kind = HOOP_HELLO_JOIN;
    assert_true(frame_passes_far(&f));
    f.hello.want_secret = 1;
    assert_false(frame_passes_far(&f));
    assert_true(frame_passes(&f, f.header.bytes, 0));
    make(&f, HOOP_FRAME_REJECT);
    f.reject.code = HOOP_IN_PROGRESS;
    assert_true(frame_passes_far(&f) && frame_passes(&f, f.header.bytes, 0));
}

/* A header alone says how long its message is, or that there will be none. */
static void test_stream_header(void **state)
{
    union hoop_frame f;
    char text[160];
    (void)state;
    for (int type = 1; type < HOOP_FRAME_TYPE_COUNT; type++) {
        make(&f, (enum hoop_frame_type)type);
        const uint32_t right = f.header.bytes;
        const uint32_t empty = offsetof(struct hoop_frame_roster_part, entries);
        for (uint32_t bytes = 0; bytes < 3 * sizeof(f); bytes++) {
            size_t length = 77;
            const bool good = type == HOOP_FRAME_ROSTER_PART
                                  ? bytes >= empty && bytes <= sizeof(f) &&
                                        (bytes - empty) % sizeof(struct hoop_frame_entry) == 0
                                  : bytes == right;
            f.header.bytes = bytes;
            const hoop_result_t result =
                hoop_frame_stream_bytes(&f.header, &length, text, sizeof(text));
            assert_true((result == HOOP_OK) == good);
            assert_int_equal(length, good ? bytes : 77);
        }
        size_t length = 77;
        f.header.bytes = UINT32_MAX;
        assert_int_not_equal(hoop_frame_stream_bytes(&f.header, &length, text, sizeof(text)),
                             HOOP_OK);
        f.header.bytes = right;
        f.header.version++;
        assert_int_equal(hoop_frame_stream_bytes(&f.header, &length, text, sizeof(text)),
                         HOOP_MISMATCH);
        f.header.version--;
        f.header.magic ^= 0x100;
        assert_int_equal(hoop_frame_stream_bytes(&f.header, &length, text, sizeof(text)),
                         HOOP_INVALID_ARGUMENT);
        assert_int_equal(length, 77);
    }
}

static uint64_t next_random(uint64_t *state) /* xorshift64* */
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ull;
}

/* Up to 5 bytes of a right message changed, now and then its length; returns that. */
static size_t mutate(union hoop_frame *f, uint64_t *seed)
{
    const uint64_t random = next_random(seed);
    make(f, (enum hoop_frame_type)(1 + random % (HOOP_FRAME_TYPE_COUNT - 1)));
    uint8_t *bytes = (uint8_t *)f;
    const size_t length = f->header.bytes;
    const uint32_t changes = (random >> 16) % 6;
    for (uint32_t i = 0; i < changes; i++) {
        const uint64_t r = next_random(seed);
        bytes[r % length] = (uint8_t)(r >> 40);
    }
    return (random >> 24) % 8 == 0 ? (random >> 32) % (sizeof(*f) + 1) : length;
}

static void test_mutations(void **state)
{
    uint64_t seed = 20240229;
    uint32_t passed = 0;
    uint32_t passed_far = 0;
    union hoop_frame f;
    char text[160];
    (void)state;
    for (int round = 0; round < 200000; round++) {
        const size_t length = mutate(&f, &seed);
        const uint64_t random = next_random(&seed);
        uint32_t fds = fds_wanted(&f, false);
        if (random % 8 == 0) {
            fds = (random >> 56) % (HOOP_FRAME_MAX_FDS + 1);
        }
        passed += passes((const uint8_t *)&f, length, fds, text, sizeof(text)) ? 1 : 0;
        passed_far += passes_far((const uint8_t *)&f, length, text, sizeof(text)) ? 1 : 0;
    }
    assert_true(passed > 10000 && passed_far > 10000); /* else this looked at refusals only */
}

/* Streams of messages of which some are wrong, and streams of anything. */
static void test_stream_mutations(void **state)
{
    uint64_t seed = 19700101;
    uint64_t taken = 0;
    uint8_t stream[4 * sizeof(union hoop_frame)];
    (void)state;
    for (int round = 0; round < 20000; round++) {
        size_t length = 0;
        union hoop_frame f;
        while (length + sizeof(f) <= sizeof(stream)) {
            const size_t bytes = mutate(&f, &seed);
            memcpy(stream + length, &f, bytes);
            length += bytes;
        }
        taken += read_stream(stream, length);
        for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
            const uint64_t random = next_random(&seed);
            memcpy(stream + i, &random, length - i < sizeof(random) ? length - i : sizeof(random));
        }
        (void)read_stream(stream, length);
    }
    assert_true(taken > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_wrong_form),
        cmocka_unit_test(test_wrong_fields),
        cmocka_unit_test(test_far),
        cmocka_unit_test(test_stream_header),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_stream_mutations),
    };
    return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}

#endif
