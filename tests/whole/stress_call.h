/*
 * One call of one rank in the stress test: buffers of a random kind and place, inputs, and
 * afterwards a comparison of every byte: results with the serial model, inputs and the bytes around
 * buffers with what they were.
 */
#ifndef HOOP_TESTS_STRESS_CALL_H
#define HOOP_TESTS_STRESS_CALL_H

#include "whole/stress_program.h"

#define STRESS_ARENA_BYTES ((size_t)4 << 20)

/* Where and how a rank makes a call. */
struct stress_place {
    const struct stress_program *program;
    hoop_comm_t comm;
    hoop_stream_t queue;  /* NULL: the call blocks */
    int n, rank;          /* in the comm */
    unsigned char *arena; /* one region that several buffers share */
    size_t *arena_used;
};

/* A buffer with guards, and its expected contents. */
struct stress_area {
    unsigned char *block, *image;
    size_t bytes, at; /* of the block; and the offset of the elements */
    enum { AREA_NONE, AREA_PLAIN, AREA_REGISTERED, AREA_REGION, AREA_ARENA } kind;
    void *handle;
};

struct stress_run {
    struct stress_place place;
    struct stress_call call;
    struct model_call model;
    bool in_place, sends, receives; /* sends, receives: for a message, what this rank does */
    struct stress_area send, recv;
};

/* False: no memory. stress_run_finish() is needed in any case. */
bool stress_run_init(struct stress_run *run, const struct stress_place *place,
                     const struct stress_call *call, struct stress_random *random);
/* Calls hoop. Does nothing for a message between other ranks. */
hoop_result_t stress_run_start(const struct stress_run *run);
/* True: every byte is as it must be. False: ret_text tells which is not. */
bool stress_run_check(const struct stress_run *run, char *ret_text, size_t text_bytes);
void stress_run_finish(struct stress_run *run);
/* The call has failed, so its buffers belong to this rank again: what it writes now must stay. */
void stress_run_claim(const struct stress_run *run);

#endif
