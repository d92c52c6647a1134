/* How fast the reductions are: test_reduce --bench. */
#ifndef HOOP_TESTS_REDUCE_BENCH_H
#define HOOP_TESTS_REDUCE_BENCH_H

/* Prints a table. Returns an exit status. */
int reduce_bench(void);

#endif
