/*
 * A dialer tries places in turn, again and again, until somebody at one of them proves itself: the
 * only code that connects more than once.
 *
 *      dialling --proven--> found
 *         |  ^\__ refused, closed, no answer: the next place, after each round a little later
 *         |   \__ a round in which every place gave a reason that lies on this side: failed
 *         \__ the deadline: failed
 *
 * Whoever has proved nothing ends nothing: what it says is a reason for the final sentence, and the
 * dialer goes on until its deadline. Only on one machine, where the kernel vouches for who speaks,
 * its refusal counts at once.
 *
 * Service thread only. A dialer is over with `found` and with `failed`; it may be destroyed in any
 * of its callbacks, and at any other time.
 */
#ifndef HOOP_CONTROL_DIALER_H
#define HOOP_CONTROL_DIALER_H

#include "control/connection.h"

#define HOOP_DIALER_PLACES 16u

/* What is looked for: copied. */
struct hoop_dialer_order {
    const struct hoop_place *places; /* 1 to HOOP_DIALER_PLACES */
    uint32_t count;
    const struct hoop_address *from; /* over TCP; NULL: as HOOP_SOCKET_IFNAME says */
    struct hoop_frame_hello hello;   /* as hoop_connection_connect() takes it */
    const struct hoop_secret *secret;
    uint64_t deadline_ns; /* of the whole search */
};

struct hoop_dialer_owner {
    /* A proven connection: adopted or destroyed. */
    void (*found)(void *arg, struct hoop_connection *connection);
    /*
     * why: "tried 10.0.0.1:29500 (ECONNREFUSED), 10.0.0.2:29500 (no answer) for 60000 ms".
     * HOOP_SYSTEM_ERROR, HOOP_OUT_OF_MEMORY: the reason lies on this side (raise ulimit -n).
     */
    void (*failed)(void *arg, hoop_result_t code, const char *why);
    /* A round was in vain; NULL: nothing to do. May set places for the next one. */
    void (*round)(void *arg);
};

struct hoop_dialer;

/* owner and arg: borrowed until destroyed. None of its functions is called in here. */
hoop_result_t hoop_dialer_create(const struct hoop_dialer_order *order,
                                 const struct hoop_dialer_owner *owner, void *arg,
                                 struct hoop_dialer **ret_dialer);
/* Another deadline. */
void hoop_dialer_until(struct hoop_dialer *dialer, uint64_t deadline_ns);
/* Other places, now. */
void hoop_dialer_set_places(struct hoop_dialer *dialer, const struct hoop_place *places,
                            uint32_t count);
void hoop_dialer_destroy(struct hoop_dialer *dialer); /* NULL is allowed */

#endif
