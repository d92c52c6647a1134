/*
 * Visitors: ranks of other processes that connected to this one, to fetch regions and to bring
 * blobs. One listener serves all comms of the process; who visits whom stands in the hello, and
 * the proof covers it.
 *
 * The exporter remembers what each visitor has fetched, and tells it when a region is dead.
 */
#include "base/log.h"
#include "member.h"
#include "memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VISITOR_REGIONS_MAX 1048576u /* remembered for one visitor */

struct visitor_region {
    uint64_t id;
    uint32_t generation;
};

struct hoop_visitor {
    struct hoop_visitor *next;
    struct hoop_member *member;
    struct hoop_control *control;
    uint32_t rank;
    struct visitor_region *regions; /* fetched, and not dead yet */
    size_t region_count, region_size;
};

static struct {
    struct hoop_listener *listener;
    char name[HOOP_FRAME_NAME_BYTES];
    uint32_t holders;
    bool hooked; /* hoop_region_on_death() is set */
} visitor;

/* ---- One visitor -------------------------------------------------------------------------- */

static void visitor_dismiss(struct hoop_visitor *guest)
{
    struct hoop_visitor **at = &guest->member->visitors;
    while (*at != guest) {
        at = &(*at)->next;
    }
    *at = guest->next;
    hoop_control_destroy(guest->control);
    free(guest->regions);
    free(guest);
}

static bool visitor_remember(struct hoop_visitor *guest, uint64_t id, uint32_t generation)
{
    if (guest->region_count == guest->region_size) {
        const size_t size = guest->region_size == 0 ? 16 : guest->region_size * 2;
        struct visitor_region *regions =
            size <= VISITOR_REGIONS_MAX ? realloc(guest->regions, size * sizeof(*regions)) : NULL;
        if (regions == NULL) {
            return false;
        }
        guest->regions = regions;
        guest->region_size = size;
    }
    guest->regions[guest->region_count++] =
        (struct visitor_region){.id = id, .generation = generation};
    return true;
}

static bool visitor_forget(struct hoop_visitor *guest, uint64_t id, uint32_t generation)
{
    for (size_t i = 0; i < guest->region_count; i++) {
        if (guest->regions[i].id == id && guest->regions[i].generation == generation) {
            guest->regions[i] = guest->regions[--guest->region_count];
            return true;
        }
    }
    return false;
}

static void visitor_answer(struct hoop_visitor *guest, const struct hoop_frame_region *question)
{
    union hoop_frame answer;
    int fd = -1;
    uint64_t bytes = 0;
    uint32_t kind = 0;
    /* remembered before it is exported: a death in between must reach the visitor */
    hoop_result_t result = HOOP_OUT_OF_MEMORY;
    if (visitor_remember(guest, question->id, question->generation)) {
        result = hoop_region_export(question->id, question->generation, &fd, &bytes, &kind);
    }
    if (result != HOOP_OK) {
        (void)visitor_forget(guest, question->id, question->generation);
    }
    hoop_frame_init(&answer, HOOP_FRAME_REGION_IS);
    answer.region_is.id = question->id;
    answer.region_is.generation = question->generation;
    answer.region_is.kind = kind;
    answer.region_is.bytes = bytes;
    answer.region_is.code = (int32_t)result;
    hoop_control_send(guest->control, &answer.header, &fd, result == HOOP_OK ? 1 : 0);
    if (fd >= 0) {
        close(fd);
    }
}

static void visitor_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                            int *fds)
{
    struct hoop_visitor *guest = arg;
    const struct hoop_member_events *events = &guest->member->events;
    (void)fds;
    if (frame->header.type == HOOP_FRAME_REGION_GET) {
        visitor_answer(guest, &frame->region);
    } else if (frame->header.type == HOOP_FRAME_BLOB) {
        struct hoop_blob blob = {.bytes = frame->blob.bytes};
        memcpy(blob.data, frame->blob.data, frame->blob.bytes);
        events->blob(events->arg, guest->rank, frame->blob.lane, frame->blob.sending != 0, &blob);
    } else if (frame->header.type != HOOP_FRAME_REGION_DROPPED) {
        hoop_control_refuse(control, HOOP_REMOTE_ERROR, "it sent an unexpected %s",
                            hoop_frame_name(frame->header.type));
    }
}

static void visitor_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    struct hoop_visitor *guest = arg;
    (void)control;
    hoop_log(HOOP_LOG_TRACE, HOOP_LOG_INIT, "rank %u: rank %u visits no more: %s",
             guest->member->join.rank, guest->rank, why->text);
    visitor_dismiss(guest);
}

static const struct hoop_control_owner visitor_owner = {
    .message = visitor_message,
    .closed = visitor_closed,
};

/* ---- The listener ------------------------------------------------------------------------- */

static struct hoop_member *visitor_host(const struct hoop_frame_hello *hello)
{
    struct hoop_member *member =
        hello->kind == HOOP_HELLO_PEER ? hoop_member_find(hello->comm_id, hello->to) : NULL;
    const bool fits =
        member != NULL && hello->epoch == member->roster.epoch && hello->from < member->roster.n;
    return fits ? member : NULL;
}

static bool visitor_admit(void *arg, const struct hoop_frame_hello *hello,
                          struct hoop_admission *ret, struct hoop_failure *ret_failure)
{
    const struct hoop_member *member = visitor_host(hello);
    (void)arg;
    if (member == NULL) {
        (void)hoop_failure_set(ret_failure, HOOP_NOT_AUTHENTICATED, -1,
                               "is no longer a rank of this comm");
        return false;
    }
    ret->secret = member->secret;
    ret->hand_out = false;
    return true;
}

static void visitor_opened(void *arg, struct hoop_control *control)
{
    const struct hoop_frame_hello *hello = hoop_control_hello(control);
    struct hoop_member *member = visitor_host(hello);
    struct hoop_visitor *guest = member != NULL ? calloc(1, sizeof(*guest)) : NULL;
    (void)arg;
    if (guest == NULL) {
        hoop_control_destroy(control);
        return;
    }
    for (struct hoop_visitor *old = member->visitors; old != NULL; old = old->next) {
        if (old->rank == hello->from) {
            visitor_dismiss(old); /* a rank makes one connection: the old one is stale */
            break;
        }
    }
    guest->member = member;
    guest->control = control;
    guest->rank = hello->from;
    guest->next = member->visitors;
    member->visitors = guest;
    hoop_control_adopt(control, &visitor_owner, guest);
    /* whoever visits is in, so all are ready, and my own GO is only late */
    hoop_member_enter(member);
}

static const struct hoop_listener_owner visitor_listener_owner = {
    .admit = visitor_admit,
    .opened = visitor_opened,
};

/* ---- Deaths of own regions ---------------------------------------------------------------- */

struct visitor_death {
    struct visitor_region region;
    bool posted; /* allocated */
};

static void visitor_tell_death(void *arg)
{
    struct visitor_death *death = arg;
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_REGION_DEAD);
    frame.region.id = death->region.id;
    frame.region.generation = death->region.generation;
    for (struct hoop_member *member = hoop_members; member != NULL; member = member->next) {
        for (struct hoop_visitor *guest = member->visitors; guest != NULL; guest = guest->next) {
            if (visitor_forget(guest, death->region.id, death->region.generation)) {
                hoop_control_send(guest->control, &frame.header, NULL, 0);
            }
        }
    }
    if (death->posted) {
        free(death);
    }
}

static void visitor_region_died(uint64_t id, uint32_t generation)
{
    struct visitor_death death = {.region = {.id = id, .generation = generation}};
    struct visitor_death *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        hoop_service_run(visitor_tell_death, &death); /* late, but done */
        return;
    }
    *copy = death;
    copy->posted = true;
    hoop_service_post(visitor_tell_death, copy);
}

/* ---- Life --------------------------------------------------------------------------------- */

hoop_result_t hoop_visitor_listen(struct hoop_failure *failure)
{
    if (visitor.holders == 0) {
        hoop_result_t result = hoop_listener_name(visitor.name);
        if (result != HOOP_OK) {
            return hoop_failure_set(failure, result, -1, "%s", hoop_thread_error());
        }
        struct hoop_place place = {.name = ""};
        memcpy(place.name, visitor.name, sizeof(place.name));
        result = hoop_listener_create(&place, NULL, &visitor_listener_owner, NULL,
                                      &visitor.listener, failure);
        if (result != HOOP_OK) {
            return result;
        }
    }
    if (!visitor.hooked) {
        hoop_region_on_death(visitor_region_died);
        visitor.hooked = true;
    }
    visitor.holders++;
    return HOOP_OK;
}

void hoop_visitor_unlisten(void)
{
    if (--visitor.holders == 0) {
        hoop_listener_destroy(visitor.listener);
        visitor.listener = NULL;
    }
}

const char *hoop_visitor_listener(void)
{
    return visitor.name;
}

void hoop_visitor_finish(struct hoop_member *member)
{
    struct hoop_visitor *guest = member->visitors;
    while (guest != NULL) {
        struct hoop_visitor *next = guest->next;
        visitor_dismiss(guest);
        guest = next;
    }
}
