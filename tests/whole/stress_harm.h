/*
 * Harm that is done to one process of a stress job at a random moment. Whatever the consequences,
 * no result that is returned as good may be wrong, nothing may be written to a buffer that was
 * given back, and nothing may hang or crash.
 */
#ifndef HOOP_TESTS_STRESS_HARM_H
#define HOOP_TESTS_STRESS_HARM_H

#include "whole/stress_stream.h"
#include <pthread.h>

enum stress_harm {
    HARM_NONE,
    HARM_ABORT,  /* another thread aborts a comm */
    HARM_REVOKE, /* another thread revokes one */
    HARM_EXIT,   /* exit(0) while the other threads are inside */
    HARM_CANCEL, /* the thread of a stream is cancelled */
    HARM_FORK,   /* children do what finalizers do; the job goes on */
    HARM_CALLS,  /* system calls fail: EMFILE, ENOMEM */
    HARM_HANG,   /* it does not end; not one of those that are tried in turn */
    HARM_KINDS
};

/* From "abort" to HARM_ABORT, and so on. HARM_KINDS: there is no such name. */
enum stress_harm stress_harm_from(const char *name);
const char *stress_harm_name(enum stress_harm harm);
/* May operations of the job fail because of it? */
bool stress_harm_fails(enum stress_harm harm);

struct stress_harmer {
    enum stress_harm harm;
    uint64_t seed;
    double seconds; /* the harm is done within them */
    struct stress_stream *streams;
    pthread_t *threads; /* of the streams */
    int n_streams;
    pthread_t thread;
    bool started;
    _Atomic bool over;
    char wrong[200];
};

/* Starts the thread that does the harm. The caller sets the fields up to n_streams. */
void stress_harm_start(struct stress_harmer *harmer);
/* Waits for that thread. */
void stress_harm_join(struct stress_harmer *harmer);

#endif
