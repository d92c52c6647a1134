/* See ranks.h. */
#include "hoopinfo/ranks.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hooprun/hooprun_cpus.h"

#define TEXT_MOST ((size_t)1 << 20)
#define ARGUMENTS_MOST 12

/* Prepared before the fork, so that the child allocates no memory. */
struct command {
    char self[PATH_MAX], beside[PATH_MAX + 16], count[16], seconds[16];
    char *arguments[ARGUMENTS_MOST];
    struct hooprun_cpu_set cpus;
    bool pin;
};

/* hooprun and its options, then this program and its options. */
static void command_write(const struct ranks *ranks, struct command *ret)
{
    static char hooprun[] = "hooprun", option_n[] = "-n", option_timeout[] = "--timeout";
    static char option_grace[] = "--grace", grace[] = "1";
    char folder[PATH_MAX];
    size_t at = 0;
    const ssize_t length = readlink("/proc/self/exe", ret->self, sizeof(ret->self) - 1);
    ret->self[length > 0 ? length : 0] = 0;
    if (length <= 0) { /* without /proc: as it was started */
        const char *started = (const char *)getauxval(AT_EXECFN);
        (void)snprintf(ret->self, sizeof(ret->self), "%s", started != NULL ? started : "hoopinfo");
    }
    memcpy(folder, ret->self, sizeof(folder));
    (void)snprintf(ret->beside, sizeof(ret->beside), "%s/hooprun", dirname(folder));
    (void)snprintf(ret->count, sizeof(ret->count), "%d", ranks->count);
    (void)snprintf(ret->seconds, sizeof(ret->seconds), "%d", ranks->seconds);
    ret->arguments[at++] = hooprun;
    ret->arguments[at++] = option_n;
    ret->arguments[at++] = ret->count;
    if (ranks->seconds > 0) {
        ret->arguments[at++] = option_timeout;
        ret->arguments[at++] = ret->seconds;
        ret->arguments[at++] = option_grace;
        ret->arguments[at++] = grace;
    }
    ret->arguments[at++] = ret->self;
    for (size_t i = 0; i < 3 && ranks->options[i] != NULL; i++) {
        ret->arguments[at++] = (char *)ranks->options[i];
    }
    ret->arguments[at] = NULL;
}

/* Chooses the first `count` of the CPUs that this process may use. */
static void command_pin(int count, struct command *ret)
{
    struct hooprun_cpu_set all;
    CPU_ZERO_S(sizeof(ret->cpus), ret->cpus.parts);
    ret->pin = count > 0 && sched_getaffinity(0, sizeof(all), all.parts) == 0;
    for (int cpu = 0; ret->pin && cpu < HOOPRUN_CPUS_MOST && count > 0; cpu++) {
        if (CPU_ISSET_S(cpu, sizeof(all), all.parts)) {
            CPU_SET_S(cpu, sizeof(ret->cpus), ret->cpus.parts);
            count--;
        }
    }
}

static _Noreturn void child_run(const struct command *command, pid_t parent, int out)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(1);
    }
    if (out >= 0) {
        (void)dup2(out, STDOUT_FILENO);
    }
    if (command->pin) {
        (void)sched_setaffinity(0, sizeof(command->cpus), command->cpus.parts);
    }
    if (access(command->beside, X_OK) == 0) {
        (void)execv(command->beside, command->arguments);
    } else {
        (void)execvp(command->arguments[0], command->arguments);
    }
    (void)dprintf(STDERR_FILENO, "hoopinfo: cannot start hooprun: %s\n", strerror(errno));
    _exit(1);
}

/* Reads to the end, but keeps a limited amount. NULL if there is no memory. */
static char *text_read(int fd)
{
    char *text = calloc(1, TEXT_MOST + 1), more[4096];
    size_t length = 0;
    ssize_t got = 1;
    while (got > 0 || (got < 0 && errno == EINTR)) {
        got = read(fd, more, sizeof(more));
        if (got > 0 && text != NULL && length + (size_t)got <= TEXT_MOST) {
            memcpy(text + length, more, (size_t)got);
            length += (size_t)got;
        }
    }
    return text;
}

static int start_failed(const char *what)
{
    fprintf(stderr, "hoopinfo: cannot start ranks: %s: %s\n", what, strerror(errno));
    return 1;
}

int ranks_run(const struct ranks *ranks, char **ret_text)
{
    struct command command;
    int fds[2] = {-1, -1}, status = 0;
    pid_t ended = 0;
    const pid_t parent = getpid();
    command_write(ranks, &command);
    command_pin(ranks->cpus, &command);
    if (ranks->transport != NULL) {
        (void)setenv("HOOP_TRANSPORT", ranks->transport, 1);
    }
    if (ret_text != NULL && pipe2(fds, O_CLOEXEC) != 0) {
        return start_failed("pipe");
    }
    (void)fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        child_run(&command, parent, fds[1]);
    }
    int failed = pid < 0 ? start_failed("fork") : 0;
    if (ret_text != NULL) {
        (void)close(fds[1]);
        *ret_text = failed == 0 ? text_read(fds[0]) : NULL;
        (void)close(fds[0]);
    }
    while (failed == 0 && (ended = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
    }
    failed = ended < 0 ? start_failed("waitpid") : failed;
    return failed != 0 ? failed : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
