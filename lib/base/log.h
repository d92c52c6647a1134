/*
 * The log: one line per event, with a level and a subsystem, to stderr, to HOOP_DEBUG_FILE or to
 * the program's callback. Library code prints by no other means. A failure is logged once, by the
 * code that reports it to the user.
 *
 * Thread-safe. Not for use between the first and the last chunk of an operation.
 */
#ifndef HOOP_BASE_LOG_H
#define HOOP_BASE_LOG_H

#include "base/error.h"
#include <stdbool.h>

/* X(enumerator, name in HOOP_DEBUG_SUBSYS) */
#define HOOP_LOG_SUBSYSTEMS(X)                                                                     \
    X(HOOP_LOG_INIT, "init")                                                                       \
    X(HOOP_LOG_COMM, "comm")                                                                       \
    X(HOOP_LOG_NET, "net")                                                                         \
    X(HOOP_LOG_MEM, "mem")                                                                         \
    X(HOOP_LOG_PLAN, "plan")                                                                       \
    X(HOOP_LOG_ENV, "env")

enum hoop_log_subsystem {
#define HOOP_LOG_ENUM(name, text) name,
    HOOP_LOG_SUBSYSTEMS(HOOP_LOG_ENUM)
#undef HOOP_LOG_ENUM
        HOOP_LOG_SUBSYSTEM_COUNT
};

bool hoop_log_enabled(hoop_log_level_t level, enum hoop_log_subsystem subsystem);
void hoop_log(hoop_log_level_t level, enum hoop_log_subsystem subsystem, const char *format, ...)
    HOOP_PRINTF(3, 4);

/* Logs what was wrong in the settings, once. The first line of the log does so, too. */
void hoop_log_settings(void);

/* See hoop_set_log_callback(). */
void hoop_log_set_callback(hoop_log_fn_t fn, void *arg);

#endif
