/*
 * Proof of membership with OpenSSL's SHA-256. Error messages never contain a secret.
 *
 * HMAC is built here from SHA256_Update() instead of EVP_MAC. EVP_MAC needs OpenSSL's global state:
 * it is set up at first use, torn down at exit() while threads may still be joining, and includes
 * the program's error queue. It also links every algorithm, 4 MB where libcrypto is static. OpenSSL
 * 3 deprecates these functions in favour of EVP, but all its versions have them.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/crypto.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* For kernels and sandboxes without getrandom(). */
static hoop_result_t random_file(unsigned char *buf, size_t bytes, int err)
{
    const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && bytes > 0) {
        const ssize_t got = read(fd, buf, bytes);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            break;
        }
        if (got > 0) {
            buf += got;
            bytes -= (size_t)got;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return bytes == 0 ? HOOP_OK
                      : hoop_error(HOOP_SYSTEM_ERROR,
                                   "no random bytes: getrandom() failed with %s, and /dev/urandom "
                                   "gave none either",
                                   hoop_errno_name(err));
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
            return random_file(p, bytes, errno);
        }
        p += got;
        bytes -= (size_t)got;
    }
    return HOOP_OK;
}

static bool hash_add(SHA256_CTX *hash, const void *data, size_t bytes)
{
    return bytes == 0 || SHA256_Update(hash, data, bytes) == 1;
}

/* Each of HMAC's two hashes begins with the zero-padded key, every byte of it xor pad. */
static bool hash_start(SHA256_CTX *hash, const struct hoop_secret *secret, uint8_t pad)
{
    uint8_t block[SHA256_CBLOCK];
    memset(block, pad, sizeof(block));
    for (size_t i = 0; i < sizeof(secret->bytes); i++) {
        block[i] ^= secret->bytes[i];
    }
    const bool done = SHA256_Init(hash) == 1 && hash_add(hash, block, sizeof(block));
    OPENSSL_cleanse(block, sizeof(block));
    return done;
}

hoop_result_t hoop_hmac(const struct hoop_secret *secret, const char *label, const void *a,
                        size_t a_bytes, const void *b, size_t b_bytes,
                        uint8_t ret_mac[HOOP_MAC_BYTES])
{
    _Static_assert(HOOP_SECRET_BYTES <= SHA256_CBLOCK,
                   "a longer key would have to be hashed first");
    SHA256_CTX hash;
    uint8_t inner[SHA256_DIGEST_LENGTH];
    uint8_t mac[SHA256_DIGEST_LENGTH];
    const size_t label_bytes = label != NULL ? strlen(label) + 1 : 0;
    const bool done = hash_start(&hash, secret, 0x36) && hash_add(&hash, label, label_bytes) &&
                      hash_add(&hash, a, a_bytes) && hash_add(&hash, b, b_bytes) &&
                      SHA256_Final(inner, &hash) == 1 && hash_start(&hash, secret, 0x5c) &&
                      hash_add(&hash, inner, sizeof(inner)) && SHA256_Final(mac, &hash) == 1;
    if (done) {
        memcpy(ret_mac, mac, sizeof(mac));
    }
    OPENSSL_cleanse(&hash, sizeof(hash));
    OPENSSL_cleanse(inner, sizeof(inner));
    OPENSSL_cleanse(mac, sizeof(mac));
    return done ? HOOP_OK
                : hoop_error(HOOP_INTERNAL_ERROR, "OpenSSL failed to compute an HMAC-SHA256");
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
                            "character %zu of the secret is not a hexadecimal digit; expected %zu",
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
