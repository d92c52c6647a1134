#include "hooprun/hooprun_children.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUND_MS 20
#define PIDS_MOST (4 * 1024 * 1024) /* the kernel's PID_MAX_LIMIT; takes a second or two */

int64_t hooprun_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static size_t told_find(const struct hooprun_told *told, pid_t pid)
{
    size_t i = 0;
    while (i < told->count && told->pids[i] != pid) {
        i++;
    }
    return i;
}

/* Without memory the child is told again the next time. */
static void told_add(struct hooprun_told *told, pid_t pid)
{
    if (told->count == told->room) {
        const size_t room = told->room == 0 ? 16 : 2 * told->room;
        pid_t *pids = realloc(told->pids, room * sizeof(*pids));
        if (pids == NULL) {
            return;
        }
        told->pids = pids;
        told->room = room;
    }
    told->pids[told->count++] = pid;
}

void hooprun_told_forget(struct hooprun_told *told, pid_t pid)
{
    const size_t i = told_find(told, pid);
    if (i < told->count) {
        told->pids[i] = told->pids[--told->count];
    }
}

void hooprun_told_finish(struct hooprun_told *told)
{
    free(told->pids);
    *told = (struct hooprun_told){0};
}

/* Signals pid only if it is a child, as a waitid() without side effects tells, and not in told. */
static void child_signal(pid_t pid, int sig, struct hooprun_told *told)
{
    siginfo_t info;
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        (told != NULL && told_find(told, pid) < told->count)) {
        return;
    }
    kill(pid, sig);
    if (told != NULL) {
        told_add(told, pid);
    }
}

/* Opens /proc. NULL if there is none, or it belongs to another pid namespace. */
static DIR *proc_open(void)
{
    char self[16] = "";
    const bool ours = readlink("/proc/self", self, sizeof(self) - 1) > 0 &&
                      strtol(self, NULL, 10) == (long)getpid();
    return ours ? opendir("/proc") : NULL;
}

static void children_signal(int sig, struct hooprun_told *told)
{
    DIR *proc = proc_open();
    if (proc == NULL) {
        for (pid_t pid = 1; pid <= PIDS_MOST; pid++) {
            child_signal(pid, sig, told);
        }
        return;
    }
    struct dirent *entry = NULL;
    while ((entry = readdir(proc)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0])) {
            child_signal((pid_t)strtol(entry->d_name, NULL, 10), sig, told);
        }
    }
    closedir(proc);
}

void hooprun_children_signal(int sig)
{
    children_signal(sig, NULL);
}

void hooprun_children_tell(struct hooprun_told *told)
{
    children_signal(SIGTERM, told);
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
