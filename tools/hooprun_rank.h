/* The birth of one rank: its environment, standard streams, process group and program. */
#ifndef HOOPRUN_RANK_H
#define HOOPRUN_RANK_H

#include "hooprun_options.h"
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#define HOOPRUN_RUN_ID_BYTES 33

/*
 * What tells the ranks of one job from those of others, the same for every attempt: random for a
 * job that has this machine alone, else "none" as with torchrun, because the machines do not talk
 * to each other before the ranks run. False with errno set when the kernel gives no random bytes.
 */
bool hooprun_run_id_make(bool alone, char ret_run_id[HOOPRUN_RUN_ID_BYTES]);

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
    sigset_t mask;             /* the ranks' signal mask: what hooprun was started with */
    struct rlimit files_limit; /* likewise */
    int null_fd;               /* /dev/null */

    /* Of one attempt. */
    int attempt; /* 0: the first */
    const struct hooprun_identity *identity;
    int refusal_fd; /* a rank that can not run the program writes its errno here */
};

/*
 * Starts a rank in a process group of its own, with streams {stdout, stderr}; -1 inherits. It is
 * killed by the kernel when its parent dies. Returns its process id, -1 with errno set. That the
 * program can not be run shows later, in refusal_fd, before the process ends with 126 or 127.
 */
pid_t hooprun_rank_start(const struct hooprun_setup *setup, int local_rank, const int streams[2]);

#endif
