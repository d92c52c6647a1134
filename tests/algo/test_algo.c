/*
 * The algorithms under the interpreter, and their arithmetic with counts that nobody can run.
 *
 * Up to 8 ranks every count is run with every chunk and number of slots, and the lanes take turns;
 * what is left (element size, who is in place, the schedule) is drawn. Up to 32 ranks all of it is
 * drawn. The sequence begins at 1, or at the number in the first argument.
 */
#include "algo/algo_case.h"
#include "cost/cost.h"
#include "plan/plan.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const uint64_t small_chunks[] = {1, 3, 7, 16, 1000};

static uint32_t draw_radix(void)
{
    return 2 + (uint32_t)draw(HOOP_RADIX_MOST - 1);
}

static uint64_t draw_chunk(void)
{
    return small_chunks[draw(COUNT_OF(small_chunks))];
}

/* All counts up to 70, and some next to multiples of n, of lines and of chunks. */
static uint64_t awkward_count(uint32_t n, uint32_t i)
{
    const uint64_t more[] = {3 * n + 1, 16 * n - 1, 64 * n + 1, 127, 128, 129, 257, 1000};
    return i <= 70 ? i : i - 71 < COUNT_OF(more) ? more[i - 71] : UINT64_MAX;
}

static struct hoop_interpreter_op op_of(enum hoop_algo algo, uint32_t n, uint64_t count,
                                        uint64_t chunk)
{
    /* Hundreds of chunks find nothing that a hundred do not. */
    const struct hoop_plan plan = {.algo = algo,
                                   .n = n,
                                   .lanes = 1,
                                   .radix = draw_radix(),
                                   .type_bytes = 1u << draw(4),
                                   .count = count,
                                   .chunk = count / chunk > 150 ? count / 100 : chunk,
                                   .slabs = 2};
    return (struct hoop_interpreter_op){.plan = plan,
                                        .steps = hoop_algo_steps(HOOP_COLL_ALL_REDUCE, algo),
                                        .in_place = (uint32_t)draw(1ull << 32)};
}

/* ---- The algorithms ------------------------------------------------------------------------ */

/* A few ranks take every combination once, beginning with all in place, or none. */
static uint32_t in_place_of(uint64_t i)
{
    return i % 4 == 0 ? UINT32_MAX : i % 4 == 1 ? 0 : (uint32_t)draw(1ull << 32);
}

static struct hoop_interpreter_op link_op(enum hoop_algo algo, uint32_t n, uint64_t count,
                                          uint64_t chunk, uint32_t lanes)
{
    struct hoop_interpreter_op op = op_of(algo, n, count, chunk);
    op.plan.lanes = lanes;
    if (algo == HOOP_ALGO_BRUCK) {
        op.plan.chunk = count + draw(2);
    }
    return op;
}

static void test_links(void **state)
{
    enum hoop_algo algo = *(const enum hoop_algo *)*state;
    const uint32_t chunks = algo == HOOP_ALGO_BRUCK ? 1 : COUNT_OF(small_chunks), slots = 3;
    uint32_t at = 0;
    for (uint32_t n = 1; n <= FEW_RANKS; n++) {
        for (uint32_t i = 0; awkward_count(n, i) != UINT64_MAX; i++) {
            for (uint32_t j = 0; j < 2 * chunks * slots; j++) {
                /* Two of four lane counts each time; the others come with the next count. */
                struct hoop_interpreter_op op =
                    link_op(algo, n, awkward_count(n, i), small_chunks[j % chunks],
                            1 + (j / chunks / slots * 2 + i) % 4);
                op.in_place = in_place_of(at++);
                run_case(&op, 1, j / chunks % slots);
            }
        }
    }
}

static void test_links_many(void **state)
{
    enum hoop_algo algo = *(const enum hoop_algo *)*state;
    for (uint32_t n = FEW_RANKS + 1; n <= MANY_RANKS; n++) {
        for (uint32_t i = 0; i < 12; i++) {
            struct hoop_interpreter_op op = link_op(algo, n, awkward_count(n, (uint32_t)draw(79)),
                                                    draw_chunk(), 1 + (uint32_t)draw(4));
            run_case(&op, 1, (uint32_t)draw(3));
        }
        for (uint64_t count = 0; count < 3; count++) {
            struct hoop_interpreter_op op = link_op(algo, n, count, 1, 2);
            run_case(&op, 1, (uint32_t)draw(3));
        }
    }
}

static const enum hoop_algo link_algos[] = {HOOP_ALGO_RING, HOOP_ALGO_BRUCK, HOOP_ALGO_PAIRWISE};

static void test_link_sequences(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 500; i++) {
        struct hoop_interpreter_op ops[3];
        uint32_t n = 1 + (uint32_t)draw(FEW_RANKS), lanes = 1 + (uint32_t)draw(4);
        for (size_t j = 0; j < COUNT_OF(ops); j++) {
            enum hoop_algo algo = link_algos[draw(COUNT_OF(link_algos))];
            ops[j] = link_op(algo, n, draw(100), draw_chunk(), lanes);
            ops[j].plan.type_bytes = ops[0].plan.type_bytes;
        }
        run_case(ops, COUNT_OF(ops), (uint32_t)draw(3));
    }
}

/* ---- Ranks in different operations over links ---------------------------------------------- */

static struct hoop_plan any_link_plan(uint32_t me, uint32_t n)
{
    const enum hoop_algo algo = link_algos[draw(COUNT_OF(link_algos))];
    uint64_t count = draw(3) ? draw(UINT64_C(3) * n) : draw(1ull << 40);
    /* The ring is never given fewer elements than ranks. */
    count += algo == HOOP_ALGO_RING && count < n ? n : 0;
    return (struct hoop_plan){.algo = algo,
                              .me = me,
                              .n = n,
                              .lanes = 1 + (uint32_t)draw(4),
                              .radix = draw_radix(),
                              .type_bytes = 1u << draw(4),
                              .in_place = draw(2),
                              .count = count,
                              .chunk = algo == HOOP_ALGO_BRUCK ? count : 1 + draw(10000)};
}

/*
 * If neighbours are in different operations, the first message of either on the link between them,
 * in lane 0, meets the first one of the other, and nothing earlier can keep them from getting
 * there. So the header of that chunk tells the receiver that the operations differ.
 */
static void test_first_meeting(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MANY_RANKS; n++) {
        for (uint32_t i = 0; i < 1000; i++) {
            uint32_t me = (uint32_t)draw(n), next = (me + 1) % n;
            struct hoop_plan mine = any_link_plan(me, n), theirs = any_link_plan(next, n);
            struct hoop_step send, recv;
            assert_true(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, mine.algo)(&mine, 0, 0, &send));
            assert_true(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, theirs.algo)(&theirs, 0, 0, &recv));
            assert_int_equal(send.send.peer, next);
            assert_int_equal(recv.recv.peer, me);
            assert_true(send.local.op == HOOP_LOCAL_NONE || send.local.op == HOOP_LOCAL_COPY);
            assert_true(recv.local.op == HOOP_LOCAL_NONE || recv.local.op == HOOP_LOCAL_COPY);
        }
    }
}

/* ---- Over shared memory -------------------------------------------------------------------- */

/* Elements at head and tail: none, some, all, or more than there are; never more than SCRATCH
 * holds. */
static void draw_edges(struct hoop_plan *plan)
{
    const uint64_t most = hoop_scratch_bytes() / plan->type_bytes;
    const uint64_t some[] = {0, 1, 5, plan->count / 2, plan->count, plan->count + 3};
    plan->head = some[draw(COUNT_OF(some))];
    plan->tail = some[draw(COUNT_OF(some))];
    plan->head = plan->head < most ? plan->head : most;
    plan->tail = plan->tail < most - plan->head ? plan->tail : most - plan->head;
}

static void run_memory(enum hoop_algo algo, uint32_t n, uint64_t count, uint64_t chunk,
                       uint32_t in_place)
{
    struct hoop_interpreter_op op = op_of(algo, n, count, chunk);
    op.in_place = in_place;
    op.plan.lanes = 1 + (uint32_t)draw(2); /* only the first lane is used */
    if (algo == HOOP_ALGO_DIRECT) {
        draw_edges(&op.plan);
    }
    run_case(&op, 1, 0);
}

static void test_memory(void **state)
{
    enum hoop_algo algo = *(const enum hoop_algo *)*state;
    for (uint32_t n = 1; n <= FEW_RANKS; n++) {
        for (uint32_t i = 0; awkward_count(n, i) != UINT64_MAX; i++) {
            for (uint32_t j = 0; j < COUNT_OF(small_chunks) * 4; j++) {
                run_memory(algo, n, awkward_count(n, i), small_chunks[j / 4], in_place_of(j));
            }
        }
    }
    for (uint32_t n = FEW_RANKS + 1; n <= MANY_RANKS; n++) {
        for (uint32_t i = 0; i < 12; i++) {
            run_memory(algo, n, awkward_count(n, (uint32_t)draw(79)), draw_chunk(), in_place_of(i));
        }
    }
}

/* Every head with every tail, for small counts. */
static void test_direct_edges(void **state)
{
    (void)state;
    for (uint64_t count = 0; count <= 9; count++) {
        for (uint64_t i = 0; i < (count + 2) * (count + 2); i++) {
            struct hoop_interpreter_op op = op_of(HOOP_ALGO_DIRECT, 3, count, 2);
            op.plan.head = i / (count + 2);
            op.plan.tail = i % (count + 2);
            run_case(&op, 1, 0);
        }
    }
}

/* Enough elements for shards of whole pages; edges of a page each. */
static void test_direct_pages(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        struct hoop_interpreter_op op = op_of(HOOP_ALGO_DIRECT, n, 16 * 512 * n + 1100, 3000);
        op.plan.type_bytes = 8;
        op.plan.head = 511;
        op.plan.tail = 13;
        run_case(&op, 1, 0);
        op.plan.head = hoop_scratch_bytes() / 8;
        op.plan.tail = 0;
        run_case(&op, 1, 0);
    }
}

static void test_oneshot_largest(void **state)
{
    (void)state;
    for (uint32_t type_bytes = 1; type_bytes <= 8; type_bytes *= 2) {
        struct hoop_interpreter_op op =
            op_of(HOOP_ALGO_ONESHOT, 2, HOOP_ONESHOT_MAX_BYTES / type_bytes, 1);
        op.plan.type_bytes = type_bytes;
        run_case(&op, 1, 0);
    }
}

/* Operations of all kinds one after the other, without barriers in between. */
static void test_memory_sequences(void **state)
{
    (void)state;
    static const enum hoop_algo algos[] = {HOOP_ALGO_ONESHOT, HOOP_ALGO_DIRECT, HOOP_ALGO_SLAB,
                                           HOOP_ALGO_CMA};
    for (uint32_t i = 0; i < 1500; i++) {
        struct hoop_interpreter_op ops[5];
        uint32_t n = 1 + (uint32_t)draw(i % 10 ? FEW_RANKS : MANY_RANKS);
        uint64_t same = draw(2) ? draw(3) : COUNT_OF(algos);
        for (size_t j = 0; j < COUNT_OF(ops); j++) {
            enum hoop_algo algo = algos[same < COUNT_OF(algos) ? same : draw(COUNT_OF(algos))];
            ops[j] = op_of(algo, n, draw(70), draw_chunk());
            ops[j].plan.type_bytes = ops[0].plan.type_bytes;
            if (algo == HOOP_ALGO_DIRECT) {
                draw_edges(&ops[j].plan);
            }
        }
        run_case(ops, COUNT_OF(ops), 0);
    }
}

/* ---- Arithmetic ---------------------------------------------------------------------------- */

static void check_shards(uint64_t total, uint64_t parts, uint64_t align)
{
    uint64_t end = 0, first = hoop_shard(total, parts, 0, align).count;
    for (uint64_t i = 0; i < parts; i++) {
        struct hoop_range shard = hoop_shard(total, parts, i, align);
        assert_int_equal(shard.off, end);
        assert_true(shard.count <= total - end && shard.count <= first);
        end += shard.count;
        assert_true(end == total || end % align == 0);
        /* Shards are even up to one unit, so none is much shorter. */
        assert_true(first - shard.count <= align || end == total);
    }
    assert_int_equal(end, total);
}

static void test_shards(void **state)
{
    (void)state;
    for (uint64_t total = 0; total <= 200; total++) {
        for (uint64_t parts = 1; parts <= 33; parts++) {
            for (uint64_t align = 1; align <= 64; align *= 2) {
                check_shards(total, parts, align);
            }
        }
    }
    const uint64_t huge[] = {1ull << 32, (1ull << 40) + 7, UINT64_MAX / 8, UINT64_MAX};
    for (size_t i = 0; i < COUNT_OF(huge); i++) {
        check_shards(huge[i], 1 + draw(100000), 1ull << draw(13));
        check_shards(huge[i], 7, 512);
    }
}

/* The number of a lane's steps, by bisection, without running them. */
static uint64_t steps_of(const struct hoop_plan *plan, uint32_t lane)
{
    hoop_step_fn *steps = hoop_algo_steps(HOOP_COLL_ALL_REDUCE, plan->algo);
    struct hoop_step step;
    uint64_t low = 0, high = UINT64_MAX;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (steps(plan, lane, middle, &step)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static uint64_t scratch_of(const struct hoop_plan *plan)
{
    return hoop_plan_is_over_links(plan->algo) ? plan->n * plan->chunk
                                               : hoop_scratch_bytes() / plan->type_bytes;
}

static void check_ref(const struct hoop_plan *plan, const struct hoop_ref *ref)
{
    const bool scratch = ref->space == HOOP_SPACE_SCRATCH;
    uint64_t count = ref->count * (scratch && ref->member == HOOP_EVERY ? plan->n : 1);
    uint64_t size = scratch                         ? scratch_of(plan)
                    : ref->space == HOOP_SPACE_SLAB ? plan->slabs * plan->chunk
                                                    : plan->count;
    assert_true(ref->off <= size && count <= size - ref->off);
}

static void check_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k)
{
    struct hoop_step step;
    assert_true(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, plan->algo)(plan, lane, k, &step));
    check_ref(plan, &step.send.from);
    check_ref(plan, &step.recv.to);
    check_ref(plan, &step.local.dst);
    check_ref(plan, &step.local.src);
    check_ref(plan, &step.local.own);
    check_ref(plan, &step.local.kept);
    assert_true(step.send.from.count <= plan->chunk && step.recv.to.count <= plan->chunk);
    assert_true(step.local.dst.count == step.local.src.count);
}

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static void check_huge(struct hoop_plan *plan)
{
    uint64_t all = 0;
    for (uint32_t lane = 0; lane < plan->lanes; lane++) {
        uint64_t steps = steps_of(plan, lane);
        for (uint64_t i = 0; i < 50 && i < steps; i++) {
            check_step(plan, lane, i);
            check_step(plan, lane, steps - 1 - i);
            check_step(plan, lane, draw(steps));
        }
        all += steps;
    }
    uint64_t columns = ceil_div(hoop_shard_of(plan, 0).count, plan->chunk);
    if (plan->algo == HOOP_ALGO_RING && plan->n > 1) {
        assert_int_equal(all, columns * 2 * (plan->n - 1));
    } else if (plan->algo == HOOP_ALGO_PAIRWISE && plan->n > 1) {
        assert_int_equal(all, columns * (2 * plan->n - 1));
    } else if (plan->algo == HOOP_ALGO_SLAB) {
        assert_int_equal(all, 2 + (ceil_div(plan->count, plan->chunk) + 1) * 7);
    }
}

static void test_huge(void **state)
{
    (void)state;
    static const enum hoop_algo algos[] = {HOOP_ALGO_RING, HOOP_ALGO_PAIRWISE, HOOP_ALGO_DIRECT,
                                           HOOP_ALGO_SLAB, HOOP_ALGO_CMA};
    const uint64_t counts[] = {(1ull << 32) + 1, 1ull << 40, (1ull << 40) - 1, (1ull << 56) + 3};
    const uint32_t ranks[] = {1, 2, 3, 32, 4096};
    for (size_t i = 0; i < COUNT_OF(algos) * COUNT_OF(counts) * COUNT_OF(ranks); i++) {
        struct hoop_plan plan = {.algo = algos[i % COUNT_OF(algos)],
                                 .n = ranks[i / COUNT_OF(algos) % COUNT_OF(ranks)],
                                 .lanes = 1 + (uint32_t)draw(4),
                                 .type_bytes = 1u << draw(4),
                                 .count = counts[i / COUNT_OF(algos) / COUNT_OF(ranks)],
                                 .chunk = 1 + draw(1 << 20),
                                 .slabs = 2,
                                 .head = 700,
                                 .tail = 9};
        plan.me = (uint32_t)draw(plan.n);
        check_huge(&plan);
    }
}

/* An operation on connected memory of 2^40 bytes: the shards that the ranks write make up the
 * interior. */
static void test_direct_huge_interior(void **state)
{
    (void)state;
    struct hoop_plan plan = {.algo = HOOP_ALGO_DIRECT,
                             .n = 7,
                             .lanes = 1,
                             .type_bytes = 2,
                             .count = (1ull << 40) + 5,
                             .chunk = 1ull << 37,
                             .head = 11,
                             .tail = 3};
    uint64_t end = plan.head;
    for (plan.me = 0; plan.me < plan.n; plan.me++) {
        struct hoop_step step;
        for (uint64_t k = 0; hoop_direct_step(&plan, 0, k, &step); k++) {
            if (step.local.op == HOOP_LOCAL_SPREAD) {
                assert_int_equal(step.local.dst.off, end);
                assert_true(plan.me == 0 || k > 4 || (end - plan.head) % 2048 == 0);
                end += step.local.dst.count;
            }
        }
    }
    assert_int_equal(end, plan.count - plan.tail);
}

static uint64_t power(uint64_t base, uint64_t exponent)
{
    return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

/* Counts rounds and steps of an all_reduce by bruck: n-1 vectors in each direction, at most n/2 in
 * one message. */
static uint64_t check_bruck(const struct hoop_plan *plan, uint64_t *ret_rounds)
{
    struct hoop_step step;
    uint64_t k = 0, sent = 0, received = 0;
    *ret_rounds = 0;
    for (; hoop_bruck_step(plan, 0, k, &step) && step.send.peer >= 0; k++) {
        assert_true(step.send.from.count <= plan->n / 2 * plan->count);
        assert_int_equal((plan->me + 1 + received / plan->count) % plan->n, step.send.peer);
        assert_int_equal(step.recv.to.off, received + plan->count);
        sent += step.send.from.count;
        received += step.recv.to.count;
        *ret_rounds += !step.more;
    }
    assert_int_equal(sent, (plan->n - 1) * plan->count);
    assert_int_equal(received, sent);
    assert_int_equal(step.local.op, HOOP_LOCAL_REDUCE);
    assert_false(hoop_bruck_step(plan, 0, k + 1, &step));
    return k;
}

static struct hoop_plan bruck_plan(uint32_t n, uint32_t radix)
{
    return (struct hoop_plan){.algo = HOOP_ALGO_BRUCK,
                              .me = n / 3,
                              .n = n,
                              .lanes = 1,
                              .radix = radix,
                              .type_bytes = 1,
                              .count = 3,
                              .chunk = 3};
}

static void test_bruck_traffic(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 2000; n++) {
        for (uint32_t radix = 2; radix <= HOOP_RADIX_MOST; radix++) {
            const struct hoop_plan plan = bruck_plan(n, radix);
            uint64_t rounds = 0;
            const uint64_t exchanges = check_bruck(&plan, &rounds);
            assert_true(power(radix, rounds) >= n && power(radix, rounds - 1) < n);
            assert_true(exchanges <= rounds * (radix - 1));
            assert_true(radix < n || (exchanges == n - 1 && rounds == 1));
        }
    }
}

/* The number of copies in a lane. */
static uint64_t copies_of(const struct hoop_plan *plan)
{
    hoop_step_fn *const steps = hoop_algo_steps(plan->collective, plan->algo);
    struct hoop_step step;
    uint64_t ret = 0;
    for (uint64_t k = 0; steps(plan, 0, k, &step); k++) {
        ret += step.local.op == HOOP_LOCAL_COPY;
    }
    return ret;
}

/* A rank copies its own vector only if it sends it on behind those of others. */
static void test_own_stays(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 17; n++) {
        for (uint32_t me = 0; me < n; me++) {
            struct hoop_plan plan = bruck_plan(n, HOOP_RADIX_MOST);
            plan.me = me;
            assert_int_equal(copies_of(&plan), n > HOOP_RADIX_MOST);
            plan.algo = HOOP_ALGO_PAIRWISE;
            assert_int_equal(copies_of(&plan), 0);
            plan.collective = HOOP_COLL_REDUCE_SCATTER;
            assert_int_equal(copies_of(&plan), 0);
            plan.collective = HOOP_COLL_REDUCE;
            assert_int_equal(copies_of(&plan), 0);
            plan.algo = HOOP_ALGO_BINOMIAL;
            assert_int_equal(copies_of(&plan), me > 0 && (n - me) % 2 == 0);
        }
    }
}

/* The radix that the cost model finds cheapest is chosen, and one more rank never takes less
 * time. */
static void test_radix(void **state)
{
    (void)state;
    for (int c = HOOP_COST_LINKS; c < HOOP_COST_CLASSES; c++) {
        const enum hoop_cost_class of = (enum hoop_cost_class)c;
        uint64_t before = 0;
        for (uint32_t n = 1; n <= 4096; n++) {
            const uint32_t best = hoop_cost_radix(of, n);
            struct hoop_plan plan = bruck_plan(n, best);
            const uint64_t least = hoop_cost(of, 0, &plan, 1000);
            assert_in_range(best, 2, HOOP_RADIX_MOST);
            assert_true(least >= before);
            before = least;
            for (plan.radix = 2; plan.radix <= HOOP_RADIX_MOST; plan.radix++) {
                assert_true(least <= hoop_cost(of, 0, &plan, 1000));
            }
        }
        assert_int_equal(hoop_cost_radix(of, 2), 2);
    }
    assert_int_equal(hoop_cost_radix(HOOP_COST_LINKS, 4), 4);
    /* The same number of messages, and fewer rounds. */
    assert_int_equal(hoop_cost_radix(HOOP_COST_LINKS_OVERSUBSCRIBED, 3), 3);
    assert_int_equal(hoop_cost_radix(HOOP_COST_LINKS_OVERSUBSCRIBED, 4), 2);
}

static void test_table(void **state)
{
    (void)state;
    assert_null(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, HOOP_ALGO_AUTO));
    assert_true(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, HOOP_ALGO_RING) == hoop_ring_step);
    assert_true(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, HOOP_ALGO_ONESHOT) == hoop_oneshot_step);
    assert_true(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, HOOP_ALGO_DIRECT) == hoop_direct_step);
    assert_true(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, HOOP_ALGO_SLAB) == hoop_slab_step);
    assert_true(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, HOOP_ALGO_CMA) == hoop_cma_step);
    assert_true(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, HOOP_ALGO_BRUCK) == hoop_bruck_step);
    assert_true(hoop_algo_steps(HOOP_COLL_ALL_REDUCE, HOOP_ALGO_PAIRWISE) == hoop_pairwise_step);
}

int main(int argc, char **argv)
{
    static enum hoop_algo ring = HOOP_ALGO_RING, bruck = HOOP_ALGO_BRUCK,
                          pairwise = HOOP_ALGO_PAIRWISE, oneshot = HOOP_ALGO_ONESHOT,
                          direct = HOOP_ALGO_DIRECT, slab = HOOP_ALGO_SLAB, cma = HOOP_ALGO_CMA;
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 0);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_huge),
        cmocka_unit_test(test_direct_huge_interior),
        cmocka_unit_test(test_bruck_traffic),
        cmocka_unit_test(test_own_stays),
        cmocka_unit_test(test_radix),
        {"test_ring", test_links, NULL, NULL, &ring},
        {"test_bruck", test_links, NULL, NULL, &bruck},
        {"test_pairwise", test_links, NULL, NULL, &pairwise},
        {"test_ring_many", test_links_many, NULL, NULL, &ring},
        {"test_bruck_many", test_links_many, NULL, NULL, &bruck},
        {"test_pairwise_many", test_links_many, NULL, NULL, &pairwise},
        cmocka_unit_test(test_link_sequences),
        cmocka_unit_test(test_first_meeting),
        {"test_oneshot", test_memory, NULL, NULL, &oneshot},
        {"test_direct", test_memory, NULL, NULL, &direct},
        {"test_slab", test_memory, NULL, NULL, &slab},
        {"test_cma", test_memory, NULL, NULL, &cma},
        cmocka_unit_test(test_direct_edges),
        cmocka_unit_test(test_direct_pages),
        cmocka_unit_test(test_oneshot_largest),
        cmocka_unit_test(test_memory_sequences),
    };
    return cmocka_run_group_tests_name("algo", tests, NULL, NULL);
}
