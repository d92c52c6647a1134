/* --bind-to core: which CPUs each rank of this machine may use. */
#ifndef HOOPRUN_CPUS_H
#define HOOPRUN_CPUS_H

#include <sched.h>
#include <stdbool.h>

/* A hardware thread, and where it is. */
struct hooprun_cpu {
    int package;
    int core; /* the first CPU of the core that it is a thread of */
    int cpu;
};

struct hooprun_cpus {
    struct hooprun_cpu *all; /* that hooprun may use; owned */
    int count;
    int cores;
};

/* What the system says. False with errno set: it does not say which this process may use. */
bool hooprun_cpus_read(struct hooprun_cpus *ret);
void hooprun_cpus_finish(struct hooprun_cpus *cpus);

/* Puts those that are near each other side by side, and counts the cores. */
void hooprun_cpus_sort(struct hooprun_cpus *cpus);

/* Cores of each of so many ranks: the same for all, at least 1. */
int hooprun_cpus_each(const struct hooprun_cpus *cpus, int ranks);

/* Those of a rank: its share of the sorted cores; where ranks outnumber these, one, which ranks
 * that follow each other do not have in common. */
void hooprun_cpus_share(const struct hooprun_cpus *cpus, int rank, int ranks, cpu_set_t *ret_set);

#endif
