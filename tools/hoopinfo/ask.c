/* See ask.h. A socket's name proves nothing: the kernel says whose process listens there. */
#include "hoopinfo/ask.h"
#include "hoopinfo/json.h"
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MOST ((size_t)4 << 20)
#define PACKET_BYTES ((size_t)16384)
#define PATIENCE_MS 1000

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The first line of a file of a process, with all but plain ASCII as '?', since a program can
 * choose its name; "" if it cannot be read. */
static void proc_line(int pid, const char *name, char *ret, size_t bytes)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(ret, (int)bytes, file) == NULL) {
        ret[0] = 0;
    }
    ret[strcspn(ret, "\n")] = 0;
    for (char *at = ret; *at != 0; at++) {
        *at = (char)((unsigned char)*at < 0x20 || (unsigned char)*at >= 0x7f ? '?' : *at);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* Is the process stopped, by a signal or a debugger? */
static bool is_stopped(int pid)
{
    char line[512];
    proc_line(pid, "stat", line, sizeof(line));
    const char *behind_name = strrchr(line, ')');
    return behind_name != NULL && behind_name[1] == ' ' &&
           (behind_name[2] == 'T' || behind_name[2] == 't');
}

/* Connects to its socket. -1 with errno; EPERM: another user listens there. */
static int process_connect(struct process *process)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strlen(process->name);
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof(peer);
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path + 1, process->name, length);
    int err = fd < 0 ? errno : 0;
    /* connect() blocks if strangers have filled the queue */
    if (err == 0 &&
        (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0 ||
         connect(fd, (const struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0 ||
         getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)) {
        err = errno;
    }
    if (err == 0 && peer.uid != process->uid) {
        err = EPERM;
    }
    if (err == 0) {
        process->pid = peer.pid != 0 ? peer.pid : process->pid;
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    errno = err;
    return -1;
}

/* Reads until the end or the deadline. NULL unless it is one JSON object; *ret_something is then
 * set if there was other text. */
static char *answer_read(int fd, bool *ret_something)
{
    const int64_t until = now_ms() + PATIENCE_MS;
    size_t length = 0, room = PACKET_BYTES * 2;
    char *text = malloc(room);
    ssize_t got = 1;
    while (text != NULL && got > 0 && length < ANSWER_MOST) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        const int64_t left = until - now_ms();
        if (left <= 0 || poll(&poll_fd, 1, (int)left) <= 0) {
            break;
        }
        if (room - length <= PACKET_BYTES) {
            char *grown = realloc(text, room * 2);
            if (grown == NULL) {
                break;
            }
            text = grown;
            room *= 2;
        }
        got = recv(fd, text + length, PACKET_BYTES, MSG_DONTWAIT);
        length += got > 0 ? (size_t)got : 0;
    }
    if (text != NULL) {
        text[length] = 0;
        const char *end = json_end(text);
        if (got == 0 && *text == '{' && end == text + length) {
            return text;
        }
        *ret_something = got == 0 && length > 0;
    }
    free(text);
    return NULL;
}

/* Is list an array of objects in which all values of this key begin with one of these characters?
 * Also true if it is empty. */
static bool list_has(const char *list, const char *key, const char *begins)
{
    const char *at = json_next(list, NULL);
    for (; at != NULL; at = json_next(list, at)) {
        const char *value = json_member(at, key);
        if (value == NULL || strchr(begins, *value) == NULL) {
            return false;
        }
    }
    return list != NULL && *list == '[';
}

/* Does the text look like hoop's report? Other versions may have more members. */
static bool is_report(const char *text)
{
    const char *comms = json_member(text, "comms"), *streams = json_member(text, "streams");
    return list_has(comms, "rank", "0123456789") && list_has(comms, "ranks", "0123456789") &&
           list_has(comms, "state", "\"") && (streams == NULL || list_has(streams, "stream", "\""));
}

/* Returns false if it is no hoop process, or has ended. */
static bool process_ask(struct process *process)
{
    bool something = false;
    const int fd = process_connect(process);
    if (fd < 0 && (errno == EPERM || errno == ECONNREFUSED)) {
        return false;
    }
    proc_line(process->pid, "comm", process->program, sizeof(process->program));
    if (!is_stopped(process->pid) && fd >= 0) {
        process->text = answer_read(fd, &something);
    }
    something |= process->text != NULL;
    process->state = process->text != NULL && is_report(process->text) ? PROCESS_ANSWERED
                     : something                                       ? PROCESS_UNREADABLE
                     : is_stopped(process->pid)                        ? PROCESS_STOPPED
                                                                       : PROCESS_SILENT;
    if (fd >= 0) {
        close(fd);
    }
    return true;
}

/* Parses a listening socket's line; accepted connections have the same name.
 * "hoop-job-UID-PID-...". */
static bool line_parse(const char *line, struct process *ret)
{
    unsigned flags = 0, id = 0;
    char rest = 0;
    return sscanf(line, "%*s %*s %*s %x %*s %*s %*s @%107s", &flags, ret->name) == 2 &&
           (flags & 0x10000) != 0 && /* SO_ACCEPTCON */
           sscanf(ret->name, "hoop-job-%u-%d-%8x%c", &ret->uid, &ret->pid, &id, &rest) == 3 &&
           (geteuid() == 0 || ret->uid == geteuid());
}

static int process_compare(const void *a, const void *b)
{
    const struct process *left = a, *right = b;
    return (left->pid > right->pid) - (left->pid < right->pid);
}

/* Collects all before asking any, since connecting changes the list. */
static int processes_find(FILE *file, struct process **ret, size_t *ret_count)
{
    char line[512];
    while (fgets(line, sizeof(line), file) != NULL) {
        struct process found = {.text = NULL};
        if (line_parse(line, &found)) {
            struct process *grown = realloc(*ret, (*ret_count + 1) * sizeof(found));
            if (grown == NULL) {
                return ENOMEM;
            }
            grown[(*ret_count)++] = found;
            *ret = grown;
        }
    }
    return 0;
}

int processes_ask(struct process **ret, size_t *ret_count)
{
    FILE *file = fopen("/proc/net/unix", "re");
    *ret = NULL;
    *ret_count = 0;
    if (file == NULL) {
        return errno;
    }
    size_t found = 0;
    const int err = processes_find(file, ret, &found);
    (void)fclose(file);
    for (size_t i = 0; i < found; i++) {
        if (process_ask(&(*ret)[i])) {
            (*ret)[(*ret_count)++] = (*ret)[i];
        }
    }
    if (*ret_count > 0) {
        qsort(*ret, *ret_count, sizeof(**ret), process_compare);
    }
    return err;
}

void processes_free(struct process *processes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(processes[i].text);
    }
    free(processes);
}
