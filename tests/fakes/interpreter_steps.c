/*
 * The interpreter's checks of single steps: that the function is pure, that a step contains only
 * what lib/algo/step.h allows, and that lanes keep apart.
 */
#include "fakes/interpreter_world.h"
#include <inttypes.h>
#include <string.h>

static bool same_ref(const struct hoop_ref *a, const struct hoop_ref *b)
{
    return a->space == b->space && a->member == b->member && a->off == b->off &&
           a->count == b->count;
}

static bool same_step(const struct hoop_step *a, const struct hoop_step *b)
{
    return a->more == b->more && a->send.peer == b->send.peer &&
           same_ref(&a->send.from, &b->send.from) && a->recv.peer == b->recv.peer &&
           a->recv.mode == b->recv.mode && same_ref(&a->recv.own, &b->recv.own) &&
           same_ref(&a->recv.to, &b->recv.to) && a->local.op == b->local.op &&
           same_ref(&a->local.dst, &b->local.dst) && same_ref(&a->local.src, &b->local.src) &&
           same_ref(&a->local.own, &b->local.own) && same_ref(&a->local.kept, &b->local.kept);
}

/* Asks for step k, and again with other bytes in *ret and after a different question. */
bool hoop_world_ask(struct hoop_world *w, uint32_t rank, uint32_t lane, uint64_t k,
                    struct hoop_step *ret)
{
    const struct hoop_interpreter_op *op = hoop_world_op(w, rank);
    struct hoop_plan plan = op->plan;
    plan.me = rank;
    plan.in_place = hoop_is_in_place(op, rank);
    plan.scratch = hoop_algo_scratch(&plan);
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

/* How many elements a ref covers; with HOOP_EVERY in SCRATCH the vectors of all ranks follow each
 * other. */
static uint64_t extent_of(const struct hoop_world *w, const struct hoop_ref *ref)
{
    bool row = ref->space == HOOP_SPACE_SCRATCH && ref->member == HOOP_EVERY;
    return row ? ref->count * w->n : ref->count;
}

/* Where a ref may be written: nowhere, in the rank's own memory, or in any rank's. */
enum written { READ_ONLY, WRITTEN_HERE, WRITTEN_ANYWHERE };

static void check_ref(struct hoop_world *w, uint32_t rank, const struct hoop_ref *ref, bool every,
                      enum written written)
{
    if (ref->member >= w->n && ref->member != HOOP_EVERY) {
        hoop_world_fail(w, "rank %" PRIu32 ": there is no member %" PRIu32, rank, ref->member);
        return;
    }
    uint64_t size = hoop_space_size(w, rank, ref->space, ref->member), count = extent_of(w, ref);
    bool links = hoop_world_over_links(w, rank);
    bool row = links && every && ref->space == HOOP_SPACE_SCRATCH;
    if (ref->space > HOOP_SPACE_SLAB || ref->off > size || count > size - ref->off) {
        hoop_world_fail(w,
                        "rank %" PRIu32 ": [%" PRIu64 ", +%" PRIu64 ") leaves space %d of %" PRIu64,
                        rank, ref->off, count, ref->space, size);
    } else if (every != (ref->member == HOOP_EVERY)) {
        hoop_world_fail(w, "rank %" PRIu32 ": member %" PRIu32 " in a part that cannot take it",
                        rank, ref->member);
    } else if (written != READ_ONLY && ref->space == HOOP_SPACE_IN) {
        hoop_world_fail(w, "rank %" PRIu32 " writes to IN", rank);
    } else if (written == WRITTEN_HERE && ref->member != rank) {
        hoop_world_fail(w, "rank %" PRIu32 " writes to memory of %" PRIu32, rank, ref->member);
    } else if (ref->space == HOOP_SPACE_SCRATCH && ref->member != rank && !row) {
        hoop_world_fail(w, "rank %" PRIu32 " uses SCRATCH of another rank", rank);
    } else if (links && (ref->space > HOOP_SPACE_SCRATCH || (ref->member != rank && !row))) {
        hoop_world_fail(w, "rank %" PRIu32 " touches memory of other ranks over links", rank);
    }
}

/*
 * Hierarchical: each rank first receives from the rank before it. It sends to the next rank in step
 * 0 or, if it is the last on its machine, before it receives anything but from the rank before it
 * and from its own machine. A root that collects, as the first on its machine, may receive from its
 * machine even earlier.
 */
static bool begins_hierarchy(struct hoop_world *w, uint32_t rank, uint64_t k,
                             const struct hoop_step *step)
{
    const struct hoop_grid *grid = hoop_world_op(w, rank)->plan.grid;
    const uint32_t next = (rank + 1) % w->n, before = (rank + w->n - 1) % w->n;
    struct hoop_lane *lane = &w->ranks[rank].lanes[0];
    const struct hoop_plan *plan = &hoop_world_op(w, rank)->plan;
    const bool collects = rank == plan->root && (plan->collective == HOOP_COLL_REDUCE ||
                                                 plan->collective == HOOP_COLL_GATHER);
    uint32_t from = step != NULL && step->recv.peer >= 0 ? (uint32_t)step->recv.peer : rank;
    if (collects && from != before && grid->machine[from] == grid->machine[rank]) {
        from = rank;
    }
    const bool heard = k > 0 && lane->heard, said = k > 0 && lane->said;
    lane->heard = heard || from != rank;
    lane->said = said || (step != NULL && step->send.peer == (int32_t)next);
    return (heard || from == rank || from == before) &&
           (lane->said || ((from == before || grid->machine[from] == grid->machine[rank]) &&
                           grid->machine[next] != grid->machine[rank]));
}

/* step NULL: there is none. */
void hoop_check_first(struct hoop_world *w, uint32_t rank, uint64_t k, const struct hoop_step *step)
{
    const struct hoop_plan *plan = &hoop_world_op(w, rank)->plan;
    bool excused = plan->algo == HOOP_ALGO_RING && plan->count < w->n &&
                   !hoop_collective_is_blocked(plan->collective);
    bool right = step != NULL && step->send.peer == (int32_t)((rank + 1) % w->n) &&
                 step->recv.peer == (int32_t)((rank + w->n - 1) % w->n);
    if (w->n == 1 || !hoop_world_over_links(w, rank) || excused) {
        return;
    }
    if (plan->algo == HOOP_ALGO_HIERARCHICAL) {
        right = begins_hierarchy(w, rank, k, step);
    }
    if (!right && (k == 0 || plan->algo == HOOP_ALGO_HIERARCHICAL)) {
        hoop_world_fail(w,
                        "rank %" PRIu32 " does not begin with a send to the rank behind it and "
                        "a receive from the one before it",
                        rank);
    }
}

/* What is received is folded with this: elements of IN or SCRATCH, or those that it replaces. */
static void check_own(struct hoop_world *w, uint32_t rank, const struct hoop_ref *own,
                      const struct hoop_ref *to)
{
    check_ref(w, rank, own, false, READ_ONLY);
    if (own->count != to->count || (own->space == HOOP_SPACE_OUT && !same_ref(own, to))) {
        hoop_world_fail(w, "rank %" PRIu32 " folds with %" PRIu64 " elements of space %d", rank,
                        own->count, own->space);
    }
}

void hoop_check_links(struct hoop_world *w, uint32_t rank, const struct hoop_step *step)
{
    const int32_t peers[] = {step->send.peer, step->recv.peer};
    for (int i = 0; i < 2; i++) {
        if (peers[i] >= 0 && !hoop_world_over_links(w, rank)) {
            hoop_world_fail(w, "rank %" PRIu32 ": a link over shared memory", rank);
        } else if (peers[i] >= 0 && ((uint32_t)peers[i] >= w->n || (uint32_t)peers[i] == rank)) {
            hoop_world_fail(w, "rank %" PRIu32 ": a link to %" PRId32, rank, peers[i]);
        }
    }
    if (step->send.peer >= 0) {
        check_ref(w, rank, &step->send.from, false, READ_ONLY);
    }
    if (step->recv.peer >= 0) {
        bool copied = step->recv.mode == HOOP_RECV_COPY;
        check_ref(w, rank, &step->recv.to, false, WRITTEN_HERE);
        if (step->recv.mode > HOOP_RECV_REDUCE_LAST ||
            (!copied && step->recv.to.space != HOOP_SPACE_OUT &&
             step->recv.to.space != HOOP_SPACE_SCRATCH)) {
            hoop_world_fail(w, "rank %" PRIu32 " receives in mode %d to space %d", rank,
                            step->recv.mode, step->recv.to.space);
        }
        if (!copied) {
            check_own(w, rank, &step->recv.own, &step->recv.to);
        }
    }
}

/* Checks what only a fold may have. */
static void check_apart(struct hoop_world *w, uint32_t rank, const struct hoop_step *step)
{
    const struct hoop_ref *own = &step->local.own, *kept = &step->local.kept;
    const bool spread = step->local.op == HOOP_LOCAL_SPREAD;
    const bool folds = spread || step->local.op == HOOP_LOCAL_REDUCE;
    const uint64_t count = folds ? step->local.dst.count : 0;
    if ((own->count != 0 && own->count != count) ||
        (kept->count != 0 && kept->count != (spread ? count : 0))) {
        hoop_world_fail(w, "rank %" PRIu32 ": %" PRIu64 " and %" PRIu64 " elements apart", rank,
                        own->count, kept->count);
        return;
    }
    if (own->count > 0) {
        check_ref(w, rank, own, false, READ_ONLY);
    }
    if (kept->count > 0) {
        check_ref(w, rank, kept, false, WRITTEN_HERE);
    }
}

/* Does a copy go from this rank's input to the root's output, and not to an edge of that? */
static bool is_given(const struct hoop_world *w, uint32_t rank, const struct hoop_step *step)
{
    const struct hoop_plan *plan = &hoop_world_op(w, rank)->plan;
    const struct hoop_ref *src = &step->local.src, *dst = &step->local.dst;
    const uint64_t last = w->n * plan->count - plan->tail;
    return plan->gives && src->space == HOOP_SPACE_IN && src->member == rank &&
           dst->space == HOOP_SPACE_OUT && dst->member == plan->root && dst->off >= plan->head &&
           dst->off + dst->count <= last;
}

void hoop_check_local(struct hoop_world *w, uint32_t rank, const struct hoop_step *step)
{
    uint8_t op = step->local.op;
    bool links = hoop_world_over_links(w, rank);
    bool reads = hoop_world_op(w, rank)->plan.algo == HOOP_ALGO_CMA; /* it does not write there */
    bool known = links ? op == HOOP_LOCAL_NONE || op == HOOP_LOCAL_COPY || op == HOOP_LOCAL_REDUCE
                       : op <= HOOP_LOCAL_SPREAD;
    if (!known) {
        hoop_world_fail(w, "rank %" PRIu32 ": local part %d", rank, op);
    } else if (op >= HOOP_LOCAL_COPY) {
        struct hoop_ref src = step->local.src;
        const bool here = op == HOOP_LOCAL_COPY && step->local.dst.space != HOOP_SPACE_SLAB &&
                          !is_given(w, rank, step);
        const bool row =
            op == HOOP_LOCAL_REDUCE && src.space == HOOP_SPACE_SLAB && src.member == rank;
        check_ref(w, rank, &step->local.dst, op == HOOP_LOCAL_SPREAD,
                  reads || here ? WRITTEN_HERE : WRITTEN_ANYWHERE);
        const bool rows = hoop_is_row(w, rank, step);
        src.count *= row ? w->n : 1;
        check_ref(w, rank, &src, op != HOOP_LOCAL_COPY && !row && !rows, READ_ONLY);
        if (rows ? step->local.dst.count == 0 || src.count % step->local.dst.count != 0
                 : step->local.dst.count != step->local.src.count) {
            hoop_world_fail(w, "rank %" PRIu32 ": %" PRIu64 " elements from %" PRIu64, rank,
                            step->local.dst.count, step->local.src.count);
        }
    }
    check_apart(w, rank, step);
}

/* The extents of the parts that may be running. */
static uint32_t extents_of(const struct hoop_world *w, uint32_t rank, uint32_t index,
                           const bool running[HOOP_PART_KINDS], struct hoop_touch *ret)
{
    const struct hoop_step *step = &w->ranks[rank].lanes[index].step;
    const struct hoop_ref *to = &step->recv.to;
    const struct hoop_ref *own = &step->recv.own;
    const struct {
        const struct hoop_ref *ref;
        enum hoop_part_kind part;
        bool written;
    } all[HOOP_STEP_TOUCHES] = {
        {&step->send.from, HOOP_PART_SEND, false},
        {to, HOOP_PART_RECV, true},
        {own, HOOP_PART_RECV, false},
        {&step->local.dst, HOOP_PART_LOCAL, true},
        {&step->local.src, HOOP_PART_LOCAL, false},
        {&step->local.own, HOOP_PART_LOCAL, false},
    };
    uint32_t n = 0;
    for (uint32_t i = 0; i < HOOP_STEP_TOUCHES; i++) {
        bool unused = (all[i].ref == own && step->recv.mode == HOOP_RECV_COPY) ||
                      (all[i].ref == &step->local.own && step->local.own.count == 0);
        if (running[all[i].part] && !unused) {
            /* The first of the vectors is the rank's own. */
            const struct hoop_cell *start = hoop_ref_start(w, rank, index, all[i].ref, rank);
            ret[n++] =
                (struct hoop_touch){start, extent_of(w, all[i].ref), all[i].part, all[i].written};
        }
    }
    return n;
}

static uint32_t extents_now(const struct hoop_world *w, uint32_t rank, uint32_t index,
                            struct hoop_touch *ret)
{
    const uint8_t *state = w->ranks[rank].lanes[index].state;
    bool running[HOOP_PART_KINDS];
    for (int i = 0; i < HOOP_PART_KINDS; i++) {
        running[i] = state[i] != HOOP_PART_DONE;
    }
    return extents_of(w, rank, index, running, ret);
}

void hoop_check_round(struct hoop_world *w, uint32_t rank, uint32_t index)
{
    struct hoop_lane *lane = &w->ranks[rank].lanes[index];
    const struct hoop_step *step = &lane->step;
    if (lane->k == 0 || !step->more) {
        lane->befores = lane->sent_to = lane->received_from = 0;
        return;
    }
    const bool used[HOOP_PART_KINDS] = {step->send.peer >= 0, step->recv.peer >= 0,
                                        step->local.op != HOOP_LOCAL_NONE};
    const uint32_t to = used[HOOP_PART_SEND] ? UINT32_C(1) << step->send.peer : 0;
    const uint32_t from = used[HOOP_PART_RECV] ? UINT32_C(1) << step->recv.peer : 0;
    if ((lane->sent_to & to) != 0 || (lane->received_from & from) != 0) {
        hoop_world_fail(w, "rank %" PRIu32 " meets a rank twice in a round", rank);
    } else if (lane->befores > sizeof(lane->before) / sizeof(*lane->before) - HOOP_STEP_TOUCHES) {
        hoop_world_fail(w, "rank %" PRIu32 ": a round without end", rank);
    } else {
        lane->befores += extents_of(w, rank, index, used, &lane->before[lane->befores]);
    }
    lane->sent_to |= to;
    lane->received_from |= from;
}

static bool overlap(const struct hoop_touch *a, const struct hoop_touch *b)
{
    return (a->written || b->written) && a->start < b->start + b->count &&
           b->start < a->start + a->count;
}

/* Do any two of them overlap? One part may read where it writes. */
static bool any_overlap(const struct hoop_touch *mine, uint32_t count,
                        const struct hoop_touch *theirs, uint32_t others, bool same_step)
{
    for (uint32_t i = 0; i < count * others; i++) {
        const struct hoop_touch *a = &mine[i / others], *b = &theirs[i % others];
        if ((!same_step || a->part != b->part) && overlap(a, b)) {
            return true;
        }
    }
    return false;
}

void hoop_check_overlap(struct hoop_world *w, uint32_t rank, uint32_t index)
{
    struct hoop_touch mine[HOOP_STEP_TOUCHES], theirs[HOOP_STEP_TOUCHES];
    if (!hoop_world_over_links(w, rank)) {
        return;
    }
    uint32_t count = extents_now(w, rank, index, mine);
    for (uint32_t l = 0; l < w->lanes; l++) {
        const struct hoop_lane *lane = &w->ranks[rank].lanes[l];
        const bool now =
            any_overlap(mine, count, theirs, extents_now(w, rank, l, theirs), l == index);
        const bool round = any_overlap(mine, count, lane->before, lane->befores, false);
        if (l == index && now) {
            hoop_world_fail(w, "rank %" PRIu32 ": parts of one step meet in memory", rank);
        } else if (l == index && round) {
            hoop_world_fail(w, "rank %" PRIu32 ": steps of one round meet in memory", rank);
        } else if (now || round) {
            hoop_world_fail(w, "rank %" PRIu32 ": lanes %" PRIu32 " and %" PRIu32 " meet in memory",
                            rank, index, l);
        }
    }
}
