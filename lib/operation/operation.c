/* One operation, from its announcement to its end (see operation.h for the states). */
#include "operation/operation.h"

#include "base/sizes.h"
#include "exec/gate.h"
#include "exec/published.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OP_OWED, OP_GATHER, OP_ANNOUNCED, OP_RESOLVE, OP_RUN, OP_EXCHANGE, OP_DONE };

hoop_result_t hoop_operation_init(struct hoop_operation *operation,
                                  const struct hoop_operation_env *env)
{
    memset(operation, 0, sizeof(*operation));
    operation->env = *env;
    operation->state = OP_DONE;
    operation->buffers = (struct hoop_buffers){
        .board = env->board,
        .maps = env->maps,
        .one_process = env->one_process,
    };
    for (int i = 0; i < HOOP_COLL_COUNT; i++) {
        operation->oneshot_most[i] =
            hoop_plan_oneshot_most(env->agreed, env->board->n, (enum hoop_collective)i);
    }
    operation->exchange = (struct hoop_exchange){.me = env->board->me,
                                                 .n = env->board->n,
                                                 .chunk_bytes = env->agreed->chunk_bytes,
                                                 .link = env->link,
                                                 .arg = env->arg};
    const hoop_result_t result = hoop_exchange_init(&operation->exchange);
    return result == HOOP_OK ? hoop_buffers_init(&operation->buffers) : result;
}

void hoop_operation_finish(struct hoop_operation *operation)
{
    hoop_buffers_finish(&operation->buffers);
    hoop_exchange_finish(&operation->exchange);
    free(operation->scratch);
    free(operation->scaled);
    memset(operation, 0, sizeof(*operation));
}

/* What the executors need. Not needed to announce, and announcing comes first. */
static void operation_prepare(struct hoop_operation *operation)
{
    const struct hoop_signature *s = &operation->request.signature;
    const struct hoop_board *board = operation->env.board;
    operation->plan =
        hoop_plan_begin(s, board->me, board->n, operation->request.in == operation->request.out);
    operation->steps.plan = &operation->plan;
    operation->steps.reduction = (struct hoop_reduction){
        .type = (hoop_datatype_t)s->type,
        .op = s->op == HOOP_OP_PRE_MUL_SUM ? HOOP_SUM : (hoop_red_op_t)s->op,
        .divisor = s->op == HOOP_AVG ? board->n : 0,
    };
    operation->steps.in = operation->request.in;
    operation->steps.out = operation->request.out;
    operation->steps.ins = operation->buffers.ins;
    operation->steps.outs = operation->buffers.outs;
    operation->steps.k = 0;
    operation->steps.cursor = 0;
}

static void operation_follow(struct hoop_operation *operation)
{
    const struct hoop_plan *plan = &operation->plan;
    /* Over links, anything without elements is a barrier. */
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

/* What this rank brings. */
static size_t operation_in_bytes(const struct hoop_operation *operation, size_t block)
{
    const struct hoop_signature *s = &operation->request.signature;
    const struct hoop_board *board = operation->env.board;
    if (s->collective == HOOP_COLL_ALL_REDUCE) {
        return block;
    }
    return block * hoop_extent_blocks(hoop_collectives[s->collective].in, board->n,
                                      s->root == (int32_t)board->me);
}

static void operation_publish(struct hoop_operation *operation, size_t block)
{
    hoop_published_post(operation->env.board, operation->request.in,
                        operation_in_bytes(operation, block));
    operation_prepare(operation);
    hoop_plan_oneshot(&operation->plan);
    hoop_published_needs(&operation->plan, &operation->cursor, &operation->until);
    operation->owes = operation->until - operation->cursor < operation->plan.n;
    operation->one_fold = hoop_published_prepare(operation->env.board, &operation->steps);
    operation->state = OP_GATHER;
}

static enum hoop_poll operation_gather(struct hoop_operation *operation)
{
    struct hoop_board *board = operation->env.board;
    for (; operation->cursor < operation->until; operation->cursor++) {
        const hoop_result_t seen = hoop_board_seen(board, operation->cursor, &operation->failure);
        if (seen == HOOP_AGAIN) {
            return HOOP_POLL_IDLE;
        }
        if (seen != HOOP_OK) {
            return operation_done(operation);
        }
    }
    if (operation->one_fold) {
        void *dst = operation->request.out;
        hoop_fold(&operation->steps.reduction, &dst, 1, board->src, board->n,
                  operation->plan.count);
    } else {
        hoop_published_take(board, &operation->steps);
    }
    if (operation->owes) {
        hoop_board_owe(board);
    }
    return operation_done(operation);
}

/* ---- Everything larger: announce, choose, run ----------------------------------------------- */

/* ---- Over links ----------------------------------------------------------------------------- */

/* Scratch for every lane, if the plan's algorithm has any. */
static hoop_result_t operation_make_scratch(struct hoop_operation *operation)
{
    const struct hoop_plan *plan = &operation->plan;
    if (plan->scratch == 0) {
        return HOOP_OK;
    }
    size_t bytes = (size_t)plan->lanes * plan->type_bytes;
    if (__builtin_mul_overflow(bytes, plan->scratch, &bytes) ||
        bytes > SIZE_MAX - HOOP_PAGE_BYTES) {
        bytes = SIZE_MAX - HOOP_PAGE_BYTES;
    }
    bytes = (bytes + HOOP_PAGE_BYTES - 1) / HOOP_PAGE_BYTES * HOOP_PAGE_BYTES;
    if (bytes <= operation->scratch_bytes) {
        return HOOP_OK;
    }
    free(operation->scratch);
    operation->scratch = aligned_alloc(HOOP_PAGE_BYTES, bytes);
    operation->scratch_bytes = operation->scratch != NULL ? bytes : 0;
    if (operation->scratch == NULL) {
        return hoop_failure_set(&operation->failure, HOOP_OUT_OF_MEMORY,
                                (int)operation->env.board->me,
                                "rank %u has no %zu bytes to gather "
                                "what others send",
                                operation->env.board->me, bytes);
    }
    return HOOP_OK;
}

static void operation_start_links(struct hoop_operation *operation)
{
    struct hoop_board *board = operation->env.board;
    const struct hoop_engine_op op = {
        .plan = &operation->plan,
        .steps = operation->steps.steps,
        .reduction = operation->steps.reduction,
        .in = operation->request.in,
        .out = operation->request.out,
        .scratch = operation->scratch,
        .src = board->src,
        .signature = operation->request.signature,
        .sequence = board->sequence,
        .link = operation->env.link,
        .arg = operation->env.arg,
    };
    hoop_engine_start(operation->env.engine, &op, &operation->failure);
}

/* After the plan was chosen. A failure ends the operation at the next poll. */
static void operation_enter_links(struct hoop_operation *operation)
{
    operation->state = OP_DONE;
    if (operation_make_scratch(operation) == HOOP_OK) {
        operation->state = OP_RUN;
        operation_start_links(operation);
    }
}

static void operation_far(struct hoop_operation *operation)
{
    hoop_plan_links(operation->env.agreed, &operation->plan);
    operation_follow(operation);
    operation_enter_links(operation);
}

static bool operation_runs_over_links(const struct hoop_operation *operation)
{
    return operation->state == OP_RUN && hoop_plan_is_over_links(operation->plan.algo);
}

static void operation_choose(struct hoop_operation *operation)
{
    const struct hoop_reach reach = hoop_buffers_reach(&operation->buffers, &operation->plan);
    hoop_plan_choose(operation->env.agreed, &reach, &operation->plan);
    operation_follow(operation);
    operation->cursor = 0;
    operation->state = operation->plan.algo == HOOP_ALGO_DIRECT ? OP_RESOLVE : OP_RUN;
    if (hoop_plan_is_over_links(operation->plan.algo)) {
        operation_enter_links(operation);
    }
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
    operation_choose(operation);
    return HOOP_POLL_BUSY;
}

static enum hoop_poll operation_resolve(struct hoop_operation *operation)
{
    const hoop_result_t result =
        hoop_buffers_resolve(&operation->buffers, &operation->plan, operation->request.in,
                             operation->request.out, &operation->failure);
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
    const enum hoop_poll polled =
        operation_runs_over_links(operation)
            ? hoop_engine_poll(operation->env.engine)
            : hoop_board_poll(operation->env.board, &operation->steps, &operation->failure);
    if (polled != HOOP_POLL_DONE) {
        return polled;
    }
    if (operation->plan.algo == HOOP_ALGO_DIRECT && operation->failure.code == HOOP_OK) {
        hoop_buffers_release(&operation->buffers);
    }
    return operation_done(operation);
}

/* ---- The whole ------------------------------------------------------------------------------ */

static void operation_alone(struct hoop_operation *operation)
{
    const void *src = operation->request.in;
    void *dst = operation->request.out;
    hoop_fold(&operation->steps.reduction, &dst, 1, &src, 1, operation->plan.count);
    (void)operation_done(operation);
}

/* The board's cells are mine to write. */
static void operation_enter(struct hoop_operation *operation)
{
    const struct hoop_signature *s = &operation->request.signature;
    const size_t block = s->count * hoop_datatype_bytes((hoop_datatype_t)s->type);
    struct hoop_board *board = operation->env.board;
    if (!operation->env.over_links && board->n > 1 &&
        block <= operation->oneshot_most[s->collective]) {
        operation_publish(operation, block);
        return;
    }
    operation_prepare(operation);
    if (board->n == 1) {
        operation_alone(operation);
    } else if (operation->env.over_links) {
        operation_far(operation);
    } else {
        hoop_buffers_announce(&operation->buffers, &operation->plan, operation->request.in,
                              operation->request.out);
        operation->cursor = 0;
        operation->announced = true;
        operation->state = OP_ANNOUNCED;
    }
}

/* Puts the input, times its factor, in the place of the input. */
static hoop_result_t operation_scale(struct hoop_operation *operation)
{
    struct hoop_request *request = &operation->request;
    const struct hoop_reduction times = {.type = (hoop_datatype_t)request->signature.type,
                                         .op = HOOP_PROD};
    const size_t size = hoop_datatype_bytes(times.type);
    assert(size > 0);
    const size_t bytes = operation_in_bytes(operation, request->signature.count * size);
    if (bytes > operation->scaled_bytes) {
        free(operation->scaled);
        operation->scaled = malloc(bytes);
        operation->scaled_bytes = operation->scaled != NULL ? bytes : 0;
        if (operation->scaled == NULL) {
            return hoop_failure_set(
                &operation->failure, HOOP_OUT_OF_MEMORY, (int)operation->env.board->me,
                "rank %u has no %zu bytes for its scaled input", operation->env.board->me, bytes);
        }
    }
    uint64_t factors[64];
    for (size_t i = 0; i < sizeof(factors) / size; i++) {
        memcpy((char *)factors + i * size, &request->scalar, size);
    }
    for (size_t done = 0; done < bytes; done += sizeof(factors)) {
        const size_t part = bytes - done < sizeof(factors) ? bytes - done : sizeof(factors);
        const void *src[] = {(const char *)request->in + done, factors};
        void *dst = (char *)operation->scaled + done;
        hoop_fold(&times, &dst, 1, src, 2, part / size);
    }
    request->in = operation->scaled;
    return HOOP_OK;
}

void hoop_operation_start(struct hoop_operation *operation, const struct hoop_request *request)
{
    operation->failure.code = HOOP_OK;
    operation->announced = false;
    operation->plan.algo = HOOP_ALGO_ONESHOT;
    operation->request = *request;
    if (request->signature.collective == HOOP_TRANSFER) {
        const struct hoop_transfer *first = request->out;
        hoop_board_begin_transfers(operation->env.board, first->site);
        operation_start_exchange(operation);
        return;
    }
    hoop_board_begin(operation->env.board, &request->signature, request->site);
    if (__builtin_expect(request->signature.op == HOOP_OP_PRE_MUL_SUM, 0) &&
        operation_scale(operation) != HOOP_OK) {
        operation->state = OP_DONE;
        return;
    }
    if (__builtin_expect(operation->env.board->owed != 0, 0)) {
        operation->cursor = 0;
        operation->state = OP_OWED;
    } else {
        operation_enter(operation);
    }
}

/* Sees what the operation before could do without. */
static enum hoop_poll operation_settle(struct hoop_operation *operation)
{
    struct hoop_board *board = operation->env.board;
    for (; operation->cursor < board->n; operation->cursor++) {
        const hoop_result_t seen =
            hoop_board_owed_seen(board, operation->cursor, &operation->failure);
        if (seen == HOOP_AGAIN) {
            return HOOP_POLL_IDLE;
        }
        if (seen != HOOP_OK) {
            return operation_done(operation);
        }
    }
    board->owed = 0;
    operation_enter(operation);
    return HOOP_POLL_BUSY;
}

static enum hoop_poll operation_exchange(struct hoop_operation *operation)
{
    const enum hoop_poll polled = hoop_exchange_poll(&operation->exchange);
    return polled == HOOP_POLL_DONE ? operation_done(operation) : polled;
}

enum hoop_poll hoop_operation_poll(struct hoop_operation *operation)
{
    switch (operation->state) {
    case OP_GATHER:
        return operation_gather(operation);
    case OP_ANNOUNCED:
        return operation_await_announcements(operation);
    case OP_RESOLVE:
        return operation_resolve(operation);
    case OP_RUN:
        return operation_run(operation);
    case OP_OWED:
        return operation_settle(operation);
    case OP_EXCHANGE:
        return operation_exchange(operation);
    default:
        return HOOP_POLL_DONE;
    }
}

hoop_result_t hoop_operation_cancel(struct hoop_operation *operation, int culprit,
                                    uint64_t timeout_ms)
{
    struct hoop_board *board = operation->env.board;
    hoop_result_t result = HOOP_OK;
    if (operation->announced && hoop_gates_close(board, culprit)) {
        /* Who is in a slice has seen all announcements: if I had not yet, they are here now. */
        if (operation->state == OP_ANNOUNCED) {
            operation_await_announcements(operation);
        }
        const struct hoop_plan *plan =
            operation->plan.algo == HOOP_ALGO_DIRECT ? &operation->plan : NULL;
        result = hoop_gates_fence(board, plan, operation->steps.steps, operation->request.out,
                                  timeout_ms);
    }
    hoop_buffers_release(&operation->buffers);
    operation->state = OP_DONE;
    return result;
}

void hoop_operation_explain(const struct hoop_operation *operation,
                            const struct hoop_signature *signature, struct hoop_plan *ret,
                            uint64_t ret_ns[HOOP_ALGO_COUNT])
{
    const struct hoop_reach reach = {.mapped = true};
    const struct hoop_board *board = operation->env.board;
    *ret = hoop_plan_begin(signature, board->me, board->n, true);
    if (operation->env.over_links) {
        hoop_plan_links(operation->env.agreed, ret);
    } else if (ret->count * ret->type_bytes <= operation->oneshot_most[ret->collective]) {
        hoop_plan_oneshot(ret);
    } else {
        hoop_plan_choose(operation->env.agreed, &reach, ret);
    }
    hoop_plan_costs(operation->env.agreed,
                    operation->env.over_links || hoop_plan_is_over_links(ret->algo), ret, ret_ns);
}

/* All transfers run at once; a direction's share the way. */
static uint64_t operation_estimate_transfers(const struct hoop_operation *operation,
                                             const struct hoop_transfer *transfers)
{
    uint64_t bytes[2] = {0, 0};
    for (const struct hoop_transfer *at = transfers; at != NULL; at = at->next) {
        bytes[at->sending] += at->bytes;
    }
    return hoop_plan_transfer_cost(operation->env.agreed, operation->env.over_links,
                                   bytes[0] > bytes[1] ? bytes[0] : bytes[1]);
}

uint64_t hoop_operation_estimate(const struct hoop_operation *operation,
                                 const struct hoop_request *request)
{
    struct hoop_signature signature = request->signature;
    const bool transfers = signature.collective == HOOP_TRANSFER;
    const bool vector = signature.collective == HOOP_COLL_ALLTOALLV;
    uint64_t ns[HOOP_ALGO_COUNT], exchange = 0;
    struct hoop_plan plan;
    if (transfers || vector) {
        exchange = operation_estimate_transfers(operation, request->out);
    }
    if (transfers) {
        return exchange;
    }
    /* Without elements it is a barrier, whatever it is called. */
    signature.collective = signature.count == 0 ? HOOP_COLL_BARRIER : signature.collective;
    hoop_operation_explain(operation, &signature, &plan, ns);
    return ns[plan.algo] + exchange;
}

void hoop_operation_name_sites(struct hoop_operation *operation)
{
    const struct hoop_board *board = operation->env.board;
    /* What is owed still was not seen: then the operation before is the one that differs. */
    unsigned which = (board->sequence - (board->owed != 0 ? 1 : 0)) & 1;
    if (operation->request.signature.collective == HOOP_TRANSFER) {
        which = HOOP_SITE_OF_TRANSFERS;
    }
    hoop_board_name_sites(board, which, &operation->failure);
}

/*
 * Where all have announced the operation, a rank that has left has completed it: what it still owed
 * is in the links. Else it may have left before.
 */
static bool operation_awaits_on_links(const struct hoop_operation *operation,
                                      bool (*left)(void *arg, uint32_t rank), void *arg,
                                      uint32_t *ret_rank)
{
    const struct hoop_transport *transport = NULL;
    uint32_t lane = 0, rank = 0;
    while (operation->env.over_links &&
           hoop_engine_awaited(operation->env.engine, &lane, &rank, &transport)) {
        const bool notices = transport != NULL && transport->watch_fd != NULL;
        if (!notices && left(arg, rank)) {
            *ret_rank = rank;
            return true;
        }
    }
    return false;
}

static bool operation_awaits_transfers(const struct hoop_operation *operation,
                                       bool (*left)(void *arg, uint32_t rank), void *arg,
                                       uint32_t *ret_rank)
{
    const struct hoop_transfer *at = NULL;
    while ((at = hoop_exchange_awaited(&operation->exchange, at)) != NULL) {
        const bool notices = at->link != NULL && at->link->transport->watch_fd != NULL;
        if (!notices && left(arg, at->peer)) {
            *ret_rank = at->peer;
            return true;
        }
    }
    return false;
}

bool hoop_operation_awaits(const struct hoop_operation *operation,
                           bool (*left)(void *arg, uint32_t rank), void *arg, uint32_t *ret_rank)
{
    const struct hoop_board *board = operation->env.board;
    if (operation->state == OP_DONE) {
        return false;
    }
    if (operation->state == OP_EXCHANGE) {
        return operation_awaits_transfers(operation, left, arg, ret_rank);
    }
    if (operation_runs_over_links(operation)) {
        return operation_awaits_on_links(operation, left, arg, ret_rank);
    }
    const bool running = operation->state == OP_RUN;
    *ret_rank = running ? operation->steps.cursor : operation->cursor;
    return *ret_rank < board->n && left(arg, *ret_rank);
}

void hoop_operation_describe(const struct hoop_operation *operation, char *buf, size_t bytes)
{
    static const char *const doing[] = {"for the end of the operation before", "for the data",
                                        "for the announcement", "for the memory"};
    char what[96], lanes[128] = "", whom[144] = "";
    const struct hoop_board *board = operation->env.board;
    hoop_signature_describe(&operation->request.signature, what, sizeof(what));
    if (operation_runs_over_links(operation)) {
        hoop_engine_describe(operation->env.engine, lanes, sizeof(lanes));
        snprintf(whom, sizeof(whom), "for %s", lanes);
    } else if (operation->state == OP_EXCHANGE) {
        const struct hoop_transfer *at = hoop_exchange_awaited(&operation->exchange, NULL);
        snprintf(whom, sizeof(whom), "for rank %u (%s)", at != NULL ? at->peer : board->me,
                 at != NULL && at->sending ? "send" : "recv");
    } else if (operation->state != OP_DONE) {
        const uint32_t cursor =
            operation->state == OP_RUN ? operation->steps.cursor : operation->cursor;
        const uint32_t rank = cursor < board->n ? cursor : board->n - 1;
        snprintf(whom, sizeof(whom), "%s of rank %u",
                 operation->state == OP_RUN ? "for the arrival" : doing[operation->state], rank);
    }
    snprintf(buf, bytes, "operation %u (%s), waiting %s", board->sequence, what,
             whom[0] != '\0' ? whom : "for nobody");
}
