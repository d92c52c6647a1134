/*
 * The claim: of a job over several machines, each is run by one hooprun. Ranks of a second one with
 * the same names would come as the first one's, as those of an earlier start do that still wait for
 * machines which never came; so the second is refused, before it has a rank.
 */
#ifndef HOOPRUN_CLAIM_H
#define HOOPRUN_CLAIM_H

#include "hooprun/hooprun_options.h"

/*
 * Claims this machine's part of the job until *ret_fd is closed; -1 for a job on one machine, which
 * no other can be taken for. False: another hooprun of this user has it, which was reported.
 */
bool hooprun_claim(const struct hooprun_options *options, const char *run_id, int *ret_fd);

#endif
