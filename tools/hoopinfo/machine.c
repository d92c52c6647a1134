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

/* The limit of this cgroup (v2), or else of the topmost that is seen here, as the library reads it.
 * "max 100000" is no limit, "150000 100000" is 1.5 CPUs. */
static void add_quota(struct facts *facts)
{
    char group[256];
    char path[320];
    char text[64];
    file_line("/proc/self/cgroup", "0::", group, sizeof(group));
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", group);
    file_line(path, "", text, sizeof(text));
    if (text[0] == 0) {
        file_line("/sys/fs/cgroup/cpu.max", "", text, sizeof(text));
    }
    char *end = NULL;
    const double quota = strtod(text, &end);
    const double period = end != text ? strtod(end, NULL) : 0.0;
    if (period > 0.0) {
        facts_add(facts, "cpus", "cgroup", "%.2f CPUs", quota / period);
    } else {
        facts_add(facts, "cpus", "cgroup", "%s", text[0] != 0 ? "no limit" : "unknown");
    }
}

static void add_cpus(struct facts *facts)
{
    cpu_set_t set;
    glob_t nodes;
    add_line(facts, "cpus", "model", "/proc/cpuinfo", "model name");
    facts_add(facts, "cpus", "online", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        facts_add(facts, "cpus", "may run on", "%d", CPU_COUNT(&set));
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
