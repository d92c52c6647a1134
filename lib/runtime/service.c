/*
 * The service thread: a libuv loop in one pthread with all signals blocked, and a queue of calls to
 * run there. libuv provides the loop, its wake-up, timers and the watching of descriptors; sockets
 * are our own, because libuv's pipes cannot pass arbitrary descriptors.
 *
 * The thread ends with the process. It does not exist in a forked child: there only the atfork
 * handler runs, which closes what hoop_fork_keep() has listed and marks the process as forked. It
 * takes no lock but the one that the prepare handler took, and allocates nothing.
 */
#include "runtime/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "runtime/process.h"
#include "runtime/watch.h"
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

/* Descriptors that the loop opens: epoll, wake-up, and pipes for signals. */
#define SERVICE_DESCRIPTORS 8
#define SERVICE_FILES_MOST ((rlim_t)1048576)
#define SERVICE_DRAIN_TURNS 64
#define SERVICE_FREED_FIRST 64

/* How long exit() waits for the service thread to stop. */
#define SERVICE_PARK_MS 2000

/* A call in the queue; in the caller's frame if `job` is set, else allocated. */
struct service_call {
    struct service_call *next;
    void (*fn)(void *arg);
    void *arg;
    struct hoop_job *job; /* NULL: posted, allocated */
    _Alignas(max_align_t) unsigned char copy[];
};

static struct {
    pthread_mutex_t start_lock;
    bool running;       /* under start_lock */
    _Atomic bool ended; /* written once, at exit() */
    uv_loop_t loop;     /* the service thread's */
    uv_async_t wake;
    uint64_t events; /* callbacks of watches and timers so far; the service thread's */
    uv_idle_t sweep; /* runs while there is memory to free */
    uv_prepare_t look;
    struct stat backend; /* identity of the loop's descriptor */
    void **freed;        /* to be freed later; the service thread's, with room from the start */
    size_t freed_count, freed_size;

    pthread_mutex_t queue_lock;
    struct service_call *first, **last; /* under queue_lock */

    pthread_mutex_t fork_lock; /* held across every fork */
    int *kept;                 /* under fork_lock */
    size_t kept_count, kept_size;
} service = {
    .start_lock = PTHREAD_MUTEX_INITIALIZER,
    .queue_lock = PTHREAD_MUTEX_INITIALIZER,
    .fork_lock = PTHREAD_MUTEX_INITIALIZER,
    .last = &service.first,
};

_Atomic bool hoop_service_forked; /* written once, by the child's handler */

static _Thread_local bool service_is_me; /* this is the service thread */

/* ---- The queue ---------------------------------------------------------------------------- */

static void service_run_calls(uv_async_t *wake)
{
    (void)wake;
    pthread_mutex_lock(&service.queue_lock);
    struct service_call *call = service.first;
    service.first = NULL;
    service.last = &service.first;
    pthread_mutex_unlock(&service.queue_lock);
    while (call != NULL) {
        struct service_call *next = call->next;
        struct hoop_job *job = call->job;
        call->fn(call->arg);
        if (job != NULL) {
            hoop_job_complete(job, NULL);
        } else {
            free(call);
        }
        call = next;
    }
}

/*
 * Is the loop's descriptor still open, and the loop's? Does not use epoll_wait(), which would
 * change the order of libuv's events, and consume those that libuv asks for edge-triggered (1.49
 * does).
 */
static bool service_is_whole(void)
{
    struct stat now;
    if (fstat(uv_backend_fd(&service.loop), &now) != 0) {
        return errno != EBADF; /* else it says nothing */
    }
    return service.backend.st_ino == 0 ||
           (now.st_dev == service.backend.st_dev && now.st_ino == service.backend.st_ino);
}

/* libuv would abort without a message. The service thread first gives exit() some time. */
static void service_look(uv_prepare_t *look)
{
    if (!service_is_whole()) {
        (void)poll(NULL, 0, look != NULL ? SERVICE_PARK_MS : 0);
        hoop_log(HOOP_LOG_ERROR, HOOP_LOG_INIT,
                 "this program has closed descriptors of hoop (by closefrom()?) and must end");
        abort();
    }
}

static void service_enqueue(struct service_call *call)
{
    call->next = NULL;
    pthread_mutex_lock(&service.queue_lock);
    const bool was_empty = service.first == NULL;
    *service.last = call;
    service.last = &call->next;
    pthread_mutex_unlock(&service.queue_lock);
    if (was_empty) { /* otherwise the first call's wake-up is still pending */
        const int before = hoop_cancel_off();
        service_look(NULL);
        uv_async_send(&service.wake);
        hoop_cancel_restore(before);
    }
}

bool hoop_service_is_me(void)
{
    return service_is_me;
}

/* Can nothing be run any more? So it is in a forked child, and at the end of exit(). */
static bool service_is_gone(void)
{
    return hoop_is_forked() || atomic_load_explicit(&service.ended, memory_order_relaxed);
}

void hoop_service_post(void (*fn)(void *arg), void *arg, size_t bytes)
{
    if (service_is_gone()) {
        return;
    }
    struct service_call *call = malloc(sizeof(*call) + bytes);
    if (call == NULL) {
        /* a post cannot fail: run it now instead */
        hoop_service_run(fn, arg);
        return;
    }
    *call = (struct service_call){.fn = fn, .arg = call->copy};
    memcpy(call->copy, arg, bytes);
    service_enqueue(call);
}

void hoop_service_run(void (*fn)(void *arg), void *arg)
{
    if (service_is_gone()) {
        return;
    }
    if (service_is_me) {
        fn(arg);
        return;
    }
    struct hoop_job job;
    hoop_job_init(&job);
    struct service_call call = {.fn = fn, .arg = arg, .job = &job};
    service_enqueue(&call);
    (void)hoop_job_wait(&job, HOOP_NEVER, NULL);
    hoop_job_finish(&job);
}

struct service_attempt {
    hoop_result_t (*fn)(void *arg);
    void *arg;
    struct hoop_failure failure;
};

static void service_attempt(void *arg)
{
    struct service_attempt *attempt = arg;
    (void)hoop_failure_take(&attempt->failure, attempt->fn(attempt->arg), -1);
}

hoop_result_t hoop_service_call(hoop_result_t (*fn)(void *arg), void *arg)
{
    struct service_attempt attempt = {.fn = fn, .arg = arg, .failure = {.code = HOOP_OK}};
    hoop_service_run(service_attempt, &attempt);
    return attempt.failure.code == HOOP_OK
               ? HOOP_OK
               : hoop_error(attempt.failure.code, "%s", attempt.failure.text);
}

/* ---- Coming to rest ----------------------------------------------------------------------- */

static void service_count_events(void *arg)
{
    *(uint64_t *)arg = service.events;
}

void hoop_service_drain(void)
{
    uint64_t before = UINT64_MAX;
    uint64_t now = 0;
    /* between two calls the loop has asked the kernel and handled every ready descriptor */
    for (int turn = 0; turn < SERVICE_DRAIN_TURNS && now != before; turn++) {
        before = now;
        hoop_service_run(service_count_events, &now);
    }
}

/* ---- Freeing later ------------------------------------------------------------------------ */

/* Idle handles run between callbacks, never inside one; the loop does not sleep meanwhile. */
static void service_sweep(uv_idle_t *sweep)
{
    for (size_t i = 0; i < service.freed_count; i++) {
        free(service.freed[i]);
    }
    service.freed_count = 0;
    uv_idle_stop(sweep);
}

void hoop_free_later(void *memory)
{
    assert(service_is_me);
    if (memory == NULL) {
        return;
    }
    if (service.freed_count == service.freed_size) {
        const size_t size = service.freed_size * 2;
        void **freed = realloc(service.freed, size * sizeof(*freed));
        if (freed == NULL) {
            return; /* leak it: somebody may still be using it */
        }
        service.freed = freed;
        service.freed_size = size;
    }
    service.freed[service.freed_count++] = memory;
    uv_idle_start(&service.sweep, service_sweep);
}

/* ---- fork --------------------------------------------------------------------------------- */

void hoop_fork_hold(void)
{
    pthread_mutex_lock(&service.fork_lock);
}

void hoop_fork_release(void)
{
    pthread_mutex_unlock(&service.fork_lock);
}

hoop_result_t hoop_fork_keep(int fd)
{
    if (service.kept_count == service.kept_size) {
        const size_t size = service.kept_size == 0 ? 64 : service.kept_size * 2;
        int *kept = realloc(service.kept, size * sizeof(*kept));
        if (kept == NULL) {
            close(fd);
            return hoop_error(HOOP_OUT_OF_MEMORY, "no memory to keep a descriptor");
        }
        service.kept = kept;
        service.kept_size = size;
    }
    service.kept[service.kept_count++] = fd;
    return HOOP_OK;
}

void hoop_fork_close(int fd)
{
    if (fd < 0) {
        return;
    }
    pthread_mutex_lock(&service.fork_lock);
    for (size_t i = 0; i < service.kept_count; i++) {
        if (service.kept[i] == fd) {
            service.kept[i] = service.kept[--service.kept_count];
            break;
        }
    }
    close(fd);
    pthread_mutex_unlock(&service.fork_lock);
}

static void service_child(void)
{
    for (size_t i = 0; i < service.kept_count; i++) {
        close(service.kept[i]);
    }
    service.kept_count = 0;
    atomic_store_explicit(&hoop_service_forked, true, memory_order_relaxed);
    pthread_mutex_unlock(&service.fork_lock);
}

/* ---- Start -------------------------------------------------------------------------------- */

static void *service_main(void *arg)
{
    (void)arg;
    service_is_me = true;
    pthread_setname_np(pthread_self(), "hoop-service");
    uv_run(&service.loop, UV_RUN_DEFAULT); /* the wake handle keeps the loop running */
    return NULL;
}

static hoop_result_t service_spawn(void)
{
    const int err = hoop_thread_spawn(service_main, NULL);
    return err == 0 ? HOOP_OK : hoop_thread_refused("the service thread", err);
}

/*
 * Ranks of one machine need descriptors for each other, and the usual soft limit is meant for
 * programs that use select(). At most a million, because some programs close all descriptors up to
 * the limit.
 */
static void service_raise_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    const rlim_t before = limit.rlim_cur;
    const rlim_t most = limit.rlim_max < SERVICE_FILES_MOST ? limit.rlim_max : SERVICE_FILES_MOST;
    if (before < most) {
        limit.rlim_cur = most;
        if (setrlimit(RLIMIT_NOFILE, &limit) == 0) {
            hoop_log(HOOP_LOG_INFO, HOOP_LOG_INIT,
                     "limit of open files (ulimit -n) raised from %llu to %llu",
                     (unsigned long long)before, (unsigned long long)most);
        }
    }
}

static hoop_result_t service_start_locked(void)
{
    static bool handlers; /* atfork handlers cannot be removed: set them once */
    /* libuv aborts the process if it runs out of descriptors, so check first */
    const hoop_result_t room =
        hoop_process_check_descriptors(SERVICE_DESCRIPTORS, "the service thread");
    if (room != HOOP_OK) {
        return room;
    }
    if (service.freed == NULL) {
        service.freed = calloc(SERVICE_FREED_FIRST, sizeof(void *));
        service.freed_size = service.freed != NULL ? SERVICE_FREED_FIRST : 0;
    }
    if (service.freed == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for the service thread");
    }
    int err = uv_loop_init(&service.loop);
    if (err != 0) {
        return hoop_error(HOOP_SYSTEM_ERROR, "cannot make the service thread's loop: %s",
                          uv_err_name(err));
    }
    err = uv_async_init(&service.loop, &service.wake, service_run_calls);
    if (err != 0) {
        (void)uv_loop_close(&service.loop);
        return hoop_error(HOOP_SYSTEM_ERROR, "cannot make the service thread's wake-up: %s",
                          uv_err_name(err));
    }
    uv_idle_init(&service.loop, &service.sweep);
    uv_prepare_init(&service.loop, &service.look);
    uv_prepare_start(&service.look, service_look);
    (void)fstat(uv_backend_fd(&service.loop), &service.backend);
    if (!handlers && pthread_atfork(hoop_fork_hold, hoop_fork_release, service_child) != 0) {
        err = UV_ENOMEM;
    }
    handlers = err == 0;
    const hoop_result_t result =
        err == 0 ? service_spawn() : hoop_error(HOOP_OUT_OF_MEMORY, "no memory for fork handlers");
    if (result != HOOP_OK) {
        uv_close((uv_handle_t *)&service.wake, NULL);
        uv_close((uv_handle_t *)&service.sweep, NULL);
        uv_close((uv_handle_t *)&service.look, NULL);
        uv_run(&service.loop, UV_RUN_DEFAULT);
        (void)uv_loop_close(&service.loop);
    }
    return result;
}

hoop_result_t hoop_forked_error(void)
{
    return hoop_error(HOOP_INVALID_USAGE,
                      "hoop was in use when this process was forked: a forked child must not call "
                      "it, but may exec");
}

hoop_result_t hoop_service_start(void)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    if (atomic_load(&service.ended)) {
        return hoop_error(HOOP_INVALID_USAGE, "the process is in its exit()");
    }
    pthread_mutex_lock(&service.start_lock);
    hoop_result_t result = HOOP_OK;
    if (!service.running) {
        hoop_process_hold_streams();
        hoop_log_settings();
        service_raise_files();
        result = service_start_locked();
        service.running = result == HOOP_OK;
    }
    pthread_mutex_unlock(&service.start_lock);
    return result;
}

/* ---- The end of the process ----------------------------------------------------------------- */

static void service_park(void *arg)
{
    hoop_job_complete(arg, NULL);
    for (;;) {
        pause();
    }
}

/*
 * exit() takes down, on the thread that calls it, what the service thread uses: libuv. So the
 * service thread is stopped first, whatever other threads do. A log callback may delay it, so with
 * a timeout.
 */
static void service_at_exit(void)
{
    static struct hoop_job job;
    static struct service_call call = {.fn = service_park, .arg = &job};
    pthread_mutex_lock(&service.start_lock);
    const bool running = service.running && !hoop_is_forked() && !service_is_me;
    pthread_mutex_unlock(&service.start_lock);
    if (running && service_is_whole()) {
        hoop_job_init(&job);
        service_enqueue(&call);
        (void)hoop_job_wait(&job, hoop_deadline_ns(SERVICE_PARK_MS), NULL);
    }
    atomic_store(&service.ended, running);
}

/* Marks the object that this code is in, a plugin perhaps that libhoop.a is linked into, as one
 * that stays: its thread ends with the process, and dlclose() must not take the code away from
 * under it. The program itself need not be found: it stays anyway. */
static void service_stay(void)
{
    Dl_info object;
    if (dladdr(&service, &object) != 0) {
        (void)dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

/* Registered before anything of the program, so that it runs after everything of the program at
 * exit(), such as a destructor that ends a comm. */
__attribute__((constructor(101))) static void service_prepare_exit(void)
{
    service_stay();
    (void)atexit(service_at_exit);
}

/* ---- Watches and timers ------------------------------------------------------------------- */

struct hoop_watch {
    uv_poll_t poll; /* first: closing it frees the whole */
    hoop_watch_fn *fn;
    void *arg;
    int wanted;
};

struct hoop_timer {
    uv_timer_t timer; /* first, likewise */
    hoop_timer_fn *fn;
    void *arg;
};

static void service_free(uv_handle_t *handle)
{
    free(handle);
}

static void watch_ready(uv_poll_t *poll, int status, int events)
{
    struct hoop_watch *watch = (struct hoop_watch *)poll;
    service.events++;
    unsigned ready = (events & UV_WRITABLE) != 0 ? HOOP_WATCH_WRITE : 0;
    if (status < 0) {
        /* libuv has stopped the handle, but reading clears a socket's error */
        (void)uv_poll_start(poll, watch->wanted, watch_ready);
        ready |= HOOP_WATCH_READ;
    }
    if ((events & UV_READABLE) != 0) {
        ready |= HOOP_WATCH_READ;
    }
    watch->fn(watch->arg, ready);
}

void hoop_watch_want(struct hoop_watch *watch, unsigned events)
{
    const int wanted = ((events & HOOP_WATCH_READ) != 0 ? UV_READABLE : 0) |
                       ((events & HOOP_WATCH_WRITE) != 0 ? UV_WRITABLE : 0);
    if (watch != NULL && wanted != watch->wanted) {
        watch->wanted = wanted;
        (void)uv_poll_start(&watch->poll, wanted, watch_ready);
    }
}

hoop_result_t hoop_watch_create(int fd, unsigned events, hoop_watch_fn *fn, void *arg,
                                struct hoop_watch **ret_watch)
{
    struct hoop_watch *watch = calloc(1, sizeof(*watch));
    if (watch == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory to watch a descriptor");
    }
    const int err = uv_poll_init(&service.loop, &watch->poll, fd);
    if (err != 0) {
        free(watch);
        return hoop_error(HOOP_SYSTEM_ERROR, "cannot watch a descriptor: %s", uv_err_name(err));
    }
    watch->fn = fn;
    watch->arg = arg;
    hoop_watch_want(watch, events);
    *ret_watch = watch;
    return HOOP_OK;
}

void hoop_watch_destroy(struct hoop_watch *watch)
{
    if (watch != NULL) {
        uv_close((uv_handle_t *)&watch->poll, service_free);
    }
}

static void timer_due(uv_timer_t *handle)
{
    struct hoop_timer *timer = (struct hoop_timer *)handle;
    service.events++;
    timer->fn(timer->arg);
}

hoop_result_t hoop_timer_create(hoop_timer_fn *fn, void *arg, struct hoop_timer **ret_timer)
{
    struct hoop_timer *timer = calloc(1, sizeof(*timer));
    if (timer == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a timer");
    }
    timer->fn = fn;
    timer->arg = arg;
    uv_timer_init(&service.loop, &timer->timer);
    *ret_timer = timer;
    return HOOP_OK;
}

void hoop_timer_start(struct hoop_timer *timer, uint64_t first_ms, uint64_t repeat_ms)
{
    /* libuv counts from its cached time, which may be old */
    uv_update_time(&service.loop);
    uv_timer_start(&timer->timer, timer_due, first_ms, repeat_ms);
}

void hoop_timer_stop(struct hoop_timer *timer)
{
    uv_timer_stop(&timer->timer);
}

void hoop_timer_destroy(struct hoop_timer *timer)
{
    if (timer != NULL) {
        uv_close((uv_handle_t *)&timer->timer, service_free);
    }
}
