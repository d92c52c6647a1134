/* Groups (see group.h). All state is thread-local. */
#include "api/group.h"

#include "api/device_stream.h"
#include "api/streams.h"
#include "memory/cuda.h"
#include "stream/queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_RESERVE_MOST 16u

struct group {
    uint32_t depth;
    hoop_result_t spoiled;
    struct hoop_comm *spoiler; /* the comm of the call that spoiled the group; NULL: none */
    char *mistake;             /* the error text of that call; NULL: no memory for it */
    struct hoop_work *work;
    size_t count, room;
    hoop_stream_t *streams; /* each once */
    size_t n_streams;
    bool blocks; /* a call has no stream */
    struct hoop_birth *births;
    size_t n_births;
};

/* Memory that a group leaves for the next one: malloc() and free() would take as long as all the
 * rest of a small group. */
struct group_reserve {
    bool watched; /* group_abandon() frees it when the thread ends */
    struct hoop_work *work;
    size_t room;
    struct hoop_transfer *transfers;
    size_t n_transfers;
};

/* Every API call reads it. The default TLS model of a shared library would cost a function call for
 * each access. */
static _Thread_local struct group group __attribute__((tls_model("initial-exec")));

static _Thread_local struct group_reserve reserve __attribute__((tls_model("initial-exec")));

bool hoop_group_open(void)
{
    return group.depth > 0;
}

bool hoop_group_holds(const struct hoop_comm *comm)
{
    if (comm == NULL) {
        return false; /* which is also the parent of a join */
    }
    for (size_t i = 0; i < group.count; i++) {
        if (group.work[i].comm == comm) {
            return true;
        }
    }
    for (size_t i = 0; i < group.n_births; i++) {
        if (group.births[i].parent == comm) {
            return true;
        }
    }
    return group.spoiler == comm;
}

hoop_result_t hoop_group_spoil_by(struct hoop_comm *comm, hoop_result_t code)
{
    if (group.depth > 0 && group.spoiled == HOOP_OK) {
        group.spoiled = code;
        group.spoiler = comm;
        group.mistake = strdup(hoop_thread_error());
    }
    return code;
}

hoop_result_t hoop_group_spoil(hoop_result_t code)
{
    return hoop_group_spoil_by(NULL, code);
}

/* Fails the comm, so that other ranks do not wait for calls that this rank will not make. */
static void group_tell(struct hoop_comm *comm)
{
    if (comm != NULL && comm->n > 1 && !hoop_comm_is_pending(comm)) {
        hoop_comm_raise(comm, HOOP_REMOTE_ERROR, (int)comm->rank,
                        "rank %u ran no call of a group, because of a mistake in it: %s",
                        comm->rank, hoop_thread_error());
    }
}

/* Restores the mistake as the thread's error text, which later failures may have replaced. */
static hoop_result_t group_mistake_again(const struct group *ended)
{
    if (ended->spoiled == HOOP_OK) {
        return HOOP_OK;
    }
    return hoop_error(ended->spoiled, "%s",
                      ended->mistake != NULL ? ended->mistake
                                             : hoop_get_error_string(ended->spoiled));
}

static void group_tell_all(const struct group *ended)
{
    (void)group_mistake_again(ended);
    group_tell(ended->spoiler);
    for (size_t i = 0; i < ended->count; i++) {
        group_tell(ended->work[i].comm);
    }
    for (size_t i = 0; i < ended->n_births && ended->spoiled != HOOP_OK; i++) {
        group_tell(ended->births[i].parent);
    }
}

/* Collects the group's streams, each once: its end queues all calls as one piece on all of them. */
static hoop_result_t group_add_stream(struct hoop_comm *comm, hoop_stream_t stream)
{
    size_t i = 0;
    if (stream == NULL) {
        group.blocks = true;
        return HOOP_OK;
    }
    while (i < group.n_streams && group.streams[i] != stream) {
        i++;
    }
    if (i < group.n_streams) {
        return HOOP_OK;
    }
    hoop_stream_t *grown = realloc(group.streams, (i + 1) * sizeof(hoop_stream_t));
    if (grown == NULL) {
        return hoop_group_spoil_by(
            comm, hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a group on %zu streams", i + 1));
    }
    group.streams = grown;
    grown[group.n_streams++] = stream;
    return HOOP_OK;
}

static hoop_result_t group_add(struct hoop_comm *comm, const struct hoop_request *request)
{
    if (group.room == 0) {
        group.work = reserve.work;
        group.room = reserve.room;
        reserve.work = NULL;
        reserve.room = 0;
    }
    if (group.count == group.room) {
        /* small enough at first for malloc's thread cache */
        const size_t room = group.room == 0 ? 8 : group.room * 2;
        struct hoop_work *grown = realloc(group.work, room * sizeof(*grown));
        if (grown == NULL) {
            return hoop_group_spoil_by(
                comm, hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a group of %zu calls", room));
        }
        group.work = grown;
        group.room = room;
    }
    group.work[group.count++] = (struct hoop_work){.comm = comm, .request = *request};
    return HOOP_OK;
}

hoop_result_t hoop_group_add(struct hoop_comm *comm, const struct hoop_request *request,
                             hoop_stream_t stream)
{
    const hoop_result_t result = group_add_stream(comm, stream);
    return result == HOOP_OK ? group_add(comm, request) : result;
}

struct hoop_transfer *hoop_group_new_transfer(void)
{
    struct hoop_transfer *ret = reserve.transfers;
    if (ret == NULL) {
        return malloc(sizeof(*ret));
    }
    reserve.transfers = ret->next;
    reserve.n_transfers--;
    return ret;
}

hoop_result_t hoop_group_add_transfer(struct hoop_comm *comm, struct hoop_transfer *transfer,
                                      hoop_stream_t stream)
{
    hoop_result_t result = group_add_stream(comm, stream);
    for (size_t i = 0; i < group.count && result == HOOP_OK; i++) {
        struct hoop_request *request = &group.work[i].request;
        if (group.work[i].comm == comm && request->signature.collective == HOOP_TRANSFER) {
            struct hoop_transfer *last = (void *)(uintptr_t)request->in;
            last->next = transfer;
            request->in = transfer;
            return HOOP_OK;
        }
    }
    if (result == HOOP_OK) {
        /* out: the first transfer of the list; in: the last, to append to. */
        const struct hoop_request request = {
            .signature = transfer->signature, .in = transfer, .out = transfer};
        result = group_add(comm, &request);
    }
    if (result != HOOP_OK) {
        free(transfer);
    }
    return result; /* NOLINT(clang-analyzer-unix.Malloc): the request has it */
}

/*
 * Moves transfers to the front. So, whatever the order of a rank's calls in the group, no rank
 * waits in a collective for a rank that waits for the first one's transfers.
 */
static void group_transfers_first(struct hoop_work *work, size_t count)
{
    size_t first = 0;
    for (size_t i = 0; i < count; i++) {
        if (work[i].request.signature.collective != HOOP_TRANSFER) {
            continue;
        }
        if (i > first) {
            const struct hoop_work moved = work[i];
            memmove(&work[first + 1], &work[first], (i - first) * sizeof(*work));
            work[first] = moved;
        }
        first++;
    }
}

/* A stream may have been destroyed since the call that named it. */
static hoop_result_t group_check_streams(const hoop_stream_t *streams, size_t count)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < count && result == HOOP_OK; i++) {
        result = hoop_streams_check("hoop_group_end", streams[i]);
    }
    return result;
}

/* Refuses calls on comms that are being made, or that others are being made of, or that were
 * finalized, and transfers of this rank to itself that would never complete. */
static hoop_result_t group_check_work(const struct group *ended)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < ended->count && result == HOOP_OK; i++) {
        const struct hoop_work *work = &ended->work[i];
        result = hoop_comm_check_open(work->comm);
        if (result == HOOP_OK && work->request.signature.collective == HOOP_TRANSFER) {
            result = hoop_exchange_check(work->request.out, work->comm->rank);
        }
    }
    return result;
}

/* Mistakes that show only at the end spoil the group, too. */
static void group_check(struct group *ended)
{
    hoop_result_t result = ended->spoiled;
    if (result == HOOP_OK) {
        result = group_check_work(ended);
    }
    if (result == HOOP_OK) {
        result = group_check_streams(ended->streams, ended->n_streams);
    }
    if (result == HOOP_OK && hoop_cuda_is_loaded()) {
        result = hoop_device_check_group(ended->work, ended->count, ended->n_streams > 0);
    }
    if (result != ended->spoiled) {
        ended->spoiled = result;
        ended->mistake = strdup(hoop_thread_error());
    }
}

hoop_result_t hoop_group_add_birth(struct hoop_birth *birth)
{
    struct hoop_birth *grown = realloc(group.births, (group.n_births + 1) * sizeof(*grown));
    if (grown == NULL) {
        struct hoop_comm *parent = birth->parent;
        hoop_birth_drop(birth);
        return hoop_group_spoil_by(
            parent,
            hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %zu communicators", group.n_births + 1));
    }
    group.births = grown;
    grown[group.n_births++] = *birth;
    return HOOP_OK;
}

static void group_drop_births(const struct group *dropped)
{
    for (size_t i = 0; i < dropped->n_births; i++) {
        hoop_birth_drop(&dropped->births[i]);
    }
}

static hoop_result_t group_deliver(const struct group *ended)
{
    if (ended->spoiled == HOOP_OK && ended->n_births > 0) {
        return hoop_births_run(ended->births, ended->n_births);
    }
    group_drop_births(ended);
    return ended->spoiled;
}

/* Closes the thread's group before its work runs, so that callbacks and signal handlers are not in
 * a group. */
static struct group group_close(void)
{
    const struct group ended = group;
    group = (struct group){0};
    return ended;
}

static void group_free(const struct group *ended)
{
    if (reserve.watched && reserve.work == NULL && ended->room <= GROUP_RESERVE_MOST) {
        reserve.work = ended->work;
        reserve.room = ended->room;
    } else {
        free(ended->work);
    }
    free(ended->streams);
    free(ended->births);
    free(ended->mistake);
}

/* Keeps transfers of a group that has run for later ones, up to GROUP_RESERVE_MOST. */
static void group_keep_transfers(const struct group *ended)
{
    for (size_t i = 0; i < ended->count && reserve.watched; i++) {
        struct hoop_request *request = &ended->work[i].request;
        if (request->signature.collective != HOOP_TRANSFER) {
            break; /* they come first */
        }
        while (request->out != NULL && reserve.n_transfers < GROUP_RESERVE_MOST) {
            struct hoop_transfer *kept = request->out;
            request->out = kept->next;
            kept->next = reserve.transfers;
            reserve.transfers = kept;
            reserve.n_transfers++;
        }
    }
}

/* ---- A thread that ends in a group ----------------------------------------------------------- */

static pthread_key_t group_key;
static bool group_has_key;
static pthread_once_t group_once = PTHREAD_ONCE_INIT;

/* The thread ends. The comms are not failed, since they may have been freed by now. */
static void group_abandon(void *arg)
{
    (void)arg;
    const struct group ended = group_close();
    group_drop_births(&ended);
    hoop_work_finish(ended.work, ended.count);
    reserve.watched = false;
    group_free(&ended);
    free(reserve.work);
    for (struct hoop_transfer *at = reserve.transfers, *next = NULL; at != NULL; at = next) {
        next = at->next;
        free(at);
    }
    reserve = (struct group_reserve){0};
}

static void group_make_key(void)
{
    group_has_key = pthread_key_create(&group_key, group_abandon) == 0;
}

/* Makes group_abandon() run when the thread ends. Without a key, or memory, its state leaks. */
static void group_watch(void)
{
    pthread_once(&group_once, group_make_key);
    reserve.watched = group_has_key && pthread_setspecific(group_key, &group) == 0;
}

hoop_result_t hoop_group_start(void)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    if (group.depth == UINT32_MAX) {
        return hoop_error(HOOP_INVALID_USAGE, "groups are nested too deep");
    }
    group.depth++;
    if (!reserve.watched) {
        group_watch();
    }
    return HOOP_OK;
}

/* Runs the calls, unless the group has failed with result. What their requests own is moved or
 * freed in either case. */
static hoop_result_t group_run(const struct group *ended, hoop_result_t result)
{
    group_transfers_first(ended->work, ended->count);
    if (result == HOOP_OK && ended->n_streams > 0) {
        return hoop_streams_submit(ended->streams, ended->n_streams, ended->work, ended->count,
                                   ended->blocks);
    }
    if (result == HOOP_OK && hoop_cuda_is_loaded()) {
        return hoop_device_submit(ended->work, ended->count);
    }
    if (result == HOOP_OK && ended->count == 1) {
        result = hoop_comm_submit(ended->work->comm, &ended->work->request);
    } else if (result == HOOP_OK) {
        result = hoop_batch_run(ended->work, ended->count);
    }
    group_keep_transfers(ended);
    hoop_work_finish(ended->work, ended->count);
    return result;
}

static hoop_result_t group_check_open(const char *function)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    return group.depth > 0
               ? HOOP_OK
               : hoop_error(HOOP_INVALID_USAGE, "%s() without hoop_group_start()", function);
}

hoop_result_t hoop_group_end(void)
{
    hoop_result_t result = group_check_open("hoop_group_end");
    if (result != HOOP_OK || --group.depth > 0) {
        return result;
    }
    struct group ended = group_close();
    group_check(&ended);
    const hoop_result_t born = group_deliver(&ended);
    /* a parent may be pending from now on */
    result = born == HOOP_IN_PROGRESS ? group_check_work(&ended) : born;
    if (result != HOOP_OK) {
        group_tell_all(&ended);
    }
    result = group_run(&ended, result);
    group_free(&ended);
    return result == HOOP_OK ? born : result;
}

/* ---- Simulation ----------------------------------------------------------------------------- */

static hoop_result_t group_check_simulation(const hoop_sim_info_t *info)
{
    static const char function[] = "hoop_group_simulate_end";
    const hoop_result_t open = group_check_open(function);
    if (open != HOOP_OK) {
        return open;
    }
    if (info == NULL) {
        return hoop_null_error(function, "sim_info");
    }
    if (info->size != sizeof(*info) || info->magic != HOOP_CONFIG_MAGIC) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "%s: sim_info has size %zu and magic %#x, expected %zu and %#x, as "
                          "HOOP_SIM_INFO_INITIALIZER sets them",
                          function, info->size, info->magic, sizeof(*info), HOOP_CONFIG_MAGIC);
    }
    if (group.depth > 1 || group.n_births > 0) {
        return hoop_error(HOOP_INVALID_USAGE, "%s: %s", function,
                          group.depth > 1 ? "the group is inside another one"
                                          : "a group that makes communicators cannot be simulated");
    }
    return HOOP_OK;
}

/* The sum over all calls on work[first]'s comm, which run one after the other. */
static hoop_result_t group_estimate_comm(const struct group *ended, size_t first, uint64_t *ret_ns)
{
    hoop_result_t result = HOOP_OK;
    *ret_ns = 0;
    for (size_t i = first; i < ended->count && result == HOOP_OK; i++) {
        uint64_t ns = 0;
        if (ended->work[i].comm == ended->work[first].comm) {
            result = hoop_comm_estimate(ended->work[i].comm, &ended->work[i].request, &ns);
            *ret_ns += ns;
        }
    }
    return result;
}

/* The maximum over the comms, which run at the same time. */
static hoop_result_t group_estimate(const struct group *ended, uint64_t *ret_ns)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < ended->count && result == HOOP_OK; i++) {
        uint64_t ns = 0;
        size_t first = 0;
        while (ended->work[first].comm != ended->work[i].comm) {
            first++;
        }
        if (first == i) {
            result = group_estimate_comm(ended, i, &ns);
            *ret_ns = ns > *ret_ns ? ns : *ret_ns;
        }
    }
    return result;
}

hoop_result_t hoop_group_simulate_end(hoop_sim_info_t *sim_info)
{
    uint64_t ns = 0;
    hoop_result_t result = group_check_simulation(sim_info);
    if (result != HOOP_OK) {
        return result;
    }
    const struct group ended = group_close();
    result = group_mistake_again(&ended);
    if (result == HOOP_OK) {
        result = group_check_work(&ended);
    }
    if (result == HOOP_OK) {
        result = group_estimate(&ended, &ns);
    }
    hoop_work_finish(ended.work, ended.count);
    group_free(&ended);
    if (result == HOOP_OK) {
        sim_info->estimated_time = (float)ns / 1e9f;
    }
    return result;
}
