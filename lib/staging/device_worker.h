/*
 * Workers that execute steps on a device. One launches copies and folds on hoop's own stream
 * (staging.h). The other is for a call that was launched on the device (device/launch.h). Its
 * kernel is already on the caller's stream, behind a hold, and is told what to fold or to copy,
 * without a call to CUDA:
 *
 *     caller's stream ... | bell | hold ................... | copy of `fold` | kernel | word | ...
 *     driver                   '-> all are here: writes `fold`, lets go               '-> over
 */
#ifndef HOOP_DEVICE_WORKER_H
#define HOOP_DEVICE_WORKER_H

#include "exec/board_steps.h"
#include "memory/region.h"
#include "reduce/reduce_cuda.h"
#include "staging/staging.h"

/* The worker that launches. The staging is open, and borrowed. */
struct hoop_board_worker hoop_device_worker(struct hoop_staging *staging);

/* The most rows of blocks of a kernel that was launched on a device: pieces of its operation. */
#define HOOP_TOLD_PIECES 64u

/* How many pieces a rank that acts has in such an operation of n ranks: one for each copy, or one
 * fold, of its part. */
static inline uint64_t hoop_told_pieces(enum hoop_launched how, enum hoop_collective collective,
                                        uint64_t n)
{
    return how == HOOP_LAUNCHED_ONE ? hoop_collective_pieces(collective, n)
           : hoop_extent_is_each(hoop_collectives[collective].out) ? n
                                                                   : 1;
}

/* What the driver needs to run such a call. */
struct hoop_told {
    hoop_cu_context_t context;
    enum hoop_launched how;         /* does one rank act for all, or each for itself? */
    struct hoop_region_ref in, out; /* where its buffers lie, as far as others access them */
    /* On the host, HOOP_CUDA_TOLD_APART from each other, what the kernel's rows fold, one for each
     * piece, or copy as a fold of one source; NULL: this rank has no kernel. */
    unsigned char *fold;
    uint32_t pieces;
    _Atomic uint32_t *go;         /* the word of the hold before the kernel, */
    uint32_t let;                 /* and the value that ends it */
    const _Atomic uint32_t *came; /* counted by the stream, */
    uint32_t over;                /* up to this behind the kernel */
    /* the kernel is on its stream, and behind it what counts: the thread's that launches */
    bool put, counts;
    _Atomic bool broken; /* the stream counts no further: the device has failed, say */
    /* the driver's */
    bool *naps;    /* set while it awaits a word that wakes nobody (runtime/wait.h); or NULL */
    uint32_t told; /* so many rows have been told */
};

/* What the kernel of such a call of n ranks folds; a copy is a fold, too. *ret_count: elements of a
 * piece, more or less, since a kernel is right with any number of blocks. */
struct hoop_reduction hoop_told_reduction(const struct hoop_told *told,
                                          const struct hoop_signature *signature, uint32_t n,
                                          size_t *ret_count);

/* The worker of a launched call, for the pieces of its operation. */
struct hoop_board_worker hoop_told_worker(struct hoop_told *told);
/* Lets the rows that have not been told anything do nothing, unless the stream may read them. */
void hoop_told_tell_nothing(const struct hoop_told *told);
/* The stream counts no further: nobody waits for the kernels of [count] calls. Accepts NULL. */
void hoop_told_break(struct hoop_told *told, size_t count);

#endif
