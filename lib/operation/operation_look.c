/* Queries about an operation (see operation.h): its plan, whom it waits for, its state. */
#include "operation/operation.h"

#include <stdio.h>

void hoop_operation_explain(const struct hoop_operation *operation,
                            const struct hoop_signature *signature, struct hoop_plan *ret,
                            uint64_t ret_ns[HOOP_ALGO_COUNT])
{
    const struct hoop_reach reach = {.mapped = true};
    const struct hoop_board *board = operation->env.board;
    hoop_plan_begin(ret, signature, board->me, board->n, true);
    if (operation->env.over_links) {
        hoop_plan_links(operation->env.agreed, operation->grid, ret);
    } else if (ret->count * ret->type_bytes <= operation->oneshot_most[ret->collective]) {
        hoop_plan_oneshot(ret);
    } else {
        hoop_plan_choose(operation->env.agreed, &reach, ret);
    }
    hoop_plan_costs(operation->env.agreed,
                    operation->env.over_links || hoop_plan_is_over_links(ret->algo), ret, ret_ns);
}

/* All transfers run at once, and the two directions at the same time. */
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
    /* Without elements every operation is a barrier. */
    signature.collective = signature.count == 0 ? HOOP_COLL_BARRIER : signature.collective;
    hoop_operation_explain(operation, &signature, &plan, ns);
    return ns[plan.algo] + exchange;
}

/*
 * If all ranks have announced the operation, a rank that has left has completed it, and all that it
 * had to send is in the links. Over links nothing says that they have: a rank may have left before
 * it, and then it takes nothing either.
 */
static bool operation_awaits_on_links(const struct hoop_operation *operation,
                                      bool (*left)(void *arg, uint32_t rank), void *arg,
                                      uint32_t *ret_rank)
{
    const struct hoop_engine *engine = operation->env.engine;
    const struct hoop_transport *transport = NULL;
    for (int sending = 0; operation->env.over_links && sending < 2; sending++) {
        uint32_t cursor = 0, rank = 0;
        while (hoop_engine_awaited(engine, sending != 0, &cursor, &rank, &transport)) {
            const bool notices = transport != NULL && transport->watch_fd != NULL;
            if (!notices && left(arg, rank)) {
                *ret_rank = rank;
                return true;
            }
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
    if (operation->state >= OP_FETCH) {
        return false;
    }
    if (operation->state == OP_EXCHANGE) {
        return operation_awaits_transfers(operation, left, arg, ret_rank);
    }
    if (hoop_operation_runs_over_links(operation)) {
        return operation_awaits_on_links(operation, left, arg, ret_rank);
    }
    const bool running = operation->state == OP_RUN;
    if (running && operation->steps.work != HOOP_BOARD_IDLE) {
        return false; /* the device is awaited, not a rank */
    }
    *ret_rank = running ? operation->steps.cursor : operation->cursor;
    return *ret_rank < board->n && left(arg, *ret_rank);
}

enum hoop_awaited_what hoop_operation_awaited(const struct hoop_operation *operation,
                                              uint32_t *ret_rank)
{
    static const enum hoop_awaited_what whats[] = {
        [OP_OWED] = HOOP_AWAITS_END_BEFORE,        [OP_GATHER] = HOOP_AWAITS_DATA,
        [OP_ANNOUNCED] = HOOP_AWAITS_ANNOUNCEMENT, [OP_TRY] = HOOP_AWAITS_MEMORY,
        [OP_RESOLVE] = HOOP_AWAITS_MEMORY,         [OP_RUN] = HOOP_AWAITS_ARRIVAL,
        [OP_EXCHANGE] = HOOP_AWAITS_RECV,          [OP_FETCH] = HOOP_AWAITS_FETCH,
        [OP_DELIVER] = HOOP_AWAITS_DELIVERY,       [OP_DONE] = HOOP_AWAITS_NOBODY};
    const struct hoop_board *board = operation->env.board;
    const enum hoop_awaited_what what = whats[operation->state];
    bool sending = false;
    if (hoop_operation_runs_over_links(operation)) {
        const struct hoop_overlap *overlap = &operation->staging.overlap;
        const bool fetching = overlap->count > 0 && overlap->ready != UINT64_MAX;
        return hoop_engine_waits(operation->env.engine, ret_rank, &sending)
                   ? (sending ? HOOP_AWAITS_SEND : HOOP_AWAITS_RECV)
               : fetching ? HOOP_AWAITS_FETCH
                          : HOOP_AWAITS_NOBODY;
    }
    if (what == HOOP_AWAITS_RECV) {
        const struct hoop_transfer *at = hoop_exchange_awaited(&operation->exchange, NULL);
        *ret_rank = at != NULL ? at->peer : board->me;
        return at != NULL && at->sending ? HOOP_AWAITS_SEND : what;
    }
    if (what == HOOP_AWAITS_ARRIVAL && operation->steps.work != HOOP_BOARD_IDLE) {
        return HOOP_AWAITS_DEVICE;
    }
    const uint32_t cursor =
        what == HOOP_AWAITS_ARRIVAL ? operation->steps.cursor : operation->cursor;
    *ret_rank = cursor < board->n ? cursor : board->n - 1;
    return what;
}

void hoop_awaited_describe(enum hoop_awaited_what what, uint32_t rank, char *buf, size_t bytes)
{
    static const char *const formats[HOOP_AWAITS_WHATS] = {
        "nobody",
        "the end of an earlier operation of rank %u",
        "the data of rank %u",
        "the announcement of rank %u",
        "the memory of rank %u",
        "the arrival of rank %u",
        "rank %u (send)",
        "rank %u (recv)",
        "copies from the device",
        "copies to the device",
        "the device",
    };
    snprintf(buf, bytes, what < HOOP_AWAITS_WHATS ? formats[what] : "rank %u", rank);
}

void hoop_operation_describe(const struct hoop_operation *operation, char *buf, size_t bytes)
{
    char what[96], whom[144] = "";
    uint32_t rank = 0;
    const enum hoop_awaited_what awaited = hoop_operation_awaited(operation, &rank);
    hoop_signature_describe(&operation->request.signature, what, sizeof(what));
    if (hoop_operation_runs_over_links(operation)) {
        hoop_engine_describe(operation->env.engine, whom, sizeof(whom));
    }
    if (whom[0] == '\0' && awaited != HOOP_AWAITS_NOBODY) {
        hoop_awaited_describe(awaited, rank, whom, sizeof(whom));
    }
    snprintf(buf, bytes, "operation %u (%s)%s%s", operation->env.board->sequence, what,
             whom[0] != '\0' ? ", waiting for " : "", whom);
}
