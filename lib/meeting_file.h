/*
 * Meetings at a file: how ranks that share nothing but a path find rank 0.
 *
 * Rank 0 serves the meeting anywhere and says where by a file; the others wait for it. The path is
 * a name: what is written lies in the directory PATH.hoop, which only this user can enter and which
 * is there only while ranks are looking for each other.
 *
 *      PATH.hoop/KEY             the meeting: name, secret, address, and the tokens that it answers
 *      PATH.hoop/KEY.TOKEN       a rank is looking; TOKEN is 32 random hexadecimal digits
 *
 * KEY is 32 hexadecimal digits that tell jobs, attempts and calls apart (lib/meeting.c makes them).
 */
#ifndef HOOP_MEETING_FILE_H
#define HOOP_MEETING_FILE_H

#include "bootstrap.h"

#define HOOP_MEETING_KEY_BYTES 33 /* a C string */

/*
 * The file of a meeting at path: what goes into struct hoop_meeting.file, to be freed. Makes the
 * directory. HOOP_INVALID_USAGE names the directory and what is wrong with it: nobody but this user
 * may be able to change what is in it. Any thread.
 */
hoop_result_t hoop_meeting_file_create(const char *path, const char key[HOOP_MEETING_KEY_BYTES],
                                       char **ret_file);

/*
 * Waits for what rank 0 publishes at this file from now on; what an earlier job left there counts
 * for nothing. Fills in name, secret and address of *ret, and nothing else. HOOP_TIMEOUT says what
 * was found instead. Blocks: not on the service thread.
 */
hoop_result_t hoop_meeting_file_await(const char *file, uint64_t timeout_ms,
                                      struct hoop_meeting *ret);

/*
 * Publishes name and secret of the meeting and the address of its hub at meeting->file, and answers
 * whoever looks, until withdrawn. A copy of the meeting serves to withdraw: its name counts.
 * Withdraw as soon as nobody needs to look any more. Service thread.
 */
hoop_result_t hoop_meeting_file_publish(const struct hoop_meeting *meeting,
                                        const struct hoop_address *address,
                                        struct hoop_failure *failure);
void hoop_meeting_file_withdraw(const struct hoop_meeting *meeting);

/* Lets a time pass, for whoever looks again and again. Not on the service thread. */
void hoop_meeting_pause(uint64_t ms);

#endif
