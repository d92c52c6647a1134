/*
 * For programs that examine a GPU: two processes that share it, and a page of host memory that both
 * have registered with it. Needs nothing of hoop.
 */
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS_MOST 60

static int role;                /* 0 or 1 */
static int peer;                /* a socket to the other process */
static volatile uint32_t *word; /* 1024 words, shared by both processes */
#define CU(call)                                                                                   \
    do {                                                                                           \
        const int result_ = (int)(call);                                                           \
        if (result_ != 0) {                                                                        \
            fprintf(stderr, "rank %d: %s: error %d\n", role, #call, result_);                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static double now_us()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

__global__ void fill(uint32_t *at, size_t count, uint32_t value)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        at[i] = value;
    }
}

static void send_all(const void *data, size_t bytes, int fd)
{
    struct iovec part = {(void *)data, bytes};
    char space[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0) {
        message.msg_control = space;
        message.msg_controllen = sizeof(space);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    CU(sendmsg(peer, &message, 0) == (ssize_t)bytes ? 0 : 1);
}

static int receive_all(void *data, size_t bytes)
{
    struct iovec part = {data, bytes};
    char space[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr message = {};
    int fd = -1;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof(space);
    CU(recvmsg(peer, &message, MSG_WAITALL) == (ssize_t)bytes ? 0 : 1);
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    }
    return fd;
}

static void meet()
{
    char byte = 0;
    send_all(&byte, 1, -1);
    receive_all(&byte, 1);
}

static CUdeviceptr on_device(int i)
{
    void *at;
    CU(cudaHostGetDevicePointer(&at, (void *)(word + i), 0));
    return (CUdeviceptr)at;
}

/* Runs the probe in two processes, which are forked before CUDA is used. */
static int pair(int (*probe)(bool one_queue), bool one_queue)
{
    int ends[2];
    int codes[2] = {1, 1};
    pid_t pids[2];
    CU(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    if (one_queue) {
        CU(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1));
    }
    for (int r = 0; r < 2; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            role = r;
            peer = ends[r];
            close(ends[1 - r]);
            alarm(SECONDS_MOST); /* SIGALRM ends a probe that hangs */
            exit(probe(one_queue));
        }
    }
    close(ends[0]);
    close(ends[1]);
    for (int r = 0; r < 2; r++) {
        waitpid(pids[r], &codes[r], 0);
    }
    if (codes[0] != 0 || codes[1] != 0) {
        printf("the probes with %s ended with %#x and %#x\n",
               one_queue ? "one queue" : "all queues", codes[0], codes[1]);
    }
    return codes[0] | codes[1];
}

/* Is there a GPU? Also makes the shared page. */
static bool pair_possible()
{
    if (access("/dev/nvidiactl", F_OK) != 0) {
        printf("skipped: no GPU: there is no /dev/nvidiactl\n");
        return false;
    }
    word = (volatile uint32_t *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                     -1, 0);
    return true;
}

/* ---- Output ---- */

static const char *queues = "";

static void told(const char *what, const char *format, double number)
{
    if (role == 0) {
        printf("%s%-56s ", queues, what);
        printf(format, number);
        printf("\n");
        fflush(stdout);
    }
}

static cudaStream_t stream_made()
{
    cudaStream_t stream;
    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}
