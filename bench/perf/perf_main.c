/* A run of a benchmark from beginning to end (see perf.h). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/perf_failure.h"
#include "perf/perf_ranks.h"
#include "perf/perf_run.h"
#include "perf/perf_watch.h"

/* The device of this process's first rank; -1: ranks take devices in turn. */
static bool main_device(FILE *err, int *ret)
{
    const char *text = getenv("NCCL_TESTS_DEVICE");
    char *end;
    errno = 0;
    long device = text ? strtol(text, &end, 10) : -1;
    if (text && (end == text || *end != '\0' || errno != 0 || device < -1 || device > INT_MAX)) {
        if (err) {
            fprintf(err, "NCCL_TESTS_DEVICE is '%s': the number of a device is expected\n", text);
        }
        return false;
    }
    *ret = (int)device;
    return true;
}

/* Reads the environment. Returns PERF_SUCCESS, or the exit code. */
static int main_environment(struct perf_job *job)
{
    if (!perf_ranks_environment(&job->process, &job->processes)) {
        return PERF_USAGE;
    }
    FILE *err = job->process == 0 ? stderr : NULL;
    static const char *const unsupported[] = {"NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK"};
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++) {
        if (getenv(unsupported[i])) {
            if (err) {
                fprintf(err, "%s is set: splitting the ranks into groups is not implemented\n",
                        unsupported[i]);
            }
            return PERF_NOT_IMPLEMENTED;
        }
    }
    job->min_bus = -1;
    const char *text = getenv("NCCL_TESTS_MIN_BW");
    if (text) {
        char *end;
        job->min_bus = strtod(text, &end);
        if (end == text || *end != '\0' || !(job->min_bus >= 0)) {
            if (err) {
                fprintf(err, "NCCL_TESTS_MIN_BW is '%s': GB/s as a number is expected\n", text);
            }
            return PERF_USAGE;
        }
    }
    return main_device(err, &job->first_device) ? PERF_SUCCESS : PERF_USAGE;
}

/* Checks that need the number of ranks. */
static int main_check(const struct perf_job *job)
{
    long long ranks = (long long)job->processes * job->options->threads * job->options->gpus;
    const char *wrong = NULL;
    if (ranks > 4096) {
        wrong = "these are more ranks than the 4096 of a comm";
    } else if (job->collective->has_root && job->options->root >= ranks) {
        wrong = "the root is not one of the ranks";
    }
    if (wrong && job->process == 0) {
        fprintf(stderr, "%d processes, -t %d, -g %d, -r %d: %s\n", job->processes,
                job->options->threads, job->options->gpus, job->options->root, wrong);
    }
    return wrong ? PERF_USAGE : PERF_SUCCESS;
}

/* Runs all threads, the first one on this thread. Returns the worst exit code; a failure is worse
 * than wrong data. */
static int main_threads(struct perf_job *job)
{
    int n = job->options->threads;
    for (int i = 1; i < n; i++) {
        struct perf_thread *thread = &job->threads[i];
        thread->started = pthread_create(&thread->pthread, NULL, perf_run_thread, thread) == 0;
        if (!thread->started) {
            thread->exit_code =
                perf_failure_other(PERF_INTERNAL, "no thread for -t", __FILE__, __LINE__);
            perf_ranks_abort(thread); /* other ranks learn that this one will not take part */
        }
    }
    perf_run_thread(&job->threads[0]);
    int code = job->threads[0].exit_code;
    for (int i = 1; i < n; i++) {
        struct perf_thread *thread = &job->threads[i];
        if (thread->started) {
            pthread_join(thread->pthread, NULL);
        }
        if (code == PERF_SUCCESS || (code == PERF_WRONG && thread->exit_code != PERF_SUCCESS)) {
            code = thread->exit_code;
        }
    }
    return code;
}

/* Makes the comms, runs the threads, and waits for them. */
static int main_run(struct perf_job *job, struct perf_report *report)
{
    struct perf_watch *watch = NULL;
    int code = perf_ranks_create(job);
    if (code == PERF_SUCCESS) {
        code = perf_watch_create(job, &watch);
    }
    if (code == PERF_SUCCESS) {
        job->threads[0].report = report;
        code = main_threads(job);
    }
    perf_watch_destroy(watch);
    return code;
}

/* Turns success into a failure if the table or the file could not be written. */
static int main_written(const char *program, bool whole, int code)
{
    whole = fflush(stdout) == 0 && !ferror(stdout) && whole;
    if (!whole && code == PERF_SUCCESS) {
        (void)fprintf(stderr, "%s: the output could not be written\n", program);
        return PERF_INTERNAL;
    }
    return code;
}

/* Opens the null device where standard input or error is closed: a file that is opened later, such
 * as that of -J, would get its number. A closed standard output stays closed, and is noticed. */
static void main_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd += STDERR_FILENO) {
        int null = fcntl(fd, F_GETFD) < 0 ? open("/dev/null", O_RDWR) : fd;
        if (null >= 0 && null != fd) {
            (void)dup2(null, fd);
            (void)close(null);
        }
    }
}

int perf_main(int argc, char **argv, const struct perf_collective *collective)
{
    struct perf_options options;
    struct perf_job job = {.options = &options, .collective = collective};
    main_streams();
    int code = main_environment(&job);
    if (code != PERF_SUCCESS) {
        return code;
    }
    bool speaks = job.process == 0;
    if (!perf_options_parse(argc, argv, speaks ? stdout : NULL, speaks ? stderr : NULL, &options,
                            &code)) {
        return main_written(argv[0], true, code);
    }
    code = main_check(&job);
    if (code != PERF_SUCCESS) {
        return code;
    }
    struct perf_report report = {.out = stdout, .options = &options};
    /* Otherwise the next file that is opened, such as that of -J, would be the standard output. */
    if (speaks && fcntl(STDOUT_FILENO, F_GETFD) < 0) {
        return main_written(argv[0], false, PERF_SUCCESS);
    }
    if (speaks) {
        perf_report_open(&report, collective, argc, argv);
    }
    bool whole = true;
    code = main_run(&job, speaks ? &report : NULL);
    if (speaks) {
        bool failed = code != PERF_SUCCESS && code != PERF_WRONG;
        struct perf_tally none = {0};
        whole =
            perf_report_close(&report, collective, job.threads ? &job.threads[0].tally : &none,
                              job.min_bus, failed ? "the run failed: see the error output" : NULL);
    }
    perf_ranks_destroy(&job, code);
    return main_written(argv[0], whole, code);
}
