/*
 * net/encrypt.c: published values of AES-256-GCM and X25519, and messages that are not what was
 * sealed.
 */
#include "harness/splitmix.h"
#include "net/encrypt.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* RFC 7748, section 6.1. */
static void test_agreed(void **state)
{
    (void)state;
    static const char *const own[] = {
        "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
        "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"};
    static const char *const other[] = {
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"};
    static const char *const agreed =
        "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742";
    static const uint8_t none[HOOP_X25519_BYTES]; /* a point of low order */
    struct hoop_secret shared, key, expected, public;
    assert_int_equal(hoop_encrypt_load(), HOOP_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hoop_secret_parse(own[i], &key), HOOP_OK);
        assert_int_equal(hoop_x25519_public(&key, public.bytes), HOOP_OK);
        assert_int_equal(hoop_secret_parse(other[1 - i], &expected), HOOP_OK);
        assert_memory_equal(public.bytes, expected.bytes, sizeof(public));
        assert_int_equal(hoop_secret_parse(other[i], &public), HOOP_OK);
        assert_int_equal(hoop_x25519_shared(&key, public.bytes, &shared), HOOP_OK);
        assert_int_equal(hoop_secret_parse(agreed, &expected), HOOP_OK);
        assert_memory_equal(shared.bytes, expected.bytes, sizeof(shared));
        assert_int_equal(hoop_x25519_shared(&key, none, &shared), HOOP_NOT_AUTHENTICATED);
    }
}

/* What a thread finds that still runs when OpenSSL has cleaned up. */
static void after_cleanup(void)
{
    const struct hoop_secret own = {.bytes = {7}};
    uint8_t public[HOOP_X25519_BYTES], tag[HOOP_AEAD_TAG_BYTES], text[5] = "hoop";
    struct hoop_secret shared;
    struct hoop_aead *aead = NULL;
    const bool refused = hoop_x25519_public(&own, public) == HOOP_SYSTEM_ERROR &&
                         hoop_x25519_shared(&own, own.bytes, &shared) == HOOP_SYSTEM_ERROR;
    const bool seals = hoop_aead_create(&own, true, &aead) == HOOP_OK &&
                       hoop_aead_seal(aead, 0, 0, text, sizeof(text), text, tag) == HOOP_OK;
    _exit(refused && seals ? 0 : 1);
}

/* The program set up OpenSSL before hoop did: exit() then frees what X25519 needs. */
static void test_exit(void **state)
{
    int status = -1;
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        void *const library = dlopen("libcrypto.so.3", RTLD_NOW);
        int (*init)(uint64_t, const void *) = NULL;
        *(void **)&init = dlsym(library, "OPENSSL_init_crypto");
        if (atexit(after_cleanup) == 0 && init(0, NULL) == 1 && hoop_encrypt_load() == HOOP_OK) {
            exit(2); /* if no handler ends it */
        }
        _exit(3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit), /* first: nothing has loaded OpenSSL yet */
        cmocka_unit_test(test_published), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_changed),   cmocka_unit_test(test_agreed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
