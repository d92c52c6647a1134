/*
 * Files and directories that only this user can read or change. Files of others in their place are
 * refused, by owner and mode of the open descriptor.
 *
 * HOOP_INVALID_USAGE names the path and what is wrong with it, never the contents. HOOP_AGAIN: the
 * directory was removed since it was opened; entering it makes it again. A network file system can
 * hang, so call these only on threads that may wait.
 */
#ifndef HOOP_PRIVATE_FILE_H
#define HOOP_PRIVATE_FILE_H

#include "base/crypto.h"
#include "base/error.h"
#include <sys/types.h>

/* May something private be created at this absolute path? Not if everybody could replace it. */
hoop_result_t hoop_private_check_place(const char *path);

/* Opens a directory, and creates it if need be. The caller closes *ret_fd. */
hoop_result_t hoop_private_enter(const char *directory, int *ret_fd);

/*
 * Creates and removes a file, which makes the client of a network file system drop its cache of the
 * directory. For use now and then while waiting for another machine's file.
 */
void hoop_private_stir(int directory, const char *name);

/*
 * Atomically replaces a file by way of one called temporary, so that readers find either the old or
 * the new contents. Not synced to disk.
 */
hoop_result_t hoop_private_replace(int directory, const char *name, const char *temporary,
                                   const void *bytes, size_t count);

/* Reads at most room bytes of a regular file of this user. Returns -1 if there is none. */
ssize_t hoop_private_read(int directory, const char *name, void *buf, size_t room);

/*
 * Reads a secret from a file: 64 hexadecimal digits, optionally a newline. The file must be this
 * user's with no access for others; or root's and readable by a group of this process, as in a
 * container that gets secrets and does not run as root. The caller wipes the secret.
 */
hoop_result_t hoop_secret_read(const char *path, struct hoop_secret *ret_secret);

#endif
