/*
 * The rendezvous: one process's side of a join, one per machine and meeting. It gathers the ranks
 * of its machine, gives them the roster, and afterwards tells the survivors of every rank whose
 * connection ends. It does not know whether it is in a process that has a rank there.
 *
 *      GATHERING --all n have joined, or the tree has the roster--> BINDING
 *          |                       --all here are ready, and the tree says GO--> RUNNING
 *          |                       --all have gone--> gone
 *          \_____________ (from both) FAILED: every rank is told the same, late ones too
 *
 * Where the meeting has addresses, ranks may be on other machines: then it passes every join on to
 * its tree (tree.h), and comes between its ranks and the others for the comm's life: it is their
 * voice in the tree. If all n turn up here before the tree has a roster, it needs no tree.
 *
 * A rendezvous lives on the service thread from its first use until its last rank has gone.
 */
#ifndef HOOP_RENDEZVOUS_H
#define HOOP_RENDEZVOUS_H

#include "bootstrap.h"
#include "control.h"

/*
 * The name that a meeting's rendezvous on this machine has: the meeting's own. Where there may be
 * several machines, one for each HOOP_HOSTID, so that one machine can play several.
 */
hoop_result_t hoop_rendezvous_place(const struct hoop_meeting *meeting, struct hoop_place *ret);

/*
 * Serves this meeting on this machine; nothing to do if this process does already. The sentence
 * goes to *failure; HOOP_INVALID_USAGE: another process does. Service thread.
 */
hoop_result_t hoop_rendezvous_serve(const struct hoop_meeting *meeting,
                                    struct hoop_failure *failure);

/*
 * Takes in now what a rank has said, if its rendezvous is in this process, which may end as soon as
 * its caller returns. Service thread.
 */
void hoop_rendezvous_hear(const struct hoop_meeting *meeting, uint32_t rank);

#endif
