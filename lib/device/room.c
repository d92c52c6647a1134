/* Rooms (see room.h). */
#include "device/room.h"

#include "staging/kernels.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_ALIGN 64u /* size of the words, and alignment of each work's memory */

/* ---- The memory ----------------------------------------------------------------------------- */

/* Asks CUDA for the address at which devices see the words. */
static hoop_result_t room_see_words(struct hoop_room *room, hoop_cu_context_t context)
{
    hoop_result_t result = hoop_cuda_enter(context);
    if (result == HOOP_OK) {
        result = hoop_cuda_check("cuMemHostGetDevicePointer",
                                 hoop_cuda.host_pointer(&room->words, room->memory.host, 0));
        hoop_cuda_leave();
    }
    return result;
}

hoop_result_t hoop_room_init(struct hoop_room *room, hoop_cu_context_t context, size_t bytes)
{
    *room = (struct hoop_room){.memory = {.wake_fd = -1}};
    hoop_result_t result = hoop_staging_open_host(&room->memory, context, ROOM_ALIGN + bytes);
    if (result == HOOP_OK) {
        room->let = (_Atomic uint32_t *)(void *)room->memory.host;
        room->used = room->let + 1;
        room->came = room->let + 2;
        room->go = room->let + ROOM_ALIGN / sizeof(uint32_t) - HOOP_ROOM_GO;
        memset(room->memory.host, 0, ROOM_ALIGN);
        result = room_see_words(room, context);
    }
    return result;
}

void hoop_room_finish(struct hoop_room *room)
{
    if (room->told != 0 && hoop_cuda_enter(room->memory.context) == HOOP_OK) {
        (void)hoop_cuda.free(room->told);
        hoop_cuda_leave();
    }
    room->told = 0;
    hoop_staging_finish(&room->memory);
}

bool hoop_room_fits(const struct hoop_room *room, size_t bytes)
{
    return room->memory.host_bytes >= ROOM_ALIGN + bytes;
}

/* ---- What lies there ------------------------------------------------------------------------ */

static bool work_moves(const struct hoop_work *work)
{
    const uint32_t collective = work->request.signature.collective;
    return collective == HOOP_TRANSFER || collective == HOOP_COLL_ALLTOALLV;
}

static struct hoop_device_call work_call(const struct hoop_work *work, hoop_stream_t stream)
{
    return (struct hoop_device_call){.signature = &work->request.signature,
                                     .me = work->comm->rank,
                                     .n = work->comm->n,
                                     .stream = stream,
                                     .look = &work->request.look,
                                     .captured = true};
}

static size_t work_bytes(const struct hoop_work *work, hoop_stream_t stream)
{
    const struct hoop_device_call call = work_call(work, stream);
    const size_t bytes = hoop_device_buffers_need(&call, work->request.in, work->request.out);
    return (bytes + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
}

hoop_result_t hoop_room_need(struct hoop_work *work, size_t count, hoop_stream_t stream,
                             size_t *ret)
{
    hoop_result_t result = HOOP_OK;
    size_t bytes = 0;
    for (size_t i = 0; i < count && result == HOOP_OK; i++) {
        struct hoop_request *request = &work[i].request;
        const struct hoop_device_call call = work_call(&work[i], stream);
        if (!work_moves(&work[i]) && !request->look.known) {
            result = hoop_device_buffers_look(&call, request->in, request->out, &request->look);
        }
        bytes += work_bytes(&work[i], stream);
    }
    if (result == HOOP_OK) {
        *ret = bytes;
    }
    return result;
}

/* Makes a request one on host memory and on no stream: the copies are on the stream already. */
static void request_to_host(struct hoop_request *request, bool moves)
{
    request->stream = NULL;
    request->look = (struct hoop_device_look){.known = true};
    for (struct hoop_transfer *at = moves ? request->out : NULL; at != NULL; at = at->next) {
        at->stream = NULL;
        at->context = NULL;
        at->staged = false;
    }
}

hoop_result_t hoop_room_place(const struct hoop_room *room, struct hoop_work *work, size_t count,
                              hoop_stream_t stream, struct hoop_staging *stagings)
{
    char *at = room->memory.host + ROOM_ALIGN;
    hoop_result_t result = HOOP_AGAIN;
    for (size_t i = 0; i < count && (result == HOOP_AGAIN || result == HOOP_OK); i++) {
        struct hoop_request *request = &work[i].request;
        const struct hoop_device_call call = work_call(&work[i], stream);
        stagings[i].host_bytes = work_bytes(&work[i], stream);
        stagings[i].host = at;
        at += stagings[i].host_bytes;
        result = hoop_device_buffers_fetch(&stagings[i], &call, &request->in, &request->out);
        request_to_host(request, work_moves(&work[i]));
    }
    return result == HOOP_AGAIN ? HOOP_OK : result;
}

void hoop_room_forget(struct hoop_staging *stagings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        stagings[i].host = NULL; /* belongs to the room */
        stagings[i].host_bytes = 0;
        stagings[i].context = NULL; /* the staging owns nothing there */
        hoop_staging_finish(&stagings[i]);
    }
}

/* ---- Calls that run on the device ----------------------------------------------------------- */

/* Has this rank a kernel for the call? On one device the root works for all; without a root, rank
 * 0. On several each rank does. */
static bool room_acts(const struct hoop_told *told, const struct hoop_work *work)
{
    const int32_t root = work->request.signature.root;
    return told->how == HOOP_LAUNCHED_EACH || (int)work->comm->rank == (root < 0 ? 0 : root);
}

static size_t room_rows(const struct hoop_told *told, const struct hoop_work *work, size_t count)
{
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t collective = work[i].request.signature.collective;
        rows += hoop_told_pieces(told[i].how, (enum hoop_collective)collective, work[i].comm->n);
    }
    return rows;
}

size_t hoop_room_told_bytes(const struct hoop_told *told, const struct hoop_work *work,
                            size_t count)
{
    return room_rows(told, work, count) * HOOP_CUDA_TOLD_APART;
}

hoop_result_t hoop_room_make_told(struct hoop_room *room, const struct hoop_told *told,
                                  const struct hoop_work *work, size_t count)
{
    bool acts = false;
    for (size_t i = 0; i < count; i++) {
        acts |= room_acts(&told[i], &work[i]);
    }
    hoop_result_t result = HOOP_OK;
    if (acts && room->told == 0 && (result = hoop_cuda_enter(room->memory.context)) == HOOP_OK) {
        result = hoop_cuda_check(
            "cuMemAlloc", hoop_cuda.alloc(&room->told, HOOP_TOLD_PIECES * HOOP_CUDA_TOLD_APART));
        hoop_cuda_leave();
    }
    return result;
}

/* Of call i, whose rows come behind those of the calls before it. */
static void room_tell(struct hoop_room *room, struct hoop_told *told, const struct hoop_work *work,
                      size_t i, uint32_t number)
{
    if (room_acts(&told[i], &work[i])) {
        told[i].fold =
            (unsigned char *)room->memory.host + ROOM_ALIGN + hoop_room_told_bytes(told, work, i);
        told[i].pieces = (uint32_t)room_rows(&told[i], &work[i], 1);
        told[i].over = ++room->counted;
    }
    told[i].go = &room->go[i];
    told[i].let = number * HOOP_FLOW_MOST + 1;
    told[i].came = room->came;
}

hoop_result_t hoop_room_tell(struct hoop_room *room, struct hoop_told *told, struct hoop_work *work,
                             size_t count, uint32_t number, struct hoop_flow **flows)
{
    const uint32_t before = room->counted++;
    for (size_t i = 0; i < count; i++) {
        struct hoop_flow *flow = calloc(1, sizeof(*flow));
        if (flow == NULL) {
            return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a call on a stream");
        }
        flows[i] = work[i].request.flow = flow;
        room_tell(room, told, work, i, number);
        flow->told = &told[i];
        flow->came = room->came;
        flow->before = before;
    }
    return HOOP_OK;
}

hoop_result_t hoop_room_put_kernel(const struct hoop_room *room, hoop_stream_t stream,
                                   struct hoop_told *told, const struct hoop_work *work)
{
    size_t count = 0;
    const struct hoop_reduction reduction =
        hoop_told_reduction(told, &work->request.signature, work->comm->n, &count);
    hoop_result_t result = hoop_room_wait(room, stream, told->go, told->let);
    if (result == HOOP_OK) {
        result = hoop_cuda_copy_to_device(room->told, (uintptr_t)told->fold,
                                          told->pieces * HOOP_CUDA_TOLD_APART, stream);
    }
    if (result == HOOP_OK) {
        result = hoop_kernels_launch_told(hoop_kernels_load(room->memory.context), &reduction,
                                          count, room->told, told->pieces, stream);
    }
    told->put = result == HOOP_OK;
    result = told->put ? hoop_room_count(room, stream, told->over) : result;
    told->counts = result == HOOP_OK;
    return result;
}

hoop_result_t hoop_room_put_kernels(const struct hoop_room *room, hoop_stream_t stream,
                                    struct hoop_told *told, const struct hoop_work *work,
                                    size_t count, uint32_t number)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < count && result == HOOP_OK; i++) {
        result =
            told[i].fold != NULL ? hoop_room_put_kernel(room, stream, &told[i], &work[i]) : HOOP_OK;
    }
    return result == HOOP_OK ? hoop_room_wait(room, stream, room->let, number) : result;
}

/* ---- On the stream -------------------------------------------------------------------------- */

static hoop_cu_address_t room_word(const struct hoop_room *room, const _Atomic uint32_t *word)
{
    return room->words + (hoop_cu_address_t)(word - room->let) * sizeof(*word);
}

/* Without CU_STREAM_WAIT_VALUE_FLUSH, which is for what others than CPUs and CUDA's own work, such
 * as network cards, have written to the device's memory: nobody does, and what the work behind the
 * wait reads was stored by a CPU before it set the word, with release, or by a kernel of any device
 * before its stream wrote a word, which fences at system scope (no flags). */
hoop_result_t hoop_room_wait(const struct hoop_room *room, hoop_stream_t stream,
                             const _Atomic uint32_t *word, uint32_t value)
{
    return hoop_cuda_check(
        "cuStreamWaitValue32 on the stream of the call",
        hoop_cuda.stream_wait_value(stream, room_word(room, word), value, HOOP_CU_WAIT_VALUE_GEQ));
}

static hoop_result_t room_write(const struct hoop_room *room, hoop_stream_t stream,
                                const _Atomic uint32_t *word, uint32_t value)
{
    return hoop_cuda_check("cuStreamWriteValue32 on the stream of the call",
                           hoop_cuda.stream_write_value(stream, room_word(room, word), value, 0));
}

hoop_result_t hoop_room_count(const struct hoop_room *room, hoop_stream_t stream, uint32_t value)
{
    return room_write(room, stream, room->came, value);
}

hoop_result_t hoop_room_leave(const struct hoop_room *room, hoop_stream_t stream, uint32_t value)
{
    return room_write(room, stream, room->used, value);
}

hoop_result_t hoop_room_leave_after(const struct hoop_room *room, hoop_stream_t stream,
                                    hoop_result_t result)
{
    struct hoop_failure why = {.code = HOOP_OK};
    result = result == HOOP_OK ? hoop_room_leave(room, stream, 0) : result;
    if (result != HOOP_OK) {
        (void)hoop_failure_take(&why, result, -1);
        (void)hoop_room_leave(room, stream, 0);
        (void)hoop_error(result, "%s", why.text);
    }
    return result;
}

/* Sets the `go` words of all, used or not: the streams' comparison wraps, so a word that lagged far
 * behind would count as ahead. */
void hoop_room_let_go(const struct hoop_room *room, uint32_t number)
{
    for (uint32_t i = 0; i < HOOP_ROOM_GO; i++) {
        atomic_store_explicit(&room->go[i], (number + 1) * HOOP_FLOW_MOST, memory_order_release);
    }
    atomic_store_explicit(room->let, number, memory_order_release);
}

void hoop_room_hold_all(const struct hoop_room *room)
{
    for (uint32_t i = 0; i < HOOP_ROOM_GO; i++) {
        atomic_store_explicit(&room->go[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(room->came, 0, memory_order_relaxed);
    atomic_store_explicit(room->let, 0, memory_order_release);
}
