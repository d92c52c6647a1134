/*
 * A dialer tries places in turn, again and again, until somebody at one of them proves itself. No
 * other code retries connections.
 *
 *      dialling --proven--> found
 *         |  ^\__ refused, closed, no answer: next place; a growing pause after each round
 *         |   \__ a round in which every place had a final reason, such as a local error: failed
 *         \__ the deadline: failed
 *
 * An end that has proved nothing cannot end the search: what it says is kept for the final error,
 * and the dialer goes on until its deadline. Only on one machine, where the kernel vouches for the
 * uid, is a refusal final.
 *
 * Service thread only. A dialer is finished after `found` or `failed`. It may be destroyed in any
 * of its callbacks, and at any other time.
 */
#ifndef HOOP_CONTROL_DIALER_H
#define HOOP_CONTROL_DIALER_H

#include "control/connection.h"

#define HOOP_DIALER_PLACES 16u

/* What to look for. The dialer copies it. */
struct hoop_dialer_order {
    const struct hoop_place *places; /* 1 to HOOP_DIALER_PLACES */
    uint32_t count;
    const struct hoop_address *from; /* local address over TCP; NULL: as HOOP_SOCKET_IFNAME says */
    struct hoop_frame_hello hello;   /* as for hoop_connection_connect() */
    const struct hoop_secret *secret;
    uint64_t deadline_ns; /* of the whole search */
};

struct hoop_dialer_owner {
    /* The owner adopts or destroys the proven connection. */
    void (*found)(void *arg, struct hoop_connection *connection);
    /*
     * why: "tried 10.0.0.1:29500 (ECONNREFUSED), 10.0.0.2:29500 (no answer) for 60000 ms".
     * HOOP_SYSTEM_ERROR and HOOP_OUT_OF_MEMORY mean local errors, such as too few descriptors.
     */
    void (*failed)(void *arg, hoop_result_t code, const char *why);
    /* A round failed. May set places, and what is said, for the next. NULL if not needed. */
    void (*round)(void *arg);
};

struct hoop_dialer;

/* owner and arg are borrowed until destroyed. Does not call back. */
hoop_result_t hoop_dialer_create(const struct hoop_dialer_order *order,
                                 const struct hoop_dialer_owner *owner, void *arg,
                                 struct hoop_dialer **ret_dialer);
/* Changes the deadline. */
void hoop_dialer_until(struct hoop_dialer *dialer, uint64_t deadline_ns);
/* Replaces the places, and dials them at once. */
void hoop_dialer_set_places(struct hoop_dialer *dialer, const struct hoop_place *places,
                            uint32_t count);
/* Replaces who it says it is, from the next attempt on. */
void hoop_dialer_say(struct hoop_dialer *dialer, const struct hoop_frame_hello *hello,
                     const struct hoop_secret *secret);
void hoop_dialer_destroy(struct hoop_dialer *dialer); /* NULL is allowed */

#endif
