/* Connections between survivors; see survivors.h and survivors_inside.h. */
#include "base/clock.h"
#include "survivors/survivors_inside.h"
#include <string.h>

#define SURVIVORS_CALLS 32u      /* ranks called per tick */
#define SURVIVORS_MISSES_MOST 3u /* in a row: nobody listens there any more */

/* ---- Connections -------------------------------------------------------------------------- */

static void survivor_hang_up(struct hoop_connection **connection)
{
    hoop_connection_destroy(*connection);
    *connection = NULL;
}

void hoop_survivor_end(struct hoop_survivor *other)
{
    survivor_hang_up(&other->dialled);
    survivor_hang_up(&other->caller);
}

void hoop_survivors_say(const struct hoop_survivors *all, struct hoop_connection *connection,
                        enum hoop_view_phase phase)
{
    union hoop_frame frame;
    if (connection == NULL) {
        return;
    }
    hoop_frame_init(&frame, HOOP_FRAME_VIEW);
    frame.view.phase = phase;
    frame.view.exact = all->exact ? 1 : 0;
    frame.view.left_ms = hoop_left_ms(all->deadline_ns);
    memcpy(frame.view.nonce, all->nonce, sizeof(frame.view.nonce));
    frame.view.out = all->out;
    hoop_connection_say(connection, &frame);
}

void hoop_survivors_expect_no_more(struct hoop_survivors *all)
{
    hoop_endpoint_expect_no_more(&all->near);
    hoop_endpoint_expect_no_more(&all->far);
}

void hoop_survivors_close(struct hoop_survivors *all)
{
    hoop_survivors_expect_no_more(all);
    hoop_timer_destroy(all->timer);
    all->timer = NULL;
    for (uint32_t rank = 0; rank < all->n; rank++) {
        hoop_survivor_end(&all->others[rank]);
    }
}

static bool survivor_message(void *arg, struct hoop_connection *connection,
                             const union hoop_frame *frame, int *fds)
{
    struct hoop_survivor *other = arg;
    struct hoop_survivors *all = other->all;
    const struct hoop_frame_view *view = &frame->view;
    const bool leads = connection == other->dialled;
    const bool is_view = frame->header.type == HOOP_FRAME_VIEW;
    (void)fds;
    if (is_view && view->phase == HOOP_VIEW_DONE && all->state == HOOP_SURVIVORS_AGREED) {
        other->done = true;
    } else if (is_view && view->phase == HOOP_VIEW_MINE) {
        if (all->state == HOOP_SURVIVORS_GATHERING) { /* else it comes too late */
            hoop_survivors_take_view(other, connection, view);
        }
    } else if (is_view && leads && all->state == HOOP_SURVIVORS_GATHERING &&
               view->phase == HOOP_VIEW_AGREED && hoop_survivors_take_decision(other, view)) {
        return true;
    } else if (frame->header.type == HOOP_FRAME_REJECT && leads) {
        const struct hoop_failure failure = hoop_frame_to_failure(&frame->reject);
        hoop_survivors_fail(all, &failure);
    } else {
        return false;
    }
    return true;
}

/* Did the connection end because nobody listens? A busy process asks to come again. */
static bool survivor_is_deserted(const struct hoop_connection *connection,
                                 const struct hoop_failure *why)
{
    const struct hoop_connection_about *about = hoop_connection_about(connection);
    return why->code == HOOP_NOT_AUTHENTICATED ||
           (why->code != HOOP_AGAIN && about->local.family == 0 && about->pid == 0);
}

static void survivor_miss(struct hoop_survivor *other)
{
    other->misses += other->missed ? 0 : 1;
    other->missed = true;
}

static void survivor_lose_deserted(struct hoop_survivor *other)
{
    if (other->misses >= SURVIVORS_MISSES_MOST) {
        hoop_survivor_lose(other, "is gone: nobody listens at the address of its process any more");
    }
}

static void survivor_closed(void *arg, struct hoop_connection *connection,
                            const struct hoop_failure *why)
{
    struct hoop_survivor *other = arg;
    const bool deserted = survivor_is_deserted(connection, why);
    const bool calls = connection == other->caller;
    const bool knew = calls ? other->said : other->greeted;
    survivor_hang_up(calls ? &other->caller : &other->dialled);
    if (knew) {
        hoop_survivor_lose(other, "ended its connection");
    } else if (!calls) {
        if (deserted) {
            survivor_miss(other);
        } else {
            other->misses = 0;
        }
        survivor_lose_deserted(other);
    }
}

static void survivor_opened(void *arg, struct hoop_connection *connection)
{
    struct hoop_survivor *other = arg;
    other->misses = 0;
    other->opened = true;
    hoop_survivors_say(other->all, connection, HOOP_VIEW_MINE);
    if (hoop_survivors_leader(other->all) != hoop_survivor_rank(other)) {
        /* It is there, which was the question; it connects once it knows what this rank knows. */
        survivor_hang_up(&other->dialled);
    }
}

static const struct hoop_connection_owner survivor_owner = {
    .opened = survivor_opened,
    .message = survivor_message,
    .closed = survivor_closed,
};

static void survivors_called(void *arg, struct hoop_connection *connection)
{
    struct hoop_survivors *all = arg;
    const uint32_t rank = hoop_connection_about(connection)->hello->from;
    if (all->state != HOOP_SURVIVORS_GATHERING || rank >= all->n || rank == all->me ||
        all->others[rank].at == HOOP_SURVIVORS_NOBODY) {
        hoop_connection_destroy(connection);
        return;
    }
    struct hoop_survivor *other = &all->others[rank];
    survivor_hang_up(&other->caller); /* it reconnected, so the old one is stale */
    other->said = false;
    other->caller = connection;
    hoop_connection_adopt(connection, &survivor_owner, other);
}

/* ---- Looking for the others --------------------------------------------------------------- */

/* The name that ranks expect when this rank, or another one, leads them. */
static hoop_result_t survivors_key(const struct hoop_survivors *all, uint32_t rank,
                                   char ret_name[HOOP_NAME_BYTES])
{
    uint8_t mac[HOOP_MAC_BYTES];
    const hoop_result_t result =
        hoop_hmac(&all->key, "hoop survivors", &rank, sizeof(rank), NULL, 0, mac);
    if (result == HOOP_OK) {
        hoop_rendezvous_name("hoop-", mac, ret_name);
    }
    return result;
}

hoop_result_t hoop_survivor_dial(struct hoop_survivor *other)
{
    const struct hoop_survivors *all = other->all;
    const struct hoop_member *member = all->member;
    const bool near = member->roster.peers[other->at].same_machine;
    struct hoop_place place;
    struct hoop_frame_hello hello = {
        .kind = HOOP_HELLO_SURVIVOR, .from = all->me, .to = hoop_survivor_rank(other)};
    hoop_result_t result = survivors_key(all, hello.to, hello.rendezvous);
    hoop_peer_place(member, other->at, &place);
    if (result == HOOP_OK) {
        other->opened = other->greeted = false;
        other->since_ns = hoop_now_ns();
        result = hoop_connection_connect(&place, near ? NULL : &member->address, &hello, &all->key,
                                         &survivor_owner, other, &other->dialled);
    }
    if (result == HOOP_REMOTE_ERROR) { /* nobody has this name; the next tick counts it */
        survivor_miss(other);
    } else if (result == HOOP_AGAIN) { /* somebody is there, but busy */
        other->misses = 0;
    }
    return result == HOOP_AGAIN || result == HOOP_REMOTE_ERROR ? HOOP_OK : result;
}

/* This process lacks descriptors or memory to call others, to let them in or to lead them. Fails
 * for all in half the time after which they would take it for dead, or if less is left. */
static void survivors_starved(void *arg, uint64_t ms, const struct hoop_failure *why)
{
    struct hoop_survivors *all = arg;
    if (ms >= all->member->roster.dead_after_ms / 2 || ms >= hoop_left_ms(all->deadline_ns)) {
        hoop_survivors_fail_all(all, why->code, "rank %u: %s", all->member->join.rank, why->text);
    }
}

void hoop_survivors_note(struct hoop_survivors *all, hoop_result_t result)
{
    const uint64_t now = hoop_now_ns();
    struct hoop_failure why = {.code = HOOP_OK};
    if (result == HOOP_OK) {
        all->starved_ns = 0;
        return;
    }
    (void)hoop_failure_take(&why, result, -1);
    all->starved_ns = all->starved_ns != 0 ? all->starved_ns : now;
    const uint64_t ms = (now - all->starved_ns) / HOOP_NS_PER_MS;
    survivors_starved(all, hoop_result_is_own(result) ? ms : UINT64_MAX, &why);
}

void hoop_survivors_call(struct hoop_survivors *all)
{
    uint32_t calls = 0;
    for (uint32_t i = 0;
         i < all->n && calls < SURVIVORS_CALLS && all->state == HOOP_SURVIVORS_GATHERING; i++) {
        struct hoop_survivor *other = &all->others[all->next_call++ % all->n];
        const bool missing = hoop_survivor_rank(other) != all->me &&
                             hoop_survivors_has(all, hoop_survivor_rank(other)) && !other->said &&
                             other->dialled == NULL;
        if (missing) {
            hoop_survivors_note(all, hoop_survivor_dial(other));
            calls++;
        }
    }
}

void hoop_survivors_drop_silent(struct hoop_survivors *all)
{
    const uint64_t patience_ns = all->member->roster.dead_after_ms * HOOP_NS_PER_MS;
    for (uint32_t rank = 0; rank < all->n && all->state == HOOP_SURVIVORS_GATHERING; rank++) {
        struct hoop_survivor *other = &all->others[rank];
        if (other->dialled != NULL && !other->greeted &&
            hoop_now_ns() - other->since_ns > patience_ns) {
            hoop_survivor_lose(other, "does not answer");
        }
        survivor_lose_deserted(other);
        other->missed = false;
    }
}

/* ---- Being called ------------------------------------------------------------------------- */

hoop_result_t hoop_survivors_expect(struct hoop_survivors *all)
{
    const struct hoop_member *member = all->member;
    all->near = (struct hoop_expectation){
        .hello = {.kind = HOOP_HELLO_SURVIVOR},
        .secret = &all->key,
        .opened = survivors_called,
        .starved = survivors_starved,
        .arg = all,
    };
    const hoop_result_t result = survivors_key(all, all->me, all->near.hello.rendezvous);
    if (result != HOOP_OK) {
        return result;
    }
    all->far = all->near;
    hoop_endpoint_expect(member->peers_endpoint, &all->near);
    if (member->roster.machines > 1) {
        hoop_endpoint_expect(member->data_endpoint, &all->far);
    }
    return HOOP_OK;
}
