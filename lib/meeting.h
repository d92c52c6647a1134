/* What unique ids (meeting_id.c) share with the other ways to meet (meeting.c). */
#ifndef HOOP_MEETING_H
#define HOOP_MEETING_H

#include "bootstrap.h"
#include "launcher.h"

#define HOOP_MEETING_NAME_RANDOM 16u

/* prefix, and these bytes in hexadecimal. */
void hoop_meeting_name(const char *prefix, const uint8_t bytes[HOOP_MEETING_NAME_RANDOM],
                       char ret_name[HOOP_MEETING_NAME_BYTES]);

/* What this process's environment says; see hoop_launcher_read(). */
hoop_result_t hoop_meeting_launcher(struct hoop_launcher *ret);

/* Are the ranks on one machine, by the launcher's word and HOOP_HOSTID? */
enum hoop_spread hoop_meeting_spread(const struct hoop_launcher *launcher);

#endif
