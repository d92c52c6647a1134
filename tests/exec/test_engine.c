/*
 * The engine over links: the results of all algorithms bit for bit, under every order of events and
 * every fault. Steps that no algorithm has are in test_engine_steps.c.
 *
 *     test_engine [seed]      the same seed, the same run (but for the threads)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fakes/engine_world.h"
#include "fakes/fake_transport.h"
#include "fakes/faulty.h"
#include "transports/table.h"

#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

/* ---- Running a world ---- */

static void print_run(const struct world_setup *setup, const struct engine_case *c,
                      const struct world_outcome *outcome)
{
    print_error(
        "seed %llu: %s, n %u, slots %u, first case: algorithm %d, %s %s, count %llu, chunk %llu, "
        "lanes %u, in place %#x, skew %u: %s%s\n",
        (unsigned long long)seed, setup->transport->name, setup->n, setup->slots, (int)c->algo,
        hoop_datatype_name(c->type), hoop_op_name(c->op), (unsigned long long)c->count,
        (unsigned long long)c->chunk, c->lanes, c->in_place, c->skew, outcome->hung ? "hung " : "",
        outcome->wrong != NULL ? outcome->wrong : "");
    for (uint32_t r = 0; r < setup->n; r++) {
        if (outcome->failure[r].code != HOOP_OK) {
            print_error("  rank %u: %s\n", r, outcome->failure[r].text);
        }
    }
}

static bool ended_well(const struct world_setup *setup, const struct world_outcome *outcome)
{
    bool well = !outcome->hung && outcome->wrong == NULL;
    for (uint32_t r = 0; r < setup->n; r++) {
        well = well && outcome->failure[r].code == HOOP_OK;
    }
    return well;
}

static void run_well(const struct world_setup *setup, const struct engine_case *cases,
                     unsigned n_cases)
{
    struct world_outcome outcome;
    world_run(setup, cases, n_cases, &outcome);
    if (!ended_well(setup, &outcome)) {
        print_run(setup, cases, &outcome);
        fail();
    }
}

#define N_ALGOS 3
static enum hoop_algo algo_at(uint64_t i)
{
    static const enum hoop_algo all[N_ALGOS] = {HOOP_ALGO_RING, HOOP_ALGO_BRUCK,
                                                HOOP_ALGO_PAIRWISE};
    return all[i % N_ALGOS];
}

/* The transports that the tests use in turn: fake, inproc, shm. */
#define N_TRANSPORTS 3
static const struct hoop_transport *transport_at(uint64_t i)
{
    static const struct hoop_transport *const all[N_TRANSPORTS] = {
        &fake_transport, &hoop_transport_inproc, &hoop_transport_shm};
    return all[i % N_TRANSPORTS];
}

static void fake_script_random(uint64_t *random, uint32_t least_slots)
{
    const struct fake_script script = {
        .seed = engine_random(random, UINT32_MAX),
        .slots = least_slots + (uint32_t)engine_random(random, 3),
        .again_percent = 30 * (unsigned)engine_random(random, 3),
        .late_percent = 30 * (unsigned)engine_random(random, 3),
    };
    fake_play(&script);
}

/* ---- Results ---- */

/* Runs so many worlds, each with a few operations one after the other. */
static void run_sample(const struct hoop_transport *transport, unsigned worlds, bool threads)
{
    uint64_t random = seed;
    for (unsigned i = 0; i < worlds; i++) {
        fake_script_random(&random, 0);
        const struct world_setup setup = {
            .transport = transport,
            .n = 1 + (uint32_t)engine_random(&random, threads ? 4 : ENGINE_MAX_RANKS),
            .slots = 1 + (uint32_t)engine_random(&random, 3),
            .seed = engine_random(&random, UINT32_MAX),
            .threads = threads,
            .no_link_percent = 40 * (unsigned)engine_random(&random, 2),
        };
        struct engine_case cases[3];
        const unsigned n_cases = 1 + (unsigned)engine_random(&random, 3);
        for (unsigned c = 0; c < n_cases; c++) {
            cases[c] = engine_case_random(&random, setup.n);
        }
        run_well(&setup, cases, n_cases);
    }
}

static void test_results_fake(void **state)
{
    (void)state;
    run_sample(&fake_transport, 500, false);
    assert_int_equal(fake_outstanding(), 0);
    assert_true(fake_placed() > 1000);
}

static void test_results_inproc(void **state)
{
    (void)state;
    run_sample(&hoop_transport_inproc, 200, false);
}

static void test_results_shm(void **state)
{
    (void)state;
    run_sample(&hoop_transport_shm, 200, false);
}

/* In a torus the gathered parts are put in their places in two levels, inside machines and between
 * them: 3 parts per rank. */
static void test_torus_places(void **state)
{
    (void)state;
    const struct fake_script script = {.seed = seed, .slots = 2};
    const struct world_setup setup = {
        .transport = &fake_transport, .n = 4, .slots = 2, .seed = seed};
    const struct engine_case c = {.algo = HOOP_ALGO_TORUS,
                                  .type = HOOP_INT32,
                                  .op = HOOP_SUM,
                                  .count = 40,
                                  .chunk = 10,
                                  .lanes = 1,
                                  .seed = 3};
    const unsigned long before = fake_placed();
    fake_play(&script);
    run_well(&setup, &c, 1);
    assert_int_equal(fake_placed() - before, 12);
}

/* Every type and operation once with every algorithm, all in one world over the same links. */
static void test_types_and_ops(void **state)
{
    (void)state;
    struct engine_case cases[HOOP_NUM_DATATYPES * HOOP_NUM_OPS * N_ALGOS];
    const unsigned n_cases = sizeof(cases) / sizeof(cases[0]);
    for (unsigned i = 0; i < n_cases; i++) {
        const unsigned type = i / HOOP_NUM_OPS / N_ALGOS;
        cases[i] = (struct engine_case){.algo = algo_at(i),
                                        .type = (hoop_datatype_t)type,
                                        .op = (hoop_red_op_t)(i / N_ALGOS % HOOP_NUM_OPS),
                                        .count = 203,
                                        .chunk = 29,
                                        .lanes = 1 + i % 4,
                                        .in_place = i * 37,
                                        .seed = seed + i};
    }
    for (uint32_t n = 2; n <= ENGINE_MAX_RANKS; n++) {
        const struct world_setup setup = {
            .transport = &hoop_transport_inproc, .n = n, .slots = 2, .seed = seed};
        run_well(&setup, cases, n_cases);
    }
}

/* The world itself checks that no rank ends an operation before all have begun it. */
static void test_late_ranks(void **state)
{
    (void)state;
    uint64_t random = seed;
    for (uint32_t n = 2; n <= ENGINE_MAX_RANKS; n++) {
        for (uint32_t late = 0; late < n; late++) {
            const struct engine_case cases[] = {{.algo = HOOP_ALGO_BRUCK, .lanes = 1},
                                                engine_case_random(&random, n),
                                                {.algo = HOOP_ALGO_BRUCK, .lanes = 1}};
            fake_script_random(&random, 1);
            const struct world_setup setup = {.transport = transport_at(n),
                                              .n = n,
                                              .slots = 2,
                                              .seed = engine_random(&random, UINT32_MAX),
                                              .late = 1u << late};
            run_well(&setup, cases, 3);
        }
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_TRANSPORTS; i++) {
        run_sample(transport_at(i), 6, true);
    }
}

/* ---- Faults ---- */

/* Small enough to try a fault at every call: 3 ranks, 2 lanes. */
static struct engine_case small_case(enum hoop_algo algo)
{
    return (struct engine_case){.algo = algo,
                                .type = HOOP_INT32,
                                .op = HOOP_SUM,
                                .count = 50,
                                .chunk = 9,
                                .lanes = 2,
                                .in_place = 2,
                                .seed = 3};
}

/* How many receives all ranks post; there are as many sends. */
static uint64_t small_parts(enum hoop_algo algo)
{
    return algo == HOOP_ALGO_BRUCK ? UINT64_C(3) * 2 : UINT64_C(3) * 2 * 4;
}

static struct world_setup faulty_setup(unsigned transport)
{
    const struct fake_script script = {.seed = seed, .slots = 1};
    fake_play(&script);
    return (struct world_setup){
        .transport = faulty_decorate(transport_at(transport)), .n = 3, .slots = 2, .seed = seed};
}

static void test_again_and_late(void **state)
{
    (void)state;
    uint64_t random = seed;
    for (unsigned i = 0; i < 150; i++) {
        const struct faulty_config config = {
            .seed = engine_random(&random, UINT32_MAX),
            .again_every = 2 * (uint32_t)engine_random(&random, 3),
            .again_chance = (uint32_t)engine_random(&random, 80),
            .late = (uint32_t)engine_random(&random, 6),
        };
        faulty_configure(&config);
        fake_script_random(&random, 0);
        const struct world_setup setup = {.transport = faulty_decorate(transport_at(i)),
                                          .n = 2 + (uint32_t)engine_random(&random, 4),
                                          .slots = 1 + (uint32_t)engine_random(&random, 2),
                                          .seed = engine_random(&random, UINT32_MAX),
                                          .threads = i < N_TRANSPORTS};
        const struct engine_case cases[] = {engine_case_random(&random, setup.n),
                                            engine_case_random(&random, setup.n)};
        run_well(&setup, cases, 2);
    }
    faulty_configure(NULL);
}

/* Makes call number `at` of all ranks' links fail. Returns whether there was such a call. */
static bool run_failing(enum hoop_algo algo, unsigned transport, enum faulty_call call, uint64_t at,
                        uint32_t late)
{
    const struct faulty_config config = {.seed = seed + at,
                                         .late = late,
                                         .fail_call = call,
                                         .fail_at = at,
                                         .fail_code = HOOP_OUT_OF_MEMORY};
    faulty_configure(&config);
    struct world_setup setup = faulty_setup(transport);
    setup.seed += at;
    const struct engine_case cases[] = {small_case(algo), small_case(algo)};
    struct world_outcome outcome;
    world_run(&setup, cases, 2, &outcome);
    /* A fault in a part that no rank waited for any more has no effect. */
    const bool struck = faulty_calls(call) >= at;
    const bool seen = !ended_well(&setup, &outcome);
    const struct hoop_failure *first = &outcome.failure[outcome.first];
    const bool told = first->code == HOOP_OUT_OF_MEMORY && strstr(first->text, "injected") &&
                      strstr(first->text, "rank ") && first->rank >= 0;
    const bool right = seen ? struck && told : !struck || call == FAULTY_PROGRESS;
    if (outcome.hung || outcome.wrong != NULL || !right) {
        print_error("call %d of kind %d, late %u\n", (int)at, (int)call, late);
        print_run(&setup, cases, &outcome);
        fail();
    }
    assert_int_equal(fake_outstanding(), 0);
    return struck;
}

/* Makes each call of a kind fail in turn. Returns how many there were. */
static uint64_t run_all_failing(enum hoop_algo algo, unsigned transport, enum faulty_call call,
                                uint32_t late)
{
    uint64_t at = 1;
    while (run_failing(algo, transport, call, at, late)) {
        at += call == FAULTY_PROGRESS ? 3 : 1;
    }
    return at - 1;
}

static void test_failing_calls(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_TRANSPORTS * N_ALGOS; i++) {
        const unsigned transport = i / N_ALGOS;
        const enum hoop_algo algo = algo_at(i);
        for (uint32_t late = 0; late < 4; late += 3) {
            const uint64_t sends = run_all_failing(algo, transport, FAULTY_SEND, late);
            const uint64_t recvs = run_all_failing(algo, transport, FAULTY_RECV, late);
            const uint64_t moves = run_all_failing(algo, transport, FAULTY_PROGRESS, late);
            assert_true(sends >= recvs && moves > sends);
            assert_int_equal(recvs, 2 * small_parts(algo));
        }
    }
    faulty_configure(NULL);
}

static void test_failing_link(void **state)
{
    (void)state;
    bool happened = true;
    for (uint64_t call = 1; happened; call++) {
        struct world_setup setup = faulty_setup((unsigned)call);
        setup.bad_link_rank = 1;
        setup.bad_link_call = call;
        setup.no_link_percent = 30;
        const struct engine_case c = small_case(algo_at(call / N_TRANSPORTS));
        struct world_outcome outcome;
        world_run(&setup, &c, 1, &outcome);
        happened = outcome.bad_link_happened;
        assert_false(outcome.hung);
        assert_null(outcome.wrong);
        assert_int_equal(outcome.failure[1].code, happened ? HOOP_SYSTEM_ERROR : HOOP_OK);
    }
}

static void test_flipped_bit(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_TRANSPORTS * N_ALGOS; i++) {
        const struct engine_case c = small_case(algo_at(i));
        const uint64_t parts = small_parts(c.algo);
        for (uint64_t at = 1; at <= parts + 1; at++) {
            const struct faulty_config config = {.seed = seed + at, .flip = at};
            faulty_configure(&config);
            const struct world_setup setup = faulty_setup(i / N_ALGOS);
            struct world_outcome outcome;
            world_run(&setup, &c, 1, &outcome);
            assert_false(outcome.hung);
            assert_int_equal(outcome.wrong != NULL, at <= parts);
        }
    }
    faulty_configure(NULL);
}

static void expect_mismatch(const struct world_setup *setup, const struct engine_case *c)
{
    struct world_outcome outcome;
    world_run(setup, c, 1, &outcome);
    const struct hoop_failure *first = &outcome.failure[outcome.first];
    bool right = !outcome.hung && outcome.wrong == NULL && first->code == HOOP_MISMATCH;
    for (uint32_t r = 0; r < setup->n; r++) {
        right = right && outcome.failure[r].code != HOOP_OK;
    }
    /* One of the two differing ranks reports the other one. */
    const uint32_t here = setup->stranger >> outcome.first & 1;
    right = right && first->rank >= 0 && (setup->stranger >> first->rank & 1) != here;
    if (!right) {
        print_run(setup, c, &outcome);
        fail();
    }
}

/* One rank runs another operation than its neighbours. */
static void test_mismatch(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_TRANSPORTS * N_ALGOS; i++) {
        const struct engine_case c = small_case(algo_at(i));
        struct world_setup setup = faulty_setup(i / N_ALGOS);
        setup.stranger = 2;
        expect_mismatch(&setup, &c);
    }
}

/* A case as a comm would run it, in which every rank needs every other: a ring has at least as many
 * elements as ranks, and with none the operation is a barrier. */
static struct engine_case announced_case(uint64_t *random, uint32_t n)
{
    struct engine_case ret = engine_case_random(random, n);
    ret.algo = ret.count == 0 ? HOOP_ALGO_BRUCK : ret.algo;
    ret.count = ret.algo == HOOP_ALGO_RING && ret.count < n ? n : ret.count;
    return ret;
}

/* Whatever the two operations are and whichever ranks run them, neighbours that differ find out. */
static void test_strangers(void **state)
{
    (void)state;
    uint64_t random = seed;
    for (unsigned i = 0; i < 400; i++) {
        const uint32_t n = 2 + (uint32_t)engine_random(&random, ENGINE_MAX_RANKS - 1);
        const struct engine_case ours = announced_case(&random, n);
        struct engine_case theirs = announced_case(&random, n);
        const struct hoop_signature a = engine_case_signature(&ours);
        const struct hoop_signature b = engine_case_signature(&theirs);
        theirs.count += hoop_signature_equal(&a, &b);
        fake_script_random(&random, 0);
        const struct world_setup setup = {
            .transport = transport_at(i),
            .n = n,
            .slots = 1 + (uint32_t)engine_random(&random, 3),
            .seed = engine_random(&random, UINT32_MAX),
            .no_link_percent = 40 * (unsigned)engine_random(&random, 2),
            .stranger = 1 + (uint32_t)engine_random(&random, (1u << n) - 2),
            .strange = &theirs,
        };
        expect_mismatch(&setup, &ours);
    }
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : seed;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torus_places),   cmocka_unit_test(test_results_fake),
        cmocka_unit_test(test_results_inproc), cmocka_unit_test(test_results_shm),
        cmocka_unit_test(test_types_and_ops),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_again_and_late), cmocka_unit_test(test_failing_calls),
        cmocka_unit_test(test_failing_link),   cmocka_unit_test(test_flipped_bit),
        cmocka_unit_test(test_mismatch),       cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_late_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
