/*
 * Data parallel training as PyTorch's DistributedDataParallel does it, for any program in C: it
 * takes a list of tensors, and knows nothing of nets, layers or data.
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
 * Gradients lie in buckets, in memory that the ranks of a machine share. The tensors are assigned
 * from the last to the first, which is about the order in which backward completes them; after the
 * first step once again, in the order that was observed. When the last gradient of a bucket is
 * ready its all_reduce is queued on a stream of hoop's and runs beside the rest of backward; and
 * while the last ones are on their way, the program updates what belongs to the first. Where no CPU
 * is free for that the buckets travel when backward is over, which costs less.
 *
 * On a device backward is launched by the host and done later: ddp_ready() marks how far it was
 * launched, and ddp_finish(), when all of it is, lets the buckets travel one after the other, each
 * behind its mark, while the device computes what lies behind.
 *
 * All functions of a job are called by one thread. Functions that return false have said why in the
 * problem; after that only ddp_destroy() and ddp_job_close() remain.
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
 * Joins the other ranks: those that a launcher describes in the environment (hooprun, torchrun,
 * mpirun, srun), alone without one. Or, with an url, as rank of ranks: tcp://host:port,
 * file:///path.
 */
struct ddp_job *ddp_job_open(const char *url, int rank, int ranks, struct problem *problem);
void ddp_job_close(struct ddp_job *job);

int ddp_rank(const struct ddp_job *job);
int ddp_ranks(const struct ddp_job *job);
/* Its number among the ranks of hosts with this one's name. */
bool ddp_local_rank(struct ddp_job *job, int *ret, struct problem *problem);

/* Each value becomes its sum over the ranks. */
bool ddp_sum(struct ddp_job *job, double *values, int count, struct problem *problem);
/* The bytes become those of rank 0. */
bool ddp_broadcast(struct ddp_job *job, void *data, size_t bytes, struct problem *problem);

/* ---- Training ------------------------------------------------------------------------------ */

struct ddp_tensor {
    const char *name; /* borrowed */
    size_t count;     /* of floats */
    float *value;
    float **gradient; /* set by ddp_create and ddp_begin: where the gradient is to be put */
};

/* AUTO: if the machine has more CPUs than ranks and their threads, or there are other machines. */
enum ddp_overlap { DDP_OVERLAP_AUTO, DDP_OVERLAP_ALWAYS, DDP_OVERLAP_NEVER };

struct ddp_options {
    size_t first_bucket_bytes, bucket_bytes; /* a bucket is closed when it has so many */
    bool bf16;                               /* gradients travel with 8 bits of mantissa */
    enum ddp_overlap overlap;    /* do they beside backward? Of a device they always do */
    int threads;                 /* that each rank computes with */
    const struct device *device; /* where values and gradients are; NULL: in the host's memory */
};
extern const struct ddp_options ddp_defaults; /* 1 MiB, 25 MiB, as in PyTorch; fp32; 1 thread */

/* What ddp_finish and ddp_follow know of a step. */
struct ddp_step {
    int active;         /* ranks that had a batch */
    double loss;        /* the mean of theirs */
    double call_s;      /* time spent here while backward ran: queueing, compressing */
    double wait_s;      /* and after it: what was not hidden behind backward and updates; of a
                           device, as its clock has it */
    int unused;         /* tensors of this rank that got no gradient; theirs count as 0 */
    const char *a_name; /* of one of them */
};

struct ddp;

/* The values become those of rank 0. The tensors are borrowed until destroy. */
struct ddp *ddp_create(struct ddp_job *job, const struct ddp_tensor *tensors, int count,
                       const struct ddp_options *options, struct problem *problem);
void ddp_destroy(struct ddp *ddp);

/*
 * Before backward. Without sync (PyTorch's no_sync) the gradients stay this rank's own: the program
 * adds to them until a step with sync. loss: this rank's, of a step with sync.
 */
void ddp_begin(struct ddp *ddp, bool sync, double loss);
void ddp_ready(struct ddp *ddp, int i);
/* The gradient of tensor i is the average. Where it lies, it stays until the next ddp_begin. */
typedef void ddp_averaged(void *arg, int i);

/*
 * After backward with sync. Calls averaged (which may be NULL) for every tensor, bucket by bucket,
 * while later buckets travel. Where it fails, it may have been called for some.
 */
bool ddp_finish(struct ddp *ddp, ddp_averaged *averaged, void *arg, struct ddp_step *ret,
                struct problem *problem);

/*
 * When this rank's batches are over: takes part in a step of those that have more, without
 * gradients of its own, and returns true; or false, with an empty problem, when no rank has any.
 * The averages are over all ranks. So nobody waits for who is ready, and all end with the same
 * parameters.
 */
bool ddp_follow(struct ddp *ddp, ddp_averaged *averaged, void *arg, struct ddp_step *ret,
                struct problem *problem);

/* How the tensors were assigned: writes bucket numbers, count of them, returns how many buckets. */
int ddp_buckets(const struct ddp *ddp, int *ret_bucket_of);

#endif
