/* Launches that are on their streams, until they are let go (see launch.h). */
#include "base/clock.h"
#include "device/launch_inside.h"
#include "runtime/process.h"
#include "stream/health.h"
#include "stream/progress.h"

#include <pthread.h>

/* How often the bells thread looks. */
#define LAUNCH_BELL_NS HOOP_NS_PER_MS

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
        hoop_launch_free(launch);
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

void hoop_launched_break(const struct hoop_launch *launch)
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
            hoop_launched_break(at);
            awaited = true;
        }
    }
    pthread_mutex_unlock(&launching.lock);
    return awaited;
}

static const struct hoop_health_asker launches_asker = {launches_list, launches_break};

bool hoop_launched_start(void)
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

/* ---- One after the other --------------------------------------------------------------------- */

void hoop_launched_add(struct hoop_launch *launch, uint64_t comm_id)
{
    hoop_rooms_hold(launch->room, comm_id);
    launch->holders = 2;
    pthread_mutex_lock(&launching.lock);
    hoop_list_push_back(&launching.launches, &launch->node);
    pthread_mutex_unlock(&launching.lock);
    hoop_health_notify();
}

void hoop_launched_drop(struct hoop_launch *launch)
{
    launch->holders = 1; /* nobody else has it */
    hoop_rooms_let_go();
    launch_release(launch);
}

void hoop_launched_set_bell(struct hoop_launch *launch, uint32_t bell)
{
    pthread_mutex_lock(&launching.lock);
    launch->bell = bell;
    pthread_mutex_unlock(&launching.lock);
}

hoop_result_t hoop_launched_queue(struct hoop_launch *launch, struct hoop_piece *piece)
{
    piece->ended = launch_ended;
    piece->ended_arg = launch;
    pthread_mutex_lock(&launching.placing);
    const hoop_result_t result = hoop_progress_push(piece);
    pthread_mutex_lock(&launching.lock);
    launch->place = ++launching.placed;
    pthread_mutex_unlock(&launching.lock);
    pthread_mutex_unlock(&launching.placing);
    return result;
}

void hoop_launched_put(struct hoop_launch *launch, bool over)
{
    launch_mark(launch, true, over);
}

bool hoop_launched_is_over(const struct hoop_launch *launch)
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

bool hoop_launched_is_behind(const struct hoop_launch *launch)
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
