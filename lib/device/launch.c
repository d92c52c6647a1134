/* Puts calls on their streams that return when they are launched (see launch.h). */
#include "device/launch_inside.h"
#include "runtime/process.h"
#include "staging/kernels.h"
#include "stream/progress.h"

#include <stdlib.h>
#include <string.h>

void hoop_launch_free(struct hoop_launch *launch)
{
    hoop_pieces_finish(&launch->pieces);
    free(launch->told);
    free(launch);
}

/* On one device the root works for all; without a root, rank 0. On several each rank does. */
static bool launch_acts(const struct hoop_launch *launch, const struct hoop_work *work, size_t i)
{
    const int32_t root = work[i].request.signature.root;
    return launch->told[i].how == HOOP_LAUNCHED_EACH ||
           (int)work[i].comm->rank == (root < 0 ? 0 : root);
}

/* How many rows the kernels of the first `count` calls have, if this rank acts. */
static size_t launch_pieces(const struct hoop_launch *launch, const struct hoop_work *work,
                            size_t count)
{
    size_t pieces = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t collective = work[i].request.signature.collective;
        pieces += hoop_told_pieces(launch->told[i].how, (enum hoop_collective)collective,
                                   work[i].comm->n);
    }
    return pieces;
}

/* Enters a room of so many bytes, with device memory to tell kernels if there are any. Or NULL. */
static struct hoop_stream_room *launch_find_room(const struct hoop_launch *launch,
                                                 const struct hoop_work *work,
                                                 hoop_cu_context_t context,
                                                 unsigned long long stream, size_t bytes)
{
    struct hoop_stream_room *room = hoop_rooms_enter(context, stream, bytes);
    bool acts = false;
    for (size_t i = 0; i < launch->pieces.count && launch->told != NULL; i++) {
        acts |= launch_acts(launch, work, i);
    }
    if (room != NULL && acts && !hoop_rooms_make_told(room)) {
        hoop_rooms_leave(room, false);
        room = NULL;
    }
    return room;
}

/* Finds out how much room the work needs, and enters such a room. False: it can't. */
static bool launch_enter(struct hoop_launch *launch, struct hoop_work *work,
                         hoop_cu_context_t context)
{
    unsigned long long number = 0;
    hoop_stream_t own = NULL; /* made now, for the health thread to query */
    size_t bytes = 0;
    if (hoop_cuda_enter(context) != HOOP_OK) {
        return false;
    }
    const hoop_stream_t stream = launch->pieces.stream;
    const bool named = hoop_cuda.stream_id(stream, &number) == HOOP_CU_SUCCESS &&
                       hoop_cuda_stream(context, &own) == HOOP_OK;
    hoop_cuda_leave();
    const size_t count = launch->pieces.count;
    const hoop_result_t result = launch->told == NULL ? hoop_room_need(work, count, stream, &bytes)
                                 : count <= HOOP_ROOM_GO ? HOOP_OK
                                                         : HOOP_AGAIN;
    bytes =
        launch->told == NULL ? bytes : launch_pieces(launch, work, count) * HOOP_CUDA_TOLD_APART;
    if (named && result == HOOP_OK) {
        launch->room = launch_find_room(launch, work, context, number, bytes);
    }
    return launch->room != NULL;
}

struct hoop_launch *hoop_launch_create(struct hoop_work *work, size_t count,
                                       hoop_cu_context_t context, hoop_stream_t stream,
                                       struct hoop_told *told)
{
    struct hoop_launch *made = calloc(1, sizeof(*made) + count * sizeof(made->parts[0]));
    if (made == NULL) {
        free(told);
        return NULL;
    }
    made->told = told;
    for (size_t i = 0; i < count; i++) {
        made->parts[i] = (struct launch_part){.comm_id = work[i].comm->id};
    }
    if (hoop_pieces_init(&made->pieces, count, stream) && hoop_progress_start() == HOOP_OK &&
        hoop_launched_start() && launch_enter(made, work, context)) {
        made->pieces.room = &made->room->room;
        made->pieces.cuts = &made->room->cuts;
        return made;
    }
    hoop_launch_free(made);
    return NULL;
}

/* Sets the words of call i, which runs on the device, and a place for what its kernel is told, if
 * this rank acts. */
static void launch_tell(const struct hoop_launch *launch, const struct hoop_work *work, size_t i)
{
    struct hoop_room *room = launch->pieces.room;
    struct hoop_told *told = &launch->told[i];
    if (launch_acts(launch, work, i)) {
        const size_t before = launch_pieces(launch, work, i);
        told->fold = hoop_room_told(room, before);
        told->pieces = (uint32_t)(launch_pieces(launch, work, i + 1) - before);
        told->over = ++room->counted;
    }
    told->go = &room->go[i];
    told->let = launch->number * HOOP_FLOW_MOST + 1;
    told->came = room->came;
}

/* For calls on the device, which copy nothing: counts a bell, and a word behind each kernel. */
static hoop_result_t launch_place_there(struct hoop_launch *launch, struct hoop_work *work,
                                        uint32_t *ret_bell)
{
    struct hoop_pieces *pieces = &launch->pieces;
    struct hoop_room *room = pieces->room;
    const uint32_t before = room->counted++;
    for (size_t i = 0; i < pieces->count; i++) {
        struct hoop_flow *flow = calloc(1, sizeof(*flow));
        if (flow == NULL) {
            return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a call on a stream");
        }
        pieces->flows[i] = work[i].request.flow = flow;
        launch_tell(launch, work, i);
        flow->told = &launch->told[i];
        flow->came = room->came;
        flow->before = before;
    }
    *ret_bell = before + 1;
    return HOOP_OK;
}

static hoop_result_t launch_place(struct hoop_launch *launch, struct hoop_work *work,
                                  uint32_t *ret_bell)
{
    struct hoop_pieces *pieces = &launch->pieces;
    if (launch->told != NULL) {
        return launch_place_there(launch, work, ret_bell);
    }
    const hoop_result_t result =
        hoop_room_place(pieces->room, work, pieces->count, pieces->stream, pieces->stagings);
    if (result == HOOP_OK && !hoop_pieces_cut(pieces, work, launch->number)) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a call on a stream");
    }
    *ret_bell = pieces->room->counted;
    return result;
}

/* Puts the copies to the host and the bell on the stream. */
static hoop_result_t launch_begin(struct hoop_launch *launch, struct hoop_work *work)
{
    struct hoop_pieces *pieces = &launch->pieces;
    uint32_t bell = 0;
    hoop_result_t result = launch_place(launch, work, &bell);
    hoop_launched_set_bell(launch, bell);
    if (result == HOOP_OK) {
        result = hoop_cuda_enter(launch->room->context);
    }
    if (result != HOOP_OK) {
        return result;
    }
    result = launch->told == NULL ? hoop_pieces_fetch(pieces) : HOOP_OK;
    if (result == HOOP_OK) {
        result = hoop_room_count(pieces->room, pieces->stream, launch->bell);
    }
    hoop_cuda_leave();
    return result;
}

/* Takes places in the comms' lines. After a failure the stream must not be held. */
static hoop_result_t launch_push(struct hoop_launch *launch, struct hoop_work *work)
{
    const size_t count = launch->pieces.count;
    struct hoop_piece *piece = hoop_piece_create(work, count, 1, false);
    if (piece == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %zu calls on a stream", count);
    }
    piece->batch.unhurried = true;
    hoop_progress_suit(work[0].comm);
    const hoop_result_t result = hoop_launched_queue(launch, piece);
    if (result != HOOP_OK) {
        hoop_piece_release(piece);
    }
    return result;
}

/* Is work i over, or waiting for its kernel, which is not on the stream yet? Then all that is
 * before it in line is over. */
static bool launch_has_come_to(const struct hoop_launch *launch, size_t i)
{
    const struct hoop_told *told = launch->told != NULL ? &launch->told[i] : NULL;
    return hoop_launched_is_over(launch) ||
           (told != NULL && told->fold != NULL && atomic_load(told->go) == told->let);
}

/* Waits, after the launch has its place in line and before its hold is put, until earlier calls of
 * its comms have put their work on the device. That work would otherwise be stuck behind the hold
 * if their streams share a queue with this one. Later calls put theirs only when this launch is
 * over. All that is waited for has time limits of its own. */
static void launch_let_others_by(const struct hoop_launch *launch, const struct hoop_work *work)
{
    while (hoop_launched_is_behind(launch)) {
        hoop_wait_briefly();
    }
    for (size_t i = 0; i < launch->pieces.count; i++) {
        while (atomic_load(&work[i].comm->awaited) > 0 && !launch_has_come_to(launch, i)) {
            hoop_wait_briefly();
        }
    }
}

/* A hold, and behind it the copy of what the kernel is told, the kernel, and the word. */
static hoop_result_t launch_put_kernel(const struct hoop_launch *launch,
                                       const struct hoop_work *work, const struct hoop_told *told)
{
    const struct hoop_room *room = launch->pieces.room;
    const hoop_stream_t stream = launch->pieces.stream;
    size_t count = 0;
    const struct hoop_reduction reduction =
        hoop_told_reduction(told, &work->request.signature, work->comm->n, &count);
    hoop_result_t result = hoop_room_wait(room, stream, told->go, told->let);
    if (result == HOOP_OK) {
        result = hoop_cuda_copy_to_device(room->told, (uintptr_t)told->fold,
                                          told->pieces * HOOP_CUDA_TOLD_APART, stream);
    }
    if (result == HOOP_OK) {
        result = hoop_kernels_launch_told(hoop_kernels_load(launch->room->context), &reduction,
                                          count, room->told, told->pieces, stream);
    }
    return result == HOOP_OK ? hoop_room_count(room, stream, told->over) : result;
}

static hoop_result_t launch_put_kernels(const struct hoop_launch *launch,
                                        const struct hoop_work *work)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < launch->pieces.count && result == HOOP_OK; i++) {
        if (launch->told[i].fold != NULL) {
            result = launch_put_kernel(launch, &work[i], &launch->told[i]);
        }
    }
    return result == HOOP_OK ? hoop_room_wait(launch->pieces.room, launch->pieces.stream,
                                              launch->pieces.room->let, launch->number)
                             : result;
}

/* Puts the hold and the copies back, or the kernels, on the stream if `holds`; and in any case the
 * word that says that the launch no longer uses the room. */
static hoop_result_t launch_end(const struct hoop_launch *launch, const struct hoop_work *work,
                                bool holds)
{
    const struct hoop_pieces *pieces = &launch->pieces;
    hoop_result_t result = hoop_cuda_enter(launch->room->context);
    if (result != HOOP_OK) {
        return result;
    }
    if (holds) {
        result = launch->told == NULL ? hoop_pieces_deliver(pieces, launch->number)
                                      : launch_put_kernels(launch, work);
    }
    if (result == HOOP_OK) {
        result = hoop_room_leave(pieces->room, pieces->stream, launch->number);
    }
    hoop_cuda_leave();
    return result;
}

/* With the room's lock; the launch may be gone afterwards. *ret_torn: of the room. */
static hoop_result_t launch_run(struct hoop_launch *launch, struct hoop_work *work, bool *ret_torn)
{
    const size_t count = launch->pieces.count;
    launch->number = ++launch->room->launched;
    hoop_launched_add(launch, work[0].comm->id);
    hoop_result_t result = launch_begin(launch, work);
    *ret_torn = result != HOOP_OK;
    if (result != HOOP_OK) {
        hoop_work_fail(work, count, result);
        hoop_work_finish(work, count);
        hoop_launched_drop(launch);
        return result;
    }
    result = launch_push(launch, work);
    if (result == HOOP_OK) {
        launch_let_others_by(launch, work);
    }
    const hoop_result_t put = launch_end(launch, work, result == HOOP_OK);
    *ret_torn = put != HOOP_OK;
    if (put != HOOP_OK) {
        hoop_launched_break(launch);
        hoop_work_fail(work, count, put);
    }
    hoop_launched_put(launch, result != HOOP_OK);
    return result == HOOP_OK ? put : result;
}

hoop_result_t hoop_launch_run(struct hoop_launch *launch, struct hoop_work *work)
{
    struct hoop_stream_room *room = launch->room;
    bool torn = false;
    pthread_mutex_lock(&room->launching);
    const hoop_result_t result = launch_run(launch, work, &torn);
    pthread_mutex_unlock(&room->launching);
    hoop_rooms_leave(room, torn);
    return result;
}
