/*
 * Dialling addresses in turn; see search.h. All on the service thread.
 *
 * Every attempt begins on the timer, so that a reason that is known at once never calls back into
 * the caller, and attempts never nest.
 */
#include "search.h"
#include "base/clock.h"
#include "base/settings.h"
#include "interface.h"
#include "watch.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEARCH_BACKOFF_MAX_MS 100u
/* As long as a listener waits for a proof; where there are other addresses, at first less. */
#define SEARCH_PATIENCE_MS 5000u
#define SEARCH_PATIENCE_MIN_MS 500u
#define SEARCH_REASON_BYTES 160

struct hoop_search {
    const struct hoop_search_owner *owner;
    void *arg;
    struct hoop_timer *timer; /* the next attempt, or the end of this one's patience */
    struct hoop_control *control;
    struct hoop_place places[HOOP_SEARCH_ADDRESSES];
    char reasons[HOOP_SEARCH_ADDRESSES][SEARCH_REASON_BYTES]; /* of the last attempts */
    uint32_t count, at;
    uint32_t hopeless; /* in this round */
    bool unanswered;   /* an attempt of this round */
    uint64_t patience_ms;
    struct hoop_frame_hello hello;
    struct hoop_secret secret;
    uint64_t start_ns, deadline_ns, backoff_ms;
    uint64_t attempt_ns; /* when this attempt began */
};

static uint64_t search_left_ms(const struct hoop_search *search)
{
    const uint64_t now = hoop_now_ns();
    return now < search->deadline_ns ? (search->deadline_ns - now) / HOOP_NS_PER_MS + 1 : 0;
}

static void search_wait(struct hoop_search *search, uint64_t ms)
{
    const uint64_t left = search_left_ms(search);
    hoop_timer_start(search->timer, ms < left ? ms : left, 0);
}

/* ---- In vain ------------------------------------------------------------------------------ */

static void search_fail(struct hoop_search *search, hoop_result_t code)
{
    const uint64_t ms = (hoop_now_ns() - search->start_ns) / HOOP_NS_PER_MS;
    char text[HOOP_FAILURE_TEXT_BYTES] = "tried";
    size_t at = strlen(text);
    /* a sentence has its limits, and the first address should not take it all */
    const int room = search->count > 1 ? 48 : SEARCH_REASON_BYTES;
    for (uint32_t i = 0; i < search->count && at < sizeof(text); i++) {
        char where[HOOP_ADDRESS_TEXT_BYTES];
        hoop_place_format(&search->places[i], where, sizeof(where));
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s %s (%.*s)", i == 0 ? "" : ",",
                               where, room,
                               search->reasons[i][0] != 0 ? search->reasons[i] : "not tried yet");
    }
    if (code == HOOP_TIMEOUT && at < sizeof(text)) {
        (void)snprintf(text + at, sizeof(text) - at, " for %llu ms", (unsigned long long)ms);
    }
    hoop_timer_stop(search->timer);
    search->owner->failed(search->arg, code, text);
}

/* The address is named beside the reason: it need not be in it. */
static void search_note(struct hoop_search *search, const char *why)
{
    char prefix[HOOP_ADDRESS_TEXT_BYTES + 32];
    char where[HOOP_ADDRESS_TEXT_BYTES];
    hoop_place_format(&search->places[search->at], where, sizeof(where));
    const int bytes = snprintf(prefix, sizeof(prefix), "cannot connect to %s: ", where);
    const bool named = strncmp(why, prefix, (size_t)bytes) == 0;
    (void)snprintf(search->reasons[search->at], SEARCH_REASON_BYTES, "%s",
                   named ? why + bytes : why);
}

static uint64_t search_double(uint64_t ms, uint64_t most)
{
    return ms * 2 < most ? ms * 2 : most;
}

/* An attempt was in vain: on to the next address, or to the next round. */
static void search_miss(struct hoop_search *search, hoop_result_t code, const char *why)
{
    search_note(search, why);
    hoop_control_destroy(search->control);
    search->control = NULL;
    search->hopeless += code != HOOP_AGAIN && code != HOOP_REMOTE_ERROR ? 1 : 0;
    search->at++;
    if (search->at < search->count) {
        search_wait(search, 0);
        return;
    }
    if (search->hopeless == search->count) {
        search_fail(search, code);
        return;
    }
    if (search->unanswered) {
        search->patience_ms = search_double(search->patience_ms, SEARCH_PATIENCE_MS);
    }
    search->at = 0;
    search->hopeless = 0;
    search->unanswered = false;
    search_wait(search, search->backoff_ms);
    search->backoff_ms = search_double(search->backoff_ms, SEARCH_BACKOFF_MAX_MS);
}

/* ---- An attempt --------------------------------------------------------------------------- */

static void search_opened(void *arg, struct hoop_control *control)
{
    struct hoop_search *search = arg;
    search->control = NULL;
    hoop_timer_stop(search->timer);
    search->owner->found(search->arg, control);
}

static void search_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                           int *fds)
{
    (void)arg;
    (void)control;
    (void)frame;
    (void)fds;
    assert(!"an open connection belongs to who looked for it");
}

static void search_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    (void)control;
    search_miss(arg, why->code, why->text);
}

static const struct hoop_control_owner search_control_owner = {
    .opened = search_opened,
    .message = search_message,
    .closed = search_closed,
};

static void search_dial(struct hoop_search *search)
{
    const struct hoop_place *place = &search->places[search->at];
    struct hoop_address from = {.family = 0};
    hoop_result_t result = HOOP_OK;
    search->attempt_ns = hoop_now_ns();
    if (hoop_settings()->socket_ifname != NULL) {
        result = hoop_interface_towards(&place->address, &from);
    }
    if (result == HOOP_OK) {
        result =
            hoop_control_connect(place, from.family != 0 ? &from : NULL, &search->hello,
                                 &search->secret, &search_control_owner, search, &search->control);
    }
    if (result == HOOP_OK) {
        search_wait(search, search->patience_ms);
    } else {
        search_miss(search, result, result == HOOP_AGAIN ? "nobody is there" : hoop_thread_error());
    }
}

/* An attempt that has hardly begun says less than the one before it. */
static void search_give_up(struct hoop_search *search)
{
    const uint64_t ms = (hoop_now_ns() - search->attempt_ns) / HOOP_NS_PER_MS;
    char *reason = search->reasons[search->at];
    if (search->control != NULL && (ms >= SEARCH_PATIENCE_MIN_MS || reason[0] == 0)) {
        (void)snprintf(reason, SEARCH_REASON_BYTES, "no answer");
    }
    hoop_control_destroy(search->control);
    search->control = NULL;
    search_fail(search, HOOP_TIMEOUT);
}

static void search_due(void *arg)
{
    struct hoop_search *search = arg;
    if (search_left_ms(search) == 0) {
        search_give_up(search);
    } else if (search->control != NULL) {
        search->unanswered = true;
        search_miss(search, HOOP_AGAIN, "no answer");
    } else {
        search_dial(search);
    }
}

/* ---- Life --------------------------------------------------------------------------------- */

hoop_result_t hoop_search_create(const struct hoop_search_order *order,
                                 const struct hoop_search_owner *owner, void *arg,
                                 struct hoop_search **ret_search)
{
    assert(order->count > 0 && order->count <= HOOP_SEARCH_ADDRESSES);
    struct hoop_search *search = calloc(1, sizeof(*search));
    if (search == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a search");
    }
    const hoop_result_t result = hoop_timer_create(search_due, search, &search->timer);
    if (result != HOOP_OK) {
        free(search);
        return result;
    }
    search->owner = owner;
    search->arg = arg;
    search->count = order->count;
    for (uint32_t i = 0; i < order->count; i++) {
        search->places[i].address = order->addresses[i];
    }
    search->hello = *order->hello;
    search->secret = *order->secret;
    search->start_ns = hoop_now_ns();
    search->deadline_ns = order->deadline_ns;
    search->backoff_ms = 1;
    search->patience_ms = order->count == 1 ? SEARCH_PATIENCE_MS : SEARCH_PATIENCE_MIN_MS;
    hoop_timer_start(search->timer, 0, 0);
    *ret_search = search;
    return HOOP_OK;
}

void hoop_search_until(struct hoop_search *search, uint64_t deadline_ns)
{
    if (deadline_ns >= search->deadline_ns) {
        return;
    }
    search->deadline_ns = deadline_ns;
    if (search->control != NULL) {
        search_wait(search, search->patience_ms);
    }
}

void hoop_search_destroy(struct hoop_search *search)
{
    if (search == NULL) {
        return;
    }
    hoop_control_destroy(search->control);
    hoop_timer_destroy(search->timer);
    hoop_secret_wipe(&search->secret, sizeof(search->secret));
    free(search);
}
