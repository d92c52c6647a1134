/* This process as others identify it, what it can see of other processes, and its own threads. */
#ifndef HOOP_PROCESS_H
#define HOOP_PROCESS_H

#include "base/error.h"
#include "base/sizes.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Random, made at first use, never 0: pids are reused, and differ between pid namespaces. */
uint64_t hoop_process_id(void);

/* The host name of its machine, for messages. */
void hoop_process_host(char ret_host[HOOP_NAME_BYTES]);

/* Another process whose memory is to be read by cross-memory attach (process_vm_readv). */
struct hoop_process_memory {
    int pid;        /* in this process's pid namespace; 0: it is not visible here */
    uint64_t id;    /* its hoop_process_id(), */
    uint64_t id_at; /* which lies at this address there; 0: it does not allow reading */
};

/*
 * Makes sure, once, that descriptors 0 to 2 exist. In a program that was started without them,
 * hoop's own descriptors would get these numbers, and what the program prints would go into shared
 * memory or to a peer. What takes their place can't be written: the program still learns that its
 * output is lost.
 */
void hoop_process_hold_streams(void);

/* Can this process open `count` more descriptors now? HOOP_SYSTEM_ERROR: it cannot; the message
 * names who needs them. */
hoop_result_t hoop_process_check_descriptors(uint32_t count, const char *who);

/* The address of this process's id, for others to read. */
uint64_t hoop_process_id_at(void);

/*
 * Copies bytes from address `from` of that process; with 0 bytes it only checks that it can. The id
 * is read along with every piece, so the memory is known to be that process's and not a later one's
 * with its pid. HOOP_SYSTEM_ERROR: the kernel refuses. HOOP_REMOTE_ERROR: the process is gone, or
 * has no such memory. The message is the thread's error.
 */
hoop_result_t hoop_process_read(const struct hoop_process_memory *process, void *to, uint64_t from,
                                size_t bytes);

/* Can other processes read this memory of the caller's, judging by its first and last byte? Mapped
 * device memory and secret memory can be read only by their own process. */
bool hoop_process_can_be_read(const void *memory, size_t bytes);

/* Can the caller read it, judging by the same two bytes? Also true if the kernel does not tell. */
bool hoop_process_can_read(const void *memory, size_t bytes);

/* When the process with this pid was started, in ticks since boot, with its pid namespace in the
 * upper bits: detects a reused pid, and the same pid in another namespace. 0: unknown. */
uint64_t hoop_process_start_time(int pid);
/* This process's, looked up once: if it cannot be read now, it is unknown in every comm. */
uint64_t hoop_process_own_start_time(void);

/* Has the process ended, with all its threads, whether or not its parent has reaped it? Then
 * everything that it had open is closed, and its devices do no more work for it. */
bool hoop_process_is_over(int pid);

/* The first line of a file, without its end. */
bool hoop_process_read_line(const char *path, char *ret_line, size_t bytes);

/*
 * The least CPU quota of the cgroups in this list (/proc/self/cgroup) and of all above them, in
 * whole CPUs, rounded up; UINT32_MAX: none. root: where version 2 is mounted, and version 1 in
 * folders for its controllers. A container may not see all of a path: the topmost cgroup is then
 * its own.
 */
uint32_t hoop_process_cpu_quota(const char *groups, const char *root);

/* Starts a detached thread with all signals blocked: they are the program's. 0 or an errno. */
int hoop_thread_spawn(void *(*body)(void *arg), void *arg);
/* HOOP_SYSTEM_ERROR for the errno that hoop_thread_spawn() returned; thread: its name. */
hoop_result_t hoop_thread_refused(const char *thread, int err);

#endif
