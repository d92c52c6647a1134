/*
 * The failure detector: who is alive. One per process; evidence in, verdicts out, no messages of
 * its own.
 *
 *      evidence                                  verdict
 *      a process of this machine has ended       "died", at once (its pidfd tells)
 *      a connection ended without a goodbye      "died", if its process is seen to end within
 *                                                20 ms; else it lives, and is gone all the same
 *      no sign of life: nothing heard, and its   silent, once that has lasted for dead_after
 *      pulse does not move                       while somebody waits: told within the millisecond
 *
 * Silence counts only while somebody waits, and only while the watcher was running itself: after a
 * look of its own that came much too late, everybody gets a fresh start.
 *
 * A watcher (a member, a leader) beats: it gives signs of life of its own and looks at those whom
 * it watches. All beats come from one timer, all pidfds from one table: what many comms have in
 * common is watched once.
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
    /* Time for a sign of life. Must not finish a watcher or a watched; nor must the next two. */
    void (*beat)(struct hoop_watcher *watcher);
    /* Since when somebody has waited for it without a break; HOOP_NEVER: nobody waits. */
    uint64_t (*waiting_since)(struct hoop_watched *watched);
    /* (optional) a counter that moves while it lives; 0: it does not count yet, and is not silent
     */
    uint64_t (*pulse)(struct hoop_watched *watched);
    /* It is lost, which is said once; why completes "rank 3 (...)". May finish whatever it likes.
     */
    void (*lost)(struct hoop_watched *watched, const char *why);
};

/* Embedded by its owner; its fields are the detector's, but may be read. */
struct hoop_watcher {
    struct hoop_list_node node, watched;
    const struct hoop_watcher_owner *owner;
    uint64_t dead_after_ms, beat_ms;
    uint64_t beat_ns, look_ns, due_ns; /* the next beat; the last look, and the next one */
};

/* Whom a watcher watches; embedded by its owner. */
struct hoop_watched {
    struct hoop_list_node node, of_process, suspect, verdict;
    struct hoop_watcher *watcher;
    struct hoop_process *process; /* NULL: not to be seen from here */
    uint64_t heard_ns, pulse, suspect_until_ns;
    uint64_t silent_ms;
    bool lost;
};

/* dead_after_ms > 0: from it comes how often it beats. It watches nobody yet, and does not beat. */
hoop_result_t hoop_watcher_init(struct hoop_watcher *watcher,
                                const struct hoop_watcher_owner *owner, uint64_t dead_after_ms);
/* From now on it beats, and losses are told, those at once that fell between the beginning of the
 * watch and this. */
void hoop_watcher_start(struct hoop_watcher *watcher);
/* With all its watched. A zeroed or finished one is allowed. */
void hoop_watcher_finish(struct hoop_watcher *watcher);

void hoop_watched_init(struct hoop_watched *watched, struct hoop_watcher *watcher);
/*
 * It lives in the process pid that was started at start_time (hoop_process_start_time(); 0:
 * unknown). One that cannot be seen from here, in another pid namespace or dead already, is left
 * to the other witnesses. An error: no descriptors or no memory.
 */
hoop_result_t hoop_watched_process(struct hoop_watched *watched, int pid, uint64_t start_time);
/* It said something. */
void hoop_watched_heard(struct hoop_watched *watched);
/* Its connection ended without a goodbye. */
void hoop_watched_closed(struct hoop_watched *watched);
/* Its process was seen to end. */
bool hoop_watched_is_dead(const struct hoop_watched *watched);
/* Nothing is told of it any more. A zeroed or finished one is allowed. */
void hoop_watched_finish(struct hoop_watched *watched);

/* Does all that is due at this time: what the timer does, and tests with a clock of their own. */
void hoop_detector_look(uint64_t now_ns);

#endif
