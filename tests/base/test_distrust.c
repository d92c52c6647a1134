/*
 * A setuid program trusts no file that its user names. The test makes a setuid copy of this program
 * that belongs to root and runs it as nobody. It is skipped without root, or where setuid has no
 * effect.
 */
#include "base/settings.h"

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

static int skip(const char *why)
{
    (void)puts(why);
    return SKIPPED;
}

/* In the copy: 0 if the right settings are in force, and the distrusted ones are not. */
static int copy_main(void)
{
    const struct hoop_settings *settings = hoop_settings();
    if (getauxval(AT_SECURE) == 0) {
        return skip("setuid counts for nothing in /tmp or in this container");
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
    (void)dprintf(STDOUT_FILENO, "nobody cannot run a program in /tmp\n");
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
    if (geteuid() != 0) {
        return skip("only root can make a program that is setuid root");
    }
    if (mkdtemp(folder) == NULL) {
        return skip("no folder can be made in /tmp");
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
    if (!made) {
        return skip("this program cannot be copied to /tmp");
    }
    return ended ? WEXITSTATUS(status) : 1;
}
