/*
 * Steps on a device: copies and folds are launched on the stream of the copies (see staging.h). Or,
 * of a call that is launched there (device/launch.h), a kernel is told what it folds, which is on
 * the caller's stream behind a hold:
 *
 *     caller's stream   ... | bell | hold | what it is told | kernel | word | ...
 *     who drives                 '-> all have come: tells it -'           '-> the fold is over
 *
 * No CUDA function is called then.
 */
#ifndef HOOP_DEVICE_WORKER_H
#define HOOP_DEVICE_WORKER_H

#include "exec/board_steps.h"
#include "memory/region.h"
#include "reduce/reduce_cuda.h"
#include "staging/staging.h"

/* The worker of an open staging, which is borrowed. */
struct hoop_board_worker hoop_device_worker(struct hoop_staging *staging);

/* Of a call that is launched on a device. */
struct hoop_told {
    hoop_cu_context_t context;
    struct hoop_region_ref in, out; /* where its buffers lie, as far as others touch them */
    struct hoop_cuda_fold *fold;    /* of the kernel, on the host; NULL: this rank has none */
    _Atomic uint32_t *go;           /* the hold before it, */
    uint32_t let;                   /* which ends with this value */
    const _Atomic uint32_t *came;   /* what the stream counts, */
    uint32_t over;                  /* this behind the kernel */
    _Atomic bool broken;            /* the device has failed: it will count no more */
    /* of who drives */
    bool *naps; /* whether he awaits a word that nobody wakes him for; or NULL */
    bool tells; /* the kernel was told, or is about to be */
};

/* Its worker, for one fold of an operation. */
struct hoop_board_worker hoop_told_worker(struct hoop_told *told);

#endif
