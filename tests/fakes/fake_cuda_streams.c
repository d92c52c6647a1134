/* The streams and events of the fake driver (see fake_cuda.h): a thread for each stream. */
#include "fakes/fake_cuda.h"
#include "fakes/fake_cuda_inside.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STREAMS 64

struct CUstream_st {
    pthread_t thread;
    struct fake_task *first, **last;
    const struct fake_task *running;
    bool ending;
    struct hoop_cu_graph *graph; /* the graph that it captures; NULL: it runs */
    unsigned long long capture;  /* number of the capture, since graphs may have the same address */
    bool blocking;               /* ordered with the default stream */
    struct hoop_cu_context *context;
    unsigned queue;
    uint64_t seed, id;
};

struct hoop_cu_event {
    uint64_t recorded, complete;
    struct hoop_cu_graph *graph; /* the graph in whose capture it was recorded */
    unsigned long long capture;
    unsigned waiting; /* tasks that wait for it */
    bool destroyed;
};

pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
bool fake_broken;
static struct CUstream_st *streams[STREAMS];
static struct CUstream_st legacies[FAKE_CONTEXTS]; /* the default streams; ids from 1 on */
static uint64_t orders, ids = FAKE_CONTEXTS;
static _Thread_local bool relaxed;
static unsigned keeping_out; /* threads that keep others from putting anything on a stream */

static bool is_legacy(const struct CUstream_st *stream)
{
    return stream >= legacies && stream < legacies + FAKE_CONTEXTS;
}

/* The i-th of all possible streams; NULL: it does not exist. */
static struct CUstream_st *stream_at(size_t i)
{
    return i < STREAMS                             ? streams[i]
           : legacies[i - STREAMS].context != NULL ? &legacies[i - STREAMS]
                                                   : NULL;
}

/* ---- Tasks ---- */

static void task_run(struct fake_task *task)
{
    if (task->kind == FAKE_KERNEL) {
        fake_kernel_hear(task->kernel);
    }
    if (task->delay_us != 0) {
        usleep(task->delay_us);
    }
    while (task->held && atomic_load(&fake_held)) {
        usleep(100);
    }
    switch (task->kind) {
    case FAKE_COPY:
        memcpy(task->to, task->from, task->bytes);
        break;
    case FAKE_FILL:
        memset(task->to, task->value, task->bytes);
        break;
    case FAKE_KERNEL:
        fake_kernel_run(task->kernel);
        break;
    case FAKE_HOST:
        fake_call_back(task->fn, task->arg);
        break;
    default:
        break;
    }
}

/* The number of the oldest task on the stream; UINT64_MAX: there is none. */
static uint64_t stream_oldest(const struct CUstream_st *stream)
{
    const struct fake_task *first = stream->running != NULL ? stream->running : stream->first;
    return first != NULL ? first->order : UINT64_MAX;
}

/* The number of the oldest task that has not begun, or is a host function: it keeps back what is
 * behind it in its queue. */
static uint64_t stream_obstacle(const struct CUstream_st *stream)
{
    const struct fake_task *running = stream->running;
    return running != NULL && running->kind == FAKE_HOST ? running->order
           : stream->first != NULL                       ? stream->first->order
                                                         : UINT64_MAX;
}

static unsigned fake_queues(void)
{
    const char *queues = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    return queues != NULL ? (unsigned)atoi(queues) : 0;
}

/* Is nothing on `other` in the way of a task of `mine`? Blocking streams and the default stream
 * wait for each other, and so do streams that share a queue. As on a GPU, no queue keeps a host
 * function back. */
static bool task_passes(const struct fake_task *task, const struct CUstream_st *mine,
                        const struct CUstream_st *other)
{
    const bool in_order =
        mine->context == other->context &&
        ((is_legacy(mine) && other->blocking) || (mine->blocking && is_legacy(other)));
    const bool one_queue = fake_queues() != 0 && task->kind != FAKE_HOST &&
                           mine->queue == other->queue &&
                           fake_device_of(mine->context) == fake_device_of(other->context);
    return other == mine || ((!in_order || stream_oldest(other) > task->order) &&
                             (!one_queue || stream_obstacle(other) > task->order));
}

static bool task_may_begin(const struct fake_task *task, const struct CUstream_st *mine)
{
    bool may = true;
    for (size_t i = 0; i < STREAMS + FAKE_CONTEXTS && may; i++) {
        may = stream_at(i) == NULL || task_passes(task, mine, stream_at(i));
    }
    if (task->kind == FAKE_VALUE) {
        const uint32_t now = atomic_load_explicit(task->word, memory_order_acquire);
        return may && (int32_t)(now - (uint32_t)task->number) >= 0;
    }
    return may && (task->kind != FAKE_WAIT || task->event->complete >= task->number);
}

static void event_free(struct hoop_cu_event *event)
{
    if (event->destroyed && event->waiting == 0) {
        free(event);
    }
}

/* With the lock. */
static void task_end(struct fake_task *task)
{
    if (task->kind == FAKE_RECORD && task->event->complete < task->number) {
        task->event->complete = task->number;
    }
    if (task->event != NULL) {
        task->event->waiting--;
        event_free(task->event);
    }
    free(task->kernel);
    free(task);
    pthread_cond_broadcast(&fake_changed);
}

/* With the lock: waits until the task may begin. Nobody signals the change of a word. */
static void stream_wait(const struct fake_task *first)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (first != NULL && first->kind == FAKE_VALUE) {
        pthread_cond_timedwait(&fake_changed, &fake_lock, &until);
    } else {
        pthread_cond_wait(&fake_changed, &fake_lock);
    }
}

static void *stream_main(void *arg)
{
    struct CUstream_st *stream = arg;
    pthread_mutex_lock(&fake_lock);
    while (true) {
        struct fake_task *task = stream->first;
        if (task == NULL && stream->ending) {
            break;
        }
        if (task == NULL || (!fake_broken && !task_may_begin(task, stream))) {
            stream_wait(task);
            continue;
        }
        stream->first = task->next;
        stream->last = stream->first == NULL ? &stream->first : stream->last;
        stream->running = task;
        const bool runs = !fake_broken;
        pthread_cond_broadcast(&fake_changed); /* wakes streams behind it in the same queue */
        pthread_mutex_unlock(&fake_lock);
        if (runs) {
            task_run(task);
        }
        pthread_mutex_lock(&fake_lock);
        if (runs && task->kind == FAKE_WRITE) { /* who sees the word finds that the task is over */
            atomic_store_explicit(task->word, (uint32_t)task->number, memory_order_release);
        }
        stream->running = NULL;
        task_end(task);
    }
    pthread_mutex_unlock(&fake_lock);
    return NULL;
}

static bool stream_start(struct CUstream_st *stream)
{
    stream->last = &stream->first;
    stream->seed = (uintptr_t)stream;
    return pthread_create(&stream->thread, NULL, stream_main, stream) == 0;
}

/* Makes a stream with its thread, and adds it to the list. NULL: there is no room. With the
 * lock. */
static struct CUstream_st *stream_add(unsigned flags)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));
    const unsigned queues = fake_queues();
    size_t i = 0;
    while (i < STREAMS && streams[i] != NULL) {
        i++;
    }
    if (stream != NULL) {
        stream->blocking = (flags & HOOP_CU_STREAM_NON_BLOCKING) == 0;
        stream->id = ++ids;
        stream->queue = queues != 0 ? (unsigned)(ids - FAKE_CONTEXTS) % queues : 0;
        stream->context = fake_context();
    }
    if (stream == NULL || i == STREAMS || !stream_start(stream)) {
        free(stream);
        return NULL;
    }
    streams[i] = stream;
    return stream;
}

/* The calling thread's own default stream, which stays. With the lock. */
static struct CUstream_st *stream_of_thread(void)
{
    static _Thread_local struct CUstream_st *own[FAKE_CONTEXTS];
    struct CUstream_st **mine = &own[fake_context_number(fake_context())];
    *mine = *mine != NULL ? *mine : stream_add(0);
    return *mine;
}

/* Finds a stream of this driver; NULL: it is none. With the lock. */
static struct CUstream_st *stream_find(hoop_stream_t handle)
{
    if (handle == FAKE_STREAM_OF_THREAD) {
        return stream_of_thread();
    }
    if (handle == NULL || handle == FAKE_STREAM_LEGACY) {
        const unsigned number = fake_context_number(fake_context());
        struct CUstream_st *legacy = &legacies[number];
        if (legacy->context == NULL) {
            legacy->context = fake_context();
            legacy->id = number + 1;
            legacy->context = stream_start(legacy) ? legacy->context : NULL;
        }
        return legacy->context != NULL ? legacy : NULL;
    }
    for (size_t i = 0; i < STREAMS; i++) {
        if (streams[i] == handle) {
            return handle;
        }
    }
    return NULL;
}

struct hoop_cu_context *fake_context_of(hoop_stream_t handle)
{
    const struct CUstream_st *stream = stream_find(handle);
    return stream != NULL ? stream->context : fake_context();
}

bool fake_is_current(hoop_stream_t handle)
{
    return fake_has_context() && fake_context_of(handle) == fake_context();
}

/* Does a stream capture that is ordered with the default stream? With the lock. */
static bool fake_captures(void)
{
    bool captures = false;
    for (size_t i = 0; i < STREAMS; i++) {
        captures |= streams[i] != NULL && streams[i]->graph != NULL;
    }
    return captures;
}

bool fake_end_captures(void)
{
    const bool captures = fake_captures();
    for (size_t i = 0; i < STREAMS; i++) {
        if (streams[i] != NULL && streams[i]->graph != NULL) {
            fake_graph_spoil(streams[i]->graph);
        }
    }
    return captures;
}

bool fake_is_unsafe(void)
{
    return fake_captures() && !relaxed;
}

/* Puts a copy of *what at the end of the stream, with a random delay. With the lock. */
int fake_push(hoop_stream_t handle, const struct fake_task *what)
{
    struct CUstream_st *stream = stream_find(handle);
    fake_check_caller();
    if (stream == NULL) {
        return HOOP_CU_INVALID_HANDLE;
    }
    while (keeping_out > 0) {
        pthread_cond_wait(&fake_changed, &fake_lock);
    }
    if (fake_broken) {
        return FAKE_ILLEGAL_ADDRESS;
    }
    if (is_legacy(stream) && fake_end_captures()) {
        return HOOP_CU_CAPTURE_IMPLICIT;
    }
    if (stream->graph != NULL) {
        return fake_graph_add(stream->graph, what);
    }
    struct fake_task *task = malloc(sizeof(*task));
    if (task == NULL) {
        return HOOP_CU_OUT_OF_MEMORY;
    }
    *task = *what;
    task->next = NULL;
    task->order = ++orders;
    stream->seed = stream->seed * 6364136223846793005ull + 1442695040888963407ull;
    task->delay_us += (stream->seed >> 60) == 0 ? (unsigned)(stream->seed >> 40) % 500 : 0;
    if (task->event != NULL) {
        task->event->waiting++;
    }
    *stream->last = task;
    stream->last = &task->next;
    pthread_cond_broadcast(&fake_changed);
    return HOOP_CU_SUCCESS;
}

/* ---- The driver's functions ---- */

static bool stream_is_idle(const struct CUstream_st *stream)
{
    return stream == NULL || (stream->first == NULL && stream->running == NULL);
}

/* As in CUDA: waits until all streams have done what is on them. With the lock. */
void fake_drain(void)
{
    size_t i = 0;
    while (i < STREAMS + FAKE_CONTEXTS) {
        if (stream_is_idle(stream_at(i))) {
            i++;
        } else {
            pthread_cond_wait(&fake_changed, &fake_lock);
            i = 0;
        }
    }
}

void fake_wait_for_all(void)
{
    keeping_out++;
    fake_drain();
    keeping_out--;
    pthread_cond_broadcast(&fake_changed);
}

void fake_keep_out(void)
{
    if (getenv("FAKE_CUDA_PIN_WAITS") != NULL) {
        fake_wait_for_all();
    }
}

static bool task_uses(const struct fake_task *task, const unsigned char *at, size_t bytes)
{
    const unsigned char *end = at + bytes;
    return (task->to != NULL && task->to < end && at < task->to + task->bytes) ||
           (task->from != NULL && task->from < end && at < task->from + task->bytes) ||
           (task->kernel != NULL && fake_kernel_uses(task->kernel, at, bytes));
}

static bool stream_uses(const struct CUstream_st *stream, const unsigned char *at, size_t bytes)
{
    bool uses = stream->running != NULL && task_uses(stream->running, at, bytes);
    for (const struct fake_task *task = stream->first; task != NULL && !uses; task = task->next) {
        uses = task_uses(task, at, bytes);
    }
    return uses;
}

bool fake_in_use(const unsigned char *at, size_t bytes)
{
    bool uses = false;
    for (size_t i = 0; i < STREAMS + FAKE_CONTEXTS && !uses; i++) {
        uses = stream_at(i) != NULL && stream_uses(stream_at(i), at, bytes);
    }
    return uses && !fake_broken;
}

int fake_stream_create(hoop_stream_t *ret, unsigned flags)
{
    pthread_mutex_lock(&fake_lock);
    struct CUstream_st *stream = fake_has_context() ? stream_add(flags) : NULL;
    pthread_mutex_unlock(&fake_lock);
    if (stream != NULL) {
        *ret = stream;
    }
    return stream != NULL ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_CONTEXT;
}

int fake_stream_destroy(hoop_stream_t handle)
{
    pthread_mutex_lock(&fake_lock);
    struct CUstream_st *stream = handle != NULL ? stream_find(handle) : NULL;
    for (size_t i = 0; i < STREAMS && stream != NULL; i++) {
        streams[i] = streams[i] == stream ? NULL : streams[i];
    }
    if (stream != NULL) {
        stream->ending = true;
        pthread_cond_broadcast(&fake_changed);
    }
    pthread_mutex_unlock(&fake_lock);
    if (stream == NULL) {
        return HOOP_CU_INVALID_HANDLE;
    }
    pthread_join(stream->thread, NULL);
    free(stream);
    return HOOP_CU_SUCCESS;
}

int fake_stream_query(hoop_stream_t handle)
{
    fake_check_caller();
    pthread_mutex_lock(&fake_lock);
    while (keeping_out > 0) {
        pthread_cond_wait(&fake_changed, &fake_lock);
    }
    const struct CUstream_st *stream = stream_find(handle);
    const int result = fake_broken                                        ? FAKE_ILLEGAL_ADDRESS
                       : stream == NULL                                   ? HOOP_CU_INVALID_HANDLE
                       : stream->graph != NULL                            ? FAKE_CAPTURE_UNSUPPORTED
                       : stream->first != NULL || stream->running != NULL ? HOOP_CU_NOT_READY
                                                                          : HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_stream_synchronize(hoop_stream_t handle)
{
    int result = HOOP_CU_NOT_READY;
    while ((result = fake_stream_query(handle)) == HOOP_CU_NOT_READY) {
        usleep(100);
    }
    return result;
}

int fake_stream_capturing(hoop_stream_t handle, int *ret)
{
    pthread_mutex_lock(&fake_lock);
    const struct CUstream_st *stream = stream_find(handle);
    const struct hoop_cu_graph *graph = stream != NULL ? stream->graph : NULL;
    *ret = graph == NULL                 ? 0
           : fake_graph_is_spoilt(graph) ? FAKE_CAPTURE_FAILED
                                         : HOOP_CU_CAPTURE_ACTIVE;
    const int result = fake_broken      ? FAKE_ILLEGAL_ADDRESS
                       : stream == NULL ? HOOP_CU_INVALID_HANDLE
                       : stream != NULL && is_legacy(stream) && fake_captures()
                           ? HOOP_CU_CAPTURE_IMPLICIT
                           : HOOP_CU_SUCCESS;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_capture_mode(int *mode)
{
    const bool before = relaxed;
    relaxed = *mode == HOOP_CU_CAPTURE_RELAXED;
    *mode = before ? HOOP_CU_CAPTURE_RELAXED : 0;
    return HOOP_CU_SUCCESS;
}

int fake_stream_id(hoop_stream_t handle, unsigned long long *ret)
{
    pthread_mutex_lock(&fake_lock);
    const struct CUstream_st *stream = stream_find(handle);
    const bool captures = stream != NULL && stream->graph != NULL;
    *ret = stream != NULL ? stream->id : 0;
    pthread_mutex_unlock(&fake_lock);
    return captures         ? FAKE_CAPTURE_UNSUPPORTED
           : stream != NULL ? HOOP_CU_SUCCESS
                            : HOOP_CU_INVALID_HANDLE;
}

int fake_stream_context(hoop_stream_t handle, hoop_cu_context_t *ret)
{
    pthread_mutex_lock(&fake_lock);
    const struct CUstream_st *stream = stream_find(handle);
    *ret = stream != NULL ? stream->context : NULL;
    pthread_mutex_unlock(&fake_lock);
    return stream != NULL ? HOOP_CU_SUCCESS : HOOP_CU_INVALID_HANDLE;
}

/* A stream that waits for an event of a capture joins the capture. False: the event belongs to
 * none. With the lock. */
static bool capture_join(hoop_stream_t handle, const struct hoop_cu_event *event)
{
    struct CUstream_st *stream = event->graph != NULL ? stream_find(handle) : NULL;
    if (stream != NULL) {
        stream->graph = event->graph;
        stream->capture = event->capture;
    }
    return stream != NULL;
}

int fake_stream_wait(hoop_stream_t stream, hoop_cu_event_t event, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&fake_lock);
    const struct fake_task task = {.kind = FAKE_WAIT, .event = event, .number = event->recorded};
    const int result = capture_join(stream, event) ? HOOP_CU_SUCCESS : fake_push(stream, &task);
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_event_create(hoop_cu_event_t *ret, unsigned flags)
{
    (void)flags;
    *ret = calloc(1, sizeof(**ret));
    return *ret != NULL ? HOOP_CU_SUCCESS : HOOP_CU_OUT_OF_MEMORY;
}

int fake_event_destroy(hoop_cu_event_t event)
{
    pthread_mutex_lock(&fake_lock);
    event->destroyed = true;
    event_free(event);
    pthread_mutex_unlock(&fake_lock);
    return HOOP_CU_SUCCESS;
}

int fake_event_record(hoop_cu_event_t event, hoop_stream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_task task = {
        .kind = FAKE_RECORD, .event = event, .number = event->recorded + 1};
    const struct CUstream_st *on = stream_find(stream);
    event->graph = on != NULL ? on->graph : NULL;
    event->capture = on != NULL ? on->capture : 0;
    const int result = event->graph != NULL ? HOOP_CU_SUCCESS : fake_push(stream, &task);
    event->recorded += result == HOOP_CU_SUCCESS && event->graph == NULL;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

struct hoop_cu_graph *fake_stream_capture(hoop_stream_t handle, bool on)
{
    struct CUstream_st *stream = stream_find(handle);
    struct hoop_cu_graph *before = stream != NULL ? stream->graph : NULL;
    for (size_t i = 0; i < STREAMS && before != NULL; i++) {
        if (streams[i] != NULL && streams[i]->graph == before) {
            streams[i]->graph = NULL; /* streams that have joined */
        }
    }
    if (stream != NULL) {
        stream->graph = on ? fake_graph_create() : NULL;
        stream->capture = on ? ++ids : 0;
    }
    return before;
}

int fake_capture_info(hoop_stream_t handle, int *ret_status, unsigned long long *ret_id,
                      hoop_cu_graph_t *ret_graph, const void **ret_nodes, size_t *ret_count)
{
    pthread_mutex_lock(&fake_lock);
    const struct CUstream_st *stream = stream_find(handle);
    *ret_graph = stream != NULL ? stream->graph : NULL;
    *ret_status = *ret_graph != NULL ? HOOP_CU_CAPTURE_ACTIVE : 0;
    *ret_id = stream != NULL ? stream->capture : 0;
    pthread_mutex_unlock(&fake_lock);
    return stream != NULL && ret_nodes == NULL && ret_count == NULL ? HOOP_CU_SUCCESS
                                                                    : HOOP_CU_INVALID_HANDLE;
}
