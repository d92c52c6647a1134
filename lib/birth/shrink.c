/* Shrinking a comm; see shrink.h. */
#include "birth/shrink.h"

#include "base/clock.h"
#include "stream/progress.h"
#include "survivors/survivors.h"
#include <stdlib.h>
#include <string.h>

#define SHRINK_LOOK_MS 20u /* how soon an abort is noticed */

struct hoop_shrink {
    bool abort, pinned, through;
    struct hoop_rank_set out; /* ranks of the parent that are left out */
    uint32_t number;          /* of the last agreement; 0: none yet */
    uint32_t again;           /* how often in a row it repeated the one before */
    struct hoop_failure why;  /* why the last join failed */
    uint64_t deadline_ns;
    struct hoop_job job;
    struct hoop_survivors *survivors;
};

hoop_result_t hoop_shrink_create(struct hoop_birth *birth, const int *exclude, size_t count,
                                 bool abort)
{
    const struct hoop_comm *parent = birth->parent;
    struct hoop_shrink *shrink = calloc(1, sizeof(*shrink));
    if (shrink == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory to shrink a communicator");
    }
    birth->shrink = shrink;
    shrink->abort = abort;
    for (size_t i = 0; i < count; i++) {
        if (exclude[i] < 0 || exclude[i] >= (int)parent->n || exclude[i] == (int)parent->rank) {
            return hoop_error(HOOP_INVALID_ARGUMENT,
                              "hoop_comm_shrink: exclude_ranks[%zu] is %d, expected 0 to %u, and "
                              "not the caller's own rank, %u",
                              i, exclude[i], parent->n - 1, parent->rank);
        }
        hoop_rank_set_add(&shrink->out, (uint32_t)exclude[i]);
    }
    return HOOP_OK;
}

static void shrink_end_round(struct hoop_shrink *shrink, bool joined)
{
    if (shrink->survivors != NULL) {
        hoop_survivors_destroy(shrink->survivors, joined);
        shrink->survivors = NULL;
        hoop_job_finish(&shrink->job);
    }
}

void hoop_shrink_finish(struct hoop_birth *birth)
{
    struct hoop_shrink *shrink = birth->shrink;
    if (shrink == NULL) {
        return;
    }
    shrink_end_round(shrink, false);
    if (shrink->pinned) {
        hoop_comm_pin(birth->parent, false);
    }
    free(shrink);
    birth->shrink = NULL;
}

bool hoop_shrink_is_through(const struct hoop_birth *birth)
{
    return birth->shrink->through;
}

/* ---- Ask --------------------------------------------------------------------------------------
 */

/* Ends what runs on the parent, or waits for it, and pins the parent. */
static hoop_result_t shrink_take_parent(struct hoop_birth *birth)
{
    struct hoop_comm *parent = birth->parent;
    struct hoop_shrink *shrink = birth->shrink;
    struct hoop_failure failure;
    if (shrink->abort && hoop_comm_state(parent, NULL) == HOOP_OK) {
        hoop_comm_raise(parent, HOOP_ABORTED, (int)parent->rank,
                        "rank %u shrinks the communicator, whatever runs on it", parent->rank);
    }
    if (shrink->abort) { /* its queued work may wait for ranks that wait here */
        hoop_progress_drop(parent);
    }
    if (hoop_turn_enter(&parent->turn, hoop_comm_patience_ms(parent)) != HOOP_OK) {
        return hoop_error(HOOP_TIMEOUT, "rank %u: another thread is inside the communicator",
                          parent->rank);
    }
    const bool over = parent->over;
    shrink->pinned = !over;
    if (!over) {
        hoop_comm_pin(parent, true);
    }
    hoop_turn_leave(&parent->turn);
    if (over) {
        return hoop_error(
            HOOP_INVALID_USAGE,
            "the communicator was aborted by this rank: no other can be made from it");
    }
    const hoop_result_t state = hoop_comm_state(parent, &failure);
    return state == HOOP_OK || shrink->abort
               ? HOOP_OK
               : hoop_error(state,
                            "the communicator has failed, and only HOOP_SHRINK_ABORT makes a new "
                            "one from it: %s",
                            failure.text);
}

hoop_result_t hoop_shrink_ask(struct hoop_birth *birth)
{
    struct hoop_shrink *shrink = birth->shrink;
    hoop_result_t result = shrink->pinned ? HOOP_OK : shrink_take_parent(birth);
    if (result != HOOP_OK) {
        return result;
    }
    if (shrink->deadline_ns == 0) {
        shrink->deadline_ns = hoop_deadline_ns(birth->options.join.timeout_ms);
    }
    hoop_job_init(&shrink->job);
    result = hoop_survivors_create(birth->parent->member, &shrink->out, !shrink->abort,
                                   shrink->number, hoop_left_ms(shrink->deadline_ns) + 1,
                                   &shrink->job, &shrink->survivors);
    if (result != HOOP_OK) {
        hoop_job_finish(&shrink->job);
    }
    return result;
}

/* ---- Hear -------------------------------------------------------------------------------------
 */

/* Has a thread ended the parent, or aborted the new comm by its handle? */
static bool shrink_is_given_up(const struct hoop_birth *birth)
{
    return atomic_load_explicit(&birth->parent->ending, memory_order_relaxed) ||
           (!birth->shrink->abort && hoop_comm_state(birth->parent, NULL) != HOOP_OK) ||
           hoop_comm_check_wanted(birth->comm) != HOOP_OK;
}

static hoop_result_t shrink_await(struct hoop_birth *birth)
{
    struct hoop_shrink *shrink = birth->shrink;
    struct hoop_failure failure = {.code = HOOP_OK};
    bool given_up = false;
    hoop_result_t result = HOOP_TIMEOUT;
    do {
        if (!given_up && shrink_is_given_up(birth)) {
            given_up = true;
            hoop_survivors_cancel(shrink->survivors);
        }
        result = hoop_job_wait(&shrink->job, hoop_deadline_ns(SHRINK_LOOK_MS), &failure);
    } while (result == HOOP_TIMEOUT && failure.code == HOOP_OK); /* the agreement has a deadline */
    if (given_up && !shrink->abort) { /* the parent has failed, or was ended */
        struct hoop_failure why;
        const hoop_result_t state = hoop_comm_state(birth->parent, &why);
        failure = state != HOOP_OK ? why : failure;
        result = state != HOOP_OK ? state : result;
    }
    return result == HOOP_OK ? HOOP_OK : hoop_error(result, "%s", failure.text);
}

hoop_result_t hoop_shrink_hear(struct hoop_birth *birth)
{
    struct hoop_shrink *shrink = birth->shrink;
    struct hoop_comm_options options = birth->options;
    hoop_result_t result = shrink_await(birth);
    if (result != HOOP_OK) {
        return result;
    }
    const struct hoop_survival *left = hoop_survivors_decision(shrink->survivors);
    const bool same =
        shrink->number != 0 && memcmp(&left->out, &shrink->out, sizeof(left->out)) == 0;
    shrink->again = same ? shrink->again + 1 : 0;
    if (shrink->again == HOOP_SHRINK_SAME) {
        return hoop_error(shrink->why.code, "%s", shrink->why.text);
    }
    shrink->out = left->out;
    shrink->number = left->number;
    options.join.n = left->n;
    options.join.rank = left->rank;
    options.join.rendezvous = left->rendezvous;
    options.join.lineage = left->lineage;
    options.join.timeout_ms = hoop_left_ms(shrink->deadline_ns) + 1;
    shrink->why.code = HOOP_OK;
    result = hoop_comm_begin(birth->comm, &options);
    birth->comm->init_timeout_ms = birth->options.join.timeout_ms;
    if (result == HOOP_OK) {
        hoop_survivors_join(shrink->survivors, birth->comm->member);
    } else { /* like a failed join, since the others wait */
        (void)hoop_failure_take(&shrink->why, result, (int)birth->parent->rank);
    }
    return HOOP_OK;
}

/* ---- Join -------------------------------------------------------------------------------------
 */

hoop_result_t hoop_shrink_join(struct hoop_birth *birth)
{
    struct hoop_shrink *shrink = birth->shrink;
    if (shrink->why.code == HOOP_OK) {
        const hoop_result_t result = hoop_comm_complete(birth->comm, NULL);
        (void)hoop_failure_take(&shrink->why, result, -1);
    }
    shrink->through = shrink->why.code == HOOP_OK;
    birth->parent->successor = shrink->through && shrink->abort ? shrink->number : 0;
    shrink_end_round(shrink, shrink->through);
    if (shrink->through) {
        return HOOP_OK;
    }
    if (!shrink->abort || !hoop_comm_unbegin(birth->comm)) {
        return hoop_error(shrink->why.code, "%s", shrink->why.text);
    }
    return HOOP_OK;
}
