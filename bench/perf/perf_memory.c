/* See perf_memory.h. */
#include "perf/perf_memory.h"

#include <string.h>

#include "perf/perf_failure.h"

/* The number of a line like "Rss:   123 kB"; 0 if the line has another name. */
static int64_t memory_line(const char *line, const char *name)
{
    long long kibibytes = 0;
    size_t length = strlen(name);
    if (strncmp(line, name, length) == 0) {
        sscanf(line + length, ": %lld", &kibibytes); // NOLINT(cert-err34-c): the kernel's format
    }
    return kibibytes;
}

static void memory_read(int64_t *ret_rss, int64_t *ret_pss)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    *ret_rss = 0;
    *ret_pss = 0;
    while (file && fgets(line, sizeof line, file)) {
        *ret_rss += memory_line(line, "Rss");
        *ret_pss += memory_line(line, "Pss");
    }
    if (file) {
        fclose(file);
    }
}

int perf_memory_report(struct perf_thread *thread, const char *moment)
{
    if (!thread->job->options->memory_report) {
        return PERF_SUCCESS;
    }
    int64_t kibibytes[2] = {0, 0};
    if (thread == thread->job->threads) { /* once per process */
        memory_read(&kibibytes[0], &kibibytes[1]);
    }
    PERF_TRY(perf_ranks_agree(thread, kibibytes, 2, HOOP_INT64, HOOP_SUM));
    if (thread->report) {
        fprintf(thread->report->out,
                "# %-20s : %s: RSS %lld KiB, PSS %lld KiB, the sum of %d processes\n",
                "Memory usage", moment, (long long)kibibytes[0], (long long)kibibytes[1],
                thread->job->processes);
    }
    return PERF_SUCCESS;
}
