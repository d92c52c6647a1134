/*
 * A region of a peer, from the wish to the mapping: asked of its process, used, given back.
 *
 *      state      poll finds                                  next
 *      (zero)     it is mapped in this process already        USED
 *                 it is not: asks its process                 ASKED
 *      ASKED      it came                                     USED
 *                 it came, and was forgotten before: again    ASKED
 *                 it can't be had                             stays; the comm fails
 *      USED       (not polled)                                zero, by finish
 *
 * Driver only.
 */
#ifndef HOOP_MAPPING_H
#define HOOP_MAPPING_H

#include "membership/membership.h"

/* Whom to ask, and who knows the answers. */
struct hoop_mapping_env {
    struct hoop_member *member;
    const struct hoop_peer *peers;
    /* Has a region that was asked for been answered? Then how (code HOOP_OK: it came), once. ret
     * NULL: nobody needs the answer any more, whether it is there or still to come. */
    bool (*answered)(void *arg, uint32_t rank, uint64_t region, uint32_t generation,
                     struct hoop_failure *ret);
    void *arg;
};

struct hoop_mapping {
    uint64_t process, region;
    uint32_t generation;
    bool asked, used;
};

/*
 * HOOP_OK: region of rank is mapped at *ret_base, and stays until finish. HOOP_AGAIN: it was asked
 * for, poll again with the same arguments. Else it can't be had; the sentence is the thread's.
 */
hoop_result_t hoop_mapping_poll(const struct hoop_mapping_env *env, struct hoop_mapping *mapping,
                                uint32_t rank, uint64_t region, uint32_t generation,
                                void **ret_base, uint64_t *ret_bytes);

/* Gives back what is used; the mapping is zero again. */
void hoop_mapping_finish(struct hoop_mapping *mapping);

#endif
