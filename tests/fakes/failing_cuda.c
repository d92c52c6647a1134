/* See failing_cuda.h. */
#include "fakes/failing_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* X(field, parameters, arguments) */
#define CALLS(X)                                                                                   \
    X(context_push, (hoop_cu_context_t context), (context))                                        \
    X(context_device, (int *ret), (ret))                                                           \
    X(pointer_get_all, (unsigned count, int *attributes, void **ret, hoop_cu_address_t ptr),       \
      (count, attributes, ret, ptr))                                                               \
    X(alloc, (hoop_cu_address_t * ret, size_t bytes), (ret, bytes))                                \
    X(free, (hoop_cu_address_t ptr), (ptr))                                                        \
    X(set_bytes, (hoop_cu_address_t ptr, unsigned char value, size_t bytes, hoop_stream_t stream), \
      (ptr, value, bytes, stream))                                                                 \
    X(memory_create,                                                                               \
      (hoop_cu_memory_t * ret, size_t bytes, const struct hoop_cu_properties *properties,          \
       unsigned long long flags),                                                                  \
      (ret, bytes, properties, flags))                                                             \
    X(memory_export, (void *ret, hoop_cu_memory_t memory, int type, unsigned long long flags),     \
      (ret, memory, type, flags))                                                                  \
    X(memory_import, (hoop_cu_memory_t * ret, void *handle, int type), (ret, handle, type))        \
    X(address_reserve,                                                                             \
      (hoop_cu_address_t * ret, size_t bytes, size_t alignment, hoop_cu_address_t at,              \
       unsigned long long flags),                                                                  \
      (ret, bytes, alignment, at, flags))                                                          \
    X(map,                                                                                         \
      (hoop_cu_address_t at, size_t bytes, size_t offset, hoop_cu_memory_t memory,                 \
       unsigned long long flags),                                                                  \
      (at, bytes, offset, memory, flags))                                                          \
    X(set_access,                                                                                  \
      (hoop_cu_address_t at, size_t bytes, const struct hoop_cu_access *access, size_t count),     \
      (at, bytes, access, count))                                                                  \
    X(ipc_show, (struct hoop_cu_ipc * ret, hoop_cu_address_t ptr), (ret, ptr))                     \
    X(ipc_open, (hoop_cu_address_t * ret, struct hoop_cu_ipc handle, unsigned flags),              \
      (ret, handle, flags))                                                                        \
    X(host_register, (void *ptr, size_t bytes, unsigned flags), (ptr, bytes, flags))               \
    X(host_pointer, (hoop_cu_address_t * ret, void *ptr, unsigned flags), (ret, ptr, flags))       \
    X(copy, (hoop_cu_address_t to, hoop_cu_address_t from, size_t bytes, hoop_stream_t stream),    \
      (to, from, bytes, stream))                                                                   \
    X(copy_rows, (const struct hoop_cu_rows *rows, hoop_stream_t stream), (rows, stream))          \
    X(stream_create, (hoop_stream_t * ret, unsigned flags), (ret, flags))                          \
    X(stream_query, (hoop_stream_t stream), (stream))                                              \
    X(stream_synchronize, (hoop_stream_t stream), (stream))                                        \
    X(stream_context, (hoop_stream_t stream, hoop_cu_context_t * ret), (stream, ret))              \
    X(host_function, (hoop_stream_t stream, hoop_cu_host_fn_t * fn, void *arg), (stream, fn, arg)) \
    X(launch,                                                                                      \
      (hoop_cu_function_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       hoop_stream_t stream, void **arguments, void **extra),                                      \
      (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,          \
       arguments, extra))                                                                          \
    X(stream_id, (hoop_stream_t stream, unsigned long long *ret), (stream, ret))                   \
    X(stream_wait_value,                                                                           \
      (hoop_stream_t stream, hoop_cu_address_t at, uint32_t value, unsigned flags),                \
      (stream, at, value, flags))                                                                  \
    X(stream_write_value,                                                                          \
      (hoop_stream_t stream, hoop_cu_address_t at, uint32_t value, unsigned flags),                \
      (stream, at, value, flags))                                                                  \
    X(capture_info,                                                                                \
      (hoop_stream_t stream, int *ret_status, unsigned long long *ret_id,                          \
       hoop_cu_graph_t *ret_graph, const void **ret_nodes, size_t *ret_count),                     \
      (stream, ret_status, ret_id, ret_graph, ret_nodes, ret_count))                               \
    X(object_create,                                                                               \
      (hoop_cu_object_t * ret, void *ptr, hoop_cu_host_fn_t *destroy, unsigned count,              \
       unsigned flags),                                                                            \
      (ret, ptr, destroy, count, flags))                                                           \
    X(graph_retain,                                                                                \
      (hoop_cu_graph_t graph, hoop_cu_object_t object, unsigned count, unsigned flags),            \
      (graph, object, count, flags))

static struct hoop_cuda driver;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* under the lock */
static const char *fails = ""; /* name of the call */
static unsigned calls, first, last;
static int its_error;

/* The error with which a call that is made now fails; 0: it does not. */
static int call_error(const char *call)
{
    pthread_mutex_lock(&lock);
    const bool its = strcmp(call, fails) == 0;
    calls += its;
    const int error = its && calls >= first && calls <= last ? its_error : HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&lock);
    return error;
}

#define DEFINE(field, parameters, arguments)                                                       \
    static int before_##field parameters                                                           \
    {                                                                                              \
        const int error = call_error(#field);                                                      \
        return error != HOOP_CU_SUCCESS ? error : driver.field arguments;                          \
    }
/* NOLINTNEXTLINE(readability-function-size): the parameters are CUDA's */
CALLS(DEFINE)

static void stand_before(void)
{
    driver = hoop_cuda;
#define REPLACE(field, parameters, arguments) hoop_cuda.field = before_##field;
    CALLS(REPLACE)
}

void failing_cuda_start(const char *call, unsigned from, unsigned most, int error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, stand_before);
    pthread_mutex_lock(&lock);
    fails = call;
    calls = 0;
    first = from;
    last = from + most - 1;
    its_error = error;
    pthread_mutex_unlock(&lock);
}

unsigned failing_cuda_stop(void)
{
    pthread_mutex_lock(&lock);
    const unsigned ret = calls;
    fails = "";
    pthread_mutex_unlock(&lock);
    return ret;
}

const char *failing_cuda_name(size_t i)
{
    static const char *const names[] = {
#define NAME(field, parameters, arguments) #field,
        CALLS(NAME)};
    return i < sizeof(names) / sizeof(names[0]) ? names[i] : NULL;
}
