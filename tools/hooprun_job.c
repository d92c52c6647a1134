#include "hooprun_job.h"

#include "hooprun_children.h"
#include "hooprun_output.h"
#include "hooprun_rank.h"
#include "hooprun_terminal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINGER_MS 200
#define KILL_MS 10000
#define KILL_ROUND_MS 20

enum phase { PHASE_RUN, PHASE_END, PHASE_LINGER, PHASE_KILL, PHASE_FLUSH, PHASE_DONE };

struct rank {
    pid_t pid; /* 0: not started, or reaped */
    pid_t was; /* the same, kept for messages */
    int code;  /* exit code, 128 + signal when a signal killed it */
    int signal;
    bool dumped;
    bool stopped; /* it ended after this job's own SIGTERM or SIGKILL: no failure of its own */
};

struct job {
    const struct hooprun_options *options;
    const struct hooprun_front *front;
    struct hooprun_output *output;
    struct hooprun_terminal terminal;
    struct rank *ranks;
    struct pollfd *fds;
    int running; /* ranks not reaped yet */
    int signal_fd;
    int refusal_fd[2]; /* see struct hooprun_setup */
    int null_fd;
    enum phase phase;
    bool children;       /* there may be a child left to reap */
    bool stop_sent;      /* SIGTERM or SIGKILL was sent */
    bool leftovers_told; /* SIGTERM went to what the ranks left behind */
    bool interrupted;    /* by a forwarded signal: failures are its consequence */
    bool front_dead;
    int cause;           /* the first rank that failed, -1: none */
    int refusal;         /* errno of a program that could not be run */
    int exit_code;       /* -1: undecided */
    int64_t phase_until; /* ms; INT64_MAX: no bound */
    int64_t job_until;
};

static void job_decide(struct job *job, int exit_code)
{
    if (job->exit_code < 0) {
        job->exit_code = exit_code;
    }
}

/* A rank's group is signalled only until it is reaped: then its number may be another's. */
static void ranks_signal(const struct job *job, int sig)
{
    for (int i = 0; i < job->options->rank_count; i++) {
        if (job->ranks[i].pid > 0) {
            kill(-job->ranks[i].pid, sig);
        }
    }
}

static void job_kill(struct job *job)
{
    if (job->phase == PHASE_FLUSH) {
        job->phase = PHASE_DONE;
        return;
    }
    if (job->phase != PHASE_KILL) {
        job->phase = PHASE_KILL;
        job->phase_until = hooprun_now_ms() + KILL_MS;
        job->stop_sent = true;
    }
    ranks_signal(job, SIGKILL);
    hooprun_children_signal(SIGKILL);
}

static void job_end(struct job *job)
{
    if (job->phase != PHASE_RUN && job->phase != PHASE_LINGER) {
        return;
    }
    if (job->phase == PHASE_RUN) {
        ranks_signal(job, SIGTERM);
    }
    job->phase = PHASE_END;
    job->phase_until = hooprun_now_ms() + job->options->grace_ms;
    job->stop_sent = true;
}

/* ---- Ranks that ended ----------------------------------------------------------------------- */

static struct rank *rank_find(const struct job *job, pid_t pid)
{
    for (int i = 0; i < job->options->rank_count; i++) {
        if (job->ranks[i].pid == pid) {
            return &job->ranks[i];
        }
    }
    return NULL;
}

static void rank_say(struct job *job, int number)
{
    const struct rank *rank = &job->ranks[number];
    if (rank->signal == 0) {
        hooprun_output_say(job->output, "rank %d (pid %d) exited with code %d", number,
                           (int)rank->was, rank->code);
    } else {
        hooprun_output_say(job->output, "rank %d (pid %d) was killed by signal %d (%s%s)", number,
                           (int)rank->was, rank->signal, strsignal(rank->signal),
                           rank->dumped ? ", core dumped" : "");
    }
}

/* A rank stops by itself when it wants the terminal, or by Ctrl-Z while it has it. */
static void rank_stopped(struct job *job, const struct rank *rank, int sig)
{
    const bool terminal_wanted = sig == SIGTTIN || sig == SIGTTOU;
    if (terminal_wanted && hooprun_terminal_lend(&job->terminal, rank->pid)) {
        kill(-rank->pid, SIGCONT);
    } else if (terminal_wanted || (sig == SIGTSTP && job->terminal.borrower == rank->pid)) {
        kill(job->front->pid, SIGTSTP);
    }
}

static void rank_ended(struct job *job, struct rank *rank, const siginfo_t *info)
{
    hooprun_terminal_return(&job->terminal, rank->pid);
    rank->pid = 0;
    rank->stopped = job->stop_sent;
    job->running--;
    if (info->si_code == CLD_EXITED) {
        rank->code = info->si_status;
        return;
    }
    rank->signal = info->si_status;
    rank->code = 128 + rank->signal;
    rank->dumped = info->si_code == CLD_DUMPED;
}

/*
 * Reaps whatever there is. Returns the rank to blame among those that failed, -1 for none: of
 * several found at once the order of their deaths is unknown, and one killed by a signal is more
 * likely to be why another exited than the other way round.
 */
static int job_reap(struct job *job)
{
    int blamed = -1;
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG) != 0) {
            job->children = errno != ECHILD;
            return blamed;
        }
        if (info.si_pid == 0) {
            return blamed;
        }
        struct rank *rank = rank_find(job, info.si_pid);
        if (rank == NULL) {
            continue; /* a descendant that outlived its parent */
        }
        if (info.si_code == CLD_STOPPED) {
            rank_stopped(job, rank, info.si_status);
            continue;
        }
        rank_ended(job, rank, &info);
        const bool first = blamed < 0;
        const bool likelier = !first && rank->signal != 0 && job->ranks[blamed].signal == 0;
        if (rank->code != 0 && !rank->stopped && (first || likelier)) {
            blamed = (int)(rank - job->ranks);
        }
    }
}

static void job_blame(struct job *job, int number)
{
    if (number < 0 || job->exit_code >= 0) {
        return;
    }
    job->cause = number;
    job_decide(job, job->ranks[number].code);
    int refusal = 0;
    if (read(job->refusal_fd[0], &refusal, sizeof(refusal)) == sizeof(refusal)) {
        job->refusal = refusal;
        hooprun_output_say(job->output, "cannot run '%s': %s", job->options->command[0],
                           strerror(refusal));
    } else {
        rank_say(job, number);
    }
    if (job->options->kill_on_failure) {
        job_end(job);
    }
}

/* After the cause was named: what became of the others, in one line. */
static void job_summarise(struct job *job)
{
    if (job->cause < 0 || job->refusal != 0 || job->interrupted) {
        return;
    }
    int stopped = 0;
    int failed = 0;
    for (int i = 0; i < job->options->rank_count; i++) {
        const struct rank *rank = &job->ranks[i];
        stopped += rank->stopped;
        failed += i != job->cause && rank->code != 0 && !rank->stopped;
    }
    if (stopped + failed > 0) {
        hooprun_output_say(job->output, "after rank %d, %d more failed and %d were stopped",
                           job->cause, failed, stopped);
    }
}

/* ---- Signals -------------------------------------------------------------------------------- */

static void job_interrupt(struct job *job, int sig)
{
    const bool insists =
        (sig == SIGINT || sig == SIGTERM) && (job->interrupted || job->phase != PHASE_RUN);
    job->interrupted = true;
    job_decide(job, 128 + sig);
    if (insists) {
        job_kill(job);
    } else {
        ranks_signal(job, sig);
    }
}

static void job_signals(struct job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        const int sig = (int)info.ssi_signo;
        switch (sig) {
        case SIGCHLD:
            break; /* job_reap() runs after every wait */
        case SIGINT:
        case SIGTERM:
        case SIGHUP:
        case SIGQUIT:
            job_interrupt(job, sig);
            break;
        default:
            ranks_signal(job, sig);
        }
    }
}

/* ---- The loop ------------------------------------------------------------------------------- */

static void job_deadlines(struct job *job)
{
    const int64_t now = hooprun_now_ms();
    if (now >= job->job_until && job->phase == PHASE_RUN) {
        job->job_until = INT64_MAX;
        hooprun_output_say(job->output, "the job did not end within %g s: stopping it",
                           (double)job->options->timeout_ms / 1000.0);
        job_decide(job, HOOPRUN_EXIT_TIMEOUT);
        job_end(job);
    } else if (now >= job->phase_until && job->phase == PHASE_LINGER) {
        job_end(job);
    } else if (now >= job->phase_until && job->phase == PHASE_KILL) {
        hooprun_output_say(job->output, "some processes do not die and are left behind");
        job_decide(job, HOOPRUN_EXIT_LAUNCHER);
        job->children = false;
    } else if (job->phase == PHASE_KILL || now >= job->phase_until) {
        job_kill(job);
    }
}

/* Moves on to what the state of the processes asks for. */
static void job_advance(struct job *job)
{
    job_deadlines(job);
    if (job->phase == PHASE_RUN && job->running == 0) {
        job->phase = PHASE_LINGER;
        job->phase_until = hooprun_now_ms() + LINGER_MS;
    }
    if (job->phase == PHASE_END && job->running == 0 && !job->leftovers_told) {
        job->leftovers_told = true;
        hooprun_children_signal(SIGTERM);
    }
    if (!job->children && job->phase < PHASE_FLUSH) {
        hooprun_output_finish(job->output);
        job_summarise(job);
        job->phase = PHASE_FLUSH;
        job->phase_until = INT64_MAX;
    }
    if (job->phase == PHASE_FLUSH && (hooprun_output_flushed(job->output) || job->front_dead)) {
        job->phase = PHASE_DONE;
    }
}

static int job_wait_ms(const struct job *job)
{
    int64_t until = job->phase_until;
    if (job->phase == PHASE_RUN && job->job_until < until) {
        until = job->job_until;
    }
    if (until == INT64_MAX) {
        return -1;
    }
    const int64_t left = until - hooprun_now_ms();
    const int64_t most = job->phase == PHASE_KILL ? KILL_ROUND_MS : 3600000;
    return (int)(left < 0 ? 0 : left < most ? left : most);
}

/*
 * The wait has no bound while ranks run without --timeout: then only they, a signal or the death
 * of the front end it.
 */
static void job_turn(struct job *job)
{
    job->fds[0] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    job->fds[1] = (struct pollfd){.fd = job->front_dead ? -1 : job->front->alive_fd};
    const size_t count = 2 + hooprun_output_prepare(job->output, job->fds + 2);
    if (poll(job->fds, count, job_wait_ms(job)) > 0) {
        if (job->fds[1].revents != 0) {
            job->front_dead = true;
            job_kill(job);
        }
        job_signals(job);
        hooprun_output_handle(job->output, job->fds + 2);
    }
    job_blame(job, job_reap(job));
    job_advance(job);
}

/* ---- Birth and death ------------------------------------------------------------------------ */

/* Raises this process's limit of open files for two pipes per rank; the ranks get the old one. */
static struct rlimit files_limit_raise(int rank_count)
{
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit wanted = before;
    const rlim_t needed = 2 * (rlim_t)rank_count + 64;
    if (wanted.rlim_cur < needed) {
        wanted.rlim_cur = needed < wanted.rlim_max ? needed : wanted.rlim_max;
        setrlimit(RLIMIT_NOFILE, &wanted);
    }
    return before;
}

static bool job_start_rank(struct job *job, const struct hooprun_setup *setup, int number)
{
    int streams[2];
    if (!hooprun_output_open(job->output, number, streams)) {
        return false;
    }
    const pid_t pid = hooprun_rank_start(setup, number, streams);
    const int error = errno;
    hooprun_output_close(streams);
    if (pid < 0) {
        errno = error;
        return false;
    }
    job->ranks[number].pid = pid;
    job->ranks[number].was = pid;
    job->running++;
    job->children = true;
    return true;
}

static void job_start(struct job *job)
{
    struct hooprun_identity identity;
    if (!hooprun_identity_make(&identity)) {
        hooprun_output_say(job->output, "cannot make a secret: %s", strerror(errno));
        job_decide(job, HOOPRUN_EXIT_LAUNCHER);
        return;
    }
    const struct hooprun_setup setup = {
        .options = job->options,
        .identity = &identity,
        .mask = job->front->mask,
        .files_limit = files_limit_raise(job->options->rank_count),
        .null_fd = job->null_fd,
        .refusal_fd = job->refusal_fd[1],
    };
    for (int i = 0; i < job->options->rank_count; i++) {
        if (!job_start_rank(job, &setup, i)) {
            hooprun_output_say(job->output, "cannot start rank %d of %d: %s", i,
                               job->options->rank_count, strerror(errno));
            job_decide(job, HOOPRUN_EXIT_LAUNCHER);
            job_kill(job);
            break;
        }
    }
    explicit_bzero(&identity, sizeof(identity));
}

static bool job_init(struct job *job)
{
    const int rank_count = job->options->rank_count;
    job->output = hooprun_output_create(rank_count, job->options->tag_output);
    job->ranks = calloc((size_t)rank_count, sizeof(*job->ranks));
    if (job->output == NULL || job->ranks == NULL) {
        return false;
    }
    job->fds = calloc(2 + hooprun_output_poll_most(job->output), sizeof(*job->fds));
    job->signal_fd = signalfd(-1, &job->front->signals, SFD_CLOEXEC | SFD_NONBLOCK);
    job->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    return job->fds != NULL && job->signal_fd >= 0 && job->null_fd >= 0 &&
           pipe2(job->refusal_fd, O_CLOEXEC | O_NONBLOCK) == 0 &&
           prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

static void job_finish(struct job *job)
{
    const int fds[] = {job->signal_fd, job->null_fd, job->refusal_fd[0], job->refusal_fd[1]};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    hooprun_output_destroy(job->output);
    free(job->ranks);
    free(job->fds);
}

int hooprun_job_run(const struct hooprun_options *options, const struct hooprun_front *front)
{
    struct job job = {
        .options = options,
        .front = front,
        .terminal = {.owner = front->group},
        .signal_fd = -1,
        .refusal_fd = {-1, -1},
        .null_fd = -1,
        .cause = -1,
        .exit_code = -1,
        .phase_until = INT64_MAX,
        .job_until = options->timeout_ms > 0 ? hooprun_now_ms() + options->timeout_ms : INT64_MAX,
    };
    int exit_code = HOOPRUN_EXIT_LAUNCHER;
    if (!job_init(&job)) {
        fprintf(stderr, "hooprun: cannot prepare the job: %s\n", strerror(errno));
    } else {
        job_start(&job);
        while (job.phase != PHASE_DONE) {
            job_turn(&job);
        }
        job_decide(&job, hooprun_output_lost(job.output) ? HOOPRUN_EXIT_LAUNCHER : 0);
        exit_code = job.exit_code;
    }
    job_finish(&job);
    return exit_code;
}
