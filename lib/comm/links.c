/*
 * The links of a comm (see links.h), in a table by peer, lane and direction: the engine looks one
 * up at every step. A peer's row is allocated with the first link to that peer.
 */
#include "comm/links.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "exec/engine.h"
#include "memory/region.h"
#include "net/flight.h"
#include <assert.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Slots of a link: one is being filled, one is being read, two are on the way. */
#define LINKS_SLOTS 4u
/* For sends and receives: so much that what is written again has left the reader's cache, as long
 * as a rank's links to all others do not have more than the second figure together. Rings, which
 * fold what they have received, lose by it. */
#define LINKS_ROUND_BYTES ((uint64_t)2 << 20)
#define LINKS_ROUNDS_BYTES ((uint64_t)16 << 20)
/* The lanes of collectives, and the one of sends and receives. */
#define LINKS_LANES (HOOP_TRANSFER_LANE + 1u)
#define LINKS_LOOKS 10u     /* how often the sockets are looked at in dead_after_ms */
#define LINKS_LOOKS_LATE 3u /* after this many missed looks: this process itself was stopped */

/* One link, from the first request for it on. */
struct links_entry {
    struct hoop_links *links;
    struct hoop_link *link;      /* NULL: not made yet */
    struct hoop_event *blob;     /* the other end's blob, until the link is bound */
    struct hoop_mapping mapping; /* the region that the link lives in, if a peer made it */
    bool dialled;                /* its data connection was requested */
    uint64_t landed_bytes;       /* bytes that the peer had acknowledged at landed_ns */
    uint64_t landed_ns;
};

struct links_row {
    struct links_entry entries[LINKS_LANES][2]; /* by lane; receiving, sending */
};

hoop_result_t hoop_links_init(struct hoop_links *links, const struct hoop_links_env *env)
{
    const uint32_t n = env->board->n;
    links->env = *env;
    links->rows = calloc(n, sizeof(struct links_row *));
    return links->rows != NULL ? HOOP_OK
                               : hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %u peers", n);
}

static void links_each(struct hoop_links *links,
                       void (*fn)(struct links_entry *entry, uint64_t arg), uint64_t arg)
{
    for (uint32_t rank = 0; links->rows != NULL && rank < links->env.board->n; rank++) {
        struct links_row *row = links->rows[rank];
        for (uint32_t i = 0; row != NULL && i < 2 * LINKS_LANES; i++) {
            fn(&row->entries[i / 2][i % 2], arg);
        }
    }
}

static void links_leave_entry(struct links_entry *entry, uint64_t deadline_ns)
{
    hoop_link_leave(entry->link, deadline_ns);
}

static void links_finish_entry(struct links_entry *entry, uint64_t patience_ms)
{
    if (patience_ms == 0) {
        hoop_link_abandon(entry->link);
    } else {
        hoop_link_destroy(entry->link);
    }
    hoop_mapping_finish(&entry->mapping);
    free(entry->blob);
}

void hoop_links_finish(struct hoop_links *links, uint64_t patience_ms)
{
    if (patience_ms > 0) { /* all links say goodbye at once, before one deadline */
        links_each(links, links_leave_entry, hoop_deadline_ns(patience_ms));
    }
    links_each(links, links_finish_entry, patience_ms);
    for (uint32_t rank = 0; links->rows != NULL && rank < links->env.board->n; rank++) {
        free(links->rows[rank]);
    }
    free(links->rows);
    links->rows = NULL;
}

/* ---- Callbacks of a transport; arg is the entry -------------------------------------------- */

bool hoop_links_answered(void *arg, uint32_t rank, uint64_t region, uint32_t generation,
                         struct hoop_failure *ret)
{
    struct hoop_events *events = arg;
    const struct hoop_event key = {
        .kind = HOOP_EVENT_ANSWER, .rank = rank, .id = region, .part = generation};
    if (ret == NULL) {
        hoop_events_drop(events, &key);
        return true;
    }
    struct hoop_event *answer = hoop_events_take(events, &key);
    if (answer == NULL) {
        return false;
    }
    *ret = answer->failure;
    free(answer);
    return true;
}

/* hoop_link_params.import: maps the region that the link lives in. */
static hoop_result_t links_import(void *arg, uint32_t peer, uint64_t region, uint32_t generation,
                                  void **ret_base, uint64_t *ret_bytes)
{
    struct links_entry *entry = arg;
    const struct hoop_links_env *env = &entry->links->env;
    const struct hoop_mapping_env maps = {.member = env->member,
                                          .peers = env->board->peers,
                                          .answered = hoop_links_answered,
                                          .arg = env->events};
    const hoop_result_t result =
        hoop_mapping_poll(&maps, &entry->mapping, peer, region, generation, ret_base, ret_bytes);
    const struct hoop_mapping *use = &entry->mapping;
    return result == HOOP_OK && hoop_region_kind(use->process, region, generation) != HOOP_MEM_HOST
               ? hoop_error(HOOP_REMOTE_ERROR,
                            "rank %u has its link in device memory, expected host memory", peer)
               : result;
}

/* hoop_link_params.data_address */
static hoop_result_t links_data_address(void *arg, uint32_t peer, uint32_t lane,
                                        struct hoop_address *ret)
{
    const struct links_entry *entry = arg;
    return hoop_member_data_address(entry->links->env.member, peer, lane, ret);
}

/* hoop_link_params.stream: the sender's end dials, once. */
static hoop_result_t links_stream(void *arg, uint32_t peer, uint32_t lane, bool sending,
                                  const struct hoop_address *address, int *ret_fd,
                                  struct hoop_secret *ret_key)
{
    struct links_entry *entry = arg;
    const struct hoop_links_env *env = &entry->links->env;
    const struct hoop_event key = {
        .kind = HOOP_EVENT_SOCKET, .rank = peer, .id = lane, .part = sending};
    if (sending && !entry->dialled) {
        entry->dialled = true;
        hoop_member_dial(env->member, peer, lane, address);
    }
    struct hoop_event *event = hoop_events_take(env->events, &key);
    if (event == NULL) {
        return HOOP_AGAIN;
    }
    hoop_result_t result = HOOP_OK;
    if (event->fd < 0) {
        result = hoop_error(event->failure.code, "%s", event->failure.text);
    } else {
        *ret_fd = event->fd;
        *ret_key = event->key;
    }
    hoop_secret_wipe(&event->key, sizeof(event->key));
    free(event);
    return result;
}

/* hoop_link_params.tell */
static void links_tell(void *arg, uint32_t peer, uint32_t lane, bool sending,
                       const struct hoop_blob *blob)
{
    const struct links_entry *entry = arg;
    hoop_member_send_blob(entry->links->env.member, peer, lane, sending, blob);
}

/* hoop_link_params.hear: the blobs after the first, with which the link was bound. */
static bool links_hear(void *arg, uint32_t peer, uint32_t lane, bool sending, struct hoop_blob *ret)
{
    const struct links_entry *entry = arg;
    const struct hoop_event key = {
        .kind = HOOP_EVENT_BLOB, .rank = peer, .id = lane, .part = sending};
    struct hoop_event *event = hoop_events_take(entry->links->env.events, &key);
    if (event == NULL) {
        return false;
    }
    *ret = event->blob;
    free(event);
    return true;
}

/* hoop_link_params.wake */
static void links_wake(void *arg, uint32_t peer)
{
    const struct links_entry *entry = arg;
    hoop_board_notify(entry->links->env.board, peer);
}

/* ---- Making one ----------------------------------------------------------------------------- */

/* The entry of a link, whose row is allocated if necessary. NULL: no memory. */
static struct links_entry *links_entry(struct hoop_links *links, uint32_t peer, uint32_t lane,
                                       bool sending)
{
    if (links->rows[peer] == NULL) {
        links->rows[peer] = calloc(1, sizeof(struct links_row));
        if (links->rows[peer] == NULL) {
            return NULL;
        }
    }
    struct links_entry *entry = &links->rows[peer]->entries[lane][sending];
    entry->links = links;
    return entry;
}

static const struct hoop_transport *links_transport(const struct hoop_agreement *agreed,
                                                    const struct hoop_peer *other)
{
    if (agreed->transport == HOOP_TRANSPORT_TCP) {
        return hoop_transport_named("tcp");
    }
    const bool between = !other->same_process && !other->same_machine && agreed->no_rdma == 0;
    return agreed->transport == HOOP_TRANSPORT_RDMA || between
               ? hoop_transport_named("rdma")
               : hoop_transport_for(other->same_process, other->same_machine);
}

/* How many ranks below this one are on this machine. */
static uint32_t links_local(const struct hoop_board *board)
{
    uint32_t local = 0;
    for (uint32_t rank = 0; rank < board->me; rank++) {
        local += board->peers[rank].same_machine;
    }
    return local;
}

static uint64_t links_round_bytes(uint32_t n, uint32_t lane)
{
    const uint64_t each = LINKS_ROUNDS_BYTES / (n - 1);
    return lane != HOOP_TRANSFER_LANE ? 0 : each < LINKS_ROUND_BYTES ? each : LINKS_ROUND_BYTES;
}

static hoop_result_t links_create(struct links_entry *entry, uint32_t peer, uint32_t lane,
                                  bool sending)
{
    const struct hoop_links_env *env = &entry->links->env;
    const struct hoop_roster *roster = hoop_member_roster(env->member);
    const struct hoop_peer *other = &env->board->peers[peer];
    const struct hoop_link_params params = {
        .comm_id = roster->comm_id,
        .me = env->board->me,
        .peer = peer,
        .lane = lane,
        .sending = sending,
        .slots = LINKS_SLOTS,
        .round_bytes = links_round_bytes(env->board->n, lane),
        .chunk_bytes = env->agreed->chunk_bytes,
        .check = env->agreed->check,
        .buffer_bytes = hoop_settings()->socket_buffer_bytes,
        .data_address = links_data_address,
        .stream = links_stream,
        .tell = links_tell,
        .hear = links_hear,
        .local = links_local(env->board),
        .turn = lane == HOOP_TRANSFER_LANE ? env->board->me + peer : lane,
        .sleeping = env->sleeper->sleeping,
        .import = links_import,
        .wake = links_wake,
        .arg = entry,
    };
    struct hoop_blob blob;
    const struct hoop_transport *transport = links_transport(env->agreed, other);
    if (transport == NULL) {
        return hoop_failure_set(env->failure, HOOP_INTERNAL_ERROR, (int)peer,
                                "rank %u has no transport that reaches rank %u", params.me, peer);
    }
    const hoop_result_t result =
        hoop_link_create(transport, &params, &entry->link, &blob, env->failure);
    if (result == HOOP_OK) {
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_NET, "rank %u: lane %u %s rank %u over %s", params.me,
                 lane, sending ? "to" : "from", peer, transport->name);
        hoop_member_send_blob(env->member, peer, lane, sending, &blob);
    }
    return result;
}

static hoop_result_t links_epoll_error(void)
{
    return hoop_errno_error(errno, "cannot watch the sockets of a communicator");
}

/* Makes the driver's epoll set, for it and the sockets: until now it slept on its eventfd alone. */
static hoop_result_t links_add_set(struct hoop_sleeper *sleeper)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, sleeper->wake_fd, &event) != 0) {
        const hoop_result_t result = links_epoll_error();
        if (set >= 0) {
            close(set);
        }
        return result;
    }
    sleeper->poll_fd = set;
    sleeper->has_sockets = true;
    return HOOP_OK;
}

/* Lets the link's socket, if it has one, wake the driver. */
static hoop_result_t links_watch(struct hoop_sleeper *sleeper, struct hoop_link *link)
{
    const int fd = hoop_link_watch_fd(link);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    if (fd < 0) {
        return HOOP_OK;
    }
    const hoop_result_t result = sleeper->has_sockets ? HOOP_OK : links_add_set(sleeper);
    if (result != HOOP_OK) {
        return result;
    }
    const bool added = epoll_ctl(sleeper->poll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
    /* another link of the comm may use the same descriptor */
    return added || errno == EEXIST ? HOOP_OK : links_epoll_error();
}

static hoop_result_t links_bind(struct links_entry *entry, uint32_t peer, uint32_t lane,
                                bool sending)
{
    const struct hoop_links_env *env = &entry->links->env;
    const struct hoop_event key = {
        .kind = HOOP_EVENT_BLOB, .rank = peer, .id = lane, .part = sending};
    if (entry->blob == NULL) {
        entry->blob = hoop_events_take(env->events, &key);
    }
    if (entry->blob == NULL) {
        return HOOP_AGAIN;
    }
    hoop_result_t bound = hoop_link_bind(entry->link, &entry->blob->blob);
    if (bound == HOOP_AGAIN) {
        return HOOP_AGAIN;
    }
    free(entry->blob);
    entry->blob = NULL;
    bound = bound == HOOP_OK ? links_watch(env->sleeper, entry->link) : bound;
    if (bound != HOOP_OK) {
        const bool told = entry->link->failure.code != HOOP_OK;
        const int culprit = told ? entry->link->failure.rank : (int)env->board->me;
        hoop_failure_set(env->failure, bound, culprit,
                         "the link of rank %u with rank %u (lane %u): %s", env->board->me, peer,
                         lane, told ? entry->link->failure.text : hoop_thread_error());
    }
    return bound;
}

/* Makes and binds the link. HOOP_AGAIN: not complete yet. */
static hoop_result_t links_make(struct links_entry *entry, uint32_t peer, uint32_t lane,
                                bool sending)
{
    const hoop_result_t result =
        entry->link != NULL ? HOOP_OK : links_create(entry, peer, lane, sending);
    assert(result != HOOP_OK || entry->link != NULL);
    return result == HOOP_OK ? links_bind(entry, peer, lane, sending) : result;
}

hoop_result_t hoop_links_get(void *arg, uint32_t peer, uint32_t lane, bool sending,
                             struct hoop_link **ret_link)
{
    struct hoop_links *links = arg;
    struct links_entry *entry = links_entry(links, peer, lane, sending);
    if (entry == NULL) {
        return hoop_failure_set(links->env.failure, HOOP_OUT_OF_MEMORY, (int)links->env.board->me,
                                "rank %u has no memory for a link", links->env.board->me);
    }
    hoop_result_t result = HOOP_OK;
    if (entry->link == NULL || !entry->link->bound) {
        const int before = hoop_cancel_off(); /* transfers come here with cancellation enabled */
        result = links_make(entry, peer, lane, sending);
        hoop_cancel_restore(before);
    }
    if (result == HOOP_OK) {
        *ret_link = entry->link;
    }
    return result;
}

/* ---- Lost packets ---------------------------------------------------------------------------- */

/* For how long in this wait the peer has acknowledged nothing, though bytes are unacknowledged; 0:
 * all is well. */
static uint64_t links_stuck_ns(struct links_entry *entry, uint64_t now, uint64_t *ret_bytes)
{
    const int fd = hoop_link_watch_fd(entry->link);
    struct hoop_flight flight = {0};
    const bool flies = fd >= 0 && hoop_flight_look(fd, &flight) && flight.bytes > 0;
    if (!flies || flight.landed_bytes != entry->landed_bytes || entry->landed_ns == 0) {
        entry->landed_bytes = flight.landed_bytes;
        entry->landed_ns = now;
        return 0;
    }
    const uint64_t waited = entry->links->waited_ns;
    *ret_bytes = flight.bytes;
    return now - (entry->landed_ns > waited ? entry->landed_ns : waited);
}

static bool links_is_stuck(struct links_entry *entry, uint32_t rank, uint64_t now,
                           uint64_t dead_after_ms, struct hoop_failure *ret)
{
    uint64_t bytes = 0;
    if (entry->link != NULL && entry->link->failure.code != HOOP_OK) {
        const struct hoop_failure *failure = &entry->link->failure;
        hoop_failure_set(ret, failure->code, failure->rank, "%s", failure->text);
        return true;
    }
    /* The first look of a wait makes no system call: few operations wait until a second one. */
    const bool asks = entry->link != NULL && now > entry->links->waited_ns;
    const uint64_t ms = asks ? links_stuck_ns(entry, now, &bytes) / HOOP_NS_PER_MS : 0;
    if (ms <= dead_after_ms) {
        return false;
    }
    char who[160];
    hoop_peer_describe(&entry->links->env.board->peers[rank], rank, who, sizeof(who));
    hoop_failure_set(ret, HOOP_REMOTE_ERROR, (int)rank,
                     "%s has acknowledged nothing for %llu ms, %llu bytes "
                     "are on the way to it from rank %u: does the network lose packets, or only "
                     "large ones (an MTU that is too large for the path)?",
                     who, (unsigned long long)ms, (unsigned long long)bytes,
                     entry->links->env.board->me);
    return true;
}

bool hoop_links_are_stuck(struct hoop_links *links, uint64_t dead_after_ms,
                          struct hoop_failure *ret)
{
    const uint64_t now = hoop_now_ns();
    const uint64_t pause = dead_after_ms * HOOP_NS_PER_MS / LINKS_LOOKS;
    if (now - links->looked_ns < pause) {
        return false;
    }
    if (now - links->looked_ns > LINKS_LOOKS_LATE * pause) {
        links->waited_ns = now;
    }
    links->looked_ns = now;
    bool stuck = false;
    for (uint32_t rank = 0; rank < links->env.board->n && !stuck; rank++) {
        struct links_row *row = links->rows[rank];
        for (uint32_t lane = 0; row != NULL && lane < LINKS_LANES && !stuck; lane++) {
            stuck = links_is_stuck(&row->entries[lane][true], rank, now, dead_after_ms, ret);
        }
    }
    return stuck;
}
