/* See process.h. */
#include "runtime/process.h"
#include "base/crypto.h"
#include <fcntl.h>
#include <pthread.h>
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

uint64_t hoop_process_start_time(int pid)
{
    char path[48];
    char text[1024];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    const ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got <= 0) {
        return 0;
    }
    text[got] = 0;
    /* the name, field 2, may hold anything: count from its closing parenthesis */
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}
