/*
 * The ranks of this process: threads, and the comms that each thread drives.
 *
 * Global rank = RANK * threads * gpus + thread * gpus + i. Ranks communicate only by
 * hoop_all_reduce and hoop_barrier, so a benchmark needs no other channel.
 *
 *     WORLD_SIZE    -t x -g    comms come from
 *     any           1          hoop_comm_init_env
 *     none or 1     more       hoop_comm_init_all; with -p a unique id, and a thread per rank to
 * join more          more       a unique id, spread by a comm of the processes, and such threads
 */
#ifndef PERF_RANKS_H
#define PERF_RANKS_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "perf/perf.h"
#include "perf/perf_buffer.h"
#include "perf/perf_options.h"
#include "perf/perf_report.h"

/* Only for its thread, and for the main thread before that starts and after it has ended. */
struct perf_rank {
    hoop_comm_t comm;
    int rank;
    int device;           /* of its buffers; -1: they are in host memory */
    hoop_stream_t stream; /* of its calls on a device; NULL: the default stream, or the host */
    struct perf_buffer send;
    struct perf_buffer recv;
    hoop_red_op_t op; /* of the running case: hoop's number, or the handle for mulsum */
};

struct perf_thread {
    struct perf_job *job;
    struct perf_rank *ranks;    /* job->options->gpus of them, owned by the job */
    struct perf_report *report; /* in the thread of global rank 0, else NULL */
    pthread_t pthread;
    bool started;
    int exit_code;
    struct perf_tally tally; /* the same on all ranks */
    /*
     * The number of the operation that this thread is inside; 0: none; PERF_CLAIMED: the watchdog
     * has taken over. Only used with a timeout. In a cache line of its own.
     */
    alignas(64) _Atomic uint64_t inside;
    uint64_t entered; /* operations so far */
};

#define PERF_CLAIMED UINT64_MAX

/* Constant while the threads run. */
struct perf_job {
    const struct perf_options *options;
    const struct perf_collective *collective;
    int process;   /* RANK */
    int processes; /* WORLD_SIZE */
    int nranks;
    double min_bus;   /* NCCL_TESTS_MIN_BW, negative: not set */
    int first_device; /* NCCL_TESTS_DEVICE, negative: not set */
    struct perf_thread *threads;
    struct perf_rank *ranks;
};

/* RANK and WORLD_SIZE, or what another launcher calls them; 0 and 1 if there are none. False, after
 * a message on stderr: they make no sense. */
bool perf_ranks_environment(int *ret_process, int *ret_processes);

/* Makes all comms of this process. On failure the comms that exist are aborted. */
int perf_ranks_create(struct perf_job *job);

/* Frees everything. code is the exit code of the run: after a failure comms are aborted, not
 * destroyed. */
void perf_ranks_destroy(struct perf_job *job, int code);

/* Aborts the comms of one thread, so that other ranks learn that it is leaving. */
void perf_ranks_abort(struct perf_thread *thread);

/* Between these two calls a thread counts as inside an operation (see perf_watch.h). */
void perf_ranks_enter(struct perf_thread *thread);
void perf_ranks_leave(struct perf_thread *thread);

/* Returns when all ranks have called it. */
int perf_ranks_barrier(struct perf_thread *thread);

/*
 * Reduces vectors of count values of an 8-byte type, one per thread; all threads get the result. In
 * sums each thread counts once, however many ranks it drives.
 */
int perf_ranks_agree(struct perf_thread *thread, void *values, size_t count, hoop_datatype_t type,
                     hoop_red_op_t op);

/* What rank 0 prints about a rank. */
struct perf_place {
    int32_t pid;
    char host[60];
    int32_t device; /* -1: none */
    char bus[16];
    char cpus[64]; /* the CPUs it may use, such as "0-3,8"; with a device: its name */
};

/* Gives every thread the places of all ranks. *ret_places: an array of nranks, which the caller
 * frees. */
int perf_ranks_places(struct perf_thread *thread, struct perf_place **ret_places);

#endif
