/* The failure detector: processes by their pidfds, silence by a clock of the test's own. */
#include "base/clock.h"
#include "harness/fds.h"
#include "runtime/process.h"
#include "runtime/service.h"
#include "runtime/wait.h"
#include "tree/detector.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST 4
#define DEAD_AFTER_MS 1000u
#define BEAT_NS (DEAD_AFTER_MS / 10 * HOOP_NS_PER_MS)
#define PATIENCE_MS 10000u

/* A watcher and those whom it watches. Used on the service thread, and read when that is idle. */
struct scene {
    struct hoop_watcher watcher;
    struct hoop_watched watched[MOST];
    char why[MOST][128]; /* "": not lost */
    int lost, beats, lost_at_most;
    bool finish_all; /* when the first is lost */
    uint64_t waiting_ns, pulses[MOST];
    struct hoop_job job; /* complete once lost_at_most are lost */
    hoop_result_t result;
    pid_t pid;
};

static struct scene *scene_of(struct hoop_watched *watched)
{
    return HOOP_CONTAINER_OF(watched->watcher, struct scene, watcher);
}

static void scene_beat(struct hoop_watcher *watcher)
{
    HOOP_CONTAINER_OF(watcher, struct scene, watcher)->beats++;
}

static uint64_t scene_waiting_since(struct hoop_watched *watched)
{
    return scene_of(watched)->waiting_ns;
}

static uint64_t scene_pulse(struct hoop_watched *watched)
{
    struct scene *scene = scene_of(watched);
    return scene->pulses[watched - scene->watched];
}

static void scene_lost(struct hoop_watched *watched, const char *why)
{
    struct scene *scene = scene_of(watched);
    (void)snprintf(scene->why[watched - scene->watched], sizeof(scene->why[0]), "%s", why);
    if (scene->finish_all) {
        hoop_watcher_finish(&scene->watcher);
    }
    if (++scene->lost == scene->lost_at_most) {
        hoop_job_complete(&scene->job, NULL);
    }
}

static const struct hoop_watcher_owner edges = {
    .beat = scene_beat, .waiting_since = scene_waiting_since, .lost = scene_lost};
static const struct hoop_watcher_owner ranks = {.beat = scene_beat,
                                                .waiting_since = scene_waiting_since,
                                                .pulse = scene_pulse,
                                                .lost = scene_lost};

static void scene_init(struct scene *scene, const struct hoop_watcher_owner *owner)
{
    *scene = (struct scene){.pid = scene->pid, .waiting_ns = HOOP_NEVER, .lost_at_most = 1};
    hoop_job_init(&scene->job);
    scene->result = hoop_watcher_init(&scene->watcher, owner, DEAD_AFTER_MS);
    for (int i = 0; i < MOST; i++) {
        hoop_watched_init(&scene->watched[i], &scene->watcher);
    }
}

static void scene_finish(struct scene *scene)
{
    hoop_watcher_finish(&scene->watcher);
    hoop_watcher_finish(&scene->watcher); /* must be allowed */
    hoop_job_finish(&scene->job);
}

static void finish(void *arg)
{
    scene_finish(arg);
}

/* A process that lives until it is killed; its pid is not reused before it is reaped. */
static pid_t fork_idler(void)
{
    const pid_t pid = fork();
    if (pid == 0) {
        for (;;) {
            pause();
        }
    }
    return pid;
}

static void end_idler(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void await_lost(struct scene *scene)
{
    assert_int_equal(hoop_job_wait(&scene->job, hoop_deadline_ns(PATIENCE_MS), NULL), HOOP_OK);
}

/* ---- Processes ---------------------------------------------------------------------------- */

static void watch_one_process(void *arg)
{
    struct scene *scene = arg;
    scene_init(scene, &edges);
    scene->result =
        hoop_watched_process(&scene->watched[1], scene->pid, hoop_process_start_time(scene->pid));
    hoop_watcher_start(&scene->watcher);
}

static void test_death_is_told_at_once(void **state)
{
    const pid_t pid = fork_idler();
    struct scene scene = {.pid = pid};
    (void)state;
    hoop_service_run(watch_one_process, &scene);
    assert_int_equal(scene.result, HOOP_OK);
    end_idler(pid);
    await_lost(&scene);
    assert_string_equal(scene.why[1], "died");
    assert_true(hoop_watched_is_dead(&scene.watched[1]));
    hoop_service_run(finish, &scene);
    assert_int_equal(scene.lost, 1);
}

struct pair {
    struct scene first, second;
    pid_t pid;
};

static void watch_twice(void *arg)
{
    struct pair *pair = arg;
    const uint64_t start_time = hoop_process_start_time(pair->pid);
    scene_init(&pair->first, &edges);
    scene_init(&pair->second, &edges);
    for (int i = 0; i < MOST; i++) {
        (void)hoop_watched_process(&pair->first.watched[i], pair->pid, start_time);
        (void)hoop_watched_process(&pair->second.watched[i], pair->pid, start_time);
    }
    pair->first.lost_at_most = MOST;
    hoop_watcher_start(&pair->first.watcher);
}

static void start_second(void *arg)
{
    struct pair *pair = arg;
    hoop_watcher_start(&pair->second.watcher);
}

static void finish_pair(void *arg)
{
    struct pair *pair = arg;
    scene_finish(&pair->first);
    scene_finish(&pair->second);
}

/* There is one descriptor for a process, however many watch it. A watcher that starts late is told
 * of a death then. */
static void test_processes_are_shared(void **state)
{
    struct pair pair = {.pid = fork_idler()};
    const int before = fds_count(0);
    (void)state;
    hoop_service_run(watch_twice, &pair);
    assert_int_equal(fds_count(0), before + 1);
    end_idler(pair.pid);
    await_lost(&pair.first);
    assert_int_equal(pair.second.lost, 0);
    hoop_service_run(start_second, &pair);
    assert_int_equal(pair.second.lost, MOST);
    assert_string_equal(pair.second.why[MOST - 1], "died");
    hoop_service_run(finish_pair, &pair);
    assert_true(fds_await(before, hoop_deadline_ns(PATIENCE_MS)));
}

static void watch_namesakes(void *arg)
{
    struct scene *scene = arg;
    const int me = (int)getpid();
    const uint64_t start_time = hoop_process_start_time(me);
    scene_init(scene, &edges);
    (void)hoop_watched_process(&scene->watched[0], me, start_time + 1);
    (void)hoop_watched_process(&scene->watched[1], 0, start_time);
    (void)hoop_watched_process(&scene->watched[2], me, 0);
    (void)hoop_watched_process(&scene->watched[3], me, start_time);
}

static void test_a_namesake_is_not_watched(void **state)
{
    struct scene scene = {.pid = 0};
    (void)state;
    hoop_service_run(watch_namesakes, &scene);
    assert_null(scene.watched[0].process);
    assert_null(scene.watched[1].process);
    assert_null(scene.watched[2].process);
    assert_non_null(scene.watched[3].process);
    hoop_service_run(finish, &scene);
}

/* ---- Connections -------------------------------------------------------------------------- */

static void close_connections(void *arg)
{
    struct scene *scene = arg;
    const int me = (int)getpid();
    scene_init(scene, &edges);
    (void)hoop_watched_process(&scene->watched[1], me, hoop_process_start_time(me));
    hoop_watched_closed(&scene->watched[2]); /* before it has started, so nobody is told */
    hoop_watcher_start(&scene->watcher);
    hoop_watched_closed(&scene->watched[0]);
    hoop_watched_closed(&scene->watched[1]);
    scene->result = scene->lost == 1 ? HOOP_OK : HOOP_INTERNAL_ERROR; /* not yet */
    hoop_detector_look(hoop_now_ns() + 25 * HOOP_NS_PER_MS);
    hoop_watched_closed(&scene->watched[1]);
    hoop_detector_look(hoop_now_ns() + 50 * HOOP_NS_PER_MS);
}

static void test_an_end_without_a_goodbye(void **state)
{
    struct scene scene = {.pid = 0};
    (void)state;
    hoop_service_run(close_connections, &scene);
    assert_int_equal(scene.result, HOOP_OK);
    assert_int_equal(scene.lost, 2);
    assert_string_equal(scene.why[0], "closed its connection without a goodbye");
    assert_string_equal(scene.why[1], "closed its connection without a goodbye");
    hoop_service_run(finish, &scene);
}

static void close_before_death(void *arg)
{
    struct scene *scene = arg;
    hoop_watched_closed(&scene->watched[1]);
    (void)kill(scene->pid, SIGKILL);
}

/* The sockets of a dying process close a little before it is dead. */
static void test_a_death_that_shows_by_its_connection(void **state)
{
    const pid_t pid = fork_idler();
    struct scene scene = {.pid = pid};
    (void)state;
    hoop_service_run(watch_one_process, &scene);
    hoop_service_run(close_before_death, &scene);
    await_lost(&scene);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_string_equal(scene.why[1], "died");
    hoop_service_run(finish, &scene);
    assert_int_equal(scene.lost, 1);
}

/* ---- Silence ------------------------------------------------------------------------------ */

/* Lets time pass in beats, as fast as the loop runs; `say` gives the signs of life for one beat. */
static uint64_t pass_time(struct scene *scene, uint64_t from, uint64_t ns,
                          void (*say)(struct scene *scene, uint64_t now))
{
    uint64_t now = from;
    for (; now < from + ns; now += BEAT_NS) {
        if (say != NULL) {
            say(scene, now);
        }
        hoop_detector_look(now);
    }
    return now;
}

static void hear_first_two(struct scene *scene, uint64_t now)
{
    scene->watched[0].heard_ns = now;
    scene->watched[1].heard_ns = now;
}

static void be_silent(void *arg)
{
    struct scene *scene = arg;
    scene_init(scene, &edges);
    hoop_watcher_start(&scene->watcher);
    uint64_t now = hoop_now_ns() + BEAT_NS;
    now = pass_time(scene, now, 10 * HOOP_NS_PER_S, NULL); /* no rank waits, so none is missed */
    scene->waiting_ns = now;
    scene->result = scene->lost == 0 ? HOOP_OK : HOOP_INTERNAL_ERROR;
    now = pass_time(scene, now, DEAD_AFTER_MS * HOOP_NS_PER_MS, hear_first_two);
    scene->result = scene->lost == 0 ? scene->result : HOOP_INTERNAL_ERROR;
    (void)pass_time(scene, now, 3 * BEAT_NS, hear_first_two);
}

static void test_silence_counts_while_somebody_waits(void **state)
{
    struct scene scene = {.pid = 0};
    unsigned ms = 0;
    (void)state;
    hoop_service_run(be_silent, &scene);
    assert_int_equal(scene.result, HOOP_OK);
    assert_int_equal(scene.lost, 2);
    assert_string_equal(scene.why[0], "");
    assert_string_equal(scene.why[1], "");
    assert_int_equal(
        sscanf(scene.why[2], "gave no sign of life for %u ms (HOOP_DEAD_AFTER_MS;", &ms), 1);
    assert_in_range(ms, DEAD_AFTER_MS + 1, DEAD_AFTER_MS * 5 / 4);
    assert_non_null(strstr(scene.why[2], "cannot its machine be reached"));
    assert_string_equal(scene.why[2], scene.why[3]);
    hoop_service_run(finish, &scene);
}

/* Lets the detector look whenever it wants to; the first two give a sign of life with each beat. */
static uint64_t pass_until(struct scene *scene, uint64_t now, uint64_t until, bool told)
{
    while (now < until && (scene->lost == 0 || !told)) {
        now = scene->watcher.due_ns;
        hear_first_two(scene, now);
        hoop_detector_look(now);
    }
    return now;
}

struct timing {
    struct scene scene;
    uint64_t beat_ns, told_after_ns;
};

/* A rank begins to wait between two beats, long after the last sign of life of the others. */
static void be_silent_between_beats(void *arg)
{
    struct timing *timing = arg;
    struct scene *scene = &timing->scene;
    scene_init(scene, &edges);
    hoop_watcher_start(&scene->watcher);
    timing->beat_ns = scene->watcher.beat_ms * HOOP_NS_PER_MS;
    uint64_t now = hoop_now_ns() + BEAT_NS;
    now = pass_until(scene, now, now + 3 * HOOP_NS_PER_S, false);
    scene->waiting_ns = now + timing->beat_ns / 3;
    timing->told_after_ns =
        pass_until(scene, now, now + 5 * HOOP_NS_PER_S, true) - scene->waiting_ns;
}

/* Silence is reported after dead_after, to the nanosecond, whenever the silence or the wait
 * began. */
static void test_silence_is_told_when_it_is_too_long(void **state)
{
    struct timing timing = {.beat_ns = 0};
    (void)state;
    hoop_service_run(be_silent_between_beats, &timing);
    assert_int_equal(timing.beat_ns, BEAT_NS);
    assert_int_equal(timing.scene.lost, 2);
    assert_int_equal(timing.told_after_ns, DEAD_AFTER_MS * HOOP_NS_PER_MS + 1);
    hoop_service_run(finish, &timing.scene);
}

/* That a pulse has moved is noticed at most a beat later. */
static void stop_between_beats(void *arg)
{
    struct timing *timing = arg;
    struct scene *scene = &timing->scene;
    scene_init(scene, &ranks);
    scene->pulses[2] = 7;
    hoop_watcher_start(&scene->watcher);
    scene->waiting_ns = hoop_now_ns();
    uint64_t now = pass_until(scene, scene->waiting_ns, scene->waiting_ns + 5 * BEAT_NS, false);
    scene->pulses[2]++; /* its last move, just after a look */
    timing->told_after_ns = pass_until(scene, now, now + 5 * HOOP_NS_PER_S, true) - now;
}

static void test_a_pulse_is_missed_after_a_beat_more(void **state)
{
    struct timing timing = {.beat_ns = 0};
    (void)state;
    hoop_service_run(stop_between_beats, &timing);
    assert_int_equal(timing.scene.lost, 1);
    assert_in_range(timing.told_after_ns, DEAD_AFTER_MS * HOOP_NS_PER_MS,
                    DEAD_AFTER_MS * HOOP_NS_PER_MS + BEAT_NS + 1);
    hoop_service_run(finish, &timing.scene);
}

static void move_pulse(struct scene *scene, uint64_t now)
{
    (void)now;
    scene->pulses[0]++;
}

/* Of four ranks one moves, one has not begun, and two stand still. */
static void stand_still(void *arg)
{
    struct scene *scene = arg;
    scene_init(scene, &ranks);
    scene->pulses[0] = scene->pulses[2] = scene->pulses[3] = 7;
    hoop_watcher_start(&scene->watcher);
    scene->waiting_ns = hoop_now_ns();
    (void)pass_time(scene, hoop_now_ns() + BEAT_NS, 2ull * DEAD_AFTER_MS * HOOP_NS_PER_MS,
                    move_pulse);
}

static void test_a_pulse_that_stands_still(void **state)
{
    struct scene scene = {.pid = 0};
    (void)state;
    hoop_service_run(stand_still, &scene);
    assert_int_equal(scene.lost, 2);
    assert_string_equal(scene.why[0], "");
    assert_string_equal(scene.why[1], "");
    assert_non_null(strstr(scene.why[2], "is it stopped, or starved of CPU?"));
    hoop_service_run(finish, &scene);
}

static void be_stopped_myself(void *arg)
{
    struct scene *scene = arg;
    scene_init(scene, &edges);
    hoop_watcher_start(&scene->watcher);
    const uint64_t now = hoop_now_ns();
    scene->waiting_ns = now;
    hoop_detector_look(now + BEAT_NS);
    hoop_detector_look(now + 60 * HOOP_NS_PER_S);
    hoop_detector_look(now + 60 * HOOP_NS_PER_S + BEAT_NS);
}

static void test_who_was_stopped_itself_blames_nobody(void **state)
{
    struct scene scene = {.pid = 0};
    (void)state;
    hoop_service_run(be_stopped_myself, &scene);
    assert_int_equal(scene.lost, 0);
    assert_int_equal(scene.beats, 4);
    hoop_service_run(finish, &scene);
}

static void finish_when_told(void *arg)
{
    struct scene *scene = arg;
    scene_init(scene, &edges);
    scene->finish_all = true;
    hoop_watcher_start(&scene->watcher);
    scene->waiting_ns = hoop_now_ns();
    (void)pass_time(scene, hoop_now_ns() + BEAT_NS, 2ull * DEAD_AFTER_MS * HOOP_NS_PER_MS, NULL);
}

static void test_who_is_told_may_finish_all(void **state)
{
    struct scene scene = {.pid = 0};
    (void)state;
    hoop_service_run(finish_when_told, &scene);
    assert_int_equal(scene.lost, 1);
    hoop_service_run(finish, &scene);
}

static int start(void **state)
{
    (void)state;
    return hoop_service_start() == HOOP_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death_is_told_at_once),
        cmocka_unit_test(test_processes_are_shared),
        cmocka_unit_test(test_a_namesake_is_not_watched),
        cmocka_unit_test(test_an_end_without_a_goodbye),
        cmocka_unit_test(test_a_death_that_shows_by_its_connection),
        cmocka_unit_test(test_silence_counts_while_somebody_waits),
        cmocka_unit_test(test_silence_is_told_when_it_is_too_long),
        cmocka_unit_test(test_a_pulse_that_stands_still),
        cmocka_unit_test(test_a_pulse_is_missed_after_a_beat_more),
        cmocka_unit_test(test_who_was_stopped_itself_blames_nobody),
        cmocka_unit_test(test_who_is_told_may_finish_all),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
