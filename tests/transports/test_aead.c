/*
 * transports/check/aead.c: published values of AES-256-GCM, and messages that are not what was
 * sealed.
 */
#include "harness/splitmix.h"
#include "transports/check/aead.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MOST ((size_t)70000)

static const struct hoop_secret zeros;

static struct hoop_aead *make(const struct hoop_secret *key, bool seals)
{
    struct hoop_aead *ret = NULL;
    assert_int_equal(hoop_aead_create(key, seals, &ret), HOOP_OK);
    assert_non_null(ret);
    return ret;
}

/* Test cases 13 and 14 of McGrew and Viega, "The Galois/Counter Mode of Operation". */
static void test_published(void **state)
{
    (void)state;
    static const uint8_t block[16],
        nothing_tag[] = {0x53, 0x0f, 0x8a, 0xfb, 0xc7, 0x45, 0x36, 0xb9,
                         0xa9, 0x63, 0xb4, 0xf1, 0xc4, 0xcb, 0x73, 0x8b};
    static const uint8_t text[] = {0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e,
                                   0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18};
    static const uint8_t tag[] = {0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0,
                                  0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19};
    struct hoop_aead *seals = make(&zeros, true);
    uint8_t to[16], came[HOOP_AEAD_TAG_BYTES];
    assert_int_equal(hoop_aead_seal(seals, 0, 0, NULL, 0, NULL, came), HOOP_OK);
    assert_memory_equal(came, nothing_tag, sizeof(came));
    assert_int_equal(hoop_aead_seal(seals, 0, 0, block, sizeof(block), to, came), HOOP_OK);
    assert_memory_equal(to, text, sizeof(text));
    assert_memory_equal(came, tag, sizeof(came));
    hoop_aead_destroy(seals);
}

/* Any size, in place and not; one message after the other with the same two ends. */
static void test_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 15, 16, 17, 80, 255, 4096, 65535, MOST};
    static uint8_t data[MOST], to[MOST + 1];
    uint64_t random = 1;
    struct hoop_aead *seals = make(&zeros, true), *opens = make(&zeros, false);
    for (size_t i = 0; i < MOST; i++) {
        data[i] = (uint8_t)splitmix(&random);
    }
    for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint8_t tag[HOOP_AEAD_TAG_BYTES];
        const bool in_place = i % 2 == 0;
        memcpy(to + 1, data, in_place ? sizes[i] : 0);
        assert_int_equal(
            hoop_aead_seal(seals, i << 33, 1, in_place ? to + 1 : data, sizes[i], to + 1, tag),
            HOOP_OK);
        assert_true(sizes[i] < 8 || memcmp(to + 1, data, sizes[i]) != 0);
        assert_int_equal(hoop_aead_open(opens, i << 33, 1, to + 1, sizes[i], tag), HOOP_OK);
        assert_memory_equal(to + 1, data, sizes[i]);
    }
    hoop_aead_destroy(seals);
    hoop_aead_destroy(opens);
}

/* Another number, part, key, length or bit is noticed, and the next message is right again. */
static void test_changed(void **state)
{
    (void)state;
    const struct hoop_secret other = {.bytes = {[31] = 1}};
    struct hoop_aead *seals = make(&zeros, true), *opens = make(&zeros, false);
    struct hoop_aead *stranger = make(&other, false);
    uint8_t text[40] = {0}, copy[40], tag[HOOP_AEAD_TAG_BYTES];
    assert_int_equal(hoop_aead_seal(seals, 7, 1, text, sizeof(text), text, tag), HOOP_OK);
    for (uint32_t bit = 0; bit < 8 * (sizeof(text) + sizeof(tag)) + 4; bit++) {
        const uint32_t part = bit < 1 ? 0 : 1;
        const uint64_t number = bit == 1 ? 8 : 7;
        const size_t bytes = bit == 2 ? sizeof(text) - 1 : sizeof(text);
        uint8_t said[HOOP_AEAD_TAG_BYTES];
        memcpy(copy, text, sizeof(copy));
        memcpy(said, tag, sizeof(said));
        if (bit >= 4) {
            const uint32_t at = (bit - 4) / 8;
            uint8_t *const byte = at < sizeof(copy) ? &copy[at] : &said[at - sizeof(copy)];
            *byte ^= (uint8_t)(1u << bit % 8);
        }
        assert_int_equal(
            hoop_aead_open(bit == 3 ? stranger : opens, number, part, copy, bytes, said),
            HOOP_NOT_AUTHENTICATED);
    }
    assert_int_equal(hoop_aead_open(opens, 7, 1, text, sizeof(text), tag), HOOP_OK);
    assert_int_equal(text[0], 0);
    hoop_aead_destroy(seals);
    hoop_aead_destroy(opens);
    hoop_aead_destroy(stranger);
    hoop_aead_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
