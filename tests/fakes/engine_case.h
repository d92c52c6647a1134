/*
 * One all_reduce over links as a test case: its plan and signature, a rank's buffers, and the
 * expected result.
 */
#ifndef HOOP_TESTS_ENGINE_CASE_H
#define HOOP_TESTS_ENGINE_CASE_H

#include "algo/step.h"
#include "reduce/reduce.h"
#include "transports/signature.h"

#define ENGINE_MAX_RANKS 9

struct engine_case {
    enum hoop_algo algo; /* one over links */
    hoop_datatype_t type;
    hoop_red_op_t op;
    uint32_t lanes;
    uint64_t count, chunk; /* elements */
    uint64_t seed;         /* of the data */
    uint32_t in_place;     /* a bit per rank */
    unsigned skew;         /* bytes modulo 64 of addresses; differs for each rank and buffer */
};

/* Draws a case. */
struct engine_case engine_case_random(uint64_t *random, uint32_t n);

struct hoop_plan engine_case_plan(const struct engine_case *c, uint32_t n, uint32_t me);

/* A bruck without elements is a barrier. */
struct hoop_signature engine_case_signature(const struct engine_case *c);

/* The size of the largest xfer. */
uint64_t engine_case_chunk_bytes(const struct engine_case *c, uint32_t n);

/* The documented result; inputs are by rank. A single rank copies. */
void engine_case_expect(const struct engine_case *c, uint32_t n, const void *const *inputs,
                        void *ret);

/* guard | skew | data | guard */
struct case_buffer {
    uint8_t *block, *data;
    size_t bytes;
};

/* One rank's buffers for one case. */
struct case_data {
    struct case_buffer out, apart; /* apart: its input, unless in place */
    void *in;                      /* in one of them */
    void *scratch;                 /* as large as promised, filled with garbage */
    void *pristine;                /* its contribution, aligned and unchanged */
};

void case_data_init(struct case_data *data, const struct engine_case *c, uint32_t n, uint32_t me);
/* Frees everything that links might access. */
void case_data_bury(struct case_data *data);
void case_data_finish(struct case_data *data);

/* What is wrong after the operation; NULL: nothing. */
const char *case_data_check(const struct case_data *data, const void *expected);

/* The next number below limit. */
uint64_t engine_random(uint64_t *random, uint64_t limit);

/* Zeroed memory. */
void *engine_alloc(size_t bytes);

#endif
