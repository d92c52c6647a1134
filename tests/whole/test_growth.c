/*
 * Nothing grows. Two processes repeat the same again and again: they make communicators by ids,
 * splits and shrinks, which work and end, some by an abort, with buffers, regions and streams of
 * their own. After three times as many rounds a process uses as much memory, and as many mappings,
 * descriptors and threads, as before.
 */
#include "harness/meeting.h"
#include "harness/usage.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LIVES 30
#define WARM_STREAMS 100         /* destroyed streams that are remembered, and more */
#define COUNT ((size_t)32 << 10) /* bytes */
/* Two processes have one connection, or two if both dial at the same time; all their comms use
 * these. A leak in each comm would be more: the smallest block of malloc() has 24 bytes. */
#define SLACK_BYTES 8192
#define SLACK_FDS 4
/* An arena of malloc() is two mappings, and when a thread takes another arena is up to chance; a
 * sanitizer's allocator maps memory as it runs. A leak of one mapping per round would be 90. */
#define SLACK_MAPPINGS 16
#define PATIENCE_MS 5000

static void expect(hoop_result_t result, const char *what)
{
    if (result != HOOP_OK) {
        (void)fprintf(stderr, "%s: %s: %s\n", what, hoop_get_error_name(result),
                      hoop_get_last_error(NULL));
        _exit(1);
    }
}

/* ---- A life ---------------------------------------------------------------------------------- */

static void work(hoop_comm_t comm, hoop_stream_t stream, uint8_t *in, uint8_t *out)
{
    int n = 0;
    expect(hoop_comm_count(comm, &n), "count");
    expect(hoop_all_reduce(in, out, 3, HOOP_UINT8, HOOP_SUM, comm, stream), "all_reduce");
    expect(hoop_all_reduce(in, in, COUNT, HOOP_UINT8, HOOP_MAX, comm, stream), "all_reduce");
    expect(hoop_all_gather(in, out, COUNT / 2, HOOP_UINT8, comm, stream), "all_gather");
    expect(hoop_group_start(), "group");
    for (int i = 0; i < n; i++) {
        const size_t part = COUNT / 2;
        expect(hoop_send(in, part, HOOP_UINT8, i, comm, stream), "send");
        expect(hoop_recv(out + (size_t)i * part, part, HOOP_UINT8, i, comm, stream), "recv");
    }
    expect(hoop_group_end(), "group");
    expect(stream != NULL ? hoop_stream_synchronize(stream) : HOOP_OK, "synchronize");
}

static void live_alone(bool aborts)
{
    hoop_comm_t comms[2];
    int64_t values[2] = {1, 2};
    expect(hoop_comm_init_all(comms, 2, NULL), "init_all");
    expect(hoop_group_start(), "group");
    for (int i = 0; i < 2; i++) {
        expect(hoop_all_reduce(&values[i], &values[i], 1, HOOP_INT64, HOOP_SUM, comms[i], NULL),
               "all_reduce");
    }
    expect(hoop_group_end(), "group");
    for (int i = 0; i < 2; i++) {
        expect(aborts ? hoop_comm_abort(comms[i]) : hoop_comm_finalize(comms[i]), "an end");
        expect(hoop_comm_destroy(comms[i]), "destroy");
    }
}

static void live(const struct family_self *self, hoop_comm_t world, int number)
{
    hoop_comm_t child = NULL, next = NULL, other = NULL;
    hoop_stream_t stream = NULL;
    hoop_unique_id_t id;
    void *region = NULL;
    uint8_t *plain = calloc(2, COUNT);
    expect(plain != NULL ? HOOP_OK : HOOP_OUT_OF_MEMORY, "memory");
    expect(hoop_mem_alloc(&region, 2 * COUNT, HOOP_MEM_HOST), "mem_alloc");
    expect(hoop_stream_create(&stream), "stream_create");
    expect(hoop_comm_split(world, 0, number % 2 == 0 ? self->rank : -self->rank, &child, NULL),
           "split");
    work(child, NULL, plain, plain + COUNT);
    work(child, stream, region, (uint8_t *)region + COUNT);
    expect(hoop_comm_shrink(child, NULL, 0, &next, NULL, HOOP_SHRINK_DEFAULT), "shrink");
    expect(hoop_comm_destroy(child), "destroy");
    work(next, NULL, region, plain);
    expect(hoop_mem_free(region), "mem_free");
    if (self->rank == 0) {
        expect(hoop_get_unique_id(&id), "unique id");
    }
    expect(hoop_broadcast(&id, &id, sizeof(id), HOOP_UINT8, 0, world, NULL), "broadcast");
    expect(hoop_comm_init_rank(&other, self->n, id, self->rank), "init_rank");
    work(other, stream, plain, plain + COUNT);
    expect(hoop_stream_destroy(stream), "stream_destroy");
    expect(hoop_comm_destroy(other), "destroy");
    expect(hoop_comm_destroy(next), "destroy");
    live_alone(number % 3 == 0);
    expect(hoop_barrier(world, NULL), "barrier");
    free(plain);
}

/* ---- What is left of it ---------------------------------------------------------------------- */

static bool is_no_more(const struct usage *now, const struct usage *before)
{
    return now->bytes <= before->bytes + SLACK_BYTES &&
           now->mappings <= before->mappings + SLACK_MAPPINGS &&
           now->fds <= before->fds + SLACK_FDS && now->threads <= before->threads;
}

/* The service thread frees memory a little later, and connections close a little later. Waits until
 * there is no more than before or, if `before` is NULL, until it no longer falls. */
static struct usage settle(const struct usage *before)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    const uint64_t deadline = hoop_deadline_ns(PATIENCE_MS);
    struct usage last, now = usage_now();
    do {
        last = now;
        nanosleep(&nap, NULL);
        now = usage_now();
    } while (hoop_now_ns() < deadline &&
             (before != NULL ? !is_no_more(&now, before) : !is_no_more(&last, &now)));
    return now;
}

static void usage_print(const char *when, const struct usage *usage)
{
    (void)fprintf(stderr,
                  "%s: %ld bytes in %ld blocks, %ld mappings, %ld descriptors, %ld threads\n", when,
                  usage->bytes, usage->blocks, usage->mappings, usage->fds, usage->threads);
}

static void grow_up(const struct family_self *self, const void *arg)
{
    const struct meeting *meeting = meeting_open(self, arg);
    const char *lives = getenv("HOOP_TEST_LIVES");
    const int n = lives != NULL ? atoi(lives) : LIVES;
    hoop_comm_t world = NULL;
    setenv("HOOP_DEBUG", "none", 0);
    expect(hoop_comm_init_rank(&world, self->n, meeting->ids[0], self->rank), "init_rank");
    for (int i = 0; i < WARM_STREAMS; i++) {
        hoop_stream_t stream = NULL;
        expect(hoop_stream_create(&stream), "stream_create");
        expect(hoop_stream_destroy(stream), "stream_destroy");
    }
    for (int i = 0; i < n; i++) {
        live(self, world, i);
    }
    const struct usage before = settle(NULL);
    for (int i = 0; i < 3 * n; i++) {
        live(self, world, i);
    }
    const struct usage after = settle(&before);
    usage_print("before", &before);
    usage_print("after", &after);
    expect(hoop_comm_destroy(world), "destroy");
    _exit(is_no_more(&after, &before) ? 0 : 2);
}

static void test_growth(void **state)
{
    (void)state;
    meeting_run(2, grow_up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_growth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
