/*
 * Ranks as processes with buffers on devices, over the fake driver that HOOP_CUDA names.
 */
#ifndef HOOP_TESTS_DEVICE_RANKS_H
#define HOOP_TESTS_DEVICE_RANKS_H

#include "fakes/fake_cuda.h"
#include "harness/rank_report.h"
#include "hoop.h"

#define PATIENCE_MS 60000
#define MOST ((size_t)30001)

typedef void rank_fn(const struct family_self *self);

/* ---- In a rank ---- */

extern int without_p2p; /* the rank that has HOOP_CUDA_PEERS=0 */
extern int without_ipc; /* the rank that has HOOP_CUDA_IPC=0 */
#define EVERY_RANK (-2)
extern const char *ahead_of[4]; /* HOOP_CUDA_AHEAD for each rank; NULL: unchanged */
extern fake_cuda_host_copies_t *host_copies;
extern fake_cuda_fetches_t *fetches;
extern fake_cuda_launches_t *launches;
extern fake_cuda_delay_t *delay;
extern fake_cuda_fill_t *fill;
extern fake_cuda_opened_t *opened;
extern fake_cuda_pool_t *pool;
extern fake_cuda_use_t *use;
extern fake_cuda_capture_t *capture;
extern fake_cuda_end_t *graph_end;
extern fake_cuda_replay_t *graph_replay;
extern fake_cuda_drop_t *graph_drop;
extern fake_cuda_copy_delay_t *copy_delay;
extern fake_cuda_break_t *break_device;
extern fake_cuda_forget_t *forget;
extern fake_cuda_hold_t *hold;

hoop_comm_t join(const struct family_self *self);
/* Memory from hoop_mem_alloc(). */
int32_t *make(const struct family_self *self, size_t count);
/* Where the host can access it. */
int32_t *seen(const int32_t *device);
/* Waits until everything that was called is over. */
void settle(const struct family_self *self);
/* A sum, in place or not, from number `off` on. */
void sum(const struct family_self *self, hoop_comm_t comm, int32_t *in, int32_t *out, size_t off,
         size_t count);
/* Many sums of at most MOST numbers, to `out` and in place. */
void sum_many(const struct family_self *self, hoop_comm_t comm, int32_t *in, int32_t *out);
/* A gather, an alltoall and a broadcast of MOST numbers. */
void exchange(const struct family_self *self, hoop_comm_t comm, int32_t *in, int32_t *out);
/* Reports that it has begun, sums until that fails, reports the failure, and destroys comm. */
void sum_until_failure(const struct family_self *self, hoop_comm_t comm, int32_t *x);
/* Takes the machine's device `physical`; the process sees only the `visible` ones. */
void take_device(const struct family_self *self, const char *visible, int physical);
void leave(const struct family_self *self, hoop_comm_t comm);

/* ---- In the parent ---- */

void start(struct family *family, int n, rank_fn *fn);
/* All ranks must end well. */
void run(int n, rank_fn *fn);
/* One of three ranks dies when all have reported that they are at work, and is not reaped: the
 * others report that, and do not hang. goes_on: they name it, and then report that all is well. */
void run_and_kill(rank_fn *fn, bool goes_on);

#endif
