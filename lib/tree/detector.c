/* See detector.h. */
#include "tree/detector.h"
#include "base/clock.h"
#include "runtime/process.h"
#include "runtime/watch.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DETECTOR_BEAT_MIN_MS 20u
#define DETECTOR_BEAT_MAX_MS 1000u
#define DETECTOR_BEATS 10u /* per dead_after */
#define DETECTOR_ASIDE 2u  /* missed beats, after which signs of life may lie unread */
/* A dying process closes its sockets a little before its pidfd reports the end. */
#define DETECTOR_SUSPECT_NS (20 * HOOP_NS_PER_MS)

/* A process of this machine that is watched. */
struct hoop_process {
    struct hoop_list_node node;
    struct hoop_list_node watched; /* the hoop_watched that live in it */
    int pid, pid_fd;
    uint64_t start_time;
    struct hoop_watch *watch; /* NULL once it is dead */
};

static struct {
    struct hoop_list_node processes;
    struct hoop_list_node watchers; /* those that were started */
    struct hoop_list_node verdicts; /* losses still to be reported */
    struct hoop_timer *timer;
} detector = {
    .processes = HOOP_LIST_EMPTY(detector.processes),
    .watchers = HOOP_LIST_EMPTY(detector.watchers),
    .verdicts = HOOP_LIST_EMPTY(detector.verdicts),
};

/* ---- Verdicts ----------------------------------------------------------------------------- */

static bool watched_is_told(const struct hoop_watched *watched)
{
    return hoop_list_is_linked(&watched->watcher->node) && !watched->lost;
}

static void watched_convict(struct hoop_watched *watched)
{
    watched->suspect_until_ns = HOOP_NEVER;
    if (watched_is_told(watched)) {
        watched->lost = true;
        hoop_list_push_back(&detector.verdicts, &watched->verdict);
    }
}

bool hoop_watched_is_dead(const struct hoop_watched *watched)
{
    return watched->process != NULL && watched->process->watch == NULL;
}

static void watched_explain(const struct hoop_watched *watched, char *ret_why, size_t bytes)
{
    const bool near = watched->process != NULL || watched->watcher->owner->pulse != NULL;
    if (hoop_watched_is_dead(watched)) {
        (void)snprintf(ret_why, bytes, "died");
    } else if (watched->silent_ms == 0) {
        (void)snprintf(ret_why, bytes, "closed its connection without a goodbye");
    } else {
        (void)snprintf(
            ret_why, bytes,
            "gave no sign of life for %llu ms (HOOP_DEAD_AFTER_MS; is it stopped, or %s?)",
            (unsigned long long)watched->silent_ms,
            near ? "starved of CPU" : "cannot its machine be reached");
    }
}

/* Reports one loss at a time from the front, since an owner may finish any of the others. */
static void detector_tell(void)
{
    while (!hoop_list_is_empty(&detector.verdicts)) {
        struct hoop_watched *watched =
            HOOP_CONTAINER_OF(detector.verdicts.next, struct hoop_watched, verdict);
        char why[128];
        watched_explain(watched, why, sizeof(why));
        hoop_list_remove(&watched->verdict);
        watched->watcher->owner->lost(watched, why);
    }
}

/* ---- The timer ---------------------------------------------------------------------------- */

static void detector_due(void *arg)
{
    (void)arg;
    hoop_detector_look(hoop_now_ns());
}

static void detector_arm(void)
{
    uint64_t due = HOOP_NEVER;
    HOOP_LIST_EACH(const struct hoop_watcher, watcher, &detector.watchers, node) {
        due = watcher->due_ns < due ? watcher->due_ns : due;
    }
    if (due == HOOP_NEVER) {
        hoop_timer_stop(detector.timer);
    } else {
        hoop_timer_start(detector.timer, hoop_left_ms(due), 0);
    }
}

/* ---- Processes ---------------------------------------------------------------------------- */

static void process_ended(void *arg, unsigned events)
{
    struct hoop_process *process = arg;
    (void)events;
    hoop_watch_destroy(process->watch);
    process->watch = NULL;
    HOOP_LIST_EACH(struct hoop_watched, watched, &process->watched, of_process) {
        watched_convict(watched);
    }
    detector_tell();
}

static struct hoop_process *process_find(int pid, uint64_t start_time)
{
    HOOP_LIST_EACH(struct hoop_process, process, &detector.processes, node) {
        if (process->pid == pid && process->start_time == start_time) {
            return process;
        }
    }
    return NULL;
}

static void process_destroy(struct hoop_process *process)
{
    hoop_list_remove(&process->node);
    hoop_watch_destroy(process->watch);
    close(process->pid_fd);
    free(process);
}

/* Takes ownership of pid_fd. */
static hoop_result_t process_create(int pid, uint64_t start_time, int pid_fd,
                                    struct hoop_process **ret_process)
{
    struct hoop_process *process = calloc(1, sizeof(*process));
    if (process == NULL) {
        close(pid_fd);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory to watch pid %d", pid);
    }
    process->pid = pid;
    process->start_time = start_time;
    process->pid_fd = pid_fd;
    hoop_list_init(&process->watched);
    const hoop_result_t result =
        hoop_watch_create(pid_fd, HOOP_WATCH_READ, process_ended, process, &process->watch);
    if (result != HOOP_OK) {
        process_destroy(process);
        return result;
    }
    hoop_list_push_back(&detector.processes, &process->node);
    *ret_process = process;
    return HOOP_OK;
}

/* Did the look at a process fail by errno `err`, and not because it is hidden or gone? */
static bool process_look_failed(int err)
{
    return err != 0 && err != ENOENT && err != ESRCH && err != EACCES && err != EPERM;
}

/* Finds or makes the entry. *ret_process is NULL if this process cannot see pid. */
static hoop_result_t process_see(int pid, uint64_t start_time, struct hoop_process **ret_process)
{
    *ret_process = process_find(pid, start_time);
    if (*ret_process != NULL || pid <= 0 || start_time == 0) {
        return HOOP_OK;
    }
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        return hoop_errno_error(errno, "cannot watch pid %d", pid);
    }
    errno = 0;
    const uint64_t found = fd >= 0 ? hoop_process_start_time(pid) : start_time;
    if (found != start_time) {
        const int err = found == 0 ? errno : 0;
        close(fd);
        /* seen in some comms only, it would be two peers, and what it sends to one would be lost */
        return process_look_failed(err) ? hoop_errno_error(err, "cannot look at pid %d", pid)
                                        : HOOP_OK; /* hidden, or another with the same pid */
    }
    return fd < 0 ? HOOP_OK : process_create(pid, start_time, fd, ret_process);
}

/* ---- Watched ------------------------------------------------------------------------------ */

void hoop_watched_init(struct hoop_watched *watched, struct hoop_watcher *watcher)
{
    *watched = (struct hoop_watched){
        .watcher = watcher, .heard_ns = hoop_now_ns(), .suspect_until_ns = HOOP_NEVER};
    hoop_list_push_back(&watcher->watched, &watched->node);
}

hoop_result_t hoop_watched_process(struct hoop_watched *watched, int pid, uint64_t start_time)
{
    assert(watched->process == NULL);
    const hoop_result_t result = process_see(pid, start_time, &watched->process);
    if (watched->process != NULL) {
        hoop_list_push_back(&watched->process->watched, &watched->of_process);
    }
    if (hoop_watched_is_dead(watched)) {
        watched_convict(watched);
        detector_tell();
    }
    return result;
}

void hoop_watched_heard(struct hoop_watched *watched)
{
    watched->heard_ns = hoop_now_ns();
}

void hoop_watched_closed(struct hoop_watched *watched)
{
    struct hoop_watcher *watcher = watched->watcher;
    const uint64_t until = hoop_now_ns() + DETECTOR_SUSPECT_NS;
    if (!watched_is_told(watched) || watched->suspect_until_ns != HOOP_NEVER) {
        return;
    }
    if (watched->process != NULL && !hoop_watched_is_dead(watched)) {
        watched->suspect_until_ns = until;
        watcher->due_ns = until < watcher->due_ns ? until : watcher->due_ns;
        detector_arm();
        return;
    }
    watched_convict(watched);
    detector_tell();
}

void hoop_watched_finish(struct hoop_watched *watched)
{
    struct hoop_process *process = watched->process;
    hoop_list_remove(&watched->node);
    hoop_list_remove(&watched->of_process);
    hoop_list_remove(&watched->verdict);
    watched->process = NULL;
    if (process != NULL && hoop_list_is_empty(&process->watched)) {
        process_destroy(process);
    }
}

/* ---- Watchers ----------------------------------------------------------------------------- */

static uint64_t watcher_beat_ms(uint64_t dead_after_ms)
{
    const uint64_t part = dead_after_ms / DETECTOR_BEATS;
    if (part < DETECTOR_BEAT_MIN_MS) {
        return DETECTOR_BEAT_MIN_MS;
    }
    return part < DETECTOR_BEAT_MAX_MS ? part : DETECTOR_BEAT_MAX_MS;
}

hoop_result_t hoop_watcher_init(struct hoop_watcher *watcher,
                                const struct hoop_watcher_owner *owner, uint64_t dead_after_ms)
{
    assert(dead_after_ms > 0);
    *watcher = (struct hoop_watcher){
        .owner = owner, .dead_after_ms = dead_after_ms, .beat_ms = watcher_beat_ms(dead_after_ms)};
    hoop_list_init(&watcher->watched);
    return detector.timer != NULL ? HOOP_OK
                                  : hoop_timer_create(detector_due, NULL, &detector.timer);
}

/* Watchers with the same interval beat together, so that a process wakes up once for all. */
static uint64_t watcher_next_beat(const struct hoop_watcher *watcher, uint64_t now)
{
    const uint64_t beat = watcher->beat_ms * HOOP_NS_PER_MS;
    return (now / beat + 1) * beat;
}

void hoop_watcher_start(struct hoop_watcher *watcher)
{
    const uint64_t now = hoop_now_ns();
    watcher->look_ns = now;
    watcher->beat_ns = watcher->due_ns = watcher_next_beat(watcher, now);
    hoop_list_push_back(&detector.watchers, &watcher->node);
    detector_arm();
    HOOP_LIST_EACH(struct hoop_watched, watched, &watcher->watched, node) {
        watched->heard_ns = now;
        if (hoop_watched_is_dead(watched)) {
            watched_convict(watched);
        }
    }
    watcher->owner->beat(watcher);
    detector_tell();
}

void hoop_watcher_finish(struct hoop_watcher *watcher)
{
    hoop_list_remove(&watcher->node);
    while (watcher->watched.next != NULL && !hoop_list_is_empty(&watcher->watched)) {
        hoop_watched_finish(HOOP_CONTAINER_OF(watcher->watched.next, struct hoop_watched, node));
    }
}

/* Has its counter moved, or does it not count yet? */
static bool watched_pulses(struct hoop_watched *watched)
{
    const uint64_t before = watched->pulse;
    watched->pulse = watched->watcher->owner->pulse(watched);
    return watched->pulse == 0 || watched->pulse != before;
}

/* Convicts it if it is silent, or has been a suspect, for too long. Returns when to look again,
 * HOOP_NEVER for the next beat. unread: signs of life may lie unread, so they are read first. */
static uint64_t watcher_look_at(struct hoop_watched *watched, uint64_t now, bool unread)
{
    const struct hoop_watcher *watcher = watched->watcher;
    if (watcher->owner->pulse != NULL && watched_pulses(watched)) {
        watched->heard_ns = now;
    }
    if (now >= watched->suspect_until_ns) {
        watched_convict(watched);
        return HOOP_NEVER;
    }
    const uint64_t waiting = watcher->owner->waiting_since(watched);
    const uint64_t since = watched->heard_ns > waiting ? watched->heard_ns : waiting;
    const uint64_t patience = watcher->dead_after_ms * HOOP_NS_PER_MS;
    if (waiting == HOOP_NEVER) {
        return watched->suspect_until_ns;
    }
    if (now <= since || now - since <= patience) {
        const uint64_t silent = since + patience + 1;
        return silent < watched->suspect_until_ns ? silent : watched->suspect_until_ns;
    }
    if (unread) {
        return now + HOOP_NS_PER_MS;
    }
    watched->silent_ms = (now - since) / HOOP_NS_PER_MS;
    watched_convict(watched);
    return HOOP_NEVER;
}

/*
 * Runs with each beat, and whenever a silence becomes too long. If this process has not looked for
 * most of dead_after it was stopped itself, and everybody gets a fresh start. If it missed a few
 * beats it first reads what has come; otherwise its own pause would count as the others' silence.
 */
static void watcher_look(struct hoop_watcher *watcher, uint64_t now)
{
    const uint64_t aside = now - watcher->look_ns;
    const bool late = aside > watcher->dead_after_ms * HOOP_NS_PER_MS / 5 * 3;
    const bool unread = aside > DETECTOR_ASIDE * watcher->beat_ms * HOOP_NS_PER_MS;
    watcher->look_ns = now;
    if (now >= watcher->beat_ns) {
        watcher->beat_ns = watcher_next_beat(watcher, now);
        watcher->owner->beat(watcher);
    }
    watcher->due_ns = watcher->beat_ns;
    HOOP_LIST_EACH(struct hoop_watched, watched, &watcher->watched, node) {
        if (late) {
            watched->heard_ns = now;
        }
        const uint64_t due = watched->lost ? HOOP_NEVER : watcher_look_at(watched, now, unread);
        watcher->due_ns = due < watcher->due_ns ? due : watcher->due_ns;
    }
}

void hoop_detector_look(uint64_t now_ns)
{
    HOOP_LIST_EACH(struct hoop_watcher, watcher, &detector.watchers, node) {
        if (now_ns >= watcher->due_ns) {
            watcher_look(watcher, now_ns);
        }
    }
    detector_tell();
    detector_arm();
}
