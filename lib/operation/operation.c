/* One operation, from its announcement to its end (see operation.h for the states). */
#include "operation/operation.h"

#include "algo/taking.h"
#include "exec/gate.h"
#include "exec/published.h"

#include <assert.h>
#include <string.h>

/* What the executors need. Announcing does not need it, and is done first. */
static void operation_begin_plan(struct hoop_operation *operation)
{
    const struct hoop_board *board = operation->env.board;
    hoop_plan_begin(&operation->plan, &operation->request.signature, board->me, board->n,
                    operation->request.in == operation->request.out);
}

static void operation_begin_fold(struct hoop_operation *operation)
{
    const struct hoop_signature *s = &operation->request.signature;
    operation->steps.plan = &operation->plan;
    operation->steps.reduction = (struct hoop_reduction){
        .type = (hoop_datatype_t)s->type,
        .op = s->op == HOOP_OP_PRE_MUL_SUM ? HOOP_SUM : (hoop_red_op_t)s->op,
        .divisor = s->op == HOOP_AVG ? operation->env.board->n : 0,
    };
    operation->steps.in = operation->request.in;
    operation->steps.out = operation->request.out;
}

static void operation_prepare(struct hoop_operation *operation)
{
    operation_begin_plan(operation);
    operation_begin_fold(operation);
    operation->steps.ins = operation->buffers.ins;
    operation->steps.outs = operation->buffers.outs;
    operation->steps.far = operation->buffers.far;
    operation->steps.worker = operation->device != 0 ? hoop_operation_worker(operation) : NULL;
    operation->steps.factors =
        operation->device != 0 && hoop_request_has_factor(&operation->request)
            ? operation->buffers.factors
            : NULL;
    operation->steps.work = HOOP_BOARD_IDLE;
    operation->steps.k = operation->steps.cursor = 0;
}

static void operation_follow(struct hoop_operation *operation)
{
    const struct hoop_plan *plan = &operation->plan;
    /* Over links, an operation without elements is a barrier. */
    const bool barrier = plan->count == 0 && hoop_plan_is_over_links(plan->algo);
    operation->steps.steps =
        hoop_algo_steps(barrier ? HOOP_COLL_BARRIER : plan->collective, plan->algo);
    assert(operation->steps.steps != NULL);
}

static void operation_start_exchange(struct hoop_operation *operation)
{
    operation->state = OP_EXCHANGE;
    hoop_exchange_start(&operation->exchange, operation->request.out, &operation->failure);
}

static enum hoop_poll operation_done(struct hoop_operation *operation)
{
    if (__builtin_expect(operation->began_ns != 0, 0)) {
        hoop_operation_tell(operation);
    }
    if (__builtin_expect(operation->env.board->timed, 0)) {
        hoop_operation_note_work(operation);
    }
    const bool vector = operation->request.signature.collective == HOOP_COLL_ALLTOALLV;
    if (__builtin_expect(vector && operation->state != OP_EXCHANGE, 0) &&
        operation->failure.code == HOOP_OK) {
        operation_start_exchange(operation);
        return HOOP_POLL_BUSY;
    }
    operation->state = OP_DONE;
    return HOOP_POLL_DONE;
}

/* ---- Oneshot: the data travel with the announcement ---------------------------------------- */

/* Bytes that a rank contributes for others, if it contributes anything. */
static size_t operation_brought_bytes(const struct hoop_operation *operation, size_t block)
{
    const bool each =
        hoop_extent_is_each(hoop_collectives[operation->request.signature.collective].in);
    return each ? block * (operation->env.board->n - 1) : block;
}

static bool operation_brings(const struct hoop_operation *operation)
{
    const struct hoop_signature *s = &operation->request.signature;
    const struct hoop_board *board = operation->env.board;
    return s->collective == HOOP_COLL_ALL_REDUCE ||
           hoop_blocks_for_others((enum hoop_collective)s->collective, board->n,
                                  s->root == (int32_t)board->me) > 0;
}

/*
 * Prefetches the first cell that will be awaited. The announcement's stores wait until the other
 * cores release their lines, and a processor runs only some forty stores ahead of them: without the
 * prefetch the load would not begin before they are done.
 */
static void operation_expect(const struct hoop_operation *operation)
{
    const struct hoop_board *board = operation->env.board;
    const uint32_t first = operation->cursor, next = first + (first == board->me);
    if (next < operation->until) {
        __builtin_prefetch(hoop_board_cell(board, next, 0));
    }
}

static void operation_publish(struct hoop_operation *operation, uint64_t count, size_t brought)
{
    const struct hoop_board *board = operation->env.board;
    const struct hoop_signature *s = &operation->request.signature;
    const uint32_t n = board->n;
    const enum hoop_collective collective = (enum hoop_collective)s->collective;
    const size_t block = count * hoop_datatype_bytes((hoop_datatype_t)s->type);
    const size_t own = hoop_extent_is_each(hoop_collectives[collective].in) ? block : 0;
    const size_t bytes = operation_brings(operation) ? brought : 0;
    bool tries = false;
    if (brought > HOOP_CELL_DATA_BYTES) {
        tries = hoop_operation_weigh(operation, brought,
                                     hoop_board_around(collective, n, brought, board->sequence));
    }
    if (__builtin_expect(operation->piece > 0, 0) && !tries) {
        hoop_operation_time_grant(operation);
    }
    hoop_published_post(operation->env.board, operation->request.in, brought, bytes,
                        own > 0 && bytes > 0 ? board->me * own : bytes, own);
    operation_begin_plan(operation);
    operation->plan.count = count;
    hoop_plan_oneshot(&operation->plan);
    hoop_published_needs(&operation->plan, &operation->cursor, &operation->until);
    operation_expect(operation);
    operation_begin_fold(operation);
    /* Of two ranks, one that needs the other's data sees all. */
    operation->owes = operation->until - operation->cursor < (n > 2 ? n : 1);
    operation->in_area = brought > HOOP_CELL_DATA_BYTES;
    operation->folds = hoop_published_prepare(operation->env.board, &operation->steps);
    operation->state = OP_GATHER;
}

/* All announcements of this operation are there, and so are those of the operations before it. */
static hoop_result_t operation_settle(struct hoop_operation *operation)
{
    struct hoop_board *board = operation->env.board;
    uint32_t rank = 0;
    return __builtin_expect(board->owing == 0, 1)
               ? HOOP_OK
               : hoop_board_settle(board, 0, &rank, &operation->failure);
}

static void operation_enter(struct hoop_operation *operation);

/* Goes on behind the piece that is done, as if the rest were a call. */
static enum hoop_poll operation_next_piece(struct hoop_operation *operation)
{
    struct hoop_request *request = &operation->request;
    const size_t bytes = operation->piece * operation->plan.type_bytes;
    if (operation->env.board->timed) {
        hoop_operation_note_work(operation);
    }
    request->in = request->in != NULL ? (const uint8_t *)request->in + bytes : NULL;
    request->out = request->out != NULL ? (uint8_t *)request->out + bytes : NULL;
    request->signature.count -= operation->piece;
    hoop_board_begin(operation->env.board, &request->signature, request->site);
    operation_enter(operation);
    return HOOP_POLL_BUSY;
}

static enum hoop_poll operation_gather(struct hoop_operation *operation)
{
    struct hoop_board *board = operation->env.board;
    for (; operation->cursor < operation->until; operation->cursor++) {
        hoop_result_t seen = hoop_board_seen(board, operation->cursor, &operation->failure);
        if (seen == HOOP_AGAIN) {
            return HOOP_POLL_IDLE;
        }
        if (seen == HOOP_OK && operation->in_area &&
            !hoop_board_lies_there(board, operation->cursor)) {
            seen = hoop_board_apart(board, operation->cursor, &operation->failure);
        }
        if (seen != HOOP_OK) {
            return operation_done(operation);
        }
    }
    if (!operation->owes) {
        const hoop_result_t settled = operation_settle(operation);
        if (settled != HOOP_OK) {
            return settled == HOOP_AGAIN ? HOOP_POLL_IDLE : operation_done(operation);
        }
    }
    const uint64_t since = hoop_board_begin_work(board);
    if (operation->folds) {
        void *dst = operation->request.out;
        hoop_fold(&operation->steps.reduction, &dst, 1, board->src, board->n,
                  operation->plan.count);
    } else {
        hoop_published_take(board, &operation->steps);
    }
    hoop_board_end_work(board, since);
    board->owing += operation->owes;
    return __builtin_expect(operation->piece > 0, 0) &&
                   operation->piece < operation->request.signature.count
               ? operation_next_piece(operation)
               : operation_done(operation);
}

/* ---- Over links ----------------------------------------------------------------------------- */

static void operation_start_links(struct hoop_operation *operation)
{
    struct hoop_board *board = operation->env.board;
    const struct hoop_engine_op op = {
        .plan = &operation->plan,
        .steps = operation->steps.steps,
        .reduction = operation->steps.reduction,
        .in = operation->request.in,
        .out = operation->request.out,
        .scratch = operation->scratch.memory,
        .src = board->src,
        .signature = operation->request.signature,
        .sequence = board->sequence,
        .link = operation->env.link,
        .arg = operation->env.arg,
        /* for few elements a copy is cheaper than tracking what was kept */
        .keeps = operation->plan.scratch >= 4096 && hoop_plan_keeps(&operation->plan),
        .ready = hoop_operation_ready(operation),
    };
    hoop_engine_start(operation->env.engine, &op, &operation->failure);
}

/* After a failure the next poll ends the operation. */
static void operation_enter_links(struct hoop_operation *operation)
{
    operation->state = OP_DONE;
    if (hoop_operation_make_scratch(operation) == HOOP_OK) {
        operation->state = OP_RUN;
        operation_start_links(operation);
    }
}

/* A rank that completes an operation in which all wait for all knows that all made the same calls
 * before it. So such an operation begins only when nothing is owed any more. */
static void operation_far(struct hoop_operation *operation)
{
    struct hoop_owed *owed = &operation->env.engine->owed;
    if (owed->count > 0 && !hoop_plan_owes(&operation->plan)) {
        hoop_owed_push(owed);
        operation->cursor = owed->link->params.peer;
        operation->state = OP_OWED;
        return;
    }
    hoop_operation_plan_links(operation);
    operation_follow(operation);
    operation_enter_links(operation);
}

/* ---- Announced, then chosen ---------------------------------------------------------------- */

static void operation_take_plan(struct hoop_operation *operation, const struct hoop_reach *reach)
{
    hoop_operation_grant(operation, reach);
    hoop_plan_choose(operation->env.agreed, reach, &operation->plan);
    if (operation->plan.algo == HOOP_ALGO_SLAB) {
        operation->plan.turn = operation->slab_turn;
        operation->slab_turn += hoop_slab_turns(&operation->plan);
        hoop_operation_map_slabs(operation);
    }
    operation_follow(operation);
    operation->cursor = 0;
    hoop_operation_learn_of_plan(operation, reach);
    if (hoop_plan_is_over_links(operation->plan.algo)) {
        operation_enter_links(operation);
    } else if (hoop_operation_make_scratch(operation) != HOOP_OK) {
        operation->state = OP_DONE;
    } else {
        operation->steps.scratch = operation->plan.scratch > 0 ? operation->scratch.memory : NULL;
        operation->state = hoop_plan_reaches(operation->plan.algo) ? OP_RESOLVE : OP_RUN;
    }
}

static void operation_restart(struct hoop_operation *operation);

static void operation_choose(struct hoop_operation *operation)
{
    struct hoop_buffers *buffers = &operation->buffers;
    const struct hoop_reach reach = hoop_buffers_reach(buffers, &operation->plan);
    const bool there = reach.place == HOOP_REACH_DEVICE;
    if (buffers->trial != HOOP_TRIAL_NONE) {
        hoop_buffers_end_trial(buffers, there, reach.launched);
    }
    if (there && hoop_buffers_are_fresh(buffers)) {
        operation->state = OP_TRY;
    } else if (reach.place == HOOP_REACH_MIXED) {
        operation_restart(operation);
    } else {
        operation_take_plan(operation, &reach);
    }
}

void hoop_operation_announce(struct hoop_operation *operation)
{
    hoop_buffers_announce(&operation->buffers, &operation->plan, operation->request.in,
                          operation->request.out, operation->device, operation->meets,
                          hoop_operation_says(operation));
    operation->cursor = 0;
    operation->announced = true;
    operation->state = OP_ANNOUNCED;
}

static enum hoop_poll operation_await_announcements(struct hoop_operation *operation)
{
    const uint64_t count = operation->plan.count;
    for (; operation->cursor < operation->plan.n; operation->cursor++) {
        const uint32_t rank = operation->cursor;
        hoop_result_t seen = hoop_board_seen(operation->env.board, rank, &operation->failure);
        if (seen == HOOP_AGAIN) {
            return HOOP_POLL_IDLE;
        }
        if (seen == HOOP_OK) {
            seen = hoop_buffers_agree(&operation->buffers, rank, count, &operation->failure);
        }
        if (seen != HOOP_OK) {
            return operation_done(operation);
        }
    }
    const hoop_result_t settled = operation_settle(operation);
    if (settled != HOOP_OK) {
        return settled == HOOP_AGAIN ? HOOP_POLL_IDLE : operation_done(operation);
    }
    if (operation->learned != NULL) {
        hoop_operation_learn(operation);
    }
    operation_choose(operation);
    return HOOP_POLL_BUSY;
}

static enum hoop_poll operation_resolve(struct hoop_operation *operation)
{
    const hoop_result_t result =
        hoop_buffers_resolve(&operation->buffers, &operation->plan, operation->request.in,
                             operation->request.out, &operation->cursor, &operation->failure);
    if (result == HOOP_AGAIN) {
        return HOOP_POLL_IDLE;
    }
    if (result != HOOP_OK) {
        return operation_done(operation);
    }
    operation->state = OP_RUN;
    return HOOP_POLL_BUSY;
}

static enum hoop_poll operation_run(struct hoop_operation *operation)
{
    if (__builtin_expect(hoop_operation_ready(operation) != NULL, 0)) {
        hoop_operation_overlap(operation);
    }
    const enum hoop_poll polled =
        hoop_operation_runs_over_links(operation)
            ? hoop_engine_poll(operation->env.engine)
            : hoop_board_poll(operation->env.board, &operation->steps, &operation->failure);
    if (polled != HOOP_POLL_DONE) {
        return polled == HOOP_POLL_IDLE && hoop_operation_overlap_failed(operation) ? HOOP_POLL_BUSY
                                                                                    : polled;
    }
    if (hoop_plan_reaches(operation->plan.algo) && operation->failure.code == HOOP_OK) {
        hoop_buffers_release(&operation->buffers);
        if (operation->device != 0) {
            hoop_buffers_note(&operation->buffers, &operation->plan);
        }
    }
    return operation_done(operation);
}

/* ---- The whole ------------------------------------------------------------------------------ */

static void operation_alone(struct hoop_operation *operation)
{
    const struct hoop_reach reach = {.mapped = true, .place = HOOP_REACH_DEVICE};
    const void *src = operation->request.in;
    void *dst = operation->request.out;
    if (operation->device != 0) {
        operation_take_plan(operation, &reach);
        return;
    }
    hoop_fold(&operation->steps.reduction, &dst, 1, &src, 1, operation->plan.count);
    (void)operation_done(operation);
}

/*
 * May this rank write its cells, and room for so many bytes? If not, it waits (OP_OWED) until the
 * others are done with at least half, so that a rank that is ahead need not look in every
 * operation.
 */
static bool operation_may_publish(struct hoop_operation *operation, size_t bytes)
{
    const struct hoop_board *board = operation->env.board;
    uint32_t may_owe = board->owing;
    if (hoop_board_has_room(board, bytes, may_owe)) {
        return true;
    }
    do {
        may_owe /= 2;
    } while (!hoop_board_has_room(board, bytes, may_owe));
    operation->may_owe = may_owe;
    operation->cursor = 0;
    operation->state = OP_OWED;
    return false;
}

static void operation_enter(struct hoop_operation *operation)
{
    const struct hoop_signature *s = &operation->request.signature;
    const size_t size = hoop_datatype_bytes((hoop_datatype_t)s->type);
    struct hoop_board *board = operation->env.board;
    bool published = !operation->env.over_links && board->n > 1;
    uint64_t count = s->count;
    if (published &&
        (count * size > operation->oneshot_most[s->collective] || operation->piece > 0)) {
        published = hoop_operation_is_granted(operation);
        count = operation->piece;
    }
    const size_t brought = published ? operation_brought_bytes(operation, count * size) : 0;
    if (__builtin_expect(board->owing != 0, 0) && !operation_may_publish(operation, brought)) {
        return;
    }
    if (published) {
        operation_publish(operation, count, brought);
        return;
    }
    operation_prepare(operation);
    if (board->n == 1) {
        operation_alone(operation);
    } else if (operation->env.over_links) {
        operation_far(operation);
    } else {
        hoop_operation_announce(operation);
    }
}

/* Begins the operation, once all of the input is where it runs. */
static void operation_begin(struct hoop_operation *operation)
{
    const struct hoop_request *request = &operation->request;
    if (request->signature.collective == HOOP_TRANSFER) {
        operation_start_exchange(operation);
        return;
    }
    if (hoop_request_has_factor(request) && operation->device == 0 &&
        hoop_operation_scale(operation) != HOOP_OK) {
        operation->state = OP_DONE;
        return;
    }
    operation_enter(operation);
}

/* Starts again in host memory, because not all ranks' buffers lie on devices that reach each other.
 * All ranks find that alike, and nobody has accessed a buffer yet. */
static void operation_restart(struct hoop_operation *operation)
{
    const bool elsewhere = operation->device != 0;
    operation->device = 0;
    operation->announced = false;
    operation->request.flow = NULL;
    hoop_board_begin(operation->env.board, &operation->request.signature, operation->request.site);
    if (!elsewhere || !hoop_operation_fetches(operation)) {
        operation_begin(operation);
    }
}

void hoop_operation_start(struct hoop_operation *operation, const struct hoop_request *request)
{
    operation->failure.code = HOOP_OK;
    operation->announced = operation->launched = false;
    operation->plan.algo = HOOP_ALGO_ONESHOT;
    operation->staging.overlap.count = 0;
    operation->piece = 0;
    operation->request = *request;
    if (request->signature.collective != HOOP_TRANSFER) {
        hoop_board_begin(operation->env.board, &request->signature, request->site);
    }
    operation->device = 0;
    if (__builtin_expect(!hoop_cuda_is_loaded(), 1) || hoop_operation_is_of_host(request) ||
        (!hoop_operation_awaits_flow(operation) && !hoop_operation_runs_on_device(operation) &&
         !hoop_operation_fetches(operation))) {
        operation_begin(operation);
    }
}

static enum hoop_poll operation_owed(struct hoop_operation *operation)
{
    const hoop_result_t settled =
        operation->env.over_links
            ? hoop_owed_settle(&operation->env.engine->owed, &operation->failure)
            : hoop_board_settle(operation->env.board, operation->may_owe, &operation->cursor,
                                &operation->failure);
    if (settled != HOOP_OK) {
        return settled == HOOP_AGAIN ? HOOP_POLL_IDLE : operation_done(operation);
    }
    operation_enter(operation);
    return HOOP_POLL_BUSY;
}

static enum hoop_poll operation_exchange(struct hoop_operation *operation)
{
    const enum hoop_poll polled = hoop_exchange_poll(&operation->exchange);
    return polled == HOOP_POLL_DONE ? operation_done(operation) : polled;
}

/* Waits for the copies from the device, or to it. */
static enum hoop_poll operation_copy(struct hoop_operation *operation)
{
    const hoop_result_t result = hoop_operation_copied(operation);
    if (result == HOOP_AGAIN) {
        return HOOP_POLL_IDLE;
    }
    if (result == HOOP_OK && operation->state == OP_FETCH && hoop_operation_arrives(operation)) {
        operation_begin(operation);
        return HOOP_POLL_BUSY;
    }
    if (result != HOOP_OK) {
        hoop_failure_take(&operation->failure, result, (int)operation->env.board->me);
    }
    operation->state = OP_DONE; /* the end also of an alltoallv, whose exchange came before */
    return HOOP_POLL_DONE;
}

static enum hoop_poll operation_move(struct hoop_operation *operation)
{
    switch (operation->state) {
    case OP_GATHER:
        return operation_gather(operation);
    case OP_ANNOUNCED:
        return operation_await_announcements(operation);
    case OP_TRY:
        return hoop_operation_try(operation);
    case OP_RESOLVE:
        return operation_resolve(operation);
    case OP_RUN:
        return operation_run(operation);
    case OP_OWED:
        return operation_owed(operation);
    case OP_EXCHANGE:
        return operation_exchange(operation);
    case OP_FETCH:
    case OP_DELIVER:
        return operation_copy(operation);
    default:
        return HOOP_POLL_DONE;
    }
}

enum hoop_poll hoop_operation_poll(struct hoop_operation *operation)
{
    const enum hoop_poll polled = operation_move(operation);
    return __builtin_expect(polled == HOOP_POLL_DONE && operation->staging.delivers, 0)
               ? hoop_operation_deliver(operation)
               : polled;
}

hoop_result_t hoop_operation_cancel(struct hoop_operation *operation, int culprit,
                                    uint64_t timeout_ms)
{
    struct hoop_board *board = operation->env.board;
    hoop_result_t result = HOOP_OK;
    /* First leave the device, before waiting for other ranks, which may be waiting for that. */
    const bool left = hoop_operation_leave_device(operation, hoop_deadline_ns(timeout_ms));
    /* Always: a rank that reads what was sent here takes no gate, but checks it afterwards. */
    const bool stuck = hoop_gates_close(board, culprit);
    if (operation->announced && stuck) {
        /* A rank in a slice has seen all announcements, so they are there even if not yet seen
         * here. */
        if (operation->state == OP_ANNOUNCED) {
            operation_await_announcements(operation);
        }
        const struct hoop_plan *plan =
            hoop_plan_reaches(operation->plan.algo) ? &operation->plan : NULL;
        result = hoop_gates_fence(board, plan, operation->steps.steps, operation->request.out,
                                  timeout_ms);
    }
    if (left) { /* else it stays mapped, for a kernel that has not ended */
        hoop_buffers_release(&operation->buffers);
    } else {
        result = hoop_error(HOOP_TIMEOUT, "what was launched on the device has not ended");
    }
    operation->staging.delivers = false;
    /* Fetches that still wait for the call's stream only read the user's memory: leave them. */
    if (left && operation->state != OP_FETCH &&
        hoop_staging_cancel(&operation->staging, timeout_ms) != HOOP_OK && result == HOOP_OK) {
        result = HOOP_TIMEOUT;
    }
    operation->state = OP_DONE;
    return result;
}
