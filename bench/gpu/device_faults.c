/*
 * Tests of failures with buffers on a device, where each rank is a process:
 *
 *     mistakes   of the caller are refused, with CUDA's text if CUDA found them, and harm nothing
 *     an abort   of a rank that waits for others that do not call: its call returns, and nothing is
 *                written afterwards
 *     a death    of the last rank, while all ranks sum: all sums before were right, the others
 *                learn which rank it was, and continue without it
 *     a kernel   of the last rank that writes to an illegal address before its call (-B; the rank
 *                dies then; -BB: the kernel has failed before the call): no rank gets a sum, all
 *                get CUDA's error, and the others continue
 *
 *     hooprun --on-failure=wait -n N device_faults [-B[B]] [-G] [-e BYTES]
 *
 * -G: the sums of abort and death are captured in a graph and replayed. With -G, and with
 * HOOP_CUDA_AHEAD=1, the stream waits instead of the call. -e: bytes of a sum (default 4 MiB). Each
 * rank except the one that dies prints a line that ends in ": right". Without a device all ranks
 * print why, and return 77.
 */
#include <dlfcn.h>
#include <hoop.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "perf/perf_device.h"

#define SOON_MS 10000   /* a limit for what should take some milliseconds */
#define BROKEN_AFTER 20 /* sums before the illegal kernel */

static struct world {
    int rank, n;
    bool graphs;
    int breaks; /* -B: the illegal kernel may still run at the call; -BB: it has failed by then */
    size_t count;
    hoop_comm_t comm;
    hoop_stream_t stream;
    int32_t *in, *out; /* on the device */
    int32_t *host;
} world = {.count = ((size_t)4 << 20) / sizeof(int32_t)};

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: line %d: expected %s; hoop's last error: %s\n", world.rank,  \
                    __LINE__, #condition, hoop_get_last_error(NULL));                              \
            exit(7);                                                                               \
        }                                                                                          \
    } while (0)

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void sleep_ms(unsigned ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

/* A function of CUDA's driver that perf_device.h does not have. NULL: nor does the driver. */
static void *driver_call(const char *name)
{
    const char *path = getenv("HOOP_CUDA");
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW);
    EXPECT(library != NULL);
    return dlsym(library, name);
}

static void copy(void *to, const void *from)
{
    EXPECT(perf_device_copy(to, from, world.count * sizeof(int32_t)) == 0);
}

/* ---- Sums ----------------------------------------------------------------------------------- */

static int32_t term(int rank, size_t i)
{
    return rank + 1 + (int32_t)(i % 7);
}

static bool is_sum_of(int n)
{
    size_t i = 0;
    copy(world.host, world.out);
    while (i < world.count && world.host[i] == n * (n + 1) / 2 + n * (term(0, i) - 1)) {
        i++;
    }
    return i == world.count;
}

static hoop_result_t call(hoop_comm_t comm)
{
    return hoop_all_reduce(world.in, world.out, world.count, HOOP_INT32, HOOP_SUM, comm,
                           world.stream);
}

static struct perf_graph capture(hoop_comm_t comm)
{
    struct perf_graph graph = {NULL, NULL};
    if (world.graphs) {
        EXPECT(perf_graph_begin(world.stream) == 0);
        EXPECT(call(comm) == HOOP_OK);
        EXPECT(perf_graph_end(world.stream, &graph) == 0);
    }
    return graph;
}

/* Makes a call, or replays it, and waits for the stream. Returns the error of either. */
static hoop_result_t sum(hoop_comm_t comm, const struct perf_graph *graph)
{
    hoop_result_t result = HOOP_OK, failed = HOOP_OK;
    if (graph->exec != NULL) {
        EXPECT(perf_graph_launch(graph, world.stream) == 0);
    } else {
        result = call(comm);
    }
    EXPECT(perf_device_wait(world.stream) == 0);
    EXPECT(hoop_comm_get_async_error(comm, &failed) == HOOP_OK);
    return result != HOOP_OK ? result : failed;
}

static void sum_well(hoop_comm_t comm, const struct perf_graph *graph, int n)
{
    EXPECT(sum(comm, graph) == HOOP_OK);
    EXPECT(is_sum_of(n));
}

/* ---- Mistakes ------------------------------------------------------------------------------- */

static void refused(const void *in, hoop_stream_t stream, hoop_result_t code, const char *words)
{
    EXPECT(hoop_all_reduce(in, world.out, 1, HOOP_INT32, HOOP_SUM, world.comm, stream) == code);
    if (strstr(hoop_get_last_error(NULL), words) == NULL) {
        fprintf(stderr, "expected of a mistake: %s\n", words);
        EXPECT(false);
    }
}

/* With managed memory, if there is any: a sum of what the host has written there is right. */
static void sum_managed(void)
{
    const unsigned global = 1;
    uint64_t at = 0;
    int (*alloc)(uint64_t * ret, size_t bytes, unsigned flags) = NULL;
    const char *path = getenv("HOOP_CUDA");
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW);
    EXPECT(library != NULL);
    *(void **)&alloc = dlsym(library, "cuMemAllocManaged");
    if (alloc == NULL || alloc(&at, world.count * sizeof(int32_t), global) != 0) {
        return;
    }
    int32_t *managed = (void *)(uintptr_t)at, *in = world.in;
    for (size_t i = 0; i < world.count; i++) {
        managed[i] = term(world.rank, i);
    }
    world.in = managed;
    sum_well(world.comm, &(struct perf_graph){NULL, NULL}, world.n);
    world.in = in;
    perf_device_free((char *)managed);
}

static void check_mistakes(void)
{
    void *freed = NULL, *none = NULL;
    hoop_stream_t of_host = NULL;
    EXPECT(hoop_mem_alloc(&none, (size_t)1 << 48, HOOP_MEM_DEVICE) == HOOP_OUT_OF_MEMORY);
    EXPECT(strstr(hoop_get_last_error(NULL), "CUDA_ERROR_OUT_OF_MEMORY") != NULL);
    EXPECT(hoop_mem_alloc(&freed, 4096, HOOP_MEM_DEVICE) == HOOP_OK);
    EXPECT(hoop_mem_free(freed) == HOOP_OK);
    refused(freed, world.stream, HOOP_INVALID_ARGUMENT, "neither device memory (any more)");
    refused((void *)(uintptr_t)4096, world.stream, HOOP_INVALID_ARGUMENT, "neither device memory");
    EXPECT(hoop_stream_create(&of_host) == HOOP_OK);
    refused(world.in, of_host, HOOP_INVALID_USAGE, "");
    EXPECT(hoop_stream_destroy(of_host) == HOOP_OK);
    sum_managed();
}

/* ---- An abort ------------------------------------------------------------------------------- */

static void *abort_main(void *comm)
{
    sleep_ms(200);
    (void)hoop_comm_abort(comm);
    return NULL;
}

static void is_told(hoop_comm_t comm)
{
    const double start = now_ms();
    hoop_result_t failed = HOOP_OK;
    while (failed == HOOP_OK && now_ms() - start < SOON_MS) {
        EXPECT(hoop_comm_get_async_error(comm, &failed) == HOOP_OK);
        sleep_ms(10);
    }
    EXPECT(failed != HOOP_OK);
}

/* Rank 0 calls, and no other rank. */
static void abort_alone(hoop_comm_t comm, const struct perf_graph *graph)
{
    const double start = now_ms();
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, abort_main, comm) == 0);
    EXPECT(sum(comm, graph) != HOOP_OK);
    EXPECT(now_ms() - start < SOON_MS);
    pthread_join(thread, NULL);
    memset(world.host, 0x77, world.count * sizeof(int32_t));
    copy(world.out, world.host);
    sleep_ms(300);
    copy(world.host, world.out);
    for (size_t i = 0; i < world.count; i++) {
        EXPECT(world.host[i] == 0x77777777);
    }
}

static void check_abort(void)
{
    hoop_comm_t comm = HOOP_COMM_NULL;
    EXPECT(hoop_comm_split(world.comm, 0, world.rank, &comm, NULL) == HOOP_OK);
    struct perf_graph graph = capture(comm);
    for (int i = 0; i < 3; i++) {
        sum_well(comm, &graph, world.n);
    }
    if (world.rank == 0) {
        abort_alone(comm, &graph);
    } else {
        is_told(comm);
    }
    if (world.graphs) {
        perf_graph_free(&graph);
    }
    EXPECT(hoop_comm_destroy(comm) == HOOP_OK);
}

/* ---- A kernel ------------------------------------------------------------------------------- */

/* Launches the illegal kernel; its stream and context can't be used any more afterwards. */
static void launch_illegal(void)
{
    static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry illegal() { .reg .u64 %a; .reg .u32 %r;\n"
                              "mov.u64 %a, 0; mov.u32 %r, 1; st.global.u32 [%a], %r; ret; }\n";
    void *module = NULL, *kernel = NULL;
    int (*load)(void **ret, const void *image) = NULL;
    int (*find)(void **ret, void *module, const char *name) = NULL;
    int (*launch)(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared_bytes, hoop_stream_t stream,
                  void **arguments, void **extra) = NULL;
    *(void **)&load = driver_call("cuModuleLoadData");
    *(void **)&find = driver_call("cuModuleGetFunction");
    *(void **)&launch = driver_call("cuLaunchKernel");
    EXPECT(load(&module, ptx) == 0 && find(&kernel, module, "illegal") == 0);
    EXPECT(launch(kernel, 1, 1, 1, 256, 1, 1, 0, world.stream, NULL, NULL) == 0);
}

static void break_and_die(void)
{
    launch_illegal();
    EXPECT(world.breaks < 2 || perf_device_wait(world.stream) != 0);
    EXPECT(call(world.comm) == HOOP_CUDA_ERROR);
    EXPECT(strstr(hoop_get_last_error(world.comm), "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL);
    sleep_ms(500); /* until the others know of the error: else they would be told of the death */
    (void)raise(SIGKILL);
}

/* ---- A death -------------------------------------------------------------------------------- */

static void *die_main(void *arg)
{
    (void)arg;
    sleep_ms(300 + (unsigned)getpid() % 100);
    (void)raise(SIGKILL);
    return NULL;
}

/* Sums until one fails. Returns how many succeeded. */
static int sum_until_failure(const struct perf_graph *graph)
{
    const double start = now_ms();
    hoop_result_t result = HOOP_OK;
    char who[32];
    int sums = -1;
    do {
        if (++sums == BROKEN_AFTER && world.breaks > 0 && world.rank == world.n - 1) {
            break_and_die();
        }
        EXPECT(sums == 0 || is_sum_of(world.n));
        EXPECT(now_ms() - start < 2 * SOON_MS);
        result = sum(world.comm, graph);
    } while (result == HOOP_OK);
    (void)snprintf(who, sizeof(who), world.breaks > 0 ? "rank %d: cu" : "rank %d ", world.n - 1);
    EXPECT(result == (world.breaks > 0 ? HOOP_CUDA_ERROR : HOOP_REMOTE_ERROR));
    EXPECT(world.breaks == 0 || sums <= BROKEN_AFTER);
    EXPECT(strstr(hoop_get_last_error(world.comm), who) != NULL);
    return sums;
}

static int check_death(void)
{
    const struct perf_graph none = {NULL, NULL};
    hoop_comm_t left = HOOP_COMM_NULL;
    pthread_t thread;
    struct perf_graph graph = capture(world.comm);
    sum_well(world.comm, &graph, world.n);
    if (world.rank == world.n - 1 && world.breaks == 0) {
        EXPECT(pthread_create(&thread, NULL, die_main, NULL) == 0);
    }
    const int sums = sum_until_failure(&graph);
    if (world.graphs) {
        perf_graph_free(&graph);
    }
    EXPECT(hoop_comm_shrink(world.comm, NULL, 0, &left, NULL, HOOP_SHRINK_ABORT) == HOOP_OK);
    EXPECT(hoop_comm_destroy(world.comm) == HOOP_OK);
    world.comm = left;
    for (int i = 0; i < 3; i++) {
        sum_well(world.comm, &none, world.n - 1);
    }
    return sums;
}

/* ---- The ranks ------------------------------------------------------------------------------ */

static void world_make(int devices)
{
    const size_t bytes = world.count * sizeof(int32_t);
    EXPECT(hoop_comm_init_env(&world.comm, NULL) == HOOP_OK);
    EXPECT(hoop_comm_user_rank(world.comm, &world.rank) == HOOP_OK);
    EXPECT(hoop_comm_count(world.comm, &world.n) == HOOP_OK);
    EXPECT(perf_device_use(world.rank % devices) == 0);
    EXPECT(perf_device_stream(&world.stream) == 0);
    EXPECT(hoop_mem_alloc((void **)&world.in, bytes, HOOP_MEM_DEVICE) == HOOP_OK);
    EXPECT(hoop_mem_alloc((void **)&world.out, bytes, HOOP_MEM_DEVICE) == HOOP_OK);
    world.host = malloc(bytes);
    EXPECT(world.host != NULL);
    for (size_t i = 0; i < world.count; i++) {
        world.host[i] = term(world.rank, i);
    }
    copy(world.in, world.host);
}

static void world_end(void)
{
    EXPECT(hoop_comm_destroy(world.comm) == HOOP_OK);
    EXPECT(hoop_mem_free(world.in) == HOOP_OK);
    EXPECT(hoop_mem_free(world.out) == HOOP_OK);
    perf_device_end_stream(world.stream);
    free(world.host);
}

static bool options_parse(int argc, char **argv)
{
    bool good = true;
    for (int option = getopt(argc, argv, "BGe:"); option != -1;
         option = getopt(argc, argv, "BGe:")) {
        world.breaks += option == 'B';
        world.graphs |= option == 'G';
        world.count = option == 'e' ? strtoul(optarg, NULL, 10) / sizeof(int32_t) : world.count;
        good &= option != '?';
    }
    return good && optind == argc && world.count > 0;
}

int main(int argc, char **argv)
{
    const char *why = NULL;
    if (!options_parse(argc, argv)) {
        fprintf(stderr,
                "usage: hooprun --on-failure=wait -n N device_faults [-B[B]] [-G] [-e bytes]\n");
        return 2;
    }
    const int devices = perf_device_count(&why);
    if (devices == 0) {
        printf("skipped: %s\n", why);
        return 77;
    }
    world_make(devices);
    EXPECT(world.n >= 3);
    check_mistakes();
    check_abort();
    sum_well(world.comm, &(struct perf_graph){NULL, NULL}, world.n);
    const int sums = check_death();
    printf(
        "rank %d of %d: mistakes and an abort, %d sums until rank %d was lost, and 3 without it: "
        "right\n",
        world.rank, world.n, sums, world.n - 1);
    world_end();
    return 0;
}
