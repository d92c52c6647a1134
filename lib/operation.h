/*
 * One operation, from its announcement to its end.
 *
 *   state      what happens                               next
 *   (start)    sequence and signature; announce, with     GATHER, ANNOUNCED; DONE if n is 1
 *              the data if oneshot; where all go over     RUN
 *              links, the first chunk announces it
 *   GATHER     fold everyone's published input            DONE
 *   ANNOUNCED  see all announcements; choose the plan     RESOLVE (direct), RUN
 *   RESOLVE    map the peers' regions                     RUN
 *   RUN        steps, by the board or by the engine       DONE
 *   DONE       the result is in `failure`
 *
 * hoop_operation_poll() never waits. One thread at a time, the one that drives the comm.
 */
#ifndef HOOP_OPERATION_H
#define HOOP_OPERATION_H

#include "board.h"
#include "engine.h"
#include "plan.h"

/* What the caller asked for; arguments are checked. */
struct hoop_request {
    struct hoop_signature signature;
    const void *in;
    void *out;
};

/* What an operation needs of its comm. */
struct hoop_operation_env {
    struct hoop_board *board;
    struct hoop_engine *engine;
    struct hoop_member *member;
    const struct hoop_agreement *agreed;
    bool one_process; /* all ranks are threads of this process */
    bool over_links;  /* every operation goes over links: the ranks do not all share memory */
    uint32_t looks;   /* at an announcement in one poll: 0 where ranks outnumber CPUs */
    hoop_result_t (*link)(void *arg, uint32_t peer, uint32_t lane, bool sending,
                          struct hoop_link **ret_link);
    /* Has a region that was asked for been answered? Then how (code HOOP_OK: it came), once. */
    bool (*answered)(void *arg, uint32_t peer, uint64_t region, uint32_t generation,
                     struct hoop_failure *ret);
    void *arg;
};

/* A peer's buffer in use by the running operation. */
struct hoop_operation_use {
    uint64_t region; /* 0: nothing to give back */
    uint32_t generation;
    bool asked; /* for its descriptor */
};

struct hoop_operation {
    struct hoop_operation_env env;
    struct hoop_request request;
    struct hoop_plan plan;
    struct hoop_board_op steps;
    struct hoop_failure failure;
    uint8_t state;
    bool announced; /* peers know where my buffers are */
    bool mapped;    /* my out lies in a region */
    uint32_t cursor;
    uint64_t bytes;
    uint32_t type_bytes;
    /* [n] each, allocated with the comm */
    const void **ins;
    void **outs;
    struct hoop_operation_use *in_use, *out_use;
    void *scratch; /* for algorithms over links; grows */
    size_t scratch_bytes;
};

/* Prepares the storage of operations of one comm; init and finish are the comm's. */
hoop_result_t hoop_operation_init(struct hoop_operation *operation,
                                  const struct hoop_operation_env *env);
void hoop_operation_finish(struct hoop_operation *operation);

/* Begins; buffers are borrowed until a poll says DONE or hoop_operation_cancel() returned. */
void hoop_operation_start(struct hoop_operation *operation, const struct hoop_request *request);
enum hoop_poll hoop_operation_poll(struct hoop_operation *operation);

/*
 * Gives up a started operation after a failure: when it returns nobody writes to its buffers any
 * more. The comm's links must be destroyed already. Also for operations that failed by themselves.
 * culprit: the rank at fault, which is given no time to finish what it writes; -1: none.
 */
void hoop_operation_cancel(struct hoop_operation *operation, int culprit);

/* What it is and whom it waits for, for sentences. */
void hoop_operation_describe(const struct hoop_operation *operation, char *buf, size_t bytes);

/*
 * True: it cannot move before *ret_rank, for which left() is true, does something. A link that
 * notices by itself how its peer leaves is not asked.
 */
bool hoop_operation_awaits(const struct hoop_operation *operation,
                           bool (*left)(void *arg, uint32_t rank), void *arg, uint32_t *ret_rank);

/* The plan that these arguments would get on mapped memory. */
void hoop_operation_explain(const struct hoop_operation *operation, uint64_t count,
                            uint32_t type_bytes, struct hoop_plan *ret);

#endif
