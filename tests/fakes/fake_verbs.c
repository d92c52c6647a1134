/* See fake_verbs.h. */
#include "fakes/fake_verbs.h"
#include <assert.h>
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FAKE_MEMORIES 256u
#define FAKE_QUEUES 1024u
#define FAKE_DEPTH 512u
#define FAKE_EVENTS 4096u
#define FAKE_INLINE 96u
#define FAKE_REMOTE_ACCESS 10
#define FAKE_RETRIES 12
#define FAKE_NO_RECEIVE 13

struct hoop_verbs_port fake_ports[FAKE_PORTS] = {
    {.device = "fake0",
     .port = 1,
     .state = "ACTIVE",
     .active = true,
     .ethernet = true,
     .mtu = 3,
     .gid_count = 1,
     .gids = {{.index = 1, .type = HOOP_GID_ROCE_V2, .raw = {[10] = 255, 255, 10}}}},
    {.device = "fake1",
     .port = 1,
     .state = "ACTIVE",
     .active = true,
     .ethernet = true,
     .mtu = 5,
     .gid_count = 1,
     .gids = {{.index = 3, .type = HOOP_GID_ROCE_V2, .raw = {[10] = 255, 255, 11}}}},
};
struct fake_counts fake_counts;
struct hoop_verbs_route fake_route;
bool fake_refuses_memory, fake_holds, fake_keeps, fake_dies;
size_t fake_most_bytes;
int fake_break_next, fake_fails_in;

struct fake_work {
    struct hoop_verbs_work work;
    uint8_t copy[FAKE_INLINE]; /* inline data */
};

struct fake_receive {
    uint64_t id;
    void *data;
    uint32_t bytes;
};

struct hoop_verbs_queue {
    struct hoop_verbs_device *device;
    uint32_t number, peer;
    bool connected, broken;
    struct hoop_verbs_depth depth;
    uint32_t outstanding; /* works since the last signaled one that has completed */
    /* rings: works that have not arrived, receives that were not taken */
    uint32_t first_work, works, first_receive, receives;
    struct fake_work *work;
    struct fake_receive receive[FAKE_DEPTH];
};

struct hoop_verbs_device {
    int fd;
    bool armed;
    uint32_t first, count, entries;
    struct hoop_verbs_event events[FAKE_EVENTS];
};

struct fake_memory {
    uint8_t *data;
    size_t bytes;
    uint32_t key;
};

static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_memory fake_memories[FAKE_MEMORIES];
static struct hoop_verbs_queue *fake_queues[FAKE_QUEUES];
static uint32_t fake_numbers, fake_keys;

static bool fake_fails(void)
{
    return fake_fails_in > 0 && --fake_fails_in == 0;
}

static hoop_result_t fake_list(struct hoop_verbs_port *ret_ports, uint32_t most,
                               uint32_t *ret_count)
{
    assert(most >= FAKE_PORTS);
    (void)most;
    memcpy(ret_ports, fake_ports, sizeof(fake_ports));
    *ret_count = FAKE_PORTS;
    return HOOP_OK;
}

static hoop_result_t fake_open(const char *name, uint32_t entries, struct hoop_verbs_device **ret)
{
    struct hoop_verbs_device *device = calloc(1, sizeof(*device));
    if (device == NULL || entries > FAKE_EVENTS || fake_fails()) {
        free(device);
        return hoop_error(HOOP_OUT_OF_MEMORY, "%s has no %u entries", name, entries);
    }
    device->entries = entries;
    device->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_lock(&fake_lock);
    fake_counts.opened++;
    fake_counts.open++;
    pthread_mutex_unlock(&fake_lock);
    *ret = device;
    return HOOP_OK;
}

static int fake_close(struct hoop_verbs_device *device)
{
    pthread_mutex_lock(&fake_lock);
    fake_counts.open--;
    pthread_mutex_unlock(&fake_lock);
    close(device->fd);
    free(device);
    return fake_keeps ? EBUSY : 0;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static hoop_result_t fake_register(struct hoop_verbs_device *device, void *data, size_t bytes,
                                   struct hoop_verbs_memory *ret)
{
    (void)device;
    pthread_mutex_lock(&fake_lock);
    const bool refused =
        fake_refuses_memory || fake_fails() ||
        (fake_most_bytes > 0 && fake_counts.memory_bytes + bytes > fake_most_bytes);
    if (refused) {
        pthread_mutex_unlock(&fake_lock);
        return hoop_error(HOOP_OUT_OF_MEMORY, "registering %zu bytes: ENOMEM", bytes);
    }
    uint32_t i = 0;
    while (i < FAKE_MEMORIES - 1 && fake_memories[i].key != 0) {
        i++;
    }
    fake_memories[i] = (struct fake_memory){data, bytes, ++fake_keys};
    fake_counts.memories++;
    fake_counts.memory_bytes += bytes;
    *ret = (struct hoop_verbs_memory){&fake_memories[i], fake_keys, fake_keys, bytes};
    pthread_mutex_unlock(&fake_lock);
    return HOOP_OK;
}

static int fake_release(struct hoop_verbs_memory *memory)
{
    pthread_mutex_lock(&fake_lock);
    if (memory->handle != NULL) {
        ((struct fake_memory *)memory->handle)->key = 0;
        memory->handle = NULL;
        fake_counts.memories--;
        fake_counts.memory_bytes -= memory->bytes;
    }
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

static bool fake_is_inside(uint64_t address, uint64_t bytes, uint32_t key)
{
    for (uint32_t i = 0; i < FAKE_MEMORIES; i++) {
        const struct fake_memory *at = &fake_memories[i];
        const uint64_t base = (uintptr_t)at->data;
        if (at->key == key && key != 0) {
            return address >= base && address - base <= at->bytes &&
                   bytes <= at->bytes - (address - base);
        }
    }
    return false;
}

/* ---- Queues ---------------------------------------------------------------------------------- */

static hoop_result_t fake_create(struct hoop_verbs_device *device, struct hoop_verbs_depth *depth,
                                 struct hoop_verbs_queue **ret, uint32_t *ret_number)
{
    struct hoop_verbs_queue *queue = calloc(1, sizeof(*queue));
    struct fake_work *work = calloc(FAKE_DEPTH, sizeof(*work));
    if (queue == NULL || work == NULL || depth->receives > FAKE_DEPTH || fake_fails()) {
        free(queue);
        free(work);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a queue of %u", depth->sends);
    }
    depth->inline_bytes = FAKE_INLINE;
    queue->device = device;
    queue->depth = *depth;
    queue->work = work;
    pthread_mutex_lock(&fake_lock);
    do {
        queue->number = ++fake_numbers;
    } while (fake_queues[queue->number % FAKE_QUEUES] != NULL);
    fake_queues[queue->number % FAKE_QUEUES] = queue;
    fake_counts.queues++;
    pthread_mutex_unlock(&fake_lock);
    *ret = queue;
    *ret_number = queue->number;
    return HOOP_OK;
}

static struct hoop_verbs_queue *fake_find(uint32_t number)
{
    struct hoop_verbs_queue *queue = fake_queues[number % FAKE_QUEUES];
    return queue != NULL && queue->number == number ? queue : NULL;
}

static hoop_result_t fake_connect(struct hoop_verbs_queue *queue,
                                  const struct hoop_verbs_route *route)
{
    if (route->peer.gid[10] != 255 || route->peer.gid[11] != 255) {
        return hoop_error(HOOP_SYSTEM_ERROR, "no route to the peer's GID");
    }
    if (fake_fails()) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory to connect");
    }
    pthread_mutex_lock(&fake_lock);
    fake_route = *route;
    queue->peer = route->peer.number;
    queue->connected = true;
    pthread_mutex_unlock(&fake_lock);
    return HOOP_OK;
}

static int fake_destroy(struct hoop_verbs_queue *queue)
{
    if (queue != NULL) {
        pthread_mutex_lock(&fake_lock);
        fake_queues[queue->number % FAKE_QUEUES] = NULL;
        fake_counts.queues--;
        pthread_mutex_unlock(&fake_lock);
        free(queue->work);
        free(queue);
    }
    return queue != NULL && fake_keeps ? EBUSY : 0;
}

/* ---- Work ------------------------------------------------------------------------------------ */

static void fake_push(struct hoop_verbs_device *device, const struct hoop_verbs_event *event)
{
    assert(device->count < device->entries);
    device->events[(device->first + device->count++) % FAKE_EVENTS] = *event;
    if (device->armed) {
        const uint64_t one = 1;
        device->armed = false;
        const ssize_t wrote = write(device->fd, &one, sizeof(one));
        (void)wrote;
    }
}

/* After a work has failed all behind it fail, too, and so do the receives. */
static void fake_break(struct hoop_verbs_queue *queue, uint64_t id, int status)
{
    const struct hoop_verbs_event event = {.id = id, .status = status};
    queue->broken = true;
    queue->works = 0;
    fake_push(queue->device, &event);
    while (queue->receives > 0) {
        const struct hoop_verbs_event flushed = {
            .id = queue->receive[queue->first_receive++ % FAKE_DEPTH].id, .status = 5};
        queue->receives--;
        fake_push(queue->device, &flushed);
    }
}

/* Delivers one work. Returns its status. */
static int fake_deliver(struct hoop_verbs_queue *queue, const struct hoop_verbs_work *work)
{
    struct hoop_verbs_queue *peer = fake_find(queue->peer);
    const bool word = work->word_comes || !work->write;
    if (peer == NULL || !peer->connected || peer->broken || peer->peer != queue->number) {
        return FAKE_RETRIES;
    }
    if (work->write && work->bytes > 0) {
        if (!fake_is_inside(work->remote_address, work->bytes, work->remote_key)) {
            return FAKE_REMOTE_ACCESS;
        }
        memcpy((void *)(uintptr_t)work->remote_address, work->data, work->bytes);
    }
    if (!word) {
        return 0;
    }
    if (peer->receives == 0) {
        return FAKE_NO_RECEIVE;
    }
    const struct fake_receive *receive = &peer->receive[peer->first_receive++ % FAKE_DEPTH];
    peer->receives--;
    if (!work->write && work->bytes > 0) {
        assert(work->bytes <= receive->bytes);
        memcpy(receive->data, work->data, work->bytes);
    }
    const struct hoop_verbs_event event = {.id = receive->id,
                                           .has_word = work->word_comes,
                                           .word = work->word_comes ? work->word : 0xdeadbeef};
    fake_push(peer->device, &event);
    return 0;
}

static void fake_run(struct hoop_verbs_queue *queue)
{
    while (queue->works > 0 && !fake_holds && !fake_dies) {
        struct fake_work *first = &queue->work[queue->first_work % FAKE_DEPTH];
        struct hoop_verbs_work work = first->work;
        work.data = work.is_inline ? first->copy : work.data;
        const int status = fake_break_next != 0 ? fake_break_next : fake_deliver(queue, &work);
        fake_break_next = 0;
        if (status != 0) {
            fake_break(queue, work.id, status);
            return;
        }
        queue->first_work++;
        queue->works--;
        if (work.signaled) {
            const struct hoop_verbs_event event = {.id = work.id};
            queue->outstanding = queue->works;
            fake_push(queue->device, &event);
        }
    }
}

static int fake_send(struct hoop_verbs_queue *queue, const struct hoop_verbs_work *works,
                     uint32_t count)
{
    pthread_mutex_lock(&fake_lock);
    int err = fake_fails() ? ENOMEM : 0;
    fake_counts.sends++;
    for (uint32_t i = 0; i < count && err == 0; i++) {
        if (queue->outstanding == queue->depth.sends || queue->works == FAKE_DEPTH) {
            err = ENOMEM;
            break;
        }
        struct fake_work *at = &queue->work[(queue->first_work + queue->works) % FAKE_DEPTH];
        at->work = works[i];
        if (works[i].is_inline) {
            assert(works[i].bytes <= FAKE_INLINE);
            memcpy(at->copy, works[i].data, works[i].bytes);
        } else if (works[i].bytes > 0) {
            assert(fake_is_inside((uintptr_t)works[i].data, works[i].bytes, works[i].local_key));
        }
        if (!queue->broken) {
            queue->works++;
            queue->outstanding++;
        }
        fake_counts.writes += works[i].write;
        fake_counts.words += works[i].word_comes;
        fake_counts.signaled += works[i].signaled;
    }
    fake_run(queue);
    pthread_mutex_unlock(&fake_lock);
    return err;
}

static int fake_receive(struct hoop_verbs_queue *queue, uint64_t id, void *data, uint32_t bytes,
                        uint32_t local_key)
{
    pthread_mutex_lock(&fake_lock);
    const bool room = queue->receives < queue->depth.receives && !fake_fails();
    assert(fake_is_inside((uintptr_t)data, bytes, local_key));
    (void)local_key;
    if (room && !queue->broken) {
        queue->receive[(queue->first_receive + queue->receives++) % FAKE_DEPTH] =
            (struct fake_receive){id, data, bytes};
    }
    pthread_mutex_unlock(&fake_lock);
    return room ? 0 : ENOMEM;
}

/* Looks for events; first runs what was held, of all queues. */
static int fake_take(struct hoop_verbs_device *device, struct hoop_verbs_event *ret_events,
                     int most)
{
    int came = 0;
    pthread_mutex_lock(&fake_lock);
    for (uint32_t i = 0; i < FAKE_QUEUES; i++) {
        if (fake_queues[i] != NULL) {
            fake_run(fake_queues[i]);
        }
    }
    while (came < most && device->count > 0) {
        ret_events[came++] = device->events[device->first++ % FAKE_EVENTS];
        device->count--;
    }
    pthread_mutex_unlock(&fake_lock);
    return came;
}

static bool fake_arm(struct hoop_verbs_device *device)
{
    pthread_mutex_lock(&fake_lock);
    device->armed = true;
    pthread_mutex_unlock(&fake_lock);
    return true;
}

static bool fake_disarm(struct hoop_verbs_device *device)
{
    uint64_t count = 0;
    return read(device->fd, &count, sizeof(count)) == sizeof(count);
}

static int fake_watch_fd(struct hoop_verbs_device *device)
{
    return device->fd;
}

static hoop_result_t fake_check(struct hoop_verbs_device *device)
{
    (void)device;
    return fake_dies ? hoop_error(HOOP_SYSTEM_ERROR, "the device said: it dies") : HOOP_OK;
}

static void fake_explain(struct hoop_verbs_device *device, const struct hoop_verbs_event *event,
                         char *buf, size_t bytes)
{
    (void)device;
    snprintf(buf, bytes, "fake status (verbs status %d)", event->status);
}

const struct hoop_verbs fake_verbs = {
    .ports = fake_list,
    .open = fake_open,
    .close = fake_close,
    .register_memory = fake_register,
    .release_memory = fake_release,
    .create_queue = fake_create,
    .connect_queue = fake_connect,
    .destroy_queue = fake_destroy,
    .send = fake_send,
    .receive = fake_receive,
    .take = fake_take,
    .arm = fake_arm,
    .disarm = fake_disarm,
    .watch_fd = fake_watch_fd,
    .check = fake_check,
    .explain = fake_explain,
};

void fake_drop_ipc_lock(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, caps) == 0) {
        caps[0].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
        (void)syscall(SYS_capset, &header, caps);
    }
}
