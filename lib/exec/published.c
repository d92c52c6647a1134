/* Executes oneshot (see published.h). */
#include "exec/published.h"

#include "algo/taking.h"
#include "runtime/copy.h"

#include <string.h>

/* Where what a rank publishes begins: in its cell or, if it is more, its area.
 * brought: bytes of each contributing rank. */
static inline uint8_t *published_at(struct hoop_board *board, size_t brought, uint32_t rank)
{
    if (brought <= HOOP_CELL_DATA_BYTES) {
        return hoop_board_cell(board, rank, 0);
    }
    if (brought >= HOOP_BOARD_FAR_LEAST_BYTES) {
        hoop_board_map_area(board, rank, brought);
    }
    return hoop_board_area(board, rank);
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
    uint8_t data[HOOP_CELL_DATA_BYTES];
    published_put(data, in, bytes, before, own, false);
    hoop_board_post(board, data, bytes);
}

void hoop_published_post(struct hoop_board *board, const void *in, size_t brought, size_t bytes,
                         size_t before, size_t own)
{
    if (brought > HOOP_CELL_DATA_BYTES) {
        hoop_board_take_room(board, brought);
        uint8_t *to = bytes > 0 ? published_at(board, brought, board->me) : NULL;
        const uint64_t since = hoop_board_begin_work(board);
        if (bytes > 0) {
            published_put(to, in, bytes, before, own, board->past);
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

/* Lists where everybody's block lies, for a fold; this rank's own is in its input. */
static inline void published_list(struct hoop_board *board, const struct hoop_board_op *op)
{
    const struct published what = published_of(op->plan);
    for (uint32_t rank = 0; rank < board->n; rank++) {
        if (rank != board->me) {
            const size_t off = rank < board->me ? what.before : what.behind;
            board->src[rank] = published_at(board, what.brought, rank) + off;
        }
    }
    board->src[board->me] = (const uint8_t *)op->in + what.own;
}

/* Copies another rank's block to its place in the output. */
static void published_copy(struct hoop_board *board, const struct hoop_board_op *op,
                           const struct published *what, uint32_t rank)
{
    if (what->block > 0) { /* else there need not be an output */
        memcpy((uint8_t *)op->out + hoop_placed_off(op->plan, rank) * op->plan->type_bytes,
               published_at(board, what->brought, rank) +
                   (rank < board->me ? what->before : what->behind),
               what->block);
    }
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
    const bool folds = hoop_row_of(op->plan)->folds;
    if (!folds) {
        published_keep(op);
    } else if (hoop_takes(op->plan) > 0) {
        published_list(board, op);
        return true;
    }
    return false;
}

void hoop_published_take(struct hoop_board *board, const struct hoop_board_op *op)
{
    const struct published what = published_of(op->plan);
    const uint64_t takes = hoop_takes(op->plan);
    for (uint64_t i = 0; i < takes; i++) {
        published_copy(board, op, &what, hoop_source(op->plan, i));
    }
}
