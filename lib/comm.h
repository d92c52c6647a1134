/*
 * A comm: birth, death, who drives it, its failure.
 *
 * Exactly one thread drives a comm at a time. The first thread that calls owns the comm's turn: it
 * says `inside` with a plain store. Any other thread takes the turn away from it for good
 * (`revoked`, then membarrier, then it waits until the owner is not inside), and from then on all
 * take tickets:
 *
 *     enter: t = next++ ; wait until serving == t         leave: serving = t + 1
 *
 * The owner's way is there because a locked instruction keeps the core from overlapping one small
 * operation's end with the next one's beginning (docs/performance.md). Abort and destroy take their
 * turn too: so they wait until the last call has left before they free.
 *
 * Failure. The first failure of any rank goes to the board, where everybody sees it; each rank's
 * driver then ends its operation, takes write access away from its peers, and keeps its own
 * sentence. What a dead rank had already delivered is used first: an operation fails only when it
 * cannot move. Each machine has a board of its own: whoever claims the failure record of his tells
 * the other machines.
 */
#ifndef HOOP_COMM_H
#define HOOP_COMM_H

#include "board.h"
#include "bootstrap.h"
#include "engine.h"
#include "operation.h"
#include "wait.h"

/* One end of a link of this comm. */
struct hoop_comm_link {
    struct hoop_link *link;
    uint32_t peer, lane;
    bool sending;
    bool dialled; /* its data connection was asked for */
};

/* The data connection of a link, or why there is none. */
struct hoop_comm_stream {
    struct hoop_comm_stream *next;
    uint32_t peer, lane;
    bool sending;
    int fd; /* owned; -1: see the failure */
    struct hoop_failure failure;
};

/* A peer's blob that came before its link was asked for. */
struct hoop_comm_blob {
    struct hoop_comm_blob *next;
    uint32_t from, lane;
    bool from_sends;
    struct hoop_blob blob;
};

/* How a region that was asked for was answered. Whoever still needs it looks; a late answer to what
 * another rank of this process brought in meanwhile is nobody's. */
struct hoop_comm_answer {
    struct hoop_comm_answer *next;
    uint32_t peer, generation;
    uint64_t region;
    struct hoop_failure failure; /* code HOOP_OK: it came */
};

/* A region of a peer that a link lives in. */
struct hoop_comm_import {
    uint32_t peer, generation;
    uint64_t region;
    bool used; /* mapped; to be given back. Else: asked for */
};

/* The last operations, for whoever asks why it hangs. */
#define HOOP_HISTORY 32u
struct hoop_comm_past {
    uint32_t sequence;
    hoop_result_t result; /* HOOP_IN_PROGRESS while it runs */
    struct hoop_signature signature;
};

struct hoop_comm {
    /* any thread */
    _Atomic uint32_t next, serving;
    _Atomic uintptr_t owner; /* whose turn needs no ticket; 0: nobody's yet */
    _Atomic uint32_t inside, revoked;
    _Atomic uint32_t waiting; /* an operation runs */
    _Atomic uint32_t aborted;
    uint64_t id; /* in this process: the order in which groups enter */
    uint32_t rank, n;
    char name[HOOP_COMM_NAME_BYTES];
    /* the driver */
    struct hoop_board board;
    struct hoop_engine engine;
    struct hoop_operation operation;
    struct hoop_comm_past history[HOOP_HISTORY];
    bool finalized;
    bool spans;          /* several machines: others hear of failures by control connections only */
    uint32_t dumps_seen; /* see comm_dump.h */
    uint64_t spin_ns;    /* see struct hoop_wait; 0: ranks outnumber CPUs */
    uint64_t op_timeout_ms;
    uint64_t deadline_ns; /* of the running operation, in a group */
    uint64_t left_ns;     /* since when it waits for a rank that has left; 0: it does not */
    struct hoop_agreement agreed;
    struct hoop_sleeper sleeper;
    struct hoop_comm_link *links;
    uint32_t n_links;
    struct hoop_comm_import *imports;
    uint32_t n_imports;
    struct hoop_failure failure; /* code HOOP_OK: works. Written once, before failed */
    _Atomic int failed;
    /* birth */
    struct hoop_member *member;
    struct hoop_job job;
    uint64_t init_timeout_ms;
    /* the service thread and the driver, under inbox_lock */
    pthread_mutex_t inbox_lock;
    struct hoop_comm_blob *inbox;
    struct hoop_comm_answer *answers;
    struct hoop_comm_stream *streams;
    bool board_ready;
    struct hoop_failure early; /* a loss before the board was laid out */
    uint8_t *early_gone;       /* [n] goodbyes before that */
};

/* Options after defaults, settings and config have been merged. */
struct hoop_comm_options {
    struct hoop_meeting meeting;
    bool serve;
    uint32_t n, rank;
    uint64_t init_timeout_ms, op_timeout_ms, dead_after_ms;
    struct hoop_agreement agreed;
    char name[HOOP_COMM_NAME_BYTES];
};

/* Begins a birth: the rank joins in the background. *ret is to be finished or destroyed. */
hoop_result_t hoop_comm_begin(const struct hoop_comm_options *options, struct hoop_comm **ret);
/* Waits until all ranks are in. On failure the comm is destroyed. */
hoop_result_t hoop_comm_complete(struct hoop_comm *comm);

/* Ends it: goodbye and free. Takes NULL and half-born ones. Waits for calls that are inside. */
void hoop_comm_end(struct hoop_comm *comm);

/* Takes the comm's turn, waits for it as long as it takes; gives it back. */
void hoop_comm_enter(struct hoop_comm *comm);
void hoop_comm_leave(struct hoop_comm *comm);

/* One operation, from the call to the result. Blocks. */
hoop_result_t hoop_comm_submit(struct hoop_comm *comm, const struct hoop_request *request);

/* Several, on one comm or many, comms at the same time, each comm's in order. Blocks. */
struct hoop_comm_work {
    struct hoop_comm *comm;
    struct hoop_request request;
};
hoop_result_t hoop_comm_submit_all(struct hoop_comm_work *work, size_t count);

/* Fails the comm on all ranks. Any thread. */
void hoop_comm_raise(struct hoop_comm *comm, hoop_result_t code, int rank, const char *format, ...)
    HOOP_PRINTF(4, 5);

/* HOOP_OK or the failure that ended the comm, with its sentence in *ret. Any thread. */
hoop_result_t hoop_comm_state(struct hoop_comm *comm, struct hoop_failure *ret);

#endif
