/*
 * Plans: which algorithm an operation uses, with which parameters. A fixed table of sizes, the
 * same on every rank and in every run, so that two runs agree; every input of the choice is one
 * that all ranks know to be equal (the signature, the settings agreed at init, the announcements
 * of all ranks).
 */
#ifndef HOOP_PLAN_H
#define HOOP_PLAN_H

#include "algo/step.h"
#include "bootstrap.h"

/* How all ranks' buffers can be reached, from the announcements. */
struct hoop_reach {
    bool mapped;         /* every rank's buffers can be mapped by every rank */
    uint64_t head_bytes; /* the most that lies before the first whole page of any out buffer */
    uint64_t tail_bytes; /* and after the last */
};

/*
 * True: the data travel with the announcement (oneshot), so that the choice must be made before
 * anything is known of the others.
 */
bool hoop_plan_is_oneshot(const struct hoop_agreement *agreed, uint32_t n, uint64_t bytes);

/* The plan of an all_reduce whose announcements are known. */
void hoop_plan_choose(const struct hoop_agreement *agreed, const struct hoop_reach *reach,
                      uint32_t me, uint32_t n, uint64_t count, uint32_t type_bytes, bool in_place,
                      struct hoop_plan *ret);

/* Does this algorithm send over links? */
bool hoop_plan_is_over_links(enum hoop_algo algo);

/*
 * The plan of an operation over links, without announcements: they are in the first chunk. count 0
 * is a barrier.
 */
void hoop_plan_links(const struct hoop_agreement *agreed, uint32_t me, uint32_t n, uint64_t count,
                     uint32_t type_bytes, bool in_place, struct hoop_plan *ret);

/* The plan of one whose data travel with the announcement. */
void hoop_plan_oneshot(uint32_t me, uint32_t n, uint64_t count, uint32_t type_bytes, bool in_place,
                       struct hoop_plan *ret);

#endif
