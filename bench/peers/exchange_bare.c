/*
 * The bare exchange: two processes send each other 8 bytes through shared memory, and do nothing
 * else. This is a lower bound of the latency of an 8-byte allreduce of two ranks on one machine.
 *
 * Each side writes its payload, and then, with release, the number of the exchange into one cache
 * line, and waits until the other side's line has that number. A side has two lines and alternates
 * between them: a side that begins exchange k+2 has seen the peer's k+1, which the peer wrote after
 * it had read the line of k. So no closing handshake is needed.
 *
 *     exchange_bare [-n exchanges per sample] [-s samples] [-c cpu,cpu]
 *
 * Prints the median over samples, in nanoseconds per exchange.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "perf/perf_clock.h"

#define WAIT_SECONDS 10.0    /* after this time the peer counts as dead */
#define SPINS_PER_LOOK 65536 /* between two looks at the clock */

struct line {
    alignas(64) _Atomic uint64_t number; /* its release pairs with the acquire in exchange() */
    uint64_t payload;
};

struct side {
    struct line line[2]; /* by parity of the number */
};

struct shared {
    struct side side[2];
};

struct setup {
    long exchanges;
    long samples;
    int cpu[2];   /* -1: not pinned */
    bool crowded; /* both sides are on one CPU: yield while waiting */
};

static void pause_cpu(bool crowded)
{
    if (crowded) {
        sched_yield();
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool await_number(const struct line *line, uint64_t number, bool crowded)
{
    double start = 0;
    for (uint64_t spins = 1;; spins++) {
        if (atomic_load_explicit(&line->number, memory_order_acquire) == number) {
            return true;
        }
        pause_cpu(crowded);
        if (spins % SPINS_PER_LOOK == 0) {
            double now = perf_clock_seconds();
            start = start > 0 ? start : now;
            if (now - start > WAIT_SECONDS) {
                return false;
            }
        }
    }
}

/* Does `count` exchanges, from number `first` on. False: the peer does not answer, or a payload is
 * wrong. */
static bool exchange(struct shared *shared, int me, uint64_t first, long count, bool crowded)
{
    for (uint64_t number = first; number < first + (uint64_t)count; number++) {
        struct line *mine = &shared->side[me].line[number & 1];
        const struct line *other = &shared->side[1 - me].line[number & 1];
        mine->payload = number * 3 + (uint64_t)me;
        atomic_store_explicit(&mine->number, number, memory_order_release);
        if (!await_number(other, number, crowded) ||
            other->payload != number * 3 + (uint64_t)(1 - me)) {
            return false;
        }
    }
    return true;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= 0) {
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
}

static bool run_side(struct shared *shared, const struct setup *setup, int me, double *samples)
{
    pin(setup->cpu[me]);
    uint64_t number = 1;
    bool right = exchange(shared, me, number, setup->exchanges, setup->crowded);
    number += (uint64_t)setup->exchanges; /* the first exchanges were the warm-up */
    for (long i = 0; right && i < setup->samples; i++) {
        double start = perf_clock_seconds();
        right = exchange(shared, me, number, setup->exchanges, setup->crowded);
        samples[i] = (perf_clock_seconds() - start) / (double)setup->exchanges;
        number += (uint64_t)setup->exchanges;
    }
    return right;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first two CPUs that this process may use. */
static void choose_cpus(struct setup *setup)
{
    cpu_set_t set;
    int found = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET(cpu, &set)) {
            setup->cpu[found++] = cpu;
        }
    }
    if (found < 2) {
        setup->cpu[1] = setup->cpu[0];
    }
}

static bool read_number(const char *text, char end_mark, long low, long high, long *ret,
                        const char **ret_rest)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != end_mark || errno != 0 || value < low || value > high) {
        return false;
    }
    *ret = value;
    *ret_rest = end + (end_mark != '\0');
    return true;
}

static bool read_options(int argc, char **argv, struct setup *setup)
{
    const char *rest;
    long cpu[2];
    for (int letter; (letter = getopt(argc, argv, "n:s:c:")) != -1;) {
        bool good = false;
        if (letter == 'n') {
            good = read_number(optarg, '\0', 1, 1000000000, &setup->exchanges, &rest);
        } else if (letter == 's') {
            good = read_number(optarg, '\0', 1, 1000000, &setup->samples, &rest);
        } else if (letter == 'c') {
            good = read_number(optarg, ',', 0, CPU_SETSIZE - 1, &cpu[0], &rest) &&
                   read_number(rest, '\0', 0, CPU_SETSIZE - 1, &cpu[1], &rest);
            setup->cpu[0] = good ? (int)cpu[0] : -1;
            setup->cpu[1] = good ? (int)cpu[1] : -1;
        }
        if (!good) {
            fprintf(stderr, "usage: %s [-n exchanges per sample] [-s samples] [-c cpu,cpu]\n",
                    argv[0]);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    struct setup setup = {.exchanges = 2000, .samples = 301, .cpu = {-1, -1}};
    choose_cpus(&setup);
    if (!read_options(argc, argv, &setup)) {
        return 255;
    }
    setup.crowded = setup.cpu[0] == setup.cpu[1];
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double *samples = calloc((size_t)setup.samples, sizeof *samples);
    if (shared == MAP_FAILED || !samples) {
        perror("exchange_bare: memory");
        free(samples);
        return 1;
    }
    pid_t child = fork();
    if (child < 0) {
        perror("exchange_bare: fork");
        free(samples);
        return 1;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(run_side(shared, &setup, 1, samples) ? 0 : 1);
    }
    bool right = run_side(shared, &setup, 0, samples);
    int status = 0;
    right = waitpid(child, &status, 0) == child && status == 0 && right;
    if (!right) {
        fprintf(stderr, "exchange_bare: the other side did not answer, or answered wrong\n");
        free(samples);
        return 1;
    }
    qsort(samples, (size_t)setup.samples, sizeof *samples, compare);
    printf("# cpus %d,%d; %ld samples of %ld exchanges\n", setup.cpu[0], setup.cpu[1],
           setup.samples, setup.exchanges);
    printf("# min %.1f, p90 %.1f ns\n", samples[0] * 1e9,
           samples[(size_t)setup.samples * 9 / 10] * 1e9);
    printf("%.1f ns per exchange\n", samples[setup.samples / 2] * 1e9);
    free(samples);
    return 0;
}
