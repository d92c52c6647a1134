/*
 * The streams of fake_gpu.c. Without HOOP_CUDA work is done when it is launched. With it the
 * streams are those of the fake driver (tests/fakes/fake_cuda.h), which has a thread for each, adds
 * random delays, and shares them with hoop: work that does not wait for what it needs comes too
 * early.
 */
#ifndef TRAINER_FAKE_STREAMS_H
#define TRAINER_FAKE_STREAMS_H

#include <stddef.h>

struct CUstream_st; /* cudaStream_t is a pointer to it */
typedef void fake_work(void *args);

/* Puts fn at the end of the stream, with a copy of the bytes at args. */
void fake_put(struct CUstream_st *stream, fake_work *fn, const void *args, size_t bytes);
/* Waits until everything on all streams is done. */
void fake_settle(void);

#endif
