/*
 * The terminal of an interactive job. Ranks have process groups of their own, so the kernel stops
 * one that reads the terminal. The job then lends it the terminal, as a shell would, until the rank
 * ends. Meanwhile Ctrl-C and Ctrl-Z go to that rank's group and not to hooprun.
 */
#ifndef HOOPRUN_TERMINAL_H
#define HOOPRUN_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct hooprun_terminal {
    pid_t owner;    /* the group that has it while hooprun is in the foreground */
    pid_t borrower; /* the rank's group that has it now, or 0 */
};

/* Does the terminal stop background processes that write to it (stty tostop), with group in its
 * foreground? Several ranks write, and only one of them can be lent the terminal. */
bool hooprun_terminal_stops_writers(pid_t group);

/* Returns false without a terminal, or in the background. SIGTTOU must be blocked. */
bool hooprun_terminal_lend(struct hooprun_terminal *terminal, pid_t group);

/* Gives it back to the owner if group has it. */
void hooprun_terminal_return(struct hooprun_terminal *terminal, pid_t group);

#endif
