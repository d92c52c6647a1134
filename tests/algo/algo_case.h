/*
 * Cases for the interpreter, drawn from one seeded sequence. With HOOP_TEST_SAMPLE=k in the
 * environment only every k-th is run, so that slow builds get by with a part of them.
 */
#ifndef HOOP_TESTS_ALGO_CASE_H
#define HOOP_TESTS_ALGO_CASE_H

#include "fakes/interpreter.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))
#define FEW_RANKS 8u
#define MANY_RANKS HOOP_INTERPRETER_MAX_RANKS

/* Where the sequence begins: 1 if nobody says else. */
extern uint64_t seed;

uint64_t draw(uint64_t below);

/* Fails the test with all that is needed to run the case again. run_case(): as many sets as the
 * board has. */
void run_case(const struct hoop_interpreter_op *ops, uint32_t op_count, uint32_t slots);
void run_case_in(const struct hoop_interpreter_op *ops, uint32_t op_count, uint32_t slots,
                 uint32_t sets);

/* Can so many be spread over machines as the algorithm wants it? By chance, then; NULL: they
 * cannot, or it does not mind. The last 128 stay. */
bool spreads(enum hoop_algo algo, uint32_t n);
const struct hoop_grid *draw_grid(enum hoop_algo algo, uint32_t n);

#endif
