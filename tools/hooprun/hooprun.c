/*
 * hooprun: runs a program as N ranks on this machine, and cleans up after them. In a job over
 * several machines each has its own hooprun; these do not communicate.
 *
 *     hooprun (front)  the process the user sees: passes signals on, returns the exit code
 *       |  ^ alive pipe
 *     hooprun (keeper) starts, watches and ends the ranks (hooprun_job.h)
 *       +-- rank 0     each in a process group of its own, with whatever it starts
 *       +-- rank 1 ...
 *
 * There are two processes because none can clean up after its own kill -9. When the front dies, the
 * alive pipe ends and the keeper kills all descendants. When the keeper dies, the kernel kills the
 * ranks and makes their orphans children of the front, which kills those. The keeper has a process
 * group of its own, so that Ctrl-C and signals to hooprun's group reach only the front, and only
 * once.
 */
#include "hooprun/hooprun_children.h"
#include "hooprun/hooprun_job.h"
#include "hooprun/hooprun_nccl.h"
#include "hooprun/hooprun_options.h"
#include "hooprun/hooprun_output.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ORPHANS_MS 10000

/* Opens descriptors 0 to 2 if need be, or pipes that are made later would get their numbers. A
 * closed standard output stays one that can't be written, and is closed for the ranks, too. */
static bool streams_ensure(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        const int how = fd == STDOUT_FILENO ? O_RDONLY | O_CLOEXEC : O_RDWR;
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", how) != fd) {
            return false;
        }
    }
    return true;
}

/* The exit code. A keeper that ended in order left no process behind; otherwise its descendants are
 * this process's children now, and are killed. */
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

/*
 * Reaps children, and returns true when the keeper has ended. As process 1 of a container this
 * process is also the parent of orphans that never belonged to the job.
 */
static bool front_reap(pid_t keeper, int *ret_status)
{
    pid_t pid = 0;
    do {
        pid = waitpid(-1, ret_status, WNOHANG);
    } while (pid > 0 && pid != keeper);
    if (pid < 0 && errno == ECHILD) {
        *ret_status = HOOPRUN_EXIT_LAUNCHER << 8; /* another process reaped it */
        return true;
    }
    return pid == keeper;
}

/*
 * Stops this process by letting the pending SIGTSTP through. A SIGCONT that comes before removes
 * it. If it were consumed and followed by raise(SIGSTOP), a SIGCONT in between would be lost.
 */
static void front_stop(pid_t keeper)
{
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    kill(keeper, SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    sigprocmask(SIG_BLOCK, &stop, NULL);
}

/* Waits for a signal and takes it. Returns 0 for SIGTSTP, which stays pending or is gone. */
static int front_wait(const sigset_t *signals, int fd)
{
    static const struct timespec at_once = {0};
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    sigset_t taken = *signals;
    sigdelset(&taken, SIGTSTP);
    poll(&wait, 1, -1);
    const int sig = sigtimedwait(&taken, NULL, &at_once);
    return sig > 0 ? sig : 0;
}

/* Waits for the keeper and passes signals on. fd is readable when one of them is pending. */
static int front_serve(pid_t keeper, const sigset_t *signals, int fd)
{
    int status = 0;
    for (;;) {
        const int sig = front_wait(signals, fd);
        sigset_t pending;
        if (sig == SIGCHLD && front_reap(keeper, &status)) {
            return keeper_result(status);
        }
        if (sig > 0 && sig != SIGCHLD) {
            kill(keeper, sig);
        }
        if (sigpending(&pending) == 0 && sigismember(&pending, SIGTSTP) == 1) {
            front_stop(keeper);
        }
    }
}

/*
 * The signals to pass on. Those that hooprun was started to ignore (by nohup, by `sh &`) stay
 * ignored, here and in the ranks. They cannot be in the set, because waiting for a signal requires
 * blocking it, and the kernel keeps blocked signals pending even if they are ignored.
 */
static void signals_choose(sigset_t *ret_signals)
{
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
    sigemptyset(ret_signals);
    sigaddset(ret_signals, SIGCHLD);
    sigaddset(ret_signals, SIGCONT);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++) {
        struct sigaction action;
        if (sigaction(passed_on[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(ret_signals, passed_on[i]);
        }
    }
}

static int front_run(const struct hooprun_options *options)
{
    struct hooprun_front front = {.pid = getpid(), .group = getpgrp()};
    /* If it were ignored the kernel would reap the children silently. */
    signal(SIGCHLD, SIG_DFL);
    signals_choose(&front.signals);
    /* Blocked, not ignored: ranks inherit ignored signals. A blocked SIGPIPE gives EPIPE. */
    sigset_t blocked = front.signals;
    sigaddset(&blocked, SIGPIPE);
    sigaddset(&blocked, SIGTTOU);
    int alive[2];
    int signal_fd = -1;
    const bool streams = streams_ensure();
    if (!streams || sigprocmask(SIG_BLOCK, &blocked, &front.mask) != 0 ||
        (signal_fd = signalfd(-1, &front.signals, SFD_CLOEXEC)) < 0 ||
        pipe2(alive, O_CLOEXEC) != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        fprintf(stderr, "hooprun: cannot %s: %s\n", streams ? "prepare the job" : "open /dev/null",
                hooprun_reason(errno));
        return HOOPRUN_EXIT_LAUNCHER;
    }
    const pid_t keeper = fork();
    if (keeper < 0) {
        fprintf(stderr, "hooprun: cannot start: %s\n", hooprun_reason(errno));
        return HOOPRUN_EXIT_LAUNCHER;
    }
    if (keeper == 0) {
        setpgid(0, 0);
        close(alive[1]);
        close(signal_fd);
        front.alive_fd = alive[0];
        return hooprun_job_run(options, &front);
    }
    close(alive[0]);
    return front_serve(keeper, &front.signals, signal_fd);
}

int main(int argc, char **argv)
{
    (void)argc;
    struct hooprun_options options;
    int code = 0;
    if (!hooprun_options_parse(argv, &options, &code)) {
        return code;
    }
    if (options.nccl && !hooprun_nccl_preload()) {
        return HOOPRUN_EXIT_LAUNCHER;
    }
    return front_run(&options);
}
