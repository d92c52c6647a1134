/* See link_pair.h. */
#include "transports/link_pair.h"
#include "base/clock.h"
#include "fakes/fake_verbs.h"
#include "fakes/faulty.h"
#include "memory/region.h"
#include "runtime/wait.h"
#include "runtime/watch.h"
#include "transports/rdma.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIR_TRIES 2000
#define PAIR_DEADLINE_MS 20000
/* Small enough to be full after a few chunks, with segments as on Ethernet: those of the loopback
 * interface are larger than such a buffer, and would wait for timers. */
#define PAIR_BUFFER_BYTES 4096
#define PAIR_SEGMENT_BYTES 1448

_Thread_local unsigned item_turns;

static void pair_region_died(uint64_t id, uint32_t generation)
{
    hoop_region_forget(PAIR_OTHER_PROCESS, id, generation);
}

bool pair_has_device(void)
{
    return getenv("HOOP_TEST_RDMA_DEVICE") != NULL;
}

const struct hoop_transport *pair_transport(int argc, char **argv)
{
    const struct hoop_transport *const *at = hoop_transports;
    while (*at != NULL && (argc < 2 || strcmp((*at)->name, argv[1]) != 0)) {
        at++;
    }
    hoop_region_on_death(pair_region_died);
    if (*at != NULL && strcmp((*at)->name, "rdma") == 0 && !pair_has_device()) {
        hoop_rdma_verbs = &fake_verbs;
    }
    const bool faulty = argc == 3 && strcmp(argv[2], "faulty") == 0;
    if (*at == NULL || argc > 3 || (argc == 3 && !faulty)) {
        return NULL;
    }
    if (!faulty) {
        return *at;
    }
    const struct faulty_config faults = {
        .seed = 11, .again_every = 3, .again_chance = 20, .late = 2};
    faulty_configure(&faults);
    return faulty_decorate(*at);
}

static hoop_result_t pair_import(void *arg, uint32_t peer, uint64_t region_id, uint32_t generation,
                                 void **ret_base, uint64_t *ret_bytes)
{
    struct pair *pair = arg;
    (void)peer;
    hoop_result_t result =
        hoop_region_use(PAIR_OTHER_PROCESS, region_id, generation, ret_base, ret_bytes);
    if (result == HOOP_OK) {
        pair->region = region_id;
        pair->generation = generation;
    }
    if (result != HOOP_AGAIN) {
        return result;
    }
    int fd = -1;
    uint64_t bytes = 0;
    uint32_t kind = 0;
    result = hoop_region_export(region_id, generation, &fd, &bytes, &kind);
    if (result == HOOP_OK) {
        result = hoop_region_import(PAIR_OTHER_PROCESS, region_id, generation, kind, bytes, fd);
    }
    return result == HOOP_OK ? HOOP_AGAIN : result;
}

static void pair_tell(void *arg, uint32_t peer, uint32_t lane, bool sending,
                      const struct hoop_blob *blob)
{
    struct pair *pair = arg;
    (void)lane;
    (void)sending;
    pair->told[peer] = *blob;
    atomic_store(&pair->has_told[peer], true);
}

/* If the receiver waits to hear from the sender, the sender is bound here. */
static bool pair_hear(void *arg, uint32_t peer, uint32_t lane, bool sending, struct hoop_blob *ret)
{
    struct pair *pair = arg;
    const uint32_t me = peer == PAIR_SENDER ? PAIR_RECEIVER : PAIR_SENDER;
    (void)lane;
    if (!sending && pair->sender != NULL && !pair->sender->bound) {
        (void)hoop_link_bind(pair->sender, &pair->receiver_blob);
    }
    const bool heard = atomic_exchange(&pair->has_told[me], false);
    if (heard) {
        *ret = pair->told[me];
    }
    return heard;
}

static void pair_wake(void *arg, uint32_t peer)
{
    ((struct pair *)arg)->wakes[peer]++;
}

/* ---- Connections ----------------------------------------------------------------------------- */

bool pair_is_network(const struct pair *pair)
{
    return pair->transport->watch_fd != NULL;
}

static bool pair_keep(int fd)
{
    hoop_fork_hold();
    const hoop_result_t result = hoop_fork_keep(fd);
    hoop_fork_release();
    return result == HOOP_OK;
}

bool pair_connect(int *ret_sockets)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(at);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int first = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int segment = PAIR_SEGMENT_BYTES;
    int second = -1;
    (void)setsockopt(listener, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof(segment));
    (void)setsockopt(first, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof(segment));
    if (listener >= 0 && first >= 0 && bind(listener, (struct sockaddr *)&at, length) == 0 &&
        listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&at, &length) == 0 &&
        connect(first, (struct sockaddr *)&at, length) == 0) {
        second = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
    close(listener);
    if (second < 0 || fcntl(first, F_SETFL, O_NONBLOCK) != 0) {
        close(first);
        return false;
    }
    ret_sockets[0] = first;
    ret_sockets[1] = second;
    return pair_keep(first) && pair_keep(second);
}

static hoop_result_t pair_dock(void *arg, uint32_t peer, uint32_t lane, struct hoop_address *ret)
{
    (void)arg;
    (void)peer;
    (void)lane;
    *ret = (struct hoop_address){.family = 4, .port = 9, .ip = {127, 0, 0, 1}};
    return HOOP_OK;
}

static hoop_result_t pair_stream(void *arg, uint32_t peer, uint32_t lane, bool sending,
                                 const struct hoop_address *address, int *ret_fd,
                                 struct hoop_secret *ret_key)
{
    struct pair *pair = arg;
    const uint32_t me = peer == PAIR_SENDER ? PAIR_RECEIVER : PAIR_SENDER;
    const bool sends = (me == PAIR_SENDER) != pair->back;
    if (lane != PAIR_LANE || sending != sends || sending != (address != NULL)) {
        return hoop_error(HOOP_INTERNAL_ERROR, "the wrong socket was asked for");
    }
    if (pair->asked[me]++ == 0) {
        return HOOP_AGAIN;
    }
    if (!pair->connected) {
        pair->connected = pair_connect(pair->sockets);
    }
    if (!pair->connected) {
        return hoop_error(HOOP_SYSTEM_ERROR, "no connection over the loopback interface");
    }
    *ret_key = (struct hoop_secret){.bytes = {PAIR_LANE}}; /* the same for all connections */
    *ret_fd = pair->sockets[me];
    pair->sockets[me] = -1;
    return HOOP_OK;
}

/* Has everything that one end gave to its kernel arrived at the other end's kernel? */
static bool pair_is_quiet(const struct pair *pair)
{
    const int from = pair->sender != NULL ? hoop_link_watch_fd(pair->sender) : -1;
    const int to = pair->receiver != NULL ? hoop_link_watch_fd(pair->receiver) : -1;
    struct tcp_info sent = {0}, came = {0};
    socklen_t sent_bytes = sizeof(sent), came_bytes = sizeof(came);
    if (from < 0 || to < 0 || getsockopt(from, IPPROTO_TCP, TCP_INFO, &sent, &sent_bytes) != 0 ||
        getsockopt(to, IPPROTO_TCP, TCP_INFO, &came, &came_bytes) != 0) {
        return true;
    }
    return sent.tcpi_bytes_sent - sent.tcpi_bytes_retrans == came.tcpi_bytes_received;
}

/* ---- Both ends ------------------------------------------------------------------------------- */

struct hoop_link_params pair_params(struct pair *pair, bool sending)
{
    const uint32_t me = sending != pair->back ? PAIR_SENDER : PAIR_RECEIVER;
    return (struct hoop_link_params){
        .comm_id = PAIR_COMM,
        .me = me,
        .peer = me == PAIR_SENDER ? PAIR_RECEIVER : PAIR_SENDER,
        .lane = PAIR_LANE,
        .sending = sending,
        .slots = pair->slots,
        .chunk_bytes = pair->chunk_bytes,
        .round_bytes = pair->round_bytes,
        .check = pair->check,
        .buffer_bytes = pair->buffer_bytes,
        .import = pair_import,
        .wake = pair_wake,
        .data_address = pair_dock,
        .stream = pair_stream,
        .tell = pair_tell,
        .hear = pair_hear,
        .local = pair->local,
        .turn = pair->turn,
        .arg = pair,
    };
}

hoop_result_t pair_make(struct pair *pair)
{
    pair->sockets[0] = pair->sockets[1] = -1;
    const struct hoop_link_params sending = pair_params(pair, true);
    const struct hoop_link_params receiving = pair_params(pair, false);
    hoop_result_t result = hoop_link_create(pair->transport, &sending, &pair->sender,
                                            &pair->sender_blob, &pair->failure);
    if (result == HOOP_OK) {
        result = hoop_link_create(pair->transport, &receiving, &pair->receiver,
                                  &pair->receiver_blob, &pair->failure);
    }
    return result;
}

hoop_result_t pair_create(struct pair *pair, const struct hoop_transport *transport, uint32_t slots,
                          uint64_t chunk_bytes)
{
    *pair = (struct pair){.transport = transport,
                          .slots = slots,
                          .chunk_bytes = chunk_bytes,
                          .buffer_bytes = PAIR_BUFFER_BYTES};
    return pair_make(pair);
}

hoop_result_t pair_bind(struct hoop_link *link, const struct hoop_blob *blob)
{
    hoop_result_t result = link->bound ? HOOP_OK : HOOP_AGAIN;
    for (int i = 0; result == HOOP_AGAIN && i < PAIR_TRIES; i++) {
        result = hoop_link_bind(link, blob);
    }
    return result == HOOP_AGAIN ? HOOP_TIMEOUT : result;
}

hoop_result_t pair_join(struct pair *pair)
{
    const hoop_result_t result = pair_bind(pair->sender, &pair->receiver_blob);
    return result == HOOP_OK ? pair_bind(pair->receiver, &pair->sender_blob) : result;
}

hoop_result_t pair_open(struct pair *pair, const struct hoop_transport *transport, uint32_t slots,
                        uint64_t chunk_bytes)
{
    const hoop_result_t result = pair_create(pair, transport, slots, chunk_bytes);
    return result == HOOP_OK ? pair_join(pair) : result;
}

void pair_close(struct pair *pair)
{
    hoop_link_destroy(pair->sender);
    hoop_link_destroy(pair->receiver);
    pair->sender = NULL;
    pair->receiver = NULL;
    if (pair->region != 0) {
        hoop_region_unuse(PAIR_OTHER_PROCESS, pair->region, pair->generation);
        pair->region = 0;
    }
    for (int i = 0; pair->connected && i < 2; i++) {
        hoop_fork_close(pair->sockets[i]);
        pair->sockets[i] = -1;
    }
}

/* ---- Xfers ----------------------------------------------------------------------------------- */

void item_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct item *item = (struct item *)(void *)xfer;
    item->done++;
    item->result = result;
    item->turn = ++item_turns;
}

void item_fill(struct item *item, void *data, size_t bytes, uint32_t number)
{
    *item = (struct item){.xfer = {.data = data,
                                   .bytes = bytes,
                                   .op = number,
                                   .chunk = (uint64_t)number << 33,
                                   .done = item_done}};
}

static void pair_progress(struct pair *pair)
{
    if (pair->sender != NULL) {
        (void)hoop_link_progress(pair->sender);
    }
    if (pair->receiver != NULL) {
        (void)hoop_link_progress(pair->receiver);
    }
}

hoop_result_t pair_send(struct pair *pair, struct item *item, const void *data, size_t bytes,
                        uint32_t number)
{
    item_fill(item, (void *)(uintptr_t)data, bytes, number);
    hoop_result_t result = HOOP_AGAIN;
    for (int i = 0; result == HOOP_AGAIN && i < PAIR_TRIES; i++) {
        result = hoop_link_send(pair->sender, &item->xfer);
        if (result == HOOP_AGAIN) {
            pair_progress(pair);
        }
    }
    return result;
}

hoop_result_t pair_recv(struct pair *pair, struct item *item, void *data, size_t bytes,
                        uint32_t number)
{
    item_fill(item, data, bytes, number);
    hoop_result_t result = HOOP_AGAIN;
    for (int i = 0; result == HOOP_AGAIN && i < PAIR_TRIES; i++) {
        result = hoop_link_recv(pair->receiver, &item->xfer);
        if (result == HOOP_AGAIN) {
            (void)hoop_link_progress(pair->receiver);
        }
    }
    return result;
}

bool pair_until_done(struct pair *pair, const struct item *item)
{
    const uint64_t deadline = hoop_deadline_ns(PAIR_DEADLINE_MS);
    for (int i = 0; item->done == 0 && (i < PAIR_TRIES || pair_is_network(pair)); i++) {
        pair_progress(pair);
        if (i >= PAIR_TRIES) {
            if (hoop_now_ns() > deadline) {
                break;
            }
            sched_yield();
        }
    }
    return item->done != 0;
}

void pair_settle(struct pair *pair)
{
    const uint64_t deadline = hoop_deadline_ns(PAIR_DEADLINE_MS);
    for (int i = 0; i < 32; i++) {
        pair_progress(pair);
        while (!pair_is_quiet(pair) && hoop_now_ns() < deadline) {
            sched_yield();
        }
        if (pair_has_device() && strcmp(pair->transport->name, "rdma") == 0) {
            hoop_wait_briefly(); /* a real device does not tell when it is through */
        }
    }
}

static uint8_t pattern_byte(size_t i, uint64_t number)
{
    return (uint8_t)((number * 131 + i * 7 + (i >> 8)) & 0xff);
}

void pattern_fill(void *data, size_t bytes, uint64_t number)
{
    uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) {
        at[i] = pattern_byte(i, number);
    }
}

bool pattern_is(const void *data, size_t bytes, uint64_t number)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != pattern_byte(i, number)) {
            return false;
        }
    }
    return true;
}

bool pair_nothing_left(void)
{
    struct hoop_region_stats stats;
    hoop_region_stats(&stats);
    return stats.regions == 0 && stats.imports == 0;
}
