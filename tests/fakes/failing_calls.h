/*
 * Calls of the C library that fail when told. Only those in code that is linked statically: the
 * linker gets a --wrap for each name of FAILING_CALLS (tests/meson.build), and finds the functions
 * here in their place.
 */
#ifndef HOOP_TESTS_FAILING_CALLS_H
#define HOOP_TESTS_FAILING_CALLS_H

#include <stdbool.h>

/* Which calls fail. */
struct failing {
    char call[24];       /* its name for the linker: open64 */
    int error;           /* errno; 0: it moves one byte instead of many */
    unsigned from, most; /* the first to fail, from 1 on, and how many */
};

/* Begins to count the calls anew. */
void failing_start(const struct failing *failing);

/* No call fails from now on. Returns how many there have been. Before *ret_where comes the code
 * that made the first call to fail; NULL: none has failed. */
unsigned failing_stop(const void **ret_where);

#endif
