/*
 * Gates: who may be in whose buffers, and how that ends.
 *
 * Before rank w reads or writes a slice of a buffer of rank v where v can see it, it takes
 * gate[w][v], a word in w's part of the board:
 *
 *   state     word           who changes it
 *   OPEN      0              -> WRITING by w, before it begins
 *   WRITING   2 | step << 2  -> OPEN by w, when it is through with the slice
 *   CLOSED    1              by v, when its operation fails; for ever
 *   LEFT      3              by w, when it is through and finds the gate closed; for ever
 *
 * v closes the gates of all others to it. A gate that it found WRITING, and that did not open in
 * time, is of a peer that is stuck in the slice: stopped, or starved. v puts fresh pages under what
 * it may write, so that its stores go to the old ones (hoop_region_fence). Where that cannot be,
 * because the writer is a thread of this very process or there are no pages, v waits for LEFT.
 *
 * By C11: the word's changes have one order, so w finds the gate closed or v finds it WRITING.
 * What w stored in a slice happens before what v does after it found OPEN or LEFT: w releases,
 * v acquires. Who reads without taking the gate looks at it behind an acquire fence: if it read
 * what v stored after it had closed the gate and released, it finds the gate closed. w's taking the
 * gate is a release, too: it has seen all announcements, so that v, who acquires WRITING, sees them
 * too and knows which slice the step is about.
 *
 * One thread at a time, the one that drives the comm.
 */
#ifndef HOOP_GATE_H
#define HOOP_GATE_H

#include "exec/board.h"

/* Takes the gate of rank `whom`, or those of all others (HOOP_EVERY), for step k. False: one is
 * closed; none is held then. */
bool hoop_gates_enter(const struct hoop_board *board, uint32_t whom, uint64_t k);

/* Gives them back. False: one of them was closed meanwhile; its buffer is its own again. */
bool hoop_gates_leave(const struct hoop_board *board, uint32_t whom, uint64_t k);

/* Has rank `whom` closed my gate? Then what was read of its memory before this call is no result.
 * For who only reads, and is not waited for. */
bool hoop_gate_is_closed(const struct hoop_board *board, uint32_t whom);

/*
 * Closes every peer's gate to my buffers: when it returns nobody will begin a slice. True: a peer
 * is stuck in one that it had begun; fence next. culprit: a rank known to be dead or stopped, to be
 * given no time to leave; or -1.
 */
bool hoop_gates_close(struct hoop_board *board, int culprit);

/*
 * After that: when it returns HOOP_OK no peer touches my buffers any more. out is mine, by the
 * steps of the plan that all follow; plan NULL: nothing is known. Fresh pages are put under it
 * where that helps, and else it waits. HOOP_TIMEOUT: a peer may still be there, see the sentence.
 */
hoop_result_t hoop_gates_fence(const struct hoop_board *board, const struct hoop_plan *plan,
                               hoop_step_fn *steps, void *out, uint64_t timeout_ms);

#endif
