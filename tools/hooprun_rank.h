/* The birth of one rank: its environment, standard streams, process group and program. */
#ifndef HOOPRUN_RANK_H
#define HOOPRUN_RANK_H

#include "hooprun_options.h"
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

/* What all ranks of this job share. The secret leaves hooprun only in their environment. */
struct hooprun_identity {
    char secret[65];
    char run_id[33];
    int port;
};

/* False with errno set when the kernel gives no random bytes. */
bool hooprun_identity_make(struct hooprun_identity *ret_identity);

/* How every rank starts; borrowed during hooprun_rank_start(). */
struct hooprun_setup {
    const struct hooprun_options *options;
    const struct hooprun_identity *identity;
    sigset_t mask;             /* the ranks' signal mask: what hooprun was started with */
    struct rlimit files_limit; /* likewise */
    int null_fd;               /* /dev/null */
    int refusal_fd;            /* a rank that can not run the program writes its errno here */
};

/*
 * Starts a rank in a process group of its own, with streams {stdout, stderr}; -1 inherits. It is
 * killed by the kernel when its parent dies. Returns its process id, -1 with errno set. That the
 * program can not be run shows later, in refusal_fd, before the process ends with 126 or 127.
 */
pid_t hooprun_rank_start(const struct hooprun_setup *setup, int rank, const int streams[2]);

#endif
