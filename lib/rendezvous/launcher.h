/*
 * Launchers: what the program that started this process says about the job in its environment. Only
 * the environment is read; nothing is looked up.
 *
 *   family     n, rank                   ranks here                  machines, rank 0's   the job
 *   torchrun   WORLD_SIZE, RANK          LOCAL_WORLD_SIZE            -                    run id
 *   Open MPI   OMPI_COMM_WORLD_SIZE...   OMPI_COMM_WORLD_LOCAL_SIZE  -                    namespace
 *   PMI        PMI_SIZE, PMI_RANK        MPI_LOCALNRANKS             -                    JOBID, FD
 *   Slurm      SLURM_NTASKS, _PROCID     SLURM_TASKS_PER_NODE        node list            job, step
 *
 * MASTER_ADDR and MASTER_PORT say where rank 0 is, whatever the family. Launchers may run inside
 * each other, and the others are often started inside Slurm; so the first family in this order
 * whose n and rank are both set is chosen. What it leaves open is taken from another family with
 * the same n.
 */
#ifndef HOOP_LAUNCHER_H
#define HOOP_LAUNCHER_H

#include "base/error.h"
#include "net/address.h"

#define HOOP_LAUNCHER_HOST_BYTES 256
#define HOOP_LAUNCHER_JOB_BYTES 2048
#define HOOP_LAUNCHER_HOSTS_MAX 65536u

struct hoop_launcher {
    const char *family; /* "torchrun", ..., static; NULL if none: then n is 1, rank 0 */
    uint32_t n, rank;
    uint32_t local_n;  /* ranks on this machine; 0 if unknown */
    uint32_t machines; /* 0 if unknown */
    /* What all ranks of this attempt of the job have in common: lines of NAME=value. */
    char job[HOOP_LAUNCHER_JOB_BYTES];
    bool named;                          /* job also distinguishes it from other jobs */
    char host[HOOP_LAUNCHER_HOST_BYTES]; /* rank 0's name or address; "" if unknown */
    struct hoop_ports ports;             /* where rank 0 may listen; first 0 if unknown */
};

enum hoop_spread { HOOP_SPREAD_UNKNOWN, HOOP_SPREAD_ONE, HOOP_SPREAD_SEVERAL };

/*
 * Reads this process's environment. HOOP_INVALID_USAGE if a value is malformed or two values
 * contradict each other; the sentence names variables, values and what was expected.
 */
hoop_result_t hoop_launcher_read(struct hoop_launcher *ret);

/* Are the ranks on one machine, as far as the launcher said? */
enum hoop_spread hoop_launcher_spread(const struct hoop_launcher *launcher);

/* Does the text, without a look-up, name the loopback interface? */
bool hoop_host_is_loopback(const char *host);

/* The first host of a list like Slurm's: node01 of "node[01-03,7],gpu5". */
hoop_result_t hoop_hostlist_first(const char *list, char ret_host[HOOP_LAUNCHER_HOST_BYTES]);

#endif
