/*
 * The buffers of an operation on shared memory: each rank announces where its own lie, and maps
 * those of its peers that the steps access; what cannot be mapped is read (cma). Used by one thread
 * at a time, the one that drives the comm.
 *
 * A rank that shows memory from CUDA itself to other processes does not know whether they can open
 * it: that depends on containers, and on free resources of the device. So an allocation that its
 * owner has not seen all ranks open is announced as fresh. Then all ranks open what is fresh,
 * whether or not they access it, and announce the operation again: unchanged, or with a device that
 * nobody has (BUFFERS_NOWHERE) if opening failed. All see the same announcements. If one failed,
 * the operation goes through the host, and the comm never shows memory from CUDA itself again.
 */
#ifndef HOOP_BUFFERS_H
#define HOOP_BUFFERS_H

#include "exec/board_steps.h"
#include "memory/region.h"
#include "plan/plan.h"
#include "staging/staging.h"
#include "transfer/mapping.h"

/*
 * Plain memory that others were found able to read; NULL: none. A program uses a few dozen buffers
 * again and again, and checking each time would cost a tenth of a gather of 128 KiB. If other
 * memory, which only its own process can read, is mapped there later, the comm fails when it is
 * read, as it would if the memory were gone (test_cma: mapped_anew).
 */
#define HOOP_READABLES_SHIFT 6
#define HOOP_READABLES (1u << HOOP_READABLES_SHIFT)
struct hoop_readable {
    const void *memory;
    uint64_t bytes;
};

/* The trial of an operation's fresh memory: none, all was opened, or something could not be. */
enum hoop_trial { HOOP_TRIAL_NONE, HOOP_TRIAL_OPENED, HOOP_TRIAL_REFUSED };
/* Confirmed ids are kept by id modulo this: ids are consecutive, so as many recent ones fit. */
#define HOOP_BUFFERS_CONFIRMED 1024u

/* How many operations wait instead, after launched calls had to go through the host, or to leave
 * their parts to a rank on another device. */
#define HOOP_BUFFERS_PARTED_WAITS 8u

/* A table of this rank's memory that ranks which act have opened (hoop_buffers_are_known()). */
#define HOOP_BUFFERS_KNOWN_SHIFT 10
#define HOOP_BUFFERS_KNOWN (1u << HOOP_BUFFERS_KNOWN_SHIFT)

/* Where a rank's own buffers lie, as far as others access them. */
struct hoop_buffers_own {
    struct hoop_region_ref in, out;
};

struct hoop_buffers {
    struct hoop_board *board;
    struct hoop_mapping_env maps;
    const struct hoop_staging *staging; /* of the device on which the buffers are announced */
    bool one_process;                   /* all ranks are threads of this process */
    uint64_t device;                    /* on which the buffers were announced; 0: the host */
    struct hoop_buffers_own mine;       /* of an operation on a device, set before announcing */
    uint64_t factor;                    /* of that operation: this rank's, if it has factors */
    enum hoop_launched launched;        /* is its call launched, and how? */
    bool told_apart;                    /* has logged that devices do not reach each other */
    const struct hoop_agreement *agreed;
    struct hoop_readable readable[HOOP_READABLES]; /* by a hash of the address */
    _Atomic bool shows; /* so far memory from CUDA itself may be shown, and opened */
    enum hoop_trial trial;
    uint64_t shown[2];                          /* ids that are fresh in this operation */
    uint64_t confirmed[HOOP_BUFFERS_CONFIRMED]; /* ids that all ranks have opened, by id */
    /* Which calls may be launched on the device; read by any thread. */
    _Atomic(_Atomic uint64_t *) known;   /* [HOOP_BUFFERS_KNOWN]; NULL: nothing ran there yet */
    _Atomic(hoop_cu_context_t) known_in; /* context of the last that ran there; NULL: none */
    _Atomic bool known_apart;            /* there, and on other devices: each rank acted */
    _Atomic(hoop_cu_context_t) apart_in; /* its device did not reach another rank's; NULL: none */
    _Atomic uint32_t waits;              /* operations that wait before calls are launched again */
    /* [n] each */
    const void **ins;
    void **outs;
    uint8_t *far; /* bits HOOP_FAR_IN, HOOP_FAR_OUT */
    uint64_t *factors;
    struct hoop_mapping *in_use, *out_use;
};

/* Allocates what n ranks need; board, maps, staging, one_process and agreed must be set. */
hoop_result_t hoop_buffers_init(struct hoop_buffers *buffers);
void hoop_buffers_finish(struct hoop_buffers *buffers);

/*
 * Can the others reach what they access of these buffers of this rank, as far as it knows, wherever
 * the buffers lie? True: *ret says where, for `mine`. shows: memory from CUDA itself counts as
 * reachable. plan: begun. Any thread.
 */
bool hoop_buffers_look(const struct hoop_buffers *buffers, bool shows, const struct hoop_plan *plan,
                       const void *in, const void *out, struct hoop_buffers_own *ret);

/* May kernels on other devices access `mine`, which lies on the staging's device? plan: begun. */
bool hoop_buffers_let_in(const struct hoop_buffers *buffers, const struct hoop_plan *plan);

/*
 * Announces the buffers of an operation; the board's operation and the plan have begun. device:
 * where they lie, as `mine` says; 0: in host memory, at in and out. meets: the operation may run
 * together with buffers on other devices, if all reach each other. says: only rank 0's matters.
 */
void hoop_buffers_announce(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                           const void *in, void *out, uint64_t device, bool meets,
                           struct hoop_learned_say says);

/* Checks that rank's announcement, which was seen, has this count. If not, the failure says so. */
hoop_result_t hoop_buffers_agree(const struct hoop_buffers *buffers, uint32_t rank, uint64_t count,
                                 struct hoop_failure *failure);

/* Is anything fresh in an operation on devices? All announcements must have been seen. */
bool hoop_buffers_are_fresh(const struct hoop_buffers *buffers);

/* Opens the fresh memory of rank. HOOP_AGAIN: being requested. Else the failure says why not. */
hoop_result_t hoop_buffers_try(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                               uint32_t rank, struct hoop_failure *failure);
/* Ends the opening: all was opened, or not (refused), which the next announcement will say. */
void hoop_buffers_tried(struct hoop_buffers *buffers, bool refused);
/* When the announcements after a trial are seen. all: every rank could open everything. launched:
 * some ranks were launched and have not tried, so it stays fresh. */
void hoop_buffers_end_trial(struct hoop_buffers *buffers, bool all, bool launched);

/* After an operation on a device: notes which ranks that acted have opened `mine`. */
void hoop_buffers_note(struct hoop_buffers *buffers, const struct hoop_plan *plan);

/* How can a call with this rank's buffers `own` be launched in this context? For that all ranks
 * that act in such an operation must have opened them, and no call need wait for now. Any thread.
 */
enum hoop_launched hoop_buffers_are_known(const struct hoop_buffers *buffers,
                                          const struct hoop_plan *plan,
                                          const struct hoop_buffers_own *own,
                                          hoop_cu_context_t context);

/* What all announcements together say about reaching the plan's buffers. */
struct hoop_reach hoop_buffers_reach(struct hoop_buffers *buffers, const struct hoop_plan *plan);

/* Fills in ins, outs and factors of all ranks whose buffers the plan's steps access. HOOP_AGAIN:
 * mappings have been requested; *ret_awaited is the first rank to answer. */
hoop_result_t hoop_buffers_resolve(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                                   const void *in, void *out, uint32_t *ret_awaited,
                                   struct hoop_failure *failure);

/* Releases what resolve mapped. */
void hoop_buffers_release(struct hoop_buffers *buffers);

#endif
