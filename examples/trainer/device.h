/*
 * A device that holds gradients, as ddp.c sees it: computing is launched there, and runs later, in
 * order. Besides, it has a stream on which gradients travel.
 */
#ifndef TRAINER_DEVICE_H
#define TRAINER_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#define DEVICE_MARKS 64

struct device {
    void *stream; /* a cudaStream_t */
    /* Sets mark i (below DEVICE_MARKS) behind all computing that was launched so far. */
    void (*mark)(int i);
    /* What is put on the stream from now on runs behind mark i. */
    void (*follow)(int i);
    /* Sets data to zero, in the order of computing. */
    void (*clear)(float *data, size_t count);
    /* Convert to bf16 and back, on the stream. */
    void (*compress)(const float *from, uint16_t *to, size_t count);
    void (*expand)(const uint16_t *from, float *to, size_t count);
    /* Tells that all computing has been launched that comes before the use of the gradients. */
    void (*end)(void);
    /*
     * Lets further computing run behind the stream, and waits for both. Returns for how many
     * seconds the stream ran longer than the computing before `end`.
     */
    double (*join)(void);
};

#endif
