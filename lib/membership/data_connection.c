/*
 * The data connections of a member's links. The receiver of a link says where it listens, and
 * expects that one sender for that lane (hoop_member_data_address()). The sender dials it there
 * (hoop_member_dial()). Both prove the comm's secret on the service thread; then the bare socket is
 * handed to the link (events.event).
 *
 * A rank of this machine is dialled as long as the detector takes it for alive; one of another
 * machine has to answer within dead_after.
 *
 * All but the two functions of membership.h runs on the service thread.
 */
#include "base/clock.h"
#include "control/dialer.h"
#include "membership/membership_inside.h"
#include "net/interface.h"
#include <assert.h>
#include <stdlib.h>

/* This end of a link while it has no connection. Passed by value, then kept by the member. */
struct data_link {
    struct hoop_list_node node; /* of the member */
    struct hoop_member *member;
    uint32_t rank, lane;
    struct hoop_expectation expectation; /* a receiver's */
    struct hoop_dialer *dialer;          /* a sender's */
    struct hoop_address address;         /* to dial, or to be expected at */
};

static struct data_link data_link_wanted(struct hoop_member *member, uint32_t rank, uint32_t lane)
{
    assert(rank < member->join.n && rank != member->join.rank && lane < HOOP_FRAME_MAX_LANES);
    return (struct data_link){.member = member, .rank = rank, .lane = lane};
}

static struct data_link *data_link_create(const struct data_link *wanted)
{
    struct data_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        (void)hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a link's connection");
        return NULL;
    }
    *link = *wanted;
    hoop_list_push_back(&link->member->data_links, &link->node);
    return link;
}

static void data_link_destroy(struct data_link *link)
{
    hoop_list_remove(&link->node);
    hoop_endpoint_expect_no_more(&link->expectation);
    hoop_dialer_destroy(link->dialer);
    free(link);
}

void hoop_data_connection_finish(struct hoop_member *member)
{
    HOOP_LIST_EACH(struct data_link, link, &member->data_links, node) {
        data_link_destroy(link);
    }
    hoop_endpoint_close(member->data_endpoint);
    member->data_endpoint = NULL;
}

/* Hands the bare socket, and a key that only its two ends have, to the link. Frees `link`. */
static void data_hand_over(struct data_link *link, bool sending, struct hoop_connection *connection)
{
    const struct hoop_member_events *events = &link->member->events;
    struct hoop_event event = {.kind = HOOP_EVENT_SOCKET,
                               .rank = link->rank,
                               .id = link->lane,
                               .part = sending,
                               .key = hoop_connection_about(connection)->data_key};
    event.fd = hoop_connection_detach(connection);
    data_link_destroy(link);
    events->event(events->arg, &event);
    hoop_secret_wipe(&event.key, sizeof(event.key));
}

/* ---- Dialling ----------------------------------------------------------------------------- */

static void data_tell_failure(const struct data_link *link, hoop_result_t code, const char *why)
{
    const struct hoop_member_events *events = &link->member->events;
    const bool mine = hoop_result_is_own(code);
    const uint32_t me = link->member->join.rank;
    char who[160];
    char where[HOOP_ADDRESS_TEXT_BYTES];
    struct hoop_event event = {
        .kind = HOOP_EVENT_SOCKET, .rank = link->rank, .id = link->lane, .part = true, .fd = -1};
    hoop_member_describe(link->member, link->rank, who, sizeof(who));
    hoop_address_format(&link->address, where, sizeof(where));
    if (mine) {
        (void)hoop_failure_set(&event.failure, code, (int)me, "rank %u cannot connect to %s: %s",
                               me, who, why);
    } else {
        (void)hoop_failure_set(&event.failure, code, (int)link->rank,
                               "%s cannot be reached at %s for data: %s", who, where, why);
    }
    events->event(events->arg, &event);
}

static void data_found(void *arg, struct hoop_connection *connection)
{
    data_hand_over(arg, true, connection);
}

static void data_not_found(void *arg, hoop_result_t code, const char *why)
{
    struct data_link *link = arg;
    data_tell_failure(link, code == HOOP_TIMEOUT ? HOOP_REMOTE_ERROR : code, why);
    data_link_destroy(link);
}

static const struct hoop_dialer_owner data_dialer_owner = {
    .found = data_found,
    .failed = data_not_found,
};

static hoop_result_t data_link_dial(struct data_link *link)
{
    const struct hoop_member *member = link->member;
    const bool same_family = member->address.family == link->address.family;
    const struct hoop_place place = {.address = link->address};
    const struct hoop_dialer_order order = {
        .places = &place,
        .count = 1,
        .from = same_family ? &member->address : NULL,
        .hello = {.kind = HOOP_HELLO_DATA,
                  .comm_id = member->roster.comm_id,
                  .from = member->join.rank,
                  .to = link->rank,
                  .lane = link->lane},
        .secret = &member->secret,
        .deadline_ns = member->roster.peers[link->rank].same_machine
                           ? HOOP_NEVER
                           : hoop_deadline_ns(member->roster.dead_after_ms),
    };
    return hoop_dialer_create(&order, &data_dialer_owner, link, &link->dialer);
}

static void data_dial(void *arg)
{
    const struct data_link *wanted = arg;
    const struct hoop_address *address = &wanted->address;
    struct data_link *link = data_link_create(wanted);
    if (link == NULL) {
        data_tell_failure(wanted, HOOP_OUT_OF_MEMORY, hoop_thread_error());
        return;
    }
    if (!hoop_address_is_valid(address) || address->family == 0 || address->port == 0) {
        link->address = (struct hoop_address){.family = 0}; /* do not print an invalid address */
        data_not_found(link, HOOP_REMOTE_ERROR, "it gave no valid address");
        return;
    }
    if (!link->member->roster.peers[link->rank].same_machine) {
        hoop_address_rescope(&link->address, &link->member->address);
    }
    const hoop_result_t result = data_link_dial(link);
    if (result != HOOP_OK) {
        data_not_found(link, result, hoop_thread_error());
    }
}

void hoop_member_dial(struct hoop_member *member, uint32_t rank, uint32_t lane,
                      const struct hoop_address *address)
{
    struct data_link wanted = data_link_wanted(member, rank, lane);
    wanted.address = *address;
    hoop_service_post(data_dial, &wanted, sizeof(wanted));
}

/* ---- Expecting ---------------------------------------------------------------------------- */

static void data_starved(void *arg, uint64_t ms, const struct hoop_failure *why)
{
    const struct data_link *link = arg;
    hoop_member_starved(link->member, ms, why);
}

static void data_opened(void *arg, struct hoop_connection *connection)
{
    data_hand_over(arg, false, connection);
}

/* Where the ranks of one machine connect to each other. */
static hoop_result_t data_near_address(struct hoop_address *ret)
{
    if (hoop_settings()->socket_ifname != NULL) {
        return hoop_interface_choose(ret);
    }
    static const struct hoop_address ip4 = {.family = 4, .ip = {127, 0, 0, 1}};
    static const struct hoop_address ip6 = {.family = 6, .ip = {[15] = 1}};
    if (hoop_interface_towards(&ip4, ret) == HOOP_OK ||
        hoop_interface_towards(&ip6, ret) == HOOP_OK) {
        return HOOP_OK;
    }
    return hoop_interface_towards(&ip4, ret); /* loopback is down: its sentence */
}

/* Opens the endpoint, at the address at which other machines reach this one if there are any. */
static hoop_result_t data_listen(struct hoop_member *member)
{
    const struct hoop_ports ports = hoop_port_range();
    struct hoop_place place = {.address = member->address};
    const hoop_result_t result =
        member->address.family != 0 ? HOOP_OK : data_near_address(&place.address);
    return result == HOOP_OK ? hoop_endpoint_open(&place, &ports, &member->data_endpoint) : result;
}

/* Sets wanted->address to the endpoint's. */
static hoop_result_t data_expect(void *arg)
{
    struct data_link *wanted = arg;
    struct hoop_member *member = wanted->member;
    const hoop_result_t result = member->data_endpoint != NULL ? HOOP_OK : data_listen(member);
    if (result != HOOP_OK) {
        return result;
    }
    wanted->address = *hoop_endpoint_address(member->data_endpoint);
    struct data_link *link = data_link_create(wanted);
    if (link == NULL) {
        return HOOP_OUT_OF_MEMORY;
    }
    link->expectation = (struct hoop_expectation){
        .hello = {.kind = HOOP_HELLO_DATA,
                  .comm_id = member->roster.comm_id,
                  .from = link->rank,
                  .to = member->join.rank,
                  .lane = link->lane},
        .secret = &member->secret,
        .opened = data_opened,
        .starved = data_starved,
        .arg = link,
    };
    hoop_endpoint_expect(member->data_endpoint, &link->expectation);
    return HOOP_OK;
}

hoop_result_t hoop_member_data_address(struct hoop_member *member, uint32_t rank, uint32_t lane,
                                       struct hoop_address *ret)
{
    struct data_link wanted = data_link_wanted(member, rank, lane);
    const hoop_result_t result = hoop_service_call(data_expect, &wanted);
    if (result == HOOP_OK) {
        *ret = wanted.address;
    }
    return result;
}
