/*
 * The error message for the user: one sentence, with the name and the value that are wrong. The
 * function that finds the error writes it; its callers pass it on.
 */
#ifndef TRAINER_PROBLEM_H
#define TRAINER_PROBLEM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

struct problem {
    char text[512];
};

/* Always false, so that a function can say what is wrong and return it. */
__attribute__((format(printf, 2, 3))) static inline bool problem_say(struct problem *problem,
                                                                     const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(problem->text, sizeof(problem->text), format, args);
    va_end(args);
    return false;
}

#endif
