/*
 * Files and directories that nobody but this user can read or change. What others can do is be in
 * the way: their files and directories are refused, by owner and mode of what was opened.
 *
 * HOOP_INVALID_USAGE names the path and what is wrong with it, never the contents; HOOP_AGAIN: the
 * directory was removed since it was opened, entering makes it again. Any thread that may wait: a
 * network file system can hang.
 */
#ifndef HOOP_PRIVATE_FILE_H
#define HOOP_PRIVATE_FILE_H

#include "base/crypto.h"
#include "base/error.h"
#include <sys/types.h>

/* May something private be made at this absolute path? Not where everybody may replace it. */
hoop_result_t hoop_private_check_place(const char *path);

/* Opens a directory; makes it if it is not there. The caller closes it. */
hoop_result_t hoop_private_enter(const char *directory, int *ret_fd);

/*
 * Makes and removes a file. Who looks at a directory of a network file system in vain does this now
 * and then: the client drops what it remembers of a directory that is changed from here.
 */
void hoop_private_stir(int directory, const char *name);

/*
 * Puts a file of these contents in the place of the old one, by way of one called temporary:
 * whoever reads finds one of the two. It is not synced to disk.
 */
hoop_result_t hoop_private_replace(int directory, const char *name, const char *temporary,
                                   const void *bytes, size_t count);

/* What a regular file of this user holds, at most room bytes. -1: there is none, or it is not. */
ssize_t hoop_private_read(int directory, const char *name, void *buf, size_t room);

/*
 * The secret in a file: 64 hexadecimal digits, a newline may follow. The file is this user's, and
 * nobody else may read or write it; or it is root's, and this user's group may read it, as a
 * container finds it that is given secrets and does not run as root. The caller wipes the secret.
 */
hoop_result_t hoop_secret_read(const char *path, struct hoop_secret *ret_secret);

#endif
