/* Finds the sockets at which a process listens: the inodes of its descriptors, looked up in
 * /proc/net. */
#include "whole/strangers.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define FIND_INODES 4096
#define FIND_UNIX_LISTENS 0x10000u
#define FIND_TCP_LISTENS 0x0au

struct find {
    unsigned long inodes[FIND_INODES];
    int inode_count;
    struct target *targets;
    int count;
};

static void find_inodes(struct find *find, pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char link[128];
        char name[400];
        (void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        const ssize_t got = readlink(name, link, sizeof(link) - 1);
        link[got > 0 ? got : 0] = 0;
        if (strncmp(link, "socket:[", 8) == 0 && find->inode_count < FIND_INODES) {
            find->inodes[find->inode_count++] = strtoul(link + 8, NULL, 10);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

static bool find_is_mine(const struct find *find, unsigned long inode)
{
    for (int i = 0; i < find->inode_count; i++) {
        if (find->inodes[i] == inode && inode != 0) {
            return true;
        }
    }
    return false;
}

static struct target *find_new(struct find *find)
{
    struct target *target = &find->targets[find->count];
    if (find->count == STRANGERS_TARGETS) {
        return NULL;
    }
    find->count++;
    *target = (struct target){.kind = SOCK_STREAM};
    return target;
}

static void find_unix_line(struct find *find, const char *line)
{
    unsigned flags = 0;
    unsigned type = 0;
    unsigned long inode = 0;
    char name[110] = "";
    const int got =
        sscanf(line, "%*[^:]: %*x %*x %x %x %*x %lu %109s", &flags, &type, &inode, name);
    if (got != 4 || (flags & FIND_UNIX_LISTENS) == 0 || !find_is_mine(find, inode) ||
        name[0] != '@') {
        return;
    }
    struct target *target = find_new(find);
    if (target == NULL) {
        return;
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strnlen(name + 1, sizeof(address.sun_path) - 1);
    memcpy(address.sun_path + 1, name + 1, length);
    memcpy(&target->address, &address, sizeof(address));
    target->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    target->kind = (int)type;
    (void)snprintf(target->text, sizeof(target->text), "%s", name);
}

/* Parses an address of /proc: the IP's words in this machine's byte order, and the port. */
static bool find_address(const char *hex, struct target *target)
{
    const char *colon = strchr(hex, ':');
    const size_t digits = colon != NULL ? (size_t)(colon - hex) : 0;
    uint32_t words[4] = {0};
    char text[INET6_ADDRSTRLEN] = "";
    if (digits != 8 && digits != 32) {
        return false;
    }
    for (size_t i = 0; i < digits / 8; i++) {
        char word[9] = "";
        memcpy(word, hex + 8 * i, 8);
        words[i] = (uint32_t)strtoul(word, NULL, 16);
    }
    const uint16_t port = (uint16_t)strtoul(colon + 1, NULL, 16);
    if (digits == 8) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&in.sin_addr, words, sizeof(in.sin_addr));
        memcpy(&target->address, &in, sizeof(in));
        target->bytes = sizeof(in);
        inet_ntop(AF_INET, words, text, sizeof(text));
    } else {
        struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
        memcpy(&in.sin6_addr, words, sizeof(in.sin6_addr));
        memcpy(&target->address, &in, sizeof(in));
        target->bytes = sizeof(in);
        inet_ntop(AF_INET6, words, text, sizeof(text));
    }
    (void)snprintf(target->text, sizeof(target->text), "%s port %u", text, port);
    return true;
}

static void find_tcp_line(struct find *find, const char *line)
{
    char local[64] = "";
    unsigned state = 0;
    unsigned long inode = 0;
    const int got = sscanf(line, "%*d: %63s %*s %x %*s %*s %*s %*u %*d %lu", local, &state, &inode);
    if (got != 3 || state != FIND_TCP_LISTENS || !find_is_mine(find, inode)) {
        return;
    }
    struct target *target = find_new(find);
    if (target != NULL && !find_address(local, target)) {
        find->count--;
    }
}

static void find_lines(struct find *find, const char *path,
                       void (*each)(struct find *find, const char *line))
{
    char line[512];
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        each(find, line);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

int strangers_find(const pid_t *pids, int count, struct target ret[STRANGERS_TARGETS])
{
    struct find find = {.targets = ret};
    for (int i = 0; i < count; i++) {
        find_inodes(&find, pids[i]);
    }
    find_lines(&find, "/proc/net/unix", find_unix_line);
    find_lines(&find, "/proc/net/tcp", find_tcp_line);
    find_lines(&find, "/proc/net/tcp6", find_tcp_line);
    return find.count;
}

bool target_is_tcp(const struct target *target)
{
    return target->address.ss_family != AF_UNIX;
}
