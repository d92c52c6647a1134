/*
 * The board (see board.h): layout, failure record, announcements, and the executor of steps over
 * shared memory.
 *
 * Invariants
 * - A rank's lines are written by that rank only; peers' values are read with acquire and checked
 *   before they are used as anything but numbers to compare.
 * - The executor never waits and reads no clock; only hoop_board_close_gates(), on the way out
 *   of a failed operation, gives a writer time to leave.
 */
#include "board.h"

#include "base/clock.h"
#include "base/log.h"
#include "device.h"
#include "wait.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(struct hoop_cell) == HOOP_LINE_BYTES, "a cell is a line");
_Static_assert(sizeof(struct hoop_announce) == HOOP_CELL_DATA_BYTES, "announced in one cell");

enum { GATE_OPEN = 0, GATE_CLOSED = 1, GATE_WRITING = 2 };
enum { FAILED_NOT, FAILED_CLAIMED, FAILED_WRITTEN };

/* How long a stuck writer may take to leave a gate before its pages are replaced. */
#define GATE_PATIENCE_NS (20 * HOOP_NS_PER_MS)
/* A writer of this very process can only be late, not stopped on its own. */
#define GATE_PATIENCE_OWN_NS (30 * HOOP_NS_PER_S)

static size_t board_align(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static size_t board_rank_stride(uint32_t n)
{
    return board_align(sizeof(struct hoop_board_rank) + n * sizeof(uint64_t), HOOP_APART_BYTES);
}

static size_t board_ranks_bytes(uint32_t n)
{
    return board_align(n * board_rank_stride(n), HOOP_PAGE_BYTES);
}

static size_t board_head_bytes(void)
{
    return board_align(sizeof(struct hoop_board_head), HOOP_PAGE_BYTES);
}

uint64_t hoop_board_bytes(uint32_t n)
{
    return board_head_bytes() + board_ranks_bytes(n) +
           n * (2 * HOOP_ONESHOT_MAX_BYTES + 2 * HOOP_SLAB_BYTES);
}

hoop_result_t hoop_board_init(struct hoop_board *board, const struct hoop_roster *roster,
                              uint32_t me)
{
    const uint32_t n = roster->n;
    memset(board, 0, sizeof(*board));
    assert(n <= HOOP_BOARD_MAX_RANKS && roster->segment_bytes >= hoop_board_bytes(n));
    board->me = me;
    board->n = n;
    board->need_fence = roster->need_fence;
    board->peers = roster->peers;
    board->head = roster->segment;
    board->ranks = (uint8_t *)roster->segment + board_head_bytes();
    board->rank_stride = board_rank_stride(n);
    board->oneshots = board->ranks + board_ranks_bytes(n);
    board->slabs = board->oneshots + (size_t)n * 2 * HOOP_ONESHOT_MAX_BYTES;
    board->scratch = malloc(HOOP_SCRATCH_BYTES);
    board->src = calloc(n, sizeof(*board->src));
    board->dst = calloc(n, sizeof(*board->dst));
    board->stuck = calloc(n, sizeof(*board->stuck));
    if (!board->scratch || !board->src || !board->dst || !board->stuck) {
        hoop_board_finish(board);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for the board of %u ranks", n);
    }
    return HOOP_OK;
}

void hoop_board_finish(struct hoop_board *board)
{
    free(board->scratch);
    free(board->src);
    free(board->dst);
    free(board->stuck);
    memset(board, 0, sizeof(*board));
}

/* ---- Failure and waking -------------------------------------------------------------------- */

void hoop_board_wake(const struct hoop_board *board, uint32_t rank)
{
    const uint64_t one = 1;
    if (board->peers[rank].wake_fd < 0) {
        return; /* on another machine */
    }
    /* EAGAIN: the counter is full, so the rank will wake anyway. */
    ssize_t ignored = write(board->peers[rank].wake_fd, &one, sizeof(one));
    (void)ignored;
}

void hoop_board_wake_all(const struct hoop_board *board)
{
    for (uint32_t rank = 0; rank < board->n; rank++) {
        hoop_board_wake(board, rank);
    }
}

bool hoop_board_fail(struct hoop_board *board, const struct hoop_failure *failure)
{
    uint32_t none = FAILED_NOT;
    assert(failure->code != HOOP_OK);
    if (!atomic_compare_exchange_strong(&board->head->failed, &none, FAILED_CLAIMED)) {
        return false;
    }
    board->head->failure = *failure;
    atomic_store_explicit(&board->head->failed, FAILED_WRITTEN, memory_order_release);
    hoop_board_wake_all(board);
    return true;
}

hoop_result_t hoop_board_failed(const struct hoop_board *board, struct hoop_failure *ret)
{
    uint32_t state = atomic_load_explicit(&board->head->failed, memory_order_acquire);
    if (state == FAILED_NOT) {
        return HOOP_OK;
    }
    if (state != FAILED_WRITTEN) {
        /* Being written right now: not yet seen. Unless its writer died doing so, and then its
         * death follows and finds the record taken: give it a moment, then go without text. */
        const uint64_t until = hoop_now_ns() + 50 * HOOP_NS_PER_MS;
        do {
            sched_yield();
            state = atomic_load_explicit(&board->head->failed, memory_order_acquire);
        } while (state != FAILED_WRITTEN && hoop_now_ns() < until);
    }
    struct hoop_failure failure = {.code = HOOP_REMOTE_ERROR, .rank = -1};
    if (state == FAILED_WRITTEN) {
        failure = board->head->failure;
        failure.text[sizeof(failure.text) - 1] = '\0';
        if (failure.code == HOOP_OK || failure.code == HOOP_AGAIN) {
            failure.code = HOOP_REMOTE_ERROR;
        }
    } else {
        strcpy(failure.text, "a rank died while it reported a failure");
    }
    if (ret != NULL) {
        *ret = failure;
    }
    return failure.code;
}

void hoop_board_leave(const struct hoop_board *board, uint32_t rank)
{
    atomic_store_explicit(&hoop_board_rank(board, rank)->left, 1, memory_order_release);
    hoop_board_wake_all(board);
}

/*
 * Wakes the ranks that sleep, after something was published. Pairs with the membarrier between
 * the sleeper's store of `sleeping` and its last look (wait.c).
 */
static void board_publish_fence(const struct hoop_board *board)
{
    if (board->need_fence) {
        atomic_thread_fence(memory_order_seq_cst);
    } else {
        atomic_signal_fence(memory_order_seq_cst);
    }
}

void hoop_board_notify(const struct hoop_board *board, uint32_t rank)
{
    board_publish_fence(board);
    if (atomic_load_explicit(&board->head->sleeping[rank], memory_order_relaxed) != 0) {
        hoop_board_wake(board, rank);
    }
}

static void board_wake_sleepers(struct hoop_board *board)
{
    board_publish_fence(board);
    const uint8_t *flags = (const uint8_t *)board->head->sleeping;
    for (uint32_t rank = 0; rank < board->n; rank += 8) {
        /* Eight ranks at a time: this is on every operation's way. */
        const uint64_t eight =
            __atomic_load_n((const uint64_t *)(const void *)(flags + rank), __ATOMIC_RELAXED);
        if (__builtin_expect(eight == 0, 1)) {
            continue;
        }
        for (uint32_t i = rank; i < rank + 8 && i < board->n; i++) {
            if (i != board->me &&
                atomic_load_explicit(&board->head->sleeping[i], memory_order_relaxed) != 0) {
                hoop_board_wake(board, i);
            }
        }
    }
}

/* ---- Announcements ------------------------------------------------------------------------- */

/* 32 bits that differ for different operations but for one chance in 2^32. */
static uint32_t board_hash(const struct hoop_signature *s)
{
    uint64_t h = s->count * 0x9e3779b97f4a7c15ull;
    h ^= h >> 32;
    h += ((uint64_t)s->collective << 48) + ((uint64_t)s->type << 40) + ((uint64_t)s->op << 8) +
         ((uint64_t)(uint32_t)s->root << 16);
    h *= 0xd6e8feb86659fd93ull;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ull;
    return (uint32_t)(h >> 32);
}

void hoop_board_begin(struct hoop_board *board, const struct hoop_signature *signature)
{
    struct hoop_signature *now = &hoop_board_rank(board, board->me)->now;
    board->sequence++;
    /* Most operations are the one before, again. */
    if (board->sequence == 1 || !hoop_signature_equal(now, signature)) {
        *now = *signature;
        board->signature = board_hash(signature);
    }
}

static uint64_t board_tag(const struct hoop_board *board)
{
    return (uint64_t)board->sequence << 32 | board->signature;
}

void hoop_board_post(struct hoop_board *board, const void *data, size_t bytes)
{
    struct hoop_cell *cells = hoop_board_rank(board, board->me)->cells[board->sequence & 1];
    const uint64_t tag = board_tag(board);
    assert(bytes <= HOOP_CELLS_MAX_BYTES);
    for (size_t done = 0, c = 0; done < bytes; done += HOOP_CELL_DATA_BYTES, c++) {
        const size_t left = bytes - done;
        memcpy(cells[c].data, (const uint8_t *)data + done,
               left < HOOP_CELL_DATA_BYTES ? left : HOOP_CELL_DATA_BYTES);
    }
    atomic_store_explicit(&cells[0].tag, tag, memory_order_release);
    board_wake_sleepers(board);
}

static hoop_result_t board_mismatch(const struct hoop_board *board, uint32_t rank,
                                    struct hoop_failure *failure)
{
    char mine[96], theirs[96];
    hoop_signature_describe(&hoop_board_rank(board, board->me)->now, mine, sizeof(mine));
    const struct hoop_signature now = hoop_board_rank(board, rank)->now;
    hoop_signature_describe(&now, theirs, sizeof(theirs));
    return hoop_failure_set(failure, HOOP_MISMATCH, (int)rank,
                            "operation %u differs: rank %u called %s, rank %u called %s",
                            board->sequence, board->me, mine, rank, theirs);
}

hoop_result_t hoop_board_seen(const struct hoop_board *board, uint32_t rank,
                              struct hoop_failure *failure)
{
    const struct hoop_cell *cell = hoop_board_rank(board, rank)->cells[board->sequence & 1];
    const uint64_t tag = atomic_load_explicit(&cell->tag, memory_order_acquire);
    if (tag == board_tag(board)) {
        return HOOP_OK;
    }
    return tag >> 32 == board->sequence ? board_mismatch(board, rank, failure) : HOOP_AGAIN;
}

/* ---- Steps --------------------------------------------------------------------------------- */

static uint8_t *board_at(const struct hoop_board *board, const struct hoop_board_op *op,
                         enum hoop_space space, uint32_t member)
{
    const bool mine = member == board->me;
    switch (space) {
    case HOOP_SPACE_IN:
        return (uint8_t *)(uintptr_t)(mine ? op->in : op->ins[member]);
    case HOOP_SPACE_OUT:
        return mine ? op->out : op->outs[member];
    case HOOP_SPACE_SCRATCH:
        assert(mine);
        return board->scratch;
    case HOOP_SPACE_ONESHOT:
        return hoop_board_oneshot(board, member);
    case HOOP_SPACE_SLAB:
        return board->slabs + (size_t)member * 2 * HOOP_SLAB_BYTES;
    }
    return NULL;
}

/* Gives back the gates of the ranks below `end`. False: one of them closed its gate meanwhile; its
 * pages are its own again. */
static bool board_leave_gates(struct hoop_board *board, uint64_t k, uint32_t end)
{
    struct hoop_board_rank *mine = hoop_board_rank(board, board->me);
    bool all = true;
    for (uint32_t rank = 0; rank < end; rank++) {
        uint64_t writing = GATE_WRITING | k << 2;
        if (rank != board->me &&
            !atomic_compare_exchange_strong_explicit(&mine->gates[rank], &writing, GATE_OPEN,
                                                     memory_order_release, memory_order_relaxed)) {
            all = false;
        }
    }
    return all;
}

/* Takes the gates of every other rank for step k. False: one is closed; none is held then. */
static bool board_enter_gates(struct hoop_board *board, uint64_t k)
{
    struct hoop_board_rank *mine = hoop_board_rank(board, board->me);
    for (uint32_t rank = 0; rank < board->n; rank++) {
        uint64_t open = GATE_OPEN;
        if (rank != board->me && !atomic_compare_exchange_strong_explicit(
                                     &mine->gates[rank], &open, GATE_WRITING | k << 2,
                                     memory_order_acquire, memory_order_relaxed)) {
            board_leave_gates(board, k, rank);
            return false;
        }
    }
    return true;
}

static hoop_result_t board_fold(struct hoop_board *board, const struct hoop_board_op *op,
                                const struct hoop_step *step, struct hoop_failure *failure)
{
    const size_t size = op->plan->type_bytes;
    const struct hoop_ref *src = &step->local.src, *dst = &step->local.dst;
    const bool spread = step->local.op == HOOP_LOCAL_SPREAD;
    /* Whoever gives up waits until nobody is in its buffers: neither writes nor, where they are
     * plain memory of one process that may be freed at once, reads. */
    const bool gated = src->space == HOOP_SPACE_IN;
    uint32_t n_dst = 0;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        board->src[rank] = board_at(board, op, src->space, rank) + src->off * size;
        if (spread || rank == board->me) {
            board->dst[n_dst++] = board_at(board, op, dst->space, rank) + dst->off * size;
        }
    }
    if (gated && !board_enter_gates(board, op->k)) {
        return hoop_failure_set(failure, HOOP_REMOTE_ERROR, -1,
                                "another rank has given up operation %u", board->sequence);
    }
    hoop_fold(&op->reduction, board->dst, n_dst, board->src, board->n, src->count);
    if (gated && !board_leave_gates(board, op->k, board->n)) {
        return hoop_failure_set(failure, HOOP_REMOTE_ERROR, -1,
                                "another rank gave up operation %u while this one wrote",
                                board->sequence);
    }
    return HOOP_OK;
}

static void board_copy(const struct hoop_board *board, const struct hoop_board_op *op,
                       const struct hoop_step *step)
{
    const size_t size = op->plan->type_bytes;
    const struct hoop_ref *src = &step->local.src, *dst = &step->local.dst;
    void *to = board_at(board, op, dst->space, board->me) + dst->off * size;
    const void *from = board_at(board, op, src->space, src->member) + src->off * size;
    if (to != from && src->count > 0) {
        memcpy(to, from, src->count * size);
    }
}

/* An ARRIVE that nothing precedes is the announcement: made and seen before the steps began. An
 * ARRIVE behind other steps is a barrier like any other. */
#define BOARD_ANNOUNCED_ARRIVE 0
#define BOARD_ANNOUNCED_AWAIT 1

static void board_arrive(struct hoop_board *board, const struct hoop_board_op *op)
{
    if (op->k != BOARD_ANNOUNCED_ARRIVE) {
        board->arrivals++;
        atomic_store_explicit(&hoop_board_rank(board, board->me)->arrived, board->arrivals,
                              memory_order_release);
        board_wake_sleepers(board);
    }
}

/* HOOP_OK when all have arrived as often as I have. Remembers how far it saw. */
static hoop_result_t board_await(const struct hoop_board *board, struct hoop_board_op *op)
{
    if (op->k == BOARD_ANNOUNCED_AWAIT) {
        return HOOP_OK;
    }
    for (; op->cursor < board->n; op->cursor++) {
        if (op->cursor != board->me &&
            atomic_load_explicit(&hoop_board_rank(board, op->cursor)->arrived,
                                 memory_order_acquire) < board->arrivals) {
            return HOOP_AGAIN;
        }
    }
    op->cursor = 0;
    return HOOP_OK;
}

enum hoop_poll hoop_board_poll(struct hoop_board *board, struct hoop_board_op *op,
                               struct hoop_failure *failure)
{
    struct hoop_step step;
    if (!op->steps(op->plan, 0, op->k, &step)) {
        return HOOP_POLL_DONE;
    }
    assert(step.send.peer < 0 && step.recv.peer < 0);
    hoop_result_t result = HOOP_OK;
    switch ((enum hoop_local_op)step.local.op) {
    case HOOP_LOCAL_NONE:
        break;
    case HOOP_LOCAL_ARRIVE:
        board_arrive(board, op);
        break;
    case HOOP_LOCAL_AWAIT:
        result = board_await(board, op);
        break;
    case HOOP_LOCAL_COPY:
        board_copy(board, op, &step);
        break;
    case HOOP_LOCAL_REDUCE:
    case HOOP_LOCAL_SPREAD:
        result = board_fold(board, op, &step, failure);
        break;
    }
    if (result == HOOP_AGAIN) {
        return HOOP_POLL_IDLE;
    }
    if (result != HOOP_OK) {
        return HOOP_POLL_DONE;
    }
    op->k++;
    return HOOP_POLL_BUSY;
}

/* ---- Taking write access away -------------------------------------------------------------- */

/* Replaces the pages of my buffer under step k of a stuck writer. */
static void board_replace(const struct hoop_board_op *op, uint32_t writer, uint64_t k)
{
    struct hoop_plan theirs = *op->plan;
    struct hoop_step step;
    theirs.me = writer;
    if (!op->steps(&theirs, 0, k, &step) || step.local.op != HOOP_LOCAL_SPREAD) {
        return;
    }
    const size_t size = op->plan->type_bytes;
    const uintptr_t start = (uintptr_t)op->out + step.local.dst.off * size;
    const uintptr_t end = start + step.local.dst.count * size;
    const uintptr_t first = start / HOOP_PAGE_BYTES * HOOP_PAGE_BYTES;
    const uintptr_t last = board_align(end, HOOP_PAGE_BYTES);
    const hoop_result_t result = hoop_region_fence((void *)first, last - first);
    hoop_log(HOOP_LOG_WARN, HOOP_LOG_MEM, "rank %u is stuck writing %zu bytes at %p: %s", writer,
             (size_t)(end - start), (void *)start,
             result == HOOP_OK ? "those pages were replaced" : hoop_thread_error());
}

/* Closes writer's gate to me; gives it patience_ns to leave first. Returns the word it held. */
static uint64_t board_close_gate(struct hoop_board *board, uint32_t writer, uint64_t patience_ns)
{
    _Atomic uint64_t *gate = &hoop_board_rank(board, writer)->gates[board->me];
    const uint64_t until = hoop_now_ns() + patience_ns;
    uint64_t word = GATE_OPEN;
    while (!atomic_compare_exchange_strong(gate, &word, GATE_CLOSED)) {
        if (word == GATE_CLOSED) {
            return GATE_OPEN;
        }
        if (hoop_now_ns() >= until) {
            /* It may leave at this very moment: then the word is OPEN and is closed next time. */
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

bool hoop_board_close_gates(struct hoop_board *board, int culprit)
{
    bool stuck = false;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        const bool own = board->peers[rank].same_process;
        const uint64_t patience = own                    ? GATE_PATIENCE_OWN_NS
                                  : (int)rank == culprit ? 0
                                                         : GATE_PATIENCE_NS;
        board->stuck[rank] =
            rank == board->me ? GATE_OPEN : board_close_gate(board, rank, patience);
        stuck |= (board->stuck[rank] & 3) == GATE_WRITING;
    }
    return stuck;
}

void hoop_board_fence(const struct hoop_board *board, const struct hoop_board_op *op)
{
    for (uint32_t rank = 0; rank < board->n; rank++) {
        if ((board->stuck[rank] & 3) == GATE_WRITING) {
            board_replace(op, rank, board->stuck[rank] >> 2);
        }
    }
}
