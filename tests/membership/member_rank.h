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
    char host_id[16]; /* of a process: HOOP_HOSTID, "" for none */
    struct hoop_member *member;
    struct hoop_job job;
    int out;   /* lines are written here, */
    int in;    /* and read here */
    int order; /* of a process: commands */
    pid_t pid; /* of a process, else 0 */
    _Atomic bool waiting;
    _Atomic bool inside;   /* beats may use the segment */
    _Atomic uint64_t gone; /* a bit for every rank of another machine that said goodbye */
    char line[600];        /* the last one that rank_line() read */
    char rest[4096];
    size_t rest_bytes;
};

/* A member's join with common values; change what the test is about before rank_start(). */
void rank_init(struct rank *rank, const struct hoop_rendezvous *rendezvous, uint32_t n,
               uint32_t me);
hoop_result_t rank_start(struct rank *rank);
/* The job's result, with the sentence as rank->line. */
hoop_result_t rank_join(struct rank *rank);
void rank_finish(struct rank *rank);

/* What the last word of a goodbye is in a real comm. */
void rank_say_left(struct rank *rank);

/* Starts a process for it; its join is carried there. Joined when it says "joined". */
int rank_spawn(struct rank *rank, const char *const *environment);
void rank_command(const struct rank *rank, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Kills, if need be, and reaps. */
void rank_reap(struct rank *rank);

/* Waits for a line; false: none in time, or the last one was read. */
bool rank_any_line(struct rank *rank, int timeout_ms);
/* Waits for a line that begins so; false: other lines, or none in time. */
bool rank_line(struct rank *rank, const char *begin, int timeout_ms);
/* No line has come and none comes in this time. */
bool rank_is_silent(struct rank *rank, int timeout_ms);

/* main() of a spawned rank. */
int rank_main(int argc, char **argv);

#endif
