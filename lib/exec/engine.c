/*
 * See engine.h. The engine knows lanes and links; it knows no algorithm, no transport and no comm.
 *
 * A lane's state is the set of what is outstanding of its step. Both parts go their own ways:
 *
 *      in state         what happened                        then
 *      ---------------  -----------------------------------  -------------------------------------
 *      (nothing)        asked: a step with parts             local part done; the others WANTED
 *                       asked: no send, no receive           (nothing): the next turn asks again
 *                       asked: no more steps                 FINISHED, for good
 *      x_WANTED         no link yet, or the link says AGAIN  stays; the next turn tries again
 *                       posted                               x_POSTED
 *      x_POSTED         done                                 cleared; a receive is folded first
 *                       done with a failure                  x_POSTED and x_FAILED, for good
 *      any              a link says anything else            the engine fails
 *
 * A turn of a lane is: progress of its links, then at most one new step, then posting. So a poll
 * does at most one step in each lane, and no lane waits for another.
 *
 * A lane keeps the two links of its latest send and receive. Where its peers change, the link
 * before gets no more progress from it: a send that is done needs none to arrive.
 *
 * A link fails the engine only while the lane wants something of it: a neighbour that has all its
 * data may be gone while this rank still waits for the other one.
 *
 * Callbacks touch nothing but their lane (and the buffers of a receive that succeeded): a link that
 * is destroyed after the end of an operation calls them, when plan and failure may be gone.
 */
#include "exec/engine.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    LANE_SEND_WANTED = 1 << 0,
    LANE_SEND_POSTED = 1 << 1,
    LANE_SEND_FAILED = 1 << 2,
    LANE_RECV_WANTED = 1 << 3,
    LANE_RECV_POSTED = 1 << 4,
    LANE_RECV_FAILED = 1 << 5,
    LANE_FINISHED = 1 << 6,

    LANE_SEND = LANE_SEND_WANTED | LANE_SEND_POSTED,
    LANE_RECV = LANE_RECV_WANTED | LANE_RECV_POSTED,
};

/*
 * Where a ref of this rank lies, for HOOP_EVERY the first vector. NULL stays NULL: a buffer without
 * elements need not exist.
 */
static void *lane_at(const struct hoop_engine_lane *lane, const struct hoop_ref *ref)
{
    const struct hoop_engine_op *op = &lane->engine->op;
    const struct hoop_plan *plan = op->plan;
    const bool scratch = ref->space == HOOP_SPACE_SCRATCH;
    assert(scratch || ref->space == HOOP_SPACE_IN || ref->space == HOOP_SPACE_OUT);
    assert(ref->member == plan->me || (scratch && ref->member == HOOP_EVERY));
    char *base = scratch ? op->scratch : ref->space == HOOP_SPACE_IN ? (char *)op->in : op->out;
    const uint64_t before = scratch ? plan->scratch * lane->index : 0;
    return base == NULL ? NULL : base + (before + ref->off) * plan->type_bytes;
}

static size_t engine_bytes(const struct hoop_engine_op *op, const struct hoop_ref *ref)
{
    return (size_t)(ref->count * op->plan->type_bytes);
}

/* ---- Failure ---- */

static int32_t lane_peer(const struct hoop_engine_lane *lane, bool sending)
{
    return sending ? lane->step.send.peer : lane->step.recv.peer;
}

/* The link of a part of the current step, NULL while there is none. */
static struct hoop_link *lane_link(const struct hoop_engine_lane *lane, bool sending)
{
    struct hoop_link *link = sending ? lane->send_link : lane->recv_link;
    const bool right = link != NULL && link->params.peer == (uint32_t)lane_peer(lane, sending);
    return right ? link : NULL;
}

/* The link's own sentence says more than the code that a call returned. */
static void lane_fail(struct hoop_engine_lane *lane, bool sending, hoop_result_t code)
{
    const struct hoop_link *link = lane_link(lane, sending);
    const int32_t peer = lane_peer(lane, sending);
    const bool told = link != NULL && link->failure.code != HOOP_OK;
    const int32_t culprit = told && link->failure.rank >= 0 ? link->failure.rank : peer;
    code = told ? link->failure.code : code;
    hoop_failure_set(lane->engine->failure, code, culprit,
                     "%s rank %" PRId32 " (lane %" PRIu32 ", step %" PRIu64 "): %s",
                     sending ? "sending to" : "receiving from", peer, lane->index, lane->send.chunk,
                     told ? link->failure.text : hoop_get_error_string(code));
}

/* ---- The end of a part ---- */

static void engine_send_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct hoop_engine_lane *lane =
        (void *)((char *)xfer - offsetof(struct hoop_engine_lane, send));
    if (result != HOOP_OK) {
        lane->state |= LANE_SEND_FAILED;
        return;
    }
    lane->state &= (uint8_t)~LANE_SEND_POSTED;
}

/* What was received is the partial result of the ranks before this one: the left operand. */
static void lane_fold(const struct hoop_engine_lane *lane)
{
    const struct hoop_engine_op *op = &lane->engine->op;
    const struct hoop_ref *to = &lane->step.recv.to;
    const struct hoop_ref own = {HOOP_SPACE_IN, to->member, lane->step.recv.own_off, to->count};
    struct hoop_reduction reduction = op->reduction;
    if (lane->step.recv.mode != HOOP_RECV_REDUCE_LAST) {
        reduction.divisor = 0;
    }
    void *const dst = lane_at(lane, to);
    const void *const src[] = {lane->recv.data, lane_at(lane, &own)};
    hoop_fold(&reduction, &dst, 1, src, 2, (size_t)to->count);
}

static void engine_recv_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct hoop_engine_lane *lane =
        (void *)((char *)xfer - offsetof(struct hoop_engine_lane, recv));
    if (result != HOOP_OK) {
        lane->state |= LANE_RECV_FAILED;
        return;
    }
    if (lane->step.recv.mode != HOOP_RECV_COPY && lane->step.recv.to.count > 0) {
        lane_fold(lane);
    }
    if (xfer->lent) {
        hoop_link_release(lane->recv_link, xfer);
    }
    lane->state &= (uint8_t)~LANE_RECV_POSTED;
}

/* ---- A turn of a lane ---- */

/*
 * Also for links whose part of the step is done, and for finished lanes: a transport may have kept
 * a copy of what was sent. True: something moved.
 */
static bool lane_progress(struct hoop_engine_lane *lane)
{
    bool moved = false;
    if (lane->send_link != NULL) {
        moved = hoop_link_progress(lane->send_link);
    }
    if (lane->recv_link != NULL) {
        moved = hoop_link_progress(lane->recv_link) || moved;
    }
    return moved;
}

/* The failure of a part that was under way. True: there is one. */
static bool lane_check(struct hoop_engine_lane *lane)
{
    for (int sending = 0; sending < 2; sending++) {
        const unsigned posted = sending ? LANE_SEND_POSTED : LANE_RECV_POSTED;
        const unsigned failed = sending ? LANE_SEND_FAILED : LANE_RECV_FAILED;
        const struct hoop_link *link = lane_link(lane, sending);
        if ((lane->state & posted) == 0) {
            continue;
        }
        if ((lane->state & failed) != 0 || link->failure.code != HOOP_OK) {
            lane_fail(lane, sending, HOOP_INTERNAL_ERROR);
            return true;
        }
    }
    return false;
}

static void lane_copy(const struct hoop_engine_lane *lane)
{
    const struct hoop_ref *from = &lane->step.local.src, *to = &lane->step.local.dst;
    const void *src = lane_at(lane, from);
    void *dst = lane_at(lane, to);
    assert(to->space != HOOP_SPACE_IN && to->count == from->count);
    if (dst != src && to->count > 0) {
        memmove(dst, src, engine_bytes(&lane->engine->op, to));
    }
}

/* Everybody's vectors lie in SCRATCH by their distance before me. */
static void lane_reduce(const struct hoop_engine_lane *lane)
{
    const struct hoop_engine_op *op = &lane->engine->op;
    const struct hoop_ref *from = &lane->step.local.src, *to = &lane->step.local.dst;
    const size_t n = op->plan->n, bytes = engine_bytes(op, from);
    const char *own = lane_at(lane, from);
    void *const dst = lane_at(lane, to);
    assert(from->space == HOOP_SPACE_SCRATCH && from->member == HOOP_EVERY);
    assert(to->space != HOOP_SPACE_IN && to->count == from->count);
    if (from->count == 0) {
        return;
    }
    for (size_t rank = 0; rank < n; rank++) {
        op->src[rank] = own + (op->plan->me + n - rank) % n * bytes;
    }
    hoop_fold(&op->reduction, &dst, 1, op->src, (unsigned)n, (size_t)from->count);
}

static void lane_local(struct hoop_engine_lane *lane)
{
    const struct hoop_step *step = &lane->step;
    if (step->local.op == HOOP_LOCAL_COPY) {
        lane_copy(lane);
    } else if (step->local.op == HOOP_LOCAL_REDUCE) {
        lane_reduce(lane);
    } else if (step->local.op != HOOP_LOCAL_NONE) {
        hoop_failure_set(lane->engine->failure, HOOP_INTERNAL_ERROR, -1,
                         "lane %" PRIu32 ", step %" PRIu64 ": local part %u cannot be carried out "
                         "over links (expected %d, copy, or %d, reduce)",
                         lane->index, lane->send.chunk, (unsigned)step->local.op, HOOP_LOCAL_COPY,
                         HOOP_LOCAL_REDUCE);
    }
}

static struct hoop_xfer lane_xfer(const struct hoop_engine_lane *lane, hoop_xfer_done_fn *done)
{
    const struct hoop_engine_op *op = &lane->engine->op;
    return (struct hoop_xfer){
        .op = op->sequence, .chunk = lane->k, .signature = op->signature, .done = done};
}

/* Asks for the next step and fills in its xfers. */
static void lane_ask(struct hoop_engine_lane *lane)
{
    const struct hoop_engine_op *op = &lane->engine->op;
    struct hoop_step *step = &lane->step;
    if (!op->steps(op->plan, lane->index, lane->k, step)) {
        lane->state = LANE_FINISHED;
        lane->engine->running--;
        return;
    }
    lane->send = lane_xfer(lane, engine_send_done);
    lane->recv = lane_xfer(lane, engine_recv_done);
    lane->k++;
    if (step->send.peer >= 0) {
        lane->state |= LANE_SEND_WANTED;
        lane->send.data = lane_at(lane, &step->send.from);
        lane->send.bytes = engine_bytes(op, &step->send.from);
    }
    if (step->recv.peer >= 0) {
        const bool copied = step->recv.mode == HOOP_RECV_COPY;
        assert(step->recv.to.space == HOOP_SPACE_OUT || step->recv.to.space == HOOP_SPACE_SCRATCH);
        lane->state |= LANE_RECV_WANTED;
        lane->recv.data = copied ? lane_at(lane, &step->recv.to) : NULL;
        lane->recv.bytes = engine_bytes(op, &step->recv.to);
    }
    lane_local(lane);
}

/* Posts a part that is wanted, with the link of its step before if the peer is the same. */
static bool lane_post(struct hoop_engine_lane *lane, bool sending)
{
    const struct hoop_engine_op *op = &lane->engine->op;
    const unsigned wanted = sending ? LANE_SEND_WANTED : LANE_RECV_WANTED;
    const unsigned posted = sending ? LANE_SEND_POSTED : LANE_RECV_POSTED;
    if ((lane->state & wanted) == 0) {
        return false;
    }
    hoop_result_t result = HOOP_OK;
    if (lane_link(lane, sending) == NULL) {
        result = op->link(op->arg, (uint32_t)lane_peer(lane, sending), lane->index, sending,
                          sending ? &lane->send_link : &lane->recv_link);
    }
    if (result == HOOP_OK) {
        result = sending ? hoop_link_send(lane->send_link, &lane->send)
                         : hoop_link_recv(lane->recv_link, &lane->recv);
    }
    if (result == HOOP_OK) {
        lane->state = (uint8_t)((lane->state & ~wanted) | posted);
    } else if (result != HOOP_AGAIN) {
        lane_fail(lane, sending, result);
    }
    return result == HOOP_OK;
}

/* True: something moved. A failure is in the engine's failure. */
static bool lane_turn(struct hoop_engine_lane *lane)
{
    bool moved = lane_progress(lane);
    if (lane_check(lane)) {
        return true;
    }
    if (lane->state == 0) {
        lane_ask(lane);
        moved = true;
    }
    if (lane->engine->failure->code != HOOP_OK) {
        return true;
    }
    /* The receive first: the peer may be waiting for room. */
    moved = lane_post(lane, false) || moved;
    moved = lane_post(lane, true) || moved;
    return moved;
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
        engine->lanes[i] = (struct hoop_engine_lane){.engine = engine, .index = i};
    }
}

enum hoop_poll hoop_engine_poll(struct hoop_engine *engine)
{
    /* Once it is over, nothing that was borrowed is looked at. */
    if (engine->running == 0) {
        return HOOP_POLL_DONE;
    }
    bool moved = false;
    const uint32_t lanes = engine->op.plan->lanes;
    for (uint32_t i = 0; i < lanes && engine->failure->code == HOOP_OK; i++) {
        moved = lane_turn(&engine->lanes[i]) || moved;
    }
    if (engine->failure->code != HOOP_OK) {
        engine->running = 0;
    }
    if (engine->running == 0) {
        return HOOP_POLL_DONE;
    }
    return moved ? HOOP_POLL_BUSY : HOOP_POLL_IDLE;
}

bool hoop_engine_awaited(const struct hoop_engine *engine, uint32_t *lane, uint32_t *ret_rank,
                         const struct hoop_transport **ret_transport)
{
    const uint32_t lanes = engine->running > 0 ? engine->op.plan->lanes : 0;
    while (*lane < lanes) {
        const struct hoop_engine_lane *at = &engine->lanes[(*lane)++];
        if ((at->state & LANE_RECV) != 0) {
            const struct hoop_link *link = lane_link(at, false);
            *ret_rank = (uint32_t)lane_peer(at, false);
            *ret_transport = link != NULL ? link->transport : NULL;
            return true;
        }
    }
    return false;
}

/* One part of a lane, if it is outstanding; returns the new length of the text. */
static size_t lane_describe(const struct hoop_engine_lane *lane, bool sending, char *buf,
                            size_t bytes, size_t length)
{
    const unsigned outstanding = sending ? LANE_SEND : LANE_RECV;
    if ((lane->state & outstanding) == 0 || length >= bytes) {
        return length;
    }
    char part[96];
    const int added = snprintf(
        part, sizeof(part), "%srank %" PRId32 " (lane %" PRIu32 ", step %" PRIu64 ", %s%s)",
        length > 0 ? ", " : "", lane_peer(lane, sending), lane->index, lane->send.chunk,
        sending ? "send" : "recv", lane_link(lane, sending) == NULL ? ", no link yet" : "");
    if (added < 0 || length + (size_t)added >= bytes) {
        return bytes; /* whole parts only, and none behind the first that is left out */
    }
    memcpy(buf + length, part, (size_t)added + 1);
    return length + (size_t)added;
}

void hoop_engine_describe(const struct hoop_engine *engine, char *buf, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    buf[0] = '\0';
    const uint32_t lanes = engine->running > 0 ? engine->op.plan->lanes : 0;
    size_t length = 0;
    for (uint32_t i = 0; i < lanes; i++) {
        length = lane_describe(&engine->lanes[i], false, buf, bytes, length);
        length = lane_describe(&engine->lanes[i], true, buf, bytes, length);
    }
}
