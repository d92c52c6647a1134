/*
 * The leader: one process's side of a join. Each machine has one, which gathers the ranks there and
 * hands out the roster to them. If the ranks are on several machines the leaders join at the root,
 * which is a leader one level up and arranges them as a tree. Roster and GO travel down the tree,
 * READY travels up, and for the rest of the comm's life the tree carries what all ranks must hear:
 * deaths, goodbyes, failures.
 *
 *      rank -- JOIN -->  leader  -- JOIN -->  root
 *                               <-- PLACE --          which machine am I, who is my parent?
 *           <- ROSTER -        <- ROSTER --           (only to machine 0; else from the parent)
 *           -- READY -->       -- READY -->           (only from machine 0; else to the parent)
 *           <---- GO --        <---- GO --            from the parent; the root ends
 *
 * On one machine the leader itself has all joins, and nobody is above it. A leader does not know
 * whether its process has a rank.
 *
 * | state     | what comes                    | then                                            |
 * |-----------|-------------------------------|-------------------------------------------------|
 * | GATHERING | JOIN of a child               | taken, or all fail; passed on to the root       |
 * |           | the last JOIN                 | nobody above: HANDING; a root: PLACE to each    |
 * |           |                               | machine, ROSTER to machine 0: HANDING           |
 * |           | PLACE from the root           | dials the parent; machine 0 has none            |
 * |           | ROSTER                        | HANDING                                         |
 * | HANDING   | ROSTER_PART                   | on to the children in the tree; when it is      |
 * |           |                               | complete, to the ranks here                     |
 * |           | READY of all below            | READY upwards; nobody above: GO                 |
 * |           | GO from above                 | on to all below: RUNNING. A root ends at READY  |
 * | RUNNING   | DEAD LEFT FAIL BEAT           | to whom it concerns (flood.c)                   |
 * |           | REJECT of a rank, a neighbour | its join has failed, and so the comm: FAIL      |
 * |           | no rank is left here          | ends when no other machine needs it             |
 * | FAILED    | JOIN                          | told the reason; ends when all know, or when    |
 * |           |                               | the join could not have lasted longer           |
 *
 * In GATHERING and HANDING a REJECT from anywhere, the end of a connection and the deadline lead to
 * FAILED: every rank is told the same, also late ones.
 *
 * Service thread only. A leader lives from its first use until its last rank has gone.
 */
#ifndef HOOP_LEADER_H
#define HOOP_LEADER_H

#include "control/connection.h"
#include "rendezvous/rendezvous.h"
#include "runtime/service.h"

/*
 * The deadlines of a join, relative to d, the earliest deadline of its ranks. Those who know more
 * come first, so that all ranks hear the best explanation:
 *
 *      d - min(2 s, left / 4)   a leader gives up reaching its parent; its reason still has to
 *                               reach the others
 *      d                        whoever has all joins (the root, or on one machine the leader)
 *                               says which ranks are missing; a leader, which of its ranks is
 *                               not ready
 *      d + 250 ms               the root says which machines are not ready; leaders know of ranks
 *      d + 500 ms               a leader gives up the root
 *      d + 1 s                  a rank gives up its leader
 *      d + 10 s                 the caller gives up the service thread (comm/comm.c)
 */
#define HOOP_PARENT_SPARE_MS 2000u
#define HOOP_ROOT_GRACE_MS 250u
#define HOOP_LEADER_GRACE_MS 500u
#define HOOP_RANK_GRACE_MS 1000u

/* Time for a reason to arrive: the root may know why a neighbour ended; and a leader that has told
 * the root why it cannot go on waits until the root has told all. */
#define HOOP_MOMENT_MS 1000u

/*
 * The socket name of a rendezvous's leader on this machine: the rendezvous's own name. If there may
 * be several machines it also depends on HOOP_HOSTID, so that one machine can act as several.
 */
hoop_result_t hoop_leader_place(const struct hoop_rendezvous *rendezvous, struct hoop_place *ret);

/* Serves this rendezvous on this machine, unless it already does. HOOP_INVALID_USAGE: another
 * process does. */
hoop_result_t hoop_leader_serve(const struct hoop_rendezvous *rendezvous);

/*
 * Serves a rendezvous in the process that has to, unless it already does: as its leader, or if
 * there may be several machines as its root, whose address becomes the rendezvous's first. The root
 * listens at the first address whose IP is this machine's and whose port (or port range, if it is
 * 0) can be had. Loopback is used only if the rendezvous has nothing else. The sentence of a
 * failure names every address and why not.
 */
hoop_result_t hoop_leader_begin(struct hoop_rendezvous *rendezvous);

/*
 * Connects to the leader in this process without a socket; *ret_end is the rank's end. HOOP_AGAIN:
 * the leader is not here, or has another secret than the rendezvous.
 */
hoop_result_t hoop_leader_reach(const struct hoop_rendezvous *rendezvous, uint32_t rank,
                                struct hoop_connection **ret_end);

/*
 * Ends this process's leader of that name if it has no ranks, and its root. done: all ranks are in,
 * with or without the root (all on one machine). Else this process gives up the join: the root
 * tells all machines, unless within a moment it hears that all are in, or a better reason.
 */
void hoop_leader_retire(const char *name, bool done);

/*
 * Completes the job (borrowed until then) once no leader of this process connects machines for a
 * comm that has not failed, or still has to tell them why a join failed. A process that ended
 * earlier would cut other machines off from each other, or leave them without the reason. There is
 * one job at a time; NULL removes it.
 */
void hoop_tree_on_idle(struct hoop_job *job);

#endif
