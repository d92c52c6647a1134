/*
 * What operations learn from earlier ones: whether cma or slab is faster (cost/learned.h), and how
 * copies to others are best done (cost/copies.h). Ranks tell each other in shared memory how long
 * an operation took; nothing here waits. Over links, also the previous plan.
 */
#include "operation/operation.h"

#include "runtime/copy.h"

#include <stdlib.h>
#include <string.h>

#define LEARN_MORE 2u /* calls beyond those after which copies return to the same memory */

/* ---- Which of cma and slab ----------------------------------------------------------------- */

/* Rank 0 reads it after the next announcement. */
void hoop_operation_tell(struct hoop_operation *operation)
{
    const struct hoop_board *board = operation->env.board;
    atomic_store_explicit(&hoop_board_rank(board, board->me)->took,
                          hoop_now_ns() - operation->began_ns, memory_order_relaxed);
    operation->began_ns = 0;
}

/* The time that the slowest rank worked in the operation of this sequence, of those that told. */
static uint64_t learn_worked(const struct hoop_board *board, uint32_t sequence, bool *ret_all)
{
    uint32_t told = 0;
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        const uint64_t worked =
            atomic_load_explicit(&hoop_board_rank(board, rank)->worked, memory_order_relaxed);
        if (worked >> 32 == sequence) {
            most = (uint32_t)worked > most ? (uint32_t)worked : most;
            told++;
        }
    }
    *ret_all = told == board->n;
    return most;
}

void hoop_operation_learn(struct hoop_operation *operation)
{
    const struct hoop_board *board = operation->env.board;
    const struct hoop_plan *last = &operation->last;
    struct hoop_plan *granted = &operation->granted_last;
    bool all = false;
    uint64_t most = granted->count > 0 ? learn_worked(board, operation->granted_at, &all) : 0;
    if (most > 0 && all) {
        hoop_learned_add_oneshot(operation->learned, granted->collective,
                                 granted->count * granted->type_bytes, most * operation->pieces);
    }
    granted->count = 0;
    if (last->count == 0) {
        return;
    }
    most = 0;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        const uint64_t took =
            atomic_load_explicit(&hoop_board_rank(board, rank)->took, memory_order_relaxed);
        most = took > most ? took : most;
    }
    hoop_learned_add(operation->learned, last->collective, last->count * last->type_bytes,
                     last->algo == HOOP_ALGO_CMA, most);
    operation->last.count = 0;
}

/* May such a call be granted? */
static bool learn_may_grant(const struct hoop_operation *operation, const struct hoop_plan *plan)
{
    return plan->count * plan->type_bytes <= operation->granted_most[plan->collective];
}

struct hoop_learned_say hoop_operation_says(struct hoop_operation *operation)
{
    const struct hoop_plan *plan = &operation->plan;
    struct hoop_learned_say none = {HOOP_CHOICE_NONE, HOOP_GRANT_NONE};
    if (plan->me > 0 || operation->env.one_process || plan->count == 0 ||
        hoop_settings()->learn == 0) {
        return none;
    }
    if (operation->learned == NULL) {
        operation->learned = calloc(1, sizeof(*operation->learned));
    }
    return operation->learned != NULL ? hoop_plan_learned(operation->env.agreed, operation->learned,
                                                          plan, learn_may_grant(operation, plan))
                                      : none;
}

void hoop_operation_grant(struct hoop_operation *operation, const struct hoop_reach *reach)
{
    const struct hoop_plan *plan = &operation->plan;
    if (operation->env.on_host && learn_may_grant(operation, plan)) {
        operation->granted[plan->collective][hoop_learned_size(plan->count * plan->type_bytes)] =
            reach->mapped                     ? 0
            : reach->grant == HOOP_GRANT_MANY ? HOOP_GRANT_MANY_CALLS
            : reach->grant == HOOP_GRANT_TRY  ? HOOP_GRANT_TRY_CALLS
                                              : 0;
    }
}

/* The pieces of a call are equally large, but for a few bytes. */
static uint64_t learn_piece(const struct hoop_signature *s, uint32_t *ret_pieces)
{
    const uint64_t size = hoop_datatype_bytes((hoop_datatype_t)s->type);
    const uint64_t most = size > 0 ? HOOP_ONESHOT_MAX_BYTES / size : 1;
    const uint64_t pieces = s->count / most + (s->count % most != 0);
    *ret_pieces = pieces < UINT32_MAX ? (uint32_t)pieces : UINT32_MAX;
    return pieces > 1 ? s->count / pieces + (s->count % pieces != 0) : s->count;
}

bool hoop_operation_is_granted(struct hoop_operation *operation)
{
    const struct hoop_signature *s = &operation->request.signature;
    const uint64_t block = s->count * hoop_datatype_bytes((hoop_datatype_t)s->type);
    uint8_t *granted = &operation->granted[s->collective][hoop_learned_size(block)];
    uint32_t left = 0;
    if (operation->piece > 0) {
        operation->piece = learn_piece(s, &left);
        return true;
    }
    if (block > operation->granted_most[s->collective] || *granted == 0) {
        return false;
    }
    operation->piece = learn_piece(s, &operation->pieces);
    operation->times = --*granted == 0;
    if (operation->times) {
        const struct hoop_board *board = operation->env.board;
        operation->granted_at = board->sequence + operation->pieces - 1;
        hoop_plan_begin(&operation->granted_last, s, board->me, board->n, false);
    }
    return true;
}

void hoop_operation_time_grant(struct hoop_operation *operation)
{
    if (operation->times && operation->piece == operation->request.signature.count) {
        operation->env.board->timed = true;
        operation->env.board->worked_ns = 0;
    }
}

/* ---- How copies are done ------------------------------------------------------------------- */

void hoop_operation_note_work(struct hoop_operation *operation)
{
    struct hoop_board *board = operation->env.board;
    const uint64_t ns = board->worked_ns < UINT32_MAX ? board->worked_ns : UINT32_MAX;
    board->timed = false;
    atomic_store_explicit(&hoop_board_rank(board, board->me)->worked,
                          (uint64_t)board->sequence << 32 | ns, memory_order_relaxed);
}

/* Adds the time of the last timed operation, on the rank that worked longest, as soon as all ranks
 * have told theirs; with `last` even if only some have. */
static void learn_hear_work(struct hoop_operation *operation, bool last)
{
    bool all = false;
    const uint64_t most = learn_worked(operation->env.board, operation->weighed, &all);
    if (all || last) {
        hoop_copies_add(operation->copied, operation->copied_how, most);
        operation->copied = NULL;
    }
}

/* The stores, a bit each, among which copies of so many bytes choose. */
static uint32_t learn_stores(enum hoop_collective collective, uint64_t bytes)
{
    const bool rooted = hoop_collective_is_rooted(collective);
    /* Memory that rotates is written by the rank that read it last: small pieces gain nothing. */
    if (bytes < (rooted ? HOOP_COPIES_LEAST_ROOTED : HOOP_COPIES_LEAST)) {
        return 1u << HOOP_COPY_ORDINARY;
    }
    const uint32_t may = hoop_copies_may(), ordinary = may & 1u << HOOP_COPY_ORDINARY;
    /* A time of the writer's work does not show what its reader loses, who takes longer. */
    const bool never_worth =
        rooted && bytes < HOOP_COPIES_LEAST_STRING && hoop_copies_by_string(bytes) && ordinary != 0;
    return never_worth ? ordinary : may;
}

bool hoop_operation_weigh(struct hoop_operation *operation, uint64_t bytes, uint32_t around)
{
    struct hoop_board *board = operation->env.board;
    const uint32_t collective = operation->request.signature.collective;
    const uint32_t may = learn_stores((enum hoop_collective)collective, bytes);
    board->past = may == 1u << HOOP_COPY_NONTEMPORAL;
    if (__builtin_popcount(may) == 1) {
        return false;
    }
    if (operation->copies == NULL) {
        operation->copies = calloc(1, sizeof(*operation->copies));
    }
    if (operation->copies == NULL) {
        return false;
    }
    if (!operation->goes_far && board->sequence >= HOOP_BOARD_FAR_AFTER) {
        memset(operation->copies, 0, sizeof(*operation->copies)); /* times of nearer pieces */
        operation->copied = NULL;
        operation->goes_far = true;
    }
    if (operation->copied != NULL) {
        learn_hear_work(operation, false);
    }
    struct hoop_copies_row *row = &operation->copies->rows[collective][hoop_copies_size(bytes)];
    const enum hoop_copy how = hoop_copies_next(row, around, may, &board->timed);
    board->past = how == HOOP_COPY_NONTEMPORAL;
    if (board->timed) {
        if (operation->copied != NULL) {
            learn_hear_work(operation, true);
        }
        operation->copied = row;
        operation->copied_how = how;
        operation->weighed = board->sequence;
        board->worked_ns = 0;
    }
    return row->tries;
}

/* What is slow because stores are tried says nothing about slab. */
void hoop_operation_learn_of_plan(struct hoop_operation *operation, const struct hoop_reach *reach)
{
    const struct hoop_plan *plan = &operation->plan;
    /* An all_reduce writes most of its slabs by folding, and gains nothing. */
    const bool copies = plan->algo == HOOP_ALGO_SLAB && operation->device == 0 &&
                        plan->collective != HOOP_COLL_ALL_REDUCE;
    const uint32_t turns = copies ? hoop_slab_turns(plan) : 0;
    const bool tries = hoop_operation_weigh(operation, copies ? plan->count * plan->type_bytes : 0,
                                            plan->slabs / (turns > 0 ? turns : 1) + LEARN_MORE);
    if (reach->choice != HOOP_CHOICE_NONE && !reach->mapped && !reach->unreadable && !tries) {
        operation->began_ns = hoop_now_ns();
        operation->last = *plan;
    }
}

/* ---- The plan over links --------------------------------------------------------------------- */

/* A call is often repeated, and the model is a fifth of the instructions of a small operation. */
void hoop_operation_plan_links(struct hoop_operation *operation)
{
    struct hoop_plan *plan = &operation->plan, *last = &operation->far;
    const bool again = last->lanes > 0 && plan->count == last->count &&
                       plan->collective == last->collective &&
                       plan->type_bytes == last->type_bytes && plan->root == last->root &&
                       plan->in_place == last->in_place;
    if (again) {
        *plan = *last;
    } else {
        hoop_plan_links(operation->env.agreed, operation->grid, plan);
        *last = *plan;
    }
}
