/* Births; see birth.h. */
#include "birth/birth.h"

#include "birth/shrink.h"
#include "birth/split.h"
#include "runtime/worker.h"
#include "stream/batch.h"
#include <stdlib.h>
#include <string.h>

/* ---- One ---------------------------------------------------------------------------------------
 */

hoop_result_t hoop_birth_join(const struct hoop_comm_options *options, hoop_comm_t *ret,
                              struct hoop_birth *birth)
{
    *birth = (struct hoop_birth){.ret = ret, .options.blocking = options->blocking};
    hoop_result_t result = hoop_comm_create(&birth->comm);
    if (result == HOOP_OK) {
        birth->comm->device = options->device >= 0 ? options->device : birth->comm->device;
        result = hoop_comm_begin(birth->comm, options);
    }
    if (result != HOOP_OK) {
        hoop_birth_drop(birth);
    }
    return result;
}

/* One split has failed (NULL: some, before or in an exchange), so none is made. Ranks of other
 * parents, or of all, wait for this one: fails those. */
static void births_tell(const struct hoop_birth *births, size_t count,
                        const struct hoop_birth *failed)
{
    const struct hoop_comm *its = failed != NULL ? failed->parent : NULL;
    for (size_t i = 0; i < count; i++) {
        struct hoop_comm *parent = births[i].parent;
        if (parent != NULL && (its == NULL || parent->job_id != its->job_id)) {
            hoop_comm_raise(parent, HOOP_REMOTE_ERROR, (int)parent->rank,
                            "rank %u makes no communicator%s: %s", parent->rank,
                            count > 1 ? " of a group, because one of them could not be made" : "",
                            hoop_thread_error());
        }
    }
}

static hoop_result_t birth_create(struct hoop_birth *birth)
{
    const hoop_result_t result = hoop_comm_create(&birth->comm);
    if (result != HOOP_OK) {
        births_tell(birth, 1, NULL);
    }
    return result;
}

hoop_result_t hoop_birth_split(struct hoop_comm *parent, int color, int key,
                               const struct hoop_comm_options *options, hoop_comm_t *ret,
                               struct hoop_birth *birth)
{
    *birth = (struct hoop_birth){
        .ret = ret, .options = *options, .parent = parent, .color = color, .key = key};
    return color >= 0 ? birth_create(birth) : HOOP_OK;
}

hoop_result_t hoop_birth_grow(struct hoop_comm *parent, uint32_t n, const hoop_unique_id_t *id,
                              const struct hoop_comm_options *options, hoop_comm_t *ret,
                              struct hoop_birth *birth)
{
    *birth = (struct hoop_birth){.ret = ret, .options = *options, .parent = parent, .grown = n};
    const hoop_result_t result = id != NULL ? hoop_split_invited(birth, id) : HOOP_OK;
    return result == HOOP_OK ? birth_create(birth) : result;
}

hoop_result_t hoop_birth_shrink(struct hoop_comm *parent, const int *exclude, size_t count,
                                bool abort, const struct hoop_comm_options *options,
                                hoop_comm_t *ret, struct hoop_birth *birth)
{
    *birth = (struct hoop_birth){.ret = ret, .options = *options, .parent = parent};
    hoop_result_t result = hoop_shrink_create(birth, exclude, count, abort);
    if (result == HOOP_OK) {
        result = hoop_comm_create(&birth->comm);
    }
    if (result != HOOP_OK) {
        hoop_shrink_finish(birth);
    }
    return result;
}

void hoop_birth_drop(struct hoop_birth *birth)
{
    hoop_shrink_finish(birth); /* first, since it watches the new comm */
    (void)hoop_comm_end(birth->comm);
    birth->comm = NULL;
    hoop_split_finish(birth);
}

/* ---- Step by step ------------------------------------------------------------------------------
 */

static bool births_is_split(const struct hoop_birth *birth)
{
    return birth->parent != NULL && birth->shrink == NULL;
}

static bool births_shrinks(const struct hoop_birth *birth)
{
    return birth->shrink != NULL && !hoop_shrink_is_through(birth);
}

/* Does one exchange for all splits. */
static hoop_result_t births_exchange(struct hoop_birth *births, size_t count)
{
    size_t n = 0;
    struct hoop_work *work = calloc(count + 1, sizeof(*work));
    if (work == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %zu splits", count);
    }
    for (size_t i = 0; i < count; i++) {
        if (births_is_split(&births[i])) {
            work[n++] = (struct hoop_work){.comm = births[i].parent,
                                           .request = hoop_split_request(&births[i])};
        }
    }
    const hoop_result_t result = hoop_batch_run(work, n);
    free(work);
    return result;
}

typedef hoop_result_t births_step_fn(struct hoop_birth *birth);

/* Runs these steps, each for all births that take part before the next, until the first failure,
 * and sets *ret_failed to its birth, or NULL if others do not know of it: in the first step, and
 * after an exchange. A NULL step is the exchange of words. */
static hoop_result_t births_step(struct hoop_birth *births, size_t count,
                                 bool (*takes_part)(const struct hoop_birth *birth),
                                 births_step_fn *const *steps, size_t n_steps,
                                 const struct hoop_birth **ret_failed)
{
    hoop_result_t result = HOOP_OK;
    for (size_t at = 0; at < n_steps * count && result == HOOP_OK; at++) {
        struct hoop_birth *birth = &births[at % count];
        births_step_fn *step = steps[at / count];
        *ret_failed = step != NULL && at >= count ? birth : NULL;
        if (step != NULL) {
            result = takes_part(birth) ? step(birth) : HOOP_OK;
        } else if (at % count == 0) {
            result = births_exchange(births, count);
        }
    }
    return result;
}

/* Repeats rounds until all are through. */
static hoop_result_t births_shrink(struct hoop_birth *births, size_t count)
{
    static births_step_fn *const steps[] = {hoop_shrink_ask, hoop_shrink_hear, hoop_shrink_join};
    const struct hoop_birth *failed = NULL;
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < count && result == HOOP_OK; i++) {
        while (births_shrinks(&births[i]) && result == HOOP_OK) {
            result = births_step(births, count, births_shrinks, steps, 3, &failed);
        }
    }
    return result;
}

static hoop_result_t births_begin(struct hoop_birth *birth)
{
    return birth->comm != NULL ? hoop_comm_begin(birth->comm, &birth->options) : HOOP_OK;
}

static hoop_result_t births_make(struct hoop_birth *births, size_t count)
{
    static births_step_fn *const steps[] = {hoop_split_begin,  NULL,        hoop_split_plan, NULL,
                                            hoop_split_settle, births_begin};
    const struct hoop_birth *failed = NULL;
    hoop_result_t result = births_step(births, count, births_is_split, steps, 6, &failed);
    if (result != HOOP_OK) {
        births_tell(births, count, failed);
    }
    for (size_t i = 0; i < count && result == HOOP_OK; i++) {
        const bool joins = births[i].comm != NULL && births[i].shrink == NULL;
        result = joins ? hoop_comm_complete(births[i].comm, births[i].parent) : HOOP_OK;
    }
    return result == HOOP_OK ? births_shrink(births, count) : result;
}

/* ---- Waited for --------------------------------------------------------------------------------
 */

static void births_deliver(struct hoop_birth *births, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        births[i].before = *births[i].ret;
        *births[i].ret = births[i].comm;
    }
}

static hoop_result_t births_run_here(struct hoop_birth *births, size_t count)
{
    const hoop_result_t result = births_make(births, count);
    if (result == HOOP_OK) {
        births_deliver(births, count);
    }
    for (size_t i = 0; i < count; i++) {
        births[i].comm = result == HOOP_OK ? NULL : births[i].comm;
        hoop_birth_drop(&births[i]);
    }
    return result;
}

/* ---- In the background -------------------------------------------------------------------------
 */

struct births_worker {
    struct hoop_worker worker;
    struct hoop_comm *finalized; /* or, if NULL: */
    struct hoop_birth *births;
    size_t count;
    struct hoop_comm **held; /* pending comms, each once: new ones, and their parents */
    size_t n_held;
};

static void births_worker_destroy(struct hoop_worker *worker)
{
    struct births_worker *work = HOOP_CONTAINER_OF(worker, struct births_worker, worker);
    free(work->births);
    free(work->held);
    free(work);
}

/* Ends their pending state; afterwards the comms may be freed. */
static void births_let_go(struct births_worker *work)
{
    while (work->n_held > 0) {
        hoop_comm_end_pending(work->held[--work->n_held]);
    }
}

/* Makes comm pending. Returns false if another operation has it. */
static bool births_hold(struct births_worker *work, struct hoop_comm *comm)
{
    bool held = comm == NULL;
    for (size_t i = 0; i < work->n_held; i++) {
        held = held || work->held[i] == comm;
    }
    if (!held && hoop_comm_begin_pending(comm)) {
        work->held[work->n_held++] = comm;
        held = true;
    }
    return held;
}

static bool births_hold_all(struct births_worker *work)
{
    bool held = births_hold(work, work->finalized);
    for (size_t i = 0; i < work->count && held; i++) {
        held = births_hold(work, work->births[i].parent) && births_hold(work, work->births[i].comm);
    }
    return held;
}

static hoop_result_t births_run_worker(struct hoop_worker *worker)
{
    struct births_worker *work = HOOP_CONTAINER_OF(worker, struct births_worker, worker);
    hoop_result_t result = HOOP_OK;
    if (work->finalized != NULL) {
        result = hoop_comm_say_goodbye(work->finalized, true);
        if (result == HOOP_TIMEOUT) { /* nobody waits for the result */
            hoop_comm_raise(work->finalized, result, (int)work->finalized->rank, "finalize: %s",
                            hoop_thread_error());
        }
    } else {
        result = births_make(work->births, work->count);
    }
    for (size_t i = 0; i < work->count; i++) {
        hoop_split_finish(&work->births[i]);
        hoop_shrink_finish(&work->births[i]);
        if (result != HOOP_OK && work->births[i].comm != NULL) {
            hoop_comm_miscarry(work->births[i].comm, result);
        }
    }
    births_let_go(work);
    return result;
}

/* Takes ownership of work. */
static hoop_result_t births_start(struct births_worker *work)
{
    hoop_result_t result =
        births_hold_all(work)
            ? hoop_worker_start(&work->worker, births_run_worker, births_worker_destroy)
            : hoop_error(HOOP_INVALID_USAGE, "the communicator is in progress: "
                                             "hoop_comm_get_async_error() tells when it is ready");
    if (result != HOOP_OK) {
        births_let_go(work);
        births_worker_destroy(&work->worker);
        return result;
    }
    hoop_worker_release(&work->worker);
    return HOOP_IN_PROGRESS;
}

static struct births_worker *births_worker_create(size_t count)
{
    struct births_worker *work = calloc(1, sizeof(*work));
    struct hoop_birth *births = calloc(count + 1, sizeof(*births));
    struct hoop_comm **held = calloc(2 * count + 1, sizeof(struct hoop_comm *));
    if (work == NULL || births == NULL || held == NULL) {
        free(work);
        free(births);
        free(held);
        (void)hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %zu communicators", count);
        return NULL;
    }
    work->births = births;
    work->held = held;
    work->count = count;
    return work;
}

static hoop_result_t births_run_behind(struct hoop_birth *births, size_t count)
{
    struct births_worker *work = births_worker_create(count);
    hoop_result_t result = HOOP_OUT_OF_MEMORY;
    if (work != NULL) {
        memcpy(work->births, births, count * sizeof(*births));
        births_deliver(births, count); /* before another thread can get them */
        result = births_start(work);
        for (size_t i = 0; i < count && result != HOOP_IN_PROGRESS; i++) {
            *births[i].ret = births[i].before;
        }
    }
    if (hoop_result_is_own(result)) {
        births_tell(births, count, NULL);
    }
    for (size_t i = 0; i < count && result != HOOP_IN_PROGRESS; i++) {
        hoop_birth_drop(&births[i]);
    }
    return result;
}

hoop_result_t hoop_birth_finalize(struct hoop_comm *comm)
{
    struct births_worker *work = births_worker_create(0);
    if (work == NULL) {
        return HOOP_OUT_OF_MEMORY;
    }
    work->finalized = comm;
    return births_start(work);
}

hoop_result_t hoop_births_run(struct hoop_birth *births, size_t count)
{
    bool blocking = count == 0;
    for (size_t i = 0; i < count; i++) {
        blocking = blocking || births[i].options.blocking;
    }
    const int before = hoop_cancel_off();
    const hoop_result_t result =
        blocking ? births_run_here(births, count) : births_run_behind(births, count);
    hoop_cancel_restore(before);
    return result;
}
