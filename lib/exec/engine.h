/*
 * The engine carries out the steps of a plan over links, all lanes concurrently.
 *
 * It never waits and reads no clock: hoop_engine_poll() moves what can be moved and reports whether
 * anything did; lib/runtime/wait.c decides what to do in between. It allocates nothing between
 * start and done: lanes live in the engine, xfers in the lanes.
 *
 *   per lane:   ask(k) -> local part -> post recv and send -> both done -> k+1 -> ... -> finished
 *
 * Steps of a round (step.more) do not wait for each other: up to HOOP_ENGINE_ROUND steps of a lane
 * are in flight at once.
 *
 * A receive that reduces borrows the link's memory, is folded from there into its place, and gives
 * the slot back at once: the sum is the next thing that this lane sends, while it is in the cache.
 * A receive that is only folded after its round does the same, but keeps the slot until then
 * (op.keeps).
 *
 * Used by one thread at a time, the one that drives the comm.
 */
#ifndef HOOP_ENGINE_H
#define HOOP_ENGINE_H

#include "algo/step.h"
#include "exec/owed.h"
#include "reduce/reduce.h"
#include "runtime/wait.h"
#include "transports/transport.h"

#define HOOP_MAX_LANES 16
#define HOOP_ENGINE_ROUND (HOOP_RADIX_MOST - 1)     /* one step for each other rank of 8 */
#define HOOP_ENGINE_FLIGHTS (HOOP_ENGINE_ROUND + 1) /* and the fold after them */

/* Idle polls between two looks at what is owed, because a look may cost a system call. */
#define HOOP_ENGINE_IDLE_POLLS 8u

/* The most ranks from which a lane of an early plan receives: in a torus one inside the machine,
 * one on another machine, and the one that announces. */
#define HOOP_ENGINE_OFFERS 3

/* A step that is under way, or room for one. */
struct hoop_engine_flight {
    struct hoop_engine_lane *lane;
    struct hoop_step step;
    uint8_t state; /* see engine.c */
    struct hoop_link *send_link, *recv_link;
    struct hoop_xfer send, recv;
};

/* A lane's progress through its steps. */
struct hoop_engine_lane {
    struct hoop_engine *engine;
    uint64_t k; /* number of the next step */
    uint32_t index;
    bool more;     /* the next step need not wait for those under way */
    bool finished; /* there are no more steps */
    uint32_t used; /* flights initialized in this operation */
    const struct hoop_link *offered[HOOP_ENGINE_OFFERS]; /* links that were offered op.out */
    struct hoop_engine_flight flights[HOOP_ENGINE_FLIGHTS];
};

/* What an operation gives the engine. */
struct hoop_engine_op {
    const struct hoop_plan *plan;
    hoop_step_fn *steps;
    struct hoop_reduction reduction; /* its divisor applies to the last fold */
    const void *in;
    void *out;
    /* HOOP_SPACE_SCRATCH: plan->scratch elements per lane, the lanes one after the other. NULL with
     * algorithms that use none, and where there are no elements. */
    void *scratch;
    const void **src;                /* [n], room for a fold's sources; NULL with scratch */
    struct hoop_signature signature; /* sent in every header, like sequence */
    uint32_t sequence;               /* of the operation in its comm */
    /* Gets the link with a peer for a lane; the engine does not own it. HOOP_AGAIN: it is being
     * made, ask again at the next poll. */
    hoop_result_t (*link)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                          struct hoop_link **ret_link);
    void *arg;
    bool keeps;            /* hoop_plan_keeps(), and worth it */
    const uint64_t *ready; /* no lane may begin this step or a later one; NULL: all may begin */
};

struct hoop_engine {
    struct hoop_engine_op op;
    struct hoop_failure *failure; /* the comm's, in which the first error wins */
    uint32_t running;             /* lanes that are not finished */
    uint32_t idle;                /* idle polls, counted over all operations */
    struct hoop_owed owed;        /* announcements of this and earlier operations */
    struct hoop_engine_lane lanes[HOOP_MAX_LANES];
};

/* Begins an operation; plan, buffers and failure are borrowed until a poll says done. */
void hoop_engine_start(struct hoop_engine *engine, const struct hoop_engine_op *op,
                       struct hoop_failure *failure);

/* After DONE with a failure xfers may still be posted: the caller destroys the links before it
 * returns the buffers to their owner. */
enum hoop_poll hoop_engine_poll(struct hoop_engine *engine);

/* The lowest step that some lane has not completed; UINT64_MAX: all lanes are finished. */
uint64_t hoop_engine_passed(const struct hoop_engine *engine);

/* Iterates over the ranks that are to send to a lane, or (sending) to take what it sends: start
 * with *cursor = 0 and call until false. *ret_transport: of the link, NULL while there is none. */
bool hoop_engine_awaited(const struct hoop_engine *engine, bool sending, uint32_t *cursor,
                         uint32_t *ret_rank, const struct hoop_transport **ret_transport);

/*
 * The first rank that the engine waits for: to send, or (*ret_sending) to take what is sent to it.
 */
bool hoop_engine_waits(const struct hoop_engine *engine, uint32_t *ret_rank, bool *ret_sending);

/*
 * The peers that the engine waits for now, as part of a sentence: "rank 3 (lane 0, step 5, recv)".
 */
void hoop_engine_describe(const struct hoop_engine *engine, char *buf, size_t bytes);

#endif
