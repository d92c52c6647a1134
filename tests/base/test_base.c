/*
 * lib/base: errors and authentication. Settings are in test_settings.c, and what depends on the
 * process (the log, the settings in force) in test_log.c.
 */
#include "base/crypto.h"
#include "base/error.h"
#include "harness/sanitizer.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- error -------------------------------------------------------------------------------- */

static void test_result_texts(void **state)
{
    (void)state;
#define CHECK_RESULT(name, value, text)                                                            \
    assert_int_equal(name, value);                                                                 \
    assert_string_equal(hoop_get_error_name(name), #name);                                         \
    assert_string_equal(hoop_get_error_string(name), text);
    HOOP_RESULTS(CHECK_RESULT)
#undef CHECK_RESULT
    static const int strangers[] = {-1, 8, 63, 70, 1000, 0x7fffffff};
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        assert_string_equal(hoop_get_error_string((hoop_result_t)strangers[i]), "unknown result");
        assert_string_equal(hoop_get_error_name((hoop_result_t)strangers[i]), "unknown result");
    }
}

static void test_first_failure_wins(void **state)
{
    (void)state;
    struct hoop_failure f = {0};
    assert_int_equal(hoop_failure_set(&f, HOOP_OK, 1, "nothing"), HOOP_OK);
    assert_string_equal(f.text, "");
    assert_int_equal(hoop_failure_set(&f, HOOP_TIMEOUT, 3, "rank %d: %s", 3, "late"), HOOP_TIMEOUT);
    assert_int_equal(hoop_failure_set(&f, HOOP_ABORTED, 5, "aborted"), HOOP_TIMEOUT);
    assert_int_equal(hoop_failure_set(&f, HOOP_OK, 5, "fine"), HOOP_TIMEOUT);
    assert_int_equal(f.code, HOOP_TIMEOUT);
    assert_int_equal(f.rank, 3);
    assert_string_equal(f.text, "rank 3: late");
}

static void test_failure_without_home(void **state)
{
    (void)state;
    assert_int_equal(hoop_failure_set(NULL, HOOP_MISMATCH, 2, "count %d", 7), HOOP_MISMATCH);
    assert_string_equal(hoop_thread_error(), "count 7");
    assert_int_equal(hoop_error(HOOP_SYSTEM_ERROR, "on the way: %s", hoop_thread_error()),
                     HOOP_SYSTEM_ERROR);
    assert_string_equal(hoop_thread_error(), "on the way: count 7");
    assert_int_equal(hoop_error(HOOP_OK, "%s", "dropped"), HOOP_OK);
    assert_string_equal(hoop_thread_error(), "");
}

static void test_long_sentence(void **state)
{
    (void)state;
    enum { ROOM = HOOP_FAILURE_TEXT_BYTES - 1 };
    static const char penguin[4] = {'\xf0', '\x9f', '\x90', '\xa7'};
    char text[2 * HOOP_FAILURE_TEXT_BYTES];
    memset(text, 'a', sizeof(text));
    for (size_t length = ROOM - 4; length <= ROOM + 4; length++) {
        struct hoop_failure f = {0};
        hoop_failure_set(&f, HOOP_TIMEOUT, -1, "%.*s", (int)length, text);
        assert_int_equal(strlen(f.text), length < ROOM ? length : ROOM);
        assert_string_equal(f.text + strlen(f.text) - 3, length <= ROOM ? "aaa" : "...");
    }
    for (size_t lead = 0; lead < 4; lead++) { /* the cut is at each byte of a 4-byte character */
        struct hoop_failure f = {0};
        for (size_t at = lead; at + 4 < sizeof(text); at += 4) {
            memcpy(text + at, penguin, sizeof(penguin));
        }
        hoop_failure_set(&f, HOOP_TIMEOUT, -1, "%.*s", (int)sizeof(text) - 1, text);
        const size_t length = strlen(f.text);
        assert_in_range(length, ROOM - 3, ROOM);
        assert_int_equal((length - 3 - lead) % 4, 0);
        assert_string_equal(f.text + length - 3, "...");
        memset(text, 'a', sizeof(text));
    }
}

static void test_errno_error(void **state)
{
    char text[2 * HOOP_FAILURE_TEXT_BYTES];
    (void)state;
    assert_int_equal(hoop_errno_error(EMFILE, "no %s", "socket"), HOOP_SYSTEM_ERROR);
    assert_string_equal(hoop_thread_error(), "no socket: EMFILE (raise ulimit -n)");
    assert_int_equal(hoop_errno_error(ENOMEM, "%s", hoop_thread_error()), HOOP_OUT_OF_MEMORY);
    assert_string_equal(hoop_thread_error(), "no socket: EMFILE (raise ulimit -n): ENOMEM");
    memset(text, 'a', sizeof(text));
    (void)hoop_errno_error(ENFILE, "%.*s", (int)sizeof(text), text);
    assert_non_null(strstr(hoop_thread_error(), "aaa: ENFILE (raise fs.file-max)"));
}

static void *other_thread_errs(void *arg)
{
    *(bool *)arg = hoop_thread_error()[0] == '\0';
    hoop_error(HOOP_TIMEOUT, "the other thread's");
    return NULL;
}

static void test_control_characters(void **state)
{
    (void)state;
    static const char *const good[] = {
        "", "plain ~", "\xc3\xa4\xc2\xa0", "\xe2\x82\xac", "\xf0\x9f\x90\xa7", "\xff\xa0"};
    static const char *const bad[] = {"\n",
                                      "a\x1b[2J",
                                      "\x7f",
                                      "\xc2\x9b"
                                      "2J",
                                      "\x9b"
                                      "2J",
                                      "\xc0\x9b",
                                      "\xe0\x82\x9b",
                                      "\xf0\x80\x82\x9b",
                                      "\xe2\x82",
                                      "\xe2"
                                      "ab\x85"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%s", good[i]);
        assert_false(hoop_text_has_control(text));
        hoop_text_clean(text);
        assert_string_equal(text, good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%s", bad[i]);
        assert_true(hoop_text_has_control(text));
        hoop_text_clean(text);
        assert_false(hoop_text_has_control(text));
        assert_int_equal(strlen(text), strlen(bad[i]));
        struct hoop_failure f = {0};
        hoop_failure_set(&f, HOOP_TIMEOUT, -1, "\"%s\"", bad[i]);
        (void)hoop_error(HOOP_TIMEOUT, "\"%s\"", bad[i]);
        assert_false(hoop_text_has_control(f.text));
        assert_string_equal(hoop_thread_error(), f.text);
    }
}

static void test_sentence_is_the_threads(void **state)
{
    (void)state;
    bool was_empty = false;
    pthread_t thread;
    hoop_error(HOOP_TIMEOUT, "mine");
    assert_int_equal(pthread_create(&thread, NULL, other_thread_errs, &was_empty), 0);
    pthread_join(thread, NULL);
    assert_true(was_empty);
    assert_string_equal(hoop_thread_error(), "mine");
}

#if MEMORY_IS_PLAIN && defined(__GLIBC__)

void *__libc_calloc(size_t count, size_t bytes);
static bool memory_is_out;

/* Replaces the C library's function. */
void *calloc(size_t count, size_t bytes)
{
    return memory_is_out ? NULL : __libc_calloc(count, bytes);
}

static void *errs_without_memory(void *arg)
{
    const char **said = arg;
    const struct hoop_failure failure = {.code = HOOP_ABORTED, .text = "aborted by rank 3"};
    memory_is_out = true;
    hoop_error(HOOP_TIMEOUT, "it took too long");
    said[0] = hoop_thread_error();
    said[1] = hoop_failure_copy(&failure);
    hoop_error(HOOP_OK, "%s", "");
    said[2] = hoop_thread_error()[0] == '\0' ? "" : "?";
    memory_is_out = false;
    hoop_error(HOOP_TIMEOUT, "it took too long");
    said[3] = strcmp(hoop_thread_error(), "it took too long") == 0 ? "" : "?";
    return NULL;
}

static void test_sentence_without_memory(void **state)
{
    (void)state;
    const char *said[4];
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, errs_without_memory, said), 0);
    pthread_join(thread, NULL);
    assert_string_equal(said[0], hoop_get_error_string(HOOP_TIMEOUT));
    assert_string_equal(said[1], hoop_get_error_string(HOOP_ABORTED));
    assert_string_equal(said[2], "");
    assert_string_equal(said[3], "");
}

#endif

static void test_errno(void **state)
{
    (void)state;
    assert_int_equal(hoop_from_errno(ENOMEM), HOOP_OUT_OF_MEMORY);
    assert_int_equal(hoop_from_errno(ENOBUFS), HOOP_OUT_OF_MEMORY);
    assert_int_equal(hoop_from_errno(ETIMEDOUT), HOOP_TIMEOUT);
    assert_int_equal(hoop_from_errno(ECONNREFUSED), HOOP_SYSTEM_ERROR);
    assert_string_equal(hoop_errno_name(ECONNREFUSED), "ECONNREFUSED");
    assert_string_equal(hoop_errno_name(123456), "unknown errno");
}

/* ---- auth --------------------------------------------------------------------------------- */

struct hmac_case {
    const char *key; /* 64 hexadecimal digits */
    const char *label;
    const char *a;
    const char *b;
    const char *mac;
};

#define HEX_ZEROS_24 "000000000000000000000000"
#define DD_25                                                                                      \
    "\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd"             \
    "\xdd\xdd\xdd\xdd\xdd"
#define CD_25                                                                                      \
    "\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd\xcd"             \
    "\xcd\xcd\xcd\xcd\xcd"

/*
 * RFC 4231, cases 1 to 4 and 6, without label. HMAC pads a key with zeros and hashes one that is
 * longer than a block: so each of these keys has an equal of 32 bytes, which stands here.
 * The last case has a label: the 32 bytes 0 to 31 over "hoop test\0leftright", computed by
 * Python's hmac module.
 */
static const struct hmac_case hmac_cases[] = {
    {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b" HEX_ZEROS_24, NULL, "Hi ", "There",
     "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
    {"4a656665" HEX_ZEROS_24 "00000000000000000000000000000000", NULL, "what do ya want ",
     "for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
    {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" HEX_ZEROS_24, NULL, DD_25 DD_25, "",
     "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
    {"0102030405060708090A0B0C0D0E0F10111213141516171819"
     "00000000000000",
     NULL, CD_25, CD_25, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
    {"45ad4b37c6e2fc0a2cfcc1b5da524132ec707615c2cae1dbbc43c97aa521db81", NULL, "",
     "Test Using Larger Than Block-Size Key - Hash Key First",
     "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
    {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "hoop test", "left",
     "right", "4b2b57d6831e0a3a034eef01a15bfc6860359cd80aa2a9f02df713e5cee1b9bf"},
};

static void test_hmac(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(hmac_cases) / sizeof(hmac_cases[0]); i++) {
        const struct hmac_case *c = &hmac_cases[i];
        struct hoop_secret key;
        struct hoop_secret expected; /* a MAC and a secret have the same size */
        uint8_t mac[HOOP_MAC_BYTES];
        assert_int_equal(hoop_secret_parse(c->key, &key), HOOP_OK);
        assert_int_equal(hoop_secret_parse(c->mac, &expected), HOOP_OK);
        assert_int_equal(hoop_hmac(&key, c->label, c->a, strlen(c->a), c->b, strlen(c->b), mac),
                         HOOP_OK);
        assert_memory_equal(mac, expected.bytes, sizeof(mac));
        assert_true(hoop_mac_equal(mac, expected.bytes));
        for (size_t bit = 0; bit < sizeof(mac) * 8; bit++) {
            mac[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_false(hoop_mac_equal(mac, expected.bytes));
            mac[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

static void test_hmac_label_separates(void **state)
{
    (void)state;
    const struct hoop_secret key = {{1}};
    uint8_t one[HOOP_MAC_BYTES];
    uint8_t two[HOOP_MAC_BYTES];
    assert_int_equal(hoop_hmac(&key, "ab", NULL, 0, NULL, 0, one), HOOP_OK);
    assert_int_equal(hoop_hmac(&key, "a", "b", 1, NULL, 0, two), HOOP_OK);
    assert_false(hoop_mac_equal(one, two));
    assert_int_equal(hoop_hmac(&key, "a", NULL, 0, "b", 1, one), HOOP_OK);
    assert_true(hoop_mac_equal(one, two));
}

static void test_secret_parse(void **state)
{
    (void)state;
    const size_t digits = 2 * sizeof(struct hoop_secret);
    char hex[2 * HOOP_SECRET_BYTES + 2] = {0};
    struct hoop_secret secret = {{42}};
    const struct hoop_secret untouched = secret;
    assert_int_equal(hoop_secret_parse(NULL, &secret), HOOP_INVALID_ARGUMENT);
    for (size_t length = 0; length < sizeof(hex); length++) {
        memset(hex, 'c', length);
        const bool good = length == digits;
        struct hoop_secret parsed = untouched;
        assert_int_equal(hoop_secret_parse(hex, &parsed), good ? HOOP_OK : HOOP_INVALID_ARGUMENT);
        assert_int_equal(parsed.bytes[31], good ? 0xcc : 0);
        assert_null(strstr(hoop_thread_error(), "cccc"));
    }
    hex[digits] = '\0';
    static const char bad[] = "g/:@G` -+x\xff";
    for (size_t i = 0; i < (sizeof(bad) - 1) * digits; i++) {
        char *at = &hex[i % digits];
        *at = bad[i / digits];
        assert_int_equal(hoop_secret_parse(hex, &secret), HOOP_INVALID_ARGUMENT);
        assert_null(strstr(hoop_thread_error(), "cccc"));
        *at = 'c';
    }
    assert_memory_equal(&secret, &untouched, sizeof(secret));
    assert_int_equal(hoop_secret_parse(hex, &secret), HOOP_OK);
    hoop_secret_wipe(&secret, sizeof(secret));
    static const struct hoop_secret zero;
    assert_memory_equal(&secret, &zero, sizeof(secret));
    hoop_secret_wipe(NULL, 0);
}

static void test_random(void **state)
{
    (void)state;
    static uint8_t bytes[1000]; /* more than getrandom() gives without interruption */
    assert_int_equal(hoop_random(bytes, sizeof(bytes) - 1), HOOP_OK);
    assert_int_equal(bytes[sizeof(bytes) - 1], 0);
    uint8_t other[HOOP_NONCE_BYTES];
    assert_int_equal(hoop_random(other, sizeof(other)), HOOP_OK);
    for (size_t at = 0; at + sizeof(other) < sizeof(bytes); at += sizeof(other)) {
        assert_memory_not_equal(bytes + at, other, sizeof(other));
    }
    assert_int_equal(hoop_random(NULL, 0), HOOP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_result_texts),
        cmocka_unit_test(test_first_failure_wins),
        cmocka_unit_test(test_failure_without_home),
        cmocka_unit_test(test_long_sentence),
        cmocka_unit_test(test_errno_error),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_sentence_is_the_threads),
#if MEMORY_IS_PLAIN && defined(__GLIBC__)
        cmocka_unit_test(test_sentence_without_memory),
#endif
        cmocka_unit_test(test_errno),
        cmocka_unit_test(test_hmac),
        cmocka_unit_test(test_hmac_label_separates),
        cmocka_unit_test(test_secret_parse),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
