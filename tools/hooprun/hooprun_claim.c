/* The claim is an abstract socket: like the ranks' sockets it belongs to this network namespace,
 * and it vanishes with its owner. It never accepts. */
#include "hooprun/hooprun_claim.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static uint64_t text_hash(const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *text != '\0'; text++) {
        hash = (hash ^ (uint8_t)*text) * 1099511628211u;
    }
    return hash;
}

/* Includes HOOP_HOSTID, which divides one machine into several. */
static socklen_t claim_address(const struct hooprun_options *options, const char *run_id,
                               struct sockaddr_un *ret_address)
{
    const char *host_id = getenv("HOOP_HOSTID");
    char text[512];
    snprintf(text, sizeof(text), "%d/%d %s:%d %s %s", options->node_rank, options->node_count,
             options->master_addr, options->master_port, run_id, host_id == NULL ? "" : host_id);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int length =
        snprintf(ret_address->sun_path + 1, sizeof(ret_address->sun_path) - 1, "hooprun-%u-%016llx",
                 (unsigned)geteuid(), (unsigned long long)text_hash(text));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* The process that holds the claim; 0 if unknown, or another user's, which proves nothing. */
static pid_t claim_holder(const struct sockaddr_un *address, socklen_t bytes)
{
    struct ucred holder = {0};
    socklen_t room = sizeof(holder);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool known = fd >= 0 && connect(fd, (const struct sockaddr *)address, bytes) == 0 &&
                       getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &holder, &room) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return known && holder.uid == geteuid() ? holder.pid : 0;
}

bool hooprun_claim(const struct hooprun_options *options, const char *run_id, int *ret_fd)
{
    struct sockaddr_un address;
    *ret_fd = -1;
    if (options->node_count == 1) {
        return true;
    }
    const socklen_t bytes = claim_address(options, run_id, &address);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, bytes) == 0 &&
        listen(fd, SOMAXCONN) == 0) {
        *ret_fd = fd;
        return true;
    }
    const pid_t holder = errno == EADDRINUSE ? claim_holder(&address, bytes) : 0;
    if (fd >= 0) {
        close(fd);
    }
    if (holder != 0) {
        fprintf(stderr,
                "hooprun: process %d already runs machine %d of the job with run id %s at %s, port "
                "%d: end it, or give this job its own --run-id and --master-port\n",
                (int)holder, options->node_rank, run_id, options->master_addr,
                options->master_port);
    }
    return holder == 0;
}
