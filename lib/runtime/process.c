/* See process.h. */
#include "runtime/process.h"
#include "base/crypto.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static uint64_t process_id;

static void process_make_id(void)
{
    while (process_id == 0) {
        if (hoop_random(&process_id, sizeof(process_id)) != HOOP_OK) {
            process_id = (uint64_t)getpid();
        }
    }
}

uint64_t hoop_process_id(void)
{
    pthread_once(&process_once, process_make_id);
    return process_id;
}

void hoop_process_host(char ret_host[HOOP_NAME_BYTES])
{
    memset(ret_host, 0, HOOP_NAME_BYTES);
    if (gethostname(ret_host, HOOP_NAME_BYTES - 1) != 0) {
        (void)snprintf(ret_host, HOOP_NAME_BYTES, "unknown");
    }
}

/* Where the number-th field of what /proc says of it begins, from the third on; NULL: unknown. */
static const char *process_field(int pid, int number, char text[static 1024])
{
    char path[48];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    const ssize_t got = read(fd, text, 1023);
    close(fd);
    if (got <= 0) {
        return NULL;
    }
    text[got] = 0;
    /* the name, field 2, may hold anything: count from its closing parenthesis */
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < number; field++) {
        at = strchr(at + 1, ' ');
    }
    return at == NULL ? NULL : at + 1;
}

uint64_t hoop_process_start_time(int pid)
{
    char text[1024];
    const char *start = process_field(pid, 22, text);
    return start == NULL ? 0 : strtoull(start, NULL, 10);
}

bool hoop_process_is_over(int pid)
{
    char text[1024];
    if (kill(pid, 0) != 0 && errno == ESRCH) {
        return true;
    }
    const char *state = process_field(pid, 3, text);
    const bool zombie = state != NULL && (*state == 'Z' || *state == 'X');
    /* the first thread may have ended before the others */
    const char *threads = zombie ? process_field(pid, 20, text) : NULL;
    return threads != NULL && strtoul(threads, NULL, 10) <= 1;
}
