/*
 * The ring over links from rank r to r+1, in two phases of n-1 steps: scatter-reduce, after which
 * rank r has finished part r, and allgather, after which all ranks have all parts. all_reduce is
 * both (Patarasuk and Yuan 2009), reduce_scatter the first, all_gather the second.
 *
 * The parts (shards of the vector, or blocks) are cut into chunks; column c is chunk c of every
 * part, and lane l runs columns l, l+lanes, ... one after the other. In step t of a phase rank r
 * sends what it received in the step before. n = 3, contributions a, b, c of ranks 0, 1, 2:
 *
 *     step   rank 0 sends     rank 1 sends     rank 2 sends
 *      0     part 2: a        part 0: b        part 1: c          receivers fold
 *      1     part 1: c+a      part 2: a+b      part 0: b+c        and the last fold divides
 *      2     part 0: b+c+a    part 1: c+a+b    part 2: a+b+c      receivers copy
 *      3     part 2           part 0           part 1
 *
 * So part s is ((x_{s+1} + x_{s+2}) + ...) + x_s, whatever the chunks and lanes are. If OUT has
 * room for one part only, unfinished sums are in SCRATCH, in two alternating chunks.
 *
 * The torus does the same in two directions. With m machines of e ranks each, the ranks at index i
 * of all machines form a ring between the machines, and the ranks of each machine form a ring
 * inside. Scatter-reduce first goes round inside, in m (e-1) steps, m for each of the e-1 hops:
 * then the rank at index i has its machine's sums for the parts of all ranks at index i. These go
 * round between the machines, in m-1 steps, and allgather takes the same way back. As with the ring
 * a phase is n-1 steps, and a step moves 1/n of the vector, but in each phase a machine sends
 * (m-1)/m of the vector to others instead of (n-1)/n. m = 2, e = 2, ranks 0 and 1 on one machine, 2
 * and 3 on the other:
 *
 *     step   rank 0 sends     rank 1 sends     rank 2 sends     rank 3 sends
 *      0     part 1: a        part 0: b        part 3: c        part 2: d         inside
 *      1     part 3: a        part 2: b        part 1: c        part 0: d
 *      2     part 2: b+a      part 3: a+b      part 0: d+c      part 1: c+d       between
 *      3     part 0: ...      part 1           part 2           part 3            between
 *      4     part 0           part 1           part 2           part 3            inside
 *      5     part 2           part 3           part 0           part 1
 *
 * Part 0 is (d+c) + (b+a): the sum of each machine is formed as in a ring of its own, and these
 * sums are added as in a ring of machines. The ring is the torus of machines with one rank each.
 *
 * If a chunk of a part is empty, neither end makes a part of a step for it: both know the cut, so
 * the order of sends and of receives on a link still agrees. Such a step may be entirely empty;
 * step 0 of lane 0 is not if there are at least as many elements as ranks, or blocks. The torus,
 * whose first neighbour may not be rank me+1, begins with an additional, empty exchange to announce
 * the operation.
 */
#include "algo/parts.h"
#include <assert.h>

/* This rank's position. In the ring each rank is a machine of its own. */
struct ring {
    const struct hoop_plan *plan;
    uint32_t machines, each;
    uint32_t machine, index;
    uint64_t column;
};

static struct ring ring_of(const struct hoop_plan *plan)
{
    struct ring ret = {.plan = plan, .machines = plan->n, .each = 1, .machine = plan->me};
    if (plan->algo == HOOP_ALGO_TORUS) {
        ret.machines = plan->grid->machines;
        ret.each = plan->grid->each;
        ret.machine = plan->grid->places[plan->me] / ret.each;
        ret.index = plan->grid->places[plan->me] % ret.each;
    }
    return ret;
}

/* The rank that is so many machines, and so many places within a machine, before this one. */
static uint32_t ring_before(const struct ring *ring, uint64_t machines, uint64_t places)
{
    const uint64_t machine = (ring->machine + ring->machines - machines) % ring->machines;
    const uint64_t place = machine * ring->each + (ring->index + ring->each - places) % ring->each;
    return ring->plan->algo == HOOP_ALGO_TORUS ? ring->plan->grid->ranks[place] : (uint32_t)place;
}

/* Sends to the next rank and receives from the previous one, between machines or inside. */
static void ring_pass(const struct ring *ring, bool between, struct hoop_ref sent,
                      struct hoop_ref received, struct hoop_step *ret)
{
    const uint64_t next = between ? ring->machines - 1 : ring->each - 1;
    hoop_step_send(ret, ring_before(ring, between ? next : 0, between ? 0 : next), sent, false);
    hoop_step_recv(ret, ring_before(ring, between, !between), received, false);
}

static struct hoop_ref ring_chunk(const struct ring *ring, enum hoop_space space, uint32_t part)
{
    return hoop_column_chunk(ring->plan, space, part, ring->column);
}

/* Where an unfinished sum of a part lies: in OUT, or without room there in that chunk of
 * SCRATCH. */
static struct hoop_ref ring_partial(const struct ring *ring, uint32_t part, uint64_t slot)
{
    if (ring->plan->collective == HOOP_COLL_ALL_REDUCE) {
        return ring_chunk(ring, HOOP_SPACE_OUT, part);
    }
    return hoop_ref_of(HOOP_SPACE_SCRATCH, ring->plan->me, slot * ring->plan->chunk,
                       ring_chunk(ring, HOOP_SPACE_IN, part).count);
}

/* The chunk of SCRATCH for what step k inside receives. One more than there are machines, because
 * one earlier sum per machine is still to be sent. */
static uint64_t ring_slot(const struct ring *ring, uint64_t k)
{
    return k % (ring->machines + UINT64_C(1));
}

static void ring_reduce_inside(const struct ring *ring, uint64_t k, struct hoop_step *ret)
{
    const uint64_t t = k / ring->machines, far = k % ring->machines;
    const uint32_t sent = ring_before(ring, far, 1 + t);
    const uint32_t received = ring_before(ring, far, (2 + t) % ring->each);
    ring_pass(ring, false,
              t == 0 ? ring_chunk(ring, HOOP_SPACE_IN, sent)
                     : ring_partial(ring, sent, ring_slot(ring, k - ring->machines)),
              ring_partial(ring, received, ring_slot(ring, k)), ret);
    ret->recv.mode = HOOP_RECV_REDUCE;
    ret->recv.own = ring_chunk(ring, HOOP_SPACE_IN, received);
}

/* This machine's contribution to the part of the machine `far` before this one. */
static struct hoop_ref ring_share(const struct ring *ring, uint64_t far)
{
    const uint32_t part = ring_before(ring, far, 0);
    return ring->each == 1
               ? ring_chunk(ring, HOOP_SPACE_IN, part)
               : ring_partial(ring, part,
                              ring_slot(ring, (ring->each - UINT64_C(2)) * ring->machines + far));
}

/* Where that contribution is added to what is received. */
static struct hoop_ref ring_sum(const struct ring *ring, uint64_t t)
{
    const uint64_t far = (2 + t) % ring->machines;
    return ring->each == 1 ? ring_partial(ring, ring_before(ring, far, 0), t % 2)
                           : ring_share(ring, far);
}

static void ring_reduce_between(const struct ring *ring, uint64_t t, struct hoop_step *ret)
{
    const bool last = t + 2 == ring->machines;
    ring_pass(ring, true, t == 0 ? ring_share(ring, 1) : ring_sum(ring, t - 1),
              last ? ring_chunk(ring, HOOP_SPACE_OUT, ring->plan->me) : ring_sum(ring, t), ret);
    ret->recv.mode = last ? HOOP_RECV_REDUCE_LAST : HOOP_RECV_REDUCE;
    ret->recv.own = ring_share(ring, (2 + t) % ring->machines);
}

/* The first send of all_gather is from IN, where the own part still is. */
static void ring_gather_between(const struct ring *ring, uint64_t t, struct hoop_step *ret)
{
    const bool first = t == 0 && ring->plan->collective == HOOP_COLL_ALL_GATHER;
    ring_pass(ring, true,
              ring_chunk(ring, first ? HOOP_SPACE_IN : HOOP_SPACE_OUT, ring_before(ring, t, 0)),
              ring_chunk(ring, HOOP_SPACE_OUT, ring_before(ring, 1 + t, 0)), ret);
    if (first) {
        hoop_step_keep(ring->plan, ret, ring->plan->me, ring->column);
    }
}

static void ring_gather_inside(const struct ring *ring, uint64_t k, struct hoop_step *ret)
{
    const uint64_t t = k / ring->machines, far = k % ring->machines;
    ring_pass(ring, false, ring_chunk(ring, HOOP_SPACE_OUT, ring_before(ring, far, t)),
              ring_chunk(ring, HOOP_SPACE_OUT, ring_before(ring, far, 1 + t)), ret);
}

bool hoop_ring_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->n > 0 && plan->me < plan->n && plan->lanes > 0 && plan->chunk > 0);
    hoop_step_clear(ret);
    if (plan->n == 1) {
        return hoop_step_alone(plan, lane, k, ret);
    }
    struct ring ring = ring_of(plan);
    const uint64_t between = ring.machines - 1, inside = plan->n - ring.machines;
    const uint64_t folding = plan->collective != HOOP_COLL_ALL_GATHER;
    const uint64_t copying = plan->collective != HOOP_COLL_REDUCE_SCATTER;
    if (!hoop_in_column(plan, lane, hoop_columns(plan), (folding + copying) * (plan->n - 1), &k,
                        &ring.column)) {
        return false;
    }
    if (hoop_in_phase(&k, folding * inside)) {
        ring_reduce_inside(&ring, k, ret);
    } else if (hoop_in_phase(&k, folding * between)) {
        ring_reduce_between(&ring, k, ret);
    } else if (hoop_in_phase(&k, copying * between)) {
        ring_gather_between(&ring, k, ret);
    } else {
        ring_gather_inside(&ring, k, ret);
    }
    return true;
}

bool hoop_torus_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k, struct hoop_step *ret)
{
    assert(plan->grid->machines > 1 && plan->grid->each > 1);
    if (lane > 0 || k > 0) {
        return hoop_ring_step(plan, lane, k - (lane == 0), ret);
    }
    const struct hoop_ref nothing = hoop_ref_of(HOOP_SPACE_OUT, plan->me, 0, 0);
    hoop_step_clear(ret);
    hoop_step_send(ret, hoop_rank_after(plan, 1), nothing, true);
    hoop_step_recv(ret, hoop_rank_before(plan, 1), nothing, true);
    return true;
}
