/*
 * Ranks as forked processes, as their parent sees them: a pid and a pipe in either direction. No
 * rank outlives its family: ranks die with their parent, and family_finish() kills the rest. What
 * travels through the pipes is the test's own. The parent never calls hoop.
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
    unsigned patience_ms; /* rank_report.h */
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
 * Forks a rank, which runs this and exits with 0. Its stdin and stdout are /dev/null, and it has
 * no pipe of another rank. False, with errno: the machine has not enough of something.
 */
bool family_fork(struct family *family, int rank, family_run *run, const void *arg);
bool family_fork_all(struct family *family, family_run *run, const void *arg);

/* The next bytes that a rank wrote, at once, or why there are none. */
enum family_heard family_hear(const struct family *family, int rank, void *ret, size_t bytes,
                              uint64_t deadline_ns);
bool family_tell(const struct family *family, int rank, const void *data, size_t bytes);
/* Closes the pipe to a rank, which reads its end. */
void family_hang_up(struct family *family, int rank);

/* Kills a rank and reaps it. */
void family_kill(struct family *family, int rank);
/* Waits for a rank's end: false if it is still there at the deadline, or did not exit with 0. */
bool family_reap(struct family *family, int rank, uint64_t deadline_ns);
/* Kills and reaps who is left, and closes all. */
void family_finish(struct family *family);

/* In a rank. */
void family_set_number(const char *variable, long number); /* of the environment */
bool family_say(const struct family_self *self, const void *data, size_t bytes);
/* The next byte from the parent; -1: there is none any more. */
int family_order(const struct family_self *self);

#endif
