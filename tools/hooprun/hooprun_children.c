#include "hooprun/hooprun_children.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUND_MS 20

int64_t hooprun_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The parent of the process that entry of /proc is, 0 when it is gone. */
static pid_t parent_of(int proc_fd, const char *entry)
{
    char path[64];
    snprintf(path, sizeof(path), "%.20s/stat", entry);
    const int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    char text[512];
    const ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0) {
        return 0;
    }
    text[length] = '\0';
    /* "pid (name) state parent ...": the name may hold anything, ')' too. */
    const char *after_name = strrchr(text, ')');
    if (after_name == NULL || strlen(after_name) < 5) {
        return 0;
    }
    return (pid_t)strtol(after_name + 4, NULL, 10);
}

void hooprun_children_signal(int sig)
{
    DIR *proc = opendir("/proc");
    if (proc == NULL) {
        return;
    }
    const pid_t me = getpid();
    struct dirent *entry = NULL;
    while ((entry = readdir(proc)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0]) &&
            parent_of(dirfd(proc), entry->d_name) == me) {
            kill((pid_t)strtol(entry->d_name, NULL, 10), sig);
        }
    }
    closedir(proc);
}

bool hooprun_children_end(int64_t timeout_ms)
{
    const int64_t deadline = hooprun_now_ms() + timeout_ms;
    sigset_t child_signal;
    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    for (;;) {
        hooprun_children_signal(SIGKILL);
        pid_t pid = 0;
        do {
            pid = waitpid(-1, NULL, WNOHANG);
        } while (pid > 0);
        if (pid < 0 && errno == ECHILD) {
            return true;
        }
        if (hooprun_now_ms() >= deadline) {
            return false;
        }
        const struct timespec round = {.tv_nsec = ROUND_MS * 1000000L};
        sigtimedwait(&child_signal, NULL, &round);
    }
}
