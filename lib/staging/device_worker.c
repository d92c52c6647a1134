/* Steps on a device (see device_worker.h). */
#include "staging/device_worker.h"

#include "staging/kernels.h"

static hoop_result_t worker_copy(void *arg, void *to, const void *from, size_t bytes)
{
    struct hoop_staging *staging = arg;
    hoop_result_t result = hoop_staging_enter(staging);
    if (result == HOOP_OK) {
        staging->state = HOOP_STAGING_LAUNCHED;
        result = hoop_cuda_check(
            "cuMemcpyAsync", hoop_cuda.copy((uintptr_t)to, (uintptr_t)from, bytes, staging->work));
        hoop_staging_leave();
    }
    return result;
}

static hoop_result_t worker_fold(void *arg, const struct hoop_reduction *reduction,
                                 void *const *dst, unsigned n_dst, const void *const *src,
                                 unsigned n_src, size_t count)
{
    struct hoop_staging *staging = arg;
    struct hoop_cuda_launch launch;
    hoop_result_t result = hoop_staging_enter(staging);
    if (result == HOOP_OK) {
        staging->state = HOOP_STAGING_LAUNCHED;
        hoop_cuda_fold_make(reduction, dst, n_dst, src, n_src, NULL, count, &launch);
        result = hoop_kernels_launch(staging->kernels, &launch, staging->work);
        hoop_staging_leave();
    }
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
