/*
 * The kernels of lib/reduce in a CUDA context: all loaded at first use, and kept. Any thread.
 */
#ifndef HOOP_KERNELS_H
#define HOOP_KERNELS_H

#include "memory/cuda.h"
#include "reduce/reduce_cuda.h"

/* In the current context, which is this one. NULL: it has none of them; the log says why. */
const struct hoop_kernels *hoop_kernels_load(hoop_cu_context_t context);

/* Launches a fold on a stream of that context, which is current. */
hoop_result_t hoop_kernels_launch(const struct hoop_kernels *kernels,
                                  const struct hoop_cuda_launch *launch, hoop_stream_t stream);

/* Launches the one that is told at `told` on the device, when it begins, what it folds of this type
 * by this operation, HOOP_AVG as HOOP_SUM; for so many elements. */
hoop_result_t hoop_kernels_launch_told(const struct hoop_kernels *kernels,
                                       const struct hoop_reduction *reduction, size_t count,
                                       hoop_cu_address_t told, hoop_stream_t stream);

/* Launches one that does nothing. */
hoop_result_t hoop_kernels_pass(const struct hoop_kernels *kernels, hoop_stream_t stream);

#endif
