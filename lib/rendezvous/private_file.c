/* Private files and directories; see private_file.h. Checks are made on the open descriptor, not on
 * the path, which could change in between. */
#include "rendezvous/private_file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_DIGITS ((size_t)2 * HOOP_SECRET_BYTES)

static hoop_result_t private_error(const char *what, const char *path, int err)
{
    return hoop_error(HOOP_INVALID_USAGE, "cannot %s %.200s: %s", what, path, hoop_errno_name(err));
}

/* For an error inside the directory: HOOP_AGAIN if it was removed meanwhile. */
static hoop_result_t private_error_inside(const char *what, const char *path, int err)
{
    return err == ENOENT || err == ESTALE ? HOOP_AGAIN : private_error(what, path, err);
}

/* Checks that only this user has access. remedy is the chmod that would achieve it. */
static hoop_result_t private_check(const char *path, const struct stat *about, const char *remedy)
{
    if (about->st_uid != geteuid()) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%.200s belongs to user %u: expected user %u, who runs this process",
                          path, (unsigned)about->st_uid, (unsigned)geteuid());
    }
    if ((about->st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%.200s has mode %04o: nobody but its owner may have access (%s)", path,
                          (unsigned)(about->st_mode & 07777), remedy);
    }
    return HOOP_OK;
}

/* Reads up to room bytes. Returns -1 with errno on error. */
static ssize_t private_fill(int fd, void *buf, size_t room)
{
    size_t bytes = 0;
    ssize_t got = 1;
    while (bytes < room && got != 0) {
        got = read(fd, (char *)buf + bytes, room - bytes);
        if (got < 0 && errno != EINTR) {
            return -1;
        }
        bytes += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)bytes;
}

/* ---- Directories -------------------------------------------------------------------------- */

hoop_result_t hoop_private_check_place(const char *path)
{
    char parent[PATH_MAX];
    struct stat about;
    const size_t length = (size_t)(strrchr(path, '/') - path);
    (void)snprintf(parent, sizeof(parent), "%.*s", length > 0 ? (int)length : 1, path);
    if (stat(parent, &about) != 0) {
        return private_error("look at the directory", parent, errno);
    }
    if ((about.st_mode & S_IWOTH) != 0 && (about.st_mode & S_ISVTX) == 0) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "the directory %.200s has mode %04o: everybody may replace what is in it "
                          "(chmod o-w, or +t)",
                          parent, (unsigned)(about.st_mode & 07777));
    }
    return HOOP_OK;
}

hoop_result_t hoop_private_enter(const char *directory, int *ret_fd)
{
    struct stat about;
    if (mkdir(directory, 0700) != 0 && errno != EEXIST) {
        return private_error("make the directory", directory, errno);
    }
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return private_error_inside("open the directory", directory, errno);
    }
    const hoop_result_t result = fstat(fd, &about) != 0
                                     ? private_error_inside("look at", directory, errno)
                                     : private_check(directory, &about, "chmod 700");
    if (result != HOOP_OK) {
        close(fd);
        return result;
    }
    *ret_fd = fd;
    return HOOP_OK;
}

/* ---- Files in them ------------------------------------------------------------------------ */

static hoop_result_t private_make(int directory, const char *name, int flags, int *ret_fd)
{
    *ret_fd = openat(directory, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
    return *ret_fd >= 0 ? HOOP_OK : private_error_inside("make", name, errno);
}

void hoop_private_stir(int directory, const char *name)
{
    int fd = -1;
    if (private_make(directory, name, 0, &fd) == HOOP_OK) {
        close(fd);
        (void)unlinkat(directory, name, 0);
    }
}

static bool private_write(int fd, const char *at, size_t left)
{
    while (left > 0) {
        const ssize_t put = write(fd, at, left);
        if (put < 0 && errno != EINTR) {
            return false;
        }
        at += put > 0 ? put : 0;
        left -= put > 0 ? (size_t)put : 0;
    }
    return true;
}

hoop_result_t hoop_private_replace(int directory, const char *name, const char *temporary,
                                   const void *bytes, size_t count)
{
    int fd = -1;
    (void)unlinkat(directory, temporary, 0);
    hoop_result_t result = private_make(directory, temporary, O_EXCL, &fd);
    if (result != HOOP_OK) {
        return result;
    }
    const bool written = private_write(fd, bytes, count);
    const int err = errno;
    /* network file systems may report a full disk only at close() */
    if (close(fd) != 0 || !written) {
        result = private_error_inside("write", temporary, written ? errno : err);
    } else if (renameat(directory, temporary, directory, name) != 0) {
        result = private_error_inside("replace", name, errno);
    }
    if (result != HOOP_OK) {
        (void)unlinkat(directory, temporary, 0);
    }
    return result;
}

ssize_t hoop_private_read(int directory, const char *name, void *buf, size_t room)
{
    struct stat about;
    ssize_t bytes = -1;
    const int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid()) {
        bytes = private_fill(fd, buf, room);
    }
    close(fd);
    return bytes;
}

/* ---- Secrets ------------------------------------------------------------------------------ */

static hoop_result_t secret_check(const char *path, int fd)
{
    const mode_t others = S_IWGRP | S_IXGRP | S_IRWXO;
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return private_error("look at", path, errno);
    }
    if (!S_ISREG(about.st_mode)) {
        return hoop_error(HOOP_INVALID_USAGE, "%.200s is not a regular file", path);
    }
    if (about.st_uid == 0 && geteuid() != 0 && (about.st_mode & others) == 0) {
        return HOOP_OK; /* open() succeeded, so root lets a group of this process read it */
    }
    return private_check(path, &about, "chmod 600");
}

static hoop_result_t secret_parse(const char *path, char *text, size_t bytes,
                                  struct hoop_secret *ret_secret)
{
    if (bytes == SECRET_DIGITS + 1 && text[SECRET_DIGITS] == '\n') {
        bytes--;
    }
    text[bytes] = 0;
    if (strlen(text) != bytes) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%.200s holds a NUL byte: expected %zu hexadecimal digits", path,
                          SECRET_DIGITS);
    }
    const hoop_result_t result = hoop_secret_parse(text, ret_secret);
    return result == HOOP_INVALID_ARGUMENT
               ? hoop_error(HOOP_INVALID_USAGE, "%.200s: %s", path, hoop_thread_error())
               : result;
}

hoop_result_t hoop_secret_read(const char *path, struct hoop_secret *ret_secret)
{
    char text[SECRET_DIGITS + 3]; /* room for a newline, one byte too many, and the 0 */
    /* Non-blocking because the path may be a pipe. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return private_error("open", path, errno);
    }
    hoop_result_t result = secret_check(path, fd);
    if (result == HOOP_OK) {
        const ssize_t bytes = private_fill(fd, text, sizeof(text) - 1);
        result = bytes < 0 ? private_error("read", path, errno)
                           : secret_parse(path, text, (size_t)bytes, ret_secret);
    }
    hoop_secret_wipe(text, sizeof(text));
    close(fd);
    return result;
}
