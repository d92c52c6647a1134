/*
 * How calls were cut into pieces: to find that out takes longer than all the rest of a call, as it
 * goes through every step, and programs make the same calls again and again.
 *
 * One thread at a time.
 */
#ifndef HOOP_CUTS_H
#define HOOP_CUTS_H

#include "stream/batch.h"

#define HOOP_CUTS_KEPT 8

/* The last ones, the latest first. All zero before. */
struct hoop_cuts {
    struct hoop_cut *kept[HOOP_CUTS_KEPT];
};
void hoop_cuts_finish(struct hoop_cuts *cuts);

/* The pieces of work whose buffers are the staging's memory (hoop_room_place()), which has their
 * parts then; the caller frees them. NULL: it is not cut. */
struct hoop_flow *hoop_cuts_make(struct hoop_cuts *cuts, const struct hoop_work *work,
                                 struct hoop_staging *staging);

#endif
