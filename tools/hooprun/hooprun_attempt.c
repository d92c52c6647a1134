#include "hooprun/hooprun_attempt.h"

#include "hooprun/hooprun_children.h"
#include "hooprun/hooprun_terminal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINGER_MS 200
#define KILL_MS 10000
#define KILL_ROUND_MS 20
#define REFUSAL_PAUSE_MS 1000
#define REFUSAL_MS 60000 /* ranks' default time to wait for each other */

enum phase { PHASE_RUN, PHASE_END, PHASE_LINGER, PHASE_KILL, PHASE_OVER };

struct rank {
    pid_t pid; /* 0 before the start, and once reaped */
    pid_t was; /* the same, kept for messages */
    int code;  /* exit code, or 128 + signal */
    int signal;
    bool dumped;
    bool starved; /* by SIGKILL, and since the start the kernel has killed for lack of memory */
    bool stopped; /* it ended after hooprun's SIGTERM or SIGKILL, which is no failure of its own */
};

struct hooprun_attempt {
    const struct hooprun_options *options;
    const struct hooprun_front *front;
    struct hooprun_output *output;
    struct hooprun_terminal terminal;
    struct rank *ranks;
    int running;       /* ranks that are not reaped yet */
    int refusal_fd[2]; /* a pipe, see struct hooprun_setup */
    enum phase phase;
    bool children;  /* there may be children to reap */
    bool stop_sent; /* hooprun sent SIGTERM or SIGKILL */
    bool left;      /* the ranks have ended, and what they leave behind was told to end */
    bool orphaned;  /* a process that is no rank has ended, and its children are ours now */
    struct hooprun_told told; /* the ranks' leftover processes that were sent SIGTERM */
    bool interrupted;         /* failures follow from a signal that was passed on */
    bool broken;              /* hooprun itself failed */
    bool typed;               /* Ctrl-C ended the rank that had the terminal */
    int cause;                /* the first rank that failed, or -1 */
    int refusal;              /* errno if the program could not be run */
    uint64_t oom_kills;       /* count at the start */
    int64_t phase_until;      /* ms; INT64_MAX: none */
};

/* A rank's number in the whole job. */
static int rank_number(const struct hooprun_attempt *attempt, int local_rank)
{
    return attempt->options->first_rank + local_rank;
}

/* Signals a rank's group only until the rank is reaped, since the number may be reused. */
void hooprun_attempt_signal(struct hooprun_attempt *attempt, int sig)
{
    for (int i = 0; i < attempt->options->rank_count; i++) {
        if (attempt->ranks[i].pid > 0) {
            kill(-attempt->ranks[i].pid, sig);
        }
    }
}

void hooprun_attempt_interrupt(struct hooprun_attempt *attempt, int sig)
{
    attempt->interrupted = true;
    hooprun_attempt_signal(attempt, sig);
}

void hooprun_attempt_kill(struct hooprun_attempt *attempt)
{
    if (attempt->phase == PHASE_OVER) {
        return;
    }
    if (attempt->phase != PHASE_KILL) {
        attempt->phase = PHASE_KILL;
        attempt->phase_until = hooprun_now_ms() + KILL_MS;
        attempt->stop_sent = true;
    }
    hooprun_attempt_signal(attempt, SIGKILL);
    hooprun_children_signal(SIGKILL);
}

/* Are there processes that join in place of ranks that could not start (hooprun_rank.h)? */
static bool attempt_has_stand_ins(const struct hooprun_attempt *attempt)
{
    return attempt->refusal != 0 && attempt->options->node_count > 1;
}

void hooprun_attempt_stop(struct hooprun_attempt *attempt)
{
    if (attempt->phase != PHASE_RUN && attempt->phase != PHASE_LINGER) {
        return;
    }
    hooprun_attempt_signal(attempt, SIGTERM);
    attempt->phase = PHASE_END;
    attempt->phase_until =
        hooprun_now_ms() +
        (attempt_has_stand_ins(attempt) ? REFUSAL_MS : attempt->options->grace_ms);
    attempt->stop_sent = true;
}

void hooprun_attempt_expire(struct hooprun_attempt *attempt)
{
    const int64_t until = hooprun_now_ms() + attempt->options->grace_ms;
    hooprun_attempt_stop(attempt);
    if (attempt->phase == PHASE_END && until < attempt->phase_until) {
        attempt->phase_until = until;
    }
}

/* ---- Ranks that ended ----------------------------------------------------------------------- */

/* How many processes of this machine, in any cgroup, the kernel has killed for lack of memory. */
static uint64_t oom_kills(void)
{
    static const char key[] = "oom_kill ";
    uint64_t count = 0;
    char line[128];
    FILE *file = fopen("/proc/vmstat", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, sizeof(key) - 1) == 0) {
            count = strtoull(line + sizeof(key) - 1, NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

static struct rank *rank_find(const struct hooprun_attempt *attempt, pid_t pid)
{
    for (int i = 0; i < attempt->options->rank_count; i++) {
        if (attempt->ranks[i].pid == pid) {
            return &attempt->ranks[i];
        }
    }
    return NULL;
}

static void rank_say(const struct hooprun_attempt *attempt, int local_rank)
{
    static const char starved[] =
        ": since the start the kernel has killed processes for lack of memory (see dmesg)";
    const struct rank *rank = &attempt->ranks[local_rank];
    const int number = rank_number(attempt, local_rank);
    if (rank->signal == 0) {
        hooprun_output_say(attempt->output, "rank %d (pid %d) exited with code %d", number,
                           (int)rank->was, rank->code);
    } else {
        hooprun_output_say(attempt->output, "rank %d (pid %d) was killed by signal %d (%s%s)%s",
                           number, (int)rank->was, rank->signal, strsignal(rank->signal),
                           rank->dumped ? ", core dumped" : "", rank->starved ? starved : "");
    }
}

/* Handles a rank that stopped, because it wants the terminal, or by Ctrl-Z while it has it. */
static void rank_stopped(struct hooprun_attempt *attempt, const struct rank *rank, int sig)
{
    const bool terminal_wanted = sig == SIGTTIN || sig == SIGTTOU;
    if (terminal_wanted && hooprun_terminal_lend(&attempt->terminal, rank->pid)) {
        kill(-rank->pid, SIGCONT);
    } else if (terminal_wanted || (sig == SIGTSTP && attempt->terminal.borrower == rank->pid)) {
        kill(attempt->front->pid, SIGTSTP);
    }
}

static void rank_ended(struct hooprun_attempt *attempt, struct rank *rank, const siginfo_t *info)
{
    const bool had_terminal = attempt->terminal.borrower == rank->pid;
    hooprun_terminal_return(&attempt->terminal, rank->pid);
    rank->pid = 0;
    rank->stopped = attempt->stop_sent;
    attempt->running--;
    if (info->si_code == CLD_EXITED) {
        rank->code = info->si_status;
        return;
    }
    rank->signal = info->si_status;
    rank->code = 128 + rank->signal;
    rank->dumped = info->si_code == CLD_DUMPED;
    rank->starved = rank->signal == SIGKILL && oom_kills() > attempt->oom_kills;
    attempt->typed |= had_terminal && (rank->signal == SIGINT || rank->signal == SIGQUIT);
}

/*
 * Reaps all children that have ended. Returns the rank to blame for the failure, or -1. If several
 * failed at once the order is unknown; one that was killed by a signal is preferred, since it more
 * likely caused another's exit than the reverse.
 */
static int attempt_reap(struct hooprun_attempt *attempt)
{
    int blamed = -1;
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG) != 0) {
            attempt->children = errno != ECHILD;
            return blamed;
        }
        if (info.si_pid == 0) {
            return blamed;
        }
        struct rank *rank = rank_find(attempt, info.si_pid);
        if (rank == NULL && info.si_code != CLD_STOPPED) {
            attempt->orphaned = true; /* a descendant whose parent ended before */
            hooprun_told_forget(&attempt->told, info.si_pid);
        }
        if (rank == NULL) {
            continue;
        }
        if (info.si_code == CLD_STOPPED) {
            rank_stopped(attempt, rank, info.si_status);
            continue;
        }
        rank_ended(attempt, rank, &info);
        const bool first = blamed < 0;
        const bool likelier = !first && rank->signal != 0 && attempt->ranks[blamed].signal == 0;
        if (rank->code != 0 && !rank->stopped && (first || likelier)) {
            blamed = (int)(rank - attempt->ranks);
        }
    }
}

/* Explains common mistakes: a script without python3, as torchrun takes it; a program of this
 * directory without "./"; a script whose interpreter does not exist. */
static void refusal_hint(const char *program, int refusal, char *ret_text, size_t bytes)
{
    struct stat about;
    const char *suffix = strrchr(program, '.');
    const bool known = stat(program, &about) == 0;
    const bool directory = known && S_ISDIR(about.st_mode);
    const bool there = known && !directory;
    const bool python = suffix != NULL && strcmp(suffix, ".py") == 0;
    const bool path = strchr(program, '/') != NULL;
    const bool executable = access(program, X_OK) == 0;
    const bool unfound = !path && executable;
    ret_text[0] = '\0';
    if (directory && path) {
        snprintf(ret_text, bytes, "; it is a directory");
    } else if (there && refusal == ENOENT && path) {
        snprintf(ret_text, bytes,
                 "; the file is there, but its interpreter is not: see its first line, or what "
                 "file(1) says of it");
    } else if (there && (python || unfound)) {
        snprintf(ret_text, bytes, "; did you mean %s%s%s%s%s?", python ? "python3 " : "",
                 python ? program : "", python && unfound ? " or " : "", unfound ? "./" : "",
                 unfound ? program : "");
    } else if (there && refusal == EACCES && !executable) {
        snprintf(ret_text, bytes, "; it is not executable (chmod +x)");
    }
}

/* Ends the remaining ranks after ms, unless they end before. */
static void attempt_stop_in(struct hooprun_attempt *attempt, int ms)
{
    attempt->phase = PHASE_LINGER;
    attempt->phase_until = hooprun_now_ms() + ms;
}

/*
 * The program cannot be run. With several machines the other ranks here are ended a moment later:
 * most likely they will fail in the same way, and leave stand-ins, too.
 */
static void attempt_refuse(struct hooprun_attempt *attempt, int refusal)
{
    const char *program = attempt->options->command[0];
    char hint[512];
    attempt->refusal = refusal;
    refusal_hint(program, refusal, hint, sizeof(hint));
    hooprun_output_say(attempt->output, "cannot run '%s': %s%s", program, strerror(refusal), hint);
    if (attempt_has_stand_ins(attempt)) {
        hooprun_output_say(attempt->output,
                           "telling the ranks of the other machines, for %d s at most",
                           REFUSAL_MS / 1000);
        attempt_stop_in(attempt, REFUSAL_PAUSE_MS);
    } else if (attempt->options->kill_on_failure) {
        hooprun_attempt_stop(attempt);
    }
}

static void attempt_blame(struct hooprun_attempt *attempt, int local_rank)
{
    if (local_rank < 0 || attempt->cause >= 0 || attempt->interrupted) {
        return;
    }
    attempt->cause = local_rank;
    int refusal = 0;
    if (read(attempt->refusal_fd[0], &refusal, sizeof(refusal)) == sizeof(refusal)) {
        attempt_refuse(attempt, refusal);
        return;
    }
    rank_say(attempt, local_rank);
    if (!attempt->options->kill_on_failure) {
        return;
    }
    if (attempt->options->node_count > 1) {
        /* The surviving ranks here tell those of other machines which rank failed. */
        attempt_stop_in(attempt, LINGER_MS);
    } else {
        hooprun_attempt_stop(attempt);
    }
}

void hooprun_attempt_summarise(const struct hooprun_attempt *attempt)
{
    if (attempt->cause < 0 || attempt->refusal != 0 || attempt->interrupted) {
        return;
    }
    int stopped = 0;
    int failed = 0;
    for (int i = 0; i < attempt->options->rank_count; i++) {
        const struct rank *rank = &attempt->ranks[i];
        stopped += rank->stopped;
        failed += i != attempt->cause && rank->code != 0 && !rank->stopped;
    }
    if (stopped + failed > 0) {
        hooprun_output_say(attempt->output, "after rank %d, %d more failed and %d were stopped",
                           rank_number(attempt, attempt->cause), failed, stopped);
    }
}

/* ---- Phases --------------------------------------------------------------------------------- */

static void attempt_deadline(struct hooprun_attempt *attempt)
{
    const bool expired = hooprun_now_ms() >= attempt->phase_until;
    if (attempt->phase == PHASE_LINGER && expired) {
        hooprun_attempt_stop(attempt);
    } else if (attempt->phase == PHASE_KILL && expired) {
        hooprun_output_say(attempt->output, "some processes do not die and are left behind");
        attempt->broken = true;
        attempt->children = false;
    } else if (attempt->phase == PHASE_KILL || expired) {
        hooprun_attempt_kill(attempt);
    }
}

/* Those that the ranks leave behind have the grace time from here on, and each learns of it. */
static void attempt_tell_leftovers(struct hooprun_attempt *attempt)
{
    const int64_t until = hooprun_now_ms() + attempt->options->grace_ms;
    if (!attempt->left) {
        attempt->left = true;
        attempt->phase_until = until > attempt->phase_until ? until : attempt->phase_until;
    } else if (!attempt->orphaned) {
        return;
    }
    attempt->orphaned = false;
    hooprun_children_tell(&attempt->told);
}

void hooprun_attempt_step(struct hooprun_attempt *attempt)
{
    attempt_blame(attempt, attempt_reap(attempt));
    attempt_deadline(attempt);
    if (attempt->phase == PHASE_RUN && attempt->running == 0) {
        attempt_stop_in(attempt, LINGER_MS);
    }
    if (attempt->phase == PHASE_END && attempt->running == 0) {
        attempt_tell_leftovers(attempt);
    }
    if (!attempt->children) {
        attempt->phase = PHASE_OVER;
        attempt->phase_until = INT64_MAX;
    }
}

int64_t hooprun_attempt_until(const struct hooprun_attempt *attempt)
{
    const int64_t round = hooprun_now_ms() + KILL_ROUND_MS;
    const bool rounds = attempt->phase == PHASE_KILL && round < attempt->phase_until;
    return rounds ? round : attempt->phase_until;
}

bool hooprun_attempt_running(const struct hooprun_attempt *attempt)
{
    return attempt->phase == PHASE_RUN;
}

bool hooprun_attempt_may_expire(const struct hooprun_attempt *attempt)
{
    const bool ending = attempt->phase == PHASE_LINGER || attempt->phase == PHASE_END;
    return attempt->phase == PHASE_RUN || (ending && attempt_has_stand_ins(attempt));
}

bool hooprun_attempt_over(const struct hooprun_attempt *attempt)
{
    return attempt->phase == PHASE_OVER;
}

int hooprun_attempt_code(const struct hooprun_attempt *attempt)
{
    if (attempt->cause >= 0) {
        return attempt->ranks[attempt->cause].code;
    }
    return attempt->broken ? HOOPRUN_EXIT_LAUNCHER : -1;
}

bool hooprun_attempt_hopeless(const struct hooprun_attempt *attempt)
{
    return attempt->broken || attempt->typed || attempt->refusal != 0;
}

/* ---- Birth and death ------------------------------------------------------------------------ */

static void attempt_close_refusal(struct hooprun_attempt *attempt)
{
    for (int i = 0; i < 2; i++) {
        if (attempt->refusal_fd[i] >= 0) {
            close(attempt->refusal_fd[i]);
            attempt->refusal_fd[i] = -1;
        }
    }
}

/* Clears the state of the previous attempt. */
static void attempt_reset(struct hooprun_attempt *attempt)
{
    attempt_close_refusal(attempt);
    hooprun_told_finish(&attempt->told);
    memset(attempt->ranks, 0, (size_t)attempt->options->rank_count * sizeof(*attempt->ranks));
    *attempt = (struct hooprun_attempt){
        .options = attempt->options,
        .front = attempt->front,
        .output = attempt->output,
        .terminal = {.owner = attempt->front->group},
        .ranks = attempt->ranks,
        .refusal_fd = {-1, -1},
        .phase = PHASE_RUN,
        .cause = -1,
        .oom_kills = oom_kills(),
        .phase_until = INT64_MAX,
    };
}

static bool attempt_start_rank(struct hooprun_attempt *attempt, const struct hooprun_setup *setup,
                               int local_rank)
{
    int streams[2];
    if (!hooprun_output_open(attempt->output, local_rank, streams)) {
        return false;
    }
    const pid_t pid = hooprun_rank_start(setup, local_rank, streams);
    const int error = errno;
    hooprun_output_close(streams);
    if (pid < 0) {
        errno = error;
        return false;
    }
    attempt->ranks[local_rank].pid = pid;
    attempt->ranks[local_rank].was = pid;
    attempt->running++;
    attempt->children = true;
    return true;
}

static bool attempt_start_ranks(struct hooprun_attempt *attempt, const struct hooprun_setup *setup)
{
    const struct hooprun_options *options = attempt->options;
    for (int i = 0; i < options->rank_count; i++) {
        if (!attempt_start_rank(attempt, setup, i)) {
            hooprun_output_say(attempt->output, "cannot start rank %d of %d: %s",
                               rank_number(attempt, i), options->world_size, hooprun_reason(errno));
            return false;
        }
    }
    return true;
}

void hooprun_attempt_start(struct hooprun_attempt *attempt, const struct hooprun_setup *setup)
{
    struct hooprun_identity identity = {0};
    struct hooprun_setup complete = *setup;
    attempt_reset(attempt);
    if (!hooprun_identity_make(&identity) ||
        pipe2(attempt->refusal_fd, O_CLOEXEC | O_NONBLOCK) != 0) {
        hooprun_output_say(attempt->output, "cannot prepare the ranks: %s", hooprun_reason(errno));
        attempt->broken = true;
    } else {
        complete.identity = &identity;
        complete.refusal_fd = attempt->refusal_fd[1];
        complete.free_writers = hooprun_terminal_stops_writers(attempt->front->group);
        attempt->broken = !attempt_start_ranks(attempt, &complete);
    }
    if (attempt->broken) {
        hooprun_attempt_kill(attempt);
    }
    explicit_bzero(&identity, sizeof(identity));
}

struct hooprun_attempt *hooprun_attempt_create(const struct hooprun_options *options,
                                               const struct hooprun_front *front,
                                               struct hooprun_output *output)
{
    struct hooprun_attempt *attempt = calloc(1, sizeof(*attempt));
    struct rank *ranks = calloc((size_t)options->rank_count, sizeof(*ranks));
    if (attempt == NULL || ranks == NULL) {
        free(attempt);
        free(ranks);
        return NULL;
    }
    *attempt = (struct hooprun_attempt){
        .options = options,
        .front = front,
        .output = output,
        .ranks = ranks,
        .refusal_fd = {-1, -1},
        .phase = PHASE_OVER,
        .cause = -1,
        .phase_until = INT64_MAX,
    };
    return attempt;
}

void hooprun_attempt_destroy(struct hooprun_attempt *attempt)
{
    if (attempt == NULL) {
        return;
    }
    attempt_close_refusal(attempt);
    hooprun_told_finish(&attempt->told);
    free(attempt->ranks);
    free(attempt);
}
