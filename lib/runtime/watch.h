/*
 * Services of the service thread for code that runs on it: callbacks when a descriptor is ready or
 * a time has come, and descriptors that a forked child does not keep.
 *
 * Service thread only, except hoop_fork_*(). A watch or timer may be destroyed from anywhere on
 * that thread, including its own callback, which is not called any more afterwards. The descriptor
 * of a destroyed watch may be closed at once.
 */
#ifndef HOOP_WATCH_H
#define HOOP_WATCH_H

#include "base/error.h"

#define HOOP_WATCH_READ 1u
#define HOOP_WATCH_WRITE 2u

struct hoop_watch;
/* events: what is ready. An error or end of stream shows as READ: reading tells. */
typedef void hoop_watch_fn(void *arg, unsigned events);

hoop_result_t hoop_watch_create(int fd, unsigned events, hoop_watch_fn *fn, void *arg,
                                struct hoop_watch **ret_watch);
void hoop_watch_want(struct hoop_watch *watch, unsigned events); /* NULL is allowed */
void hoop_watch_destroy(struct hoop_watch *watch);               /* NULL is allowed */

struct hoop_timer;
typedef void hoop_timer_fn(void *arg);

hoop_result_t hoop_timer_create(hoop_timer_fn *fn, void *arg, struct hoop_timer **ret_timer);
/* Restarts the timer if it is running. repeat_ms 0: once. */
void hoop_timer_start(struct hoop_timer *timer, uint64_t first_ms, uint64_t repeat_ms);
void hoop_timer_stop(struct hoop_timer *timer);
void hoop_timer_destroy(struct hoop_timer *timer); /* NULL is allowed */

/* Frees memory from malloc() after the callbacks of this turn of the loop have returned, so that an
 * object may be destroyed inside its own callbacks. Unchanged until then. NULL is allowed. */
void hoop_free_later(void *memory);

/*
 * Descriptors listed with keep are closed in a forked child. Open one between hold and release, so
 * that no fork comes between its creation and its listing. If keep fails, it has closed the
 * descriptor.
 */
void hoop_fork_hold(void);
hoop_result_t hoop_fork_keep(int fd);
void hoop_fork_release(void);
void hoop_fork_close(int fd); /* unlists and closes; not between hold and release */

#endif
