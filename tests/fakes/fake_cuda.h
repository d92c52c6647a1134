/*
 * A CUDA driver for tests, a library of its own that HOOP_CUDA names. Its devices have 256 MiB in
 * all. The host can't access their memory at its addresses, nor can other devices unless it was
 * opened to them. Each stream is a thread, with random delays. The CPU runs the kernels of
 * lib/reduce and of the benchmarks. The driver refuses what a real one may accept: copies and
 * kernels that leave an allocation, host memory that is not pinned, memory that is unmapped while a
 * stream uses it, host memory by an address other than the device's, and all but copies on a stream
 * whose context is not current. Its streams and the default
 * stream wait for each other, like CUDA's blocking ones. Kernels are loaded on demand, or at their
 * first launch, which waits for all streams. Memory that is new or freed holds garbage. Processes
 * share device memory as with CUDA, by descriptors and IPC handles.
 *
 *     FAKE_CUDA_DEVICES=n    how many devices there are: 1 by default, at most 8
 *     CUDA_VISIBLE_DEVICES=1,0  the process sees only these of them, in this order
 *     FAKE_CUDA_APART=01,12  0 and 1 do not reach each other's memory, nor do 1 and 2; all others
 *                            do
 *     FAKE_CUDA_VERSION=n    the driver's version, 12040 by default
 *     FAKE_CUDA_SEEN         the host can access device memory at its addresses
 *     FAKE_CUDA_NO_ACCESS    opening a device's memory to another fails, even where it is reached
 *     FAKE_CUDA_NO_KERNELS   no module has any kernel
 *     FAKE_CUDA_COPY_RATE=n  copies from and to the host take 1 us for n bytes, without a CPU, and
 *                            then the time that the CPU takes to copy them
 *     FAKE_CUDA_PIN_WAITS    pinning, unpinning and freeing memory wait for all streams; meanwhile
 *                            nothing can be put on a stream, and no stream be queried
 *     FAKE_CUDA_NO_MAPPING   no device memory can be mapped by other processes
 *     FAKE_CUDA_NO_IPC       no IPC handles can be had
 *     FAKE_CUDA_IPC_REFUSED  no IPC handle can be opened, as in another container
 *     FAKE_CUDA_IPC_SHORT    only half of an opened allocation is there
 *     FAKE_CUDA_IPC_CLOSE_US=n    how long closing takes
 *     CUDA_DEVICE_MAX_CONNECTIONS=n   streams share n queues; whatever is launched behind something
 *                            that waits, in the same queue, waits as well
 *
 * Tests get the functions below from dlsym(), by their names.
 */
#ifndef HOOP_TESTS_FAKE_CUDA_H
#define HOOP_TESTS_FAKE_CUDA_H

#include "hoop.h"
#include "memory/cuda.h"

/* CUDA's names for the default stream, and for the calling thread's default stream. */
#define FAKE_STREAM_LEGACY ((hoop_stream_t)(uintptr_t)1)
#define FAKE_STREAM_OF_THREAD ((hoop_stream_t)(uintptr_t)2)

/* A test can access device memory at its address plus this. */
typedef ptrdiff_t fake_cuda_view_t(void);
/* A context of the device that is not its primary one. */
typedef hoop_cu_context_t fake_cuda_other_t(int device);
/* Launches a kernel that fills [at, at + bytes) of the device after delay_us. */
typedef void fake_cuda_fill_t(hoop_stream_t stream, void *at, int byte, size_t bytes,
                              unsigned delay_us);
/* on: the stream records a graph instead of running; copies, fills, host functions and waits for
 * words are added to it. Meanwhile nothing may be put on the default stream, and only threads in
 * relaxed mode may allocate or pin memory. Off: drops the graph. */
typedef void fake_cuda_capture_t(hoop_stream_t stream, int on);
/* Ends the recording. Returns the graph. */
typedef hoop_cu_graph_t fake_cuda_end_t(hoop_stream_t stream);
/* Puts all that is in the graph on a stream, once. Returns CUDA's result. */
typedef int fake_cuda_replay_t(hoop_cu_graph_t graph, hoop_stream_t stream);
/* Destroys the graph once all its replays have ended, and then tells the objects that it keeps. */
typedef void fake_cuda_drop_t(hoop_cu_graph_t graph);
/* From now on every copy from or to the host that is put on a stream takes this much longer. */
typedef void fake_cuda_copy_delay_t(unsigned us);
/* From now on the first stream that copies to the host stops before its fifth such copy, until a
 * copy from the host is put on another stream. */
typedef void fake_cuda_hold_t(void);
/* From the n-th copy or launch on, counted from now, everything fails as after a kernel's bad
 * access; 0: nothing does. */
typedef void fake_cuda_break_t(unsigned n);
/* How many bytes are allocated, and how many ranges of host memory are pinned. */
typedef void fake_cuda_use_t(size_t *ret_bytes, size_t *ret_pinned);
/* How many allocations of other processes are open. */
typedef size_t fake_cuda_opened_t(void);
/* Makes memory from cudaMalloc() look as if it came from cudaMallocAsync(). */
typedef void fake_cuda_pool_t(const void *at);
/* Makes every launch take this much longer. */
typedef void fake_cuda_delay_t(unsigned us);
/* Makes the n-th launch from now on fail for lack of resources; 0: none. */
typedef void fake_cuda_refuse_t(unsigned n);
/* on: the driver knows no pointers any more. */
typedef void fake_cuda_forget_t(int on);
/* How many launches, and copies from or to the host, there have been. */
typedef unsigned fake_cuda_launches_t(void);
typedef unsigned fake_cuda_host_copies_t(void);
/* How many of these were to the host. */
typedef unsigned fake_cuda_fetches_t(void);

#endif
