/*
 * Failures on stderr, in the dialect: one line by the function that met it, one more for each
 * function that it passes on the way up.
 */
#ifndef PERF_FAILURE_H
#define PERF_FAILURE_H

#include "hoop.h"

/* text NULL: hoop's last error about comm, which may be NULL. Returns PERF_HOOP. */
int perf_failure_hoop(hoop_result_t result, hoop_comm_t comm, const char *text, const char *file,
                      int line);

/* A failure that is not hoop's; text says all. Returns code. */
int perf_failure_other(int code, const char *text, const char *file, int line);

/* A failure on its way up. Returns code. */
int perf_failure_frame(int code, const char *file, int line);

/* Returns from the calling function when a call of hoop, or a function of ours, failed. */
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
