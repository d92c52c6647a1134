/*
 * The failure detector, which decides who is dead. One per process; it gets evidence and gives
 * verdicts, and sends no messages of its own.
 *
 *      evidence                                  verdict
 *      a process of this machine has ended       "died", at once (its pidfd tells)
 *      a connection ended without a goodbye      "died" if its process ends within 20 ms;
 *                                                else lost, although the process lives
 *      no sign of life: nothing heard, and its   lost for silence, within 1 ms after it has
 *      pulse does not move                       lasted dead_after while somebody waited
 *
 * Silence counts only while somebody waits, and only while the watcher itself was running: if its
 * own look comes much too late, everybody gets a fresh start.
 *
 * A watcher (a member, a leader) beats: at each beat it gives a sign of life and looks at those
 * whom it watches. One timer serves all beats, and one table all pidfds, so that a process is
 * watched once for all comms.
 *
 * Service thread only.
 */
#ifndef HOOP_DETECTOR_H
#define HOOP_DETECTOR_H

#include "base/error.h"
#include "base/list.h"
#include <stdint.h>

struct hoop_watched;
struct hoop_watcher;

struct hoop_watcher_owner {
    /* Give a sign of life. This and the next two must not finish a watcher or a watched. */
    void (*beat)(struct hoop_watcher *watcher);
    /* Since when somebody has been waiting for it without a break; HOOP_NEVER: nobody waits. */
    uint64_t (*waiting_since)(struct hoop_watched *watched);
    /* Optional: a counter that moves while it lives. 0: it does not count yet; no silence */
    uint64_t (*pulse)(struct hoop_watched *watched);
    /* It is lost; called once. why completes "rank 3 (...)". May finish any watcher or watched. */
    void (*lost)(struct hoop_watched *watched, const char *why);
};

/* Embedded in its owner. The fields belong to the detector; the owner may read them. */
struct hoop_watcher {
    struct hoop_list_node node, watched;
    const struct hoop_watcher_owner *owner;
    uint64_t dead_after_ms, beat_ms;
    uint64_t beat_ns, look_ns, due_ns; /* next beat, last look, next look */
};

/* Somebody whom a watcher watches; embedded in its owner. */
struct hoop_watched {
    struct hoop_list_node node, of_process, verdict;
    struct hoop_watcher *watcher;
    struct hoop_process *process; /* NULL if it cannot be seen from here */
    uint64_t heard_ns, pulse, suspect_until_ns;
    uint64_t silent_ms;
    bool lost;
};

/* dead_after_ms > 0 determines the interval of beats. The watcher does not beat yet. */
hoop_result_t hoop_watcher_init(struct hoop_watcher *watcher,
                                const struct hoop_watcher_owner *owner, uint64_t dead_after_ms);
/* From now on it beats and reports losses, first those since the watch began. */
void hoop_watcher_start(struct hoop_watcher *watcher);
/* Finishes it and all its watched. A zeroed or finished one is allowed. */
void hoop_watcher_finish(struct hoop_watcher *watcher);

void hoop_watched_init(struct hoop_watched *watched, struct hoop_watcher *watcher);
/*
 * It lives in process pid, which was started at start_time (hoop_process_start_time(); 0: unknown).
 * If this process cannot see that one, because it is in another pid namespace or dead, other
 * evidence decides. Fails only for lack of descriptors or memory.
 */
hoop_result_t hoop_watched_process(struct hoop_watched *watched, int pid, uint64_t start_time);
/* A message came from it. */
void hoop_watched_heard(struct hoop_watched *watched);
/* Its connection ended without a goodbye. */
void hoop_watched_closed(struct hoop_watched *watched);
/* Was its process seen to end? */
bool hoop_watched_is_dead(const struct hoop_watched *watched);
/* Nothing is reported about it any more. A zeroed or finished one is allowed. */
void hoop_watched_finish(struct hoop_watched *watched);

/* Does all that is due at now_ns. For the timer, and for tests with a clock of their own. */
void hoop_detector_look(uint64_t now_ns);

#endif
