/*
 * How a rank copies to memory that others read next, as its communicator has learned.
 *
 * An ordinary store first fetches its line, which lies in the cache of whoever read it last.
 * Between two parts of a processor that share no cache that is 2 to 5 GB/s. A non-temporal one asks
 * for nothing and leaves the line in memory: 25 GB/s, wherever the two CPUs are; but where they
 * share a cache that is less than ordinary ones reach, and memory is further for who reads. What
 * CPUs share no system tells reliably, and ranks and virtual CPUs move: so it is measured, for each
 * collective and size. All ranks time the same calls, one in 64, and each chooses for itself in
 * between: it changes nothing but the time.
 */
#ifndef HOOP_COPIES_H
#define HOOP_COPIES_H

#include "base/collective.h"
#include <stdbool.h>
#include <stdint.h>

/* Doublings of 8 KiB, the least that is copied so. */
#define HOOP_COPIES_SIZES 12u
#define HOOP_COPIES_LEAST 8192u

struct hoop_copies_row {
    uint32_t calls;
    uint32_t ns[2]; /* of a call's own work: with ordinary stores, with non-temporal ones */
};

/* All 0: nothing. */
struct hoop_copies {
    struct hoop_copies_row rows[HOOP_COLL_COUNT][HOOP_COPIES_SIZES];
};

struct hoop_copies_row *hoop_copies_row(struct hoop_copies *copies, enum hoop_collective collective,
                                        uint64_t bytes);

/*
 * Is the next call to use non-temporal stores, and to be timed? around: after so many calls the
 * same memory is written again. What a call takes depends on how that was written before; so the
 * last of so many is timed.
 */
bool hoop_copies_next(struct hoop_copies_row *row, uint32_t around, bool *ret_timed);

/* It was timed, and worked so long. */
void hoop_copies_add(struct hoop_copies_row *row, bool past, uint64_t ns);

#endif
