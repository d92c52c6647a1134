/* What can happen in the world of agreement_world.h, and its effects. */
#include "survivors/agreement_world.h"
#include "base/clock.h"
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NOW_NS (1000 * HOOP_NS_PER_S)
#define TICK_NS (NOW_NS + 60 * HOOP_NS_PER_MS) /* when ranks that have not called are dialled */
#define LATE_NS (NOW_NS + 100 * HOOP_NS_PER_S) /* after all deadlines */
#define DEAD_AFTER_MS 5000u
/* The memory that an agreement of so many ranks takes. */
#define BIG_BYTES (sizeof(struct hoop_survivors) + WORLD_RANKS * sizeof(struct hoop_survivor))

/* ---- A rank's comm ------------------------------------------------------------------------ */

static uint8_t all_ranks(void)
{
    return (uint8_t)((1u << world.n) - 1u);
}

static struct hoop_lineage *lineage_of(const struct world_rank *rank)
{
    return (struct hoop_lineage *)world_furniture_of(rank)->lineage;
}

/* Rank `at` of this rank's comm, by its number in the first comm. */
static uint32_t rank_at(const struct world_rank *rank, uint32_t at)
{
    return rank->comm == 0 ? at : lineage_of(rank)->ranks[at];
}

static uint32_t member_left(void *arg, uint32_t at)
{
    const struct world_rank *rank = arg;
    return world.how[rank->comm][rank_at(rank, at)];
}

static void rank_leave(const struct world_rank *rank, uint32_t how)
{
    world.gone[rank->comm] |= (uint8_t)(1u << world.current);
    world.how[rank->comm][world.current] = how;
}

/* Sets up its member, as one of its comm. */
static void rank_furnish(struct world_rank *rank)
{
    struct world_furniture *has = world_furniture_of(rank);
    const uint32_t number = (uint32_t)(rank - world.ranks);
    uint32_t n = 0;
    lineage_of(rank)->n = world.n;
    for (uint32_t i = 0; i < world.n; i++) {
        if (world_has(world.members[rank->comm], i)) {
            has->peers[n].same_machine = !world.far || i == number;
            has->others[n].lost = world_has(rank->lost, n);
            has->member.join.rank = i == number ? n : has->member.join.rank;
            lineage_of(rank)->ranks[n++] = i;
        }
    }
    has->member.state = HOOP_MEMBER_IN;
    has->member.events.left = member_left;
    has->member.events.arg = rank;
    has->member.roster.n = n;
    has->member.roster.machines = world.far ? n : 1;
    has->member.roster.dead_after_ms = DEAD_AFTER_MS;
    has->member.roster.peers = has->peers;
    has->member.others = has->others;
    has->member.lineage = rank->comm == 0 ? NULL : lineage_of(rank);
    has->member.peers_endpoint = (struct hoop_endpoint *)rank; /* only compared with NULL */
    has->member.witness = rank->survivors != NULL ? &rank->survivors->witness : NULL;
}

static void rank_enter(uint8_t number, uint8_t comm)
{
    struct world_rank *rank = &world.ranks[number];
    rank->comm = comm;
    rank->phase = WORLD_IDLE;
    rank->cancelled = rank->done = false;
    rank->joins = rank->again = rank->out = rank->lost = 0;
    rank->number = 0;
    rank_furnish(rank);
}

static void rank_fail(struct world_rank *rank)
{
    hoop_survivors_destroy(rank->survivors, false);
    rank->survivors = NULL;
    rank->phase = WORLD_FAILED;
    rank_leave(rank, HOOP_LEFT);
}

/* Does what hoop_shrink_ask() does. */
static void rank_ask(struct world_rank *rank)
{
    struct world_furniture *has = world_furniture_of(rank);
    const struct hoop_rank_set out = {.bits = {rank->out}};
    rank->done = rank->cancelled = false;
    rank->joins = 0;
    rank->phase = WORLD_AGREEING;
    if (hoop_survivors_create(&has->member, &out, false, rank->number, 60000, &has->job,
                              &rank->survivors) != HOOP_OK) {
        rank->survivors = NULL;
        rank_fail(rank);
    }
}

/* Does what hoop_shrink_hear() does. */
static void rank_hear(struct world_rank *rank)
{
    rank->done = false;
    if (rank->result != HOOP_OK) {
        rank_fail(rank);
        return;
    }
    const struct hoop_survival *left = hoop_survivors_decision(rank->survivors);
    const struct hoop_survivors *all = rank->survivors;
    const bool same = rank->number != 0 && left->out.bits[0] == rank->out;
    rank->again = same ? rank->again + 1 : 0;
    if (rank->again == HOOP_SHRINK_SAME) {
        rank_fail(rank);
        return;
    }
    const uint8_t set = (uint8_t)(~all->out.bits[0] & all_ranks());
    rank->out = left->out.bits[0];
    rank->number = left->number;
    rank->joins = all->nonce[0];
    assert(world.members[rank->joins] == 0 || world.members[rank->joins] == set);
    world.members[rank->joins] = set;
    rank->phase = WORLD_JOINING;
    hoop_survivors_join(rank->survivors, &world_furniture_of(rank)->joining);
    world.readies[rank->joins] |= rank->cancelled ? 0 : (uint8_t)(1u << world.current);
}

/* It is in the new comm, and leaves the old one at once. */
static void rank_go(struct world_rank *rank)
{
    const uint8_t comm = rank->joins;
    rank_leave(rank, rank->number);
    hoop_survivors_destroy(rank->survivors, true);
    rank->survivors = NULL;
    rank_enter(world.current, comm);
}

static void rank_join_again(struct world_rank *rank)
{
    world.given_up[rank->joins] |= (uint8_t)(1u << world.current);
    hoop_survivors_destroy(rank->survivors, false);
    rank->survivors = NULL;
    rank_ask(rank);
}

/* ---- What can happen ---------------------------------------------------------------------- */

bool world_lives(const struct world_rank *rank)
{
    return !rank->dead && rank->phase != WORLD_FAILED;
}

static bool runs(const struct world_rank *rank)
{
    return world_lives(rank) && !rank->stopped;
}

/* A member will never be in the comm, has left it, or knows that it has failed. */
bool world_has_failed(uint8_t comm)
{
    uint8_t out = world.gone[comm] | world.given_up[comm];
    for (uint32_t i = 0; i < world.n; i++) {
        const struct world_rank *rank = &world.ranks[i];
        if (!world_lives(rank) || (rank->comm == comm && rank->phase != WORLD_IDLE)) {
            out |= (uint8_t)(1u << i);
        }
    }
    return comm == 0 || (out & world.members[comm]) != 0;
}

struct event_list {
    struct world_event *events;
    size_t count;
};

static void add(struct event_list *list, enum world_kind kind, uint32_t a, uint32_t b)
{
    assert(list->count < WORLD_EVENTS);
    list->events[list->count++] =
        (struct world_event){.kind = (uint8_t)kind, .a = (uint8_t)a, .b = (uint8_t)b};
}

static void add_calls(struct event_list *list)
{
    for (uint32_t i = 0; i < WORLD_CALLS; i++) {
        const struct world_call *call = &world.calls[i];
        if (!call->used) {
            continue;
        }
        if (!call->accepted && runs(&world.ranks[call->server])) {
            add(list, EVENT_ACCEPT, i, 0);
        }
        for (uint32_t side = 0; side < 2; side++) {
            const struct hoop_connection *end = &call->ends[side];
            const struct world_rank *rank = &world.ranks[side == 0 ? call->client : call->server];
            if (!end->open || !runs(rank)) {
                continue;
            }
            if (end->count > 0 || end->eof) {
                add(list, EVENT_DELIVER, i, side);
            }
            const struct world_rank *other = &world.ranks[side == 0 ? call->server : call->client];
            if (end->count > 0 && end->eof && (other->dead || world.left.resets > 0)) {
                add(list, EVENT_RESET, i, side);
            }
        }
    }
}

static void add_watching(struct event_list *list, uint32_t a)
{
    const struct world_rank *rank = &world.ranks[a];
    const struct world_furniture *has = &world_furniture[a];
    for (uint32_t at = 0; at < has->member.roster.n; at++) {
        const uint32_t b = rank_at(rank, at);
        const struct world_rank *other = &world.ranks[b];
        if (b == a) {
            continue;
        }
        if (other->dead && !has->others[at].lost) {
            add(list, EVENT_DETECT, a, b);
        }
        if (!other->dead && !has->others[at].lost && world.left.accusations > 0) {
            add(list, EVENT_ACCUSE, a, b);
        }
        if (rank->survivors != NULL && rank->survivors->state == HOOP_SURVIVORS_GATHERING &&
            (other->stopped || other->dead) && rank->survivors->others[b].dialled != NULL &&
            !rank->survivors->others[b].greeted) {
            add(list, EVENT_SILENCE, a, b);
        }
    }
}

static void add_joining(struct event_list *list, uint32_t a)
{
    const struct world_rank *rank = &world.ranks[a];
    const uint8_t comm = rank->joins;
    if (!rank->cancelled && (world.readies[comm] & world.members[comm]) == world.members[comm]) {
        add(list, EVENT_GO, a, 0);
    }
    if (rank->cancelled || world_has_failed(comm)) {
        add(list, EVENT_JOINFAIL, a, 0);
    }
}

size_t world_events(struct world_event events[WORLD_EVENTS])
{
    struct event_list list = {.events = events};
    for (uint32_t a = 0; a < world.n; a++) {
        const struct world_rank *rank = &world.ranks[a];
        if (!world_lives(rank)) {
            continue;
        }
        if (world.left.deaths > 0) {
            add(&list, EVENT_DIE, a, 0);
        }
        if (rank->stopped) {
            add(&list, EVENT_RESUME, a, 0);
            continue;
        }
        if (world.left.stops > 0) {
            add(&list, EVENT_STOP, a, 0);
        }
        if (rank->timer.runs) {
            add(&list, EVENT_TICK, a, 0);
        }
        if (rank->timer.runs && rank->blamed) {
            add(&list, EVENT_DEADLINE, a, 0);
        }
        if (rank->phase == WORLD_IDLE && world_has_failed(rank->comm)) {
            add(&list, EVENT_CALL, a, 0);
        }
        if (rank->phase == WORLD_JOINING) {
            add_joining(&list, a);
        }
        add_watching(&list, a);
    }
    add_calls(&list);
    return list.count;
}

/* ---- What then does ----------------------------------------------------------------------- */

static void accept_call(struct world_call *call)
{
    const struct world_rank *server = &world.ranks[call->server];
    struct hoop_expectation *expectation = world.far ? server->far : server->near;
    world.current = call->server;
    call->accepted = true;
    if (expectation == NULL) { /* it is asked to come back later */
        call->ends[0].letters[call->ends[0].count++] =
            (struct world_letter){.kind = LETTER_CLOSED, .code = HOOP_REMOTE_ERROR};
        call->ends[0].letters[0].nonce = 1; /* stands for AGAIN, which is no public code */
        call->ends[0].established = true;
        return;
    }
    if (call->ends[0].open) {
        call->ends[0].letters[call->ends[0].count++] =
            (struct world_letter){.kind = LETTER_WELCOME};
    }
    call->ends[1].open = call->ends[1].established = true;
    call->used = true;
    expectation->opened(expectation->arg, &call->ends[1]);
}

static void close_end(struct hoop_connection *end, hoop_result_t code)
{
    const struct hoop_failure why = {.code = code, .rank = -1};
    end->owner->closed(end->arg, end, &why);
}

static void deliver(struct world_call *call, uint32_t side, bool lose)
{
    struct hoop_connection *end = &call->ends[side];
    world.current = side == 0 ? call->client : call->server;
    if (lose || end->count == 0) {
        end->count = 0;
        close_end(end, HOOP_REMOTE_ERROR);
        return;
    }
    const struct world_letter letter = end->letters[0];
    union hoop_frame frame;
    end->count--;
    memmove(end->letters, end->letters + 1, end->count * sizeof(letter));
    switch (letter.kind) {
    case LETTER_WELCOME:
        end->established = true;
        end->owner->opened(end->arg, end);
        return;
    case LETTER_CLOSED:
        close_end(end, letter.nonce != 0 ? HOOP_AGAIN : (hoop_result_t)letter.code);
        return;
    case LETTER_REJECT:
        hoop_frame_init(&frame, HOOP_FRAME_REJECT);
        frame.reject.code = letter.code;
        break;
    default:
        hoop_frame_init(&frame, HOOP_FRAME_VIEW);
        frame.view.phase = letter.phase;
        frame.view.left_ms = 60000;
        frame.view.out.bits[0] = letter.out;
        frame.view.nonce[0] = letter.nonce;
    }
    if (!end->owner->message(end->arg, end, &frame, NULL)) {
        hoop_connection_refuse(end, HOOP_REMOTE_ERROR);
    }
}

static void lose(struct world_rank *rank, uint32_t number)
{
    struct world_furniture *has = world_furniture_of(rank);
    for (uint32_t at = 0; at < has->member.roster.n; at++) {
        if (rank_at(rank, at) == number) {
            has->others[at].lost = true;
            if (has->member.witness != NULL) {
                has->member.witness->lost(has->member.witness, at, member_left(rank, at) != 0, "");
            }
        }
    }
}

/* The dead rank's ends close; what it has sent may still arrive. */
static void die(struct world_rank *rank, uint32_t number)
{
    rank->dead = true;
    rank->stopped = false;
    rank->timer.runs = false;
    for (uint32_t i = 0; i < WORLD_CALLS; i++) {
        struct world_call *call = &world.calls[i];
        for (uint32_t side = 0; side < 2 && call->used; side++) {
            if ((side == 0 ? call->client : call->server) != number) {
                continue;
            }
            call->ends[side].open = false;
            call->ends[side].count = 0;
            call->ends[1 - side].eof = true;
            call->accepted = call->accepted || side == 1;
        }
        call->used = call->used && (call->ends[0].open || call->ends[1].open);
    }
}

void world_apply(const struct world_event *event)
{
    struct world_rank *rank = &world.ranks[event->a < world.n ? event->a : 0]; /* or a is a call */
    world.current = event->a;
    world.now_ns = NOW_NS;
    switch ((enum world_kind)event->kind) {
    case EVENT_SILENCE:
        rank->survivors->others[event->b].since_ns = 0;
        __attribute__((fallthrough));
    case EVENT_TICK:
        world.now_ns = TICK_NS;
        rank->timer.fn(rank->timer.arg);
        break;
    case EVENT_DEADLINE:
        world.now_ns = LATE_NS;
        world.expired = true;
        rank->timer.fn(rank->timer.arg);
        break;
    case EVENT_ACCEPT:
        accept_call(&world.calls[event->a]);
        break;
    case EVENT_DELIVER:
        deliver(&world.calls[event->a], event->b, false);
        break;
    case EVENT_RESET: {
        const struct world_call *call = &world.calls[event->a];
        world.left.resets -= world.ranks[event->b == 0 ? call->server : call->client].dead ? 0 : 1;
        deliver(&world.calls[event->a], event->b, true);
        break;
    }
    case EVENT_ACCUSE:
        world.left.accusations--;
        world.ranks[event->b].blamed = true;
        __attribute__((fallthrough));
    case EVENT_DETECT:
        lose(rank, event->b);
        break;
    case EVENT_CALL:
        rank_ask(rank);
        break;
    case EVENT_GO:
        rank_go(rank);
        break;
    case EVENT_JOINFAIL:
        rank_join_again(rank);
        break;
    case EVENT_RESUME:
        rank->stopped = false;
        break;
    case EVENT_DIE:
        world.left.deaths--;
        die(rank, event->a);
        break;
    case EVENT_STOP:
        world.left.stops--;
        rank->stopped = rank->blamed = true;
        break;
    default:
        assert(!"no such event");
    }
    rank = &world.ranks[world.current];
    for (uint32_t i = 0; i < world.n && rank->survivors != NULL; i++) {
        world.ranks[i].dropped =
            world.ranks[i].dropped ||
            (world_lives(&world.ranks[i]) && world_has(rank->survivors->out.bits[0], i));
    }
    while (rank->done) {
        rank_hear(rank);
    }
}

void world_begin(uint8_t n, bool far, uint8_t first, bool dead, struct world_harm harm)
{
    memset(&world, 0, sizeof(world));
    world.n = n;
    world.far = far;
    world.left = harm;
    world.now_ns = NOW_NS;
    world.members[0] = all_ranks();
    for (uint8_t i = 0; i < n; i++) {
        rank_enter(i, 0);
        if (!dead && i != first) { /* all have been told of its loss */
            world_furniture[i].others[first].lost = true;
        }
    }
    world.ranks[first].dead = dead;
    world.ranks[first].stopped = world.ranks[first].blamed = !dead;
}

/* ---- Kept ----------------------------------------------------------------------------------- */

/* Copies the parts that are in use to `state`, or from there. */
static size_t copy_parts(uint8_t *state, bool keep)
{
    uint8_t *parts[1 + WORLD_RANKS + 2 * WORLD_RANKS] = {(uint8_t *)&world};
    size_t sizes[1 + WORLD_RANKS + 2 * WORLD_RANKS] = {offsetof(struct world, big)}, bytes = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (i > WORLD_RANKS) {
            const size_t at = i - 1 - WORLD_RANKS;
            parts[i] = world.small[at];
            sizes[i] = world.small_used[at] ? sizeof(world.small[0]) : 0;
        } else if (i > 0) {
            parts[i] = world.big[i - 1];
            sizes[i] = world.big_used[i - 1] ? BIG_BYTES : 0;
        }
        (void)memcpy(keep ? state + bytes : parts[i], keep ? parts[i] : state + bytes, sizes[i]);
        bytes += sizes[i];
    }
    return bytes;
}

size_t world_keep(uint8_t *ret_state)
{
    for (uint32_t i = 0; i < world.n; i++) {
        world.ranks[i].lost = 0;
        for (uint32_t at = 0; at < world_furniture[i].member.roster.n; at++) {
            world.ranks[i].lost |= world_furniture[i].others[at].lost ? (uint8_t)(1u << at) : 0;
        }
    }
    return copy_parts(ret_state, true);
}

void world_come_back(uint8_t *state)
{
    (void)copy_parts(state, false);
    for (uint32_t i = 0; i < world.n; i++) {
        rank_furnish(&world.ranks[i]);
    }
}

/* ---- In words ----------------------------------------------------------------------------- */

void world_event_format(const struct world_event *event, char *ret_text, size_t bytes)
{
    static const char *const names[EVENT_KINDS] = {
        [EVENT_TICK] = "tick of",
        [EVENT_ACCEPT] = "accept call",
        [EVENT_DELIVER] = "deliver call",
        [EVENT_DETECT] = "detection by",
        [EVENT_SILENCE] = "silence for",
        [EVENT_CALL] = "shrink by",
        [EVENT_GO] = "GO to",
        [EVENT_JOINFAIL] = "failed join of",
        [EVENT_RESUME] = "resume of",
        [EVENT_DEADLINE] = "deadline of",
        [EVENT_RESET] = "reset call",
        [EVENT_DIE] = "death of",
        [EVENT_STOP] = "stop of",
        [EVENT_ACCUSE] = "false accusation by",
    };
    (void)snprintf(ret_text, bytes, "%s %u (%u)", names[event->kind], event->a, event->b);
}

void world_print(void)
{
    static const char *const phases[] = {"idle", "agreeing", "joining", "failed"};
    for (uint32_t i = 0; i < world.n; i++) {
        const struct world_rank *rank = &world.ranks[i];
        printf("    rank %u: %s%s%s in comm %u", i, rank->dead ? "dead " : "",
               rank->stopped ? "stopped " : "", phases[rank->phase], rank->comm);
        if (rank->phase == WORLD_JOINING) {
            printf(", joins %u of %x%s", rank->joins, world.members[rank->joins],
                   rank->cancelled ? " cancelled" : "");
        }
        if (rank->survivors != NULL) {
            printf(", view %x, leader %u", rank->survivors->out.bits[0],
                   hoop_survivors_leader(rank->survivors));
        }
        printf("%s\n", rank->again > 0 ? ", again" : "");
    }
    for (uint32_t i = 0; i < WORLD_CALLS; i++) {
        const struct world_call *call = &world.calls[i];
        if (call->used) {
            printf("    call %u: %u to %u, %u and %u letters%s%s%s\n", i, call->client,
                   call->server, call->ends[0].count, call->ends[1].count,
                   call->accepted ? "" : ", not accepted", call->ends[0].eof ? ", server gone" : "",
                   call->ends[1].eof ? ", client gone" : "");
        }
    }
}
