/* The ranks of one kill_fuzz job, as their parent sees them. */
#ifndef HOOP_TESTS_KILL_FAMILY_H
#define HOOP_TESTS_KILL_FAMILY_H

#include "harness/family.h"
#include "whole/kill_rank.h"

struct kill_family {
    struct family ranks;
    _Atomic uint64_t *operations; /* [n], shared with the ranks; NULL: no memory */
};

/* *job: borrowed until the ranks have started. False: the machine lacks resources. */
bool kill_family_start(struct kill_family *family, const struct kill_job *job);
/* Kills and reaps all ranks. */
void kill_family_finish(struct kill_family *family);

#endif
