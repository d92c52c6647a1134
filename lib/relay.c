/*
 * What a rendezvous does once all are in; see guest.h. On the service thread.
 *
 *      a guest's connection ends   LOST to the guests of this machine, who can see its process
 *                                  themselves; LOST to the others, when it is known how
 *      a guest is silent           LOST to all, while anybody anywhere waits
 *      GONE, FAIL, BLOB of guests  to the others; those of this machine share memory, or connect
 *      from the others             to all guests; a BLOB to the one that it is for
 */
#include "base/clock.h"
#include "guest.h"
#include "life.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Losses ------------------------------------------------------------------------------- */

static void relay_tell_guests(const struct hoop_rendezvous *rendezvous,
                              const union hoop_frame *frame)
{
    for (struct hoop_guest *guest = rendezvous->guests; guest != NULL; guest = guest->next) {
        if (guest->rank != HOOP_GUEST_NOBODY) {
            hoop_control_send(guest->control, &frame->header, NULL, 0);
        }
    }
}

static void relay_make_lost(union hoop_frame *frame, uint32_t lost, const char *why)
{
    hoop_frame_init(frame, HOOP_FRAME_LOST);
    frame->lost.rank = lost;
    frame->lost.certain = 1;
    (void)snprintf(frame->lost.why, sizeof(frame->lost.why), "%s", why);
}

static void relay_tell_others(struct hoop_rendezvous *rendezvous, uint32_t lost, const char *why)
{
    union hoop_frame frame;
    relay_make_lost(&frame, lost, why);
    hoop_tree_send(rendezvous->tree, &frame);
}

static void suspect_destroy(struct hoop_suspect *suspect)
{
    struct hoop_suspect **at = &suspect->rendezvous->suspects;
    while (*at != suspect) {
        at = &(*at)->next;
    }
    *at = suspect->next;
    hoop_watch_destroy(suspect->watch);
    hoop_timer_destroy(suspect->timer);
    close(suspect->pid_fd);
    free(suspect);
}

static void suspect_convict(struct hoop_suspect *suspect, const char *why)
{
    struct hoop_rendezvous *rendezvous = suspect->rendezvous;
    relay_tell_others(rendezvous, suspect->rank, why);
    suspect_destroy(suspect);
    hoop_rendezvous_settle(rendezvous);
}

static void suspect_died(void *arg, unsigned events)
{
    (void)events;
    suspect_convict(arg, "died");
}

static void suspect_lives(void *arg)
{
    suspect_convict(arg, HOOP_LIFE_CLOSED);
}

/* Waits a moment for its end. False: it cannot be watched. pid_fd is moved. */
static bool relay_suspect(struct hoop_rendezvous *rendezvous, uint32_t rank, int pid_fd)
{
    struct hoop_suspect *suspect = calloc(1, sizeof(*suspect));
    if (suspect == NULL) {
        close(pid_fd);
        return false;
    }
    *suspect = (struct hoop_suspect){
        .rendezvous = rendezvous, .rank = rank, .pid_fd = pid_fd, .next = rendezvous->suspects};
    rendezvous->suspects = suspect;
    if (hoop_watch_create(pid_fd, HOOP_WATCH_READ, suspect_died, suspect, &suspect->watch) !=
            HOOP_OK ||
        hoop_timer_create(suspect_lives, suspect, &suspect->timer) != HOOP_OK) {
        suspect_destroy(suspect);
        return false;
    }
    hoop_timer_start(suspect->timer, HOOP_LIFE_VERDICT_MS, 0);
    return true;
}

/* The others cannot see the process: tells them how it ended, in a moment if that takes one. */
static void relay_judge(struct hoop_rendezvous *rendezvous, uint32_t rank, int pid)
{
    const int pid_fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pid > 0 && pid_fd < 0 && errno == ESRCH) {
        relay_tell_others(rendezvous, rank, "died");
    } else if (pid_fd < 0 || !relay_suspect(rendezvous, rank, pid_fd)) {
        relay_tell_others(rendezvous, rank, HOOP_LIFE_CLOSED);
    }
}

void hoop_relay_lose(struct hoop_rendezvous *rendezvous, uint32_t rank, bool gone, int pid)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_LOST);
    frame.lost.rank = rank;
    relay_tell_guests(rendezvous, &frame);
    if (rendezvous->tree != NULL && !gone) {
        relay_judge(rendezvous, rank, pid);
    }
}

void hoop_relay_finish(struct hoop_rendezvous *rendezvous)
{
    struct hoop_suspect *suspect = rendezvous->suspects;
    while (suspect != NULL) {
        struct hoop_suspect *next = suspect->next;
        suspect_destroy(suspect);
        suspect = next;
    }
}

/* ---- Between guests and tree -------------------------------------------------------------- */

bool hoop_relay_from_guest(struct hoop_guest *guest, const union hoop_frame *frame)
{
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    if (rendezvous->tree == NULL) {
        return false;
    }
    guest->heard_ns = hoop_now_ns();
    switch (frame->header.type) {
    case HOOP_FRAME_BEAT:
        if (frame->beat.waiting == 0) {
            guest->waiting_ns = HOOP_NEVER;
        } else if (guest->waiting_ns == HOOP_NEVER) {
            guest->waiting_ns = guest->heard_ns;
        }
        return true;
    case HOOP_FRAME_GONE:
        if (frame->gone.rank != guest->rank) {
            return false;
        }
        guest->gone = true;
        break;
    case HOOP_FRAME_BLOB:
        if (frame->blob.from != guest->rank || frame->blob.to >= rendezvous->n) {
            return false;
        }
        break;
    case HOOP_FRAME_FAIL:
        break;
    default:
        return false;
    }
    hoop_tree_send(rendezvous->tree, frame);
    return true;
}

void hoop_relay_from_tree(struct hoop_rendezvous *rendezvous, const union hoop_frame *frame)
{
    if (frame->header.type != HOOP_FRAME_BLOB) {
        relay_tell_guests(rendezvous, frame);
        return;
    }
    const struct hoop_guest *guest = rendezvous->ranks[frame->blob.to];
    if (guest != NULL) { /* else it has left, or its loss is known */
        hoop_control_send(guest->control, &frame->header, NULL, 0);
    }
}

uint64_t hoop_relay_waiting_since(const struct hoop_rendezvous *rendezvous)
{
    uint64_t since = HOOP_NEVER;
    for (const struct hoop_guest *guest = rendezvous->guests; guest != NULL; guest = guest->next) {
        if (!guest->gone && guest->waiting_ns < since) {
            since = guest->waiting_ns;
        }
    }
    return since;
}

/* ---- Signs of life ------------------------------------------------------------------------ */

void hoop_relay_beat(struct hoop_rendezvous *rendezvous)
{
    const uint64_t now = hoop_now_ns();
    const bool late = hoop_life_was_late(rendezvous->beat_ns, now, rendezvous->beat_ms);
    const uint64_t here = hoop_relay_waiting_since(rendezvous);
    const uint64_t there = hoop_tree_waiting_since(rendezvous->tree);
    const uint64_t waiting = here < there ? here : there;
    rendezvous->beat_ns = now;
    for (struct hoop_guest *guest = rendezvous->guests; guest != NULL; guest = guest->next) {
        if (late) {
            guest->heard_ns = now;
        }
        const uint64_t ms =
            hoop_life_silence_ms(guest->heard_ns, waiting, now, rendezvous->roster.dead_after_ms);
        if (ms == 0 || guest->gone || guest->silent || guest->rank == HOOP_GUEST_NOBODY) {
            continue;
        }
        char why[HOOP_FRAME_WHY_BYTES];
        guest->silent = true;
        (void)snprintf(why, sizeof(why),
                       "gave no sign of life for %llu ms (is it stopped, or starved of CPU?)",
                       (unsigned long long)ms);
        union hoop_frame frame;
        relay_make_lost(&frame, guest->rank, why);
        relay_tell_guests(rendezvous, &frame);
        hoop_tree_send(rendezvous->tree, &frame);
    }
}

void hoop_relay_start(struct hoop_rendezvous *rendezvous)
{
    const uint64_t now = hoop_now_ns();
    rendezvous->beat_ns = now;
    rendezvous->beat_ms = hoop_life_beat_ms(rendezvous->roster.dead_after_ms);
    for (struct hoop_guest *guest = rendezvous->guests; guest != NULL; guest = guest->next) {
        guest->heard_ns = now;
        guest->waiting_ns = HOOP_NEVER;
    }
    hoop_timer_start(rendezvous->timer, rendezvous->beat_ms, rendezvous->beat_ms);
}
