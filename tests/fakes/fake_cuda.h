/*
 * A CUDA driver for tests, as a library of its own that HOOP_CUDA names: devices with 256 MiB in
 * all, whose memory the host can't touch at its addresses, nor one device another's that was not
 * opened to it, streams with a thread each and random delays in them; the kernels are those of
 * lib/reduce and of the benchmarks, run by the CPU. It refuses what a real one may let pass: copies
 * and kernels that leave an allocation, host memory that is not pinned, memory that is unmapped
 * while a stream uses it, host memory by an address that is not the device's. Its streams wait for
 * the default one and it for them, as CUDA's blocking ones do. Kernels are loaded when it is asked
 * to, or at their first launch, which waits for all streams. What is freed, and what is fresh,
 * holds garbage. Processes share the device's memory as CUDA lets them, by descriptors and IPC
 * handles.
 *
 *     FAKE_CUDA_DEVICES=n    so many devices, 1 unless it is set; at most 8
 *     CUDA_VISIBLE_DEVICES=1,0  of these the process sees these, in this order
 *     FAKE_CUDA_APART=01,12  0 and 1 do not reach each other's memory, nor do 1 and 2; all others
 *                            do
 *     FAKE_CUDA_VERSION=n    the driver's, 12040 unless it is set
 *     FAKE_CUDA_SEEN         the host reaches the memory at its addresses, after all
 *     FAKE_CUDA_NO_ACCESS    no device is let in to another's memory, whatever was said before
 *     FAKE_CUDA_NO_KERNELS   there is no kernel in any module
 *     FAKE_CUDA_COPY_RATE=n  copies from and to the host take 1 us for n bytes, for which no CPU is
 *                            needed, and what the CPU takes to copy them
 *     FAKE_CUDA_PIN_WAITS    to pin memory, or no longer, it waits for all streams, and nobody puts
 *                            anything on one meanwhile, or asks for one; nor to free some
 *     FAKE_CUDA_NO_MAPPING   it has no memory that others can map
 *     FAKE_CUDA_NO_IPC       nor any that it gives a handle for
 *     FAKE_CUDA_IPC_REFUSED  it opens no handle, as in a container of its own
 *     FAKE_CUDA_IPC_SHORT    of what it opens half is there
 *     FAKE_CUDA_IPC_CLOSE_US=n    to close it takes so long
 *     CUDA_DEVICE_MAX_CONNECTIONS=n   its streams share n queues: what is launched behind something
 *                            that waits, in the same queue, waits, too
 *
 * These are what a test asks of it besides; from dlsym(), by their names.
 */
#ifndef HOOP_TESTS_FAKE_CUDA_H
#define HOOP_TESTS_FAKE_CUDA_H

#include "hoop.h"
#include "memory/cuda.h"

/* CUDA's own names of the default stream, and of the calling thread's own one. */
#define FAKE_STREAM_LEGACY ((hoop_stream_t)(uintptr_t)1)
#define FAKE_STREAM_OF_THREAD ((hoop_stream_t)(uintptr_t)2)

/* A device address plus this is where a test may look at the memory. */
typedef ptrdiff_t fake_cuda_view_t(void);
/* Another context of a device than its primary one. */
typedef hoop_cu_context_t fake_cuda_other_t(int device);
/* A kernel: after delay_us fills [at, at + bytes) of the device. */
typedef void fake_cuda_fill_t(hoop_stream_t stream, void *at, int byte, size_t bytes,
                              unsigned delay_us);
/* Whether the stream records a graph instead of running: copies, fills, host functions and waits
 * for words are put into it. Nothing may be put on the default one then, and no thread but those
 * that say that they are relaxed may allocate or pin memory. Off: it is dropped. */
typedef void fake_cuda_capture_t(hoop_stream_t stream, int on);
/* The end of a recording: the graph. */
typedef hoop_cu_graph_t fake_cuda_end_t(hoop_stream_t stream);
/* Puts all that is in it on a stream, once more. What CUDA answers. */
typedef int fake_cuda_replay_t(hoop_cu_graph_t graph, hoop_stream_t stream);
/* It is over everywhere, and what it keeps is told so. */
typedef void fake_cuda_drop_t(hoop_cu_graph_t graph);
/* The next cuUserObjectCreate (1) or cuGraphRetainUserObject (2) is refused; 0: none. */
typedef void fake_cuda_refuse_object_t(int call);
/* Every copy from or to the host that is put on a stream from now on takes this much longer. */
typedef void fake_cuda_copy_delay_t(unsigned us);
/* The first stream from now on that copies to the host does no more of that after its fourth copy
 * until another one is given a copy from the host. */
typedef void fake_cuda_hold_t(void);
/* From the n-th copy or launch on, counted from now, all fails as after a kernel's bad access; 0:
 * it works. */
typedef void fake_cuda_break_t(unsigned n);
/* Bytes that are allocated, and ranges of the host that are pinned. */
typedef void fake_cuda_use_t(size_t *ret_bytes, size_t *ret_pinned);
/* How many allocations of other processes are open. */
typedef size_t fake_cuda_opened_t(void);
/* cudaMalloc() gave this: from now on it is as if it came in the order of a stream. */
typedef void fake_cuda_pool_t(const void *at);
/* Every launch takes this much longer. */
typedef void fake_cuda_delay_t(unsigned us);
/* The n-th launch from now on is refused, for want of resources; 0: none. */
typedef void fake_cuda_refuse_t(unsigned n);
/* Whether it knows no pointer any more. */
typedef void fake_cuda_forget_t(int on);
/* Launches, and copies from or to the host, until now. */
typedef unsigned fake_cuda_launches_t(void);
typedef unsigned fake_cuda_host_copies_t(void);

#endif
