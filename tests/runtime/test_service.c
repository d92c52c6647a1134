/* lib/runtime: what code on the service thread may do with its memory. */
#include "base/clock.h"
#include "runtime/service.h"
#include "runtime/watch.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define OBJECTS 100 /* more than the first list of memory to be freed holds */
#define OBJECT_BYTES 64

/* An object whose timer frees it, and then goes on using it. */
struct object {
    struct hoop_timer *timer;
    struct hoop_job *job;
    uint8_t bytes[OBJECT_BYTES];
};

static struct object *objects[OBJECTS];
static int objects_over;

static void object_due(void *arg)
{
    struct object *object = arg;
    struct hoop_job *job = object->job;
    hoop_timer_destroy(object->timer);
    hoop_free_later(object);
    hoop_free_later(NULL);
    memset(object->bytes, 0x5a, sizeof(object->bytes));
    objects_over++;
    if (objects_over == OBJECTS) {
        hoop_job_complete(job, NULL);
    }
}

static void objects_start(void *arg)
{
    for (int i = 0; i < OBJECTS; i++) {
        struct object *object = calloc(1, sizeof(*object));
        object->job = arg;
        (void)hoop_timer_create(object_due, object, &object->timer);
        hoop_timer_start(object->timer, (uint64_t)i % 3, 0);
        objects[i] = object;
    }
}

static void job_wait(struct hoop_job *job)
{
    pthread_mutex_lock(&job->lock);
    while (!job->complete) {
        pthread_cond_wait(&job->changed, &job->lock);
    }
    pthread_mutex_unlock(&job->lock);
    hoop_job_finish(job);
}

/* The sanitizers check that nothing is used after it was freed, and that nothing leaks. */
static void test_free_later(void **state)
{
    (void)state;
    struct hoop_job job;
    hoop_job_init(&job);
    assert_int_equal(hoop_service_start(), HOOP_OK);
    hoop_service_run(objects_start, &job);
    job_wait(&job);
    memset(objects, 0, sizeof(objects));
    assert_int_equal(objects_over, OBJECTS);
}

static void thread_note(void *arg)
{
    *(pthread_t *)arg = pthread_self();
}

struct note {
    struct hoop_job *job;
    char text[40];
};

static void post_note(void *arg)
{
    const struct note *note = arg;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    (void)hoop_failure_set(&failure, HOOP_ABORTED, 7, "%s", note->text);
    hoop_job_complete(note->job, &failure);
}

static void test_posted_and_run(void **state)
{
    (void)state;
    pthread_t thread = pthread_self();
    struct hoop_job job;
    assert_int_equal(hoop_service_start(), HOOP_OK);
    hoop_service_run(thread_note, &thread);
    assert_false(pthread_equal(thread, pthread_self()));
    hoop_job_init(&job);
    struct note note = {.job = &job, .text = "what was posted is a copy"};
    hoop_service_post(post_note, &note, sizeof(note));
    memset(&note, 0, sizeof(note));
    job_wait(&job);
    assert_string_equal(job.failure.text, "what was posted is a copy");
}

/* A usual shell's limit, of which many ranks on a machine need more. */
static void test_raises_the_limit_of_open_files(void **state)
{
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max < 256 ? limit.rlim_max : 256;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(hoop_service_start(), HOOP_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(limit.rlim_cur == limit.rlim_max || limit.rlim_cur == 1048576);
}

/* A program that was started without standard streams may still print, which fails as it would
 * without hoop, and read, which finds nothing. */
static void test_holds_the_standard_streams(void **state)
{
    (void)state;
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        struct stat of[3];
        bool fine = close(0) == 0 && close(1) == 0 && close(2) == 0;
        fine = fine && hoop_service_start() == HOOP_OK;
        for (int fd = 0; fd <= 2; fd++) {
            fine = fine && fstat(fd, &of[fd]) == 0 && S_ISCHR(of[fd].st_mode);
        }
        fine = fine && read(0, of, 1) == 0 && write(1, "", 1) < 0 && errno == EBADF;
        _exit(fine && write(2, "", 1) < 0 && errno == EBADF ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A user who may have no more threads is told which limit to raise. */
static void test_names_the_limit_of_threads(void **state)
{
    (void)state;
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        const bool bound =
            setrlimit(RLIMIT_NPROC, &none) == 0 && (getuid() != 0 || setuid(65534) == 0);
        const bool refused = bound && hoop_service_start() == HOOP_SYSTEM_ERROR;
        _exit(refused && strstr(hoop_thread_error(), "(raise ulimit -u") != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Does the service thread sleep? It has looked at its descriptors and waits for events. Other
 * threads, such as a sanitizer's, do not count. */
static bool service_sleeps(void)
{
    bool sleeps = false;
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task = NULL;
    while (tasks != NULL && (task = readdir(tasks)) != NULL) {
        char path[64], text[256] = "";
        (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", task->d_name);
        FILE *file = atoi(task->d_name) != getpid() ? fopen(path, "r") : NULL;
        if (file != NULL) {
            sleeps |= fgets(text, sizeof(text), file) != NULL &&
                      strstr(text, "(hoop-service) S ") != NULL;
            (void)fclose(file);
        }
    }
    return tasks != NULL && closedir(tasks) == 0 && sleeps;
}

/* The leak checker stops all threads at exit(). libuv then waits again, and aborts if its
 * descriptors were closed. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

/* What a child writes to its standard error after it has closed all but the standard streams. */
static int closed_end(void (*end)(void), char *ret_text, size_t bytes)
{
    int said[2];
    int status = 0;
    assert_int_equal(pipe(said), 0);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        bool fine = setrlimit(RLIMIT_CORE, &none) == 0 && dup2(said[1], STDERR_FILENO) >= 0;
        fine = fine && hoop_service_start() == HOOP_OK;
        hoop_service_run(nothing, NULL);
        while (!service_sleeps()) {
            (void)poll(NULL, 0, 1);
        }
        for (int fd = 3; fd < 256; fd++) {
            (void)syscall(SYS_close, fd); /* an intended race, hidden from the sanitizer */
        }
        if (fine) {
            end();
        }
        _exit(1);
    }
    close(said[1]);
    size_t used = 0;
    ssize_t got = 0;
    while (used < bytes - 1 && (got = read(said[0], ret_text + used, bytes - 1 - used)) > 0) {
        used += (size_t)got;
    }
    ret_text[used] = 0;
    close(said[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void end_by_exit(void)
{
    exit(0);
}

static void end_by_use(void)
{
    hoop_service_run(nothing, NULL);
}

/* By then the descriptors' numbers belong to other files. */
static void end_by_use_behind_others(void)
{
    for (int i = 0; i < 64; i++) {
        (void)open("/dev/null", O_RDWR);
    }
    end_by_use();
}

static void expect_word(void (*end)(void))
{
    char text[1024];
    const int status = closed_end(end, text, sizeof(text));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "this program has closed descriptors of hoop"));
}

/* A program that closed the service's descriptors is ended with an error text if it uses the
 * service again. */
static void test_closed_descriptors(void **state)
{
    (void)state;
    char text[1024];
    assert_int_equal(closed_end(end_by_exit, text, sizeof(text)), 0);
    assert_string_equal(text, "");
    expect_word(end_by_use);
    expect_word(end_by_use_behind_others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holds_the_standard_streams), /* forks, so before there is a service */
        cmocka_unit_test(test_names_the_limit_of_threads),
        cmocka_unit_test(test_closed_descriptors),
        cmocka_unit_test(test_raises_the_limit_of_open_files), /* the first start raises it */
        cmocka_unit_test(test_free_later),
        cmocka_unit_test(test_posted_and_run),
    };
    return cmocka_run_group_tests_name("service", tests, NULL, NULL);
}
