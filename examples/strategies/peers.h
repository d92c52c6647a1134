/*
 * The ranks of a strategy, and how numbers go between them. Functions that return false have said
 * why in the problem. All are called by one thread.
 */
#ifndef STRATEGIES_PEERS_H
#define STRATEGIES_PEERS_H

#include <stddef.h>

#include "problem.h"

struct peers;

/* Those that a launcher describes in the environment; alone without one. */
struct peers *peers_open(struct problem *problem);
void peers_close(struct peers *peers);
int peers_rank(const struct peers *peers);
int peers_count(const struct peers *peers);

/* Memory for count floats that the ranks of a machine share, which is averaged fastest; NULL: the
 * problem. */
float *peers_memory(size_t count, struct problem *problem);
void peers_memory_free(float *memory);

/* Each value becomes the mean of all ranks' values. */
bool peers_average(struct peers *peers, float *values, size_t count, struct problem *problem);

bool peers_send(struct peers *peers, int to, const float *values, size_t count,
                struct problem *problem);
bool peers_receive(struct peers *peers, int from, float *values, size_t count,
                   struct problem *problem);

/*
 * Rank 0 as a server, which takes what comes first. All ranks open it; then the others ask, and the
 * server expects a message of each, takes one that has arrived, and answers it.
 */
bool peers_serve(struct peers *peers, struct problem *problem);
bool peers_ask(struct peers *peers, const float *question, float *ret_answer, size_t count,
               struct problem *problem);
/* The next message of this rank goes to values, which is borrowed until it has arrived. */
bool peers_expect(struct peers *peers, int from, float *values, size_t count,
                  struct problem *problem);
/* Waits for one of those that are expected; it is not expected any more. -1: the problem. */
int peers_arrived(struct peers *peers, struct problem *problem);
bool peers_answer(struct peers *peers, int to, const float *values, size_t count,
                  struct problem *problem);

#endif
