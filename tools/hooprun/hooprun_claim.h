/*
 * The claim: in a job over several machines each machine's part is run by one hooprun. Ranks of a
 * second one with the same names would be taken for the first one's. This happens when an earlier
 * start still waits for machines that never came. So the second one is refused before it starts a
 * rank.
 */
#ifndef HOOPRUN_CLAIM_H
#define HOOPRUN_CLAIM_H

#include "hooprun/hooprun_options.h"

/*
 * Claims this machine's part of the job until *ret_fd is closed. *ret_fd is -1 for a job on one
 * machine, whose names are unique. False: another hooprun of this user has it, which was reported.
 */
bool hooprun_claim(const struct hooprun_options *options, const char *run_id, int *ret_fd);

#endif
