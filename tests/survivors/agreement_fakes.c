/* The functions that lib/survivors/ calls, in the world of agreement_world.h. */
#include "base/clock.h"
#include "membership/serve.h"
#include "survivors/agreement_world.h"
#include "tree/leader.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct world world;
struct world_furniture world_furniture[WORLD_RANKS];

static struct world_rank *me(void)
{
    return &world.ranks[world.current];
}

/* ---- Time and memory ---------------------------------------------------------------------- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    (void)clock;
    ret->tv_sec = (time_t)(world.now_ns / HOOP_NS_PER_S);
    ret->tv_nsec = (long)(world.now_ns % HOOP_NS_PER_S);
    return 0;
}

void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    const bool small = count * bytes <= sizeof(world.small[0]);
    bool *used = small ? world.small_used : world.big_used;
    const size_t most = small ? (size_t)2 * WORLD_RANKS : WORLD_RANKS;
    for (size_t i = 0; i < most; i++) {
        if (!used[i]) {
            used[i] = true;
            return memset(small ? world.small[i] : world.big[i], 0,
                          small ? sizeof(world.small[0]) : sizeof(world.big[0]));
        }
    }
    assert(!"no room in the world");
    return NULL;
}

void __wrap_free(void *memory);
void __wrap_free(void *memory)
{
    for (size_t i = 0; i < WORLD_RANKS; i++) {
        world.big_used[i] = world.big_used[i] && memory != world.big[i];
    }
    for (size_t i = 0; i < (size_t)2 * WORLD_RANKS; i++) {
        world.small_used[i] = world.small_used[i] && memory != world.small[i];
    }
}

/* ---- Service thread ----------------------------------------------------------------------- */

hoop_result_t hoop_service_call(hoop_result_t (*fn)(void *arg), void *arg)
{
    return fn(arg);
}

void hoop_service_run(void (*fn)(void *arg), void *arg)
{
    fn(arg);
}

void hoop_job_complete(struct hoop_job *job, const struct hoop_failure *failure)
{
    struct world_rank *rank =
        &world.ranks[HOOP_CONTAINER_OF(job, struct world_furniture, job) - world_furniture];
    assert(!rank->done);
    rank->done = true;
    rank->result = failure != NULL ? failure->code : HOOP_OK;
}

hoop_result_t hoop_timer_create(hoop_timer_fn *fn, void *arg, struct hoop_timer **ret_timer)
{
    assert(!me()->timer.exists);
    me()->timer = (struct hoop_timer){.fn = fn, .arg = arg, .exists = true};
    *ret_timer = &me()->timer;
    return HOOP_OK;
}

void hoop_timer_start(struct hoop_timer *timer, uint64_t first_ms, uint64_t repeat_ms)
{
    (void)first_ms;
    (void)repeat_ms;
    timer->runs = true;
}

void hoop_timer_stop(struct hoop_timer *timer)
{
    timer->runs = false;
}

void hoop_timer_destroy(struct hoop_timer *timer)
{
    if (timer != NULL) {
        *timer = (struct hoop_timer){.exists = false};
    }
}

/* ---- Secrets and places ------------------------------------------------------------------- */

/* The decision's number at this rank, and the rank: so the same decisions make the same state. */
hoop_result_t hoop_random(void *buf, size_t bytes)
{
    memset(buf, 0, bytes);
    *(uint8_t *)buf = (uint8_t)(1 + world.current + 8 * me()->decided++);
    assert(*(uint8_t *)buf < WORLD_COMMS);
    return HOOP_OK;
}

hoop_result_t hoop_hmac(const struct hoop_secret *secret, const char *label, const void *a,
                        size_t a_bytes, const void *b, size_t b_bytes,
                        uint8_t ret_mac[HOOP_MAC_BYTES])
{
    (void)secret;
    (void)label;
    (void)b;
    (void)b_bytes;
    memset(ret_mac, 0, HOOP_MAC_BYTES);
    memcpy(ret_mac, a, a_bytes < HOOP_MAC_BYTES ? a_bytes : HOOP_MAC_BYTES);
    return HOOP_OK;
}

void hoop_secret_wipe(void *secret, size_t bytes)
{
    memset(secret, 0, bytes);
}

void hoop_rendezvous_name(const char *prefix, const uint8_t bytes[HOOP_RENDEZVOUS_NAME_RANDOM],
                          char ret_name[HOOP_NAME_BYTES])
{
    (void)snprintf(ret_name, HOOP_NAME_BYTES, "%s%u", prefix, bytes[0]);
}

hoop_result_t hoop_rendezvous_derive(const struct hoop_member *member, const char *what,
                                     const void *bytes, size_t count, struct hoop_rendezvous *ret)
{
    (void)member;
    (void)what;
    (void)bytes;
    (void)count;
    memset(ret, 0, sizeof(*ret));
    return HOOP_OK;
}

hoop_result_t hoop_rendezvous_by_secret(const struct hoop_secret *secret,
                                        struct hoop_rendezvous *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->secret = *secret;
    return HOOP_OK;
}

void hoop_rendezvous_finish(struct hoop_rendezvous *rendezvous)
{
    (void)rendezvous;
}

hoop_result_t hoop_leader_begin(struct hoop_rendezvous *rendezvous)
{
    (void)rendezvous;
    return HOOP_OK;
}

void hoop_leader_retire(const char *name, bool done)
{
    (void)name;
    (void)done;
}

/* ---- Members ------------------------------------------------------------------------------ */

void hoop_member_give_up(struct hoop_member *member, hoop_result_t code, const char *why)
{
    (void)code;
    (void)why;
    const struct world_furniture *its = HOOP_CONTAINER_OF(member, struct world_furniture, joining);
    world.ranks[its - world_furniture].cancelled = true;
}

void hoop_member_describe(const struct hoop_member *member, uint32_t rank, char *ret_text,
                          size_t bytes)
{
    (void)member;
    (void)snprintf(ret_text, bytes, "rank %u", rank);
}

/* ---- Endpoints: one of each rank, for near or for far ------------------------------------- */

void hoop_endpoint_expect(struct hoop_endpoint *endpoint, struct hoop_expectation *expectation)
{
    struct hoop_expectation **slot = endpoint == NULL ? &me()->far : &me()->near;
    expectation->endpoint = endpoint;
    assert(*slot == NULL);
    *slot = expectation;
}

void hoop_endpoint_expect_no_more(struct hoop_expectation *expectation)
{
    me()->near = me()->near == expectation ? NULL : me()->near;
    me()->far = me()->far == expectation ? NULL : me()->far;
}

const struct hoop_address *hoop_endpoint_address(const struct hoop_endpoint *endpoint)
{
    (void)endpoint;
    return &world_furniture_of(me())->address;
}

/* ---- Connections -------------------------------------------------------------------------- */

static struct world_call *call_of(const struct hoop_connection *end)
{
    return &world.calls[end->call];
}

static struct hoop_connection *other_end(const struct hoop_connection *end)
{
    return &call_of(end)->ends[1 - end->side];
}

static void letter_to(struct hoop_connection *end, struct world_letter letter)
{
    assert(end->count < WORLD_LETTERS);
    end->letters[end->count++] = letter;
}

hoop_result_t hoop_connection_connect(const struct hoop_place *place,
                                      const struct hoop_address *from,
                                      const struct hoop_frame_hello *hello,
                                      const struct hoop_secret *secret,
                                      const struct hoop_connection_owner *owner, void *arg,
                                      struct hoop_connection **ret_connection)
{
    const struct world_rank *server = &world.ranks[hello->to];
    const bool there = !server->dead && server->phase != WORLD_FAILED;
    uint8_t at = 0;
    (void)place;
    (void)from;
    (void)secret;
    if (!there && !world.far) {
        return HOOP_REMOTE_ERROR;
    }
    while (world.calls[at].used) {
        at++;
        assert(at < WORLD_CALLS);
    }
    struct world_call *call = &world.calls[at];
    *call = (struct world_call){
        .used = true, .client = (uint8_t)hello->from, .server = (uint8_t)hello->to};
    assert(call->client == world.current);
    for (uint8_t side = 0; side < 2; side++) {
        call->ends[side] = (struct hoop_connection){.call = at, .side = side};
    }
    call->ends[0].open = true;
    call->ends[0].owner = owner;
    call->ends[0].arg = arg;
    if (!there) {
        call->accepted = true;
        letter_to(&call->ends[0],
                  (struct world_letter){.kind = LETTER_CLOSED, .code = HOOP_REMOTE_ERROR});
    }
    *ret_connection = &call->ends[0];
    return HOOP_OK;
}

void hoop_connection_destroy(struct hoop_connection *connection)
{
    if (connection == NULL) {
        return;
    }
    struct world_call *call = call_of(connection);
    assert(connection->open);
    connection->open = false;
    connection->count = 0;
    other_end(connection)->eof = true;
    call->used = call->ends[0].open || call->ends[1].open;
}

void hoop_connection_adopt(struct hoop_connection *connection,
                           const struct hoop_connection_owner *owner, void *arg)
{
    connection->owner = owner;
    connection->arg = arg;
}

void hoop_connection_send(struct hoop_connection *connection, const struct hoop_frame_header *frame,
                          const int *fds, uint32_t fd_count)
{
    const union hoop_frame *whole = (const union hoop_frame *)frame;
    struct hoop_connection *to = other_end(connection);
    (void)fds;
    (void)fd_count;
    assert(connection->established);
    if (!to->open) {
        return;
    }
    if (frame->type == HOOP_FRAME_VIEW) {
        letter_to(to, (struct world_letter){.kind = LETTER_VIEW,
                                            .phase = (uint8_t)whole->view.phase,
                                            .out = whole->view.out.bits[0],
                                            .nonce = whole->view.nonce[0]});
    } else {
        assert(frame->type == HOOP_FRAME_REJECT);
        letter_to(
            to, (struct world_letter){.kind = LETTER_REJECT, .code = (uint8_t)whole->reject.code});
    }
}

/* The real function reports this in the next round of the loop, and reads nothing more. */
void hoop_connection_refuse(struct hoop_connection *connection, hoop_result_t code)
{
    connection->count = 0;
    letter_to(connection, (struct world_letter){.kind = LETTER_CLOSED, .code = (uint8_t)code});
}

/* Without an address: the rank was not reached, so there is also no pid. */
const struct hoop_connection_about *hoop_connection_about(const struct hoop_connection *connection)
{
    static struct hoop_frame_hello hello;
    static struct hoop_connection_about about;
    hello.from = call_of(connection)->client;
    hello.to = call_of(connection)->server;
    about = (struct hoop_connection_about){.hello = &hello, .pid = connection->established ? 1 : 0};
    return &about;
}
