/*
 * Failures on stderr, in the dialect: a line from the function where it occurs, and one more for
 * each function that returns it.
 */
#ifndef PERF_FAILURE_H
#define PERF_FAILURE_H

#include "hoop.h"

/* text NULL: hoop's last error about comm, which may be NULL. Returns PERF_HOOP. */
int perf_failure_hoop(hoop_result_t result, hoop_comm_t comm, const char *text, const char *file,
                      int line);

/* A failure that is not of hoop; text is the whole message. Returns code. */
int perf_failure_other(int code, const char *text, const char *file, int line);

/* The line of a function that returns a failure of a callee. Returns code. */
int perf_failure_frame(int code, const char *file, int line);

/* Return from the calling function if a call of hoop, or of a function of the engine, failed. */
#define PERF_HOOP_TRY(call, comm)                                                                  \
    do {                                                                                           \
        hoop_result_t perf_result = (call);                                                        \
        if (perf_result != HOOP_OK) {                                                              \
            return perf_failure_hoop(perf_result, (comm), NULL, __FILE__, __LINE__);               \
        }                                                                                          \
    } while (0)

#define PERF_TRY(call)                                                                             \
    do {                                                                                           \
        int perf_code = (call);                                                                    \
        if (perf_code != 0) {                                                                      \
            return perf_failure_frame(perf_code, __FILE__, __LINE__);                              \
        }                                                                                          \
    } while (0)

#endif
