/* The executor of steps over shared memory (see board_steps.h). */
#include "exec/board_steps.h"

#include "exec/gate.h"
#include "runtime/copy.h"
#include "runtime/process.h"

#include <assert.h>

static uint8_t *board_at(const struct hoop_board *board, const struct hoop_board_op *op,
                         enum hoop_space space, uint32_t member)
{
    const bool mine = member == board->me;
    switch (space) {
    case HOOP_SPACE_IN:
        return (uint8_t *)(uintptr_t)(mine ? op->in : op->ins[member]);
    case HOOP_SPACE_OUT:
        return mine ? op->out : op->outs[member];
    case HOOP_SPACE_SCRATCH:
        assert(mine);
        return board->scratch;
    case HOOP_SPACE_SLAB:
        return board->slabs + (size_t)member * HOOP_SLABS_BYTES;
    case HOOP_SPACE_ONESHOT: /* published.c executes oneshot, not in steps */
        break;
    }
    return NULL;
}

static bool board_is_far(const struct hoop_board *board, const struct hoop_board_op *op,
                         enum hoop_space space, uint32_t member)
{
    const uint8_t bit = space == HOOP_SPACE_IN    ? HOOP_FAR_IN
                        : space == HOOP_SPACE_OUT ? HOOP_FAR_OUT
                                                  : 0;
    return member != board->me && (op->far[member] & bit) != 0;
}

/* Reads from a member's process, at its address `from`. */
static hoop_result_t board_read(const struct hoop_board *board, uint32_t member, void *to,
                                const void *from, size_t bytes)
{
    const struct hoop_peer *peer = &board->peers[member];
    const struct hoop_process_memory memory = {peer->pid, peer->process, peer->process_at};
    return hoop_process_read(&memory, to, (uintptr_t)from, bytes);
}

/*
 * Fetches those of a fold's sources that lie in other processes. *ret_whose: the rank that failed.
 */
static hoop_result_t board_fetch(struct hoop_board *board, const struct hoop_board_op *op,
                                 const struct hoop_ref *src, uint32_t *ret_whose)
{
    const size_t bytes = src->count * op->plan->type_bytes;
    uint8_t *room = op->scratch;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        if (board_is_far(board, op, (enum hoop_space)src->space, rank)) {
            const hoop_result_t result = board_read(board, rank, room, board->src[rank], bytes);
            if (result != HOOP_OK) {
                *ret_whose = rank;
                return result;
            }
            board->src[rank] = room;
            room += bytes;
        }
    }
    return HOOP_OK;
}

static uint8_t *board_ref_at(const struct hoop_board *board, const struct hoop_board_op *op,
                             const struct hoop_ref *ref, uint32_t member)
{
    return board_at(board, op, (enum hoop_space)ref->space, member) +
           ref->off * op->plan->type_bytes;
}

/* Lists the sources and destinations of a fold. Returns the number of destinations. */
static uint32_t board_lay(struct hoop_board *board, const struct hoop_board_op *op,
                          const struct hoop_step *step)
{
    const struct hoop_ref *dst = &step->local.dst, *src = &step->local.src;
    const struct hoop_ref *own = step->local.own.count > 0 ? &step->local.own : src;
    const struct hoop_ref *kept = step->local.kept.count > 0 ? &step->local.kept : dst;
    const bool spread = step->local.op == HOOP_LOCAL_SPREAD;
    const bool row = src->member != HOOP_EVERY; /* the vectors in my slab */
    const size_t apart = row ? src->count * op->plan->type_bytes : 0;
    uint32_t n_dst = 0;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        const bool mine = rank == board->me;
        board->src[rank] = row && !mine ? board_ref_at(board, op, src, board->me) + rank * apart
                                        : board_ref_at(board, op, mine ? own : src, rank);
        if (spread || rank == dst->member) {
            board->dst[n_dst++] = board_ref_at(board, op, mine ? kept : dst, rank);
        }
    }
    return n_dst;
}

static hoop_result_t board_fold(struct hoop_board *board, const struct hoop_board_op *op,
                                const struct hoop_step *step, uint32_t *ret_whose)
{
    const struct hoop_ref *src = &step->local.src;
    const struct hoop_board_worker *worker = op->worker;
    const uint32_t n_dst = board_lay(board, op, step);
    if (worker != NULL) {
        return worker->fold(worker->arg, &op->reduction, board->dst, n_dst, board->src, board->n,
                            op->factors, src->count);
    }
    const hoop_result_t result =
        op->scratch != NULL ? board_fetch(board, op, src, ret_whose) : HOOP_OK;
    if (result == HOOP_OK) {
        hoop_fold(&op->reduction, board->dst, n_dst, board->src, board->n, src->count);
    }
    return result;
}

/* A copy to one member, or to every member. */
static hoop_result_t board_copy_by(const struct hoop_board *board, const struct hoop_board_op *op,
                                   const struct hoop_step *step)
{
    const struct hoop_ref *src = &step->local.src, *dst = &step->local.dst;
    const void *from = board_ref_at(board, op, src, src->member);
    unsigned n_dst = 0;
    for (uint32_t rank = 0; rank < board->n; rank++) {
        if (dst->member == rank || dst->member == HOOP_EVERY) {
            void *to = board_ref_at(board, op, dst, rank);
            board->dst[n_dst] = to;
            n_dst += to != from;
        }
    }
    return n_dst == 0 ? HOOP_OK
                      : op->worker->copy(op->worker->arg, board->dst, n_dst, from,
                                         src->count * op->plan->type_bytes);
}

static hoop_result_t board_copy(const struct hoop_board *board, const struct hoop_board_op *op,
                                const struct hoop_step *step, uint32_t *ret_whose)
{
    const size_t size = op->plan->type_bytes;
    const struct hoop_ref *src = &step->local.src, *dst = &step->local.dst;
    *ret_whose = src->member;
    if (src->count == 0 || op->worker != NULL) {
        return src->count == 0 ? HOOP_OK : board_copy_by(board, op, step);
    }
    void *to = board_ref_at(board, op, dst, dst->member);
    const void *from = board_ref_at(board, op, src, src->member);
    if (board_is_far(board, op, (enum hoop_space)src->space, src->member)) {
        return board_read(board, src->member, to, from, src->count * size);
    }
    if (to == from) {
        return HOOP_OK;
    }
    hoop_copy(to, from, src->count * size, board->past && dst->space == HOOP_SPACE_SLAB);
    return HOOP_OK;
}

static hoop_result_t board_check_scratch(const struct hoop_board_op *op, const struct hoop_ref *ref)
{
    if (ref->space != HOOP_SPACE_SCRATCH) {
        return HOOP_OK;
    }
    const uint64_t most = hoop_scratch_bytes() / op->plan->type_bytes;
    return ref->count <= most && ref->off <= most - ref->count
               ? HOOP_OK
               : hoop_error(HOOP_INTERNAL_ERROR,
                            "a step takes %llu elements of its scratch from number %llu on, and it "
                            "has %llu",
                            (unsigned long long)ref->count, (unsigned long long)ref->off,
                            (unsigned long long)most);
}

static hoop_result_t board_carry_out(struct hoop_board *board, const struct hoop_board_op *op,
                                     const struct hoop_step *step, uint32_t *ret_whose)
{
    *ret_whose = board->me;
    hoop_result_t result = board_check_scratch(op, &step->local.dst);
    result = result == HOOP_OK ? board_check_scratch(op, &step->local.src) : result;
    if (result != HOOP_OK) {
        return result;
    }
    return step->local.op == HOOP_LOCAL_COPY ? board_copy(board, op, step, ret_whose)
                                             : board_fold(board, op, step, ret_whose);
}

/*
 * The rank whose buffers a step accesses, HOOP_EVERY, or this rank, for which no gate is needed.
 * Gates are taken for reads, too: a rank that gives up waits until nobody is in its buffers,
 * because a result read from plain memory that was reused is wrong, and in one process the memory
 * may be unmapped. A copy from this rank's own buffer may go to another's.
 */
static uint32_t board_visits(const struct hoop_board *board, const struct hoop_step *step)
{
    const struct hoop_ref *src = &step->local.src, *dst = &step->local.dst;
    if (src->space > HOOP_SPACE_OUT) {
        return board->me;
    }
    const bool gives = src->member == board->me && dst->space == HOOP_SPACE_OUT;
    return step->local.op != HOOP_LOCAL_COPY ? HOOP_EVERY : gives ? dst->member : src->member;
}

static hoop_result_t board_given_up(const struct hoop_board *board, struct hoop_failure *failure)
{
    return hoop_failure_set(failure, HOOP_REMOTE_ERROR, -1,
                            "a rank other than rank %u has given up operation %u", board->me,
                            board->sequence);
}

static hoop_result_t board_driven_out(const struct hoop_board *board, struct hoop_failure *failure)
{
    return hoop_failure_set(failure, HOOP_REMOTE_ERROR, -1,
                            "another rank gave up operation %u while rank %u was in its buffers",
                            board->sequence, board->me);
}

static hoop_result_t board_work_now(struct hoop_board *board, struct hoop_board_op *op,
                                    const struct hoop_step *step, struct hoop_failure *failure)
{
    const uint32_t whom = board_visits(board, step);
    uint32_t whose = board->me;
    if (whom != board->me && !hoop_gates_enter(board, whom, op->k)) {
        return board_given_up(board, failure);
    }
    const uint64_t since = hoop_board_begin_work(board);
    const hoop_result_t result = board_carry_out(board, op, step, &whose);
    hoop_board_end_work(board, since);
    if (whom != board->me && !hoop_gates_leave(board, whom, op->k)) {
        return board_driven_out(board, failure);
    }
    return result == HOOP_OK ? HOOP_OK
                             : hoop_failure_set(failure, result, (int)whose,
                                                "the memory of rank %u cannot be used: %s", whose,
                                                hoop_thread_error());
}

/* ---- By a worker ---- */

/* One gate acquisition covers everything that is launched until the next ARRIVE. */
static hoop_result_t board_launch(struct hoop_board *board, struct hoop_board_op *op,
                                  const struct hoop_step *step, struct hoop_failure *failure)
{
    if (op->work == HOOP_BOARD_IDLE) {
        if (!hoop_gates_enter(board, HOOP_EVERY, op->k)) {
            return board_given_up(board, failure);
        }
        op->held = op->k;
        op->work = HOOP_BOARD_LAUNCHING;
    }
    uint32_t whose = board->me;
    const hoop_result_t result = board_carry_out(board, op, step, &whose);
    return result == HOOP_OK ? HOOP_OK : hoop_failure_take(failure, result, (int)board->me);
}

bool hoop_board_give_back(struct hoop_board *board, struct hoop_board_op *op,
                          struct hoop_failure *failure)
{
    if (op->work == HOOP_BOARD_IDLE) {
        return true;
    }
    if (op->work == HOOP_BOARD_LAUNCHING) {
        const hoop_result_t ended = op->worker->end(op->worker->arg);
        op->work = ended == HOOP_OK ? HOOP_BOARD_LAUNCHED : op->work;
        (void)hoop_failure_take(failure, ended, (int)board->me);
    }
    const hoop_result_t over = op->worker->over(op->worker->arg);
    if (over == HOOP_AGAIN) {
        return false;
    }
    (void)hoop_failure_take(failure, over, (int)board->me);
    op->work = HOOP_BOARD_IDLE;
    if (!hoop_gates_leave(board, HOOP_EVERY, op->held)) {
        (void)board_driven_out(board, failure);
    }
    return true;
}

/* HOOP_OK: the worker has nothing outstanding, and the gates are returned. */
static hoop_result_t board_drain(struct hoop_board *board, struct hoop_board_op *op,
                                 struct hoop_failure *failure)
{
    return hoop_board_give_back(board, op, failure) ? failure->code : HOOP_AGAIN;
}

/* ---- Barriers ---- */

/* A plan's first ARRIVE and AWAIT, as steps 0 and 1, are the announcement, which was made and seen
 * before the steps began. An ARRIVE after other steps is an ordinary barrier. */
#define BOARD_ANNOUNCED_ARRIVE 0
#define BOARD_ANNOUNCED_AWAIT 1

static hoop_result_t board_arrive(struct hoop_board *board, struct hoop_board_op *op,
                                  struct hoop_failure *failure)
{
    const hoop_result_t drained = board_drain(board, op, failure);
    if (drained == HOOP_OK && op->k != BOARD_ANNOUNCED_ARRIVE) {
        if (op->worker != NULL && op->worker->pass != NULL) {
            op->worker->pass(op->worker->arg);
        }
        board->arrivals++;
        atomic_store_explicit(&hoop_board_rank(board, board->me)->arrived, board->arrivals,
                              memory_order_release);
        hoop_board_wake_sleepers(board);
    }
    return drained;
}

/* HOOP_OK once all members, or one, have arrived as often as this rank. Resumes at op->cursor. */
static hoop_result_t board_await(const struct hoop_board *board, struct hoop_board_op *op,
                                 uint32_t member)
{
    const uint32_t end = member == HOOP_EVERY ? board->n : member + 1;
    if (op->k == BOARD_ANNOUNCED_AWAIT) {
        return HOOP_OK;
    }
    if (member != HOOP_EVERY && op->cursor < member) {
        op->cursor = member;
    }
    for (; op->cursor < end; op->cursor++) {
        if (op->cursor != board->me &&
            atomic_load_explicit(&hoop_board_rank(board, op->cursor)->arrived,
                                 memory_order_acquire) < board->arrivals) {
            return HOOP_AGAIN;
        }
    }
    op->cursor = 0;
    return HOOP_OK;
}

enum hoop_poll hoop_board_poll(struct hoop_board *board, struct hoop_board_op *op,
                               struct hoop_failure *failure)
{
    struct hoop_step step;
    if (failure->code != HOOP_OK) {
        return HOOP_POLL_DONE; /* met when the gates were returned */
    }
    if (!op->steps(op->plan, 0, op->k, &step)) {
        assert(op->work == HOOP_BOARD_IDLE); /* every plan ends with a barrier after its work */
        return HOOP_POLL_DONE;
    }
    assert(step.send.peer < 0 && step.recv.peer < 0);
    hoop_result_t result = HOOP_OK;
    switch ((enum hoop_local_op)step.local.op) {
    case HOOP_LOCAL_NONE:
        break;
    case HOOP_LOCAL_ARRIVE:
        result = board_arrive(board, op, failure);
        break;
    case HOOP_LOCAL_AWAIT:
        result = board_drain(board, op, failure);
        result = result == HOOP_OK ? board_await(board, op, step.local.src.member) : result;
        break;
    case HOOP_LOCAL_COPY:
    case HOOP_LOCAL_REDUCE:
    case HOOP_LOCAL_SPREAD:
        result = (op->worker != NULL ? board_launch : board_work_now)(board, op, &step, failure);
        break;
    }
    if (result == HOOP_AGAIN) {
        return HOOP_POLL_IDLE;
    }
    if (result != HOOP_OK) {
        return HOOP_POLL_DONE;
    }
    op->k++;
    return HOOP_POLL_BUSY;
}
