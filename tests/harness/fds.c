/* See fds.h. */
#include "harness/fds.h"
#include "base/clock.h"
#include <dirent.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int fds_count(pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)(pid > 0 ? pid : getpid()));
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return -1;
    }
    /* not counted: ".", "..", and for this process the open folder itself */
    int count = pid > 0 && pid != getpid() ? -2 : -3;
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

bool fds_await(int count, uint64_t deadline_ns)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    while (fds_count(0) != count && hoop_now_ns() < deadline_ns) {
        nanosleep(&nap, NULL);
    }
    return fds_count(0) == count;
}
