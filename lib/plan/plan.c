/* The choice of algorithm (see plan.h). docs/inside/tuning.md has measurements behind it. */
#include "plan/plan.h"

#include "algo/taking.h"
#include "exec/board.h"
#include "reduce/reduce.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_SLICE_BYTES 262144u /* direct, cma: bytes written at once */
/* cma: bytes folded at once, of all ranks together, which stay in a core's cache. */
#define PLAN_CMA_FOLD_BYTES 524288u
#define PLAN_CMA_FOLD_LEAST_BYTES 16384u /* of each rank */
#define PLAN_SLAB_LEAST_BYTES 65536u     /* smaller slabs need not return as late */
/* Over links: chunks are not made smaller than this just to give every lane one. */
#define PLAN_CHUNK_LEAST_BYTES 65536u
/* pairwise, where its scratch is limited: with smaller chunks overhead dominates. */
#define PLAN_CHUNK_SCRATCH_LEAST_BYTES 4096u
/* What pairwise may take for scratch in all lanes, unless chunks become too small. */
#define PLAN_SCRATCH_BYTES 4194304u

void hoop_plan_begin(struct hoop_plan *plan, const struct hoop_signature *signature, uint32_t me,
                     uint32_t n, bool in_place)
{
    plan->collective = (enum hoop_collective)signature->collective;
    plan->algo = HOOP_ALGO_AUTO;
    plan->me = me;
    plan->n = n;
    plan->root = signature->root < 0 ? 0 : (uint32_t)signature->root;
    plan->lanes = 1;
    plan->radix = 0;
    plan->type_bytes = (uint32_t)hoop_datatype_bytes((hoop_datatype_t)signature->type);
    plan->in_place = in_place;
    plan->count = signature->count;
    plan->chunk = plan->scratch = 0;
    plan->head = plan->tail = 0;
    plan->one_acts = plan->at_once = plan->gives = false;
    plan->actor = plan->root;
    plan->slabs = 2;
    plan->turn = 0;
    plan->grid = NULL;
}

static uint64_t plan_ceil(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static enum hoop_cost_class plan_class(const struct hoop_agreement *agreed)
{
    return agreed->oversubscribed ? HOOP_COST_OVERSUBSCRIBED : HOOP_COST_MEMORY;
}

/* Does it add in another order than that of the ranks? Then HOOP_ORDER=rank excludes it. */
static bool plan_is_unordered(enum hoop_algo algo)
{
    return algo == HOOP_ALGO_RING || algo == HOOP_ALGO_TORUS || algo == HOOP_ALGO_HIERARCHICAL ||
           algo == HOOP_ALGO_CHAIN;
}

/* Does this collective have the algorithm, and may it be chosen? */
static bool plan_may(const struct hoop_agreement *agreed, enum hoop_collective collective,
                     enum hoop_algo algo)
{
    const bool unordered = hoop_collectives[collective].folds && plan_is_unordered(algo);
    return hoop_algo_steps(collective, algo) != NULL &&
           !(unordered && agreed->order == HOOP_ORDER_RANK);
}

/* Does it need several machines? */
static bool plan_spreads(enum hoop_algo algo)
{
    return algo == HOOP_ALGO_TORUS || algo == HOOP_ALGO_HIERARCHICAL;
}

/* The algorithm that HOOP_ALGO asks for, on one machine; AUTO if it cannot be used there. */
static enum hoop_algo plan_asked(const struct hoop_agreement *agreed,
                                 enum hoop_collective collective)
{
    const enum hoop_algo algo = (enum hoop_algo)agreed->algo;
    return plan_may(agreed, collective, algo) && !plan_spreads(algo) ? algo : HOOP_ALGO_AUTO;
}

bool hoop_plan_is_over_links(enum hoop_algo algo)
{
    return algo >= HOOP_ALGO_RING;
}

bool hoop_plan_reaches(enum hoop_algo algo)
{
    return algo == HOOP_ALGO_DIRECT || algo == HOOP_ALGO_CMA;
}

/* ---- Oneshot -------------------------------------------------------------------------------- */

void hoop_plan_oneshot(struct hoop_plan *plan)
{
    plan->algo = HOOP_ALGO_ONESHOT;
    plan->chunk = plan->count;
}

/* May memory that is not mapped be read from its process? */
static bool plan_may_cma(const struct hoop_agreement *agreed, enum hoop_collective collective)
{
    return agreed->no_cma == 0 && hoop_algo_steps(collective, HOOP_ALGO_CMA) != NULL;
}

/* The cost of the plan by an algorithm for plain memory: oneshot, cma or slab. */
static uint64_t plan_unmapped_cost(const struct hoop_agreement *agreed,
                                   const struct hoop_plan *plan, enum hoop_algo algo)
{
    struct hoop_plan with = *plan;
    with.algo = algo;
    with.chunk = HOOP_SLAB_BYTES / plan->type_bytes;
    return hoop_cost(plan_class(agreed), agreed->oversubscribed, &with, 0);
}

static bool plan_cma_wins(const struct hoop_agreement *agreed, const struct hoop_plan *plan)
{
    return plan_may_cma(agreed, plan->collective) &&
           plan_unmapped_cost(agreed, plan, HOOP_ALGO_CMA) <
               plan_unmapped_cost(agreed, plan, HOOP_ALGO_SLAB);
}

/* Is oneshot worth it? Compared with what plain memory gets: what is mapped is not known yet. */
static bool plan_oneshot_wins(const struct hoop_agreement *agreed, uint32_t n,
                              enum hoop_collective collective, uint64_t block)
{
    const struct hoop_plan plan = {
        .collective = collective, .n = n, .type_bytes = 1, .count = block};
    const enum hoop_algo other = plan_cma_wins(agreed, &plan) ? HOOP_ALGO_CMA : HOOP_ALGO_SLAB;
    return plan_unmapped_cost(agreed, &plan, HOOP_ALGO_ONESHOT) <=
           plan_unmapped_cost(agreed, &plan, other);
}

/* The largest block that the setting, or the room for it, allows. */
static uint64_t plan_oneshot_room(uint64_t bytes, uint32_t n, enum hoop_collective collective)
{
    const uint64_t blocks = hoop_extent_blocks(hoop_collectives[collective].in, n, true);
    const uint64_t all = bytes < HOOP_ONESHOT_MAX_BYTES ? bytes : HOOP_ONESHOT_MAX_BYTES;
    return all / (blocks > 0 ? blocks : 1);
}

uint64_t hoop_plan_granted_most(const struct hoop_agreement *agreed, uint32_t n,
                                enum hoop_collective collective)
{
    const bool may = plan_asked(agreed, collective) == HOOP_ALGO_AUTO &&
                     hoop_collective_is_rooted(collective) && agreed->oversubscribed == 0;
    const bool whole =
        hoop_collective_is_blocked(collective) || agreed->oneshot_bytes < HOOP_ONESHOT_MAX_BYTES;
    return !may ? 0 : whole ? plan_oneshot_room(agreed->oneshot_bytes, n, collective) : UINT64_MAX;
}

uint64_t hoop_plan_oneshot_most(const struct hoop_agreement *agreed, uint32_t n,
                                enum hoop_collective collective)
{
    const enum hoop_algo asked = plan_asked(agreed, collective);
    uint64_t least = 0, most = plan_oneshot_room(agreed->oneshot_bytes, n, collective);
    if (asked != HOOP_ALGO_AUTO) {
        return asked == HOOP_ALGO_ONESHOT ? plan_oneshot_room(HOOP_ONESHOT_MAX_BYTES, n, collective)
                                          : 0;
    }
    while (least < most) {
        const uint64_t middle = least + (most - least + 1) / 2;
        if (plan_oneshot_wins(agreed, n, collective, middle)) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    return least;
}

/* ---- Links ---------------------------------------------------------------------------------- */

/* Makes chunks so that every lane has one, of at most most_bytes, but not needlessly small ones. */
static void plan_lanes(const struct hoop_agreement *agreed, uint64_t most_bytes,
                       struct hoop_plan *plan)
{
    const bool cut = !hoop_collective_is_blocked(plan->collective) && plan->algo != HOOP_ALGO_CHAIN;
    const uint64_t most = most_bytes / plan->type_bytes;
    const uint64_t least = PLAN_CHUNK_LEAST_BYTES / plan->type_bytes;
    const uint64_t part = cut ? plan_ceil(plan->count, plan->n) : plan->count;
    uint64_t chunk = plan_ceil(part, agreed->lanes);
    chunk = chunk < least ? least : chunk;
    plan->chunk = chunk > most ? most : chunk;
    plan->lanes = agreed->lanes;
}

static uint64_t plan_pairwise_chunk_bytes(const struct hoop_agreement *agreed, uint32_t n)
{
    assert(n > 0 && agreed->lanes > 0);
    const uint64_t fitting = PLAN_SCRATCH_BYTES / agreed->lanes / n;
    const uint64_t chunk = fitting < PLAN_CHUNK_SCRATCH_LEAST_BYTES ? PLAN_CHUNK_SCRATCH_LEAST_BYTES
                                                                    : fitting / 64 * 64;
    return chunk < agreed->chunk_bytes ? chunk : agreed->chunk_bytes;
}

/* Does the largest message fit into a chunk? With bruck and binomial it is up to half of all
 * blocks. */
static bool plan_fits(const struct hoop_agreement *agreed, const struct hoop_plan *plan,
                      enum hoop_algo algo)
{
    const bool one = plan->collective == HOOP_COLL_BROADCAST || plan->n == 1;
    const uint64_t n = plan->n, bytes = plan->count * plan->type_bytes;
    const uint64_t blocks = algo == HOOP_ALGO_HIERARCHICAL ? hoop_hierarchical_blocks(plan)
                            : one                          ? 1
                                                           : n - n / 2;
    return bytes <= agreed->chunk_bytes / blocks;
}

/* With fewer elements than ranks, the ring's first step is empty on some ranks, so nothing would
 * announce the operation. */
static bool plan_ring_can(const struct hoop_plan *plan)
{
    return hoop_collective_is_blocked(plan->collective) || plan->count >= plan->n;
}

/* Can algo carry this out? */
static bool plan_links_can(const struct hoop_agreement *agreed, const struct hoop_plan *plan,
                           enum hoop_algo algo)
{
    if (!hoop_plan_is_over_links(algo) || !plan_may(agreed, plan->collective, algo)) {
        return false;
    }
    if (algo == HOOP_ALGO_BRUCK || algo == HOOP_ALGO_BINOMIAL) {
        return plan_fits(agreed, plan, algo);
    }
    if (algo == HOOP_ALGO_HIERARCHICAL) {
        return plan->grid != NULL && plan->grid->first != NULL && plan_fits(agreed, plan, algo);
    }
    if (algo == HOOP_ALGO_TORUS) {
        return plan->grid != NULL && plan->grid->each > 0;
    }
    return algo != HOOP_ALGO_RING || plan_ring_can(plan);
}

static enum hoop_cost_class plan_links_class(const struct hoop_agreement *agreed)
{
    const bool rdma = agreed->transport == HOOP_TRANSPORT_RDMA ||
                      (agreed->transport == HOOP_TRANSPORT_AUTO && agreed->no_rdma == 0);
    const enum hoop_cost_class tcp =
        agreed->oversubscribed ? HOOP_COST_LINKS_OVERSUBSCRIBED : HOOP_COST_LINKS;
    return rdma ? HOOP_COST_LINKS_RDMA : tcp;
}

static uint64_t plan_links_cost(const struct hoop_agreement *agreed, const struct hoop_plan *plan,
                                enum hoop_algo algo)
{
    struct hoop_plan with = *plan;
    with.algo = algo;
    const uint64_t at_once = algo == HOOP_ALGO_PAIRWISE
                                 ? plan_pairwise_chunk_bytes(agreed, plan->n) * agreed->lanes
                                 : agreed->chunk_bytes;
    return hoop_cost(plan_links_class(agreed), 0, &with, at_once);
}

/* Beyond HOOP_BRUCK_BYTES no algorithm sends every rank a whole copy, if there is another one. */
static bool plan_is_large(const struct hoop_agreement *agreed, const struct hoop_plan *plan,
                          enum hoop_algo algo)
{
    return (algo == HOOP_ALGO_BRUCK || algo == HOOP_ALGO_BINOMIAL) &&
           plan->count * plan->type_bytes > agreed->bruck_bytes;
}

static enum hoop_algo plan_cheapest(const struct hoop_agreement *agreed,
                                    const struct hoop_plan *plan)
{
    enum hoop_algo best = HOOP_ALGO_AUTO;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < HOOP_ALGO_COUNT; i++) {
        const enum hoop_algo algo = (enum hoop_algo)i;
        if (!plan_links_can(agreed, plan, algo)) {
            continue;
        }
        uint64_t cost = plan_links_cost(agreed, plan, algo);
        cost = plan_is_large(agreed, plan, algo) ? UINT64_MAX - 1 : cost;
        if (cost < least) {
            best = algo;
            least = cost;
        }
    }
    return best;
}

/* HOOP_BRUCK_RADIX's choices: auto, then 2, 3, ... */
static uint32_t plan_radix(const struct hoop_agreement *agreed, uint32_t n)
{
    return agreed->bruck_radix > 0 ? (uint32_t)agreed->bruck_radix + 1
                                   : hoop_cost_radix(plan_links_class(agreed), n);
}

void hoop_plan_links(const struct hoop_agreement *agreed, const struct hoop_grid *grid,
                     struct hoop_plan *plan)
{
    const enum hoop_algo asked = (enum hoop_algo)agreed->algo;
    plan->grid = grid;
    plan->chunk = plan->count > 0 ? plan->count : 1;
    plan->radix = plan_radix(agreed, plan->n);
    struct hoop_plan what = *plan;
    if (plan->count == 0) {
        what.collective = HOOP_COLL_BARRIER; /* whatever the collective */
    }
    plan->algo = plan_links_can(agreed, &what, asked) ? asked : plan_cheapest(agreed, &what);
    if (plan->algo == HOOP_ALGO_RING || plan->algo == HOOP_ALGO_TORUS ||
        plan->algo == HOOP_ALGO_CHAIN) {
        plan_lanes(agreed, agreed->chunk_bytes, plan);
    } else if (plan->algo == HOOP_ALGO_PAIRWISE) {
        plan_lanes(agreed, plan_pairwise_chunk_bytes(agreed, plan->n), plan);
    }
    plan->scratch = hoop_algo_scratch(plan);
}

/* ---- Machines ----------------------------------------------------------------------------- */

/* Counts the ranks of each machine, then gives each rank its place. */
static void plan_fill_grid(const struct hoop_peer *peers, uint32_t n, struct hoop_grid *grid,
                           uint32_t *ranks, uint32_t *places, uint32_t *machine, uint32_t *first)
{
    bool even = true, in_order = true;
    for (uint32_t rank = 0; rank < n; rank++) {
        machine[rank] = peers[rank].machine;
        first[machine[rank] + 1]++;
    }
    for (uint32_t m = 0; m < grid->machines; m++) {
        grid->most = first[m + 1] > grid->most ? first[m + 1] : grid->most;
        even = even && first[m + 1] == first[1];
        first[m + 1] += first[m];
    }
    for (uint32_t rank = 0; rank < n; rank++) {
        places[rank] = first[machine[rank]]++;
        ranks[places[rank]] = rank;
        in_order = in_order && places[rank] == rank;
    }
    memmove(first + 1, first, grid->machines * sizeof(*first)); /* undo the increments */
    first[0] = 0;
    grid->each = even ? grid->most : 0;
    grid->first = in_order ? first : NULL;
}

hoop_result_t hoop_plan_grid_create(const struct hoop_peer *peers, uint32_t n,
                                    struct hoop_grid **ret)
{
    *ret = NULL;
    uint32_t machines = 0;
    for (uint32_t rank = 0; rank < n; rank++) {
        machines = peers[rank].machine >= machines ? peers[rank].machine + 1 : machines;
    }
    if (machines < 2 || machines == n) {
        return HOOP_OK;
    }
    struct hoop_grid *grid =
        calloc(1, sizeof(*grid) + (3 * (size_t)n + machines + 1) * sizeof(uint32_t));
    if (grid == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for the places of %u ranks", n);
    }
    uint32_t *ranks = (uint32_t *)(grid + 1), *places = ranks + n, *machine = places + n;
    *grid = (struct hoop_grid){machines, 0, 0, ranks, places, machine, machine + n};
    plan_fill_grid(peers, n, grid, ranks, places, machine, machine + n);
    if (grid->each == 0 && grid->first == NULL) {
        free(grid);
        grid = NULL;
    }
    *ret = grid;
    return HOOP_OK;
}

/* ---- Shared memory -------------------------------------------------------------------------- */

bool hoop_plan_may_be_direct(const struct hoop_agreement *agreed, enum hoop_collective collective)
{
    const enum hoop_algo asked = plan_asked(agreed, collective);
    return asked == HOOP_ALGO_AUTO || asked == HOOP_ALGO_DIRECT;
}

static void plan_direct(const struct hoop_reach *reach, struct hoop_plan *plan)
{
    if (reach->place == HOOP_REACH_DEVICE) {
        /* Pages of a device are never replaced: no edges, and each share in one piece. */
        plan->chunk = plan->count > 0 ? plan->count : 1;
        plan->at_once = true;
        plan->one_acts = reach->one_acts;
        plan->actor = reach->actor;
        return;
    }
    plan->head = plan_ceil(reach->head_bytes, plan->type_bytes);
    plan->tail = plan_ceil(reach->tail_bytes, plan->type_bytes);
    plan->gives = reach->gives;
    const uint64_t count = hoop_out_count(plan, plan->root);
    if (plan->head >= count) {
        plan->head = count;
        plan->tail = 0;
    } else if (plan->tail > count - plan->head) {
        plan->tail = count - plan->head;
    }
    plan->chunk = PLAN_SLICE_BYTES / plan->type_bytes;
}

static void plan_cma(struct hoop_plan *plan)
{
    uint64_t slice = PLAN_SLICE_BYTES;
    if (hoop_collectives[plan->collective].folds) {
        const uint64_t each = PLAN_CMA_FOLD_BYTES / plan->n / HOOP_LINE_BYTES * HOOP_LINE_BYTES;
        slice = each < PLAN_CMA_FOLD_LEAST_BYTES ? PLAN_CMA_FOLD_LEAST_BYTES
                : each < slice                   ? each
                                                 : slice;
    }
    plan->chunk = slice / plan->type_bytes;
    plan->scratch = hoop_algo_scratch(plan);
}

/* Small chunks go round in as much memory as large ones, and that of several writers, all of which
 * one rank reads, in as much as that of one. Ranks that share a CPU share its cache. */
static void plan_slab(const struct hoop_agreement *agreed, struct hoop_plan *plan)
{
    const uint64_t blocks =
        hoop_extent_blocks(hoop_collectives[plan->collective].in, plan->n, true);
    size_t slab = HOOP_SLAB_BYTES;
    plan->slabs = 2;
    if (hoop_collective_is_rooted(plan->collective) && !agreed->oversubscribed) {
        assert(blocks > 0);
        while (slab > PLAN_SLAB_LEAST_BYTES &&
               plan->count <= slab / 2 / plan->type_bytes / blocks) {
            slab /= 2;
        }
        const size_t slabs = HOOP_SLABS_BYTES / slab / hoop_writers(plan->collective, plan->n);
        plan->slabs = slabs > 2 ? (uint32_t)slabs : 2;
    }
    plan->chunk = slab / plan->type_bytes;
}

bool hoop_plan_may_read(const struct hoop_agreement *agreed, enum hoop_collective collective)
{
    const enum hoop_algo asked = plan_asked(agreed, collective);
    return (asked == HOOP_ALGO_CMA || asked == HOOP_ALGO_AUTO) && plan_may_cma(agreed, collective);
}

/* One of cma and slab that the model rates slower by more than this is not tried. */
#define PLAN_LEARNED_RATIO 4

struct hoop_learned_say hoop_plan_learned(const struct hoop_agreement *agreed,
                                          const struct hoop_learned *learned,
                                          const struct hoop_plan *plan, bool grants)
{
    struct hoop_learned_say says = {HOOP_CHOICE_NONE, HOOP_GRANT_NONE};
    if (plan_asked(agreed, plan->collective) != HOOP_ALGO_AUTO) {
        return says;
    }
    const uint64_t block = plan->count * plan->type_bytes;
    const uint64_t copied = plan_unmapped_cost(agreed, plan, HOOP_ALGO_SLAB);
    const uint64_t read = plan_may_cma(agreed, plan->collective)
                              ? plan_unmapped_cost(agreed, plan, HOOP_ALGO_CMA)
                              : UINT64_MAX;
    const bool both = read / PLAN_LEARNED_RATIO <= copied && copied / PLAN_LEARNED_RATIO <= read;
    if (both || grants) {
        const bool reads = both
                               ? hoop_learned_reads(learned, plan->collective, block, read < copied)
                               : read < copied;
        says.choice = reads ? HOOP_CHOICE_READ : HOOP_CHOICE_COPY;
    }
    if (grants) {
        says.grant = hoop_learned_grants(learned, plan->collective, block, both);
    }
    return says;
}

static bool plan_reads(const struct hoop_agreement *agreed, const struct hoop_reach *reach,
                       const struct hoop_plan *plan)
{
    if (reach->unreadable || !hoop_plan_may_read(agreed, plan->collective)) {
        return false;
    }
    return plan_asked(agreed, plan->collective) == HOOP_ALGO_CMA ||
           (reach->choice == HOOP_CHOICE_NONE ? plan_cma_wins(agreed, plan)
                                              : reach->choice == HOOP_CHOICE_READ);
}

void hoop_plan_choose(const struct hoop_agreement *agreed, const struct hoop_reach *reach,
                      struct hoop_plan *plan)
{
    const enum hoop_algo asked = plan_asked(agreed, plan->collective);
    if (hoop_plan_is_over_links(asked)) {
        hoop_plan_links(agreed, NULL, plan);
    } else if (reach->mapped && asked != HOOP_ALGO_SLAB && asked != HOOP_ALGO_CMA) {
        plan->algo = HOOP_ALGO_DIRECT;
        plan_direct(reach, plan);
    } else if (plan_reads(agreed, reach, plan)) {
        plan->algo = HOOP_ALGO_CMA;
        plan_cma(plan);
    } else {
        plan->algo = HOOP_ALGO_SLAB;
        plan_slab(agreed, plan);
    }
}

/* ---- What is seen from outside -------------------------------------------------------------- */

void hoop_plan_costs(const struct hoop_agreement *agreed, bool over_links,
                     const struct hoop_plan *plan, uint64_t ret_ns[HOOP_ALGO_COUNT])
{
    for (int i = 0; i < HOOP_ALGO_COUNT; i++) {
        const enum hoop_algo algo = (enum hoop_algo)i;
        struct hoop_plan with = *plan;
        with.algo = algo;
        with.chunk = HOOP_SLAB_BYTES / plan->type_bytes;
        ret_ns[i] = 0;
        if (over_links && plan_links_can(agreed, plan, algo)) {
            ret_ns[i] = plan_links_cost(agreed, plan, algo);
        } else if (!over_links && !hoop_plan_is_over_links(algo) &&
                   (algo != HOOP_ALGO_CMA || agreed->no_cma == 0) &&
                   plan_may(agreed, plan->collective, algo)) {
            ret_ns[i] =
                hoop_cost(plan_class(agreed), agreed->oversubscribed, &with, agreed->chunk_bytes);
        }
    }
}

uint64_t hoop_plan_read_least(const struct hoop_agreement *agreed)
{
    return agreed->no_cma == 0 ? hoop_cost_read_least(plan_class(agreed)) : UINT64_MAX;
}

uint64_t hoop_plan_transfer_cost(const struct hoop_agreement *agreed, bool over_links,
                                 uint64_t bytes)
{
    const bool read = !over_links && bytes >= hoop_plan_read_least(agreed);
    return hoop_cost_transfer(over_links ? HOOP_COST_LINKS : plan_class(agreed), bytes, read);
}
