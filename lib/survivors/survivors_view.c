/* Views, and the decision that comes of them; see survivors.h and survivors_inside.h. */
#include "base/clock.h"
#include "base/log.h"
#include "survivors/survivors_inside.h"
#include "tree/leader.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- Ranks ---------------------------------------------------------------------------------- */

bool hoop_survivors_has(const struct hoop_survivors *all, uint32_t rank)
{
    return !hoop_rank_set_has(&all->out, rank);
}

uint32_t hoop_survivors_leader(const struct hoop_survivors *all)
{
    uint32_t rank = 0;
    while (rank < all->me && !hoop_survivors_has(all, rank)) {
        rank++;
    }
    return rank;
}

uint32_t hoop_survivors_rank_of(const struct hoop_survivors *all, uint32_t at)
{
    const struct hoop_lineage *lineage = all->member->lineage;
    return all->exact || lineage == NULL ? at : lineage->ranks[at];
}

uint32_t hoop_survivor_rank(const struct hoop_survivor *other)
{
    return (uint32_t)(other - other->all->others);
}

/* ---- Ends --------------------------------------------------------------------------------- */

void hoop_survivors_fail(struct hoop_survivors *all, const struct hoop_failure *failure)
{
    if (all->state != HOOP_SURVIVORS_GATHERING) {
        return;
    }
    all->state = HOOP_SURVIVORS_OVER;
    hoop_survivors_close(all);
    hoop_job_complete_once(&all->job, failure);
}

void hoop_survivors_fail_all(struct hoop_survivors *all, hoop_result_t code, const char *format,
                             ...)
{
    struct hoop_failure failure = {.code = code, .rank = -1};
    union hoop_frame frame;
    va_list args;
    va_start(args, format);
    (void)hoop_text_format(failure.text, sizeof(failure.text), format, args);
    va_end(args);
    hoop_frame_from_failure(&frame, HOOP_FRAME_REJECT, &failure);
    for (uint32_t rank = 0; rank < all->n && all->state == HOOP_SURVIVORS_GATHERING; rank++) {
        hoop_connection_say(all->others[rank].said ? all->others[rank].caller : NULL, &frame);
    }
    hoop_survivors_fail(all, &failure);
}

void hoop_survivors_break(struct hoop_survivors *all)
{
    all->broken = true;
    if (all->joining != NULL) {
        hoop_member_give_up(all->joining, HOOP_REMOTE_ERROR,
                            "another of the remaining ranks was lost, or could not go on");
    }
}

/* ---- Views -------------------------------------------------------------------------------- */

/* This rank's view has grown: tells the ranks lost in it, which may live, and the leader. */
static void survivors_grow(struct hoop_survivors *all)
{
    if (!hoop_survivors_has(all, all->me)) {
        hoop_survivors_fail(
            all, &(struct hoop_failure){.code = HOOP_REMOTE_ERROR,
                                        .rank = (int32_t)all->member->join.rank,
                                        .text = "the other ranks go on without this one, which "
                                                "they took for lost or excluded"});
        return;
    }
    for (uint32_t rank = 0; rank < all->n; rank++) {
        struct hoop_survivor *other = &all->others[rank];
        const bool out = !hoop_survivors_has(all, rank);
        const bool hears = other->opened && (out || other->greeted);
        hoop_survivors_say(all, hears ? other->dialled : NULL, HOOP_VIEW_MINE);
        if (out) {
            hoop_survivors_say(all, other->caller, HOOP_VIEW_MINE);
            hoop_survivor_end(other);
        }
    }
    hoop_survivors_look(all);
}

static void survivors_merge(struct hoop_survivors *all, const struct hoop_rank_set *out)
{
    bool grown = false;
    for (size_t i = 0; i < sizeof(all->out.bits); i++) {
        grown = grown || (out->bits[i] & ~all->out.bits[i]) != 0;
        all->out.bits[i] |= out->bits[i];
    }
    if (grown) {
        survivors_grow(all);
    }
}

void hoop_survivor_lose(struct hoop_survivor *other, const char *why)
{
    struct hoop_survivors *all = other->all;
    const uint32_t rank = hoop_survivor_rank(other);
    char who[160];
    if (!hoop_survivors_has(all, rank) || other->done || all->state == HOOP_SURVIVORS_OVER) {
        return;
    }
    hoop_log(HOOP_LOG_TRACE, HOOP_LOG_INIT, "shrink: rank %u takes rank %u for lost: it %s",
             all->me, rank, why);
    if (all->state == HOOP_SURVIVORS_AGREED) {
        hoop_survivors_break(all);
    } else if (all->exact) {
        hoop_member_describe(all->member, other->at, who, sizeof(who));
        hoop_survivors_fail_all(all, HOOP_REMOTE_ERROR, "%s %s", who, why);
    } else {
        hoop_rank_set_add(&all->out, rank);
        survivors_grow(all);
    }
}

/* ---- The decision --------------------------------------------------------------------------- */

void hoop_survivors_forget(struct hoop_survivors *all)
{
    struct hoop_survival *survival = &all->survival;
    hoop_rendezvous_finish(&survival->rendezvous);
    if (survival->lineage != NULL) {
        hoop_secret_wipe(&survival->lineage->key, sizeof(struct hoop_secret));
    }
    free(survival->lineage);
    *survival = (struct hoop_survival){.lineage = NULL};
}

static hoop_result_t survivors_make_lineage(struct hoop_survivors *all)
{
    struct hoop_lineage *lineage =
        calloc(1, sizeof(*lineage) + all->survival.n * sizeof(lineage->ranks[0]));
    if (lineage == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %u ranks", all->survival.n);
    }
    lineage->key = all->key;
    lineage->n = all->n;
    for (uint32_t rank = 0, next = 0; rank < all->n; rank++) {
        if (hoop_survivors_has(all, rank)) {
            lineage->ranks[next++] = rank;
        }
    }
    all->survival.lineage = lineage;
    return HOOP_OK;
}

/* Where other machines reach the leader's process. */
static struct hoop_address survivors_root(const struct hoop_survivors *all)
{
    const struct hoop_member *member = all->member;
    const uint32_t leader = hoop_survivors_leader(all);
    struct hoop_address address = leader == all->me
                                      ? *hoop_endpoint_address(member->data_endpoint)
                                      : member->others[all->others[leader].at].entry.address;
    hoop_address_rescope(&address, &member->address);
    return address;
}

/* Who is left, and where they meet: all ranks derive the same from the decision. */
static hoop_result_t survivors_settle(struct hoop_survivors *all)
{
    struct hoop_survival *survival = &all->survival;
    struct hoop_rendezvous *rendezvous = &survival->rendezvous;
    struct hoop_secret secret;
    uint32_t here = 0;
    for (uint32_t at = 0; at < all->member->roster.n; at++) {
        const uint32_t rank = hoop_survivors_rank_of(all, at);
        if (!hoop_survivors_has(all, rank)) {
            hoop_rank_set_add(&survival->out, at);
            continue;
        }
        survival->rank += rank < all->me ? 1 : 0;
        survival->n++;
        here += all->member->roster.peers[at].same_machine ? 1 : 0;
    }
    memcpy(&survival->number, all->nonce, sizeof(survival->number));
    survival->number |= 1u << 31;
    hoop_result_t result = hoop_hmac(&all->key, "hoop shrink", all->nonce, sizeof(all->nonce),
                                     all->out.bits, sizeof(all->out.bits), secret.bytes);
    if (result == HOOP_OK) {
        result = hoop_rendezvous_by_secret(&secret, rendezvous);
    }
    hoop_secret_wipe(&secret, sizeof(secret));
    rendezvous->local_n = here;
    if (here < survival->n) {
        rendezvous->address_count = 1;
        rendezvous->addresses[0] = survivors_root(all);
    }
    return result == HOOP_OK && !all->exact ? survivors_make_lineage(all) : result;
}

/* Carries out the decision, once the nonce is known. After a failure nobody has heard of it. */
static hoop_result_t survivors_decide(struct hoop_survivors *all)
{
    const bool leads = hoop_survivors_leader(all) == all->me;
    hoop_result_t result = survivors_settle(all);
    if (result == HOOP_OK && leads) {
        result = hoop_leader_begin(&all->survival.rendezvous);
    }
    if (result != HOOP_OK) {
        hoop_survivors_forget(all);
        return result;
    }
    all->state = HOOP_SURVIVORS_AGREED;
    hoop_survivors_expect_no_more(all);
    hoop_timer_stop(all->timer);
    for (uint32_t rank = 0; rank < all->n && leads; rank++) {
        hoop_survivors_say(all, all->others[rank].caller, HOOP_VIEW_AGREED);
    }
    hoop_job_complete_once(&all->job, NULL);
    return HOOP_OK;
}

/* Is the rank that decided the lowest that is left, are all that are left in this comm, and does
 * the decision fit what this rank asked for? */
static bool survivors_fits(const struct hoop_survivor *leader, const struct hoop_frame_view *view)
{
    const struct hoop_survivors *all = leader->all;
    const uint32_t lowest = hoop_survivor_rank(leader);
    bool fits = (view->exact != 0) == all->exact &&
                !(all->exact && memcmp(&view->out, &all->out, sizeof(view->out)) != 0);
    for (uint32_t rank = 0; rank < all->n && fits; rank++) {
        const bool in = !hoop_rank_set_has(&view->out, rank);
        fits =
            in ? rank >= lowest && all->others[rank].at != HOOP_SURVIVORS_NOBODY : rank != lowest;
    }
    return fits;
}

bool hoop_survivors_take_decision(struct hoop_survivor *leader, const struct hoop_frame_view *view)
{
    struct hoop_survivors *all = leader->all;
    hoop_result_t result = HOOP_OK;
    if (!survivors_fits(leader, view)) {
        return false;
    }
    all->out = view->out;
    memcpy(all->nonce, view->nonce, sizeof(all->nonce));
    if (!hoop_survivors_has(all, all->me)) {
        survivors_grow(all);
    } else if ((result = survivors_decide(all)) != HOOP_OK) {
        hoop_survivors_fail_all(all, result, "rank %u: %s", all->member->join.rank,
                                hoop_thread_error());
    }
    return true;
}

/* ---- Messages ------------------------------------------------------------------------------- */

void hoop_survivors_take_view(struct hoop_survivor *other, struct hoop_connection *connection,
                              const struct hoop_frame_view *view)
{
    struct hoop_survivors *all = other->all;
    const bool led = connection == other->caller && hoop_survivor_rank(other) > all->me;
    const bool first = led && !other->said;
    const uint64_t until_ns = hoop_now_ns() + view->left_ms * HOOP_NS_PER_MS;
    const uint32_t mine = all->member->join.rank;
    if (!hoop_survivors_has(all, hoop_survivor_rank(other))) { /* it has no say, and is told */
        hoop_survivors_say(all, connection, HOOP_VIEW_MINE);
        hoop_survivor_end(other);
        return;
    }
    if (all->exact &&
        hoop_rank_set_has(&view->out, all->me)) { /* it may come after its other agreement */
        other->elsewhere = true;
        hoop_survivor_end(other);
        return;
    }
    other->said = other->said || led;
    other->greeted = other->greeted || connection == other->dialled;
    all->deadline_ns = led && until_ns < all->deadline_ns ? until_ns : all->deadline_ns;
    if ((view->exact != 0) != all->exact) {
        hoop_survivors_fail_all(all, HOOP_MISMATCH,
                                "ranks %u and %u gave hoop_comm_shrink() different flags", mine,
                                other->at);
    } else if (all->exact && memcmp(&view->out, &all->out, sizeof(view->out)) != 0) {
        hoop_survivors_fail_all(
            all, HOOP_MISMATCH,
            "ranks %u and %u gave hoop_comm_shrink() different ranks to exclude", mine, other->at);
    } else {
        hoop_survivors_say(all, first ? connection : NULL, HOOP_VIEW_MINE);
        survivors_merge(all, &view->out);
    }
    if (all->state == HOOP_SURVIVORS_GATHERING) {
        hoop_survivors_look(all);
    }
}

void hoop_survivors_look(struct hoop_survivors *all)
{
    const uint32_t leader = hoop_survivors_leader(all);
    bool whole = leader == all->me;
    for (uint32_t rank = 0; rank < all->n && whole; rank++) {
        whole = rank == all->me || !hoop_survivors_has(all, rank) || all->others[rank].said;
    }
    if (leader != all->me && all->others[leader].dialled == NULL) {
        hoop_survivors_note(all, hoop_survivor_dial(&all->others[leader]));
    } else if (whole) { /* ranks may be out because they took this one for lost, and have gone on */
        hoop_survivors_look_for_left(all);
        if (all->state == HOOP_SURVIVORS_GATHERING) { /* else it may be known under this nonce */
            const hoop_result_t result = hoop_random(all->nonce, sizeof(all->nonce));
            hoop_survivors_note(all, result == HOOP_OK ? survivors_decide(all) : result);
        }
    }
}
