/*
 * AES-256-GCM and X25519 by OpenSSL's EVP (see encrypt.h).
 *
 * EVP needs OpenSSL's global state (base/crypto.c says why hoop avoids that), which the program may
 * have set up: then OPENSSL_cleanup() frees it at exit, while threads may still send or connect.
 * Ciphers go on working, since they are of a library context of hoop's own; keys of X25519 do not,
 * so none are made any more once exit() has begun. If nobody has set up OpenSSL before, it is told
 * not to clean up at all.
 */
#include "net/encrypt.h"
#include "runtime/service.h"
#include <dlfcn.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENCRYPT_LIBRARY "libcrypto.so.3"
#define AEAD_NONCE_BYTES 12
#define AEAD_PIECE ((size_t)1 << 30) /* EVP counts in int */

#define ENCRYPT_CALLS(X)                                                                           \
    X(OPENSSL_init_crypto)                                                                         \
    X(OSSL_LIB_CTX_new)                                                                            \
    X(EVP_CIPHER_fetch)                                                                            \
    X(EVP_CIPHER_CTX_new)                                                                          \
    X(EVP_CIPHER_CTX_free)                                                                         \
    X(EVP_CIPHER_CTX_ctrl)                                                                         \
    X(EVP_CipherInit_ex2)                                                                          \
    X(EVP_CipherUpdate)                                                                            \
    X(EVP_CipherFinal_ex)                                                                          \
    X(EVP_PKEY_new_raw_private_key_ex)                                                             \
    X(EVP_PKEY_new_raw_public_key_ex)                                                              \
    X(EVP_PKEY_get_raw_public_key)                                                                 \
    X(EVP_PKEY_free)                                                                               \
    X(EVP_PKEY_CTX_new_from_pkey)                                                                  \
    X(EVP_PKEY_CTX_free)                                                                           \
    X(EVP_PKEY_derive_init)                                                                        \
    X(EVP_PKEY_derive_set_peer)                                                                    \
    X(EVP_PKEY_derive)

struct hoop_aead {
    EVP_CIPHER_CTX *context;
};

static struct {
#define ENCRYPT_FIELD(name) __typeof__ (&(name))(name);
    ENCRYPT_CALLS(ENCRYPT_FIELD)
#undef ENCRYPT_FIELD
} openssl;
static OSSL_LIB_CTX *encrypt_context;
static EVP_CIPHER *encrypt_cipher;
static bool encrypt_works;
static char encrypt_absence[128]; /* why */
static pthread_once_t encrypt_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t x25519_lock = PTHREAD_MUTEX_INITIALIZER;
static bool x25519_over; /* under the lock: the program is exiting */

/* ---- OpenSSL -------------------------------------------------------------------------------- */

/* All symbols or none. Returns the one that is missing. */
static const char *encrypt_bind(void *library)
{
    const struct {
        const char *symbol;
        void *place;
    } calls[] = {
#define ENCRYPT_BIND(name) {#name, &openssl.name},
        ENCRYPT_CALLS(ENCRYPT_BIND)
#undef ENCRYPT_BIND
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *const found = dlsym(library, calls[i].symbol);
        if (found == NULL) {
            return calls[i].symbol;
        }
        memcpy(calls[i].place, &found, sizeof(found));
    }
    return NULL;
}

/* OPENSSL_cleanup() was registered before this, if at all, so it runs after it. In a child made by
 * fork() nobody makes keys, and the thread that held the lock may be missing. */
static void x25519_end(void)
{
    if (!hoop_is_forked()) {
        pthread_mutex_lock(&x25519_lock);
        x25519_over = true;
        pthread_mutex_unlock(&x25519_lock);
    }
}

/* NULL: OpenSSL has no memory. To be freed. */
static EVP_PKEY *x25519_own(const struct hoop_secret *own)
{
    return openssl.EVP_PKEY_new_raw_private_key_ex(encrypt_context, "X25519", NULL, own->bytes,
                                                   sizeof(own->bytes));
}

/* Tries what is needed. */
static bool encrypt_try(void)
{
    static const struct hoop_secret any;
    encrypt_context = openssl.OSSL_LIB_CTX_new();
    if (encrypt_context == NULL || atexit(x25519_end) != 0) {
        return false;
    }
    EVP_PKEY *const key = x25519_own(&any);
    encrypt_cipher = openssl.EVP_CIPHER_fetch(encrypt_context, "AES-256-GCM", NULL);
    openssl.EVP_PKEY_free(key);
    return key != NULL && encrypt_cipher != NULL;
}

/* Neither the library nor its context is ever closed. */
static void encrypt_load(void)
{
    void *const library = dlopen(ENCRYPT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *const missing = library != NULL ? encrypt_bind(library) : NULL;
    if (library == NULL || missing != NULL) {
        const char *const why = library == NULL ? dlerror() : missing;
        (void)snprintf(encrypt_absence, sizeof(encrypt_absence), "%s%s",
                       library == NULL ? "" : ENCRYPT_LIBRARY " has no ",
                       why != NULL ? why : ENCRYPT_LIBRARY " cannot be loaded");
        return;
    }
    (void)openssl.OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    encrypt_works = encrypt_try();
    if (!encrypt_works) {
        (void)snprintf(encrypt_absence, sizeof(encrypt_absence),
                       ENCRYPT_LIBRARY " offers no AES-256-GCM or no X25519");
    }
}

hoop_result_t hoop_encrypt_load(void)
{
    (void)pthread_once(&encrypt_once, encrypt_load);
    return encrypt_works ? HOOP_OK
                         : hoop_error(HOOP_UNSUPPORTED, "HOOP_CHECK=aead needs OpenSSL 3: %s",
                                      encrypt_absence);
}

/* ---- AES-256-GCM ---------------------------------------------------------------------------- */

hoop_result_t hoop_aead_create(const struct hoop_secret *key, bool seals, struct hoop_aead **ret)
{
    const hoop_result_t result = hoop_encrypt_load();
    if (result != HOOP_OK) {
        return result;
    }
    struct hoop_aead *const aead = calloc(1, sizeof(*aead));
    if (aead == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a key");
    }
    aead->context = openssl.EVP_CIPHER_CTX_new();
    if (aead->context == NULL || openssl.EVP_CipherInit_ex2(aead->context, encrypt_cipher,
                                                            key->bytes, NULL, seals, NULL) != 1) {
        hoop_aead_destroy(aead);
        return hoop_error(HOOP_OUT_OF_MEMORY, "OpenSSL has no memory for a key");
    }
    *ret = aead;
    return HOOP_OK;
}

void hoop_aead_destroy(struct hoop_aead *aead)
{
    if (aead != NULL) {
        openssl.EVP_CIPHER_CTX_free(aead->context); /* which wipes the key */
        free(aead);
    }
}

/* Begins a message; the key stays, and whether this end seals or opens (-1). */
static bool aead_begin(const struct hoop_aead *aead, uint64_t number, uint32_t part)
{
    uint8_t nonce[AEAD_NONCE_BYTES];
    _Static_assert(sizeof(nonce) == sizeof(number) + sizeof(part), "both make the nonce");
    memcpy(nonce, &number, sizeof(number));
    memcpy(nonce + sizeof(number), &part, sizeof(part));
    return openssl.EVP_CipherInit_ex2(aead->context, NULL, NULL, nonce, -1, NULL) == 1;
}

/* Returns false too if the tag of a message that is opened is wrong. */
static bool aead_run(const struct hoop_aead *aead, const uint8_t *from, size_t bytes, uint8_t *to)
{
    uint8_t rest[EVP_MAX_BLOCK_LENGTH]; /* GCM has none */
    int out = 0;
    for (size_t at = 0; at < bytes; at += AEAD_PIECE) {
        const size_t piece = bytes - at < AEAD_PIECE ? bytes - at : AEAD_PIECE;
        if (openssl.EVP_CipherUpdate(aead->context, to + at, &out, from + at, (int)piece) != 1) {
            return false;
        }
    }
    return openssl.EVP_CipherFinal_ex(aead->context, rest, &out) == 1;
}

hoop_result_t hoop_aead_seal(struct hoop_aead *aead, uint64_t number, uint32_t part,
                             const void *data, size_t bytes, void *ret_data,
                             uint8_t ret_tag[HOOP_AEAD_TAG_BYTES])
{
    const bool done = aead_begin(aead, number, part) && aead_run(aead, data, bytes, ret_data) &&
                      openssl.EVP_CIPHER_CTX_ctrl(aead->context, EVP_CTRL_AEAD_GET_TAG,
                                                  HOOP_AEAD_TAG_BYTES, ret_tag) == 1;
    return done ? HOOP_OK : hoop_error(HOOP_INTERNAL_ERROR, "OpenSSL failed to encrypt");
}

hoop_result_t hoop_aead_open(struct hoop_aead *aead, uint64_t number, uint32_t part, void *data,
                             size_t bytes, const uint8_t tag[HOOP_AEAD_TAG_BYTES])
{
    const bool done =
        aead_begin(aead, number, part) &&
        openssl.EVP_CIPHER_CTX_ctrl(aead->context, EVP_CTRL_AEAD_SET_TAG, HOOP_AEAD_TAG_BYTES,
                                    (void *)(uintptr_t)tag) == 1 &&
        aead_run(aead, data, bytes, data);
    return done ? HOOP_OK : hoop_error(HOOP_NOT_AUTHENTICATED, "the tag is wrong");
}

/* ---- X25519 ---------------------------------------------------------------------------------- */

/* Begins work with the key: makes it. Holds the lock until x25519_finish(), whatever the result. */
static hoop_result_t x25519_begin(const struct hoop_secret *own, EVP_PKEY **ret_key)
{
    const hoop_result_t result = hoop_encrypt_load();
    *ret_key = NULL;
    pthread_mutex_lock(&x25519_lock);
    if (result == HOOP_OK && !x25519_over) {
        *ret_key = x25519_own(own);
    }
    return result != HOOP_OK  ? result
           : x25519_over      ? hoop_error(HOOP_SYSTEM_ERROR, "this process is exiting")
           : *ret_key == NULL ? hoop_error(HOOP_OUT_OF_MEMORY, "OpenSSL has no memory for a key")
                              : HOOP_OK;
}

static void x25519_finish(EVP_PKEY *key)
{
    if (key != NULL) {
        openssl.EVP_PKEY_free(key);
    }
    pthread_mutex_unlock(&x25519_lock);
}

hoop_result_t hoop_x25519_public(const struct hoop_secret *own,
                                 uint8_t ret_public[HOOP_X25519_BYTES])
{
    EVP_PKEY *key = NULL;
    size_t bytes = HOOP_X25519_BYTES;
    hoop_result_t result = x25519_begin(own, &key);
    if (result == HOOP_OK && openssl.EVP_PKEY_get_raw_public_key(key, ret_public, &bytes) != 1) {
        result = hoop_error(HOOP_INTERNAL_ERROR, "OpenSSL failed to make an X25519 key");
    }
    x25519_finish(key);
    return result;
}

/* The derivation, which fails only if the other key is none. */
static hoop_result_t x25519_derive(EVP_PKEY *key, EVP_PKEY *other, struct hoop_secret *ret_shared)
{
    size_t bytes = sizeof(ret_shared->bytes);
    EVP_PKEY_CTX *const context = openssl.EVP_PKEY_CTX_new_from_pkey(encrypt_context, key, NULL);
    if (context == NULL || other == NULL || openssl.EVP_PKEY_derive_init(context) != 1) {
        openssl.EVP_PKEY_CTX_free(context);
        return hoop_error(HOOP_OUT_OF_MEMORY, "OpenSSL has no memory for a key");
    }
    const bool done = openssl.EVP_PKEY_derive_set_peer(context, other) == 1 &&
                      openssl.EVP_PKEY_derive(context, ret_shared->bytes, &bytes) == 1;
    openssl.EVP_PKEY_CTX_free(context);
    return done ? HOOP_OK : hoop_error(HOOP_NOT_AUTHENTICATED, "its public key is none");
}

hoop_result_t hoop_x25519_shared(const struct hoop_secret *own,
                                 const uint8_t other[HOOP_X25519_BYTES],
                                 struct hoop_secret *ret_shared)
{
    EVP_PKEY *key = NULL;
    hoop_result_t result = x25519_begin(own, &key);
    if (result == HOOP_OK) {
        EVP_PKEY *const peer = openssl.EVP_PKEY_new_raw_public_key_ex(
            encrypt_context, "X25519", NULL, other, HOOP_X25519_BYTES);
        result = x25519_derive(key, peer, ret_shared);
        openssl.EVP_PKEY_free(peer);
    }
    x25519_finish(key);
    return result;
}
