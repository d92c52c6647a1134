#include "hooprun/hooprun_job.h"

#include "hooprun/hooprun_attempt.h"
#include "hooprun/hooprun_children.h"
#include "hooprun/hooprun_claim.h"
#include "hooprun/hooprun_output.h"
#include "hooprun/hooprun_rank.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define WAIT_MS_MOST 3600000
#define FILES_MOST ((rlim_t)1 << 20)

struct job {
    const struct hooprun_options *options;
    const struct hooprun_front *front;
    struct hooprun_output *output;
    struct hooprun_attempt *attempt;
    struct hooprun_setup setup;
    char run_id[HOOPRUN_RUN_ID_BYTES];
    struct pollfd *fds;
    int signal_fd;
    int claim_fd;
    bool flushing;    /* the attempt is over, but perhaps not all of its output is written */
    bool hurried;     /* do not wait for that any longer */
    bool interrupted; /* by a signal that was passed on */
    bool front_dead;
    bool done;
    int exit_code;       /* -1: not decided */
    int64_t job_until;   /* ms; INT64_MAX: none, or over */
    int64_t flush_until; /* the same, for output that nobody reads */
};

static void job_decide(struct job *job, int exit_code)
{
    if (job->exit_code < 0) {
        job->exit_code = exit_code;
    }
}

/* ---- Signals -------------------------------------------------------------------------------- */

static void job_kill(struct job *job)
{
    job->hurried = job->flushing;
    hooprun_attempt_kill(job->attempt);
}

static void job_interrupt(struct job *job, int sig)
{
    const bool insists = (sig == SIGINT || sig == SIGTERM) &&
                         (job->interrupted || !hooprun_attempt_running(job->attempt));
    job->interrupted = true;
    job_decide(job, 128 + sig);
    hooprun_attempt_interrupt(job->attempt, sig);
    if (insists) {
        job_kill(job);
    }
}

static void job_signals(struct job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        const int sig = (int)info.ssi_signo;
        switch (sig) {
        case SIGCHLD:
            break; /* hooprun_attempt_step() runs after every wait */
        case SIGINT:
        case SIGTERM:
        case SIGHUP:
        case SIGQUIT:
            job_interrupt(job, sig);
            break;
        default:
            hooprun_attempt_signal(job->attempt, sig);
        }
    }
}

/* ---- The loop ------------------------------------------------------------------------------- */

/* Returns true, once, when the job's time is over. */
static bool job_time_over(struct job *job)
{
    if (hooprun_now_ms() < job->job_until) {
        return false;
    }
    job->job_until = INT64_MAX;
    hooprun_output_say(job->output, "the job did not end within %.10g s: stopping it",
                       (double)job->options->timeout_ms / 1000.0);
    job_decide(job, HOOPRUN_EXIT_TIMEOUT);
    return true;
}

/* Lets a failure decide the exit code if no restart can follow. */
static void job_judge(struct job *job)
{
    const int code = hooprun_attempt_code(job->attempt);
    const bool last = job->setup.attempt == job->options->restarts_most;
    if (code >= 0 && (last || hooprun_attempt_hopeless(job->attempt))) {
        job_decide(job, code);
    }
}

static bool job_restarts(const struct job *job)
{
    return job->exit_code < 0 && hooprun_attempt_code(job->attempt) >= 0;
}

/* No process is left: says what there is to say about the attempt. */
static void job_close_attempt(struct job *job)
{
    hooprun_output_finish(job->output);
    hooprun_attempt_summarise(job->attempt);
    if (job_restarts(job) && !job_time_over(job)) {
        hooprun_output_say(job->output, "starting all ranks again (%d of %d)",
                           job->setup.attempt + 1, job->options->restarts_most);
    }
    job->flushing = true;
}

static void job_start_attempt(struct job *job)
{
    job->flushing = false;
    hooprun_attempt_start(job->attempt, &job->setup);
}

/* Is all written that the attempt's processes left in pipes, or given up? */
static bool job_flushed(struct job *job)
{
    if (hooprun_output_flushed(job->output) || job->front_dead || job->hurried) {
        return true;
    }
    (void)job_time_over(job);
    const bool limited = job->options->timeout_ms > 0 && job->job_until == INT64_MAX;
    if (limited && job->flush_until == INT64_MAX) {
        job->flush_until = hooprun_now_ms() + job->options->grace_ms;
    }
    return hooprun_now_ms() >= job->flush_until;
}

static void job_advance(struct job *job)
{
    if (!job->flushing) {
        hooprun_attempt_step(job->attempt);
        job_judge(job);
        if (hooprun_attempt_may_expire(job->attempt) && job_time_over(job)) {
            hooprun_attempt_expire(job->attempt);
        }
        if (hooprun_attempt_over(job->attempt)) {
            job_close_attempt(job);
        }
    }
    if (!job->flushing || !job_flushed(job)) {
        return;
    }
    if (job_restarts(job)) {
        job->setup.attempt++;
        job_start_attempt(job);
    } else {
        job->done = true;
    }
}

static int job_wait_ms(const struct job *job)
{
    int64_t until = hooprun_attempt_until(job->attempt);
    const bool may_expire = hooprun_attempt_may_expire(job->attempt) || job->flushing;
    if (may_expire && job->job_until < until) {
        until = job->job_until;
    }
    if (job->flushing && job->flush_until < until) {
        until = job->flush_until;
    }
    if (until == INT64_MAX) {
        return -1;
    }
    const int64_t left = until - hooprun_now_ms();
    return (int)(left < 0 ? 0 : left < WAIT_MS_MOST ? left : WAIT_MS_MOST);
}

/*
 * One turn of the loop. Without --timeout its wait has no limit while ranks run: only they, a
 * signal or the front's end can end it.
 */
static void job_turn(struct job *job)
{
    job->fds[0] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    job->fds[1] = (struct pollfd){.fd = job->front_dead ? -1 : job->front->alive_fd};
    const size_t count = 2 + hooprun_output_prepare(job->output, job->fds + 2);
    if (poll(job->fds, count, job_wait_ms(job)) > 0) {
        if (job->fds[1].revents != 0) {
            job->front_dead = true;
            job_decide(job, HOOPRUN_EXIT_LAUNCHER);
            job_kill(job);
        }
        job_signals(job);
        hooprun_output_handle(job->output, job->fds + 2);
        if (hooprun_output_lost(job->output)) {
            job_decide(job, HOOPRUN_EXIT_LAUNCHER);
        }
    }
    job_advance(job);
}

/* ---- Birth and death ------------------------------------------------------------------------ */

/*
 * Raises the limit of open files for this process and the ranks, which inherit it: n ranks of a
 * machine need about 5 n each. A million at most: some programs close every possible descriptor.
 */
static void files_limit_raise(struct rlimit *ret_before, struct rlimit *ret_after)
{
    getrlimit(RLIMIT_NOFILE, ret_before);
    *ret_after = *ret_before;
    const rlim_t most = ret_before->rlim_max < FILES_MOST ? ret_before->rlim_max : FILES_MOST;
    if (ret_after->rlim_cur < most) {
        ret_after->rlim_cur = most;
        setrlimit(RLIMIT_NOFILE, ret_after);
    }
}

/* Logs what hooprun changes by itself, for somebody who searches for a cause. */
static void job_tell_changes(const struct job *job, const struct rlimit *before,
                             const struct rlimit *after)
{
    const char *level = getenv("HOOP_DEBUG");
    if (level == NULL || (strcasecmp(level, "info") != 0 && strcasecmp(level, "trace") != 0)) {
        return;
    }
    if (after->rlim_cur != before->rlim_cur) {
        hooprun_output_say(job->output, "limit of open files raised from %llu to %llu",
                           (unsigned long long)before->rlim_cur,
                           (unsigned long long)after->rlim_cur);
    }
    if (job->setup.threads > 0) {
        hooprun_output_say(job->output, "OMP_NUM_THREADS is set to %d for %d ranks on this machine",
                           job->setup.threads, job->options->rank_count);
    }
}

static bool job_init(struct job *job)
{
    const struct hooprun_options *options = job->options;
    job->output =
        hooprun_output_create(options->rank_count, options->first_rank, options->tag_output);
    if (job->output == NULL) {
        return false;
    }
    struct rlimit before;
    struct rlimit after;
    files_limit_raise(&before, &after);
    job->attempt = hooprun_attempt_create(options, job->front, job->output);
    job->fds = calloc(2 + hooprun_output_poll_most(job->output), sizeof(*job->fds));
    job->signal_fd = signalfd(-1, &job->front->signals, SFD_CLOEXEC | SFD_NONBLOCK);
    job->setup = (struct hooprun_setup){
        .options = options,
        .run_id = job->run_id,
        .mask = job->front->mask,
        .null_fd = open("/dev/null", O_RDWR | O_CLOEXEC),
        .refusal_fd = -1,
    };
    if (options->bind_to_core && !hooprun_cpus_read(&job->setup.cpus)) {
        return false;
    }
    job->setup.threads = hooprun_threads(&job->setup);
    job_tell_changes(job, &before, &after);
    return job->attempt != NULL && job->fds != NULL && job->signal_fd >= 0 &&
           job->setup.null_fd >= 0 && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

static void job_finish(struct job *job)
{
    const int fds[] = {job->signal_fd, job->setup.null_fd, job->claim_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    hooprun_cpus_finish(&job->setup.cpus);
    hooprun_attempt_destroy(job->attempt);
    hooprun_output_destroy(job->output);
    free(job->fds);
}

int hooprun_job_run(const struct hooprun_options *options, const struct hooprun_front *front)
{
    struct job job = {
        .options = options,
        .front = front,
        .setup = {.null_fd = -1},
        .claim_fd = -1,
        .signal_fd = -1,
        .exit_code = -1,
        .flush_until = INT64_MAX,
        .job_until = options->timeout_ms > 0 ? hooprun_now_ms() + options->timeout_ms : INT64_MAX,
    };
    int exit_code = HOOPRUN_EXIT_LAUNCHER;
    if (!hooprun_run_id_make(options, job.run_id)) {
        fprintf(stderr, "hooprun: cannot name the job: %s\n", strerror(errno));
        return exit_code;
    }
    if (!hooprun_claim(options, job.run_id, &job.claim_fd)) {
        return exit_code;
    }
    if (!job_init(&job)) {
        fprintf(stderr, "hooprun: cannot %s: %s\n",
                job.setup.null_fd < 0 ? "open /dev/null" : "prepare the job",
                hooprun_reason(errno));
    } else {
        job_start_attempt(&job);
        while (!job.done) {
            job_turn(&job);
        }
        job_decide(&job, hooprun_output_lost(job.output) ? HOOPRUN_EXIT_LAUNCHER : 0);
        exit_code = job.exit_code;
    }
    job_finish(&job);
    return exit_code;
}
