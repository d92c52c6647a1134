/* Oneshot carried out (see published.h). */
#include "exec/published.h"

#include "algo/taking.h"

#include <string.h>

void hoop_published_post(struct hoop_board *board, const void *in, size_t bytes)
{
    if (bytes <= HOOP_CELLS_MAX_BYTES) {
        hoop_board_post(board, in, bytes);
    } else {
        memcpy(hoop_board_oneshot(board, board->me, bytes), in, bytes);
        hoop_board_post(board, NULL, 0);
    }
}

void hoop_published_needs(const struct hoop_plan *plan, uint32_t *ret_first, uint32_t *ret_end)
{
    const uint32_t needed = hoop_needed(plan);
    const bool every = needed == HOOP_EVERY;
    *ret_first = every || needed == plan->me ? 0 : needed;
    *ret_end = every ? plan->n : needed == plan->me ? 0 : needed + 1;
}

/* In cells, as many bytes as lie in one piece from `off` on; in the area, all. brought: by each
 * rank that brings something, which says where it lies. */
static size_t published_run(size_t brought, size_t off, size_t bytes)
{
    const size_t whole = HOOP_CELL_DATA_BYTES - off % HOOP_CELL_DATA_BYTES;
    return brought <= HOOP_CELLS_MAX_BYTES && bytes > whole ? whole : bytes;
}

static const uint8_t *published_at(const struct hoop_board *board, size_t brought, uint32_t rank,
                                   size_t off)
{
    if (brought > HOOP_CELLS_MAX_BYTES) {
        return hoop_board_oneshot(board, rank, brought) + off;
    }
    const uint8_t *cell = hoop_board_cell(board, rank, off / HOOP_CELL_DATA_BYTES);
    return cell + off % HOOP_CELL_DATA_BYTES;
}

/* Where everybody's bytes from `off` on lie. My own input lies at hand. */
static void published_all_at(struct hoop_board *board, const struct hoop_board_op *op,
                             size_t brought, size_t off)
{
    for (uint32_t rank = 0; rank < board->n; rank++) {
        board->src[rank] = published_at(board, brought, rank, off);
    }
    board->src[board->me] = (const uint8_t *)op->in + off;
}

/* The fold of everybody's bytes [off, +bytes) to the output. No element lies in two cells. */
static void published_fold(struct hoop_board *board, const struct hoop_board_op *op, size_t brought,
                           size_t off, size_t bytes)
{
    size_t run = 0;
    for (size_t done = 0; done < bytes; done += run) {
        void *dst = (uint8_t *)op->out + done;
        run = published_run(brought, off + done, bytes - done);
        published_all_at(board, op, brought, off + done);
        hoop_fold(&op->reduction, &dst, 1, board->src, board->n, run / op->plan->type_bytes);
    }
}

/* Another rank's bytes [off, +bytes) to a place in the output. */
static void published_copy(const struct hoop_board *board, size_t brought, uint32_t rank,
                           size_t off, uint8_t *dst, size_t bytes)
{
    size_t run = 0;
    for (size_t done = 0; done < bytes; done += run) {
        run = published_run(brought, off + done, bytes - done);
        memcpy(dst + done, published_at(board, brought, rank, off + done), run);
    }
}

static size_t published_bytes(const struct hoop_plan *plan)
{
    const uint64_t bytes = plan->count * plan->type_bytes;
    return hoop_extent_blocks(hoop_row_of(plan)->in, plan->n, true) * bytes;
}

/* My own block, of which nobody needs to be heard: it is the last source, or none. */
static void published_keep(const struct hoop_board_op *op)
{
    const struct hoop_plan *plan = op->plan;
    const uint32_t sources = hoop_sources(plan);
    if (plan->count == 0 || sources == 0 || hoop_source(plan, sources - 1) != plan->me) {
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
    const size_t size = plan->type_bytes, block = plan->count * size;
    const size_t off = hoop_taken_off(plan) * size;
    const size_t brought = published_bytes(plan);
    if (!hoop_row_of(plan)->folds) {
        published_keep(op);
        return false;
    }
    if (hoop_out_count(plan, plan->me) == 0 || published_run(brought, off, block) != block) {
        return false;
    }
    published_all_at(board, op, brought, off);
    return true;
}

void hoop_published_take(struct hoop_board *board, const struct hoop_board_op *op)
{
    const struct hoop_plan *plan = op->plan;
    const struct hoop_collective_row *row = hoop_row_of(plan);
    const size_t size = plan->type_bytes, block = plan->count * size;
    const size_t off = hoop_taken_off(plan) * size; /* in everybody's input */
    const size_t brought = published_bytes(plan);
    if (hoop_out_count(plan, plan->me) == 0) {
        return;
    }
    if (row->folds) {
        published_fold(board, op, brought, off, block);
        return;
    }
    for (uint32_t i = 0; i < hoop_sources(plan); i++) {
        const uint32_t rank = hoop_source(plan, i);
        if (rank != plan->me) {
            uint8_t *dst = (uint8_t *)op->out + hoop_placed_off(plan, rank) * size;
            published_copy(board, brought, rank, off, dst, block);
        }
    }
}
