/* Calls that return when they are launched (see launch.h). */
#include "device/launch.h"

#include "base/clock.h"
#include "base/list.h"
#include "device/health.h"
#include "device/rooms.h"
#include "runtime/process.h"
#include "staging/kernels.h"
#include "stream/progress.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* How often the bells thread looks. */
#define LAUNCH_BELL_NS HOOP_NS_PER_MS

struct hoop_launch {
    struct hoop_list_node node;
    struct hoop_stream_room *room;
    struct hoop_pieces pieces;
    struct hoop_told *told; /* [count], if it runs on the device; NULL: through the host */
    uint32_t number;
    /* under the lock */
    uint64_t place;      /* its number in the order in which launches join lines; 0: not yet */
    uint32_t bell;       /* the count at which its bell has rung */
    bool put, over, let; /* what has happened (launch.h) */
    unsigned holders;    /* 2: the thread that puts it on the stream, and the one that lets it go */
    struct launch_part {
        uint64_t comm_id;
        bool failed; /* written before `over` */
    } parts[];       /* [count], one for each work */
};

static struct {
    pthread_mutex_t placing; /* to join a line and get the number in one step; before `lock` */
    uint64_t placed;
    pthread_mutex_t lock;   /* CUDA is not called with it */
    pthread_cond_t changed; /* the bells thread has another bell to wait for */
    bool looks;             /* the bells thread runs */
    struct hoop_list_node launches;
} launching = {.placing = PTHREAD_MUTEX_INITIALIZER,
               .lock = PTHREAD_MUTEX_INITIALIZER,
               .launches = HOOP_LIST_EMPTY(launching.launches)};

/* ---- Letting go ----------------------------------------------------------------------------- */

/* Calls no CUDA. */
static void launch_free(struct hoop_launch *launch)
{
    hoop_pieces_finish(&launch->pieces);
    free(launch->told);
    free(launch);
}

static void launch_release(struct hoop_launch *launch)
{
    pthread_mutex_lock(&launching.lock);
    const bool last = --launch->holders == 0;
    if (last) {
        hoop_list_remove(&launch->node);
    }
    pthread_mutex_unlock(&launching.lock);
    if (last) {
        launch_free(launch);
    }
}

/* The stream has come to the bell and the piece is over, so what is to be delivered is in the room.
 * The launch may be freed afterwards. */
static void launch_let_go(struct hoop_launch *launch)
{
    for (size_t i = 0; i < launch->pieces.count; i++) {
        if (launch->told != NULL) {
            hoop_told_tell_nothing(&launch->told[i]);
        } else if (launch->parts[i].failed) {
            hoop_pieces_spoil(&launch->pieces, i);
        }
    }
    hoop_room_let_go(&launch->room->room, launch->number);
    hoop_rooms_let_go();
    launch_release(launch);
}

static bool launch_bell_has_rung(const struct hoop_launch *launch)
{
    const uint32_t came = atomic_load_explicit(launch->room->room.came, memory_order_acquire);
    return (int32_t)(came - launch->bell) >= 0;
}

/* All of it is on the stream; or its piece is over, or there is none: before that nobody looks at
 * the bell, as nothing can be let go. It may be gone then. */
static void launch_mark(struct hoop_launch *launch, bool put, bool over)
{
    pthread_mutex_lock(&launching.lock);
    const bool lets = over && launch_bell_has_rung(launch);
    launch->put |= put;
    launch->over |= over;
    launch->let |= lets;
    launch->holders -= put;
    const bool last = launch->holders == 0;
    if (last) {
        hoop_list_remove(&launch->node);
    }
    pthread_mutex_unlock(&launching.lock);
    if (lets) {
        launch_let_go(launch);
    } else if (last) {
        launch_free(launch);
    } else if (over) {
        pthread_cond_signal(&launching.changed);
    }
}

static void launch_ended(void *arg, const struct hoop_batch *batch)
{
    struct hoop_launch *launch = arg;
    for (size_t i = 0; i < launch->pieces.count; i++) {
        launch->parts[i].failed = hoop_batch_has_failed(batch, i);
    }
    launch_mark(launch, false, true);
}

/* With the lock: a launch that was over before its bell rang, which it has now; or NULL.
 * *ret_more: others still wait for their bell. */
static struct hoop_launch *bells_find_rung(bool *ret_more)
{
    *ret_more = false;
    HOOP_LIST_EACH(struct hoop_launch, at, &launching.launches, node) {
        const bool awaits = at->over && !at->let;
        if (awaits && launch_bell_has_rung(at)) {
            return at;
        }
        *ret_more |= awaits;
    }
    return NULL;
}

/* May not call CUDA, which may block it while the program waits for the streams that this thread
 * lets go. */
static void *bells_main(void *arg)
{
    (void)arg;
    pthread_setname_np(pthread_self(), "hoop-bells");
    pthread_mutex_lock(&launching.lock);
    for (;;) {
        bool more = false;
        struct hoop_launch *rung = bells_find_rung(&more);
        if (rung != NULL) {
            rung->let = true;
            pthread_mutex_unlock(&launching.lock);
            launch_let_go(rung);
            pthread_mutex_lock(&launching.lock);
        } else {
            (void)hoop_cond_wait(&launching.changed, &launching.lock,
                                 more ? hoop_now_ns() + LAUNCH_BELL_NS : HOOP_NEVER);
        }
    }
    return NULL;
}

/* ---- When devices have failed --------------------------------------------------------------- */

/* With the lock: does the driver wait for the device? */
static bool launch_is_awaited(const struct hoop_launch *launch)
{
    return !launch->over && (launch->told != NULL || !launch_bell_has_rung(launch));
}

static size_t launches_list(hoop_cu_context_t *ret, size_t most)
{
    size_t count = 0;
    pthread_mutex_lock(&launching.lock);
    HOOP_LIST_EACH(struct hoop_launch, at, &launching.launches, node) {
        size_t i = 0;
        while (i < count && ret[i] != at->room->context) {
            i++;
        }
        if (launch_is_awaited(at) && i == count && count < most) {
            ret[count++] = at->room->context;
        }
    }
    pthread_mutex_unlock(&launching.lock);
    return count;
}

/* The stream will write no word behind its kernels any more. */
static void launch_break(const struct hoop_launch *launch)
{
    for (size_t i = 0; i < launch->pieces.count && launch->told != NULL; i++) {
        atomic_store(&launch->told[i].broken, true);
    }
}

static bool launch_is_of(const struct hoop_launch *launch, uint64_t comm_id)
{
    bool is = false;
    for (size_t i = 0; i < launch->pieces.count; i++) {
        is |= launch->parts[i].comm_id == comm_id;
    }
    return is;
}

static bool launches_break(hoop_cu_context_t context, uint64_t comm_id)
{
    bool awaited = false;
    pthread_mutex_lock(&launching.lock);
    HOOP_LIST_EACH(struct hoop_launch, at, &launching.launches, node) {
        if (at->room->context == context && launch_is_of(at, comm_id) && launch_is_awaited(at)) {
            launch_break(at);
            awaited = true;
        }
    }
    pthread_mutex_unlock(&launching.lock);
    return awaited;
}

static const struct hoop_health_asker launches_asker = {launches_list, launches_break};

/* Starts both threads, once. False: one of them could not be started. */
static bool launches_start(void)
{
    pthread_mutex_lock(&launching.lock);
    if (!launching.looks) {
        hoop_cond_init(&launching.changed);
        launching.looks = hoop_thread_spawn(bells_main, NULL) == 0;
    }
    const bool looks = launching.looks;
    pthread_mutex_unlock(&launching.lock);
    return looks && hoop_health_start(&launches_asker);
}

/* ---- Launching ------------------------------------------------------------------------------ */

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
        launches_start() && launch_enter(made, work, context)) {
        made->pieces.room = &made->room->room;
        made->pieces.cuts = &made->room->cuts;
        return made;
    }
    launch_free(made);
    return NULL;
}

/* Puts the launch into the list. */
static void launch_add(struct hoop_launch *launch, uint64_t comm_id)
{
    hoop_rooms_hold(launch->room, comm_id);
    launch->holders = 2;
    pthread_mutex_lock(&launching.lock);
    hoop_list_push_back(&launching.launches, &launch->node);
    pthread_mutex_unlock(&launching.lock);
    hoop_health_notify();
}

/* For a launch that was added, but not queued. */
static void launch_drop(struct hoop_launch *launch)
{
    launch->holders = 1; /* nobody else has it */
    hoop_rooms_let_go();
    launch_release(launch);
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
    pthread_mutex_lock(&launching.lock);
    launch->bell = bell;
    pthread_mutex_unlock(&launching.lock);
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
    piece->ended = launch_ended;
    piece->ended_arg = launch;
    piece->batch.unhurried = true;
    hoop_progress_suit(work[0].comm);
    pthread_mutex_lock(&launching.placing);
    const hoop_result_t result = hoop_progress_push(piece);
    pthread_mutex_lock(&launching.lock);
    launch->place = ++launching.placed;
    pthread_mutex_unlock(&launching.lock);
    pthread_mutex_unlock(&launching.placing);
    if (result != HOOP_OK) {
        hoop_piece_release(piece);
    }
    return result;
}

static bool launch_shares(const struct hoop_launch *launch, const struct hoop_launch *other)
{
    bool shares = false;
    for (size_t i = 0; i < launch->pieces.count; i++) {
        shares |= launch_is_of(other, launch->parts[i].comm_id);
    }
    return shares;
}

/* Is there an earlier launch on one of its comms whose kernels are not yet on their stream? */
static bool launch_is_behind(const struct hoop_launch *launch)
{
    bool is = false;
    pthread_mutex_lock(&launching.lock);
    HOOP_LIST_EACH(struct hoop_launch, at, &launching.launches, node) {
        is |= at->told != NULL && !at->put && !at->over && at->place != 0 &&
              at->place < launch->place && launch_shares(launch, at);
    }
    pthread_mutex_unlock(&launching.lock);
    return is;
}

/* Is work i over, or waiting for its kernel, which is not on the stream yet? Then all that is
 * before it in line is over. */
static bool launch_has_come_to(const struct hoop_launch *launch, size_t i)
{
    const struct hoop_told *told = launch->told != NULL ? &launch->told[i] : NULL;
    pthread_mutex_lock(&launching.lock);
    const bool over = launch->over;
    pthread_mutex_unlock(&launching.lock);
    return over || (told != NULL && told->fold != NULL && atomic_load(told->go) == told->let);
}

/* Waits, after the launch has its place in line and before its hold is put, until earlier calls of
 * its comms have put their work on the device. That work would otherwise be stuck behind the hold
 * if their streams share a queue with this one. Later calls put theirs only when this launch is
 * over. All that is waited for has time limits of its own. */
static void launch_let_others_by(const struct hoop_launch *launch, const struct hoop_work *work)
{
    while (launch_is_behind(launch)) {
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
    launch_add(launch, work[0].comm->id);
    hoop_result_t result = launch_begin(launch, work);
    *ret_torn = result != HOOP_OK;
    if (result != HOOP_OK) {
        hoop_work_fail(work, count, result);
        hoop_work_finish(work, count);
        launch_drop(launch);
        return result;
    }
    result = launch_push(launch, work);
    if (result == HOOP_OK) {
        launch_let_others_by(launch, work);
    }
    const hoop_result_t put = launch_end(launch, work, result == HOOP_OK);
    *ret_torn = put != HOOP_OK;
    if (put != HOOP_OK) {
        launch_break(launch);
        hoop_work_fail(work, count, put);
    }
    launch_mark(launch, true, result != HOOP_OK);
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
