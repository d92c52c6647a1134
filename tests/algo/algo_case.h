/*
 * Cases for the interpreter, drawn from one seeded sequence. With HOOP_TEST_SAMPLE=k in the
 * environment only every k-th case is run, for slow builds.
 */
#ifndef HOOP_TESTS_ALGO_CASE_H
#define HOOP_TESTS_ALGO_CASE_H

#include "fakes/interpreter.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))
#define FEW_RANKS 8u
#define MANY_RANKS HOOP_INTERPRETER_MAX_RANKS

/* The seed of the sequence; 1 by default. */
extern uint64_t seed;

uint64_t draw(uint64_t below);

/* Fails the test with all that is needed to run the case again. run_case(): with as many sets as
 * the board has. */
void run_case(const struct hoop_interpreter_op *ops, uint32_t op_count, uint32_t slots);
void run_case_in(const struct hoop_interpreter_op *ops, uint32_t op_count, uint32_t slots,
                 uint32_t sets);

/* Can n ranks be spread over machines as the algorithm needs? draw_grid() does so at random; NULL:
 * they can't, or the algorithm needs no machines. Only the last 128 grids stay valid. */
bool spreads(enum hoop_algo algo, uint32_t n);
const struct hoop_grid *draw_grid(enum hoop_algo algo, uint32_t n);

#endif
