#include "programs/hooprun_harness.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *hoop_run_program;
int hoop_run_ignored;
bool hoop_run_grouped;

bool hoop_run_setup(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s HOOPRUN\n", argv[0]);
        return false;
    }
    hoop_run_program = argv[1];
    signal(SIGPIPE, SIG_IGN);
    return true;
}

/* ---- A run and its output ------------------------------------------------------------------- */

int64_t hoop_run_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void hoop_run_pause(void)
{
    const struct timespec ts = {.tv_nsec = 2000000};
    nanosleep(&ts, NULL);
}

void hoop_run_signals_default(void)
{
    for (int sig = 1; sig < 32; sig++) {
        signal(sig, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void hoop_run_start(struct hoop_run *run, const char *input, const char *const *words)
{
    char *argv[32] = {(char *)hoop_run_program};
    for (size_t i = 0; words[i] != NULL; i++) {
        assert_true(i + 2 < sizeof(argv) / sizeof(argv[0]));
        argv[i + 1] = (char *)words[i];
    }
    int in[2];
    int out[2];
    int err[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    run->pid = fork();
    assert_true(run->pid >= 0);
    if (run->pid == 0) {
        hoop_run_signals_default();
        if (hoop_run_ignored != 0) {
            signal(hoop_run_ignored, SIG_IGN);
        }
        if (hoop_run_grouped) {
            setpgid(0, 0);
        }
        dup2(in[0], 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        execv(hoop_run_program, argv);
        _exit(99);
    }
    assert_int_equal(write(in[1], input, strlen(input)), strlen(input));
    close(in[0]);
    close(in[1]);
    close(out[1]);
    close(err[1]);
    run->out = (struct hoop_text){.fd = out[0]};
    run->err = (struct hoop_text){.fd = err[0]};
}

void hoop_text_read(struct hoop_text *text)
{
    if (text->room - text->used < 65537) {
        text->room = 2 * text->room + 131072;
        text->data = realloc(text->data, text->room);
        assert_non_null(text->data);
    }
    const ssize_t got = read(text->fd, text->data + text->used, 65536);
    if (got <= 0) {
        close(text->fd);
        text->fd = -1;
    } else {
        text->used += (size_t)got;
    }
    text->data[text->used] = '\0';
}

int hoop_text_count(const struct hoop_text *text, const char *word)
{
    int count = 0;
    const char *at = text->data;
    while (at != NULL &&
           (at = memmem(at, text->used - (size_t)(at - text->data), word, strlen(word))) != NULL) {
        count++;
        at += strlen(word);
    }
    return count;
}

void hoop_run_read(struct hoop_run *run, const char *word, int count)
{
    const int64_t deadline = hoop_run_now_ms() + HOOP_RUN_DEADLINE_MS;
    while (run->out.fd >= 0 || run->err.fd >= 0) {
        if (word != NULL && hoop_text_count(&run->out, word) >= count) {
            return;
        }
        struct pollfd fds[2] = {{.fd = run->out.fd, .events = POLLIN},
                                {.fd = run->err.fd, .events = POLLIN}};
        const int64_t left = deadline - hoop_run_now_ms();
        if (left <= 0) {
            kill(run->pid, SIGKILL);
            fail_msg("the run hangs; stdout '%s', stderr '%s'", run->out.data, run->err.data);
        }
        poll(fds, 2, (int)left);
        if (fds[0].revents != 0) {
            hoop_text_read(&run->out);
        }
        if (fds[1].revents != 0) {
            hoop_text_read(&run->err);
        }
    }
    assert_null(word);
}

int hoop_run_end(struct hoop_run *run)
{
    hoop_run_read(run, NULL, 0);
    const int64_t deadline = hoop_run_now_ms() + HOOP_RUN_DEADLINE_MS;
    int status = 0;
    while (waitpid(run->pid, &status, WNOHANG) == 0) {
        assert_true(hoop_run_now_ms() < deadline);
        hoop_run_pause();
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void hoop_run_finish(struct hoop_run *run)
{
    free(run->out.data);
    free(run->err.data);
    *run = (struct hoop_run){0};
}

int hoop_run_all(struct hoop_run *run, const char *const *words)
{
    hoop_run_start(run, "", words);
    return hoop_run_end(run);
}

/* ---- Processes ------------------------------------------------------------------------------ */

int hoop_processes_with(const char *word)
{
    static char line[1 << 20];
    int count = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    struct dirent *entry = NULL;
    while ((entry = readdir(proc)) != NULL) {
        char path[300];
        snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
        const int fd = isdigit((unsigned char)entry->d_name[0]) ? open(path, O_RDONLY) : -1;
        if (fd >= 0) {
            const ssize_t got = read(fd, line, sizeof(line));
            count += got > 0 && memmem(line, (size_t)got, word, strlen(word)) != NULL;
            close(fd);
        }
    }
    closedir(proc);
    return count;
}

void hoop_assert_gone(const char *marker)
{
    const int64_t deadline = hoop_run_now_ms() + HOOP_RUN_DEADLINE_MS;
    while (hoop_processes_with(marker) > 0) {
        assert_true(hoop_run_now_ms() < deadline);
        hoop_run_pause();
    }
}

const char *hoop_marker_new(void)
{
    static char marker[48];
    static int count;
    snprintf(marker, sizeof(marker), "1000.%d00%d", (int)getpid(), ++count);
    return marker;
}

const char *hoop_script_with(const char *marker, const char *script)
{
    static char text[1024];
    size_t used = 0;
    for (const char *at = script; *at != '\0';) {
        const bool mark = at[0] == '%' && at[1] == 's';
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s",
                                 mark ? (int)strlen(marker) : 1, mark ? marker : at);
        assert_true(used < sizeof(text));
        at += mark ? 2 : 1;
    }
    return text;
}
