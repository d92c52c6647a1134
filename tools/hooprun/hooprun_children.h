/*
 * Ending a process tree. A subreaper becomes the parent of every descendant whose parent died. So
 * killing children until there are none kills the whole tree, whatever groups and sessions its
 * processes made. Only children are signalled: until they are reaped their pids cannot be reused.
 */
#ifndef HOOPRUN_CHILDREN_H
#define HOOPRUN_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Milliseconds of the monotonic clock. */
int64_t hooprun_now_ms(void);

/* Sends sig to every child of this process. Without a usable /proc this takes a second or two. */
void hooprun_children_signal(int sig);

/* Children that were told to end. */
struct hooprun_told {
    pid_t *pids;
    size_t count, room;
};

/* Sends SIGTERM to the children that are not told yet: one more may make a program end at once. */
void hooprun_children_tell(struct hooprun_told *told);
/* pid was reaped: another process may get its number. */
void hooprun_told_forget(struct hooprun_told *told, pid_t pid);
void hooprun_told_finish(struct hooprun_told *told);

/*
 * Kills and reaps until no child is left, or timeout_ms is over (false). SIGCHLD must be blocked.
 */
bool hooprun_children_end(int64_t timeout_ms);

#endif
