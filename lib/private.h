/*
 * Directories that nobody but this user can enter, and the files in them. What others can do is be
 * in the way: their files and directories are refused, by owner and mode of what was opened.
 *
 * HOOP_INVALID_USAGE names the path and what is wrong with it; HOOP_AGAIN: the directory was
 * removed since it was opened, entering makes it again. Any thread.
 */
#ifndef HOOP_PRIVATE_H
#define HOOP_PRIVATE_H

#include "base/error.h"
#include <stdbool.h>
#include <sys/uio.h>

/* May something private be made at this absolute path? Not where everybody may replace it. */
hoop_result_t hoop_private_check_place(const char *path);

/* Opens a directory; makes it if it is not there. The caller closes it. */
hoop_result_t hoop_private_enter(const char *directory, int *ret_fd);

/* Makes an empty file if it is not there. */
hoop_result_t hoop_private_touch(int directory, const char *name);

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
                                   const struct iovec *parts, int count);

/* Opens a regular file of this user to be read; its size. -1: there is none. */
int hoop_private_open(int directory, const char *name, uint64_t *ret_bytes);

/* False: not all bytes can be had. */
bool hoop_private_read(int fd, void *buf, size_t bytes);

#endif
