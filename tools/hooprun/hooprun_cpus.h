/* --bind-to core: which CPUs each rank of this machine may use. */
#ifndef HOOPRUN_CPUS_H
#define HOOPRUN_CPUS_H

#include <sched.h>
#include <stdbool.h>

/* As many CPUs as a kernel may have. A cpu_set_t ends at 1024, and is refused where there may be
 * more. */
#define HOOPRUN_CPUS_MOST 16384
struct hooprun_cpu_set {
    cpu_set_t parts[HOOPRUN_CPUS_MOST / CPU_SETSIZE];
};

/* A hardware thread and its position. */
struct hooprun_cpu {
    int package;
    int core; /* the first CPU of its core */
    int cpu;
};

struct hooprun_cpus {
    struct hooprun_cpu *all; /* those that hooprun may use; owned */
    int count;
    int cores;
};

/* Reads them from the system. False with errno: it does not say which may be used. */
bool hooprun_cpus_read(struct hooprun_cpus *ret);
void hooprun_cpus_finish(struct hooprun_cpus *cpus);

/* Sorts them so that neighbours are adjacent, and counts the cores. */
void hooprun_cpus_sort(struct hooprun_cpus *cpus);

/* The number of cores for each of `ranks` ranks: the same for all, at least 1. */
int hooprun_cpus_each(const struct hooprun_cpus *cpus, int ranks);

/* The CPUs of a rank: its share of the sorted cores. If ranks outnumber cores it is one core, and
 * consecutive ranks get different ones. */
void hooprun_cpus_share(const struct hooprun_cpus *cpus, int rank, int ranks,
                        struct hooprun_cpu_set *ret_set);

#endif
