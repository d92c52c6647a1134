/*
 * The folds of reduce.h on a CUDA device: the arguments and the names of the kernels, which are in
 * reduce_cuda.cu and are launched by lib/staging. Nothing here needs a CUDA header.
 *
 * The results have the same bits as those of hoop_fold(), whatever the alignment, count and number
 * of threads.
 */
#ifndef HOOP_REDUCE_CUDA_H
#define HOOP_REDUCE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include "reduce/reduce.h"

/* The most sources, and the most destinations, of a launch: its argument, which each launch copies,
 * must fit into 4 KiB. */
#define HOOP_CUDA_FOLD_MOST 64
/* Threads of a block, for all kernels; the number of blocks is free. */
#define HOOP_CUDA_FOLD_THREADS 256
/* Packs of 16 bytes that each thread of a block folds at once, in whole tiles. */
#define HOOP_CUDA_FOLD_PACKS 2

/* The argument of the kernels. Each vector consists of whole packs of 16 bytes, and loose elements
 * before and behind them. */
struct hoop_cuda_fold {
    uint64_t packs;
    uint64_t head;  /* loose elements before the packs */
    uint64_t loose; /* all loose elements */
    double reciprocal_f64;
    float reciprocal_f32;
    uint32_t divisor; /* as in struct hoop_reduction */
    uint32_t n_src;
    uint32_t n_dst;
    bool natural; /* every vector is aligned to its elements */
    const void *src[HOOP_CUDA_FOLD_MOST];
    void *dst[HOOP_CUDA_FOLD_MOST];
    uint64_t factor[HOOP_CUDA_FOLD_MOST]; /* of each source: an element in its first bytes */
};

/* sum, prod, max, min; and scaled: the sum of sources that are first multiplied by their factors */
#define HOOP_CUDA_FOLD_OPS 5

typedef const char hoop_cuda_kernel_name_t[48];
/* The kernels' symbols in the device code. Each takes a struct hoop_cuda_fold. */
extern hoop_cuda_kernel_name_t hoop_cuda_kernel_names[HOOP_NUM_DATATYPES][HOOP_CUDA_FOLD_OPS];

/*
 * The same without the scaled ones, as kernels that are told what they fold only when they begin:
 * their argument is the address on the device, a multiple of 8, of the first HOOP_CUDA_TOLD_BYTES
 * of a struct hoop_cuda_fold for each row of blocks. If these are all zero the row does nothing.
 */
#define HOOP_CUDA_TOLD_OPS 4
#define HOOP_CUDA_TOLD_BYTES offsetof(struct hoop_cuda_fold, factor)
/* Bytes from what one row is told to what the next one is. */
#define HOOP_CUDA_TOLD_APART ((HOOP_CUDA_TOLD_BYTES + 63) / 64 * 64)
extern hoop_cuda_kernel_name_t hoop_cuda_told_names[HOOP_NUM_DATATYPES][HOOP_CUDA_TOLD_OPS];

/* How many blocks have work in a fold of count elements, if all vectors can be read in packs. */
uint64_t hoop_cuda_fold_blocks(hoop_datatype_t type, size_t count);

/* The type of the kernels that copy so many bytes: those for a sum with one source. */
static inline hoop_datatype_t hoop_cuda_copy_type(size_t bytes)
{
    return bytes % 4 == 0 ? HOOP_UINT32 : HOOP_UINT8;
}

/* The device code, as the driver loads it. */
extern const unsigned char hoop_cuda_image[];

/* A launch: the kernel (type and op), its argument, and how many blocks have work. */
struct hoop_cuda_launch {
    struct hoop_cuda_fold fold;
    hoop_datatype_t type;
    unsigned op;
    uint64_t blocks;
};

/*
 * Describes the launch that does what hoop_fold() would do with these arguments; n_src and n_dst
 * are at most HOOP_CUDA_FOLD_MOST. factors: NULL, or for each source the element (in the first
 * bytes) by which it is multiplied first, with each product rounded to the type; the op must then
 * be sum or avg.
 */
void hoop_cuda_fold_make(const struct hoop_reduction *reduction, void *const *dst, unsigned n_dst,
                         const void *const *src, unsigned n_src, const uint64_t *factors,
                         size_t count, struct hoop_cuda_launch *ret);

#endif
