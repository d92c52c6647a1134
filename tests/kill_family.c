/* See kill_family.h. */
#include "kill_family.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAMILY_SHARED_BYTES ((size_t)4096)

uint64_t family_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void family_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* In the child: what it inherited and has no use for. */
static void family_leave(const struct kill_family *family, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(3);
    }
    for (uint32_t r = 0; r < family->n; r++) {
        if (family->from[r] >= 0) {
            close(family->from[r]);
            close(family->to[r]);
        }
    }
    const int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0) {
        _exit(3);
    }
    close(null);
}

static bool family_fork(struct kill_family *family, const struct kill_job *job, uint32_t rank,
                        const int id[2])
{
    int up[2];
    int down[2];
    const pid_t parent = getpid();
    if (pipe(up) != 0) {
        return false;
    }
    if (pipe(down) != 0) {
        close(up[0]);
        close(up[1]);
        return false;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        close(up[0]);
        close(down[1]);
        family_leave(family, parent);
        const struct kill_pipes pipes = {.order = down[0], .report = up[1], .id = {id[0], id[1]}};
        kill_rank_main(job, rank, &pipes, &family->operations[rank]);
    }
    close(up[1]);
    close(down[0]);
    family->from[rank] = up[0];
    family->to[rank] = down[1];
    family->pids[rank] = pid > 0 ? pid : 0;
    return pid > 0;
}

bool family_start(struct kill_family *family, const struct kill_job *job)
{
    int id[2];
    *family = (struct kill_family){.n = job->n};
    for (uint32_t r = 0; r < SWEEP_MAX_RANKS; r++) {
        family->from[r] = family->to[r] = -1;
    }
    void *shared =
        mmap(NULL, FAMILY_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return false;
    }
    family->operations = shared;
    if (pipe(id) != 0) {
        return false;
    }
    bool good = true;
    for (uint32_t r = 0; r < job->n && good; r++) {
        good = family_fork(family, job, r, id);
    }
    close(id[0]);
    close(id[1]);
    return good;
}

void family_finish(struct kill_family *family)
{
    for (uint32_t r = 0; r < family->n; r++) {
        if (family->pids[r] > 0) {
            kill(family->pids[r], SIGKILL);
            waitpid(family->pids[r], NULL, 0);
        }
        family_close(&family->from[r]);
        family_close(&family->to[r]);
    }
    if (family->operations != NULL) {
        munmap(family->operations, FAMILY_SHARED_BYTES);
    }
    *family = (struct kill_family){.n = 0};
}

bool family_hear(struct kill_family *family, uint32_t rank, uint64_t deadline_ns,
                 struct kill_report *ret)
{
    struct pollfd fd = {.fd = family->from[rank], .events = POLLIN};
    const uint64_t now = family_now_ns();
    const int left_ms = now < deadline_ns ? (int)((deadline_ns - now) / 1000000u) + 1 : 0;
    return poll(&fd, 1, left_ms) == 1 && read(fd.fd, ret, sizeof(*ret)) == sizeof(*ret);
}

void family_release(struct kill_family *family, uint32_t rank)
{
    family_close(&family->to[rank]);
}

bool family_reap(struct kill_family *family, uint32_t rank, uint64_t deadline_ns)
{
    struct kill_report report;
    int status = 0;
    while (family_hear(family, rank, deadline_ns, &report)) {
        /* what nobody wanted to know; the end of its reports is its end */
    }
    pid_t pid = waitpid(family->pids[rank], &status, WNOHANG);
    while (pid == 0 && family_now_ns() < deadline_ns) {
        const struct timespec t = {.tv_nsec = 200000};
        nanosleep(&t, NULL);
        pid = waitpid(family->pids[rank], &status, WNOHANG);
    }
    if (pid <= 0) {
        return false;
    }
    family->pids[rank] = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
