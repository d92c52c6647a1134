/*
 * CUDA's runtime, cuBLAS and cuDNN in miniature, for tests of examples/trainer/nn/cuda. Memory is
 * the host's; products and convolutions are plain loops that read nothing but the descriptors.
 * Streams come from fake_streams.h, and kernels, as loops, from fake_kernels.c.
 *
 * It shows that layers, layouts, leading dimensions and passes are right and, with HOOP_CUDA, that
 * concurrent work waits for what it needs. It does not show that cuDNN has an algorithm for it.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_streams.h"
#include "nn/cuda/gpu.h"

/* ---- Runtime ------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count)
{
    const char *gpus = getenv("FAKE_GPUS");
    *count = gpus == NULL ? 1 : atoi(gpus);
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    const char *major = getenv("FAKE_GPU_MAJOR");
    (void)device;
    *value = major == NULL ? 9 : atoi(major);
    return attribute == cudaDevAttrComputeCapabilityMajor ? cudaSuccess : cudaErrorNoDevice;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorNoDevice";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory" : "no CUDA-capable device is here";
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

/* At most 1 GiB at a time, filled with garbage. */
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = bytes > ((size_t)1 << 30) ? NULL : malloc(bytes + 1);
    if (*memory == NULL) {
        return cudaErrorMemoryAllocation;
    }
    memset(*memory, 0xff, bytes); /* NaN */
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    fake_settle();
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    return cudaMalloc(memory, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    fake_settle();
    memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    fake_settle();
    memcpy(to, from, bytes);
    return cudaSuccess;
}

struct transfer {
    void *to;
    const void *from; /* NULL: fills with value */
    int value;
    size_t bytes;
};

/* Slow, so that work that does not wait for it comes too early. */
static void transfer_run(void *args)
{
    const struct transfer *t = args;
    if (t->from != NULL) {
        usleep(500);
        memcpy(t->to, t->from, t->bytes);
    } else {
        memset(t->to, t->value, t->bytes);
    }
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    const struct transfer t = {memory, NULL, value, bytes};
    fake_put(stream, transfer_run, &t, sizeof(t));
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const struct transfer t = {to, from, 0, bytes};
    (void)kind;
    fake_put(stream, transfer_run, &t, sizeof(t));
    return cudaSuccess;
}

/* ---- cuBLAS -------------------------------------------------------------------------------- */

struct cublasContext {
    cudaStream_t stream;
};
static struct cublasContext a_cublas;

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = &a_cublas;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusName(cublasStatus_t status)
{
    (void)status;
    return "CUBLAS_STATUS_EXECUTION_FAILED";
}

struct product {
    bool ta, tb;
    int m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const float *a, *b;
    float *c;
};

/* In column-major order, like Fortran. */
static void product_run(void *args)
{
    const struct product p = *(const struct product *)args;
    for (ptrdiff_t j = 0; j < p.n; j++) {
        for (ptrdiff_t i = 0; i < p.m; i++) {
            float sum = 0;
            for (ptrdiff_t l = 0; l < p.k; l++) {
                sum += (p.ta ? p.a[i * p.lda + l] : p.a[l * p.lda + i]) *
                       (p.tb ? p.b[l * p.ldb + j] : p.b[j * p.ldb + l]);
            }
            float *c = &p.c[j * p.ldc + i];
            *c = p.alpha * sum + (p.beta == 0 ? 0 : p.beta * *c);
        }
    }
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t turn_a,
                           cublasOperation_t turn_b, int m, int n, int k, const float *alpha,
                           const float *a, int lda, const float *b, int ldb, const float *beta,
                           float *c, int ldc)
{
    const struct product p = {turn_a == CUBLAS_OP_T,
                              turn_b == CUBLAS_OP_T,
                              m,
                              n,
                              k,
                              lda,
                              ldb,
                              ldc,
                              *alpha,
                              *beta,
                              a,
                              b,
                              c};
    if (handle != &a_cublas || lda < (p.ta ? k : m) || ldb < (p.tb ? n : k) || ldc < m) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    fake_put(handle->stream, product_run, &p, sizeof(p));
    return CUBLAS_STATUS_SUCCESS;
}

/* NOLINTBEGIN(readability-function-size): cuDNN's arguments */

/* ---- cuDNN --------------------------------------------------------------------------------- */

struct cudnnContext {
    cudaStream_t stream;
};
static struct cudnnContext a_cudnn;

struct cudnnTensorStruct {
    ptrdiff_t n, c, h, w;
};
struct cudnnFilterStruct {
    ptrdiff_t k, c, h, w;
};
struct cudnnConvolutionStruct {
    ptrdiff_t pad;
};

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                : "CUDNN_STATUS_BAD_PARAM";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = &a_cudnn;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *desc)
{
    *desc = calloc(1, sizeof(**desc));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t desc)
{
    free(desc);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *desc)
{
    *desc = calloc(1, sizeof(**desc));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t desc)
{
    free(desc);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *desc)
{
    *desc = calloc(1, sizeof(**desc));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t desc)
{
    free(desc);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t desc, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    *desc = (struct cudnnTensorStruct){n, c, h, w};
    return format == CUDNN_TENSOR_NHWC && type == CUDNN_DATA_FLOAT ? CUDNN_STATUS_SUCCESS
                                                                   : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t desc, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    *desc = (struct cudnnFilterStruct){k, c, h, w};
    return format == CUDNN_TENSOR_NHWC && type == CUDNN_DATA_FLOAT ? CUDNN_STATUS_SUCCESS
                                                                   : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t desc, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t type)
{
    desc->pad = pad_h;
    const bool good = pad_h == pad_w && stride_h == 1 && stride_w == 1 && dilation_h == 1 &&
                      dilation_w == 1 && mode == CUDNN_CROSS_CORRELATION &&
                      type == CUDNN_DATA_FLOAT;
    return good ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t desc, cudnnMathType_t type)
{
    (void)desc;
    return type == CUDNN_FMA_MATH ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

/* Do the shapes match? */
static bool fits(const struct cudnnTensorStruct *x, const struct cudnnFilterStruct *w,
                 const struct cudnnConvolutionStruct *conv, const struct cudnnTensorStruct *y)
{
    return x->n == y->n && x->c == w->c && y->c == w->k &&
           y->h == x->h + 2 * conv->pad - w->h + 1 && y->w == x->w + 2 * conv->pad - w->w + 1;
}

/*
 * cuDNN's list of algorithms. The third one must be chosen: the first gives different bits each
 * time, and the second needs much memory. FAKE_GPU_NO_ALGORITHM: there is only the first.
 * FAKE_GPU_MUCH: the second is the last. cuDNN proposes algorithms of three types, which look
 * alike.
 */
static int proposed(void)
{
    return getenv("FAKE_GPU_NO_ALGORITHM") != NULL ? 1 : getenv("FAKE_GPU_MUCH") != NULL ? 2 : 3;
}

#define PROPOSE(list, x, w, conv, y)                                                               \
    do {                                                                                           \
        *count = proposed();                                                                       \
        memset(list, 0, 3 * sizeof(*(list)));                                                      \
        (list)[0].determinism = CUDNN_NON_DETERMINISTIC;                                           \
        (list)[1].determinism = (list)[2].determinism = CUDNN_DETERMINISTIC;                       \
        (list)[1].algo = 1;                                                                        \
        (list)[2].algo = 2;                                                                        \
        return fits(x, w, conv, y) && wanted >= 3 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM; \
    } while (0)

static size_t work_bytes(int algo)
{
    return algo == 1 ? (size_t)600 << 20 : 100000;
}

/* Is it the one that must be chosen, with memory for its work? */
static bool is_right(int algo, const void *work, size_t bytes)
{
    return algo == proposed() - 1 && work != NULL && bytes >= work_bytes(algo);
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t y, const int wanted,
    int *count, cudnnConvolutionFwdAlgoPerf_t *list)
{
    (void)handle;
    PROPOSE(list, x, w, conv, y);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t w, const int wanted,
    int *count, cudnnConvolutionBwdFilterAlgoPerf_t *list)
{
    (void)handle;
    PROPOSE(list, x, w, conv, y);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t x, const int wanted,
    int *count, cudnnConvolutionBwdDataAlgoPerf_t *list)
{
    (void)handle;
    PROPOSE(list, x, w, conv, y);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle,
                                                      const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t conv,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algo, size_t *bytes)
{
    (void)handle;
    *bytes = work_bytes((int)algo);
    return fits(x, w, conv, y) && algo <= 2 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t w,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes)
{
    return cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, conv, y,
                                                   (cudnnConvolutionFwdAlgo_t)algo, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t x,
    cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes)
{
    return cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, conv, y,
                                                   (cudnnConvolutionFwdAlgo_t)algo, bytes);
}

/* Which of the three arrays a pass computes from the two others. */
enum pass { WRITE_Y, WRITE_W, WRITE_X };

static size_t tensor_count(const struct cudnnTensorStruct *t)
{
    return (size_t)(t->n * t->c * t->h * t->w);
}

static void scale(float *to, size_t count, float by)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = by == 0 ? 0 : by * to[i];
    }
}

struct convolution {
    enum pass pass;
    struct cudnnTensorStruct xd, yd;
    struct cudnnFilterStruct wd;
    ptrdiff_t pad;
    float *x, *w, *y;
    float beta; /* factor of the old values */
};

/* Most of the time is spent here, too much of it with sanitizers. */
__attribute__((no_sanitize("address", "undefined"))) static void
convolve_channels(enum pass pass, float *x, float *w, float *y, ptrdiff_t count)
{
    const float from = *y;
    for (ptrdiff_t c = 0; c < count; c++) {
        if (pass == WRITE_Y) {
            *y += x[c] * w[c];
        } else if (pass == WRITE_W) {
            w[c] += x[c] * from;
        } else {
            x[c] += w[c] * from;
        }
    }
}

/* All products of an input, a weight and an output that belong to one pixel of y. */
static void convolve_pixel(const struct convolution *c, ptrdiff_t pixel)
{
    const struct cudnnTensorStruct *xd = &c->xd, *yd = &c->yd;
    const struct cudnnFilterStruct *wd = &c->wd;
    float *y = c->y + pixel * yd->c;
    for (ptrdiff_t at = 0; at < wd->h * wd->w; at++) {
        const ptrdiff_t row = pixel / yd->w % yd->h + at / wd->w - c->pad;
        const ptrdiff_t column = pixel % yd->w + at % wd->w - c->pad;
        if (row < 0 || row >= xd->h || column < 0 || column >= xd->w) {
            continue;
        }
        float *x = c->x + ((pixel / yd->w / yd->h * xd->h + row) * xd->w + column) * xd->c;
        for (ptrdiff_t k = 0; k < wd->k; k++) {
            float *w = c->w + (k * wd->h * wd->w + at) * wd->c;
            convolve_channels(c->pass, x, w, &y[k], wd->c);
        }
    }
}

static void convolution_run(void *args)
{
    const struct convolution *c = args;
    if (c->pass == WRITE_W) {
        scale(c->w, (size_t)(c->wd.k * c->wd.h * c->wd.w * c->wd.c), c->beta);
    } else {
        scale(c->pass == WRITE_Y ? c->y : c->x, tensor_count(c->pass == WRITE_Y ? &c->yd : &c->xd),
              c->beta);
    }
    for (ptrdiff_t pixel = 0; pixel < c->yd.n * c->yd.h * c->yd.w; pixel++) {
        convolve_pixel(c, pixel);
    }
}

static cudnnStatus_t convolve(enum pass pass, const struct cudnnTensorStruct *xd, const void *x,
                              const struct cudnnFilterStruct *wd, const void *w,
                              const struct cudnnConvolutionStruct *conv,
                              const struct cudnnTensorStruct *yd, const void *y, const void *beta)
{
    const struct convolution c = {
        pass, *xd, *yd, *wd, conv->pad, (float *)x, (float *)w, (float *)y, *(const float *)beta};
    if (!fits(xd, wd, conv, yd)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    fake_put(a_cudnn.stream, convolution_run, &c, sizeof(c));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      const cudnnTensorDescriptor_t xd, const void *x,
                                      const cudnnFilterDescriptor_t wd, const void *w,
                                      const cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algo, void *work, size_t bytes,
                                      const void *beta, const cudnnTensorDescriptor_t yd, void *y)
{
    (void)handle;
    if (*(const float *)alpha != 1 || !is_right((int)algo, work, bytes)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    return convolve(WRITE_Y, xd, x, wd, w, conv, yd, y, beta);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             const cudnnTensorDescriptor_t xd, const void *x,
                                             const cudnnTensorDescriptor_t yd, const void *y,
                                             const cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void *work,
                                             size_t bytes, const void *beta,
                                             const cudnnFilterDescriptor_t wd, void *w)
{
    (void)handle;
    if (*(const float *)alpha != 1 || !is_right((int)algo, work, bytes)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    return convolve(WRITE_W, xd, x, wd, w, conv, yd, y, beta);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           const cudnnFilterDescriptor_t wd, const void *w,
                                           const cudnnTensorDescriptor_t yd, const void *y,
                                           const cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algo, void *work,
                                           size_t bytes, const void *beta,
                                           const cudnnTensorDescriptor_t xd, void *x)
{
    (void)handle;
    if (*(const float *)alpha != 1 || !is_right((int)algo, work, bytes)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    return convolve(WRITE_X, xd, x, wd, w, conv, yd, y, beta);
}

/* NOLINTEND(readability-function-size) */
