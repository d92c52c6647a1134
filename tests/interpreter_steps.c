/*
 * The interpreter's look at single steps: that the function is pure, that a step says only what
 * lib/algo/step.h allows, that lanes keep apart.
 */
#include "interpreter_world.h"
#include <inttypes.h>
#include <string.h>

static bool same_ref(const struct hoop_ref *a, const struct hoop_ref *b)
{
    return a->space == b->space && a->member == b->member && a->off == b->off &&
           a->count == b->count;
}

static bool same_step(const struct hoop_step *a, const struct hoop_step *b)
{
    return a->send.peer == b->send.peer && same_ref(&a->send.from, &b->send.from) &&
           a->recv.peer == b->recv.peer && a->recv.mode == b->recv.mode &&
           same_ref(&a->recv.to, &b->recv.to) && a->local.op == b->local.op &&
           same_ref(&a->local.dst, &b->local.dst) && same_ref(&a->local.src, &b->local.src);
}

/* Asks for step k, and again over other bytes and after another question. */
bool hoop_world_ask(struct hoop_world *w, uint32_t rank, uint32_t lane, uint64_t k,
                    struct hoop_step *ret)
{
    const struct hoop_interpreter_op *op = hoop_world_op(w, rank);
    struct hoop_plan plan = op->plan;
    plan.me = rank;
    plan.in_place = op->in_place >> rank & 1;
    struct hoop_step again;
    memset(ret, 0x55, sizeof(*ret));
    bool some = op->steps(&plan, lane, k, ret);
    (void)op->steps(&plan, lane, hoop_world_draw(w, k + 8), &again);
    memset(&again, 0xaa, sizeof(again));
    bool same = op->steps(&plan, lane, k, &again) == some;
    if (!same || (some && !same_step(ret, &again))) {
        hoop_world_fail(w, "impure: rank %" PRIu32 " step %" PRIu64 " differs when asked again",
                        rank, k);
    }
    const uint64_t beyond[] = {k + 1, k + 1 + hoop_world_draw(w, 1000), k + (UINT64_C(1) << 40),
                               UINT64_MAX};
    for (size_t i = 0; !some && i < sizeof(beyond) / sizeof(*beyond); i++) {
        if (op->steps(&plan, lane, beyond[i], &again)) {
            hoop_world_fail(
                w, "rank %" PRIu32 " lane %" PRIu32 " ended at step %" PRIu64 ", not at %" PRIu64,
                rank, lane, k, beyond[i]);
        }
    }
    return some;
}

static void check_ref(struct hoop_world *w, uint32_t rank, const struct hoop_ref *ref, bool every,
                      bool written)
{
    uint64_t size = hoop_space_size(w, rank, ref->space);
    if (ref->space > HOOP_SPACE_SLAB || ref->off > size || ref->count > size - ref->off) {
        hoop_world_fail(w,
                        "rank %" PRIu32 ": [%" PRIu64 ", +%" PRIu64 ") leaves space %d of %" PRIu64,
                        rank, ref->off, ref->count, ref->space, size);
    } else if (every ? ref->member != HOOP_EVERY : ref->member >= w->n) {
        hoop_world_fail(w, "rank %" PRIu32 ": member %" PRIu32 " in a part that cannot take it",
                        rank, ref->member);
    } else if (written && ref->space == HOOP_SPACE_IN) {
        hoop_world_fail(w, "rank %" PRIu32 " writes to IN", rank);
    } else if (written && !every && ref->member != rank) {
        hoop_world_fail(w, "rank %" PRIu32 " writes to memory of %" PRIu32, rank, ref->member);
    } else if (ref->space == HOOP_SPACE_SCRATCH && ref->member != rank) {
        hoop_world_fail(w, "rank %" PRIu32 " uses SCRATCH of another rank", rank);
    }
}

void hoop_check_links(struct hoop_world *w, uint32_t rank, const struct hoop_step *step)
{
    const int32_t peers[] = {step->send.peer, step->recv.peer};
    for (int i = 0; i < 2; i++) {
        if (peers[i] >= 0 && ((uint32_t)peers[i] >= w->n || (uint32_t)peers[i] == rank)) {
            hoop_world_fail(w, "rank %" PRIu32 ": a link to %" PRId32, rank, peers[i]);
        }
    }
    if (step->send.peer >= 0) {
        check_ref(w, rank, &step->send.from, false, false);
        if (step->send.from.member != rank || step->send.from.space > HOOP_SPACE_OUT) {
            hoop_world_fail(w, "rank %" PRIu32 " sends what is not in its own buffers", rank);
        }
    }
    if (step->recv.peer >= 0) {
        check_ref(w, rank, &step->recv.to, false, true);
        if (step->recv.to.space != HOOP_SPACE_OUT || step->recv.mode > HOOP_RECV_REDUCE_LAST) {
            hoop_world_fail(w, "rank %" PRIu32 " receives in mode %d to space %d, not OUT", rank,
                            step->recv.mode, step->recv.to.space);
        }
    }
}

void hoop_check_local(struct hoop_world *w, uint32_t rank, const struct hoop_step *step)
{
    uint8_t op = step->local.op;
    if (op > HOOP_LOCAL_SPREAD) {
        hoop_world_fail(w, "rank %" PRIu32 ": local part %d", rank, op);
    } else if (op >= HOOP_LOCAL_COPY) {
        check_ref(w, rank, &step->local.dst, op == HOOP_LOCAL_SPREAD, true);
        check_ref(w, rank, &step->local.src, op != HOOP_LOCAL_COPY, false);
        if (step->local.dst.count != step->local.src.count) {
            hoop_world_fail(w, "rank %" PRIu32 ": %" PRIu64 " elements from %" PRIu64, rank,
                            step->local.dst.count, step->local.src.count);
        }
    }
}

/* What the link parts of a lane read and write while they run. */
struct extent {
    const struct hoop_cell *start;
    uint64_t count;
    bool written;
};

static uint32_t extents_of(const struct hoop_world *w, uint32_t rank, const struct hoop_lane *lane,
                           struct extent *ret)
{
    const struct hoop_ref *from = &lane->step.send.from, *to = &lane->step.recv.to;
    uint32_t n = 0;
    if (lane->state[HOOP_PART_SEND] != HOOP_PART_DONE) {
        struct hoop_cell *start = hoop_space_start(w, rank, from->space, rank) + from->off;
        ret[n++] = (struct extent){start, from->count, false};
    }
    if (lane->state[HOOP_PART_RECV] != HOOP_PART_DONE) {
        struct hoop_cell *start = hoop_space_start(w, rank, to->space, rank) + to->off;
        ret[n++] = (struct extent){start, to->count, true};
        if (lane->step.recv.mode != HOOP_RECV_COPY) {
            start = hoop_space_start(w, rank, HOOP_SPACE_IN, rank) + to->off;
            ret[n++] = (struct extent){start, to->count, false};
        }
    }
    return n;
}

static bool overlap(const struct extent *a, const struct extent *b)
{
    return (a->written || b->written) && a->start < b->start + b->count &&
           b->start < a->start + a->count;
}

/* A receive may read its own operand where it writes; anything else must keep apart. */
void hoop_check_overlap(struct hoop_world *w, uint32_t rank, uint32_t index)
{
    struct extent mine[HOOP_PART_KINDS], theirs[HOOP_PART_KINDS];
    const struct hoop_lane *lane = &w->ranks[rank].lanes[index];
    uint32_t count = extents_of(w, rank, lane, mine);
    bool sends = lane->state[HOOP_PART_SEND] != HOOP_PART_DONE;
    for (uint32_t i = 1; sends && i < count; i++) {
        if (overlap(&mine[0], &mine[i])) {
            hoop_world_fail(w, "rank %" PRIu32 " receives where it sends from", rank);
        }
    }
    for (uint32_t l = 0; l < w->lanes; l++) {
        uint32_t others = l == index ? 0 : extents_of(w, rank, &w->ranks[rank].lanes[l], theirs);
        for (uint32_t i = 0; i < count * others; i++) {
            if (overlap(&mine[i / others], &theirs[i % others])) {
                hoop_world_fail(
                    w, "rank %" PRIu32 ": lanes %" PRIu32 " and %" PRIu32 " meet in memory", rank,
                    index, l);
            }
        }
    }
}
