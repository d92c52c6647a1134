/*
 * What it costs to make a communicator, and to have one: time, memory, and CPU time while idle.
 *
 *     START_NS=$(date +%s%N) hooprun -n 8 init_cost [idle seconds]
 *
 * Rank 0 prints the maximum over all ranks of: the time from START_NS to the return of
 * hoop_comm_init_env() (ms), the growth of the rank's share of memory by it (PSS, KiB), and the CPU
 * time of the process while idle (percent of one core).
 */
#include <errno.h>
#include <hoop.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const hoop_result_t result_ = (call);                                                      \
        if (result_ != HOOP_OK) {                                                                  \
            fprintf(stderr, "init_cost: %s: %s\n", #call, hoop_get_last_error(NULL));              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static double clock_seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The process's PSS in KiB; 0 if the kernel does not tell. */
static double pss_kib(void)
{
    double kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "Pss: %lf kB", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

int main(int argc, char **argv)
{
    const char *start = getenv("START_NS");
    const double began = start != NULL ? strtod(start, NULL) * 1e-9 : clock_seconds(CLOCK_REALTIME);
    const double idle = argc > 1 ? strtod(argv[1], NULL) : 0;
    const double before = pss_kib();
    hoop_comm_t comm = HOOP_COMM_NULL;
    CHECK(hoop_comm_init_env(&comm, NULL));
    double cost[3] = {(clock_seconds(CLOCK_REALTIME) - began) * 1e3, 0, 0};
    CHECK(hoop_barrier(comm, NULL));
    cost[1] = pss_kib() - before;
    if (idle > 0) {
        const struct timespec nap = {.tv_sec = (time_t)idle,
                                     .tv_nsec = (long)((idle - (double)(time_t)idle) * 1e9)};
        const double busy = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
        while (nanosleep(&nap, NULL) != 0 && errno == EINTR) {
        }
        cost[2] = (clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - busy) / idle * 100;
    }
    CHECK(hoop_all_reduce(cost, cost, 3, HOOP_FLOAT64, HOOP_MAX, comm, NULL));
    int rank = 0, ranks = 0;
    CHECK(hoop_comm_user_rank(comm, &rank));
    CHECK(hoop_comm_count(comm, &ranks));
    if (rank == 0) {
        printf("%d ranks: init %.1f ms, PSS growth %.0f KiB a rank, idle %.3f %% of a core\n",
               ranks, cost[0], cost[1], cost[2]);
    }
    CHECK(hoop_comm_destroy(comm));
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("standard output");
        return 1;
    }
    return 0;
}
