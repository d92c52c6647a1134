/*
 * Order with CUDA streams, without waiting for them: a bell rings when the streams have come to a
 * call, and at a hold they wait until hoop lets them go on.
 *
 *     user's stream   ... kernels ... | bell | hold ............ | kernels ...
 *     hoop's stream                      '-> copies, folds --> release
 *
 * Hoop has one stream of its own in each context, for all comms (hoop_cuda_stream()). It never
 * waits: work is launched there only after the bells have rung, so it can run at once. So hoop's
 * stream must be able to get past held streams (ahead.h), but no other stream has to get past it.
 *
 * A hold is a word of host memory and a value: the stream waits until the word reaches the value.
 * Words only grow. A released word is used again at once, even if the stream has not come to the
 * hold yet: when it does it goes on, because the word is past the value.
 *
 * Any thread. Nothing here waits or makes CUDA wait, except hoop_pin_begin(), the first hold of the
 * process, the first mark, and the first stream of a context.
 */
#ifndef HOOP_ORDER_H
#define HOOP_ORDER_H

#include "memory/cuda.h"

/* Rings when all streams that it was hung on have come to it. CUDA's thread holds a reference. */
struct hoop_bell;
bool hoop_bell_has_rung(const struct hoop_bell *bell);

/* Hangs a new bell on a stream. It wakes wake_fd; -1: nobody. The caller releases it, rung or not,
 * also after a failure. Without memory *ret is not written. */
hoop_result_t hoop_bell_hang(hoop_cu_context_t context, hoop_stream_t stream, int wake_fd,
                             struct hoop_bell **ret);
/* Accepts NULL. */
void hoop_bell_release(struct hoop_bell *bell);

struct hoop_hold {
    uint32_t word, value; /* value 0: there is none */
};

/* Can streams be held: is HOOP_CUDA_AHEAD=1 set, and has the driver, which must be loaded, the
 * functions for that? */
bool hoop_hold_is_possible(void);

/*
 * Around pinning and freeing memory. The CUDA driver may wait for all streams before it does that,
 * and meanwhile block hoop's own launches, which end holds. So this waits until no stream is held;
 * hoop_hold_take() returns HOOP_AGAIN until hoop_pin_end(). HOOP_TIMEOUT: streams were still held
 * after timeout_ms (0: no limit).
 */
hoop_result_t hoop_pin_begin(uint64_t timeout_ms);
/* The same without waiting; false: streams are held. */
bool hoop_pin_try(void);
void hoop_pin_end(void);
bool hoop_pin_is_under_way(void);

/*
 * A mark is a word that streams write and hoop polls. It is there after 4 us, while CUDA takes 20
 * to 50 us to run a host function, and begins nothing behind that until it returns
 * (bench/gpu/gpu_facts.cu). A mark wakes nobody.
 */
struct hoop_mark {
    uint32_t word; /* its number, from 1 on; 0: none */
    uint32_t put;  /* the last value that was put on a stream */
};

/* In a context: takes a mark. Its owner may put it on several streams, but on one at a time: on
 * another only when none is awaited. ret->word is 0 if there is no mark left, or marks are not
 * possible. */
void hoop_mark_take(struct hoop_mark *ret);
/* Nothing that was put may still be awaited. Accepts word 0. */
void hoop_mark_give(struct hoop_mark *mark);
/* In the stream's context: puts the next value behind all that is on the stream. */
hoop_result_t hoop_mark_put(struct hoop_mark *mark, hoop_stream_t stream);
/* How many of the values that were put are still to come. */
uint32_t hoop_mark_awaited(const struct hoop_mark *mark);

/* Takes a hold, which may be put on any number of streams, of any contexts. context: one that can
 * be used to pin the words. */
hoop_result_t hoop_hold_take(hoop_cu_context_t context, struct hoop_hold *ret);

/* Puts the hold on a stream, which waits there for the release. That may already have happened. */
hoop_result_t hoop_hold_put(const struct hoop_hold *hold, hoop_cu_context_t context,
                            hoop_stream_t stream);

/* Lets the streams go on, unless that was done before. What comes behind the hold sees everything
 * that was done before the release. */
void hoop_hold_release(struct hoop_hold *hold);

/* The bell and the hold of a piece of work, on all its streams. */
struct hoop_stream_order {
    struct hoop_bell *bell;
    struct hoop_hold hold;
    size_t count;
    struct hoop_order_part {
        hoop_cu_context_t context;
        hoop_stream_t stream;
    } parts[];
};

/* For at most `most` streams. NULL: no memory. */
struct hoop_stream_order *hoop_order_create(size_t most);
/* Releases the hold, if that was not done. Accepts NULL. */
void hoop_order_destroy(struct hoop_stream_order *order);

/* Adds a stream, unless it is there already. */
void hoop_order_add(struct hoop_stream_order *order, hoop_cu_context_t context,
                    hoop_stream_t stream);

/* Takes a hold, and hangs a bell that wakes wake_fd on all streams. */
hoop_result_t hoop_order_begin(struct hoop_stream_order *order, int wake_fd);

/* Holds all streams. hold: a copy of order->hold, because that may be released meanwhile. After a
 * failure some streams are held, until the release. */
hoop_result_t hoop_order_hold(const struct hoop_stream_order *order, const struct hoop_hold *hold);

#endif
