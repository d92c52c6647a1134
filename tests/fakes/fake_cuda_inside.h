/* What the files of the fake driver share (see fake_cuda.h). All of it is guarded by fake_lock. */
#ifndef HOOP_TESTS_FAKE_CUDA_INSIDE_H
#define HOOP_TESTS_FAKE_CUDA_INSIDE_H

#include "memory/cuda.h"

#include <pthread.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#define FAKE_ILLEGAL_ADDRESS 700
#define FAKE_OUT_OF_RESOURCES 701
#define FAKE_NOT_SUPPORTED 801
#define FAKE_CAPTURE_UNSUPPORTED 900
#define FAKE_CAPTURE_INVALIDATED 901
#define FAKE_CAPTURE_FAILED 2 /* the state of its stream */
#define FAKE_CAPTURE_UNSUPPORTED 900
#define FAKE_DEVICES 8
#define FAKE_POOL_BYTES ((size_t)256 << 20)
#define FAKE_GRANULARITY ((size_t)64 << 10)
#define FAKE_CONTEXTS 16 /* for each device the primary one and another */

/* The driver's functions. They have CUDA's symbols, and are declared only here. */
#define FAKE_DECLARE(field, symbol, arguments) EXPORT int fake_##field arguments __asm__(symbol);
HOOP_CUDA_CALLS(FAKE_DECLARE)
HOOP_CUDA_NEW_CALLS(FAKE_DECLARE)
#undef FAKE_DECLARE

struct fake_kernel;

/* A task on a stream. */
struct fake_task {
    struct fake_task *next;
    enum {
        FAKE_COPY,
        FAKE_FILL,
        FAKE_KERNEL,
        FAKE_HOST,
        FAKE_RECORD,
        FAKE_WAIT,
        FAKE_VALUE,
        FAKE_WRITE
    } kind;
    uint64_t order; /* among all tasks that were ever pushed */
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    unsigned delay_us;
    bool held; /* does not begin as long as fake_held */
    int value;
    hoop_cu_host_fn_t *fn;
    void *arg;
    struct fake_kernel *kernel; /* freed when it ends */
    struct hoop_cu_event *event;
    uint64_t number;
    _Atomic uint32_t *word; /* VALUE: waits until it has reached `number`; WRITE: sets it to that */
};

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed; /* something about the streams has changed */
extern atomic_bool fake_held;
extern bool fake_broken; /* everything fails, as after a kernel's bad access */
extern bool fake_forgot; /* no pointer is known */

/* Puts a copy of *what at the end of the stream, with a random delay. */
int fake_push(hoop_stream_t stream, const struct fake_task *what);

/* Calls a function of the program on the driver's behalf, which may call no function of CUDA:
 * fake_check_caller() ends the process if it does. */
void fake_call_back(hoop_cu_host_fn_t *fn, void *arg);
void fake_check_caller(void);

/* Waits for all tasks on all streams. */
void fake_drain(void);

/* With the lock: the same while nothing can be put on a stream. fake_keep_out() does so only with
 * FAKE_CUDA_PIN_WAITS. */
void fake_wait_for_all(void);
void fake_keep_out(void);

/* With the lock: for calls that end all captures in progress. False: there were none. */
bool fake_end_captures(void);

/* Does a stream capture, so that the calling thread may not make unsafe calls? */
bool fake_is_unsafe(void);

/* Host memory by its address on a device; NULL: none is mapped there. */
void *fake_host_of(hoop_cu_address_t at, size_t bytes);

/* Does anything on a stream access [at, at + bytes), by addresses of the device? */
bool fake_in_use(const unsigned char *at, size_t bytes);
bool fake_kernel_uses(const struct fake_kernel *kernel, const unsigned char *at, size_t bytes);
struct fake_kernel *fake_kernel_copy(const struct fake_kernel *kernel); /* NULL: NULL, no memory */
void fake_kernel_hear(struct fake_kernel *kernel); /* when it begins: reads what it is told */
void fake_kernel_run(struct fake_kernel *kernel);

/* ---- Devices and contexts; by the numbers that this process gives them ---- */

int fake_visible(void); /* how many devices this process sees */
/* The machine's number of a device; -1: there is no such device. And its inverse; -1: not
 * visible. */
int fake_physical(int device);
int fake_number(int physical);
bool fake_reaches(int device, int home);

/* The calling thread's context; if it has none, the first device's primary one. */
struct hoop_cu_context *fake_context(void);
bool fake_has_context(void);
int fake_device_of(const struct hoop_cu_context *context);
unsigned fake_context_number(const struct hoop_cu_context *context);
/* May this context access the plain memory of the other? */
bool fake_is_let_in(const struct hoop_cu_context *context, const struct hoop_cu_context *to);

/* The context of a stream; for other handles the calling thread's. With the lock. */
struct hoop_cu_context *fake_context_of(hoop_stream_t stream);
/* Is that the calling thread's context? Streams take all but copies only then. With the lock. */
bool fake_is_current(hoop_stream_t stream);

/* ---- Memory ---- */

/* A block of physical memory. */
struct fake_memory {
    int fd, home;
    size_t bytes;
};

/* Reserves the devices' addresses, once. HOOP_CU_SUCCESS: they exist. */
int fake_pool_make(void);
bool fake_on_device(uintptr_t at);
ptrdiff_t fake_view(void);
void fake_memory_use(size_t *ret_bytes, size_t *ret_pinned);
size_t fake_memory_opened(void);
/* Marks an allocation as made in the order of a stream. */
void fake_memory_pool(hoop_cu_address_t at);
/* Where the memory is that a context's device may access; NULL: it may not. context NULL: any. */
unsigned char *fake_resolve(hoop_cu_address_t at, size_t bytes,
                            const struct hoop_cu_context *context);

/* Counts a copy or launch that begins. From the chosen one on all fail. */
void fake_count_work(bool to_or_from_host);

/* Sets whether the stream records a graph. Returns the graph that it recorded. With the lock. */
struct hoop_cu_graph *fake_stream_capture(hoop_stream_t stream, bool on);

/* ---- Graphs; with the lock ---- */

struct hoop_cu_graph *fake_graph_create(void);
void fake_graph_spoil(struct hoop_cu_graph *graph);
bool fake_graph_is_spoilt(const struct hoop_cu_graph *graph);
/* Adds a copy of *what at the end of the graph. */
int fake_graph_add(struct hoop_cu_graph *graph, const struct fake_task *what);

#endif
