/*
 * The streams of fake_gpu.c. Without HOOP_CUDA they are done with what is launched. With it they
 * are the fake driver's (tests/fakes/fake_cuda.h), which has a thread for each, is late by chance,
 * and shares them with hoop: what does not wait for what it needs comes too early.
 */
#ifndef TRAINER_FAKE_STREAMS_H
#define TRAINER_FAKE_STREAMS_H

#include <stddef.h>

struct CUstream_st; /* cudaStream_t is a pointer to it */
typedef void fake_work(void *args);

/* At the end of the stream: fn, with a copy of bytes at args. */
void fake_put(struct CUstream_st *stream, fake_work *fn, const void *args, size_t bytes);
/* All that was put on any stream is done. */
void fake_settle(void);

#endif
