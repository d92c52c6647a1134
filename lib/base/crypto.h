/*
 * Proof of membership. Every control connection begins with a mutual challenge and response:
 * HMAC-SHA256, keyed by the job's secret, over everything said before (who, to whom, comm, version,
 * both nonces). It comes from OpenSSL's libcrypto, which only this module and net/encrypt.c call.
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

/* Fills buf with bytes that nobody can predict. */
hoop_result_t hoop_random(void *buf, size_t bytes);

/*
 * HMAC-SHA256(secret, label || 0 || a || b). The label separates uses of one secret; NULL omits
 * label and 0, which only the published test vectors need. a and b may be NULL if their size is 0.
 */
hoop_result_t hoop_hmac(const struct hoop_secret *secret, const char *label, const void *a,
                        size_t a_bytes, const void *b, size_t b_bytes,
                        uint8_t ret_mac[HOOP_MAC_BYTES]);

/* Compares in constant time. */
bool hoop_mac_equal(const uint8_t a[HOOP_MAC_BYTES], const uint8_t b[HOOP_MAC_BYTES]);

/* Parses 64 hexadecimal digits. The text of HOOP_INVALID_ARGUMENT never quotes them. */
hoop_result_t hoop_secret_parse(const char *hex, struct hoop_secret *ret_secret);

/* Overwrites a secret in a way that the compiler cannot optimise away. */
void hoop_secret_wipe(void *secret, size_t bytes);

/* Writes bytes as lower-case hexadecimal digits. ret_text has room for 2 * bytes + 1 characters. */
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
