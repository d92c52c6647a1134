/*
 * A stream of numbered chunks over a pair of ends (link_pair.h), for tests in which both ends work
 * at the same time. Sizes follow from the numbers; pauses, and the choice between lent and own
 * memory, from the seed. Nothing here asserts: it runs on any thread.
 */
#ifndef LINK_STREAM_H
#define LINK_STREAM_H

#include "transports/link_pair.h"

#define STREAM_CHUNK 4096u
#define STREAM_SLOTS 4u
#define STREAM_WINDOW 8u
#define STREAM_DATA_BYTES ((size_t)STREAM_WINDOW * STREAM_CHUNK)
#define STREAM_DEADLINE_MS 60000

/* The work of one end. */
struct stream {
    struct pair *pair;
    uint64_t seed;
    _Atomic bool *stop; /* if set, ends the work with HOOP_TIMEOUT; may be NULL */
    uint32_t count;
    hoop_result_t result;
    struct item items[STREAM_WINDOW];
    uint8_t *data; /* [STREAM_DATA_BYTES] from malloc(), freed by the caller */
};

/* False: no memory. */
bool stream_init(struct stream *stream, struct pair *pair, uint32_t count, uint64_t seed);

/* The threads' functions: they return at the end of the stream, or with a failure in result. */
void *stream_send(void *stream);
void *stream_recv(void *stream);

/* The size of chunk number n. */
size_t stream_bytes(uint32_t number);

#endif
