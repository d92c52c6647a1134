/*
 * What a tree consists of; shared by the four files that make it, and private to them.
 *
 *      tree.c          the machine's way in: roster, READY and GO; the end
 *      tree_hub.c      its connection to the hub
 *      tree_branch.c   its connections to parent and children
 *      tree_route.c    what goes along them once all are in
 *
 * Everything here belongs to the service thread. An ended tree (OVER) has no connections, no timer
 * but one, and no owner; its memory goes with the next turn of the loop, so that whoever is on the
 * stack may still look at its state.
 */
#ifndef HOOP_TREE_INSIDE_H
#define HOOP_TREE_INSIDE_H

#include "door.h"
#include "search.h"
#include "tree.h"
#include "watch.h"

#define HOOP_TREE_BRANCHES 3      /* the parent, and two children */
#define HOOP_TREE_MOMENT_MS 1000u /* for a reason to arrive */

enum hoop_tree_state {
    HOOP_TREE_SEEKING,
    HOOP_TREE_TOLD,
    HOOP_TREE_BRANCHING,
    HOOP_TREE_RUNNING,
    HOOP_TREE_REJECTING, /* given up: the others have to hear why */
    HOOP_TREE_OVER
};

/* A neighbour in the tree. */
struct hoop_branch {
    struct hoop_tree *tree;
    struct hoop_control *control; /* NULL: not there yet, or ended */
    uint32_t machine;
    uint64_t process; /* of its GATE; 0: it has not come */
    int32_t pid;
    bool ready;  /* a child: READY came */
    bool silent; /* for too long, which was said */
    uint64_t heard_ns;
    uint64_t waiting_ns; /* somebody there, or beyond it, waits; HOOP_NEVER: nobody does */
};

/* What there is to know of a rank once all are in. */
struct hoop_tree_rank {
    uint64_t process;
    uint16_t machine;
    bool gone, lost; /* and the others were told */
};

/* A join of this machine, to be passed on. */
struct hoop_tree_join {
    uint64_t deadline_ns;
    struct hoop_frame_join frame;
};

struct hoop_tree {
    struct hoop_tree *next;
    struct hoop_meeting meeting; /* without its file */
    const struct hoop_tree_owner *owner;
    void *arg;
    bool owned; /* false: given up */
    enum hoop_tree_state state;
    struct hoop_timer *timer;   /* deadlines; RUNNING: beats */
    struct hoop_search *search; /* for the hub, then for the parent */
    struct hoop_control *hub;   /* NULL: not found yet, or ended */
    bool found;                 /* there was a hub */
    int32_t hub_pid;            /* of its process, on its machine; 0: it has not said so */
    struct hoop_door *door;
    struct hoop_address address;      /* port 0 */
    uint64_t timeout_ms, deadline_ns; /* HOOP_NEVER: nobody has joined */
    struct hoop_tree_join *joins;     /* [join_count] of this machine, until GO */
    uint32_t join_count, join_size;

    uint32_t machine, machines; /* from BRANCHING on */
    struct hoop_branch branches[HOOP_TREE_BRANCHES];
    struct hoop_frame_roster roster;  /* n 0: it has not come */
    struct hoop_frame_entry *entries; /* [n], `told` of them are known; until GO */
    struct hoop_tree_rank *ranks;     /* [n] */
    uint32_t told;
    bool ready;       /* the owner */
    bool sent_ready;  /* to the parent, or to the hub */
    bool raised;      /* a FAIL went by */
    bool comm_failed; /* that, or a LOST: nobody will begin anything new */
    uint64_t beat_ms, beat_ns;
    struct hoop_failure failure; /* REJECTING: why; BRANCHING: of a branch that ended, if nobody
                                    comes up with a better reason */
};

/* ---- tree.c ------------------------------------------------------------------------------- */

extern struct hoop_tree *hoop_trees; /* of this process, but those that are over */

/* "machine 3 (host h, pid 7)" */
void hoop_tree_describe(const struct hoop_tree *tree, const struct hoop_branch *branch,
                        char *ret_text, size_t bytes);

/* "(pid 7) at 10.0.0.1:29500", or without the pid if it did not say. There is a hub. */
#define HOOP_TREE_HUB_BYTES (HOOP_ADDRESS_TEXT_BYTES + 24)
void hoop_tree_describe_hub(const struct hoop_tree *tree, char ret_text[HOOP_TREE_HUB_BYTES]);

/* "ranks 1, 3 of 8 (host h)": those of this machine that have joined. Before GO. */
void hoop_tree_describe_here(const struct hoop_tree *tree, char *ret_text, size_t bytes);

/* The join has failed by what happened here: tells the owner and all others, and ends the tree. */
void hoop_tree_fail(struct hoop_tree *tree, hoop_result_t code, const char *format, ...)
    HOOP_PRINTF(3, 4);
/* The same, when all others know already, or cannot be told. */
void hoop_tree_fail_told(struct hoop_tree *tree, const struct hoop_failure *failure);
/* REJECTING: says why, to the hub or, without it, along the branches. */
void hoop_tree_send_reject(struct hoop_tree *tree);
/* A branch has ended before all were in: waits a moment for the hub, which may know more. */
void hoop_tree_fear(struct hoop_tree *tree, hoop_result_t code, const char *why);

/* Until the deadline, and a little longer: the hub knows more, and shall speak first. */
void hoop_tree_await(struct hoop_tree *tree);

void hoop_tree_take_roster(struct hoop_tree *tree, const struct hoop_frame_roster *roster);
void hoop_tree_take_part(struct hoop_tree *tree, const struct hoop_frame_roster_part *part);
/* Says READY if all are, this machine and its children. */
void hoop_tree_try_ready(struct hoop_tree *tree);
void hoop_tree_take_go(struct hoop_tree *tree);
/* Somebody may wait for that: see hoop_tree_on_idle(). */
void hoop_tree_tell_idle(void);
/* Ends a tree that was given up and that nobody needs any more. */
void hoop_tree_settle(struct hoop_tree *tree);

/* ---- tree_hub.c --------------------------------------------------------------------------- */

hoop_result_t hoop_tree_seek_hub(struct hoop_tree *tree);
void hoop_tree_say_join(struct hoop_tree *tree, const struct hoop_tree_join *join);

/* ---- tree_branch.c ------------------------------------------------------------------------ */

/* TREE has come: looks for the parent, if there is one; greets the children that were faster. */
void hoop_branch_begin(struct hoop_tree *tree, const struct hoop_address *parent);
/* All children that this machine must have are there and ready. */
bool hoop_branch_all_ready(const struct hoop_tree *tree);
/* To all open branches but one (NULL: to all). */
void hoop_branch_send_all(const struct hoop_tree *tree, const union hoop_frame *frame,
                          const struct hoop_branch *but);
/* To the children. */
void hoop_branch_send_down(const struct hoop_tree *tree, const union hoop_frame *frame);
uint32_t hoop_branch_open_count(const struct hoop_tree *tree);

/* ---- tree_route.c ------------------------------------------------------------------------- */

void hoop_route_start(struct hoop_tree *tree);
void hoop_route_beat(struct hoop_tree *tree);
/* What came along a branch (NULL: from the owner). False: it does not belong here. */
bool hoop_route_take(struct hoop_tree *tree, const union hoop_frame *frame,
                     struct hoop_branch *from);
/* The process at the other end is lost, with its ranks. why completes "rank 3 (...)". */
void hoop_route_lose(struct hoop_tree *tree, const struct hoop_branch *branch, const char *why);
/* Since when somebody beyond a branch has been waiting, any but this one. HOOP_NEVER: nobody is. */
uint64_t hoop_route_waiting_since(const struct hoop_tree *tree, const struct hoop_branch *but);
/* Every rank has said goodbye, or is lost. */
bool hoop_route_is_over(const struct hoop_tree *tree);

#endif
