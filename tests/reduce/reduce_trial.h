/*
 * One fold in guarded memory, compared with reference.c.
 *
 * Vectors lie in fields. A field has inaccessible pages at both ends, so that a kernel that reads
 * past the end of a vector crashes, and is filled with a pattern, so that writes outside the vector
 * are noticed. All of it is static: one test at a time.
 */
#ifndef HOOP_TESTS_REDUCE_TRIAL_H
#define HOOP_TESTS_REDUCE_TRIAL_H

#include "reduce/reduce_cpu.h"

#define TRIAL_MAX_SRC 17
#define TRIAL_MAX_COUNT 4099

/* Which of the vectors that get the result are also sources. */
enum trial_pattern {
    TRIAL_APART,
    TRIAL_FIRST,
    TRIAL_LAST,
    TRIAL_ALL,
    TRIAL_MIXED, /* three, of which the middle one is a source */
    TRIAL_PATTERNS
};

struct trial {
    struct hoop_reduction reduction;
    enum hoop_isa isa;
    enum trial_pattern pattern;
    unsigned n_src;
    size_t count;
    unsigned round; /* determines the alignments */
    int together;   /* all vectors have the same alignment modulo 16 */
    /* Does the fold; NULL: hoop_fold_isa(). */
    void (*fold)(const struct trial *trial, void *const *dst, unsigned n_dst,
                 const void *const *src);
};

/* The contents of the sources, and the expected result: TRIAL_MAX_COUNT elements of any type. */
extern unsigned char *trial_originals[TRIAL_MAX_SRC];
extern unsigned char *trial_expected;

/* For a cmocka group. */
int trial_setup(void **state);
int trial_teardown(void **state);

/* Folds copies of the originals' first count elements. Fails the test unless the result is that of
 * trial_expected, and nothing else has changed. */
void trial_run(const struct trial *trial);

/* Computes trial_expected, and then does the same with every instruction set of this CPU. */
void trial_run_all(hoop_datatype_t type, hoop_red_op_t op, uint32_t divisor, unsigned n_src,
                   size_t count);

#endif
