/* Jobs of this program's own: hooprun, which lies beside it or on the path, runs it as ranks. */
#ifndef HOOPINFO_RANKS_H
#define HOOPINFO_RANKS_H

struct ranks {
    int count;
    int cpus;               /* 0: all that may be used; else the first so many of them */
    int seconds;            /* 0: for ever */
    const char *transport;  /* of HOOP_TRANSPORT; NULL: as the environment has it */
    const char *options[3]; /* of this program; NULL behind the last */
};

/*
 * Runs them and waits. Their exit code; 1, and a sentence on standard error, where they cannot be
 * started. ret_text: what they print on standard output, for the caller to free; NULL: it goes
 * to this program's. They end when this program does, however it ends.
 */
int ranks_run(const struct ranks *ranks, char **ret_text);

#endif
