/*
 * hoopinfo --job: what this user's hoop processes on this machine do (as root, all users'), and who
 * keeps whom waiting. Each is asked at its own socket, found in /proc/net/unix, and has one second
 * to answer. Nothing is changed in it.
 */
#ifndef HOOPINFO_JOB_H
#define HOOPINFO_JOB_H

#include <stdbool.h>

/* Prints to standard output. Returns an exit code. */
int job_print(bool as_json);

#endif
