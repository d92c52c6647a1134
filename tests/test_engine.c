/*
 * The engine over links: the ring's results bit for bit, under every order of events and every
 * fault. Steps that the ring does not have are in test_engine_steps.c.
 *
 *     test_engine [seed]      the same seed, the same run (but for the threads)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fake_transport.h"
#include "faulty.h"
#include "ring_harness.h"
#include "transports/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

/* ---- Running a world ---- */

static void print_run(const struct ring_setup *setup, const struct ring_case *c,
                      const struct ring_outcome *outcome)
{
    print_error(
        "seed %llu: %s, n %u, slots %u, first case %s %s, count %llu, chunk %llu, lanes %u, "
        "in place %#x, skew %u: %s%s\n",
        (unsigned long long)seed, setup->transport->name, setup->n, setup->slots,
        hoop_datatype_name(c->type), hoop_op_name(c->op), (unsigned long long)c->count,
        (unsigned long long)c->chunk, c->lanes, c->in_place, c->skew, outcome->hung ? "hung " : "",
        outcome->wrong != NULL ? outcome->wrong : "");
    for (uint32_t r = 0; r < setup->n; r++) {
        if (outcome->failure[r].code != HOOP_OK) {
            print_error("  rank %u: %s\n", r, outcome->failure[r].text);
        }
    }
}

static bool ended_well(const struct ring_setup *setup, const struct ring_outcome *outcome)
{
    bool well = !outcome->hung && outcome->wrong == NULL;
    for (uint32_t r = 0; r < setup->n; r++) {
        well = well && outcome->failure[r].code == HOOP_OK;
    }
    return well;
}

static void run_well(const struct ring_setup *setup, const struct ring_case *cases,
                     unsigned n_cases)
{
    struct ring_outcome outcome;
    ring_run(setup, cases, n_cases, &outcome);
    if (!ended_well(setup, &outcome)) {
        print_run(setup, cases, &outcome);
        fail();
    }
}

/* The transports that tests choose from: fake, inproc, shm. */
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
        .seed = ring_random(random, UINT32_MAX),
        .slots = least_slots + (uint32_t)ring_random(random, 3),
        .again_percent = 30 * (unsigned)ring_random(random, 3),
        .late_percent = 30 * (unsigned)ring_random(random, 3),
    };
    fake_play(&script);
}

/* ---- Results ---- */

/* As many worlds, each with a few operations one after the other. */
static void run_sample(const struct hoop_transport *transport, unsigned worlds, bool threads)
{
    uint64_t random = seed;
    for (unsigned i = 0; i < worlds; i++) {
        fake_script_random(&random, 0);
        const struct ring_setup setup = {
            .transport = transport,
            .n = 1 + (uint32_t)ring_random(&random, threads ? 4 : RING_MAX_RANKS),
            .slots = 1 + (uint32_t)ring_random(&random, 3),
            .seed = ring_random(&random, UINT32_MAX),
            .threads = threads,
            .no_link_percent = 40 * (unsigned)ring_random(&random, 2),
        };
        struct ring_case cases[3];
        const unsigned n_cases = 1 + (unsigned)ring_random(&random, 3);
        for (unsigned c = 0; c < n_cases; c++) {
            cases[c] = ring_case_random(&random, setup.n);
        }
        run_well(&setup, cases, n_cases);
    }
}

static void test_results_fake(void **state)
{
    (void)state;
    run_sample(&fake_transport, 500, false);
    assert_int_equal(fake_outstanding(), 0);
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

/* Every type and operation once, all in one world over the same links. */
static void test_types_and_ops(void **state)
{
    (void)state;
    struct ring_case cases[HOOP_NUM_DATATYPES * HOOP_NUM_OPS];
    const unsigned n_cases = sizeof(cases) / sizeof(cases[0]);
    for (unsigned i = 0; i < n_cases; i++) {
        cases[i] = (struct ring_case){.type = (hoop_datatype_t)(i / HOOP_NUM_OPS),
                                      .op = (hoop_red_op_t)(i % HOOP_NUM_OPS),
                                      .count = 203,
                                      .chunk = 29,
                                      .lanes = 1 + i % 4,
                                      .in_place = i * 37,
                                      .seed = seed + i};
    }
    for (uint32_t n = 2; n <= 5; n++) {
        const struct ring_setup setup = {
            .transport = &hoop_transport_inproc, .n = n, .slots = 2, .seed = seed};
        run_well(&setup, cases, n_cases);
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

/* Small enough to try a fault at every call. Parts: 3 ranks, 2 chunks of a shard, 4 steps. */
#define SMALL_PARTS (UINT64_C(3) * 2 * 4)
static const struct ring_case small = {.type = HOOP_INT32,
                                       .op = HOOP_SUM,
                                       .count = 50,
                                       .chunk = 9,
                                       .lanes = 2,
                                       .in_place = 2,
                                       .seed = 3};

static struct ring_setup faulty_setup(unsigned transport)
{
    const struct fake_script script = {.seed = seed, .slots = 1};
    fake_play(&script);
    return (struct ring_setup){
        .transport = faulty_decorate(transport_at(transport)), .n = 3, .slots = 2, .seed = seed};
}

static void test_again_and_late(void **state)
{
    (void)state;
    uint64_t random = seed;
    for (unsigned i = 0; i < 150; i++) {
        const struct faulty_config config = {
            .seed = ring_random(&random, UINT32_MAX),
            .again_every = 2 * (uint32_t)ring_random(&random, 3),
            .again_chance = (uint32_t)ring_random(&random, 80),
            .late = (uint32_t)ring_random(&random, 6),
        };
        faulty_configure(&config);
        fake_script_random(&random, 0);
        const struct ring_setup setup = {.transport = faulty_decorate(transport_at(i)),
                                         .n = 2 + (uint32_t)ring_random(&random, 4),
                                         .slots = 1 + (uint32_t)ring_random(&random, 2),
                                         .seed = ring_random(&random, UINT32_MAX),
                                         .threads = i < N_TRANSPORTS};
        const struct ring_case cases[] = {ring_case_random(&random, setup.n),
                                          ring_case_random(&random, setup.n)};
        run_well(&setup, cases, 2);
    }
    faulty_configure(NULL);
}

/* Fails a call of all ranks' links; true: there was such a call. */
static bool run_failing(unsigned transport, enum faulty_call call, uint64_t at, uint32_t late)
{
    const struct faulty_config config = {.seed = seed + at,
                                         .late = late,
                                         .fail_call = call,
                                         .fail_at = at,
                                         .fail_code = HOOP_OUT_OF_MEMORY};
    faulty_configure(&config);
    struct ring_setup setup = faulty_setup(transport);
    setup.seed += at;
    const struct ring_case cases[] = {small, small};
    struct ring_outcome outcome;
    ring_run(&setup, cases, 2, &outcome);
    /* Where it struck a part that nobody waited for any more, nothing was to be seen. */
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

static void test_failing_calls(void **state)
{
    (void)state;
    for (unsigned transport = 0; transport < N_TRANSPORTS; transport++) {
        for (uint32_t late = 0; late < 4; late += 3) {
            uint64_t sends = 1, recvs = 1, progresses = 1;
            while (run_failing(transport, FAULTY_SEND, sends, late)) {
                sends++;
            }
            while (run_failing(transport, FAULTY_RECV, recvs, late)) {
                recvs++;
            }
            while (run_failing(transport, FAULTY_PROGRESS, progresses, late)) {
                progresses += 3;
            }
            assert_true(sends > 2 * SMALL_PARTS && progresses > sends);
            assert_int_equal(recvs, 2 * SMALL_PARTS + 1);
        }
    }
    faulty_configure(NULL);
}

static void test_failing_link(void **state)
{
    (void)state;
    bool happened = true;
    for (uint64_t call = 1; happened; call++) {
        struct ring_setup setup = faulty_setup((unsigned)call);
        setup.bad_link_rank = 1;
        setup.bad_link_call = call;
        setup.no_link_percent = 30;
        struct ring_outcome outcome;
        ring_run(&setup, &small, 1, &outcome);
        happened = outcome.bad_link_happened;
        assert_false(outcome.hung);
        assert_null(outcome.wrong);
        assert_int_equal(outcome.failure[1].code, happened ? HOOP_SYSTEM_ERROR : HOOP_OK);
    }
}

static void test_flipped_bit(void **state)
{
    (void)state;
    for (unsigned transport = 0; transport < N_TRANSPORTS; transport++) {
        for (uint64_t at = 1; at <= SMALL_PARTS + 1; at++) {
            const struct faulty_config config = {.seed = seed + at, .flip = at};
            faulty_configure(&config);
            const struct ring_setup setup = faulty_setup(transport);
            struct ring_outcome outcome;
            ring_run(&setup, &small, 1, &outcome);
            assert_false(outcome.hung);
            assert_int_equal(outcome.wrong != NULL, at <= SMALL_PARTS);
        }
    }
    faulty_configure(NULL);
}

/* A rank in another operation than its neighbours. */
static void test_mismatch(void **state)
{
    (void)state;
    for (unsigned transport = 0; transport < N_TRANSPORTS; transport++) {
        struct ring_setup setup = faulty_setup(transport);
        setup.stranger = 2;
        struct ring_outcome outcome;
        ring_run(&setup, &small, 1, &outcome);
        assert_false(outcome.hung);
        assert_null(outcome.wrong);
        assert_int_equal(outcome.failure[outcome.first].code, HOOP_MISMATCH);
        for (uint32_t r = 0; r < setup.n; r++) {
            assert_int_not_equal(outcome.failure[r].code, HOOP_OK);
        }
    }
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : seed;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_fake),  cmocka_unit_test(test_results_inproc),
        cmocka_unit_test(test_results_shm),   cmocka_unit_test(test_types_and_ops),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_again_and_late),
        cmocka_unit_test(test_failing_calls), cmocka_unit_test(test_failing_link),
        cmocka_unit_test(test_flipped_bit),   cmocka_unit_test(test_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
