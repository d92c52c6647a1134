/* The kernels of the fake driver (see fake_cuda.h): those of lib/reduce and of the benchmarks, as
 * plain C. */
#include "fakes/fake_cuda.h"
#include "fakes/fake_cuda_inside.h"

#include <stdlib.h>

#undef NDEBUG /* for its checks of alignment */
#include "reduce/cuda_on_cpu.h"
#include "reduce/reduce_cuda.cu"

#include "perf/perf_kernels.cu"

typedef void fold_t(const struct hoop_cuda_fold fold);
typedef void told_t(const struct hoop_cuda_fold *fold);
typedef void perf_t(const struct perf_work work);

struct hoop_cu_function {
    fold_t *fold; /* NULL: a kernel that is told later, or one of the benchmarks */
    told_t *told;
    hoop_datatype_t type;
    perf_t *perf;
    const struct hoop_cu_context *context; /* in which it was loaded */
    bool loaded;
};

struct fake_kernel {
    struct hoop_cu_function *function;
    union { /* its argument, with vectors by device address */
        struct hoop_cuda_fold fold;
        struct perf_work perf;
    } told;
    size_t bytes; /* of each vector */
    /* of a kernel that is told when it begins: where the host finds that; else NULL */
    const unsigned char *told_at;
    bool heard, fails; /* heard: it was told; fails: to fold memory that the device can't access */
};

#define KERNELS(name, value, bytes, text)                                                          \
    [name] = {{.fold = hoop_fold_sum_##name, .type = (name)},                                      \
              {.fold = hoop_fold_prod_##name, .type = (name)},                                     \
              {.fold = hoop_fold_max_##name, .type = (name)},                                      \
              {.fold = hoop_fold_min_##name, .type = (name)},                                      \
              {.fold = hoop_fold_scaled_##name, .type = (name)}},
static const struct hoop_cu_function kernels[HOOP_NUM_DATATYPES][HOOP_CUDA_FOLD_OPS] = {
    HOOP_DATATYPES(KERNELS)};
#undef KERNELS
#define KERNELS(name, value, bytes, text)                                                          \
    [name] = {{.told = hoop_told_sum_##name, .type = (name)},                                      \
              {.told = hoop_told_prod_##name, .type = (name)},                                     \
              {.told = hoop_told_max_##name, .type = (name)},                                      \
              {.told = hoop_told_min_##name, .type = (name)}},
static const struct hoop_cu_function told_kernels[HOOP_NUM_DATATYPES][HOOP_CUDA_TOLD_OPS] = {
    HOOP_DATATYPES(KERNELS)};
#undef KERNELS

/* There is one in each context. */
struct hoop_cu_module {
    struct hoop_cu_function functions[HOOP_NUM_DATATYPES][HOOP_CUDA_FOLD_OPS];
    struct hoop_cu_function told[HOOP_NUM_DATATYPES][HOOP_CUDA_TOLD_OPS];
    struct hoop_cu_function write, compare;
};

static struct hoop_cu_module modules[FAKE_CONTEXTS];
static unsigned delay_us, refused_in, launches;

/* A kernel with this name, which a program may bring along besides those of lib/reduce. */
#define ILLEGAL "illegal"
static struct hoop_cu_function illegal;

static void kernel_store_to_nowhere(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&fake_lock);
    fake_broken = true;
    pthread_mutex_unlock(&fake_lock);
}

int fake_module_load(hoop_cu_module_t *ret, const void *image)
{
    *ret = &modules[fake_context_number(fake_context())];
    if ((*ret)->write.context == NULL) { /* else its kernels are in use */
        memcpy((*ret)->functions, kernels, sizeof(kernels));
        memcpy((*ret)->told, told_kernels, sizeof(told_kernels));
        (*ret)->write = (struct hoop_cu_function){.perf = perf_write, .context = fake_context()};
        (*ret)->compare =
            (struct hoop_cu_function){.perf = perf_compare, .context = fake_context()};
    }
    return fake_has_context() && image != NULL ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_CONTEXT;
}

/* NULL: there is none of that name. */
static struct hoop_cu_function *fold_find(struct hoop_cu_module *module, const char *name)
{
    struct hoop_cu_function *found = NULL;
    for (size_t type = 0; type < HOOP_NUM_DATATYPES; type++) {
        for (size_t op = 0; op < HOOP_CUDA_FOLD_OPS; op++) {
            if (strcmp(hoop_cuda_kernel_names[type][op], name) == 0) {
                found = &module->functions[type][op];
            }
        }
        for (size_t op = 0; op < HOOP_CUDA_TOLD_OPS; op++) {
            if (strcmp(hoop_cuda_told_names[type][op], name) == 0) {
                found = &module->told[type][op];
            }
        }
    }
    return found;
}

int fake_module_function(hoop_cu_function_t *ret, hoop_cu_module_t module, const char *name)
{
    if (strcmp(name, ILLEGAL) == 0) {
        *ret = &illegal;
        return HOOP_CU_SUCCESS;
    }
    if (getenv("FAKE_CUDA_NO_KERNELS") != NULL) {
        return HOOP_CU_NOT_FOUND;
    }
    if (strcmp(name, PERF_KERNEL_WRITE) == 0 || strcmp(name, PERF_KERNEL_COMPARE) == 0) {
        *ret = strcmp(name, PERF_KERNEL_WRITE) == 0 ? &module->write : &module->compare;
        return HOOP_CU_SUCCESS;
    }
    *ret = fold_find(module, name);
    if (*ret == NULL) {
        return HOOP_CU_NOT_FOUND;
    }
    (*ret)->context = fake_context();
    return HOOP_CU_SUCCESS;
}

/* Like CUDA with CUDA_MODULE_LOADING=LAZY: a kernel is loaded when that is asked for, or at its
 * first launch, which then waits for all streams. With the lock. */
static void function_load(struct hoop_cu_function *function)
{
    if (!function->loaded) {
        fake_wait_for_all();
        function->loaded = true;
    }
}

int fake_function_load(hoop_cu_function_t function)
{
    pthread_mutex_lock(&fake_lock);
    function_load(function);
    pthread_mutex_unlock(&fake_lock);
    return fake_has_context() ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_CONTEXT;
}

/* Where the host finds a vector of the kernel. NULL and *there false: the device can't
 * access it. */
static void *vector_resolve(const struct fake_kernel *kernel, const void *vector, size_t bytes,
                            bool *there)
{
    const uintptr_t at = (uintptr_t)vector;
    unsigned char *found =
        fake_on_device(at) ? fake_resolve(at, bytes, kernel->function->context) : NULL;
    *there &= found != NULL;
    return found;
}

/* False: the device can't access one of the vectors. With the lock. */
static bool kernel_resolve(struct fake_kernel *kernel)
{
    struct hoop_cuda_fold *fold = &kernel->told.fold;
    struct perf_work *work = &kernel->told.perf;
    bool there = true;
    if (kernel->function->perf != NULL) {
        work->at = vector_resolve(kernel, work->at, kernel->bytes, &there);
        work->found = work->found != NULL
                          ? vector_resolve(kernel, work->found, sizeof(uint64_t), &there)
                          : NULL;
        return there;
    }
    for (uint32_t s = 0; s < fold->n_src; s++) {
        fold->src[s] = vector_resolve(kernel, fold->src[s], kernel->bytes, &there);
    }
    for (uint32_t d = 0; d < fold->n_dst; d++) {
        fold->dst[d] = vector_resolve(kernel, fold->dst[d], kernel->bytes, &there);
    }
    return there;
}

struct fake_kernel *fake_kernel_copy(const struct fake_kernel *kernel)
{
    struct fake_kernel *copy = kernel != NULL ? malloc(sizeof(*copy)) : NULL;
    if (copy != NULL) {
        *copy = *kernel;
    }
    return copy;
}

static int kernel_push(const struct fake_kernel *what, hoop_stream_t stream)
{
    struct fake_kernel *kernel = fake_kernel_copy(what);
    if (kernel == NULL) {
        return HOOP_CU_OUT_OF_MEMORY;
    }
    const struct fake_task task = {.kind = FAKE_KERNEL, .kernel = kernel, .delay_us = delay_us};
    bool there = true;
    if (kernel->function->told != NULL) {
        kernel->told_at = vector_resolve(kernel, kernel->told_at, HOOP_CUDA_TOLD_BYTES, &there);
    } else {
        there = kernel_resolve(kernel);
    }
    fake_broken |= !there;
    const int result = fake_push(stream, &task);
    if (result != HOOP_CU_SUCCESS) {
        free(kernel);
    }
    return result;
}

/* Each row of blocks, of a kernel that is told later, as a kernel of its own. */
static int kernel_push_rows(struct fake_kernel kernel, unsigned rows, hoop_stream_t stream)
{
    int result = kernel_push(&kernel, stream);
    for (unsigned row = 1; row < rows && result == HOOP_CU_SUCCESS; row++) {
        kernel.told_at += HOOP_CUDA_TOLD_APART;
        result = kernel_push(&kernel, stream);
    }
    return result;
}

static size_t fold_bytes(const struct fake_kernel *kernel)
{
    const struct hoop_cuda_fold *fold = &kernel->told.fold;
    return fold->packs * PACK_BYTES + fold->loose * hoop_datatype_bytes(kernel->function->type);
}

static struct fake_kernel kernel_of(struct hoop_cu_function *function, const void *argument)
{
    struct fake_kernel kernel = {.function = function};
    if (function->told != NULL) {
        memcpy(&kernel.told_at, argument, sizeof(kernel.told_at));
    } else if (function->perf != NULL) {
        memcpy(&kernel.told.perf, argument, sizeof(kernel.told.perf));
        const struct perf_span *span = &kernel.told.perf.span;
        kernel.bytes = span->count * (uint32_t)span->rules.bits / 8;
    } else {
        memcpy(&kernel.told.fold, argument, sizeof(kernel.told.fold));
        kernel.bytes = fold_bytes(&kernel);
    }
    return kernel;
}

_Static_assert(PERF_KERNEL_THREADS == HOOP_CUDA_FOLD_THREADS, "a launch has that many");

/* NOLINTNEXTLINE(readability-function-size): the parameters are CUDA's */
int fake_launch(hoop_cu_function_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                hoop_stream_t stream, void **arguments, void **extra)
{
    if (!fake_has_context() || grid_x == 0 || grid_y == 0 ||
        (grid_y > 1 && function->told == NULL) || grid_z != 1 ||
        block_x != HOOP_CUDA_FOLD_THREADS || block_y != 1 || block_z != 1 || shared_bytes != 0 ||
        extra != NULL) {
        return HOOP_CU_INVALID_VALUE;
    }
    if (function == &illegal) {
        return fake_host_function(stream, kernel_store_to_nowhere, NULL);
    }
    const struct fake_kernel kernel = kernel_of(function, arguments[0]);
    pthread_mutex_lock(&fake_lock);
    function_load(function);
    /* otherwise it has no work, or is told later what to do */
    launches += function->perf != NULL || (function->fold != NULL && kernel.told.fold.n_src > 0);
    fake_count_work(false);
    const bool refused = refused_in != 0 && --refused_in == 0;
    const bool fits =
        function->context == fake_context() && function->context == fake_context_of(stream);
    const int result = refused ? FAKE_OUT_OF_RESOURCES
                       : fits  ? kernel_push_rows(kernel, grid_y, stream)
                               : HOOP_CU_INVALID_HANDLE;
    pthread_mutex_unlock(&fake_lock);
    return result == FAKE_ILLEGAL_ADDRESS ? HOOP_CU_SUCCESS : result;
}

/* The kernel is told what to fold; from now on it uses that memory. */
void fake_kernel_hear(struct fake_kernel *kernel)
{
    if (kernel->function->told == NULL) {
        return;
    }
    pthread_mutex_lock(&fake_lock);
    memcpy(&kernel->told.fold, kernel->told_at, HOOP_CUDA_TOLD_BYTES);
    kernel->bytes = fold_bytes(kernel);
    launches += kernel->told.fold.n_src > 0;
    kernel->fails = !kernel_resolve(kernel);
    fake_broken |= kernel->fails;
    kernel->heard = true;
    pthread_mutex_unlock(&fake_lock);
}

/* With fewer threads than were asked for: a kernel must be right with any number. */
void fake_kernel_run(struct fake_kernel *kernel)
{
    const struct hoop_cu_function *function = kernel->function;
    if (kernel->fails) {
        return;
    }
    BLOCKS = 2;
    for (BLOCK = 0; BLOCK < BLOCKS; BLOCK++) {
        for (THREAD = 0; THREAD < THREADS; THREAD++) {
            if (function->perf != NULL) {
                function->perf(kernel->told.perf);
            } else if (function->told != NULL) {
                function->told(&kernel->told.fold);
            } else {
                function->fold(kernel->told.fold);
            }
        }
    }
}

static bool vector_uses(const void *vector, size_t vector_bytes, const unsigned char *at,
                        size_t bytes)
{
    const unsigned char *first = vector;
    return first < at + bytes && at < first + vector_bytes;
}

bool fake_kernel_uses(const struct fake_kernel *kernel, const unsigned char *at, size_t bytes)
{
    const struct hoop_cuda_fold *fold = &kernel->told.fold;
    const struct perf_work *work = &kernel->told.perf;
    bool uses = false;
    if (kernel->function->perf != NULL) {
        return vector_uses(work->at, kernel->bytes, at, bytes) ||
               vector_uses(work->found, sizeof(uint64_t), at, bytes);
    }
    if (kernel->function->told != NULL && !kernel->heard) { /* what it will fold is not known yet */
        return vector_uses(kernel->told_at, HOOP_CUDA_TOLD_BYTES, at, bytes);
    }
    for (uint32_t s = 0; s < fold->n_src; s++) {
        uses |= vector_uses(fold->src[s], kernel->bytes, at, bytes);
    }
    for (uint32_t d = 0; d < fold->n_dst; d++) {
        uses |= vector_uses(fold->dst[d], kernel->bytes, at, bytes);
    }
    return uses;
}

EXPORT fake_cuda_delay_t fake_cuda_delay;
EXPORT fake_cuda_refuse_t fake_cuda_refuse;
EXPORT fake_cuda_launches_t fake_cuda_launches;

void fake_cuda_delay(unsigned us)
{
    pthread_mutex_lock(&fake_lock);
    delay_us = us;
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_refuse(unsigned n)
{
    pthread_mutex_lock(&fake_lock);
    refused_in = n;
    pthread_mutex_unlock(&fake_lock);
}

unsigned fake_cuda_launches(void)
{
    pthread_mutex_lock(&fake_lock);
    const unsigned ret = launches;
    pthread_mutex_unlock(&fake_lock);
    return ret;
}
