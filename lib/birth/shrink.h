/*
 * Shrinking a comm: the survivors agree on who they are (survivors/survivors.h), and join at the
 * rendezvous that follows from it. With HOOP_SHRINK_ABORT, a loss in between starts another round:
 *
 *      ask     begins to agree
 *      hear    learns who is left and where to join, and begins to join
 *      join    completes; if it failed because another rank was lost: ask again
 *
 * If rounds keep ending with the same ranks nobody has died, so the shrink fails on all ranks with
 * the reason of the last failed join.
 */
#ifndef HOOP_SHRINK_H
#define HOOP_SHRINK_H

#include "birth/join.h"

/* Begins a shrink without exclude[count], ranks of the parent. HOOP_INVALID_ARGUMENT: one is
 * invalid, or the caller's own. */
hoop_result_t hoop_shrink_create(struct hoop_birth *birth, const int *exclude, size_t count,
                                 bool abort);
/* The steps. Each runs for all shrinks that go on side by side before the next. */
hoop_result_t hoop_shrink_ask(struct hoop_birth *birth);
hoop_result_t hoop_shrink_hear(struct hoop_birth *birth);
hoop_result_t hoop_shrink_join(struct hoop_birth *birth);
bool hoop_shrink_is_through(const struct hoop_birth *birth);
/* Does nothing if birth->shrink is NULL. */
void hoop_shrink_finish(struct hoop_birth *birth);

#endif
