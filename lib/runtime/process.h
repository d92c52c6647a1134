/* Who this process is, to others, what it can see of them, and its own threads. */
#ifndef HOOP_PROCESS_H
#define HOOP_PROCESS_H

#include "base/error.h"
#include "base/sizes.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Random, made at first use, never 0: pids are used again, and differ between pid namespaces. */
uint64_t hoop_process_id(void);

/* The name of its machine, for sentences. */
void hoop_process_host(char ret_host[HOOP_NAME_BYTES]);

/* Another process whose memory is to be read: cross-memory attach (process_vm_readv). */
struct hoop_process_memory {
    int pid;        /* as seen here; 0: it cannot be */
    uint64_t id;    /* hoop_process_id() there, */
    uint64_t id_at; /* which lies at this address; 0: nobody is to read there */
};

/*
 * Sees to it, once, that descriptors 0 to 2 exist: where the program was started without them, the
 * next ones opened would be, and what it prints would go into shared memory or to a peer.
 */
void hoop_process_hold_streams(void);

/* Can this process open so many descriptors more, at this moment? HOOP_SYSTEM_ERROR: no, and who
 * needs them stands in the sentence. */
hoop_result_t hoop_process_check_descriptors(uint32_t count, const char *who);

/* Where the id of this process lies, for others. */
uint64_t hoop_process_id_at(void);

/*
 * Copies bytes at address `from` of that process; with 0 bytes it asks whether it can. It is that
 * very process, and no later one with its pid: its id is read along with every piece.
 * HOOP_SYSTEM_ERROR: the kernel refuses; HOOP_REMOTE_ERROR: the process is gone, or has no such
 * memory. The sentence is the thread's.
 */
hoop_result_t hoop_process_read(const struct hoop_process_memory *process, void *to, uint64_t from,
                                size_t bytes);

/*
 * Can others read this memory of the caller's process, as far as its first and last byte tell?
 * Devices' memory and secret memory, mapped, can be read by their process alone.
 */
bool hoop_process_can_be_read(const void *memory, size_t bytes);

/* Can the caller itself, by the same two bytes? Also true where the kernel does not tell. */
bool hoop_process_can_read(const void *memory, size_t bytes);

/* When the process with this pid was started, in ticks since boot, with its pid namespace in the
 * upper bits: tells a reused pid, and the same one elsewhere. 0: unknown. */
uint64_t hoop_process_start_time(int pid);

/* Has it ended, with all its threads, whether or not its parent has heard of it? What it had open
 * is closed then, and its devices do nothing for it any more. */
bool hoop_process_is_over(int pid);

/* Starts a detached thread that takes no signals: they are the program's. 0 or an errno. */
int hoop_thread_spawn(void *(*body)(void *arg), void *arg);
/* HOOP_SYSTEM_ERROR: what that returned, for this thread. */
hoop_result_t hoop_thread_refused(const char *thread, int err);

#endif
