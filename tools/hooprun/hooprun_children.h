/*
 * What is left of a process tree. A subreaper inherits every descendant whose parent died, so
 * killing children until there are none kills the whole tree, whatever groups and sessions the
 * processes made for themselves. Only children are ever signalled: until they are reaped, their
 * process ids can not belong to a stranger.
 */
#ifndef HOOPRUN_CHILDREN_H
#define HOOPRUN_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>

/* Milliseconds of the monotonic clock. */
int64_t hooprun_now_ms(void);

/* Sends sig to every child of this process. Takes a second or two without a /proc of its own. */
void hooprun_children_signal(int sig);

/*
 * Kills and reaps until no child is left; false if some still exist after timeout_ms. SIGCHLD
 * must be blocked.
 */
bool hooprun_children_end(int64_t timeout_ms);

#endif
