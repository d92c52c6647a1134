/*
 * The rendezvous: one process's side of a join. It gathers the ranks of one meeting, gives them
 * the roster, and afterwards tells the survivors of every rank whose connection ends. It does not
 * know whether it is in a process that has a rank there.
 *
 *      GATHERING --all n have joined--> BINDING --all are ready--> RUNNING --all have gone--> gone
 *          \________________________________\--> FAILED: every rank is told the same, late ones too
 *
 * A rendezvous lives on the service thread from its first use until its last rank has gone.
 */
#ifndef HOOP_RENDEZVOUS_H
#define HOOP_RENDEZVOUS_H

#include "bootstrap.h"

/*
 * Serves this meeting; nothing to do if this process does already. The sentence goes to *failure.
 * Service thread.
 */
hoop_result_t hoop_rendezvous_serve(const struct hoop_meeting *meeting,
                                    struct hoop_failure *failure);

#endif
