/*
 * Rendezvous at a file: how ranks that share nothing but a path find rank 0.
 *
 * Rank 0 serves the rendezvous at any address and writes that to a file; the others read it and
 * dial. The path is only a name: the file is in the directory PATH.hoop, which only this user can
 * enter and which exists only while ranks are looking for each other.
 *
 *     PATH.hoop/KEY             the unique id of the rendezvous: its secret and address
 *
 * KEY is 32 hexadecimal digits that distinguish jobs, attempts and calls (lib/rendezvous/url.c
 * derives them).
 *
 * File systems may hang. So a thread of its own does the work; the service thread never waits for
 * it, and a caller only until its deadline.
 */
#ifndef HOOP_FILE_STORE_H
#define HOOP_FILE_STORE_H

#include "rendezvous/rendezvous.h"

#define HOOP_RENDEZVOUS_KEY_BYTES 33 /* a C string */

/*
 * The file name of a rendezvous at path, for struct hoop_rendezvous.file; the caller frees it.
 * HOOP_INVALID_USAGE if the path is not suitable. Does not access the file system.
 */
hoop_result_t hoop_file_store_name(const char *path, const char key[HOOP_RENDEZVOUS_KEY_BYTES],
                                   char **ret_file);

/*
 * Makes the directory. HOOP_INVALID_USAGE says what is wrong with it: nobody but this user may be
 * able to change its contents. HOOP_TIMEOUT if the file system does not answer. Call this and the
 * next function on any thread but the service thread.
 */
hoop_result_t hoop_file_store_prepare(const char *file, uint64_t timeout_ms);

/*
 * Waits until the file says where the rendezvous is served; files of earlier jobs do not count.
 * Sets only name, secret and address of *ret. HOOP_TIMEOUT says what was found instead.
 */
hoop_result_t hoop_file_store_await(const char *file, uint64_t timeout_ms,
                                    struct hoop_rendezvous *ret);

struct hoop_file_task;

/*
 * Publishes the secret of the rendezvous and the address of its root at rendezvous->file until
 * withdrawn; errors are logged. Withdraw as soon as nobody needs it any more; NULL is allowed
 * there. Both run on the service thread and do not wait.
 */
hoop_result_t hoop_file_store_publish(const struct hoop_rendezvous *rendezvous,
                                      const struct hoop_address *address,
                                      struct hoop_file_task **ret_task);
void hoop_file_store_withdraw(struct hoop_file_task *task);

/* Waits, but not for long, until what was withdrawn from this file is removed, so that the process
 * may end. Not on the service thread. NULL does nothing. */
void hoop_file_store_settle(const char *file);

#endif
