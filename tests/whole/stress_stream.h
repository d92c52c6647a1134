/*
 * One stream of operations of one rank: its comms, two queues (host streams of hoop) on which each
 * rank puts some of its calls as it likes, and the steps of the program. The time is over when rank
 * 0 of the world says so, by a sum now and then. One thread.
 */
#ifndef HOOP_TESTS_STRESS_STREAM_H
#define HOOP_TESTS_STRESS_STREAM_H

#include "whole/stress_call.h"
#include <pthread.h>
#include <stdatomic.h>

#define STRESS_MOST_STREAMS 4
#define STRESS_QUEUES 2
#define STRESS_MOST_PENDING 8

/* In memory that all processes share: the k-th birth of a comm uses the k-th id. */
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
    uint64_t programs; /* 0: until that time; otherwise how many */
    bool lenient;      /* the job is harmed: a failure ends the stream, and is not an error */
    struct stress_totals totals;
    char wrong[500]; /* what went wrong; empty: nothing */

    uint64_t step;
    pthread_mutex_t lock; /* held while a handle is set or removed */
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

/* The caller sets the fields up to lenient, and the lock; the rest is zero. */
void stress_stream_run(struct stress_stream *stream);
/* Frees what a stream has left whose thread was cancelled. */
void stress_stream_abandon(struct stress_stream *stream);

#endif
