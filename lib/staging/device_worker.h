/*
 * Workers that execute steps on a device. One launches copies and folds on hoop's own stream
 * (staging.h). The other is for a call that was launched on the device (device/launch.h). Its
 * kernel is already on the caller's stream, behind a hold, and is told what to fold, without a call
 * to CUDA:
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

/* What the driver needs to run a call that was launched on a device. */
struct hoop_told {
    hoop_cu_context_t context;
    struct hoop_region_ref in, out; /* where its buffers lie, as far as others access them */
    struct hoop_cuda_fold *fold;    /* on the host: what to fold; NULL: this rank has no kernel */
    _Atomic uint32_t *go;           /* the word of the hold before the kernel, */
    uint32_t let;                   /* and the value that ends it */
    const _Atomic uint32_t *came;   /* counted by the stream, */
    uint32_t over;                  /* up to this behind the kernel */
    _Atomic bool broken;            /* the device has failed: the stream counts no further */
    /* the driver's */
    bool *naps; /* set while it awaits a word that wakes nobody (runtime/wait.h); or NULL */
    bool tells; /* `fold` is written */
};

/* The worker of a launched call, for the one fold of its operation. */
struct hoop_board_worker hoop_told_worker(struct hoop_told *told);

#endif
