/*
 * The folds of reduce.h on a CUDA device: what a kernel is told, and which kernel it is. The
 * kernels are in reduce_cuda.cu; who launches them is above. Nothing here needs a CUDA header.
 *
 * The same bits as hoop_fold(), whatever the alignment, count and number of threads.
 */
#ifndef HOOP_REDUCE_CUDA_H
#define HOOP_REDUCE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include "reduce/reduce.h"

/* Sources, and destinations, of one launch: its argument must fit into 4 KiB, and is copied by
 * each launch. */
#define HOOP_CUDA_FOLD_MOST 64
/* Threads of a block, whatever the kernel; blocks: any number. */
#define HOOP_CUDA_FOLD_THREADS 256
/* Packs of 16 bytes that a thread folds at once, where there are so many for all of a block. */
#define HOOP_CUDA_FOLD_PACKS 2

/* A vector of whole packs of 16 bytes, and loose elements before and behind them. */
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
    uint64_t factor[HOOP_CUDA_FOLD_MOST]; /* of each source; its first bytes are an element */
};

/* sum, prod, max, min, and sum of what is first multiplied by its source's factor */
#define HOOP_CUDA_FOLD_OPS 5

typedef const char hoop_cuda_kernel_name_t[48];
/* Symbols of the device code, one kernel for each; the argument of all is a struct hoop_cuda_fold.
 */
extern hoop_cuda_kernel_name_t hoop_cuda_kernel_names[HOOP_NUM_DATATYPES][HOOP_CUDA_FOLD_OPS];

/*
 * All but the scaled ones once more, as kernels that are told what they fold when they begin: their
 * argument is where that lies on the device, the first HOOP_CUDA_TOLD_BYTES of a struct
 * hoop_cuda_fold, at a multiple of 8. All zero it is nothing.
 */
#define HOOP_CUDA_TOLD_OPS 4
#define HOOP_CUDA_TOLD_BYTES offsetof(struct hoop_cuda_fold, factor)
extern hoop_cuda_kernel_name_t hoop_cuda_told_names[HOOP_NUM_DATATYPES][HOOP_CUDA_TOLD_OPS];

/* Blocks that have work in a fold of so many elements, where all vectors can be read in packs. */
uint64_t hoop_cuda_fold_blocks(hoop_datatype_t type, size_t count);

/* The device code, as the driver loads it. */
extern const unsigned char hoop_cuda_image[];

/* What to launch: which of them, with what, and how many blocks have work. */
struct hoop_cuda_launch {
    struct hoop_cuda_fold fold;
    hoop_datatype_t type;
    unsigned op;
    uint64_t blocks;
};

/*
 * Describes the fold that hoop_fold() would do with these arguments; n_src and n_dst at most
 * HOOP_CUDA_FOLD_MOST. factors: NULL, or n_src elements (in the first bytes of each) by which the
 * sources are multiplied first, each product rounded to the type; the op is then sum or avg.
 */
void hoop_cuda_fold_make(const struct hoop_reduction *reduction, void *const *dst, unsigned n_dst,
                         const void *const *src, unsigned n_src, const uint64_t *factors,
                         size_t count, struct hoop_cuda_launch *ret);

#endif
