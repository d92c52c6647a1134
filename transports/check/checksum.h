/*
 * Checksums of data that travel: a wrong one shows that they were damaged on the way. They detect
 * accidents, not forgery. The value is the same on every little-endian machine, whatever its
 * instructions.
 *
 *   sum     a vector sum that depends on the order and number of the words; see checksum.c
 *   crc32c  Castagnoli's polynomial, as in iSCSI (RFC 3720)
 *   off     0
 *
 * HOOP_CHECK=aead is none of these, since it needs a key (net/encrypt.h).
 */
#ifndef HOOP_CHECKSUM_H
#define HOOP_CHECKSUM_H

#include "base/settings.h"
#include <stdbool.h>
#include <string.h>

/* Of any bytes at any address; data may be NULL if bytes is 0. Thread-safe. */
uint64_t hoop_checksum(enum hoop_check check, const void *data, size_t bytes);

/* Odd numbers without a pattern: from the golden ratio, and from pi. */
#define HOOP_CHECKSUM_MULTIPLIER 0x9e3779b97f4a7c15ull
#define HOOP_CHECKSUM_SEED 0x243f6a8885a308d3ull

static inline uint64_t hoop_checksum_mix(uint64_t state, uint64_t value)
{
    state = (state ^ value) * HOOP_CHECKSUM_MULTIPLIER;
    return state ^ (state >> 32);
}

/* For few bytes, with a few instructions per word: every word goes through the state in an
 * invertible step. state: 0, or the return value for the preceding bytes. */
static inline uint64_t hoop_checksum_few(uint64_t state, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint64_t word = 0;
    size_t left = bytes;
    state = hoop_checksum_mix(state ^ HOOP_CHECKSUM_SEED, bytes);
    for (; left >= sizeof(word); left -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        state = hoop_checksum_mix(state, word);
    }
    if (left > 0) {
        word = 0;
        memcpy(&word, at, left);
        state = hoop_checksum_mix(state, word);
    }
    return state;
}

/* "sum", "crc32c", "off", "aead"; "unknown" for anything else, which a peer may have sent. */
const char *hoop_check_name(uint32_t check);

/* By one of the ways in which this CPU can compute it, from the plainest (0) to the one in use. For
 * tests. False: there are fewer ways. */
bool hoop_checksum_by(unsigned way, enum hoop_check check, const void *data, size_t bytes,
                      uint64_t *ret_value);

#endif
