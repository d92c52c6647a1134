/* Ranks with buffers on devices (see device_ranks.h). */
#include "whole/device_ranks.h"

#include "memory/cuda.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct job {
    rank_fn *fn;
    char secret[65];
};

int without_p2p = -1, without_ipc = -1;
const char *ahead_of[4];
fake_cuda_host_copies_t *host_copies;
fake_cuda_fetches_t *fetches;
fake_cuda_launches_t *launches;
fake_cuda_delay_t *delay;
fake_cuda_fill_t *fill;
fake_cuda_opened_t *opened;
fake_cuda_pool_t *pool;
fake_cuda_use_t *use;
fake_cuda_capture_t *capture;
fake_cuda_end_t *graph_end;
fake_cuda_replay_t *graph_replay;
fake_cuda_drop_t *graph_drop;
fake_cuda_copy_delay_t *copy_delay;
fake_cuda_break_t *break_device;
fake_cuda_forget_t *forget;
fake_cuda_hold_t *hold;
static ptrdiff_t view;

static void rank_main(const struct family_self *self, const void *arg)
{
    const struct job *job = arg;
    hoop_cu_context_t context = NULL;
    fake_cuda_view_t *get_view = NULL;
    void *library = dlopen(getenv("HOOP_CUDA"), RTLD_NOW);
    EXPECT(self, library != NULL);
    setenv("HOOP_SECRET", job->secret, 1);
    setenv("HOOP_DEBUG", "none", 0);
    setenv("HOOP_CUDA_PEERS", self->rank == without_p2p ? "0" : "1", 1);
    const bool without = self->rank == without_ipc || without_ipc == EVERY_RANK;
    setenv("HOOP_CUDA_IPC", without ? "0" : "1", 1);
    if (ahead_of[self->rank % 4] != NULL) {
        setenv("HOOP_CUDA_AHEAD", ahead_of[self->rank % 4], 1);
    }
    family_set_number("RANK", self->rank);
    family_set_number("WORLD_SIZE", self->n);
    *(void **)&get_view = dlsym(library, "fake_cuda_view");
    *(void **)&host_copies = dlsym(library, "fake_cuda_host_copies");
    *(void **)&fetches = dlsym(library, "fake_cuda_fetches");
    *(void **)&launches = dlsym(library, "fake_cuda_launches");
    *(void **)&delay = dlsym(library, "fake_cuda_delay");
    *(void **)&fill = dlsym(library, "fake_cuda_fill");
    *(void **)&opened = dlsym(library, "fake_cuda_opened");
    *(void **)&pool = dlsym(library, "fake_cuda_pool");
    *(void **)&use = dlsym(library, "fake_cuda_use");
    *(void **)&capture = dlsym(library, "fake_cuda_capture");
    *(void **)&graph_end = dlsym(library, "fake_cuda_end");
    *(void **)&graph_replay = dlsym(library, "fake_cuda_replay");
    *(void **)&graph_drop = dlsym(library, "fake_cuda_drop");
    *(void **)&copy_delay = dlsym(library, "fake_cuda_copy_delay");
    *(void **)&break_device = dlsym(library, "fake_cuda_break");
    *(void **)&forget = dlsym(library, "fake_cuda_forget");
    *(void **)&hold = dlsym(library, "fake_cuda_hold");
    view = get_view();
    EXPECT(self, hoop_cuda_context(&context) == HOOP_OK);
    EXPECT(self, hoop_cuda.context_push(context) == 0);
    job->fn(self);
}

hoop_comm_t join(const struct family_self *self)
{
    hoop_comm_t comm = NULL;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.algo = "direct";
    config.op_timeout_ms = 30000;
    EXPECT(self, hoop_comm_init_env(&comm, &config) == HOOP_OK);
    return comm;
}

int32_t *make(const struct family_self *self, size_t count)
{
    void *ret = NULL;
    EXPECT(self, hoop_mem_alloc(&ret, count * sizeof(int32_t), HOOP_MEM_DEVICE) == HOOP_OK);
    return ret;
}

int32_t *seen(const int32_t *device)
{
    return (int32_t *)((uintptr_t)device + (uintptr_t)view);
}

void settle(const struct family_self *self)
{
    EXPECT(self, hoop_cuda.stream_synchronize(NULL) == 0);
}

void sum(const struct family_self *self, hoop_comm_t comm, int32_t *in, int32_t *out, size_t off,
         size_t count)
{
    int32_t *const seen_in = seen(in) + off, *const seen_out = seen(out) + off;
    for (size_t i = 0; i < count; i++) {
        seen_in[i] = (int32_t)i * (self->rank + 1);
    }
    EXPECT(self, hoop_all_reduce(in + off, out + off, count, HOOP_INT32, HOOP_SUM, comm, NULL) ==
                     HOOP_OK);
    settle(self);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += seen_out[i] != (int32_t)i * self->n * (self->n + 1) / 2;
    }
    EXPECT(self, wrong == 0);
}

void sum_many(const struct family_self *self, hoop_comm_t comm, int32_t *in, int32_t *out)
{
    static const size_t counts[] = {1, 2, 5, 1000, 4097, 30000};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        sum(self, comm, in, out, c & 1, counts[c]);
        sum(self, comm, in, in, 0, counts[c]);
    }
}

void exchange(const struct family_self *self, hoop_comm_t comm, int32_t *in, int32_t *out)
{
    const size_t each = MOST / (size_t)self->n;
    for (size_t i = 0; i < MOST; i++) {
        seen(in)[i] = self->rank * 1000 + (int32_t)(i / each);
    }
    EXPECT(self, hoop_gather(in, out, each, HOOP_INT32, 0, comm, NULL) == HOOP_OK);
    EXPECT(self, hoop_alltoall(in, out, each, HOOP_INT32, comm, NULL) == HOOP_OK);
    settle(self);
    size_t wrong = 0;
    for (int r = 0; r < self->n; r++) {
        wrong += seen(out)[(size_t)r * each] != r * 1000 + self->rank;
    }
    EXPECT(self, wrong == 0);
    EXPECT(self, hoop_bcast(in, MOST, HOOP_INT32, self->n - 1, comm, NULL) == HOOP_OK);
    settle(self);
    EXPECT(self, seen(in)[0] == (self->n - 1) * 1000);
}

void sum_until_failure(const struct family_self *self, hoop_comm_t comm, int32_t *x)
{
    hoop_result_t result = HOOP_OK;
    sum(self, comm, x, x, 0, MOST);
    delay(50000);
    rank_tell(self, HOOP_OK, 0);
    while (result == HOOP_OK) {
        result = hoop_all_reduce(x, x, MOST, HOOP_INT32, HOOP_SUM, comm, NULL);
        settle(self); /* also if it fails meanwhile */
    }
    rank_tell(self, result, 0);
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
}

void take_device(const struct family_self *self, const char *visible, int physical)
{
    const char *at = strchr(visible, '0' + physical);
    hoop_cu_context_t context = NULL;
    EXPECT(self, at != NULL);
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    EXPECT(self, hoop_cuda.primary_retain(&context, (int)(at - visible) / 2) == 0);
    EXPECT(self, hoop_cuda.context_push(context) == 0);
}

void leave(const struct family_self *self, hoop_comm_t comm)
{
    EXPECT(self, hoop_comm_destroy(comm) == HOOP_OK);
    rank_tell(self, HOOP_OK, 0);
}

void start(struct family *family, int n, rank_fn *fn)
{
    static unsigned serial;
    struct job job = {.fn = fn};
    (void)snprintf(job.secret, sizeof(job.secret), "%048x%016x", (unsigned)getpid(), ++serial);
    rank_start_all(family, n, rank_main, &job, PATIENCE_MS);
}

void run(int n, rank_fn *fn)
{
    struct family family;
    start(&family, n, fn);
    rank_hear_all_well(&family);
    rank_end_all(&family);
}

void run_and_kill(rank_fn *fn, bool goes_on)
{
    struct family family;
    start(&family, 3, fn);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(rank_hear(&family, r).result, HOOP_OK);
    }
    usleep(120000);
    assert_int_equal(kill(family.ranks[1].pid, SIGKILL), 0);
    for (int r = 0; r < 3; r += 2) {
        const struct rank_report report = rank_hear(&family, r);
        assert_int_equal(report.result, HOOP_REMOTE_ERROR);
        if (goes_on) {
            assert_non_null(strstr(report.text, "rank 1 "));
            assert_int_equal(rank_hear(&family, r).result, HOOP_OK);
        }
    }
    family_kill(&family, 1);
    rank_end_all(&family);
}
