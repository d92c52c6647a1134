/*
 * One operation, from its announcement to its end.
 *
 *   state      what happens                               next
 *   (start)    sequence and signature; is a buffer on a   FETCH
 *              device?
 *   FETCH      what is on the stream ends; copies from    as from begin
 *              a device to the host, unless all may run
 *              there
 *   (begin)    announce, with                             GATHER, ANNOUNCED; DONE if n is 1
 *              the data if oneshot; where all go over     RUN
 *              links, the first chunk announces it
 *   OWED       see whom those before did not need, or     as from begin
 *              over links the rank before
 *   GATHER     take what is needed of what is published   DONE
 *   ANNOUNCED  see all announcements; choose the plan     RESOLVE (direct), RUN; TRY; FETCH or
 *                                                         begin where not all lie on devices
 *                                                         that reach each other
 *   TRY        open what nobody knows that all can open   ANNOUNCED, again
 *   RESOLVE    map the peers' regions                     RUN
 *   RUN        steps, by the board or by the engine       DONE
 *   EXCHANGE   sends and receives; from start, or of an   DONE
 *              alltoallv that all have announced
 *   DELIVER    after all of it: copies to a device        DONE
 *   DONE       the result is in `failure`
 *
 * hoop_operation_poll() never waits. One thread at a time, the one that drives the comm.
 */
#ifndef HOOP_OPERATION_H
#define HOOP_OPERATION_H

#include "exec/board_steps.h"
#include "exec/engine.h"
#include "plan/buffers.h"
#include "plan/plan.h"
#include "staging/device_buffers.h"
#include "staging/device_worker.h"
#include "transfer/exchange.h"

/* What the caller asked for; arguments are checked. */
struct hoop_request {
    struct hoop_signature signature; /* of HOOP_TRANSFER: the first's */
    const void *in;
    void *out;        /* of HOOP_TRANSFER and HOOP_COLL_ALLTOALLV: the first transfer */
    const void *site; /* where it was called */
    uint64_t scalar;  /* with HOOP_OP_PRE_MUL_SUM: its first bytes are the factor of the input */
    hoop_stream_t stream;         /* of CUDA, or NULL; transfers have their own */
    const struct hoop_bell *bell; /* of its streams; NULL: it comes behind what is on them now */
    struct hoop_flow *flow;       /* on the host, when this has begun (device/pieces.h); or NULL */
    struct hoop_device_look look;
};

/* An op on the wire: the sum of the inputs, each times a factor of its rank's own. */
#define HOOP_OP_PRE_MUL_SUM ((uint32_t)HOOP_NUM_OPS)

/* What an operation needs of its comm. */
struct hoop_operation_env {
    struct hoop_board *board;
    struct hoop_engine *engine;
    struct hoop_mapping_env maps;
    const struct hoop_agreement *agreed;
    bool one_process; /* all ranks are threads of this process */
    bool over_links;  /* every operation goes over links: the ranks do not all share memory */
    hoop_result_t (*link)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                          struct hoop_link **ret_link);
    void *arg;   /* of link */
    int wake_fd; /* wakes who waits for the operation */
    bool *naps;  /* whether he awaits a word that nobody wakes him for (runtime/wait.h); or NULL */
};

/* From OP_FETCH on nobody else is awaited. */
enum {
    OP_OWED,
    OP_GATHER,
    OP_ANNOUNCED,
    OP_TRY,
    OP_RESOLVE,
    OP_RUN,
    OP_EXCHANGE,
    OP_FETCH,
    OP_DELIVER,
    OP_DONE
};

struct hoop_grown {
    void *memory; /* NULL: nothing yet */
    size_t bytes;
};

struct hoop_operation {
    struct hoop_operation_env env;
    struct hoop_request request;
    struct hoop_plan plan;
    struct hoop_board_op steps;
    struct hoop_failure failure;
    uint8_t state;
    bool announced;   /* peers know where my buffers are */
    bool owes;        /* it does not need to see everybody */
    bool in_area;     /* what is published is too large for cells */
    bool one_fold;    /* what is published only has to be folded, all at once */
    bool meets;       /* there, with ranks on other devices, too */
    uint32_t may_owe; /* OWED: so many of those before */
    bool launched;    /* on the device: its stream has come, and is held */
    uint64_t device;  /* on which it is to run, by announcement; 0: on the host */
    uint32_t cursor, until;
    uint64_t oneshot_most[HOOP_COLL_COUNT]; /* bytes of a block */
    struct hoop_buffers buffers;
    struct hoop_exchange exchange;
    struct hoop_staging staging;
    struct hoop_board_worker worker; /* on the device, of this operation */
    struct hoop_learned *learned;    /* rank 0's; NULL: nothing yet */
    uint32_t slab_turn;              /* plan.turn of the next by slab */
    struct hoop_copies *copies;      /* NULL: nothing yet */
    struct hoop_copies_row *copied;  /* of the last that was timed, until all have told; or NULL */
    uint32_t weighed;                /* its sequence, */
    enum hoop_copy copied_how;       /* and how it was done */
    struct hoop_plan last;           /* from which is learned next; count 0: none */
    uint64_t began_ns;               /* when all had come, if it is one of these; else 0 */
    struct hoop_grid *grid;          /* of the ranks, over links; NULL: there is none */
    struct hoop_plan far;            /* of the last one over links; lanes 0: there was none */
    struct hoop_grown scratch;       /* for algorithms over links */
    struct hoop_grown scaled;        /* an input times its factor */
};

/* Does the engine move it now? */
static inline bool hoop_operation_runs_over_links(const struct hoop_operation *operation)
{
    return operation->state == OP_RUN && hoop_plan_is_over_links(operation->plan.algo);
}

/* Over links with copies in pieces: from this step on not all is there. NULL: there are none. */
static inline const uint64_t *hoop_operation_ready(const struct hoop_operation *operation)
{
    return operation->staging.overlap.count > 0 ? &operation->staging.overlap.ready
           : operation->request.flow != NULL && hoop_flow_is_cut(operation->request.flow)
               ? &operation->request.flow->ready
               : NULL;
}

/* Prepares the storage of operations of one comm; init and finish are the comm's. */
hoop_result_t hoop_operation_init(struct hoop_operation *operation,
                                  const struct hoop_operation_env *env);
void hoop_operation_finish(struct hoop_operation *operation);

/* Begins; buffers are borrowed until a poll says DONE or hoop_operation_cancel() returned. */
void hoop_operation_start(struct hoop_operation *operation, const struct hoop_request *request);
enum hoop_poll hoop_operation_poll(struct hoop_operation *operation);

/* Says where its buffers are: OP_ANNOUNCED. */
void hoop_operation_announce(struct hoop_operation *operation);

/* ---- operation_learn.c ----------------------------------------------------------------------- */

/* The plan is chosen: is it one that is learned from? */
void hoop_operation_learn_of_plan(struct hoop_operation *operation, const struct hoop_reach *reach);
/* How copies to the others are done, of an operation that copies so much at once. */
void hoop_operation_weigh(struct hoop_operation *operation, uint64_t bytes, uint32_t around);
/* Tells the others how long it took (began_ns is not 0); how long this rank worked (the board is
 * timed). */
void hoop_operation_tell(struct hoop_operation *operation);
void hoop_operation_note_work(struct hoop_operation *operation);
/* Rank 0 learns from the last one, which took as long as on the slowest rank. */
void hoop_operation_learn(struct hoop_operation *operation);
/* Rank 0 chooses for all. */
enum hoop_choice hoop_operation_choice(struct hoop_operation *operation);
/* hoop_plan_links(), but what the last one over links has found where this one is like it. */
void hoop_operation_plan_links(struct hoop_operation *operation);

/* ---- operation_memory.c ---------------------------------------------------------------------- */

/* Scratch for every lane, if the plan's algorithm has any. Else a failure, as the next one. */
hoop_result_t hoop_operation_make_scratch(struct hoop_operation *operation);
/* HOOP_OP_PRE_MUL_SUM: the input times the factor is the input. */
hoop_result_t hoop_operation_scale(struct hoop_operation *operation);

/* ---- operation_device.c ---------------------------------------------------------------------- */

/* Nothing of it lies on a device, or is to be ordered there. */
bool hoop_operation_is_of_host(const struct hoop_request *request);

/* Of a request with a flow: waits until that has begun, OP_FETCH. False: it has none. */
bool hoop_operation_awaits_flow(struct hoop_operation *operation);
/* OP_FETCH, OP_DELIVER: HOOP_OK: it is there; HOOP_AGAIN; or CUDA's error, with the sentence. */
hoop_result_t hoop_operation_copied(struct hoop_operation *operation);
/* Begins to copy what lies on a device: OP_FETCH, or OP_DONE after a failure. False: nothing does.
 */
bool hoop_operation_fetches(struct hoop_operation *operation);
/* The end of one that was fetched so: OP_DELIVER, or DONE. */
enum hoop_poll hoop_operation_deliver(struct hoop_operation *operation);
/* OP_RUN over links: the copies in pieces go on. A failure is in the operation's failure. */
void hoop_operation_overlap(struct hoop_operation *operation);
/* One of those that are under way has failed: it brings no mark, so who is idle looks. */
bool hoop_operation_overlap_failed(struct hoop_operation *operation);
/* The same where it is to run on the device its buffers lie on, when the stream has come to it.
 * False: it is not to run there, as far as this rank knows. */
bool hoop_operation_runs_on_device(struct hoop_operation *operation);
/* Who carries its steps out on the device: told what it folds, if it is launched there. */
const struct hoop_board_worker *hoop_operation_worker(struct hoop_operation *operation);
/* OP_FETCH is over: of a call that is launched on the device, whose stream has come to it. False:
 * it has failed. */
bool hoop_operation_arrives(struct hoop_operation *operation);

/* NOT: whether it goes through the host is known when it runs. */
enum hoop_launch_way { HOOP_LAUNCH_NOT, HOOP_LAUNCH_BY_HOST, HOOP_LAUNCH_ON_DEVICE };
/*
 * How can a request be launched? can: it has all in one place that it takes to run on a device.
 * ON_DEVICE: one rank folds it, who knows its memory, and *ret says where that is. Any thread,
 * while the storage is there, and the same for the next.
 */
enum hoop_launch_way hoop_operation_launch_way(const struct hoop_operation *operation,
                                               const struct hoop_request *request, bool can,
                                               struct hoop_told *ret);
/* Cuts the copies of a request whose buffers are in the staging's memory already, if it is worth
 * it. */
void hoop_operation_cut(const struct hoop_operation *operation, const struct hoop_request *request,
                        struct hoop_staging *staging);
/* OP_TRY: opens what is fresh (buffers.h), unless it is launched, and announces it again. */
enum hoop_poll hoop_operation_try(struct hoop_operation *operation);
/*
 * Waits until what the device does for it is over, and it is out of the others' buffers: before
 * who drives it waits for them. One that runs goes on afterwards, or has failed. False: at the
 * deadline it was not over.
 */
bool hoop_operation_leave_device(struct hoop_operation *operation, uint64_t deadline_ns);

/* ---------------------------------------------------------------------------------------------- */

/*
 * Gives up a started operation after a failure: when it returns HOOP_OK nobody writes to its
 * buffers any more. The comm's links must be destroyed already. Also for operations that failed by
 * themselves. culprit: the rank at fault, which is given no time to finish what it writes; -1:
 * none. HOOP_TIMEOUT: a rank that is stuck in the buffers cannot be kept out, see the sentence; 0:
 * that is waited for as long as it takes.
 */
hoop_result_t hoop_operation_cancel(struct hoop_operation *operation, int culprit,
                                    uint64_t timeout_ms);

/* What an operation waits for. */
enum hoop_awaited_what {
    HOOP_AWAITS_NOBODY,
    HOOP_AWAITS_END_BEFORE, /* from here to RECV: a rank's */
    HOOP_AWAITS_DATA,
    HOOP_AWAITS_ANNOUNCEMENT,
    HOOP_AWAITS_MEMORY,
    HOOP_AWAITS_ARRIVAL,
    HOOP_AWAITS_SEND, /* mine, to a rank */
    HOOP_AWAITS_RECV,
    HOOP_AWAITS_FETCH, /* copies: no rank's */
    HOOP_AWAITS_DELIVERY,
    HOOP_AWAITS_DEVICE,
    HOOP_AWAITS_WHATS
};

/* Of several the first. */
enum hoop_awaited_what hoop_operation_awaited(const struct hoop_operation *operation,
                                              uint32_t *ret_rank);
static inline bool hoop_awaited_is_of_rank(enum hoop_awaited_what what)
{
    return what >= HOOP_AWAITS_END_BEFORE && what <= HOOP_AWAITS_RECV;
}

/* "the data of rank 3". */
void hoop_awaited_describe(enum hoop_awaited_what what, uint32_t rank, char *buf, size_t bytes);

/* What it is and whom it waits for, for sentences. */
void hoop_operation_describe(const struct hoop_operation *operation, char *buf, size_t bytes);

/*
 * True: it cannot move before *ret_rank, for which left() is true, does something. A link that
 * notices by itself how its peer leaves is not asked.
 */
bool hoop_operation_awaits(const struct hoop_operation *operation,
                           bool (*left)(void *arg, uint32_t rank), void *arg, uint32_t *ret_rank);

/* The plan that such an operation would get on mapped memory, and hoop_plan_costs() of it. */
void hoop_operation_explain(const struct hoop_operation *operation,
                            const struct hoop_signature *signature, struct hoop_plan *ret,
                            uint64_t ret_ns[HOOP_ALGO_COUNT]);

/* The time that the cost model gives the whole of one. ns. */
uint64_t hoop_operation_estimate(const struct hoop_operation *operation,
                                 const struct hoop_request *request);

#endif
