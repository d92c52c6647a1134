/*
 * hoopinfo --job: what the processes of this user on this machine that use hoop (root: of all
 * users) are at, and who keeps whom waiting. Each is asked at its own socket, whose name
 * /proc/net/unix tells, and has a second to answer: nothing is changed in it, and none is waited
 * for longer.
 */
#ifndef HOOPINFO_JOB_H
#define HOOPINFO_JOB_H

#include <stdbool.h>

/* To standard output. An exit code. */
int job_print(bool as_json);

#endif
