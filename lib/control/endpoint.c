/*
 * Endpoints: accepting connections and passing them to whoever expects them. See endpoint.h.
 *
 * Unproven connections wait in groups ("crowds"), each with a limit. A newcomer over the limit
 * replaces the oldest of its crowd. On one machine there is a single crowd, of processes with this
 * uid, and its limit exceeds the largest number of ranks: nobody has to make room. Over TCP there
 * is one crowd for strangers, and one for each address from which a proof has come. A proof takes
 * one and a half round trips, so floods of strangers starve nobody. An honest process that was
 * closed in this way tries again.
 *
 * After ENDPOINT_ACCEPTS newcomers the endpoint pauses, so that a flood costs the service thread
 * little, and every newcomer keeps its place for at least ENDPOINT_PAUSE_MS, which suffices for a
 * proof in a local network. Meanwhile others wait in the kernel's queue. On one machine only
 * connections that the kernel says are another user's count.
 *
 * An endpoint starves while it cannot let in anybody, for want of descriptors or memory. It then
 * has little patience with unproven connections, which take descriptors; so it starves for long
 * only if this process has used up its own. Those who may be expected here cannot be known then.
 */
#include "control/endpoint.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/encrypt.h"
#include "runtime/watch.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ENDPOINT_STRANGERS 64u
#define ENDPOINT_TRUSTED 256u
#define ENDPOINT_NEIGHBOURS (HOOP_MAX_RANKS + 64u)
#define ENDPOINT_PATIENCE_MS 5000u
#define ENDPOINT_LOOK_MS 500u
#define ENDPOINT_ACCEPTS 32 /* newcomers before a pause; also per wake-up */
#define ENDPOINT_PAUSE_MS 5u
#define ENDPOINT_STARVED_MS 50u /* between attempts */

/* An address from which a proof has come, and the crowd of connections from there. */
struct endpoint_crowd {
    struct hoop_list_node node;
    struct hoop_address address;
};

/* An accepted connection without a proof yet. */
struct endpoint_client {
    struct hoop_list_node node;
    struct hoop_endpoint *endpoint;
    const struct endpoint_crowd *crowd; /* NULL: a stranger, or a Unix socket */
    struct hoop_connection *connection;
    struct hoop_address from;             /* family 0 for a Unix socket */
    struct hoop_expectation *expectation; /* NULL: no hello yet, or no longer expected */
    uint64_t since_ns;
};

struct hoop_endpoint {
    struct hoop_list_node node;
    uint32_t users;
    int fd;
    struct hoop_watch *watch;
    struct hoop_timer *look;       /* for overdue clients; also ends a pause */
    uint64_t round_ns;             /* when this round of newcomers began */
    uint32_t round;                /* newcomers in it */
    uint64_t starved_ms;           /* for how long it could not let in anybody */
    struct hoop_list_node clients; /* the oldest first */
    struct hoop_list_node trusted; /* crowds */
    struct hoop_list_node expectations;
    bool told, told_version; /* a refusal was logged; likewise one for another version */
    bool warned;
    struct hoop_place place;
    char text[HOOP_ADDRESS_TEXT_BYTES]; /* the place, for the log */
};

static struct hoop_list_node endpoints = HOOP_LIST_EMPTY(endpoints);

static bool endpoint_is_far(const struct hoop_endpoint *endpoint)
{
    return endpoint->place.address.family != 0;
}

/* Logs the first refusal. Another version is a warning of its own: that client most likely belongs
 * to the job, and both sides should hear of it. */
static void endpoint_tell(struct hoop_endpoint *endpoint, hoop_result_t code, const char *why)
{
    const bool version = code == HOOP_MISMATCH;
    bool *told = version ? &endpoint->told_version : &endpoint->told;
    if (!*told) {
        *told = true;
        hoop_log(version ? HOOP_LOG_WARN : HOOP_LOG_INFO, HOOP_LOG_INIT,
                 "%s: a connection was refused: %s (later refusals are not logged)", endpoint->text,
                 why);
    }
}

/* ---- Crowds ------------------------------------------------------------------------------- */

static const struct endpoint_crowd *endpoint_crowd_of(const struct hoop_endpoint *endpoint,
                                                      const struct hoop_address *address)
{
    HOOP_LIST_EACH(const struct endpoint_crowd, crowd, &endpoint->trusted, node) {
        if (hoop_address_same_ip(&crowd->address, address)) {
            return crowd;
        }
    }
    return NULL;
}

static void client_leave(struct endpoint_client *client)
{
    hoop_list_remove(&client->node);
    free(client);
}

static void client_dismiss(struct endpoint_client *client)
{
    hoop_connection_destroy(client->connection);
    client_leave(client);
}

/* If the crowd is full, closes its oldest connection. */
static void endpoint_make_room(struct hoop_endpoint *endpoint, const struct endpoint_crowd *crowd)
{
    const uint32_t places = crowd != NULL               ? ENDPOINT_TRUSTED
                            : endpoint_is_far(endpoint) ? ENDPOINT_STRANGERS
                                                        : ENDPOINT_NEIGHBOURS;
    struct endpoint_client *oldest = NULL;
    uint32_t count = 0;
    HOOP_LIST_EACH(struct endpoint_client, client, &endpoint->clients, node) {
        count += client->crowd == crowd ? 1 : 0;
        oldest = oldest == NULL && client->crowd == crowd ? client : oldest;
    }
    if (count == places) {
        endpoint_tell(endpoint, HOOP_NOT_AUTHENTICATED,
                      "too many connections have not proved that they know the secret");
        client_dismiss(oldest);
    }
}

/* Gives the address a crowd of its own, because a proof has come from it. */
static void endpoint_trust(struct hoop_endpoint *endpoint, const struct hoop_address *address)
{
    if (address->family == 0 || endpoint_crowd_of(endpoint, address) != NULL) {
        return;
    }
    struct endpoint_crowd *crowd = calloc(1, sizeof(*crowd));
    if (crowd != NULL) { /* without memory its next connection counts as a stranger's */
        crowd->address = *address;
        hoop_list_push_back(&endpoint->trusted, &crowd->node);
    }
}

/* ---- Expectations ------------------------------------------------------------------------- */

void hoop_endpoint_expect(struct hoop_endpoint *endpoint, struct hoop_expectation *expectation)
{
    expectation->endpoint = endpoint;
    hoop_list_push_back(&endpoint->expectations, &expectation->node);
}

void hoop_endpoint_expect_no_more(struct hoop_expectation *expectation)
{
    if (!hoop_list_is_linked(&expectation->node)) {
        return;
    }
    hoop_list_remove(&expectation->node);
    HOOP_LIST_EACH(struct endpoint_client, client, &expectation->endpoint->clients, node) {
        client->expectation = client->expectation != expectation ? client->expectation : NULL;
    }
}

static bool expectation_fits(const struct hoop_expectation *expectation,
                             const struct hoop_frame_hello *hello)
{
    const struct hoop_frame_hello *its = &expectation->hello;
    const bool of_anybody = its->kind != HOOP_HELLO_DATA;
    return its->kind == hello->kind && its->comm_id == hello->comm_id &&
           strcmp(its->rendezvous, hello->rendezvous) == 0 &&
           (of_anybody ||
            (its->from == hello->from && its->to == hello->to && its->lane == hello->lane));
}

static struct hoop_expectation *endpoint_expected(const struct hoop_endpoint *endpoint,
                                                  const struct hoop_frame_hello *hello)
{
    HOOP_LIST_EACH(struct hoop_expectation, expectation, &endpoint->expectations, node) {
        if (expectation_fits(expectation, hello)) {
            return expectation;
        }
    }
    return NULL;
}

/* The label of an expectation of the same kind, which is another job's; NULL if there is none. */
static const char *endpoint_label(const struct hoop_endpoint *endpoint,
                                  const struct hoop_frame_hello *hello)
{
    const char *label = NULL;
    HOOP_LIST_EACH(const struct hoop_expectation, other, &endpoint->expectations, node) {
        const bool alike = other->hello.kind == hello->kind;
        label = alike && label == NULL ? other->label : label;
    }
    return label;
}

/* ---- What an unproven connection does ----------------------------------------------------- */

static const struct hoop_secret *client_admit(void *arg, const struct hoop_frame_hello *hello)
{
    struct endpoint_client *client = arg;
    client->expectation = endpoint_expected(client->endpoint, hello);
    if (client->expectation == NULL) {
        const char *other = endpoint_label(client->endpoint, hello);
        (void)hoop_error(HOOP_AGAIN,
                         "nobody here expects this connection (not yet, not any more, or with "
                         "another secret)%s%s",
                         other != NULL ? "; another job is: " : "", other != NULL ? other : "");
        return NULL;
    }
    return client->expectation->secret;
}

static void client_opened(void *arg, struct hoop_connection *connection)
{
    struct endpoint_client *client = arg;
    struct hoop_expectation *expectation = client->expectation;
    endpoint_trust(client->endpoint, &client->from);
    client_leave(client);
    if (expectation == NULL) {
        hoop_connection_destroy(connection); /* no longer expected; it tries again and is told so */
    } else {
        expectation->opened(expectation->arg, connection);
    }
}

static void client_closed(void *arg, struct hoop_connection *connection,
                          const struct hoop_failure *why)
{
    struct endpoint_client *client = arg;
    (void)connection;
    if (why->code != HOOP_AGAIN) {
        endpoint_tell(client->endpoint, why->code, why->text);
    }
    client_dismiss(client);
}

static const struct hoop_connection_owner endpoint_client_owner = {
    .admit = client_admit,
    .opened = client_opened,
    .closed = client_closed,
};

/* ---- Accepting ---------------------------------------------------------------------------- */

static void endpoint_pause(struct hoop_endpoint *endpoint, uint64_t ms)
{
    endpoint->round = 0;
    hoop_watch_want(endpoint->watch, 0);
    hoop_timer_start(endpoint->look, ms, ENDPOINT_LOOK_MS);
}

/* Takes in an accepted socket, which may be another user's. */
static hoop_result_t endpoint_take_in(struct hoop_endpoint *endpoint, int fd)
{
    struct endpoint_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        hoop_fork_close(fd);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a connection");
    }
    (void)hoop_socket_peer(fd, &client->from);
    const hoop_result_t result =
        hoop_connection_accept(fd, &endpoint_client_owner, client, &client->connection);
    if (result != HOOP_OK) {
        endpoint_tell(endpoint, HOOP_SYSTEM_ERROR, hoop_thread_error());
        free(client);
        return result;
    }
    client->endpoint = endpoint;
    client->crowd = endpoint_crowd_of(endpoint, &client->from);
    endpoint_make_room(endpoint, client->crowd);
    client->since_ns = hoop_now_ns();
    if (hoop_list_is_empty(&endpoint->clients)) {
        hoop_timer_start(endpoint->look, ENDPOINT_LOOK_MS, ENDPOINT_LOOK_MS);
    }
    hoop_list_push_back(&endpoint->clients, &client->node);
    return HOOP_OK;
}

/* Counts a newcomer that may be a stranger. Returns true if it is time for a pause. */
static bool endpoint_is_flooded(struct hoop_endpoint *endpoint)
{
    const uint64_t now = hoop_now_ns();
    if (now - endpoint->round_ns > ENDPOINT_PAUSE_MS * HOOP_NS_PER_MS) {
        endpoint->round_ns = now;
        endpoint->round = 0;
    }
    return ++endpoint->round >= ENDPOINT_ACCEPTS;
}

/* Nobody can be let in, with the thread's sentence. The log has to say it, since clients, which
 * stay in the kernel's queue, cannot know; and if it lasts, whoever expects them. */
static void endpoint_starve(struct hoop_endpoint *endpoint, hoop_result_t code)
{
    struct hoop_failure why = {.code = HOOP_OK};
    (void)hoop_failure_take(&why, code, -1);
    if (!endpoint->warned) {
        endpoint->warned = true;
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT, "%s: %s", endpoint->text, why.text);
    }
    endpoint->starved_ms += ENDPOINT_STARVED_MS;
    endpoint_pause(endpoint, ENDPOINT_STARVED_MS);
    HOOP_LIST_EACH(struct hoop_expectation, expectation, &endpoint->expectations, node) {
        if (expectation->starved != NULL) {
            expectation->starved(expectation->arg, endpoint->starved_ms, &why);
        }
    }
}

static void endpoint_ready(void *arg, unsigned events)
{
    struct hoop_endpoint *endpoint = arg;
    (void)events;
    for (int i = 0; i < ENDPOINT_ACCEPTS; i++) {
        int fd = -1;
        hoop_result_t result = hoop_socket_accept(endpoint->fd, &fd);
        const bool nobody = result == HOOP_AGAIN;
        result = result == HOOP_OK ? endpoint_take_in(endpoint, fd) : result;
        if (hoop_result_is_own(result)) {
            endpoint_starve(endpoint, result);
            return;
        }
        endpoint->starved_ms = 0;
        if (nobody) {
            return;
        }
        const bool known = result == HOOP_OK && !endpoint_is_far(endpoint);
        if (!known && endpoint_is_flooded(endpoint)) {
            endpoint_pause(endpoint, ENDPOINT_PAUSE_MS);
            return;
        }
    }
}

static void endpoint_look(void *arg)
{
    struct hoop_endpoint *endpoint = arg;
    const uint64_t now = hoop_now_ns();
    const uint64_t ms = endpoint->starved_ms > 0 ? ENDPOINT_LOOK_MS : ENDPOINT_PATIENCE_MS;
    hoop_watch_want(endpoint->watch, HOOP_WATCH_READ);
    HOOP_LIST_EACH(struct endpoint_client, client, &endpoint->clients, node) {
        if (now - client->since_ns > ms * HOOP_NS_PER_MS) {
            endpoint_tell(endpoint, HOOP_NOT_AUTHENTICATED,
                          "it did not prove in time that it knows the secret");
            client_dismiss(client);
        }
    }
    if (hoop_list_is_empty(&endpoint->clients)) {
        hoop_timer_stop(endpoint->look);
    }
}

/* ---- Opening and closing ------------------------------------------------------------------ */

static void endpoint_destroy(struct hoop_endpoint *endpoint)
{
    hoop_list_remove(&endpoint->node);
    HOOP_LIST_EACH(struct endpoint_client, client, &endpoint->clients, node) {
        client_dismiss(client);
    }
    HOOP_LIST_EACH(struct endpoint_crowd, crowd, &endpoint->trusted, node) {
        hoop_list_remove(&crowd->node);
        free(crowd);
    }
    HOOP_LIST_EACH(struct hoop_expectation, expectation, &endpoint->expectations, node) {
        hoop_list_remove(&expectation->node);
    }
    hoop_timer_destroy(endpoint->look);
    hoop_watch_destroy(endpoint->watch);
    hoop_fork_close(endpoint->fd);
    free(endpoint);
}

static hoop_result_t endpoint_start(struct hoop_endpoint *endpoint, const struct hoop_ports *ports)
{
    const bool encrypts =
        endpoint->place.address.family != 0 && hoop_settings()->check == HOOP_CHECK_AEAD;
    hoop_result_t result = encrypts ? hoop_encrypt_load() : HOOP_OK;
    if (result == HOOP_OK) {
        result = hoop_socket_listen(&endpoint->place, ports, &endpoint->fd);
    }
    if (result == HOOP_OK) {
        hoop_place_format(&endpoint->place, endpoint->text, sizeof(endpoint->text));
        result = hoop_timer_create(endpoint_look, endpoint, &endpoint->look);
    }
    if (result == HOOP_OK) {
        result = hoop_watch_create(endpoint->fd, HOOP_WATCH_READ, endpoint_ready, endpoint,
                                   &endpoint->watch);
    }
    return result;
}

static hoop_result_t endpoint_create(const struct hoop_place *at, const struct hoop_ports *ports,
                                     struct hoop_endpoint **ret_endpoint)
{
    struct hoop_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for an endpoint");
    }
    endpoint->fd = -1;
    endpoint->place = *at;
    hoop_list_init(&endpoint->clients);
    hoop_list_init(&endpoint->trusted);
    hoop_list_init(&endpoint->expectations);
    const hoop_result_t result = endpoint_start(endpoint, ports);
    if (result != HOOP_OK) {
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
                                 struct hoop_endpoint **ret_endpoint)
{
    struct hoop_endpoint *endpoint = NULL;
    HOOP_LIST_EACH(struct hoop_endpoint, other, &endpoints, node) {
        endpoint = endpoint == NULL && endpoint_serves(other, at, ports) ? other : endpoint;
    }
    const hoop_result_t result = endpoint != NULL ? HOOP_OK : endpoint_create(at, ports, &endpoint);
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
