/*
 * One fold in a guarded place, compared with reference.c.
 *
 * Vectors lie in fields: memory with inaccessible pages at both ends, so that a kernel that looks
 * past the end of a vector crashes, and filled with a pattern, so that one that writes there
 * shows. All is static: one test at a time.
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
    TRIAL_MIXED, /* three, the middle one a source */
    TRIAL_PATTERNS
};

struct trial {
    struct hoop_reduction reduction;
    enum hoop_isa isa;
    enum trial_pattern pattern;
    unsigned n_src;
    size_t count;
    unsigned round; /* chooses the alignments */
    int together;   /* all vectors have the same one, modulo 16 */
    /* What folds; NULL: hoop_fold_isa(). */
    void (*fold)(const struct trial *trial, void *const *dst, unsigned n_dst,
                 const void *const *src);
};

/* What the sources hold, and what the result must be: TRIAL_MAX_COUNT elements of any type. */
extern unsigned char *trial_originals[TRIAL_MAX_SRC];
extern unsigned char *trial_expected;

/* For a cmocka group. */
int trial_setup(void **state);
int trial_teardown(void **state);

/* Folds copies of the first count elements of the originals; fails the test unless the result is
 * that of trial_expected and nothing else changed. */
void trial_run(const struct trial *trial);

/* The same with every instruction set of this CPU, after computing trial_expected. */
void trial_run_all(hoop_datatype_t type, hoop_red_op_t op, uint32_t divisor, unsigned n_src,
                   size_t count);

#endif
