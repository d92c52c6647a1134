/*
 * Buffers on a device: are the results right, and how long does an all_reduce take?
 *
 *     [hooprun -n N] device_cost [-t RANKS] [-g GPUS] [-e BYTES] [-c GB/S] [-S]
 *
 * -t: this many ranks in one process, which one thread calls in groups; not under hooprun. Without
 * -g all ranks share CUDA's current device; with -g rank r is on device r modulo GPUS. If there are
 * fewer GPUs the program says so and returns 77.
 *
 * Right: every collective, and all_reduce with every type and op, gives the same bits on the device
 * as on the host, also if every second rank has its buffers on the host. Copies between host and
 * device are made by hoop itself: in a communicator of one rank an all_reduce is a copy.
 *
 * Cost: an all_reduce of floats in place, from 8 bytes up to -e (default 64 MiB): the time until
 * the call returns, and until it is complete, including a barrier of the hosts. With -c, the rate
 * of a copy on the device (bytes read and written), also as a share of the bound, which is the time
 * of the least traffic on one device: n vectors read, n written. -S: on cudaStreamLegacy, where
 * calls may return before they are complete; without a stream they never do. Rank 0 prints. Exit
 * code 7: a result is wrong.
 */
#include <dlfcn.h>
#include <hoop.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const hoop_result_t result_ = (call);                                                      \
        if (result_ != HOOP_OK) {                                                                  \
            fprintf(stderr, "device_cost: %s: %s\n", #call, hoop_get_last_error(NULL));            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define MOST 8              /* ranks of a process */
#define COUNT ((size_t)997) /* elements of a block when results are checked */
#define BLOCKS 16           /* the most ranks of the job */
#define ROOM (BLOCKS * COUNT * 8)

/* A rank's buffers, input and output, of one kind of memory. */
struct buffers {
    unsigned char *in, *out;
};

static struct world {
    int n, local, first; /* all ranks; how many are in this process; the first of these */
    hoop_comm_t comms[MOST];
    hoop_comm_t self[MOST]; /* of one rank each, for copies */
    int devices;            /* ranks are on these in turn; 0: on the current one */
    struct buffers host[MOST], device[MOST];
    unsigned char *expected[MOST];
    size_t most;      /* bytes of the largest all_reduce */
    double copy_rate; /* GB/s; 0: not known */
    hoop_stream_t stream;
} world = {.local = 1, .most = (size_t)64 << 20};

/* ---- Devices -------------------------------------------------------------------------------- */

/* Functions of CUDA's driver, loaded like in hoop: no CUDA header is needed. */
static struct {
    int (*init)(unsigned flags);
    int (*count)(int *ret);
    int (*retain)(void **ret_context, int device);
    int (*set)(void *context);
} cuda;

static bool cuda_load(void)
{
    const char *path = getenv("HOOP_CUDA");
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        return false;
    }
    *(void **)&cuda.init = dlsym(library, "cuInit");
    *(void **)&cuda.count = dlsym(library, "cuDeviceGetCount");
    *(void **)&cuda.retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&cuda.set = dlsym(library, "cuCtxSetCurrent");
    return cuda.init != NULL && cuda.count != NULL && cuda.retain != NULL && cuda.set != NULL;
}

/* Are there as many devices as -g says? */
static bool devices_are_there(void)
{
    int count = 0;
    if (world.devices > 0 && (!cuda_load() || cuda.init(0) != 0 || cuda.count(&count) != 0)) {
        count = 0;
    }
    if (count < world.devices) {
        printf("skipped: %d GPUs, expected %d\n", count, world.devices);
    }
    return count >= world.devices;
}

/* Makes the device of the i-th rank here current, for allocations. */
static void device_enter(int i)
{
    void *context = NULL;
    if (world.devices > 0 &&
        (cuda.retain(&context, (world.first + i) % world.devices) != 0 || cuda.set(context) != 0)) {
        fprintf(stderr, "device_cost: CUDA gives no context\n");
        exit(1);
    }
}

/* ---- One operation of all ranks here -------------------------------------------------------- */

struct operation {
    enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALLTOALL, NEXT, KINDS } kind;
    hoop_datatype_t type;
    hoop_red_op_t op;
    size_t count;
};

static const char *const kind_names[KINDS] = {"all_reduce", "reduce_scatter", "all_gather",
                                              "broadcast",  "alltoall",       "send and recv"};

static hoop_result_t call(const struct operation *o, int i, const unsigned char *in,
                          unsigned char *out)
{
    const hoop_comm_t comm = world.comms[i];
    const int rank = world.first + i;
    switch (o->kind) {
    case ALL_REDUCE:
        return hoop_all_reduce(in, out, o->count, o->type, o->op, comm, world.stream);
    case REDUCE_SCATTER:
        return hoop_reduce_scatter(in, out, o->count, o->type, o->op, comm, world.stream);
    case ALL_GATHER:
        return hoop_all_gather(in, out, o->count, o->type, comm, world.stream);
    case BROADCAST:
        return hoop_broadcast(in, out, o->count, o->type, world.n - 1, comm, world.stream);
    case ALLTOALL:
        return hoop_alltoall(in, out, o->count, o->type, comm, world.stream);
    default:
        CHECK(hoop_send(in, o->count, o->type, (rank + 1) % world.n, comm, world.stream));
        return hoop_recv(out, o->count, o->type, (rank + world.n - 1) % world.n, comm,
                         world.stream);
    }
}

/* In a group even with one rank in the process: NEXT needs it. */
static void run(const struct operation *o, struct buffers *const of[MOST])
{
    CHECK(hoop_group_start());
    for (int i = 0; i < world.local; i++) {
        CHECK(call(o, i, of[i]->in, of[i]->out));
    }
    CHECK(hoop_group_end());
}

/* Waits for all calls: a barrier without a stream comes behind everything queued on its comm. */
static void settle(void)
{
    CHECK(hoop_group_start());
    for (int i = 0; i < world.local; i++) {
        CHECK(hoop_barrier(world.comms[i], NULL));
    }
    CHECK(hoop_group_end());
}

/* ---- Is it right? --------------------------------------------------------------------------- */

/* Copies between any two kinds of memory of the i-th rank here. */
static void copy(int i, const unsigned char *from, unsigned char *to, size_t bytes)
{
    CHECK(hoop_all_reduce(from, to, bytes, HOOP_UINT8, HOOP_MAX, world.self[i], NULL));
    CHECK(hoop_barrier(world.self[i], NULL));
}

/* Makes rank r's input: random bits, the same in every run. */
static void draw(unsigned char *bytes, int r)
{
    uint64_t state = 88172645463325252u + (uint64_t)r * 2654435761u;
    for (size_t i = 0; i < ROOM; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[i] = (unsigned char)(state >> 32);
    }
}

/* Runs the operation with the buffers of every k-th rank on the device, and the others' on the
 * host; k 0: all on the host. Then the results are on the host. */
static void run_mixed(const struct operation *o, int k)
{
    struct buffers *of[MOST];
    for (int i = 0; i < world.local; i++) {
        struct buffers *host = &world.host[i];
        const bool on_device = k > 0 && (world.first + i) % k == 0;
        of[i] = on_device ? &world.device[i] : host;
        memset(host->out, 0, ROOM);
        if (on_device) {
            copy(i, host->in, of[i]->in, ROOM);
            copy(i, host->out, of[i]->out, ROOM);
        }
    }
    run(o, of);
    settle();
    for (int i = 0; i < world.local; i++) {
        if (of[i] == &world.device[i]) {
            copy(i, of[i]->out, world.host[i].out, ROOM);
        }
    }
}

/* Returns how many results differ from those on the host. */
static int check(const struct operation *o)
{
    int wrong = 0;
    run_mixed(o, 0);
    for (int i = 0; i < world.local; i++) {
        memcpy(world.expected[i], world.host[i].out, ROOM);
    }
    for (int k = 1; k <= 2; k++) {
        run_mixed(o, k);
        for (int i = 0; i < world.local; i++) {
            if (memcmp(world.host[i].out, world.expected[i], ROOM) != 0) {
                fprintf(stderr,
                        "device_cost: rank %d: %s of %zu elements of type %d, op %d is wrong%s\n",
                        world.first + i, kind_names[o->kind], o->count, (int)o->type, (int)o->op,
                        k == 2 ? " with ranks on both sides" : "");
                wrong++;
            }
        }
    }
    return wrong;
}

static int check_all(void)
{
    int wrong = 0;
    for (int type = 0; type < HOOP_NUM_DATATYPES; type++) {
        for (int op = 0; op < HOOP_NUM_OPS; op++) {
            wrong += check(&(struct operation){ALL_REDUCE, (hoop_datatype_t)type, (hoop_red_op_t)op,
                                               BLOCKS * COUNT});
        }
    }
    for (int kind = REDUCE_SCATTER; kind < KINDS; kind++) {
        wrong += check(&(struct operation){kind, HOOP_BFLOAT16, HOOP_SUM, COUNT});
    }
    return wrong;
}

/* ---- What does it cost? --------------------------------------------------------------------- */

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct cost {
    double call_us, us; /* until the call returns; until it is complete */
};

/* Medians of several calls. */
static struct cost cost_of(const struct operation *o, struct buffers *const of[MOST])
{
    enum { CALLS = 21 };
    double called[CALLS], took[CALLS];
    run(o, of);
    settle();
    for (int i = 0; i < CALLS; i++) {
        const double start = now_us();
        run(o, of);
        called[i] = now_us() - start;
        settle();
        took[i] = now_us() - start;
    }
    qsort(called, CALLS, sizeof(called[0]), by_value);
    qsort(took, CALLS, sizeof(took[0]), by_value);
    return (struct cost){called[CALLS / 2], took[CALLS / 2]};
}

static void cost_all(void)
{
    struct buffers large[MOST];
    struct buffers *of[MOST];
    for (int i = 0; i < world.local; i++) {
        device_enter(i);
        CHECK(hoop_mem_alloc((void **)&large[i].in, world.most, HOOP_MEM_DEVICE));
        large[i].out = large[i].in;
        of[i] = &large[i];
    }
    if (world.first == 0) {
        printf("#    bytes    call us         us   GB/s  of the bound\n");
    }
    for (size_t bytes = 8; bytes <= world.most; bytes *= 8) {
        const struct cost cost = cost_of(
            &(struct operation){ALL_REDUCE, HOOP_FLOAT32, HOOP_SUM, bytes / sizeof(float)}, of);
        const double us = cost.us;
        const double traffic = 2.0 * world.n * (double)bytes;
        if (world.first == 0) {
            printf("%10zu %10.1f %10.1f %6.2f", bytes, cost.call_us, us, (double)bytes / us / 1e3);
            printf(world.copy_rate > 0 ? " %13.3f\n" : "\n", traffic / us / 1e3 / world.copy_rate);
        }
    }
    for (int i = 0; i < world.local; i++) {
        CHECK(hoop_mem_free(large[i].in));
    }
}

/* ---- The ranks ------------------------------------------------------------------------------ */

static void ranks_make(void)
{
    if (world.local > 1) {
        CHECK(hoop_comm_init_all(world.comms, world.local, NULL));
    } else {
        CHECK(hoop_comm_init_env(&world.comms[0], NULL));
    }
    CHECK(hoop_comm_count(world.comms[0], &world.n));
    CHECK(hoop_comm_user_rank(world.comms[0], &world.first));
    for (int i = 0; i < world.local; i++) {
        device_enter(i);
        CHECK(hoop_comm_init_all(&world.self[i], 1, NULL));
        CHECK(hoop_mem_alloc((void **)&world.host[i].in, ROOM, HOOP_MEM_HOST));
        CHECK(hoop_mem_alloc((void **)&world.host[i].out, ROOM, HOOP_MEM_HOST));
        CHECK(hoop_mem_alloc((void **)&world.expected[i], ROOM, HOOP_MEM_HOST));
        CHECK(hoop_mem_alloc((void **)&world.device[i].in, ROOM, HOOP_MEM_DEVICE));
        CHECK(hoop_mem_alloc((void **)&world.device[i].out, ROOM, HOOP_MEM_DEVICE));
        draw(world.host[i].in, world.first + i);
    }
}

static void ranks_end(void)
{
    for (int i = 0; i < world.local; i++) {
        CHECK(hoop_mem_free(world.host[i].in));
        CHECK(hoop_mem_free(world.host[i].out));
        CHECK(hoop_mem_free(world.expected[i]));
        CHECK(hoop_mem_free(world.device[i].in));
        CHECK(hoop_mem_free(world.device[i].out));
        CHECK(hoop_comm_destroy(world.comms[i]));
        CHECK(hoop_comm_destroy(world.self[i]));
    }
}

static bool options_parse(int argc, char **argv)
{
    for (int option = getopt(argc, argv, "t:g:e:c:S"); option != -1;
         option = getopt(argc, argv, "t:g:e:c:S")) {
        char *end = NULL;
        if (option == 'S') {
            world.stream = (hoop_stream_t)(uintptr_t)1; /* cudaStreamLegacy */
            continue;
        }
        const double value = option == '?' ? 0 : strtod(optarg, &end);
        if (option == '?' || *end != '\0' || value <= 0) {
            return false;
        }
        world.local = option == 't' ? (int)value : world.local;
        world.devices = option == 'g' ? (int)value : world.devices;
        world.most = option == 'e' ? (size_t)value : world.most;
        world.copy_rate = option == 'c' ? value : world.copy_rate;
    }
    return optind == argc && world.local >= 1 && world.local <= MOST && world.most >= 8;
}

int main(int argc, char **argv)
{
    if (!options_parse(argc, argv)) {
        fprintf(stderr,
                "usage: device_cost [-t 1 to %d ranks in this process] [-g GPUs] "
                "[-e bytes, 8 or more] [-c GB/s of a copy] [-S]\n",
                MOST);
        return 2;
    }
    if (!devices_are_there()) {
        return 77;
    }
    ranks_make();
    if (world.n > BLOCKS) {
        fprintf(stderr, "device_cost: %d ranks, expected at most %d\n", world.n, BLOCKS);
        return 2;
    }
    const int wrong = check_all();
    if (world.first == 0) {
        printf("# %d ranks, %d of them in this process, on %s, %d wrong\n", world.n, world.local,
               world.devices > 1 ? "several GPUs" : "one GPU", wrong);
    }
    if (wrong == 0) {
        cost_all();
    }
    ranks_end();
    return wrong == 0 ? 0 : 7;
}
