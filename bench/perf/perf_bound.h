/*
 * An upper bound for a collective on one machine whose buffers exceed the caches: how fast memory
 * can be read and written if all ranks do so at once. The measurement takes about 0.2 s.
 */
#ifndef PERF_BOUND_H
#define PERF_BOUND_H

#include "perf/perf_ranks.h"

/*
 * Called by all threads of all processes; overwrites the send and receive buffers. *ret_bound is
 * all zero if the bound is not wanted or means nothing: --no-bound, sizes below
 * PERF_BOUND_FROM_BYTES, one rank.
 */
int perf_bound_measure(struct perf_thread *thread, struct perf_bound *ret_bound);

#endif
