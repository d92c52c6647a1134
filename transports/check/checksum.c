/*
 * See checksum.h.
 *
 * The sum is Fletcher's, in eight columns. The data are blocks of eight 64-bit words, the last one
 * padded with zeros; word i goes to column i mod 8, which has four 64-bit accumulators:
 *
 *      a += w;   b += a;   c += w >> 32;   d += c;
 *
 * So b and d weight every word by its distance from the end. c and d are needed because a and b
 * overflow: in these, changes of two top bits may cancel each other. In c and d they do not; and
 * given c and d, what a and b say about the lower halves is exact. In the end the number of bytes
 * and all accumulators go through one 64-bit state, each in an invertible step, so that a
 * difference in one accumulator does not get lost in the next.
 *
 * CRC32C: with SSE 4.2 three independent streams, because the instruction has a latency of three
 * cycles and a throughput of one per cycle; PCLMULQDQ then moves the first two streams over what
 * follows them. Without these instructions, eight tables.
 *
 * Code that is compiled for an instruction set is called only on CPUs that have it.
 */
#include "transports/check/checksum.h"
#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- The sum --------------------------------------------------------------------------------- */

#define SUM_COLUMNS 8
#define SUM_BLOCK_BYTES ((size_t)64)

struct sum_state {
    uint64_t a[SUM_COLUMNS], b[SUM_COLUMNS], c[SUM_COLUMNS], d[SUM_COLUMNS];
};
/* Sums whole blocks, and one more at `last` unless that is NULL. */
typedef void sum_blocks_fn(const uint8_t *data, size_t blocks, const uint8_t *last,
                           struct sum_state *ret);

/* Mixes the columns in parallel, because a multiplication has latency; then one after the other. */
static uint64_t sum_finish(const struct sum_state *sum, size_t bytes)
{
    uint64_t columns[SUM_COLUMNS];
    for (size_t i = 0; i < SUM_COLUMNS; i++) {
        const uint64_t low =
            hoop_checksum_mix(hoop_checksum_mix(HOOP_CHECKSUM_SEED, sum->a[i]), sum->b[i]);
        columns[i] = hoop_checksum_mix(hoop_checksum_mix(low, sum->c[i]), sum->d[i]);
    }
    uint64_t state = hoop_checksum_mix(HOOP_CHECKSUM_SEED, bytes);
    for (size_t i = 0; i < SUM_COLUMNS; i++) {
        state = hoop_checksum_mix(state, columns[i]);
    }
    return state;
}

static uint64_t sum_run(sum_blocks_fn *sum_blocks, const uint8_t *data, size_t bytes)
{
    struct sum_state state;
    uint8_t last[SUM_BLOCK_BYTES] = {0};
    const size_t left = bytes % SUM_BLOCK_BYTES;
    if (left > 0) {
        memcpy(last, data + bytes - left, left);
    }
    sum_blocks(data, bytes / SUM_BLOCK_BYTES, left > 0 ? last : NULL, &state);
    return sum_finish(&state, bytes);
}

/* Two columns in a register that any CPU has. */
typedef uint64_t sum_vector16 __attribute__((vector_size(16)));
struct sum_part16 {
    sum_vector16 a, b, c, d;
};

static inline void sum_step16(struct sum_part16 *part, const uint8_t *data)
{
    sum_vector16 words;
    memcpy(&words, data, sizeof(words));
    part->a += words;
    part->b += part->a;
    part->c += words >> 32;
    part->d += part->c;
}

static inline void sum_store16(const struct sum_part16 *part, size_t column, struct sum_state *ret)
{
    memcpy(ret->a + column, &part->a, sizeof(part->a));
    memcpy(ret->b + column, &part->b, sizeof(part->b));
    memcpy(ret->c + column, &part->c, sizeof(part->c));
    memcpy(ret->d + column, &part->d, sizeof(part->d));
}

/* Half of the columns at a time: more than eight accumulators would not stay in registers. */
static void sum_blocks_plain(const uint8_t *data, size_t blocks, const uint8_t *last,
                             struct sum_state *ret)
{
    for (size_t column = 0; column < SUM_COLUMNS; column += 4) {
        struct sum_part16 low = {{0}, {0}, {0}, {0}}, high = low;
        for (size_t i = 0; i < blocks; i++) {
            const uint8_t *at = data + i * SUM_BLOCK_BYTES + 8 * column;
            sum_step16(&low, at);
            sum_step16(&high, at + 16);
        }
        if (last != NULL) {
            sum_step16(&low, last + 8 * column);
            sum_step16(&high, last + 8 * column + 16);
        }
        sum_store16(&low, column, ret);
        sum_store16(&high, column + 2, ret);
    }
}

#if defined(__x86_64__)
#define SUM_AVX2 __attribute__((target("avx2")))
/* Four columns in a register. */
typedef uint64_t sum_vector32 __attribute__((vector_size(32)));
struct sum_part32 {
    sum_vector32 a, b, c, d;
};

SUM_AVX2 static inline void sum_step32(struct sum_part32 *part, const uint8_t *data)
{
    sum_vector32 words;
    memcpy(&words, data, sizeof(words));
    part->a += words;
    part->b += part->a;
    part->c += words >> 32;
    part->d += part->c;
}

SUM_AVX2 static inline void sum_store32(const struct sum_part32 *part, size_t column,
                                        struct sum_state *ret)
{
    memcpy(ret->a + column, &part->a, sizeof(part->a));
    memcpy(ret->b + column, &part->b, sizeof(part->b));
    memcpy(ret->c + column, &part->c, sizeof(part->c));
    memcpy(ret->d + column, &part->d, sizeof(part->d));
}

SUM_AVX2 static void sum_blocks_avx2(const uint8_t *data, size_t blocks, const uint8_t *last,
                                     struct sum_state *ret)
{
    struct sum_part32 low = {{0}, {0}, {0}, {0}}, high = low;
    for (size_t i = 0; i < blocks; i++, data += SUM_BLOCK_BYTES) {
        sum_step32(&low, data);
        sum_step32(&high, data + 32);
    }
    if (last != NULL) {
        sum_step32(&low, last);
        sum_step32(&high, last + 32);
    }
    sum_store32(&low, 0, ret);
    sum_store32(&high, 4, ret);
}

#define SUM_AVX512 __attribute__((target("avx512f")))
/* All eight columns in a register. */
typedef uint64_t sum_vector64 __attribute__((vector_size(64)));

SUM_AVX512 static void sum_blocks_avx512(const uint8_t *data, size_t blocks, const uint8_t *last,
                                         struct sum_state *ret)
{
    sum_vector64 a = {0}, b = {0}, c = {0}, d = {0}, words;
    for (size_t i = 0; i < blocks + (last != NULL); i++) {
        memcpy(&words, i < blocks ? data + i * SUM_BLOCK_BYTES : last, sizeof(words));
        a += words;
        b += a;
        c += words >> 32;
        d += c;
    }
    memcpy(ret->a, &a, sizeof(a));
    memcpy(ret->b, &b, sizeof(b));
    memcpy(ret->c, &c, sizeof(c));
    memcpy(ret->d, &d, sizeof(d));
}
#endif

/* ---- CRC32C ---------------------------------------------------------------------------------- */

#define CRC_POLYNOMIAL 0x82f63b78u /* the lowest bit is the highest power */

/* [k][v]: the state after byte v and k zero bytes, from state 0. */
static uint32_t crc_tables[8][256];
static pthread_once_t crc_tables_once = PTHREAD_ONCE_INIT;

static void crc_make_tables(void)
{
    for (uint32_t v = 0; v < 256; v++) {
        uint32_t crc = v;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? CRC_POLYNOMIAL : 0);
        }
        crc_tables[0][v] = crc;
    }
    for (size_t k = 1; k < 8; k++) {
        for (uint32_t v = 0; v < 256; v++) {
            const uint32_t before = crc_tables[k - 1][v];
            crc_tables[k][v] = (before >> 8) ^ crc_tables[0][before & 0xff];
        }
    }
}

static uint64_t crc_plain(const uint8_t *data, size_t bytes)
{
    uint32_t crc = ~0u;
    pthread_once(&crc_tables_once, crc_make_tables);
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint64_t unit = 0;
        memcpy(&unit, data, sizeof(unit));
        unit ^= crc;
        crc = 0;
        for (size_t k = 0; k < 8; k++) {
            crc ^= crc_tables[7 - k][(unit >> (8 * k)) & 0xff];
        }
    }
    for (; bytes > 0; bytes--, data++) {
        crc = (crc >> 8) ^ crc_tables[0][(crc ^ *data) & 0xff];
    }
    return (uint32_t)~crc;
}

#if defined(__x86_64__)
/* Bytes of each of the three streams in a round: enough to hide the cost of joining them. */
#define CRC_STREAM_BYTES ((size_t)512)
/* x^(8 * 512 * s - 33) modulo the polynomial, for s = 1, 2: moves a state over s streams. 33: the
 * product of two reflected numbers lacks one power, and the reduction by CRC32 adds 32. */
#define CRC_OVER_1 0xdd7e3b0cu
#define CRC_OVER_2 0x170076fau

/* The state crc after as many further zero bytes as `over` stands for. */
__attribute__((target("sse4.2,pclmul"))) static inline uint64_t crc_move(uint64_t crc,
                                                                         uint64_t over)
{
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc),
                                                 _mm_cvtsi64_si128((long long)over), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2"))) static inline uint64_t crc_unit(uint64_t crc, const uint8_t *at)
{
    uint64_t unit = 0;
    memcpy(&unit, at, sizeof(unit));
    return _mm_crc32_u64(crc, unit);
}

__attribute__((target("sse4.2,pclmul"))) static uint64_t crc_sse42(const uint8_t *data,
                                                                   size_t bytes)
{
    uint64_t crc = ~0u;
    for (; bytes >= 3 * CRC_STREAM_BYTES; bytes -= 3 * CRC_STREAM_BYTES) {
        uint64_t second = 0, third = 0;
        for (size_t at = 0; at < CRC_STREAM_BYTES; at += 8) {
            crc = crc_unit(crc, data + at);
            second = crc_unit(second, data + at + CRC_STREAM_BYTES);
            third = crc_unit(third, data + at + 2 * CRC_STREAM_BYTES);
        }
        crc = crc_move(crc, CRC_OVER_2) ^ crc_move(second, CRC_OVER_1) ^ third;
        data += 3 * CRC_STREAM_BYTES;
    }
    for (; bytes >= 8; bytes -= 8, data += 8) {
        crc = crc_unit(crc, data);
    }
    for (; bytes > 0; bytes--, data++) {
        crc = _mm_crc32_u8((uint32_t)crc, *data);
    }
    return (uint32_t)~crc;
}
#endif

/* ---- Instruction sets ------------------------------------------------------------------------ */

struct checksum_way {
    sum_blocks_fn *sum_blocks;
    uint64_t (*crc)(const uint8_t *data, size_t bytes);
};
#define CHECKSUM_MOST_WAYS 4

/* The ways of this CPU, the plainest first. */
static unsigned checksum_detect(struct checksum_way *ret_ways)
{
    unsigned n = 0;
    ret_ways[n++] = (struct checksum_way){sum_blocks_plain, crc_plain};
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        ret_ways[n++] = (struct checksum_way){sum_blocks_plain, crc_sse42};
        if (__builtin_cpu_supports("avx2")) {
            ret_ways[n++] = (struct checksum_way){sum_blocks_avx2, crc_sse42};
        }
        if (__builtin_cpu_supports("avx512f")) {
            ret_ways[n++] = (struct checksum_way){sum_blocks_avx512, crc_sse42};
        }
    }
#endif
    return n;
}

static pthread_once_t checksum_once = PTHREAD_ONCE_INIT;
static struct checksum_way checksum_known[CHECKSUM_MOST_WAYS]; /* constant after once */
static unsigned checksum_count;

static void checksum_learn(void)
{
    checksum_count = checksum_detect(checksum_known);
}

static uint64_t checksum_run(const struct checksum_way *way, enum hoop_check check,
                             const void *data, size_t bytes)
{
    switch (check) {
    case HOOP_CHECK_SUM:
        return sum_run(way->sum_blocks, data, bytes);
    case HOOP_CHECK_CRC32C:
        return way->crc(data, bytes);
    case HOOP_CHECK_OFF:
    case HOOP_CHECK_AEAD:
        break;
    }
    return 0;
}

uint64_t hoop_checksum(enum hoop_check check, const void *data, size_t bytes)
{
    pthread_once(&checksum_once, checksum_learn);
    return checksum_run(&checksum_known[checksum_count - 1], check, data, bytes);
}

bool hoop_checksum_by(unsigned way, enum hoop_check check, const void *data, size_t bytes,
                      uint64_t *ret_value)
{
    pthread_once(&checksum_once, checksum_learn);
    if (way >= checksum_count) {
        return false;
    }
    *ret_value = checksum_run(&checksum_known[way], check, data, bytes);
    return true;
}

const char *hoop_check_name(uint32_t check)
{
    static const char *const names[] = {"sum", "crc32c", "off", "aead"};
    return check < sizeof(names) / sizeof(names[0]) ? names[check] : "unknown";
}
