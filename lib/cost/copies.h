/*
 * How a rank copies to memory that others read next, as its communicator has learned.
 *
 * An ordinary store first fetches its line, which lies in the cache of whoever read it last.
 * Between two parts of a processor that share no cache that is 2 to 5 GB/s. A non-temporal one asks
 * for nothing and leaves the line in memory: 25 GB/s, wherever the two CPUs are; but where they
 * share a cache that is less than ordinary ones reach, and memory is further for who reads. What
 * CPUs share no system tells reliably, and ranks and virtual CPUs move: so it is measured, for each
 * collective and size. All ranks time the same calls, one in 256 rounds, and each chooses for
 * itself in between: it changes nothing but the time.
 */
#ifndef HOOP_COPIES_H
#define HOOP_COPIES_H

#include "base/collective.h"
#include <stdbool.h>
#include <stdint.h>

/* Doublings of the least that is copied so, where one rank writes the same memory for ever; and the
 * least else. */
#define HOOP_COPIES_SIZES 24u
#define HOOP_COPIES_LEAST_ROOTED 512u
#define HOOP_COPIES_LEAST 8192u

/* By ordinary stores, by non-temporal ones, or not at all: the receiver reads the sender's memory
 * (transfer/exchange.h). */
enum hoop_copy { HOOP_COPY_ORDINARY, HOOP_COPY_NONTEMPORAL, HOOP_COPY_READ, HOOP_COPY_COUNT };

struct hoop_copies_row {
    uint32_t calls;
    uint32_t ns[HOOP_COPY_COUNT]; /* of a call's own work; 0: not known */
};

/* All 0: nothing. */
struct hoop_copies {
    struct hoop_copies_row rows[HOOP_COLL_COUNT][HOOP_COPIES_SIZES];
};

/* The ways that HOOP_NONTEMPORAL leaves to copy to others: a bit each. */
uint32_t hoop_copies_may(void);

/* Of HOOP_COPIES_SIZES rows, that of so many bytes. */
uint32_t hoop_copies_size(uint64_t bytes);

/*
 * How is the next call to copy, of the ways that may be (a bit each, one at least), and is it to be
 * timed? around: after so many calls the same memory is written again. What a call takes depends on
 * how that was written before; so the last of so many is timed.
 */
enum hoop_copy hoop_copies_next(struct hoop_copies_row *row, uint32_t around, uint32_t may,
                                bool *ret_timed);

/* It was timed, and worked so long. */
void hoop_copies_add(struct hoop_copies_row *row, enum hoop_copy how, uint64_t ns);

#endif
