/* Operations with buffers on devices: where they run, and how they get there (see operation.h). */
#include "operation/operation.h"

#include "base/clock.h"
#include "base/log.h"
#include "reduce/reduce_cuda.h"
#include "runtime/wait.h"
#include "staging/device_buffers.h"

static struct hoop_device_call operation_call(const struct hoop_operation *operation)
{
    const struct hoop_request *request = &operation->request;
    const struct hoop_board *board = operation->env.board;
    return (struct hoop_device_call){.signature = &request->signature,
                                     .me = board->me,
                                     .n = board->n,
                                     .stream = request->stream,
                                     .bell = request->bell,
                                     .look = &request->look,
                                     .arrived = operation->launched};
}

/* Over links the plan is known from the start. A factor goes into the whole input first. */
static bool operation_may_be_cut(const struct hoop_operation *operation,
                                 const struct hoop_signature *s)
{
    return operation->env.over_links && operation->env.board->n > 1 &&
           s->collective < HOOP_COLL_COUNT && s->collective != HOOP_COLL_ALLTOALLV &&
           s->op != HOOP_OP_PRE_MUL_SUM && s->count > 0;
}

void hoop_operation_cut(const struct hoop_operation *operation, const struct hoop_request *request,
                        struct hoop_staging *staging)
{
    const struct hoop_signature *s = &request->signature;
    const struct hoop_board *board = operation->env.board;
    if (!operation_may_be_cut(operation, s)) {
        return;
    }
    struct hoop_plan plan;
    hoop_plan_begin(&plan, s, board->me, board->n, request->in == request->out);
    hoop_plan_links(operation->env.agreed, operation->grid, &plan);
    hoop_staging_cut(staging, &plan, hoop_algo_steps(plan.collective, plan.algo), request->in,
                     request->out);
}

static bool overlap_check(struct hoop_operation *operation, hoop_result_t result)
{
    const bool failed = result != HOOP_OK && result != HOOP_AGAIN;
    if (failed) {
        hoop_failure_take(&operation->failure, result, (int)operation->env.board->me);
    }
    return failed;
}

/* Sets whether a flow is awaited, for whose word nobody wakes the thread. */
static void operation_nap(const struct hoop_operation *operation, bool awaits)
{
    if (operation->env.naps != NULL) {
        *operation->env.naps = awaits;
    }
}

void hoop_operation_overlap(struct hoop_operation *operation)
{
    const uint64_t passed = hoop_engine_passed(operation->env.engine);
    struct hoop_flow *flow = operation->request.flow;
    if (flow != NULL) {
        hoop_flow_move(flow, passed);
        operation_nap(operation, flow->ready != UINT64_MAX);
    } else {
        (void)overlap_check(operation, hoop_staging_move(&operation->staging, passed));
    }
}

bool hoop_operation_overlap_failed(struct hoop_operation *operation)
{
    struct hoop_staging *staging = &operation->staging;
    return staging->overlap.count > 0 && staging->state != HOOP_STAGING_IDLE &&
           overlap_check(operation, hoop_staging_poll(staging));
}

bool hoop_operation_is_of_host(const struct hoop_request *request)
{
    return request->look.known && request->look.in == NULL && request->look.out == NULL &&
           request->stream == NULL && request->bell == NULL && request->flow == NULL;
}

bool hoop_operation_awaits_flow(struct hoop_operation *operation)
{
    const bool awaits = operation->request.flow != NULL;
    if (awaits) {
        hoop_staging_reset(&operation->staging);
        operation->state = OP_FETCH;
    }
    return awaits;
}

hoop_result_t hoop_operation_copied(struct hoop_operation *operation)
{
    const struct hoop_flow *flow = operation->request.flow;
    if (flow == NULL) {
        return hoop_staging_poll(&operation->staging);
    }
    const bool begun = hoop_flow_has_begun(flow);
    operation_nap(operation, !begun);
    return begun ? HOOP_OK : HOOP_AGAIN;
}

bool hoop_operation_fetches(struct hoop_operation *operation)
{
    struct hoop_request *request = &operation->request;
    const struct hoop_board *board = operation->env.board;
    const struct hoop_device_call call = operation_call(operation);
    const hoop_result_t result =
        hoop_device_buffers_fetch(&operation->staging, &call, &request->in, &request->out);
    operation->state = result == HOOP_AGAIN ? OP_FETCH : OP_DONE;
    if (result == HOOP_AGAIN) {
        hoop_operation_cut(operation, request, &operation->staging);
    }
    if (result != HOOP_OK && result != HOOP_AGAIN) {
        hoop_failure_take(&operation->failure, result, (int)board->me);
    }
    return result != HOOP_OK;
}

enum hoop_poll hoop_operation_deliver(struct hoop_operation *operation)
{
    operation->staging.delivers = false;
    if (operation->failure.code != HOOP_OK) {
        return HOOP_POLL_DONE;
    }
    const hoop_result_t result = hoop_staging_copy(&operation->staging, true);
    if (result != HOOP_OK) {
        hoop_failure_take(&operation->failure, result, (int)operation->env.board->me);
        return HOOP_POLL_DONE;
    }
    operation->state = OP_DELIVER;
    return HOOP_POLL_BUSY;
}

/* Did this rank find that the device of the buffers does not reach that of another rank? Its
 * operations then go through the host, and so do all ranks'. */
static bool operation_is_apart(const struct hoop_operation *operation,
                               const struct hoop_device_look *look)
{
    const hoop_cu_context_t context = look->out != NULL ? look->out : look->in;
    return context != NULL && context == atomic_load(&operation->buffers.apart_in);
}

/* Does this kind of request suit a device? Small ones go through the board's cells; and alone it
 * would be a copy, without its factor. */
static bool operation_suits_device(const struct hoop_operation *operation,
                                   const struct hoop_request *request)
{
    const struct hoop_signature *s = &request->signature;
    const struct hoop_board *board = operation->env.board;
    if (operation->env.over_links || s->collective >= HOOP_COLL_COUNT ||
        s->collective == HOOP_COLL_ALLTOALLV || operation_is_apart(operation, &request->look) ||
        (board->n == 1 ? hoop_request_has_factor(request)
                       : s->count * hoop_datatype_bytes((hoop_datatype_t)s->type) <=
                             operation->oneshot_most[s->collective])) {
        return false;
    }
    const enum hoop_collective collective = (enum hoop_collective)s->collective;
    return hoop_plan_may_be_direct(operation->env.agreed, collective) &&
           (!hoop_collectives[collective].folds || board->n <= HOOP_CUDA_FOLD_MOST);
}

/* May it run on a device, judging also by where its buffers lie, as far as this rank knows? *ret:
 * where that is. shows: memory from CUDA itself can be shown. */
static bool operation_may_run_on_device(const struct hoop_operation *operation,
                                        const struct hoop_request *request, bool shows,
                                        struct hoop_buffers_own *ret)
{
    const struct hoop_board *board = operation->env.board;
    struct hoop_plan plan;
    if (!operation_suits_device(operation, request)) {
        return false;
    }
    hoop_plan_begin(&plan, &request->signature, board->me, board->n, false);
    return hoop_buffers_look(&operation->buffers, shows, &plan, request->in, request->out, ret);
}

/* Can its kernels be told late what they do? */
static bool operation_may_be_told(const struct hoop_operation *operation,
                                  const struct hoop_request *request, enum hoop_launched how)
{
    const uint32_t n = operation->env.board->n, collective = request->signature.collective;
    return n > 1 && n <= HOOP_CUDA_FOLD_MOST && !hoop_request_has_factor(request) &&
           hoop_told_pieces(how, (enum hoop_collective)collective, n) <= HOOP_TOLD_PIECES;
}

enum hoop_launch_way hoop_operation_launch_way(const struct hoop_operation *operation,
                                               const struct hoop_request *request, bool kernels,
                                               struct hoop_told *ret)
{
    const struct hoop_board *board = operation->env.board;
    const bool shows = operation->buffers.shows;
    struct hoop_buffers_own its;
    struct hoop_plan plan;
    /* Whether memory from CUDA itself can be shown, operations find out: until then it may be. */
    const bool needs = request->signature.collective < HOOP_COLL_COUNT &&
                       hoop_collectives[request->signature.collective].folds;
    if ((needs && !kernels) || !operation_suits_device(operation, request)) {
        return HOOP_LAUNCH_BY_HOST;
    }
    const bool may = operation_may_run_on_device(operation, request, shows, &its);
    hoop_plan_begin(&plan, &request->signature, board->me, board->n, false);
    ret->how = may && kernels
                   ? hoop_buffers_are_known(&operation->buffers, &plan, &its, ret->context)
                   : HOOP_LAUNCHED_NOT;
    if (ret->how == HOOP_LAUNCHED_NOT || !operation_may_be_told(operation, request, ret->how)) {
        return may || shows ? HOOP_LAUNCH_NOT : HOOP_LAUNCH_BY_HOST;
    }
    ret->in = its.in;
    ret->out = its.out;
    return HOOP_LAUNCH_ON_DEVICE;
}

static struct hoop_told *operation_told(const struct hoop_operation *operation)
{
    const struct hoop_flow *flow = operation->request.flow;
    return flow != NULL ? flow->told : NULL;
}

/*
 * The device name that ranks compare. In one process it includes the context, unless that is the
 * device's primary one, because plain memory belongs to a context, and other devices can only reach
 * the primary one.
 */
static void operation_name_device(struct hoop_operation *operation)
{
    const struct hoop_staging *staging = &operation->staging;
    const struct hoop_told *told = operation_told(operation);
    operation->buffers.launched = told != NULL ? told->how : HOOP_LAUNCHED_NOT;
    operation->buffers.factor = operation->request.scalar;
    const bool apart = operation->env.one_process && !staging->primary;
    struct hoop_plan plan;
    hoop_plan_begin(&plan, &operation->request.signature, operation->env.board->me,
                    operation->env.board->n, false);
    operation->meets =
        staging->n_peers > 0 && !apart && hoop_buffers_let_in(&operation->buffers, &plan);
    operation->device = staging->device ^ (apart ? (uintptr_t)staging->context : 0);
    operation->device += operation->device == 0; /* 0 is the host */
}

const struct hoop_board_worker *hoop_operation_worker(struct hoop_operation *operation)
{
    struct hoop_told *told = operation_told(operation);
    operation->worker =
        told != NULL ? hoop_told_worker(told) : hoop_device_worker(&operation->staging);
    return &operation->worker;
}

bool hoop_operation_arrives(struct hoop_operation *operation)
{
    struct hoop_told *told = operation_told(operation);
    if (told == NULL) {
        return true;
    }
    const hoop_result_t result = hoop_staging_open(&operation->staging, told->context);
    if (result != HOOP_OK) {
        hoop_failure_take(&operation->failure, result, (int)operation->env.board->me);
        return false;
    }
    told->naps = operation->env.naps;
    operation->launched = true;
    operation->buffers.mine = (struct hoop_buffers_own){told->in, told->out};
    operation_name_device(operation);
    return true;
}

bool hoop_operation_runs_on_device(struct hoop_operation *operation)
{
    const struct hoop_request *request = &operation->request;
    const struct hoop_board *board = operation->env.board;
    const struct hoop_device_call call = operation_call(operation);
    if (!operation_may_run_on_device(operation, request, operation->buffers.shows,
                                     &operation->buffers.mine)) {
        return false;
    }
    const hoop_result_t result =
        hoop_device_buffers_follow(&operation->staging, &call, request->in, request->out);
    if (result == HOOP_AGAIN) {
        operation_name_device(operation);
        operation->state = OP_FETCH;
    } else if (result != HOOP_OK) {
        hoop_failure_take(&operation->failure, result, (int)board->me);
        operation->state = OP_DONE;
    }
    return result != HOOP_OK;
}

/* Tries the fresh memory of all ranks, until one refuses. */
static hoop_result_t operation_try_all(struct hoop_operation *operation,
                                       struct hoop_failure *failure)
{
    struct hoop_buffers *buffers = &operation->buffers;
    const struct hoop_plan *plan = &operation->plan;
    uint32_t awaited = plan->n;
    if (!buffers->shows) {
        return hoop_failure_set(failure, HOOP_UNSUPPORTED, (int)plan->me,
                                "rank %u has HOOP_CUDA_IPC=0, or HOOP_CUDA_AHEAD=1", plan->me);
    }
    for (uint32_t rank = 0; rank < plan->n && failure->code == HOOP_OK; rank++) {
        const hoop_result_t result = hoop_buffers_try(buffers, plan, rank, failure);
        awaited = result == HOOP_AGAIN && awaited == plan->n ? rank : awaited;
    }
    operation->cursor = awaited;
    return failure->code != HOOP_OK ? failure->code : awaited < plan->n ? HOOP_AGAIN : HOOP_OK;
}

enum hoop_poll hoop_operation_try(struct hoop_operation *operation)
{
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    const hoop_result_t result =
        operation->launched ? HOOP_OK : operation_try_all(operation, &failure);
    if (result == HOOP_AGAIN) {
        return HOOP_POLL_IDLE;
    }
    if (result != HOOP_OK) {
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_PLAN,
                 "memory of cudaMalloc() goes through the host from now on: %s", failure.text);
    }
    hoop_buffers_tried(&operation->buffers, result != HOOP_OK);
    hoop_board_begin(operation->env.board, &operation->request.signature, operation->request.site);
    hoop_operation_announce(operation);
    return HOOP_POLL_BUSY;
}

bool hoop_operation_leave_device(struct hoop_operation *operation, uint64_t deadline_ns)
{
    while (!hoop_board_give_back(operation->env.board, &operation->steps, &operation->failure)) {
        if (hoop_now_ns() >= deadline_ns) {
            return false;
        }
        hoop_wait_briefly();
    }
    return true;
}

void hoop_operation_let_kernels_go(struct hoop_operation *operation)
{
    struct hoop_told *told = operation_told(operation);
    if (told != NULL && operation->launched && operation->steps.work == HOOP_BOARD_IDLE) {
        hoop_told_worker(told).pass(told);
    } else {
        (void)hoop_operation_leave_device(operation, 0);
    }
}
