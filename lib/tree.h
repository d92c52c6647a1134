/*
 * A machine's place among the others of one comm: what its rendezvous has to do with the hub and
 * with its neighbours in the tree of machines. Only meetings with addresses have one.
 *
 *      SEEKING --a hub admits--> TOLD: MACHINE and the JOINs so far are on their way
 *              --TREE--> BRANCHING: connect to the parent, take in children (hoop_tree_admit)
 *              --ROSTER, parts--> pass them on to the children and to the owner
 *              --owner is ready, and all children: READY to the parent (machine 0: to the hub, and
 *                GO to the children)
 *              --GO--> RUNNING: floods, blobs, beats
 *
 * Service thread only. The owner may give the tree up in any callback, by one of the three
 * functions that say so; it may not use it afterwards, and is not called any more.
 */
#ifndef HOOP_TREE_H
#define HOOP_TREE_H

#include "bootstrap.h"
#include "control.h"

struct hoop_tree;

struct hoop_tree_owner {
    /* The roster arrives: its head once, then all parts in order. */
    void (*roster)(void *arg, const struct hoop_frame_roster *roster);
    void (*part)(void *arg, const struct hoop_frame_roster_part *part);
    /* All machines are ready. */
    void (*go)(void *arg);
    /* The join has failed, here or elsewhere; or the hub was not found in time. The tree is not the
     * owner's any more. */
    void (*failed)(void *arg, const struct hoop_failure *failure);
    /* From elsewhere, for the ranks of this machine: LOST, GONE, FAIL, or a BLOB to one of them. */
    void (*message)(void *arg, const union hoop_frame *frame);
    /* Is an operation of a rank of this machine waiting? Since when, ns; HOOP_NEVER: none is.
     * RUNNING only. */
    uint64_t (*waiting_since)(void *arg);
};

/* The sentence goes to *failure. No callback comes before hoop_tree_join(). */
hoop_result_t hoop_tree_create(const struct hoop_meeting *meeting,
                               const struct hoop_tree_owner *owner, void *arg,
                               struct hoop_tree **ret_tree, struct hoop_failure *failure);

/* A rank of this machine has joined. The earliest deadline of these bounds the search. */
void hoop_tree_join(struct hoop_tree *tree, const struct hoop_frame_join *join);
/* All ranks of this machine are ready. */
void hoop_tree_ready(struct hoop_tree *tree);
/* To all other machines (LOST, GONE, FAIL); or where its `to` lives (BLOB). */
void hoop_tree_send(struct hoop_tree *tree, const union hoop_frame *frame);

/* The same question to all other machines. RUNNING only. */
uint64_t hoop_tree_waiting_since(const struct hoop_tree *tree);

/* Gives it up at once. NULL is allowed. */
void hoop_tree_destroy(struct hoop_tree *tree);
/* Gives it up because this machine cannot go on: before GO. All others are told, then it ends. */
void hoop_tree_reject(struct hoop_tree *tree, const struct hoop_failure *failure);
/* Gives it up because no rank is left here: after GO. It ends when no other machine needs it. */
void hoop_tree_leave(struct hoop_tree *tree);

/* This machine's number, and its address in the tree, port 0: where the others reach it. From the
 * roster's head on. */
uint32_t hoop_tree_machine(const struct hoop_tree *tree);
struct hoop_address hoop_tree_address(const struct hoop_tree *tree);

/*
 * Completes the job (borrowed until then) as soon as no tree of this process is RUNNING for a comm
 * that has not failed, or at once: a process that ends earlier would cut the others off from each
 * other. One job at a time.
 */
void hoop_tree_on_idle(struct hoop_job *job);

/* For doors: branches. */
bool hoop_tree_admit(const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                     struct hoop_failure *ret_failure);
void hoop_tree_opened(struct hoop_control *control);

#endif
