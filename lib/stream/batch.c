/* Operations that are moved together (see batch.h). */
#include "stream/batch.h"

#include "base/clock.h"

#include <stdlib.h>

static void batch_over(struct hoop_batch *batch, struct hoop_batch_comm *member,
                       hoop_result_t result)
{
    if (result != HOOP_OK && batch->result == HOOP_OK) {
        batch->result = result;
        batch->why = calloc(1, sizeof(*batch->why));
        if (batch->why != NULL) {
            (void)hoop_failure_take(batch->why, result, -1);
        }
    }
    member->sleeper = NULL;
    member->failed = result != HOOP_OK;
    member->state = HOOP_BATCH_OVER;
    batch->left--;
}

static void batch_leave(struct hoop_batch *batch, struct hoop_batch_comm *member,
                        hoop_result_t result)
{
    struct hoop_comm *comm = member->comm;
    if (member->sleeper != NULL && !comm->over) {
        /* Cleared so that only the next driver sets it; this thread may be about to sleep. */
        atomic_store_explicit(comm->sleeper.sleeping, 0, memory_order_relaxed);
    }
    batch_over(batch, member, result);
    hoop_turn_leave(&comm->turn);
}

/* Begins the comm's next work from index `at` on; without any the member is over. */
static void batch_next(struct hoop_batch *batch, struct hoop_batch_comm *member)
{
    while (member->at < batch->count && batch->work[member->at].comm != member->comm) {
        member->at++;
    }
    hoop_result_t result = HOOP_OK;
    const bool more = member->at < batch->count;
    if (more) {
        result = hoop_driver_begin(member->comm, &batch->work[member->at].request);
    }
    if (!more || result != HOOP_OK) {
        batch_leave(batch, member, result);
    }
}

static void batch_enter(struct hoop_batch *batch, struct hoop_batch_comm *member)
{
    member->state = HOOP_BATCH_RUNNING;
    member->sleeper = &member->comm->sleeper;
    batch_next(batch, member);
}

/* A member is about to fail, and will wait until no rank is in its buffers. Members that this
 * thread drives could not leave them meanwhile, so they do now. */
static void batch_leave_devices(struct hoop_batch *batch, const struct hoop_batch_comm *failing)
{
    const uint64_t deadline_ns = hoop_deadline_ns(failing->comm->op_timeout_ms);
    const int before = hoop_cancel_off();
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        const struct hoop_batch_comm *member = &batch->comms[c];
        /* all ranks of the communicator fail */
        if (member->state == HOOP_BATCH_RUNNING && member->comm->job_id == failing->comm->job_id) {
            hoop_operation_let_kernels_go(&member->comm->operation);
        }
    }
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        const struct hoop_batch_comm *member = &batch->comms[c];
        if (member != failing && member->state == HOOP_BATCH_RUNNING) {
            (void)hoop_operation_leave_device(&member->comm->operation, deadline_ns);
        }
    }
    hoop_cancel_restore(before);
}

static void batch_finish_one(struct hoop_batch *batch, struct hoop_batch_comm *member,
                             hoop_result_t waited)
{
    if (waited != HOOP_OK || member->comm->operation.failure.code != HOOP_OK) {
        batch_leave_devices(batch, member);
    }
    const hoop_result_t result = hoop_driver_end(member->comm, waited);
    if (result != HOOP_OK) {
        batch_leave(batch, member, result);
    } else {
        member->at++;
        hoop_turn_move(&member->comm->turn);
        batch_next(batch, member);
    }
}

static enum hoop_poll batch_poll_running(struct hoop_batch *batch, struct hoop_batch_comm *member,
                                         bool look)
{
    struct hoop_comm *comm = member->comm;
    enum hoop_poll polled = hoop_driver_poll(comm, look);
    if (batch->unhurried && look && comm->operation.state == OP_FETCH) {
        comm->deadline_ns = hoop_deadline_ns(comm->op_timeout_ms);
        hoop_turn_move(&comm->turn); /* those behind in line wait for the stream as well */
    }
    const bool late = polled == HOOP_POLL_IDLE && look && hoop_now_ns() >= comm->deadline_ns;
    if (late) {
        polled = hoop_poll_out(hoop_driver_poll, comm); /* see hoop_wait() */
    }
    if (polled == HOOP_POLL_DONE || late) {
        batch_finish_one(batch, member, polled == HOOP_POLL_DONE ? HOOP_OK : HOOP_TIMEOUT);
        return HOOP_POLL_BUSY;
    }
    return polled;
}

static enum hoop_poll batch_poll_queued(struct hoop_batch *batch, struct hoop_batch_comm *member)
{
    const hoop_result_t turn = hoop_turn_poll(&member->place);
    if (turn == HOOP_AGAIN) {
        return HOOP_POLL_IDLE;
    }
    if (turn == HOOP_OK) {
        batch_enter(batch, member);
    } else {
        batch_over(batch, member, hoop_driver_miss_turn(member->comm));
    }
    return HOOP_POLL_BUSY;
}

enum hoop_poll hoop_batch_poll(struct hoop_batch *batch, bool look)
{
    bool busy = false;
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        struct hoop_batch_comm *member = &batch->comms[c];
        enum hoop_poll polled = HOOP_POLL_IDLE;
        if (member->state == HOOP_BATCH_RUNNING) {
            polled = batch_poll_running(batch, member, look);
        } else if (member->state == HOOP_BATCH_QUEUED) {
            polled = batch_poll_queued(batch, member);
        }
        busy |= polled != HOOP_POLL_IDLE;
    }
    return batch->left == 0 ? HOOP_POLL_DONE : busy ? HOOP_POLL_BUSY : HOOP_POLL_IDLE;
}

static int batch_by_id(const void *a, const void *b)
{
    const struct hoop_comm *left = ((const struct hoop_batch_comm *)a)->comm;
    const struct hoop_comm *right = ((const struct hoop_batch_comm *)b)->comm;
    return (left->id > right->id) - (left->id < right->id);
}

void hoop_batch_init(struct hoop_batch *batch, struct hoop_work *work, size_t count,
                     struct hoop_batch_comm *comms)
{
    *batch = (struct hoop_batch){.work = work, .count = count, .comms = comms};
    for (size_t i = 0; i < count; i++) {
        comms[i] = (struct hoop_batch_comm){.comm = work[i].comm};
    }
    qsort(comms, count, sizeof(*comms), batch_by_id);
    for (size_t i = 0; i < count; i++) {
        if (batch->n_comms == 0 || comms[batch->n_comms - 1].comm != comms[i].comm) {
            comms[batch->n_comms++].comm = comms[i].comm;
        }
    }
    batch->left = batch->n_comms;
}

void hoop_batch_finish(struct hoop_batch *batch)
{
    free(batch->why);
}

/* Takes the turn of every comm, or gets in line for it. Polls may follow. */
static void batch_begin(struct hoop_batch *batch)
{
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        struct hoop_batch_comm *member = &batch->comms[c];
        struct hoop_comm *comm = member->comm;
        if (hoop_turn_take(&comm->turn)) {
            batch_enter(batch, member);
        } else {
            hoop_turn_queue(&comm->turn, &member->place, hoop_comm_patience_ms(comm));
            member->sleeper = member->place.sleeper;
            (void)batch_poll_queued(batch, member);
        }
    }
}

hoop_result_t hoop_batch_refuse(struct hoop_batch *batch)
{
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        struct hoop_comm *comm = batch->comms[c].comm;
        hoop_result_t result = hoop_comm_refuse(comm);
        if (result == HOOP_OK && comm->dropped) {
            result = hoop_error(HOOP_ABORTED, "the communicator was aborted");
        }
        if (result != HOOP_OK) {
            batch_over(batch, &batch->comms[c], result);
        }
    }
    return hoop_batch_result(batch);
}

void hoop_batch_reserve(struct hoop_batch *batch, struct hoop_sleeper *sleeper)
{
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        struct hoop_batch_comm *member = &batch->comms[c];
        struct hoop_comm *comm = member->comm;
        if (member->state == HOOP_BATCH_QUEUED) {
            hoop_turn_reserve(&comm->turn, &member->place, sleeper, hoop_comm_patience_ms(comm));
        }
    }
}

void hoop_batch_drop(struct hoop_batch *batch, const struct hoop_comm *comm, hoop_result_t code)
{
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        struct hoop_batch_comm *member = &batch->comms[c];
        if (member->comm == comm && member->state == HOOP_BATCH_QUEUED) {
            hoop_turn_drop(&member->place);
            batch_over(batch, member, code);
        }
    }
}

hoop_result_t hoop_batch_result(const struct hoop_batch *batch)
{
    return batch->why != NULL ? hoop_error(batch->result, "%s", batch->why->text) : batch->result;
}

bool hoop_batch_has_failed(const struct hoop_batch *batch, size_t i)
{
    uint32_t c = 0;
    while (batch->comms[c].comm != batch->work[i].comm) {
        c++;
    }
    return batch->comms[c].failed && i >= batch->comms[c].at;
}

uint32_t hoop_batch_sleepers(const struct hoop_batch *batch, struct hoop_sleeper **ret,
                             uint32_t most)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        if (batch->comms[c].sleeper != NULL) {
            if (count < most) {
                ret[count] = batch->comms[c].sleeper;
            }
            count++;
        }
    }
    return count;
}

/* ---- A whole batch -------------------------------------------------------------------------- */

struct batch_wait {
    struct hoop_batch batch;
    struct hoop_sleeper **sleepers; /* [n_comms] */
    struct hoop_wait wait;
};

static enum hoop_poll batch_wait_poll(void *arg, bool look)
{
    struct batch_wait *waiting = arg;
    struct hoop_batch *batch = &waiting->batch;
    const enum hoop_poll polled = hoop_batch_poll(batch, look);
    if (polled != HOOP_POLL_IDLE) { /* also when all is over: comms may go, with their sleepers */
        waiting->wait.n_sleepers = hoop_batch_sleepers(batch, waiting->sleepers, batch->n_comms);
    }
    return polled;
}

static void batch_wait(struct batch_wait *waiting)
{
    struct hoop_batch *batch = &waiting->batch;
    struct hoop_spin spin = {.ns = UINT64_MAX};
    batch_begin(batch);
    for (uint32_t c = 0; c < batch->n_comms; c++) {
        /* A comm in line has no say: its spin time belongs to the holder of the turn. */
        const bool mine = batch->comms[c].state == HOOP_BATCH_RUNNING;
        const uint64_t its_ns = mine ? batch->comms[c].comm->spin.ns : UINT64_MAX;
        spin.ns = its_ns < spin.ns ? its_ns : spin.ns;
    }
    waiting->wait = (struct hoop_wait){
        .poll = batch_wait_poll,
        .arg = waiting,
        .sleepers = waiting->sleepers,
        .n_sleepers = hoop_batch_sleepers(batch, waiting->sleepers, batch->n_comms),
        .spin = spin.ns != 0 && spin.ns != UINT64_MAX ? &spin : NULL,
    };
    hoop_wait(&waiting->wait); /* every work has its own deadline */
}

hoop_result_t hoop_work_fail(const struct hoop_work *work, size_t count, hoop_result_t code)
{
    for (size_t i = 0; i < count; i++) {
        hoop_comm_raise(work[i].comm, code, (int)work[i].comm->rank, "rank %u: %s",
                        work[i].comm->rank, hoop_thread_error());
    }
    return code;
}

hoop_result_t hoop_batch_run(struct hoop_work *work, size_t count)
{
    if (count == 0) {
        return HOOP_OK;
    }
    struct batch_wait waiting = {.sleepers = calloc(count, sizeof(struct hoop_sleeper *))};
    struct hoop_batch *batch = &waiting.batch;
    const int before = hoop_cancel_off();
    struct hoop_batch_comm *comms = calloc(count, sizeof(*comms));
    hoop_result_t result = HOOP_OUT_OF_MEMORY;
    if (comms == NULL || waiting.sleepers == NULL) {
        hoop_work_fail(work, count,
                       hoop_error(result, "no memory for a group of %zu calls", count));
    } else {
        hoop_batch_init(batch, work, count, comms);
        batch_wait(&waiting);
        result = hoop_batch_result(batch);
        hoop_batch_finish(batch);
    }
    free(comms);
    free(waiting.sleepers);
    hoop_cancel_restore(before);
    return result;
}

/* ---- Several ranks of a communicator ------------------------------------------------------- */

/* How many ranks of work[first]'s communicator have calls in the work. 0: an entry before `first`
 * belongs to the same communicator, and was counted. */
static uint32_t work_count_ranks(const struct hoop_work *work, size_t count, size_t first)
{
    uint32_t ranks = 0;
    for (size_t i = 0; i < count; i++) {
        const struct hoop_comm *comm = work[i].comm;
        bool counts = comm->job_id == work[first].comm->job_id;
        if (counts && i < first) {
            return 0;
        }
        for (size_t j = first; j < i && counts; j++) {
            counts = work[j].comm != comm;
        }
        ranks += counts;
    }
    return ranks;
}

bool hoop_work_is_whole(const struct hoop_work *work, size_t count)
{
    bool whole = true;
    for (size_t i = 0; i < count && whole; i++) {
        const uint32_t here = work[i].comm->here;
        const uint32_t ranks = here > 1 ? work_count_ranks(work, count, i) : 0;
        whole = ranks == 0 || ranks == here;
    }
    return whole;
}

/* ---- Several parts -------------------------------------------------------------------------- */

/* Where the first work of work[i]'s comm is kept, as its index + 1, or is to be: 0. There are
 * 1 << bits places, more than work. */
static size_t *work_first(const struct hoop_work *work, size_t i, size_t *firsts, unsigned bits)
{
    /* Fibonacci hashing, because the low bits of addresses are alike. */
    size_t at =
        (size_t)((uint64_t)(uintptr_t)work[i].comm * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits));
    while (firsts[at] != 0 && work[firsts[at] - 1].comm != work[i].comm) {
        at = (at + 1) & (((size_t)1 << bits) - 1);
    }
    return &firsts[at];
}

bool hoop_work_keeps_order(const struct hoop_work *work, const size_t *part, size_t count)
{
    unsigned bits = 1;
    while ((size_t)1 << bits < 2 * count) {
        bits++;
    }
    size_t *firsts = calloc((size_t)1 << bits, sizeof(*firsts));
    bool keeps = firsts != NULL;
    for (size_t i = 0; i < count && keeps; i++) {
        size_t *first = work_first(work, i, firsts, bits);
        *first = *first == 0 ? i + 1 : *first;
        keeps = part[*first - 1] == part[i];
    }
    free(firsts);
    return keeps;
}
