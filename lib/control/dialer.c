/*
 * Dials places in turn; see dialer.h. All on the service thread.
 *
 * Every attempt starts on the timer, so that an immediate failure never calls back into the caller,
 * and attempts never nest.
 */
#include "control/dialer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "net/interface.h"
#include "runtime/watch.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pauses between rounds double from 1 ms to this, so that a new server is found soon. */
#define DIALER_BACKOFF_NEAR_MS 20u
#define DIALER_BACKOFF_FAR_MS 100u
/* How long to wait for an answer over TCP: as long as an endpoint waits for a proof; if there are
 * other places, less at first. */
#define DIALER_PATIENCE_MS 5000u
#define DIALER_PATIENCE_MIN_MS 500u
#define DIALER_WARN_MS 10000u   /* or a quarter of its time: when a search says that it goes on */
#define DIALER_REASON_BYTES 240 /* has room for a job that another server tells of */

struct dialer_place {
    struct hoop_place place;
    hoop_result_t code;               /* of the last attempt; HOOP_OK if there was none */
    char reason[DIALER_REASON_BYTES]; /* why the last attempt failed */
    /* An earlier, more telling reason, kept if later attempts found nobody or a broken connection:
     * a root with another secret may end just before the one that is looked for appears. */
    char before[DIALER_REASON_BYTES];
};

struct hoop_dialer {
    const struct hoop_dialer_owner *owner;
    void *arg;
    struct hoop_timer *timer; /* for the next attempt, or for the end of this one */
    struct hoop_connection *connection;
    struct dialer_place places[HOOP_DIALER_PLACES];
    uint32_t count, at;
    bool unanswered; /* some attempt of this round was not answered */
    bool warned;
    uint64_t patience_ms;
    struct hoop_address from;
    struct hoop_frame_hello hello;
    struct hoop_secret secret;
    uint64_t start_ns, deadline_ns, backoff_ms;
    uint64_t attempt_ns; /* start of this attempt */
};

static bool dialer_is_far(const struct hoop_dialer *dialer)
{
    return dialer->places[dialer->at].place.address.family != 0;
}

static void dialer_wait(struct hoop_dialer *dialer, uint64_t ms)
{
    const uint64_t left = hoop_left_ms(dialer->deadline_ns);
    hoop_timer_start(dialer->timer, ms < left ? ms : left, 0);
}

/* Waits for an answer. On one machine the connection was made, so only the deadline counts. */
static void dialer_await(struct hoop_dialer *dialer)
{
    dialer_wait(dialer, dialer_is_far(dialer) ? dialer->patience_ms : UINT64_MAX);
}

/* ---- In vain ------------------------------------------------------------------------------ */

static void dialer_describe(const struct hoop_dialer *dialer, char *ret_text, size_t bytes)
{
    size_t at = 0;
    /* a sentence is limited in size, and the first place should not use it all */
    const int room = dialer->count > 1 ? 48 : DIALER_REASON_BYTES;
    for (uint32_t i = 0; i < dialer->count; i++) {
        const struct dialer_place *place = &dialer->places[i];
        char where[HOOP_ADDRESS_TEXT_BYTES];
        hoop_place_format(&place->place, where, sizeof(where));
        hoop_text_append(ret_text, bytes, &at, "%s %s (%.*s%s%.*s)", i == 0 ? "tried" : ",", where,
                         room, place->code != HOOP_OK ? place->reason : "not tried yet",
                         place->before[0] != 0 ? "; before: " : "", room, place->before);
    }
    hoop_text_append(ret_text, bytes, &at, " for %llu ms",
                     (unsigned long long)((hoop_now_ns() - dialer->start_ns) / HOOP_NS_PER_MS));
}

static void dialer_fail(struct hoop_dialer *dialer, hoop_result_t code)
{
    char text[HOOP_FAILURE_TEXT_BYTES];
    dialer_describe(dialer, text, sizeof(text));
    hoop_timer_stop(dialer->timer);
    dialer->owner->failed(dialer->arg, code, text);
}

/* Notes why an attempt failed. */
static void dialer_note(struct hoop_dialer *dialer, hoop_result_t code, const char *why)
{
    struct dialer_place *place = &dialer->places[dialer->at];
    if (code != HOOP_REMOTE_ERROR) {
        place->before[0] = 0;
    } else if (place->code != HOOP_OK && place->code != HOOP_REMOTE_ERROR) {
        memcpy(place->before, place->reason, sizeof(place->before));
    }
    place->code = code;
    (void)snprintf(place->reason, sizeof(place->reason), "%s", why);
}

static uint64_t dialer_double(uint64_t ms, uint64_t most)
{
    return ms * 2 < most ? ms * 2 : most;
}

/* Is the reason final? Local errors are, and refusals on one machine, where the uid is proved. */
static bool dialer_is_final(const struct dialer_place *place)
{
    const hoop_result_t code = place->code;
    if (code == HOOP_NOT_AUTHENTICATED || code == HOOP_MISMATCH) {
        return place->place.address.family == 0;
    }
    return code != HOOP_OK && code != HOOP_AGAIN && code != HOOP_REMOTE_ERROR;
}

/* The code that all places have in common, unless it means "not yet"; otherwise HOOP_TIMEOUT. */
static hoop_result_t dialer_verdict(const struct hoop_dialer *dialer)
{
    const hoop_result_t code = dialer->places[0].code;
    for (uint32_t i = 0; i < dialer->count; i++) {
        if (dialer->places[i].code != code) {
            return HOOP_TIMEOUT;
        }
    }
    return code == HOOP_OK || code == HOOP_AGAIN || code == HOOP_REMOTE_ERROR ? HOOP_TIMEOUT : code;
}

static bool dialer_is_hopeless(const struct hoop_dialer *dialer)
{
    uint32_t final = 0;
    for (uint32_t i = 0; i < dialer->count; i++) {
        final += dialer_is_final(&dialer->places[i]) ? 1 : 0;
    }
    return final == dialer->count;
}

/* Says once that a join has found nobody so far: its error is far off, and does not reach a process
 * that is ended before. */
static void dialer_warn(struct hoop_dialer *dialer)
{
    const uint64_t quarter_ns = (dialer->deadline_ns - dialer->start_ns) / 4;
    const uint64_t most_ns = DIALER_WARN_MS * HOOP_NS_PER_MS;
    char text[HOOP_FAILURE_TEXT_BYTES];
    if (dialer->warned || dialer->hello.kind > HOOP_HELLO_TO_PARENT ||
        hoop_now_ns() - dialer->start_ns < (quarter_ns < most_ns ? quarter_ns : most_ns)) {
        return;
    }
    dialer->warned = true;
    dialer_describe(dialer, text, sizeof(text));
    hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT, "found nobody yet: %s, going on", text);
}

static void dialer_next_round(struct hoop_dialer *dialer)
{
    const bool far = dialer_is_far(dialer);
    if (dialer_is_hopeless(dialer)) {
        dialer_fail(dialer, dialer->places[dialer->at].code);
        return;
    }
    dialer_warn(dialer);
    if (dialer->unanswered) {
        dialer->patience_ms = dialer_double(dialer->patience_ms, DIALER_PATIENCE_MS);
    }
    dialer->at = 0;
    dialer->unanswered = false;
    dialer_wait(dialer, dialer->backoff_ms);
    dialer->backoff_ms =
        dialer_double(dialer->backoff_ms, far ? DIALER_BACKOFF_FAR_MS : DIALER_BACKOFF_NEAR_MS);
    if (dialer->owner->round != NULL) {
        dialer->owner->round(dialer->arg);
    }
}

/* An attempt failed: go on to the next place, or to the next round. */
static void dialer_miss(struct hoop_dialer *dialer, hoop_result_t code, const char *why)
{
    dialer_note(dialer, code, why);
    hoop_connection_destroy(dialer->connection);
    dialer->connection = NULL;
    if (dialer->at + 1 < dialer->count) {
        dialer->at++;
        dialer_wait(dialer, 0);
    } else {
        dialer_next_round(dialer);
    }
}

/* ---- An attempt --------------------------------------------------------------------------- */

static void dialer_opened(void *arg, struct hoop_connection *connection)
{
    struct hoop_dialer *dialer = arg;
    dialer->connection = NULL;
    hoop_timer_stop(dialer->timer);
    dialer->owner->found(dialer->arg, connection);
}

static void dialer_closed(void *arg, struct hoop_connection *connection,
                          const struct hoop_failure *why)
{
    (void)connection;
    dialer_miss(arg, why->code, why->text);
}

static const struct hoop_connection_owner dialer_connection_owner = {
    .opened = dialer_opened,
    .closed = dialer_closed,
};

static void dialer_dial(struct hoop_dialer *dialer)
{
    const struct hoop_place *place = &dialer->places[dialer->at].place;
    struct hoop_address from = dialer->from;
    hoop_result_t result = HOOP_OK;
    dialer->attempt_ns = hoop_now_ns();
    if (dialer_is_far(dialer) && from.family == 0 && hoop_settings()->socket_ifname != NULL) {
        result = hoop_interface_towards(&place->address, &from);
    }
    if (result == HOOP_OK) {
        const bool usable = from.family == place->address.family && from.family != 0;
        result =
            hoop_connection_connect(place, usable ? &from : NULL, &dialer->hello, &dialer->secret,
                                    &dialer_connection_owner, dialer, &dialer->connection);
    }
    if (result == HOOP_OK) {
        dialer_await(dialer);
    } else {
        dialer_miss(dialer, result,
                    result == HOOP_AGAIN ? "its queue is full" : hoop_thread_error());
    }
}

/* Fails at the deadline. If the current attempt has hardly begun, the previous reason is kept. */
static void dialer_give_up(struct hoop_dialer *dialer)
{
    const uint64_t ms = (hoop_now_ns() - dialer->attempt_ns) / HOOP_NS_PER_MS;
    const bool silent = dialer->connection != NULL;
    if (silent && (ms >= DIALER_PATIENCE_MIN_MS || dialer->places[dialer->at].code == HOOP_OK)) {
        dialer_note(dialer, HOOP_AGAIN, "no answer");
    }
    hoop_connection_destroy(dialer->connection);
    dialer->connection = NULL;
    dialer_fail(dialer, dialer_verdict(dialer));
}

static void dialer_due(void *arg)
{
    struct hoop_dialer *dialer = arg;
    if (hoop_left_ms(dialer->deadline_ns) == 0) {
        dialer_give_up(dialer);
    } else if (dialer->connection == NULL) {
        dialer_dial(dialer);
    } else if (dialer_is_far(dialer) &&
               hoop_now_ns() - dialer->attempt_ns >= dialer->patience_ms * HOOP_NS_PER_MS) {
        dialer->unanswered = true;
        dialer_miss(dialer, HOOP_AGAIN, "no answer");
    } else { /* the deadline was moved */
        dialer_await(dialer);
    }
}

/* ---- Life --------------------------------------------------------------------------------- */

void hoop_dialer_set_places(struct hoop_dialer *dialer, const struct hoop_place *places,
                            uint32_t count)
{
    assert(count > 0 && count <= HOOP_DIALER_PLACES);
    if (dialer->connection != NULL) {
        hoop_connection_destroy(dialer->connection);
        dialer->connection = NULL;
        dialer_wait(dialer, 0);
    }
    dialer->count = count;
    dialer->at = 0;
    memset(dialer->places, 0, sizeof(dialer->places));
    for (uint32_t i = 0; i < count; i++) {
        dialer->places[i].place = places[i];
    }
}

hoop_result_t hoop_dialer_create(const struct hoop_dialer_order *order,
                                 const struct hoop_dialer_owner *owner, void *arg,
                                 struct hoop_dialer **ret_dialer)
{
    struct hoop_dialer *dialer = calloc(1, sizeof(*dialer));
    if (dialer == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a dialer");
    }
    const hoop_result_t result = hoop_timer_create(dialer_due, dialer, &dialer->timer);
    if (result != HOOP_OK) {
        free(dialer);
        return result;
    }
    dialer->owner = owner;
    dialer->arg = arg;
    hoop_dialer_set_places(dialer, order->places, order->count);
    hoop_dialer_say(dialer, &order->hello, order->secret);
    if (order->from != NULL) {
        dialer->from = *order->from;
    }
    dialer->start_ns = hoop_now_ns();
    dialer->deadline_ns = order->deadline_ns;
    dialer->backoff_ms = 1;
    dialer->patience_ms = order->count == 1 ? DIALER_PATIENCE_MS : DIALER_PATIENCE_MIN_MS;
    hoop_timer_start(dialer->timer, 0, 0);
    *ret_dialer = dialer;
    return HOOP_OK;
}

void hoop_dialer_say(struct hoop_dialer *dialer, const struct hoop_frame_hello *hello,
                     const struct hoop_secret *secret)
{
    dialer->hello = *hello;
    dialer->secret = *secret;
}

void hoop_dialer_until(struct hoop_dialer *dialer, uint64_t deadline_ns)
{
    const bool sooner = deadline_ns < dialer->deadline_ns;
    dialer->deadline_ns = deadline_ns;
    if (sooner && dialer->connection != NULL) {
        dialer_await(dialer);
    }
}

void hoop_dialer_destroy(struct hoop_dialer *dialer)
{
    if (dialer == NULL) {
        return;
    }
    hoop_connection_destroy(dialer->connection);
    hoop_timer_destroy(dialer->timer);
    hoop_secret_wipe(&dialer->secret, sizeof(dialer->secret));
    hoop_free_later(dialer);
}
