/*
 * Encryption of what travels between machines, by which the receiver also notices any change:
 * AES-256-GCM (NIST SP 800-38D) with 16-byte tags; and X25519 (RFC 7748), from which the keys come.
 * Both are OpenSSL's, in libcrypto.so.3, which is loaded when it is first wanted, so that nobody
 * else needs it and the wheel does not carry it.
 *
 * HOOP_UNSUPPORTED, of every function that returns a result: there is no libcrypto.so.3, or it
 * lacks something; the thread's sentence says which.
 */
#ifndef HOOP_ENCRYPT_H
#define HOOP_ENCRYPT_H

#include "base/crypto.h"

#define HOOP_AEAD_TAG_BYTES 16
#define HOOP_X25519_BYTES 32

/* Loads the library. */
hoop_result_t hoop_encrypt_load(void);

/* ---- AES-256-GCM ----------------------------------------------------------------------------- */

/* A key of one direction of one connection, so a message's number is all that makes its nonce. Used
 * by one thread at a time. */
struct hoop_aead;

/* For the end that seals, or for the one that opens. key is copied. */
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

/* ---- X25519 ---------------------------------------------------------------------------------- */

/* The public key of a private one, which is any 32 bytes that nobody can predict. */
hoop_result_t hoop_x25519_public(const struct hoop_secret *own,
                                 uint8_t ret_public[HOOP_X25519_BYTES]);

/* What only the owners of the two private keys can compute; to be wiped. HOOP_NOT_AUTHENTICATED:
 * the other public key is none (a point of low order). */
hoop_result_t hoop_x25519_shared(const struct hoop_secret *own,
                                 const uint8_t other[HOOP_X25519_BYTES],
                                 struct hoop_secret *ret_shared);

#endif
