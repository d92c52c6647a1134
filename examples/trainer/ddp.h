/*
 * Data-parallel training like PyTorch's DistributedDataParallel, for any program in C: it takes a
 * list of tensors, and knows nothing of nets, layers or data.
 *
 *     struct ddp_job *job = ddp_job_open(NULL, -1, 0, &problem);
 *     struct ddp *ddp = ddp_create(job, tensors, count, &ddp_defaults, &problem);
 *     for (each batch of this rank) {
 *         ... forward ...
 *         ddp_begin(ddp, true, loss);
 *         ... backward; it calls ddp_ready(ddp, i) when *tensors[i].gradient is complete ...
 *         // update(arg, i) is called when *tensors[i].gradient is the average over the ranks
 *         ddp_finish(ddp, update, arg, &step, &problem);
 *     }
 *     while (ddp_follow(ddp, update, arg, &step, &problem)) {} // others had more batches
 *
 * Gradients lie in buckets, in memory that the ranks of a machine map. Tensors are assigned to
 * buckets from the last to the first, which is about the order in which backward completes them,
 * and after the first step once more, in the order that was observed. When the last gradient of a
 * bucket is ready its all_reduce is queued on a host stream and runs while backward goes on; and
 * while the last buckets travel, the program updates the tensors of the first ones. If no CPU is
 * free for that the buckets travel after backward, which costs less.
 *
 * On a device backward is launched by the host and runs later. ddp_ready() marks how far it was
 * launched; when all of it is launched, ddp_finish() lets the buckets travel one after the other,
 * each behind its mark, while the device computes the rest.
 *
 * All functions of a job are called by one thread. A function that returns false has said why in
 * the problem; after that only ddp_destroy() and ddp_job_close() may be called.
 */
#ifndef TRAINER_DDP_H
#define TRAINER_DDP_H

#include <stdbool.h>
#include <stddef.h>

#include "device.h"
#include "problem.h"

/* ---- The ranks ----------------------------------------------------------------------------- */

struct ddp_job;

/*
 * Joins the other ranks. Without url: those that a launcher describes in the environment (hooprun,
 * torchrun, mpirun, srun); alone without a launcher. With url (tcp://host:port or file:///path): as
 * rank `rank` of `ranks`.
 */
struct ddp_job *ddp_job_open(const char *url, int rank, int ranks, struct problem *problem);
void ddp_job_close(struct ddp_job *job);

int ddp_rank(const struct ddp_job *job);
int ddp_ranks(const struct ddp_job *job);
/* This rank's number among the ranks on hosts of the same name. */
bool ddp_local_rank(struct ddp_job *job, int *ret, struct problem *problem);

/* Replaces each value by its sum over the ranks. */
bool ddp_sum(struct ddp_job *job, double *values, int count, struct problem *problem);
/* Replaces the bytes by those of rank 0. */
bool ddp_broadcast(struct ddp_job *job, void *data, size_t bytes, struct problem *problem);

/* ---- Training ------------------------------------------------------------------------------ */

struct ddp_tensor {
    const char *name; /* borrowed */
    size_t count;     /* of floats */
    float *value;
    float **gradient; /* set by ddp_create and ddp_begin: where the gradient is to be put */
};

/* AUTO: overlap if the machine has more CPUs than its ranks have threads, or there are several
 * machines. */
enum ddp_overlap { DDP_OVERLAP_AUTO, DDP_OVERLAP_ALWAYS, DDP_OVERLAP_NEVER };

struct ddp_options {
    size_t first_bucket_bytes, bucket_bytes; /* a bucket is full when it has that many */
    bool bf16;                               /* gradients travel as bf16 */
    enum ddp_overlap overlap;    /* travel while backward runs? On a device they always do */
    int threads;                 /* with which each rank computes */
    const struct device *device; /* where values and gradients are; NULL: in host memory */
};
extern const struct ddp_options ddp_defaults; /* 1 MiB, 25 MiB, as in PyTorch; fp32; 1 thread */

/* What ddp_finish and ddp_follow report of a step. */
struct ddp_step {
    int active;         /* ranks that had a batch */
    double loss;        /* the mean of their losses */
    double call_s;      /* time spent in ddp while backward ran: queueing, compressing */
    double wait_s;      /* waiting afterwards: what backward and updates did not hide; on a
                           device by its own clock */
    int unused;         /* tensors of this rank without a gradient, which counts as 0 */
    const char *a_name; /* the name of one of them */
};

struct ddp;

/* Replaces all values by those of rank 0. The tensors are borrowed until destroy. */
struct ddp *ddp_create(struct ddp_job *job, const struct ddp_tensor *tensors, int count,
                       const struct ddp_options *options, struct problem *problem);
void ddp_destroy(struct ddp *ddp);

/*
 * Call it before backward. Without sync (PyTorch's no_sync) the gradients stay local, and the
 * program adds to them until a step with sync. loss: this rank's loss; only used with sync.
 */
void ddp_begin(struct ddp *ddp, bool sync, double loss);
void ddp_ready(struct ddp *ddp, int i);
/* Called when the gradient of tensor i is the average. It stays valid, in place, until the next
 * ddp_begin. */
typedef void ddp_averaged(void *arg, int i);

/*
 * Call it after backward with sync. Calls averaged (which may be NULL) for every tensor, bucket by
 * bucket, while later buckets travel. On failure averaged may have been called for some tensors.
 */
bool ddp_finish(struct ddp *ddp, ddp_averaged *averaged, void *arg, struct ddp_step *ret,
                struct problem *problem);

/*
 * Call it when this rank has no more batches. If other ranks have, takes part in one of their steps
 * without gradients of its own, and returns true; if no rank has, returns false with an empty
 * problem. Averages are over all ranks. So no rank waits for one that has finished, and all end
 * with the same parameters.
 */
bool ddp_follow(struct ddp *ddp, ddp_averaged *averaged, void *arg, struct ddp_step *ret,
                struct problem *problem);

/* Writes the bucket number of each tensor; returns the number of buckets. */
int ddp_buckets(const struct ddp *ddp, int *ret_bucket_of);

#endif
