/*
 * Who is alive. Three witnesses: the pidfd of every process of this machine (dies at once), the
 * rendezvous (its connection to a rank ended, also where the pid is not visible from here), and the
 * heartbeat (stopped, or the machine does not run it). Of ranks of other machines the rendezvous
 * alone knows; it gets a beat of mine for them.
 */
#include "base/clock.h"
#include "life.h"
#include "member.h"
#include "memory.h"
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Losses ------------------------------------------------------------------------------- */

void hoop_vigil_lose(struct hoop_member *member, uint32_t rank, const char *why)
{
    struct hoop_fellow *fellow = &member->fellows[rank];
    if (member->state != HOOP_MEMBER_IN || rank == member->join.rank || fellow->lost) {
        return;
    }
    if (!member->events.left(member->events.arg, rank)) {
        fellow->lost = true;
        member->events.lost(member->events.arg, rank, why);
    }
    hoop_contact_drop(member, rank, why);
}

void hoop_vigil_lose_connection(struct hoop_member *member, uint32_t rank)
{
    struct hoop_fellow *fellow = &member->fellows[rank];
    const struct hoop_neighbour *neighbour = fellow->neighbour;
    if (neighbour == NULL || neighbour->pid_fd < 0 || neighbour->dead) {
        const bool dead = neighbour != NULL && neighbour->dead;
        hoop_vigil_lose(member, rank, dead ? "died" : HOOP_LIFE_CLOSED);
    } else if (!fellow->suspect) {
        fellow->suspect = true;
        hoop_timer_start(member->verdict, HOOP_LIFE_VERDICT_MS, 0);
    }
}

/* Those whose connections ended are alive all the same. */
static void vigil_verdict(void *arg)
{
    struct hoop_member *member = arg;
    for (uint32_t rank = 0; rank < member->roster.n; rank++) {
        if (member->fellows[rank].suspect) {
            member->fellows[rank].suspect = false;
            hoop_vigil_lose(member, rank, HOOP_LIFE_CLOSED);
        }
    }
}

bool hoop_vigil_lose_server(struct hoop_member *member)
{
    bool any = false;
    for (uint32_t rank = 0; rank < member->roster.n; rank++) {
        if (member->roster.peers[rank].process == member->server) {
            any = true;
            hoop_vigil_lose_connection(member, rank);
        }
    }
    return any;
}

static void vigil_lose_neighbour(struct hoop_member *member, const struct hoop_neighbour *neighbour)
{
    for (uint32_t rank = 0; rank < member->roster.n; rank++) {
        if (member->fellows[rank].neighbour == neighbour) {
            hoop_vigil_lose(member, rank, "died");
        }
    }
}

/* ---- Processes ---------------------------------------------------------------------------- */

static void vigil_process_ended(void *arg, unsigned events)
{
    struct hoop_neighbour *neighbour = arg;
    (void)events;
    neighbour->dead = true;
    hoop_watch_destroy(neighbour->watch);
    neighbour->watch = NULL;
    vigil_lose_neighbour(neighbour->member, neighbour);
    hoop_region_forget_process(neighbour->process);
}

/* A process that cannot be seen (another pid namespace, or dead already) is left to the others. */
static hoop_result_t vigil_watch_process(struct hoop_neighbour *neighbour, int pid)
{
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        const int err = errno;
        return hoop_error(hoop_from_errno(err), "cannot watch pid %d: %s", pid,
                          hoop_errno_name(err));
    }
    if (fd < 0) {
        return HOOP_OK;
    }
    if (neighbour->start_time == 0 || hoop_process_start_time(pid) != neighbour->start_time) {
        close(fd); /* a namesake */
        return HOOP_OK;
    }
    neighbour->pid_fd = fd;
    return hoop_watch_create(fd, HOOP_WATCH_READ, vigil_process_ended, neighbour,
                             &neighbour->watch);
}

static int vigil_pid_of(const struct hoop_member *member, const struct hoop_neighbour *neighbour)
{
    for (uint32_t rank = 0; rank < member->roster.n; rank++) {
        if (member->fellows[rank].neighbour == neighbour) {
            return member->roster.peers[rank].pid;
        }
    }
    return 0;
}

static void vigil_beat(void *arg);

hoop_result_t hoop_vigil_begin(struct hoop_member *member)
{
    hoop_result_t made = hoop_timer_create(vigil_beat, member, &member->heartbeat);
    if (made == HOOP_OK) {
        made = hoop_timer_create(vigil_verdict, member, &member->verdict);
    }
    if (made != HOOP_OK) {
        return made;
    }
    for (uint32_t i = 0; i < member->neighbour_count; i++) {
        struct hoop_neighbour *neighbour = &member->neighbours[i];
        const hoop_result_t result =
            vigil_watch_process(neighbour, vigil_pid_of(member, neighbour));
        if (result != HOOP_OK) {
            return result;
        }
    }
    for (uint32_t rank = 0; rank < member->roster.n; rank++) {
        const struct hoop_neighbour *neighbour = member->fellows[rank].neighbour;
        if (neighbour != NULL && neighbour->pid_fd < 0) {
            member->roster.peers[rank].pid = 0;
        }
    }
    return HOOP_OK;
}

static bool vigil_is_watched_by_another(const struct hoop_member *me, uint64_t process)
{
    for (const struct hoop_member *member = hoop_members; member != NULL; member = member->next) {
        for (uint32_t i = 0; member != me && i < member->neighbour_count; i++) {
            if (member->neighbours[i].process == process) {
                return true;
            }
        }
    }
    return false;
}

void hoop_vigil_finish(struct hoop_member *member)
{
    hoop_timer_destroy(member->heartbeat);
    member->heartbeat = NULL;
    hoop_timer_destroy(member->verdict);
    member->verdict = NULL;
    for (uint32_t i = 0; i < member->neighbour_count; i++) {
        struct hoop_neighbour *neighbour = &member->neighbours[i];
        hoop_watch_destroy(neighbour->watch);
        neighbour->watch = NULL;
        if (neighbour->pid_fd >= 0) {
            close(neighbour->pid_fd);
            neighbour->pid_fd = -1;
        }
        /* nobody would tell this process any more which of its regions are dead */
        if (!vigil_is_watched_by_another(member, neighbour->process)) {
            hoop_region_forget_process(neighbour->process);
        }
    }
}

/* ---- The heartbeat ------------------------------------------------------------------------ */

/* Since when an operation of mine has been waiting without a break. */
static void vigil_look_waiting(struct hoop_member *member, uint64_t now)
{
    if (!member->events.waiting(member->events.arg)) {
        member->waiting_ns = HOOP_NEVER;
    } else if (member->waiting_ns == HOOP_NEVER) {
        member->waiting_ns = now;
    }
}

static void vigil_look_at(struct hoop_member *member, uint32_t rank, uint64_t now)
{
    struct hoop_fellow *fellow = &member->fellows[rank];
    const uint64_t pulse = member->events.pulse(member->events.arg, rank);
    /* 0: its process has joined, its caller has not come back from waiting for something else (in a
     * group, another comm). */
    if (pulse != fellow->pulse || pulse == 0) {
        fellow->pulse = pulse;
        fellow->changed_ns = now;
        return;
    }
    const uint64_t ms = hoop_life_silence_ms(fellow->changed_ns, member->waiting_ns, now,
                                             member->join.dead_after_ms);
    if (ms != 0) {
        char why[128];
        (void)snprintf(why, sizeof(why),
                       "gave no sign of life for %llu ms (is it stopped, or starved of CPU?)",
                       (unsigned long long)ms);
        hoop_vigil_lose(member, rank, why);
    }
}

/* For the other machines, by way of the rendezvous. */
static void vigil_say_beat(const struct hoop_member *member)
{
    union hoop_frame frame;
    if (member->roster.machines > 1 && member->control != NULL) {
        hoop_frame_init(&frame, HOOP_FRAME_BEAT);
        frame.beat.waiting = member->waiting_ns != HOOP_NEVER ? 1 : 0;
        hoop_control_send(member->control, &frame.header, NULL, 0);
    }
}

static void vigil_beat(void *arg)
{
    struct hoop_member *member = arg;
    const uint64_t now = hoop_now_ns();
    const bool late = hoop_life_was_late(member->beat_ns, now, member->beat_ms);
    member->beat_ns = now;
    member->events.beat(member->events.arg);
    vigil_look_waiting(member, now);
    vigil_say_beat(member);
    for (uint32_t rank = 0; rank < member->roster.n; rank++) {
        struct hoop_fellow *fellow = &member->fellows[rank];
        if (fellow->neighbour == NULL || fellow->lost) {
            continue;
        }
        if (late) {
            fellow->changed_ns = now;
        }
        vigil_look_at(member, rank, now);
    }
}

void hoop_vigil_start(struct hoop_member *member)
{
    const uint64_t now = hoop_now_ns();
    member->beat_ns = now;
    member->waiting_ns = HOOP_NEVER;
    for (uint32_t rank = 0; rank < member->roster.n; rank++) {
        member->fellows[rank].changed_ns = now;
    }
    member->events.beat(member->events.arg);
    hoop_timer_start(member->heartbeat, member->beat_ms, member->beat_ms);
    for (uint32_t i = 0; i < member->neighbour_count; i++) {
        if (member->neighbours[i].dead) { /* between its being ready and this */
            vigil_lose_neighbour(member, &member->neighbours[i]);
        }
    }
}
