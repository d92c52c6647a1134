/* The links of a comm (see comm_links.h). */
#include "comm_links.h"

#include "base/clock.h"
#include "base/log.h"
#include "watch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Staging buffers of a link: one being filled, one being read, two on the way. */
#define COMM_LINK_SLOTS 4u
/* So long a link of a rank that has left may take to show up. */
#define COMM_LEFT_PATIENCE_NS HOOP_NS_PER_S

/* Something for the driver lies in the comm: it looks again. */
static void links_wake_driver(const struct hoop_comm *comm)
{
    const uint64_t one = 1;
    ssize_t ignored = write(comm->sleeper.wake_fd, &one, sizeof(one));
    (void)ignored;
}

void hoop_comm_on_blob(void *arg, uint32_t from, uint32_t lane, bool from_sends,
                       const struct hoop_blob *blob)
{
    struct hoop_comm *comm = arg;
    struct hoop_comm_blob *item = malloc(sizeof(*item));
    if (item == NULL) {
        hoop_comm_raise(comm, HOOP_OUT_OF_MEMORY, (int)comm->rank,
                        "rank %u has no memory for a link", comm->rank);
        return;
    }
    *item = (struct hoop_comm_blob){
        .from = from, .lane = lane, .from_sends = from_sends, .blob = *blob};
    pthread_mutex_lock(&comm->inbox_lock);
    item->next = comm->inbox;
    comm->inbox = item;
    pthread_mutex_unlock(&comm->inbox_lock);
    links_wake_driver(comm);
}

void hoop_comm_on_fetched(void *arg, uint32_t rank, uint64_t region_id, uint32_t generation,
                          const struct hoop_failure *failure)
{
    struct hoop_comm *comm = arg;
    struct hoop_comm_answer *item = calloc(1, sizeof(*item));
    if (item == NULL) {
        hoop_comm_raise(comm, HOOP_OUT_OF_MEMORY, (int)comm->rank,
                        "rank %u has no memory for an answer", comm->rank);
        return;
    }
    item->peer = rank;
    item->region = region_id;
    item->generation = generation;
    if (failure != NULL) {
        item->failure = *failure;
    }
    pthread_mutex_lock(&comm->inbox_lock);
    item->next = comm->answers;
    comm->answers = item;
    pthread_mutex_unlock(&comm->inbox_lock);
    links_wake_driver(comm);
}

void hoop_comm_on_stream(void *arg, uint32_t rank, uint32_t lane, bool sending, int fd,
                         const struct hoop_failure *failure)
{
    struct hoop_comm *comm = arg;
    struct hoop_comm_stream *item = calloc(1, sizeof(*item));
    if (item == NULL) {
        hoop_fork_close(fd);
        hoop_comm_raise(comm, HOOP_OUT_OF_MEMORY, (int)comm->rank,
                        "rank %u has no memory for a link", comm->rank);
        return;
    }
    *item = (struct hoop_comm_stream){.peer = rank, .lane = lane, .sending = sending, .fd = fd};
    if (failure != NULL) {
        item->failure = *failure;
    }
    pthread_mutex_lock(&comm->inbox_lock);
    item->next = comm->streams;
    comm->streams = item;
    pthread_mutex_unlock(&comm->inbox_lock);
    links_wake_driver(comm);
}

bool hoop_comm_fetch_answered(void *arg, uint32_t peer, uint64_t region, uint32_t generation,
                              struct hoop_failure *ret)
{
    struct hoop_comm *comm = arg;
    bool found = false;
    pthread_mutex_lock(&comm->inbox_lock);
    struct hoop_comm_answer **at = &comm->answers;
    while (*at != NULL && !found) {
        struct hoop_comm_answer *item = *at;
        found = item->peer == peer && item->region == region && item->generation == generation;
        if (found) {
            *ret = item->failure;
            *at = item->next;
            free(item);
        } else {
            at = &item->next;
        }
    }
    pthread_mutex_unlock(&comm->inbox_lock);
    return found;
}

void hoop_comm_inbox_finish(struct hoop_comm *comm)
{
    while (comm->answers != NULL) {
        struct hoop_comm_answer *item = comm->answers;
        comm->answers = item->next;
        free(item);
    }
    while (comm->inbox != NULL) {
        struct hoop_comm_blob *item = comm->inbox;
        comm->inbox = item->next;
        free(item);
    }
    while (comm->streams != NULL) {
        struct hoop_comm_stream *item = comm->streams;
        comm->streams = item->next;
        hoop_fork_close(item->fd);
        free(item);
    }
}

/* The blob of the other end of a link; it stays in the inbox until the comm ends. */
static bool links_find_blob(struct hoop_comm *comm, const struct hoop_comm_link *mine,
                            struct hoop_blob *ret)
{
    bool found = false;
    pthread_mutex_lock(&comm->inbox_lock);
    for (const struct hoop_comm_blob *item = comm->inbox; item != NULL && !found;
         item = item->next) {
        if (item->from == mine->peer && item->lane == mine->lane &&
            item->from_sends != mine->sending) {
            *ret = item->blob;
            found = true;
        }
    }
    pthread_mutex_unlock(&comm->inbox_lock);
    return found;
}

static struct hoop_comm_import *links_import_of(struct hoop_comm *comm, uint32_t peer,
                                                uint64_t region, uint32_t generation)
{
    for (uint32_t i = 0; i < comm->n_imports; i++) {
        struct hoop_comm_import *import = &comm->imports[i];
        if (import->peer == peer && import->region == region && import->generation == generation) {
            return import;
        }
    }
    struct hoop_comm_import *grown = realloc(comm->imports, (comm->n_imports + 1) * sizeof(*grown));
    if (grown == NULL) {
        return NULL;
    }
    comm->imports = grown;
    grown[comm->n_imports] =
        (struct hoop_comm_import){.peer = peer, .region = region, .generation = generation};
    hoop_member_fetch(comm->member, peer, region, generation);
    return &comm->imports[comm->n_imports++];
}

/* hoop_link_params.import: maps the region that a link lives in, once. */
static hoop_result_t links_import(void *arg, uint32_t peer, uint64_t region, uint32_t generation,
                                  void **ret_base, uint64_t *ret_bytes)
{
    struct hoop_comm *comm = arg;
    const uint64_t process = comm->board.peers[peer].process;
    hoop_result_t result = hoop_region_use(process, region, generation, ret_base, ret_bytes);
    if (result != HOOP_OK && result != HOOP_AGAIN) {
        return result;
    }
    struct hoop_comm_import *import = links_import_of(comm, peer, region, generation);
    if (import == NULL) {
        if (result == HOOP_OK) {
            hoop_region_unuse(process, region, generation);
        }
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a link with rank %u", peer);
    }
    if (result == HOOP_OK) {
        if (import->used) {
            hoop_region_unuse(process, region, generation); /* one use is enough */
        }
        import->used = true;
    }
    struct hoop_failure answer;
    if (result == HOOP_AGAIN && hoop_comm_fetch_answered(comm, peer, region, generation, &answer)) {
        if (answer.code != HOOP_OK) {
            return hoop_error(answer.code, "memory of rank %u: %s", peer, answer.text);
        }
        hoop_member_fetch(comm->member, peer, region, generation); /* came, and was forgotten */
    }
    return result;
}

/* hoop_link_params.dock */
static hoop_result_t links_dock(void *arg, struct hoop_address *ret)
{
    const struct hoop_comm *comm = arg;
    return hoop_member_dock(comm->member, ret);
}

/* The connection of a link, moved out of the inbox; NULL: not there. The caller frees it. */
static struct hoop_comm_stream *links_take_stream(struct hoop_comm *comm, uint32_t peer,
                                                  uint32_t lane, bool sending)
{
    pthread_mutex_lock(&comm->inbox_lock);
    struct hoop_comm_stream **at = &comm->streams;
    while (*at != NULL &&
           ((*at)->peer != peer || (*at)->lane != lane || (*at)->sending != sending)) {
        at = &(*at)->next;
    }
    struct hoop_comm_stream *item = *at;
    if (item != NULL) {
        *at = item->next;
    }
    pthread_mutex_unlock(&comm->inbox_lock);
    return item;
}

static struct hoop_comm_link *links_find(const struct hoop_comm *comm, uint32_t peer, uint32_t lane,
                                         bool sending)
{
    for (uint32_t i = 0; i < comm->n_links; i++) {
        struct hoop_comm_link *link = &comm->links[i];
        if (link->peer == peer && link->lane == lane && link->sending == sending) {
            return link;
        }
    }
    return NULL;
}

/* hoop_link_params.stream: the sender dials, once. */
static hoop_result_t links_stream(void *arg, uint32_t peer, uint32_t lane, bool sending,
                                  const struct hoop_address *address, int *ret_fd)
{
    struct hoop_comm *comm = arg;
    struct hoop_comm_link *link = links_find(comm, peer, lane, sending);
    if (link != NULL && sending && !link->dialled) {
        link->dialled = true;
        hoop_member_dial(comm->member, peer, lane, address);
    }
    struct hoop_comm_stream *item = links_take_stream(comm, peer, lane, sending);
    if (item == NULL) {
        return HOOP_AGAIN;
    }
    hoop_result_t result = HOOP_OK;
    if (item->fd < 0) {
        result = hoop_error(item->failure.code, "%s", item->failure.text);
    } else {
        *ret_fd = item->fd;
    }
    free(item);
    return result;
}

static void links_wake(void *arg, uint32_t peer)
{
    struct hoop_comm *comm = arg;
    hoop_board_notify(&comm->board, peer);
}

static hoop_result_t links_create(struct hoop_comm *comm, struct hoop_comm_link *link)
{
    const struct hoop_peer *peer = &comm->board.peers[link->peer];
    const struct hoop_link_params params = {
        .comm_id = hoop_member_roster(comm->member)->comm_id,
        .epoch = hoop_member_roster(comm->member)->epoch,
        .me = comm->rank,
        .peer = link->peer,
        .lane = link->lane,
        .sending = link->sending,
        .slots = COMM_LINK_SLOTS,
        .chunk_bytes = comm->agreed.chunk_bytes,
        .check = comm->agreed.check,
        .buffer_bytes = hoop_settings()->socket_buffer_bytes,
        .dock = links_dock,
        .stream = links_stream,
        .import = links_import,
        .wake = links_wake,
        .arg = comm,
    };
    struct hoop_blob blob;
    const struct hoop_transport *transport =
        comm->agreed.transport == HOOP_TRANSPORT_TCP
            ? hoop_transport_named("tcp")
            : hoop_transport_for(peer->same_process, peer->same_machine);
    struct hoop_failure *failure = &comm->operation.failure;
    if (transport == NULL) {
        return hoop_failure_set(failure, HOOP_INTERNAL_ERROR, (int)link->peer,
                                "no transport reaches rank %u", link->peer);
    }
    const hoop_result_t result = hoop_link_create(transport, &params, &link->link, &blob, failure);
    if (result == HOOP_OK) {
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_NET, "rank %u: lane %u %s rank %u over %s", comm->rank,
                 link->lane, link->sending ? "to" : "from", link->peer, transport->name);
        hoop_member_send_blob(comm->member, link->peer, link->lane, link->sending, &blob);
    }
    return result;
}

/* The comm's link of these properties, created if there is none; NULL: see the operation's failure.
 */
static struct hoop_comm_link *links_get(struct hoop_comm *comm, uint32_t peer, uint32_t lane,
                                        bool sending)
{
    struct hoop_comm_link *known = links_find(comm, peer, lane, sending);
    if (known != NULL) {
        return known;
    }
    struct hoop_comm_link *grown = realloc(comm->links, (comm->n_links + 1) * sizeof(*grown));
    if (grown == NULL) {
        hoop_failure_set(&comm->operation.failure, HOOP_OUT_OF_MEMORY, (int)comm->rank,
                         "rank %u has no memory for a link", comm->rank);
        return NULL;
    }
    comm->links = grown;
    struct hoop_comm_link *link = &grown[comm->n_links];
    *link = (struct hoop_comm_link){.peer = peer, .lane = lane, .sending = sending};
    if (links_create(comm, link) != HOOP_OK) {
        return NULL;
    }
    comm->n_links++;
    return link;
}

/* Its socket, if it has one, wakes the driver from now on. */
static hoop_result_t links_watch(struct hoop_comm *comm, struct hoop_link *link)
{
    const int fd = hoop_link_watch_fd(link);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    if (fd < 0) {
        return HOOP_OK;
    }
    comm->sleeper.has_sockets = true;
    if (epoll_ctl(comm->sleeper.epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        const int err = errno;
        return hoop_error(hoop_from_errno(err), "epoll_ctl: %s", hoop_errno_name(err));
    }
    return HOOP_OK;
}

hoop_result_t hoop_comm_link(void *arg, uint32_t peer, uint32_t lane, bool sending,
                             struct hoop_link **ret_link)
{
    struct hoop_comm *comm = arg;
    struct hoop_comm_link *link = links_get(comm, peer, lane, sending);
    if (link == NULL) {
        return comm->operation.failure.code;
    }
    if (!link->link->bound) {
        struct hoop_blob blob;
        if (!links_find_blob(comm, link, &blob)) {
            return HOOP_AGAIN;
        }
        hoop_result_t bound = hoop_link_bind(link->link, &blob);
        if (bound == HOOP_AGAIN) {
            return HOOP_AGAIN;
        }
        bound = bound == HOOP_OK ? links_watch(comm, link->link) : bound;
        if (bound != HOOP_OK) {
            const bool told = link->link->failure.code != HOOP_OK;
            return hoop_failure_set(&comm->operation.failure, bound, (int)peer,
                                    "the link with rank %u (lane %u): %s", peer, lane,
                                    told ? link->link->failure.text : hoop_thread_error());
        }
    }
    *ret_link = link->link;
    return HOOP_OK;
}

bool hoop_comm_link_may_come(struct hoop_comm *comm)
{
    const uint64_t now = hoop_now_ns();
    comm->left_ns = comm->left_ns != 0 ? comm->left_ns : now;
    return comm->operation.env.over_links && now - comm->left_ns < COMM_LEFT_PATIENCE_NS;
}

void hoop_comm_links_finish(struct hoop_comm *comm, bool failed)
{
    for (uint32_t i = 0; i < comm->n_links; i++) {
        if (failed) {
            hoop_link_abandon(comm->links[i].link);
        } else {
            hoop_link_destroy(comm->links[i].link);
        }
    }
    for (uint32_t i = 0; i < comm->n_imports; i++) {
        const struct hoop_comm_import *import = &comm->imports[i];
        if (import->used) {
            hoop_region_unuse(comm->board.peers[import->peer].process, import->region,
                              import->generation);
        }
    }
    free(comm->links);
    free(comm->imports);
    comm->links = NULL;
    comm->imports = NULL;
    comm->n_links = comm->n_imports = 0;
}
