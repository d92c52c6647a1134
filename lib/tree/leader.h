/*
 * The leader: one process's side of a join. There is one on each machine, which gathers the ranks
 * there, and hands the roster out to them. Where the ranks are on several machines, the leaders
 * join at the root, which is the same thing one level up, and which arranges them as a tree; down
 * it travel the roster and GO, up it READY, and along it, for the comm's life, what all must hear:
 * deaths, goodbyes, failures.
 *
 *      rank -- JOIN -->  leader  -- JOIN -->  root
 *                               <-- PLACE --          which machine am I, who is my parent?
 *           <- ROSTER -        <- ROSTER --           (only to machine 0; else from the parent)
 *           -- READY -->       -- READY -->           (only from machine 0; else to the parent)
 *           <---- GO --        <---- GO --            from the parent; the root is over
 *
 * On one machine the leader itself has the joins of all, and nobody is above it. It does not know
 * whether it is in a process that has a rank.
 *
 * | state     | what comes                    | then                                            |
 * |-----------|-------------------------------|-------------------------------------------------|
 * | GATHERING | JOIN of a child               | taken, or all fail; passed on to the root       |
 * |           | the last JOIN                 | nobody above: HANDING; a root: PLACE to each    |
 * |           |                               | machine, ROSTER to machine 0: HANDING           |
 * |           | PLACE of the root             | dials the parent; machine 0 has none            |
 * |           | ROSTER                        | HANDING                                         |
 * | HANDING   | ROSTER_PART                   | on to the children in the tree; when it is      |
 * |           |                               | whole, to the ranks here                        |
 * |           | READY of all below            | READY to above; nobody above: GO                |
 * |           | GO of above                   | on to all below: RUNNING. A root is over: READY |
 * | RUNNING   | DEAD LEFT FAIL BEAT           | to whom it concerns (flood.c)                   |
 * |           | REJECT of a rank, a neighbour | its join has failed, and so the comm: FAIL      |
 * |           | no rank is left here          | over, when no other machine needs it            |
 * | FAILED    | JOIN                          | told the reason; over when all know, or when    |
 * |           |                               | the join could not have lasted longer           |
 *
 * From GATHERING and HANDING a REJECT from anywhere, the end of a connection and the deadline
 * lead to FAILED: every rank is told the same, late ones too.
 *
 * Service thread only. A leader lives from its first use until its last rank has gone.
 */
#ifndef HOOP_LEADER_H
#define HOOP_LEADER_H

#include "control/connection.h"
#include "rendezvous/rendezvous.h"
#include "runtime/service.h"

/*
 * The ladder of deadlines of a join that d, the earliest deadline of its ranks, ends. Who knows
 * more speaks first, so that the sentence that all hear is the best there is:
 *
 *      d - min(2 s, left / 4)   a leader gives up reaching its parent in the tree: its reason still
 *                               has to reach the others
 *      d                        who has the joins of all (the root; on one machine the leader) says
 *                               which ranks are missing; a leader, which of its ranks is not ready
 *      d + 250 ms               the root says which machines are not ready: a leader knows of ranks
 *      d + 500 ms               a leader gives the root up
 *      d + 1 s                  a rank gives its leader up
 *      d + 10 s                 the caller gives the service thread up (comm/comm.c)
 */
#define HOOP_PARENT_SPARE_MS 2000u
#define HOOP_ROOT_GRACE_MS 250u
#define HOOP_LEADER_GRACE_MS 500u
#define HOOP_RANK_GRACE_MS 1000u

/* For a reason to arrive: when a neighbour ended, the root may know why; when a leader has told the
 * root why it cannot go on, the root tells all. */
#define HOOP_MOMENT_MS 1000u

/*
 * The name that a rendezvous's leader on this machine has: the rendezvous's own. Where there may be
 * several machines, one for each HOOP_HOSTID, so that one machine can play several.
 */
hoop_result_t hoop_leader_place(const struct hoop_rendezvous *rendezvous, struct hoop_place *ret);

/* Serves this rendezvous on this machine; nothing to do if this process does already.
 * HOOP_INVALID_USAGE: another process does. */
hoop_result_t hoop_leader_serve(const struct hoop_rendezvous *rendezvous);

/* What the process does that serves a rendezvous: its root where there may be several machines,
 * whose place becomes the first of its addresses; else its leader. */
hoop_result_t hoop_leader_begin(struct hoop_rendezvous *rendezvous);

/*
 * The way to the leader in this process: the rank's end of a connection within it, which needs no
 * socket. HOOP_AGAIN: it is not here, or not with the secret that the rendezvous has.
 */
hoop_result_t hoop_leader_reach(const struct hoop_rendezvous *rendezvous, uint32_t rank,
                                struct hoop_connection **ret_end);

/*
 * Serves this rendezvous as its root, at the first of its addresses whose ip is this machine's and
 * whose port (or port range, where it is 0) can be had; nothing to do if this process does already.
 * Loopback is taken only where the rendezvous has no other addresses. A failure's sentence names
 * every address that was tried and why not. *ret_address: where it is.
 */
hoop_result_t hoop_root_serve(const struct hoop_rendezvous *rendezvous,
                              struct hoop_address *ret_address);

/*
 * The ranks of the rendezvous of this name are in, by way of the root or without it (all on one
 * machine): ends it without a word. Nothing if this process does not serve it.
 */
void hoop_root_retire(const char *name);

/* The same, and of the leader of that name, if nobody has come yet. */
void hoop_leader_retire(const char *name);

/*
 * Completes the job (borrowed until then) as soon as no leader of this process connects machines
 * for a comm that has not failed, or at once: a process that ends earlier would cut the others off
 * from each other. One job at a time; NULL: none any more.
 */
void hoop_tree_on_idle(struct hoop_job *job);

#endif
