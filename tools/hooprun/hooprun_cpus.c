#include "hooprun/hooprun_cpus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The first number in a CPU's topology file; `otherwise` if missing, as in some containers. */
static int cpu_read(int cpu, const char *what, int otherwise)
{
    char path[96];
    int number = otherwise;
    (void)snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%d", &number) != 1) { /* NOLINT(cert-err34-c): the kernel wrote it */
            number = otherwise;
        }
        fclose(file);
    }
    return number;
}

bool hooprun_cpus_read(struct hooprun_cpus *ret)
{
    struct hooprun_cpu_set allowed;
    *ret = (struct hooprun_cpus){.count = 0};
    if (sched_getaffinity(0, sizeof(allowed), allowed.parts) != 0) {
        return false;
    }
    ret->all = calloc((size_t)CPU_COUNT_S(sizeof(allowed), allowed.parts), sizeof(*ret->all));
    if (ret->all == NULL) {
        errno = ENOMEM;
        return false;
    }
    for (int cpu = 0; cpu < HOOPRUN_CPUS_MOST; cpu++) {
        if (CPU_ISSET_S(cpu, sizeof(allowed), allowed.parts)) {
            ret->all[ret->count++] = (struct hooprun_cpu){
                .package = cpu_read(cpu, "physical_package_id", 0),
                .core = cpu_read(cpu, "thread_siblings_list", cpu),
                .cpu = cpu,
            };
        }
    }
    hooprun_cpus_sort(ret);
    return true;
}

void hooprun_cpus_finish(struct hooprun_cpus *cpus)
{
    free(cpus->all);
    *cpus = (struct hooprun_cpus){.count = 0};
}

static int cpu_compare(const void *a, const void *b)
{
    const struct hooprun_cpu *left = a, *right = b;
    return left->package != right->package ? left->package - right->package
           : left->core != right->core     ? left->core - right->core
                                           : left->cpu - right->cpu;
}

void hooprun_cpus_sort(struct hooprun_cpus *cpus)
{
    qsort(cpus->all, (size_t)cpus->count, sizeof(*cpus->all), cpu_compare);
    cpus->cores = 0;
    for (int i = 0; i < cpus->count; i++) {
        cpus->cores += i == 0 || cpus->all[i].core != cpus->all[i - 1].core ? 1 : 0;
    }
}

int hooprun_cpus_each(const struct hooprun_cpus *cpus, int ranks)
{
    return cpus->cores > ranks ? cpus->cores / ranks : 1;
}

void hooprun_cpus_share(const struct hooprun_cpus *cpus, int rank, int ranks,
                        struct hooprun_cpu_set *ret_set)
{
    const bool few = ranks > cpus->cores;
    const int first = few ? rank % cpus->cores : (int)((long)rank * cpus->cores / ranks);
    const int end = few ? first + 1 : (int)((long)(rank + 1) * cpus->cores / ranks);
    int core = -1;
    CPU_ZERO_S(sizeof(*ret_set), ret_set->parts);
    for (int i = 0; i < cpus->count; i++) {
        core += i == 0 || cpus->all[i].core != cpus->all[i - 1].core ? 1 : 0;
        if (core >= first && core < end) {
            CPU_SET_S(cpus->all[i].cpu, sizeof(*ret_set), ret_set->parts);
        }
    }
}
