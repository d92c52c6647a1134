/* The handshake of a control connection. See handshake.h. */
#include "control/handshake.h"
#include "net/encrypt.h"
#include <assert.h>
#include <string.h>

#define HANDSHAKE_LABEL_SERVER "hoop server"
#define HANDSHAKE_LABEL_CLIENT "hoop client"

static hoop_result_t handshake_mac(const struct hoop_handshake *handshake, const char *label,
                                   const void *data, size_t bytes, uint8_t ret_mac[HOOP_MAC_BYTES])
{
    return hoop_hmac(&handshake->secret, label, &handshake->hello, sizeof(handshake->hello), data,
                     bytes, ret_mac);
}

/* The client's answer to the challenge. */
static hoop_result_t handshake_prove(const struct hoop_handshake *handshake,
                                     uint8_t ret_mac[HOOP_MAC_BYTES])
{
    return handshake_mac(handshake, HANDSHAKE_LABEL_CLIENT, &handshake->challenge,
                         sizeof(handshake->challenge), ret_mac);
}

static hoop_result_t handshake_make_nonce(struct hoop_handshake *handshake,
                                          uint8_t ret_nonce[HOOP_NONCE_BYTES])
{
    _Static_assert(HOOP_NONCE_BYTES == HOOP_X25519_BYTES, "a public key is a nonce");
    if (handshake->hello.encrypts == 0) {
        return hoop_random(ret_nonce, HOOP_NONCE_BYTES);
    }
    const hoop_result_t result = hoop_random(&handshake->own, sizeof(handshake->own));
    return result == HOOP_OK ? hoop_x25519_public(&handshake->own, ret_nonce) : result;
}

hoop_result_t hoop_handshake_keys(struct hoop_handshake *handshake, struct hoop_secret *ret_in,
                                  struct hoop_secret *ret_out, struct hoop_secret *ret_data)
{
    static const char *const labels[] = {"hoop key client", "hoop key server", "hoop key data"};
    const bool greets = handshake->greets;
    struct hoop_secret *const keys[] = {greets ? ret_out : ret_in, greets ? ret_in : ret_out,
                                        ret_data};
    struct {
        struct hoop_frame_challenge challenge;
        struct hoop_secret shared;
    } said = {.challenge = handshake->challenge};
    const bool encrypts = handshake->hello.encrypts != 0;
    const size_t bytes = encrypts ? sizeof(said) : sizeof(said.challenge);
    const uint8_t *other = greets ? handshake->challenge.nonce : handshake->hello.nonce;
    hoop_result_t result =
        encrypts ? hoop_x25519_shared(&handshake->own, other, &said.shared) : HOOP_OK;
    assert(handshake->expects == 0);
    for (size_t i = 0; result == HOOP_OK && i < sizeof(keys) / sizeof(keys[0]); i++) {
        result = handshake_mac(handshake, labels[i], &said, bytes, keys[i]->bytes);
    }
    hoop_secret_wipe(&said, sizeof(said));
    hoop_secret_wipe(&handshake->own, sizeof(handshake->own));
    return result;
}

void hoop_handshake_wipe(struct hoop_handshake *handshake)
{
    hoop_secret_wipe(&handshake->secret, sizeof(handshake->secret));
    hoop_secret_wipe(&handshake->own, sizeof(handshake->own));
}

/* ---- The server's side -------------------------------------------------------------------- */

hoop_result_t hoop_handshake_reached(const struct hoop_frame_hello *hello,
                                     const struct hoop_address *here)
{
    char dialled[HOOP_ADDRESS_TEXT_BYTES];
    char reached[HOOP_ADDRESS_TEXT_BYTES];
    if (hoop_settings()->nat != 0 ||
        (hoop_address_same_ip(&hello->dialled, here) && hello->dialled.port == here->port)) {
        return HOOP_OK;
    }
    hoop_address_format(&hello->dialled, dialled, sizeof(dialled));
    hoop_address_format(here, reached, sizeof(reached));
    return hoop_error(HOOP_NOT_AUTHENTICATED,
                      "a connection to %s arrived at %s: it came through a relay, or addresses are "
                      "translated (then set HOOP_NAT=1)",
                      dialled, reached);
}

static hoop_result_t handshake_take_hello(struct hoop_handshake *handshake,
                                          const struct hoop_frame_hello *hello,
                                          union hoop_frame *ret)
{
    struct hoop_frame_challenge *challenge = &ret->challenge;
    handshake->hello = *hello;
    hoop_frame_init(ret, HOOP_FRAME_CHALLENGE);
    hoop_result_t result = handshake_make_nonce(handshake, challenge->nonce);
    if (result == HOOP_OK) {
        result = handshake_mac(handshake, HANDSHAKE_LABEL_SERVER, challenge->nonce,
                               HOOP_NONCE_BYTES, challenge->mac);
    }
    handshake->challenge = *challenge;
    handshake->expects = HOOP_FRAME_PROOF;
    return result;
}

static hoop_result_t handshake_take_proof(struct hoop_handshake *handshake,
                                          const struct hoop_frame_proof *proof,
                                          union hoop_frame *ret)
{
    uint8_t mac[HOOP_MAC_BYTES];
    if (handshake_prove(handshake, mac) != HOOP_OK || !hoop_mac_equal(mac, proof->mac)) {
        return hoop_error(HOOP_NOT_AUTHENTICATED, "its proof of the secret is wrong");
    }
    hoop_frame_init(ret, HOOP_FRAME_WELCOME);
    handshake->expects = 0;
    return HOOP_OK;
}

/* ---- The client's side -------------------------------------------------------------------- */

hoop_result_t hoop_handshake_greet(struct hoop_handshake *handshake,
                                   const struct hoop_frame_hello *hello,
                                   const struct hoop_secret *secret)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_HELLO);
    handshake->expects = HOOP_FRAME_CHALLENGE;
    handshake->greets = true;
    handshake->hello = *hello;
    handshake->hello.header = frame.header;
    handshake->secret = *secret;
    return handshake_make_nonce(handshake, handshake->hello.nonce);
}

static hoop_result_t handshake_take_challenge(struct hoop_handshake *handshake,
                                              const struct hoop_frame_challenge *challenge,
                                              union hoop_frame *ret)
{
    uint8_t mac[HOOP_MAC_BYTES];
    if (handshake_mac(handshake, HANDSHAKE_LABEL_SERVER, challenge->nonce, HOOP_NONCE_BYTES, mac) !=
            HOOP_OK ||
        !hoop_mac_equal(mac, challenge->mac)) {
        return hoop_error(HOOP_NOT_AUTHENTICATED,
                          "%s could not prove that it knows this job's secret", handshake->peer);
    }
    hoop_frame_init(ret, HOOP_FRAME_PROOF);
    handshake->challenge = *challenge;
    handshake->expects = HOOP_FRAME_WELCOME;
    return handshake_prove(handshake, ret->proof.mac);
}

/* The server has proved nothing, so its code is only a reason, and never success. */
static hoop_result_t handshake_take_reject(const struct hoop_frame_failure *reject)
{
    const struct hoop_failure failure = hoop_frame_to_failure(reject);
    return hoop_error(failure.code == HOOP_AGAIN ? HOOP_AGAIN : HOOP_NOT_AUTHENTICATED, "%s",
                      failure.text);
}

/* ---- Both --------------------------------------------------------------------------------- */

bool hoop_handshake_expects(const struct hoop_handshake *handshake, uint32_t type)
{
    return type == handshake->expects ||
           (type == HOOP_FRAME_REJECT && handshake->expects == HOOP_FRAME_CHALLENGE);
}

hoop_result_t hoop_handshake_take(struct hoop_handshake *handshake, const union hoop_frame *frame,
                                  union hoop_frame *ret_answer)
{
    assert(hoop_handshake_expects(handshake, frame->header.type));
    switch (frame->header.type) {
    case HOOP_FRAME_HELLO:
        return handshake_take_hello(handshake, &frame->hello, ret_answer);
    case HOOP_FRAME_CHALLENGE:
        return handshake_take_challenge(handshake, &frame->challenge, ret_answer);
    case HOOP_FRAME_PROOF:
        return handshake_take_proof(handshake, &frame->proof, ret_answer);
    case HOOP_FRAME_REJECT:
        return handshake_take_reject(&frame->reject);
    default: /* WELCOME */
        handshake->expects = 0;
        return HOOP_OK;
    }
}
