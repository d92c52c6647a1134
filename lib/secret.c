/* Reading a secret from a file; see secret.h. The checks are made on the open file, not the path.
 */
#include "secret.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_DIGITS ((size_t)2 * HOOP_SECRET_BYTES)

static hoop_result_t secret_check(const char *path, int fd)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        const int err = errno;
        return hoop_error(HOOP_INVALID_USAGE, "%.200s: %s", path, hoop_errno_name(err));
    }
    if (!S_ISREG(about.st_mode)) {
        return hoop_error(HOOP_INVALID_USAGE, "%.200s is not a regular file", path);
    }
    if (about.st_uid != geteuid()) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%.200s belongs to user %u: expected user %u, who runs this process",
                          path, (unsigned)about.st_uid, (unsigned)geteuid());
    }
    if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%.200s has mode %04o: nobody but its owner may have access (chmod 600)",
                          path, (unsigned)(about.st_mode & 07777));
    }
    return HOOP_OK;
}

/* At most room - 1 bytes and an end; *ret_bytes: how many there were. */
static bool secret_fill(int fd, char *text, size_t room, size_t *ret_bytes)
{
    size_t bytes = 0;
    ssize_t got = 1;
    while (bytes + 1 < room && got != 0) {
        got = read(fd, text + bytes, room - 1 - bytes);
        if (got < 0 && errno != EINTR) {
            return false;
        }
        bytes += got > 0 ? (size_t)got : 0;
    }
    text[bytes] = 0;
    *ret_bytes = bytes;
    return true;
}

static hoop_result_t secret_take(const char *path, int fd, struct hoop_secret *ret_secret)
{
    char text[SECRET_DIGITS + 3]; /* a newline, and a byte too many */
    size_t bytes = 0;
    hoop_result_t result = HOOP_OK;
    if (!secret_fill(fd, text, sizeof(text), &bytes)) {
        const int err = errno;
        result =
            hoop_error(HOOP_INVALID_USAGE, "cannot read %.200s: %s", path, hoop_errno_name(err));
    } else {
        if (bytes == SECRET_DIGITS + 1 && text[SECRET_DIGITS] == '\n') {
            text[SECRET_DIGITS] = 0;
            bytes--;
        }
        result = strlen(text) != bytes
                     ? hoop_error(HOOP_INVALID_USAGE,
                                  "%.200s holds a byte of zero: expected %zu hexadecimal digits",
                                  path, SECRET_DIGITS)
                     : hoop_secret_parse(text, ret_secret);
        if (result == HOOP_INVALID_ARGUMENT) {
            result = hoop_error(HOOP_INVALID_USAGE, "%.200s: %s", path, hoop_thread_error());
        }
    }
    hoop_secret_wipe(text, sizeof(text));
    return result;
}

hoop_result_t hoop_secret_read(const char *path, struct hoop_secret *ret_secret)
{
    /* Non-blocking: the path may lead to a pipe. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        const int err = errno;
        return hoop_error(HOOP_INVALID_USAGE, "cannot open %.200s: %s", path, hoop_errno_name(err));
    }
    hoop_result_t result = secret_check(path, fd);
    if (result == HOOP_OK) {
        result = secret_take(path, fd, ret_secret);
    }
    close(fd);
    return result;
}
