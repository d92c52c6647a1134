/* Finds who listens at a port; see port_holder.h. The kernel's table of sockets gives the inode,
 * and /proc/PID/fd the process that has it open, where this process may read that. */
#include "net/port_holder.h"
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOLDER_LISTENING 0x0au /* the kernel's TCP_LISTEN in /proc/net/tcp */

/* Finds a listener at this port, its uid and its socket's inode. */
static bool holder_find_line(const char *table, uint16_t port, uid_t *ret_uid,
                             unsigned long long *ret_inode)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(table, "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        unsigned at = 0;
        unsigned state = 0;
        unsigned uid = 0;
        /* sl local:port remote:port state queues timer retransmits uid timeout inode */
        found = sscanf(line, " %*d: %*[^:]:%x %*s %x %*s %*s %*s %u %*s %llu", &at, &state, &uid,
                       ret_inode) == 4 &&
                at == port && state == HOLDER_LISTENING;
        *ret_uid = uid;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

/* Does the process with this entry in /proc have the socket open? */
static bool holder_has(int proc, const char *entry, const char *socket)
{
    char path[64];
    char link[64];
    bool has = false;
    (void)snprintf(path, sizeof(path), "%.20s/fd", entry);
    const int fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *fds = fd >= 0 ? fdopendir(fd) : NULL;
    for (const struct dirent *at = NULL; fds != NULL && !has && (at = readdir(fds)) != NULL;) {
        const ssize_t bytes = readlinkat(fd, at->d_name, link, sizeof(link) - 1);
        link[bytes > 0 ? bytes : 0] = 0;
        has = strcmp(link, socket) == 0;
    }
    if (fds != NULL) {
        (void)closedir(fds);
    } else if (fd >= 0) {
        close(fd);
    }
    return has;
}

static void holder_read_name(int proc, const char *entry, char *ret_name, size_t bytes)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "%.20s/comm", entry);
    const int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, ret_name, bytes - 1) : 0;
    ret_name[got > 0 ? got : 0] = 0;
    ret_name[strcspn(ret_name, "\n")] = 0;
    if (fd >= 0) {
        close(fd);
    }
}

bool hoop_port_holder(uint16_t port, struct hoop_port_holder *ret)
{
    struct hoop_port_holder holder = {.pid = 0};
    unsigned long long inode = 0;
    char socket[64];
    if (!holder_find_line("/proc/self/net/tcp", port, &holder.uid, &inode) &&
        !holder_find_line("/proc/self/net/tcp6", port, &holder.uid, &inode)) {
        return false;
    }
    (void)snprintf(socket, sizeof(socket), "socket:[%llu]", inode);
    DIR *proc = opendir("/proc");
    for (const struct dirent *at = NULL;
         proc != NULL && holder.pid == 0 && (at = readdir(proc)) != NULL;) {
        if (isdigit((unsigned char)at->d_name[0]) && holder_has(dirfd(proc), at->d_name, socket)) {
            holder.pid = (pid_t)strtol(at->d_name, NULL, 10);
            holder_read_name(dirfd(proc), at->d_name, holder.name, sizeof(holder.name));
        }
    }
    if (proc != NULL) {
        (void)closedir(proc);
    }
    *ret = holder;
    return true;
}

void hoop_port_describe_holder(uint16_t port, char *ret_text, size_t bytes)
{
    struct hoop_port_holder holder;
    if (!hoop_port_holder(port, &holder)) {
        ret_text[0] = 0;
    } else if (holder.pid == 0) {
        (void)snprintf(ret_text, bytes, "; a process of user %u listens there",
                       (unsigned)holder.uid);
    } else {
        (void)snprintf(ret_text, bytes, "; process %d (%s) of user %u listens there",
                       (int)holder.pid, holder.name, (unsigned)holder.uid);
    }
}
