/* See perf_failure.h. */
#include "perf/perf_failure.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "perf/perf.h"

static const char *failure_host(char *buffer, size_t bytes)
{
    if (gethostname(buffer, bytes) != 0) {
        snprintf(buffer, bytes, "unknown");
    }
    buffer[bytes - 1] = '\0';
    return buffer;
}

static const char *failure_base(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

int perf_failure_hoop(hoop_result_t result, hoop_comm_t comm, const char *text, const char *file,
                      int line)
{
    char host[256];
    if (!text) {
        text = comm ? hoop_get_last_error(comm) : "";
    }
    if (text[0] == '\0') {
        text = hoop_get_last_error(HOOP_COMM_NULL);
    }
    fprintf(stderr, "%s: Test HOOP failure %s:%d '%s / %s'\n", failure_host(host, sizeof host),
            failure_base(file), line, hoop_get_error_string(result), text);
    return perf_failure_frame(PERF_HOOP, file, line);
}

int perf_failure_other(int code, const char *text, const char *file, int line)
{
    char host[256];
    fprintf(stderr, "%s: Test failure %s:%d '%s'\n", failure_host(host, sizeof host),
            failure_base(file), line, text);
    return perf_failure_frame(code, file, line);
}

int perf_failure_frame(int code, const char *file, int line)
{
    char host[256];
    fprintf(stderr, " .. %s pid %d: Test failure %s:%d\n", failure_host(host, sizeof host),
            (int)getpid(), failure_base(file), line);
    return code;
}
