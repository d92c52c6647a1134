/*
 * Order with the streams of CUDA, without waiting for them: a bell that rings when they have come
 * to a call, and a hold, at which they wait until hoop lets them go on.
 *
 *     user's stream   ... kernels ... | bell | hold ............ | kernels ...
 *     hoop's stream                      '-> copies, folds --> release
 *
 * Hoop has one stream of its own in each context, for all comms (hoop_cuda_stream()). Nothing on it
 * ever waits: what is launched there can run, because the bells have rung. So it needs to get past
 * the holds, and nothing of hoop's has to get past it (ahead.h).
 *
 * A hold is a word of host memory, which the stream compares, and the value that it must reach.
 * Words only grow and are used again, whether a stream has come to its hold yet or not: one that
 * comes late goes on at once.
 *
 * Any thread. Nothing here waits, or makes CUDA wait, but for the first hold of the process and the
 * first stream of a context.
 */
#ifndef HOOP_ORDER_H
#define HOOP_ORDER_H

#include "memory/cuda.h"

/* Rings when all streams that it was hung on have come to it. CUDA's thread has a part in it. */
struct hoop_bell;
bool hoop_bell_has_rung(const struct hoop_bell *bell);

/* One on a stream, which wakes wake_fd; -1: nobody is woken. It is the caller's until he lets it
 * go, rung or not, also on failure; NULL: no memory. */
hoop_result_t hoop_bell_hang(hoop_cu_context_t context, hoop_stream_t stream, int wake_fd,
                             struct hoop_bell **ret);
/* Takes NULL. */
void hoop_bell_release(struct hoop_bell *bell);

struct hoop_hold {
    uint32_t word, value; /* value 0: there is none */
};

/* Has the driver what holds are made of? It is loaded. */
bool hoop_hold_is_possible(void);

/*
 * The driver may wait for all streams before it pins memory or lets go of it, and keep hoop's own
 * launches, which end holds, out meanwhile. So: waits until no stream is held, and until the end
 * hoop_hold_take() is HOOP_AGAIN. HOOP_TIMEOUT: after timeout_ms (0: as long as it takes).
 */
hoop_result_t hoop_pin_begin(uint64_t timeout_ms);
/* The same; false: streams are held. */
bool hoop_pin_try(void);
void hoop_pin_end(void);
bool hoop_pin_is_under_way(void);

/*
 * Words that streams write and hoop looks at: a host function takes 20 to 50 us to be run, and as
 * long as it runs nothing behind it is begun; a word is there in 4 us (bench/gpu/gpu_facts.cu).
 * Nobody is woken by one.
 */
struct hoop_mark {
    uint32_t word; /* its number, from 1 on; 0: there is none */
    uint32_t put;  /* the last that was put on a stream */
};

/* In a context. One for the streams of its owner, each time of one of them; where there is none
 * (any more) ret->word is 0. */
void hoop_mark_take(struct hoop_mark *ret);
/* Nothing that was put is still to come. Takes one that there is not. */
void hoop_mark_give(struct hoop_mark *mark);
/* Behind all that is on the stream; in its context. */
hoop_result_t hoop_mark_put(struct hoop_mark *mark, hoop_stream_t stream);
/* So many of those that were put are still to come. */
uint32_t hoop_mark_awaited(const struct hoop_mark *mark);

/* A hold, for any number of streams; context: any. */
hoop_result_t hoop_hold_take(hoop_cu_context_t context, struct hoop_hold *ret);

/* From here on the stream waits for the release, which may have been already. */
hoop_result_t hoop_hold_put(const struct hoop_hold *hold, hoop_cu_context_t context,
                            hoop_stream_t stream);

/* Lets the streams go on, once; what was done before is seen by what comes on them. */
void hoop_hold_release(struct hoop_hold *hold);

/* What a piece of work puts on streams. */
struct hoop_stream_order {
    struct hoop_bell *bell;
    struct hoop_hold hold;
    size_t count;
    struct hoop_order_part {
        hoop_cu_context_t context;
        hoop_stream_t stream;
    } parts[];
};

/* Room for `most` parts; NULL: no memory. */
struct hoop_stream_order *hoop_order_create(size_t most);
/* Releases it, if that was not done. Takes NULL. */
void hoop_order_destroy(struct hoop_stream_order *order);

/* Adds a stream that is not there yet. */
void hoop_order_add(struct hoop_stream_order *order, hoop_cu_context_t context,
                    hoop_stream_t stream);

/* Takes a hold, and hangs the bell, which wakes wake_fd, on all the streams. */
hoop_result_t hoop_order_begin(struct hoop_stream_order *order, int wake_fd);

/* Holds all the streams; hold: a copy of its own, which may be released meanwhile. On failure some
 * are held, until the release. */
hoop_result_t hoop_order_hold(const struct hoop_stream_order *order, const struct hoop_hold *hold);

#endif
