/*
 * lib/base: the log, and the settings of a process. Both read the environment once per process,
 * so these tests run this program again as a child ("child MODE") with an environment of their
 * own and look at what it wrote to stderr. The parent takes every HOOP_* variable of the table
 * out of its own environment first.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CHILD_DEADLINE_MS 30000
#define STORM_THREADS 4
#define STORM_LINES 200

/* ---- Children ----------------------------------------------------------------------------- */

static void *storm_thread(void *arg)
{
    const int thread = *(const int *)arg;
    for (int i = 0; i < STORM_LINES; i++) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_NET, "thread %d line %d end", thread, i);
    }
    return NULL;
}

/* Several threads use log and settings for the first time at once. */
static int child_storm(void)
{
    pthread_t threads[STORM_THREADS];
    int numbers[STORM_THREADS];
    for (int i = 0; i < STORM_THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, storm_thread, &numbers[i]) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < STORM_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    return 0;
}

static int child_log(void)
{
    errno = EPIPE;
    hoop_log(HOOP_LOG_ERROR, HOOP_LOG_INIT, "error of init");
    hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT, "warn of init, errno %d", errno);
    hoop_log(HOOP_LOG_INFO, HOOP_LOG_INIT, "info of init");
    hoop_log(HOOP_LOG_INFO, HOOP_LOG_NET, "info of net");
    hoop_log(HOOP_LOG_TRACE, HOOP_LOG_MEM, "trace of mem");
    hoop_log(HOOP_LOG_NONE, HOOP_LOG_MEM, "none of mem");
    return errno == EPIPE ? 0 : 1;
}

static int child_settings(void)
{
    hoop_log_settings();
    size_t cursor = 0;
    hoop_setting_t s;
    while (hoop_settings_next(&cursor, &s) == HOOP_OK) {
        dprintf(STDERR_FILENO, "%s=%s|%s|%s\n", s.name, s.value, s.preset, s.origin);
    }
    return 0;
}

/* The value stays as at the first call, whatever the environment says later. */
static int child_stays(void)
{
    const struct hoop_settings *settings = hoop_settings();
    setenv("HOOP_DEBUG_FILE", "/nonexistent/other", 1);
    setenv("HOOP_LANES", "9", 1);
    return hoop_settings() == settings && settings->lanes == 3 && settings->debug_file != NULL &&
                   strcmp(settings->debug_file, "/dev/stderr") == 0
               ? 0
               : 1;
}

static int child_main(const char *mode)
{
    if (strcmp(mode, "log") == 0) {
        return child_log();
    }
    if (strcmp(mode, "storm") == 0) {
        return child_storm();
    }
    if (strcmp(mode, "stays") == 0) {
        return child_stays();
    }
    return strcmp(mode, "settings") == 0 ? child_settings() : 2;
}

/* Reads fd to its end. False: the end did not come before the deadline, or the text is too long. */
static bool read_all(int fd, char *ret_text, size_t bytes)
{
    const uint64_t deadline = hoop_deadline_ns(CHILD_DEADLINE_MS);
    size_t used = 0;
    while (used < bytes - 1) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        if (hoop_now_ns() > deadline || poll(&poller, 1, 1000) < 0) {
            return false;
        }
        if (poller.revents == 0) {
            continue;
        }
        const ssize_t got = read(fd, ret_text + used, bytes - 1 - used);
        if (got <= 0) {
            ret_text[used] = '\0';
            return got == 0;
        }
        used += (size_t)got;
    }
    return false;
}

static void child_setenv(const char *entry)
{
    char name[64];
    const size_t length = strcspn(entry, "=");
    snprintf(name, sizeof(name), "%.*s", (int)length, entry);
    setenv(name, entry + length + 1, 1);
}

/* Starts a child that runs mode, with extra added to the environment. Returns its pid; *ret_fd
 * reads its stderr. */
static pid_t child_start(const char *mode, const char *const *extra, int *ret_fd)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        unsetenv("RANK");
        for (; *extra != NULL; extra++) {
            child_setenv(*extra);
        }
        dup2(ends[1], STDERR_FILENO);
        execl("/proc/self/exe", "test_base", "child", mode, (char *)NULL);
        _exit(3);
    }
    close(ends[1]);
    *ret_fd = ends[0];
    return pid;
}

/* What the child wrote to stderr; the caller frees it. */
static char *child_output(const char *mode, const char *const *extra)
{
    const size_t bytes = 1 << 18;
    char *text = test_calloc(1, bytes);
    int fd = -1;
    int status = -1;
    const pid_t pid = child_start(mode, extra, &fd);
    assert_true(pid > 0);
    const bool complete = read_all(fd, text, bytes);
    if (!complete) {
        kill(pid, SIGKILL);
    }
    waitpid(pid, &status, 0);
    close(fd);
    assert_true(complete);
    assert_int_equal(status, 0);
    return text;
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("expected \"%s\" in: %s", part, text);
    }
}

static void assert_lacks(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) {
        fail_msg("did not expect \"%s\" in: %s", part, text);
    }
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p += strlen(part)) {
        count++;
    }
    return count;
}

/* ---- log ---------------------------------------------------------------------------------- */

static void test_log_default(void **state)
{
    (void)state;
    const char *const env[] = {NULL};
    char *text = child_output("log", env);
    assert_int_equal(count_of(text, "\n"), 2);
    assert_has(text, " ERROR init: error of init\n");
    assert_has(text, " WARN init: warn of init, errno ");
    char host[65] = {0};
    int pid = 0;
    int tid = 0;
    assert_int_equal(sscanf(text, "%64[^:]:%d:%d ERROR", host, &pid, &tid), 3);
    assert_int_equal(pid, tid);
    assert_null(strchr(host, '.'));
    test_free(text);
}

static void test_log_levels(void **state)
{
    (void)state;
    const char *const all[] = {"HOOP_DEBUG=trace", "RANK=12", NULL};
    char *text = child_output("log", all);
    assert_int_equal(count_of(text, "\n"), 5);
    assert_int_equal(count_of(text, " [12] "), 5);
    assert_has(text, " TRACE mem: trace of mem\n");
    test_free(text);

    const char *const none[] = {"HOOP_DEBUG=none", "HOOP_LANES=0", "RANK=1 forged", NULL};
    text = child_output("log", none);
    assert_string_equal(text, "");
    test_free(text);

    const char *const error[] = {"HOOP_DEBUG=error", "HOOP_LANES=0", "RANK=1 forged", NULL};
    text = child_output("log", error);
    assert_int_equal(count_of(text, "\n"), 1);
    assert_lacks(text, "forged");
    test_free(text);
}

static void test_log_subsystems(void **state)
{
    (void)state;
    const char *const env[] = {"HOOP_DEBUG=info", "HOOP_DEBUG_SUBSYS= net,,disk, mem", NULL};
    char *text = child_output("log", env);
    assert_int_equal(count_of(text, "\n"), 4);
    assert_has(text, " WARN env: HOOP_DEBUG_SUBSYS: ");
    assert_has(text, "\"disk\"");
    assert_has(text, "warn of init");
    assert_has(text, "info of net");
    assert_lacks(text, "info of init");
    test_free(text);
}

/* The log is used first, and reading its settings logs something: no line comes twice, and there is
 * no deadlock. */
static void test_log_and_settings_meet(void **state)
{
    (void)state;
    const char *const env[] = {"HOOP_LANES=99", "HOOP_LANS=2", "HOOP_DEBUG=loud", "HOOP_TEST_ANY=1",
                               NULL};
    char *text = child_output("storm", env);
    assert_int_equal(count_of(text, " WARN env: "), 3);
    assert_has(text, "HOOP_LANES: expected a whole number, 1 to 16; using 2 in place of \"99\"\n");
    assert_has(text, "HOOP_LANS is not a setting of hoop; did you mean HOOP_LANES?\n");
    assert_has(text, "HOOP_DEBUG: expected one of: none error warn info trace; using warn in place "
                     "of \"loud\"\n");
    assert_int_equal(count_of(text, "\n"), 3 + STORM_THREADS * STORM_LINES);
    assert_int_equal(count_of(text, " WARN net: thread "), STORM_THREADS * STORM_LINES);
    assert_int_equal(count_of(text, " end\n"), STORM_THREADS * STORM_LINES);
    test_free(text);
}

static void read_file(const char *path, char *ret_text, size_t bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    const ssize_t got = read(fd, ret_text, bytes - 1);
    close(fd);
    assert_true(got >= 0);
    ret_text[got] = '\0';
}

static void test_log_file(void **state)
{
    (void)state;
    char folder[] = "/tmp/hoop_test_log_XXXXXX";
    assert_non_null(mkdtemp(folder));
    char setting[300];
    snprintf(setting, sizeof(setting), "HOOP_DEBUG_FILE=%s/%%h.%%p.%%%%.%%x", folder);
    const char *const env[] = {setting, NULL};
    int fd = -1;
    int status = -1;
    char text[1024];
    const pid_t pid = child_start("log", env, &fd);
    assert_true(pid > 0);
    assert_true(read_all(fd, text, sizeof(text)));
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_string_equal(text, "");

    char host[65] = {0};
    gethostname(host, sizeof(host) - 1);
    host[strcspn(host, ".")] = '\0';
    char path[256];
    snprintf(path, sizeof(path), "%s/%s.%d.%%.%%x", folder, host, (int)pid);
    read_file(path, text, sizeof(text));
    assert_int_equal(count_of(text, "\n"), 2);
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(unlink(path), 0);

    /* what another user may have put there: a link to a file of this user, a pipe that
     * nobody reads */
    static const char *const errors[] = {"log: ELOOP", "log: ENXIO"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/log", folder);
        snprintf(setting, sizeof(setting), "HOOP_DEBUG_FILE=%s", path);
        assert_int_equal(i == 0 ? symlink("other", path) : mkfifo(path, 0600), 0);
        char *complaint = child_output("log", env);
        assert_has(complaint, errors[i]);
        assert_has(complaint, "warn of init");
        test_free(complaint);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);

    const char *const missing[] = {"HOOP_DEBUG_FILE=/nonexistent/folder/log", NULL};
    char *output = child_output("log", missing);
    assert_has(output, "HOOP_DEBUG_FILE: cannot open /nonexistent/folder/log: ENOENT");
    assert_has(output, "warn of init");
    test_free(output);
}

struct heard {
    atomic_int lines;
    atomic_bool closed;  /* its callback was replaced */
    atomic_int too_late; /* lines that came after that */
    char last[2048];     /* used with one thread only */
};

static void hear(void *arg, hoop_log_level_t level, const char *subsystem, const char *line)
{
    struct heard *heard = arg;
    snprintf(heard->last, sizeof(heard->last), "%d %s %s", (int)level, subsystem, line);
    atomic_fetch_add(&heard->lines, 1);
}

static void test_log_callback(void **state)
{
    (void)state;
    struct heard heard = {0};
    hoop_log_set_callback(hear, &heard);
    hoop_log(HOOP_LOG_WARN, HOOP_LOG_PLAN, "two\nlines\x7f\tand \xc3\xa9");
    assert_string_equal(heard.last, "2 plan two lines  and \xc3\xa9");
    hoop_log(HOOP_LOG_INFO, HOOP_LOG_PLAN, "filtered");
    assert_int_equal(atomic_load(&heard.lines), 1);
    assert_false(hoop_log_enabled(HOOP_LOG_INFO, HOOP_LOG_PLAN));
    assert_true(hoop_log_enabled(HOOP_LOG_ERROR, HOOP_LOG_ENV));
    assert_false(hoop_log_enabled(HOOP_LOG_NONE, HOOP_LOG_ENV));

    static char huge[8192];
    memset(huge, 'x', sizeof(huge) - 1);
    hoop_log(HOOP_LOG_ERROR, HOOP_LOG_PLAN, "%s", huge);
    const size_t length = strlen(heard.last);
    assert_in_range(length, 1800, sizeof(heard.last) - 1);
    assert_string_equal(heard.last + length - 4, "x...");
    hoop_log_set_callback(NULL, NULL);
}

static void hear_in_storm(void *arg, hoop_log_level_t level, const char *subsystem,
                          const char *line)
{
    struct heard *heard = arg;
    (void)level;
    (void)subsystem;
    (void)line;
    atomic_fetch_add(&heard->lines, 1);
    if (atomic_load(&heard->closed)) {
        atomic_fetch_add(&heard->too_late, 1);
    }
}

static void test_log_callback_swap(void **state)
{
    (void)state;
    struct heard heard[2] = {{.closed = false}, {.closed = true}};
    hoop_log_set_callback(hear_in_storm, &heard[0]);
    pthread_t threads[STORM_THREADS];
    int numbers[STORM_THREADS] = {0};
    for (int i = 0; i < STORM_THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, storm_thread, &numbers[i]), 0);
    }
    const uint64_t deadline = hoop_deadline_ns(CHILD_DEADLINE_MS);
    unsigned swaps = 0;
    while (swaps < 200 && hoop_now_ns() < deadline) {
        struct heard *next = &heard[++swaps & 1];
        atomic_store(&next->closed, false);
        hoop_log_set_callback(hear_in_storm, next);
        atomic_store(&heard[~swaps & 1].closed, true);
    }
    for (int i = 0; i < STORM_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    hoop_log_set_callback(NULL, NULL);
    assert_int_equal(swaps, 200);
    assert_int_equal(atomic_load(&heard[0].lines) + atomic_load(&heard[1].lines),
                     STORM_THREADS * STORM_LINES);
    assert_int_equal(atomic_load(&heard[0].too_late) + atomic_load(&heard[1].too_late), 0);
}

struct slow {
    atomic_bool inside;   /* the callback is running */
    atomic_bool replaced; /* hoop_log_set_callback() has returned */
    atomic_bool late;     /* the replacement returned while the callback still ran */
};

/* Takes some time, so that a replacement that does not wait for the callback is noticed. */
static void hear_slowly(void *arg, hoop_log_level_t level, const char *subsystem, const char *line)
{
    struct slow *slow = arg;
    (void)level;
    (void)subsystem;
    (void)line;
    atomic_store(&slow->inside, true);
    const uint64_t deadline = hoop_deadline_ns(30);
    while (!atomic_load(&slow->replaced) && hoop_now_ns() < deadline) {
        sched_yield();
    }
    atomic_store(&slow->late, atomic_load(&slow->replaced));
}

static void *log_one_line(void *arg)
{
    (void)arg;
    hoop_log(HOOP_LOG_WARN, HOOP_LOG_NET, "one line");
    return NULL;
}

static void test_log_callback_is_waited_for(void **state)
{
    (void)state;
    struct slow slow = {false};
    pthread_t thread;
    hoop_log_set_callback(hear_slowly, &slow);
    assert_int_equal(pthread_create(&thread, NULL, log_one_line, NULL), 0);
    const uint64_t deadline = hoop_deadline_ns(CHILD_DEADLINE_MS);
    while (!atomic_load(&slow.inside) && hoop_now_ns() < deadline) {
        sched_yield();
    }
    hoop_log_set_callback(NULL, NULL);
    atomic_store(&slow.replaced, true);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&slow.inside));
    assert_false(atomic_load(&slow.late));
}

/* ---- settings of a process ---------------------------------------------------------------- */

static void test_settings_walk(void **state)
{
    (void)state;
    const char *const env[] = {
        "HOOP_LANES=3",        "HOOP_CHUNK_BYTES=64K",    "HOOP_ALGO=ring",
        "HOOP_ORDER=sideways", "HOOP_SECRET=opensesame",  "HOOP_LOCAL_SIZE=4",
        "HOOP_DEBUG_SUBSYS=",  "HOOP_SECRETS=opensesame", NULL};
    char *text = child_output("settings", env);
    assert_has(text, "HOOP_DEBUG=warn|warn|default\n");
    assert_has(text, "HOOP_LANES=3|2|environment\n");
    assert_has(text, "HOOP_CHUNK_BYTES=65536|131072|environment\n");
    assert_has(text, "HOOP_ALGO=ring|auto|environment\n");
    assert_has(text, "HOOP_ORDER=any|any|default\n");
    assert_has(text, "HOOP_SECRET=(set)||environment\n");
    assert_has(text, "HOOP_LOCAL_SIZE=4|0|environment\n");
    assert_has(text, "HOOP_DEBUG_SUBSYS=||default\n");
    assert_has(text, "HOOP_SECRETS is not a setting of hoop; did you mean HOOP_SECRET?\n");
    assert_lacks(text, "sesame");
    test_free(text);
}

static void test_settings_stay(void **state)
{
    (void)state;
    const char *const env[] = {"HOOP_LANES=3", "HOOP_DEBUG_FILE=/dev/stderr", NULL};
    test_free(child_output("stays", env));
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "child") == 0) {
        return child_main(argv[2]);
    }
#define CLEAR_NUMBER(field, variable, preset, least, most, text) unsetenv(variable);
#define CLEAR_CHOICE(field, variable, preset, choices, text) unsetenv(variable);
#define CLEAR_STRING(field, variable, text) unsetenv(variable);
    HOOP_SETTINGS(CLEAR_NUMBER, CLEAR_CHOICE, CLEAR_STRING, CLEAR_STRING)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_default),       cmocka_unit_test(test_log_levels),
        cmocka_unit_test(test_log_subsystems),    cmocka_unit_test(test_log_and_settings_meet),
        cmocka_unit_test(test_log_file),          cmocka_unit_test(test_log_callback),
        cmocka_unit_test(test_log_callback_swap), cmocka_unit_test(test_log_callback_is_waited_for),
        cmocka_unit_test(test_settings_walk),     cmocka_unit_test(test_settings_stay),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
