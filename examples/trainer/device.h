/*
 * A device on which gradients lie, as ddp.c sees it: work is launched there, in order, and done
 * later. Beside that order of computing it has a stream, on which gradients travel.
 */
#ifndef TRAINER_DEVICE_H
#define TRAINER_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#define DEVICE_MARKS 64

struct device {
    void *stream; /* a cudaStream_t */
    /* Mark i, below DEVICE_MARKS: all that was launched for computing so far. */
    void (*mark)(int i);
    /* What comes on the stream from now on comes behind mark i. */
    void (*follow)(int i);
    /* Computing: zeros. */
    void (*clear)(float *data, size_t count);
    /* On the stream: to bf16, and back. */
    void (*compress)(const float *from, uint16_t *to, size_t count);
    void (*expand)(const uint16_t *from, float *to, size_t count);
    /* All computing before the gradients are used has been launched. */
    void (*end)(void);
    /*
     * Computing goes on when the stream is done. Waits for both; returns the seconds that the
     * stream took longer than what was launched until `end`.
     */
    double (*join)(void);
};

#endif
