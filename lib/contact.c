/*
 * Contacts: what two ranks of different processes of a machine need of each other besides the data:
 * the descriptor of a region, the blob of a link. A rank asks over the connection that it made
 * itself (its contact) and answers over those that others made to it (visitor.c), so that two ranks
 * that call each other at the same moment need not agree on one connection. What is for a rank of
 * another machine goes by way of the rendezvous.
 *
 *      errand: queued --contact open--> sent --answer--> done        (a blob is done when sent)
 */
#include "base/clock.h"
#include "member.h"
#include "memory.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTACT_PATIENCE_MS 5000u
#define CONTACT_BACKOFF_MS 2u
#define CONTACT_ERRANDS 4096u /* waiting, per rank */

/* What a rank can want of another. */
union contact_want {
    struct hoop_frame_header header;
    struct hoop_frame_region region; /* REGION_GET */
    struct hoop_frame_blob blob;
};

struct contact_errand {
    struct contact_errand *next;
    union contact_want want;
};

struct hoop_contact {
    struct hoop_member *member;
    uint32_t rank;
    struct hoop_control *control;
    struct hoop_timer *timer; /* to try again */
    uint64_t deadline_ns;     /* to be open */
    struct contact_errand *errands;
    uint32_t errand_count;
};

static struct contact_errand *contact_errand_take(struct hoop_contact *contact,
                                                  struct contact_errand **at)
{
    struct contact_errand *errand = *at;
    *at = errand->next;
    contact->errand_count--;
    return errand;
}

static void contact_fetched(const struct hoop_contact *contact, uint64_t id, uint32_t generation,
                            const struct hoop_failure *failure)
{
    const struct hoop_member_events *events = &contact->member->events;
    events->fetched(events->arg, contact->rank, id, generation, failure);
}

/* Fails what was asked and not answered; the contact is as new. */
static void contact_reset(struct hoop_contact *contact, const char *why)
{
    char who[160];
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    hoop_member_describe(contact->member, contact->rank, who, sizeof(who));
    (void)hoop_failure_set(&failure, HOOP_REMOTE_ERROR, (int)contact->rank, "%s %s", who, why);
    hoop_control_destroy(contact->control);
    contact->control = NULL;
    hoop_timer_stop(contact->timer);
    while (contact->errands != NULL) {
        struct contact_errand *errand = contact_errand_take(contact, &contact->errands);
        if (errand->want.header.type == HOOP_FRAME_REGION_GET) {
            contact_fetched(contact, errand->want.region.id, errand->want.region.generation,
                            &failure);
        }
        free(errand);
    }
}

/* Sends what waits; blobs are done then, questions stay until they are answered. */
static void contact_opened(void *arg, struct hoop_control *control)
{
    struct hoop_contact *contact = arg;
    struct contact_errand **at = &contact->errands;
    hoop_timer_stop(contact->timer);
    while (*at != NULL) {
        hoop_control_send(control, &(*at)->want.header, NULL, 0);
        if ((*at)->want.header.type == HOOP_FRAME_BLOB) {
            free(contact_errand_take(contact, at));
        } else {
            at = &(*at)->next;
        }
    }
}

static void contact_take_region(struct hoop_contact *contact,
                                const struct hoop_frame_region_is *answer, int *fds)
{
    const uint64_t process = contact->member->roster.peers[contact->rank].process;
    struct contact_errand **at = &contact->errands;
    while (*at != NULL && ((*at)->want.header.type != HOOP_FRAME_REGION_GET ||
                           (*at)->want.region.id != answer->id ||
                           (*at)->want.region.generation != answer->generation)) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        hoop_control_refuse(contact->control, HOOP_REMOTE_ERROR,
                            "it sent a region that nobody asked for");
        return;
    }
    free(contact_errand_take(contact, at));
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    if (answer->code != 0) {
        char who[160];
        hoop_member_describe(contact->member, contact->rank, who, sizeof(who));
        (void)hoop_failure_set(&failure, (hoop_result_t)answer->code, (int)contact->rank,
                               "%s cannot share region %llu.%u: %s", who,
                               (unsigned long long)answer->id, answer->generation,
                               hoop_get_error_string((hoop_result_t)answer->code));
    } else {
        const int fd = fds[0];
        fds[0] = -1;
        const hoop_result_t result = hoop_region_import(process, answer->id, answer->generation,
                                                        answer->kind, answer->bytes, fd);
        if (result != HOOP_OK) {
            (void)hoop_failure_set(&failure, result, (int)contact->rank, "%s", hoop_thread_error());
        }
    }
    contact_fetched(contact, answer->id, answer->generation,
                    failure.code == HOOP_OK ? NULL : &failure);
}

static void contact_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                            int *fds)
{
    struct hoop_contact *contact = arg;
    if (frame->header.type == HOOP_FRAME_REGION_IS) {
        contact_take_region(contact, &frame->region_is, fds);
    } else if (frame->header.type == HOOP_FRAME_REGION_DEAD) {
        const uint64_t process = contact->member->roster.peers[contact->rank].process;
        hoop_region_forget(process, frame->region.id, frame->region.generation);
        union hoop_frame dropped = *frame;
        dropped.header.type = HOOP_FRAME_REGION_DROPPED;
        hoop_control_send(control, &dropped.header, NULL, 0);
    } else {
        hoop_control_refuse(control, HOOP_REMOTE_ERROR, "it sent an unexpected %s",
                            hoop_frame_name(frame->header.type));
    }
}

static void contact_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    struct hoop_contact *contact = arg;
    struct hoop_member *member = contact->member;
    const uint32_t rank = contact->rank;
    const bool was_open = hoop_control_is_proven(control);
    hoop_control_destroy(control);
    contact->control = NULL;
    if (!was_open && why->code == HOOP_REMOTE_ERROR && hoop_now_ns() < contact->deadline_ns) {
        hoop_timer_start(contact->timer, CONTACT_BACKOFF_MS, 0);
        return;
    }
    if (was_open || why->code == HOOP_REMOTE_ERROR) {
        hoop_vigil_lose_connection(member, rank); /* and then what was asked fails */
    } else {
        hoop_vigil_lose(member, rank, why->text);
    }
}

static const struct hoop_control_owner contact_owner = {
    .opened = contact_opened,
    .message = contact_message,
    .closed = contact_closed,
};

static void contact_connect(void *arg)
{
    struct hoop_contact *contact = arg;
    struct hoop_member *member = contact->member;
    const uint32_t rank = contact->rank;
    if (contact->control != NULL) { /* patience is over */
        hoop_vigil_lose(member, rank, "does not answer a control connection");
        return;
    }
    struct hoop_place place = {.name = ""};
    union hoop_frame hello;
    memcpy(place.name, member->fellows[rank].listener, sizeof(place.name));
    hoop_frame_init(&hello, HOOP_FRAME_HELLO);
    hello.hello.kind = HOOP_HELLO_PEER;
    hello.hello.comm_id = member->roster.comm_id;
    hello.hello.from = member->join.rank;
    hello.hello.to = rank;
    hello.hello.epoch = member->roster.epoch;
    const hoop_result_t result = hoop_control_connect(&place, NULL, &hello.hello, &member->secret,
                                                      &contact_owner, contact, &contact->control);
    if (result == HOOP_OK) {
        hoop_timer_start(contact->timer, CONTACT_PATIENCE_MS, 0);
    } else if (result == HOOP_AGAIN && hoop_now_ns() < contact->deadline_ns) {
        hoop_timer_start(contact->timer, CONTACT_BACKOFF_MS, 0);
    } else if (result == HOOP_AGAIN) {
        hoop_vigil_lose_connection(member, rank);
    } else {
        char why[HOOP_FAILURE_TEXT_BYTES];
        (void)snprintf(why, sizeof(why), "cannot be reached: %.300s", hoop_thread_error());
        hoop_vigil_lose(member, rank, why);
    }
}

/* The contact with a rank, being made if need be; NULL: no memory. */
static struct hoop_contact *contact_with(struct hoop_member *member, uint32_t rank)
{
    struct hoop_fellow *fellow = &member->fellows[rank];
    if (fellow->contact != NULL) {
        return fellow->contact;
    }
    struct hoop_contact *contact = calloc(1, sizeof(*contact));
    if (contact == NULL) {
        return NULL;
    }
    contact->member = member;
    contact->rank = rank;
    if (hoop_timer_create(contact_connect, contact, &contact->timer) != HOOP_OK) {
        free(contact);
        return NULL;
    }
    fellow->contact = contact;
    return contact;
}

/* Does it now, or as soon as the contact is open. False: no memory, or too much waits. */
static bool contact_do(struct hoop_member *member, uint32_t rank, const union contact_want *want)
{
    struct hoop_contact *contact = contact_with(member, rank);
    const bool open =
        contact != NULL && contact->control != NULL && hoop_control_is_proven(contact->control);
    if (open && want->header.type == HOOP_FRAME_BLOB) {
        hoop_control_send(contact->control, &want->header, NULL, 0);
        return true;
    }
    struct contact_errand *errand =
        contact != NULL && contact->errand_count < CONTACT_ERRANDS ? malloc(sizeof(*errand)) : NULL;
    if (errand == NULL) {
        return false;
    }
    errand->want = *want;
    errand->next = NULL;
    struct contact_errand **at = &contact->errands;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = errand;
    contact->errand_count++;
    if (open) {
        hoop_control_send(contact->control, &want->header, NULL, 0);
    } else if (contact->errand_count == 1 && contact->control == NULL) {
        contact->deadline_ns = hoop_now_ns() + CONTACT_PATIENCE_MS * HOOP_NS_PER_MS;
        contact_connect(contact);
    }
    return true;
}

/* ---- Asking, from any thread -------------------------------------------------------------- */

struct contact_call {
    struct hoop_member *member;
    uint32_t rank;
    bool posted; /* allocated */
    union contact_want want;
};

/* A rank of this process: no connection, and its regions need no fetching. */
static void contact_do_here(struct hoop_member *member, uint32_t rank,
                            const union contact_want *want)
{
    if (want->header.type == HOOP_FRAME_REGION_GET) {
        member->events.fetched(member->events.arg, rank, want->region.id, want->region.generation,
                               NULL);
        return;
    }
    struct hoop_member *other = hoop_member_find(member->roster.comm_id, rank);
    if (other != NULL) { /* else it has left, or its loss is on its way */
        struct hoop_blob blob = {.bytes = want->blob.bytes};
        memcpy(blob.data, want->blob.data, sizeof(blob.data));
        hoop_member_enter(other);
        other->events.blob(other->events.arg, member->join.rank, want->blob.lane,
                           want->blob.sending != 0, &blob);
    }
}

/* A rank of another machine: blobs only. False: nobody would pass it on. */
static bool contact_do_far(struct hoop_member *member, const union contact_want *want)
{
    const bool can = member->control != NULL && want->header.type == HOOP_FRAME_BLOB;
    if (can) {
        hoop_control_send(member->control, &want->header, NULL, 0);
    }
    return can;
}

/* Have the ranks of the process that speaks for this machine said goodbye? */
static bool contact_spokesman_left(const struct hoop_member *member)
{
    bool left = true;
    for (uint32_t rank = 0; rank < member->roster.n; rank++) {
        if (member->roster.peers[rank].process == member->server) {
            left = left && member->events.left(member->events.arg, rank);
        }
    }
    return left;
}

static void contact_run(void *arg)
{
    struct contact_call *call = arg;
    struct hoop_member *member = call->member;
    const uint32_t rank = call->rank;
    const bool in = member->state == HOOP_MEMBER_IN;
    bool done = false;
    if (in && member->roster.peers[rank].same_process) {
        contact_do_here(member, rank, &call->want);
        done = true;
    } else if (in && !member->fellows[rank].lost) {
        done = member->roster.peers[rank].same_machine ? contact_do(member, rank, &call->want)
                                                       : contact_do_far(member, &call->want);
    }
    if (!done) {
        struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
        char who[160];
        hoop_member_describe(member, rank, who, sizeof(who));
        (void)hoop_failure_set(&failure, HOOP_REMOTE_ERROR, (int)rank, "%s cannot be asked", who);
        if (call->want.header.type == HOOP_FRAME_REGION_GET) {
            member->events.fetched(member->events.arg, rank, call->want.region.id,
                                   call->want.region.generation, &failure);
        } else if (in && !member->roster.peers[rank].same_machine &&
                   !contact_spokesman_left(member)) {
            (void)hoop_vigil_lose_server(member); /* its end is the cause, and not rank */
        } else if (in) {
            hoop_vigil_lose(member, rank,
                            member->roster.peers[rank].same_machine
                                ? "cannot be sent a link's blob"
                                : "cannot be reached: the process that spoke for this machine has "
                                  "left");
        }
    }
    if (call->posted) {
        free(call);
    }
}

static void contact_post(struct contact_call *call)
{
    struct contact_call *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        hoop_service_run(contact_run, call); /* late, but done */
        return;
    }
    *copy = *call;
    copy->posted = true;
    hoop_service_post(contact_run, copy);
}

static void contact_want_init(union contact_want *want, enum hoop_frame_type type)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, type);
    memset(want, 0, sizeof(*want));
    want->header = frame.header;
}

void hoop_member_fetch(struct hoop_member *member, uint32_t rank, uint64_t region_id,
                       uint32_t generation)
{
    assert(rank < member->join.n && region_id != 0);
    struct contact_call call = {.member = member, .rank = rank};
    contact_want_init(&call.want, HOOP_FRAME_REGION_GET);
    call.want.region.id = region_id;
    call.want.region.generation = generation;
    contact_post(&call);
}

void hoop_member_send_blob(struct hoop_member *member, uint32_t rank, uint32_t lane, bool sending,
                           const struct hoop_blob *blob)
{
    assert(rank < member->join.n && lane < HOOP_FRAME_MAX_LANES);
    assert(blob->bytes <= HOOP_BLOB_BYTES);
    _Static_assert(HOOP_BLOB_BYTES == HOOP_FRAME_BLOB_BYTES, "a blob is what a frame carries");
    struct contact_call call = {.member = member, .rank = rank};
    contact_want_init(&call.want, HOOP_FRAME_BLOB);
    call.want.blob.from = member->join.rank;
    call.want.blob.to = rank;
    call.want.blob.lane = lane;
    call.want.blob.sending = sending;
    call.want.blob.bytes = blob->bytes;
    memcpy(call.want.blob.data, blob->data, blob->bytes);
    contact_post(&call);
}

/* ---- Telling the other machines ----------------------------------------------------------- */

struct contact_alarm {
    struct hoop_member *member;
    bool posted; /* allocated */
    struct hoop_failure failure;
};

static void contact_raise(void *arg)
{
    struct contact_alarm *alarm = arg;
    struct hoop_member *member = alarm->member;
    const struct hoop_failure *failure = &alarm->failure;
    const bool spans = member->state == HOOP_MEMBER_IN && member->roster.machines > 1;
    if (spans && member->control != NULL && !member->raised) {
        union hoop_frame frame;
        hoop_frame_init(&frame, HOOP_FRAME_FAIL);
        frame.reject.code = (int32_t)failure->code;
        frame.reject.rank = failure->rank;
        memcpy(frame.reject.text, failure->text, sizeof(frame.reject.text));
        member->raised = true;
        hoop_control_send(member->control, &frame.header, NULL, 0);
    }
    if (alarm->posted) {
        free(alarm);
    }
}

void hoop_member_raise(struct hoop_member *member, const struct hoop_failure *failure)
{
    assert(failure->code != HOOP_OK && failure->code != HOOP_IN_PROGRESS);
    struct contact_alarm alarm = {.member = member, .failure = *failure};
    struct contact_alarm *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        hoop_service_run(contact_raise, &alarm); /* late, but done */
        return;
    }
    *copy = alarm;
    copy->posted = true;
    hoop_service_post(contact_raise, copy);
}

/* ---- The end of a contact ----------------------------------------------------------------- */

void hoop_contact_drop(struct hoop_member *member, uint32_t rank, const char *why)
{
    if (member->fellows[rank].contact != NULL) {
        contact_reset(member->fellows[rank].contact, why);
    }
}

void hoop_contact_finish(struct hoop_member *member)
{
    for (uint32_t rank = 0; member->fellows != NULL && rank < member->roster.n; rank++) {
        struct hoop_contact *contact = member->fellows[rank].contact;
        if (contact == NULL) {
            continue;
        }
        hoop_control_destroy(contact->control);
        hoop_timer_destroy(contact->timer);
        while (contact->errands != NULL) {
            free(contact_errand_take(contact, &contact->errands));
        }
        free(contact);
        member->fellows[rank].contact = NULL;
    }
}
