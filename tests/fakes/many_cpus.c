/*
 * Preloaded: a machine that may have 2048 CPUs, of which 3 and 1400 are usable. As a kernel does,
 * it refuses sets that have no room for all. Nothing is bound; the file that MANY_CPUS names gets a
 * line for each set that is refused, and for each that a thread is bound to.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POSSIBLE ((size_t)2048)

/* What is preloaded must be seen by the programs. */
#define SEEN __attribute__((visibility("default")))

static void note(const char *what, int number)
{
    const char *path = getenv("MANY_CPUS");
    const int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        (void)dprintf(fd, "%s %d\n", what, number);
        (void)close(fd);
    }
}

static bool refuses(size_t bytes)
{
    if (bytes * 8 >= POSSIBLE) {
        return false;
    }
    note("refused: room for", (int)(bytes * 8));
    errno = EINVAL;
    return true;
}

SEEN int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    if (refuses(bytes)) {
        return -1;
    }
    memset(set, 0, bytes);
    CPU_SET_S(3, bytes, set);
    CPU_SET_S(1400, bytes, set);
    return 0;
}

SEEN int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
    (void)pid;
    if (refuses(bytes)) {
        return -1;
    }
    note("bound: CPUs", CPU_COUNT_S(bytes, set));
    return 0;
}
