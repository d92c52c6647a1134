/* hooprun's command line. Names, defaults and ranges are defined here only. */
#ifndef HOOPRUN_OPTIONS_H
#define HOOPRUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define HOOPRUN_RANKS_MOST 4096
#define HOOPRUN_RESTARTS_MOST 1000000
#define HOOPRUN_RUN_ID_BYTES 65 /* a C string */

/* Exit codes of hooprun itself; others are a rank's, or 128 + a signal. */
#define HOOPRUN_EXIT_USAGE 2
#define HOOPRUN_EXIT_TIMEOUT 124
#define HOOPRUN_EXIT_LAUNCHER 125
#define HOOPRUN_EXIT_NOT_EXECUTABLE 126
#define HOOPRUN_EXIT_NOT_FOUND 127

struct hooprun_options {
    int rank_count; /* on this machine, and on every other */
    int node_count; /* machines */
    int node_rank;
    int world_size;          /* ranks on all machines */
    int first_rank;          /* the ranks here are this one and those that follow */
    const char *master_addr; /* borrowed from argv */
    int master_port;         /* 0: a random one for every attempt */
    const char *run_id;      /* borrowed from argv; NULL: see hooprun_run_id_make() */
    const char *secret_file; /* borrowed from argv; NULL: see own_secret */
    bool own_secret;         /* hooprun makes the secret; else the ranks inherit it */
    int restarts_most;
    bool tag_output;
    bool bind_to_core; /* else ranks are not bound */
    bool nccl;         /* ranks get libnccl.so.2: see hooprun_nccl.h */
    bool kill_on_failure;
    int64_t grace_ms;
    int64_t timeout_ms; /* 0: no limit */
    char **command;     /* the program's argv, borrowed from main's */
};

/*
 * Returns true to go on. False: there is nothing to run (help, version, or an error that was
 * reported on stderr), and *ret_code is the exit code.
 */
bool hooprun_options_parse(char **argv, struct hooprun_options *ret_options, int *ret_code);

#endif
