/* The rooms of streams (see rooms.h). */
#include "device/rooms.h"

#include "base/settings.h"
#include "runtime/process.h"

#include <stdlib.h>

/* The most streams that have a room at a time; calls on others wait for their results. */
#define ROOMS_MOST 64u

static struct {
    pthread_mutex_t lock; /* CUDA is not called with it */
    struct hoop_stream_room *first;
    uint32_t held; /* launches whose hold is on a stream, or about to be */
} rooms = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock. */
static bool room_is_idle(const struct hoop_stream_room *room)
{
    return room->users == 0 && !room->torn &&
           atomic_load_explicit(room->room.used, memory_order_acquire) == room->launched;
}

/* With the lock: unlinks a room that can be freed; NULL: there is none. None can while a stream is
 * held, because CUDA may wait for all streams before it frees memory. */
static struct hoop_stream_room *rooms_take_idle(void)
{
    struct hoop_stream_room **at = &rooms.first;
    while (*at != NULL && !((*at)->outgrown && room_is_idle(*at) && rooms.held == 0)) {
        at = &(*at)->next;
    }
    struct hoop_stream_room *taken = *at;
    if (taken != NULL) {
        *at = taken->next;
    }
    return taken;
}

static void room_free(struct hoop_stream_room *room)
{
    hoop_room_finish(&room->room);
    hoop_cuts_finish(&room->cuts);
    pthread_mutex_destroy(&room->launching);
    free(room);
}

static void rooms_free_idle(void)
{
    struct hoop_stream_room *idle = NULL;
    do {
        pthread_mutex_lock(&rooms.lock);
        idle = rooms_take_idle();
        pthread_mutex_unlock(&rooms.lock);
        if (idle != NULL) {
            room_free(idle);
        }
    } while (idle != NULL);
}

/* The stream's room, if it has so many bytes, with a user added; there are several if threads made
 * theirs at the same time. NULL: there is none, and *ret_wish is the size that a new one should
 * have. */
static struct hoop_stream_room *room_find(hoop_cu_context_t context, unsigned long long stream,
                                          size_t bytes, uint64_t comm_id, size_t *ret_wish)
{
    struct hoop_stream_room *found = NULL;
    *ret_wish = bytes;
    pthread_mutex_lock(&rooms.lock);
    for (struct hoop_stream_room *at = rooms.first; at != NULL; at = at->next) {
        const bool mine = at->context == context && at->stream == stream && !at->outgrown;
        if (mine && found == NULL && hoop_room_fits(&at->room, bytes)) {
            found = at;
            found->users++;
            found->comm_id = comm_id;
        } else if (mine) {
            const size_t twice = 2 * at->room.memory.host_bytes;
            at->outgrown = true;
            *ret_wish = *ret_wish > twice ? *ret_wish : twice;
        }
    }
    pthread_mutex_unlock(&rooms.lock);
    return found;
}

/* How much may be pinned for one more room: wish, or only bytes. 0: too much is pinned, or there
 * are too many rooms; then idle ones are marked as outgrown, to be freed before the next. */
static size_t room_allow(size_t bytes, size_t wish)
{
    const size_t most = hoop_settings()->cuda_room_bytes;
    size_t pinned = 0, allowed = 0;
    uint32_t count = 0;
    pthread_mutex_lock(&rooms.lock);
    for (const struct hoop_stream_room *at = rooms.first; at != NULL; at = at->next) {
        pinned += at->room.memory.host_bytes;
        count++;
    }
    const size_t left = pinned < most ? most - pinned : 0;
    if (count < ROOMS_MOST) {
        allowed = wish <= left ? wish : bytes <= left ? bytes : 0;
    }
    for (struct hoop_stream_room *at = rooms.first; at != NULL && allowed == 0; at = at->next) {
        at->outgrown |= room_is_idle(at);
    }
    pthread_mutex_unlock(&rooms.lock);
    return allowed;
}

/* A new room with one user. NULL: no memory, or none that can be pinned. */
static struct hoop_stream_room *room_create(hoop_cu_context_t context, unsigned long long stream,
                                            size_t bytes, uint64_t comm_id)
{
    struct hoop_stream_room *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return NULL;
    }
    made->context = context;
    made->stream = stream;
    made->users = 1;
    made->comm_id = comm_id;
    pthread_mutex_init(&made->launching, NULL);
    if (hoop_room_init(&made->room, context, bytes) != HOOP_OK) {
        room_free(made);
        return NULL;
    }
    pthread_mutex_lock(&rooms.lock);
    made->next = rooms.first;
    rooms.first = made;
    pthread_mutex_unlock(&rooms.lock);
    return made;
}

struct hoop_stream_room *hoop_rooms_enter(hoop_cu_context_t context, unsigned long long stream,
                                          size_t bytes, uint64_t comm_id)
{
    size_t wish = 0;
    struct hoop_stream_room *room = room_find(context, stream, bytes, comm_id, &wish);
    if (room == NULL) {
        rooms_free_idle();
        wish = room_allow(bytes, wish);
        room = wish > 0 ? room_create(context, stream, wish, comm_id) : NULL;
    }
    return room;
}

bool hoop_rooms_make_told(struct hoop_stream_room *room, const struct hoop_told *told,
                          const struct hoop_work *work, size_t count)
{
    pthread_mutex_lock(&room->launching);
    const hoop_result_t result = hoop_room_make_told(&room->room, told, work, count);
    pthread_mutex_unlock(&room->launching);
    return result == HOOP_OK;
}

void hoop_rooms_leave(struct hoop_stream_room *room)
{
    pthread_mutex_lock(&rooms.lock);
    room->users--;
    pthread_mutex_unlock(&rooms.lock);
}

void hoop_rooms_give_up(struct hoop_stream_room *room, bool torn)
{
    pthread_mutex_lock(&rooms.lock);
    room->outgrown = true;
    room->torn |= torn;
    pthread_mutex_unlock(&rooms.lock);
}

void hoop_rooms_hold(void)
{
    pthread_mutex_lock(&rooms.lock);
    rooms.held++;
    pthread_mutex_unlock(&rooms.lock);
}

void hoop_rooms_let_go(void)
{
    pthread_mutex_lock(&rooms.lock);
    rooms.held--;
    pthread_mutex_unlock(&rooms.lock);
}

void hoop_rooms_close(const struct hoop_comm *comm)
{
    if (comm == NULL || hoop_is_forked()) {
        return;
    }
    pthread_mutex_lock(&rooms.lock);
    for (struct hoop_stream_room *at = rooms.first; at != NULL; at = at->next) {
        at->outgrown |= at->comm_id == comm->id;
    }
    pthread_mutex_unlock(&rooms.lock);
}

void hoop_rooms_free_idle(void)
{
    if (!hoop_is_forked()) {
        rooms_free_idle();
    }
}
