/*
 * A rank's part in the agreement of survivors; see survivors.h. All but the functions of that
 * header runs on the service thread.
 *
 * | state     | what comes                          | then                                      |
 * |-----------|-------------------------------------|-------------------------------------------|
 * | GATHERING | VIEW {MINE}                         | merged; ranks that it names lost are told |
 * |           | a loss, by any evidence             | exact: all fail; else like a VIEW with it |
 * |           | the views of all survivors, of whom | AGREED                                    |
 * |           | this is the lowest; VIEW {AGREED}   |                                           |
 * |           | this rank named lost; the deadline  | OVER, with a failure                      |
 * | AGREED    | a loss, the end of a connection     | broken: the join is cancelled             |
 * |           | VIEW {DONE}                         | the end of that rank is no loss any more  |
 *
 * Of two ranks the higher one connects, and the end of that connection is a loss. The lower one
 * connects only to see whether the other is there and to tell its view, and hangs up at once.
 */
#include "base/clock.h"
#include "membership/serve.h"
#include "survivors/survivors_inside.h"
#include "tree/gather.h"
#include "tree/leader.h"
#include <assert.h>
#include <stdlib.h>

/* The pause between looks doubles from the first to the second. */
#define SURVIVORS_FIRST_MS 2u
#define SURVIVORS_MOST_MS 64u
#define SURVIVORS_CALL_MS 50u /* when those who have not come are called */

/* ---- Time --------------------------------------------------------------------------------- */

static bool survivors_misses(const void *arg, uint32_t at)
{
    const struct hoop_survivors *all = arg;
    const uint32_t rank = hoop_survivors_rank_of(all, at);
    return rank != all->me && hoop_survivors_has(all, rank) && !all->others[rank].said;
}

static bool survivors_is_elsewhere(const void *arg, uint32_t at)
{
    const struct hoop_survivors *all = arg;
    return survivors_misses(arg, at) && all->others[hoop_survivors_rank_of(all, at)].elsewhere;
}

static void survivors_fail_due(struct hoop_survivors *all)
{
    const unsigned long long ms = all->timeout_ms;
    const uint32_t leader = hoop_survivors_leader(all), n = all->member->roster.n;
    bool elsewhere = false;
    char ranks[96];
    for (uint32_t at = 0; at < n; at++) {
        elsewhere = elsewhere || survivors_is_elsewhere(all, at);
    }
    if (elsewhere) {
        hoop_gather_list(n, survivors_is_elsewhere, all, ranks, sizeof(ranks));
        hoop_survivors_fail_all(
            all, HOOP_MISMATCH,
            "%s called hoop_comm_shrink() without rank %u, and not with it within %llu ms", ranks,
            all->member->join.rank, ms);
    } else if (leader == all->me) {
        hoop_gather_list(n, survivors_misses, all, ranks, sizeof(ranks));
        hoop_survivors_fail_all(
            all, HOOP_TIMEOUT,
            "%s did not call hoop_comm_shrink() within %llu ms, although not lost", ranks, ms);
    } else {
        hoop_survivors_fail_all(all, HOOP_TIMEOUT,
                                "rank %u, the lowest one alive, did not call hoop_comm_shrink(), "
                                "or did not complete it, within %llu ms",
                                all->others[leader].at, ms);
    }
}

static void survivors_tick(void *arg)
{
    struct hoop_survivors *all = arg;
    const uint64_t now = hoop_now_ns();
    const bool leads = hoop_survivors_leader(all) == all->me;
    /* the leader knows more, so it fails first */
    const uint64_t grace_ms = leads ? 0 : HOOP_RANK_GRACE_MS;
    if (now >= all->deadline_ns + grace_ms * HOOP_NS_PER_MS) {
        survivors_fail_due(all);
        return;
    }
    hoop_survivors_drop_silent(all);
    hoop_survivors_look_for_left(all);
    if (all->state == HOOP_SURVIVORS_GATHERING) {
        hoop_survivors_look(all);
    }
    if (all->state == HOOP_SURVIVORS_GATHERING && leads &&
        now - all->begin_ns > SURVIVORS_CALL_MS * HOOP_NS_PER_MS) {
        hoop_survivors_call(all);
    }
    if (all->state != HOOP_SURVIVORS_GATHERING) {
        return;
    }
    all->pause_ms = 2 * all->pause_ms < SURVIVORS_MOST_MS ? 2 * all->pause_ms : SURVIVORS_MOST_MS;
    hoop_timer_start(all->timer, all->pause_ms, 0);
}

/* ---- Life --------------------------------------------------------------------------------- */

/* Marks ranks of the lineage that are not in this comm, or excluded, as left out. */
static void survivors_begin(struct hoop_survivors *all, const struct hoop_rank_set *out)
{
    for (uint32_t rank = 0; rank < all->n; rank++) {
        all->others[rank] = (struct hoop_survivor){.all = all, .at = HOOP_SURVIVORS_NOBODY};
    }
    for (uint32_t at = 0; at < all->member->roster.n; at++) {
        all->others[hoop_survivors_rank_of(all, at)].at = at;
    }
    for (uint32_t rank = 0; rank < all->n; rank++) {
        const uint32_t at = all->others[rank].at;
        if (at == HOOP_SURVIVORS_NOBODY || hoop_rank_set_has(out, at)) {
            hoop_rank_set_add(&all->out, rank);
        }
    }
}

static void survivors_lost(struct hoop_member_witness *witness, uint32_t rank, bool left,
                           const char *why)
{
    struct hoop_survivors *all = HOOP_CONTAINER_OF(witness, struct hoop_survivors, witness);
    if (!left) {
        hoop_survivor_lose(&all->others[hoop_survivors_rank_of(all, rank)], why);
    } else if (all->state == HOOP_SURVIVORS_GATHERING) { /* else it may have completed the join */
        hoop_survivors_look_for_left(all);
    }
}

/*
 * Handles ranks that have left the comm. One that left for good is not in the new comm. One that
 * goes on in the comm that this rank agreed on will come back when it finds that this rank is not
 * there. One that goes on in any other comm does so without this rank.
 */
void hoop_survivors_look_for_left(struct hoop_survivors *all)
{
    const struct hoop_member *member = all->member;
    for (uint32_t at = 0; at < member->roster.n && all->state == HOOP_SURVIVORS_GATHERING; at++) {
        const uint32_t how =
            at != member->join.rank ? member->events.left(member->events.arg, at) : 0;
        if (how == HOOP_LEFT) {
            hoop_survivor_lose(&all->others[hoop_survivors_rank_of(all, at)], "has left");
        } else if (how != 0 && how != all->before) {
            hoop_survivors_fail(
                all,
                &(struct hoop_failure){
                    .code = HOOP_REMOTE_ERROR,
                    .rank = (int32_t)member->join.rank,
                    .text = "the other ranks went on without this one, which they took for lost"});
        }
    }
}

static hoop_result_t survivors_start(void *arg)
{
    struct hoop_survivors *all = arg;
    struct hoop_member *member = all->member;
    if (member->witness != NULL) {
        return hoop_error(HOOP_INVALID_USAGE, "the communicator is being shrunk already");
    }
    hoop_result_t result = hoop_timer_create(survivors_tick, all, &all->timer);
    if (result == HOOP_OK) {
        result = hoop_survivors_expect(all);
    }
    if (result != HOOP_OK) {
        hoop_survivors_close(all);
        return result;
    }
    assert(member->state == HOOP_MEMBER_IN);
    member->witness = &all->witness;
    hoop_timer_start(all->timer, SURVIVORS_FIRST_MS, 0);
    hoop_survivors_look_for_left(all);
    for (uint32_t at = 0; at < member->roster.n && all->state == HOOP_SURVIVORS_GATHERING; at++) {
        if (member->others[at].lost) {
            survivors_lost(&all->witness, at, false, "is lost");
        }
    }
    if (all->state == HOOP_SURVIVORS_GATHERING) {
        hoop_survivors_look(all);
    }
    return HOOP_OK;
}

hoop_result_t hoop_survivors_create(struct hoop_member *member, const struct hoop_rank_set *out,
                                    bool exact, uint32_t before, uint64_t timeout_ms,
                                    struct hoop_job *job, struct hoop_survivors **ret)
{
    const struct hoop_lineage *lineage = exact ? NULL : member->lineage;
    const uint32_t n = lineage != NULL ? lineage->n : member->roster.n;
    struct hoop_rendezvous derived = {.address_count = 0};
    struct hoop_survivors *all = calloc(1, sizeof(*all) + n * sizeof(all->others[0]));
    if (all == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %u ranks", n);
    }
    hoop_result_t result = HOOP_OK;
    if (lineage == NULL) {
        result = hoop_rendezvous_derive(member, exact ? "shrink" : "lineage", NULL, 0, &derived);
    }
    all->key = lineage != NULL ? lineage->key : derived.secret;
    hoop_rendezvous_finish(&derived);
    all->member = member;
    all->job = job;
    all->exact = exact;
    all->before = before;
    all->witness.lost = survivors_lost;
    all->n = n;
    all->me = hoop_survivors_rank_of(all, member->join.rank);
    all->begin_ns = hoop_now_ns();
    all->timeout_ms = hoop_frame_ms(timeout_ms);
    all->deadline_ns = hoop_deadline_ns(all->timeout_ms);
    all->pause_ms = SURVIVORS_FIRST_MS;
    survivors_begin(all, out);
    if (result == HOOP_OK) {
        result = hoop_service_call(survivors_start, all);
    }
    if (result != HOOP_OK) {
        hoop_secret_wipe(&all->key, sizeof(all->key));
        free(all);
        return result;
    }
    *ret = all;
    return HOOP_OK;
}

const struct hoop_survival *hoop_survivors_decision(const struct hoop_survivors *survivors)
{
    return &survivors->survival;
}

struct survivors_order {
    struct hoop_survivors *all;
    struct hoop_member *joining;
    bool joined;
};

static void survivors_watch(void *arg)
{
    const struct survivors_order *order = arg;
    order->all->joining = order->joining;
    if (order->all->broken) {
        hoop_survivors_break(order->all);
    }
}

void hoop_survivors_join(struct hoop_survivors *survivors, struct hoop_member *joining)
{
    struct survivors_order order = {.all = survivors, .joining = joining};
    hoop_service_run(survivors_watch, &order);
}

static void survivors_give_up(void *arg)
{
    hoop_survivors_fail(arg, &(struct hoop_failure){.code = HOOP_ABORTED,
                                                    .rank = -1,
                                                    .text = "the communicator was given up"});
}

void hoop_survivors_cancel(struct hoop_survivors *survivors)
{
    hoop_service_run(survivors_give_up, survivors);
}

static void survivors_stop(void *arg)
{
    const struct survivors_order *order = arg;
    struct hoop_survivors *all = order->all;
    for (uint32_t rank = 0; rank < all->n && order->joined; rank++) {
        const struct hoop_survivor *other = &all->others[rank];
        hoop_survivors_say(all, other->caller, HOOP_VIEW_DONE);
        hoop_survivors_say(all, other->opened ? other->dialled : NULL, HOOP_VIEW_DONE);
    }
    survivors_give_up(all);
    hoop_survivors_close(all);
    hoop_leader_retire(all->survival.rendezvous.name, order->joined);
    all->member->witness = NULL;
}

void hoop_survivors_destroy(struct hoop_survivors *survivors, bool joined)
{
    struct survivors_order order = {.all = survivors, .joined = joined};
    if (survivors == NULL) {
        return;
    }
    hoop_service_run(survivors_stop, &order);
    hoop_survivors_forget(survivors);
    hoop_secret_wipe(&survivors->key, sizeof(survivors->key));
    free(survivors);
}
