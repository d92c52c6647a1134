/*
 * The handshake of a control connection: message in, message out, no I/O. Both ends show that
 * they know the secret, for this hello and these nonces; labels keep one's answer from serving as
 * the other's.
 *
 *      client  GREETING --CHALLENGE is right: PROOF--> PROVING --WELCOME--> DONE
 *      server  WAITING --HELLO, admitted: CHALLENGE--> CHALLENGED --PROOF is right: WELCOME--> DONE
 *
 * Private to connection.c. Service thread only.
 */
#ifndef HOOP_CONTROL_HANDSHAKE_H
#define HOOP_CONTROL_HANDSHAKE_H

#include "control/frame.h"
#include <stdbool.h>

enum hoop_handshake_state {
    HOOP_HANDSHAKE_WAITING,
    HOOP_HANDSHAKE_CHALLENGED,
    HOOP_HANDSHAKE_GREETING,
    HOOP_HANDSHAKE_PROVING,
    HOOP_HANDSHAKE_DONE
};

struct hoop_handshake {
    enum hoop_handshake_state state;
    const char *peer;          /* for sentences; borrowed */
    bool greets;               /* a client */
    struct hoop_secret secret; /* a server's is set before it takes a hello; to be wiped */
    struct hoop_frame_hello hello;
    struct hoop_frame_challenge challenge;
};

/* A client's: makes its hello, with a header and a nonce of its own, which is to be sent. */
hoop_result_t hoop_handshake_greet(struct hoop_handshake *handshake,
                                   const struct hoop_frame_hello *hello,
                                   const struct hoop_secret *secret);

/*
 * Did the client mean to come to this end, over TCP? A hello that was for another port came here by
 * a detour: somebody listens there and passes on what he hears. The proof covers what the hello
 * says, so he cannot mend it. HOOP_NOT_AUTHENTICATED: no.
 */
hoop_result_t hoop_handshake_reached(const struct hoop_frame_hello *hello,
                                     const struct hoop_address *here);

/* Is it a message of this type that may come now? */
bool hoop_handshake_expects(const struct hoop_handshake *handshake, uint32_t type);

/*
 * Takes a checked message of an expected type. HOOP_OK: go on, DONE or not, with *ret_answer where
 * there is one; else it has failed, and the thread's sentence says why: HOOP_NOT_AUTHENTICATED, or
 * HOOP_AGAIN where the server asks to come back later.
 */
hoop_result_t hoop_handshake_take(struct hoop_handshake *handshake, const union hoop_frame *frame,
                                  union hoop_frame *ret_answer);

/*
 * The keys that a finished handshake leaves, made of the secret, the hello and both nonces: for
 * what the other end says, what this one says, and what follows that is no frame.
 */
hoop_result_t hoop_handshake_keys(const struct hoop_handshake *handshake,
                                  struct hoop_secret *ret_in, struct hoop_secret *ret_out,
                                  struct hoop_secret *ret_data);

#endif
