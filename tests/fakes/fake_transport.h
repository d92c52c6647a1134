/*
 * A transport in plain memory that follows a script: links with any number of slots, or none (a
 * receive then reads the sender's memory, as late as the contract allows), and events in every
 * order. A payload for an offered place is there as soon as it is sent, the earliest moment that
 * the contract allows. For tests of the layers above links, with both ends in one process. faulty.h
 * adds faults.
 */
#ifndef HOOP_TESTS_FAKE_TRANSPORT_H
#define HOOP_TESTS_FAKE_TRANSPORT_H

#include "transports/transport.h"

#define FAKE_MAX_SLOTS 4

struct fake_script {
    uint64_t seed;
    uint32_t slots;         /* of every link, in place of params.slots; at most FAKE_MAX_SLOTS */
    unsigned again_percent; /* how many posts get HOOP_AGAIN */
    unsigned late_percent;  /* how many calls of progress do nothing */
    uint32_t stalled_lanes; /* a bit per lane: its links make no progress */
    uint32_t full_lanes;    /* a bit per lane: its links accept no sends */
};

extern const struct hoop_transport fake_transport;

/* Sets the script for all links that are made from now on. Copied. */
void fake_play(const struct fake_script *script);

/* How many sends went to their offered place, over all links so far. */
unsigned long fake_placed(void);

/* How many xfers were accepted and are not done, over all links. */
long fake_outstanding(void);

#endif
