/*
 * AES-256-GCM by OpenSSL's EVP (see aead.h).
 *
 * EVP needs OpenSSL's global state (base/crypto.c says why hoop avoids that). Here it is a library
 * context of hoop's own, which OPENSSL_cleanup() does not free: a thread may still be sending while
 * the program runs exit(). If nobody has set up OpenSSL before, it is told not to clean up at exit
 * at all.
 */
#include "transports/check/aead.h"
#include <dlfcn.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AEAD_LIBRARY "libcrypto.so.3"
#define AEAD_NONCE_BYTES 12
#define AEAD_PIECE ((size_t)1 << 30) /* EVP counts in int */

#define AEAD_CALLS(X)                                                                              \
    X(OPENSSL_init_crypto)                                                                         \
    X(OSSL_LIB_CTX_new)                                                                            \
    X(EVP_CIPHER_fetch)                                                                            \
    X(EVP_CIPHER_CTX_new)                                                                          \
    X(EVP_CIPHER_CTX_free)                                                                         \
    X(EVP_CIPHER_CTX_ctrl)                                                                         \
    X(EVP_CipherInit_ex2)                                                                          \
    X(EVP_CipherUpdate)                                                                            \
    X(EVP_CipherFinal_ex)

struct hoop_aead {
    EVP_CIPHER_CTX *context;
};

static struct {
#define AEAD_FIELD(name) __typeof__ (&(name))(name);
    AEAD_CALLS(AEAD_FIELD)
#undef AEAD_FIELD
} aead_openssl;
static EVP_CIPHER *aead_cipher; /* NULL: absent */
static char aead_absence[128];  /* why */
static pthread_once_t aead_once = PTHREAD_ONCE_INIT;

/* ---- OpenSSL -------------------------------------------------------------------------------- */

/* All symbols or none. Returns the one that is missing. */
static const char *aead_bind(void *library)
{
    const struct {
        const char *symbol;
        void *place;
    } calls[] = {
#define AEAD_BIND(name) {#name, &aead_openssl.name},
        AEAD_CALLS(AEAD_BIND)
#undef AEAD_BIND
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

/* Neither the library nor its context is ever closed. */
static void aead_load(void)
{
    void *const library = dlopen(AEAD_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *const missing = library != NULL ? aead_bind(library) : NULL;
    if (library == NULL || missing != NULL) {
        const char *const why = library == NULL ? dlerror() : missing;
        (void)snprintf(aead_absence, sizeof(aead_absence), "%s%s",
                       library == NULL ? "" : AEAD_LIBRARY " has no ",
                       why != NULL ? why : AEAD_LIBRARY " cannot be loaded");
        return;
    }
    (void)aead_openssl.OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    OSSL_LIB_CTX *const context = aead_openssl.OSSL_LIB_CTX_new();
    if (context != NULL) {
        aead_cipher = aead_openssl.EVP_CIPHER_fetch(context, "AES-256-GCM", NULL);
    }
    if (aead_cipher == NULL) {
        (void)snprintf(aead_absence, sizeof(aead_absence), AEAD_LIBRARY " offers no AES-256-GCM");
    }
}

/* ---- Keys ----------------------------------------------------------------------------------- */

hoop_result_t hoop_aead_create(const struct hoop_secret *key, bool seals, struct hoop_aead **ret)
{
    (void)pthread_once(&aead_once, aead_load);
    if (aead_cipher == NULL) {
        return hoop_error(HOOP_UNSUPPORTED, "HOOP_CHECK=aead needs OpenSSL 3: %s", aead_absence);
    }
    struct hoop_aead *const aead = calloc(1, sizeof(*aead));
    if (aead == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a key");
    }
    aead->context = aead_openssl.EVP_CIPHER_CTX_new();
    if (aead->context == NULL ||
        aead_openssl.EVP_CipherInit_ex2(aead->context, aead_cipher, key->bytes, NULL, seals,
                                        NULL) != 1) {
        hoop_aead_destroy(aead);
        return hoop_error(HOOP_OUT_OF_MEMORY, "OpenSSL has no memory for a key");
    }
    *ret = aead;
    return HOOP_OK;
}

void hoop_aead_destroy(struct hoop_aead *aead)
{
    if (aead != NULL) {
        aead_openssl.EVP_CIPHER_CTX_free(aead->context); /* which wipes the key */
        free(aead);
    }
}

/* ---- Messages ------------------------------------------------------------------------------- */

/* Begins a message; the key stays, and whether this end seals or opens (-1). */
static bool aead_begin(const struct hoop_aead *aead, uint64_t number, uint32_t part)
{
    uint8_t nonce[AEAD_NONCE_BYTES];
    _Static_assert(sizeof(nonce) == sizeof(number) + sizeof(part), "both make the nonce");
    memcpy(nonce, &number, sizeof(number));
    memcpy(nonce + sizeof(number), &part, sizeof(part));
    return aead_openssl.EVP_CipherInit_ex2(aead->context, NULL, NULL, nonce, -1, NULL) == 1;
}

/* Returns false too if the tag of a message that is opened is wrong. */
static bool aead_run(const struct hoop_aead *aead, const uint8_t *from, size_t bytes, uint8_t *to)
{
    uint8_t rest[EVP_MAX_BLOCK_LENGTH]; /* GCM has none */
    int out = 0;
    for (size_t at = 0; at < bytes; at += AEAD_PIECE) {
        const size_t piece = bytes - at < AEAD_PIECE ? bytes - at : AEAD_PIECE;
        if (aead_openssl.EVP_CipherUpdate(aead->context, to + at, &out, from + at, (int)piece) !=
            1) {
            return false;
        }
    }
    return aead_openssl.EVP_CipherFinal_ex(aead->context, rest, &out) == 1;
}

hoop_result_t hoop_aead_seal(struct hoop_aead *aead, uint64_t number, uint32_t part,
                             const void *data, size_t bytes, void *ret_data,
                             uint8_t ret_tag[HOOP_AEAD_TAG_BYTES])
{
    const bool done = aead_begin(aead, number, part) && aead_run(aead, data, bytes, ret_data) &&
                      aead_openssl.EVP_CIPHER_CTX_ctrl(aead->context, EVP_CTRL_AEAD_GET_TAG,
                                                       HOOP_AEAD_TAG_BYTES, ret_tag) == 1;
    return done ? HOOP_OK : hoop_error(HOOP_INTERNAL_ERROR, "OpenSSL failed to encrypt");
}

hoop_result_t hoop_aead_open(struct hoop_aead *aead, uint64_t number, uint32_t part, void *data,
                             size_t bytes, const uint8_t tag[HOOP_AEAD_TAG_BYTES])
{
    const bool done =
        aead_begin(aead, number, part) &&
        aead_openssl.EVP_CIPHER_CTX_ctrl(aead->context, EVP_CTRL_AEAD_SET_TAG, HOOP_AEAD_TAG_BYTES,
                                         (void *)(uintptr_t)tag) == 1 &&
        aead_run(aead, data, bytes, data);
    return done ? HOOP_OK : hoop_error(HOOP_NOT_AUTHENTICATED, "the tag is wrong");
}
