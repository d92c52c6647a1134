/*
 * See engine.h. The engine knows lanes and links, but no algorithm, no transport and no comm.
 *
 * A step that has begun occupies a flight until it is complete. The state of a flight is the set of
 * its outstanding parts; its send and its receive advance independently:
 *
 *      in state         event                                then
 *      ---------------  -----------------------------------  -------------------------------------
 *      (nothing)        asked for a step: it has parts       local part done; the others WANTED
 *                       asked: neither send nor receive      (nothing): the next turn asks again
 *      x_WANTED         no link yet, or the link says AGAIN  stays; the next turn tries again
 *                       posted                               x_POSTED
 *                       posted, and owed (owed.h)            cleared
 *      x_POSTED         done                                 cleared; a receive is folded first, or
 *                                                            KEPT, in the memory that the link lent
 *                       done with a failure                  x_POSTED and x_FAILED, for good
 *      KEPT             folded, by the step after the round  cleared
 *      any              a link reports anything else         the engine fails
 *
 * A turn of a lane makes progress on the lane's links, then begins a step, then posts. So one poll
 * begins at most one step per lane that uses a link, and no lane waits for another. A step begins
 * when no flight is occupied, or when the step before it said `more` and a flight is free.
 *
 * A flight keeps the links of its latest send and receive. When a later step in it has another
 * peer, the flight no longer drives the previous link: a send that is done arrives without that.
 *
 * A link's failure fails the engine only while a flight needs that link: a neighbour that has all
 * of its data may be gone while this rank still waits for the other neighbour.
 *
 * Where peers may write this rank's output as soon as it has begun the operation
 * (hoop_plan_is_early), the engine offers the whole output on its receiving links, and its sends
 * carry the place where they belong: it asks the algorithm for the step in which the peer receives
 * them.
 *
 * Callbacks touch only their flight, and the buffers of a receive that succeeded: a link that is
 * destroyed after an operation has ended still calls them, when plan and failure may be gone.
 */
#include "exec/engine.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    FLIGHT_SEND_WANTED = 1 << 0,
    FLIGHT_SEND_POSTED = 1 << 1,
    FLIGHT_SEND_FAILED = 1 << 2,
    FLIGHT_RECV_WANTED = 1 << 3,
    FLIGHT_RECV_POSTED = 1 << 4,
    FLIGHT_RECV_FAILED = 1 << 5,
    FLIGHT_KEPT = 1 << 6,

    FLIGHT_SEND = FLIGHT_SEND_WANTED | FLIGHT_SEND_POSTED,
    FLIGHT_RECV = FLIGHT_RECV_WANTED | FLIGHT_RECV_POSTED,
};

/* The address of a ref of this rank, of the first vector for HOOP_EVERY. NULL stays NULL: a buffer
 * without elements need not exist. */
static void *flight_at(const struct hoop_engine_flight *flight, const struct hoop_ref *ref)
{
    const struct hoop_engine_op *op = &flight->lane->engine->op;
    const struct hoop_plan *plan = op->plan;
    const bool scratch = ref->space == HOOP_SPACE_SCRATCH;
    assert(scratch || ref->space == HOOP_SPACE_IN || ref->space == HOOP_SPACE_OUT);
    assert(ref->member == plan->me || (scratch && ref->member == HOOP_EVERY));
    char *base = scratch ? op->scratch : ref->space == HOOP_SPACE_IN ? (char *)op->in : op->out;
    const uint64_t before = scratch ? plan->scratch * flight->lane->index : 0;
    return base == NULL ? NULL : base + (before + ref->off) * plan->type_bytes;
}

static size_t engine_bytes(const struct hoop_engine_op *op, const struct hoop_ref *ref)
{
    return (size_t)(ref->count * op->plan->type_bytes);
}

/* ---- Failure ---- */

static int32_t flight_peer(const struct hoop_engine_flight *flight, bool sending)
{
    return sending ? flight->step.send.peer : flight->step.recv.peer;
}

/* The link for a part of the current step, or NULL while the flight has none to that peer. */
static struct hoop_link *flight_link(const struct hoop_engine_flight *flight, bool sending)
{
    struct hoop_link *link = sending ? flight->send_link : flight->recv_link;
    const bool right = link != NULL && link->params.peer == (uint32_t)flight_peer(flight, sending);
    return right ? link : NULL;
}

static void flight_fail(struct hoop_engine_flight *flight, bool sending, hoop_result_t code)
{
    const struct hoop_engine *engine = flight->lane->engine;
    char where[64];
    (void)snprintf(where, sizeof(where), " (lane %" PRIu32 ", step %" PRIu64 ")",
                   flight->lane->index, flight->send.chunk);
    (void)hoop_link_blame(flight_link(flight, sending), sending, engine->op.plan->me,
                          (uint32_t)flight_peer(flight, sending), code, where, engine->failure);
}

/* ---- The end of a part ---- */

static void engine_send_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct hoop_engine_flight *flight =
        (void *)((char *)xfer - offsetof(struct hoop_engine_flight, send));
    flight->state = (uint8_t)(result != HOOP_OK ? flight->state | FLIGHT_SEND_FAILED
                                                : flight->state & ~FLIGHT_SEND_POSTED);
}

/* What was received is the partial result of earlier ranks, so it is the left operand. */
static void flight_fold(const struct hoop_engine_flight *flight)
{
    const struct hoop_engine_op *op = &flight->lane->engine->op;
    const struct hoop_ref *to = &flight->step.recv.to;
    struct hoop_reduction reduction = op->reduction;
    if (flight->step.recv.mode != HOOP_RECV_REDUCE_LAST) {
        reduction.divisor = 0;
    }
    void *const dst = flight_at(flight, to);
    const void *const src[] = {flight->recv.data, flight_at(flight, &flight->step.recv.own)};
    hoop_fold(&reduction, &dst, 1, src, 2, (size_t)to->count);
}

/* Does the received vector stay in the link's memory until it is folded? */
static bool flight_keeps(const struct hoop_engine_flight *flight)
{
    const struct hoop_ref *to = &flight->step.recv.to;
    return flight->lane->engine->op.keeps && to->space == HOOP_SPACE_SCRATCH && to->count > 0 &&
           flight->step.recv.mode == HOOP_RECV_COPY;
}

static void engine_recv_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct hoop_engine_flight *flight =
        (void *)((char *)xfer - offsetof(struct hoop_engine_flight, recv));
    if (result != HOOP_OK) {
        flight->state |= FLIGHT_RECV_FAILED;
        return;
    }
    if (flight->step.recv.mode != HOOP_RECV_COPY && flight->step.recv.to.count > 0) {
        flight_fold(flight);
    }
    if (xfer->lent && flight_keeps(flight)) {
        flight->state |= FLIGHT_KEPT;
    } else if (xfer->lent) {
        hoop_link_release(flight->recv_link, xfer);
    }
    flight->state &= (uint8_t)~FLIGHT_RECV_POSTED;
}

/* ---- A turn of a flight ---- */

/* Also drives links whose part of the step is done, and those of finished lanes: a transport may
 * still hold a copy of what was sent. True: something moved. */
static bool flight_progress(struct hoop_engine_flight *flight)
{
    bool moved = false;
    if (flight->send_link != NULL) {
        moved = hoop_link_progress(flight->send_link);
    }
    if (flight->recv_link != NULL) {
        moved = hoop_link_progress(flight->recv_link) || moved;
    }
    return moved;
}

/* Fails the engine if a part that is under way has failed. */
static void flight_check(struct hoop_engine_flight *flight)
{
    for (int sending = 0; sending < 2; sending++) {
        const unsigned posted = sending ? FLIGHT_SEND_POSTED : FLIGHT_RECV_POSTED;
        const unsigned failed = sending ? FLIGHT_SEND_FAILED : FLIGHT_RECV_FAILED;
        if ((flight->state & posted) != 0 &&
            ((flight->state & failed) != 0 ||
             flight_link(flight, sending)->failure.code != HOOP_OK)) {
            flight_fail(flight, sending, HOOP_INTERNAL_ERROR);
        }
    }
}

static void flight_copy(const struct hoop_engine_flight *flight)
{
    const struct hoop_ref *from = &flight->step.local.src, *to = &flight->step.local.dst;
    const void *src = flight_at(flight, from);
    void *dst = flight_at(flight, to);
    assert(to->space != HOOP_SPACE_IN && to->count == from->count);
    if (dst != src && to->count > 0) {
        memmove(dst, src, engine_bytes(&flight->lane->engine->op, to));
    }
}

/* The address of the vector for `place` in SCRATCH: there, or where its link keeps it. */
static const void *lane_find(const struct hoop_engine_lane *lane, const void *place)
{
    for (uint32_t i = 0; i < lane->used && lane->engine->op.keeps; i++) {
        const struct hoop_engine_flight *flight = &lane->flights[i];
        if ((flight->state & FLIGHT_KEPT) != 0 &&
            flight_at(flight, &flight->step.recv.to) == place) {
            return flight->recv.data;
        }
    }
    return place;
}

/* Lists a fold's vectors in rank order: with HOOP_EVERY they lie by distance before this rank,
 * whose own is elsewhere; otherwise they are contiguous, and this rank's own comes last. */
static unsigned flight_vectors(const struct hoop_engine_flight *flight, size_t bytes)
{
    const struct hoop_engine_op *op = &flight->lane->engine->op;
    const struct hoop_ref *from = &flight->step.local.src, *own = &flight->step.local.own;
    const bool all = from->member == HOOP_EVERY;
    const char *first = flight_at(flight, from);
    const size_t n = op->plan->n, many = all ? n : engine_bytes(op, from) / bytes;
    for (size_t i = 0; i < many; i++) {
        op->src[i] =
            lane_find(flight->lane, first + (all ? (op->plan->me + n - i) % n : i) * bytes);
    }
    if (own->count > 0) {
        op->src[all ? op->plan->me : many] = flight_at(flight, own);
    }
    return (unsigned)(many + (own->count > 0 && !all));
}

static void lane_give_back(struct hoop_engine_lane *lane)
{
    for (uint32_t i = 0; i < lane->used && lane->engine->op.keeps; i++) {
        struct hoop_engine_flight *flight = &lane->flights[i];
        if ((flight->state & FLIGHT_KEPT) != 0) {
            flight->state &= (uint8_t)~FLIGHT_KEPT;
            hoop_link_release(flight->recv_link, &flight->recv);
        }
    }
}

static void flight_reduce(const struct hoop_engine_flight *flight)
{
    const struct hoop_engine_op *op = &flight->lane->engine->op;
    const struct hoop_step *step = &flight->step;
    const struct hoop_ref *to = &step->local.dst;
    struct hoop_reduction reduction = op->reduction;
    void *const dst = flight_at(flight, to);
    assert(step->local.src.space == HOOP_SPACE_SCRATCH && to->space != HOOP_SPACE_IN);
    if (to->count == 0) {
        return;
    }
    if (step->local.undivided) {
        reduction.divisor = 0;
    }
    const unsigned vectors = flight_vectors(flight, engine_bytes(op, to));
    hoop_fold(&reduction, &dst, 1, op->src, vectors, (size_t)to->count);
    lane_give_back(flight->lane);
}

static void flight_local(struct hoop_engine_flight *flight)
{
    const struct hoop_step *step = &flight->step;
    if (step->local.op == HOOP_LOCAL_COPY) {
        flight_copy(flight);
    } else if (step->local.op == HOOP_LOCAL_REDUCE) {
        flight_reduce(flight);
    } else if (step->local.op != HOOP_LOCAL_NONE) {
        hoop_failure_set(flight->lane->engine->failure, HOOP_INTERNAL_ERROR, -1,
                         "lane %" PRIu32 ", step %" PRIu64 ": local part %u cannot be carried out "
                         "over links (expected %d, copy, or %d, reduce)",
                         flight->lane->index, flight->send.chunk, (unsigned)step->local.op,
                         HOOP_LOCAL_COPY, HOOP_LOCAL_REDUCE);
    }
}

/* Fills in the xfers of a new step. */
static void flight_begin(struct hoop_engine_flight *flight)
{
    const struct hoop_engine_op *op = &flight->lane->engine->op;
    const struct hoop_step *step = &flight->step;
    const uint64_t k = flight->lane->k;
    hoop_xfer_prepare(&flight->send, op->sequence, k, &op->signature, engine_send_done);
    hoop_xfer_prepare(&flight->recv, op->sequence, k, &op->signature, engine_recv_done);
    if (step->send.peer >= 0) {
        flight->state |= FLIGHT_SEND_WANTED;
        flight->send.data = flight_at(flight, &step->send.from);
        flight->send.bytes = engine_bytes(op, &step->send.from);
    }
    if (step->recv.peer >= 0) {
        const bool copied = step->recv.mode == HOOP_RECV_COPY && !flight_keeps(flight);
        assert(step->recv.to.space == HOOP_SPACE_OUT || step->recv.to.space == HOOP_SPACE_SCRATCH);
        flight->state |= FLIGHT_RECV_WANTED;
        flight->recv.data = copied ? flight_at(flight, &step->recv.to) : NULL;
        flight->recv.bytes = engine_bytes(op, &step->recv.to);
    }
    flight_local(flight);
}

/* ---- Places ---- */

/* Offers the output once to each rank from which the lane receives, at the first receive. */
static void flight_offer(struct hoop_engine_flight *flight)
{
    const struct hoop_engine_op *op = &flight->lane->engine->op;
    const struct hoop_link **offered = flight->lane->offered;
    const uint64_t bytes = hoop_out_count(op->plan, op->plan->me) * op->plan->type_bytes;
    uint32_t i = 0;
    if (!hoop_plan_is_early(op->plan)) {
        return;
    }
    while (i < HOOP_ENGINE_OFFERS && offered[i] != NULL && offered[i] != flight->recv_link) {
        i++;
    }
    if (i < HOOP_ENGINE_OFFERS && offered[i] == NULL) {
        offered[i] = flight->recv_link;
        hoop_link_offer(flight->recv_link, op->sequence, op->out, bytes);
    }
}

static void flight_find_place(struct hoop_engine_flight *flight)
{
    const struct hoop_engine_op *op = &flight->lane->engine->op;
    struct hoop_xfer *send = &flight->send;
    if (send->has_place || !hoop_link_places(flight->send_link, send->bytes) ||
        !hoop_plan_is_early(op->plan)) {
        return;
    }
    struct hoop_plan theirs = *op->plan;
    struct hoop_step step;
    theirs.me = (uint32_t)flight->step.send.peer;
    if (op->steps(&theirs, flight->lane->index, send->chunk, &step) &&
        step.recv.peer == (int32_t)op->plan->me && step.recv.mode == HOOP_RECV_COPY &&
        step.recv.to.space == HOOP_SPACE_OUT) {
        send->has_place = true;
        send->place = step.recv.to.off * op->plan->type_bytes;
    }
}

/* A receive that is owed leaves the flight, which then has no link for it. */
static hoop_result_t flight_recv(struct hoop_engine_flight *flight)
{
    struct hoop_engine *engine = flight->lane->engine;
    struct hoop_link *link = flight->recv_link;
    flight_offer(flight);
    const bool owes =
        flight->lane->index == 0 && hoop_owed_may(engine->op.plan, link, &flight->recv);
    const hoop_result_t result = owes ? hoop_owed_post(&engine->owed, link, &flight->recv)
                                      : hoop_link_recv(link, &flight->recv);
    flight->recv_link = owes && result == HOOP_OK ? NULL : link;
    return result;
}

/* Posts a part that is WANTED, on the flight's previous link if the peer is the same. */
static bool flight_post(struct hoop_engine_flight *flight, bool sending)
{
    const struct hoop_engine_op *op = &flight->lane->engine->op;
    const unsigned wanted = sending ? FLIGHT_SEND_WANTED : FLIGHT_RECV_WANTED;
    const unsigned posted = sending ? FLIGHT_SEND_POSTED : FLIGHT_RECV_POSTED;
    if ((flight->state & wanted) == 0) {
        return false;
    }
    hoop_result_t result = HOOP_OK;
    if (flight_link(flight, sending) == NULL) {
        result = op->link(op->arg, (uint32_t)flight_peer(flight, sending), flight->lane->index,
                          sending, sending ? &flight->send_link : &flight->recv_link);
    }
    if (result == HOOP_OK && sending) {
        flight_find_place(flight);
        hoop_owed_mark(&flight->lane->engine->owed, op->plan, flight->send_link, &flight->send);
        result = hoop_link_send(flight->send_link, &flight->send);
    } else if (result == HOOP_OK) {
        result = flight_recv(flight);
    }
    if (result == HOOP_OK) {
        const bool owed = !sending && flight->recv_link == NULL;
        flight->state = (uint8_t)((flight->state & ~wanted) | (owed ? 0 : posted));
    } else if (result != HOOP_AGAIN) {
        flight_fail(flight, sending, result);
    }
    return result == HOOP_OK;
}

/* ---- A turn of a lane ---- */

/*
 * A flight for the next step, or NULL if that step may not begin yet: it waits for the flights
 * under way (other than KEPT ones), unless the step before it said `more`. Takes the first free
 * flight, so that a lane without rounds uses only one, and two links.
 */
static struct hoop_engine_flight *lane_room(struct hoop_engine_lane *lane)
{
    uint32_t room = lane->used;
    for (uint32_t i = lane->used; i-- > 0;) {
        if (lane->flights[i].state == 0) {
            room = i;
        } else if (lane->flights[i].state != FLIGHT_KEPT && !lane->more) {
            return NULL;
        }
    }
    return room < HOOP_ENGINE_FLIGHTS ? &lane->flights[room] : NULL;
}

/* Is there a next step, and is the data that it touches there? */
static bool lane_may_ask(const struct hoop_engine_lane *lane)
{
    const uint64_t *ready = lane->engine->op.ready;
    return !lane->finished && (ready == NULL || lane->k < *ready);
}

/* Asks for the next step, and begins it. */
static void lane_ask(struct hoop_engine_lane *lane, struct hoop_engine_flight *flight)
{
    const struct hoop_engine_op *op = &lane->engine->op;
    if (flight == lane->flights + lane->used) {
        *flight = (struct hoop_engine_flight){.lane = lane};
        lane->used++;
    }
    if (!op->steps(op->plan, lane->index, lane->k, &flight->step)) {
        assert(!lane->more);
        lane->finished = true;
        lane->engine->running--;
        return;
    }
    lane->more = flight->step.more;
    flight_begin(flight);
    lane->k++;
}

/* Begins the next step, and further ones until one needs a link. True: at least one has begun. */
static bool lane_begin(struct hoop_engine_lane *lane)
{
    const struct hoop_failure *failure = lane->engine->failure;
    struct hoop_engine_flight *room = NULL;
    bool began = false;
    while (failure->code == HOOP_OK && lane_may_ask(lane) && (room = lane_room(lane)) != NULL) {
        lane_ask(lane, room);
        began = true;
        if (room->state != 0) {
            break;
        }
    }
    return began;
}

/* True: something moved, or the engine has failed. */
static bool lane_turn(struct hoop_engine_lane *lane)
{
    const struct hoop_failure *failure = lane->engine->failure;
    bool moved = false;
    for (uint32_t i = 0; i < lane->used && failure->code == HOOP_OK; i++) {
        moved = flight_progress(&lane->flights[i]) || moved;
        flight_check(&lane->flights[i]);
    }
    moved = lane_begin(lane) || moved;
    for (uint32_t i = 0; i < lane->used && failure->code == HOOP_OK; i++) {
        /* The receive first: the peer may be waiting for room. */
        moved = flight_post(&lane->flights[i], false) || moved;
        moved = flight_post(&lane->flights[i], true) || moved;
    }
    return moved || failure->code != HOOP_OK;
}

/* ---- The whole ---- */

void hoop_engine_start(struct hoop_engine *engine, const struct hoop_engine_op *op,
                       struct hoop_failure *failure)
{
    const uint32_t lanes = op->plan->lanes;
    assert(lanes >= 1 && lanes <= HOOP_MAX_LANES);
    assert(op->plan->type_bytes == hoop_datatype_bytes(op->reduction.type));
    engine->op = *op;
    engine->failure = failure;
    engine->running = lanes;
    for (uint32_t i = 0; i < lanes; i++) {
        struct hoop_engine_lane *lane = &engine->lanes[i];
        lane->engine = engine;
        lane->index = i;
        lane->more = lane->finished = false;
        memset(lane->offered, 0, sizeof(lane->offered));
        lane->k = lane->used = 0; /* flights are initialized at first use */
    }
}

enum hoop_poll hoop_engine_poll(struct hoop_engine *engine)
{
    /* After the end nothing borrowed (plan, buffers) may be touched. */
    if (engine->running == 0) {
        return HOOP_POLL_DONE;
    }
    bool moved = false;
    const uint32_t lanes = engine->op.plan->lanes;
    (void)hoop_owed_check(&engine->owed, engine->failure);
    for (uint32_t i = 0; i < lanes && engine->failure->code == HOOP_OK; i++) {
        moved = lane_turn(&engine->lanes[i]) || moved;
    }
    engine->running = engine->failure->code == HOOP_OK ? engine->running : 0;
    if (engine->running == 0) {
        return HOOP_POLL_DONE;
    }
    if (!moved && ++engine->idle % HOOP_ENGINE_IDLE_POLLS == 0) {
        moved = hoop_owed_progress(&engine->owed);
    }
    return moved ? HOOP_POLL_BUSY : HOOP_POLL_IDLE;
}

/*
 * Iterates over the flights with one of these state bits set. NULL: no more, or the engine is done.
 */
static const struct hoop_engine_flight *engine_next(const struct hoop_engine *engine,
                                                    unsigned states, uint32_t *cursor)
{
    const uint32_t end = engine->running > 0 ? engine->op.plan->lanes * HOOP_ENGINE_FLIGHTS : 0;
    while (*cursor < end) {
        const struct hoop_engine_lane *lane = &engine->lanes[*cursor / HOOP_ENGINE_FLIGHTS];
        const uint32_t at = (*cursor)++ % HOOP_ENGINE_FLIGHTS;
        if (at < lane->used && (lane->flights[at].state & states) != 0) {
            return &lane->flights[at];
        }
    }
    return NULL;
}

uint64_t hoop_engine_passed(const struct hoop_engine *engine)
{
    uint64_t passed = UINT64_MAX;
    for (uint32_t i = 0; engine->running > 0 && i < engine->op.plan->lanes; i++) {
        const struct hoop_engine_lane *lane = &engine->lanes[i];
        if (!lane->finished && lane->k < passed) {
            passed = lane->k;
        }
    }
    uint32_t cursor = 0;
    const struct hoop_engine_flight *at = NULL;
    while ((at = engine_next(engine, UINT8_MAX, &cursor)) != NULL) {
        passed = at->send.chunk < passed ? at->send.chunk : passed;
    }
    return passed;
}

bool hoop_engine_awaited(const struct hoop_engine *engine, bool sending, uint32_t *cursor,
                         uint32_t *ret_rank, const struct hoop_transport **ret_transport)
{
    const struct hoop_engine_flight *at =
        engine_next(engine, sending ? FLIGHT_SEND : FLIGHT_RECV, cursor);
    if (at == NULL) {
        return false;
    }
    const struct hoop_link *link = flight_link(at, sending);
    *ret_rank = (uint32_t)flight_peer(at, sending);
    *ret_transport = link != NULL ? link->transport : NULL;
    return true;
}

bool hoop_engine_waits(const struct hoop_engine *engine, uint32_t *ret_rank, bool *ret_sending)
{
    const struct hoop_transport *transport = NULL;
    uint32_t recvs = 0, sends = 0;
    *ret_sending = !hoop_engine_awaited(engine, false, &recvs, ret_rank, &transport);
    return !*ret_sending || hoop_engine_awaited(engine, true, &sends, ret_rank, &transport);
}

/* Appends one part of a flight, if it is outstanding. Returns the new length of the text. */
static size_t flight_describe(const struct hoop_engine_flight *flight, bool sending, char *buf,
                              size_t bytes, size_t length)
{
    const unsigned outstanding = sending ? FLIGHT_SEND : FLIGHT_RECV;
    if ((flight->state & outstanding) == 0 || length >= bytes) {
        return length;
    }
    char part[96];
    const int added = snprintf(part, sizeof(part),
                               "%srank %" PRId32 " (lane %" PRIu32 ", step %" PRIu64 ", %s%s)",
                               length > 0 ? ", " : "", flight_peer(flight, sending),
                               flight->lane->index, flight->send.chunk, sending ? "send" : "recv",
                               flight_link(flight, sending) == NULL ? ", no link yet" : "");
    if (added < 0 || length + (size_t)added >= bytes) {
        return bytes; /* whole parts only, and none after the first that does not fit */
    }
    memcpy(buf + length, part, (size_t)added + 1);
    return length + (size_t)added;
}

void hoop_engine_describe(const struct hoop_engine *engine, char *buf, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    const struct hoop_engine_flight *flight = NULL;
    size_t length = 0;
    uint32_t cursor = 0;
    buf[0] = '\0';
    while ((flight = engine_next(engine, UINT8_MAX, &cursor)) != NULL) {
        length = flight_describe(flight, false, buf, bytes, length);
        length = flight_describe(flight, true, buf, bytes, length);
    }
}
