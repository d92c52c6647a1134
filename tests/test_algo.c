/*
 * The algorithms under the interpreter, and their arithmetic with counts that nobody can run.
 *
 * Up to 8 ranks every count is run with every chunk and number of slots, and the lanes take turns;
 * what is left (element size, who is in place, the schedule) is drawn. Up to 32 ranks all of it is
 * drawn. The sequence begins at 1, or at the number in the first argument.
 */
#include "interpreter.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))
#define MANY_RANKS HOOP_INTERPRETER_MAX_RANKS
#define FEW_RANKS 8

static uint64_t seed = 1;

static uint64_t draw(uint64_t below)
{
    return hoop_interpreter_random(&seed) % below;
}

static const uint64_t small_chunks[] = {1, 3, 7, 16, 1000};

static uint64_t draw_chunk(void)
{
    return small_chunks[draw(COUNT_OF(small_chunks))];
}

/* All counts up to 70, and some around what n, lines and chunks make awkward. */
static uint64_t awkward_count(uint32_t n, uint32_t i)
{
    const uint64_t more[] = {3 * n + 1, 16 * n - 1, 64 * n + 1, 127, 128, 129, 257, 1000};
    return i <= 70 ? i : i - 71 < COUNT_OF(more) ? more[i - 71] : UINT64_MAX;
}

static struct hoop_interpreter_op op_of(enum hoop_algo algo, uint32_t n, uint64_t count,
                                        uint64_t chunk)
{
    /* Hundreds of chunks show nothing that a hundred do not. */
    const struct hoop_plan plan = {.algo = algo,
                                   .n = n,
                                   .lanes = 1,
                                   .type_bytes = 1u << draw(4),
                                   .count = count,
                                   .chunk = count / chunk > 150 ? count / 100 : chunk};
    return (struct hoop_interpreter_op){
        .plan = plan, .steps = hoop_algo_steps(algo), .in_place = (uint32_t)draw(1ull << 32)};
}

static void run_case(const struct hoop_interpreter_op *ops, uint32_t op_count, uint32_t slots)
{
    const struct hoop_interpreter_case c = {.ops = ops,
                                            .op_count = op_count,
                                            .slots = slots,
                                            .oneshot_buffers = 2,
                                            .seed = hoop_interpreter_random(&seed)};
    char text[256];
    if (!hoop_interpret(&c, text, sizeof(text))) {
        const struct hoop_plan *p = &ops[0].plan;
        print_error("algo %d n %u count %llu chunk %llu lanes %u type_bytes %u head %llu tail %llu "
                    "in_place %x slots %u operations %u seed %llu: %s\n",
                    p->algo, p->n, (unsigned long long)p->count, (unsigned long long)p->chunk,
                    p->lanes, p->type_bytes, (unsigned long long)p->head,
                    (unsigned long long)p->tail, ops[0].in_place, slots, op_count,
                    (unsigned long long)c.seed, text);
        fail();
    }
}

/* ---- The algorithms ------------------------------------------------------------------------ */

/* A few ranks take every combination once, starting with all of them in place or none. */
static uint32_t in_place_of(uint64_t i)
{
    return i % 4 == 0 ? UINT32_MAX : i % 4 == 1 ? 0 : (uint32_t)draw(1ull << 32);
}

static void test_ring(void **state)
{
    (void)state;
    const uint32_t chunks = COUNT_OF(small_chunks), slots = 3;
    uint32_t at = 0;
    for (uint32_t n = 1; n <= FEW_RANKS; n++) {
        for (uint32_t i = 0; awkward_count(n, i) != UINT64_MAX; i++) {
            for (uint32_t j = 0; j < 2 * chunks * slots; j++) {
                struct hoop_interpreter_op op =
                    op_of(HOOP_ALGO_RING, n, awkward_count(n, i), small_chunks[j % chunks]);
                /* Two of four lane counts each time, others with the next count. */
                op.plan.lanes = 1 + (j / chunks / slots * 2 + i) % 4;
                op.in_place = in_place_of(at++);
                run_case(&op, 1, j / chunks % slots);
            }
        }
    }
}

static void test_ring_many(void **state)
{
    (void)state;
    for (uint32_t n = FEW_RANKS + 1; n <= MANY_RANKS; n++) {
        for (uint32_t i = 0; i < 12; i++) {
            struct hoop_interpreter_op op =
                op_of(HOOP_ALGO_RING, n, awkward_count(n, (uint32_t)draw(79)), draw_chunk());
            op.plan.lanes = 1 + (uint32_t)draw(4);
            run_case(&op, 1, (uint32_t)draw(3));
        }
    }
}

static void test_ring_sequences(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 300; i++) {
        struct hoop_interpreter_op ops[3];
        uint32_t n = 1 + (uint32_t)draw(FEW_RANKS), lanes = 1 + (uint32_t)draw(4);
        for (size_t j = 0; j < COUNT_OF(ops); j++) {
            ops[j] = op_of(HOOP_ALGO_RING, n, draw(100), draw_chunk());
            ops[j].plan.lanes = lanes;
        }
        run_case(ops, COUNT_OF(ops), (uint32_t)draw(3));
    }
}

/* Head and tail: none, some, all, more than there is; never more than SCRATCH holds. */
static void draw_edges(struct hoop_plan *plan)
{
    const uint64_t most = HOOP_SCRATCH_BYTES / plan->type_bytes;
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
    op.plan.lanes = 1 + (uint32_t)draw(2); /* they use the first only */
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

/* Every edge with every other, small counts. */
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
        op.plan.head = HOOP_SCRATCH_BYTES / 8;
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

/* Operations of all kinds behind each other, without a barrier between two of them. */
static void test_memory_sequences(void **state)
{
    (void)state;
    static const enum hoop_algo algos[] = {HOOP_ALGO_ONESHOT, HOOP_ALGO_DIRECT, HOOP_ALGO_SLAB};
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
        /* Even up to one unit, where no shard is short. */
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

/* Where a lane ends, by bisection: steps are counted without being run. */
static uint64_t steps_of(const struct hoop_plan *plan, uint32_t lane)
{
    hoop_step_fn *steps = hoop_algo_steps(plan->algo);
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

static void check_ref(const struct hoop_plan *plan, const struct hoop_ref *ref)
{
    uint64_t size = ref->space == HOOP_SPACE_SCRATCH ? HOOP_SCRATCH_BYTES / plan->type_bytes
                    : ref->space == HOOP_SPACE_SLAB  ? 2 * plan->chunk
                                                     : plan->count;
    assert_true(ref->off <= size && ref->count <= size - ref->off);
}

static void check_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k)
{
    struct hoop_step step;
    assert_true(hoop_algo_steps(plan->algo)(plan, lane, k, &step));
    check_ref(plan, &step.send.from);
    check_ref(plan, &step.recv.to);
    check_ref(plan, &step.local.dst);
    check_ref(plan, &step.local.src);
    assert_true(plan->algo != HOOP_ALGO_RING || step.send.from.count <= plan->chunk);
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
    uint64_t largest = hoop_shard(plan->count, plan->n, 0, hoop_ring_align(plan)).count;
    if (plan->algo == HOOP_ALGO_RING && plan->n > 1) {
        assert_int_equal(all, ceil_div(largest, plan->chunk) * 2 * (plan->n - 1));
    } else if (plan->algo == HOOP_ALGO_SLAB) {
        assert_int_equal(all, (ceil_div(plan->count, plan->chunk) + 1) * 5);
    }
}

static void test_huge(void **state)
{
    (void)state;
    static const enum hoop_algo algos[] = {HOOP_ALGO_RING, HOOP_ALGO_DIRECT, HOOP_ALGO_SLAB};
    const uint64_t counts[] = {(1ull << 32) + 1, 1ull << 40, (1ull << 40) - 1, (1ull << 56) + 3};
    const uint32_t ranks[] = {1, 2, 3, 32, 4096};
    for (size_t i = 0; i < COUNT_OF(algos) * COUNT_OF(counts) * COUNT_OF(ranks); i++) {
        struct hoop_plan plan = {.algo = algos[i % COUNT_OF(algos)],
                                 .n = ranks[i / COUNT_OF(algos) % COUNT_OF(ranks)],
                                 .lanes = 1 + (uint32_t)draw(4),
                                 .type_bytes = 1u << draw(4),
                                 .count = counts[i / COUNT_OF(algos) / COUNT_OF(ranks)],
                                 .chunk = 1 + draw(1 << 20),
                                 .head = 700,
                                 .tail = 9};
        plan.me = (uint32_t)draw(plan.n);
        check_huge(&plan);
    }
}

/* A connected operation of 2^40 bytes: the shards that the ranks write make up the interior. */
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

static void test_table(void **state)
{
    (void)state;
    assert_null(hoop_algo_steps(HOOP_ALGO_AUTO));
    assert_true(hoop_algo_steps(HOOP_ALGO_RING) == hoop_ring_step);
    assert_true(hoop_algo_steps(HOOP_ALGO_ONESHOT) == hoop_oneshot_step);
    assert_true(hoop_algo_steps(HOOP_ALGO_DIRECT) == hoop_direct_step);
    assert_true(hoop_algo_steps(HOOP_ALGO_SLAB) == hoop_slab_step);
}

int main(int argc, char **argv)
{
    static enum hoop_algo oneshot = HOOP_ALGO_ONESHOT, direct = HOOP_ALGO_DIRECT,
                          slab = HOOP_ALGO_SLAB;
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 0);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_huge),
        cmocka_unit_test(test_direct_huge_interior),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_ring_many),
        cmocka_unit_test(test_ring_sequences),
        {"test_oneshot", test_memory, NULL, NULL, &oneshot},
        {"test_direct", test_memory, NULL, NULL, &direct},
        {"test_slab", test_memory, NULL, NULL, &slab},
        cmocka_unit_test(test_direct_edges),
        cmocka_unit_test(test_direct_pages),
        cmocka_unit_test(test_oneshot_largest),
        cmocka_unit_test(test_memory_sequences),
    };
    return cmocka_run_group_tests_name("algo", tests, NULL, NULL);
}
