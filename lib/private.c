/* Private directories; see private.h. */
#include "private.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static hoop_result_t private_error(const char *what, const char *path, int err, bool entered)
{
    if (entered && (err == ENOENT || err == ESTALE)) {
        return HOOP_AGAIN;
    }
    return hoop_error(HOOP_INVALID_USAGE, "cannot %s %.200s: %s", what, path, hoop_errno_name(err));
}

hoop_result_t hoop_private_check_place(const char *path)
{
    char parent[PATH_MAX];
    struct stat about;
    const size_t length = (size_t)(strrchr(path, '/') - path);
    (void)snprintf(parent, sizeof(parent), "%.*s", length > 0 ? (int)length : 1, path);
    if (stat(parent, &about) != 0) {
        return private_error("look at the directory", parent, errno, false);
    }
    if ((about.st_mode & S_IWOTH) != 0 && (about.st_mode & S_ISVTX) == 0) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "the directory %.200s has mode %04o: everybody may replace what is in it "
                          "(chmod o-w, or +t)",
                          parent, (unsigned)(about.st_mode & 07777));
    }
    return HOOP_OK;
}

static hoop_result_t private_check(const char *directory, int fd)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return private_error("look at", directory, errno, true);
    }
    if (about.st_uid != geteuid()) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%.200s belongs to user %u: expected user %u, who runs this process",
                          directory, (unsigned)about.st_uid, (unsigned)geteuid());
    }
    if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%.200s has mode %04o: nobody but its owner may have access (chmod 700)",
                          directory, (unsigned)(about.st_mode & 07777));
    }
    return HOOP_OK;
}

hoop_result_t hoop_private_enter(const char *directory, int *ret_fd)
{
    if (mkdir(directory, 0700) != 0 && errno != EEXIST) {
        return private_error("make the directory", directory, errno, false);
    }
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return private_error("open the directory", directory, errno, true);
    }
    const hoop_result_t result = private_check(directory, fd);
    if (result != HOOP_OK) {
        close(fd);
        return result;
    }
    *ret_fd = fd;
    return HOOP_OK;
}

hoop_result_t hoop_private_touch(int directory, const char *name)
{
    const int fd = openat(directory, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return private_error("make", name, errno, true);
    }
    close(fd);
    return HOOP_OK;
}

void hoop_private_stir(int directory, const char *name)
{
    if (hoop_private_touch(directory, name) == HOOP_OK) {
        (void)unlinkat(directory, name, 0);
    }
}

static bool private_write(int fd, const struct iovec *part)
{
    const char *at = part->iov_base;
    size_t left = part->iov_len;
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
                                   const struct iovec *parts, int count)
{
    hoop_result_t result = HOOP_OK;
    (void)unlinkat(directory, temporary, 0);
    const int fd =
        openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return private_error("make", temporary, errno, true);
    }
    for (int i = 0; i < count && result == HOOP_OK; i++) {
        result =
            private_write(fd, &parts[i]) ? HOOP_OK : private_error("write", temporary, errno, true);
    }
    if (close(fd) != 0 &&
        result == HOOP_OK) { /* where a network file system tells of a full disk */
        result = private_error("write", temporary, errno, true);
    }
    if (result == HOOP_OK && renameat(directory, temporary, directory, name) != 0) {
        result = private_error("replace", name, errno, true);
    }
    if (result != HOOP_OK) {
        (void)unlinkat(directory, temporary, 0);
    }
    return result;
}

int hoop_private_open(int directory, const char *name, uint64_t *ret_bytes)
{
    struct stat about;
    const int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) ||
                    about.st_uid != geteuid() || about.st_size < 0)) {
        close(fd);
        return -1;
    }
    if (fd >= 0) {
        *ret_bytes = (uint64_t)about.st_size;
    }
    return fd;
}

bool hoop_private_read(int fd, void *buf, size_t bytes)
{
    char *at = buf;
    while (bytes > 0) {
        const ssize_t got = read(fd, at, bytes);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        at += got > 0 ? got : 0;
        bytes -= got > 0 ? (size_t)got : 0;
    }
    return true;
}
