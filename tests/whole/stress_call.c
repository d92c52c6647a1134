/* See stress_call.h. */
#include "whole/stress_call.h"
#include "fakes/reference.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES ((size_t)64)
#define GUARD_BYTE 0xa5
#define CLAIM_BYTE 0x3c

/* ---- Areas -------------------------------------------------------------------------------- */

static bool area_take_arena(struct stress_area *area, const struct stress_place *place)
{
    if (*place->arena_used + area->bytes > STRESS_ARENA_BYTES) {
        return false;
    }
    area->block = place->arena + *place->arena_used;
    *place->arena_used += area->bytes;
    return true;
}

static bool area_allocate(struct stress_area *area, const struct stress_place *place)
{
    void *block = NULL;
    switch (area->kind) {
    case AREA_ARENA:
        return area_take_arena(area, place);
    case AREA_REGION:
        if (hoop_mem_alloc(&block, area->bytes, HOOP_MEM_HOST) != HOOP_OK) {
            return false;
        }
        break;
    default:
        block = malloc(area->bytes);
        break;
    }
    area->block = block;
    return block != NULL;
}

/* Memory for so many bytes of a random kind; if that can't be had, plain memory. */
static bool area_init(struct stress_area *area, const struct stress_place *place, size_t bytes,
                      struct stress_random *random)
{
    area->at = GUARD_BYTES + stress_below(random, 64);
    area->bytes = area->at + bytes + GUARD_BYTES;
    area->kind = AREA_PLAIN + (int)stress_below(random, 4);
    if (!area_allocate(area, place)) {
        area->kind = AREA_PLAIN;
        if (!area_allocate(area, place)) {
            area->kind = AREA_NONE;
            return false;
        }
    }
    if (area->kind == AREA_REGISTERED &&
        hoop_comm_register(place->comm, area->block, area->bytes, &area->handle) != HOOP_OK) {
        area->kind = AREA_PLAIN;
    }
    area->image = malloc(area->bytes);
    memset(area->block, GUARD_BYTE, area->bytes);
    return area->image != NULL;
}

static void area_finish(struct stress_area *area, hoop_comm_t comm)
{
    switch (area->kind) {
    case AREA_REGISTERED:
        (void)hoop_comm_deregister(comm, area->handle);
        free(area->block);
        break;
    case AREA_PLAIN:
        free(area->block);
        break;
    case AREA_REGION:
        (void)hoop_mem_free(area->block);
        break;
    default:
        break;
    }
    free(area->image);
    *area = (struct stress_area){.kind = AREA_NONE};
}

/* ---- Values ------------------------------------------------------------------------------- */

/* Fills in what a rank sends. If sums are not made in rank order they must be exact. */
static void fill(const struct stress_run *run, int rank, size_t count, void *dst)
{
    const struct model_call *model = &run->model;
    if (run->place.program->special || run->call.message || !model_has_op(model->kind)) {
        reference_fill(model->type, dst, count, run->call.seed + (uint64_t)rank);
    } else {
        reference_fill_exact(model->type, model->op, dst, count, rank, model->n, run->call.seed);
    }
}

/* Computes what this rank must receive; the inputs of all ranks are made again. */
static bool expect(const struct stress_run *run, unsigned char *dst)
{
    const struct model_call *model = &run->model;
    const size_t element = model_type_bytes(model->type);
    void *sends[STRESS_MOST_RANKS] = {NULL};
    bool good = true;
    for (int r = 0; r < model->n; r++) {
        const size_t count = model_send_count(model, r);
        sends[r] = malloc(count * element + 1);
        good = good && sends[r] != NULL;
        if (sends[r] != NULL) {
            fill(run, r, count, sends[r]);
        }
    }
    if (good) {
        model_result(model, (const void *const *)sends, run->place.rank, dst);
    }
    for (int r = 0; r < model->n; r++) {
        free(sends[r]);
    }
    return good;
}

/* ---- Runs --------------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static bool run_init_message(struct stress_run *run, struct stress_random *random)
{
    const size_t count = run->model.count;
    const size_t bytes = count * model_type_bytes(run->model.type);
    const int from = (int)(run->call.root % (uint32_t)run->model.n);
    run->sends = run->place.rank == from;
    run->receives = run->place.rank == (int)(run->call.peer % (uint32_t)run->model.n);
    if (run->sends) {
        if (!area_init(&run->send, &run->place, bytes, random)) {
            return false;
        }
        fill(run, from, count, run->send.block + run->send.at);
        memcpy(run->send.image, run->send.block, run->send.bytes);
    }
    if (run->receives) {
        if (!area_init(&run->recv, &run->place, bytes, random)) {
            return false;
        }
        memcpy(run->recv.image, run->recv.block, run->recv.bytes);
        fill(run, from, count, run->recv.image + run->recv.at);
    }
    return true;
}

static bool run_init_collective(struct stress_run *run, struct stress_random *random)
{
    const struct model_call *model = &run->model;
    const int rank = run->place.rank;
    const size_t element = model_type_bytes(model->type);
    const size_t send = model_send_count(model, rank);
    const size_t recv = model_recv_count(model, rank);
    run->in_place = model_has_place(model->kind) && stress_below(random, 2) == 0;
    const size_t send_at = run->in_place ? model_send_at(model, rank) : 0;
    const size_t recv_at = run->in_place ? model_recv_at(model, rank) : 0;
    const size_t both = larger(send_at + send, recv_at + recv);
    if (!area_init(&run->recv, &run->place, (run->in_place ? both : recv) * element, random) ||
        (!run->in_place && !area_init(&run->send, &run->place, send * element, random))) {
        return false;
    }
    struct stress_area *from = run->in_place ? &run->recv : &run->send;
    fill(run, rank, send, from->block + from->at + send_at * element);
    memcpy(from->image, from->block, from->bytes);
    if (!run->in_place) {
        memcpy(run->recv.image, run->recv.block, run->recv.bytes);
    }
    return expect(run, run->recv.image + run->recv.at + recv_at * element);
}

bool stress_run_init(struct stress_run *run, const struct stress_place *place,
                     const struct stress_call *call, struct stress_random *random)
{
    *run = (struct stress_run){.place = *place, .call = *call};
    run->model = stress_call_in(call, place->n);
    return call->message ? run_init_message(run, random) : run_init_collective(run, random);
}

/* NULL: there is no buffer. */
static unsigned char *area_at(const struct stress_area *area)
{
    return area->block != NULL ? area->block + area->at : NULL;
}

/* The arrays are read before the call returns, so they may be local. */
static hoop_result_t start_alltoallv(const struct model_call *call, const void *send, void *recv,
                                     int rank, hoop_comm_t comm, hoop_stream_t stream)
{
    size_t sends[STRESS_MOST_RANKS], receives[STRESS_MOST_RANKS], at[STRESS_MOST_RANKS];
    for (int q = 0; q < call->n; q++) {
        sends[q] = model_pair_count(call, rank, q);
        receives[q] = model_pair_count(call, q, rank);
        at[q] = model_pair_at(call, q);
    }
    return hoop_alltoallv(send, sends, at, recv, receives, at, call->type, comm, stream);
}

static hoop_result_t start_collective(const struct model_call *call, const void *send, void *recv,
                                      int rank, hoop_comm_t comm, hoop_stream_t stream)
{
    const size_t count = call->count;
    switch (call->kind) {
    case MODEL_ALL_REDUCE:
        return hoop_all_reduce(send, recv, count, call->type, call->op, comm, stream);
    case MODEL_REDUCE:
        return hoop_reduce(send, recv, count, call->type, call->op, call->root, comm, stream);
    case MODEL_REDUCE_SCATTER:
        return hoop_reduce_scatter(send, recv, count, call->type, call->op, comm, stream);
    case MODEL_ALL_GATHER:
        return hoop_all_gather(send, recv, count, call->type, comm, stream);
    case MODEL_BROADCAST:
        return hoop_broadcast(send, recv, count, call->type, call->root, comm, stream);
    case MODEL_ALLTOALL:
        return hoop_alltoall(send, recv, count, call->type, comm, stream);
    case MODEL_GATHER:
        return hoop_gather(send, recv, count, call->type, call->root, comm, stream);
    case MODEL_SCATTER:
        return hoop_scatter(send, recv, count, call->type, call->root, comm, stream);
    case MODEL_ALLTOALLV:
        return start_alltoallv(call, send, recv, rank, comm, stream);
    default:
        return HOOP_INVALID_ARGUMENT;
    }
}

hoop_result_t stress_run_start(const struct stress_run *run)
{
    const struct model_call *model = &run->model;
    const size_t element = model_type_bytes(model->type);
    unsigned char *recv = area_at(&run->recv);
    if (!run->call.message) {
        const unsigned char *send = area_at(&run->send);
        if (run->in_place && recv != NULL) {
            send = recv + model_send_at(model, run->place.rank) * element;
            recv += model_recv_at(model, run->place.rank) * element;
        }
        return start_collective(model, send, recv, run->place.rank, run->place.comm,
                                run->place.queue);
    }
    hoop_result_t result = HOOP_OK;
    if (run->sends) {
        result = hoop_send(area_at(&run->send), model->count, model->type,
                           (int)(run->call.peer % (uint32_t)model->n), run->place.comm,
                           run->place.queue);
    }
    if (run->receives && result == HOOP_OK) {
        result = hoop_recv(recv, model->count, model->type, model->root, run->place.comm,
                           run->place.queue);
    }
    return result;
}

static bool area_check(const struct stress_area *area, const char *name, char *ret_text,
                       size_t text_bytes)
{
    if (area->kind == AREA_NONE || memcmp(area->block, area->image, area->bytes) == 0) {
        return true;
    }
    size_t i = 0;
    while (area->block[i] == area->image[i]) {
        i++;
    }
    (void)snprintf(ret_text, text_bytes,
                   "byte %zd of %zu of the %s buffer is %#x and not %#x (kind of memory %d)",
                   (ptrdiff_t)i - (ptrdiff_t)area->at, area->bytes - area->at - GUARD_BYTES, name,
                   area->block[i], area->image[i], (int)area->kind);
    return false;
}

bool stress_run_check(const struct stress_run *run, char *ret_text, size_t text_bytes)
{
    const struct model_call *model = &run->model;
    char text[160];
    if (area_check(&run->recv, "receive", text, sizeof(text)) &&
        area_check(&run->send, "send", text, sizeof(text))) {
        return true;
    }
    (void)snprintf(ret_text, text_bytes,
                   "%s of %zu, type %d, op %d, root %d of %d ranks, %s: rank %d: %s",
                   run->call.message ? "message" : model_name(model->kind), model->count,
                   (int)model->type, (int)model->op, model->root, model->n,
                   run->in_place ? "in place" : "out of place", run->place.rank, text);
    return false;
}

static void area_claim(const struct stress_area *area)
{
    if (area->kind != AREA_NONE) {
        memset(area->block, CLAIM_BYTE, area->bytes);
        memset(area->image, CLAIM_BYTE, area->bytes);
    }
}

void stress_run_claim(const struct stress_run *run)
{
    area_claim(&run->recv);
    area_claim(&run->send);
}

void stress_run_finish(struct stress_run *run)
{
    area_finish(&run->recv, run->place.comm);
    area_finish(&run->send, run->place.comm);
}
