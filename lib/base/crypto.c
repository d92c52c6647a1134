/*
 * Proof of membership by way of OpenSSL. Errors of OpenSSL become sentences here, and its error
 * queue is left as the program had it. Secrets never enter a sentence.
 */
#include "base/crypto.h"
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

/* Read while OpenSSL is in use; written when exit() is about to take it down. */
static pthread_rwlock_t crypto_lock = PTHREAD_RWLOCK_INITIALIZER;
static bool crypto_over;

/* The sentence and the code for OpenSSL's last error, since ERR_set_mark(). */
static hoop_result_t auth_openssl_error(const char *what)
{
    const unsigned long error = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(error);
    const bool memory = ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE;
    return hoop_error(memory ? HOOP_OUT_OF_MEMORY : HOOP_INTERNAL_ERROR,
                      "OpenSSL failed to %s: %s (error %#lx)", what,
                      reason != NULL ? reason : "no reason given", error);
}

void hoop_crypto_prepare(void)
{
    /* Without an option it would do nothing; this one does nothing else. Who needs OpenSSL is told
     * when it fails. */
    (void)OPENSSL_init_crypto(OPENSSL_INIT_ATFORK, NULL);
}

void hoop_crypto_finish(void)
{
    pthread_rwlock_wrlock(&crypto_lock);
    crypto_over = true;
    pthread_rwlock_unlock(&crypto_lock);
}

/* For kernels and sandboxes without getrandom(); OpenSSL then finds /dev/urandom. */
static hoop_result_t auth_random_openssl(unsigned char *buf, size_t bytes, int err)
{
    while (bytes > 0) {
        const int part = bytes > INT_MAX ? INT_MAX : (int)bytes;
        if (RAND_bytes(buf, part) != 1) {
            return hoop_error(HOOP_SYSTEM_ERROR,
                              "no random bytes: getrandom gave %s, and OpenSSL "
                              "has none either",
                              hoop_errno_name(err));
        }
        buf += part;
        bytes -= (size_t)part;
    }
    return HOOP_OK;
}

hoop_result_t hoop_random(void *buf, size_t bytes)
{
    unsigned char *p = buf;
    while (bytes > 0) {
        const ssize_t got = getrandom(p, bytes, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            const int err = errno;
            ERR_set_mark();
            const hoop_result_t rc = auth_random_openssl(p, bytes, err);
            ERR_pop_to_mark();
            return rc;
        }
        p += got;
        bytes -= (size_t)got;
    }
    return HOOP_OK;
}

static bool auth_hmac_start(EVP_MAC_CTX *ctx, const struct hoop_secret *secret)
{
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_init(ctx, secret->bytes, sizeof(secret->bytes), params) == 1;
}

static bool auth_hmac_add(EVP_MAC_CTX *ctx, const void *data, size_t bytes)
{
    return bytes == 0 || EVP_MAC_update(ctx, data, bytes) == 1;
}

static hoop_result_t auth_hmac(const struct hoop_secret *secret, const char *label, const void *a,
                               size_t a_bytes, const void *b, size_t b_bytes,
                               uint8_t ret_mac[HOOP_MAC_BYTES])
{
    hoop_result_t rc = HOOP_OK;
    uint8_t mac[HOOP_MAC_BYTES];
    size_t mac_bytes = 0;
    ERR_set_mark();
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *ctx = hmac != NULL ? EVP_MAC_CTX_new(hmac) : NULL;
    const size_t label_bytes = label != NULL ? strlen(label) + 1 : 0;
    if (ctx != NULL && auth_hmac_start(ctx, secret) && auth_hmac_add(ctx, label, label_bytes) &&
        auth_hmac_add(ctx, a, a_bytes) && auth_hmac_add(ctx, b, b_bytes) &&
        EVP_MAC_final(ctx, mac, &mac_bytes, sizeof(mac)) == 1 && mac_bytes == sizeof(mac)) {
        memcpy(ret_mac, mac, sizeof(mac));
    } else {
        rc = auth_openssl_error("compute an HMAC-SHA256");
    }
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(hmac);
    ERR_pop_to_mark();
    OPENSSL_cleanse(mac, sizeof(mac));
    return rc;
}

hoop_result_t hoop_hmac(const struct hoop_secret *secret, const char *label, const void *a,
                        size_t a_bytes, const void *b, size_t b_bytes,
                        uint8_t ret_mac[HOOP_MAC_BYTES])
{
    pthread_rwlock_rdlock(&crypto_lock);
    const hoop_result_t rc =
        crypto_over ? hoop_error(HOOP_INVALID_USAGE, "the process is ending: exit() was called")
                    : auth_hmac(secret, label, a, a_bytes, b, b_bytes, ret_mac);
    pthread_rwlock_unlock(&crypto_lock);
    return rc;
}

bool hoop_mac_equal(const uint8_t a[HOOP_MAC_BYTES], const uint8_t b[HOOP_MAC_BYTES])
{
    return CRYPTO_memcmp(a, b, HOOP_MAC_BYTES) == 0;
}

static int auth_hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

hoop_result_t hoop_secret_parse(const char *hex, struct hoop_secret *ret_secret)
{
    const size_t digits = 2 * sizeof(ret_secret->bytes);
    const size_t length = hex != NULL ? strnlen(hex, digits + 1) : 0;
    if (length != digits) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "the secret has %s%zu characters; expected %zu hexadecimal digits",
                          length > digits ? "more than " : "", length > digits ? digits : length,
                          digits);
    }
    hoop_result_t rc = HOOP_OK;
    struct hoop_secret secret;
    for (size_t i = 0; i < HOOP_SECRET_BYTES; i++) {
        const int high = auth_hex_digit(hex[2 * i]);
        const int low = auth_hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0) {
            rc = hoop_error(HOOP_INVALID_ARGUMENT,
                            "character %zu of the secret is no hexadecimal digit; expected %zu",
                            2 * i + (high < 0 ? 1 : 2), digits);
            goto out;
        }
        secret.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *ret_secret = secret;
out:
    OPENSSL_cleanse(&secret, sizeof(secret));
    return rc;
}

void hoop_secret_wipe(void *secret, size_t bytes)
{
    if (bytes > 0) {
        OPENSSL_cleanse(secret, bytes);
    }
}
