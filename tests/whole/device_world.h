/* Ranks that are threads of this process, each with buffers and a stream on a device, over the fake
 * driver that HOOP_CUDA names. With several devices rank r has device r modulo their number. */
#ifndef HOOP_TESTS_DEVICE_WORLD_H
#define HOOP_TESTS_DEVICE_WORLD_H

#include "fakes/fake_cuda.h"
#include "hoop.h"

#include <stddef.h>

#define RANKS 3
#define BYTES ((size_t)40000)

extern fake_cuda_fill_t *fill;
extern fake_cuda_capture_t *capture;
extern fake_cuda_break_t *break_device;
extern fake_cuda_use_t *use;
extern fake_cuda_delay_t *delay;
extern fake_cuda_forget_t *forget;
extern fake_cuda_refuse_t *refuse;
extern fake_cuda_launches_t *launches;
/* How many kernels one sum takes in all: on one device one rank folds for all. */
unsigned folds(void);
extern fake_cuda_host_copies_t *host_copies;
extern fake_cuda_hold_t *hold;
extern fake_cuda_other_t *other_context;
extern ptrdiff_t view; /* from a device address to where the test can access it */

struct rank {
    hoop_comm_t comm;
    hoop_stream_t stream;
    unsigned char *in, *out; /* device addresses */
    hoop_result_t result;
    char why[512];
};

extern struct rank ranks[RANKS];

/* Makes the context of the rank's device current in the calling thread; ends that. */
hoop_cu_context_t enter_device_of(int rank);
void leave_device(void);

/* For a group of tests. */
int setup(void **state);

/* Makes comms, streams and buffers; the calling thread has the device's context, as after any CUDA
 * call. algo slab: through host memory. */
void make_by(const char *algo);
void make(void); /* direct */
void end_comms(void);
void end(void);

hoop_result_t sum(struct rank *rank);
void sum_in_threads(void);
/* After a sum of r + 1 of every rank r on a device that has failed: how many ranks failed, and how
 * many of them name that. The others have the right sum. */
void count_failed(int *ret_failed, int *ret_named);
/* By one thread, which drives them all. */
void sum_in_group(void);
/* Waits for all that is on the ranks' streams. */
void settle(void);

void assert_all(const unsigned char *device, int value);

#endif
