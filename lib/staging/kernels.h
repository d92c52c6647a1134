/*
 * The kernels of lib/reduce in a CUDA context. All are loaded at first use, and stay. Any thread.
 */
#ifndef HOOP_KERNELS_H
#define HOOP_KERNELS_H

#include "memory/cuda.h"
#include "reduce/reduce_cuda.h"

/* context: the current one. NULL: it has no kernels; the log says why. */
const struct hoop_kernels *hoop_kernels_load(hoop_cu_context_t context);

/* Launches a fold on a stream. Here and below the context of the kernels must be current. */
hoop_result_t hoop_kernels_launch(const struct hoop_kernels *kernels,
                                  const struct hoop_cuda_launch *launch, hoop_stream_t stream);

/* Launches the kernel of this type and operation (HOOP_SUM for HOOP_AVG) that reads what so many
 * rows fold from `told`, on the device, when it begins. count: elements of a row, for the number of
 * its blocks. */
hoop_result_t hoop_kernels_launch_told(const struct hoop_kernels *kernels,
                                       const struct hoop_reduction *reduction, size_t count,
                                       hoop_cu_address_t told, unsigned rows, hoop_stream_t stream);

/* Launches a kernel that does nothing. */
hoop_result_t hoop_kernels_pass(const struct hoop_kernels *kernels, hoop_stream_t stream);

#endif
