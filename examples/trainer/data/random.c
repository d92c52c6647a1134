#include "data/random.h"

#define SIZE 624
#define SHIFT 397

void random_seed(struct random *random, uint32_t seed)
{
    random->state[0] = seed;
    for (uint32_t i = 1; i < SIZE; i++) {
        const uint32_t before = random->state[i - 1];
        random->state[i] = 1812433253U * (before ^ (before >> 30)) + i;
    }
    random->next = SIZE;
}

static void random_renew(struct random *random)
{
    uint32_t *state = random->state;
    for (int i = 0; i < SIZE; i++) {
        const uint32_t mixed = (state[i] & 0x80000000U) | (state[(i + 1) % SIZE] & 0x7fffffffU);
        state[i] = state[(i + SHIFT) % SIZE] ^ (mixed >> 1) ^ ((mixed & 1) != 0 ? 0x9908b0dfU : 0);
    }
    random->next = 0;
}

uint32_t random_u32(struct random *random)
{
    if (random->next == SIZE) {
        random_renew(random);
    }
    uint32_t y = random->state[random->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
}

float random_unit(struct random *random)
{
    return (float)(random_u32(random) & 0xffffffU) / (float)0x1000000;
}

void random_permutation(struct random *random, int *order, int n)
{
    for (int i = 0; i < n; i++) {
        order[i] = i;
    }
    for (int i = 0; i < n - 1; i++) {
        const int other = i + (int)(random_u32(random) % (uint32_t)(n - i));
        const int kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}
