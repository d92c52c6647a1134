/* Handles of host streams (see handle.h). */
#include "stream/handle.h"

#include <errno.h>
#include <sys/mman.h>

#define HANDLE_STEP 8u
#define HANDLE_NUMBERS ((uint64_t)HOOP_HANDLES * 256)
#define HANDLE_BYTES (HANDLE_NUMBERS * HANDLE_STEP)

static _Atomic uintptr_t handle_first; /* 0: nothing is reserved yet */

static struct {
    struct hoop_queue *queues[HOOP_HANDLES]; /* living and remembered streams */
    uint64_t generations[HOOP_HANDLES];      /* of each slot's latest stream; 0: never used */
    uint16_t dead[HOOP_HANDLES];             /* ring of destroyed streams' slots, oldest first */
    uint32_t first_dead, n_dead;
    uint32_t used; /* slots below this were used before */
} handles;

bool hoop_handle_is_stream(hoop_stream_t stream)
{
    const uintptr_t first = atomic_load_explicit(&handle_first, memory_order_acquire);
    return first != 0 && (uintptr_t)stream - first < HANDLE_BYTES;
}

hoop_stream_t hoop_handle_of(uint64_t uid)
{
    return (hoop_stream_t)(atomic_load_explicit(&handle_first, memory_order_relaxed) +
                           uid % HANDLE_NUMBERS * HANDLE_STEP);
}

static hoop_result_t handle_reserve(void)
{
    if (atomic_load_explicit(&handle_first, memory_order_relaxed) != 0) {
        return HOOP_OK;
    }
    void *first =
        mmap(NULL, HANDLE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED) {
        return hoop_error(HOOP_OUT_OF_MEMORY,
                          "cannot reserve %llu bytes of addresses for stream handles: %s",
                          (unsigned long long)HANDLE_BYTES, hoop_errno_name(errno));
    }
    atomic_store_explicit(&handle_first, (uintptr_t)first, memory_order_release);
    return HOOP_OK;
}

/* The slot of the oldest dead stream without pins, if enough are remembered; else a new slot. */
static bool handle_free_slot(uint32_t *ret)
{
    const uint32_t spare = handles.used < HOOP_HANDLES ? HOOP_HANDLES_DEAD : 0;
    for (uint32_t tried = 0, n = handles.n_dead; tried < n && n > spare; tried++) {
        const uint32_t slot = handles.dead[handles.first_dead];
        handles.first_dead = (handles.first_dead + 1) % HOOP_HANDLES;
        if (handles.queues[slot]->pins == 0) {
            handles.n_dead--;
            hoop_queue_destroy(handles.queues[slot]);
            handles.queues[slot] = NULL;
            *ret = slot;
            return true;
        }
        handles.dead[(handles.first_dead + n - 1) % HOOP_HANDLES] = (uint16_t)slot;
    }
    *ret = handles.used;
    return handles.used < HOOP_HANDLES;
}

hoop_result_t hoop_handle_create(hoop_stream_t *ret)
{
    const hoop_result_t reserved = handle_reserve();
    uint32_t slot = 0;
    if (reserved != HOOP_OK) {
        return reserved;
    }
    struct hoop_queue *queue = hoop_queue_create();
    if (queue == NULL || !handle_free_slot(&slot)) {
        const char *what = queue == NULL ? "no memory for a stream"
                                         : "there are already 4096 streams, the most at a time";
        hoop_queue_destroy(queue);
        return hoop_error(HOOP_OUT_OF_MEMORY, "%s", what);
    }
    queue->uid = ++handles.generations[slot] * HOOP_HANDLES + slot;
    handles.used += slot == handles.used;
    handles.queues[slot] = queue;
    *ret = hoop_handle_of(queue->uid);
    return HOOP_OK;
}

struct hoop_queue *hoop_handle_find(hoop_stream_t stream)
{
    if (!hoop_handle_is_stream(stream)) {
        return NULL;
    }
    const uintptr_t first = atomic_load_explicit(&handle_first, memory_order_relaxed);
    struct hoop_queue *queue =
        handles.queues[((uintptr_t)stream - first) / HANDLE_STEP % HOOP_HANDLES];
    const bool its = queue != NULL && !queue->closing && hoop_handle_of(queue->uid) == stream;
    return its ? queue : NULL;
}

struct hoop_queue *hoop_handle_find_uid(uint64_t uid, bool *ret_known)
{
    const uint64_t slot = uid % HOOP_HANDLES, generation = uid / HOOP_HANDLES;
    struct hoop_queue *queue = handles.queues[slot];
    *ret_known = generation >= 1 && generation <= handles.generations[slot];
    return queue != NULL && queue->uid == uid ? queue : NULL;
}

void hoop_handle_retire(struct hoop_queue *queue)
{
    const uint32_t last = (handles.first_dead + handles.n_dead++) % HOOP_HANDLES;
    handles.dead[last] = (uint16_t)(queue->uid % HOOP_HANDLES);
    queue->closing = true;
}

struct hoop_queue *hoop_handle_next(const struct hoop_queue *queue)
{
    uint32_t slot = queue != NULL ? (uint32_t)(queue->uid % HOOP_HANDLES) + 1 : 0;
    while (slot < handles.used && handles.queues[slot] == NULL) {
        slot++;
    }
    return slot < handles.used ? handles.queues[slot] : NULL;
}
