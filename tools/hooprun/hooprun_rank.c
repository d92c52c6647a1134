#include "hooprun/hooprun_rank.h"

#include "hoop.h"
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

/*
 * MASTER_PORT is below Linux's default range of ephemeral ports, so that a program that listens
 * there rarely finds it taken.
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

/* Is hooprun a task of a Slurm step with as many machines as the job? */
static bool slurm_step(const struct hooprun_options *options, const char **ret_job,
                       const char **ret_step)
{
    const char *nodes = getenv("SLURM_STEP_NUM_NODES");
    *ret_job = getenv("SLURM_JOB_ID");
    *ret_step = getenv("SLURM_STEP_ID");
    return nodes != NULL && *ret_job != NULL && *ret_step != NULL &&
           strtol(nodes, NULL, 10) == options->node_count;
}

bool hooprun_run_id_make(const struct hooprun_options *options,
                         char ret_run_id[HOOPRUN_RUN_ID_BYTES])
{
    uint8_t seed[16];
    const char *job = NULL;
    const char *step = NULL;
    if (options->run_id != NULL) {
        snprintf(ret_run_id, HOOPRUN_RUN_ID_BYTES, "%s", options->run_id);
    } else if (options->node_count == 1) {
        if (!random_fill(seed, sizeof(seed))) {
            return false;
        }
        hex_write(seed, sizeof(seed), ret_run_id);
    } else if (slurm_step(options, &job, &step)) {
        snprintf(ret_run_id, HOOPRUN_RUN_ID_BYTES, "slurm.%.24s.%.24s", job, step);
    } else {
        snprintf(ret_run_id, HOOPRUN_RUN_ID_BYTES, "none");
    }
    return true;
}

int hooprun_threads(const struct hooprun_setup *setup)
{
    const int ranks = setup->options->rank_count;
    if (ranks == 1 || getenv("OMP_NUM_THREADS") != NULL) {
        return 0;
    }
    return setup->options->bind_to_core ? hooprun_cpus_each(&setup->cpus, ranks) : 1;
}

bool hooprun_identity_make(struct hooprun_identity *ret_identity)
{
    struct {
        uint8_t secret[32];
        uint16_t port;
    } seed;
    if (!random_fill(&seed, sizeof(seed))) {
        return false;
    }
    hex_write(seed.secret, sizeof(seed.secret), ret_identity->secret);
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

static bool numbers_set(const struct hooprun_setup *setup, int local_rank)
{
    const struct hooprun_options *options = setup->options;
    const int rank = options->first_rank + local_rank;
    const int port = options->master_port != 0 ? options->master_port : setup->identity->port;
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"RANK", rank},
        {"LOCAL_RANK", local_rank},
        {"ROLE_RANK", rank},
        {"WORLD_SIZE", options->world_size},
        {"LOCAL_WORLD_SIZE", options->rank_count},
        {"ROLE_WORLD_SIZE", options->world_size},
        {"GROUP_RANK", options->node_rank},
        {"GROUP_WORLD_SIZE", options->node_count},
        {"NODE_RANK", options->node_rank},
        {"MASTER_PORT", port},
        {"TORCHELASTIC_RESTART_COUNT", setup->attempt},
        {"TORCHELASTIC_MAX_RESTARTS", options->restarts_most},
        {"HOOP_LOCAL_SIZE", options->rank_count},
        {"HOOP_RESTART_COUNT", setup->attempt},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!set_number(numbers[i].name, numbers[i].value)) {
            return false;
        }
    }
    return true;
}

/* Sets only one of the two variables, since the other could contradict it. */
static bool secret_set(const struct hooprun_setup *setup)
{
    const struct hooprun_options *options = setup->options;
    if (options->own_secret) {
        return setenv("HOOP_SECRET", setup->identity->secret, 1) == 0 &&
               unsetenv("HOOP_SECRET_FILE") == 0;
    }
    const char *file = options->secret_file;
    char path[PATH_MAX];
    if (file != NULL && file[0] != '/' && realpath(file, path) != NULL) {
        file = path; /* the program may change its directory before it joins */
    }
    return file == NULL ||
           (setenv("HOOP_SECRET_FILE", file, 1) == 0 && unsetenv("HOOP_SECRET") == 0);
}

static bool environment_set(const struct hooprun_setup *setup, int local_rank)
{
    return numbers_set(setup, local_rank) && secret_set(setup) &&
           (setup->threads == 0 || set_number("OMP_NUM_THREADS", setup->threads)) &&
           setenv("MASTER_ADDR", setup->options->master_addr, 1) == 0 &&
           setenv("TORCHELASTIC_RUN_ID", setup->run_id, 1) == 0;
}

static bool cpus_set(const struct hooprun_setup *setup, int local_rank)
{
    struct hooprun_cpu_set set;
    if (!setup->options->bind_to_core) {
        return true;
    }
    hooprun_cpus_share(&setup->cpus, local_rank, setup->options->rank_count, &set);
    return sched_setaffinity(0, sizeof(set), set.parts) == 0;
}

static bool streams_set(const struct hooprun_setup *setup, int local_rank, const int streams[2])
{
    const bool first = setup->options->first_rank + local_rank == 0;
    if (!first && dup2(setup->null_fd, STDIN_FILENO) < 0) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        if (streams[i] >= 0 && dup2(streams[i], STDOUT_FILENO + i) < 0) {
            return false;
        }
    }
    return true;
}

/*
 * Joins in place of a rank whose program cannot run. This needs a process of its own, because
 * hooprun waits for the rank's end. The end of this process then fails the job on all machines.
 */
static void rank_stand_in(const struct hooprun_setup *setup)
{
    if (setup->options->node_count > 1 && fork() == 0) {
        hoop_comm_t comm = HOOP_COMM_NULL;
        signal(SIGTERM, SIG_IGN); /* which hooprun sends to leftover processes */
        (void)hoop_comm_init_env(&comm, NULL);
        _exit(HOOPRUN_EXIT_NOT_FOUND);
    }
}

/* Runs in the child. Signals stay blocked until exec, so that earlier ones reach the program. */
static _Noreturn void rank_become(const struct hooprun_setup *setup, int local_rank,
                                  const int streams[2], pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(HOOPRUN_EXIT_LAUNCHER);
    }
    if (streams_set(setup, local_rank, streams) && environment_set(setup, local_rank) &&
        cpus_set(setup, local_rank) &&
        (!setup->free_writers || signal(SIGTTOU, SIG_IGN) != SIG_ERR) &&
        sigprocmask(SIG_SETMASK, &setup->mask, NULL) == 0) {
        execvp(setup->options->command[0], setup->options->command);
    }
    const int refusal = errno;
    const ssize_t written = write(setup->refusal_fd, &refusal, sizeof(refusal));
    (void)written; /* only other refusals could have filled the pipe */
    rank_stand_in(setup);
    _exit(refusal == ENOENT ? HOOPRUN_EXIT_NOT_FOUND : HOOPRUN_EXIT_NOT_EXECUTABLE);
}

pid_t hooprun_rank_start(const struct hooprun_setup *setup, int local_rank, const int streams[2])
{
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
        rank_become(setup, local_rank, streams, parent);
    }
    if (pid > 0) {
        /* Here too, since the group must exist before this process first signals it. */
        setpgid(pid, pid);
    }
    return pid;
}
