/*
 * The engine: carries out the steps of a plan over links, all lanes concurrently.
 *
 * It never waits and reads no clock: hoop_engine_poll() moves what can be moved and says how it
 * went; lib/runtime/wait.c decides what to do meanwhile. It allocates nothing between start and
 * done (lanes live in the engine, xfers in the lanes).
 *
 *   per lane:   ask(k) -> local part -> post recv and send -> both done -> k+1 -> ... -> finished
 *
 * Steps of a round (step.more) do not wait for each other: up to HOOP_ENGINE_ROUND of a lane are on
 * their way at once.
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
#define HOOP_ENGINE_ROUND (HOOP_RADIX_MOST - 1)     /* with each of 8 ranks but this one */
#define HOOP_ENGINE_FLIGHTS (HOOP_ENGINE_ROUND + 1) /* and the fold of what these keep */

/* Between two looks at what is owed: one may cost a system call. */
#define HOOP_ENGINE_IDLE_POLLS 8u

/* From so many ranks a lane of an early plan receives: a torus inside a machine, between machines,
 * and the announcement. */
#define HOOP_ENGINE_OFFERS 3

/* A step of a lane that is on its way, or room for one. */
struct hoop_engine_flight {
    struct hoop_engine_lane *lane;
    struct hoop_step step;
    uint8_t state; /* see engine.c */
    struct hoop_link *send_link, *recv_link;
    struct hoop_xfer send, recv;
};

/* One lane's place in its steps. */
struct hoop_engine_lane {
    struct hoop_engine *engine;
    uint64_t k; /* of the next step */
    uint32_t index;
    bool more;     /* the next step need not wait for those on their way */
    bool finished; /* there is no next step */
    uint32_t used; /* of the flights, in this operation */
    const struct hoop_link
        *offered[HOOP_ENGINE_OFFERS]; /* op.out, to whom the lane receives from */
    struct hoop_engine_flight flights[HOOP_ENGINE_FLIGHTS];
};

/* What an operation gives the engine. */
struct hoop_engine_op {
    const struct hoop_plan *plan;
    hoop_step_fn *steps;
    struct hoop_reduction reduction; /* divisor for the last fold */
    const void *in;
    void *out;
    /* HOOP_SPACE_SCRATCH: plan->scratch elements for each lane, one lane's behind the other's. NULL
     * with algorithms that use none, and where there are no elements. */
    void *scratch;
    const void **src; /* [n], room for the sources of a fold of SCRATCH; NULL with scratch */
    struct hoop_signature signature; /* goes into every header, like sequence */
    uint32_t sequence;               /* of the operation in its comm */
    /*
     * The link with a peer for a lane. HOOP_AGAIN: being made, ask at the next poll. The engine
     * does not own it.
     */
    hoop_result_t (*link)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                          struct hoop_link **ret_link);
    void *arg;
    bool keeps;            /* hoop_plan_keeps(), and it is worth it */
    const uint64_t *ready; /* of no lane a step from this one on is begun; NULL: all may be */
};

struct hoop_engine {
    struct hoop_engine_op op;
    struct hoop_failure *failure; /* the comm's: first error wins */
    uint32_t running;             /* lanes not finished */
    uint32_t idle;                /* polls that did nothing, ever */
    struct hoop_owed owed;        /* of this operation, and of those before */
    struct hoop_engine_lane lanes[HOOP_MAX_LANES];
};

/* Begins an operation; plan, buffers and failure are borrowed until a poll says done. */
void hoop_engine_start(struct hoop_engine *engine, const struct hoop_engine_op *op,
                       struct hoop_failure *failure);

/*
 * After DONE with a failure, xfers may still be posted: the caller destroys the links before it
 * gives the buffers back.
 */
enum hoop_poll hoop_engine_poll(struct hoop_engine *engine);

/* All lanes have done the steps before this one; UINT64_MAX: all there are. */
uint64_t hoop_engine_passed(const struct hoop_engine *engine);

/*
 * True: a lane waits for *ret_rank to send something, over a link of *ret_transport, NULL while
 * there is none. Begin with *cursor = 0 and ask until false.
 */
bool hoop_engine_awaited(const struct hoop_engine *engine, uint32_t *cursor, uint32_t *ret_rank,
                         const struct hoop_transport **ret_transport);

/* Whom it waits for first: for what that rank sends, or for its taking what is sent there. */
bool hoop_engine_waits(const struct hoop_engine *engine, uint32_t *ret_rank, bool *ret_sending);

/* Which peers the engine waits for now, as a sentence part: "rank 3 (lane 0, step 5, recv)". */
void hoop_engine_describe(const struct hoop_engine *engine, char *buf, size_t bytes);

#endif
