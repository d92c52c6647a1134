/*
 * Rendezvous at a file: how ranks that share nothing but a path find rank 0.
 *
 * Rank 0 serves the rendezvous anywhere and writes where; the others read that and dial it. The
 * path is a name: what is written lies in the directory PATH.hoop, which only this user can enter
 * and which is there only while ranks are looking for each other.
 *
 *      PATH.hoop/KEY             the unique id of the rendezvous: its secret and address
 *
 * KEY is 32 hexadecimal digits that tell jobs, attempts and calls apart (lib/rendezvous/url.c makes
 * them).
 *
 * A file system may hang. Each of these functions lets a thread of its own work with it, for which
 * the service thread never waits, and a caller until its deadline.
 */
#ifndef HOOP_FILE_STORE_H
#define HOOP_FILE_STORE_H

#include "rendezvous/rendezvous.h"

#define HOOP_RENDEZVOUS_KEY_BYTES 33 /* a C string */

/*
 * The file of a rendezvous at path: what goes into struct hoop_rendezvous.file, to be freed.
 * HOOP_INVALID_USAGE: no such path can be. Only the text is looked at.
 */
hoop_result_t hoop_file_store_name(const char *path, const char key[HOOP_RENDEZVOUS_KEY_BYTES],
                                   char **ret_file);

/*
 * Makes the directory. HOOP_INVALID_USAGE names it and what is wrong with it: nobody but this user
 * may be able to change what is in it. HOOP_TIMEOUT: the file system does not answer. Any thread
 * but the service thread, as for the next one.
 */
hoop_result_t hoop_file_store_prepare(const char *file, uint64_t timeout_ms);

/*
 * Waits until the file says where somebody serves the rendezvous: what an earlier job left there
 * counts for nothing. Fills in name, secret and address of *ret, and nothing else. HOOP_TIMEOUT
 * says what was found instead.
 */
hoop_result_t hoop_file_store_await(const char *file, uint64_t timeout_ms,
                                    struct hoop_rendezvous *ret);

struct hoop_file_task;

/*
 * Publishes the secret of the rendezvous and the address of its root at rendezvous->file, until
 * withdrawn, which NULL need not be; what goes wrong there is logged. Withdraw as soon as nobody
 * needs to look any more. Service thread; they do not wait.
 */
hoop_result_t hoop_file_store_publish(const struct hoop_rendezvous *rendezvous,
                                      const struct hoop_address *address,
                                      struct hoop_file_task **ret_task);
void hoop_file_store_withdraw(struct hoop_file_task *task);

/* What was withdrawn from this file is removed, or the file system takes its time. The process may
 * end next. Not on the service thread; NULL: nothing to do. */
void hoop_file_store_settle(const char *file);

#endif
