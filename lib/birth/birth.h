/*
 * Births: how a thread makes comms, one or several at once, blocking or in the background.
 *
 *      join    the ranks meet at a rendezvous that they were told
 *      split   the members of a comm exchange color and key over it, and meet at a rendezvous that
 *              derives from its secret (split.c)
 *      shrink  the survivors of a comm agree on who they are, and meet at a rendezvous that follows
 *              from that (shrink.c)
 *
 * Several births proceed step by step side by side, so that one thread may hold several ranks of a
 * comm. All succeed, or none. If no config says blocking they run in a thread that lives as long as
 * they take. Until then the new comms, and those that they are made from, are pending and refuse
 * all calls except those that end them.
 */
#ifndef HOOP_BIRTH_H
#define HOOP_BIRTH_H

#include "birth/join.h"

/* Begins a join; options->join.rendezvous is not used afterwards. Run or drop the birth. */
hoop_result_t hoop_birth_join(const struct hoop_comm_options *options, hoop_comm_t *ret,
                              struct hoop_birth *birth);
/* Begins a split. */
hoop_result_t hoop_birth_split(struct hoop_comm *parent, int color, int key,
                               const struct hoop_comm_options *options, hoop_comm_t *ret,
                               struct hoop_birth *birth);
/* Begins a growth to n ranks. id is NULL unless this member has the invitation. */
hoop_result_t hoop_birth_grow(struct hoop_comm *parent, uint32_t n, const hoop_unique_id_t *id,
                              const struct hoop_comm_options *options, hoop_comm_t *ret,
                              struct hoop_birth *birth);
/* Begins a shrink without the excluded ranks and, if abort is true, without lost ones. */
hoop_result_t hoop_birth_shrink(struct hoop_comm *parent, const int *exclude, size_t count,
                                bool abort, const struct hoop_comm_options *options,
                                hoop_comm_t *ret, struct hoop_birth *birth);
void hoop_birth_drop(struct hoop_birth *birth);

/*
 * Runs births, and takes ownership: either all variables get their comms, or none does.
 * HOOP_IN_PROGRESS: in the background; the variables already have the pending comms.
 */
hoop_result_t hoop_births_run(struct hoop_birth *births, size_t count);

/* hoop_comm_finalize() in the background: returns HOOP_IN_PROGRESS. */
hoop_result_t hoop_birth_finalize(struct hoop_comm *comm);

#endif
