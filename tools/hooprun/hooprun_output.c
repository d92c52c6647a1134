#include "hooprun/hooprun_output.h"

#include "hooprun/hooprun_options.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES 65536
#define PIPE_READS_MOST 64 /* enough to empty the largest pipe */
#define SINK_HIGH ((size_t)1 << 20)
#define SINK_TURN ((size_t)1 << 20)

struct buffer {
    char *data;
    size_t used, room;
};

struct source {
    int fd;   /* -1 if closed */
    int slot; /* its index among the polled descriptors, or -1 */
    int rank;
    struct sink *sink;
    struct buffer line;
};

struct sink {
    int fd; /* standard output or error, or the same file opened again */
    struct buffer pending;
    size_t written; /* bytes of pending */
    bool broken;    /* its reader is gone */
};

struct hooprun_output {
    struct sink sinks[2];
    struct sink *error; /* sinks[1], or [0] if stdout and stderr are the same file */
    int source_count;
    struct source *sources; /* two per rank: stdout, stderr */
    char *scratch;          /* READ_BYTES */
    bool lost;
};

/* Without memory for a line the keeper exits; the front ends the ranks and reports it. */
static void buffer_append(struct buffer *buffer, const char *data, size_t bytes)
{
    if (buffer->room - buffer->used < bytes) {
        size_t room = buffer->room == 0 ? 1024 : buffer->room;
        while (room - buffer->used < bytes) {
            room *= 2;
        }
        char *grown = realloc(buffer->data, room);
        if (grown == NULL) {
            _exit(HOOPRUN_EXIT_LAUNCHER);
        }
        buffer->data = grown;
        buffer->room = room;
    }
    memcpy(buffer->data + buffer->used, data, bytes);
    buffer->used += bytes;
}

static void buffer_finish(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}

static bool writable(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

static bool same_file(int a, int b)
{
    struct stat of_a;
    struct stat of_b;
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/*
 * What fd is open for, to be written without blocking whoever else writes to it: poll() promises
 * room for all of PIPE_BUF neither in a terminal nor in a pipe that is shared. Opened again, since
 * the flags of fd itself belong to all who have it. fd if that cannot be done.
 */
static int sink_open(int fd)
{
    struct stat about;
    char path[32];
    if (fstat(fd, &about) != 0 || !(S_ISFIFO(about.st_mode) || isatty(fd)) || !writable(fd)) {
        return fd;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int again = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return again >= 0 ? again : fd;
}

static void sink_close(struct sink *sink)
{
    buffer_finish(&sink->pending);
    if (sink->fd > STDERR_FILENO) {
        close(sink->fd);
    }
}

struct hooprun_output *hooprun_output_create(int rank_count, int first_rank, bool tagged)
{
    struct hooprun_output *output = calloc(1, sizeof(*output));
    if (output == NULL) {
        return NULL;
    }
    const bool shared = same_file(STDOUT_FILENO, STDERR_FILENO) && writable(STDOUT_FILENO);
    output->sinks[0].fd = sink_open(STDOUT_FILENO);
    output->sinks[1].fd = shared ? STDERR_FILENO : sink_open(STDERR_FILENO);
    output->error = &output->sinks[shared ? 0 : 1];
    if (!tagged) {
        return output;
    }
    const int count = 2 * rank_count;
    output->scratch = malloc(READ_BYTES);
    output->sources = calloc((size_t)count, sizeof(*output->sources));
    if (output->scratch == NULL || output->sources == NULL) {
        hooprun_output_destroy(output);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        output->sources[i].fd = -1;
        output->sources[i].slot = -1;
        output->sources[i].rank = first_rank + i / 2;
        output->sources[i].sink = i % 2 == 0 ? &output->sinks[0] : output->error;
    }
    output->source_count = count;
    return output;
}

static void source_close(struct source *source)
{
    if (source->fd >= 0) {
        close(source->fd);
        source->fd = -1;
    }
}

void hooprun_output_destroy(struct hooprun_output *output)
{
    if (output == NULL) {
        return;
    }
    for (int i = 0; i < output->source_count; i++) {
        source_close(&output->sources[i]);
        buffer_finish(&output->sources[i].line);
    }
    sink_close(&output->sinks[0]);
    sink_close(&output->sinks[1]);
    free(output->sources);
    free(output->scratch);
    free(output);
}

void hooprun_output_close(int streams[2])
{
    for (int i = 0; i < 2; i++) {
        if (streams[i] >= 0) {
            close(streams[i]);
            streams[i] = -1;
        }
    }
}

bool hooprun_output_open(struct hooprun_output *output, int local_rank, int ret_streams[2])
{
    ret_streams[0] = -1;
    ret_streams[1] = -1;
    if (output->source_count == 0) {
        return true;
    }
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            const int error = errno;
            hooprun_output_close(ret_streams);
            errno = error;
            return false;
        }
        /* Only this end: the other one is the program's, which expects a blocking stream. */
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        struct source *source = &output->sources[2 * local_rank + i];
        source->fd = ends[0];
        if (source->sink->broken) {
            source_close(source);
        }
        ret_streams[i] = ends[1];
    }
    return true;
}

static void sink_append(struct sink *sink, const char *data, size_t bytes)
{
    if (!sink->broken) {
        buffer_append(&sink->pending, data, bytes);
    }
}

const char *hooprun_reason(int err)
{
    switch (err) {
    case EAGAIN:
        return "no more processes may be started (raise ulimit -u, or the cgroup's pids.max)";
    case EMFILE:
        return "Too many open files (raise ulimit -n)";
    default:
        return strerror(err);
    }
}

void hooprun_output_say(struct hooprun_output *output, const char *format, ...)
{
    char text[PATH_MAX + 512]; /* a path, and what is wrong with it */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    sink_append(output->error, "hooprun: ", strlen("hooprun: "));
    sink_append(output->error, text, strlen(text));
    sink_append(output->error, "\n", 1);
}

/* Passes on the current line. A line that was cut or is unfinished gets a newline. */
static void source_emit(struct source *source)
{
    struct buffer *line = &source->line;
    if (line->used == 0) {
        return;
    }
    char tag[16];
    const int length = snprintf(tag, sizeof(tag), "[%d] ", source->rank);
    sink_append(source->sink, tag, (size_t)length);
    sink_append(source->sink, line->data, line->used);
    if (line->data[line->used - 1] != '\n') {
        sink_append(source->sink, "\n", 1);
    }
    line->used = 0;
}

static void source_take(struct source *source, const char *data, size_t bytes)
{
    while (bytes > 0) {
        const char *newline = memchr(data, '\n', bytes);
        size_t take = newline == NULL ? bytes : (size_t)(newline - data) + 1;
        const size_t room = HOOPRUN_LINE_MOST - source->line.used;
        const bool cut = take > room;
        if (cut) {
            take = room;
        }
        buffer_append(&source->line, data, take);
        data += take;
        bytes -= take;
        if (cut || newline != NULL) {
            source_emit(source);
        }
    }
}

/* Reads once. Returns false if there is nothing more now, or at all. */
static bool source_read(struct source *source, char *scratch)
{
    const ssize_t got = read(source->fd, scratch, READ_BYTES);
    if (got > 0) {
        source_take(source, scratch, (size_t)got);
        return true;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return errno == EINTR;
    }
    source_emit(source);
    source_close(source);
    return false;
}

static void sink_break(struct hooprun_output *output, struct sink *sink, int error)
{
    sink->broken = true;
    sink->written = 0;
    buffer_finish(&sink->pending);
    for (int i = 0; i < output->source_count; i++) {
        if (output->sources[i].sink == sink) {
            source_close(&output->sources[i]);
        }
    }
    if (error == EPIPE) {
        return;
    }
    output->lost = true;
    if (sink != output->error) {
        hooprun_output_say(output, "cannot write to standard output: %s", strerror(error));
    }
}

/* Writes as long as the file takes more, up to a limit, for fairness. */
static void sink_write(struct hooprun_output *output, struct sink *sink)
{
    size_t turn = 0;
    while (sink->written < sink->pending.used && turn < SINK_TURN) {
        struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};
        if (poll(&ready, 1, 0) <= 0) {
            return;
        }
        const size_t left = sink->pending.used - sink->written;
        const size_t bytes = left < PIPE_BUF ? left : PIPE_BUF;
        const ssize_t put = write(sink->fd, sink->pending.data + sink->written, bytes);
        if (put < 0) {
            if (errno != EAGAIN && errno != EINTR) {
                sink_break(output, sink, errno);
            }
            return;
        }
        sink->written += (size_t)put;
        turn += (size_t)put;
    }
    const bool worth_moving = sink->written == sink->pending.used || sink->written >= SINK_HIGH;
    if (sink->written > 0 && worth_moving) {
        sink->pending.used -= sink->written;
        memmove(sink->pending.data, sink->pending.data + sink->written, sink->pending.used);
        sink->written = 0;
    }
}

size_t hooprun_output_poll_most(const struct hooprun_output *output)
{
    return 2 + (size_t)output->source_count;
}

/* Lists open ones only, since poll() refuses more entries than RLIMIT_NOFILE. */
size_t hooprun_output_prepare(struct hooprun_output *output, struct pollfd *fds)
{
    int count = 0;
    for (int i = 0; i < 2; i++) {
        const struct sink *sink = &output->sinks[i];
        if (sink->pending.used > 0) {
            fds[count++] = (struct pollfd){.fd = sink->fd, .events = POLLOUT};
        }
    }
    for (int i = 0; i < output->source_count; i++) {
        struct source *source = &output->sources[i];
        const bool room = source->sink->pending.used - source->sink->written < SINK_HIGH;
        source->slot = -1;
        if (source->fd >= 0 && room) {
            source->slot = count;
            fds[count++] = (struct pollfd){.fd = source->fd, .events = POLLIN};
        }
    }
    return (size_t)count;
}

void hooprun_output_handle(struct hooprun_output *output, const struct pollfd *fds)
{
    for (int i = 0; i < output->source_count; i++) {
        struct source *source = &output->sources[i];
        if (source->slot >= 0 && fds[source->slot].revents != 0 && source->fd >= 0) {
            source_read(source, output->scratch);
        }
    }
    for (int i = 0; i < 2; i++) {
        sink_write(output, &output->sinks[i]);
    }
}

void hooprun_output_finish(struct hooprun_output *output)
{
    for (int i = 0; i < output->source_count; i++) {
        struct source *source = &output->sources[i];
        /* Limited, since an unrelated process that inherited the pipe may still write to it. */
        for (int reads = 0; reads < PIPE_READS_MOST && source->fd >= 0; reads++) {
            if (!source_read(source, output->scratch)) {
                break;
            }
        }
        source_emit(source);
        source_close(source);
    }
}

bool hooprun_output_flushed(const struct hooprun_output *output)
{
    return output->sinks[0].pending.used == 0 && output->sinks[1].pending.used == 0;
}

bool hooprun_output_lost(const struct hooprun_output *output)
{
    return output->lost;
}
