/*
 * The interpreter. See interpreter.h for what it proves.
 *
 * An action is one part of one lane of one rank. hoop_interpret() tries actions in an order drawn
 * from the seed; an action moves a few elements, or passes a barrier, or finishes its part, or
 * cannot move. When none can, all must be finished.
 */
#include "fakes/interpreter_world.h"
#include "harness/splitmix.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EVENTS 100000000u

/* ---- Ranks -------------------------------------------------------------------------------- */

static void finish_op(struct hoop_world *w, uint32_t rank)
{
    struct hoop_rank *r = &w->ranks[rank];
    const struct hoop_plan *plan = &hoop_world_op(w, rank)->plan;
    const uint64_t count = hoop_out_count(plan, rank);
    const struct hoop_ref all = {HOOP_SPACE_OUT, rank, 0, count};
    struct hoop_cell *out = hoop_ref_start(w, rank, 0, &all, rank);
    for (uint64_t i = 0; !w->failed && i < count; i++) {
        uint64_t value = hoop_cell_read(w, rank, &out[i]);
        if (value != hoop_expected(w, r->op, rank, i)) {
            const char *what = value == HOOP_UNDEFINED                      ? "nothing"
                               : value == hoop_symbol_input(r->op, rank, i) ? "its own input"
                                                                            : "another expression";
            hoop_world_fail(
                w, "rank %" PRIu32 " element %" PRIu64 " holds %s, not the documented result", rank,
                i, what);
        }
    }
    if (w->barriers[r->op] == UINT32_MAX) {
        w->barriers[r->op] = r->op_arrivals;
    }
    if (w->barriers[r->op] != r->op_arrivals) {
        hoop_world_fail(w, "rank %" PRIu32 " arrived %" PRIu32 " times, another %" PRIu32, rank,
                        r->op_arrivals, w->barriers[r->op]);
    } else if (!hoop_world_over_links(w, rank) && r->op_arrivals == 0) {
        hoop_world_fail(w, "rank %" PRIu32 " did not announce the operation", rank);
    }
    r->op++;
    if (r->op == w->c->op_count && !w->failed) {
        w->busy--;
        hoop_user_writes(w, rank);
    }
}

/* Posts the lane's next step from k on that is not empty. At the end the lane is finished. */
static void post(struct hoop_world *w, uint32_t rank, uint32_t index)
{
    struct hoop_rank *r = &w->ranks[rank];
    struct hoop_lane *lane = &r->lanes[index];
    struct hoop_step *step = &lane->step;
    for (bool posted = false; !posted && !w->failed; lane->k++) {
        const bool more = lane->k > 0 && step->more;
        hoop_check_round(w, rank, index);
        bool some = hoop_world_ask(w, rank, index, lane->k, step);
        if (index == 0) {
            hoop_check_first(w, rank, lane->k, some ? step : NULL);
        }
        if (!some && more) {
            hoop_world_fail(w, "rank %" PRIu32 " ends in a round", rank);
        }
        if (!some) {
            lane->finished = true;
            if (--r->running == 0) {
                finish_op(w, rank);
            }
            return;
        }
        hoop_check_links(w, rank, step);
        hoop_check_local(w, rank, step);
        memset(lane->moved, 0, sizeof(lane->moved));
        const bool used[HOOP_PART_KINDS] = {step->send.peer >= 0, step->recv.peer >= 0,
                                            step->local.op != HOOP_LOCAL_NONE};
        for (int i = 0; i < HOOP_PART_KINDS; i++) {
            lane->state[i] = used[i] ? HOOP_PART_POSTED : HOOP_PART_DONE;
            posted = posted || used[i];
        }
        if (!w->failed) {
            hoop_check_overlap(w, rank, index);
        }
    }
}

/* Have all others arrived in the operation that this rank's next announcement depends on? */
static bool may_begin(struct hoop_world *w, uint32_t rank)
{
    const uint32_t op = w->ranks[rank].op, owes = w->c->ops[op].large ? 0 : w->c->owes;
    uint32_t arrivals = 1;
    if (hoop_world_over_links(w, rank) || op <= owes) {
        return true;
    }
    for (uint32_t before = 0; before < op - owes - 1; before++) {
        arrivals += w->barriers[before];
    }
    bool all = true;
    for (uint32_t q = 0; q < w->n && all; q++) {
        all = hoop_clock_await(w, rank, q, arrivals);
    }
    return all;
}

static bool start_op(struct hoop_world *w, uint32_t rank)
{
    struct hoop_rank *r = &w->ranks[rank];
    if (r->op == w->c->op_count) {
        return false;
    }
    const bool called = r->called;
    if (!called) {
        hoop_user_writes(w, rank);
    }
    r->called = !may_begin(w, rank);
    if (r->called) {
        return !called;
    }
    r->running = w->lanes;
    r->op_arrivals = 0;
    for (uint32_t l = 0; l < w->lanes; l++) {
        r->lanes[l].k = 0;
        r->lanes[l].finished = false;
    }
    for (uint32_t l = 0; l < w->lanes && !w->failed; l++) {
        post(w, rank, l);
    }
    return true;
}

/* ---- Parts -------------------------------------------------------------------------------- */

static struct hoop_queue *link_of(const struct hoop_world *w, uint32_t src, uint32_t dst,
                                  uint32_t lane)
{
    return &w->links[(src * w->n + dst) * w->lanes + lane];
}

/* How many of the remaining elements move now: often all, otherwise a random number. */
static uint64_t piece(struct hoop_world *w, uint64_t moved, uint64_t count)
{
    uint64_t rest = count - moved;
    return rest == 0 || hoop_world_draw(w, 2) ? rest : 1 + hoop_world_draw(w, rest);
}

/* At random, and where the plan allows it: puts sent elements in their final place early. */
static bool put_early(struct hoop_world *w, uint32_t rank, uint32_t index,
                      const struct hoop_slot *slot)
{
    const struct hoop_lane *lane = &w->ranks[rank].lanes[index];
    const uint32_t peer = (uint32_t)lane->step.send.peer;
    struct hoop_step theirs;
    if (!hoop_plan_is_early(&hoop_world_op(w, rank)->plan) || w->ranks[peer].running == 0 ||
        w->ranks[peer].op != w->ranks[rank].op || hoop_world_draw(w, 2) == 0 ||
        !hoop_world_ask(w, peer, index, lane->k - 1, &theirs) ||
        theirs.recv.mode != HOOP_RECV_COPY || theirs.recv.to.space != HOOP_SPACE_OUT ||
        theirs.recv.to.count != slot->count) {
        return false;
    }
    struct hoop_cell *start = hoop_ref_start(w, peer, index, &theirs.recv.to, peer);
    for (uint64_t i = 0; i < slot->count; i++) {
        hoop_cell_write(w, peer, &start[i], slot->values[i]);
    }
    return true;
}

static bool send_moves(struct hoop_world *w, uint32_t rank, uint32_t index)
{
    struct hoop_lane *lane = &w->ranks[rank].lanes[index];
    const struct hoop_ref *from = &lane->step.send.from;
    struct hoop_queue *link = link_of(w, rank, (uint32_t)lane->step.send.peer, index);
    if (lane->state[HOOP_PART_SEND] == HOOP_PART_MOVED) {
        lane->state[HOOP_PART_SEND] = HOOP_PART_DONE;
        return true;
    }
    if (w->c->slots == 0) {
        return false; /* the receive moves it */
    }
    if (lane->moved[HOOP_PART_SEND] == 0 && link->used == w->c->slots) {
        return false;
    }
    uint32_t last = (link->first + link->used) % w->c->slots;
    struct hoop_slot *slot = &link->slots[last];
    if (slot->room < from->count) {
        slot->values = realloc(slot->values, from->count * sizeof(*slot->values));
        slot->room = slot->values ? from->count : 0;
    }
    if (slot->room < from->count) {
        hoop_world_fail(w, "out of memory");
        return true;
    }
    uint64_t end = lane->moved[HOOP_PART_SEND] + piece(w, lane->moved[HOOP_PART_SEND], from->count);
    struct hoop_cell *start = hoop_ref_start(w, rank, index, from, rank);
    for (uint64_t i = lane->moved[HOOP_PART_SEND]; i < end; i++) {
        slot->values[i] = hoop_cell_read(w, rank, &start[i]);
    }
    lane->moved[HOOP_PART_SEND] = end;
    if (end == from->count) {
        slot->count = end;
        slot->op = w->ranks[rank].op;
        slot->k = lane->k;
        slot->placed = put_early(w, rank, index, slot);
        link->used++;
        lane->state[HOOP_PART_SEND] = HOOP_PART_MOVED;
    }
    return true;
}

static void receive_one(struct hoop_world *w, uint32_t rank, uint32_t index, uint64_t i,
                        uint64_t value)
{
    const struct hoop_step *step = &w->ranks[rank].lanes[index].step;
    const struct hoop_ref *to = &step->recv.to;
    if (step->recv.mode != HOOP_RECV_COPY) {
        struct hoop_cell *start = hoop_ref_start(w, rank, index, &step->recv.own, rank);
        value = hoop_symbol_fold(value, hoop_cell_read(w, rank, &start[i]));
    }
    if (step->recv.mode == HOOP_RECV_REDUCE_LAST) {
        value = hoop_symbol_divide(w, value);
    }
    hoop_cell_write(w, rank, hoop_ref_start(w, rank, index, to, rank) + i, value);
}

/* What a receive meets: a full slot or, without slots, the sending lane. False: nothing. */
struct met {
    struct hoop_slot *slot;
    struct hoop_lane *sender;
    uint64_t count, k;
    uint32_t op;
};

static bool recv_meets(struct hoop_world *w, uint32_t rank, uint32_t index, struct met *ret)
{
    uint32_t peer = (uint32_t)w->ranks[rank].lanes[index].step.recv.peer;
    if (w->c->slots > 0) {
        struct hoop_queue *link = link_of(w, peer, rank, index);
        struct hoop_slot *slot = &link->slots[link->first];
        *ret = (struct met){.slot = slot, .count = slot->count, .k = slot->k, .op = slot->op};
        return link->used > 0;
    }
    struct hoop_lane *sender = &w->ranks[peer].lanes[index];
    *ret = (struct met){.sender = sender,
                        .count = sender->step.send.from.count,
                        .k = sender->k,
                        .op = w->ranks[peer].op};
    return w->ranks[peer].running > 0 && !sender->finished &&
           sender->state[HOOP_PART_SEND] == HOOP_PART_POSTED &&
           sender->step.send.peer == (int32_t)rank;
}

static bool recv_moves(struct hoop_world *w, uint32_t rank, uint32_t index)
{
    struct hoop_lane *lane = &w->ranks[rank].lanes[index];
    const struct hoop_step *step = &lane->step;
    uint32_t peer = (uint32_t)step->recv.peer;
    struct met met;
    if (lane->state[HOOP_PART_RECV] == HOOP_PART_MOVED) {
        lane->state[HOOP_PART_RECV] = HOOP_PART_DONE;
        return true;
    }
    if (!recv_meets(w, rank, index, &met)) {
        return false;
    }
    if (met.count != step->recv.to.count || met.k != lane->k || met.op != w->ranks[rank].op) {
        hoop_world_fail(w,
                        "rank %" PRIu32 " receives %" PRIu64 " in step %" PRIu64
                        " where rank %" PRIu32 " sends %" PRIu64 " in step %" PRIu64,
                        rank, step->recv.to.count, lane->k - 1, peer, met.count, met.k - 1);
        return true;
    }
    uint64_t end = lane->moved[HOOP_PART_RECV] + piece(w, lane->moved[HOOP_PART_RECV], met.count);
    for (uint64_t i = lane->moved[HOOP_PART_RECV]; i < end; i++) {
        const struct hoop_ref *from = met.sender ? &met.sender->step.send.from : NULL;
        uint64_t value =
            from ? hoop_cell_read(w, peer, hoop_ref_start(w, peer, index, from, peer) + i)
                 : met.slot->values[i];
        if (met.sender || !met.slot->placed) {
            receive_one(w, rank, index, i, value);
        }
    }
    lane->moved[HOOP_PART_RECV] = end;
    if (end == met.count) {
        lane->state[HOOP_PART_RECV] = HOOP_PART_MOVED;
        if (met.sender) {
            met.sender->state[HOOP_PART_SEND] = HOOP_PART_MOVED;
        } else {
            struct hoop_queue *link = link_of(w, peer, rank, index);
            link->first = (link->first + 1) % w->c->slots;
            link->used--;
        }
    }
    return true;
}

/* Where a fold finds the vector of a member, or puts its result. The rank's own may lie apart. */
static struct hoop_cell *folded(const struct hoop_world *w, uint32_t rank, uint32_t index,
                                uint32_t member, bool result)
{
    const struct hoop_step *step = &w->ranks[rank].lanes[index].step;
    const struct hoop_ref *apart = result ? &step->local.kept : &step->local.own;
    const struct hoop_ref *all = result ? &step->local.dst : &step->local.src;
    if (hoop_is_row(w, rank, step) && !result) {
        const uint64_t at = member * step->local.dst.count;
        const bool lies_there = at < all->count;
        return hoop_ref_start(w, rank, index, lies_there ? all : apart, rank) + lies_there * at;
    }
    if (!result && member != rank && all->member != HOOP_EVERY) {
        return hoop_ref_start(w, rank, index, all, rank) + member * all->count; /* in my slab */
    }
    return hoop_ref_start(w, rank, index, member == rank && apart->count > 0 ? apart : all, member);
}

/* Does one element of a copy, reduce or spread. */
static void local_one(struct hoop_world *w, uint32_t rank, uint32_t index, uint64_t i)
{
    const struct hoop_step *step = &w->ranks[rank].lanes[index].step;
    const struct hoop_ref *src = &step->local.src, *dst = &step->local.dst;
    const bool copy = step->local.op == HOOP_LOCAL_COPY, row = hoop_is_row(w, rank, step);
    const bool spread = step->local.op == HOOP_LOCAL_SPREAD;
    if (copy && hoop_ref_start(w, rank, index, src, 0) == hoop_ref_start(w, rank, index, dst, 0)) {
        return; /* in place */
    }
    uint64_t x = hoop_cell_read(
        w, rank,
        (copy ? hoop_ref_start(w, rank, index, src, 0) : folded(w, rank, index, 0, false)) + i);
    const uint64_t many = row ? src->count / dst->count + (step->local.own.count > 0) : w->n;
    for (uint32_t m = 1; !copy && m < many; m++) {
        x = hoop_symbol_fold(x, hoop_cell_read(w, rank, folded(w, rank, index, m, false) + i));
    }
    if (!copy && !step->local.undivided) {
        x = hoop_symbol_divide(w, x);
    }
    for (uint32_t m = spread ? 0 : rank; m <= (spread ? w->n - 1 : rank); m++) {
        hoop_cell_write(w, rank, folded(w, rank, index, m, true) + i, x);
    }
}

/* The first arrival of an operation is its announcement. */
static bool arrive(struct hoop_world *w, uint32_t rank)
{
    if (w->ranks[rank].op_arrivals == 0) {
        hoop_cell_write(w, rank, hoop_announced(w, rank, rank), w->ranks[rank].op);
    }
    if (!hoop_clock_arrive(w, rank)) {
        hoop_world_fail(w, "out of memory");
    }
    return true;
}

static bool await(struct hoop_world *w, uint32_t rank, uint32_t member)
{
    const struct hoop_rank *r = &w->ranks[rank];
    const uint32_t end = member != HOOP_EVERY ? member + 1 : w->n;
    for (uint32_t q = member != HOOP_EVERY ? member : 0; q < end; q++) {
        if (!hoop_clock_await(w, rank, q, r->arrivals)) {
            return false;
        }
        if (r->op_arrivals == 1 && hoop_cell_read(w, rank, hoop_announced(w, rank, q)) != r->op) {
            hoop_world_fail(w, "rank %" PRIu32 " finds another announcement of rank %" PRIu32, rank,
                            q);
        }
    }
    return true;
}

static bool local_moves(struct hoop_world *w, uint32_t rank, uint32_t index)
{
    struct hoop_rank *r = &w->ranks[rank];
    struct hoop_lane *lane = &r->lanes[index];
    if (lane->step.local.op == HOOP_LOCAL_ARRIVE || lane->step.local.op == HOOP_LOCAL_AWAIT) {
        const bool moved = lane->step.local.op == HOOP_LOCAL_ARRIVE
                               ? arrive(w, rank)
                               : await(w, rank, lane->step.local.src.member);
        lane->state[HOOP_PART_LOCAL] = moved ? HOOP_PART_DONE : lane->state[HOOP_PART_LOCAL];
        return moved;
    }
    uint64_t count = lane->step.local.dst.count;
    uint64_t end = lane->moved[HOOP_PART_LOCAL] + piece(w, lane->moved[HOOP_PART_LOCAL], count);
    for (uint64_t i = lane->moved[HOOP_PART_LOCAL]; i < end && !w->failed; i++) {
        local_one(w, rank, index, i);
    }
    lane->moved[HOOP_PART_LOCAL] = end;
    if (end == count) {
        lane->state[HOOP_PART_LOCAL] = HOOP_PART_DONE;
    }
    return true;
}

/* ---- The world ---------------------------------------------------------------------------- */

/* Tries an action. Returns whether something moved. */
static bool act(struct hoop_world *w, const struct hoop_action *action)
{
    uint32_t rank = action->rank, index = action->lane, part = action->part;
    struct hoop_lane *lane = &w->ranks[rank].lanes[index];
    if (w->ranks[rank].running == 0) {
        return part == HOOP_PART_LOCAL && index == 0 && start_op(w, rank);
    }
    if (lane->finished || lane->state[part] == HOOP_PART_DONE) {
        return false;
    }
    bool moved = part == HOOP_PART_SEND   ? send_moves(w, rank, index)
                 : part == HOOP_PART_RECV ? recv_moves(w, rank, index)
                                          : local_moves(w, rank, index);
    if (lane->state[HOOP_PART_SEND] == HOOP_PART_DONE &&
        lane->state[HOOP_PART_RECV] == HOOP_PART_DONE &&
        lane->state[HOOP_PART_LOCAL] == HOOP_PART_DONE && !w->failed) {
        post(w, rank, index);
    }
    return moved;
}

/*
 * How the next action is drawn. EVENLY goes round from a random start. The others always take the
 * first action that can move, in a random order of actions, of ranks, or of kinds of part (then all
 * sends are read at the last moment, for example, or all receives finish before any send does).
 */
enum draw_mode { DRAW_EVENLY, DRAW_ACTIONS, DRAW_RANKS, DRAW_PARTS, DRAW_MODES };

static int compare_actions(const void *a, const void *b)
{
    uint64_t x = ((const struct hoop_action *)a)->key, y = ((const struct hoop_action *)b)->key;
    return (x > y) - (x < y);
}

/* Actions with the same key are ordered by their place, so that the order follows from the seed
 * alone. */
static void reorder(struct hoop_world *w, enum draw_mode mode)
{
    uint64_t salt = splitmix(&w->random);
    for (uint32_t i = 0; i < w->actions; i++) {
        struct hoop_action *action = &w->order[i];
        uint32_t place = (action->rank * w->lanes + action->lane) * HOOP_PART_KINDS + action->part;
        uint32_t kind = mode == DRAW_RANKS   ? action->rank
                        : mode == DRAW_PARTS ? action->part
                                             : place;
        action->key = (hoop_mix(salt + kind) >> 16 << 16) + place;
    }
    qsort(w->order, w->actions, sizeof(*w->order), compare_actions);
}

static void describe_deadlock(struct hoop_world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        for (uint32_t l = 0; l < w->lanes && w->ranks[r].running > 0; l++) {
            const struct hoop_lane *lane = &w->ranks[r].lanes[l];
            if (!lane->finished) {
                hoop_world_fail(w,
                                "deadlock: rank %" PRIu32 " lane %" PRIu32 " step %" PRIu64
                                " (send to %" PRId32 ", receive from %" PRId32
                                ", local %d) cannot move",
                                r, l, lane->k - 1, lane->step.send.peer, lane->step.recv.peer,
                                lane->step.local.op);
            }
        }
    }
    hoop_world_fail(w, "deadlock");
}

static void run_world(struct hoop_world *w)
{
    enum draw_mode mode = (enum draw_mode)hoop_world_draw(w, DRAW_MODES);
    reorder(w, mode);
    for (uint32_t events = 0; !w->failed && w->busy > 0; events++) {
        if (mode != DRAW_EVENLY && hoop_world_draw(w, 256) == 0) {
            reorder(w, mode);
        }
        uint32_t at = mode == DRAW_EVENLY ? (uint32_t)hoop_world_draw(w, w->actions) : 0;
        uint32_t tried = 0;
        while (tried < w->actions && !act(w, &w->order[at])) {
            at = at + 1 < w->actions ? at + 1 : 0;
            tried++;
        }
        if (tried == w->actions) {
            describe_deadlock(w);
        } else if (events == MAX_EVENTS) {
            hoop_world_fail(w, "no end after %u events", events);
        }
    }
    for (uint32_t i = 0; !w->failed && i < w->n * w->n * w->lanes; i++) {
        if (w->links[i].used > 0) {
            hoop_world_fail(w, "a send to rank %" PRIu32 " met no receive", i / w->lanes % w->n);
        }
    }
}

/* Allocates all memory that the operations need. Spaces that none of them uses get no cells. */
static bool world_memory(struct hoop_world *w)
{
    bool oneshots = false;
    const uint32_t readers = hoop_world_over_links(w, 0) ? 0 : w->n;
    for (uint32_t i = 0; i < w->c->op_count; i++) {
        const struct hoop_plan *plan = &w->c->ops[i].plan;
        oneshots = oneshots || plan->algo == HOOP_ALGO_ONESHOT;
        for (uint32_t r = 0; r < w->n; r++) {
            const uint64_t in = hoop_in_count(plan, r), out = hoop_out_count(plan, r);
            const uint64_t most = in > out ? in : out;
            w->room = most > w->room ? most : w->room;
        }
        w->lanes = plan->lanes > w->lanes ? plan->lanes : w->lanes;
        uint64_t scratch = hoop_scratch_size(plan);
        w->scratch_room = scratch > w->scratch_room ? scratch : w->scratch_room;
        if (plan->algo == HOOP_ALGO_SLAB && plan->slabs * plan->chunk > w->slab_room) {
            w->slab_room = plan->slabs * plan->chunk;
        }
    }
    uint64_t oneshot = oneshots ? w->n * w->room * (w->c->sets + 2) : 0;
    w->buffers = hoop_cells_create(w->n * w->room, readers);
    w->others = hoop_cells_create(w->n * w->room, readers);
    w->oneshot = hoop_cells_create(oneshot, readers);
    w->announced = hoop_cells_create((uint64_t)w->n * w->c->sets, readers);
    w->slab = hoop_cells_create(w->n * w->slab_room, readers);
    w->scratch = hoop_cells_create(w->scratch_room * w->lanes * w->n, readers);
    return w->buffers && w->others && w->oneshot && w->announced && w->slab && w->scratch;
}

static bool world_runtime(struct hoop_world *w)
{
    uint32_t n_links = w->n * w->n * w->lanes;
    w->actions = w->n * w->lanes * HOOP_PART_KINDS;
    w->order = calloc(w->actions, sizeof(*w->order));
    w->links = calloc(n_links, sizeof(*w->links));
    w->folds = calloc(w->c->op_count, sizeof(*w->folds));
    w->barriers = calloc(w->c->op_count, sizeof(*w->barriers));
    bool ok = w->order && w->links && w->folds && w->barriers;
    for (uint32_t i = 0; ok && i < w->actions; i++) {
        w->order[i].part = (uint8_t)(i % HOOP_PART_KINDS);
        w->order[i].lane = (uint8_t)(i / HOOP_PART_KINDS % w->lanes);
        w->order[i].rank = (uint8_t)(i / HOOP_PART_KINDS / w->lanes);
    }
    for (uint32_t i = 0; ok && i < w->c->op_count; i++) {
        w->barriers[i] = UINT32_MAX;
        w->folds[i] = hoop_folds(w, i);
        ok = w->folds[i];
    }
    for (uint32_t r = 0; ok && r < w->n; r++) {
        w->ranks[r].lanes = calloc(w->lanes, sizeof(*w->ranks[r].lanes));
        ok = w->ranks[r].lanes;
    }
    for (uint32_t i = 0; ok && w->c->slots > 0 && i < n_links; i++) {
        w->links[i].slots = calloc(w->c->slots, sizeof(*w->links[i].slots));
        ok = w->links[i].slots;
    }
    return ok;
}

static void world_finish(struct hoop_world *w)
{
    for (uint32_t i = 0; w->links && i < w->n * w->n * w->lanes; i++) {
        for (uint32_t s = 0; w->links[i].slots && s < w->c->slots; s++) {
            free(w->links[i].slots[s].values);
        }
        free(w->links[i].slots);
    }
    for (uint32_t r = 0; r < w->n; r++) {
        free(w->ranks[r].lanes);
        free(w->ranks[r].said);
    }
    for (uint32_t i = 0; w->folds && i < w->c->op_count; i++) {
        free(w->folds[i]);
    }
    free(w->folds);
    free(w->barriers);
    free(w->links);
    free(w->order);
    free(w->buffers);
    free(w->others);
    free(w->scratch);
    free(w->oneshot);
    free(w->announced);
    free(w->slab);
}

bool hoop_interpret(const struct hoop_interpreter_case *c, char *ret_text, size_t text_bytes)
{
    struct hoop_world w = {.c = c,
                           .n = c->ops[0].plan.n,
                           .lanes = 1,
                           .busy = c->ops[0].plan.n,
                           .random = c->seed,
                           .text = ret_text,
                           .text_bytes = text_bytes};
    if (c->op_count == 0 || w.n == 0 || w.n > HOOP_INTERPRETER_MAX_RANKS) {
        hoop_world_fail(&w, "%" PRIu32 " operations of %" PRIu32 " ranks; expected some of 1 to %d",
                        c->op_count, w.n, HOOP_INTERPRETER_MAX_RANKS);
    } else if (!world_memory(&w) || !world_runtime(&w)) {
        hoop_world_fail(&w, "out of memory");
    } else {
        run_world(&w);
    }
    if (w.n <= HOOP_INTERPRETER_MAX_RANKS) {
        world_finish(&w);
    }
    return !w.failed;
}
