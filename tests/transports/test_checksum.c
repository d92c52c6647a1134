/* Check sums: known answers, every implementation compared with a plain one, and which errors they
 * find. */
#include "transports/check/checksum.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const enum hoop_check checks[] = {HOOP_CHECK_SUM, HOOP_CHECK_CRC32C};

static void fill(uint8_t *data, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        data[i] = (uint8_t)(seed >> 56);
    }
}

/* ---- Definitions, as plain as can be --------------------------------------------------------- */

static uint64_t mix(uint64_t state, uint64_t value)
{
    state = (state ^ value) * 0x9e3779b97f4a7c15ull;
    return state ^ (state >> 32);
}

static uint64_t plain_sum(const uint8_t *data, size_t bytes)
{
    uint64_t sums[8][4] = {{0}};
    for (size_t at = 0; at < (bytes + 63) / 64 * 64; at += 8) {
        uint64_t *sum = sums[at / 8 % 8];
        uint64_t word = 0;
        for (size_t k = 0; k < 8; k++) {
            word |= at + k < bytes ? (uint64_t)data[at + k] << (8 * k) : 0;
        }
        sum[0] += word;
        sum[1] += sum[0];
        sum[2] += word >> 32;
        sum[3] += sum[2];
    }
    const uint64_t seed = 0x243f6a8885a308d3ull;
    uint64_t state = mix(seed, bytes);
    for (size_t i = 0; i < 8; i++) {
        state =
            mix(state, mix(mix(mix(mix(seed, sums[i][0]), sums[i][1]), sums[i][2]), sums[i][3]));
    }
    return state;
}

static uint64_t plain_crc(const uint8_t *data, size_t bytes)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
        }
    }
    return crc ^ 0xffffffff;
}

static uint64_t plain(enum hoop_check check, const uint8_t *data, size_t bytes)
{
    return check == HOOP_CHECK_SUM ? plain_sum(data, bytes) : plain_crc(data, bytes);
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* From RFC 3720, B.4, and the check value in catalogues of CRCs. */
static void test_crc_vectors(void **state)
{
    (void)state;
    static const uint8_t read_pdu[48] = {0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                         0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00,
                                         0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00,
                                         0x00, 0x18, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                         0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    uint8_t zeros[32] = {0}, ones[32], up[32], down[32];
    memset(ones, 0xff, sizeof(ones));
    for (uint8_t i = 0; i < 32; i++) {
        up[i] = i;
        down[i] = 31 - i;
    }
    assert_int_equal(hoop_checksum(HOOP_CHECK_CRC32C, zeros, 32), 0x8a9136aa);
    assert_int_equal(hoop_checksum(HOOP_CHECK_CRC32C, ones, 32), 0x62a8ab43);
    assert_int_equal(hoop_checksum(HOOP_CHECK_CRC32C, up, 32), 0x46dd794e);
    assert_int_equal(hoop_checksum(HOOP_CHECK_CRC32C, down, 32), 0x113fdb5c);
    assert_int_equal(hoop_checksum(HOOP_CHECK_CRC32C, read_pdu, 48), 0xd9963a56);
    assert_int_equal(hoop_checksum(HOOP_CHECK_CRC32C, "123456789", 9), 0xe3069283);
    assert_int_equal(hoop_checksum(HOOP_CHECK_CRC32C, NULL, 0), 0);
}

/* These values must never change, or versions of hoop could not talk to each other. */
static void test_sum_values(void **state)
{
    (void)state;
    assert_int_equal(hoop_checksum(HOOP_CHECK_SUM, NULL, 0), 0xe8aaaa1267f5c775ull);
    assert_int_equal(hoop_checksum(HOOP_CHECK_SUM, "123456789", 9), 0x42b5abc8368fae46ull);
}

static void check_ways(enum hoop_check check, const uint8_t *data, size_t bytes)
{
    const uint64_t expected = plain(check, data, bytes);
    assert_int_equal(hoop_checksum(check, data, bytes), expected);
    uint64_t value = 0;
    unsigned way = 0;
    for (; hoop_checksum_by(way, check, data, bytes, &value); way++) {
        assert_int_equal(value, expected);
    }
    assert_in_range(way, 1, 8);
}

static void test_ways_agree(void **state)
{
    (void)state;
    static const size_t large[] = {1535, 1536, 1537, 3071, 3072, 3080, 4096, 131072, 1000003};
    const size_t most = 1000003;
    uint8_t *data = malloc(most + 64);
    assert_non_null(data);
    fill(data, most + 64, 1);
    for (size_t c = 0; c < 2; c++) {
        for (size_t bytes = 0; bytes < 700; bytes++) {
            check_ways(checks[c], data + bytes % 9, bytes);
        }
        for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
            check_ways(checks[c], data + i * 7 % 64, large[i]);
        }
    }
    check_ways(HOOP_CHECK_SUM, NULL, 0);
    check_ways(HOOP_CHECK_CRC32C, NULL, 0);
    /* The largest words, with which a narrower accumulator would overflow. */
    memset(data, 0xff, most);
    check_ways(HOOP_CHECK_SUM, data, most);
    free(data);
}

/* A byte more, a byte less or a different byte gives another value, also behind other bytes. */
static void test_few(void **state)
{
    (void)state;
    uint8_t data[72], other[72];
    fill(data, sizeof(data), 5);
    for (size_t bytes = 0; bytes < sizeof(data); bytes++) {
        const uint64_t value = hoop_checksum_few(7, data, bytes);
        assert_int_equal(hoop_checksum_few(7, data, bytes), value);
        assert_int_not_equal(hoop_checksum_few(8, data, bytes), value);
        assert_int_not_equal(hoop_checksum_few(7, data, bytes + 1), value);
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            memcpy(other, data, sizeof(data));
            other[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_not_equal(hoop_checksum_few(7, other, bytes), value);
        }
    }
    assert_int_equal(hoop_checksum_few(0, NULL, 0), hoop_checksum_few(0, data, 0));
}

static void test_off(void **state)
{
    (void)state;
    assert_int_equal(hoop_checksum(HOOP_CHECK_OFF, "abc", 3), 0);
    assert_int_equal(hoop_checksum(HOOP_CHECK_OFF, NULL, 0), 0);
    assert_string_equal(hoop_check_name(HOOP_CHECK_SUM), "sum");
    assert_string_equal(hoop_check_name(HOOP_CHECK_CRC32C), "crc32c");
    assert_string_equal(hoop_check_name(HOOP_CHECK_OFF), "off");
    assert_string_equal(hoop_check_name(HOOP_CHECK_AEAD), "aead");
    assert_string_equal(hoop_check_name(4), "unknown");
    assert_string_equal(hoop_check_name(UINT32_MAX), "unknown");
}

/* ---- What is found --------------------------------------------------------------------------- */

static void flip(uint8_t *data, size_t bit)
{
    data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
}

static void test_every_bit(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 8, 63, 64, 65, 72, 200, 1023, 1600, 5000};
    uint8_t data[5000];
    for (size_t c = 0; c < 2; c++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            fill(data, sizes[i], i);
            const uint64_t right = hoop_checksum(checks[c], data, sizes[i]);
            for (size_t bit = 0; bit < 8 * sizes[i]; bit++) {
                flip(data, bit);
                assert_int_not_equal(hoop_checksum(checks[c], data, sizes[i]), right);
                flip(data, bit);
            }
        }
    }
}

/* Flips the first bit together with one bit of each later word in turn. */
static void check_pairs(enum hoop_check check, uint8_t *data, size_t bytes, size_t first)
{
    const uint64_t right = hoop_checksum(check, data, bytes);
    flip(data, first);
    for (size_t second = first + 32; second < 8 * bytes; second += 32) {
        flip(data, second);
        assert_int_not_equal(hoop_checksum(check, data, bytes), right);
        flip(data, second);
    }
    flip(data, first);
}

/* The same bit of two words, which is most easily missed: changed from 0 to 1, from 1 to 0, or one
 * each. */
static void test_pairs_of_bits(void **state)
{
    (void)state;
    uint8_t data[4096];
    for (int content = 0; content < 3; content++) {
        memset(data, content == 0 ? 0 : 0xff, sizeof(data));
        if (content == 2) {
            fill(data, sizeof(data), 3);
        }
        for (size_t first = 0; first < 512; first += 13) {
            check_pairs(HOOP_CHECK_SUM, data, sizeof(data), first);
            check_pairs(HOOP_CHECK_CRC32C, data, sizeof(data), first);
        }
    }
}

static void swap(uint8_t *a, uint8_t *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t keep = a[i];
        a[i] = b[i];
        b[i] = keep;
    }
}

static void check_swapped(enum hoop_check check, uint8_t *data, size_t bytes, size_t unit)
{
    const uint64_t right = hoop_checksum(check, data, bytes);
    for (size_t i = 0; i < bytes; i += unit) {
        for (size_t k = i + unit; k < bytes; k += unit) {
            swap(data + i, data + k, unit);
            assert_int_not_equal(hoop_checksum(check, data, bytes), right);
            swap(data + i, data + k, unit);
        }
    }
}

/* Units of every size are swapped, with neighbours, and with others far away. */
static void test_swapped(void **state)
{
    (void)state;
    uint8_t data[2048];
    fill(data, sizeof(data), 5);
    for (size_t unit = 4; unit <= 512; unit *= 2) {
        check_swapped(HOOP_CHECK_SUM, data, sizeof(data), unit);
        check_swapped(HOOP_CHECK_CRC32C, data, sizeof(data), unit);
    }
}

/* Every second unit is swapped with the next one, everywhere: columns that are summed side by side
 * could miss that. */
static void test_swapped_all_over(void **state)
{
    (void)state;
    uint8_t data[2048];
    fill(data, sizeof(data), 6);
    for (size_t c = 0; c < 2; c++) {
        const uint64_t right = hoop_checksum(checks[c], data, sizeof(data));
        for (size_t unit = 1; unit <= 1024; unit *= 2) {
            for (size_t i = 0; i < sizeof(data); i += 2 * unit) {
                swap(data + i, data + i + unit, unit);
            }
            assert_int_not_equal(hoop_checksum(checks[c], data, sizeof(data)), right);
            for (size_t i = 0; i < sizeof(data); i += 2 * unit) {
                swap(data + i, data + i + unit, unit);
            }
        }
    }
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Zeros of different lengths are different data, and so are the same bytes with zeros behind
 * them. */
static void test_lengths(void **state)
{
    (void)state;
    static uint8_t data[3000];
    static uint64_t values[3000];
    for (int content = 0; content < 2; content++) {
        memset(data, 0, sizeof(data));
        data[0] = (uint8_t)content;
        for (size_t bytes = 1; bytes <= 3000; bytes++) {
            values[bytes - 1] = hoop_checksum(HOOP_CHECK_SUM, data, bytes);
        }
        qsort(values, 3000, sizeof(values[0]), compare);
        for (size_t i = 1; i < 3000; i++) {
            assert_int_not_equal(values[i], values[i - 1]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc_vectors),
        cmocka_unit_test(test_sum_values),
        cmocka_unit_test(test_ways_agree),
        cmocka_unit_test(test_few),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_every_bit),
        cmocka_unit_test(test_pairs_of_bits),
        cmocka_unit_test(test_swapped),
        cmocka_unit_test(test_swapped_all_over),
        cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
