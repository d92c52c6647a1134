/*
 * Endpoints: accepting, and who comes in. See endpoint.h.
 *
 * Who has not proved itself waits in a crowd. On one machine there is one, of processes of this
 * uid: it has room for more than there can be ranks. Over TCP strangers are one crowd, and each
 * address from which somebody has proved himself is one, each with a limit; a newcomer over it
 * takes the place of the one of its crowd that has waited longest. A proof takes three times the
 * way to the other end and back, so that crowds of strangers starve nobody. An honest process that
 * was closed so tries again.
 *
 * After ENDPOINT_ACCEPTS newcomers the endpoint pauses, so that a flood costs the service thread
 * little; and a newcomer keeps its place for ENDPOINT_PAUSE_MS at the least: long enough for a
 * proof in a machine room. The others wait in the kernel's queue. On one machine only those count
 * that the kernel says are another user's.
 */
#include "control/endpoint.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "runtime/watch.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDPOINT_STRANGERS 64u
#define ENDPOINT_TRUSTED 256u
#define ENDPOINT_NEIGHBOURS (HOOP_MAX_RANKS + 64u)
#define ENDPOINT_PATIENCE_MS 5000u
#define ENDPOINT_LOOK_MS 500u
#define ENDPOINT_ACCEPTS 32 /* at once, then the others have their turn */
#define ENDPOINT_PAUSE_MS 5u

/* Those that came from one address, or the strangers; a Unix socket's all. Oldest first. */
struct endpoint_crowd {
    struct hoop_list_node node;
    struct hoop_address address; /* family 0: any */
    struct hoop_list_node guests;
    uint32_t count, limit;
};

/* An accepted connection that has not proved itself yet. */
struct endpoint_guest {
    struct hoop_list_node node;
    struct hoop_endpoint *endpoint;
    struct endpoint_crowd *crowd;
    struct hoop_connection *connection;
    struct hoop_address from;             /* family 0: a Unix socket */
    struct hoop_expectation *expectation; /* NULL: no hello yet, or not expected any more */
    uint64_t since_ns;
};

struct hoop_endpoint {
    struct hoop_list_node node;
    uint32_t users;
    int fd;
    struct hoop_watch *watch;
    struct hoop_timer *look;  /* for those who take too long; also after accept failed */
    struct hoop_timer *pause; /* its end */
    uint64_t round_ns;        /* when the newcomers before the next pause began to come */
    uint32_t round;           /* how many they are */
    struct endpoint_crowd strangers;
    struct hoop_list_node trusted; /* crowds */
    struct hoop_list_node expectations;
    bool told; /* strangers are logged once */
    bool warned;
    struct hoop_place place;
    char text[HOOP_ADDRESS_TEXT_BYTES]; /* of the place */
};

static struct hoop_list_node endpoints = HOOP_LIST_EMPTY(endpoints);

static bool endpoint_is_far(const struct hoop_endpoint *endpoint)
{
    return endpoint->place.address.family != 0;
}

static void endpoint_tell(struct hoop_endpoint *endpoint, const char *why)
{
    if (!endpoint->told) {
        endpoint->told = true;
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_INIT,
                 "%s: a connection was refused: %s (later ones are not mentioned)", endpoint->text,
                 why);
    }
}

/* Not a stranger's doing: those who wait outside cannot know. */
static void endpoint_warn(struct hoop_endpoint *endpoint, const char *why)
{
    if (!endpoint->warned) {
        endpoint->warned = true;
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT, "%s: %s", endpoint->text, why);
    }
}

/* ---- Crowds ------------------------------------------------------------------------------- */

static struct endpoint_guest *guest_at(struct hoop_list_node *node)
{
    return HOOP_CONTAINER_OF(node, struct endpoint_guest, node);
}

static struct endpoint_crowd *crowd_at(struct hoop_list_node *node)
{
    return HOOP_CONTAINER_OF(node, struct endpoint_crowd, node);
}

static void crowd_init(struct endpoint_crowd *crowd, uint32_t limit)
{
    hoop_list_init(&crowd->guests);
    crowd->limit = limit;
}

static struct endpoint_crowd *endpoint_crowd_of(struct hoop_endpoint *endpoint,
                                                const struct hoop_address *address)
{
    HOOP_LIST_FOR_EACH(at, &endpoint->trusted) {
        if (hoop_address_same_ip(&crowd_at(at)->address, address)) {
            return crowd_at(at);
        }
    }
    return &endpoint->strangers;
}

static void guest_leave(struct endpoint_guest *guest)
{
    hoop_list_remove(&guest->node);
    guest->crowd->count--;
    free(guest);
}

static void guest_dismiss(struct endpoint_guest *guest)
{
    hoop_connection_destroy(guest->connection);
    guest_leave(guest);
}

static void crowd_finish(struct endpoint_crowd *crowd)
{
    HOOP_LIST_FOR_EACH(at, &crowd->guests) {
        guest_dismiss(guest_at(at));
    }
}

/* Calls fn for each guest; which may dismiss it. */
static void endpoint_for_guests(struct hoop_endpoint *endpoint,
                                void (*fn)(struct endpoint_guest *guest, void *arg), void *arg)
{
    HOOP_LIST_FOR_EACH(at, &endpoint->strangers.guests) {
        fn(guest_at(at), arg);
    }
    HOOP_LIST_FOR_EACH(crowd, &endpoint->trusted) {
        HOOP_LIST_FOR_EACH(at, &crowd_at(crowd)->guests) {
            fn(guest_at(at), arg);
        }
    }
}

/* Somebody there has proved himself. */
static void endpoint_trust(struct hoop_endpoint *endpoint, const struct hoop_address *address)
{
    if (address->family == 0 || endpoint_crowd_of(endpoint, address) != &endpoint->strangers) {
        return;
    }
    struct endpoint_crowd *crowd = calloc(1, sizeof(*crowd));
    if (crowd != NULL) { /* else its next one is a stranger again */
        crowd_init(crowd, ENDPOINT_TRUSTED);
        crowd->address = *address;
        hoop_list_push_back(&endpoint->trusted, &crowd->node);
    }
}

/* ---- Expectations ------------------------------------------------------------------------- */

void hoop_endpoint_expect(struct hoop_endpoint *endpoint, struct hoop_expectation *expectation)
{
    assert(endpoint_is_far(endpoint) ? !expectation->hand_out : true);
    expectation->endpoint = endpoint;
    hoop_list_push_back(&endpoint->expectations, &expectation->node);
}

static void guest_forget(struct endpoint_guest *guest, void *expectation)
{
    if (guest->expectation == expectation) {
        guest->expectation = NULL;
    }
}

void hoop_endpoint_expect_no_more(struct hoop_expectation *expectation)
{
    if (hoop_list_is_linked(&expectation->node)) {
        hoop_list_remove(&expectation->node);
        endpoint_for_guests(expectation->endpoint, guest_forget, expectation);
    }
}

static bool expectation_fits(const struct hoop_expectation *expectation,
                             const struct hoop_frame_hello *hello)
{
    const struct hoop_hello_key *key = &expectation->key;
    if (key->kind != hello->kind) {
        return false;
    }
    switch (key->kind) {
    case HOOP_HELLO_CHILD:
        return key->role == hello->role && strcmp(key->rendezvous, hello->rendezvous) == 0;
    case HOOP_HELLO_PEER:
        return key->comm_id == hello->comm_id && key->epoch == hello->epoch;
    default: /* DATA */
        return key->comm_id == hello->comm_id && key->epoch == hello->epoch &&
               key->from == hello->from && key->to == hello->to && key->lane == hello->lane;
    }
}

static struct hoop_expectation *endpoint_expected(const struct hoop_endpoint *endpoint,
                                                  const struct hoop_frame_hello *hello)
{
    HOOP_LIST_FOR_EACH(at, &endpoint->expectations) {
        struct hoop_expectation *expectation = HOOP_CONTAINER_OF(at, struct hoop_expectation, node);
        if (expectation_fits(expectation, hello)) {
            return expectation;
        }
    }
    return NULL;
}

/* Of one that expects the same of somebody else; NULL: there is none. */
static const char *endpoint_label(const struct hoop_endpoint *endpoint,
                                  const struct hoop_frame_hello *hello)
{
    const char *label = NULL;
    HOOP_LIST_FOR_EACH(at, &endpoint->expectations) {
        const struct hoop_expectation *other = HOOP_CONTAINER_OF(at, struct hoop_expectation, node);
        const bool alike = other->key.kind == hello->kind && other->key.role == hello->role;
        label = alike && label == NULL ? other->label : label;
    }
    return label;
}

/* ---- What an unproven connection does ----------------------------------------------------- */

static bool guest_admit(void *arg, const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                        struct hoop_failure *ret_failure)
{
    struct endpoint_guest *guest = arg;
    guest->expectation = endpoint_expected(guest->endpoint, hello);
    if (guest->expectation == NULL) {
        const char *other = endpoint_label(guest->endpoint, hello);
        ret_failure->code = HOOP_AGAIN;
        (void)snprintf(
            ret_failure->text, sizeof(ret_failure->text),
            "nobody expects that here (not yet, not any more, or with another secret)%s%s",
            other != NULL ? "; another job is: " : "", other != NULL ? other : "");
        return false;
    }
    ret->secret = guest->expectation->secret;
    ret->hand_out = guest->expectation->hand_out;
    return true;
}

static void guest_opened(void *arg, struct hoop_connection *connection)
{
    struct endpoint_guest *guest = arg;
    struct hoop_expectation *expectation = guest->expectation;
    endpoint_trust(guest->endpoint, &guest->from);
    guest_leave(guest);
    if (expectation == NULL) {
        hoop_connection_destroy(connection); /* too late: it tries again, and is told */
    } else {
        expectation->opened(expectation, connection);
    }
}

static void guest_message(void *arg, struct hoop_connection *connection,
                          const union hoop_frame *frame, int *fds)
{
    (void)arg;
    (void)connection;
    (void)frame;
    (void)fds;
    assert(!"an open connection belongs to who expected it");
}

static void guest_closed(void *arg, struct hoop_connection *connection,
                         const struct hoop_failure *why)
{
    struct endpoint_guest *guest = arg;
    (void)connection;
    if (why->code != HOOP_AGAIN) {
        endpoint_tell(guest->endpoint, why->text);
    }
    guest_dismiss(guest);
}

static const struct hoop_connection_owner endpoint_guest_owner = {
    .admit = guest_admit,
    .opened = guest_opened,
    .message = guest_message,
    .closed = guest_closed,
};

/* ---- Accepting ---------------------------------------------------------------------------- */

static void endpoint_pause(struct hoop_endpoint *endpoint, struct hoop_timer *until, uint64_t ms)
{
    hoop_watch_want(endpoint->watch, 0);
    hoop_timer_start(until, ms, until == endpoint->look ? ms : 0);
}

/* False: the kernel says that it is another user's, or there is no memory for it. */
static bool endpoint_take_in(struct hoop_endpoint *endpoint, int fd)
{
    struct endpoint_guest *guest = calloc(1, sizeof(*guest));
    if (guest == NULL) {
        hoop_fork_close(fd);
        return false;
    }
    (void)hoop_socket_peer(fd, &guest->from);
    struct endpoint_crowd *crowd = endpoint_crowd_of(endpoint, &guest->from);
    if (hoop_connection_accept(fd, &endpoint_guest_owner, guest, &guest->connection) != HOOP_OK) {
        endpoint_tell(endpoint, hoop_thread_error());
        free(guest);
        return false;
    }
    if (crowd->count == crowd->limit) {
        endpoint_tell(endpoint, "too many connections that prove nothing");
        guest_dismiss(guest_at(hoop_list_first(&crowd->guests)));
    }
    guest->endpoint = endpoint;
    guest->crowd = crowd;
    guest->since_ns = hoop_now_ns();
    hoop_list_push_back(&crowd->guests, &guest->node);
    crowd->count++;
    if (crowd->count == 1) {
        hoop_timer_start(endpoint->look, ENDPOINT_LOOK_MS, ENDPOINT_LOOK_MS);
    }
    return true;
}

/* Another newcomer that may be a stranger: is it time for a pause? */
static bool endpoint_is_flooded(struct hoop_endpoint *endpoint)
{
    const uint64_t now = hoop_now_ns();
    if (now - endpoint->round_ns > ENDPOINT_PAUSE_MS * HOOP_NS_PER_MS) {
        endpoint->round_ns = now;
        endpoint->round = 0;
    }
    return ++endpoint->round >= ENDPOINT_ACCEPTS;
}

static void endpoint_ready(void *arg, unsigned events)
{
    struct hoop_endpoint *endpoint = arg;
    (void)events;
    for (int i = 0; i < ENDPOINT_ACCEPTS; i++) {
        int fd = -1;
        const hoop_result_t result = hoop_socket_accept(endpoint->fd, &fd);
        if (result == HOOP_AGAIN) {
            return;
        }
        if (result != HOOP_OK) {
            /* out of descriptors: the connection stays queued, so look away for a while */
            endpoint_warn(endpoint, hoop_thread_error());
            endpoint_pause(endpoint, endpoint->look, ENDPOINT_LOOK_MS);
            return;
        }
        const bool known = endpoint_take_in(endpoint, fd) && !endpoint_is_far(endpoint);
        if (!known && endpoint_is_flooded(endpoint)) {
            endpoint_pause(endpoint, endpoint->pause, ENDPOINT_PAUSE_MS);
            return;
        }
    }
}

static void endpoint_paused(void *arg)
{
    struct hoop_endpoint *endpoint = arg;
    endpoint->round = 0;
    hoop_watch_want(endpoint->watch, HOOP_WATCH_READ);
}

struct endpoint_look {
    uint64_t now;
    uint32_t waiting;
};

static void guest_look(struct endpoint_guest *guest, void *arg)
{
    struct endpoint_look *look = arg;
    if (look->now - guest->since_ns > ENDPOINT_PATIENCE_MS * HOOP_NS_PER_MS) {
        endpoint_tell(guest->endpoint, "it proved nothing in time");
        guest_dismiss(guest);
    } else {
        look->waiting++;
    }
}

static void endpoint_look(void *arg)
{
    struct hoop_endpoint *endpoint = arg;
    struct endpoint_look look = {.now = hoop_now_ns()};
    hoop_watch_want(endpoint->watch, HOOP_WATCH_READ);
    endpoint_for_guests(endpoint, guest_look, &look);
    if (look.waiting == 0) {
        hoop_timer_stop(endpoint->look);
    }
}

/* ---- Opening and closing ------------------------------------------------------------------ */

static void endpoint_destroy(struct hoop_endpoint *endpoint)
{
    hoop_list_remove(&endpoint->node);
    crowd_finish(&endpoint->strangers);
    HOOP_LIST_FOR_EACH(at, &endpoint->trusted) {
        crowd_finish(crowd_at(at));
        hoop_list_remove(at);
        free(crowd_at(at));
    }
    HOOP_LIST_FOR_EACH(at, &endpoint->expectations) {
        hoop_list_remove(at);
    }
    hoop_timer_destroy(endpoint->pause);
    hoop_timer_destroy(endpoint->look);
    hoop_watch_destroy(endpoint->watch);
    hoop_fork_close(endpoint->fd);
    free(endpoint);
}

static hoop_result_t endpoint_start(struct hoop_endpoint *endpoint, const struct hoop_ports *ports)
{
    hoop_result_t result = hoop_socket_listen(&endpoint->place, ports, &endpoint->fd);
    if (result == HOOP_OK) {
        hoop_place_format(&endpoint->place, endpoint->text, sizeof(endpoint->text));
        result = hoop_timer_create(endpoint_look, endpoint, &endpoint->look);
    }
    if (result == HOOP_OK) {
        result = hoop_timer_create(endpoint_paused, endpoint, &endpoint->pause);
    }
    if (result == HOOP_OK) {
        result = hoop_watch_create(endpoint->fd, HOOP_WATCH_READ, endpoint_ready, endpoint,
                                   &endpoint->watch);
    }
    return result;
}

static hoop_result_t endpoint_create(const struct hoop_place *at, const struct hoop_ports *ports,
                                     struct hoop_endpoint **ret_endpoint,
                                     struct hoop_failure *failure)
{
    struct hoop_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for an endpoint");
    }
    endpoint->fd = -1;
    endpoint->place = *at;
    hoop_list_init(&endpoint->trusted);
    hoop_list_init(&endpoint->expectations);
    crowd_init(&endpoint->strangers,
               endpoint_is_far(endpoint) ? ENDPOINT_STRANGERS : ENDPOINT_NEIGHBOURS);
    const hoop_result_t result = endpoint_start(endpoint, ports);
    if (result != HOOP_OK) {
        hoop_failure_take(failure, result, -1);
        endpoint_destroy(endpoint);
        return result;
    }
    hoop_list_push_back(&endpoints, &endpoint->node);
    *ret_endpoint = endpoint;
    return HOOP_OK;
}

static bool endpoint_serves(const struct hoop_endpoint *endpoint, const struct hoop_place *at,
                            const struct hoop_ports *ports)
{
    const struct hoop_address *mine = &endpoint->place.address;
    const struct hoop_address *address = &at->address;
    if (address->family == 0) {
        return mine->family == 0 && strcmp(endpoint->place.name, at->name) == 0;
    }
    if (!hoop_address_same_ip(mine, address) || mine->scope != address->scope) {
        return false;
    }
    if (address->port != 0 || ports == NULL || ports->first == 0) {
        return address->port == 0 || address->port == mine->port;
    }
    return mine->port >= ports->first && mine->port <= ports->last;
}

hoop_result_t hoop_endpoint_open(const struct hoop_place *at, const struct hoop_ports *ports,
                                 struct hoop_endpoint **ret_endpoint, struct hoop_failure *failure)
{
    struct hoop_endpoint *endpoint = NULL;
    HOOP_LIST_FOR_EACH(node, &endpoints) {
        struct hoop_endpoint *other = HOOP_CONTAINER_OF(node, struct hoop_endpoint, node);
        endpoint = endpoint == NULL && endpoint_serves(other, at, ports) ? other : endpoint;
    }
    const hoop_result_t result =
        endpoint != NULL ? HOOP_OK : endpoint_create(at, ports, &endpoint, failure);
    assert(result != HOOP_OK || endpoint != NULL);
    if (result == HOOP_OK) {
        endpoint->users++;
        *ret_endpoint = endpoint;
    }
    return result;
}

void hoop_endpoint_close(struct hoop_endpoint *endpoint)
{
    if (endpoint != NULL && --endpoint->users == 0) {
        endpoint_destroy(endpoint);
    }
}

const struct hoop_address *hoop_endpoint_address(const struct hoop_endpoint *endpoint)
{
    return &endpoint->place.address;
}

hoop_result_t hoop_endpoint_name(char ret_name[HOOP_NAME_BYTES])
{
    uint8_t bytes[16];
    const hoop_result_t result = hoop_random(bytes, sizeof(bytes));
    if (result == HOOP_OK) {
        memcpy(ret_name, "hoop-", sizeof("hoop-"));
        hoop_hex_format(bytes, sizeof(bytes), ret_name + strlen("hoop-"));
    }
    return result;
}
