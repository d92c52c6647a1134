/*
 * A region of a peer on its way to being mapped: requested from the peer's process, used, released.
 *
 *      state      poll finds                                     next
 *      (zero)     it is already mapped in this process           USED
 *                 it is not: requests it from its process        ASKED
 *      ASKED      it has arrived                                 USED
 *                 it arrived and was forgotten since: again      ASKED
 *                 it was refused                                 stays; the comm fails
 *      USED       (not polled)                                   zero, by finish
 *
 * Used only by the comm's driver.
 */
#ifndef HOOP_MAPPING_H
#define HOOP_MAPPING_H

#include "membership/membership.h"

/* How to request regions, and to learn the answers. */
struct hoop_mapping_env {
    struct hoop_member *member;
    const struct hoop_peer *peers;
    /*
     * Is there an answer for a requested region? True once per answer, which is copied to *ret
     * (code HOOP_OK: it has arrived). ret NULL: the answer, present or still to come, is no longer
     * needed.
     */
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
 * HOOP_OK: the region of rank is mapped at *ret_base, and stays so until finish. HOOP_AGAIN: it was
 * requested, poll again with the same arguments. Otherwise it cannot be mapped; the thread's error
 * says why.
 */
hoop_result_t hoop_mapping_poll(const struct hoop_mapping_env *env, struct hoop_mapping *mapping,
                                uint32_t rank, uint64_t region, uint32_t generation,
                                void **ret_base, uint64_t *ret_bytes);

/* Releases a region in use; the mapping is zero again. */
void hoop_mapping_finish(struct hoop_mapping *mapping);

#endif
