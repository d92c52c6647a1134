/*
 * The ranks of a strategy, and how they exchange numbers. A function that returns false has said
 * why in the problem. One thread calls all functions.
 */
#ifndef STRATEGIES_PEERS_H
#define STRATEGIES_PEERS_H

#include <stddef.h>

#include "problem.h"

struct peers;

/* Joins the ranks that a launcher describes in the environment; without a launcher: one rank. */
struct peers *peers_open(struct problem *problem);
void peers_close(struct peers *peers);
int peers_rank(const struct peers *peers);
int peers_count(const struct peers *peers);

/* Memory for count floats that the ranks of a machine map, so that it is averaged fastest; NULL:
 * the problem. */
float *peers_memory(size_t count, struct problem *problem);
void peers_memory_free(float *memory);

/* Each value becomes the mean of all ranks' values. */
bool peers_average(struct peers *peers, float *values, size_t count, struct problem *problem);

bool peers_send(struct peers *peers, int to, const float *values, size_t count,
                struct problem *problem);
bool peers_receive(struct peers *peers, int from, float *values, size_t count,
                   struct problem *problem);

/*
 * Rank 0 as a server that takes messages in the order of arrival. All ranks call peers_serve().
 * Then the others call peers_ask(), and the server expects a message from each, takes one that has
 * arrived, and answers it.
 */
bool peers_serve(struct peers *peers, struct problem *problem);
bool peers_ask(struct peers *peers, const float *question, float *ret_answer, size_t count,
               struct problem *problem);
/* Receives the next message of rank `from` into values, borrowed until it has arrived. */
bool peers_expect(struct peers *peers, int from, float *values, size_t count,
                  struct problem *problem);
/* Waits for one of the expected messages. Returns its rank; -1: the problem. */
int peers_arrived(struct peers *peers, struct problem *problem);
bool peers_answer(struct peers *peers, int to, const float *values, size_t count,
                  struct problem *problem);

#endif
