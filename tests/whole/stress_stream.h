/*
 * One stream of operations of one rank: its comms, two queues (host streams of hoop) on which some
 * calls are put, as each rank likes, and the steps of the program until the time is
 * over, which rank 0 of the world says in a sum now and then. One thread.
 */
#ifndef HOOP_TESTS_STRESS_STREAM_H
#define HOOP_TESTS_STRESS_STREAM_H

#include "whole/stress_call.h"
#include <pthread.h>
#include <stdatomic.h>

#define STRESS_MOST_STREAMS 4
#define STRESS_QUEUES 2
#define STRESS_MOST_PENDING 8

/* In memory that all processes share: the k-th birth of a comm is known by the k-th id. */
struct stress_births {
    struct stress_birth {
        _Atomic uint64_t generation;
        hoop_unique_id_t id;
    } births[STRESS_MOST_STREAMS][STRESS_COMMS][2];
};

struct stress_totals {
    uint64_t programs, results, bytes, groups, queued, barriers, births, splits, shrinks, churned;
    uint64_t failures;
};

struct stress_stream {
    const struct stress_program *program;
    struct stress_births *births;
    int rank, stream;
    uint64_t until_ns;
    uint64_t programs; /* 0: until that time; else: so many */
    bool lenient; /* something bad is done to the job: a failure ends the stream, and is none */
    struct stress_totals totals;
    char wrong[500]; /* what must not be; empty: nothing */

    uint64_t step;
    pthread_mutex_t lock; /* held while a handle comes or goes */
    struct stress_comm {
        hoop_comm_t comm;
        int n, rank;
        uint64_t generation;
    } comms[STRESS_COMMS];
    hoop_stream_t queues[STRESS_QUEUES];
    struct stress_pending {
        struct stress_run runs[STRESS_MOST_CALLS];
        int n;
        hoop_stream_t queue;
        hoop_ticket_t ticket;
    } pending[STRESS_MOST_PENDING + 1]; /* and the one that is being made */
    int n_pending;
    unsigned char *arena;
    size_t arena_used;
};

/* The first fields up to lenient and the lock are the caller's; the rest is zero. */
void stress_stream_run(struct stress_stream *stream);
/* Ends what a stream whose thread was cancelled has left. */
void stress_stream_abandon(struct stress_stream *stream);

#endif
