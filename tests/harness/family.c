/* See family.h. */
#include "harness/family.h"
#include "base/clock.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void family_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void family_init(struct family *family, int n)
{
    *family = (struct family){.n = n};
    for (int r = 0; r < FAMILY_MOST; r++) {
        family->ranks[r].from = family->ranks[r].to = -1;
    }
}

/* ---- In a rank ---------------------------------------------------------------------------- */

/* In the child: closes what it inherited and does not need. */
static void family_leave(struct family *family, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(3);
    }
    for (int r = 0; r < family->n; r++) {
        family_close(&family->ranks[r].from);
        family_close(&family->ranks[r].to);
    }
    const int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0) {
        _exit(3);
    }
    close(null);
}

void family_set_number(const char *variable, long number)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%ld", number);
    setenv(variable, text, 1);
}

bool family_say(const struct family_self *self, const void *data, size_t bytes)
{
    return write(self->to_parent, data, bytes) == (ssize_t)bytes;
}

int family_order(const struct family_self *self)
{
    unsigned char byte = 0;
    return read(self->from_parent, &byte, 1) == 1 ? byte : -1;
}

/* ---- In the parent ------------------------------------------------------------------------ */

/* Makes both pipes or neither. */
static bool family_pipes(int up[2], int down[2])
{
    if (pipe(up) != 0) {
        return false;
    }
    if (pipe(down) != 0) {
        close(up[0]);
        close(up[1]);
        return false;
    }
    return true;
}

bool family_fork(struct family *family, int rank, family_run *run, const void *arg)
{
    struct family_rank *it = &family->ranks[rank];
    const pid_t parent = getpid();
    int up[2];
    int down[2];
    if (!family_pipes(up, down)) {
        return false;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        const struct family_self self = {rank, family->n, down[0], up[1]};
        close(up[0]);
        close(down[1]);
        family_leave(family, parent);
        run(&self, arg);
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    *it = (struct family_rank){.pid = pid > 0 ? pid : 0, .from = up[0], .to = down[1]};
    return pid > 0;
}

bool family_fork_all(struct family *family, family_run *run, const void *arg)
{
    bool good = true;
    for (int r = 0; r < family->n && good; r++) {
        good = family_fork(family, r, run, arg);
    }
    return good;
}

enum family_heard family_hear(const struct family *family, int rank, void *ret, size_t bytes,
                              uint64_t deadline_ns)
{
    struct pollfd fd = {.fd = family->ranks[rank].from, .events = POLLIN};
    const uint64_t now = hoop_now_ns();
    const int left_ms = now < deadline_ns ? (int)((deadline_ns - now) / HOOP_NS_PER_MS) + 1 : 0;
    if (poll(&fd, 1, left_ms) != 1) {
        return FAMILY_SILENT;
    }
    return read(fd.fd, ret, bytes) == (ssize_t)bytes ? FAMILY_HEARD : FAMILY_ENDED;
}

bool family_tell(const struct family *family, int rank, const void *data, size_t bytes)
{
    return write(family->ranks[rank].to, data, bytes) == (ssize_t)bytes;
}

void family_hang_up(struct family *family, int rank)
{
    family_close(&family->ranks[rank].to);
}

void family_kill(struct family *family, int rank)
{
    struct family_rank *it = &family->ranks[rank];
    if (it->pid > 0) {
        kill(it->pid, SIGKILL);
        waitpid(it->pid, NULL, 0);
        it->pid = 0;
    }
}

bool family_reap(struct family *family, int rank, uint64_t deadline_ns)
{
    const struct timespec nap = {.tv_nsec = 200000};
    struct family_rank *it = &family->ranks[rank];
    int status = 0;
    pid_t pid = waitpid(it->pid, &status, WNOHANG);
    while (pid == 0 && hoop_now_ns() < deadline_ns) {
        nanosleep(&nap, NULL);
        pid = waitpid(it->pid, &status, WNOHANG);
    }
    if (pid <= 0) {
        return false;
    }
    it->pid = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void family_finish(struct family *family)
{
    for (int r = 0; r < family->n; r++) {
        family_kill(family, r);
        family_close(&family->ranks[r].from);
        family_close(&family->ranks[r].to);
    }
}
