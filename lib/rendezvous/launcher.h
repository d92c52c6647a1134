/*
 * Launchers: what the program that started this process left in its environment about the job.
 * Reads the environment that it is given, looks nothing up, speaks to nobody.
 *
 *   family     n, rank                   ranks here                  machines, rank 0's   the job
 *   torchrun   WORLD_SIZE, RANK          LOCAL_WORLD_SIZE            -                    run id
 *   Open MPI   OMPI_COMM_WORLD_SIZE...   OMPI_COMM_WORLD_LOCAL_SIZE  -                    namespace
 *   PMI        PMI_SIZE, PMI_RANK        MPI_LOCALNRANKS             -                    JOBID, FD
 *   Slurm      SLURM_NTASKS, _PROCID     SLURM_TASKS_PER_NODE        node list            job, step
 *
 * MASTER_ADDR and MASTER_PORT say where rank 0's machine is, whatever the family. The first family
 * in this order whose n and rank are both set counts: launchers are started inside each other, and
 * Slurm is the one that others are started in. What it leaves open is taken from another family
 * that has the same n.
 */
#ifndef HOOP_LAUNCHER_H
#define HOOP_LAUNCHER_H

#include "base/error.h"
#include "net/address.h"

#define HOOP_LAUNCHER_HOST_BYTES 256
#define HOOP_LAUNCHER_JOB_BYTES 2048
#define HOOP_LAUNCHER_HOSTS_MAX 65536u

struct hoop_launcher {
    const char *family; /* "torchrun", ...; NULL: none, then n is 1 and rank 0. Static */
    uint32_t n, rank;
    uint32_t local_n;  /* ranks on this machine; 0: not told */
    uint32_t machines; /* 0: not told */
    /* What all ranks of this attempt of this job have in common, lines of NAME=value. */
    char job[HOOP_LAUNCHER_JOB_BYTES];
    bool named;                          /* and what other jobs have not */
    char host[HOOP_LAUNCHER_HOST_BYTES]; /* of rank 0: a name or an address; "": not told */
    struct hoop_ports ports;             /* where rank 0 may listen; first 0: not told */
};

enum hoop_spread { HOOP_SPREAD_UNKNOWN, HOOP_SPREAD_ONE, HOOP_SPREAD_SEVERAL };

/* Like getenv(). An empty value counts as none. */
typedef const char *hoop_launcher_get_fn(void *arg, const char *variable);

/*
 * HOOP_INVALID_USAGE: a value is not what it should be, or two contradict; the sentence names
 * variables, values and what was expected.
 */
hoop_result_t hoop_launcher_read(hoop_launcher_get_fn *get, void *arg, struct hoop_launcher *ret);

/* Are the ranks on one machine, by what was told? */
enum hoop_spread hoop_launcher_spread(const struct hoop_launcher *launcher);

/* Does the text itself, without being looked up, mean the machine that reads it? */
bool hoop_host_is_loopback(const char *host);

/* Of a list as Slurm writes it, "node[01-03,7],gpu5": node01. HOOP_INVALID_ARGUMENT: it is none. */
hoop_result_t hoop_hostlist_first(const char *list, char ret_host[HOOP_LAUNCHER_HOST_BYTES]);

#endif
