/*
 * Gates: who may access whose buffers, and how that access ends.
 *
 * Before rank w reads or writes a slice of a buffer of rank v in memory that v sees, w takes
 * gate[w][v], a word in w's part of the board:
 *
 *   state     word           who changes it
 *   OPEN      0              -> WRITING by w, before it begins
 *   WRITING   2 | step << 2  -> OPEN by w, when it has finished the slice
 *   CLOSED    1              by v, when its operation fails; final
 *   LEFT      3              by w, when it has finished the slice and finds the gate closed; final
 *
 * v closes the gates of all others to it. If it finds a gate WRITING that does not open in time,
 * that peer is stuck in the slice: stopped, or starved of CPU. v puts fresh pages under what the
 * peer may write, so that its stores go to the old ones (hoop_region_fence). If that is impossible,
 * because the writer is a thread of v's own process or there are no pages, v waits for LEFT.
 *
 * Memory order, by C11: all changes of the word have a single order, so w finds the gate closed or
 * v finds it WRITING. What w stored in a slice happens before what v does after it finds OPEN or
 * LEFT: w releases, v acquires. A reader that does not take the gate looks at it after an acquire
 * fence: if it read something that v stored after v had closed the gate and released, it finds the
 * gate closed. Taking the gate is also a release by w, which has seen all announcements: so v,
 * which acquires WRITING, sees them too, and knows which slice the step is about.
 *
 * Used by one thread at a time, the one that drives the comm.
 */
#ifndef HOOP_GATE_H
#define HOOP_GATE_H

#include "exec/board.h"

/* Takes the gate to rank `whom`, or to all others (HOOP_EVERY), for step k. False: a gate is
 * closed, and none is held. */
bool hoop_gates_enter(const struct hoop_board *board, uint32_t whom, uint64_t k);

/* Returns them. False: one was closed meanwhile, and that rank may be using its buffer again. */
bool hoop_gates_leave(const struct hoop_board *board, uint32_t whom, uint64_t k);

/* Has rank `whom` closed its gate to this rank? Then what was read from its memory before this call
 * is invalid. For readers that do not take the gate, and so are not waited for. */
bool hoop_gate_is_closed(const struct hoop_board *board, uint32_t whom);

/*
 * Closes the gates of all peers to this rank's buffers: after that no peer begins a slice. True: a
 * peer is stuck in a slice that it had begun, so call hoop_gates_fence(). culprit: a rank that is
 * known to be dead or stopped, which gets no time to leave; or -1.
 */
bool hoop_gates_close(struct hoop_board *board, int culprit);

/*
 * After that; when it returns HOOP_OK, no peer accesses this rank's buffers any more. out: this
 * rank's, written by the steps of the plan that all ranks follow; plan NULL: the steps are unknown.
 * Puts fresh pages under out where that helps, and waits otherwise. HOOP_TIMEOUT: a peer may still
 * be in the buffers; the thread's error names it.
 */
hoop_result_t hoop_gates_fence(const struct hoop_board *board, const struct hoop_plan *plan,
                               hoop_step_fn *steps, void *out, uint64_t timeout_ms);

#endif
