/* How the keeper hangs together with the process that the user sees (hooprun.c). */
#ifndef HOOPRUN_FRONT_H
#define HOOPRUN_FRONT_H

#include <signal.h>
#include <sys/types.h>

struct hooprun_front {
    pid_t pid;
    pid_t group;
    int alive_fd;     /* reaches its end when the front process is dead */
    sigset_t signals; /* what the front passes on, blocked in the keeper */
    sigset_t mask;    /* the mask hooprun was started with */
};

#endif
