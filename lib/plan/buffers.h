/*
 * The buffers of an operation on shared memory: each rank announces where its own lie, and maps
 * those of its peers that the steps will touch; what cannot be mapped is read (cma). One thread at
 * a time, the one that drives the comm.
 *
 * Memory of CUDA's own is shown to other processes without knowing whether they can open it: that
 * depends on containers and on what is left of the device. So what its owner has not seen all of
 * the comm open is announced as fresh. All ranks open what is fresh, touched or not, and announce
 * the operation again: as it was, or nowhere if they could not. Everybody sees the same; if one is
 * nowhere the operation goes through the host, and nothing of CUDA's own is shown in the comm
 * again.
 */
#ifndef HOOP_BUFFERS_H
#define HOOP_BUFFERS_H

#include "exec/board_steps.h"
#include "memory/region.h"
#include "plan/plan.h"
#include "staging/staging.h"
#include "transfer/mapping.h"

/* Plain memory that others were found to be able to read; NULL: none yet. A program has a few dozen
 * buffers that it uses again and again, and to ask each time costs a tenth of what it takes to
 * gather 128 KiB. Where other memory is mapped later, which only its own process can read, the comm
 * fails when it is read, as it would if the memory were gone (test_cma: mapped_anew). */
#define HOOP_READABLES_SHIFT 6
#define HOOP_READABLES (1u << HOOP_READABLES_SHIFT)
struct hoop_readable {
    const void *memory;
    uint64_t bytes;
};

/* Of an operation: is what is announced known to all? */
enum hoop_trial { HOOP_TRIAL_NONE, HOOP_TRIAL_OPENED, HOOP_TRIAL_REFUSED };
/* Ids follow each other: so many allocations have a place of their own. */
#define HOOP_BUFFERS_CONFIRMED 1024u

/* Of a rank whose launched call met another that was not on the device: so many wait afterwards. */
#define HOOP_BUFFERS_PARTED_WAITS 8u

/* Known memory of a rank's own (hoop_buffers_are_known()), by its number and who folds. */
#define HOOP_BUFFERS_KNOWN_SHIFT 10
#define HOOP_BUFFERS_KNOWN (1u << HOOP_BUFFERS_KNOWN_SHIFT)

/* Where those of a rank lie, as far as others touch them. */
struct hoop_buffers_own {
    struct hoop_region_ref in, out;
};

struct hoop_buffers {
    struct hoop_board *board;
    struct hoop_mapping_env maps;
    const struct hoop_staging *staging; /* where they are announced to lie on a device: of that */
    bool one_process;                   /* all ranks are threads of this process */
    uint64_t device;                    /* on which they were announced to lie; 0: the host */
    struct hoop_buffers_own mine;       /* of an operation on a device, before it is announced */
    bool launched;                      /* the same; who calls no CUDA for it */
    bool told_apart;                    /* that devices do not reach each other */
    const struct hoop_agreement *agreed;
    struct hoop_readable readable[HOOP_READABLES]; /* by a hash of where it lies */
    _Atomic bool shows; /* memory of CUDA's own, and opens others', so far */
    enum hoop_trial trial;
    uint64_t shown[2];                          /* ids that are fresh in this operation */
    uint64_t confirmed[HOOP_BUFFERS_CONFIRMED]; /* ids, by themselves */
    /* which calls may be launched on the device */
    _Atomic(_Atomic uint64_t *) known;   /* [HOOP_BUFFERS_KNOWN]; NULL: nothing ran there yet */
    _Atomic(hoop_cu_context_t) known_in; /* of the last that ran there; NULL: none did */
    _Atomic uint32_t waits;              /* so many are to wait before the next one */
    /* [n] each */
    const void **ins;
    void **outs;
    uint8_t *far; /* HOOP_FAR_IN, HOOP_FAR_OUT */
    struct hoop_mapping *in_use, *out_use;
};

/* Allocates what n ranks need; board, maps, staging, one_process and reads are filled in. */
hoop_result_t hoop_buffers_init(struct hoop_buffers *buffers);
void hoop_buffers_finish(struct hoop_buffers *buffers);

/* Can the others reach what they touch of my buffers, as far as I know, wherever these lie? shows:
 * also if it is of CUDA's own. plan: begun. Any thread. True: *ret says where, for `mine`. */
bool hoop_buffers_look(const struct hoop_buffers *buffers, bool shows, const struct hoop_plan *plan,
                       const void *in, const void *out, struct hoop_buffers_own *ret);

/* The same of `mine` for ranks whose kernels run on other devices, mine lying on the staging's. */
bool hoop_buffers_let_in(const struct hoop_buffers *buffers);

/*
 * Announces the buffers of an operation that has begun, on this device, where they are `mine`, or
 * 0; plan: begun, too. meets: it may run with those of other devices, if all reach each other.
 * choice: what rank 0 has learned; nobody asks the others.
 */
void hoop_buffers_announce(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                           const void *in, void *out, uint64_t device, bool meets,
                           enum hoop_choice choice);

/* Is rank's announcement, which was seen, of the same count? Else the failure says so. */
hoop_result_t hoop_buffers_agree(const struct hoop_buffers *buffers, uint32_t rank, uint64_t count,
                                 struct hoop_failure *failure);

/* Is anything fresh, of an operation on devices? All announcements are seen. */
bool hoop_buffers_are_fresh(const struct hoop_buffers *buffers);

/* Opens what is fresh of rank. HOOP_AGAIN: it is being asked for. Else the failure says why not. */
hoop_result_t hoop_buffers_try(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                               uint32_t rank, struct hoop_failure *failure);
/* All was opened, or something could not be, which the next announcement says. */
void hoop_buffers_tried(struct hoop_buffers *buffers, bool refused);
/* The announcements after that are seen: could all open it? launched: some have not tried it, and
 * it stays fresh. */
void hoop_buffers_end_trial(struct hoop_buffers *buffers, bool all, bool launched);

/* An operation that ran on a device is over: who folded it has opened what was `mine`. */
void hoop_buffers_note(struct hoop_buffers *buffers, const struct hoop_plan *plan);

/* The next operations on the device are to be waited for: one, since what others show can't be
 * tried by who is launched; or some, since one that was launched had to go through the host. */
void hoop_buffers_hold_back(struct hoop_buffers *buffers, bool parted);

/* Has who folds such an operation opened what its own are? For calls in this context, and as long
 * as calls may be launched there at all. Any thread. */
bool hoop_buffers_are_known(const struct hoop_buffers *buffers, const struct hoop_plan *plan,
                            const struct hoop_buffers_own *own, hoop_cu_context_t context);

/* What all announcements together say of the reach of the plan's buffers. */
struct hoop_reach hoop_buffers_reach(struct hoop_buffers *buffers, const struct hoop_plan *plan);

/* Fills in ins and outs of whomever the plan's steps touch. HOOP_AGAIN: some are being asked for,
 * *ret_awaited the first of them. */
hoop_result_t hoop_buffers_resolve(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                                   const void *in, void *out, uint32_t *ret_awaited,
                                   struct hoop_failure *failure);

/* Gives back what resolve mapped. */
void hoop_buffers_release(struct hoop_buffers *buffers);

#endif
