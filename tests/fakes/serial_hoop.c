/*
 * A library with hoop's names whose ranks are threads of one process and whose operations are
 * carried out serially, by whoever comes last: what the benchmarks are tested with, because it is
 * right where it is told to be, and wrong where it is told to be:
 *
 *     SERIAL_FAULT=flip:7      a bit of a result of the 7th operation is flipped
 *     SERIAL_FAULT=stray:7     a byte behind a receive buffer is written
 *     SERIAL_FAULT=input:7     a byte of an input is written
 *
 * Only what the benchmarks call is here. One mutex guards everything.
 */
#include "fakes/model.h"
#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS MODEL_MOST_RANKS

enum kind { BARRIER = MODEL_KINDS, SEND, RECV };

struct call {
    int kind; /* an enum model_kind or enum kind */
    struct hoop_comm *comm;
    const void *send;
    void *recv;
    struct model_call model;
    int peer;
    bool done;
    struct call *next; /* in its queue, or in its group */
    struct call *next_in_group;
};

struct queue {
    struct call *first, **end;
};

struct world {
    int n, left;
    struct queue collectives[MOST_RANKS]; /* one for each rank, in the order of its calls */
    struct queue pending;                 /* sends and receives without a partner */
};

struct hoop_comm {
    struct world *world;
    int rank;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint64_t operations;
static struct world *joined; /* by hoop_comm_init_rank(); there is one world at a time */
static int joined_count;

static _Thread_local int group_depth;
static _Thread_local struct call *group_calls;

/* ---- Faults ------------------------------------------------------------------------------- */

/* Is the running operation, the one with this number, to go wrong in this way? */
static bool fault_is(const char *name)
{
    const char *text = getenv("SERIAL_FAULT");
    const size_t length = strlen(name);
    return text != NULL && strncmp(text, name, length) == 0 && text[length] == ':' &&
           strtoull(text + length + 1, NULL, 10) == operations;
}

static void fault(const struct call *call, size_t send_bytes, size_t recv_bytes)
{
    if (recv_bytes > 0 && fault_is("flip")) {
        ((unsigned char *)call->recv)[recv_bytes / 2] ^= 4;
    }
    if (recv_bytes > 0 && fault_is("stray")) {
        ((unsigned char *)call->recv)[recv_bytes] ^= 4;
    }
    if (send_bytes > 0 && fault_is("input")) {
        ((unsigned char *)(uintptr_t)call->send)[0] ^= 4;
    }
}

/* ---- Carrying out ------------------------------------------------------------------------- */

static void queue_push(struct queue *queue, struct call *call)
{
    if (queue->first == NULL) {
        queue->end = &queue->first;
    }
    *queue->end = call;
    queue->end = &call->next;
}

static struct call *queue_pop(struct queue *queue)
{
    struct call *call = queue->first;
    queue->first = call->next;
    if (queue->first == NULL) {
        queue->end = &queue->first;
    }
    return call;
}

/* All results are computed before the first is written, since inputs and outputs may overlap. */
static void collective_run(struct call *const *calls, int n)
{
    const void *sends[MOST_RANKS];
    void *results[MOST_RANKS] = {NULL};
    const struct model_call *model = &calls[0]->model;
    const size_t element = model_type_bytes(model->type);
    for (int r = 0; r < n; r++) {
        sends[r] = calls[r]->send;
    }
    for (int r = 0; r < n; r++) {
        results[r] = malloc(model_recv_count(model, r) * element + 1);
        if (results[r] == NULL) {
            abort();
        }
        model_result(model, sends, r, results[r]);
    }
    for (int r = 0; r < n; r++) {
        const size_t recv_bytes = model_recv_count(model, r) * element;
        memcpy(calls[r]->recv, results[r], recv_bytes);
        free(results[r]);
    }
    operations++;
    for (int r = 0; r < n; r++) {
        fault(calls[r], model_send_count(model, r) * element, model_recv_count(model, r) * element);
    }
}

static bool world_run_collective(struct world *world)
{
    struct call *calls[MOST_RANKS] = {NULL};
    for (int r = 0; r < world->n; r++) {
        if (world->collectives[r].first == NULL) {
            return false;
        }
    }
    for (int r = 0; r < world->n; r++) {
        calls[r] = queue_pop(&world->collectives[r]);
        assert(calls[r] != NULL); /* no other thread takes calls */
        calls[r]->done = true;
    }
    assert(world->n > 0 && calls[0] != NULL);
    if (calls[0]->kind != BARRIER) {
        collective_run(calls, world->n);
    }
    return true;
}

static bool calls_match(const struct call *a, const struct call *b)
{
    return a->kind != b->kind && a->peer == b->comm->rank && b->peer == a->comm->rank;
}

static void pair_run(struct call *a, struct call *b)
{
    struct call *from = a->kind == SEND ? a : b;
    struct call *to = a->kind == SEND ? b : a;
    const size_t bytes = from->model.count * model_type_bytes(from->model.type);
    assert(to->recv != NULL && from->send != NULL);
    memmove(to->recv, from->send, bytes);
    operations++;
    fault(to, 0, bytes);
    fault(from, bytes, 0);
    a->done = b->done = true;
}

static void world_take_pair(struct world *world, struct call *call)
{
    for (struct call **at = &world->pending.first; *at != NULL; at = &(*at)->next) {
        if (calls_match(*at, call)) {
            struct call *partner = *at;
            *at = partner->next;
            if (*at == NULL) {
                world->pending.end = at;
            }
            pair_run(partner, call);
            return;
        }
    }
    queue_push(&world->pending, call);
}

/* ---- Calls -------------------------------------------------------------------------------- */

static void call_publish(struct call *call)
{
    struct world *world = call->comm->world;
    if (call->kind == SEND || call->kind == RECV) {
        world_take_pair(world, call);
    } else {
        queue_push(&world->collectives[call->comm->rank], call);
        while (world_run_collective(world)) {
        }
    }
    pthread_cond_broadcast(&changed);
}

/* Publishes a list of calls, and waits until all are done. */
static void calls_run(struct call *calls)
{
    pthread_mutex_lock(&lock);
    for (struct call *call = calls; call != NULL; call = call->next_in_group) {
        call_publish(call);
    }
    while (calls != NULL) {
        while (!calls->done) {
            pthread_cond_wait(&changed, &lock);
        }
        struct call *next = calls->next_in_group;
        free(calls);
        calls = next;
    }
    pthread_mutex_unlock(&lock);
}

static hoop_result_t call_start(const struct call *call)
{
    struct call **end = &group_calls;
    struct call *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        return HOOP_OUT_OF_MEMORY;
    }
    *copy = *call;
    copy->model.n = call->comm->world->n;
    if (group_depth == 0) {
        calls_run(copy);
        return HOOP_OK;
    }
    while (*end != NULL) {
        end = &(*end)->next_in_group;
    }
    *end = copy;
    return HOOP_OK;
}

hoop_result_t hoop_group_start(void)
{
    group_depth++;
    return HOOP_OK;
}

hoop_result_t hoop_group_end(void)
{
    if (--group_depth == 0) {
        struct call *calls = group_calls;
        group_calls = NULL;
        calls_run(calls);
    }
    return HOOP_OK;
}

static hoop_result_t collective_start(enum model_kind kind, const void *send, void *recv,
                                      size_t count, hoop_datatype_t type, hoop_red_op_t op,
                                      int root, hoop_comm_t comm)
{
    return call_start(&(struct call){
        .kind = (int)kind,
        .comm = comm,
        .send = send,
        .recv = recv,
        .model = {.kind = kind, .count = count, .type = type, .op = op, .root = root},
    });
}

hoop_result_t hoop_barrier(hoop_comm_t comm, hoop_stream_t stream)
{
    (void)stream;
    return call_start(&(struct call){.kind = BARRIER, .comm = comm});
}

hoop_result_t hoop_all_reduce(const void *sendbuff, void *recvbuff, size_t count,
                              hoop_datatype_t datatype, hoop_red_op_t op, hoop_comm_t comm,
                              hoop_stream_t stream)
{
    (void)stream;
    return collective_start(MODEL_ALL_REDUCE, sendbuff, recvbuff, count, datatype, op, 0, comm);
}

hoop_result_t hoop_reduce(const void *sendbuff, void *recvbuff, size_t count,
                          hoop_datatype_t datatype, hoop_red_op_t op, int root, hoop_comm_t comm,
                          hoop_stream_t stream)
{
    (void)stream;
    return collective_start(MODEL_REDUCE, sendbuff, recvbuff, count, datatype, op, root, comm);
}

hoop_result_t hoop_reduce_scatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                  hoop_datatype_t datatype, hoop_red_op_t op, hoop_comm_t comm,
                                  hoop_stream_t stream)
{
    (void)stream;
    return collective_start(MODEL_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, datatype, op, 0,
                            comm);
}

hoop_result_t hoop_all_gather(const void *sendbuff, void *recvbuff, size_t sendcount,
                              hoop_datatype_t datatype, hoop_comm_t comm, hoop_stream_t stream)
{
    (void)stream;
    return collective_start(MODEL_ALL_GATHER, sendbuff, recvbuff, sendcount, datatype, HOOP_SUM, 0,
                            comm);
}

hoop_result_t hoop_broadcast(const void *sendbuff, void *recvbuff, size_t count,
                             hoop_datatype_t datatype, int root, hoop_comm_t comm,
                             hoop_stream_t stream)
{
    (void)stream;
    return collective_start(MODEL_BROADCAST, sendbuff, recvbuff, count, datatype, HOOP_SUM, root,
                            comm);
}

hoop_result_t hoop_alltoall(const void *sendbuff, void *recvbuff, size_t count,
                            hoop_datatype_t datatype, hoop_comm_t comm, hoop_stream_t stream)
{
    (void)stream;
    return collective_start(MODEL_ALLTOALL, sendbuff, recvbuff, count, datatype, HOOP_SUM, 0, comm);
}

hoop_result_t hoop_gather(const void *sendbuff, void *recvbuff, size_t count,
                          hoop_datatype_t datatype, int root, hoop_comm_t comm,
                          hoop_stream_t stream)
{
    (void)stream;
    return collective_start(MODEL_GATHER, sendbuff, recvbuff, count, datatype, HOOP_SUM, root,
                            comm);
}

hoop_result_t hoop_scatter(const void *sendbuff, void *recvbuff, size_t count,
                           hoop_datatype_t datatype, int root, hoop_comm_t comm,
                           hoop_stream_t stream)
{
    (void)stream;
    return collective_start(MODEL_SCATTER, sendbuff, recvbuff, count, datatype, HOOP_SUM, root,
                            comm);
}

hoop_result_t hoop_send(const void *sendbuff, size_t count, hoop_datatype_t datatype, int peer,
                        hoop_comm_t comm, hoop_stream_t stream)
{
    (void)stream;
    return call_start(&(struct call){.kind = SEND,
                                     .comm = comm,
                                     .send = sendbuff,
                                     .model = {.count = count, .type = datatype},
                                     .peer = peer});
}

hoop_result_t hoop_recv(void *recvbuff, size_t count, hoop_datatype_t datatype, int peer,
                        hoop_comm_t comm, hoop_stream_t stream)
{
    (void)stream;
    return call_start(&(struct call){.kind = RECV,
                                     .comm = comm,
                                     .recv = recvbuff,
                                     .model = {.count = count, .type = datatype},
                                     .peer = peer});
}

/* ---- Comms -------------------------------------------------------------------------------- */

static hoop_comm_t comm_create(struct world *world, int rank)
{
    struct hoop_comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL) {
        abort();
    }
    *comm = (struct hoop_comm){.world = world, .rank = rank};
    return comm;
}

static struct world *world_create(int n)
{
    struct world *world = calloc(1, sizeof(*world));
    if (world == NULL || n > MOST_RANKS) {
        abort();
    }
    world->n = world->left = n;
    return world;
}

hoop_result_t hoop_comm_init_all(hoop_comm_t *comms, int ndev, const int *devlist)
{
    (void)devlist;
    struct world *world = world_create(ndev);
    for (int r = 0; r < ndev; r++) {
        comms[r] = comm_create(world, r);
    }
    return HOOP_OK;
}

hoop_result_t hoop_comm_init_env(hoop_comm_t *comm, const hoop_config_t *config)
{
    (void)config;
    return hoop_comm_init_all(comm, 1, NULL);
}

hoop_result_t hoop_get_unique_id(hoop_unique_id_t *id)
{
    memset(id, 0, sizeof(*id));
    return HOOP_OK;
}

hoop_result_t hoop_comm_init_rank(hoop_comm_t *comm, int nranks, hoop_unique_id_t id, int rank)
{
    (void)id;
    pthread_mutex_lock(&lock);
    if (joined_count % nranks == 0) {
        joined = world_create(nranks);
    }
    joined_count++;
    *comm = comm_create(joined, rank);
    pthread_mutex_unlock(&lock);
    return HOOP_OK;
}

hoop_result_t hoop_comm_destroy(hoop_comm_t comm)
{
    if (comm == NULL) {
        return HOOP_OK;
    }
    pthread_mutex_lock(&lock);
    if (--comm->world->left == 0) {
        free(comm->world);
    }
    pthread_mutex_unlock(&lock);
    free(comm);
    return HOOP_OK;
}

hoop_result_t hoop_comm_abort(hoop_comm_t comm)
{
    return hoop_comm_destroy(comm);
}

hoop_result_t hoop_comm_get_async_error(hoop_comm_t comm, hoop_result_t *async_error)
{
    (void)comm;
    *async_error = HOOP_OK;
    return HOOP_OK;
}

/* ---- The rest ----------------------------------------------------------------------------- */

hoop_result_t hoop_comm_register(hoop_comm_t comm, void *buff, size_t size, void **handle)
{
    (void)comm;
    (void)size;
    *handle = buff;
    return HOOP_OK;
}

hoop_result_t hoop_comm_deregister(hoop_comm_t comm, void *handle)
{
    (void)comm;
    (void)handle;
    return HOOP_OK;
}

hoop_result_t hoop_mem_alloc(void **ptr, size_t bytes, hoop_mem_kind_t kind)
{
    (void)kind;
    return posix_memalign(ptr, 4096, bytes) == 0 ? HOOP_OK : HOOP_OUT_OF_MEMORY;
}

hoop_result_t hoop_mem_free(void *ptr)
{
    free(ptr);
    return HOOP_OK;
}

hoop_result_t hoop_red_op_create_pre_mul_sum(hoop_red_op_t *op, void *scalar,
                                             hoop_datatype_t datatype,
                                             hoop_scalar_residence_t residence, hoop_comm_t comm)
{
    (void)op;
    (void)scalar;
    (void)datatype;
    (void)residence;
    (void)comm;
    return HOOP_UNSUPPORTED;
}

hoop_result_t hoop_red_op_destroy(hoop_red_op_t op, hoop_comm_t comm)
{
    (void)op;
    (void)comm;
    return HOOP_UNSUPPORTED;
}

hoop_result_t hoop_get_version(int *version)
{
    *version = HOOP_VERSION_CODE;
    return HOOP_OK;
}

const char *hoop_get_error_string(hoop_result_t result)
{
    return result == HOOP_OK ? "no error" : "an error";
}

const char *hoop_get_last_error(hoop_comm_t comm)
{
    (void)comm;
    return "the serial library has no sentences";
}
