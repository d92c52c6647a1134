/* The birth of one rank: its environment, standard streams, process group and program. */
#ifndef HOOPRUN_RANK_H
#define HOOPRUN_RANK_H

#include "hooprun/hooprun_cpus.h"
#include "hooprun/hooprun_options.h"
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

/*
 * What tells the ranks of one job from those of others, the same for every attempt: --run-id; else
 * random for a job that has this machine alone; else Slurm's step, if that has the same machines;
 * else "none" as with torchrun, because the machines do not talk to each other before the ranks
 * run. False with errno set when the kernel gives no random bytes.
 */
bool hooprun_run_id_make(const struct hooprun_options *options,
                         char ret_run_id[HOOPRUN_RUN_ID_BYTES]);

/* What all ranks of one attempt share. The secret leaves hooprun only in their environment. */
struct hooprun_identity {
    char secret[65]; /* set if the options say own_secret */
    int port;        /* set if the options name none */
};

/* False with errno set, as above. */
bool hooprun_identity_make(struct hooprun_identity *ret_identity);

/* How every rank starts; borrowed during hooprun_rank_start(). */
struct hooprun_setup {
    const struct hooprun_options *options;
    const char *run_id;
    sigset_t mask;            /* the ranks' signal mask: what hooprun was started with */
    int null_fd;              /* /dev/null */
    struct hooprun_cpus cpus; /* with --bind-to core */
    int threads;              /* OMP_NUM_THREADS; 0: as it is */

    /* Of one attempt. */
    int attempt; /* 0: the first */
    const struct hooprun_identity *identity;
    int refusal_fd;    /* a rank that can not run the program writes its errno here */
    bool free_writers; /* the ranks write to the terminal also where it stops others that do */
};

/*
 * The threads of each rank, where several share the machine and nobody has said how many they are
 * to have: one, as torchrun does it, or one for each core that it is bound to. 0: somebody has.
 */
int hooprun_threads(const struct hooprun_setup *setup);

/*
 * Starts a rank in a process group of its own, with streams {stdout, stderr}; -1 inherits. It is
 * killed by the kernel when its parent dies. Returns its process id, -1 with errno set. That the
 * program can not be run shows later, in refusal_fd, before the process ends with 126 or 127. With
 * several machines it then leaves a process behind that joins in the rank's place and ends as soon
 * as all are in: so the others hear that this rank is gone, and do not wait for it.
 */
pid_t hooprun_rank_start(const struct hooprun_setup *setup, int local_rank, const int streams[2]);

#endif
