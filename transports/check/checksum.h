/*
 * Check sums of data that travel: found wrong, they were damaged on the way. Against accidents, not
 * against forgers. The same value on every little-endian machine, whatever its instructions are.
 *
 *   sum     a vector sum that knows the order of the words and their number; see checksum.c
 *   crc32c  Castagnoli's polynomial, as in iSCSI (RFC 3720)
 *   off     0
 *
 * HOOP_CHECK=mac is none of these: it needs a key (tcp_wire.h).
 */
#ifndef HOOP_CHECKSUM_H
#define HOOP_CHECKSUM_H

#include "base/settings.h"
#include <stdbool.h>

/* Of any bytes at any address; data may be NULL if bytes is 0. Thread-safe. */
uint64_t hoop_checksum(enum hoop_check check, const void *data, size_t bytes);

/*
 * Of few bytes, at a few instructions for each word: every word goes through the state by a step
 * that can be undone. state: 0, or what was returned for the bytes before. Thread-safe.
 */
uint64_t hoop_checksum_few(uint64_t state, const void *data, size_t bytes);

/* "sum", "crc32c", "off", "mac"; "unknown" for anything else, which a peer may have sent. */
const char *hoop_check_name(uint32_t check);

/*
 * The ways in which this CPU can do it, from the plainest (0) to the one in use. For tests. False:
 * there are not so many.
 */
bool hoop_checksum_by(unsigned way, enum hoop_check check, const void *data, size_t bytes,
                      uint64_t *ret_value);

#endif
