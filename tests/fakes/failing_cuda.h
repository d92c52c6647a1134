/*
 * Calls of the CUDA driver that fail when told, whatever driver there is: functions that stand
 * before it in hoop's table of them (lib/memory/cuda.h). Every thread's calls count.
 */
#ifndef HOOP_TESTS_FAILING_CUDA_H
#define HOOP_TESTS_FAILING_CUDA_H

#include "memory/cuda.h"

/* Begins to count the calls anew, of a field of that table: "stream_write_value". The from-th, from
 * 1 on, and `most` in all fail with `error`. The driver must be loaded. */
void failing_cuda_start(const char *call, unsigned from, unsigned most, int error);

/* No call fails from now on. Returns how many there have been. */
unsigned failing_cuda_stop(void);

/* The i-th call that can fail; NULL: there are no more. */
const char *failing_cuda_name(size_t i);

#endif
