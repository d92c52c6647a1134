/* See life.h. */
#include "whole/life.h"
#include <stdio.h>

static hoop_result_t life_sum(struct life *life, hoop_comm_t comm, int32_t *x, size_t count,
                              hoop_stream_t stream)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (int32_t)(i % 1000) * (life->rank + 1) + 1;
    }
    hoop_result_t result = hoop_all_reduce(x, x, count, HOOP_INT32, HOOP_SUM, comm, stream);
    if (result == HOOP_OK && stream != NULL) {
        result = hoop_stream_synchronize(stream);
    }
    for (size_t i = 0; i < count && result == HOOP_OK; i++) {
        life->wrong |=
            x[i] != (int32_t)(i % 1000) * (LIFE_RANKS * (LIFE_RANKS + 1) / 2) + LIFE_RANKS;
    }
    return result;
}

/* Each rank sends to the next one. */
static hoop_result_t life_pass(struct life *life, int32_t *from, int32_t *to, size_t count)
{
    const int before = (life->rank + LIFE_RANKS - 1) % LIFE_RANKS;
    for (size_t i = 0; i < count; i++) {
        from[i] = (int32_t)i * LIFE_RANKS + life->rank;
        to[i] = -1;
    }
    hoop_result_t result = hoop_group_start();
    if (result != HOOP_OK) {
        return result;
    }
    (void)hoop_send(from, count, HOOP_INT32, (life->rank + 1) % LIFE_RANKS, life->comm, NULL);
    (void)hoop_recv(to, count, HOOP_INT32, before, life->comm, NULL);
    result = hoop_group_end();
    for (size_t i = 0; i < count && result == HOOP_OK; i++) {
        life->wrong |= to[i] != (int32_t)i * LIFE_RANKS + before;
    }
    return result;
}

static hoop_result_t life_exchange(struct life *life, int32_t *from, int32_t *to)
{
    static const size_t counts[LIFE_RANKS] = {1000, 1000, 1000},
                        places[LIFE_RANKS] = {0, 1000, 2000};
    for (int i = 0; i < 1000 * LIFE_RANKS; i++) {
        from[i] = life->rank * 1000 * LIFE_RANKS + i;
    }
    const hoop_result_t result =
        hoop_alltoallv(from, counts, places, to, counts, places, HOOP_INT32, life->comm, NULL);
    for (int i = 0; i < 1000 * LIFE_RANKS && result == HOOP_OK; i++) {
        life->wrong |= to[i] != i / 1000 * 1000 * LIFE_RANKS + life->rank * 1000 + i % 1000;
    }
    return result;
}

static hoop_result_t life_gather(struct life *life, int32_t *from, int32_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        from[i] = (int32_t)i + life->rank;
    }
    const hoop_result_t result = hoop_all_gather(from, to, count, HOOP_INT32, life->comm, NULL);
    for (size_t i = 0; i < count * LIFE_RANKS && result == HOOP_OK; i++) {
        life->wrong |= to[i] != (int32_t)(i % count) + (int32_t)(i / count);
    }
    return result;
}

static hoop_result_t life_join(struct life *life, const hoop_unique_id_t *id)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.init_timeout_ms = LIFE_JOIN_MS;
    config.op_timeout_ms = LIFE_OPERATION_MS;
    return id != NULL
               ? hoop_comm_init_rank_config(&life->comm, LIFE_RANKS, *id, life->rank, &config)
               : hoop_comm_init_env(&life->comm, &config);
}

#define LIFE_STEPS 19

static hoop_result_t life_step(struct life *life, int step)
{
    int32_t *plain = life->plain;
    switch (step) {
    case 1:
        return life_sum(life, life->comm, plain, 1, NULL);
    case 2:
        return life_sum(life, life->comm, plain, LIFE_COUNT, NULL);
    case 3:
        return life_gather(life, plain, plain + LIFE_COUNT / 4, 50);
    case 4:
        return hoop_mem_alloc((void **)&life->shared, 2 * LIFE_COUNT * sizeof(*plain),
                              HOOP_MEM_HOST);
    case 5:
        return life_sum(life, life->comm, life->shared, LIFE_COUNT, NULL);
    case 6:
        return life_pass(life, life->shared, life->shared + LIFE_COUNT, LIFE_COUNT);
    case 7:
        return life_pass(life, plain, plain + LIFE_COUNT / 2, 5);
    case 8:
        return life_pass(life, plain, plain + LIFE_COUNT / 2, LIFE_COUNT / 2);
    case 9:
        return life_exchange(life, plain, plain + LIFE_COUNT / 2);
    case 10:
        return life_gather(life, plain, plain + LIFE_COUNT / 4, LIFE_COUNT / 4);
    case 11:
        return hoop_comm_split(life->comm, 0, life->rank, &life->child, NULL);
    case 12:
        return life_sum(life, life->child, plain, LIFE_COUNT, NULL);
    case 13:
        return hoop_stream_create(&life->stream);
    case 14:
        return life_sum(life, life->comm, plain, 3, life->stream);
    case 15:
        return life_sum(life, life->child, life->shared, LIFE_COUNT, life->stream);
    case 16:
        return hoop_bcast(plain, LIFE_COUNT, HOOP_INT32, 1, life->comm, NULL);
    case 17:
        return hoop_reduce(plain, plain, LIFE_COUNT, HOOP_INT32, HOOP_MAX, 2, life->comm, NULL);
    default:
        return hoop_barrier(life->comm, NULL);
    }
}

bool life_in_child(int step)
{
    return step == 12 || step == 15;
}

/* Returns the first failure of the ends. */
static hoop_result_t life_end(struct life *life)
{
    const hoop_result_t results[] = {
        life->stream != NULL ? hoop_stream_destroy(life->stream) : HOOP_OK,
        life->child != NULL ? hoop_comm_destroy(life->child) : HOOP_OK,
        life->shared != NULL ? hoop_mem_free(life->shared) : HOOP_OK,
        life->comm != NULL ? hoop_comm_destroy(life->comm) : HOOP_OK,
    };
    for (unsigned i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        if (results[i] != HOOP_OK) {
            return results[i];
        }
    }
    return HOOP_OK;
}

hoop_result_t life_live(struct life *life, const hoop_unique_id_t *id)
{
    hoop_result_t result = life_join(life, id);
    for (life->step = 1; result == HOOP_OK && life->step < LIFE_STEPS; life->step++) {
        result = life_step(life, life->step);
    }
    if (result != HOOP_OK) {
        (void)snprintf(life->text, sizeof(life->text), "%s", hoop_get_last_error(NULL));
        (void)life_end(life);
        return result;
    }
    result = life_end(life);
    if (result != HOOP_OK) {
        (void)snprintf(life->text, sizeof(life->text), "%s", hoop_get_last_error(NULL));
    }
    return result;
}
