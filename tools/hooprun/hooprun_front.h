/* What the keeper knows of the front, the process that the user sees (hooprun.c). */
#ifndef HOOPRUN_FRONT_H
#define HOOPRUN_FRONT_H

#include <signal.h>
#include <sys/types.h>

struct hooprun_front {
    pid_t pid;
    pid_t group;
    int alive_fd;     /* at its end once the front is dead */
    sigset_t signals; /* those that the front passes on; blocked in the keeper */
    sigset_t mask;    /* hooprun's mask at its start */
};

#endif
