/*
 * Calls that return when they are launched (lib/device/launch.h), over the fake driver that
 * HOOP_CUDA names: what becomes of a stream when something fails or ends. Ranks are processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fakes/failing_cuda.h"
#include "memory/cuda.h"
#include "whole/graph_scene.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- In a rank ---- */

/* Loads the kernels first, because that waits for what is on the streams. */
static struct scene loaded_scene(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    EXPECT(self, hoop_barrier(scene.comm, scene.stream) == HOOP_OK);
    scene_settle(&scene);
    return scene;
}

/* The other ranks never call: an abort lets go those that did, even before their streams come. In
 * place, where the input would otherwise overwrite the mark of a missing result. */
static void abort_waiting(const struct family_self *self)
{
    const struct scene scene = loaded_scene(self);
    if (self->rank != 1) {
        if (self->rank != 0) {
            scene_stop(&scene);
        }
        fill_in(&scene, 1, 0);
        EXPECT(self, reduce(&scene, scene.out, scene.out, BYTES) == HOOP_OK);
    }
    usleep(SLOW_US / 4);
    if (self->rank == 0) {
        EXPECT(self, is_busy(scene.stream));
        EXPECT(self, hoop_comm_abort(scene.comm) == HOOP_OK);
    } else {
        EXPECT(self, scene_failure(&scene) == HOOP_ABORTED);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_ABORTED);
    }
    if (self->rank == 2) {
        EXPECT(self, is_busy(scene.stream)); /* the abort does not wait for it */
    }
    scene_go();
    scene_settle(&scene);
    if (self->rank != 1) {
        assert_spoilt(&scene);
    }
    scene_end(&scene);
}

/* Rank 1 dies while the others' streams wait for it. */
static void wait_for_the_dead(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    rank_tell(self, HOOP_OK, 0);
    if (self->rank == 1) {
        (void)pause();
    }
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    scene_settle(&scene);
    assert_spoilt(&scene);
    const hoop_result_t failed = scene_failure(&scene);
    EXPECT(self, strstr(hoop_get_last_error(scene.comm), "rank 1 ") != NULL);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == failed);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    rank_tell(self, failed, 0);
}

/* Rank 1's stream is late by more than the timeout of calls: the others report that, and go on. */
static void come_too_late(const struct family_self *self)
{
    struct scene scene = loaded_scene(self);
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.op_timeout_ms = 300;
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    EXPECT(self, hoop_comm_init_env(&scene.comm, &config) == HOOP_OK);
    /* its own time begins when its stream has come */
    fill_in(&scene, 1, self->rank == 1 ? 1000000 : 0);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    EXPECT(self, scene_failure(&scene) == HOOP_TIMEOUT);
    scene_settle(&scene);
    assert_spoilt(&scene);
    scene_end(&scene);
}

static hoop_comm_t join_alone(const struct family_self *self)
{
    hoop_comm_t comm = NULL;
    hoop_unique_id_t id;
    EXPECT(self, hoop_get_unique_id(&id) == HOOP_OK);
    EXPECT(self, hoop_comm_init_rank(&comm, 1, id, 0) == HOOP_OK);
    return comm;
}

/* How often a thread of this process has gone to sleep; 0: there is none of that name. */
static long sleeps_of(const char *name)
{
    long sleeps = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *at = NULL; tasks != NULL && (at = readdir(tasks)) != NULL;) {
        char path[64], line[128];
        (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", at->d_name);
        FILE *status = fopen(path, "r");
        bool its = false;
        while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
            its |= strncmp(line, "Name:\t", 6) == 0 && strncmp(line + 6, name, strlen(name)) == 0;
            if (its && strncmp(line, "voluntary_ctxt_switches:", 24) == 0) {
                sleeps = strtol(line + 24, NULL, 10);
            }
        }
        (void)(status != NULL && fclose(status));
    }
    (void)(tasks != NULL && closedir(tasks));
    return sleeps;
}

/* Rank 1's device fails before its stream has come to the call: the bell never rings, and who waits
 * for it looks less and less often. */
static void break_waiting(const struct family_self *self)
{
    const struct scene scene = loaded_scene(self);
    fill_in(&scene, 1, self->rank == 1 ? SLOW_US : 0);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    if (self->rank == 1) {
        break_device(1);
        (void)hoop_cuda.copy((uintptr_t)scene.out, (uintptr_t)scene.in, 1, scene.stream);
    }
    EXPECT(self, scene_failure(&scene) == HOOP_CUDA_ERROR);
    EXPECT(self, strstr(hoop_get_last_error(scene.comm), "rank 1: ") != NULL);
    EXPECT(self,
           strstr(hoop_get_last_error(scene.comm), "CUDA_ERROR_ILLEGAL_ADDRESS (700)") != NULL);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_CUDA_ERROR);
    if (self->rank != 1) {
        scene_settle(&scene);
        assert_spoilt(&scene);
    } else {
        const long before = sleeps_of("hoop-bells");
        usleep(300000);
        EXPECT(self, before > 0 && sleeps_of("hoop-bells") - before < 30);
    }
    scene_end(&scene);
}

/* Comms end, and so free what is no longer used, until so many ranges are pinned. */
static void await_pinned(const struct family_self *self, size_t expected)
{
    size_t bytes = 0, pinned = expected + 1;
    for (int i = 0; i < 2000 && pinned != expected; i++) { /* the bells thread lets calls go */
        EXPECT(self, hoop_comm_destroy(join_alone(self)) == HOOP_OK);
        use(&bytes, &pinned);
    }
    EXPECT(self, pinned == expected);
}

/* A device fails before its stream has come to a call, and the call is let go: memory that other
 * streams pin is freed with their comm, but not what that call may use. */
static void break_and_free(const struct family_self *self)
{
    struct scene scene = loaded_scene(self), other = scene;
    size_t bytes = 0, pinned = 0, before = 0;
    EXPECT(self, hoop_cuda.stream_create(&other.stream, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    other.comm = join(self);
    use(&bytes, &before);
    EXPECT(self, reduce(&other, scene.in, scene.out, BYTES) == HOOP_OK);
    scene_settle(&other);
    fill_in(&scene, 1, SLOW_US);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    use(&bytes, &pinned);
    EXPECT(self,
           pinned > before); /* a room for `other`; that of `scene` may take another's place */
    before = pinned;
    break_device(1);
    (void)hoop_cuda.copy((uintptr_t)scene.out, (uintptr_t)scene.in, 1, scene.stream);
    EXPECT(self, scene_failure(&scene) == HOOP_CUDA_ERROR);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    EXPECT(self, hoop_comm_destroy(other.comm) == HOOP_OK);
    await_pinned(self, before - 1);
    rank_tell(self, HOOP_OK, 0);
}

/* The device fails in the middle of what rank 1 puts on its stream. */
static void break_within(const struct family_self *self)
{
    for (unsigned at = 1; at <= 2; at++) {
        const struct scene scene = scene_make(self);
        fill_in(&scene, 1, 0);
        if (self->rank == 1) {
            break_device(at);
        }
        const hoop_result_t result = reduce(&scene, scene.in, scene.out, BYTES);
        EXPECT(self, result == HOOP_OK || result == HOOP_CUDA_ERROR);
        const bool hears = at == 1 || self->rank == 1;
        EXPECT(self, !hears || scene_failure(&scene) == HOOP_CUDA_ERROR);
        EXPECT(self, !hears || strstr(hoop_get_last_error(scene.comm), "rank 1: ") != NULL);
        EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
        break_device(0);
    }
    rank_tell(self, HOOP_OK, 0);
}

/* The driver refuses something in the middle of what rank 0 puts on its stream: all are told, and
 * the room that the launch has left is freed. */
static void refuse_within(const struct family_self *self)
{
    static const struct {
        const char *call;
        unsigned n;
    } each[] = {{"copy", 1},
                {"stream_write_value", 1},
                {"stream_wait_value", 1},
                {"copy", 2},
                {"stream_write_value", 2}};
    struct scene scene = loaded_scene(self);
    size_t bytes = 0, before = 0;
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    use(&bytes, &before);
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        scene.comm = join(self);
        fill_in(&scene, 1, 0);
        failing_cuda_start(self->rank == 0 ? each[i].call : "", each[i].n, 1, HOOP_CU_NOT_READY);
        const hoop_result_t result = reduce(&scene, scene.in, scene.out, BYTES);
        (void)failing_cuda_stop();
        EXPECT(self, result == HOOP_CUDA_ERROR || (result == HOOP_OK && self->rank != 0));
        EXPECT(self, scene_failure(&scene) == HOOP_CUDA_ERROR);
        EXPECT(self, strstr(hoop_get_last_error(scene.comm), "rank 0: cu") != NULL);
        scene_settle(&scene);
        EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
        await_pinned(self, before);
    }
    rank_tell(self, HOOP_OK, 0);
}

/* There is no memory to tell a kernel what to fold, so no call is launched. What was pinned for the
 * launches is freed with their comm. */
static void lack_told(const struct family_self *self)
{
    struct scene scene = loaded_scene(self);
    size_t bytes = 0, before = 0;
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    EXPECT(self, hoop_cuda.stream_create(&scene.stream, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    use(&bytes, &before);
    scene.comm = join(self);
    failing_cuda_start("alloc", 1, 1000, HOOP_CU_OUT_OF_MEMORY);
    for (int i = 0; i < 3; i++) { /* the first one is not launched because nothing is known yet */
        fill_in(&scene, i, 0);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    }
    EXPECT(self, failing_cuda_stop() > 0 || self->rank != 0);
    scene_settle(&scene);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    await_pinned(self, before);
    rank_tell(self, HOOP_OK, 0);
}

/* A comm fails before its streams have come. Meanwhile the program is in a call that waits for all
 * streams, and that blocks the health thread, which asks for the call of another comm. */
static void fail_behind(const struct family_self *self)
{
    struct scene scene = loaded_scene(self), other = scene;
    const unsigned char *mine = plain(self, 1);
    EXPECT(self, hoop_cuda.stream_create(&other.stream, HOOP_CU_STREAM_NON_BLOCKING) == 0);
    other.comm = join(self);
    other.out = plain(self, BYTES);
    fill(other.stream, other.out, self->rank, BYTES, 4 * SLOW_US);
    EXPECT(self, reduce(&other, other.out, other.out, BYTES) == HOOP_OK);
    fill(scene.stream, scene.out, 1, BYTES, 2 * SLOW_US);
    EXPECT(self, reduce(&scene, scene.out, scene.out, BYTES) == HOOP_OK);
    usleep(SLOW_US / 2);
    if (self->rank == 0) {
        EXPECT(self, hoop_comm_abort(scene.comm) == HOOP_OK);
    }
    EXPECT(self, scene_failure(&scene) == HOOP_ABORTED);
    setenv("FAKE_CUDA_PIN_WAITS", "1", 1);
    EXPECT(self, hoop_cuda.free((uintptr_t)mine) == 0);
    assert_spoilt(&scene);
    EXPECT(self, are_all(other.out, sum_of(&other, 0), BYTES));
    EXPECT(self, hoop_comm_destroy(other.comm) == HOOP_OK);
    scene_end(&scene);
}

/* A program ends while a stream waits. */
static void end_waiting(const struct family_self *self)
{
    const struct scene scene = scene_make(self);
    if (self->rank == 0) {
        fill_in(&scene, 1, 0);
        EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    }
    rank_tell(self, HOOP_OK, 0);
    usleep(50000);
    exit(0);
}

/* A comm ends behind a launched call. */
static void end_behind(const struct family_self *self)
{
    const struct scene scene = loaded_scene(self);
    fill_in(&scene, 1, SLOW_US / 4);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_OK);
    EXPECT(self, hoop_comm_finalize(scene.comm) == HOOP_OK);
    EXPECT(self, reduce(&scene, scene.in, scene.out, BYTES) == HOOP_INVALID_USAGE);
    EXPECT(self, hoop_comm_destroy(scene.comm) == HOOP_OK);
    scene_settle(&scene);
    EXPECT(self, are_all(scene.out, sum_of(&scene, 1), BYTES));
    rank_tell(self, HOOP_OK, 0);
}

/* ---- In the parent ---- */

static void test_abort(void **state)
{
    (void)state;
    run(3, abort_waiting);
    run(2, come_too_late);
    run(3, break_waiting);
    run(2, break_within);
    run(2, refuse_within);
    run(2, break_and_free);
    run(2, fail_behind);
    setenv("HOOP_TRANSPORT", "tcp", 1);
    run(3, abort_waiting);
    unsetenv("HOOP_TRANSPORT");
}

static void test_lack(void **state)
{
    (void)state;
    without_ipc = -1;
    run(2, lack_told);
    without_ipc = EVERY_RANK;
}

static void test_end(void **state)
{
    (void)state;
    run(2, end_waiting);
    run(2, end_behind);
}

static void test_kill(void **state)
{
    (void)state;
    run_and_kill(wait_for_the_dead, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_lack),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_kill),
    };
    without_ipc = EVERY_RANK;
    return cmocka_run_group_tests_name("device launch fails", tests, NULL, NULL);
}
