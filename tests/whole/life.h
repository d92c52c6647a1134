/*
 * The life of a rank: it joins a job of LIFE_RANKS processes, works in all ways, checks every
 * result, and ends, also after a failure.
 */
#ifndef HOOP_TESTS_LIFE_H
#define HOOP_TESTS_LIFE_H

#include "hoop.h"

#include <stdbool.h>
#include <stdint.h>

#define LIFE_RANKS 3
#define LIFE_COUNT ((size_t)60001) /* elements of the longest vector */
#define LIFE_JOIN_MS 1000
#define LIFE_OPERATION_MS 6000

struct life {
    int rank;
    int32_t *plain; /* room for 2 * LIFE_COUNT */
    int step;       /* one more than what failed */
    char text[400]; /* the sentence of what failed */
    bool wrong;     /* a result was wrong */
    hoop_comm_t comm, child;
    hoop_stream_t stream;
    int32_t *shared;
};

/* Is this a step in the child, of which the comm itself knows nothing? */
bool life_in_child(int step);

/* One life. id: by which the ranks join; NULL: as the launcher says. Returns the first failure. */
hoop_result_t life_live(struct life *life, const hoop_unique_id_t *id);

#endif
