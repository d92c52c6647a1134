/* Executes oneshot (see published.h). */
#include "exec/published.h"

#include "algo/taking.h"
#include "runtime/copy.h"

#include <string.h>

/* How many of `bytes` from `off` on are contiguous: up to the end of a cell, or all in the area.
 * brought: bytes of each contributing rank, which determine where they lie. */
static size_t published_run(size_t brought, size_t off, size_t bytes)
{
    const size_t whole = HOOP_CELL_DATA_BYTES - off % HOOP_CELL_DATA_BYTES;
    return brought <= HOOP_CELLS_MAX_BYTES && bytes > whole ? whole : bytes;
}

static uint8_t *published_at(const struct hoop_board *board, size_t brought, uint32_t rank,
                             size_t off)
{
    if (brought > HOOP_CELLS_MAX_BYTES) {
        return hoop_board_area(board, rank) + off;
    }
    const uint32_t set = board->sequence % HOOP_BOARD_SETS;
    struct hoop_cell *cells = hoop_board_rank(board, rank)->cells[set];
    return cells[off / HOOP_CELL_DATA_BYTES].data + off % HOOP_CELL_DATA_BYTES;
}

static inline void published_put(uint8_t *to, const uint8_t *in, size_t bytes, size_t before,
                                 size_t own, bool past)
{
    hoop_copy(to, in, before, past);
    if (bytes > before) {
        hoop_copy(to + before, in + before + own, bytes - before, past);
    }
}

/* A function of its own, so that calls that need no assembly do not pay for its stack frame. */
static __attribute__((noinline)) void published_put_apart(struct hoop_board *board,
                                                          const uint8_t *in, size_t bytes,
                                                          size_t before, size_t own)
{
    uint8_t data[HOOP_CELLS_MAX_BYTES];
    published_put(data, in, bytes, before, own, false);
    hoop_board_post(board, data, bytes);
}

void hoop_published_post(struct hoop_board *board, const void *in, size_t brought, size_t bytes,
                         size_t before, size_t own)
{
    if (brought > HOOP_CELLS_MAX_BYTES) {
        hoop_board_take_room(board, brought);
        const uint64_t since = hoop_board_begin_work(board);
        if (bytes > 0) {
            published_put(hoop_board_area(board, board->me), in, bytes, before, own, board->past);
        }
        hoop_board_end_work(board, since);
        hoop_board_post(board, NULL, 0);
    } else if (before == bytes) {
        hoop_board_post(board, in, bytes);
    } else if (before == 0) {
        hoop_board_post(board, (const uint8_t *)in + own, bytes);
    } else {
        published_put_apart(board, in, bytes, before, own);
    }
}

void hoop_published_needs(const struct hoop_plan *plan, uint32_t *ret_first, uint32_t *ret_end)
{
    const uint32_t needed = hoop_needed(plan);
    const bool every = needed == HOOP_EVERY;
    *ret_first = every || needed == plan->me ? 0 : needed;
    *ret_end = every ? plan->n : needed == plan->me ? 0 : needed + 1;
}

/* What this rank takes from the others. */
struct published {
    size_t block;   /* bytes that it takes from each */
    size_t brought; /* bytes that each contributing rank publishes */
    size_t own;     /* offset of this rank's block in an input */
    /* its offset in what lower ranks published, and higher ones: both leave out their own block */
    size_t before, behind;
};

static inline struct published published_of(const struct hoop_plan *plan)
{
    const uint8_t in = hoop_row_of(plan)->in;
    struct published ret = {.block = plan->count * plan->type_bytes};
    if (!hoop_extent_is_each(in)) {
        ret.brought = ret.block;
        return ret;
    }
    ret.brought = (plan->n - 1) * ret.block;
    ret.own = plan->me * ret.block;
    ret.before = plan->me > 0 ? ret.own - ret.block : 0;
    ret.behind = plan->me + 1 < plan->n ? ret.own : ret.before;
    return ret;
}

/* How many bytes of everybody's block are contiguous from `done` on. */
static inline size_t published_run_of_all(const struct published *what, size_t done)
{
    const size_t run = published_run(what->brought, what->behind + done, what->block - done);
    return what->before == what->behind ? run
                                        : published_run(what->brought, what->before + done, run);
}

/* Lists where everybody's block lies, from `done` on; this rank's own is in its input. */
static inline void published_all_at(struct hoop_board *board, const struct hoop_board_op *op,
                                    const struct published *what, size_t done)
{
    for (uint32_t rank = 0; rank < board->n; rank++) {
        const size_t from = rank < board->me ? what->before : what->behind;
        board->src[rank] = published_at(board, what->brought, rank, from + done);
    }
    board->src[board->me] = (const uint8_t *)op->in + what->own + done;
}

/* Folds everybody's block to the output. No element straddles two cells. */
static void published_fold(struct hoop_board *board, const struct hoop_board_op *op,
                           const struct published *what)
{
    size_t run = 0;
    for (size_t done = 0; done < what->block; done += run) {
        void *dst = (uint8_t *)op->out + done;
        run = published_run_of_all(what, done);
        published_all_at(board, op, what, done);
        hoop_fold(&op->reduction, &dst, 1, board->src, board->n, run / op->plan->type_bytes);
    }
}

/* Copies another rank's block to its place in the output. */
static void published_copy(const struct hoop_board *board, const struct hoop_board_op *op,
                           const struct published *what, uint32_t rank)
{
    const size_t off = rank < board->me ? what->before : what->behind;
    size_t left = what->block;
    if (left == 0) {
        return; /* there need not be an output */
    }
    uint8_t *dst = (uint8_t *)op->out + hoop_placed_off(op->plan, rank) * op->plan->type_bytes;
    if (what->brought > HOOP_CELLS_MAX_BYTES) {
        memcpy(dst, hoop_board_area(board, rank) + off, left);
        return;
    }
    const uint32_t set = board->sequence % HOOP_BOARD_SETS;
    const struct hoop_cell *cell =
        &hoop_board_rank(board, rank)->cells[set][off / HOOP_CELL_DATA_BYTES];
    size_t at = off % HOOP_CELL_DATA_BYTES, run = HOOP_CELL_DATA_BYTES - at;
    for (; left > run; cell++) {
        memcpy(dst, cell->data + at, run);
        dst += run;
        left -= run;
        at = 0;
        run = HOOP_CELL_DATA_BYTES;
    }
    memcpy(dst, cell->data + at, left);
}

/* Copies this rank's own block, for which nobody else is needed. */
static void published_keep(const struct hoop_board_op *op)
{
    const struct hoop_plan *plan = op->plan;
    if (plan->count == 0 || !hoop_keeps(plan)) {
        return;
    }
    const size_t size = plan->type_bytes;
    const uint8_t *own = (const uint8_t *)op->in + hoop_taken_off(plan) * size;
    uint8_t *dst = (uint8_t *)op->out + hoop_placed_off(plan, plan->me) * size;
    if (dst != own) {
        memcpy(dst, own, plan->count * size);
    }
}

bool hoop_published_prepare(struct hoop_board *board, const struct hoop_board_op *op)
{
    const struct hoop_plan *plan = op->plan;
    if (!hoop_row_of(plan)->folds) {
        published_keep(op);
        return false;
    }
    const struct published what = published_of(plan);
    if (hoop_out_count(plan, plan->me) == 0 || published_run_of_all(&what, 0) != what.block) {
        return false;
    }
    published_all_at(board, op, &what, 0);
    return true;
}

void hoop_published_take(struct hoop_board *board, const struct hoop_board_op *op)
{
    const struct hoop_plan *plan = op->plan;
    const struct published what = published_of(plan);
    const uint64_t takes = hoop_takes(plan);
    if (takes > 0 && hoop_row_of(plan)->folds) {
        published_fold(board, op, &what);
        return;
    }
    for (uint64_t i = 0; i < takes; i++) {
        published_copy(board, op, &what, hoop_source(plan, i));
    }
}
