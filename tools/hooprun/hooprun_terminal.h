/*
 * The terminal of an interactive job. Ranks have process groups of their own, so the kernel stops
 * one that reads the terminal; the job then lends it the terminal, as a shell would, until the
 * rank ends. While it is lent, Ctrl-C and Ctrl-Z go to that rank's group and not to hooprun.
 */
#ifndef HOOPRUN_TERMINAL_H
#define HOOPRUN_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct hooprun_terminal {
    pid_t owner;    /* the group that has the terminal when hooprun runs in the foreground */
    pid_t borrower; /* the rank's group that has it now, 0: none */
};

/* Does the terminal stop processes that write to it from behind group, its foreground (stty
 * tostop)? Several ranks write, and only one can be lent the terminal. */
bool hooprun_terminal_stops_writers(pid_t group);

/* False when there is no terminal or hooprun is not in its foreground. SIGTTOU must be blocked. */
bool hooprun_terminal_lend(struct hooprun_terminal *terminal, pid_t group);

/* Gives it back to the owner if it is lent to group. */
void hooprun_terminal_return(struct hooprun_terminal *terminal, pid_t group);

#endif
