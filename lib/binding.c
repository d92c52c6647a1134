/*
 * A rendezvous from the roster to GO; see rendezvous.h and guest.h. On the service thread.
 *
 * The roster is its own, where all ranks are here, or comes from the tree. It is sent to the ranks
 * here with this machine's segment and the wake descriptors of the ranks here.
 */
#include "base/log.h"
#include "guest.h"
#include "hub.h"
#include "memory.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BINDING_IN_FLIGHT 512u /* descriptors; half of the usual limit of open files */

static hoop_result_t binding_segment(uint64_t bytes, int *ret_fd)
{
    const int fd = memfd_create("hoop-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        const int err = errno;
        return hoop_error(hoop_from_errno(err), "memfd_create: %s", hoop_errno_name(err));
    }
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        const int err = errno;
        close(fd);
        return hoop_error(hoop_from_errno(err), "cannot make %llu bytes of shared memory: %s",
                          (unsigned long long)bytes, hoop_errno_name(err));
    }
    *ret_fd = fd;
    return HOOP_OK;
}

static void binding_send_parts(const struct hoop_rendezvous *rendezvous,
                               struct hoop_control *control)
{
    union hoop_frame frame;
    int fds[HOOP_FRAME_MAX_FDS];
    for (uint32_t first = 0; first < rendezvous->n; first += HOOP_FRAME_MAX_FDS) {
        const uint32_t left = rendezvous->n - first;
        const uint32_t count = left < HOOP_FRAME_MAX_FDS ? left : HOOP_FRAME_MAX_FDS;
        uint32_t fd_count = 0;
        hoop_frame_init(&frame, HOOP_FRAME_ROSTER_PART);
        hoop_frame_set_count(&frame, first, count);
        for (uint32_t i = 0; i < count; i++) {
            const struct hoop_guest *guest = rendezvous->ranks[first + i];
            frame.part.entries[i] = rendezvous->entries[first + i];
            if (guest != NULL) {
                frame.part.entries[i].has_fd = 1;
                fds[fd_count++] = guest->wake_fd;
            }
        }
        hoop_control_send(control, &frame.header, fds, fd_count);
    }
}

/*
 * Tells the roster to as many as may hold it unread at once: the kernel limits the descriptors
 * that a user has in flight, and each roster carries one of every rank here.
 */
static void binding_tell(struct hoop_rendezvous *rendezvous)
{
    assert(rendezvous->here > 0);
    const uint32_t fitting = BINDING_IN_FLIGHT / rendezvous->here;
    const uint32_t window = fitting > 0 ? fitting : 1;
    while (rendezvous->bound < rendezvous->here && rendezvous->bound - rendezvous->ready < window) {
        struct hoop_guest *guest = rendezvous->ranks[rendezvous->next_rank++];
        if (guest != NULL) {
            guest->bound = true;
            rendezvous->bound++;
            hoop_control_send(guest->control, &rendezvous->roster.header, &rendezvous->segment, 1);
            binding_send_parts(rendezvous, guest->control);
        }
    }
}

/* The roster is known: makes the segment, and begins to tell. */
static void binding_begin(struct hoop_rendezvous *rendezvous)
{
    struct hoop_frame_roster *roster = &rendezvous->roster;
    roster->server = hoop_process_id();
    const hoop_result_t result = binding_segment(roster->segment_bytes, &rendezvous->segment);
    if (result != HOOP_OK) {
        char text[HOOP_FAILURE_TEXT_BYTES];
        (void)snprintf(text, sizeof(text), "%s", hoop_thread_error());
        hoop_rendezvous_fail_with(rendezvous, result, -1, text);
        return;
    }
    rendezvous->here = rendezvous->gathering.arrived;
    rendezvous->state = HOOP_RENDEZVOUS_BINDING;
    binding_tell(rendezvous);
}

static bool binding_make_room(struct hoop_rendezvous *rendezvous)
{
    free(rendezvous->entries);
    rendezvous->entries = calloc(rendezvous->n, sizeof(*rendezvous->entries));
    if (rendezvous->entries == NULL) {
        hoop_rendezvous_fail_with(rendezvous, HOOP_OUT_OF_MEMORY, -1, "no memory for the roster");
    }
    return rendezvous->entries != NULL;
}

void hoop_binding_alone(struct hoop_rendezvous *rendezvous)
{
    const hoop_result_t result =
        hoop_gathering_roster(&rendezvous->gathering, 1, &rendezvous->roster);
    if (rendezvous->meeting.address_count > 0) {
        hoop_tree_destroy(rendezvous->tree);
        rendezvous->tree = NULL;
        hoop_hub_retire(rendezvous->meeting.name);
    }
    if (result != HOOP_OK) {
        char text[HOOP_FAILURE_TEXT_BYTES];
        (void)snprintf(text, sizeof(text), "%s", hoop_thread_error());
        hoop_rendezvous_fail_with(rendezvous, result, -1, text);
        return;
    }
    if (!binding_make_room(rendezvous)) {
        return;
    }
    for (uint32_t rank = 0; rank < rendezvous->n; rank++) {
        hoop_gathering_entry(&rendezvous->gathering, rank, 0, &rendezvous->entries[rank]);
    }
    binding_begin(rendezvous);
}

static void binding_go(struct hoop_rendezvous *rendezvous)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_GO);
    rendezvous->state = HOOP_RENDEZVOUS_RUNNING;
    hoop_guest_close_fd(&rendezvous->segment);
    hoop_timer_stop(rendezvous->timer);
    hoop_listener_destroy(rendezvous->listener);
    rendezvous->listener = NULL;
    for (uint32_t rank = 0; rank < rendezvous->n; rank++) {
        struct hoop_guest *guest = rendezvous->ranks[rank];
        if (guest != NULL) {
            hoop_control_send(guest->control, &frame.header, NULL, 0);
            hoop_guest_close_fd(&guest->wake_fd);
        }
    }
    hoop_gathering_finish(&rendezvous->gathering);
    free(rendezvous->entries);
    rendezvous->entries = NULL;
    if (rendezvous->tree != NULL) {
        hoop_relay_start(rendezvous);
    }
    hoop_log(HOOP_LOG_TRACE, HOOP_LOG_INIT, "%s: all %u ranks are in", rendezvous->meeting.name,
             rendezvous->n);
}

void hoop_binding_ready(struct hoop_guest *guest)
{
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    guest->ready = true;
    rendezvous->ready++;
    if (rendezvous->ready < rendezvous->here) {
        binding_tell(rendezvous);
    } else if (rendezvous->tree != NULL) {
        hoop_tree_ready(rendezvous->tree);
    } else {
        binding_go(rendezvous);
    }
}

/* ---- The tree speaks ---------------------------------------------------------------------- */

static void binding_on_roster(void *arg, const struct hoop_frame_roster *roster)
{
    struct hoop_rendezvous *rendezvous = arg;
    if (binding_make_room(rendezvous)) {
        rendezvous->roster = *roster;
        rendezvous->roster.address = hoop_tree_address(rendezvous->tree);
    }
}

/* A rank that is here, and that the roster has elsewhere, or the other way round; n: none. */
static uint32_t binding_misplaced(const struct hoop_rendezvous *rendezvous)
{
    const uint32_t machine = hoop_tree_machine(rendezvous->tree);
    uint32_t rank = 0;
    while (rank < rendezvous->n) {
        const struct hoop_frame_entry *entry = &rendezvous->entries[rank];
        const struct hoop_guest *guest = rendezvous->ranks[rank];
        if ((guest != NULL) != (entry->machine == machine) ||
            (guest != NULL && guest->join.process != entry->process)) {
            break;
        }
        rank++;
    }
    return rank;
}

static void binding_on_part(void *arg, const struct hoop_frame_roster_part *part)
{
    struct hoop_rendezvous *rendezvous = arg;
    memcpy(&rendezvous->entries[part->first], part->entries,
           part->count * sizeof(rendezvous->entries[0]));
    rendezvous->known = part->first + part->count;
    if (rendezvous->known < rendezvous->n) {
        return;
    }
    const uint32_t rank = binding_misplaced(rendezvous);
    if (rank < rendezvous->n) {
        char text[HOOP_FAILURE_TEXT_BYTES];
        (void)snprintf(text, sizeof(text),
                       "the roster has rank %u on host %s, pid %d: that is not so on this machine",
                       rank, rendezvous->entries[rank].host, rendezvous->entries[rank].pid);
        hoop_rendezvous_fail_with(rendezvous, HOOP_REMOTE_ERROR, -1, text);
        return;
    }
    binding_begin(rendezvous);
}

static void binding_on_go(void *arg)
{
    binding_go(arg);
}

static void binding_on_failed(void *arg, const struct hoop_failure *failure)
{
    struct hoop_rendezvous *rendezvous = arg;
    rendezvous->tree = NULL;
    hoop_rendezvous_fail(rendezvous, failure);
}

static void binding_on_message(void *arg, const union hoop_frame *frame)
{
    hoop_relay_from_tree(arg, frame);
}

static uint64_t binding_on_waiting_since(void *arg)
{
    return hoop_relay_waiting_since(arg);
}

const struct hoop_tree_owner hoop_binding_tree_owner = {
    .roster = binding_on_roster,
    .part = binding_on_part,
    .go = binding_on_go,
    .failed = binding_on_failed,
    .message = binding_on_message,
    .waiting_since = binding_on_waiting_since,
};
