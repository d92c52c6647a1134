/*
 * Accepting control connections: on this machine of this uid, at most LISTENER_WAITING unproven at
 * once, each for LISTENER_PATIENCE_MS. A newcomer over the limit takes the place of the one that
 * has waited longest: a proof takes three times the way to the other end and back, so that crowds
 * of strangers starve nobody. An honest process that was closed so tries again.
 *
 * On TCP anybody may come. There LISTENER_ACCEPTS newcomers are followed by a rest, so that a flood
 * costs the service thread little, and a newcomer keeps its place for LISTENER_REST_MS at the
 * least: long enough for a proof in a machine room. The others wait in the kernel's queue.
 */
#include "base/clock.h"
#include "base/log.h"
#include "control.h"
#include "packet.h"
#include "stream.h"
#include "watch.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTENER_WAITING 64u
#define LISTENER_PATIENCE_MS 5000u
#define LISTENER_LOOK_MS 500u
#define LISTENER_ACCEPTS 32 /* at once, then the others have their turn */
#define LISTENER_REST_MS 5u

/* An accepted connection that has not proved itself yet. Oldest first. */
struct listener_guest {
    struct listener_guest *next;
    struct hoop_listener *listener;
    struct hoop_control *control;
    uint64_t since_ns;
};

struct hoop_listener {
    const struct hoop_listener_owner *owner;
    void *arg;
    int fd;
    struct hoop_watch *watch;
    struct hoop_timer *timer; /* looks for those who take too long; also after accept failed */
    struct hoop_timer *rest;
    uint64_t round_ns; /* TCP: when the newcomers before the next rest began to come */
    uint32_t round;    /* how many they are */
    struct listener_guest *guests;
    uint32_t guest_count;
    bool told; /* strangers are logged once */
    bool warned;
    struct hoop_place place;
    char text[HOOP_ADDRESS_TEXT_BYTES]; /* of the place */
};

void hoop_place_format(const struct hoop_place *place, char *ret_text, size_t bytes)
{
    if (place->address.family == 0) {
        (void)snprintf(ret_text, bytes, "%s", place->name);
    } else {
        hoop_address_format(&place->address, ret_text, bytes);
    }
}

static void listener_tell(struct hoop_listener *listener, const char *why)
{
    if (!listener->told) {
        listener->told = true;
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_INIT,
                 "%s: a connection was refused: %s (later ones are not mentioned)", listener->text,
                 why);
    }
}

/* Not a stranger's doing: those who wait outside cannot know. */
static void listener_warn(struct hoop_listener *listener, const char *why)
{
    if (!listener->warned) {
        listener->warned = true;
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT, "%s: %s", listener->text, why);
    }
}

static void listener_unlink(struct hoop_listener *listener, const struct listener_guest *guest)
{
    struct listener_guest **at = &listener->guests;
    while (*at != guest) {
        at = &(*at)->next;
    }
    *at = guest->next;
    listener->guest_count--;
}

static void listener_dismiss(struct hoop_listener *listener, struct listener_guest *guest)
{
    listener_unlink(listener, guest);
    hoop_control_destroy(guest->control);
    free(guest);
}

/* ---- What an unproven connection does ----------------------------------------------------- */

static bool guest_admit(void *arg, const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                        struct hoop_failure *ret_failure)
{
    const struct listener_guest *guest = arg;
    return guest->listener->owner->admit(guest->listener->arg, hello, ret, ret_failure);
}

static void guest_opened(void *arg, struct hoop_control *control)
{
    struct listener_guest *guest = arg;
    struct hoop_listener *listener = guest->listener;
    listener_unlink(listener, guest);
    free(guest);
    listener->owner->opened(listener->arg, control);
}

static void guest_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                          int *fds)
{
    (void)arg;
    (void)control;
    (void)frame;
    (void)fds;
    assert(!"an open connection belongs to the listener's owner");
}

static void guest_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    struct listener_guest *guest = arg;
    (void)control;
    if (why->code != HOOP_AGAIN) {
        listener_tell(guest->listener, why->text);
    }
    listener_dismiss(guest->listener, guest);
}

static const struct hoop_control_owner listener_guest_owner = {
    .admit = guest_admit,
    .opened = guest_opened,
    .message = guest_message,
    .closed = guest_closed,
};

/* ---- Accepting ---------------------------------------------------------------------------- */

static void listener_welcome(struct hoop_listener *listener, int fd)
{
    struct listener_guest *guest = calloc(1, sizeof(*guest));
    if (guest == NULL) {
        hoop_fork_close(fd);
        return;
    }
    guest->listener = listener;
    guest->since_ns = hoop_now_ns();
    if (hoop_control_accept(fd, &listener_guest_owner, guest, &guest->control) != HOOP_OK) {
        listener_tell(listener, hoop_thread_error());
        free(guest);
        return;
    }
    if (listener->guest_count == LISTENER_WAITING) {
        listener_tell(listener, "too many connections that prove nothing");
        listener_dismiss(listener, listener->guests);
    }
    struct listener_guest **at = &listener->guests;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = guest;
    listener->guest_count++;
    if (listener->guest_count == 1) {
        hoop_timer_start(listener->timer, LISTENER_LOOK_MS, LISTENER_LOOK_MS);
    }
}

/* Is it time for a rest? */
static bool listener_is_tired(struct hoop_listener *listener)
{
    const uint64_t now = hoop_now_ns();
    if (now - listener->round_ns > LISTENER_REST_MS * HOOP_NS_PER_MS) {
        listener->round_ns = now;
        listener->round = 0;
    }
    return listener->place.address.family != 0 && ++listener->round >= LISTENER_ACCEPTS;
}

static void listener_ready(void *arg, unsigned events)
{
    struct hoop_listener *listener = arg;
    (void)events;
    for (int i = 0; i < LISTENER_ACCEPTS; i++) {
        int fd = -1;
        const hoop_result_t result = hoop_packet_accept(listener->fd, &fd);
        if (result == HOOP_AGAIN) {
            return;
        }
        if (result != HOOP_OK) {
            /* out of descriptors: the connection stays queued, so look away for a while */
            listener_warn(listener, hoop_thread_error());
            hoop_watch_want(listener->watch, 0);
            hoop_timer_start(listener->timer, LISTENER_LOOK_MS, LISTENER_LOOK_MS);
            return;
        }
        listener_welcome(listener, fd);
        if (listener_is_tired(listener)) {
            hoop_watch_want(listener->watch, 0);
            hoop_timer_start(listener->rest, LISTENER_REST_MS, 0);
            return;
        }
    }
}

static void listener_rested(void *arg)
{
    struct hoop_listener *listener = arg;
    listener->round = 0;
    hoop_watch_want(listener->watch, HOOP_WATCH_READ);
}

static void listener_look(void *arg)
{
    struct hoop_listener *listener = arg;
    const uint64_t now = hoop_now_ns();
    hoop_watch_want(listener->watch, HOOP_WATCH_READ);
    while (listener->guests != NULL &&
           now - listener->guests->since_ns > LISTENER_PATIENCE_MS * HOOP_NS_PER_MS) {
        listener_tell(listener, "it proved nothing in time");
        listener_dismiss(listener, listener->guests);
    }
    if (listener->guests == NULL) {
        hoop_timer_stop(listener->timer);
    }
}

static hoop_result_t listener_open(struct hoop_listener *listener, const struct hoop_ports *ports)
{
    struct hoop_address *address = &listener->place.address;
    hoop_result_t result = address->family == 0
                               ? hoop_packet_listen(listener->place.name, &listener->fd)
                               : hoop_stream_listen(address, ports, &listener->fd, address);
    if (result == HOOP_OK) {
        hoop_place_format(&listener->place, listener->text, sizeof(listener->text));
        result = hoop_timer_create(listener_look, listener, &listener->timer);
    }
    if (result == HOOP_OK) {
        result = hoop_timer_create(listener_rested, listener, &listener->rest);
    }
    if (result == HOOP_OK) {
        result = hoop_watch_create(listener->fd, HOOP_WATCH_READ, listener_ready, listener,
                                   &listener->watch);
    }
    return result;
}

hoop_result_t hoop_listener_create(const struct hoop_place *place, const struct hoop_ports *ports,
                                   const struct hoop_listener_owner *owner, void *arg,
                                   struct hoop_listener **ret_listener,
                                   struct hoop_failure *failure)
{
    struct hoop_listener *listener = calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for a listener");
    }
    listener->fd = -1;
    listener->owner = owner;
    listener->arg = arg;
    listener->place = *place;
    const hoop_result_t result = listener_open(listener, ports);
    if (result != HOOP_OK) {
        hoop_listener_destroy(listener);
        return hoop_failure_set(failure, result, -1, "%s", hoop_thread_error());
    }
    *ret_listener = listener;
    return HOOP_OK;
}

const struct hoop_address *hoop_listener_address(const struct hoop_listener *listener)
{
    return &listener->place.address;
}

void hoop_listener_destroy(struct hoop_listener *listener)
{
    if (listener == NULL) {
        return;
    }
    while (listener->guests != NULL) {
        listener_dismiss(listener, listener->guests);
    }
    hoop_timer_destroy(listener->rest);
    hoop_timer_destroy(listener->timer);
    hoop_watch_destroy(listener->watch);
    hoop_fork_close(listener->fd);
    free(listener);
}

hoop_result_t hoop_listener_name(char ret_name[HOOP_FRAME_NAME_BYTES])
{
    uint8_t bytes[16];
    const hoop_result_t result = hoop_random(bytes, sizeof(bytes));
    if (result != HOOP_OK) {
        return result;
    }
    size_t at = (size_t)snprintf(ret_name, HOOP_FRAME_NAME_BYTES, "hoop-");
    for (size_t i = 0; i < sizeof(bytes); i++) {
        at += (size_t)snprintf(ret_name + at, HOOP_FRAME_NAME_BYTES - at, "%02x", bytes[i]);
    }
    return HOOP_OK;
}
