/* Who this process is, to others. */
#ifndef HOOP_PROCESS_H
#define HOOP_PROCESS_H

#include "base/sizes.h"
#include <stdbool.h>
#include <stdint.h>

/* Random, made at first use, never 0: pids are used again, and differ between pid namespaces. */
uint64_t hoop_process_id(void);

/* The name of its machine, for sentences. */
void hoop_process_host(char ret_host[HOOP_NAME_BYTES]);

/* When the process with this pid was started, in ticks since boot: tells a reused pid. 0: unknown.
 */
uint64_t hoop_process_start_time(int pid);

/* Has it ended, with all its threads, whether or not its parent has heard of it? What it had open
 * is closed then, and its devices do nothing for it any more. */
bool hoop_process_is_over(int pid);

#endif
