/*
 * What is told to the user when something is wrong: one sentence, with the name and the value. Who
 * first knows it writes it, everybody above passes it on.
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
