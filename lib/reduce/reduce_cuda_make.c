/* Describes a fold for the kernels (see reduce_cuda.h). */
#include "reduce/reduce_cuda.h"

#include <assert.h>
#include <string.h>

#define PACK_BYTES 16

#define NAMES(type, value, bytes, text)                                                            \
    [type] = {"hoop_fold_sum_" #type, "hoop_fold_prod_" #type, "hoop_fold_max_" #type,             \
              "hoop_fold_min_" #type, "hoop_fold_scaled_" #type},
hoop_cuda_kernel_name_t hoop_cuda_kernel_names[HOOP_NUM_DATATYPES][HOOP_CUDA_FOLD_OPS] = {
    HOOP_DATATYPES(NAMES)};
#undef NAMES
#define NAMES(type, value, bytes, text)                                                            \
    [type] = {"hoop_told_sum_" #type, "hoop_told_prod_" #type, "hoop_told_max_" #type,             \
              "hoop_told_min_" #type},
hoop_cuda_kernel_name_t hoop_cuda_told_names[HOOP_NUM_DATATYPES][HOOP_CUDA_TOLD_OPS] = {
    HOOP_DATATYPES(NAMES)};
#undef NAMES
_Static_assert(HOOP_CUDA_TOLD_BYTES % 8 == 0 && HOOP_CUDA_TOLD_BYTES / 8 <= HOOP_CUDA_FOLD_THREADS,
               "a block copies it, a word each thread at most");

/* Of all addresses: the bits in which any differs from the first one, and the bits set in any. */
struct alignment {
    uintptr_t differs;
    uintptr_t any;
};

static struct alignment fold_alignment(const struct hoop_cuda_fold *fold)
{
    const uintptr_t first = (uintptr_t)fold->src[0];
    struct alignment found = {0, 0};
    for (uint32_t s = 0; s < fold->n_src; s++) {
        found.differs |= first ^ (uintptr_t)fold->src[s];
        found.any |= (uintptr_t)fold->src[s];
    }
    for (uint32_t d = 0; d < fold->n_dst; d++) {
        found.differs |= first ^ (uintptr_t)fold->dst[d];
        found.any |= (uintptr_t)fold->dst[d];
    }
    return found;
}

/* Divides the vectors into packs and loose elements. There are packs only if the same number of
 * head elements brings all vectors to a boundary of 16 bytes. */
static void fold_cut(struct hoop_cuda_fold *fold, size_t size, size_t count)
{
    assert(size > 0);
    const struct alignment found = fold_alignment(fold);
    const size_t head = (0 - (uintptr_t)fold->src[0]) % PACK_BYTES / size;
    fold->natural = found.any % size == 0;
    fold->loose = count;
    if (fold->natural && found.differs % PACK_BYTES == 0 && head < count) {
        fold->head = head;
        fold->packs = (count - head) * size / PACK_BYTES;
        fold->loose = count - fold->packs * PACK_BYTES / size;
    }
}

static uint64_t fold_blocks(uint64_t packs, uint64_t loose)
{
    const uint64_t tiles = (packs + HOOP_CUDA_FOLD_PACKS - 1) / HOOP_CUDA_FOLD_PACKS;
    const uint64_t most = tiles > loose ? tiles : loose;
    return (most + HOOP_CUDA_FOLD_THREADS - 1) / HOOP_CUDA_FOLD_THREADS;
}

uint64_t hoop_cuda_fold_blocks(hoop_datatype_t type, size_t count)
{
    return fold_blocks(count * hoop_datatype_bytes(type) / PACK_BYTES, count > 0 ? 1 : 0);
}

void hoop_cuda_fold_make(const struct hoop_reduction *reduction, void *const *dst, unsigned n_dst,
                         const void *const *src, unsigned n_src, const uint64_t *factors,
                         size_t count, struct hoop_cuda_launch *ret)
{
    assert(n_src >= 1 && n_src <= HOOP_CUDA_FOLD_MOST);
    assert(n_dst >= 1 && n_dst <= HOOP_CUDA_FOLD_MOST);
    const uint32_t by = reduction->divisor == 0 ? 1 : reduction->divisor;
    size_t size = hoop_datatype_bytes(reduction->type);
    const unsigned op = reduction->op == HOOP_AVG ? HOOP_SUM : reduction->op;
    ret->type = reduction->type;
    ret->op = factors != NULL ? HOOP_CUDA_FOLD_OPS - 1 : op;
    if (n_src == 1 && reduction->divisor == 0 && factors == NULL) {
        /* A copy must keep all bits, so it is done with integers. */
        ret->type = hoop_cuda_copy_type(count * size);
        ret->op = HOOP_SUM;
        count = count * size / hoop_datatype_bytes(ret->type);
        size = hoop_datatype_bytes(ret->type);
    }
    struct hoop_cuda_fold *const fold = &ret->fold;
    memset(fold, 0, offsetof(struct hoop_cuda_fold, src));
    fold->divisor = reduction->divisor;
    fold->reciprocal_f32 = 1.0f / (float)by;
    fold->reciprocal_f64 = 1.0 / (double)by;
    fold->n_src = n_src;
    fold->n_dst = n_dst;
    memcpy(fold->src, src, n_src * sizeof(*src));
    memcpy(fold->dst, dst, n_dst * sizeof(*dst));
    if (factors != NULL) {
        memcpy(fold->factor, factors, n_src * sizeof(*factors));
    }
    fold_cut(fold, size, count);
    ret->blocks = fold_blocks(fold->packs, fold->loose);
}
