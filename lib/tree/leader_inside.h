/*
 * What a leader consists of; shared by the files that make it, and private to them.
 *
 *      leader.c    life, joins, failure, deadlines
 *      edge.c      its connections, and what may come along which of them when
 *      tree.c      its place among others: the root, parent and children
 *      handout.c   the roster, READY and GO
 *      flood.c     what goes along the edges once all are in
 *      root.c      a leader of leaders: numbers the machines
 *
 * Everything here belongs to the service thread. Memory is freed with the next turn of the loop
 * (hoop_free_later()), so that whoever is on the stack may still look at the state: OVER.
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
#define HOOP_NEIGHBOURS 3u /* in the tree: the parent, and two children */

/* Who is at the other end. A leader's children are ranks, a root's are machines. */
enum hoop_edge_kind {
    HOOP_EDGE_RANK = 1,
    HOOP_EDGE_MACHINE = 2,
    HOOP_EDGE_ROOT = 4,
    HOOP_EDGE_PARENT = 8,
    HOOP_EDGE_CHILD = 16 /* in the tree */
};

/* A connection of a leader. Those of ranks and machines are made as they come. */
struct hoop_edge {
    struct hoop_list_node node; /* a rank, a machine: in the leader's children */
    struct hoop_leader *leader;
    struct hoop_connection *connection; /* NULL: not there yet, or ended */
    enum hoop_edge_kind kind;
    uint32_t number;             /* of the rank or the machine; HOOP_NOBODY: not known yet */
    struct hoop_frame_info info; /* process 0: it has not said who it is */
    uint32_t n;                  /* a rank: how many may come here, by what it said */
    uint32_t joined;             /* a machine: how many ranks it brought */
    bool ready, left, told;      /* said READY; said goodbye; was told the failure */
    bool failed;                 /* said that its join has: its end is no death */
    int wake_fd;                 /* a rank's, of its first JOIN, until GO; -1 */
    uint64_t waiting_ns;         /* since when somebody waits there; HOOP_NEVER: nobody */
    bool told_waiting;           /* a neighbour: that somebody waits on this side */
    struct hoop_watched watched; /* RUNNING, among several machines */
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
    bool found;                 /* there was a root */
    struct hoop_edge root;
    struct hoop_edge neighbours[HOOP_NEIGHBOURS];
    struct hoop_endpoint *endpoint; /* for children */
    struct hoop_expectation children;
    struct hoop_address address; /* port 0 */
    uint32_t machine, machines;  /* machines 0: the root has not said so */
    bool sent_ready;
    struct hoop_failure feared; /* a neighbour ended; if nobody comes up with a better reason */
    /* RUNNING */
    struct hoop_rank_set left, dead; /* and the others were told */
    struct hoop_watcher watcher;
    bool raised;      /* a FAIL went by */
    bool comm_failed; /* that, or a death: nobody will begin anything new */
};

struct hoop_leader {
    struct hoop_list_node node; /* of all in this process */
    bool is_root;
    struct hoop_rendezvous rendezvous; /* without its file */
    struct hoop_endpoint *endpoint;    /* where children join; NULL: all are in */
    struct hoop_expectation expectation;
    struct hoop_timer *deadline, *moment;
    enum hoop_leader_state state;
    struct hoop_gather gather; /* of the children's joins; until GO */
    struct hoop_list_node children;
    uint32_t child_count;
    struct hoop_edge **via; /* [n], from the first JOIN on: who brought it; NULL: not here */
    uint32_t n;

    struct hoop_frame_roster roster;  /* n 0: not known yet */
    struct hoop_frame_entry *entries; /* [n], `known` of them are; of one machine: until GO */
    uint32_t known;
    uint32_t next_rank, handed, ready; /* ranks: to be handed the roster next; handed; ready */
    int segment;                       /* while it has to be sent */

    struct hoop_failure failure;
    uint32_t expected, told; /* FAILED: how many ranks may come, and how many know */
    struct hoop_rank_set knows;

    struct hoop_tree tree;        /* not a root's */
    struct hoop_edge **by_number; /* a root's: [machines], HANDING */
    uint32_t machines;
    struct hoop_file_task *post; /* a root's: at the rendezvous's file; NULL: there is none */
};

/* ---- leader.c ------------------------------------------------------------------------------ */

void hoop_leader_destroy(struct hoop_leader *leader);
/* Of this process, while children may come; NULL: none. */
struct hoop_leader *hoop_leader_find(const char *name, bool is_root);
/* From now on these children come in; opened gets the leader. */
void hoop_leader_expect(struct hoop_leader *leader, enum hoop_hello_kind kind,
                        struct hoop_endpoint *endpoint, struct hoop_expectation *expectation,
                        void (*opened)(void *arg, struct hoop_connection *connection));
/* Ends one that nobody needs any more, by its state. */
void hoop_leader_settle(struct hoop_leader *leader);

/* Fails the join of all. told: the other machines know, or cannot be told. It may be over then. */
void hoop_leader_fail(struct hoop_leader *leader, const struct hoop_failure *failure, bool told);
void hoop_leader_fail_with(struct hoop_leader *leader, hoop_result_t code, int rank,
                           const char *format, ...) HOOP_PRINTF(4, 5);
/* The same, with the thread's sentence. */
void hoop_leader_fail_by(struct hoop_leader *leader, hoop_result_t code);
/* "ranks 1, 3 of 8 (host h)": those that have joined here. */
void hoop_leader_describe_here(const struct hoop_leader *leader, char *ret_text, size_t bytes);

/* False: it does not belong here. */
typedef bool hoop_edge_take(struct hoop_edge *edge, const union hoop_frame *frame);
hoop_edge_take hoop_leader_take_join, hoop_leader_take_late, hoop_leader_take_reject;
void hoop_leader_lose_rank(struct hoop_edge *edge, const struct hoop_failure *why);

/* ---- edge.c -------------------------------------------------------------------------------- */

void hoop_edge_send(const struct hoop_edge *edge, const union hoop_frame *frame);
void hoop_edge_send_plain(const struct hoop_edge *edge, enum hoop_frame_type type);
void hoop_edge_say_info(const struct hoop_edge *edge);
/* Closes it. */
void hoop_edge_end(struct hoop_edge *edge);
/* A child: that, and forgets it. */
void hoop_edge_destroy(struct hoop_edge *edge);
bool hoop_edge_is_open(const struct hoop_edge *edge);
/* "machine 3 (host h, pid 7)"; "(pid 7) at 10.0.0.1:29500" of a root. */
void hoop_edge_describe(const struct hoop_edge *edge, char *ret_text, size_t bytes);
void hoop_edge_init(struct hoop_edge *edge, struct hoop_leader *leader, enum hoop_edge_kind kind);
void hoop_edge_adopt(struct hoop_edge *edge, struct hoop_connection *connection);
/* A child that comes: a rank or a machine. */
void hoop_edge_opened(void *arg, struct hoop_connection *connection);

/* ---- tree.c -------------------------------------------------------------------------------- */

/* To all open neighbours but one (NULL: to all); to the children among them. */
void hoop_tree_send(const struct hoop_tree *tree, const union hoop_frame *frame,
                    const struct hoop_edge *but);
void hoop_tree_send_down(const struct hoop_tree *tree, const union hoop_frame *frame);
uint32_t hoop_tree_open_count(const struct hoop_tree *tree);
/* All children that this machine must have are there and ready. */
bool hoop_tree_is_ready(const struct hoop_tree *tree);
void hoop_tree_init(struct hoop_leader *leader);
hoop_edge_take hoop_tree_take_place, hoop_tree_take_address;
/* Looks for the root until the deadline, which may have moved; or goes on with the newest join. */
void hoop_tree_join(struct hoop_leader *leader, const struct hoop_frame_join *join);
/* The others have to hear why. */
void hoop_tree_reject(struct hoop_leader *leader);
/* All ranks are on this machine: the root is told, when it is found, that it is not needed. */
void hoop_tree_excuse(struct hoop_leader *leader);
/* No child comes any more. */
void hoop_tree_shut(struct hoop_tree *tree);
/* Nobody is left to be told anything. */
bool hoop_tree_is_closed(const struct hoop_tree *tree);
void hoop_tree_close(struct hoop_tree *tree);

/* ---- handout.c ----------------------------------------------------------------------------- */

/* This leader has the joins of all, and these are its roster's entries. False: it has failed. */
bool hoop_handout_make(struct hoop_leader *leader);
/* Its head, and what is known of it; to a rank with all descriptors. */
void hoop_handout_send(const struct hoop_leader *leader, const struct hoop_edge *edge);
/* It is whole: hands it out to the ranks here. */
void hoop_handout_begin(struct hoop_leader *leader);
hoop_edge_take hoop_handout_take_roster, hoop_handout_take_part, hoop_handout_take_ready,
    hoop_handout_take_go;

/* ---- flood.c ------------------------------------------------------------------------------- */

/* All that can fail: when the roster's head is there. A failure's sentence is the thread's. */
hoop_result_t hoop_flood_prepare(struct hoop_leader *leader);
void hoop_flood_start(struct hoop_leader *leader);
hoop_edge_take hoop_flood_take, hoop_flood_take_reject;
/* A rank's connection has ended; that of a neighbour, with its process and its ranks. */
void hoop_flood_lose_rank(struct hoop_edge *edge);
void hoop_flood_lose_neighbour(struct hoop_edge *edge);
/* Every rank has said goodbye, or is dead. */
bool hoop_flood_is_over(const struct hoop_leader *leader);
/* Somebody may wait for that: see hoop_tree_on_idle(). */
void hoop_flood_tell_idle(void);
extern struct hoop_list_node hoop_leaders;

/* ---- root.c -------------------------------------------------------------------------------- */

/* Opens its endpoint, takes machines in, and says where at the rendezvous's file. */
hoop_result_t hoop_root_start(struct hoop_leader *root, const struct hoop_rendezvous *rendezvous);
void hoop_root_complete(struct hoop_leader *root);
/* The deadline has come, or a moment later. */
void hoop_root_due(struct hoop_leader *root);
void hoop_root_lose_machine(struct hoop_edge *edge, const struct hoop_failure *why);
hoop_edge_take hoop_root_take_ready;

#endif
