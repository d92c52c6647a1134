/*
 * The bound that a collective on one machine cannot beat once its buffers exceed the caches: how
 * fast memory can be read and written when all ranks do so at once. Takes about 0.2 s.
 */
#ifndef PERF_BOUND_H
#define PERF_BOUND_H

#include "perf/perf_ranks.h"

/*
 * Collective over all threads of all processes; overwrites the send and receive buffers. Leaves
 * zeros in *ret_bound when it is not wanted or not meaningful: --no-bound, sizes below
 * PERF_BOUND_FROM_BYTES, one rank.
 */
int perf_bound_measure(struct perf_thread *thread, struct perf_bound *ret_bound);

#endif
