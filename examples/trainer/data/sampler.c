#include "data/sampler.h"

#include <stdlib.h>

#include "data/random.h"

static bool sampler_allocate(struct sampler *sampler)
{
    sampler->order = malloc((size_t)sampler->images * sizeof(int));
    sampler->mine = malloc((size_t)(sampler->images / sampler->ranks + 1) * sizeof(int));
    return sampler->order != NULL && sampler->mine != NULL;
}

bool sampler_init(struct sampler *sampler, int images, int ranks, int rank, bool shuffle,
                  bool drop_last, uint32_t seed)
{
    const int padding = drop_last ? 0 : ranks - 1;
    *sampler = (struct sampler){.images = images,
                                .ranks = ranks,
                                .rank = rank,
                                .shuffle = shuffle,
                                .drop_last = drop_last,
                                .seed = seed,
                                .count = (images + padding) / ranks};
    if (!sampler_allocate(sampler)) {
        return false;
    }
    sampler_set_epoch(sampler, 0);
    return true;
}

bool sampler_init_once(struct sampler *sampler, int images, int ranks, int rank)
{
    const bool good = sampler_init(sampler, images, ranks, rank, false, true, 0);
    if (good && rank < images % ranks) {
        sampler->mine[sampler->count] = sampler->count * ranks + rank;
        sampler->count++;
    }
    return good;
}

void sampler_finish(struct sampler *sampler)
{
    free(sampler->order);
    free(sampler->mine);
    *sampler = (struct sampler){0};
}

void sampler_set_epoch(struct sampler *sampler, int epoch)
{
    struct random random;
    random_seed(&random, sampler->seed + (uint32_t)epoch);
    if (sampler->shuffle) {
        random_permutation(&random, sampler->order, sampler->images);
    }
    for (int i = 0; i < sampler->count; i++) {
        const int place = (i * sampler->ranks + sampler->rank) % sampler->images;
        sampler->mine[i] = sampler->shuffle ? sampler->order[place] : place;
    }
}
