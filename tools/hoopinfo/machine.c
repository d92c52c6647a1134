/* See machine.h. What cannot be read is reported as unknown and is no failure. */
#include "hoopinfo/machine.h"
#include <errno.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hooprun/hooprun_cpus.h"

/* The first line of a file that begins with prefix, without it; "" if there is none. */
static void file_line(const char *path, const char *prefix, char *ret, size_t bytes)
{
    FILE *file = fopen(path, "re");
    char line[512];
    ret[0] = 0;
    while (file != NULL && ret[0] == 0 && fgets(line, sizeof(line), file) != NULL) {
        const size_t length = strlen(prefix);
        if (strncmp(line, prefix, length) == 0) {
            const char *rest = line + length + strspn(line + length, " \t:");
            snprintf(ret, bytes, "%.*s", (int)strcspn(rest, "\n"), rest);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

static void add_line(struct facts *facts, const char *section, const char *key, const char *path,
                     const char *prefix)
{
    char text[256];
    file_line(path, prefix, text, sizeof(text));
    facts_add(facts, section, key, "%s", text[0] != 0 ? text : "unknown");
}

void machine_name(char *ret, size_t bytes)
{
    struct utsname name;
    char model[128];
    file_line("/proc/cpuinfo", "model name", model, sizeof(model));
    (void)snprintf(ret, bytes, "%s, %s", uname(&name) == 0 ? name.nodename : "unknown",
                   model[0] != 0 ? model : "a CPU without a name");
}

static void add_system(struct facts *facts)
{
    struct utsname name;
    char text[256];
    if (uname(&name) == 0) {
        facts_add(facts, "system", "host", "%s", name.nodename);
        facts_add(facts, "system", "kernel", "%s %s %s", name.sysname, name.release, name.machine);
    }
    file_line("/etc/os-release", "PRETTY_NAME=", text, sizeof(text));
    const char *bare = text + strspn(text, "\"");
    facts_add(facts, "system", "distribution", "%.*s", (int)strcspn(bare, "\""), bare);
}

/* The limits of cgroups, as far as they can be read. */
struct quota {
    bool known;
    double least; /* in CPUs; 0: none */
};

/* Reads a cgroup's own limit: "max 100000" is none, "150000 100000" is 1.5 CPUs; version 1 has two
 * files for that, and -1 is none. */
static void quota_read(struct quota *quota, const char *group)
{
    char path[640], text[64], second[64] = "";
    char *end = NULL;
    snprintf(path, sizeof(path), "%s/cpu.max", group);
    file_line(path, "", text, sizeof(text));
    if (text[0] == 0) {
        snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", group);
        file_line(path, "", text, sizeof(text));
        snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", group);
        file_line(path, "", second, sizeof(second));
    }
    const double time = strtod(text, &end);
    const double period = strtod(second[0] != 0 ? second : end, NULL);
    const double cpus = time > 0.0 && period > 0.0 ? time / period : 0.0;
    quota->known |= text[0] != 0;
    quota->least = cpus > 0.0 && (quota->least <= 0.0 || cpus < quota->least) ? cpus : quota->least;
}

/* Reads those of a line of /proc/self/cgroup, "0::/a/b" or "4:cpu,cpuacct:/a/b", and of all above
 * that are seen here. */
static void quota_read_line(struct quota *quota, char *line)
{
    char path[576];
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) {
        return;
    }
    *group++ = 0;
    *controllers = ',';
    const bool second = controllers[1] == 0;
    const char *cpu = strstr(controllers, ",cpu");
    while (cpu != NULL && cpu[4] != ',' && cpu[4] != 0) {
        cpu = strstr(cpu + 1, ",cpu");
    }
    const char *root = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    snprintf(path, sizeof(path), "%s%.*s", root, (int)strcspn(group, "\n"), group);
    for (; (second || cpu != NULL) && strlen(path) >= strlen(root); *strrchr(path, '/') = 0) {
        quota_read(quota, path);
    }
}

/* The least limit of this process's cgroups and of those above them, as the library reads it. */
static void add_quota(struct facts *facts)
{
    struct quota quota = {.least = 0.0};
    char line[512];
    FILE *file = fopen("/proc/self/cgroup", "re");
    quota_read(&quota, "/sys/fs/cgroup");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        quota_read_line(&quota, line);
    }
    if (file != NULL) {
        fclose(file);
    }
    if (quota.least > 0.0) {
        facts_add(facts, "cpus", "cgroup", "%.2f CPUs", quota.least);
    } else {
        facts_add(facts, "cpus", "cgroup", "%s", quota.known ? "no limit" : "unknown");
    }
}

static void add_cpus(struct facts *facts)
{
    struct hooprun_cpu_set set;
    glob_t nodes;
    add_line(facts, "cpus", "model", "/proc/cpuinfo", "model name");
    facts_add(facts, "cpus", "online", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    if (sched_getaffinity(0, sizeof(set), set.parts) == 0) {
        facts_add(facts, "cpus", "may run on", "%d", CPU_COUNT_S(sizeof(set), set.parts));
    }
    add_quota(facts);
    if (glob("/sys/devices/system/node/node[0-9]*", 0, NULL, &nodes) == 0) {
        facts_add(facts, "cpus", "NUMA nodes", "%zu", nodes.gl_pathc);
        globfree(&nodes);
    }
}

/* Why a process cannot read the memory of another that is not its child, as an errno; 0: it can. */
static int reading_error(void)
{
    static int there;
    int here = 0, status = 0;
    struct iovec from = {&there, sizeof(there)}, to = {&here, sizeof(here)};
    const pid_t shown = fork();
    if (shown == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)pause();
        _exit(0);
    }
    const pid_t reader = shown > 0 ? fork() : -1;
    if (reader == 0) {
        _exit(process_vm_readv(shown, &to, 1, &from, 1, 0) > 0 ? 0 : errno);
    }
    const bool asked = reader > 0 && waitpid(reader, &status, 0) == reader && WIFEXITED(status);
    const int err = asked ? WEXITSTATUS(status) : EAGAIN;
    if (shown > 0) {
        (void)kill(shown, SIGKILL);
        (void)waitpid(shown, NULL, 0);
    }
    return err;
}

/* By cross-memory attach one copy is enough between plain memory of two ranks. */
static void add_reading(struct facts *facts)
{
    char scope[16];
    const int err = reading_error();
    file_line("/proc/sys/kernel/yama/ptrace_scope", "", scope, sizeof(scope));
    facts_add(facts, "memory", "of other processes", "%s%s%s",
              err == 0 ? "can be read (process_vm_readv)" : strerror(err),
              err != 0 && scope[0] != 0 ? ", kernel.yama.ptrace_scope is " : "",
              err != 0 ? scope : "");
}

/* Ranks share memory by memfd_create(); if that fails its error says why. */
static void add_memory(struct facts *facts)
{
    const int fd = memfd_create("hoopinfo", MFD_CLOEXEC);
    const int err = errno;
    add_line(facts, "memory", "total", "/proc/meminfo", "MemTotal");
    add_line(facts, "memory", "available", "/proc/meminfo", "MemAvailable");
    facts_add(facts, "memory", "page", "%ld bytes", sysconf(_SC_PAGESIZE));
    add_line(facts, "memory", "huge pages of memfds",
             "/sys/kernel/mm/transparent_hugepage/shmem_enabled", "");
    facts_add(facts, "memory", "shared memory", "%s", fd >= 0 ? "works (memfd)" : strerror(err));
    add_reading(facts);
    if (fd >= 0) {
        close(fd);
    }
}

static void add_limit(struct facts *facts, const char *key, int which, const char *unit)
{
    struct rlimit limit;
    char soft[32] = "unlimited";
    char hard[32] = "unlimited";
    if (getrlimit((__rlimit_resource_t)which, &limit) != 0) {
        return;
    }
    if (limit.rlim_cur != RLIM_INFINITY) {
        snprintf(soft, sizeof(soft), "%llu", (unsigned long long)limit.rlim_cur);
    }
    if (limit.rlim_max != RLIM_INFINITY) {
        snprintf(hard, sizeof(hard), "%llu", (unsigned long long)limit.rlim_max);
    }
    facts_add(facts, "limits", key, "%s%s, hard %s", soft, unit, hard);
}

/* Lists every device of a class with its state. */
static void add_devices(struct facts *facts, const char *section, const char *pattern,
                        const char *state)
{
    glob_t found;
    char path[320];
    if (glob(pattern, 0, NULL, &found) != 0) {
        facts_add(facts, section, "none", "the kernel has no %s", pattern);
        return;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        snprintf(path, sizeof(path), "%s%s", found.gl_pathv[i], state);
        add_line(facts, section, strrchr(found.gl_pathv[i], '/') + 1, path, "");
    }
    globfree(&found);
}

void machine_add(struct facts *facts)
{
    add_system(facts);
    add_cpus(facts);
    add_memory(facts);
    add_limit(facts, "open files", RLIMIT_NOFILE, "");
    add_limit(facts, "locked memory", RLIMIT_MEMLOCK, " bytes");
    add_limit(facts, "processes", RLIMIT_NPROC, "");
    add_devices(facts, "RDMA devices", "/sys/class/infiniband/*", "/ports/1/state");
    add_devices(facts, "GPUs", "/proc/driver/nvidia/gpus/*", "/information");
}
