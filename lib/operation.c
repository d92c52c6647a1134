/* One operation, from its announcement to its end (see operation.h for the states). */
#include "operation.h"

#include "base/sizes.h"
#include "device.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OP_GATHER, OP_ANNOUNCED, OP_RESOLVE, OP_RUN, OP_DONE };

hoop_result_t hoop_operation_init(struct hoop_operation *operation,
                                  const struct hoop_operation_env *env)
{
    const uint32_t n = env->board->n;
    memset(operation, 0, sizeof(*operation));
    operation->env = *env;
    operation->state = OP_DONE;
    operation->ins = calloc(n, sizeof(*operation->ins));
    operation->outs = calloc(n, sizeof(*operation->outs));
    operation->in_use = calloc(n, sizeof(*operation->in_use));
    operation->out_use = calloc(n, sizeof(*operation->out_use));
    if (!operation->ins || !operation->outs || !operation->in_use || !operation->out_use) {
        hoop_operation_finish(operation);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for the operations of %u ranks", n);
    }
    return HOOP_OK;
}

void hoop_operation_finish(struct hoop_operation *operation)
{
    free(operation->ins);
    free(operation->outs);
    free(operation->in_use);
    free(operation->out_use);
    free(operation->scratch);
    memset(operation, 0, sizeof(*operation));
}

/* ---- Oneshot: the data travel with the announcement ---------------------------------------- */

static void operation_publish(struct hoop_operation *operation)
{
    struct hoop_board *board = operation->env.board;
    const size_t bytes = operation->bytes;
    if (bytes <= HOOP_CELLS_MAX_BYTES) {
        hoop_board_post(board, operation->request.in, bytes);
    } else {
        memcpy(hoop_board_oneshot(board, board->me), operation->request.in, bytes);
        hoop_board_post(board, NULL, 0);
    }
    operation->cursor = 0;
    operation->state = OP_GATHER;
}

/* Folds one run of elements that lies at `off` in every rank's published copy. */
static void operation_fold_published(struct hoop_operation *operation, size_t cell, size_t off,
                                     size_t bytes, bool cells)
{
    struct hoop_board *board = operation->env.board;
    void *dst = (uint8_t *)operation->request.out + off;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        board->src[rank] =
            cells ? hoop_board_cell(board, rank, cell) : hoop_board_oneshot(board, rank);
    }
    /* My own input lies at hand. */
    board->src[board->me] = (const uint8_t *)operation->request.in + off;
    hoop_fold(&operation->steps.reduction, &dst, 1, board->src, board->n,
              bytes / operation->type_bytes);
}

/*
 * The oneshot's four steps (lib/algo/oneshot.c) carried out without asking for them one by one:
 * at these sizes an operation is one exchange of cache lines.
 */
static enum hoop_poll operation_gather(struct hoop_operation *operation)
{
    struct hoop_board *board = operation->env.board;
    const size_t bytes = operation->bytes;
    const bool cells = bytes <= HOOP_CELLS_MAX_BYTES;
    for (; operation->cursor < board->n; operation->cursor++) {
        const hoop_result_t seen = hoop_board_seen(board, operation->cursor, &operation->failure);
        if (seen == HOOP_AGAIN) {
            return HOOP_POLL_IDLE;
        }
        if (seen != HOOP_OK) {
            break;
        }
    }
    if (operation->failure.code == HOOP_OK) {
        if (!cells) {
            operation_fold_published(operation, 0, 0, bytes, false);
        }
        for (size_t off = 0; cells && off < bytes; off += HOOP_CELL_DATA_BYTES) {
            const size_t left = bytes - off;
            operation_fold_published(operation, off / HOOP_CELL_DATA_BYTES, off,
                                     left < HOOP_CELL_DATA_BYTES ? left : HOOP_CELL_DATA_BYTES,
                                     true);
        }
    }
    operation->state = OP_DONE;
    return HOOP_POLL_DONE;
}

/* ---- Everything larger: announce, choose, run ----------------------------------------------- */

static void operation_announce(struct hoop_operation *operation)
{
    struct hoop_announce announce = {0};
    struct hoop_region_ref ref;
    const struct hoop_request *request = &operation->request;
    operation->mapped = hoop_region_find(request->out, operation->bytes, &ref);
    if (operation->mapped) {
        announce.out_region = ref.id;
        announce.out_generation = ref.generation;
        announce.out_offset = ref.offset;
    } else {
        announce.out_offset = (uintptr_t)request->out;
    }
    if (hoop_region_find(request->in, operation->bytes, &ref)) {
        announce.in_region = ref.id;
        announce.in_generation = ref.generation;
        announce.in_offset = ref.offset;
    } else {
        announce.in_offset = (uintptr_t)request->in;
    }
    hoop_board_post(operation->env.board, &announce, sizeof(announce));
    operation->cursor = 0;
    operation->announced = true;
    operation->state = OP_ANNOUNCED;
}

static const struct hoop_announce *operation_announced(const struct hoop_operation *operation,
                                                       uint32_t rank)
{
    return hoop_board_cell(operation->env.board, rank, 0);
}

/* Bytes of a buffer before its first whole page, and after its last. Offsets in regions count from
 * a page, and so do addresses. */
static void operation_edges(const struct hoop_announce *announce, uint64_t bytes,
                            struct hoop_reach *reach)
{
    const uint64_t start = announce->out_offset, end = start + bytes;
    const uint64_t head = (HOOP_PAGE_BYTES - start % HOOP_PAGE_BYTES) % HOOP_PAGE_BYTES;
    const uint64_t tail = end % HOOP_PAGE_BYTES;
    reach->head_bytes = head > reach->head_bytes ? head : reach->head_bytes;
    reach->tail_bytes = tail > reach->tail_bytes ? tail : reach->tail_bytes;
}

static void operation_choose(struct hoop_operation *operation)
{
    const struct hoop_board *board = operation->env.board;
    const struct hoop_request *request = &operation->request;
    struct hoop_reach reach = {.mapped = true};
    for (uint32_t rank = 0; rank < board->n; rank++) {
        const struct hoop_announce *announce = operation_announced(operation, rank);
        reach.mapped &=
            operation->env.one_process || (announce->in_region != 0 && announce->out_region != 0);
        operation_edges(announce, operation->bytes, &reach);
    }
    hoop_plan_choose(operation->env.agreed, &reach, board->me, board->n, request->signature.count,
                     operation->type_bytes, request->in == request->out, &operation->plan);
    operation->steps.steps = hoop_algo_steps(operation->plan.algo);
    operation->cursor = 0;
    operation->state = operation->plan.algo == HOOP_ALGO_DIRECT ? OP_RESOLVE : OP_RUN;
}

/* ---- Over links ----------------------------------------------------------------------------- */

/* Scratch for every lane, if the plan's algorithm has any. */
static hoop_result_t operation_make_scratch(struct hoop_operation *operation)
{
    const struct hoop_plan *plan = &operation->plan;
    if (plan->algo == HOOP_ALGO_RING) {
        return HOOP_OK;
    }
    size_t bytes = (size_t)plan->lanes * plan->n;
    if (__builtin_mul_overflow(bytes, plan->chunk * plan->type_bytes, &bytes) ||
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

static bool operation_runs_over_links(const struct hoop_operation *operation)
{
    return operation->state == OP_RUN && hoop_plan_is_over_links(operation->plan.algo);
}

static enum hoop_poll operation_await_announcements(struct hoop_operation *operation)
{
    struct hoop_board *board = operation->env.board;
    for (; operation->cursor < board->n; operation->cursor++) {
        const hoop_result_t seen = hoop_board_seen(board, operation->cursor, &operation->failure);
        if (seen == HOOP_AGAIN) {
            return HOOP_POLL_IDLE;
        }
        if (seen != HOOP_OK) {
            operation->state = OP_DONE;
            return HOOP_POLL_DONE;
        }
    }
    operation_choose(operation);
    if (hoop_plan_is_over_links(operation->plan.algo)) {
        operation_enter_links(operation);
    }
    return HOOP_POLL_BUSY;
}

/* One buffer of one peer. */
static hoop_result_t operation_use(struct hoop_operation *operation, uint32_t rank, uint64_t region,
                                   uint32_t generation, uint64_t offset,
                                   struct hoop_operation_use *use, void **ret)
{
    const struct hoop_board *board = operation->env.board;
    if (region == 0) {
        *ret = (void *)(uintptr_t)offset; /* plain memory of this very process */
        return HOOP_OK;
    }
    if (use->region != 0) {
        return HOOP_OK; /* at an earlier poll */
    }
    void *base = NULL;
    uint64_t bytes = 0;
    const uint64_t process = board->peers[rank].process;
    const hoop_result_t result = hoop_region_use(process, region, generation, &base, &bytes);
    if (result == HOOP_AGAIN) {
        struct hoop_failure answer;
        if (use->asked &&
            operation->env.answered(operation->env.arg, rank, region, generation, &answer)) {
            if (answer.code != HOOP_OK) {
                return hoop_failure_set(&operation->failure, answer.code, (int)rank,
                                        "memory of rank %u: %s", rank, answer.text);
            }
            use->asked = false; /* it came, and was forgotten before it was used */
        }
        if (!use->asked) {
            use->asked = true;
            hoop_member_fetch(operation->env.member, rank, region, generation);
        }
        return HOOP_AGAIN;
    }
    if (result != HOOP_OK) {
        return hoop_failure_set(&operation->failure, result, (int)rank,
                                "the buffer of rank %u cannot be mapped: %s", rank,
                                hoop_thread_error());
    }
    if (use->asked) {
        struct hoop_failure ignored; /* the answer, which is of no use any more */
        operation->env.answered(operation->env.arg, rank, region, generation, &ignored);
    }
    use->region = region;
    use->generation = generation;
    if (offset > bytes || operation->bytes > bytes - offset) {
        return hoop_failure_set(&operation->failure, HOOP_REMOTE_ERROR, (int)rank,
                                "rank %u announced %llu bytes at %llu of a region of %llu", rank,
                                (unsigned long long)operation->bytes, (unsigned long long)offset,
                                (unsigned long long)bytes);
    }
    *ret = (uint8_t *)base + offset;
    return HOOP_OK;
}

static enum hoop_poll operation_resolve(struct hoop_operation *operation)
{
    const struct hoop_board *board = operation->env.board;
    bool waiting = false;
    for (uint32_t rank = 0; rank < board->n && operation->failure.code == HOOP_OK; rank++) {
        const struct hoop_announce *a = operation_announced(operation, rank);
        void *in = (void *)(uintptr_t)operation->ins[rank];
        if (rank == board->me) {
            operation->ins[rank] = operation->request.in;
            operation->outs[rank] = operation->request.out;
            continue;
        }
        const hoop_result_t got_out =
            operation_use(operation, rank, a->out_region, a->out_generation, a->out_offset,
                          &operation->out_use[rank], &operation->outs[rank]);
        hoop_result_t got_in = HOOP_AGAIN;
        if (a->in_region == a->out_region && a->in_offset == a->out_offset) {
            got_in = got_out; /* in place */
            in = operation->outs[rank];
        } else if (got_out == HOOP_OK) {
            got_in = operation_use(operation, rank, a->in_region, a->in_generation, a->in_offset,
                                   &operation->in_use[rank], &in);
        }
        operation->ins[rank] = in;
        waiting |= got_out == HOOP_AGAIN || got_in == HOOP_AGAIN;
    }
    if (operation->failure.code != HOOP_OK) {
        operation->state = OP_DONE;
        return HOOP_POLL_DONE;
    }
    operation->state = waiting ? OP_RESOLVE : OP_RUN;
    return waiting ? HOOP_POLL_IDLE : HOOP_POLL_BUSY;
}

static void operation_unuse(struct hoop_operation *operation)
{
    const struct hoop_board *board = operation->env.board;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        struct hoop_operation_use *uses[] = {&operation->in_use[rank], &operation->out_use[rank]};
        for (unsigned i = 0; i < 2; i++) {
            if (uses[i]->region != 0) {
                hoop_region_unuse(board->peers[rank].process, uses[i]->region, uses[i]->generation);
            }
            *uses[i] = (struct hoop_operation_use){0};
        }
    }
}

static enum hoop_poll operation_run(struct hoop_operation *operation)
{
    const enum hoop_poll polled =
        operation_runs_over_links(operation)
            ? hoop_engine_poll(operation->env.engine)
            : hoop_board_poll(operation->env.board, &operation->steps, &operation->failure);
    if (polled == HOOP_POLL_DONE) {
        operation->state = OP_DONE;
        if (operation->plan.algo == HOOP_ALGO_DIRECT && operation->failure.code == HOOP_OK) {
            operation_unuse(operation);
        }
    }
    return polled;
}

/* ---- The whole ------------------------------------------------------------------------------ */

/* What the executors need. Not needed to announce, and announcing comes first. */
static void operation_prepare(struct hoop_operation *operation, const struct hoop_request *request)
{
    const struct hoop_signature *s = &request->signature;
    operation->steps.plan = &operation->plan;
    operation->steps.reduction = (struct hoop_reduction){
        .type = (hoop_datatype_t)s->type,
        .op = (hoop_red_op_t)s->op,
        .divisor = s->op == HOOP_AVG ? operation->env.board->n : 0,
    };
    operation->steps.in = request->in;
    operation->steps.out = request->out;
    operation->steps.ins = operation->ins;
    operation->steps.outs = operation->outs;
    operation->steps.k = 0;
    operation->steps.cursor = 0;
}

static void operation_alone(struct hoop_operation *operation)
{
    const void *src = operation->request.in;
    void *dst = operation->request.out;
    hoop_fold(&operation->steps.reduction, &dst, 1, &src, 1, operation->request.signature.count);
    operation->state = OP_DONE;
}

static void operation_far(struct hoop_operation *operation)
{
    const struct hoop_board *board = operation->env.board;
    const struct hoop_request *request = &operation->request;
    hoop_plan_links(operation->env.agreed, board->me, board->n, request->signature.count,
                    operation->type_bytes, request->in == request->out, &operation->plan);
    operation->steps.steps = hoop_algo_steps(operation->plan.algo);
    operation_enter_links(operation);
}

void hoop_operation_start(struct hoop_operation *operation, const struct hoop_request *request)
{
    struct hoop_board *board = operation->env.board;
    const hoop_datatype_t type = (hoop_datatype_t)request->signature.type;
    operation->type_bytes = (uint32_t)hoop_datatype_bytes(type);
    operation->bytes = request->signature.count * operation->type_bytes;
    operation->failure.code = HOOP_OK;
    operation->announced = false;
    operation->plan.algo = HOOP_ALGO_ONESHOT;
    operation->request = *request;
    hoop_board_begin(board, &request->signature);
    if (board->n == 1) {
        operation_prepare(operation, request);
        operation_alone(operation);
    } else if (operation->env.over_links) {
        operation_prepare(operation, request);
        operation_far(operation);
    } else if (hoop_plan_is_oneshot(operation->env.agreed, board->n, operation->bytes)) {
        operation_publish(operation);
        operation_prepare(operation, request);
    } else {
        operation_announce(operation);
        operation_prepare(operation, request);
    }
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
    default:
        return HOOP_POLL_DONE;
    }
}

void hoop_operation_cancel(struct hoop_operation *operation, int culprit)
{
    struct hoop_board *board = operation->env.board;
    if (operation->announced && hoop_board_close_gates(board, culprit) && operation->mapped) {
        /* Who writes has seen all announcements: if I had not yet, they are here now. */
        if (operation->state == OP_ANNOUNCED) {
            operation_await_announcements(operation);
        }
        if (operation->plan.algo == HOOP_ALGO_DIRECT) {
            hoop_board_fence(board, &operation->steps);
        }
    }
    operation_unuse(operation);
    operation->state = OP_DONE;
}

void hoop_operation_explain(const struct hoop_operation *operation, uint64_t count,
                            uint32_t type_bytes, struct hoop_plan *ret)
{
    const struct hoop_reach reach = {.mapped = true};
    const struct hoop_board *board = operation->env.board;
    if (operation->env.over_links) {
        hoop_plan_links(operation->env.agreed, board->me, board->n, count, type_bytes, true, ret);
    } else if (hoop_plan_is_oneshot(operation->env.agreed, board->n, count * type_bytes)) {
        hoop_plan_oneshot(board->me, board->n, count, type_bytes, true, ret);
    } else {
        hoop_plan_choose(operation->env.agreed, &reach, board->me, board->n, count, type_bytes,
                         true, ret);
    }
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

bool hoop_operation_awaits(const struct hoop_operation *operation,
                           bool (*left)(void *arg, uint32_t rank), void *arg, uint32_t *ret_rank)
{
    const struct hoop_board *board = operation->env.board;
    if (operation->state == OP_DONE) {
        return false;
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
    static const char *const doing[] = {"for the data", "for the announcement", "for the memory"};
    char what[96], lanes[128] = "", whom[144] = "";
    const struct hoop_board *board = operation->env.board;
    hoop_signature_describe(&operation->request.signature, what, sizeof(what));
    if (operation_runs_over_links(operation)) {
        hoop_engine_describe(operation->env.engine, lanes, sizeof(lanes));
        snprintf(whom, sizeof(whom), "for %s", lanes);
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
