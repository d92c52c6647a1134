/* How one rank starts: its environment, standard streams, process group and program. */
#ifndef HOOPRUN_RANK_H
#define HOOPRUN_RANK_H

#include "hooprun/hooprun_cpus.h"
#include "hooprun/hooprun_options.h"
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

/*
 * The id that distinguishes this job from others, the same for every attempt: --run-id if given;
 * random for a job on one machine; the Slurm step if it has the same machines; else "none" as with
 * torchrun, since machines do not communicate before the ranks run. False with errno if there are
 * no random bytes.
 */
bool hooprun_run_id_make(const struct hooprun_options *options,
                         char ret_run_id[HOOPRUN_RUN_ID_BYTES]);

/* What the ranks of an attempt share. The secret leaves hooprun only in their environment. */
struct hooprun_identity {
    char secret[65]; /* used if options say own_secret */
    int port;        /* used if options name none */
};

/* False with errno if there are no random bytes. */
bool hooprun_identity_make(struct hooprun_identity *ret_identity);

/* How every rank is started; borrowed during hooprun_rank_start(). */
struct hooprun_setup {
    const struct hooprun_options *options;
    const char *run_id;
    sigset_t mask;            /* for the ranks: hooprun's at its start */
    int null_fd;              /* /dev/null */
    struct hooprun_cpus cpus; /* only with --bind-to core */
    int threads;              /* OMP_NUM_THREADS; 0: do not set */

    /* Per attempt: */
    int attempt; /* from 0 */
    const struct hooprun_identity *identity;
    int refusal_fd;    /* where a rank that cannot run the program writes its errno */
    bool free_writers; /* ranks write to a terminal even if it stops background writers */
};

/*
 * OMP_NUM_THREADS if several ranks share the machine and the user has not set it: one as torchrun
 * does, or one per core that a rank is bound to. Otherwise 0.
 */
int hooprun_threads(const struct hooprun_setup *setup);

/*
 * Starts a rank in a process group of its own, with streams {stdout, stderr}; -1 inherits. The
 * kernel kills it when its parent dies. Returns its pid, or -1 with errno. If the program cannot be
 * run this shows later: refusal_fd gets the errno, and the process exits with 126 or 127. With
 * several machines it leaves a process behind that joins in the rank's place, and ends when all
 * ranks are in: so the others learn that this rank is gone instead of waiting for it.
 */
pid_t hooprun_rank_start(const struct hooprun_setup *setup, int local_rank, const int streams[2]);

#endif
