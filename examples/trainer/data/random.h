/*
 * The Mersenne twister, as PyTorch's generator for the CPU uses it: the same seed gives the same
 * first weights and the same order of images as there.
 */
#ifndef TRAINER_RANDOM_H
#define TRAINER_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct random {
    uint32_t state[624];
    int next;
};

void random_seed(struct random *random, uint32_t seed);
uint32_t random_u32(struct random *random);

/* In [0, 1), with 24 bits, as torch.rand. */
float random_unit(struct random *random);

/* 0 to n - 1 in an order that is torch.randperm's; n < 2^28. */
void random_permutation(struct random *random, int *order, int n);

#endif
