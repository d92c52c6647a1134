/*
 * The hub: where the machines of one comm find each other. It lives in the process that serves the
 * meeting, at a TCP port of the meeting's address, from its first use until all are in or the join
 * has failed. Every machine's rendezvous connects to it (also the one in this very process), says
 * where it can be reached (MACHINE) and passes on its ranks' joins.
 *
 *      GATHERING --all n have joined--> TELLING --READY from machine 0--> gone
 *          \________________________________\--> FAILED: every machine is told the same, late ones
 *                                                too, as long as the join could have lasted
 *
 * When all are there it numbers the machines by their lowest ranks, tells each its number and its
 * parent's address in a binary heap (TREE; parent of i: (i-1)/2), and to machine 0 the whole
 * roster (ROSTER without segment, ROSTER_PARTs), which goes down the tree from there. A REJECT
 * from a machine fails the join of all with its sentence. READY from machine 0 says that everybody
 * is in. A machine that closes its connection before that fails the join, unless it had brought
 * all n ranks (then they needed no hub) or none. Who is told a REJECT closes its connection.
 *
 * Service thread only.
 */
#ifndef HOOP_HUB_H
#define HOOP_HUB_H

#include "bootstrap.h"
#include "control.h"

/*
 * Serves this meeting, at the first of its addresses whose ip is this machine's and whose port (or
 * port range, where it is 0) can be had; nothing to do if this process does already. Loopback is
 * taken only where the meeting has no other addresses. The sentence goes to *failure, and names
 * every address that was tried and why not. *ret_address (may be NULL): where it is.
 */
hoop_result_t hoop_hub_serve(const struct hoop_meeting *meeting, struct hoop_address *ret_address,
                             struct hoop_failure *failure);

/*
 * The ranks of the meeting of this name are in, by way of the hub or without it (all on one
 * machine): ends it without a word. Nothing if this process does not serve it.
 */
void hoop_hub_retire(const char *name);

/* For doors: is a machine's hello for a hub here; a proven connection of one. An unknown meeting is
 * refused with HOOP_AGAIN: it may be served in a moment. */
bool hoop_hub_admit(const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                    struct hoop_failure *ret_failure);
void hoop_hub_opened(struct hoop_control *control);

#endif
