/*
 * The checks of control messages: valid messages pass; of all others, on a Unix socket or on a
 * stream, only harmless ones do. Built with -DHOOP_FUZZ and clang's -fsanitize=fuzzer the same
 * judges run under libFuzzer; otherwise over a seeded sequence of random and mutated messages.
 */
#include "base/clock.h"
#include "control/frame_judge.h"
#include "harness/splitmix.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The copy lies in memory of exactly its size, so that ASan notices reads past its end. */
static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, data, bytes);
    return copy;
}

static bool passes(const uint8_t *data, size_t bytes, uint32_t fds)
{
    union hoop_frame *frame = copy_of(data, bytes);
    const hoop_result_t result = hoop_frame_check(frame, bytes, fds);
    const bool safe = result != HOOP_OK || judge_is_safe(frame, bytes, fds, false);
    free(frame);
    if (!safe) {
        abort(); /* tells libFuzzer */
    }
    return result == HOOP_OK;
}

static bool passes_far(const uint8_t *data, size_t bytes)
{
    union hoop_frame *frame = copy_of(data, bytes);
    const hoop_result_t result = hoop_frame_check_far(frame, bytes);
    const bool safe = result != HOOP_OK || judge_is_safe(frame, bytes, 0, true);
    free(frame);
    if (!safe) {
        abort();
    }
    return result == HOOP_OK;
}

/*
 * Reads a stream of messages as a connection does: a header, the rest of the message, the next
 * header. Returns how many it accepted before the first bad one.
 */
static uint32_t read_stream(const uint8_t *data, size_t bytes)
{
    uint32_t count = 0;
    while (bytes >= sizeof(struct hoop_frame_header)) {
        struct hoop_frame_header *header = copy_of(data, sizeof(*header));
        const hoop_result_t result = hoop_frame_check_header(header);
        const size_t length = header->bytes;
        if (result == HOOP_OK && (length < sizeof(*header) || length > sizeof(union hoop_frame))) {
            abort();
        }
        free(header);
        if (result != HOOP_OK || length > bytes || !passes_far(data, length)) {
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
    if (bytes >= 1 && bytes - 1 <= sizeof(union hoop_frame)) {
        (void)passes(data + 1, bytes - 1, data[0] % (HOOP_MAX_FDS + 1));
        (void)passes_far(data + 1, bytes - 1);
    }
    (void)read_stream(data, bytes);
    return 0;
}

#else

/* Makes a valid message of each type. */
static void make(union hoop_frame *f, enum hoop_frame_type type)
{
    hoop_frame_init(f, type);
    switch (type) {
    case HOOP_FRAME_HELLO:
        f->hello.kind = HOOP_HELLO_PEER;
        f->hello.from = 3;
        f->hello.dialled = (struct hoop_address){.family = 4, .port = 29500, .ip = {10, 0, 0, 1}};
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
        f->join.who.process = 77;
        f->join.who.pid = 1234;
        f->join.who.cpus.count = 1;
        f->join.timeout_ms = f->join.left_ms = f->join.dead_after_ms = 1000;
        f->join.segment_bytes = 4096;
        (void)snprintf(f->join.who.listener, sizeof(f->join.who.listener), "hoop-1");
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
            f->part.entries[i].cpus.count = 1;
            f->part.entries[i].has_fd = i < 2;
        }
        break;
    case HOOP_FRAME_REGION_GET:
        f->region.comm_id = 9;
        f->region.id = 5;
        break;
    case HOOP_FRAME_REGION_DEAD:
        f->region.id = 5;
        break;
    case HOOP_FRAME_REGION_IS:
        f->region_is.comm_id = 9;
        f->region_is.id = 5;
        f->region_is.bytes = 1;
        break;
    case HOOP_FRAME_LEFT:
        f->fate.how = 1;
        break;
    case HOOP_FRAME_BLOB:
        f->blob.comm_id = 9;
        f->blob.to = 1;
        break;
    case HOOP_FRAME_INFO:
        f->info.address = (struct hoop_address){.family = 4, .port = 29500, .ip = {10, 0, 0, 1}};
        f->info.process = 77;
        f->info.pid = 1234;
        break;
    case HOOP_FRAME_PLACE:
        f->place.machine = 1;
        f->place.machines = 2;
        f->place.parent = (struct hoop_address){.family = 6, .port = 29500, .ip = {0xfd, 0, 1}};
        break;
    default:
        break;
    }
}

static bool frame_passes(const union hoop_frame *f, size_t bytes, uint32_t fds)
{
    (void)hoop_error(HOOP_OK, " ");
    const bool good = passes((const uint8_t *)f, bytes, fds);
    assert_true(good || strcmp(hoop_thread_error(), " ") != 0);
    return good;
}

static void test_right(void **state)
{
    union hoop_frame f;
    (void)state;
    for (int type = 1; type < HOOP_FRAME_TYPE_COUNT; type++) {
        make(&f, (enum hoop_frame_type)type);
        assert_true(frame_passes(&f, f.header.bytes, judge_fds(&f, false)));
        assert_string_not_equal(hoop_frame_name((uint32_t)type), "unknown");
    }
    assert_string_equal(hoop_frame_name(0), "unknown");
    assert_string_equal(hoop_frame_name(HOOP_FRAME_TYPE_COUNT), "unknown");
}

static void test_wrong_form(void **state)
{
    union hoop_frame f;
    (void)state;
    for (int type = 1; type < HOOP_FRAME_TYPE_COUNT; type++) {
        make(&f, (enum hoop_frame_type)type);
        const uint32_t bytes = f.header.bytes;
        const uint32_t fds = judge_fds(&f, false);
        for (size_t length = 0; length < sizeof(f); length++) {
            assert_true(frame_passes(&f, length, fds) == (length == bytes));
            f.header.bytes = (uint32_t)length; /* the header says so, too */
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
        assert_int_equal(hoop_frame_check(&f, bytes, fds), HOOP_MISMATCH);
        char text[64];
        (void)snprintf(text, sizeof(text), "version %u, this process speaks %u",
                       HOOP_FRAME_VERSION + 1, HOOP_FRAME_VERSION);
        assert_non_null(strstr(hoop_thread_error(), text));
    }
    make(&f, HOOP_FRAME_GO);
    f.header.type = HOOP_FRAME_TYPE_COUNT;
    assert_false(frame_passes(&f, f.header.bytes, 0));
}

static void check_refused(const union hoop_frame *right, const struct judge_field *field,
                          const void *value, size_t bytes)
{
    union hoop_frame f = *right;
    memcpy((uint8_t *)&f + field->at, value, bytes);
    assert_false(frame_passes(&f, f.header.bytes, judge_fds(&f, false)));
}

static void check_string(const union hoop_frame *right, const struct judge_field *field)
{
    static const char *const bad[] = {"\n", "\x1b[2J", "\x7f", "\xc2\x9b", "\x9b"};
    char endless[HOOP_FAILURE_TEXT_BYTES];
    union hoop_frame f = *right;
    memset(endless, 'a', sizeof(endless));
    check_refused(right, field, endless, field->bytes);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        check_refused(right, field, bad[i], strlen(bad[i]) + 1);
    }
    memcpy((uint8_t *)&f + field->at, "\xc3\xa4", 3);
    assert_true(frame_passes(&f, f.header.bytes, judge_fds(&f, false)));
}

static void test_every_field(void **state)
{
    union hoop_frame f;
    (void)state;
    for (size_t i = 0; i < judge_field_count; i++) {
        const struct judge_field *field = &judge_fields[i];
        make(&f, (enum hoop_frame_type)field->type);
        if (field->below == 0) {
            check_string(&f, field);
            continue;
        }
        const bool failure = field->type == HOOP_FRAME_REJECT || field->type == HOOP_FRAME_FAIL;
        const uint64_t most = failure ? UINT64_MAX - 1 : UINT64_MAX; /* -1 means no rank */
        check_refused(&f, field, &field->below, field->bytes);
        check_refused(&f, field, &most, field->bytes);
    }
}

/* Wrong values between fields, and in fields that are no indices. */
static void test_wrong_fields(void **state)
{
    union hoop_frame f;
    (void)state;
#define REJECTS(type, change)                                                                      \
    make(&f, HOOP_FRAME_##type);                                                                   \
    change;                                                                                        \
    assert_false(frame_passes(&f, f.header.bytes, judge_fds(&f, false)))
    REJECTS(HELLO, f.hello.kind = 0);
    REJECTS(HELLO, f.hello.kind = HOOP_HELLO_KINDS);
    REJECTS(HELLO, f.hello.lane = 1);
    REJECTS(HELLO, f.hello.encrypts = 2);
    REJECTS(HELLO, f.hello.reserved = 1);
    REJECTS(HELLO, f.hello.to = f.hello.from);
    REJECTS(HELLO, f.hello.dialled.family = 5);
    REJECTS(REJECT, f.reject.code = HOOP_OK);
    REJECTS(REJECT, f.reject.code = HOOP_AGAIN);
    REJECTS(REJECT, f.reject.code = 63); /* not a code of hoop's */
    REJECTS(REJECT, (f.reject.code = HOOP_IN_PROGRESS, f.reject.rank = 0));
    REJECTS(FAIL, f.fail.code = HOOP_IN_PROGRESS);
    REJECTS(FAIL, f.fail.code = HOOP_OK);
    REJECTS(JOIN, f.join.rank = f.join.n);
    REJECTS(JOIN, f.join.who.pid = 0);
    REJECTS(JOIN, f.join.who.machine = 1);
    REJECTS(JOIN, f.join.who.has_fd = 1);
    REJECTS(JOIN, f.join.reserved = 1);
    REJECTS(JOIN, f.join.who.process = 0);
    REJECTS(JOIN, f.join.who.cpus.count = 0);
    REJECTS(JOIN, f.join.timeout_ms = UINT64_MAX);
    REJECTS(JOIN, f.join.left_ms = f.join.timeout_ms + 1);
    REJECTS(JOIN, f.join.segment_bytes = 0);
    REJECTS(JOIN, f.join.segment_bytes = HOOP_FRAME_MAX_SEGMENT_BYTES + 1);
    REJECTS(JOIN, f.join.who.listener[0] = 0);
    REJECTS(ROSTER, f.roster.n = 0);
    REJECTS(ROSTER, f.roster.machines = f.roster.n + 1);
    REJECTS(ROSTER, f.roster.machines = 0);
    REJECTS(ROSTER_PART, f.part.first = HOOP_MAX_RANKS - 2);
    REJECTS(ROSTER_PART, hoop_frame_set_count(&f, 7, 0));
    REJECTS(ROSTER_PART, f.part.count += 1u << 29); /* the product overflows */
    REJECTS(ROSTER_PART, f.part.entries[2].pid = -1);
    REJECTS(ROSTER_PART, f.part.entries[2].cpus.local_n = HOOP_MAX_RANKS + 1);
    REJECTS(ROSTER_PART, f.part.entries[2].has_fd = 2);
    REJECTS(ROSTER_PART, f.part.entries[2].machine = HOOP_MAX_RANKS);
    REJECTS(ROSTER_PART, f.part.entries[2].host[0] = '\n');
    REJECTS(INFO, f.info.address.port = 0);
    REJECTS(INFO, f.info.address.family = 5);
    REJECTS(INFO, f.info.process = 0);
    REJECTS(INFO, f.info.pid = 0);
    REJECTS(PLACE, f.place.machine = 0);
    REJECTS(PLACE, f.place.machine = f.place.machines);
    REJECTS(PLACE, f.place.parent = (struct hoop_address){0});
    REJECTS(LEFT, f.fate.how = 0);
    REJECTS(DEAD, f.fate.how = 1);
    REJECTS(BLOB, f.blob.from = f.blob.to);
    REJECTS(BLOB, f.blob.comm_id = 0);
    REJECTS(REGION_GET, f.region.id = 0);
    REJECTS(REGION_GET, f.region.comm_id = 0);
    REJECTS(REGION_DEAD, f.region.comm_id = 9);
    REJECTS(REGION_IS, f.region_is.bytes = 0);
    REJECTS(REGION_IS, f.region_is.comm_id = 0);
#undef REJECTS
}

/* A failure is sent and received; what other senders may put into one does no harm. */
static void test_failure(void **state)
{
    const struct hoop_failure later = {.code = HOOP_AGAIN, .rank = -1, .text = "in a moment"};
    const struct hoop_failure bad = {.code = HOOP_TIMEOUT, .rank = 3, .text = "a\x1b[2J"};
    union hoop_frame f;
    (void)state;
    hoop_frame_from_failure(&f, HOOP_FRAME_REJECT, &later);
    assert_true(frame_passes(&f, f.header.bytes, 0));
    assert_int_equal(f.reject.code, HOOP_IN_PROGRESS);
    struct hoop_failure back = hoop_frame_to_failure(&f.reject);
    assert_memory_equal(&back, &later, sizeof(back));
    hoop_frame_from_failure(&f, HOOP_FRAME_FAIL, &bad);
    assert_true(frame_passes(&f, f.header.bytes, 0));
    back = hoop_frame_to_failure(&f.fail);
    assert_int_equal(back.code, HOOP_TIMEOUT);
    assert_int_equal(back.rank, 3);
    assert_string_equal(back.text, "a [2J");
}

/* Since when a rank waits, converted between two clocks. */
static void test_beat(void **state)
{
    static const uint64_t waited[] = {0, 1, 999, 86400000, UINT32_MAX};
    union hoop_frame f;
    (void)state;
    for (size_t i = 0; i < sizeof(waited) / sizeof(waited[0]); i++) {
        const uint64_t ns = waited[i] * HOOP_NS_PER_MS;
        hoop_frame_make_beat(&f, 7, 7 + ns);
        assert_true(frame_passes(&f, f.header.bytes, 0));
        assert_int_equal(hoop_frame_waiting_since(&f.beat, ns + 5000), 5000);
    }
    assert_int_equal(hoop_frame_waiting_since(&f.beat, 5000), 0); /* before that clock began */
    hoop_frame_make_beat(&f, 0, UINT64_MAX - 1);
    assert_int_equal(f.beat.waited_ms, UINT64_MAX / HOOP_NS_PER_MS);
    hoop_frame_make_beat(&f, 9, 7);
    assert_int_equal(hoop_frame_waiting_since(&f.beat, 5000), 5000);
    f.beat.waited_ms = HOOP_NEVER - 1; /* any sender may claim this */
    assert_true(frame_passes(&f, f.header.bytes, 0));
    assert_int_equal(hoop_frame_waiting_since(&f.beat, 5000), 0);
    hoop_frame_make_beat(&f, HOOP_NEVER, 7);
    assert_true(frame_passes(&f, f.header.bytes, 0));
    assert_true(hoop_frame_waiting_since(&f.beat, 5000) == HOOP_NEVER);
}

static bool frame_passes_far(const union hoop_frame *f)
{
    (void)hoop_error(HOOP_OK, " ");
    const bool good = passes_far((const uint8_t *)f, f->header.bytes);
    assert_true(good || strcmp(hoop_thread_error(), " ") != 0);
    return good;
}

/* Over a network the same messages are allowed, except those about shared memory, descriptors and
 * secrets. */
static void test_far(void **state)
{
    union hoop_frame f;
    (void)state;
    for (int type = 1; type < HOOP_FRAME_TYPE_COUNT; type++) {
        const bool travels = type != HOOP_FRAME_ROSTER_PART && type != HOOP_FRAME_REGION_GET &&
                             type != HOOP_FRAME_REGION_IS && type != HOOP_FRAME_REGION_DEAD;
        make(&f, (enum hoop_frame_type)type);
        assert_true(frame_passes_far(&f) == travels);
    }
    make(&f, HOOP_FRAME_ROSTER_PART);
    f.part.entries[0].has_fd = f.part.entries[1].has_fd = 0;
    assert_true(frame_passes_far(&f));
    make(&f, HOOP_FRAME_REGION_IS);
    f.region_is.code = HOOP_INVALID_USAGE;
    assert_false(frame_passes_far(&f));
    make(&f, HOOP_FRAME_HELLO);
    f.hello.kind = HOOP_HELLO_RANK;
    assert_true(frame_passes_far(&f));
    make(&f, HOOP_FRAME_ROSTER);
    f.roster.secret[31] = 1;
    assert_false(frame_passes_far(&f));
    assert_true(frame_passes(&f, f.header.bytes, 1));
    make(&f, HOOP_FRAME_REJECT);
    f.reject.code = HOOP_IN_PROGRESS;
    assert_true(frame_passes_far(&f) && frame_passes(&f, f.header.bytes, 0));
}

/* The header alone tells how long its message is, or that it is invalid. */
static void test_stream_header(void **state)
{
    union hoop_frame f;
    (void)state;
    for (int type = 1; type < HOOP_FRAME_TYPE_COUNT; type++) {
        make(&f, (enum hoop_frame_type)type);
        const uint32_t right = f.header.bytes;
        const uint32_t empty = offsetof(struct hoop_frame_roster_part, entries);
        for (uint32_t bytes = 0; bytes < 3 * sizeof(f); bytes++) {
            const bool good = type == HOOP_FRAME_ROSTER_PART
                                  ? bytes >= empty && bytes <= sizeof(f) &&
                                        (bytes - empty) % sizeof(struct hoop_frame_entry) == 0
                                  : bytes == right;
            f.header.bytes = bytes;
            assert_true((hoop_frame_check_header(&f.header) == HOOP_OK) == good);
        }
        f.header.bytes = UINT32_MAX;
        assert_int_not_equal(hoop_frame_check_header(&f.header), HOOP_OK);
        f.header.bytes = right;
        f.header.version++;
        assert_int_equal(hoop_frame_check_header(&f.header), HOOP_MISMATCH);
        f.header.version--;
        f.header.magic ^= 0x100;
        assert_int_equal(hoop_frame_check_header(&f.header), HOOP_NOT_AUTHENTICATED);
    }
}

/* Changes up to 5 bytes of a valid message, and now and then its length. Returns the length. */
static size_t mutate(union hoop_frame *f, uint64_t *seed)
{
    const uint64_t random = splitmix(seed);
    make(f, (enum hoop_frame_type)(1 + random % (HOOP_FRAME_TYPE_COUNT - 1)));
    uint8_t *bytes = (uint8_t *)f;
    const size_t length = f->header.bytes;
    const uint32_t changes = (random >> 16) % 6;
    for (uint32_t i = 0; i < changes; i++) {
        const uint64_t r = splitmix(seed);
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
    (void)state;
    for (int round = 0; round < 200000; round++) {
        const size_t length = mutate(&f, &seed);
        const uint64_t random = splitmix(&seed);
        uint32_t fds = judge_fds(&f, false);
        if (random % 8 == 0) {
            fds = (random >> 56) % (HOOP_MAX_FDS + 1);
        }
        passed += passes((const uint8_t *)&f, length, fds) ? 1 : 0;
        passed_far += passes_far((const uint8_t *)&f, length) ? 1 : 0;
    }
    assert_true(passed > 10000 && passed_far > 10000); /* else it only tested refusals */
}

/* Streams of messages some of which are invalid, and streams of arbitrary bytes. */
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
            const uint64_t random = splitmix(&seed);
            memcpy(stream + i, &random, length - i < sizeof(random) ? length - i : sizeof(random));
        }
        (void)read_stream(stream, length);
    }
    assert_true(taken > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),       cmocka_unit_test(test_wrong_form),
        cmocka_unit_test(test_every_field), cmocka_unit_test(test_wrong_fields),
        cmocka_unit_test(test_failure),     cmocka_unit_test(test_beat),
        cmocka_unit_test(test_far),         cmocka_unit_test(test_stream_header),
        cmocka_unit_test(test_mutations),   cmocka_unit_test(test_stream_mutations),
    };
    return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}

#endif
