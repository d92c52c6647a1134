#include "hooprun_rank.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

/*
 * MASTER_PORT comes from below the range that Linux gives to outgoing connections, so that a
 * program that does listen there rarely finds it taken.
 */
#define PORT_FIRST 20000
#define PORT_COUNT 10000

static bool random_fill(void *buf, size_t bytes)
{
    char *at = buf;
    while (bytes > 0) {
        const ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno != EINTR) {
            return false;
        }
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        }
    }
    return true;
}

static void hex_write(const uint8_t *bytes, size_t count, char *ret_text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        ret_text[2 * i] = digits[bytes[i] >> 4];
        ret_text[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret_text[2 * count] = '\0';
}

bool hooprun_identity_make(struct hooprun_identity *ret_identity)
{
    struct {
        uint8_t secret[32];
        uint8_t run_id[16];
        uint16_t port;
    } seed;
    if (!random_fill(&seed, sizeof(seed))) {
        return false;
    }
    hex_write(seed.secret, sizeof(seed.secret), ret_identity->secret);
    hex_write(seed.run_id, sizeof(seed.run_id), ret_identity->run_id);
    ret_identity->port = PORT_FIRST + seed.port % PORT_COUNT;
    explicit_bzero(&seed, sizeof(seed));
    return true;
}

static bool set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    return setenv(name, text, 1) == 0;
}

static bool environment_set(const struct hooprun_setup *setup, int rank)
{
    const struct hooprun_identity *identity = setup->identity;
    const int count = setup->options->rank_count;
    return set_number("RANK", rank) && set_number("LOCAL_RANK", rank) &&
           set_number("ROLE_RANK", rank) && set_number("WORLD_SIZE", count) &&
           set_number("LOCAL_WORLD_SIZE", count) && set_number("ROLE_WORLD_SIZE", count) &&
           set_number("GROUP_RANK", 0) && set_number("GROUP_WORLD_SIZE", 1) &&
           setenv("MASTER_ADDR", "127.0.0.1", 1) == 0 &&
           set_number("MASTER_PORT", identity->port) &&
           setenv("TORCHELASTIC_RUN_ID", identity->run_id, 1) == 0 &&
           set_number("TORCHELASTIC_RESTART_COUNT", 0) &&
           set_number("TORCHELASTIC_MAX_RESTARTS", 0) &&
           setenv("HOOP_SECRET", identity->secret, 1) == 0 && set_number("HOOP_LOCAL_SIZE", count);
}

static bool streams_set(const struct hooprun_setup *setup, int rank, const int streams[2])
{
    if (rank != 0 && dup2(setup->null_fd, STDIN_FILENO) < 0) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        if (streams[i] >= 0 && dup2(streams[i], STDOUT_FILENO + i) < 0) {
            return false;
        }
    }
    return true;
}

/* In the child. Signals stay blocked up to exec: one that arrives earlier acts on the program. */
static _Noreturn void rank_become(const struct hooprun_setup *setup, int rank, const int streams[2],
                                  pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(HOOPRUN_EXIT_LAUNCHER);
    }
    if (streams_set(setup, rank, streams) && environment_set(setup, rank) &&
        setrlimit(RLIMIT_NOFILE, &setup->files_limit) == 0 &&
        sigprocmask(SIG_SETMASK, &setup->mask, NULL) == 0) {
        execvp(setup->options->command[0], setup->options->command);
    }
    const int refusal = errno;
    const ssize_t written = write(setup->refusal_fd, &refusal, sizeof(refusal));
    (void)written; /* the pipe can be full only of other ranks' refusals */
    _exit(refusal == ENOENT ? HOOPRUN_EXIT_NOT_FOUND : HOOPRUN_EXIT_NOT_EXECUTABLE);
}

pid_t hooprun_rank_start(const struct hooprun_setup *setup, int rank, const int streams[2])
{
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
        rank_become(setup, rank, streams, parent);
    }
    if (pid > 0) {
        /* Here too: the group must exist before this process first signals it. */
        setpgid(pid, pid);
    }
    return pid;
}
