/*
 * How a rank copies to memory that others read next, as its communicator has learned.
 *
 * An ordinary store first fetches its line from the cache of the CPU that read it last: between two
 * parts of a processor that share no cache at 2 to 5 GB/s. A non-temporal store fetches nothing and
 * leaves the line in memory: 25 GB/s, wherever the two CPUs are. But where they share a cache,
 * ordinary stores are faster than that, and the reader is further from memory. No system tells
 * reliably which CPUs share a cache, and ranks and virtual CPUs move: so it is measured, by
 * collective and size. In a collective all ranks time the same calls, each way in one of 256
 * rounds. In between each rank chooses for itself, since the choice changes nothing but the time.
 *
 * A rank that sends times alone. The slower a way is the more seldom it is tried, down to one in
 * 512 rounds, so that all such tries cost a fiftieth of the time.
 */
#ifndef HOOP_COPIES_H
#define HOOP_COPIES_H

#include "base/collective.h"
#include <stdbool.h>
#include <stdint.h>

/* Number of sizes, each twice the one before. The smallest copies for which the choice is made,
 * where one rank always writes the same memory (a collective with a root; there with CPUs on which
 * ordinary stores need not fetch, see runtime/copy.h), and elsewhere. */
#define HOOP_COPIES_SIZES 24u
#define HOOP_COPIES_LEAST_ROOTED 512u
#define HOOP_COPIES_LEAST_STRING 65536u
#define HOOP_COPIES_LEAST 8192u

/* By ordinary stores, by non-temporal ones, or not at all: the receiver reads the sender's memory
 * (transfer/exchange.h). */
enum hoop_copy { HOOP_COPY_ORDINARY, HOOP_COPY_NONTEMPORAL, HOOP_COPY_READ, HOOP_COPY_COUNT };

struct hoop_copies_row {
    uint64_t calls;
    uint64_t end;                    /* the round in which a way is tried, now or last, ends here */
    uint64_t look;                   /* from here on a way may be due */
    uint64_t tried[HOOP_COPY_COUNT]; /* where the latest one of each way ends; 0: none yet */
    uint32_t ns[HOOP_COPY_COUNT];    /* of this rank's own work in one call; 0: not known */
    uint32_t warm; /* set by the caller: 0, or the rank times alone, after so many calls at least */
    enum hoop_copy how; /* is, or was, tried */
    bool tries;         /* the latest call was of a round in which a way is tried */
};

/* Zeroed: nothing is known. */
struct hoop_copies {
    struct hoop_copies_row rows[HOOP_COLL_COUNT][HOOP_COPIES_SIZES];
};

/* The kinds of stores that HOOP_NONTEMPORAL allows for copies to others: a bit each. */
uint32_t hoop_copies_may(void);

/* The row, of HOOP_COPIES_SIZES, for this size. */
uint32_t hoop_copies_size(uint64_t bytes);

/*
 * How does the next call copy, of the ways in `may` (a bit each, at least one), and is it to be
 * timed? around: the number of calls after which the same memory is written again. The time of a
 * call depends on how that memory was written before, so the last of `around` calls in the same way
 * is timed.
 */
enum hoop_copy hoop_copies_next(struct hoop_copies_row *row, uint32_t around, uint32_t may,
                                bool *ret_timed);

/* Adds the time that a timed call has worked. */
void hoop_copies_add(struct hoop_copies_row *row, enum hoop_copy how, uint64_t ns);

#endif
