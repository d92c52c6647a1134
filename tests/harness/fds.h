/* Counting descriptors: what was opened and not closed. */
#ifndef HOOP_TESTS_FDS_H
#define HOOP_TESTS_FDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Of a process, 0: this one. -1: they cannot be seen. */
int fds_count(pid_t pid);

/* Waits until this process has so many: both ends of a closed connection are gone a little later.
 */
bool fds_await(int count, uint64_t deadline_ns);

#endif
