/* The kernels in a context (see kernels.h). */
#include "staging/kernels.h"

#include "base/log.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The most blocks of a launch: CUDA's limit. An H200 moves more with as many blocks as there is
 * work for than with those that it can run at once. */
#define KERNELS_MOST_BLOCKS INT32_MAX

struct hoop_kernels {
    hoop_cu_context_t context;
    bool there;
    hoop_cu_function_t functions[HOOP_NUM_DATATYPES][HOOP_CUDA_FOLD_OPS];
    hoop_cu_function_t told[HOOP_NUM_DATATYPES][HOOP_CUDA_TOLD_OPS];
    struct hoop_kernels *next;
};

static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hoop_kernels *kernels_loaded; /* one for each context, also where loading failed */

/* Finds a kernel and loads it now. Otherwise the driver may load it at its first launch, and wait
 * for all streams then, while one is held. */
static hoop_result_t kernels_find_one(hoop_cu_module_t module, const char *name,
                                      hoop_cu_function_t *ret)
{
    char call[128];
    int error = hoop_cuda.module_function(ret, module, name);
    if (error == HOOP_CU_SUCCESS && hoop_cuda.function_load != NULL) {
        error = hoop_cuda.function_load(*ret);
    }
    (void)snprintf(call, sizeof(call), "loading %.100s", name);
    return hoop_cuda_check(call, error);
}

static hoop_result_t kernels_find(struct hoop_kernels *kernels, hoop_cu_module_t module)
{
    hoop_result_t result = HOOP_OK;
    for (size_t type = 0; type < HOOP_NUM_DATATYPES; type++) {
        for (size_t op = 0; op < HOOP_CUDA_FOLD_OPS && result == HOOP_OK; op++) {
            result = kernels_find_one(module, hoop_cuda_kernel_names[type][op],
                                      &kernels->functions[type][op]);
        }
        for (size_t op = 0; op < HOOP_CUDA_TOLD_OPS && result == HOOP_OK; op++) {
            result =
                kernels_find_one(module, hoop_cuda_told_names[type][op], &kernels->told[type][op]);
        }
    }
    return result;
}

static hoop_result_t kernels_init(struct hoop_kernels *kernels)
{
    hoop_cu_module_t module = NULL;
    const hoop_result_t result =
        hoop_cuda_check("cuModuleLoadData", hoop_cuda.module_load(&module, hoop_cuda_image));
    return result == HOOP_OK ? kernels_find(kernels, module) : result;
}

/* With the lock. */
static struct hoop_kernels *kernels_of(hoop_cu_context_t context)
{
    struct hoop_kernels *at = kernels_loaded;
    while (at != NULL && at->context != context) {
        at = at->next;
    }
    return at;
}

const struct hoop_kernels *hoop_kernels_load(hoop_cu_context_t context)
{
    pthread_mutex_lock(&kernels_lock);
    struct hoop_kernels *found = kernels_of(context);
    if (found == NULL && (found = calloc(1, sizeof(*found))) != NULL) {
        found->context = context;
        found->there = kernels_init(found) == HOOP_OK;
        found->next = kernels_loaded;
        kernels_loaded = found;
        if (!found->there) {
            hoop_log(HOOP_LOG_INFO, HOOP_LOG_MEM,
                     "no kernels for this device, sums go through host memory: %s",
                     hoop_thread_error());
        }
    }
    pthread_mutex_unlock(&kernels_lock);
    return found != NULL && found->there ? found : NULL;
}

hoop_result_t hoop_kernels_pass(const struct hoop_kernels *kernels, hoop_stream_t stream)
{
    struct hoop_cuda_launch nothing = {.type = HOOP_UINT8, .blocks = 1};
    return hoop_kernels_launch(kernels, &nothing, stream);
}

static hoop_result_t kernels_launch(hoop_cu_function_t function, uint64_t blocks, unsigned rows,
                                    void *argument, hoop_stream_t stream)
{
    const unsigned most = (unsigned)(blocks < KERNELS_MOST_BLOCKS ? blocks : KERNELS_MOST_BLOCKS);
    void *arguments[] = {argument};
    if (blocks == 0) {
        return HOOP_OK;
    }
    return hoop_cuda_check("cuLaunchKernel",
                           hoop_cuda.launch(function, most, rows, 1, HOOP_CUDA_FOLD_THREADS, 1, 1,
                                            0, stream, arguments, NULL));
}

hoop_result_t hoop_kernels_launch(const struct hoop_kernels *kernels,
                                  const struct hoop_cuda_launch *launch, hoop_stream_t stream)
{
    return kernels_launch(kernels->functions[launch->type][launch->op], launch->blocks, 1,
                          (void *)(uintptr_t)&launch->fold, stream);
}

hoop_result_t hoop_kernels_launch_told(const struct hoop_kernels *kernels,
                                       const struct hoop_reduction *reduction, size_t count,
                                       hoop_cu_address_t told, unsigned rows, hoop_stream_t stream)
{
    const unsigned op = reduction->op == HOOP_AVG ? HOOP_SUM : reduction->op;
    return kernels_launch(kernels->told[reduction->type][op],
                          hoop_cuda_fold_blocks(reduction->type, count), rows, &told, stream);
}
