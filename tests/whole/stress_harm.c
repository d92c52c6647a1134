/* See stress_harm.h. */
#include "whole/stress_harm.h"
#include "base/clock.h"
#include "harness/sanitizer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HARM_CHILD_SECONDS 20

static const char *const names[HARM_KINDS] = {"none",   "abort", "revoke", "exit",
                                              "cancel", "fork",  "calls",  "hang"};

enum stress_harm stress_harm_from(const char *name)
{
    int harm = 0;
    while (harm < HARM_KINDS && strcmp(names[harm], name) != 0) {
        harm++;
    }
    return (enum stress_harm)harm;
}

const char *stress_harm_name(enum stress_harm harm)
{
    return names[harm];
}

bool stress_harm_fails(enum stress_harm harm)
{
    return harm != HARM_NONE && harm != HARM_FORK;
}

/* ---- System calls that fail: the program is linked with --wrap ---------------------------- */

/* How many of the wrapped calls succeed before some fail; negative: all succeed. */
static _Atomic int calls_left = -1;
static _Atomic int calls_fail;

/* Must this call fail? */
static bool call_fails(int error)
{
    if (atomic_load_explicit(&calls_left, memory_order_relaxed) < 0) {
        return false;
    }
    if (atomic_fetch_sub(&calls_left, 1) > 0) {
        return false;
    }
    const bool fails = atomic_fetch_sub(&calls_fail, 1) > 0;
    atomic_store(&calls_left, fails ? 0 : -1);
    errno = fails ? error : errno;
    return fails;
}

#define WRAP(result, failed, error, name, parameters, arguments)                                   \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        return call_fails(error) ? (failed) : __real_##name arguments;                             \
    }
WRAP(int, -1, EMFILE, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(int, -1, EMFILE, socket, (int family, int kind, int protocol), (family, kind, protocol))
WRAP(int, -1, EMFILE, eventfd, (unsigned value, int flags), (value, flags))
WRAP(void *, (void *)-1, ENOMEM, mmap64,
     (void *at, size_t bytes, int access, int flags, int fd, off_t offset),
     (at, bytes, access, flags, fd, offset))

/* ---- Harms -------------------------------------------------------------------------------- */

/* Under the stream's lock the handle can't be freed. */
static void harm_comm(struct stress_harmer *harmer, struct stress_random *random)
{
    struct stress_stream *stream =
        &harmer->streams[stress_below(random, (uint32_t)harmer->n_streams)];
    struct stress_comm *it = &stream->comms[stress_below(random, STRESS_COMMS)];
    pthread_mutex_lock(&stream->lock);
    if (it->comm != HOOP_COMM_NULL) {
        (void)(harmer->harm == HARM_ABORT ? hoop_comm_abort(it->comm)
                                          : hoop_comm_revoke(it->comm, HOOP_REVOKE_DEFAULT));
    }
    pthread_mutex_unlock(&stream->lock);
}

/* Does in a forked child what the finalizers of some languages do. */
static _Noreturn void harm_child(const struct stress_harmer *harmer)
{
    (void)alarm(HARM_CHILD_SECONDS);
    for (int i = 0; i < harmer->n_streams; i++) {
        hoop_result_t state;
        hoop_comm_t comm = harmer->streams[i].comms[i % STRESS_COMMS].comm;
        (void)hoop_comm_get_async_error(comm, &state);
        (void)hoop_comm_destroy(comm);
    }
    _exit(0);
}

static void harm_fork(struct stress_harmer *harmer)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    if (!MEMORY_IS_PLAIN) {
        /* A thread's first failure allocates memory, which a child can't always do: malloc() has
         * locks that another thread may have held at the fork. */
        (void)hoop_comm_get_async_error(NULL, NULL);
    }
    while (!atomic_load(&harmer->over) && harmer->wrong[0] == 0) {
        int status = 0;
        for (int i = 0; i < harmer->n_streams; i++) {
            pthread_mutex_lock(&harmer->streams[i].lock); /* the child finds valid handles */
        }
        const pid_t child = fork();
        if (child == 0) {
            harm_child(harmer);
        }
        for (int i = 0; i < harmer->n_streams; i++) {
            pthread_mutex_unlock(&harmer->streams[i].lock);
        }
        if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) {
            (void)snprintf(harmer->wrong, sizeof(harmer->wrong), "a forked child ended with %#x",
                           (unsigned)status);
        }
        nanosleep(&nap, NULL);
    }
}

static void *harm_main(void *arg)
{
    struct stress_harmer *harmer = arg;
    struct stress_random random = stress_random_from(harmer->seed, (uint64_t)harmer->harm, 0, 0);
    const double delay = harmer->seconds * stress_below(&random, 1000) / 1000;
    const struct timespec nap = {.tv_sec = (time_t)delay,
                                 .tv_nsec = (long)((delay - (double)(time_t)delay) * 1e9)};
    if (harmer->harm != HARM_CALLS) {
        nanosleep(&nap, NULL);
    }
    switch (harmer->harm) {
    case HARM_ABORT:
    case HARM_REVOKE:
        harm_comm(harmer, &random);
        break;
    case HARM_EXIT:
        exit(0); // NOLINT(concurrency-mt-unsafe): that is the harm
    case HARM_CANCEL:
        (void)pthread_cancel(harmer->threads[stress_below(&random, (uint32_t)harmer->n_streams)]);
        break;
    case HARM_FORK:
        harm_fork(harmer);
        break;
    case HARM_HANG:
        for (;;) {
            pause();
        }
    default:
        atomic_store(&calls_fail, 1 + (int)stress_below(&random, 4));
        atomic_store(&calls_left, (int)stress_below(&random, 200));
        break;
    }
    return NULL;
}

void stress_harm_start(struct stress_harmer *harmer)
{
    if (harmer->harm != HARM_NONE) {
        harmer->started = pthread_create(&harmer->thread, NULL, harm_main, harmer) == 0;
    }
}

void stress_harm_join(struct stress_harmer *harmer)
{
    atomic_store(&harmer->over, true);
    if (harmer->started) {
        (void)pthread_join(harmer->thread, NULL);
    }
}
