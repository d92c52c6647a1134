/*
 * hooprun: runs a program as N ranks on this machine, and cleans up after them. Of a job over
 * several machines each has a hooprun of its own; they do not talk to each other.
 *
 *     hooprun (front)  the process the user sees: passes signals on, returns the exit code
 *       |  ^ alive pipe
 *     hooprun (keeper) starts, watches and ends the ranks (hooprun_job.h)
 *       +-- rank 0     each in a process group of its own, with whatever it starts
 *       +-- rank 1 ...
 *
 * Two processes, because nobody can clean up after its own kill -9. When the front dies the
 * keeper's pipe ends and it kills its whole tree; when the keeper dies the kernel kills the ranks
 * and hands what they started to the front, which kills that. The keeper has a process group of
 * its own, so that Ctrl-C and signals to hooprun's group reach the front alone, once.
 */
#include "hooprun_children.h"
#include "hooprun_job.h"
#include "hooprun_options.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ORPHANS_MS 10000

/* Descriptors 0 to 2 must exist, or pipes made later would be taken for them. */
static bool streams_ensure(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
            return false;
        }
    }
    return true;
}

/* A keeper that ended in order left no process; else its processes are this one's children now. */
static int keeper_result(int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) != HOOPRUN_EXIT_LAUNCHER) {
        return WEXITSTATUS(status);
    }
    hooprun_children_end(ORPHANS_MS);
    if (WIFEXITED(status)) {
        return HOOPRUN_EXIT_LAUNCHER;
    }
    fprintf(stderr, "hooprun: its keeper process was killed by signal %d (%s)\n", WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    return HOOPRUN_EXIT_LAUNCHER;
}

/* Waits for the keeper and passes signals on. */
static int front_serve(pid_t keeper, const sigset_t *signals)
{
    for (;;) {
        const int sig = sigwaitinfo(signals, NULL);
        if (sig == SIGCHLD) {
            int status = 0;
            if (waitpid(keeper, &status, WNOHANG) == keeper) {
                return keeper_result(status);
            }
        } else if (sig > 0) {
            kill(keeper, sig);
        }
        if (sig == SIGTSTP) {
            raise(SIGSTOP);
        }
    }
}

static int front_run(const struct hooprun_options *options)
{
    static const int passed_on[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP, SIGQUIT,
                                    SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
    struct hooprun_front front = {.pid = getpid(), .group = getpgrp()};
    sigemptyset(&front.signals);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++) {
        sigaddset(&front.signals, passed_on[i]);
    }
    /* Blocked, not ignored: the ranks inherit what is ignored, and a blocked SIGPIPE is EPIPE. */
    sigset_t blocked = front.signals;
    sigaddset(&blocked, SIGPIPE);
    sigaddset(&blocked, SIGTTOU);
    int alive[2];
    if (!streams_ensure() || sigprocmask(SIG_BLOCK, &blocked, &front.mask) != 0 ||
        pipe2(alive, O_CLOEXEC) != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        fprintf(stderr, "hooprun: cannot prepare the job: %s\n", strerror(errno));
        return HOOPRUN_EXIT_LAUNCHER;
    }
    const pid_t keeper = fork();
    if (keeper < 0) {
        fprintf(stderr, "hooprun: cannot start: %s\n", strerror(errno));
        return HOOPRUN_EXIT_LAUNCHER;
    }
    if (keeper == 0) {
        setpgid(0, 0);
        close(alive[1]);
        front.alive_fd = alive[0];
        return hooprun_job_run(options, &front);
    }
    close(alive[0]);
    return front_serve(keeper, &front.signals);
}

int main(int argc, char **argv)
{
    (void)argc;
    struct hooprun_options options;
    int code = 0;
    if (!hooprun_options_parse(argv, &options, &code)) {
        return code;
    }
    return front_run(&options);
}
