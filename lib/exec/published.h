/*
 * Executes oneshot: the data travel with the announcement, in cells or areas, and the ranks that
 * need them take them from there. It does all of lib/algo/oneshot.c's steps in one go, because at
 * these sizes an operation is one exchange of cache lines.
 *
 *     post    what this rank contributes, then its tag
 *     seen    the tags of those whose data this rank needs: everybody, the root, or nobody
 *     take    folds, or copies, to the output
 *
 * A rank that did not need to see everybody owes the look: see hoop_board_settle().
 */
#ifndef HOOP_PUBLISHED_H
#define HOOP_PUBLISHED_H

#include "exec/board.h"
#include "exec/board_steps.h"

/*
 * Publishes `bytes` of `in` in the current operation. After the first `before` of them it skips
 * `own` bytes of `in`, which nobody else needs. Each rank publishes either nothing or `brought`
 * bytes, for which there must be room; at most HOOP_ONESHOT_MAX_BYTES.
 */
void hoop_published_post(struct hoop_board *board, const void *in, size_t brought, size_t bytes,
                         size_t before, size_t own);

/* The ranks [*ret_first, *ret_end) whose data this rank needs. */
void hoop_published_needs(const struct hoop_plan *plan, uint32_t *ret_first, uint32_t *ret_end);

/*
 * What can be done while the announcements are under way: copies this rank's own block. True: what
 * this rank takes from everybody is to be folded, and listed in board->src.
 */
bool hoop_published_prepare(struct hoop_board *board, const struct hoop_board_op *op);

/* Copies what this rank takes from others to its output, when all of it has been seen. */
void hoop_published_take(struct hoop_board *board, const struct hoop_board_op *op);

#endif
