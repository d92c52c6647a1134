/*
 * One rank of test_bootstrap or test_machines: a member whose events come out as lines of text, in
 * this process or in one that the test starts anew and commands by lines. Text, so that a test
 * waits for any event of any rank in the same way: with a deadline.
 *
 *      joined | failed CODE SENTENCE | lost RANK WHY | blob FROM LANE SENDS TEXT
 *      fetched RANK ID GENERATION CODE CONTENT | region ID GENERATION | imports COUNT | forked
 *      gone RANK | raised RANK CODE SENTENCE | gate 0-or-1 | roster MACHINES HERE 0,1,0,...
 */
#ifndef BOOTSTRAP_RANK_H
#define BOOTSTRAP_RANK_H

#include "membership/membership.h"
#include <sys/types.h>

#define RANK_SEGMENT_BYTES 65536u

struct rank {
    struct hoop_join join;
    char host_id[16]; /* for a process: HOOP_HOSTID; "": unset */
    _Atomic(struct hoop_member *) member;
    struct hoop_job job;
    int out;     /* lines are written here, */
    int in;      /* and read here */
    int order;   /* for a process: where it is sent commands */
    pid_t pid;   /* of its process, or 0 */
    bool spoils; /* its join fails when the others are ready, and may be in */
    bool unmade; /* an event came when there was no member yet */
    _Atomic bool waiting;
    _Atomic bool inside;   /* heartbeats may use the segment */
    _Atomic uint64_t gone; /* a bit for every rank of another machine that has said goodbye */
    char line[600];        /* the last line that rank_line() read */
    char rest[4096];
    size_t rest_bytes;
};

/* Sets common values for a member's join. Change what the test is about before rank_start(). */
void rank_init(struct rank *rank, const struct hoop_rendezvous *rendezvous, uint32_t n,
               uint32_t me);
hoop_result_t rank_start(struct rank *rank);
/* Waits for the join's result; the error text is in rank->line. */
hoop_result_t rank_join(struct rank *rank);
void rank_finish(struct rank *rank);

/* Says what a real comm says at the end of its goodbye. */
void rank_say_left(struct rank *rank);

/* Starts a process for the rank, and hands its join to it. It has joined when it writes
 * "joined". */
int rank_spawn(struct rank *rank, const char *const *environment);
void rank_command(const struct rank *rank, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Kills the process if it still runs, and reaps it. */
void rank_reap(struct rank *rank);

/* Waits for a line. False: none came in time, or the last one was read. */
bool rank_any_line(struct rank *rank, int timeout_ms);
/* Waits for a line that begins so. False: there were other lines, or none in time. */
bool rank_line(struct rank *rank, const char *begin, int timeout_ms);
/* No line is there, and none comes within this time. */
bool rank_is_silent(struct rank *rank, int timeout_ms);

/* The main() of a spawned rank. */
int rank_main(int argc, char **argv);

#endif
