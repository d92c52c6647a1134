/*
 * A member's dock: where the data connections of its links come in and go out. A link's receiver
 * tells the sender where its dock is (hoop_member_dock()); the sender dials it there
 * (hoop_member_dial()). Both ends prove the comm's secret on the service thread; then the bare
 * socket is the link's (events.stream).
 *
 *      dial: --connect--> proving --WELCOME--> the link's
 *              \_ refused: again, for 5 s at most \--> failed
 *
 * Service thread only, but for the two functions of bootstrap.h, which dock.c also holds.
 */
#ifndef HOOP_DOCK_H
#define HOOP_DOCK_H

#include "bootstrap.h"
#include "control.h"

/* Ends the member's pending dials without an event, and its use of the door. */
void hoop_dock_finish(struct hoop_member *member);

/* For doors: is a data connection's hello for a member here; a proven one. */
bool hoop_dock_admit(const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                     struct hoop_failure *ret_failure);
void hoop_dock_opened(struct hoop_control *control);

#endif
