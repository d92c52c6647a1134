/*
 * Shrinking a comm: those that are left agree on who that is (survivors/survivors.h), and join at
 * the place that follows from it. If the comm may have failed, a loss meanwhile begins that anew:
 *
 *      ask     begins to agree
 *      hear    who is left, and where to join; begins that
 *      join    all are in; or not, and if another rank was lost: ask
 *
 * A round whose ranks are those of the one before is the end: nobody died, so the reason why that
 * join failed is the result, on all of them.
 */
#ifndef HOOP_SHRINK_H
#define HOOP_SHRINK_H

#include "birth/join.h"

/* Begins one; exclude: [count] ranks of the parent. HOOP_INVALID_ARGUMENT: one is none, or is me.
 */
hoop_result_t hoop_shrink_create(struct hoop_birth *birth, const int *exclude, size_t count,
                                 bool abort);
/* Its steps, each of all that go side by side before the next; those that are through do nothing.
 */
hoop_result_t hoop_shrink_ask(struct hoop_birth *birth);
hoop_result_t hoop_shrink_hear(struct hoop_birth *birth);
hoop_result_t hoop_shrink_join(struct hoop_birth *birth);
bool hoop_shrink_is_through(const struct hoop_birth *birth);
/* NULL shrink is allowed. */
void hoop_shrink_finish(struct hoop_birth *birth);

#endif
