/* Puts launches on their streams, and lets them go (see launch.h). */
#include "base/clock.h"
#include "device/launch_inside.h"
#include "runtime/process.h"
#include "stream/health.h"
#include "stream/progress.h"

#include <pthread.h>
#include <stdlib.h>

/* How often the bells thread looks: at first, and when it has looked in vain for long. */
#define LAUNCH_BELL_NS HOOP_NS_PER_MS
#define LAUNCH_BELL_MOST_NS (64 * HOOP_NS_PER_MS)

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

static void launch_release(struct hoop_launch *launch)
{
    pthread_mutex_lock(&launching.lock);
    const bool last = --launch->holders == 0;
    if (last) {
        hoop_list_remove(&launch->node);
    }
    pthread_mutex_unlock(&launching.lock);
    if (last) {
        hoop_launch_free(launch);
    }
}

/* The stream has come to the bell and the piece is over, so what is to be delivered is in the room.
 * Or the device has failed. The launch may be freed afterwards. */
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

/* With the lock: may it be let go, if it is over? */
static bool launch_may_go(const struct hoop_launch *launch)
{
    return launch->broken || launch_bell_has_rung(launch);
}

/* All of it is on the stream; or its piece is over, or there is none: before that nobody looks at
 * the bell, as nothing can be let go. It may be gone then. */
static void launch_mark(struct hoop_launch *launch, bool put, bool over)
{
    pthread_mutex_lock(&launching.lock);
    const bool lets = over && launch_may_go(launch);
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
        hoop_launch_free(launch);
    } else if (over) {
        pthread_cond_signal(&launching.changed);
    }
}

static void launch_ended(void *arg, const struct hoop_batch *batch)
{
    for (struct hoop_launch *at = arg, *next = NULL; at != NULL; at = next) {
        next = at->next;
        for (size_t i = 0; i < at->pieces.count; i++) {
            at->parts[i].failed = hoop_batch_has_failed(batch, at->first + i);
        }
        launch_mark(at, false, true);
    }
}

/* With the lock: a launch that was over before its bell rang, which it has now, or never will; or
 * NULL. *ret_more: others still wait for their bell. */
static struct hoop_launch *bells_find_rung(bool *ret_more)
{
    *ret_more = false;
    HOOP_LIST_EACH(struct hoop_launch, at, &launching.launches, node) {
        const bool awaits = at->over && !at->let;
        if (awaits && launch_may_go(at)) {
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
    uint64_t nap_ns = LAUNCH_BELL_NS;
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
            const bool called = hoop_cond_wait(&launching.changed, &launching.lock,
                                               more ? hoop_now_ns() + nap_ns : HOOP_NEVER);
            nap_ns = called ? LAUNCH_BELL_NS : nap_ns < LAUNCH_BELL_MOST_NS ? 2 * nap_ns : nap_ns;
        }
    }
    return NULL;
}

/* ---- When devices have failed --------------------------------------------------------------- */

/* With the lock: does the driver wait for the device, or the bells thread for the bell? If not, the
 * room may be gone. */
static bool launch_is_awaited(const struct hoop_launch *launch)
{
    return !launch->let && (launch->told != NULL || !launch_bell_has_rung(launch));
}

static hoop_cu_context_t launches_next(hoop_cu_context_t after)
{
    hoop_cu_context_t next = NULL;
    pthread_mutex_lock(&launching.lock);
    HOOP_LIST_EACH(struct hoop_launch, at, &launching.launches, node) {
        if (launch_is_awaited(at)) {
            next = hoop_health_better(next, after, at->room->context);
        }
    }
    pthread_mutex_unlock(&launching.lock);
    return next;
}

static bool launch_is_on_stream(const struct hoop_launch *launch)
{
    bool is = false;
    if (hoop_cuda_enter(launch->room->context) == HOOP_OK) {
        is = hoop_cuda.stream_query(launch->pieces.stream) == HOOP_CU_NOT_READY;
        hoop_cuda_leave();
    }
    return is;
}

/*
 * Not all could be put on the stream, and the work has failed: nobody waits for words that will not
 * be written. A kernel that is there without its word may run, until the stream has gone past it.
 * Its hold ends, since whoever drives the work lets it go.
 */
static void launch_break_rest(const struct hoop_launch *launch, uint64_t deadline_ns)
{
    bool past = true;
    for (size_t i = 0; i < launch->pieces.count && launch->told != NULL; i++) {
        const struct hoop_told *told = &launch->told[i];
        while (told->put && !told->counts && past && launch_is_on_stream(launch)) {
            past = hoop_now_ns() < deadline_ns;
            hoop_wait_briefly();
        }
    }
    for (size_t i = 0; i < launch->pieces.count && launch->told != NULL; i++) {
        struct hoop_told *told = &launch->told[i];
        if (!told->put || (!told->counts && past)) {
            atomic_store(&told->broken, true);
        }
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

static bool launches_wait(hoop_cu_context_t context, uint64_t comm_id)
{
    bool wait = false;
    pthread_mutex_lock(&launching.lock);
    HOOP_LIST_EACH(struct hoop_launch, at, &launching.launches, node) {
        wait |= launch_is_of(at, comm_id) && launch_is_awaited(at) && at->room->context == context;
    }
    pthread_mutex_unlock(&launching.lock);
    return wait;
}

/* The streams will write no word any more. What is on them keeps its rooms, whose `used` it will
 * not write either. */
static void launches_break(hoop_cu_context_t context)
{
    pthread_mutex_lock(&launching.lock);
    HOOP_LIST_EACH(struct hoop_launch, at, &launching.launches, node) {
        if (launch_is_awaited(at) && at->room->context == context) {
            hoop_told_break(at->told, at->pieces.count);
            at->broken = true;
        }
    }
    pthread_cond_signal(&launching.changed);
    pthread_mutex_unlock(&launching.lock);
}

bool hoop_launched_start(void)
{
    pthread_mutex_lock(&launching.lock);
    if (!launching.looks) {
        hoop_cond_init(&launching.changed);
        launching.looks = hoop_thread_spawn(bells_main, NULL) == 0;
    }
    const bool looks = launching.looks;
    pthread_mutex_unlock(&launching.lock);
    static struct hoop_health_asker asker = {
        .next = launches_next, .waits = launches_wait, .broke = launches_break};
    return looks && hoop_health_start(&asker);
}

/* ---- One after the other --------------------------------------------------------------------- */

/* The launch is about to hold its stream. */
static void launched_add(struct hoop_launch *launch)
{
    hoop_rooms_hold();
    launch->holders = 2;
    pthread_mutex_lock(&launching.lock);
    hoop_list_push_back(&launching.launches, &launch->node);
    pthread_mutex_unlock(&launching.lock);
    hoop_health_notify();
}

/* For a launch that was added, but whose bell may not be on its stream. */
static void launched_drop(struct hoop_launch *launch)
{
    launch->holders = 1; /* nobody else has it */
    launch_release(launch);
    hoop_rooms_let_go();
}

static void launched_set_bell(struct hoop_launch *launch, uint32_t bell)
{
    pthread_mutex_lock(&launching.lock);
    launch->bell = bell;
    pthread_mutex_unlock(&launching.lock);
}

/* Queues the piece of a group's launches, so that they have their places in the comms' lines. */
static hoop_result_t launched_queue(struct hoop_launch *first, struct hoop_piece *piece)
{
    piece->ended = launch_ended;
    piece->ended_arg = first;
    pthread_mutex_lock(&launching.placing);
    hoop_result_t refused = HOOP_OK; /* a comm failed just now, as launch_ended() will see */
    const hoop_result_t result = hoop_progress_push(piece, &refused);
    pthread_mutex_lock(&launching.lock);
    launching.placed++;
    for (struct hoop_launch *at = first; at != NULL; at = at->next) {
        at->place = launching.placed;
    }
    pthread_mutex_unlock(&launching.lock);
    pthread_mutex_unlock(&launching.placing);
    return result;
}

static bool launched_is_over(const struct hoop_launch *launch)
{
    pthread_mutex_lock(&launching.lock);
    const bool over = launch->over;
    pthread_mutex_unlock(&launching.lock);
    return over;
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
static bool launched_is_behind(const struct hoop_launch *launch)
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

/* ---- On the streams ------------------------------------------------------------------------- */

/* Is work i its comm's call number `round` of the group? All calls of a comm are on one stream. */
static bool launch_is_in_round(const struct hoop_work *work, size_t i, size_t round)
{
    size_t before = 0;
    for (size_t j = 0; j < i; j++) {
        before += work[j].comm == work[i].comm;
    }
    return before == round;
}

/* The words behind the kernels count in the order in which launches_put_kernels() puts them. */
static void launch_count_kernels(const struct hoop_launch *launch, const struct hoop_work *work,
                                 uint32_t bell)
{
    bool any = true;
    for (size_t round = 0; any; round++) {
        any = false;
        for (size_t i = 0; i < launch->pieces.count; i++) {
            const bool in_round = launch_is_in_round(work, i, round);
            any |= in_round;
            if (in_round && launch->told[i].fold != NULL) {
                launch->told[i].over = ++bell;
            }
        }
    }
}

static hoop_result_t launch_place(struct hoop_launch *launch, struct hoop_work *work,
                                  uint32_t *ret_bell)
{
    struct hoop_pieces *pieces = &launch->pieces;
    if (launch->told != NULL) {
        *ret_bell = pieces->room->counted + 1;
        const hoop_result_t told = hoop_room_tell(pieces->room, launch->told, work, pieces->count,
                                                  launch->number, pieces->flows);
        launch_count_kernels(launch, work, *ret_bell);
        return told;
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
    launched_set_bell(launch, bell);
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

/* Takes places in the comms' lines. After a failure no stream must be held. */
static hoop_result_t launches_push(struct hoop_launch *first, struct hoop_work *work, size_t count)
{
    struct hoop_piece *piece = hoop_piece_create(work, count, 1, false);
    if (piece == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %zu calls on a stream", count);
    }
    piece->batch.unhurried = true;
    hoop_progress_suit(work[0].comm);
    const hoop_result_t result = launched_queue(first, piece);
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
    return launched_is_over(launch) ||
           (told != NULL && told->fold != NULL && atomic_load(told->go) == told->let);
}

/* Waits, after the launch has its place in line and before its hold is put, until earlier calls of
 * its comms have put their work on the device. That work would otherwise be stuck behind the hold
 * if their streams share a queue with this one. Later calls put theirs only when this launch is
 * over. All that is waited for has time limits of its own. */
static void launch_let_others_by(const struct hoop_launch *launch, const struct hoop_work *work)
{
    while (launched_is_behind(launch)) {
        hoop_wait_briefly();
    }
    for (size_t i = 0; i < launch->pieces.count; i++) {
        while (atomic_load(&work[i].comm->awaited) > 0 && !launch_has_come_to(launch, i)) {
            hoop_wait_briefly();
        }
    }
}

/* Puts the kernels of one round. *ret_any: it has calls. */
static hoop_result_t launch_put_round(const struct hoop_launch *launch,
                                      const struct hoop_work *work, size_t round, bool *ret_any)
{
    hoop_result_t result = hoop_cuda_enter(launch->room->context);
    if (result != HOOP_OK) {
        return result;
    }
    for (size_t i = 0; i < launch->pieces.count && result == HOOP_OK; i++) {
        const bool in_round = launch_is_in_round(work, i, round);
        *ret_any |= in_round;
        if (in_round && launch->told[i].fold != NULL) {
            result = hoop_room_put_kernel(launch->pieces.room, launch->pieces.stream,
                                          &launch->told[i], &work[i]);
        }
    }
    hoop_cuda_leave();
    return result;
}

/*
 * Puts the kernels of all launches of a group on their streams, which may share a queue of the
 * device. A kernel's own hold waits for the ranks' calls before it, so these come first: of each
 * comm the first call's kernels on all streams, then the second's.
 */
static void launches_put_kernels(struct hoop_launch *first, const struct hoop_work *work)
{
    bool any = true;
    for (size_t round = 0; any; round++) {
        any = false;
        for (struct hoop_launch *at = first; at != NULL; at = at->next) {
            if (at->told != NULL && at->put_result == HOOP_OK) {
                at->put_result = launch_put_round(at, work + at->first, round, &any);
            }
        }
    }
}

/* Puts the last hold, and copies back, on the stream if `holds`; and in any case the word that says
 * that the launch no longer uses the room. */
static hoop_result_t launch_end(const struct hoop_launch *launch, bool holds)
{
    const struct hoop_pieces *pieces = &launch->pieces;
    hoop_result_t result = hoop_cuda_enter(launch->room->context);
    if (result != HOOP_OK) {
        return result;
    }
    if (holds) {
        result = launch->told == NULL ? hoop_pieces_deliver(pieces, launch->number)
                                      : hoop_room_wait(pieces->room, pieces->stream,
                                                       pieces->room->let, launch->number);
    }
    if (result == HOOP_OK) {
        result = hoop_room_leave(pieces->room, pieces->stream, launch->number);
    }
    hoop_cuda_leave();
    return result;
}

/* Puts the copies to the host and the bells on all streams. */
static hoop_result_t launches_begin(struct hoop_launch *first, struct hoop_work *work)
{
    hoop_result_t result = HOOP_OK;
    for (struct hoop_launch *at = first; at != NULL; at = at->next) {
        at->number = ++at->room->launched;
        launched_add(at);
    }
    for (struct hoop_launch *at = first; at != NULL; at = at->next) {
        result = result == HOOP_OK ? launch_begin(at, work + at->first) : result;
        at->put_result = result;
    }
    return result;
}

/* Puts all that comes behind the bells. */
static hoop_result_t launches_put(struct hoop_launch *first, const struct hoop_work *work,
                                  bool holds)
{
    hoop_result_t result = HOOP_OK;
    if (holds) {
        for (struct hoop_launch *at = first; at != NULL; at = at->next) {
            launch_let_others_by(at, work + at->first);
        }
        launches_put_kernels(first, work);
    }
    for (struct hoop_launch *at = first; at != NULL; at = at->next) {
        if (at->put_result == HOOP_OK) {
            at->put_result = launch_end(at, holds);
        }
        result = result == HOOP_OK ? at->put_result : result;
    }
    return result;
}

/* With the rooms' locks. *ret_begun, *ret_queued: the bells are put; the work will end them. */
static hoop_result_t launches_run(struct hoop_launch *first, struct hoop_work *work, size_t count,
                                  bool *ret_begun, bool *ret_queued)
{
    hoop_result_t result = launches_begin(first, work);
    *ret_begun = result == HOOP_OK;
    if (*ret_begun) {
        result = launches_push(first, work, count);
    } else {
        hoop_work_finish(work, count);
    }
    *ret_queued = result == HOOP_OK;
    if (result != HOOP_OK) {
        hoop_work_fail(work, count, result);
    }
    const uint64_t deadline_ns = hoop_deadline_ns(work[0].comm->op_timeout_ms);
    const hoop_result_t put = launches_put(first, work, *ret_queued);
    if (*ret_begun && put != HOOP_OK) {
        hoop_work_fail(work, count, put);
        for (struct hoop_launch *at = first; at != NULL; at = at->next) {
            launch_break_rest(at, deadline_ns);
        }
    }
    return result == HOOP_OK ? put : result;
}

/* Not all of it could be put on the stream. Only the word behind what is there tells when the room
 * can be freed. The thread's error, which came with code, stays. */
static void launch_give_up(const struct hoop_launch *launch, hoop_result_t code)
{
    struct hoop_failure why = {.code = HOOP_OK};
    (void)hoop_failure_take(&why, code, -1);
    hoop_rooms_give_up(launch->room, launch_end(launch, false) != HOOP_OK);
    (void)hoop_error(code, "%s", why.text);
}

hoop_result_t hoop_launch_run(struct hoop_launch *launch, struct hoop_work *work, size_t count)
{
    bool begun = false, queued = false;
    for (struct hoop_launch *at = launch; at != NULL; at = at->next) {
        pthread_mutex_lock(&at->room->launching);
    }
    const hoop_result_t result = launches_run(launch, work, count, &begun, &queued);
    for (struct hoop_launch *at = launch, *next = NULL; at != NULL; at = next) {
        next = at->next;
        if (at->put_result != HOOP_OK) {
            launch_give_up(at, result);
        }
        pthread_mutex_unlock(&at->room->launching);
        hoop_rooms_leave(at->room);
        if (begun) {
            launch_mark(at, true, !queued);
        } else {
            launched_drop(at);
        }
    }
    return result;
}
