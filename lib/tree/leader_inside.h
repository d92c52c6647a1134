/*
 * What a leader consists of; private to the files that make it up.
 *
 *      leader.c    life, joins, failure, deadlines
 *      edge.c      its connections, and which messages may come when
 *      tree.c      its place among other machines: the root, parent and children
 *      handout.c   the roster, READY and GO
 *      flood.c     what travels along the edges once all are in
 *      root.c      a leader of leaders, which numbers the machines
 *
 * All of it belongs to the service thread. Memory is freed in the loop's next iteration
 * (hoop_free_later()), so that callers up the stack can see the state OVER.
 */
#ifndef HOOP_LEADER_INSIDE_H
#define HOOP_LEADER_INSIDE_H

#include "base/list.h"
#include "control/dialer.h"
#include "control/endpoint.h"
#include "rendezvous/rendezvous.h"
#include "runtime/watch.h"
#include "tree/detector.h"
#include "tree/gather.h"

#define HOOP_NOBODY UINT32_MAX
#define HOOP_NEIGHBOURS 3u /* in the tree: the parent and two children */

/* Who is at the other end. A leader's children are ranks, a root's are machines. */
enum hoop_edge_kind {
    HOOP_EDGE_RANK = 1,
    HOOP_EDGE_MACHINE = 2,
    HOOP_EDGE_ROOT = 4,
    HOOP_EDGE_PARENT = 8,
    HOOP_EDGE_CHILD = 16 /* in the tree */
};

/* A connection of a leader. Edges of ranks and machines are allocated as they come. */
struct hoop_edge {
    struct hoop_list_node node; /* a rank or machine: in the leader's children */
    struct hoop_leader *leader;
    struct hoop_connection *connection; /* NULL: none yet, or ended */
    enum hoop_edge_kind kind;
    uint32_t number;             /* of the rank or machine; HOOP_NOBODY: not known yet */
    struct hoop_frame_info info; /* process 0: not received yet */
    uint32_t claims;             /* a rank: which one, by its hello; number once it has joined */
    uint32_t n;                  /* a rank: most ranks that may come here, by its word */
    uint32_t joined;             /* a machine: number of ranks that it brought */
    bool ready, left, told;      /* said READY; said goodbye; was told the failure */
    bool failed;                 /* it said that its join failed: its end is no death */
    int wake_fd;                 /* a rank's, from its first JOIN until GO; else -1 */
    uint64_t waiting_ns;         /* since when somebody waits there, or HOOP_NEVER */
    bool told_waiting;           /* a neighbour knows that somebody waits here */
    struct hoop_watched watched; /* only if RUNNING with several machines */
};

enum hoop_leader_state {
    HOOP_LEADER_GATHERING = 1,
    HOOP_LEADER_HANDING = 2,
    HOOP_LEADER_RUNNING = 4,
    HOOP_LEADER_FAILED = 8,
    HOOP_LEADER_OVER = 16
};

/* A leader's place among those of other machines. */
struct hoop_tree {
    struct hoop_dialer *dialer; /* for the root, then for the parent */
    struct hoop_lookup *lookup; /* of the root's name, while it is dialled */
    bool found;                 /* the root was reached */
    struct hoop_edge root;
    struct hoop_edge neighbours[HOOP_NEIGHBOURS];
    struct hoop_endpoint *endpoint; /* for children */
    struct hoop_expectation children;
    uint32_t machine, machines; /* machines is 0 until PLACE has come */
    bool sent_ready;
    struct hoop_failure feared; /* a neighbour ended: the failure, unless a better reason comes */
    /* Only if RUNNING: */
    struct hoop_rank_set left, dead; /* as the other machines were told */
    struct hoop_watcher watcher;
    bool raised;      /* a FAIL was passed on */
    bool comm_failed; /* after a FAIL or a death: no rank will begin anything new */
};

struct hoop_leader {
    struct hoop_list_node node; /* in hoop_leaders */
    bool is_root;
    struct hoop_rendezvous rendezvous; /* its file is NULL */
    struct hoop_endpoint *endpoint;    /* where children join; NULL once all are in */
    struct hoop_expectation expectation;
    struct hoop_timer *deadline, *moment;
    enum hoop_leader_state state;
    struct hoop_gather gather; /* of the children's joins; until GO */
    struct hoop_list_node children;
    uint32_t child_count;
    struct hoop_edge **via; /* [n], from the first JOIN on: who brought it, or NULL */
    uint32_t n;

    struct hoop_frame_roster roster;  /* n is 0 until it is known */
    struct hoop_frame_entry *entries; /* [n], `known` are set; one machine: only until GO */
    uint32_t known;
    uint32_t next_rank, handed, ready; /* ranks: next to get the roster; that got it; ready */
    int segment;                       /* descriptor, until GO */

    struct hoop_failure failure;
    uint32_t expected, told; /* FAILED: most ranks that may come, and how many know */
    struct hoop_rank_set knows;

    struct hoop_tree tree;        /* unused in a root */
    struct hoop_edge **by_number; /* a root's: [machines], HANDING */
    uint32_t machines;
    struct hoop_file_task *post; /* a root's: publishes at the rendezvous's file, or NULL */
};

/* ---- leader.c ------------------------------------------------------------------------------ */

void hoop_leader_destroy(struct hoop_leader *leader);
/* From now on accepts these children; opened() gets the leader. */
void hoop_leader_expect(struct hoop_leader *leader, enum hoop_hello_kind kind,
                        struct hoop_endpoint *endpoint, struct hoop_expectation *expectation,
                        void (*opened)(void *arg, struct hoop_connection *connection));
/* Destroys the leader if nobody needs it any more. */
void hoop_leader_settle(struct hoop_leader *leader);

/* Fails the join of all; may destroy the leader. told: other machines know, or cannot be told. */
void hoop_leader_fail(struct hoop_leader *leader, const struct hoop_failure *failure, bool told);
void hoop_leader_fail_with(struct hoop_leader *leader, hoop_result_t code, int rank,
                           const char *format, ...) HOOP_PRINTF(4, 5);
/* The same because of this process, with the thread's sentence. */
void hoop_leader_fail_by(struct hoop_leader *leader, hoop_result_t code);
/* "the leader (pid 7, host h): why" */
void hoop_leader_blame(const struct hoop_leader *leader, hoop_result_t code, const char *why,
                       struct hoop_failure *ret);
/* "ranks 1, 3 of 8 (host h)": the ranks that have joined here. */
void hoop_leader_describe_here(const struct hoop_leader *leader, char *ret_text, size_t bytes);

/* Handles a message. Returns false if it is not allowed. */
typedef bool hoop_edge_take(struct hoop_edge *edge, const union hoop_frame *frame);
hoop_edge_take hoop_leader_take_join, hoop_leader_take_late, hoop_leader_take_reject;
void hoop_leader_lose_rank(struct hoop_edge *edge, const char *who, const struct hoop_failure *why);

/* ---- edge.c -------------------------------------------------------------------------------- */

void hoop_edge_send(const struct hoop_edge *edge, const union hoop_frame *frame);
void hoop_edge_say_ready(const struct hoop_edge *edge);
void hoop_edge_say_info(const struct hoop_edge *edge);
/* Closes the connection. */
void hoop_edge_end(struct hoop_edge *edge);
/* A child: closes the connection and frees the edge. */
void hoop_edge_destroy(struct hoop_edge *edge);
bool hoop_edge_is_open(const struct hoop_edge *edge);
/* "machine 3 (host h, pid 7)"; "rank 3 (pid 7, host h)", or before its join "rank 3"; for a root
 * "(pid 7) at 10.0.0.1:29500". */
void hoop_edge_describe(const struct hoop_edge *edge, char *ret_text, size_t bytes);
void hoop_edge_init(struct hoop_edge *edge, struct hoop_leader *leader, enum hoop_edge_kind kind);
void hoop_edge_adopt(struct hoop_edge *edge, struct hoop_connection *connection);
/* A child, rank or machine, has connected. */
void hoop_edge_opened(void *arg, struct hoop_connection *connection);

/* ---- tree.c -------------------------------------------------------------------------------- */

/* Sends to all open neighbours except `but` (may be NULL); to the children only. */
void hoop_tree_send(const struct hoop_tree *tree, const union hoop_frame *frame,
                    const struct hoop_edge *but);
void hoop_tree_send_down(const struct hoop_tree *tree, const union hoop_frame *frame);
uint32_t hoop_tree_open_count(const struct hoop_tree *tree);
/* Are all children that this machine must have connected and ready? */
bool hoop_tree_is_ready(const struct hoop_tree *tree);
void hoop_tree_init(struct hoop_leader *leader);
hoop_edge_take hoop_tree_take_place, hoop_tree_take_address;
/* After a join: looks for the root until the deadline, which may have moved, or if the root is
 * found goes on with this join. */
void hoop_tree_join(struct hoop_leader *leader, const struct hoop_frame_join *join);
/* Tells the other machines the failure. */
void hoop_tree_reject(struct hoop_leader *leader);
/* All ranks are on this machine: tells the root, once it is found, that it is not needed. */
void hoop_tree_excuse(struct hoop_leader *leader);
/* Accepts no more children. */
void hoop_tree_shut(struct hoop_tree *tree);
/* Is nobody left who has to be told anything? */
bool hoop_tree_is_closed(const struct hoop_tree *tree);
void hoop_tree_close(struct hoop_tree *tree);

/* ---- handout.c ----------------------------------------------------------------------------- */

/* Makes the roster's entries from the joins of all ranks. False: the leader has failed. */
bool hoop_handout_make(struct hoop_leader *leader);
/* Sends the roster's head and what is known of the entries; to a rank also all descriptors. */
void hoop_handout_send(const struct hoop_leader *leader, const struct hoop_edge *edge);
/* Begins to hand out the complete roster to the ranks here. */
void hoop_handout_begin(struct hoop_leader *leader);
hoop_edge_take hoop_handout_take_roster, hoop_handout_take_part, hoop_handout_take_ready,
    hoop_handout_take_go;

/* ---- flood.c ------------------------------------------------------------------------------- */

/* Does all that can fail, once the roster's head is known; with the thread's sentence. */
hoop_result_t hoop_flood_prepare(struct hoop_leader *leader);
void hoop_flood_start(struct hoop_leader *leader);
hoop_edge_take hoop_flood_take, hoop_flood_take_reject;
/* The connection of a rank has ended; that of a neighbour, whose process and its ranks are lost. */
void hoop_flood_lose_rank(struct hoop_edge *edge);
void hoop_flood_lose_neighbour(struct hoop_edge *edge);
/* Has every rank said goodbye or died? */
bool hoop_flood_is_over(const struct hoop_leader *leader);
/* A connection broke because of this process, with the thread's sentence: so the comm fails. */
void hoop_flood_fail_by(struct hoop_edge *edge, hoop_result_t code);
/* Completes the job of hoop_tree_on_idle() if there is one and its condition holds. */
void hoop_flood_tell_idle(void);
extern struct hoop_list_node hoop_leaders;

/* ---- root.c -------------------------------------------------------------------------------- */

/* Opens its endpoint, expects machines, and publishes its address at the rendezvous's file. */
hoop_result_t hoop_root_start(struct hoop_leader *root, const struct hoop_rendezvous *rendezvous);
void hoop_root_complete(struct hoop_leader *root);
/* The deadline has come, or the grace time after it. */
void hoop_root_due(struct hoop_leader *root);
void hoop_root_lose_machine(struct hoop_edge *edge, const struct hoop_failure *why);
hoop_edge_take hoop_root_take_ready;

#endif
