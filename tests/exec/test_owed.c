/*
 * lib/exec/owed.c over a link through shared memory. Owed receives are taken in order, and there
 * are never more than the link holds; an error in one is kept for the caller.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "exec/owed.h"
#include "transports/link_pair.h"

#include <string.h>

#define SLOTS 4u /* of large chunks: small ones have more */
#define HELD 31u

struct scene {
    struct pair pair;
    struct hoop_owed owed;
    struct item said[2 * HELD];
};

static int begin(void **state)
{
    static struct scene scene;
    scene = (struct scene){.owed = {.link = NULL}};
    *state = &scene;
    return pair_open(&scene.pair, hoop_transport_named("shm"), SLOTS, 4096) == HOOP_OK &&
                   hoop_link_holds(scene.pair.receiver) == HELD
               ? 0
               : -1;
}

static int end(void **state)
{
    struct scene *scene = *state;
    pair_close(&scene->pair);
    return scene->owed.count == 0 ? 0 : -1; /* done, whatever was still owed */
}

static hoop_result_t owe(struct scene *scene, uint32_t op)
{
    const struct hoop_xfer xfer = {.op = op, .signature = {.count = op}};
    return hoop_owed_post(&scene->owed, scene->pair.receiver, &xfer);
}

static void say(struct scene *scene, uint32_t op, uint64_t count)
{
    struct item *item = &scene->said[op];
    item_fill(item, NULL, 0, op);
    item->xfer.chunk = 0;
    item->xfer.signature.count = count;
    assert_int_equal(hoop_link_send(scene->pair.sender, &item->xfer), HOOP_OK);
    while (item->done == 0) {
        assert_true(hoop_link_progress(scene->pair.sender));
    }
}

/* Each message is taken by the operation that it belongs to, whichever was first. */
static void test_order(void **state)
{
    struct scene *scene = *state;
    struct hoop_failure failure = {.code = HOOP_OK};
    assert_int_equal(hoop_owed_check(&scene->owed, &failure), HOOP_OK);
    assert_false(hoop_owed_progress(&scene->owed));
    assert_int_equal(owe(scene, 0), HOOP_OK);
    say(scene, 0, 0);
    say(scene, 1, 1);
    assert_int_equal(owe(scene, 1), HOOP_OK);
    assert_int_equal(owe(scene, 2), HOOP_OK);
    assert_true(hoop_owed_progress(&scene->owed));
    assert_int_equal(scene->owed.count, 1);
    say(scene, 2, 2);
    assert_true(hoop_owed_progress(&scene->owed));
    assert_int_equal(hoop_owed_check(&scene->owed, &failure), HOOP_OK);
}

/* As many as the link holds; then the next must wait until half of them have come. */
static void test_room(void **state)
{
    struct scene *scene = *state;
    struct hoop_failure failure = {.code = HOOP_OK};
    for (uint32_t op = 0; op < HELD; op++) {
        assert_int_equal(owe(scene, op), HOOP_OK);
    }
    assert_int_equal(owe(scene, HELD), HOOP_AGAIN);
    assert_int_equal(hoop_owed_check(&scene->owed, &failure), HOOP_AGAIN);
    for (uint32_t op = 0; op < HELD / 2; op++) {
        say(scene, op, op);
        assert_int_equal(owe(scene, HELD), HOOP_AGAIN);
        assert_int_equal(scene->owed.count, HELD - 1 - op);
    }
    say(scene, HELD / 2, HELD / 2);
    assert_int_equal(owe(scene, HELD), HOOP_OK);
    for (uint32_t op = HELD / 2 + 1; op <= HELD; op++) {
        say(scene, op, op);
    }
    assert_true(hoop_owed_progress(&scene->owed));
    assert_int_equal(hoop_owed_check(&scene->owed, &failure), HOOP_OK);
}

/* The sender can complete all that may be owed, though the receiver does not look. */
static void test_held(void **state)
{
    struct scene *scene = *state;
    for (uint32_t op = 0; op < HELD; op++) {
        assert_int_equal(owe(scene, op), HOOP_OK);
    }
    for (uint32_t op = 0; op < HELD; op++) {
        say(scene, op, op);
    }
    assert_int_equal(owe(scene, HELD), HOOP_OK);
    assert_int_equal(scene->owed.count, 1);
}

static void test_mismatch(void **state)
{
    struct scene *scene = *state;
    struct hoop_failure failure = {.code = HOOP_OK};
    assert_int_equal(owe(scene, 1), HOOP_OK);
    assert_int_equal(owe(scene, 2), HOOP_OK);
    say(scene, 1, 1);
    say(scene, 2, 5);
    assert_true(hoop_owed_progress(&scene->owed));
    assert_int_equal(hoop_owed_check(&scene->owed, &failure), HOOP_MISMATCH);
    assert_int_equal(failure.rank, PAIR_SENDER);
    assert_non_null(strstr(failure.text, "operation 2 differs: rank 1 called"));
    assert_int_equal(owe(scene, 3), HOOP_MISMATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, begin, end),
        cmocka_unit_test_setup_teardown(test_room, begin, end),
        cmocka_unit_test_setup_teardown(test_held, begin, end),
        cmocka_unit_test_setup_teardown(test_mismatch, begin, end),
    };
    return cmocka_run_group_tests_name("owed", tests, NULL, NULL);
}
