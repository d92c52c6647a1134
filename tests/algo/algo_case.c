/* Cases for the interpreter (see algo_case.h). */
#include "algo/algo_case.h"

#include "exec/board.h"
#include "harness/splitmix.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

uint64_t seed = 1;

uint64_t draw(uint64_t below)
{
    return splitmix(&seed) % below;
}

static bool is_left_out(void)
{
    static uint64_t cases;
    const char *every = getenv("HOOP_TEST_SAMPLE");
    const uint64_t k = every != NULL ? strtoull(every, NULL, 10) : 0;
    return k > 1 && cases++ % k != 0;
}

void run_case(const struct hoop_interpreter_op *ops, uint32_t op_count, uint32_t slots)
{
    run_case_in(ops, op_count, slots, HOOP_BOARD_SETS);
}

void run_case_in(const struct hoop_interpreter_op *ops, uint32_t op_count, uint32_t slots,
                 uint32_t sets)
{
    const struct hoop_interpreter_case c = {.ops = ops,
                                            .op_count = op_count,
                                            .slots = slots,
                                            .sets = sets,
                                            .owes = hoop_may_owe(sets),
                                            .seed = splitmix(&seed)};
    char text[256];
    if (is_left_out() || hoop_interpret(&c, text, sizeof(text))) {
        return;
    }
    for (uint32_t i = 0; i < op_count; i++) {
        const struct hoop_plan *p = &ops[i].plan;
        print_error("%s by %s, n %u root %u count %llu chunk %llu lanes %u type_bytes %u head %llu "
                    "tail %llu in_place %x slots %u sets %u%s\n",
                    hoop_collectives[p->collective].name, hoop_algo_name(p->algo), p->n, p->root,
                    (unsigned long long)p->count, (unsigned long long)p->chunk, p->lanes,
                    p->type_bytes, (unsigned long long)p->head, (unsigned long long)p->tail,
                    ops[i].in_place, slots, sets, ops[i].large ? ", large" : "");
    }
    print_error("seed %llu: %s\n", (unsigned long long)c.seed, text);
    fail();
}

bool spreads(enum hoop_algo algo, uint32_t n)
{
    bool even = false;
    for (uint32_t machines = 2; machines <= n / 2; machines++) {
        even = even || n % machines == 0;
    }
    return algo == HOOP_ALGO_TORUS ? even : algo != HOOP_ALGO_HIERARCHICAL || n > 2;
}

#define GRID_RANKS 300

/* All ranks at random places of machines of the same size. */
static void draw_places(struct hoop_grid *grid, uint32_t n, uint32_t *ranks, uint32_t *places)
{
    do {
        grid->machines = 2 + (uint32_t)draw(n / 2 - 1);
    } while (n % grid->machines != 0);
    grid->each = grid->most = n / grid->machines;
    for (uint32_t place = 0; place < n; place++) {
        const uint32_t before = (uint32_t)draw(place + UINT64_C(1));
        ranks[place] = ranks[before];
        ranks[before] = place;
    }
    for (uint32_t place = 0; place < n; place++) {
        places[ranks[place]] = place;
    }
}

/* Machines of random sizes, each with consecutive ranks. */
static void draw_machines(struct hoop_grid *grid, uint32_t n, uint32_t *machine, uint32_t *first)
{
    grid->machines = 2 + (uint32_t)draw(n - UINT64_C(2));
    for (uint32_t m = 0, begin = 0; m < grid->machines; m++) {
        const uint32_t rest = n - begin - (grid->machines - m); /* if each machine gets one */
        const uint32_t more =
            m + 1 == grid->machines || draw(3) == 0 ? rest : (uint32_t)draw(rest + UINT64_C(1));
        first[m] = begin;
        for (uint32_t i = 0; i <= more; i++) {
            machine[begin + i] = m;
        }
        grid->most = more + 1 > grid->most ? more + 1 : grid->most;
        begin += more + 1;
    }
    first[grid->machines] = n;
    grid->first = first;
}

const struct hoop_grid *draw_grid(enum hoop_algo algo, uint32_t n)
{
    static struct {
        struct hoop_grid grid;
        uint32_t numbers[2][GRID_RANKS + 1];
    } pool[128];
    static size_t next;
    const bool torus = algo == HOOP_ALGO_TORUS;
    if ((!torus && algo != HOOP_ALGO_HIERARCHICAL) || !spreads(algo, n)) {
        return NULL;
    }
    assert_true(n <= GRID_RANKS);
    struct hoop_grid *grid = &pool[next].grid;
    uint32_t(*numbers)[GRID_RANKS + 1] = pool[next].numbers;
    next = (next + 1) % COUNT_OF(pool);
    *grid = (struct hoop_grid){.ranks = torus ? numbers[0] : NULL,
                               .places = torus ? numbers[1] : NULL,
                               .machine = torus ? NULL : numbers[0]};
    if (torus) {
        draw_places(grid, n, numbers[0], numbers[1]);
    } else {
        draw_machines(grid, n, numbers[0], numbers[1]);
    }
    return grid;
}
