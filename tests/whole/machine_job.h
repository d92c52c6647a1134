/*
 * The job of test_machines and test_machine_failures: ranks in processes of their own on several
 * machines, all played by this one: ranks with different HOOP_HOSTID count as on different
 * machines. They meet at loopback addresses. The functions assert: on the main thread only.
 */
#ifndef MACHINE_JOB_H
#define MACHINE_JOB_H

#include "membership/member_rank.h"

#define JOB_LONG_MS 20000
#define JOB_MOST 64u
#define JOB_NOBODY UINT32_MAX

struct machine_job {
    uint32_t n, machines;
    uint32_t machine_of[JOB_MOST];
    struct rank ranks[JOB_MOST];
};
extern struct machine_job job;

/* A new rendezvous with so many loopback addresses, whose ports were free a moment ago. */
struct hoop_rendezvous job_meeting(uint32_t addresses);

/* Prepares n ranks. Rank r is on machine r % machines or, with blocks, on r / (n / machines).
 * Change what a test is about before they are spawned. */
void job_place(uint32_t n, uint32_t machines, bool blocks);
void job_spawn(void);
/* Spawns all ranks, and waits until they have joined. */
void job_join(void);
void job_finish(void);

/* All ranks write a line that begins so, except one rank, and those of one machine. */
void job_expect(const char *line, uint32_t but, uint32_t but_machine);
/* No rank but one has written anything until now. */
void job_expect_nothing(uint32_t but);

/* A rank whose process speaks for its machine (gate), or one whose does not, on machine `from` or a
 * later one. */
uint32_t job_find(bool gate, uint32_t from);
bool job_is_gate(uint32_t rank);

#endif
