/*
 * Docks; see dock.h. Everything but the two functions at the end runs on the service thread.
 *
 * A member takes data connections in only once it has opened its dock, and each one once: from
 * every rank, one per lane.
 */
#include "dock.h"
#include "base/clock.h"
#include "door.h"
#include "interface.h"
#include "member.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOCK_PATIENCE_MS 5000u
#define DOCK_BACKOFF_MAX_MS 100u

_Static_assert(HOOP_FRAME_MAX_LANES <= 64, "a word has a bit for every lane");

/* A connection to a rank's dock that is being made. */
struct dock_dial {
    struct dock_dial *next;
    struct hoop_member *member;
    uint32_t rank, lane;
    struct hoop_place place;
    struct hoop_control *control; /* NULL: between two attempts */
    struct hoop_timer *timer;     /* the next attempt, or the deadline of this one */
    uint64_t deadline_ns, backoff_ms;
    char why[160]; /* the last attempt failed */
};

struct hoop_dock {
    struct hoop_door *door; /* NULL: not opened */
    struct dock_dial *dials;
    uint64_t taken[]; /* [n], by rank: a bit for every lane that came in */
};

/* The member's, made at first use; NULL: no memory. */
static struct hoop_dock *dock_of(struct hoop_member *member)
{
    if (member->dock == NULL) {
        member->dock = calloc(1, sizeof(struct hoop_dock) + member->roster.n * sizeof(uint64_t));
    }
    return member->dock;
}

/* ---- Dialling ----------------------------------------------------------------------------- */

static void dial_destroy(struct dock_dial *dial)
{
    struct dock_dial **at = &dial->member->dock->dials;
    while (*at != dial) {
        at = &(*at)->next;
    }
    *at = dial->next;
    hoop_control_destroy(dial->control);
    hoop_timer_destroy(dial->timer);
    free(dial);
}

static void dock_tell_failure(struct hoop_member *member, uint32_t rank, uint32_t lane,
                              const struct hoop_address *address, hoop_result_t code,
                              const char *why)
{
    char who[160];
    char where[HOOP_ADDRESS_TEXT_BYTES];
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    hoop_member_describe(member, rank, who, sizeof(who));
    hoop_address_format(address, where, sizeof(where));
    (void)hoop_failure_set(&failure, code, (int)rank, "%s cannot be reached at %s for data: %s",
                           who, where, why);
    member->events.stream(member->events.arg, rank, lane, true, -1, &failure);
}

static void dial_fail(struct dock_dial *dial, hoop_result_t code, const char *why)
{
    const struct dock_dial gone = *dial;
    char text[HOOP_FAILURE_TEXT_BYTES];
    (void)snprintf(text, sizeof(text), "%s", why);
    dial_destroy(dial);
    dock_tell_failure(gone.member, gone.rank, gone.lane, &gone.place.address, code, text);
}

static uint64_t dial_left_ms(const struct dock_dial *dial)
{
    const uint64_t now = hoop_now_ns();
    return now < dial->deadline_ns ? (dial->deadline_ns - now) / HOOP_NS_PER_MS + 1 : 0;
}

/* An attempt was in vain: another one a little later, if there is time. */
static void dial_again(struct dock_dial *dial, const char *why)
{
    (void)snprintf(dial->why, sizeof(dial->why), "%.159s", why);
    if (dial_left_ms(dial) == 0) {
        dial_fail(dial, HOOP_REMOTE_ERROR, dial->why);
        return;
    }
    hoop_timer_start(dial->timer, dial->backoff_ms, 0);
    dial->backoff_ms =
        dial->backoff_ms * 2 < DOCK_BACKOFF_MAX_MS ? dial->backoff_ms * 2 : DOCK_BACKOFF_MAX_MS;
}

static void dial_opened(void *arg, struct hoop_control *control)
{
    struct dock_dial *dial = arg;
    const struct hoop_member *member = dial->member;
    const uint32_t rank = dial->rank;
    const uint32_t lane = dial->lane;
    const int fd = hoop_control_detach(control);
    dial->control = NULL;
    dial_destroy(dial);
    member->events.stream(member->events.arg, rank, lane, true, fd, NULL);
}

static void dial_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                         int *fds)
{
    (void)arg;
    (void)control;
    (void)frame;
    (void)fds;
    assert(!"an open data connection is no control connection");
}

static void dial_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    struct dock_dial *dial = arg;
    hoop_control_destroy(control);
    dial->control = NULL;
    if (why->code == HOOP_REMOTE_ERROR || why->code == HOOP_AGAIN) {
        dial_again(dial, why->text);
    } else {
        dial_fail(dial, why->code, why->text);
    }
}

static const struct hoop_control_owner dial_owner = {
    .opened = dial_opened,
    .message = dial_message,
    .closed = dial_closed,
};

static void dial_connect(void *arg)
{
    struct dock_dial *dial = arg;
    const struct hoop_member *member = dial->member;
    union hoop_frame hello;
    if (dial->control != NULL || dial_left_ms(dial) == 0) {
        dial_fail(dial, HOOP_REMOTE_ERROR,
                  dial->control != NULL ? "it does not answer" : dial->why);
        return;
    }
    hoop_frame_init(&hello, HOOP_FRAME_HELLO);
    hello.hello.kind = HOOP_HELLO_DATA;
    hello.hello.comm_id = member->roster.comm_id;
    hello.hello.epoch = member->roster.epoch;
    hello.hello.from = member->join.rank;
    hello.hello.to = dial->rank;
    hello.hello.lane = dial->lane;
    const bool same_family = member->address.family == dial->place.address.family;
    const hoop_result_t result =
        hoop_control_connect(&dial->place, same_family ? &member->address : NULL, &hello.hello,
                             &member->secret, &dial_owner, dial, &dial->control);
    if (result != HOOP_OK) {
        dial_fail(dial, result, hoop_thread_error());
        return;
    }
    hoop_timer_start(dial->timer, dial_left_ms(dial), 0);
}

struct dock_call {
    struct hoop_member *member;
    uint32_t rank, lane;
    bool posted; /* allocated */
    struct hoop_address address;
};

static void dock_dial(void *arg)
{
    struct dock_call *call = arg;
    struct hoop_member *member = call->member;
    const struct hoop_address *address = &call->address;
    struct dock_dial *dial = NULL;
    if (!hoop_address_is_valid(address) || address->family == 0 || address->port == 0) {
        const struct hoop_address nowhere = {.family = 0};
        dock_tell_failure(member, call->rank, call->lane, &nowhere, HOOP_REMOTE_ERROR,
                          "it told no valid address");
    } else if (dock_of(member) == NULL || (dial = calloc(1, sizeof(*dial))) == NULL ||
               hoop_timer_create(dial_connect, dial, &dial->timer) != HOOP_OK) {
        free(dial);
        dock_tell_failure(member, call->rank, call->lane, address, HOOP_OUT_OF_MEMORY,
                          "no memory for the connection");
    } else {
        dial->member = member;
        dial->rank = call->rank;
        dial->lane = call->lane;
        dial->place.address = *address;
        if (address->scope != 0 && member->address.scope != 0) {
            /* an interface has its own number on each machine */
            dial->place.address.scope = member->address.scope;
        }
        dial->deadline_ns = hoop_deadline_ns(DOCK_PATIENCE_MS);
        dial->backoff_ms = 1;
        dial->next = member->dock->dials;
        member->dock->dials = dial;
        dial_connect(dial);
    }
    if (call->posted) {
        free(call);
    }
}

/* ---- Taking in ---------------------------------------------------------------------------- */

/* The member that this hello is for, if it waits for such a connection. */
static struct hoop_member *dock_host(const struct hoop_frame_hello *hello)
{
    struct hoop_member *member = hoop_member_find(hello->comm_id, hello->to);
    const bool open = member != NULL && member->dock != NULL && member->dock->door != NULL;
    if (!open || hello->epoch != member->roster.epoch || hello->from >= member->roster.n) {
        return NULL;
    }
    const bool taken = (member->dock->taken[hello->from] >> hello->lane & 1) != 0;
    return taken ? NULL : member;
}

bool hoop_dock_admit(const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                     struct hoop_failure *ret_failure)
{
    const struct hoop_member *member = dock_host(hello);
    if (member == NULL) {
        (void)hoop_failure_set(ret_failure, HOOP_NOT_AUTHENTICATED, -1,
                               "no link of this comm waits for that connection");
        return false;
    }
    ret->secret = member->secret;
    ret->hand_out = false;
    return true;
}

void hoop_dock_opened(struct hoop_control *control)
{
    const struct hoop_frame_hello hello = *hoop_control_hello(control);
    struct hoop_member *member = dock_host(&hello);
    if (member == NULL) { /* it left since the hello, or another one was faster */
        hoop_control_destroy(control);
        return;
    }
    member->dock->taken[hello.from] |= 1ull << hello.lane;
    const int fd = hoop_control_detach(control);
    member->events.stream(member->events.arg, hello.from, hello.lane, false, fd, NULL);
}

/* ---- Life --------------------------------------------------------------------------------- */

void hoop_dock_finish(struct hoop_member *member)
{
    if (member->dock == NULL) {
        return;
    }
    struct dock_dial *dial = member->dock->dials;
    while (dial != NULL) {
        struct dock_dial *next = dial->next;
        dial_destroy(dial);
        dial = next;
    }
    hoop_door_close(member->dock->door);
    free(member->dock);
    member->dock = NULL;
}

/* ---- From any thread ---------------------------------------------------------------------- */

struct dock_opening {
    struct hoop_member *member;
    struct hoop_address address; /* in: where; out: with its port */
    struct hoop_failure failure;
};

static void dock_open(void *arg)
{
    struct dock_opening *opening = arg;
    struct hoop_dock *dock = dock_of(opening->member);
    const struct hoop_ports ports = hoop_door_ports();
    if (dock == NULL) {
        (void)hoop_failure_set(&opening->failure, HOOP_OUT_OF_MEMORY, -1, "no memory for a dock");
        return;
    }
    if (dock->door == NULL &&
        hoop_door_open(&opening->address, &ports, &dock->door, &opening->failure) != HOOP_OK) {
        return;
    }
    opening->address = *hoop_door_address(dock->door);
}

/* Where the others reach this machine; if there are no others, loopback will do. */
static hoop_result_t dock_where(const struct hoop_member *member, struct hoop_address *ret)
{
    if (member->address.family != 0) {
        *ret = member->address;
        ret->port = 0;
        return HOOP_OK;
    }
    if (hoop_settings()->socket_ifname != NULL) {
        return hoop_interface_choose(ret);
    }
    *ret = (struct hoop_address){.family = 4, .ip = {127, 0, 0, 1}};
    return HOOP_OK;
}

hoop_result_t hoop_member_dock(struct hoop_member *member, struct hoop_address *ret)
{
    struct dock_opening opening = {.member = member, .failure = {.rank = -1}};
    const hoop_result_t result = dock_where(member, &opening.address);
    if (result != HOOP_OK) {
        return result;
    }
    hoop_service_run(dock_open, &opening);
    if (opening.failure.code != HOOP_OK) {
        return hoop_error(opening.failure.code, "%s", opening.failure.text);
    }
    *ret = opening.address;
    return HOOP_OK;
}

void hoop_member_dial(struct hoop_member *member, uint32_t rank, uint32_t lane,
                      const struct hoop_address *address)
{
    assert(rank < member->join.n && rank != member->join.rank && lane < HOOP_FRAME_MAX_LANES);
    struct dock_call call = {.member = member, .rank = rank, .lane = lane, .address = *address};
    struct dock_call *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        hoop_service_run(dock_dial, &call); /* late, but done */
        return;
    }
    *copy = call;
    copy->posted = true;
    hoop_service_post(dock_dial, copy);
}
