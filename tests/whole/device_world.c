/* Ranks on a device (see device_world.h). */
#include "whole/device_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "memory/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

fake_cuda_fill_t *fill;
fake_cuda_capture_t *capture;
fake_cuda_break_t *break_device;
fake_cuda_use_t *use;
fake_cuda_delay_t *delay;
fake_cuda_forget_t *forget;
fake_cuda_refuse_t *refuse;
fake_cuda_launches_t *launches;
fake_cuda_host_copies_t *host_copies;
fake_cuda_hold_t *hold;
fake_cuda_other_t *other_context;
ptrdiff_t view;

struct rank ranks[RANKS];

int setup(void **state)
{
    (void)state;
    void *library = dlopen(getenv("HOOP_CUDA"), RTLD_NOW);
    fake_cuda_view_t *get_view = NULL;
    if (library == NULL) {
        return -1;
    }
    *(void **)&get_view = dlsym(library, "fake_cuda_view");
    *(void **)&fill = dlsym(library, "fake_cuda_fill");
    *(void **)&capture = dlsym(library, "fake_cuda_capture");
    *(void **)&break_device = dlsym(library, "fake_cuda_break");
    *(void **)&use = dlsym(library, "fake_cuda_use");
    *(void **)&delay = dlsym(library, "fake_cuda_delay");
    *(void **)&forget = dlsym(library, "fake_cuda_forget");
    *(void **)&refuse = dlsym(library, "fake_cuda_refuse");
    *(void **)&launches = dlsym(library, "fake_cuda_launches");
    *(void **)&host_copies = dlsym(library, "fake_cuda_host_copies");
    *(void **)&hold = dlsym(library, "fake_cuda_hold");
    *(void **)&other_context = dlsym(library, "fake_cuda_other");
    view = get_view();
    return 0;
}

static int count_devices(void)
{
    int devices = 0;
    assert_int_equal(hoop_cuda.device_count(&devices), 0);
    return devices;
}

unsigned folds(void)
{
    return count_devices() == 1 ? 1 : RANKS;
}

hoop_cu_context_t enter_device_of(int rank)
{
    hoop_cu_context_t context = NULL;
    assert_int_equal(hoop_cuda.primary_retain(&context, rank * count_devices() / RANKS), 0);
    assert_int_equal(hoop_cuda.context_push(context), 0);
    return context;
}

void leave_device(void)
{
    hoop_cu_context_t context = NULL;
    assert_int_equal(hoop_cuda.context_pop(&context), 0);
}

void make_by(const char *algo)
{
    hoop_unique_id_t id;
    hoop_cu_context_t context = NULL, now = NULL;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.op_timeout_ms = 20000;
    config.algo = algo;
    assert_int_equal(hoop_cuda_context(&context), HOOP_OK);
    assert_int_equal(hoop_cuda.context_get(&now), 0);
    if (now == NULL) {
        assert_int_equal(hoop_cuda.context_push(context), 0);
    }
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    hoop_group_start();
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){0};
        hoop_comm_init_rank_config(&ranks[r].comm, RANKS, id, r, &config);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        (void)enter_device_of(r);
        assert_int_equal(hoop_cuda.stream_create(&ranks[r].stream, 0), 0);
        assert_int_equal(hoop_mem_alloc((void **)&ranks[r].in, BYTES, HOOP_MEM_DEVICE), HOOP_OK);
        assert_int_equal(hoop_mem_alloc((void **)&ranks[r].out, BYTES, HOOP_MEM_DEVICE), HOOP_OK);
        leave_device();
    }
}

void make(void)
{
    make_by("direct");
}

void end_comms(void)
{
    for (int r = 0; r < RANKS; r++) {
        hoop_comm_destroy(ranks[r].comm);
        ranks[r].comm = NULL;
    }
}

void end(void)
{
    end_comms();
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(hoop_mem_free(ranks[r].in), HOOP_OK);
        assert_int_equal(hoop_mem_free(ranks[r].out), HOOP_OK);
        assert_int_equal(hoop_cuda.stream_destroy(ranks[r].stream), 0);
    }
}

hoop_result_t sum(struct rank *rank)
{
    return hoop_all_reduce(rank->in, rank->out, BYTES, HOOP_UINT8, HOOP_SUM, rank->comm,
                           rank->stream);
}

static void *sum_main(void *arg)
{
    struct rank *rank = arg;
    rank->result = sum(rank);
    strncpy(rank->why, hoop_get_last_error(NULL), sizeof(rank->why) - 1);
    return NULL;
}

void sum_in_threads(void)
{
    pthread_t threads[RANKS];
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(pthread_create(&threads[r], NULL, sum_main, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
    }
}

void count_failed(int *ret_failed, int *ret_named)
{
    *ret_failed = *ret_named = 0;
    for (int r = 0; r < RANKS; r++) {
        *ret_failed += ranks[r].result != HOOP_OK;
        *ret_named += strstr(ranks[r].why, "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL;
        if (ranks[r].result == HOOP_OK) {
            assert_all(ranks[r].out, 6);
        }
    }
}

void sum_in_group(void)
{
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        (void)sum(&ranks[r]);
    }
    const hoop_result_t result = hoop_group_end();
    for (int r = 0; r < RANKS; r++) {
        ranks[r].result = result;
        strncpy(ranks[r].why, hoop_get_last_error(NULL), sizeof(ranks[r].why) - 1);
    }
}

void settle(void)
{
    for (int r = 0; r < RANKS; r++) {
        (void)hoop_cuda.stream_synchronize(ranks[r].stream);
    }
}

void assert_all(const unsigned char *device, int value)
{
    for (size_t i = 0; i < BYTES; i++) {
        assert_int_equal(device[(ptrdiff_t)i + view], value);
    }
}
