/*
 * Which images a rank sees, and in which order: as PyTorch's DistributedSampler. All ranks shuffle
 * alike, seeded with seed + epoch; rank r of n takes places r, r + n, r + 2n ... So that all ranks
 * have equally many, the order is continued from its beginning, or with drop_last the tail is left
 * out.
 */
#ifndef TRAINER_SAMPLER_H
#define TRAINER_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct sampler {
    int images, ranks, rank;
    bool shuffle, drop_last;
    uint32_t seed;
    int *order; /* all images; owned */
    int *mine;  /* count of them; owned */
    int count;
};

/* Begins with epoch 0. False: no memory. Call finish in any case. */
bool sampler_init(struct sampler *sampler, int images, int ranks, int rank, bool shuffle,
                  bool drop_last, uint32_t seed);
/* For evaluation: in order, and every image by one rank only, so counts may differ by one. */
bool sampler_init_once(struct sampler *sampler, int images, int ranks, int rank);
void sampler_finish(struct sampler *sampler);

void sampler_set_epoch(struct sampler *sampler, int epoch);

#endif
