/* Surroundings that a process may find itself in, and that are not those of a developer. */
#ifndef HOOP_TESTS_SURROUNDINGS_H
#define HOOP_TESTS_SURROUNDINGS_H

#include <stdbool.h>

struct surrounding {
    const char *name;
    const char *(*enter)(void); /* NULL: this process is in it; else why it can't be */
    bool may_refuse;            /* hoop may fail there, with a sentence */
};

/* Ends with a NULL name. */
extern const struct surrounding surroundings[];

#endif
