/*
 * The checks of control messages: what is right passes; whatever else arrives, only what cannot
 * hurt does. Built with -DHOOP_FUZZ and clang's -fsanitize=fuzzer, the same judge runs under
 * libFuzzer; without, over a seeded stream of random and mutated messages.
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

static bool part_is_safe(const struct hoop_frame_roster_part *part, size_t bytes, uint32_t fds)
{
    bool safe = part->count <= HOOP_FRAME_MAX_FDS && fds == part->count &&
                (uint64_t)part->first + part->count <= HOOP_FRAME_MAX_RANKS;
    for (uint32_t i = 0; safe && i < part->count; i++) {
        const struct hoop_frame_entry *entry = &part->entries[i];
        safe = (size_t)((const char *)(entry + 1) - (const char *)part) <= bytes &&
               ends(entry->host, sizeof(entry->host)) &&
               ends(entry->listener, sizeof(entry->listener));
    }
    return safe;
}

/* Could a reader that trusts the frame come to harm? Written apart from the checks. */
static bool is_safe(const union hoop_frame *f, size_t bytes, uint32_t fds)
{
    if (bytes < sizeof(f->header) || bytes > sizeof(*f) || f->header.bytes != bytes) {
        return false;
    }
    switch (f->header.type) {
    case HOOP_FRAME_HELLO:
        return bytes == sizeof(f->hello) && ends(f->hello.meeting, sizeof(f->hello.meeting));
    case HOOP_FRAME_REJECT:
        return bytes == sizeof(f->reject) && ends(f->reject.text, sizeof(f->reject.text)) &&
               f->reject.code != HOOP_OK;
    case HOOP_FRAME_JOIN:
        return bytes == sizeof(f->join) && fds == 1 && f->join.rank < f->join.n &&
               f->join.n <= HOOP_FRAME_MAX_RANKS && f->join.left_ms <= f->join.timeout_ms &&
               f->join.segment_bytes > 0 && ends(f->join.host, sizeof(f->join.host)) &&
               ends(f->join.listener, sizeof(f->join.listener)) &&
               ends(f->join.comm_name, sizeof(f->join.comm_name));
    case HOOP_FRAME_ROSTER:
        return bytes == sizeof(f->roster) && fds == 1 && f->roster.n > 0 &&
               f->roster.n <= HOOP_FRAME_MAX_RANKS && f->roster.segment_bytes > 0;
    case HOOP_FRAME_ROSTER_PART:
        return part_is_safe(&f->part, bytes, fds);
    case HOOP_FRAME_LOST:
        return bytes == sizeof(f->lost) && f->lost.rank < HOOP_FRAME_MAX_RANKS;
    case HOOP_FRAME_REGION_IS:
        return bytes == sizeof(f->region_is) && fds == (f->region_is.code == HOOP_OK ? 1u : 0u);
    case HOOP_FRAME_BLOB:
        return bytes == sizeof(f->blob) && f->blob.bytes <= HOOP_FRAME_BLOB_BYTES &&
               f->blob.lane < HOOP_FRAME_MAX_LANES;
    default:
        return bytes >= sizeof(f->header) && fds == 0;
    }
}

/* The data lies in memory of exactly its size, so that ASan sees a read past its end. */
static bool passes(const uint8_t *data, size_t bytes, uint32_t fds, char *text, size_t text_bytes)
{
    union hoop_frame *frame = malloc(bytes > 0 ? bytes : 1);
    if (frame == NULL) {
        abort();
    }
    memcpy(frame, data, bytes);
    const hoop_result_t result = hoop_frame_check(frame, bytes, fds, text, text_bytes);
    const bool safe = result != HOOP_OK || is_safe(frame, bytes, fds);
    free(frame);
    if (!safe) {
        abort(); /* the finding */
    }
    return result == HOOP_OK;
}

#ifdef HOOP_FUZZ

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[160];
    if (bytes >= 1 && bytes - 1 <= sizeof(union hoop_frame)) {
        (void)passes(data + 1, bytes - 1, data[0] % (HOOP_FRAME_MAX_FDS + 1), text, sizeof(text));
    }
    return 0;
}

#else

static uint32_t fd_count_of(const union hoop_frame *f)
{
    switch (f->header.type) {
    case HOOP_FRAME_JOIN:
    case HOOP_FRAME_ROSTER:
    case HOOP_FRAME_REGION_IS:
        return 1;
    case HOOP_FRAME_ROSTER_PART:
        return f->part.count;
    default:
        return 0;
    }
}

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
        break;
    case HOOP_FRAME_ROSTER_PART:
        hoop_frame_set_count(f, 7, 3);
        for (uint32_t i = 0; i < 3; i++) {
            f->part.entries[i].process = i + 1;
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
        assert_true(frame_passes(&f, f.header.bytes, fd_count_of(&f)));
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
        const uint32_t fds = fd_count_of(&f);
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
        assert_non_null(strstr(text, "version 2, this process speaks 1"));
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
    assert_false(frame_passes(&f, f.header.bytes, fd_count_of(&f)))
    REJECTS(HOOP_FRAME_HELLO, f.hello.kind = 3);
    REJECTS(HOOP_FRAME_HELLO, f.hello.want_secret = 1);
    REJECTS(HOOP_FRAME_HELLO, f.hello.to = f.hello.from);
    REJECTS(HOOP_FRAME_HELLO, f.hello.to = HOOP_FRAME_MAX_RANKS);
    REJECTS(HOOP_FRAME_HELLO, memset(f.hello.meeting, 'a', sizeof(f.hello.meeting)));
    REJECTS(HOOP_FRAME_REJECT, f.reject.code = HOOP_OK);
    REJECTS(HOOP_FRAME_REJECT, f.reject.code = HOOP_AGAIN);
    REJECTS(HOOP_FRAME_REJECT, f.reject.text[3] = '\n');
    REJECTS(HOOP_FRAME_REJECT, f.reject.rank = -2);
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
    REJECTS(HOOP_FRAME_ROSTER_PART, f.part.count = UINT32_MAX);
    REJECTS(HOOP_FRAME_ROSTER_PART, f.part.entries[2].pid = -1);
    REJECTS(HOOP_FRAME_LOST, f.lost.rank = HOOP_FRAME_MAX_RANKS);
    REJECTS(HOOP_FRAME_REGION_GET, f.region.id = 0);
    REJECTS(HOOP_FRAME_REGION_IS, f.region_is.kind = 7);
    REJECTS(HOOP_FRAME_REGION_IS, f.region_is.bytes = 0);
    REJECTS(HOOP_FRAME_BLOB, f.blob.lane = HOOP_FRAME_MAX_LANES);
    REJECTS(HOOP_FRAME_BLOB, f.blob.bytes = HOOP_FRAME_BLOB_BYTES + 1);
    REJECTS(HOOP_FRAME_BLOB, f.blob.sending = 2);
#undef REJECTS
}

static uint64_t next_random(uint64_t *state) /* xorshift64* */
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ull;
}

static void test_mutations(void **state)
{
    uint64_t seed = 20240229;
    uint32_t passed = 0;
    union hoop_frame f;
    char text[160];
    (void)state;
    for (int round = 0; round < 200000; round++) {
        const uint64_t random = next_random(&seed);
        make(&f, (enum hoop_frame_type)(1 + random % (HOOP_FRAME_TYPE_COUNT - 1)));
        uint8_t *bytes = (uint8_t *)&f;
        size_t length = f.header.bytes;
        uint32_t fds = fd_count_of(&f);
        const uint32_t changes = (random >> 16) % 6;
        for (uint32_t i = 0; i < changes; i++) {
            const uint64_t r = next_random(&seed);
            bytes[r % length] = (uint8_t)(r >> 40);
        }
        if ((random >> 24) % 8 == 0) {
            length = (random >> 32) % (sizeof(f) + 1);
        }
        if ((random >> 28) % 8 == 0) {
            fds = (random >> 56) % (HOOP_FRAME_MAX_FDS + 1);
        }
        passed += passes(bytes, length, fds, text, sizeof(text)) ? 1 : 0;
    }
    assert_true(passed > 10000); /* else this looked at refusals only */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_wrong_form),
        cmocka_unit_test(test_wrong_fields),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}

#endif
