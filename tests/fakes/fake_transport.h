/*
 * A transport in plain memory that does what its script says: links with any number of slots, none
 * included (then a receive takes from the sender's memory, as late as the contract allows),
 * and events in every order. What belongs to a place that was offered is there as soon as it is
 * sent, the earliest moment that the contract allows. For tests of what stands above links; both
 * ends in one process. Wrap it in faulty.h for faults.
 */
#ifndef HOOP_TESTS_FAKE_TRANSPORT_H
#define HOOP_TESTS_FAKE_TRANSPORT_H

#include "transports/transport.h"

#define FAKE_MAX_SLOTS 4

struct fake_script {
    uint64_t seed;
    uint32_t slots;         /* of every link, in place of params.slots; 0 to FAKE_MAX_SLOTS */
    unsigned again_percent; /* so many posts are put off */
    unsigned late_percent;  /* so many calls of progress do nothing */
    uint32_t stalled_lanes; /* a bit per lane: its links never progress */
    uint32_t full_lanes;    /* a bit per lane: its links take no sends */
};

extern const struct hoop_transport fake_transport;

/* For all links made from now on. Copied. */
void fake_play(const struct fake_script *script);

/* Sends that went to their place, of all links since the start. */
unsigned long fake_placed(void);

/* Xfers that were accepted and are not done, of all links. */
long fake_outstanding(void);

#endif
