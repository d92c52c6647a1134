/*
 * Proof of membership. Every control connection begins with a mutual challenge and response,
 * HMAC-SHA256 keyed by the job's secret over everything said before (who, to whom, comm,
 * version, both nonces). It protects connecting; bytes sent afterwards are not encrypted.
 * Cryptography comes from OpenSSL's libcrypto; this is the only place that calls it.
 */
#ifndef HOOP_CRYPTO_H
#define HOOP_CRYPTO_H

#include "base/error.h"
#include <stdbool.h>

#define HOOP_SECRET_BYTES 32
#define HOOP_NONCE_BYTES 32
#define HOOP_MAC_BYTES 32

struct hoop_secret {
    uint8_t bytes[HOOP_SECRET_BYTES];
};

/* Bytes nobody can guess. */
hoop_result_t hoop_random(void *buf, size_t bytes);

/*
 * HMAC-SHA256(secret, label || 0 || a || b). label separates uses of one secret; NULL leaves out
 * label and 0, which only the published test vectors want. a and b may be NULL with 0 bytes.
 */
hoop_result_t hoop_hmac(const struct hoop_secret *secret, const char *label, const void *a,
                        size_t a_bytes, const void *b, size_t b_bytes,
                        uint8_t ret_mac[HOOP_MAC_BYTES]);

/* Equal, compared in a time that does not depend on where they differ. */
bool hoop_mac_equal(const uint8_t a[HOOP_MAC_BYTES], const uint8_t b[HOOP_MAC_BYTES]);

/* 64 hexadecimal digits; anything else is HOOP_INVALID_ARGUMENT (the sentence never quotes it). */
hoop_result_t hoop_secret_parse(const char *hex, struct hoop_secret *ret_secret);

/* Overwrites a secret in a way that the compiler keeps. */
void hoop_secret_wipe(void *secret, size_t bytes);

/* Bytes as lower-case hexadecimal digits: two digits a byte, and the end: ret_text holds 2 * bytes
 * + 1. */
static inline void hoop_hex_format(const void *data, size_t bytes, char *ret_text)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) {
        ret_text[2 * i] = "0123456789abcdef"[at[i] >> 4];
        ret_text[2 * i + 1] = "0123456789abcdef"[at[i] & 15];
    }
    ret_text[2 * bytes] = '\0';
}

#endif
