/*
 * A transport decorator that misbehaves within the contract: refuses for a while, completes late,
 * fails where it is told to, flips a bit of a payload. It wraps any transport:
 *
 *      faulty_configure(&config);
 *      hoop_transport_decorate = faulty_decorate;          (or use its result directly)
 *
 * HOOP_TEST_FAULT="flip:17,again:3,late:2,fail:send:40,seed:5" is the same for a whole program that
 * is linked with faulty_env.c.
 *
 * The caller's part of struct hoop_link and of xfers is the decorator's own; inside is a complete
 * link of the wrapped transport. Late completions reorder what happens on different links, never
 * on one.
 */
#ifndef FAULTY_H
#define FAULTY_H

#include "transports/transport.h"

enum faulty_call {
    FAULTY_CREATE,
    FAULTY_BIND,
    FAULTY_SEND,
    FAULTY_RECV,
    FAULTY_PROGRESS,
    FAULTY_CALLS,
    FAULTY_NONE = FAULTY_CALLS
};

struct faulty_config {
    uint64_t seed;
    uint32_t again_every;  /* 2 or more: every so many calls of a link's bind, send and recv return
                              HOOP_AGAIN; 0: none */
    uint32_t again_chance; /* the same at random, in percent below 100 */
    uint32_t late;         /* `done` is held back for so many calls of progress */
    uint64_t flip;         /* in the flip-th payload received since faulty_configure(), on any
                              link, one bit is flipped; 0: none */
    /* The fail_at-th call, since faulty_configure() and on any link, of fail_call fails. */
    enum faulty_call fail_call;
    uint64_t fail_at; /* 0: none */
    hoop_result_t fail_code;
};

/* Sets the faults; NULL: none. Copied. No link may exist. */
void faulty_configure(const struct faulty_config *config);

/* Returns the same wrapper each time for the same transport; NULL when more than 8 are wrapped. */
const struct hoop_transport *faulty_decorate(const struct hoop_transport *inner);

/* How often a function was called since faulty_configure(): values of fail_at up to this are worth
 * trying. */
uint64_t faulty_calls(enum faulty_call call);

/* Parses the notation above, with the words again, chance, late, flip, fail, seed. False: it is
 * invalid, and *ret_config is unchanged. */
bool faulty_parse(const char *text, struct faulty_config *ret_config);

/* Installs the decorator if HOOP_TEST_FAULT is set and not empty. False: its value is invalid. */
bool faulty_from_env(void);

#endif
