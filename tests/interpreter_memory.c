/*
 * The interpreter's symbols, cells and race detector.
 *
 * Ranks are ordered by barriers only, so a rank's clock is the number of its arrivals. What rank r
 * did at clock c happened before what rank q does now if q has since awaited more than c arrivals.
 * A cell remembers its last write, its latest read, and the latest read by any other rank: with
 * those, whichever rank writes next, the latest read by somebody else is known. A read within the
 * same rank needs no order.
 */
#include "interpreter_world.h"
#include "plan.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t hoop_interpreter_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t hoop_world_draw(struct hoop_world *w, uint64_t below)
{
    return hoop_interpreter_random(&w->random) % below;
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
    return hoop_interpreter_random(&x);
}

uint64_t hoop_symbol_input(uint64_t op, uint64_t rank, uint64_t i)
{
    return hoop_mix(i + hoop_mix(rank + hoop_mix(op)));
}

uint64_t hoop_symbol_fold(uint64_t left, uint64_t right)
{
    return hoop_mix(left ^ hoop_mix(right + 1));
}

/* Dividing by one rank changes nothing, so an algorithm may leave it out there. */
uint64_t hoop_symbol_divide(const struct hoop_world *w, uint64_t x)
{
    return w->n == 1 ? x : hoop_mix(x + 2);
}

/* The rank whose contribution is left-most in an element's documented fold. */
static uint32_t first_of(const struct hoop_plan *plan, uint64_t i)
{
    if (plan->algo != HOOP_ALGO_RING) {
        return 0;
    }
    for (uint32_t s = 0; s < plan->n; s++) {
        struct hoop_range shard = hoop_shard_of(plan, s);
        if (i - shard.off < shard.count) {
            return (s + 1) % plan->n;
        }
    }
    return UINT32_MAX; /* no shard holds it: matches no fold */
}

uint64_t *hoop_expected(const struct hoop_world *w, uint32_t op)
{
    const struct hoop_plan *plan = &w->c->ops[op].plan;
    uint64_t *ret = malloc((plan->count + 1) * sizeof(*ret));
    for (uint64_t i = 0; ret && i < plan->count; i++) {
        uint32_t first = first_of(plan, i);
        uint64_t x = hoop_symbol_input(op, first, i);
        for (uint32_t j = 1; j < w->n; j++) {
            x = hoop_symbol_fold(x, hoop_symbol_input(op, (first + j) % w->n, i));
        }
        ret[i] = hoop_symbol_divide(w, x);
    }
    return ret;
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

/* The first cell of a space of `member`, in the operation and lane that `rank` is in. */
static struct hoop_cell *space_start(const struct hoop_world *w, uint32_t rank, uint32_t lane,
                                     uint8_t space, uint32_t member)
{
    const struct hoop_interpreter_op *op = hoop_world_op(w, rank);
    uint32_t buffer = w->ranks[rank].op % w->c->oneshot_buffers;
    switch (space) {
    case HOOP_SPACE_IN:
        return w->buffers + member * w->room;
    case HOOP_SPACE_OUT:
        return ((op->in_place >> member & 1) ? w->buffers : w->others) + member * w->room;
    case HOOP_SPACE_SCRATCH:
        return w->scratch + (member * w->lanes + lane) * w->scratch_room;
    case HOOP_SPACE_ONESHOT:
        return w->oneshot + (buffer * w->n + member) * w->room;
    default:
        return w->slab + member * w->slab_room;
    }
}

/* Everybody's vectors in SCRATCH are the rank's own cells, by the distance of their owners. */
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
        uint64_t most = HOOP_SCRATCH_BYTES / plan->type_bytes;
        return plan->count < most ? plan->count : most;
    }
    case HOOP_ALGO_BRUCK:
    case HOOP_ALGO_PAIRWISE:
        return plan->n * (plan->count < plan->chunk ? plan->count : plan->chunk);
    default:
        return 0;
    }
}

uint64_t hoop_space_size(const struct hoop_world *w, uint32_t rank, uint8_t space)
{
    const struct hoop_plan *plan = &hoop_world_op(w, rank)->plan;
    uint64_t limit = plan->count;
    if (space == HOOP_SPACE_SCRATCH) {
        return hoop_scratch_size(plan);
    }
    if (space == HOOP_SPACE_ONESHOT) {
        limit = HOOP_ONESHOT_MAX_BYTES / plan->type_bytes;
    } else if (space == HOOP_SPACE_SLAB) {
        return 2 * plan->chunk;
    }
    return limit < w->room ? limit : w->room;
}

static void race(struct hoop_world *w, const char *what, uint32_t rank, uint32_t other)
{
    hoop_world_fail(w,
                    "race: rank %" PRIu32 " (operation %" PRIu32 ", barrier %" PRIu32
                    ") %s rank %" PRIu32 " (now in operation %" PRIu32 ") with no barrier between",
                    rank, w->ranks[rank].op, w->ranks[rank].awaited, what, other,
                    w->ranks[other].op);
}

static bool after(const struct hoop_world *w, uint32_t rank, uint8_t other, uint32_t clock)
{
    return other == HOOP_NOBODY || other == rank || clock < w->ranks[rank].awaited;
}

uint64_t hoop_cell_read(struct hoop_world *w, uint32_t rank, struct hoop_cell *cell)
{
    struct hoop_read now = {.clock = w->ranks[rank].arrivals, .rank = (uint8_t)rank};
    if (!after(w, rank, cell->writer, cell->write_clock)) {
        race(w, "reads what was written by", rank, cell->writer);
    }
    struct hoop_read *read = cell->reads;
    if (read[0].rank == rank) {
        read[0] = now;
    } else if (read[0].rank == HOOP_NOBODY || now.clock > read[0].clock) {
        read[1] = read[0];
        read[0] = now;
    } else if (read[1].rank == HOOP_NOBODY || read[1].rank == rank || now.clock > read[1].clock) {
        read[1] = now;
    }
    return cell->value;
}

void hoop_cell_write(struct hoop_world *w, uint32_t rank, struct hoop_cell *cell, uint64_t value)
{
    if (!after(w, rank, cell->writer, cell->write_clock)) {
        race(w, "overwrites what was written by", rank, cell->writer);
    }
    for (int i = 0; i < 2; i++) {
        if (!after(w, rank, cell->reads[i].rank, cell->reads[i].clock)) {
            race(w, "overwrites what was read by", rank, cell->reads[i].rank);
        }
    }
    cell->write_clock = w->ranks[rank].arrivals;
    cell->writer = (uint8_t)rank;
    cell->value = value;
}

/* The user of a rank fills both buffers: next input, or nothing in particular. SCRATCH keeps
 * nothing from one operation to the next. */
void hoop_user_writes(struct hoop_world *w, uint32_t rank)
{
    uint32_t op = w->ranks[rank].op;
    bool more = op < w->c->op_count;
    for (uint64_t i = 0; i < w->room; i++) {
        uint64_t input =
            more && i < w->c->ops[op].plan.count ? hoop_symbol_input(op, rank, i) : HOOP_UNDEFINED;
        hoop_cell_write(w, rank, &w->buffers[rank * w->room + i], input);
        hoop_cell_write(w, rank, &w->others[rank * w->room + i], HOOP_UNDEFINED);
    }
    uint64_t scratch = w->lanes * w->scratch_room;
    for (uint64_t i = 0; i < scratch; i++) {
        hoop_cell_write(w, rank, &w->scratch[rank * scratch + i], HOOP_UNDEFINED);
    }
}

struct hoop_cell *hoop_cells_create(uint64_t count)
{
    struct hoop_cell *ret = calloc(count + 1, sizeof(*ret));
    for (uint64_t i = 0; ret && i < count; i++) {
        ret[i].value = HOOP_UNDEFINED;
        ret[i].writer = ret[i].reads[0].rank = ret[i].reads[1].rank = HOOP_NOBODY;
    }
    return ret;
}
