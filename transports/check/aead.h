/*
 * Encryption of data that travel, by which the receiver also notices any change: AES-256-GCM (NIST
 * SP 800-38D) with 16-byte tags. It comes from OpenSSL's libcrypto.so.3, which is loaded when the
 * first link wants it, so that nobody else needs it and the wheel does not carry it.
 *
 * A key serves one direction of one connection, so a message's number is all that makes its nonce.
 * Used by one thread at a time.
 */
#ifndef HOOP_AEAD_H
#define HOOP_AEAD_H

#include "base/crypto.h"

#define HOOP_AEAD_TAG_BYTES 16

struct hoop_aead;

/* For the end that seals, or for the one that opens. key is copied. HOOP_UNSUPPORTED: there is no
 * libcrypto.so.3, or it has no AES-256-GCM; the thread's sentence says which. */
hoop_result_t hoop_aead_create(const struct hoop_secret *key, bool seals, struct hoop_aead **ret);

/* NULL is allowed. */
void hoop_aead_destroy(struct hoop_aead *aead);

/*
 * Encrypts bytes bytes from data to ret_data, which is data or does not overlap it. No two calls
 * may have the same number and part. If it fails, ret_data may have any content.
 */
hoop_result_t hoop_aead_seal(struct hoop_aead *aead, uint64_t number, uint32_t part,
                             const void *data, size_t bytes, void *ret_data,
                             uint8_t ret_tag[HOOP_AEAD_TAG_BYTES]);

/* Decrypts in place. HOOP_NOT_AUTHENTICATED: this is not what was sealed with that number and part
 * (data may then have any content). */
hoop_result_t hoop_aead_open(struct hoop_aead *aead, uint64_t number, uint32_t part, void *data,
                             size_t bytes, const uint8_t tag[HOOP_AEAD_TAG_BYTES]);

#endif
