/*
 * One rank of kill_fuzz: a forked process that joins, runs a sweep until an operation fails, takes
 * its memory back, and leaves in order when it is told to. It reports every change of its state:
 *
 *      join --RUNNING after the first operation--> sweep --FAILED--> waits --DONE--> exit
 *      anywhere: WRONG: something is not as it must be
 */
#ifndef HOOP_TESTS_KILL_RANK_H
#define HOOP_TESTS_KILL_RANK_H

#include "harness/family.h"
#include "hoop.h"
#include <stdatomic.h>
#include <stdint.h>

enum kill_word { KILL_RUNNING = 1, KILL_FAILED, KILL_DONE, KILL_WRONG };

/* A rank's message to its parent, in one write. */
struct kill_report {
    uint32_t word;      /* enum kill_word */
    int32_t result;     /* FAILED: hoop_result_t */
    uint64_t time_ns;   /* CLOCK_MONOTONIC when the result was known */
    uint64_t operation; /* how many operations had succeeded */
    char text[400];     /* hoop_get_last_error(), or what is wrong */
};

/* How a job's data travel. */
enum kill_transport {
    KILL_SHM,
    KILL_TCP,
    KILL_MACHINES /* odd ranks count as on another machine: shm inside, tcp between */
};

/* What all ranks of a job share. */
struct kill_job {
    uint32_t n;
    uint64_t seed;
    char name[48];    /* unique among jobs */
    const char *algo; /* of hoop_config_t */
    int by_id;        /* join by a unique id that rank 0 makes; otherwise by the environment */
    enum kill_transport transport;
    int init_timeout_ms, dead_after_ms;
};

/* A rank's ends of pipes. */
struct kill_pipes {
    const struct family_self *parent;
    int id[2]; /* rank 0 writes the unique id here, once for each other rank */
};

/* Runs the rank in a forked child, and does not return. *operation: how many operations have
 * succeeded, for the parent. */
_Noreturn void kill_rank_main(const struct kill_job *job, uint32_t rank,
                              const struct kill_pipes *pipes, _Atomic uint64_t *operation);

#endif
