/*
 * The handshake of a control connection as a state machine without I/O. Both ends show that they
 * know the secret, for this hello and these nonces; labels keep one end's answer from serving as
 * the other's. If the client encrypts (HOOP_CHECK=aead) the server does, too: the nonces are public
 * keys of X25519, and the connection's keys come from the shared secret as well, so that who learns
 * the job's secret later cannot read what was recorded.
 *
 *      client  HELLO --> expects CHALLENGE --right: PROOF--> expects WELCOME --> done
 *      server  expects HELLO --admitted: CHALLENGE--> expects PROOF --right: WELCOME--> done
 *
 * Private to connection.c. Service thread only.
 */
#ifndef HOOP_CONTROL_HANDSHAKE_H
#define HOOP_CONTROL_HANDSHAKE_H

#include "control/frame.h"
#include <stdbool.h>

struct hoop_handshake {
    uint32_t expects;          /* type of the next message; a server begins with HELLO; 0: done */
    const char *peer;          /* for error messages; borrowed */
    bool greets;               /* this end is the client */
    struct hoop_secret secret; /* a server sets it before it takes a hello */
    struct hoop_secret own;    /* private key of X25519, if it encrypts */
    struct hoop_frame_hello hello;
    struct hoop_frame_challenge challenge;
};

/* Client: makes the hello to send, with a header and a fresh nonce. hello says whether it encrypts,
 * which over TCP only it may. */
hoop_result_t hoop_handshake_greet(struct hoop_handshake *handshake,
                                   const struct hoop_frame_hello *hello,
                                   const struct hoop_secret *secret);

/*
 * Server, over TCP: did the client dial this very address? If not, whoever listens at the other
 * address relays its messages. He cannot change the hello, which the proof covers.
 * HOOP_NOT_AUTHENTICATED: no.
 */
hoop_result_t hoop_handshake_reached(const struct hoop_frame_hello *hello,
                                     const struct hoop_address *here);

/* Instead of a CHALLENGE a REJECT may come, too. */
bool hoop_handshake_expects(const struct hoop_handshake *handshake, uint32_t type);

/*
 * Takes a checked message of an expected type. HOOP_OK: go on, whether done or not, after sending
 * *ret_answer if there is one. Otherwise the handshake has failed, and the thread's sentence says
 * why: HOOP_NOT_AUTHENTICATED, or HOOP_AGAIN if the server asks to come back later.
 */
hoop_result_t hoop_handshake_take(struct hoop_handshake *handshake, const union hoop_frame *frame,
                                  union hoop_frame *ret_answer);

/* Wipes the secrets. */
void hoop_handshake_wipe(struct hoop_handshake *handshake);

/*
 * Keys from the secret, the hello and both nonces, once done: for messages from the other end, for
 * messages to it, and for data that are not frames. Wipes `own`.
 */
hoop_result_t hoop_handshake_keys(struct hoop_handshake *handshake, struct hoop_secret *ret_in,
                                  struct hoop_secret *ret_out, struct hoop_secret *ret_data);

#endif
