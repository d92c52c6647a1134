/*
 * The interpreter with wrong algorithms: it must report that, and what is wrong.
 */
#include "fakes/interpreter.h"
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
    const struct hoop_plan plan = {.algo = algo,
                                   .n = n,
                                   .lanes = 1,
                                   .radix = 2,
                                   .type_bytes = 8,
                                   .count = count,
                                   .chunk = chunk,
                                   .slabs = 2};
    return (struct hoop_interpreter_op){.plan = plan,
                                        .steps = hoop_algo_steps(HOOP_COLL_ALL_REDUCE, algo)};
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
        ret->local.own.count = 0;
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

/* The steps in another order: first what should follow the announcement. */
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

/* Copies chunk 2 into a slab before chunk 0 has been copied out of it. */
static bool slab_swapped(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                         struct hoop_step *ret)
{
    return hoop_slab_step(plan, lane, k == 14 ? 16 : k == 16 ? 14 : k, ret);
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

/* Folds its own slab without having copied anything to it. */
static bool slab_forgets_own(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                             struct hoop_step *ret)
{
    bool some = hoop_slab_step(plan, lane, k, ret);
    ret->local.own.count = 0;
    return some;
}

static bool slab_no_result(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                           struct hoop_step *ret)
{
    bool some = hoop_slab_step(plan, lane, k, ret);
    ret->local.kept.count = 0;
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

/* Each step but the first is halved: the send comes first, or the receive. */
static bool ring_halved(const struct hoop_plan *plan, uint32_t lane, uint64_t k, bool send,
                        struct hoop_step *ret)
{
    bool some = hoop_ring_step(plan, lane, k / 2 + k % 2, ret);
    if (k > 0 && send) {
        ret->recv.peer = -1;
    } else if (k > 0) {
        ret->send.peer = -1;
    }
    return some;
}

static bool ring_send_first(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                            struct hoop_step *ret)
{
    return ring_halved(plan, lane, k, k % 2 == 1, ret);
}

static bool ring_receive_first(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                               struct hoop_step *ret)
{
    return ring_halved(plan, lane, k, k % 2 == 0, ret);
}

static bool ring_one_way_skip(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                              struct hoop_step *ret)
{
    bool some = hoop_ring_step(plan, lane, k, ret);
    if (k == 1 && plan->me == 1) {
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

/* Every lane runs the columns of all lanes. */
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

/* Folds into a place where a receive is still running. */
static bool bruck_early_fold(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                             struct hoop_step *ret)
{
    bool some = hoop_bruck_step(plan, lane, k, ret);
    struct hoop_step fold;
    if (k == 1 && hoop_bruck_step(plan, lane, 2, &fold)) {
        ret->local = fold.local;
    }
    return some && k < 2;
}

static bool bruck_no_copy(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                          struct hoop_step *ret)
{
    bool some = hoop_bruck_step(plan, lane, k, ret);
    ret->local.op = ret->local.op == HOOP_LOCAL_COPY ? HOOP_LOCAL_NONE : ret->local.op;
    return some;
}

/* In the other direction round the ring: the right vectors in the wrong order. */
static bool bruck_backwards(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                            struct hoop_step *ret)
{
    bool some = hoop_bruck_step(plan, lane, k, ret);
    int32_t peer = ret->send.peer;
    ret->send.peer = ret->recv.peer;
    ret->recv.peer = peer;
    return some;
}

/* Receives to the place of the vector before, which is the rank's own. */
static bool bruck_wrong_place(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                              struct hoop_step *ret)
{
    bool some = hoop_bruck_step(plan, lane, k, ret);
    ret->recv.to.off -= ret->recv.to.off < plan->count ? 0 : plan->count;
    return some;
}

static bool bruck_far(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                      struct hoop_step *ret)
{
    bool some = hoop_bruck_step(plan, lane, k, ret);
    ret->recv.to.off += plan->count;
    return some;
}

/* Folds other ranks' inputs, as over shared memory. */
static bool bruck_folds_inputs(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                               struct hoop_step *ret)
{
    bool some = hoop_bruck_step(plan, lane, k, ret);
    if (ret->local.op == HOOP_LOCAL_REDUCE) {
        ret->local.src.space = HOOP_SPACE_IN;
    }
    return some;
}

static bool bruck_barrier(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                          struct hoop_step *ret)
{
    bool some = hoop_bruck_step(plan, lane, k, ret);
    ret->local.op = HOOP_LOCAL_ARRIVE;
    return some;
}

/* Begins with the exchange that should come second. */
static bool bruck_second_first(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                               struct hoop_step *ret)
{
    return hoop_bruck_step(plan, lane, k < 2 ? 1 - k : k, ret);
}

/* Sends from where the step before copies, and folds where it still receives. */
static bool bruck_round_too_long(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                                 struct hoop_step *ret)
{
    bool some = hoop_bruck_step(plan, lane, k, ret);
    ret->more = some && k < 2;
    return some;
}

static bool bruck_nothing(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                          struct hoop_step *ret)
{
    (void)hoop_bruck_step(plan, lane, k, ret);
    return false;
}

/* Hands out the result before it has sent all inputs that this overwrites in place. Needs n = 3. */
static bool pairwise_early_result(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                                  struct hoop_step *ret)
{
    const uint64_t order[] = {0, 3, 2, 1, 4};
    bool some = hoop_pairwise_step(plan, lane, k / 5 * 5 + order[k % 5], ret);
    if (some && k % 5 == 2 && ret->local.op == HOOP_LOCAL_REDUCE) {
        ret->local.op = HOOP_LOCAL_NONE;
    }
    return some;
}

static bool pairwise_fold_with_last(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                                    struct hoop_step *ret)
{
    bool some = hoop_pairwise_step(plan, lane, k, ret);
    struct hoop_step fold;
    if (k % 5 == 1 && hoop_pairwise_step(plan, lane, k + 1, &fold)) {
        ret->local = fold.local;
    }
    return some;
}

/* The fold does not wait for its inputs. */
static bool pairwise_round_too_long(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                                    struct hoop_step *ret)
{
    bool some = hoop_pairwise_step(plan, lane, k, ret);
    ret->more = some && k % 5 < 2;
    return some;
}

static bool pairwise_round_without_end(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                                       struct hoop_step *ret)
{
    bool some = hoop_pairwise_step(plan, lane, k, ret);
    ret->more = some && k % 5 > 2;
    return some;
}

/* All steps of a ring in one round, with the same two ranks. */
static bool ring_round(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                       struct hoop_step *ret)
{
    bool some = hoop_ring_step(plan, lane, k, ret);
    ret->more = some && k == 0;
    return some;
}

/* Every lane does what a single lane would do. */
static bool pairwise_lanes_meet(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                                struct hoop_step *ret)
{
    (void)lane;
    return hoop_pairwise_step(plan, 0, k, ret);
}

/* Skips to the first step that is not empty. */
static bool pairwise_skips(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                           struct hoop_step *ret)
{
    bool some = hoop_pairwise_step(plan, lane, k, ret);
    if (k == 0) {
        *ret = hoop_step_none();
    }
    return some;
}

/* One rank has an empty step more than the others. */
static bool pairwise_out_of_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                                 struct hoop_step *ret)
{
    const bool late = plan->me == 0 && k > 0;
    bool some = hoop_pairwise_step(plan, lane, late ? k - 1 : k, ret);
    if (late && k == 1) {
        *ret = hoop_step_none();
    }
    return some;
}

struct wrong {
    const char *name;
    hoop_step_fn *steps;
    const char *text; /* part of what the interpreter must report */
    enum hoop_algo algo;
    uint32_t lanes, slots, head;
    bool in_place;
};

static const struct wrong wrongs[] = {
    {"oneshot_no_await", oneshot_no_await, "race", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"oneshot_no_copy", oneshot_no_copy, "another expression", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"oneshot_extra_barrier", oneshot_extra_barrier, "arrived", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"oneshot_copies_own", oneshot_copies_own, "its own input", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"oneshot_never_ends", oneshot_never_ends, "ended at step", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"oneshot_too_long", oneshot_too_long, "leaves space", HOOP_ALGO_ONESHOT, 1, 0, 0, false},
    {"direct_early_edge", direct_early_edge, "race", HOOP_ALGO_DIRECT, 1, 0, 5, true},
    {"direct_no_announcement", direct_no_announcement, "race", HOOP_ALGO_DIRECT, 1, 0, 0, false},
    {"direct_no_end", direct_no_end, "race", HOOP_ALGO_DIRECT, 1, 0, 0, false},
    {"slab_swapped", slab_swapped, "not the documented result", HOOP_ALGO_SLAB, 1, 0, 0, false},
    {"slab_single", slab_single, "race", HOOP_ALGO_SLAB, 1, 0, 0, false},
    {"slab_forgets_own", slab_forgets_own, "another expression", HOOP_ALGO_SLAB, 1, 0, 0, false},
    {"slab_no_result", slab_no_result, "holds nothing", HOOP_ALGO_SLAB, 1, 0, 0, false},
    {"ring_no_division", ring_no_division, "another expression", HOOP_ALGO_RING, 1, 1, 0, false},
    {"ring_divides_early", ring_divides_early, "another expression", HOOP_ALGO_RING, 1, 1, 0,
     false},
    {"ring_send_first", ring_send_first, "deadlock", HOOP_ALGO_RING, 1, 0, 0, false},
    {"ring_send_first, one slot", ring_send_first, "in step", HOOP_ALGO_RING, 1, 1, 0, false},
    {"ring_receive_first", ring_receive_first, "deadlock", HOOP_ALGO_RING, 1, 2, 0, false},
    {"ring_one_way_skip", ring_one_way_skip, "", HOOP_ALGO_RING, 1, 2, 0, false},
    {"ring_same_shard", ring_same_shard, "parts of one step meet", HOOP_ALGO_RING, 1, 1, 0, false},
    {"ring_lanes_meet", ring_lanes_meet, "meet in memory", HOOP_ALGO_RING, 2, 1, 0, false},
    {"ring_writes_input", ring_writes_input, "writes to IN", HOOP_ALGO_RING, 1, 1, 0, false},
    {"ring_impure", ring_impure, "impure", HOOP_ALGO_RING, 1, 1, 0, false},
    {"bruck_early_fold", bruck_early_fold, "parts of one step meet", HOOP_ALGO_BRUCK, 1, 1, 0,
     false},
    {"bruck_no_copy", bruck_no_copy, "another expression", HOOP_ALGO_BRUCK, 1, 1, 0, false},
    {"bruck_backwards", bruck_backwards, "does not begin", HOOP_ALGO_BRUCK, 1, 1, 0, false},
    {"bruck_wrong_place", bruck_wrong_place, "parts of one step meet", HOOP_ALGO_BRUCK, 1, 1, 0,
     false},
    {"bruck_far", bruck_far, "leaves space", HOOP_ALGO_BRUCK, 1, 1, 0, false},
    {"bruck_folds_inputs", bruck_folds_inputs, "of other ranks", HOOP_ALGO_BRUCK, 1, 1, 0, false},
    {"bruck_barrier", bruck_barrier, "local part 1", HOOP_ALGO_BRUCK, 1, 1, 0, false},
    {"bruck_second_first", bruck_second_first, "does not begin", HOOP_ALGO_BRUCK, 1, 1, 0, false},
    {"bruck_round_too_long", bruck_round_too_long, "steps of one round meet", HOOP_ALGO_BRUCK, 1, 1,
     0, false},
    {"bruck_nothing", bruck_nothing, "does not begin", HOOP_ALGO_BRUCK, 1, 1, 0, false},
    {"pairwise_early_result", pairwise_early_result, "", HOOP_ALGO_PAIRWISE, 1, 1, 0, true},
    {"pairwise_fold_with_last", pairwise_fold_with_last, "meet in memory", HOOP_ALGO_PAIRWISE, 1, 1,
     0, false},
    {"pairwise_round_too_long", pairwise_round_too_long, "steps of one round meet",
     HOOP_ALGO_PAIRWISE, 1, 1, 0, false},
    {"pairwise_round_without_end", pairwise_round_without_end, "ends in a round",
     HOOP_ALGO_PAIRWISE, 1, 1, 0, false},
    {"ring_round", ring_round, "", HOOP_ALGO_RING, 1, 1, 0, false},
    {"pairwise_lanes_meet", pairwise_lanes_meet, "meet in memory", HOOP_ALGO_PAIRWISE, 2, 1, 0,
     false},
    {"pairwise_skips", pairwise_skips, "does not begin", HOOP_ALGO_PAIRWISE, 1, 1, 0, false},
    {"pairwise_out_of_step", pairwise_out_of_step, "in step", HOOP_ALGO_PAIRWISE, 1, 1, 0, false},
};

/* Did the interpreter report what it should? ret_text: what it reported. */
static bool is_caught(const struct wrong *wrong, uint64_t seed, char *ret_text, size_t text_bytes)
{
    const bool slab = wrong->algo == HOOP_ALGO_SLAB; /* 2.5 chunks */
    struct hoop_interpreter_op op = op_of(wrong->algo, 3, slab ? 120 : 50,
                                          slab                             ? 48
                                          : wrong->algo == HOOP_ALGO_BRUCK ? 50
                                                                           : 12);
    op.plan.lanes = wrong->lanes;
    op.plan.head = wrong->head;
    op.steps = wrong->steps;
    op.in_place = wrong->in_place ? UINT32_MAX : 0;
    const struct hoop_interpreter_case c = {
        .ops = &op, .op_count = 1, .slots = wrong->slots, .sets = 2, .seed = seed};
    if (hoop_interpret(&c, ret_text, text_bytes)) {
        fail_msg("%s passed with seed %d", wrong->name, (int)seed);
    }
    return strstr(ret_text, wrong->text);
}

/* Every seed must fail. Which of several mistakes is found first depends on the schedule. */
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

/* With how many of the seeds the case ends in a race. */
static uint32_t races(const struct hoop_interpreter_op *ops, uint32_t op_count, uint32_t sets,
                      uint32_t owes)
{
    uint32_t ret = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const struct hoop_interpreter_case c = {
            .ops = ops, .op_count = op_count, .sets = sets, .owes = owes, .seed = seed};
        char text[256];
        ret += !hoop_interpret(&c, text, sizeof(text)) && strstr(text, "race");
    }
    return ret;
}

/* Without a closing barrier one set is not enough. That two are is shown by test_algo. */
static void test_oneshot_needs_two_sets(void **state)
{
    (void)state;
    const struct hoop_interpreter_op ops[] = {op_of(HOOP_ALGO_ONESHOT, 4, 9, 1),
                                              op_of(HOOP_ALGO_ONESHOT, 4, 9, 1)};
    assert_true(races(ops, COUNT_OF(ops), 1, 0) > SEEDS / 2);
}

/* A rank that owes one operation more than the sets allow is caught, even if only the root
 * publishes. */
static void test_owing_too_much(void **state)
{
    (void)state;
    static const enum hoop_collective rooted[] = {HOOP_COLL_BROADCAST, HOOP_COLL_REDUCE,
                                                  HOOP_COLL_GATHER, HOOP_COLL_SCATTER};
    struct hoop_interpreter_op ops[20];
    for (size_t c = 0; c < COUNT_OF(rooted); c++) {
        for (uint32_t sets = 2; sets <= 8; sets++) {
            for (size_t i = 0; i < COUNT_OF(ops); i++) {
                ops[i] = op_of(HOOP_ALGO_ONESHOT, 3, 2, 1);
                ops[i].plan.collective = rooted[c];
                ops[i].steps = hoop_algo_steps(rooted[c], HOOP_ALGO_ONESHOT);
            }
            assert_true(races(ops, COUNT_OF(ops), sets, hoop_may_owe(sets) + 1) > 0);
            assert_int_equal(races(ops, COUNT_OF(ops), sets, hoop_may_owe(sets)), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_algorithms),
        cmocka_unit_test(test_oneshot_needs_two_sets),
        cmocka_unit_test(test_owing_too_much),
    };
    return cmocka_run_group_tests_name("interpreter", tests, NULL, NULL);
}
