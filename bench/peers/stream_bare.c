/*
 * What TCP over loopback allows: two processes send each other bytes at the same time, with
 * separate connections for each direction, and do nothing with them. An allreduce of S bytes
 * between two ranks needs S bytes each way, so this is what all_reduce_perf with HOOP_TRANSPORT=tcp
 * is measured by. It can be faster where what it receives stays in a cache: here all of it is
 * written to memory.
 *
 *     stream_bare [-b bytes] [-c connections each way] [-s bytes of a system call] [-n iterations]
 *
 * Prints the time of an exchange and the bandwidth each way. Needs no library.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNECTIONS 16

struct setup {
    size_t bytes, connections, piece, iters;
};

struct end {
    int send_fd, recv_fd;
    size_t sent, received;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void connection(int ret_fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    const int one = 1;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    ret_fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || ret_fds[0] < 0 ||
        bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &bytes) != 0 ||
        connect(ret_fds[0], (struct sockaddr *)&address, sizeof(address)) != 0) {
        die("stream_bare: connect");
    }
    ret_fds[1] = accept(listener, NULL, NULL);
    close(listener);
    if (ret_fds[1] < 0) {
        die("stream_bare: accept");
    }
    for (int i = 0; i < 2; i++) {
        setsockopt(ret_fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
}

/* The other process's ends: while they are open here its death is not seen. */
static void close_ends(const struct end *ends, size_t count)
{
    for (size_t c = 0; c < count; c++) {
        close(ends[c].send_fd);
        close(ends[c].recv_fd);
    }
}

/* Returns the bytes that one system call moved; 0: none can be moved now. */
static size_t move(int fd, uint8_t *data, size_t bytes, bool sending)
{
    const ssize_t moved = sending ? send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                  : recv(fd, data, bytes, MSG_DONTWAIT);
    if (moved < 0 && errno != EAGAIN && errno != EINTR) {
        die("stream_bare");
    }
    if (moved == 0 && bytes > 0) {
        fprintf(stderr, "stream_bare: the other process ended\n");
        exit(1);
    }
    return moved > 0 ? (size_t)moved : 0;
}

/* Moves setup->bytes each way, divided evenly among the connections. */
static void exchange(const struct setup *setup, struct end *ends, uint8_t *from, uint8_t *to)
{
    const size_t each = setup->bytes / setup->connections;
    size_t left = 2 * each * setup->connections;
    for (size_t c = 0; c < setup->connections; c++) {
        ends[c].sent = ends[c].received = 0;
    }
    while (left > 0) {
        for (size_t c = 0; c < setup->connections; c++) {
            struct end *end = &ends[c];
            const size_t to_send =
                each - end->sent < setup->piece ? each - end->sent : setup->piece;
            const size_t to_receive =
                each - end->received < setup->piece ? each - end->received : setup->piece;
            const size_t sent =
                to_send > 0 ? move(end->send_fd, from + c * each + end->sent, to_send, true) : 0;
            const size_t received =
                to_receive > 0
                    ? move(end->recv_fd, to + c * each + end->received, to_receive, false)
                    : 0;
            end->sent += sent;
            end->received += received;
            left -= sent + received;
        }
    }
}

static void run(const struct setup *setup, struct end *ends, bool print)
{
    uint8_t *from = malloc(setup->bytes);
    uint8_t *to = malloc(setup->bytes);
    if (from == NULL || to == NULL) {
        die("stream_bare: malloc");
    }
    memset(from, 1, setup->bytes);
    memset(to, 2, setup->bytes);
    exchange(setup, ends, from, to);
    const double start = now_s();
    for (size_t i = 0; i < setup->iters; i++) {
        exchange(setup, ends, from, to);
    }
    const double each = (now_s() - start) / (double)setup->iters;
    if (print) {
        printf("%zu bytes each way over %zu connections: %.1f us, %.2f GB/s each way\n",
               setup->bytes, setup->connections, each * 1e6, (double)setup->bytes / each / 1e9);
    }
    free(from);
    free(to);
}

int main(int argc, char **argv)
{
    struct setup setup = {
        .bytes = (size_t)64 << 20, .connections = 2, .piece = 131072, .iters = 20};
    for (int letter; (letter = getopt(argc, argv, "b:c:s:n:")) != -1;) {
        size_t *field = letter == 'b'   ? &setup.bytes
                        : letter == 'c' ? &setup.connections
                        : letter == 's' ? &setup.piece
                        : letter == 'n' ? &setup.iters
                                        : NULL;
        char *end = NULL;
        if (field == NULL || (*field = strtoull(optarg, &end, 10)) == 0 || *end != '\0') {
            fprintf(stderr, "usage: %s [-b bytes] [-c connections] [-s piece] [-n iterations]\n",
                    argv[0]);
            return 2;
        }
    }
    setup.connections = setup.connections < MAX_CONNECTIONS ? setup.connections : MAX_CONNECTIONS;
    setup.bytes = setup.bytes < setup.connections ? setup.connections : setup.bytes;
    setup.bytes -= setup.bytes % setup.connections;
    struct end ends[2][MAX_CONNECTIONS];
    for (size_t c = 0; c < setup.connections; c++) {
        int there[2], back[2];
        connection(there);
        connection(back);
        ends[0][c] = (struct end){.send_fd = there[0], .recv_fd = back[1]};
        ends[1][c] = (struct end){.send_fd = back[0], .recv_fd = there[1]};
    }
    const pid_t pid = fork();
    if (pid < 0) {
        die("stream_bare: fork");
    }
    const int me = pid == 0 ? 1 : 0;
    int status = 0;
    close_ends(ends[1 - me], setup.connections);
    run(&setup, ends[me], pid != 0);
    if (pid != 0 && waitpid(pid, &status, 0) != pid) {
        die("stream_bare: waitpid");
    }
    return status != 0;
}
