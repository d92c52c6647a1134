/*
 * Oneshot carried out: the data travel with the announcement, in the cells or in the areas,
 * and whoever needs them takes them from there. What lib/algo/oneshot.c says in steps, done at
 * once: at these sizes an operation is one exchange of cache lines.
 *
 *     post    what this rank brings, then its tag
 *     seen    the tags of those whose data this rank needs: everybody, the root, or nobody
 *     take    folds, or copies, to the output
 *
 * Whoever did not need to see everybody owes it: see hoop_board_settle().
 */
#ifndef HOOP_PUBLISHED_H
#define HOOP_PUBLISHED_H

#include "exec/board.h"
#include "exec/board_steps.h"

/*
 * Publishes `bytes` of in for the operation that has begun: behind the first `before` of them it
 * leaves out `own`, which nobody else needs. Each rank brings nothing, or `brought`, for which
 * there is room; at most HOOP_ONESHOT_MAX_BYTES.
 */
void hoop_published_post(struct hoop_board *board, const void *in, size_t brought, size_t bytes,
                         size_t before, size_t own);

/* The ranks [*ret_first, *ret_end) whose data this rank needs. */
void hoop_published_needs(const struct hoop_plan *plan, uint32_t *ret_first, uint32_t *ret_end);

/*
 * While that is on its way; copies what is this rank's own. True: what this rank takes of everybody
 * lies in one piece, board->src says where, and all that is left to do is to fold it.
 */
bool hoop_published_prepare(struct hoop_board *board, const struct hoop_board_op *op);

/* Makes the rest of this rank's output of what it needs, all of which was seen. */
void hoop_published_take(struct hoop_board *board, const struct hoop_board_op *op);

#endif
