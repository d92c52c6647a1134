/* Counts descriptors, to find those that were opened and not closed. */
#ifndef HOOP_TESTS_FDS_H
#define HOOP_TESTS_FDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Of a process; pid 0: of this one. -1: they can't be read. */
int fds_count(pid_t pid);

/* Waits until this process has so many descriptors: both ends of a closed connection are closed a
 * little later. */
bool fds_await(int count, uint64_t deadline_ns);

#endif
