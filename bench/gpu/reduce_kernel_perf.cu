/*
 * The reduction kernels on a real GPU: do they give the same bits as those of the CPU, and how fast
 * are they compared with a copy on the device in the same run? bench/gpu_suite.sh builds it with
 * libhoop_core.a.
 *
 *     reduce_kernel_perf [MiB of a vector, default 256]
 *
 * Bits: all types and ops, with random bits as inputs, and aligned and unaligned vectors. Rates:
 * bytes read and written, in the median of rounds that alternate with the copy. Exit code 7: a
 * kernel is wrong.
 *
 * It also measures what it costs to tell a kernel only when it begins what it folds ("told late"),
 * as a call needs that is launched before the other ranks' addresses are known: a copy on the
 * stream brings the argument from pinned memory to device memory, which each block of the kernel
 * copies to its shared memory.
 */
extern "C" {
#include "reduce/reduce_cuda.h"
}
#include "reduce/reduce_cuda.cu"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        const cudaError_t result_ = (call);                                                        \
        if (result_ != cudaSuccess) {                                                              \
            fprintf(stderr, "reduce_kernel_perf: %s: %s\n", #call, cudaGetErrorString(result_));   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef void kernel_t(const struct hoop_cuda_fold);
#define ROW(type, value, bytes, text)                                                              \
    {hoop_fold_sum_##type, hoop_fold_prod_##type, hoop_fold_max_##type, hoop_fold_min_##type,      \
     hoop_fold_scaled_##type},
static kernel_t *const kernels[HOOP_NUM_DATATYPES][HOOP_CUDA_FOLD_OPS] = {HOOP_DATATYPES(ROW)};

static const char *const type_names[] = {
#define NAME(type, value, bytes, text) text,
    HOOP_DATATYPES(NAME)};

/* ---- Told late ---- */

enum way { BY_ARGUMENT, BY_MEMORY, WAYS };
static const char *const way_names[WAYS] = {"argument", "memory"};

typedef void (*told_t)(const struct hoop_cuda_fold *told);
#define TOLD_ROW(type, value, bytes, text)                                                         \
    {hoop_told_sum_##type, hoop_told_prod_##type, hoop_told_max_##type, hoop_told_min_##type},
static const told_t told[HOOP_NUM_DATATYPES][HOOP_CUDA_TOLD_OPS] = {HOOP_DATATYPES(TOLD_ROW)};

/* Reuses one argument in memory: launches that follow each other are told the same, or the one
 * before has ended. */
static void launch_told(const struct hoop_cuda_launch *what)
{
    static struct hoop_cuda_fold *pinned = NULL, *there = NULL;
    const size_t row = HOOP_CUDA_TOLD_BYTES / 2; /* a copy of one row would wait like a kernel */
    if (pinned == NULL) {
        CUDA(cudaMallocHost(&pinned, sizeof(*pinned)));
        CUDA(cudaMalloc(&there, sizeof(*there)));
    }
    memcpy(pinned, &what->fold, HOOP_CUDA_TOLD_BYTES);
    CUDA(cudaMemcpy2DAsync(there, row, pinned, row, row, 2, cudaMemcpyHostToDevice));
    told[what->type][what->op]<<<(unsigned)what->blocks, HOOP_CUDA_FOLD_THREADS>>>(there);
}

static void launch(enum way way, const struct hoop_reduction *reduction, void *dst,
                   const void *const *src, unsigned n_src, size_t count)
{
    struct hoop_cuda_launch what;
    hoop_cuda_fold_make(reduction, &dst, 1, src, n_src, NULL, count, &what);
    if (way != BY_ARGUMENT) {
        launch_told(&what);
    } else {
        kernel_t *const kernel = kernels[what.type][what.op];
        kernel<<<(unsigned)what.blocks, HOOP_CUDA_FOLD_THREADS>>>(what.fold);
    }
    CUDA(cudaGetLastError());
}

/* ---- Bits ---- */

#define SOURCES 5
#define COUNT ((size_t)100003)

/* The input of source s: for two sources of bytes all pairs of values, else random bits. */
static std::vector<unsigned char> input_of(unsigned s, unsigned n_src, hoop_datatype_t type,
                                           uint64_t *state)
{
    std::vector<unsigned char> made(COUNT * hoop_datatype_bytes(type));
    for (size_t i = 0; i < made.size(); i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        made[i] = (unsigned char)(n_src == 2 && made.size() == COUNT ? i >> s * 8 : *state >> 32);
    }
    return made;
}

/* Source s lies s * off bytes behind a boundary of 16 bytes. */
static bool same_bits(enum way way, hoop_datatype_t type, hoop_red_op_t op, size_t off,
                      unsigned n_src)
{
    static std::vector<unsigned char> host(COUNT * 8 + 256), expected(COUNT * 8), got(COUNT * 8);
    static unsigned char *memory = NULL;
    const size_t room = COUNT * 8 + 256, bytes = COUNT * hoop_datatype_bytes(type);
    const struct hoop_reduction reduction = {type, op, op == HOOP_AVG ? n_src : 0u};
    std::vector<std::vector<unsigned char>> inputs(SOURCES);
    const void *on_host[SOURCES], *on_device[SOURCES];
    uint64_t state = 88172645463325252u + type * 64 + op;
    if (memory == NULL) {
        CUDA(cudaMalloc(&memory, (SOURCES + 1) * room));
    }
    for (unsigned s = 0; s < n_src; s++) {
        inputs[s] = input_of(s, n_src, type, &state);
        unsigned char *at = memory + s * room + s * off;
        CUDA(cudaMemcpy(at, inputs[s].data(), bytes, cudaMemcpyHostToDevice));
        on_host[s] = inputs[s].data();
        on_device[s] = at;
    }
    void *to = expected.data();
    hoop_fold(&reduction, &to, 1, on_host, n_src, COUNT);
    CUDA(cudaMemset(memory + SOURCES * room, 0xa5, room));
    launch(way, &reduction, memory + SOURCES * room + SOURCES * off, on_device, n_src, COUNT);
    CUDA(cudaMemcpy(got.data(), memory + SOURCES * room + SOURCES * off, bytes,
                    cudaMemcpyDeviceToHost));
    return memcmp(got.data(), expected.data(), bytes) == 0;
}

static int check_bits(enum way way)
{
    int wrong = 0;
    for (int type = 0; type < HOOP_NUM_DATATYPES; type++) {
        for (int op = 0; op < HOOP_NUM_OPS; op++) {
            for (size_t off : {(size_t)0, hoop_datatype_bytes((hoop_datatype_t)type), (size_t)1}) {
                for (unsigned n_src : {2u, (unsigned)SOURCES}) {
                    if (!same_bits(way, (hoop_datatype_t)type, (hoop_red_op_t)op, off, n_src)) {
                        printf("WRONG: %s, op %d, %u vectors %zu bytes off, told by %s\n",
                               type_names[type], op, n_src, off, way_names[way]);
                        wrong++;
                    }
                }
            }
        }
    }
    return wrong;
}

static const hoop_datatype_t measured[] = {HOOP_FLOAT32, HOOP_BFLOAT16, HOOP_FLOAT8E4M3};

/* ---- Rates ---- */

static double time_ms(const std::function<void()> &what)
{
    static cudaEvent_t from, to;
    float ms = 0;
    if (from == NULL) {
        CUDA(cudaEventCreate(&from));
        CUDA(cudaEventCreate(&to));
    }
    CUDA(cudaEventRecord(from));
    what();
    CUDA(cudaEventRecord(to));
    CUDA(cudaEventSynchronize(to));
    CUDA(cudaEventElapsedTime(&ms, from, to));
    return ms;
}

/* Launches that are timed together, so that the latency of the first one does not count. */
#define IN_A_ROW 8

/* The rate of a sum of n_src sources of `bytes` bytes, and of a copy that moves as many bytes in
 * all. */
static void rate(hoop_datatype_t type, unsigned n_src, size_t bytes, unsigned char *memory)
{
    const struct hoop_reduction reduction = {type, HOOP_SUM, 0};
    const void *src[HOOP_CUDA_FOLD_MOST];
    std::vector<double> folds, copies;
    for (unsigned s = 0; s < n_src; s++) {
        src[s] = memory + s * bytes;
    }
    unsigned char *const dst = memory + n_src * bytes;
    const size_t moved = (n_src + 1) * bytes, half = moved / 2;
    for (int round = 0; round < 23; round++) {
        const double fold = time_ms([&] {
            for (int i = 0; i < IN_A_ROW; i++) {
                launch(BY_ARGUMENT, &reduction, dst, src, n_src, bytes / hoop_datatype_bytes(type));
            }
        });
        const double copy = time_ms([&] {
            for (int i = 0; i < IN_A_ROW; i++) {
                CUDA(cudaMemcpyAsync(memory + half, memory, half, cudaMemcpyDeviceToDevice));
            }
        });
        if (round >= 2) {
            folds.push_back(fold);
            copies.push_back(copy);
        }
    }
    std::sort(folds.begin(), folds.end());
    std::sort(copies.begin(), copies.end());
    const double fold = IN_A_ROW * moved / folds[folds.size() / 2] / 1e6;
    const double copy = IN_A_ROW * moved / copies[copies.size() / 2] / 1e6;
    printf("%-9s %7u %11zu %10.0f %10.0f %8.3f\n", type_names[type], n_src, bytes, fold, copy,
           fold / copy);
}

/* The time of the same sum, with the argument told in each way in turn. */
static void rate_late(hoop_datatype_t type, unsigned n_src, size_t bytes, unsigned char *memory)
{
    const struct hoop_reduction reduction = {type, HOOP_SUM, 0};
    const void *src[HOOP_CUDA_FOLD_MOST];
    std::vector<double> took[WAYS];
    for (unsigned s = 0; s < n_src; s++) {
        src[s] = memory + s * bytes;
    }
    for (int round = 0; round < 23; round++) {
        for (int way = 0; way < WAYS; way++) {
            took[way].push_back(time_ms([&] {
                for (int i = 0; i < IN_A_ROW; i++) {
                    launch((enum way)way, &reduction, memory + n_src * bytes, src, n_src,
                           bytes / hoop_datatype_bytes(type));
                }
            }));
        }
    }
    for (int way = 0; way < WAYS; way++) {
        std::sort(took[way].begin(), took[way].end());
        const double us = took[way][took[way].size() / 2] / IN_A_ROW * 1e3;
        printf("%-9s %-9s %7u %11zu %10.1f %10.0f %8.3f\n", way_names[way], type_names[type], n_src,
               bytes, us, (n_src + 1) * bytes / us / 1e3,
               took[BY_ARGUMENT][took[way].size() / 2] / IN_A_ROW * 1e3 / us);
    }
}

int main(int argc, char **argv)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    const long mib = argc > 1 ? strtol(argv[1], NULL, 10) : 256;
    if (mib < 1 || mib > 4096) {
        fprintf(stderr, "usage: reduce_kernel_perf [MiB, 1 to 4096]\n");
        return 2;
    }
    const size_t bytes = (size_t)mib << 20;
    unsigned char *memory = NULL;
    const int wrong = check_bits(BY_ARGUMENT), late = check_bits(BY_MEMORY);
    const int checked = HOOP_NUM_DATATYPES * HOOP_NUM_OPS * 6;
    printf("# bits: %d wrong of %d, and %d of %d told late\n", wrong, checked, late, checked);
    CUDA(cudaMalloc(&memory, 9 * bytes));
    CUDA(cudaMemset(memory, 0, 9 * bytes));
    printf("# type    sources       bytes  GB/s fold  GB/s copy    ratio\n");
    for (hoop_datatype_t type : measured) {
        for (unsigned n_src : {2u, 8u}) {
            rate(type, n_src, bytes, memory);
        }
    }
    printf("# told by type      sources       bytes         us       GB/s of argument\n");
    for (hoop_datatype_t type : measured) {
        rate_late(type, 2, (size_t)1 << 20, memory);
        rate_late(type, 2, bytes, memory);
        rate_late(type, 8, bytes, memory);
    }
    return wrong + late == 0 ? 0 : 7;
}
