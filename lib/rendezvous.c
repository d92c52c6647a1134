/*
 * The rendezvous, until all are in; see rendezvous.h and guest.h. All on the service thread.
 *
 * A connection that cannot prove that it belongs never gets this far (listener.c).
 *
 * With a tree, the hub is the one to say who is missing, because it sees all machines; this side's
 * own deadline is for ranks that are here and do not get ready. After a failure it stays for those
 * who come late, as long as the join could have lasted, so that they learn the reason and do not
 * wait for nobody.
 */
#include "rendezvous.h"
#include "base/clock.h"
#include "base/settings.h"
#include "guest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RENDEZVOUS_GUESTS (HOOP_FRAME_MAX_RANKS + 64u)

static struct hoop_rendezvous *rendezvous_all;

/* ---- Life --------------------------------------------------------------------------------- */

void hoop_guest_close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static void rendezvous_dismiss(struct hoop_guest *guest)
{
    struct hoop_guest **at = &guest->rendezvous->guests;
    while (*at != guest) {
        at = &(*at)->next;
    }
    *at = guest->next;
    guest->rendezvous->guest_count--;
    if (guest->rank != HOOP_GUEST_NOBODY && guest->rendezvous->ranks[guest->rank] == guest) {
        guest->rendezvous->ranks[guest->rank] = NULL;
    }
    hoop_control_destroy(guest->control);
    hoop_guest_close_fd(&guest->wake_fd);
    free(guest);
}

static void rendezvous_destroy(struct hoop_rendezvous *rendezvous)
{
    struct hoop_rendezvous **at = &rendezvous_all;
    while (*at != NULL && *at != rendezvous) {
        at = &(*at)->next;
    }
    if (*at == rendezvous) {
        *at = rendezvous->next;
    }
    if (rendezvous->tree != NULL && rendezvous->state == HOOP_RENDEZVOUS_RUNNING) {
        hoop_tree_leave(rendezvous->tree);
    } else {
        hoop_tree_destroy(rendezvous->tree);
    }
    struct hoop_guest *guest = rendezvous->guests;
    while (guest != NULL) {
        struct hoop_guest *next = guest->next;
        rendezvous_dismiss(guest);
        guest = next;
    }
    hoop_relay_finish(rendezvous);
    hoop_guest_close_fd(&rendezvous->segment);
    hoop_timer_destroy(rendezvous->timer);
    hoop_listener_destroy(rendezvous->listener);
    hoop_gathering_finish(&rendezvous->gathering);
    hoop_secret_wipe(&rendezvous->secret, sizeof(rendezvous->secret));
    hoop_secret_wipe(&rendezvous->meeting, sizeof(rendezvous->meeting));
    free(rendezvous->entries);
    free(rendezvous->ranks);
    free(rendezvous);
}

void hoop_rendezvous_settle(struct hoop_rendezvous *rendezvous)
{
    const struct hoop_guest *guest = rendezvous->guests;
    while (guest != NULL && guest->rank == HOOP_GUEST_NOBODY) {
        guest = guest->next;
    }
    if (guest == NULL && rendezvous->suspects == NULL) {
        rendezvous_destroy(rendezvous);
    }
}

/* ---- Failing ------------------------------------------------------------------------------ */

/* This rank knows, or needs to know nothing any more. */
static void rendezvous_mark_told(const struct hoop_guest *guest)
{
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    const uint32_t rank = guest->join.rank;
    const uint8_t bit = (uint8_t)(1u << (rank % 8));
    if (guest->join.n > rendezvous->expected) {
        rendezvous->expected = guest->join.n;
    }
    if ((rendezvous->told_bits[rank / 8] & bit) == 0) {
        rendezvous->told_bits[rank / 8] |= bit;
        rendezvous->told++;
    }
}

static void rendezvous_reject(struct hoop_guest *guest)
{
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_REJECT);
    frame.reject.code = (int32_t)rendezvous->failure.code;
    frame.reject.rank = rendezvous->failure.rank;
    memcpy(frame.reject.text, rendezvous->failure.text, sizeof(frame.reject.text));
    hoop_control_send(guest->control, &frame.header, NULL, 0);
    rendezvous_mark_told(guest);
    rendezvous_dismiss(guest);
}

/* Fails the join of all. */
void hoop_rendezvous_fail(struct hoop_rendezvous *rendezvous, const struct hoop_failure *failure)
{
    if (rendezvous->state == HOOP_RENDEZVOUS_FAILED) {
        return;
    }
    rendezvous->failure = *failure;
    rendezvous->state = HOOP_RENDEZVOUS_FAILED;
    if (rendezvous->tree != NULL) {
        hoop_tree_reject(rendezvous->tree, failure);
        rendezvous->tree = NULL;
    }
    struct hoop_guest *guest = rendezvous->guests;
    while (guest != NULL) {
        struct hoop_guest *next = guest->next;
        if (guest->rank != HOOP_GUEST_NOBODY) {
            rendezvous_reject(guest);
        }
        guest = next;
    }
    if (rendezvous->told >= rendezvous->expected) {
        rendezvous_destroy(rendezvous);
        return;
    }
    hoop_timer_start(rendezvous->timer, rendezvous->gathering.timeout_ms, 0);
}

void hoop_rendezvous_fail_with(struct hoop_rendezvous *rendezvous, hoop_result_t code, int rank,
                               const char *text)
{
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    (void)hoop_failure_set(&failure, code, rank, "%s", text);
    hoop_rendezvous_fail(rendezvous, &failure);
}

static bool rendezvous_is_unready(const void *arg, uint32_t rank)
{
    const struct hoop_rendezvous *rendezvous = arg;
    const struct hoop_guest *guest = rendezvous->ranks[rank];
    return guest != NULL && !guest->ready;
}

static void rendezvous_fail_late(struct hoop_rendezvous *rendezvous)
{
    char text[HOOP_FAILURE_TEXT_BYTES];
    char ranks[128];
    if (rendezvous->state == HOOP_RENDEZVOUS_GATHERING) {
        const char *hint = rendezvous->meeting.hint;
        char missing[HOOP_FAILURE_TEXT_BYTES / 2];
        hoop_gathering_describe_missing(&rendezvous->gathering, missing, sizeof(missing));
        (void)snprintf(text, sizeof(text), "%s%s%s", missing, hint != NULL ? "; " : "",
                       hint != NULL ? hint : "");
    } else {
        hoop_gathering_list(rendezvous->n, rendezvous_is_unready, rendezvous, ranks, sizeof(ranks));
        (void)snprintf(text, sizeof(text), "%s of %u arrived, but did not get ready within %llu ms",
                       ranks, rendezvous->n, (unsigned long long)rendezvous->gathering.timeout_ms);
    }
    hoop_rendezvous_fail_with(rendezvous, HOOP_TIMEOUT, -1, text);
}

static void rendezvous_due(void *arg)
{
    struct hoop_rendezvous *rendezvous = arg;
    const bool alone = rendezvous->tree == NULL;
    if (rendezvous->state == HOOP_RENDEZVOUS_FAILED) {
        rendezvous_destroy(rendezvous);
    } else if (rendezvous->state == HOOP_RENDEZVOUS_RUNNING) {
        hoop_relay_beat(rendezvous);
    } else if (alone || (rendezvous->state == HOOP_RENDEZVOUS_BINDING &&
                         rendezvous->ready < rendezvous->here)) {
        rendezvous_fail_late(rendezvous);
    }
}

/* ---- Joining ------------------------------------------------------------------------------ */

/* The first JOIN says how many ranks there are. */
static hoop_result_t rendezvous_begin(struct hoop_rendezvous *rendezvous, uint32_t n,
                                      struct hoop_failure *failure)
{
    if (rendezvous->ranks != NULL) {
        return HOOP_OK;
    }
    rendezvous->ranks = calloc(n, sizeof(struct hoop_guest *));
    if (rendezvous->ranks == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for %u ranks", n);
    }
    rendezvous->n = n;
    if (rendezvous->meeting.address_count == 0) {
        return HOOP_OK;
    }
    return hoop_tree_create(&rendezvous->meeting, &hoop_binding_tree_owner, rendezvous,
                            &rendezvous->tree, failure);
}

/* A join that agrees with those before it. */
static void rendezvous_welcome(struct hoop_guest *guest)
{
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    const uint64_t now = hoop_now_ns();
    const uint64_t deadline = rendezvous->gathering.deadline_ns;
    rendezvous->ranks[guest->rank] = guest;
    hoop_timer_start(rendezvous->timer, now < deadline ? (deadline - now) / HOOP_NS_PER_MS + 1 : 0,
                     0);
    if (hoop_gathering_is_complete(&rendezvous->gathering)) {
        hoop_binding_alone(rendezvous);
    } else if (rendezvous->tree != NULL) {
        hoop_tree_join(rendezvous->tree, &guest->join);
    }
}

static void rendezvous_take_join(struct hoop_guest *guest, const struct hoop_frame_join *join,
                                 int *fds)
{
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    guest->join = *join;
    if (rendezvous->state == HOOP_RENDEZVOUS_FAILED) {
        rendezvous_reject(guest);
        if (rendezvous->told >= rendezvous->expected) {
            rendezvous_destroy(rendezvous);
        }
        return;
    }
    if (rendezvous->state == HOOP_RENDEZVOUS_RUNNING) {
        hoop_control_refuse(guest->control, HOOP_INVALID_USAGE,
                            "rank %u (pid %d) came when all %u ranks were in", join->rank,
                            join->pid, rendezvous->n);
        return;
    }
    hoop_result_t result = rendezvous_begin(rendezvous, join->n, &failure);
    if (rendezvous->ranks == NULL) {
        hoop_control_refuse(guest->control, result, "%s", failure.text);
        return;
    }
    /* told with the others if it does not agree, but it is no rank of theirs */
    guest->rank = join->rank < rendezvous->n ? join->rank : 0;
    if (result == HOOP_OK) {
        result = hoop_gathering_add(&rendezvous->gathering, join, &failure);
    }
    if (result == HOOP_OK && rendezvous->state == HOOP_RENDEZVOUS_BINDING) {
        const struct hoop_frame_entry *entry = &rendezvous->entries[join->rank];
        result = hoop_failure_set(&failure, HOOP_INVALID_USAGE, (int)join->rank,
                                  "rank %u came twice: as pid %d on host %s and as pid %d on host "
                                  "%s",
                                  join->rank, entry->pid, entry->host, join->pid, join->host);
    }
    if (result != HOOP_OK) {
        hoop_rendezvous_fail(rendezvous, &failure);
        return;
    }
    guest->wake_fd = fds[0];
    fds[0] = -1;
    rendezvous_welcome(guest);
}

/* ---- What a proven connection does -------------------------------------------------------- */

static void guest_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                          int *fds)
{
    struct hoop_guest *guest = arg;
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    const uint32_t type = frame->header.type;
    const bool joined = guest->rank != HOOP_GUEST_NOBODY;
    const bool binding = joined && rendezvous->state == HOOP_RENDEZVOUS_BINDING;
    if (joined && rendezvous->state == HOOP_RENDEZVOUS_RUNNING &&
        hoop_relay_from_guest(guest, frame)) {
        return;
    }
    if (type == HOOP_FRAME_JOIN && !joined &&
        frame->join.rank == hoop_control_hello(control)->from) {
        rendezvous_take_join(guest, &frame->join, fds);
    } else if (type == HOOP_FRAME_READY && binding && guest->bound && !guest->ready) {
        hoop_binding_ready(guest);
    } else if (type == HOOP_FRAME_REJECT && binding) {
        /* this rank cannot use what it got: nobody can go on without it */
        char text[HOOP_FAILURE_TEXT_BYTES];
        (void)snprintf(text, sizeof(text), "rank %u (pid %d, host %s): %.240s", guest->rank,
                       guest->join.pid, guest->join.host, frame->reject.text);
        hoop_rendezvous_fail_with(rendezvous, (hoop_result_t)frame->reject.code, (int)guest->rank,
                                  text);
    } else {
        hoop_control_refuse(control, HOOP_REMOTE_ERROR, "it sent an unexpected %s",
                            hoop_frame_name(type));
    }
}

static void guest_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    struct hoop_guest *guest = arg;
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    const uint32_t rank = guest->rank;
    const bool gone = guest->gone;
    const int pid = (int)hoop_control_pid(control);
    char text[HOOP_FAILURE_TEXT_BYTES];
    (void)snprintf(text, sizeof(text), "rank %u (pid %d, host %s) ended during the join: %.200s",
                   rank, guest->join.pid, guest->join.host, why->text);
    if (rank != HOOP_GUEST_NOBODY) {
        rendezvous_mark_told(guest);
    }
    rendezvous_dismiss(guest);
    if (rank == HOOP_GUEST_NOBODY) {
        return;
    }
    if (rendezvous->state == HOOP_RENDEZVOUS_RUNNING) {
        hoop_relay_lose(rendezvous, rank, gone, pid);
        hoop_rendezvous_settle(rendezvous);
    } else {
        hoop_rendezvous_fail_with(rendezvous, HOOP_REMOTE_ERROR, (int)rank, text);
    }
}

static const struct hoop_control_owner rendezvous_guest_owner = {
    .message = guest_message,
    .closed = guest_closed,
};

static bool rendezvous_admit(void *arg, const struct hoop_frame_hello *hello,
                             struct hoop_admission *ret, struct hoop_failure *ret_failure)
{
    const struct hoop_rendezvous *rendezvous = arg;
    if (hello->kind != HOOP_HELLO_JOIN || strcmp(hello->meeting, rendezvous->meeting.name) != 0) {
        (void)hoop_failure_set(ret_failure, HOOP_NOT_AUTHENTICATED, -1,
                               "a join of another meeting came to %s", rendezvous->meeting.name);
        return false;
    }
    ret->secret = rendezvous->secret;
    ret->hand_out = !rendezvous->meeting.has_secret;
    return true;
}

static void rendezvous_opened(void *arg, struct hoop_control *control)
{
    struct hoop_rendezvous *rendezvous = arg;
    struct hoop_guest *guest =
        rendezvous->guest_count < RENDEZVOUS_GUESTS ? calloc(1, sizeof(*guest)) : NULL;
    if (guest == NULL) {
        hoop_control_destroy(control);
        return;
    }
    guest->rendezvous = rendezvous;
    guest->control = control;
    guest->rank = HOOP_GUEST_NOBODY;
    guest->wake_fd = -1;
    guest->waiting_ns = HOOP_NEVER;
    guest->next = rendezvous->guests;
    rendezvous->guests = guest;
    rendezvous->guest_count++;
    hoop_control_adopt(control, &rendezvous_guest_owner, guest);
}

static const struct hoop_listener_owner rendezvous_listener_owner = {
    .admit = rendezvous_admit,
    .opened = rendezvous_opened,
};

/* ---- Serving ------------------------------------------------------------------------------ */

hoop_result_t hoop_rendezvous_place(const struct hoop_meeting *meeting, struct hoop_place *ret)
{
    static const struct hoop_secret none = {.bytes = {0}}; /* a hash is wanted, not a proof */
    const char *host_id = hoop_settings()->host_id;
    uint8_t mac[HOOP_MAC_BYTES];
    uint64_t hash = 0;
    memset(ret, 0, sizeof(*ret));
    if (meeting->address_count == 0 || host_id == NULL) {
        (void)snprintf(ret->name, sizeof(ret->name), "%s", meeting->name);
        return HOOP_OK;
    }
    const hoop_result_t result = hoop_hmac(&none, "hoop machine", meeting->name,
                                           strlen(meeting->name), host_id, strlen(host_id), mac);
    memcpy(&hash, mac, sizeof(hash));
    (void)snprintf(ret->name, sizeof(ret->name), "%.46s-%016llx", meeting->name,
                   (unsigned long long)hash);
    return result;
}

static hoop_result_t rendezvous_start(struct hoop_rendezvous *rendezvous,
                                      struct hoop_failure *failure)
{
    hoop_result_t result = HOOP_OK;
    if (!rendezvous->meeting.has_secret) {
        result = hoop_random(&rendezvous->secret, sizeof(rendezvous->secret));
    }
    if (result == HOOP_OK) {
        result = hoop_timer_create(rendezvous_due, rendezvous, &rendezvous->timer);
    }
    if (result != HOOP_OK) {
        return hoop_failure_set(failure, result, -1, "%s", hoop_thread_error());
    }
    return hoop_listener_create(&rendezvous->place, NULL, &rendezvous_listener_owner, rendezvous,
                                &rendezvous->listener, failure);
}

hoop_result_t hoop_rendezvous_serve(const struct hoop_meeting *meeting,
                                    struct hoop_failure *failure)
{
    struct hoop_place place;
    const hoop_result_t placed = hoop_rendezvous_place(meeting, &place);
    if (placed != HOOP_OK) {
        return hoop_failure_set(failure, placed, -1, "%s", hoop_thread_error());
    }
    for (const struct hoop_rendezvous *at = rendezvous_all; at != NULL; at = at->next) {
        if (at->listener != NULL && strcmp(at->place.name, place.name) == 0) {
            return HOOP_OK;
        }
    }
    struct hoop_rendezvous *rendezvous = calloc(1, sizeof(*rendezvous));
    if (rendezvous == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for a rendezvous");
    }
    rendezvous->meeting = *meeting;
    rendezvous->meeting.file = NULL;
    rendezvous->place = place;
    rendezvous->secret = meeting->secret;
    rendezvous->failure.rank = -1;
    rendezvous->segment = -1;
    const hoop_result_t result = rendezvous_start(rendezvous, failure);
    if (result != HOOP_OK) {
        rendezvous_destroy(rendezvous);
        return result;
    }
    rendezvous->next = rendezvous_all;
    rendezvous_all = rendezvous;
    return HOOP_OK;
}

void hoop_rendezvous_hear(const struct hoop_meeting *meeting, uint32_t rank)
{
    struct hoop_place place;
    struct hoop_rendezvous *at = rendezvous_all;
    if (at == NULL || hoop_rendezvous_place(meeting, &place) != HOOP_OK) {
        return;
    }
    while (at != NULL && strcmp(at->place.name, place.name) != 0) {
        at = at->next;
    }
    if (at != NULL && rank < at->n && at->ranks[rank] != NULL) {
        hoop_control_hear(at->ranks[rank]->control);
    }
}
