/*
 * The interpreter under algorithms that are wrong: it must say so, and what.
 */
#include "interpreter.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))
#define SEEDS 20

static struct hoop_interpreter_op op_of(enum hoop_algo algo, uint32_t n, uint64_t count,
                                        uint64_t chunk)
{
    const struct hoop_plan plan = {
        .algo = algo, .n = n, .lanes = 1, .type_bytes = 8, .count = count, .chunk = chunk};
    return (struct hoop_interpreter_op){.plan = plan, .steps = hoop_algo_steps(algo)};
}

/* ---- Wrong algorithms: a right one with one thing changed ---------------------------------- */

static bool oneshot_no_await(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                             struct hoop_step *ret)
{
    bool some = hoop_oneshot_step(plan, lane, k, ret);
    if (some && ret->local.op == HOOP_LOCAL_AWAIT) {
        *ret = hoop_step_none();
    }
    return some;
}

static bool oneshot_no_copy(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                            struct hoop_step *ret)
{
    return k < UINT64_MAX && hoop_oneshot_step(plan, lane, k + 1, ret);
}

static bool oneshot_extra_barrier(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                                  struct hoop_step *ret)
{
    if (lane == 0 && k == 4 && plan->me == plan->n - 1) {
        *ret = hoop_step_none();
        ret->local.op = HOOP_LOCAL_ARRIVE;
        return true;
    }
    return hoop_oneshot_step(plan, lane, k, ret);
}

static bool oneshot_copies_own(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                               struct hoop_step *ret)
{
    bool some = hoop_oneshot_step(plan, lane, k, ret);
    if (some && ret->local.op == HOOP_LOCAL_REDUCE) {
        ret->local.op = HOOP_LOCAL_COPY;
        ret->local.src.member = plan->me;
    }
    return some;
}

static bool oneshot_never_ends(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                               struct hoop_step *ret)
{
    return hoop_oneshot_step(plan, lane, k > 100 ? 0 : k, ret);
}

static bool oneshot_too_long(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                             struct hoop_step *ret)
{
    bool some = hoop_oneshot_step(plan, lane, k, ret);
    ret->local.src.count += ret->local.src.count > 0;
    ret->local.dst.count += ret->local.dst.count > 0;
    return some;
}

/* Folds into its output before the others have read it. */
static bool direct_early_edge(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                              struct hoop_step *ret)
{
    bool some = hoop_direct_step(plan, lane, k, ret);
    if (some && ret->local.op == HOOP_LOCAL_REDUCE) {
        ret->local.dst.space = HOOP_SPACE_OUT;
        ret->local.dst.off = ret->local.src.off;
    }
    return some;
}

/* Steps in the other order: first what comes after the announcement. */
static bool direct_no_announcement(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                                   struct hoop_step *ret)
{
    return lane == 0 && k < UINT64_MAX - 2 && hoop_direct_step(plan, lane, k + 2, ret);
}

static bool direct_no_end(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                          struct hoop_step *ret)
{
    struct hoop_step step;
    uint64_t spread = 2;
    while (hoop_direct_step(plan, 0, spread, &step) && step.local.op != HOOP_LOCAL_ARRIVE) {
        spread++;
    }
    return k < spread && hoop_direct_step(plan, lane, k, ret);
}

/* Copies chunk 2 in before chunk 0, from the same slab, is out. */
static bool slab_swapped(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                         struct hoop_step *ret)
{
    return hoop_slab_step(plan, lane, k == 9 ? 10 : k == 10 ? 9 : k, ret);
}

static bool slab_single(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                        struct hoop_step *ret)
{
    bool some = hoop_slab_step(plan, lane, k, ret);
    if (ret->local.dst.space == HOOP_SPACE_SLAB) {
        ret->local.dst.off %= plan->chunk;
    }
    if (ret->local.src.space == HOOP_SPACE_SLAB) {
        ret->local.src.off %= plan->chunk;
    }
    return some;
}

static bool ring_no_division(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                             struct hoop_step *ret)
{
    bool some = hoop_ring_step(plan, lane, k, ret);
    ret->recv.mode -= ret->recv.mode == HOOP_RECV_REDUCE_LAST;
    return some;
}

static bool ring_divides_early(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                               struct hoop_step *ret)
{
    bool some = hoop_ring_step(plan, lane, k, ret);
    ret->recv.mode += ret->recv.mode == HOOP_RECV_REDUCE;
    return some;
}

/* Half steps: first the send, or first the receive, of each step. */
static bool ring_halved(const struct hoop_plan *plan, uint32_t lane, uint64_t k, bool send,
                        struct hoop_step *ret)
{
    bool some = hoop_ring_step(plan, lane, k / 2, ret);
    if (send) {
        ret->recv.peer = -1;
    } else {
        ret->send.peer = -1;
    }
    return some;
}

static bool ring_send_first(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                            struct hoop_step *ret)
{
    return ring_halved(plan, lane, k, k % 2 == 0, ret);
}

static bool ring_receive_first(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                               struct hoop_step *ret)
{
    return ring_halved(plan, lane, k, k % 2 == 1, ret);
}

static bool ring_one_way_skip(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                              struct hoop_step *ret)
{
    bool some = hoop_ring_step(plan, lane, k, ret);
    if (k == 0 && plan->me == 1) {
        ret->recv.peer = -1;
    }
    return some;
}

static bool ring_same_shard(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                            struct hoop_step *ret)
{
    bool some = hoop_ring_step(plan, lane, k, ret);
    ret->recv.to.off = ret->send.from.off;
    return some;
}

/* All lanes run all columns. */
static bool ring_lanes_meet(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                            struct hoop_step *ret)
{
    (void)lane;
    return hoop_ring_step(plan, 0, k, ret);
}

static bool ring_writes_input(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                              struct hoop_step *ret)
{
    bool some = hoop_ring_step(plan, lane, k, ret);
    ret->recv.to.space = HOOP_SPACE_IN;
    return some;
}

static bool ring_impure(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                        struct hoop_step *ret)
{
    static uint64_t asked;
    bool some = hoop_ring_step(plan, lane, k, ret);
    ret->recv.mode = ++asked % 3 ? HOOP_RECV_COPY : HOOP_RECV_REDUCE;
    return some;
}

struct wrong {
    const char *name;
    hoop_step_fn *steps;
    const char *text; /* part of what the interpreter must say */
    enum hoop_algo algo;
    uint32_t lanes, slots, head;
    bool in_place;
};

static const struct wrong wrongs[] = {
    {"oneshot_no_await", oneshot_no_await, "race", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"oneshot_no_copy", oneshot_no_copy, "another expression", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"oneshot_extra_barrier", oneshot_extra_barrier, "barriers", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"oneshot_copies_own", oneshot_copies_own, "its own input", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"oneshot_never_ends", oneshot_never_ends, "ended at step", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"oneshot_too_long", oneshot_too_long, "leaves space", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"direct_early_edge", direct_early_edge, "race", HOOP_ALGO_DIRECT, 1, 0, 5, true},
    {"direct_no_announcement", direct_no_announcement, "race", HOOP_ALGO_DIRECT, 1, 0, 0, false},
    {"direct_no_end", direct_no_end, "race", HOOP_ALGO_DIRECT, 1, 0, 0, false},
    {"slab_swapped", slab_swapped, "not the documented fold", HOOP_ALGO_SLAB, 1, 0, 0, false},
    {"slab_single", slab_single, "race", HOOP_ALGO_SLAB, 1, 0, 0, false},
    {"ring_no_division", ring_no_division, "another expression", HOOP_ALGO_RING, 1, 1, 0, false},
    {"ring_divides_early", ring_divides_early, "another expression", HOOP_ALGO_RING, 1, 1, 0,
     false},
    {"ring_send_first", ring_send_first, "deadlock", HOOP_ALGO_RING, 1, 0, 0, false},
    {"ring_receive_first", ring_receive_first, "deadlock", HOOP_ALGO_RING, 1, 2, 0, false},
    {"ring_one_way_skip", ring_one_way_skip, "", HOOP_ALGO_RING, 1, 2, 0, false},
    {"ring_same_shard", ring_same_shard, "where it sends from", HOOP_ALGO_RING, 1, 1, 0, false},
    {"ring_lanes_meet", ring_lanes_meet, "meet in memory", HOOP_ALGO_RING, 2, 1, 0, false},
    {"ring_writes_input", ring_writes_input, "writes to IN", HOOP_ALGO_RING, 1, 1, 0, false},
    {"ring_impure", ring_impure, "impure", HOOP_ALGO_RING, 1, 1, 0, false},
};

/* True: the interpreter said what it should; ret_text is what it said. */
static bool is_caught(const struct wrong *wrong, uint64_t seed, char *ret_text, size_t text_bytes)
{
    struct hoop_interpreter_op op = op_of(wrong->algo, 3, 50, 12);
    op.plan.lanes = wrong->lanes;
    op.plan.head = wrong->head;
    op.steps = wrong->steps;
    op.in_place = wrong->in_place ? UINT32_MAX : 0;
    const struct hoop_interpreter_case c = {
        .ops = &op, .op_count = 1, .slots = wrong->slots, .oneshot_buffers = 2, .seed = seed};
    if (hoop_interpret(&c, ret_text, text_bytes)) {
        fail_msg("%s passed with seed %d", wrong->name, (int)seed);
    }
    return strstr(ret_text, wrong->text);
}

/* Every seed must fail; the schedule decides which of several mistakes comes first. */
static void test_wrong_algorithms(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrongs); i++) {
        char text[256] = "";
        bool caught = false;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            caught = is_caught(&wrongs[i], seed, text, sizeof(text)) || caught;
        }
        if (!caught) {
            fail_msg("%s: expected '%s', but: %s", wrongs[i].name, wrongs[i].text, text);
        }
    }
}

/* The same steps pass where the links have room: what one slot holds, a rendezvous does not. */
static void test_slots_matter(void **state)
{
    (void)state;
    struct hoop_interpreter_op op = op_of(HOOP_ALGO_RING, 3, 50, 1000);
    op.steps = ring_send_first;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const struct hoop_interpreter_case c = {
            .ops = &op, .op_count = 1, .slots = 1, .oneshot_buffers = 2, .seed = seed};
        char text[256];
        assert_true(hoop_interpret(&c, text, sizeof(text)));
    }
}

/* One buffer is not enough without a closing barrier. That two are is test_algo's to show. */
static void test_oneshot_needs_two_buffers(void **state)
{
    (void)state;
    const struct hoop_interpreter_op ops[] = {op_of(HOOP_ALGO_ONESHOT, 4, 9, 1),
                                              op_of(HOOP_ALGO_ONESHOT, 4, 9, 1)};
    uint32_t seen = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const struct hoop_interpreter_case c = {
            .ops = ops, .op_count = COUNT_OF(ops), .oneshot_buffers = 1, .seed = seed};
        char text[256];
        seen += !hoop_interpret(&c, text, sizeof(text)) && strstr(text, "race");
    }
    assert_true(seen > SEEDS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_algorithms),
        cmocka_unit_test(test_slots_matter),
        cmocka_unit_test(test_oneshot_needs_two_buffers),
    };
    return cmocka_run_group_tests_name("interpreter", tests, NULL, NULL);
}
