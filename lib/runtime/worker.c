/* Threads for what may block; see worker.h. */
#include "runtime/worker.h"
#include "base/clock.h"
#include "runtime/process.h"
#include "runtime/wait.h"

void hoop_worker_hold(struct hoop_worker *worker)
{
    atomic_fetch_add(&worker->holders, 1);
}

void hoop_worker_release(struct hoop_worker *worker)
{
    if (atomic_fetch_sub(&worker->holders, 1) == 1) {
        hoop_job_finish(&worker->stop);
        hoop_job_finish(&worker->done);
        worker->destroy(worker);
    }
}

static void *worker_main(void *arg)
{
    struct hoop_worker *worker = arg;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    const hoop_result_t result = worker->run(worker);
    if (result != HOOP_OK) {
        (void)hoop_failure_take(&failure, result, -1);
    }
    hoop_job_complete(&worker->done, &failure);
    hoop_worker_release(worker);
    return NULL;
}

hoop_result_t hoop_worker_start(struct hoop_worker *worker,
                                hoop_result_t (*run)(struct hoop_worker *worker),
                                void (*destroy)(struct hoop_worker *worker))
{
    worker->run = run;
    worker->destroy = destroy;
    hoop_job_init(&worker->stop);
    hoop_job_init(&worker->done);
    atomic_init(&worker->holders, 2);
    const int err = hoop_thread_spawn(worker_main, worker);
    if (err == 0) {
        return HOOP_OK;
    }
    hoop_job_finish(&worker->stop);
    hoop_job_finish(&worker->done);
    return hoop_thread_refused("a thread", err);
}

bool hoop_worker_pause(struct hoop_worker *worker, uint64_t ms)
{
    return hoop_job_wait(&worker->stop, hoop_deadline_ns(ms), NULL) == HOOP_TIMEOUT;
}

void hoop_worker_stop(struct hoop_worker *worker)
{
    hoop_job_complete(&worker->stop, NULL);
    hoop_worker_release(worker);
}

hoop_result_t hoop_worker_await(struct hoop_worker *worker, uint64_t timeout_ms, uint64_t grace_ms)
{
    const hoop_result_t result = hoop_worker_wait(worker, hoop_deadline_ns(timeout_ms));
    hoop_worker_hold(worker);
    hoop_worker_stop(worker);
    return result == HOOP_TIMEOUT ? hoop_worker_wait(worker, hoop_deadline_ns(grace_ms)) : result;
}

hoop_result_t hoop_worker_wait(struct hoop_worker *worker, uint64_t deadline_ns)
{
    struct hoop_failure failure = {.code = HOOP_OK};
    const hoop_result_t result = hoop_job_wait(&worker->done, deadline_ns, &failure);
    return failure.code == HOOP_OK ? result : hoop_error(result, "%s", failure.text);
}
