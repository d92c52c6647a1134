/*
 * Every collective in every algorithm that supports it, under the interpreter: up to 8 ranks with
 * every root, up to 32 with every root and the rest drawn; operations of all kinds in sequence;
 * ranks in different operations; and counts that nobody can run. What only all_reduce needs is in
 * test_algo.c.
 */
#include "algo/algo_case.h"
#include "plan/plan.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define LONG_SEQUENCE 5u
#define MOST_SETS 34u

/* ---- Cases -------------------------------------------------------------------------------- */

/* A collective and an algorithm for it. */
struct pair {
    enum hoop_collective collective;
    enum hoop_algo algo;
};

static bool is_over_links(struct pair pair)
{
    return hoop_plan_is_over_links(pair.algo);
}

/* Oneshot and bruck also work without elements; the others need not. */
static bool takes(struct pair pair, uint64_t count, uint32_t n)
{
    const bool blocked = hoop_collective_is_blocked(pair.collective);
    if (count == 0 || pair.collective == HOOP_COLL_BARRIER) {
        const bool hears = pair.algo == HOOP_ALGO_BRUCK || pair.algo == HOOP_ALGO_HIERARCHICAL;
        return count == 0 && (hears || !is_over_links(pair)) && spreads(pair.algo, n);
    }
    return spreads(pair.algo, n) && (pair.algo != HOOP_ALGO_RING || blocked || count >= n);
}

/* A gather in which each rank writes to the root's output but for its edges: none, some elements, a
 * block or more, or all. */
static void draw_gives(struct hoop_plan *plan)
{
    const uint64_t all = plan->n * plan->count;
    plan->gives = true;
    plan->head = draw(3) * draw(all + 1) / 2;
    plan->head = plan->head < all ? plan->head : all;
    plan->tail = draw(3) * draw(all + 1) / 2;
    plan->tail = plan->tail < all - plan->head ? plan->tail : all - plan->head;
}

static struct hoop_interpreter_op op_of(struct pair pair, uint32_t n, uint32_t root, uint64_t count,
                                        uint64_t chunk)
{
    const bool whole = pair.algo == HOOP_ALGO_BRUCK || pair.algo == HOOP_ALGO_BINOMIAL ||
                       pair.algo == HOOP_ALGO_HIERARCHICAL;
    const bool lanes = is_over_links(pair) && !whole;
    /* A slab has room for a part of every block. */
    chunk = pair.algo == HOOP_ALGO_SLAB && chunk < n ? n : chunk;
    const struct hoop_plan plan = {
        .collective = pair.collective,
        .algo = pair.algo,
        .n = n,
        .root = hoop_collective_is_rooted(pair.collective) ? root : 0,
        .lanes = lanes ? 1 + (uint32_t)draw(3) : 1,
        .radix = 2 + (uint32_t)draw(HOOP_RADIX_MOST - 1),
        .type_bytes = 1u << draw(4),
        .count = count,
        .chunk = whole                ? count + draw(2)
                 : count / chunk > 60 ? count / 40 + n
                                      : chunk,
        .slabs = 2 + (hoop_collective_is_rooted(pair.collective) ? (uint32_t)draw(3) : 0),
        .turn = pair.algo == HOOP_ALGO_SLAB ? (uint32_t)draw(UINT64_C(2) * n) : 0,
        .at_once = pair.algo == HOOP_ALGO_DIRECT && draw(2) != 0,
        .grid = draw_grid(pair.algo, n),
    };
    struct hoop_interpreter_op ret = {.plan = plan,
                                      .steps = hoop_algo_steps(pair.collective, pair.algo),
                                      .in_place = (uint32_t)draw(UINT64_C(1) << 32)};
    if (pair.algo == HOOP_ALGO_DIRECT && pair.collective == HOOP_COLL_GATHER && draw(3) != 0) {
        draw_gives(&ret.plan);
    }
    return ret;
}

/* ---- One collective by one algorithm ------------------------------------------------------ */

static void run_all(struct pair pair, uint32_t n, uint32_t root)
{
    const uint64_t counts[] = {0, 1, 2, 3, 7, n - 1, n, n + 1, 33};
    const uint64_t chunks[] = {1, 3, 1000};
    for (size_t i = 0; i < COUNT_OF(counts) * COUNT_OF(chunks); i++) {
        const uint64_t count = counts[i / COUNT_OF(chunks)];
        if (!takes(pair, count, n)) {
            continue;
        }
        struct hoop_interpreter_op op = op_of(pair, n, root, count, chunks[i % COUNT_OF(chunks)]);
        op.in_place = i % 4 == 0 ? UINT32_MAX : i % 4 == 1 ? 0 : op.in_place;
        run_case(&op, 1, (uint32_t)draw(3));
    }
}

static void run_some(struct pair pair, uint32_t n, uint32_t root)
{
    const uint64_t count = draw(4) == 0 ? 0 : 1 + draw(3) * draw(n);
    if (takes(pair, count, n)) {
        const struct hoop_interpreter_op op = op_of(pair, n, root, count, 1 + draw(9));
        run_case(&op, 1, (uint32_t)draw(3));
    }
}

static void test_pair(void **state)
{
    const struct pair pair = *(const struct pair *)*state;
    const bool rooted = hoop_collective_is_rooted(pair.collective);
    for (uint32_t n = 1; n <= MANY_RANKS; n++) {
        for (uint32_t root = 0; root < (rooted ? n : 1); root++) {
            if (n <= FEW_RANKS) {
                run_all(pair, n, root);
            } else {
                run_some(pair, n, root);
            }
        }
    }
}

/* ---- Many operations ---------------------------------------------------------------------- */

static struct pair pairs[HOOP_COLL_COUNT * HOOP_ALGO_COUNT];
static size_t pair_count;

static void find_pairs(void)
{
    for (unsigned c = 0; c < HOOP_COLL_COUNT; c++) {
        for (unsigned a = 0; a < HOOP_ALGO_COUNT; a++) {
            if (hoop_algo_steps((enum hoop_collective)c, (enum hoop_algo)a) != NULL) {
                pairs[pair_count++] = (struct pair){(enum hoop_collective)c, (enum hoop_algo)a};
            }
        }
    }
}

/* Draws a pair that supports `count`, over links or over memory. */
static struct pair draw_pair(bool links, uint64_t count, uint32_t n)
{
    struct pair ret;
    do {
        ret = pairs[draw(pair_count)];
    } while (is_over_links(ret) != links || !takes(ret, count, n));
    return ret;
}

static void run_sequence(bool links, uint32_t n)
{
    struct hoop_interpreter_op ops[LONG_SEQUENCE];
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        const uint64_t count = draw(5) == 0 ? 0 : n + draw(20);
        ops[i] = op_of(draw_pair(links, count, n), n, (uint32_t)draw(n), count, 1 + draw(12));
        ops[i].plan.type_bytes = ops[0].plan.type_bytes;
    }
    run_case(ops, COUNT_OF(ops), links ? (uint32_t)draw(3) : 0);
}

static void test_sequences(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 1500; i++) {
        run_sequence(true, 1 + (uint32_t)draw(FEW_RANKS));
        run_sequence(false, 1 + (uint32_t)draw(FEW_RANKS));
    }
}

/*
 * More operations than sets, for every number of sets. Most are oneshots, some with the same root
 * one after the other, and now and then the published data are large.
 */
static void run_sets(uint32_t sets, uint32_t n)
{
    static struct hoop_interpreter_op ops[2 * MOST_SETS + 4];
    const uint32_t op_count = 2 * sets + 4;
    struct pair pair = {HOOP_COLL_BROADCAST, HOOP_ALGO_ONESHOT};
    uint32_t root = 0;
    for (uint32_t i = 0; i < op_count; i++) {
        if (draw(4) == 0) {
            do {
                pair = draw_pair(false, 1, n);
            } while (pair.algo != HOOP_ALGO_ONESHOT && draw(4) > 0);
            root = (uint32_t)draw(n);
        }
        ops[i] = op_of(pair, n, root, 1 + draw(2), 1 + draw(2));
        ops[i].plan.type_bytes = 8;
        ops[i].large = pair.algo == HOOP_ALGO_ONESHOT && draw(8) == 0;
    }
    run_case_in(ops, op_count, 0, sets);
}

static void test_sets(void **state)
{
    (void)state;
    for (uint32_t sets = 2; sets <= MOST_SETS; sets++) {
        for (uint32_t i = 0; i < 30; i++) {
            run_sets(sets, 2 + (uint32_t)draw(3));
        }
    }
}

/* Hierarchical: may more steps come before this one does what is searched for? */
static bool is_before_first(const struct hoop_plan *plan, bool sends, const struct hoop_step *step)
{
    const int32_t next = (int32_t)((plan->me + 1) % plan->n);
    const int32_t before = (int32_t)((plan->me + plan->n - 1) % plan->n);
    const bool collects =
        plan->collective == HOOP_COLL_REDUCE || plan->collective == HOOP_COLL_GATHER;
    if (plan->algo != HOOP_ALGO_HIERARCHICAL || sends) {
        return plan->algo == HOOP_ALGO_HIERARCHICAL && step->send.peer != next;
    }
    return step->recv.peer < 0 || (collects && plan->me == plan->root && step->recv.peer != before);
}

/* The first step of a rank that sends, or receives. Before it only messages from its own machine
 * are received. */
static void find_first(const struct hoop_interpreter_op *op, bool sends, struct hoop_step *ret)
{
    const struct hoop_plan *plan = &op->plan;
    uint64_t k = 0;
    assert_true(op->steps(plan, 0, k, ret));
    while (is_before_first(plan, sends, ret)) {
        assert_true(ret->recv.peer < 0 ||
                    ret->recv.peer == (int32_t)((plan->me + plan->n - 1) % plan->n) ||
                    plan->grid->machine[ret->recv.peer] == plan->grid->machine[plan->me]);
        assert_true(op->steps(plan, 0, ++k, ret));
    }
}

/*
 * If neighbours are in different operations over links, the first message of either on the link
 * between them, in lane 0, meets the first one of the other, and nothing earlier can keep them from
 * getting there. So the header of that chunk tells the receiver that the operations differ.
 */
static void test_first_meeting(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        const uint32_t n = 2 + (uint32_t)draw(MANY_RANKS - 1), me = (uint32_t)draw(n);
        struct hoop_step step[2];
        for (uint32_t who = 0; who < 2; who++) {
            const uint64_t count = draw(4) == 0 ? 0 : n + draw(1000000);
            struct hoop_interpreter_op op =
                op_of(draw_pair(true, count, n), n, (uint32_t)draw(n), count, 1 + draw(1000));
            op.plan.me = (me + who) % n;
            op.plan.scratch = hoop_algo_scratch(&op.plan);
            find_first(&op, who == 0, &step[who]);
            assert_true(step[who].local.op == HOOP_LOCAL_NONE ||
                        step[who].local.op == HOOP_LOCAL_COPY);
        }
        assert_int_equal(step[0].send.peer, (me + 1) % n);
        assert_int_equal(step[1].recv.peer, me);
    }
}

/* ---- What is kept ------------------------------------------------------------------------- */

/* What a lane has received into SCRATCH and not folded yet. */
struct kept {
    struct hoop_ref refs[HOOP_RADIX_MOST - 1];
    uint32_t count;
};

static bool is_kept(const struct kept *kept, const struct hoop_ref *ref)
{
    bool meets = false;
    for (uint32_t i = 0; i < kept->count && ref->space == HOOP_SPACE_SCRATCH; i++) {
        const struct hoop_ref *other = &kept->refs[i];
        meets = meets || (ref->count > 0 && ref->off < other->off + other->count &&
                          other->off < ref->off + ref->count);
    }
    return meets;
}

/* Each kept vector is one of those that the fold takes, and the fold takes all of them. */
static void fold_kept(const struct hoop_plan *plan, const struct hoop_step *step, struct kept *kept)
{
    const struct hoop_ref *src = &step->local.src;
    const uint64_t each = step->local.dst.count;
    const uint64_t all = src->count * (src->member == HOOP_EVERY ? plan->n : 1);
    for (uint32_t i = 0; i < kept->count; i++) {
        const struct hoop_ref *ref = &kept->refs[i];
        assert_true(ref->count == each && ref->off >= src->off && ref->off < src->off + all &&
                    (ref->off - src->off) % each == 0);
    }
    kept->count = 0;
}

static void check_kept(const struct hoop_interpreter_op *op, uint32_t lane)
{
    struct kept kept = {.count = 0};
    struct hoop_step step;
    for (uint64_t k = 0; op->steps(&op->plan, lane, k, &step); k++) {
        if (step.local.op == HOOP_LOCAL_REDUCE) {
            fold_kept(&op->plan, &step, &kept);
        }
        assert_false(step.local.op == HOOP_LOCAL_COPY && is_kept(&kept, &step.local.src));
        assert_false(step.send.peer >= 0 && is_kept(&kept, &step.send.from));
        if (step.recv.peer >= 0 && step.recv.to.count > 0 &&
            step.recv.to.space == HOOP_SPACE_SCRATCH) {
            assert_true(kept.count < COUNT_OF(kept.refs) && !is_kept(&kept, &step.recv.to));
            kept.refs[kept.count++] = step.recv.to;
        }
    }
    assert_int_equal(kept.count, 0);
}

/* hoop_plan_keeps() is true only for vectors that are folded once and not otherwise used, and for
 * most of those. */
static void test_kept(void **state)
{
    (void)state;
    uint32_t seen[HOOP_ALGO_COUNT] = {0};
    for (uint32_t i = 0; i < 50000; i++) {
        const uint32_t n = 2 + (uint32_t)draw(MANY_RANKS - 1);
        const struct pair pair = draw_pair(true, n, n);
        struct hoop_interpreter_op op = op_of(pair, n, (uint32_t)draw(n), n + draw(9), 1 + draw(9));
        op.plan.me = (uint32_t)draw(n);
        if (hoop_plan_keeps(&op.plan)) {
            seen[pair.algo]++;
            check_kept(&op, (uint32_t)draw(op.plan.lanes));
        }
    }
    assert_true(seen[HOOP_ALGO_BRUCK] > 0 && seen[HOOP_ALGO_PAIRWISE] > 0 &&
                seen[HOOP_ALGO_HIERARCHICAL] > 0);
}

/* ---- Counts that nobody can run ----------------------------------------------------------- */

static uint64_t size_of(const struct hoop_plan *plan, const struct hoop_ref *ref)
{
    switch (ref->space) {
    case HOOP_SPACE_IN:
        return hoop_in_count(plan, plan->me);
    case HOOP_SPACE_OUT:
        return hoop_out_count(plan, plan->me);
    default:
        return plan->scratch;
    }
}

static void check_ref(const struct hoop_plan *plan, const struct hoop_ref *ref)
{
    const uint64_t vectors = ref->member == HOOP_EVERY ? plan->n : 1;
    const uint64_t size = size_of(plan, ref);
    assert_true(ref->count * vectors <= size && ref->off <= size - ref->count * vectors);
}

/* The number of a lane's steps, by bisection. */
static uint64_t steps_of(const struct hoop_interpreter_op *op, uint32_t lane)
{
    struct hoop_step step;
    uint64_t low = 0, high = UINT64_MAX;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (op->steps(&op->plan, lane, middle, &step)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void check_huge(struct pair pair)
{
    uint32_t n = 0;
    do {
        n = 1 + (uint32_t)draw(300);
    } while (!takes(pair, 1000, n));
    struct hoop_interpreter_op op = op_of(pair, n, (uint32_t)draw(n), 1, 1);
    struct hoop_plan *plan = &op.plan;
    plan->count = (UINT64_C(1) << (31 + draw(10))) + draw(1000);
    plan->chunk = plan->lanes > 1 || pair.algo == HOOP_ALGO_RING || pair.algo == HOOP_ALGO_CHAIN ||
                          pair.algo == HOOP_ALGO_PAIRWISE || pair.algo == HOOP_ALGO_TORUS
                      ? 1 + draw(1000000)
                      : plan->count;
    plan->me = (uint32_t)draw(n);
    plan->in_place = draw(2) && pair.collective != HOOP_COLL_ALLTOALL;
    plan->scratch = hoop_algo_scratch(plan);
    for (uint32_t lane = 0; lane < plan->lanes; lane++) {
        const uint64_t steps = steps_of(&op, lane);
        for (uint32_t i = 0; i < 20 && steps > 0; i++) {
            struct hoop_step step;
            assert_true(op.steps(plan, lane, i == 0 ? steps - 1 : draw(steps), &step));
            check_ref(plan, &step.send.from);
            check_ref(plan, &step.recv.to);
            check_ref(plan, &step.local.dst);
            check_ref(plan, &step.local.src);
            check_ref(plan, &step.local.own);
        }
    }
}

static void test_huge(void **state)
{
    (void)state;
    for (size_t i = 0; i < pair_count; i++) {
        for (uint32_t j = 0; j < 50 && is_over_links(pairs[i]) && takes(pairs[i], 1000, 300); j++) {
            check_huge(pairs[i]);
        }
    }
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(pairs) + 5] = {
        cmocka_unit_test(test_sequences),     cmocka_unit_test(test_sets),
        cmocka_unit_test(test_first_meeting), cmocka_unit_test(test_kept),
        cmocka_unit_test(test_huge),
    };
    static char names[COUNT_OF(pairs)][48];
    size_t count = 5;
    find_pairs();
    for (size_t i = 0; i < pair_count; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "%s by %s",
                       hoop_collectives[pairs[i].collective].name, hoop_algo_name(pairs[i].algo));
        tests[count++] = (struct CMUnitTest){names[i], test_pair, NULL, NULL, &pairs[i]};
    }
    return _cmocka_run_group_tests("collectives", tests, count, NULL, NULL);
}
