/* Steps on a device (see device_worker.h). */
#include "staging/device_worker.h"

#include "staging/kernels.h"

#include <string.h>

static hoop_result_t worker_fold(void *arg, const struct hoop_reduction *reduction,
                                 void *const *dst, unsigned n_dst, const void *const *src,
                                 unsigned n_src, const uint64_t *factors, size_t count)
{
    struct hoop_staging *staging = arg;
    struct hoop_cuda_launch launch;
    hoop_result_t result = hoop_staging_enter(staging);
    if (result == HOOP_OK) {
        staging->state = HOOP_STAGING_LAUNCHED;
        hoop_cuda_fold_make(reduction, dst, n_dst, src, n_src, factors, count, &launch);
        result = hoop_kernels_launch(staging->kernels, &launch, staging->work);
        hoop_staging_leave();
    }
    return result;
}

/* A kernel that copies to several at once reads only once. */
static hoop_result_t worker_copy(void *arg, void *const *to, unsigned n_to, const void *from,
                                 size_t bytes)
{
    struct hoop_staging *staging = arg;
    const struct hoop_reduction copies = {.type = HOOP_UINT8, .op = HOOP_SUM};
    if (n_to > 1 && n_to <= HOOP_CUDA_FOLD_MOST && staging->kernels != NULL) {
        return worker_fold(arg, &copies, to, n_to, &from, 1, NULL, bytes);
    }
    hoop_result_t result = hoop_staging_enter(staging);
    if (result != HOOP_OK) {
        return result;
    }
    staging->state = HOOP_STAGING_LAUNCHED;
    for (unsigned i = 0; i < n_to && result == HOOP_OK; i++) {
        result = hoop_cuda_check("cuMemcpyAsync", hoop_cuda.copy((uintptr_t)to[i], (uintptr_t)from,
                                                                 bytes, staging->work));
    }
    hoop_staging_leave();
    return result;
}

static hoop_result_t worker_end(void *arg)
{
    return hoop_staging_mark(arg);
}

static hoop_result_t worker_over(void *arg)
{
    return hoop_staging_poll(arg);
}

struct hoop_board_worker hoop_device_worker(struct hoop_staging *staging)
{
    return (struct hoop_board_worker){
        .copy = worker_copy,
        .fold = worker_fold,
        .end = worker_end,
        .over = worker_over,
        .arg = staging,
    };
}

/* ---- Told ----------------------------------------------------------------------------------- */

struct hoop_reduction hoop_told_reduction(const struct hoop_told *told,
                                          const struct hoop_signature *signature, uint32_t n,
                                          size_t *ret_count)
{
    const enum hoop_collective collective = (enum hoop_collective)signature->collective;
    const hoop_datatype_t type = (hoop_datatype_t)signature->type;
    const size_t bytes = signature->count * hoop_datatype_bytes(type);
    if (hoop_collectives[collective].folds) {
        const bool shares =
            told->how == HOOP_LAUNCHED_EACH && !hoop_collective_is_blocked(collective);
        *ret_count = shares ? signature->count / n + 1 : signature->count;
        return (struct hoop_reduction){.type = type, .op = (hoop_red_op_t)signature->op};
    }
    const hoop_datatype_t as = hoop_cuda_copy_type(bytes);
    *ret_count = bytes / hoop_datatype_bytes(as);
    return (struct hoop_reduction){.type = as, .op = HOOP_SUM};
}

static hoop_result_t told_fold(void *arg, const struct hoop_reduction *reduction, void *const *dst,
                               unsigned n_dst, const void *const *src, unsigned n_src,
                               const uint64_t *factors, size_t count)
{
    struct hoop_told *told = arg;
    struct hoop_cuda_launch launch;
    if (told->fold == NULL || told->told == told->pieces || factors != NULL) {
        return hoop_error(HOOP_INTERNAL_ERROR, "a launched call has no kernel for %zu elements",
                          count);
    }
    hoop_cuda_fold_make(reduction, dst, n_dst, src, n_src, NULL, count, &launch);
    memcpy(told->fold + told->told * HOOP_CUDA_TOLD_APART, &launch.fold, HOOP_CUDA_TOLD_BYTES);
    told->told++;
    return HOOP_OK;
}

static hoop_result_t told_copy(void *arg, void *const *to, unsigned n_to, const void *from,
                               size_t bytes)
{
    const struct hoop_reduction copies = {.type = HOOP_UINT8, .op = HOOP_SUM};
    return told_fold(arg, &copies, to, n_to, &from, 1, NULL, bytes);
}

void hoop_told_tell_nothing(const struct hoop_told *told)
{
    if (told->fold != NULL && atomic_load(told->go) != told->let) {
        memset(told->fold + told->told * HOOP_CUDA_TOLD_APART, 0,
               (told->pieces - told->told) * HOOP_CUDA_TOLD_APART);
    }
}

void hoop_told_break(struct hoop_told *told, size_t count)
{
    for (size_t i = 0; i < count && told != NULL; i++) {
        atomic_store(&told[i].broken, true);
    }
}

static void told_nap(const struct hoop_told *told, bool awaits)
{
    if (told->naps != NULL) {
        *told->naps = awaits;
    }
}

static hoop_result_t told_end(void *arg)
{
    const struct hoop_told *told = arg;
    hoop_told_tell_nothing(told); /* in place there may be less to copy */
    atomic_store_explicit(told->go, told->let, memory_order_release);
    told_nap(told, true);
    return HOOP_OK;
}

/* A rank whose share is empty has told nothing. Its hold would keep back the kernels of other ranks
 * here whose streams share a queue with its own. */
static void told_pass(void *arg)
{
    const struct hoop_told *told = arg;
    if (told->fold != NULL) {
        hoop_told_tell_nothing(told);
        atomic_store_explicit(told->go, told->let, memory_order_release);
    }
}

static hoop_result_t told_over(void *arg)
{
    const struct hoop_told *told = arg;
    const uint32_t came = atomic_load_explicit(told->came, memory_order_acquire);
    const bool over = (int32_t)(came - told->over) >= 0;
    told_nap(told, !over);
    return over ? HOOP_OK
           : atomic_load(&told->broken)
               ? hoop_error(HOOP_CUDA_ERROR, "the device has failed before a launched kernel ended")
               : HOOP_AGAIN;
}

struct hoop_board_worker hoop_told_worker(struct hoop_told *told)
{
    return (struct hoop_board_worker){
        .copy = told_copy,
        .fold = told_fold,
        .end = told_end,
        .over = told_over,
        .pass = told_pass,
        .arg = told,
    };
}
