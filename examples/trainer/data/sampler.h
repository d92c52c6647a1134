/*
 * Which images a rank sees, in which order: PyTorch's DistributedSampler. All ranks shuffle alike,
 * by seed + epoch; rank r takes places r, r + n, r + 2n ... So that all have equally many, the
 * order begins again at its end, or with drop_last the tail is left out.
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

/* False: no memory. Finish in any case. The epoch is 0. */
bool sampler_init(struct sampler *sampler, int images, int ranks, int rank, bool shuffle,
                  bool drop_last, uint32_t seed);
/* For evaluation: in order, every image by one rank only; so ranks may differ by one. */
bool sampler_init_once(struct sampler *sampler, int images, int ranks, int rank);
void sampler_finish(struct sampler *sampler);

void sampler_set_epoch(struct sampler *sampler, int epoch);

#endif
