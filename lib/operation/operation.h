/*
 * One operation, from its announcement to its end.
 *
 *   state      what happens                               next
 *   (start)    sequence and signature; is a buffer on a   FETCH
 *              device?
 *   FETCH      wait for the call's stream; copy from a    as from begin
 *              device to the host, unless the operation
 *              may run on the device
 *   (begin)    announce, with the data if oneshot;        GATHER, ANNOUNCED; DONE if n is 1
 *              over links the first chunk announces       RUN
 *   OWED       see the ranks that earlier operations did  as from begin
 *              not need; over links the rank before
 *   GATHER     take what this rank needs of what was      DONE; as from begin for the next piece
 *              published
 *   ANNOUNCED  see all announcements; choose the plan     RESOLVE (direct), RUN; TRY; FETCH or
 *                                                         begin if not all buffers lie on devices
 *                                                         that reach each other
 *   TRY        open what not all are known to have opened ANNOUNCED, again
 *   RESOLVE    map the peers' regions                     RUN
 *   RUN        steps, by the board or by the engine       DONE
 *   EXCHANGE   sends and receives; from start, or of an   DONE
 *              alltoallv that all have announced
 *   DELIVER    at the end: copies to a device             DONE
 *   DONE       the result is in `failure`
 *
 * hoop_operation_poll() never waits. Used by one thread at a time, the one that drives the comm.
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

/* What the caller asked for; the arguments have been checked. */
struct hoop_request {
    struct hoop_signature signature; /* of the first transfer with HOOP_TRANSFER */
    const void *in;
    void *out;            /* the first transfer with HOOP_TRANSFER and HOOP_COLL_ALLTOALLV */
    const void *site;     /* code address of the call */
    uint64_t scalar;      /* with HOOP_OP_PRE_MUL_SUM: the input's factor, in its first bytes */
    hoop_stream_t stream; /* a CUDA stream, or NULL; transfers have their own */
    const struct hoop_bell *bell; /* of its streams; NULL: it follows what is on them now */
    struct hoop_flow *flow;       /* of a launched call, or NULL: it begins when the flow does */
    struct hoop_device_look look;
};

/* The op, also on the wire, of a sum whose inputs are multiplied by a factor of each rank. */
#define HOOP_OP_PRE_MUL_SUM ((uint32_t)HOOP_NUM_OPS)

static inline bool hoop_request_has_factor(const struct hoop_request *request)
{
    return __builtin_expect(request->signature.op == HOOP_OP_PRE_MUL_SUM, 0);
}

/* What an operation needs from its comm. */
struct hoop_operation_env {
    struct hoop_board *board;
    struct hoop_engine *engine;
    struct hoop_mapping_env maps;
    const struct hoop_agreement *agreed;
    bool one_process; /* all ranks are threads of this process */
    bool over_links;  /* the ranks do not all share memory: everything goes over links */
    bool on_host;     /* no rank has buffers on a device */
    hoop_result_t (*link)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                          struct hoop_link **ret_link);
    void *arg;   /* of link */
    int wake_fd; /* wakes the thread that waits for the operation */
    bool *naps;  /* set while awaiting a word that wakes nobody (runtime/wait.h); or NULL */
};

/* From OP_FETCH on no other rank is awaited. */
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
    bool announced;   /* peers know where this rank's buffers are */
    bool owes;        /* completes without having seen all ranks */
    bool in_area;     /* its published data are too large for a cell */
    bool folds;       /* what was published, to its output */
    bool meets;       /* may run together with ranks on other devices */
    uint32_t may_owe; /* OWED: waits until at most so many are owed */
    bool launched;    /* on the device: its stream has come to it, and is held */
    uint64_t device;  /* as announced; 0: on the host */
    uint32_t cursor, until;
    uint64_t oneshot_most[HOOP_COLL_COUNT]; /* largest block, in bytes */
    uint64_t granted_most[HOOP_COLL_COUNT]; /* of oneshots that were granted (cost/learned.h) */
    uint8_t granted[HOOP_COLL_COUNT][HOOP_LEARNED_SIZES]; /* number of the next calls */
    struct hoop_buffers buffers;
    struct hoop_exchange exchange;
    struct hoop_staging staging;
    struct hoop_board_worker worker; /* executes the steps on the device */
    struct hoop_learned *learned;    /* rank 0's; NULL: nothing yet */
    uint32_t slab_turn;              /* plan.turn of the next operation by slab */
    struct hoop_copies *copies;      /* NULL: nothing yet */
    bool goes_far;                   /* HOOP_BOARD_FAR_AFTER operations were made */
    struct hoop_copies_row *copied;  /* row of the last timed one until all have told; or NULL */
    uint32_t weighed;                /* sequence of that one, */
    enum hoop_copy copied_how;       /* and how it copied */
    struct hoop_plan last;           /* the operation whose time is learned next; count 0: none */
    struct hoop_plan granted_last;   /* the timed oneshot; count 0: none */
    uint32_t granted_at;             /* its sequence */
    uint64_t piece;                  /* elements that a granted call publishes at once; else 0 */
    uint32_t pieces;                 /* of that call */
    bool times;                      /* it is the last one that was granted */
    uint64_t began_ns;               /* when all had announced, in such an operation; else 0 */
    struct hoop_grid *grid;          /* the ranks' machines, over links; NULL: no grid */
    struct hoop_plan far;            /* the last plan over links; lanes 0: there is none */
    struct hoop_grown scratch;       /* for algorithms over links */
    struct hoop_grown scaled;        /* an input multiplied by its factor */
};

/* Does the engine execute its steps now? */
static inline bool hoop_operation_runs_over_links(const struct hoop_operation *operation)
{
    return operation->state == OP_RUN && hoop_plan_is_over_links(operation->plan.algo);
}

/* Over links with copies in pieces: the first step whose data may not be there. NULL: no pieces. */
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

/* Begins; buffers are borrowed until a poll says DONE or hoop_operation_cancel() returns. */
void hoop_operation_start(struct hoop_operation *operation, const struct hoop_request *request);
enum hoop_poll hoop_operation_poll(struct hoop_operation *operation);

/* Announces where its buffers are: OP_ANNOUNCED. */
void hoop_operation_announce(struct hoop_operation *operation);

/* ---- operation_learn.c ----------------------------------------------------------------------- */

/* The plan has been chosen: times the operation if something is learned from it. */
void hoop_operation_learn_of_plan(struct hoop_operation *operation, const struct hoop_reach *reach);
/* Decides how copies to others are done in an operation that copies so many bytes at once. Returns
 * whether a way is being tried. */
bool hoop_operation_weigh(struct hoop_operation *operation, uint64_t bytes, uint32_t around);
/* Tell the others how long the operation took (if began_ns is not 0), and how long this rank worked
 * (if the board is timed). */
void hoop_operation_tell(struct hoop_operation *operation);
void hoop_operation_note_work(struct hoop_operation *operation);
/* Rank 0 learns the time of the last such operation, that of the slowest rank. */
void hoop_operation_learn(struct hoop_operation *operation);
/* What rank 0 announces for all. */
struct hoop_learned_say hoop_operation_says(struct hoop_operation *operation);
/* All announcements are there: may the next such calls be oneshots? All ranks find that alike. */
void hoop_operation_grant(struct hoop_operation *operation, const struct hoop_reach *reach);
/* May the call, or what is left of it, be a oneshot that was granted? Sets `piece`. */
bool hoop_operation_is_granted(struct hoop_operation *operation);
/* A piece of such a call begins: times the last one of the last call. */
void hoop_operation_time_grant(struct hoop_operation *operation);
/* hoop_plan_links(), or the previous plan over links if this call is the same. */
void hoop_operation_plan_links(struct hoop_operation *operation);

/* ---- operation_memory.c ---------------------------------------------------------------------- */

/* Allocates scratch for all lanes, if any is needed. An error is also in operation->failure. */
hoop_result_t hoop_operation_make_scratch(struct hoop_operation *operation);
/* By slab, if there are more than two: maps those that this rank writes, and those that it reads.
 */
void hoop_operation_map_slabs(const struct hoop_operation *operation);
/* HOOP_OP_PRE_MUL_SUM: replaces the input by the input times the factor. Errors likewise. */
hoop_result_t hoop_operation_scale(struct hoop_operation *operation);

/* ---- operation_device.c ---------------------------------------------------------------------- */

/* Nothing of the request lies on a device, or is ordered by one. */
bool hoop_operation_is_of_host(const struct hoop_request *request);

/* For a request with a flow: waits until the flow has begun (OP_FETCH). False: it has none. */
bool hoop_operation_awaits_flow(struct hoop_operation *operation);
/* OP_FETCH, OP_DELIVER: HOOP_OK: the copies are done; HOOP_AGAIN; or CUDA's error. */
hoop_result_t hoop_operation_copied(struct hoop_operation *operation);
/* Begins to copy what lies on a device: OP_FETCH, or OP_DONE on failure. False: nothing does. */
bool hoop_operation_fetches(struct hoop_operation *operation);
/* Ends an operation that was fetched: OP_DELIVER, or DONE. */
enum hoop_poll hoop_operation_deliver(struct hoop_operation *operation);
/* OP_RUN over links: continues the copies in pieces. A failure is in operation->failure. */
void hoop_operation_overlap(struct hoop_operation *operation);
/* Looks for a failure of the copies under way, since a failed copy leaves no mark. */
bool hoop_operation_overlap_failed(struct hoop_operation *operation);
/* Like hoop_operation_fetches(), for an operation that runs on its buffers' device: waits for the
 * stream to come to it. False: it does not run there, as far as this rank knows. */
bool hoop_operation_runs_on_device(struct hoop_operation *operation);
/* Executes its steps on the device: the launched kernel, if the call is launched. */
const struct hoop_board_worker *hoop_operation_worker(struct hoop_operation *operation);
/* OP_FETCH is over; if launched on the device, its stream has come to the call. False: failed. */
bool hoop_operation_arrives(struct hoop_operation *operation);

/* NOT: only running it will tell whether it goes through the host. */
enum hoop_launch_way { HOOP_LAUNCH_NOT, HOOP_LAUNCH_BY_HOST, HOOP_LAUNCH_ON_DEVICE };
/*
 * How can a request be launched? kernels: the device on which all buffers are has hoop's kernels.
 * ON_DEVICE: the ranks that act have opened this rank's memory; *ret says where that is. Any
 * thread, as long as the storage exists; likewise hoop_operation_cut().
 */
enum hoop_launch_way hoop_operation_launch_way(const struct hoop_operation *operation,
                                               const struct hoop_request *request, bool kernels,
                                               struct hoop_told *ret);
/* Cuts the copies of a request, whose buffers are already in the staging's memory, into pieces that
 * overlap with it, if that pays. */
void hoop_operation_cut(const struct hoop_operation *operation, const struct hoop_request *request,
                        struct hoop_staging *staging);
/* OP_TRY: opens fresh memory (buffers.h), unless the call is launched, and announces again. */
enum hoop_poll hoop_operation_try(struct hoop_operation *operation);
/*
 * Waits until the device has finished the work launched for it and the rank has left the others'
 * buffers. Its driver calls this before it waits for those ranks. A running operation continues
 * afterwards, or has failed. False: the work was not over at the deadline.
 */
bool hoop_operation_leave_device(struct hoop_operation *operation, uint64_t deadline_ns);
/* Before a wait for kernels of other ranks here, which may be behind this operation's in a queue of
 * the device: lets go those that it launched, also if they were told nothing, or not all. */
void hoop_operation_let_kernels_go(struct hoop_operation *operation);

/* ---------------------------------------------------------------------------------------------- */

/*
 * Gives up a started operation after a failure, also one that failed by itself: when it returns
 * HOOP_OK nobody writes to its buffers any more. The comm's links must already be destroyed.
 * culprit: the rank at fault, which gets no time to finish a slice; -1: none. HOOP_TIMEOUT: a rank
 * that is stuck in the buffers cannot be kept out, as the message says; timeout_ms 0 waits for that
 * as long as it takes.
 */
hoop_result_t hoop_operation_cancel(struct hoop_operation *operation, int culprit,
                                    uint64_t timeout_ms);

/* What an operation waits for. */
enum hoop_awaited_what {
    HOOP_AWAITS_NOBODY,
    HOOP_AWAITS_END_BEFORE, /* from here to RECV: for a rank */
    HOOP_AWAITS_DATA,
    HOOP_AWAITS_ANNOUNCEMENT,
    HOOP_AWAITS_MEMORY,
    HOOP_AWAITS_ARRIVAL,
    HOOP_AWAITS_SEND, /* of mine, to a rank */
    HOOP_AWAITS_RECV,
    HOOP_AWAITS_FETCH, /* from here on copies and the device: for no rank */
    HOOP_AWAITS_DELIVERY,
    HOOP_AWAITS_DEVICE,
    HOOP_AWAITS_WHATS
};

/* The first of what it waits for. */
enum hoop_awaited_what hoop_operation_awaited(const struct hoop_operation *operation,
                                              uint32_t *ret_rank);
static inline bool hoop_awaited_is_of_rank(enum hoop_awaited_what what)
{
    return what >= HOOP_AWAITS_END_BEFORE && what <= HOOP_AWAITS_RECV;
}

/* "the data of rank 3". */
void hoop_awaited_describe(enum hoop_awaited_what what, uint32_t rank, char *buf, size_t bytes);

/* The operation and whom it waits for, for messages. */
void hoop_operation_describe(const struct hoop_operation *operation, char *buf, size_t bytes);

/* True: it cannot proceed before *ret_rank, for which left() is true, does something. Ranks over
 * links that notice by themselves when the peer leaves are not reported. */
bool hoop_operation_awaits(const struct hoop_operation *operation,
                           bool (*left)(void *arg, uint32_t rank), void *arg, uint32_t *ret_rank);

/* The plan that such an operation would get with mapped memory, and its hoop_plan_costs(). */
void hoop_operation_explain(const struct hoop_operation *operation,
                            const struct hoop_signature *signature, struct hoop_plan *ret,
                            uint64_t ret_ns[HOOP_ALGO_COUNT]);

/* The time in ns that the cost model predicts for a request as a whole. */
uint64_t hoop_operation_estimate(const struct hoop_operation *operation,
                                 const struct hoop_request *request);

#endif
