/* See process.h. */
#include "runtime/process.h"
#include "base/crypto.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Bytes per call; the kernel moves at most 2 GiB. */
#define PROCESS_READ_MOST ((size_t)1 << 30)

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

static void process_open_streams(void)
{
    int fd = 0;
    while (fd >= 0 && fd <= STDERR_FILENO) {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* gets the lowest free number */
    }
    if (fd > STDERR_FILENO) {
        close(fd);
    }
}

void hoop_process_hold_streams(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, process_open_streams);
}

hoop_result_t hoop_process_check_descriptors(uint32_t count, const char *who)
{
    int *fds = calloc(count, sizeof(*fds));
    uint32_t open = 0;
    int err = fds != NULL ? 0 : ENOMEM;
    while (open < count && err == 0) {
        fds[open] = eventfd(0, EFD_CLOEXEC);
        err = fds[open] < 0 ? errno : 0;
        open += err == 0 ? 1 : 0;
    }
    while (open > 0) {
        close(fds[--open]);
    }
    free(fds);
    return err == 0 ? HOOP_OK : hoop_errno_error(err, "%s needs %u descriptors", who, count);
}

uint64_t hoop_process_id_at(void)
{
    (void)hoop_process_id();
    return (uintptr_t)&process_id;
}

/* ---- Memory of others --------------------------------------------------------------------- */

static hoop_result_t process_gone(const struct hoop_process_memory *process)
{
    return hoop_error(HOOP_REMOTE_ERROR, "process %d has ended", process->pid);
}

static hoop_result_t process_unreadable(const struct hoop_process_memory *process, uint64_t from,
                                        int err)
{
    switch (err) {
    case ESRCH:
        return process_gone(process);
    case EFAULT:
        return hoop_error(
            HOOP_REMOTE_ERROR,
            "process %d has no memory at %#llx that can be read (HOOP_CMA=0 avoids such reads)",
            process->pid, (unsigned long long)from);
    case ENOMEM:
        return hoop_error(HOOP_OUT_OF_MEMORY, "the kernel has no memory to read from process %d",
                          process->pid);
    default:
        return hoop_error(HOOP_SYSTEM_ERROR, "process_vm_readv of process %d: %s", process->pid,
                          hoop_errno_name(err));
    }
}

/* A thread of the process other than its main one, which may have ended before; 0: none. */
static int process_other_thread(int pid)
{
    char path[48];
    int thread = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    const struct dirent *task = NULL;
    while (tasks != NULL && thread == 0 && (task = readdir(tasks)) != NULL) {
        const int number = (int)strtol(task->d_name, NULL, 10);
        thread = number == pid ? 0 : number;
    }
    if (tasks != NULL) {
        (void)closedir(tasks);
    }
    return thread;
}

/* Reads bytes at `from`, and the id after them. Returns the bytes read, or -1 with an errno. The
 * kernel finds the memory by any thread that has not ended. */
static ssize_t process_read_some(const struct hoop_process_memory *process, void *to, uint64_t from,
                                 size_t bytes, uint64_t *ret_id)
{
    const struct iovec here[] = {{to, bytes}, {ret_id, sizeof(*ret_id)}};
    const struct iovec there[] = {{(void *)(uintptr_t)from, bytes},
                                  {(void *)(uintptr_t)process->id_at, sizeof(*ret_id)}};
    const unsigned first = bytes == 0;
    ssize_t got =
        process_vm_readv(process->pid, here + first, 2 - first, there + first, 2 - first, 0);
    if (got < 0 && errno == ESRCH) {
        const int thread = process_other_thread(process->pid);
        got = thread > 0
                  ? process_vm_readv(thread, here + first, 2 - first, there + first, 2 - first, 0)
                  : got;
        errno = thread > 0 ? errno : ESRCH;
    }
    return got;
}

hoop_result_t hoop_process_read(const struct hoop_process_memory *process, void *to, uint64_t from,
                                size_t bytes)
{
    size_t done = 0, most = PROCESS_READ_MOST;
    if (process->pid <= 0 || process->id_at == 0) {
        return hoop_error(HOOP_SYSTEM_ERROR, "%s",
                          process->pid <= 0 ? "its process is not visible from here"
                                            : "its process has HOOP_CMA=0");
    }
    do {
        const size_t part = bytes - done < most ? bytes - done : most;
        uint64_t id = 0;
        void *at = to != NULL ? (uint8_t *)to + done : NULL;
        const ssize_t got = process_read_some(process, at, from + done, part, &id);
        if (got <= 0) {
            return process_unreadable(process, from + done, got < 0 ? errno : EFAULT);
        }
        if ((size_t)got < part) {
            most = (size_t)got; /* again up to there, with the id; the rest then fails */
            continue;
        }
        if (id != process->id) {
            return process_gone(process);
        }
        done += part;
        most = PROCESS_READ_MOST;
    } while (done < bytes);
    return HOOP_OK;
}

bool hoop_process_can_be_read(const void *memory, size_t bytes)
{
    uint8_t ends[2];
    const struct iovec here = {ends, sizeof(ends)};
    const uintptr_t first = (uintptr_t)memory, last = first + bytes - 1;
    const struct iovec there[] = {{(void *)first, 1}, {(void *)last, 1}};
    return bytes == 0 || process_vm_readv(gettid(), &here, 1, there, 2, 0) == sizeof(ends);
}

/* By a system call that reads a word before it finds that it has nothing to do. */
static bool process_can_read_byte(uintptr_t at)
{
    const size_t word = 8; /* size of the kernel's signal set */
    const int before = errno;
    const bool faulted =
        syscall(SYS_rt_sigprocmask, -1, at / word * word, NULL, word) != 0 && errno == EFAULT;
    errno = before;
    return !faulted;
}

bool hoop_process_can_read(const void *memory, size_t bytes)
{
    const uintptr_t first = (uintptr_t)memory;
    return bytes == 0 || (process_can_read_byte(first) && process_can_read_byte(first + bytes - 1));
}

/* The beginning of the number-th field of /proc/PID/stat, from the third on; NULL: unknown. */
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
    /* field 2, the name, may contain anything: count from its closing parenthesis */
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < number; field++) {
        at = strchr(at + 1, ' ');
    }
    return at == NULL ? NULL : at + 1;
}

/* This process's pid namespace; 0: unknown, also if /proc belongs to another namespace. */
static uint64_t process_namespace(void)
{
    struct stat about;
    char self[16] = "";
    const bool known = readlink("/proc/self", self, sizeof(self) - 1) > 0 &&
                       strtol(self, NULL, 10) == getpid() && stat("/proc/self/ns/pid", &about) == 0;
    return known ? about.st_ino : 0;
}

uint64_t hoop_process_start_time(int pid)
{
    char text[1024];
    const uint64_t pids = process_namespace();
    const char *start = pids != 0 ? process_field(pid, 22, text) : NULL;
    return start == NULL ? 0 : strtoull(start, NULL, 10) ^ pids << 32;
}

static pthread_once_t process_start_once = PTHREAD_ONCE_INIT;
static uint64_t process_start;

static void process_look_start(void)
{
    process_start = hoop_process_start_time(getpid());
}

uint64_t hoop_process_own_start_time(void)
{
    pthread_once(&process_start_once, process_look_start);
    return process_start;
}

bool hoop_process_is_over(int pid)
{
    char text[1024];
    if (kill(pid, 0) != 0 && errno == ESRCH) {
        return true;
    }
    const char *state = process_field(pid, 3, text);
    const bool zombie = state != NULL && (*state == 'Z' || *state == 'X');
    /* the main thread may have ended before the others */
    const char *threads = zombie ? process_field(pid, 20, text) : NULL;
    return threads != NULL && strtoul(threads, NULL, 10) <= 1;
}

/* ---- Threads ------------------------------------------------------------------------------ */

#define THREAD_STACK_BYTES ((size_t)256 * 1024) /* minimum: frames of connections take 12 KiB */

/* By default a thread gets the stack size of ulimit -s, however small. */
static void thread_set_stack(pthread_attr_t *attributes)
{
    size_t bytes = 0;
    if (pthread_attr_getstacksize(attributes, &bytes) == 0 && bytes < THREAD_STACK_BYTES) {
        (void)pthread_attr_setstacksize(attributes, THREAD_STACK_BYTES);
    }
}

bool hoop_process_read_line(const char *path, char *ret_line, size_t bytes)
{
    FILE *file = fopen(path, "re");
    const bool got = file != NULL && fgets(ret_line, (int)bytes, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    if (got) {
        ret_line[strcspn(ret_line, "\n")] = '\0';
    }
    return got;
}

/* A cgroup's path, which is lent to those who read its files. Not on the stack: that of a caller
 * may be small. */
struct process_group {
    char path[1024];
    char line[512]; /* of the list of cgroups */
};

/* The first line of a file of this cgroup; false: there is none. */
static bool process_read_group(struct process_group *group, const char *name, char ret_line[64])
{
    char *end = group->path + strlen(group->path);
    const size_t room = sizeof(group->path) - (size_t)(end - group->path);
    const int length = snprintf(end, room, "/%s", name);
    const bool got = (size_t)length < room && hoop_process_read_line(group->path, ret_line, 64);
    *end = '\0';
    return got;
}

/* The quota that is set on this cgroup itself. */
static uint32_t process_group_quota(struct process_group *group)
{
    char quota[64], period[64];
    char *rest = period;
    long cpus = 0;
    if (process_read_group(group, "cpu.max", quota)) { /* "max 100000", "150000 100000" */
        rest = quota + strcspn(quota, " ");
    } else if (!process_read_group(group, "cpu.cfs_quota_us", quota) || /* "-1", "150000" */
               !process_read_group(group, "cpu.cfs_period_us", period)) {
        return UINT32_MAX;
    }
    const long quota_us = strtol(quota, NULL, 10), period_us = strtol(rest, NULL, 10);
    if (quota_us > 0 && period_us > 0) {
        cpus = (quota_us - 1) / period_us + 1;
    }
    return cpus > 0 && cpus < UINT32_MAX ? (uint32_t)cpus : UINT32_MAX;
}

/* The least quota on the way up to where the path has `root` bytes. */
static uint32_t process_least_quota(struct process_group *group, size_t root)
{
    uint32_t least = process_group_quota(group);
    while (strlen(group->path) > root) {
        *strrchr(group->path, '/') = '\0';
        const uint32_t quota = process_group_quota(group);
        least = quota < least ? quota : least;
    }
    return least;
}

/* Is "cpu" one of these, as in "cpu,cpuacct"? */
static bool process_has_cpu(const char *controllers)
{
    const char *at = controllers;
    size_t length = strcspn(at, ",");
    while (at[length] != '\0' && (length != 3 || strncmp(at, "cpu", 3) != 0)) {
        at += length + 1;
        length = strcspn(at, ",");
    }
    return length == 3 && strncmp(at, "cpu", 3) == 0;
}

/* The quota by one line of the list: "0::/a/b" of version 2, "4:cpu,cpuacct:/a/b" of version 1. */
static uint32_t process_line_quota(struct process_group *group, const char *root)
{
    char *controllers = strchr(group->line, ':');
    char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL) {
        return UINT32_MAX;
    }
    *path++ = '\0';
    controllers++;
    path[strcspn(path, "\n")] = '\0';
    const bool first = process_has_cpu(controllers);
    if (!first && controllers[0] != '\0') {
        return UINT32_MAX;
    }
    const char *folder = first ? "/cpu" : "";
    (void)snprintf(group->path, sizeof(group->path), "%s%s%s", root, folder, path);
    return process_least_quota(group, strlen(root) + strlen(folder));
}

uint32_t hoop_process_cpu_quota(const char *groups, const char *root)
{
    struct process_group *group = malloc(sizeof(*group));
    FILE *file = fopen(groups, "re");
    uint32_t least = UINT32_MAX;
    if (group != NULL) {
        (void)snprintf(group->path, sizeof(group->path), "%s", root);
        least = process_group_quota(group);
    }
    while (group != NULL && file != NULL && fgets(group->line, sizeof(group->line), file) != NULL) {
        const uint32_t quota = process_line_quota(group, root);
        least = quota < least ? quota : least;
    }
    if (file != NULL) {
        fclose(file);
    }
    free(group);
    return least;
}

int hoop_thread_spawn(void *(*body)(void *arg), void *arg)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    thread_set_stack(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int err = pthread_create(&thread, &attributes, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return err;
}

hoop_result_t hoop_thread_refused(const char *thread, int err)
{
    return hoop_error(HOOP_SYSTEM_ERROR, "cannot start %s: %s%s", thread, hoop_errno_name(err),
                      err == EAGAIN ? " (raise ulimit -u or -v, or the cgroup's pids.max)" : "");
}
