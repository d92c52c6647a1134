/* The graphs of the fake driver (see fake_cuda.h): what was put on a stream that captured, again
 * and again, in its order. */
#include "fakes/fake_cuda.h"

#include "fakes/fake_cuda_inside.h"

#include <stdlib.h>

/* Something that a graph keeps, and whose end it tells. */
struct hoop_cu_object {
    struct hoop_cu_object *next;
    hoop_cu_host_fn_t *destroy;
    void *ptr;
};

struct hoop_cu_graph {
    struct fake_task *first, **last;
    struct hoop_cu_object *objects;
};

struct hoop_cu_graph *fake_graph_create(void)
{
    struct hoop_cu_graph *graph = calloc(1, sizeof(*graph));
    if (graph != NULL) {
        graph->last = &graph->first;
    }
    return graph;
}

int fake_graph_add(struct hoop_cu_graph *graph, const struct fake_task *what)
{
    const bool can = what->kind == FAKE_COPY || what->kind == FAKE_FILL ||
                     what->kind == FAKE_HOST || what->kind == FAKE_VALUE;
    struct fake_task *task = can ? malloc(sizeof(*task)) : NULL;
    if (task == NULL) {
        return FAKE_CAPTURE_UNSUPPORTED;
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

EXPORT fake_cuda_end_t fake_cuda_end;
EXPORT fake_cuda_replay_t fake_cuda_replay;
EXPORT fake_cuda_drop_t fake_cuda_drop;

hoop_cu_graph_t fake_cuda_end(hoop_stream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    struct hoop_cu_graph *graph = fake_stream_capture(stream, false);
    pthread_mutex_unlock(&fake_lock);
    return graph;
}

int fake_cuda_replay(hoop_cu_graph_t graph, hoop_stream_t stream)
{
    int result = HOOP_CU_SUCCESS;
    pthread_mutex_lock(&fake_lock);
    for (const struct fake_task *at = graph->first; at != NULL && result == 0; at = at->next) {
        result = fake_push(stream, at);
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

void fake_cuda_drop(hoop_cu_graph_t graph)
{
    while (graph != NULL && graph->first != NULL) {
        struct fake_task *task = graph->first;
        graph->first = task->next;
        free(task);
    }
    while (graph != NULL && graph->objects != NULL) {
        struct hoop_cu_object *object = graph->objects;
        graph->objects = object->next;
        object->destroy(object->ptr);
        free(object);
    }
    free(graph);
}
