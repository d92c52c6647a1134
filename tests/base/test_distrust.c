/*
 * A setuid program trusts its user with no file: a copy of this one, of root, that nobody runs.
 * Without root, or where setuid counts for nothing, it is skipped.
 */
#include "base/settings.h"
#include "harness/sanitizer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534
#define SKIPPED 77

/* The copy: what is in force. */
static int copy_main(void)
{
    const struct hoop_settings *settings = hoop_settings();
    if (getauxval(AT_SECURE) == 0) {
        return SKIPPED;
    }
    return settings->cuda == NULL && settings->debug_file == NULL && settings->profile == NULL &&
                   settings->secret_file != NULL && settings->lanes == 3
               ? 0
               : 1;
}

static bool copy_make(const char *path)
{
    const int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    struct stat about;
    bool good = from >= 0 && to >= 0 && fstat(from, &about) == 0;
    for (off_t left = good ? about.st_size : 0; good && left > 0;) {
        const ssize_t sent = sendfile(to, from, NULL, (size_t)left);
        good = sent > 0;
        left -= sent;
    }
    good = good && fchmod(to, 04755) == 0;
    close(from);
    close(to);
    return good;
}

static void copy_run(char *path)
{
    setenv("HOOP_CUDA", "/tmp/evil.so", 1);
    setenv("HOOP_DEBUG_FILE", "/tmp/hoop-distrust.log", 1);
    setenv("HOOP_PROFILE", "/etc/shadow", 1);
    setenv("HOOP_SECRET_FILE", "/tmp/secret", 1);
    setenv("HOOP_LANES", "3", 1);
    if (setgid(NOBODY) == 0 && setuid(NOBODY) == 0) {
        execl(path, path, "copy", (char *)NULL);
    }
    _exit(SKIPPED);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/hoop-distrust-XXXXXX";
    char path[64];
    int status = 0;
    if (argc > 1 && argv[1] != NULL) {
        return copy_main();
    }
    if (!MEMORY_IS_PLAIN || geteuid() != 0 || mkdtemp(folder) == NULL) {
        return SKIPPED;
    }
    (void)snprintf(path, sizeof(path), "%s/copy", folder);
    const bool made = chmod(folder, 0755) == 0 && copy_make(path);
    const pid_t pid = made ? fork() : -1;
    if (pid == 0) {
        copy_run(path);
    }
    const bool ended = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status);
    unlink(path);
    rmdir(folder);
    return !made ? SKIPPED : ended ? WEXITSTATUS(status) : 1;
}
