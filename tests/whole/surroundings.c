/* See surroundings.h. */
#include "whole/surroundings.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

static void tick(int signal)
{
    (void)signal;
}

/* System calls of all threads that take signals end with EINTR each millisecond. */
static const char *enter_ticks(void)
{
    const struct sigaction action = {.sa_handler = tick}; /* no SA_RESTART */
    const struct itimerval often = {{.tv_usec = 700}, {.tv_usec = 700}};
    return sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0
               ? NULL
               : "no timer";
}

/* What hoop opens first must not become the program's output, to which it prints. */
static const char *enter_no_streams(void)
{
    setenv("HOOP_DEBUG", "trace", 1);
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
    return NULL;
}

static const char *enter_full_log(void)
{
    const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    setenv("HOOP_DEBUG", "trace", 1);
    const bool full = fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO;
    close(fd);
    return full ? NULL : "no /dev/full";
}

static const char *enter_ignored(void)
{
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    unsetenv("HOME");
    unsetenv("PATH");
    setenv("TMPDIR", "/proc/nowhere", 1);
    return chdir("/proc/self") == 0 ? NULL : "no /proc";
}

static const char *enter_limit(int which, rlim_t most)
{
    const struct rlimit limit = {.rlim_cur = most, .rlim_max = most};
    return setrlimit(which, &limit) == 0 ? NULL : "the limit can't be set";
}

static const char *enter_no_locks(void)
{
    return enter_limit(RLIMIT_MEMLOCK, 0);
}

static const char *enter_no_files(void)
{
    return enter_limit(RLIMIT_FSIZE, 4096);
}

static const char *enter_no_proc(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("nothing", "/proc", "tmpfs", MS_RDONLY, NULL) != 0) {
        return "this process may not mount a file system of its own over /proc";
    }
    return NULL;
}

static const char *enter_no_dev(void)
{
    const char *why = enter_no_proc();
    return why == NULL && mount("nothing", "/dev", "tmpfs", MS_RDONLY, NULL) != 0
               ? "this process may not mount a file system of its own over /dev"
               : why;
}

const struct surrounding surroundings[] = {
    {"a signal each millisecond", enter_ticks, false},
    {"stdin, stdout and stderr closed", enter_no_streams, false},
    {"a full log", enter_full_log, false},
    {"no home and no temporary files", enter_ignored, false},
    {"ulimit -l 0", enter_no_locks, false},
    {"ulimit -f 4", enter_no_files, true},
    {"no /proc", enter_no_proc, false},
    {"no /proc and no /dev", enter_no_dev, false},
    {NULL, NULL, false},
};
