/*
 * Births: how a thread makes comms, one or many at once, waiting for them or not.
 *
 *      join    the ranks meet at a rendezvous that was told to them
 *      split   the members of a comm tell each other color and key over it, and meet at a
 *              rendezvous made of its secret (split.c)
 *      shrink  those who are left of a comm agree on who that is, and meet at a rendezvous that
 *              follows from it (shrink.c)
 *
 * Several births go side by side, step by step, so that one thread may hold several ranks of a
 * comm. All succeed, or none. Those that are not waited for, because no config of theirs says
 * blocking, go on in a thread that lives as long as they need it: until then the new comms, and
 * those that they are made of, are pending and take no other call but for their end.
 */
#ifndef HOOP_BIRTH_H
#define HOOP_BIRTH_H

#include "birth/join.h"

/* A join, begun: where to meet is not looked at any more. The birth is to be run or dropped. */
hoop_result_t hoop_birth_join(const struct hoop_comm_options *options, hoop_comm_t *ret,
                              struct hoop_birth *birth);
/* A split. */
hoop_result_t hoop_birth_split(struct hoop_comm *parent, int color, int key,
                               const struct hoop_comm_options *options, hoop_comm_t *ret,
                               struct hoop_birth *birth);
/* A growth to n ranks; id NULL: another member has it. */
hoop_result_t hoop_birth_grow(struct hoop_comm *parent, uint32_t n, const hoop_unique_id_t *id,
                              const struct hoop_comm_options *options, hoop_comm_t *ret,
                              struct hoop_birth *birth);
/* A shrink without these, and, with abort, without those that are lost. */
hoop_result_t hoop_birth_shrink(struct hoop_comm *parent, const int *exclude, size_t count,
                                bool abort, const struct hoop_comm_options *options,
                                hoop_comm_t *ret, struct hoop_birth *birth);
void hoop_birth_drop(struct hoop_birth *birth);

/*
 * Runs births, which are moved: the variables get the comms, or a failure leaves none.
 * HOOP_IN_PROGRESS: in the background; the variables have them already.
 */
hoop_result_t hoop_births_run(struct hoop_birth *births, size_t count);

/* hoop_comm_finalize(), in the background: HOOP_IN_PROGRESS. */
hoop_result_t hoop_birth_finalize(struct hoop_comm *comm);

#endif
