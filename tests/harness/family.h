/*
 * Ranks as forked processes, and what their parent knows of each: a pid, and a pipe in either
 * direction. No rank outlives its family: ranks die with their parent, and family_finish() kills
 * the rest. The test decides what travels through the pipes. The parent never calls hoop.
 */
#ifndef HOOP_TESTS_FAMILY_H
#define HOOP_TESTS_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FAMILY_MOST 16

struct family {
    int n;
    unsigned patience_ms; /* see rank_report.h */
    struct family_rank {
        pid_t pid;    /* 0: not forked, or reaped */
        int from, to; /* the parent's ends; -1: closed */
    } ranks[FAMILY_MOST];
};

/* A rank's side of the pipes. */
struct family_self {
    int rank, n;
    int from_parent, to_parent;
};
typedef void family_run(const struct family_self *self, const void *arg);

enum family_heard { FAMILY_HEARD, FAMILY_SILENT, FAMILY_ENDED };

void family_init(struct family *family, int n);

/*
 * Forks a rank, which calls `run` and exits with 0. Its stdin and stdout are /dev/null, and it has
 * no other rank's pipe. False, with errno: the machine lacks some resource.
 */
bool family_fork(struct family *family, int rank, family_run *run, const void *arg);
bool family_fork_all(struct family *family, family_run *run, const void *arg);

/* Reads the next bytes that a rank wrote, which arrive in one piece, or tells why there are
 * none. */
enum family_heard family_hear(const struct family *family, int rank, void *ret, size_t bytes,
                              uint64_t deadline_ns);
bool family_tell(const struct family *family, int rank, const void *data, size_t bytes);
/* Closes the pipe to a rank, which then reads the end of file. */
void family_hang_up(struct family *family, int rank);

/* Kills a rank and reaps it. */
void family_kill(struct family *family, int rank);
/* Waits until a rank has ended. False: it had not at the deadline, or did not exit with 0. */
bool family_reap(struct family *family, int rank, uint64_t deadline_ns);
/* Kills and reaps all remaining ranks, and closes their pipes. */
void family_finish(struct family *family);

/* For use in a rank. */
void family_set_number(const char *variable, long number); /* sets an environment variable */
bool family_say(const struct family_self *self, const void *data, size_t bytes);
/* The next byte from the parent; -1: it has hung up. */
int family_order(const struct family_self *self);

#endif
