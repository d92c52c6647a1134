/*
 * The interpreter's symbols, cells and race detector.
 *
 * Ranks are ordered by arrivals and by awaiting them only, so a rank's clock is the number of its
 * arrivals. What rank r did at clock c happened before what rank q does now if q knows of more than
 * c arrivals of r: because it has awaited them, or has awaited somebody who knew. A cell remembers
 * its last write and everybody's latest read since. A read within the same rank needs no order.
 */
#include "fakes/interpreter_world.h"
#include "harness/splitmix.h"
#include "plan/plan.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t hoop_world_draw(struct hoop_world *w, uint64_t below)
{
    return splitmix(&w->random) % below;
}

void hoop_world_fail(struct hoop_world *w, const char *format, ...)
{
    if (w->failed) {
        return;
    }
    va_list args;
    va_start(args, format);
    /* clang-tidy 14 does not see va_start() where it has read other files before.
     * NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    (void)vsnprintf(w->text, w->text_bytes, format, args);
    va_end(args);
    w->failed = true;
}

/* ---- Symbols ------------------------------------------------------------------------------ */

uint64_t hoop_mix(uint64_t x)
{
    return splitmix(&x);
}

uint64_t hoop_symbol_input(uint64_t op, uint64_t rank, uint64_t i)
{
    return hoop_mix(i + hoop_mix(rank + hoop_mix(op)));
}

uint64_t hoop_symbol_fold(uint64_t left, uint64_t right)
{
    return hoop_mix(left ^ hoop_mix(right + 1));
}

/* Division by one changes nothing, so an algorithm may leave it out for one rank. */
uint64_t hoop_symbol_divide(const struct hoop_world *w, uint64_t x)
{
    return w->n == 1 ? x : hoop_mix(x + 2);
}

/* The rank whose part contains an element of IN. */
static uint32_t owner_of(const struct hoop_plan *plan, uint64_t i)
{
    uint32_t s = 0;
    while (s < plan->n && i - hoop_part_in(plan, s).off >= hoop_part_in(plan, s).count) {
        s++;
    }
    return s; /* n: no part contains it, so it matches no fold */
}

/* The rank whose contribution is left-most in the documented fold of an element of IN. */
static uint32_t first_of(const struct hoop_plan *plan, uint64_t i)
{
    if (plan->algo == HOOP_ALGO_CHAIN) {
        return (plan->root + 1) % plan->n;
    }
    return plan->algo == HOOP_ALGO_RING ? (owner_of(plan, i) + 1) % plan->n : 0;
}

/* Round each machine, ending with the owner's index, and likewise round the machines. */
static uint64_t torus_fold(const struct hoop_plan *plan, uint32_t op, uint64_t i)
{
    const struct hoop_grid *grid = plan->grid;
    const uint32_t owner = owner_of(plan, i);
    const uint32_t last = owner < plan->n ? grid->places[owner] : 0;
    uint64_t ret = 0;
    for (uint32_t m = 1; m <= grid->machines; m++) {
        const uint32_t machine = (last / grid->each + m) % grid->machines;
        uint64_t sum = 0;
        for (uint32_t e = 1; e <= grid->each; e++) {
            const uint32_t index = (last + e) % grid->each;
            const uint64_t x = hoop_symbol_input(op, grid->ranks[machine * grid->each + index], i);
            sum = e == 1 ? x : hoop_symbol_fold(sum, x);
        }
        ret = m == 1 ? sum : hoop_symbol_fold(ret, sum);
    }
    return ret;
}

/* The sum of each machine in rank order, and the machines' sums in their order. */
static uint64_t hierarchical_fold(const struct hoop_plan *plan, uint32_t op, uint64_t i)
{
    const struct hoop_grid *grid = plan->grid;
    uint64_t ret = 0, sum = 0;
    for (uint32_t rank = 0; rank < plan->n; rank++) {
        const uint32_t machine = grid->machine[rank];
        const uint64_t x = hoop_symbol_input(op, rank, i);
        sum = rank == grid->first[machine] ? x : hoop_symbol_fold(sum, x);
        if (rank + 1 == grid->first[machine + 1]) {
            ret = machine == 0 ? sum : hoop_symbol_fold(ret, sum);
        }
    }
    return ret;
}

static uint64_t row_fold(const struct hoop_plan *plan, uint32_t op, uint64_t i)
{
    const uint32_t first = first_of(plan, i);
    uint64_t ret = hoop_symbol_input(op, first, i);
    for (uint32_t j = 1; j < plan->n; j++) {
        ret = hoop_symbol_fold(ret, hoop_symbol_input(op, (first + j) % plan->n, i));
    }
    return ret;
}

uint64_t *hoop_folds(const struct hoop_world *w, uint32_t op)
{
    const struct hoop_plan *plan = &w->c->ops[op].plan;
    const uint64_t count = hoop_collectives[plan->collective].folds ? hoop_in_count(plan, 0) : 0;
    uint64_t *ret = malloc((count + 1) * sizeof(*ret));
    for (uint64_t i = 0; ret && i < count; i++) {
        const uint64_t fold = plan->algo == HOOP_ALGO_TORUS ? torus_fold(plan, op, i)
                              : plan->algo == HOOP_ALGO_HIERARCHICAL
                                  ? hierarchical_fold(plan, op, i)
                                  : row_fold(plan, op, i);
        ret[i] = hoop_symbol_divide(w, fold);
    }
    return ret;
}

uint64_t hoop_expected(const struct hoop_world *w, uint32_t op, uint32_t rank, uint64_t i)
{
    const struct hoop_plan *plan = &w->c->ops[op].plan;
    const uint64_t block = plan->count > 0 ? i / plan->count : 0;
    const uint64_t within = i - block * plan->count, own = rank * plan->count;
    switch (plan->collective) {
    case HOOP_COLL_REDUCE_SCATTER:
        return w->folds[op][own + i];
    case HOOP_COLL_ALL_GATHER:
    case HOOP_COLL_GATHER:
        return hoop_symbol_input(op, block, within);
    case HOOP_COLL_BROADCAST:
        return hoop_symbol_input(op, plan->root, i);
    case HOOP_COLL_SCATTER:
        return hoop_symbol_input(op, plan->root, own + i);
    case HOOP_COLL_ALLTOALL:
        return hoop_symbol_input(op, block, own + within);
    default:
        return w->folds[op][i];
    }
}

/* ---- Clocks ------------------------------------------------------------------------------- */

bool hoop_clock_arrive(struct hoop_world *w, uint32_t rank)
{
    struct hoop_rank *r = &w->ranks[rank];
    void *said = realloc(r->said, (r->arrivals + 1) * sizeof(*r->said));
    if (said == NULL) {
        return false;
    }
    r->said = said;
    r->seen[rank] = r->arrivals + 1;
    memcpy(r->said[r->arrivals++], r->seen, sizeof(r->seen));
    r->op_arrivals++;
    return true;
}

bool hoop_clock_await(struct hoop_world *w, uint32_t rank, uint32_t other, uint32_t arrivals)
{
    struct hoop_rank *r = &w->ranks[rank];
    if (w->ranks[other].arrivals < arrivals) {
        return false;
    }
    for (uint32_t q = 0; arrivals > 0 && q < w->n; q++) {
        const uint32_t knew = w->ranks[other].said[arrivals - 1][q];
        r->seen[q] = r->seen[q] > knew ? r->seen[q] : knew;
    }
    return true;
}

/* ---- Memory ------------------------------------------------------------------------------- */

const struct hoop_interpreter_op *hoop_world_op(const struct hoop_world *w, uint32_t rank)
{
    return &w->c->ops[w->ranks[rank].op];
}

bool hoop_world_over_links(const struct hoop_world *w, uint32_t rank)
{
    return hoop_plan_is_over_links(hoop_world_op(w, rank)->plan.algo);
}

bool hoop_is_row(const struct hoop_world *w, uint32_t rank, const struct hoop_step *step)
{
    return step->local.op == HOOP_LOCAL_REDUCE && hoop_world_over_links(w, rank) &&
           step->local.src.member != HOOP_EVERY;
}

/* Where a member's user has its IN or OUT: in two buffers or, in place, in the larger one. */
static struct hoop_cell *user_start(const struct hoop_world *w, uint32_t index, uint8_t space,
                                    uint32_t member)
{
    const struct hoop_interpreter_op *op = &w->c->ops[index];
    const struct hoop_plan *plan = &op->plan;
    const uint64_t in = hoop_in_count(plan, member), out = hoop_out_count(plan, member);
    const bool is_in = space == HOOP_SPACE_IN;
    if (!hoop_is_in_place(op, member)) {
        return (is_in ? w->buffers : w->others) + member * w->room;
    }
    const uint64_t mine = is_in ? in : out, theirs = is_in ? out : in;
    return w->buffers + member * w->room + (mine > 0 && mine < theirs ? member * plan->count : 0);
}

struct hoop_cell *hoop_announced(const struct hoop_world *w, uint32_t rank, uint32_t member)
{
    const size_t set = w->ranks[rank].op % w->c->sets;
    return w->announced + set * w->n + member;
}

/* The first cell of a member's space, in the operation and lane that `rank` is in. */
static struct hoop_cell *space_start(const struct hoop_world *w, uint32_t rank, uint32_t lane,
                                     uint8_t space, uint32_t member)
{
    const uint32_t op = w->ranks[rank].op;
    const uint32_t place = w->c->ops[op].large ? w->c->sets + op % 2 : op % w->c->sets;
    switch (space) {
    case HOOP_SPACE_IN:
    case HOOP_SPACE_OUT:
        return user_start(w, op, space, member);
    case HOOP_SPACE_SCRATCH:
        return w->scratch + (member * w->lanes + lane) * w->scratch_room;
    case HOOP_SPACE_ONESHOT:
        return w->oneshot + (place * w->n + member) * w->room;
    default:
        return w->slab + member * w->slab_room;
    }
}

/* The others' vectors in SCRATCH are this rank's own cells, in the order of their owners'
 * distance. */
struct hoop_cell *hoop_ref_start(const struct hoop_world *w, uint32_t rank, uint32_t lane,
                                 const struct hoop_ref *ref, uint32_t member)
{
    if (ref->member != HOOP_EVERY) {
        return space_start(w, rank, lane, ref->space, ref->member) + ref->off;
    }
    if (ref->space != HOOP_SPACE_SCRATCH) {
        return space_start(w, rank, lane, ref->space, member) + ref->off;
    }
    uint64_t distance = (rank + w->n - member) % w->n;
    return space_start(w, rank, lane, ref->space, rank) + ref->off + distance * ref->count;
}

uint64_t hoop_scratch_size(const struct hoop_plan *plan)
{
    switch (plan->algo) {
    case HOOP_ALGO_DIRECT: {
        uint64_t most = hoop_scratch_bytes() / plan->type_bytes;
        return plan->count < most ? plan->count : most;
    }
    default:
        return hoop_algo_scratch(plan);
    }
}

static uint64_t user_size(const struct hoop_plan *plan, uint8_t space, uint32_t member)
{
    return space == HOOP_SPACE_IN ? hoop_in_count(plan, member) : hoop_out_count(plan, member);
}

uint64_t hoop_space_size(const struct hoop_world *w, uint32_t rank, uint8_t space, uint32_t member)
{
    const struct hoop_plan *plan = &hoop_world_op(w, rank)->plan;
    const uint64_t oneshot = HOOP_ONESHOT_MAX_BYTES / plan->type_bytes;
    switch (space) {
    case HOOP_SPACE_SCRATCH:
        return hoop_scratch_size(plan);
    case HOOP_SPACE_ONESHOT:
        return oneshot < w->room ? oneshot : w->room;
    case HOOP_SPACE_SLAB:
        return plan->slabs * plan->chunk;
    default:
        break;
    }
    uint64_t ret = user_size(plan, space, member != HOOP_EVERY ? member : 0);
    for (uint32_t m = 0; member == HOOP_EVERY && m < w->n; m++) {
        const uint64_t size = user_size(plan, space, m);
        ret = size < ret ? size : ret;
    }
    return ret;
}

static void race(struct hoop_world *w, const char *what, uint32_t rank, uint32_t other)
{
    hoop_world_fail(w,
                    "race: rank %" PRIu32 " (operation %" PRIu32 ", arrival %" PRIu32
                    ") %s rank %" PRIu32 " (now in operation %" PRIu32 ") with no barrier between",
                    rank, w->ranks[rank].op, w->ranks[rank].arrivals, what, other,
                    w->ranks[other].op);
}

static bool after(const struct hoop_world *w, uint32_t rank, uint8_t other, uint32_t clock)
{
    return other == HOOP_NOBODY || other == rank || clock < w->ranks[rank].seen[other];
}

uint64_t hoop_cell_read(struct hoop_world *w, uint32_t rank, struct hoop_cell *cell)
{
    if (!after(w, rank, cell->writer, cell->write_clock)) {
        race(w, "reads what was written by", rank, cell->writer);
    }
    if (cell->reads != NULL) {
        cell->reads[rank] = w->ranks[rank].arrivals;
        cell->readers |= 1u << rank;
    }
    return cell->value;
}

void hoop_cell_write(struct hoop_world *w, uint32_t rank, struct hoop_cell *cell, uint64_t value)
{
    if (!after(w, rank, cell->writer, cell->write_clock)) {
        race(w, "overwrites what was written by", rank, cell->writer);
    }
    for (uint32_t m = 0; cell->readers >> m != 0; m++) {
        if ((cell->readers >> m & 1) != 0 && !after(w, rank, (uint8_t)m, cell->reads[m])) {
            race(w, "overwrites what was read by", rank, m);
        }
        if (m == HOOP_INTERPRETER_MAX_RANKS - 1) {
            break; /* avoids a shift by all bits */
        }
    }
    cell->readers = 0;
    cell->write_clock = w->ranks[rank].arrivals;
    cell->writer = (uint8_t)rank;
    cell->value = value;
}

/* The user of a rank fills both buffers, with the next input or with undefined values. SCRATCH
 * keeps nothing from one operation to the next. */
void hoop_user_writes(struct hoop_world *w, uint32_t rank)
{
    const uint32_t op = w->ranks[rank].op;
    for (uint64_t i = 0; i < w->room; i++) {
        hoop_cell_write(w, rank, &w->buffers[rank * w->room + i], HOOP_UNDEFINED);
        hoop_cell_write(w, rank, &w->others[rank * w->room + i], HOOP_UNDEFINED);
    }
    if (op < w->c->op_count) {
        struct hoop_cell *in = user_start(w, op, HOOP_SPACE_IN, rank);
        const uint64_t count = hoop_in_count(&w->c->ops[op].plan, rank);
        for (uint64_t i = 0; i < count; i++) {
            hoop_cell_write(w, rank, &in[i], hoop_symbol_input(op, rank, i));
        }
    }
    uint64_t scratch = w->lanes * w->scratch_room;
    for (uint64_t i = 0; i < scratch; i++) {
        hoop_cell_write(w, rank, &w->scratch[rank * scratch + i], HOOP_UNDEFINED);
    }
}

struct hoop_cell *hoop_cells_create(uint64_t count, uint32_t readers)
{
    const size_t each = sizeof(struct hoop_cell) + readers * sizeof(uint32_t);
    struct hoop_cell *ret = calloc(count + 1, each);
    uint32_t *reads = (uint32_t *)(void *)(ret + count + 1);
    for (uint64_t i = 0; ret && i < count; i++) {
        ret[i].value = HOOP_UNDEFINED;
        ret[i].writer = HOOP_NOBODY;
        ret[i].reads = readers > 0 ? reads + i * readers : NULL;
    }
    return ret;
}
