/* Streams of CUDA (see device_stream.h). */
#include "api/device_stream.h"

#include "memory/cuda.h"

hoop_result_t hoop_device_stream_check(const char *function, hoop_stream_t stream)
{
    int capturing = 0;
    if (!hoop_cuda_load()) {
        return hoop_error(HOOP_UNSUPPORTED,
                          "%s: stream %p is not of hoop_stream_create(), and not of CUDA: %s",
                          function, (void *)stream, (hoop_cuda_need(), hoop_thread_error()));
    }
    const int error = hoop_cuda.stream_capturing(stream, &capturing);
    const hoop_result_t result = hoop_cuda_check("cuStreamIsCapturing", error);
    if (result != HOOP_OK && error != HOOP_CU_INVALID_HANDLE && error != HOOP_CU_INVALID_VALUE) {
        return hoop_error(result, "%s: %s", function, hoop_thread_error());
    }
    if (result != HOOP_OK) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s: stream %p is no stream of CUDA: %s", function,
                          (void *)stream, hoop_thread_error());
    }
    return capturing == 0 ? HOOP_OK
                          : hoop_error(HOOP_UNSUPPORTED,
                                       "%s: stream %p captures a graph: calls can't be captured by "
                                       "this version",
                                       function, (void *)stream);
}
