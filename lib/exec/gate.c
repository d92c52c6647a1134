/* Gates (see gate.h). Only closing and fencing wait, and only after an operation has failed. */
#include "exec/gate.h"

#include "base/clock.h"
#include "base/log.h"
#include "memory/region.h"
#include "runtime/process.h"
#include "runtime/wait.h"

enum { GATE_OPEN = 0, GATE_CLOSED = 1, GATE_WRITING = 2, GATE_LEFT = 3 };

/* How long a peer may take to leave a slice before it is considered stuck. */
#define GATE_PATIENCE_NS (20 * HOOP_NS_PER_MS)

static bool gate_is_writing(uint64_t word)
{
    return (word & 3) == GATE_WRITING;
}

static _Atomic uint64_t *gate_to(const struct hoop_board *board, uint32_t rank)
{
    return &hoop_board_rank(board, board->me)->gates[rank];
}

static _Atomic uint64_t *gate_from(const struct hoop_board *board, uint32_t rank)
{
    return &hoop_board_rank(board, rank)->gates[board->me];
}

/* ---- Entering and leaving -------------------------------------------------------------------- */

static bool gate_enter(_Atomic uint64_t *gate, uint64_t k)
{
    uint64_t open = GATE_OPEN;
    return atomic_compare_exchange_strong_explicit(gate, &open, GATE_WRITING | k << 2,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static bool gate_leave(_Atomic uint64_t *gate, uint64_t k)
{
    uint64_t writing = GATE_WRITING | k << 2;
    if (atomic_compare_exchange_strong_explicit(gate, &writing, GATE_OPEN, memory_order_release,
                                                memory_order_relaxed)) {
        return true;
    }
    atomic_store_explicit(gate, GATE_LEFT, memory_order_release);
    return false;
}

/* Returns the gates of the ranks below `end`. */
static bool gates_leave_below(const struct hoop_board *board, uint64_t k, uint32_t end)
{
    bool all = true;
    for (uint32_t rank = 0; rank < end; rank++) {
        all &= rank == board->me || gate_leave(gate_to(board, rank), k);
    }
    return all;
}

bool hoop_gates_enter(const struct hoop_board *board, uint32_t whom, uint64_t k)
{
    if (whom != HOOP_EVERY) {
        return gate_enter(gate_to(board, whom), k);
    }
    for (uint32_t rank = 0; rank < board->n; rank++) {
        if (rank != board->me && !gate_enter(gate_to(board, rank), k)) {
            gates_leave_below(board, k, rank);
            return false;
        }
    }
    return true;
}

bool hoop_gates_leave(const struct hoop_board *board, uint32_t whom, uint64_t k)
{
    return whom == HOOP_EVERY ? gates_leave_below(board, k, board->n)
                              : gate_leave(gate_to(board, whom), k);
}

bool hoop_gate_is_closed(const struct hoop_board *board, uint32_t whom)
{
    /* pairs with the fence in hoop_gates_close() */
    atomic_thread_fence(memory_order_acquire);
    const uint64_t word = atomic_load_explicit(gate_to(board, whom), memory_order_relaxed);
    return word == GATE_CLOSED || word == GATE_LEFT;
}

/* ---- Closing them ---------------------------------------------------------------------------- */

/*
 * Closes a peer's gate to this rank, after giving it patience_ns to leave. Returns the word found.
 */
static uint64_t gate_close(_Atomic uint64_t *gate, uint64_t patience_ns)
{
    const uint64_t until = hoop_now_ns() + patience_ns;
    uint64_t word = GATE_OPEN;
    while (!atomic_compare_exchange_strong(gate, &word, GATE_CLOSED)) {
        if (!gate_is_writing(word)) {
            return GATE_OPEN; /* the gate was closed before */
        }
        if (hoop_now_ns() >= until) {
            /* The peer may leave at this moment: then the word is OPEN, and closed next time. */
            if (atomic_compare_exchange_strong(gate, &word, GATE_CLOSED)) {
                return word;
            }
        } else {
            hoop_wait_briefly();
        }
        word = GATE_OPEN;
    }
    return GATE_OPEN;
}

bool hoop_gates_close(struct hoop_board *board, int culprit)
{
    bool stuck = false;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        const uint64_t patience = (int)rank == culprit ? 0 : GATE_PATIENCE_NS;
        board->stuck[rank] =
            rank == board->me ? GATE_OPEN : gate_close(gate_from(board, rank), patience);
        stuck |= gate_is_writing(board->stuck[rank]);
    }
    /* pairs with the fence in hoop_gate_is_closed() */
    atomic_thread_fence(memory_order_release);
    return stuck;
}

/* ---- Who is stuck ---------------------------------------------------------------------------- */

/* Does the step write to the output of `me`, a rank other than the step's? */
static bool gate_writes(const struct hoop_step *step, uint32_t me)
{
    const struct hoop_ref *dst = &step->local.dst;
    return step->local.op >= HOOP_LOCAL_COPY && dst->space == HOOP_SPACE_OUT &&
           (dst->member == HOOP_EVERY || dst->member == me);
}

/* Puts fresh pages under what a writer writes of out in its step k. HOOP_OK also if nothing. */
static hoop_result_t gate_replace(const struct hoop_plan *plan, hoop_step_fn *steps, void *out,
                                  uint32_t writer, uint64_t k)
{
    struct hoop_plan theirs = *plan;
    struct hoop_step step;
    theirs.me = writer;
    if (!steps(&theirs, 0, k, &step) || !gate_writes(&step, plan->me)) {
        return HOOP_OK; /* the step only reads */
    }
    const uintptr_t page = hoop_page_bytes();
    const uintptr_t start = (uintptr_t)out + step.local.dst.off * plan->type_bytes;
    const uintptr_t bytes = step.local.dst.count * plan->type_bytes;
    const uintptr_t first = start / page * page;
    const uintptr_t end = (start + bytes + page - 1) / page * page;
    const hoop_result_t result = hoop_region_fence((void *)first, end - first);
    if (result == HOOP_OK) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_MEM,
                 "rank %u is stuck writing %zu bytes at %p: those pages were replaced", writer,
                 (size_t)bytes, (void *)start);
    }
    return result;
}

/* Has the rank left its slice, or has its process ended? */
static bool gate_is_left(const struct hoop_board *board, uint32_t rank)
{
    const int32_t pid = board->peers[rank].pid;
    return atomic_load_explicit(gate_from(board, rank), memory_order_acquire) == GATE_LEFT ||
           (pid > 0 && hoop_process_is_over(pid));
}

/* The operation, as far as a fence needs to know it. */
struct gate_fence {
    const struct hoop_board *board;
    const struct hoop_plan *plan;
    hoop_step_fn *steps;
    void *out;
    uint64_t until_ns;
};

/* HOOP_OK: the rank can do no more harm. HOOP_AGAIN: *ret_why says why it still can. */
static hoop_result_t gate_fence_off(const struct gate_fence *fence, uint32_t rank,
                                    const char **ret_why)
{
    if (gate_is_left(fence->board, rank)) {
        return HOOP_OK;
    }
    if (fence->plan == NULL || fence->board->peers[rank].same_process) {
        *ret_why = fence->plan == NULL ? "what it is doing is not known" : "it is in this process";
        return HOOP_AGAIN;
    }
    const uint64_t k = fence->board->stuck[rank] >> 2;
    if (gate_replace(fence->plan, fence->steps, fence->out, rank, k) == HOOP_OK) {
        return HOOP_OK;
    }
    *ret_why = hoop_thread_error();
    return HOOP_AGAIN;
}

static hoop_result_t gate_end(const struct gate_fence *fence, uint32_t rank)
{
    const char *why = "";
    hoop_result_t result = gate_fence_off(fence, rank, &why);
    if (result == HOOP_AGAIN) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_MEM, "rank %u is stuck in the buffers, waiting for it: %s",
                 rank, why);
    }
    while (result == HOOP_AGAIN && hoop_now_ns() < fence->until_ns) {
        hoop_wait_briefly();
        result = gate_fence_off(fence, rank, &why);
    }
    return result == HOOP_OK ? HOOP_OK
                             : hoop_error(HOOP_TIMEOUT,
                                          "rank %u may still write to the buffers, in which it is "
                                          "stuck: %s",
                                          rank, why);
}

hoop_result_t hoop_gates_fence(const struct hoop_board *board, const struct hoop_plan *plan,
                               hoop_step_fn *steps, void *out, uint64_t timeout_ms)
{
    const struct gate_fence fence = {board, plan, steps, out, hoop_deadline_ns(timeout_ms)};
    hoop_result_t result = HOOP_OK;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        if (gate_is_writing(board->stuck[rank]) && gate_end(&fence, rank) != HOOP_OK) {
            result = HOOP_TIMEOUT;
        }
    }
    return result;
}
