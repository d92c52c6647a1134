/* The graphs of the fake driver (see fake_cuda.h): what was put on a capturing stream, which can be
 * replayed in its order. */
#include "fakes/fake_cuda.h"

#include "fakes/fake_cuda_inside.h"

#include <stdlib.h>

/* An object that a graph keeps, and that is told when the graph is gone. */
struct hoop_cu_object {
    struct hoop_cu_object *next;
    hoop_cu_host_fn_t *destroy;
    void *ptr;
};

struct hoop_cu_graph {
    struct fake_task *first, **last;
    struct hoop_cu_object *objects;
    unsigned users; /* the graph itself, and what was made of it */
    bool spoilt;    /* its capture was ended by a call that is not allowed */
};

void fake_graph_spoil(struct hoop_cu_graph *graph)
{
    graph->spoilt = true;
}

bool fake_graph_is_spoilt(const struct hoop_cu_graph *graph)
{
    return graph->spoilt;
}

struct hoop_cu_graph *fake_graph_create(void)
{
    struct hoop_cu_graph *graph = calloc(1, sizeof(*graph));
    if (graph != NULL) {
        graph->last = &graph->first;
        graph->users = 1;
    }
    return graph;
}

int fake_graph_add(struct hoop_cu_graph *graph, const struct fake_task *what)
{
    const bool can = what->kind == FAKE_COPY || what->kind == FAKE_FILL ||
                     what->kind == FAKE_HOST || what->kind == FAKE_VALUE ||
                     what->kind == FAKE_WRITE || what->kind == FAKE_KERNEL;
    struct fake_task *task = can ? malloc(sizeof(*task)) : NULL;
    if (task == NULL || graph->spoilt) {
        free(task);
        return graph->spoilt ? FAKE_CAPTURE_INVALIDATED : FAKE_CAPTURE_UNSUPPORTED;
    }
    *task = *what;
    task->next = NULL;
    *graph->last = task;
    graph->last = &task->next;
    return HOOP_CU_SUCCESS;
}

int fake_object_create(hoop_cu_object_t *ret, void *ptr, hoop_cu_host_fn_t *destroy, unsigned count,
                       unsigned flags)
{
    struct hoop_cu_object *object = malloc(sizeof(*object));
    if (object == NULL || count != 1 || flags != HOOP_CU_OBJECT_NOT_AWAITED) {
        free(object);
        return HOOP_CU_INVALID_VALUE;
    }
    *object = (struct hoop_cu_object){.destroy = destroy, .ptr = ptr};
    *ret = object;
    return HOOP_CU_SUCCESS;
}

int fake_object_release(hoop_cu_object_t object, unsigned count)
{
    fake_call_back(object->destroy, object->ptr);
    free(object);
    return count == 1 ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

int fake_graph_retain(hoop_cu_graph_t graph, hoop_cu_object_t object, unsigned count,
                      unsigned flags)
{
    if (graph == NULL || count != 1 || flags != HOOP_CU_OBJECT_MOVE) {
        return HOOP_CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    object->next = graph->objects;
    graph->objects = object;
    pthread_mutex_unlock(&fake_lock);
    return HOOP_CU_SUCCESS;
}

EXPORT fake_cuda_capture_t fake_cuda_capture; /* in fake_cuda.c */
EXPORT fake_cuda_end_t fake_cuda_end;
EXPORT fake_cuda_replay_t fake_cuda_replay;
EXPORT fake_cuda_drop_t fake_cuda_drop;

hoop_cu_graph_t fake_cuda_end(hoop_stream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    struct hoop_cu_graph *graph = fake_stream_capture(stream, false);
    pthread_mutex_unlock(&fake_lock);
    if (graph == NULL || !graph->spoilt) {
        return graph;
    }
    fake_cuda_drop(graph);
    return NULL;
}

/* With the lock: each time with a kernel of its own, which is freed when it ends. */
static int task_push(hoop_stream_t stream, const struct fake_task *what)
{
    struct fake_task task = *what;
    task.kernel = fake_kernel_copy(what->kernel);
    if (what->kernel != NULL && task.kernel == NULL) {
        return HOOP_CU_OUT_OF_MEMORY;
    }
    const int result = fake_push(stream, &task);
    if (result != HOOP_CU_SUCCESS) {
        free(task.kernel);
    }
    return result;
}

int fake_cuda_replay(hoop_cu_graph_t graph, hoop_stream_t stream)
{
    int result = HOOP_CU_SUCCESS;
    pthread_mutex_lock(&fake_lock);
    for (const struct fake_task *at = graph->first; at != NULL && result == 0; at = at->next) {
        result = task_push(stream, at);
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

void fake_cuda_drop(hoop_cu_graph_t graph)
{
    while (graph != NULL && graph->first != NULL) {
        struct fake_task *task = graph->first;
        graph->first = task->next;
        free(task->kernel);
        free(task);
    }
    while (graph != NULL && graph->objects != NULL) {
        struct hoop_cu_object *object = graph->objects;
        graph->objects = object->next;
        fake_call_back(object->destroy, object->ptr);
        free(object);
    }
    free(graph);
}

/* ---- What programs call ---- */

/* Used by programs, not by hoop. */
EXPORT int fake_begin(hoop_stream_t stream, int mode) __asm__("cuStreamBeginCapture_v2");
EXPORT int fake_end(hoop_stream_t stream, hoop_cu_graph_t *ret) __asm__("cuStreamEndCapture");
EXPORT int fake_instantiate(hoop_cu_graph_t *ret, hoop_cu_graph_t graph,
                            unsigned long long flags) __asm__("cuGraphInstantiateWithFlags");
EXPORT int fake_graph_launch(hoop_cu_graph_t exec, hoop_stream_t stream) __asm__("cuGraphLaunch");
EXPORT int fake_exec_destroy(hoop_cu_graph_t exec) __asm__("cuGraphExecDestroy");
EXPORT int fake_graph_destroy(hoop_cu_graph_t graph) __asm__("cuGraphDestroy");

int fake_begin(hoop_stream_t stream, int mode)
{
    (void)mode;
    fake_cuda_capture(stream, 1);
    return HOOP_CU_SUCCESS;
}

int fake_end(hoop_stream_t stream, hoop_cu_graph_t *ret)
{
    *ret = fake_cuda_end(stream);
    return *ret != NULL ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

int fake_instantiate(hoop_cu_graph_t *ret, hoop_cu_graph_t graph, unsigned long long flags)
{
    graph->users++;
    *ret = graph;
    return flags == 0 ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_VALUE;
}

int fake_graph_launch(hoop_cu_graph_t exec, hoop_stream_t stream)
{
    return fake_cuda_replay(exec, stream);
}

int fake_graph_destroy(hoop_cu_graph_t graph)
{
    if (--graph->users == 0) {
        fake_cuda_drop(graph);
    }
    return HOOP_CU_SUCCESS;
}

int fake_exec_destroy(hoop_cu_graph_t exec)
{
    return fake_graph_destroy(exec);
}
