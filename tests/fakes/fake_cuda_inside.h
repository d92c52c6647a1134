/* What the files of the fake driver share (see fake_cuda.h). All of it is under fake_lock. */
#ifndef HOOP_TESTS_FAKE_CUDA_INSIDE_H
#define HOOP_TESTS_FAKE_CUDA_INSIDE_H

#include "memory/cuda.h"

#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))
#define FAKE_ILLEGAL_ADDRESS 700

/* The driver's functions: their names are CUDA's, and declared here alone. */
#define FAKE_DECLARE(field, symbol, arguments) EXPORT int fake_##field arguments __asm__(symbol);
HOOP_CUDA_CALLS(FAKE_DECLARE)
#undef FAKE_DECLARE

/* What waits on a stream. */
struct fake_task {
    struct fake_task *next;
    enum { FAKE_COPY, FAKE_FILL, FAKE_HOST, FAKE_RECORD, FAKE_WAIT } kind;
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    unsigned delay_us;
    int value;
    hoop_cu_host_fn_t *fn;
    void *arg;
    struct hoop_cu_event *event;
    uint64_t number;
};

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed; /* of the streams */
extern bool fake_broken;            /* all fails, as after a kernel's bad access */

/* A copy of *what at the end of the stream, with a delay of its own. */
int fake_push(hoop_stream_t stream, const struct fake_task *what);

/* Waits for all that is on any stream. */
void fake_drain(void);

/* Sets whether the stream records a graph. */
void fake_stream_capture(hoop_stream_t stream, bool on);

/* Has the calling thread a context? */
bool fake_has_context(void);

#endif
