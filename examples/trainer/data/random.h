/*
 * The Mersenne twister as PyTorch's CPU generator uses it: a seed gives the same first weights, and
 * the same order of images, as in PyTorch.
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

/* A number in [0, 1) with 24 bits, like torch.rand. */
float random_unit(struct random *random);

/* 0 to n - 1 in the order of torch.randperm; n < 2^28. */
void random_permutation(struct random *random, int *order, int n);

#endif
