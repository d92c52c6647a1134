/* Jobs of this program's own: hooprun, beside it or in PATH, runs this program as ranks. */
#ifndef HOOPINFO_RANKS_H
#define HOOPINFO_RANKS_H

struct ranks {
    int count;
    int cpus;               /* use only the first so many usable CPUs; 0: all */
    int seconds;            /* time limit; 0: none */
    const char *transport;  /* HOOP_TRANSPORT; NULL: as in the environment */
    const char *options[3]; /* of this program, up to the first NULL */
};

/*
 * Runs the ranks and waits. Returns their exit code; 1, and reports, if they cannot be started.
 * ret_text gets their standard output, which the caller frees; if NULL it goes to this program's.
 * The ranks end when this program does, however it ends.
 */
int ranks_run(const struct ranks *ranks, char **ret_text);

#endif
