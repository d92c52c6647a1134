/* Looking at an operation (see operation.h): what it would be, whom it waits for, where it stands.
 */
#include "operation/operation.h"

#include <stdio.h>

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
        return false; /* the device is awaited, and no rank */
    }
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
    if (hoop_operation_runs_over_links(operation)) {
        hoop_engine_describe(operation->env.engine, lanes, sizeof(lanes));
        snprintf(whom, sizeof(whom), "for %s", lanes);
    } else if (operation->state == OP_EXCHANGE) {
        const struct hoop_transfer *at = hoop_exchange_awaited(&operation->exchange, NULL);
        snprintf(whom, sizeof(whom), "for rank %u (%s)", at != NULL ? at->peer : board->me,
                 at != NULL && at->sending ? "send" : "recv");
    } else if (operation->state == OP_FETCH || operation->state == OP_DELIVER) {
        snprintf(whom, sizeof(whom), "for copies %s the device",
                 operation->state == OP_FETCH ? "from" : "to");
    } else if (operation->state == OP_RUN && operation->steps.work != HOOP_BOARD_IDLE) {
        snprintf(whom, sizeof(whom), "for the device");
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
