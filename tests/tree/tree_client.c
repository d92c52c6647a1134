/* Clients that send what a test wants; see tree_client.h. */
#include "tree/tree_client.h"
#include "base/clock.h"
#include "control/endpoint.h"
#include "runtime/service.h"
#include "runtime/wait.h"
#include "runtime/watch.h"
#include "tree/leader.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
static pthread_mutex_t client_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all queues */

/* What the service thread has to do. */
struct client_call {
    struct client *client;
    const struct hoop_place *place;
    const struct hoop_rendezvous *rendezvous;
    const union hoop_frame *frame;
    const int *fd;
    bool done;
    struct hoop_place leader;
    struct hoop_address address;
    struct hoop_failure failure;
    hoop_result_t result;
};

/* ---- What a client hears ------------------------------------------------------------------ */

static void client_hear(struct client *client, const struct client_event *event)
{
    struct client_event *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        abort();
    }
    *copy = *event;
    pthread_mutex_lock(&client_lock);
    *client->last = copy;
    client->last = &copy->next;
    pthread_mutex_unlock(&client_lock);
}

static void client_opened(void *arg, struct hoop_connection *connection)
{
    const struct client_event event = {.kind = CLIENT_OPENED};
    struct client *client = arg;
    if (client->bare) {
        client->fd = hoop_connection_detach(connection);
        client->connection = NULL;
    }
    client_hear(client, &event);
}

static bool client_message(void *arg, struct hoop_connection *connection,
                           const union hoop_frame *frame, int *fds)
{
    struct client_event event = {.kind = CLIENT_MESSAGE};
    (void)fds;
    if (frame->header.type == HOOP_FRAME_INFO && frame->info.pid == (int32_t)getpid()) {
        if (frame->info.address.family != 0) { /* it also asks for the port of a rank's process */
            hoop_connection_send(connection, &frame->header, NULL, 0);
        }
        return true; /* the server tells who it is: this process */
    }
    memcpy(&event.frame, frame, frame->header.bytes);
    client_hear(arg, &event);
    return true;
}

static void client_closed(void *arg, struct hoop_connection *connection,
                          const struct hoop_failure *why)
{
    const struct client_event event = {.kind = CLIENT_CLOSED, .failure = *why};
    struct client *client = arg;
    hoop_connection_destroy(connection);
    client->connection = NULL;
    client_hear(client, &event);
}

static const struct hoop_connection_owner client_owner = {
    .opened = client_opened,
    .message = client_message,
    .closed = client_closed,
};

static bool client_take(struct client *client)
{
    pthread_mutex_lock(&client_lock);
    struct client_event *event = client->first;
    if (event != NULL) {
        client->first = event->next;
        client->last = client->first == NULL ? &client->first : client->last;
    }
    pthread_mutex_unlock(&client_lock);
    if (event != NULL) {
        client->heard = *event;
        free(event);
    }
    return event != NULL;
}

static void client_await(struct client *client)
{
    const uint64_t deadline = hoop_deadline_ns(TREE_TEST_LONG_MS);
    bool taken = client_take(client);
    while (!taken && hoop_now_ns() < deadline) {
        hoop_wait_briefly();
        taken = client_take(client);
    }
    assert_true(taken);
}

bool client_opens(struct client *client)
{
    client_await(client);
    return client->heard.kind == CLIENT_OPENED;
}

void client_expect(struct client *client, enum client_heard kind)
{
    client_await(client);
    if (client->heard.kind == CLIENT_CLOSED && kind != CLIENT_CLOSED) {
        fail_msg("the connection was closed: %s", client->heard.failure.text);
    }
    assert_int_equal(client->heard.kind, kind);
}

const union hoop_frame *client_expect_frame(struct client *client, enum hoop_frame_type type)
{
    client_expect(client, CLIENT_MESSAGE);
    if (client->heard.frame.header.type == HOOP_FRAME_REJECT && type != HOOP_FRAME_REJECT) {
        fail_msg("rejected: %s", client->heard.frame.reject.text);
    }
    assert_string_equal(hoop_frame_name(client->heard.frame.header.type), hoop_frame_name(type));
    return &client->heard.frame;
}

void client_expect_closed(struct client *client, hoop_result_t code)
{
    client_expect(client, CLIENT_CLOSED);
    assert_int_equal(client->heard.failure.code, code);
    client_leave(client);
}

void client_expect_reject(struct client *client, hoop_result_t code, int rank, const char *words)
{
    const struct hoop_frame_failure *reject =
        &client_expect_frame(client, HOOP_FRAME_REJECT)->reject;
    if (strncmp(reject->text, words, strlen(words)) != 0) {
        fail_msg("\"%s\" does not begin with \"%s\"", reject->text, words);
    }
    assert_int_equal(reject->code, code);
    assert_int_equal(reject->rank, rank);
    client_leave(client);
}

/* ---- What a client does ------------------------------------------------------------------- */

static void call_dial(void *arg)
{
    struct client_call *call = arg;
    call->result =
        hoop_connection_connect(call->place, NULL, &call->frame->hello, &call->rendezvous->secret,
                                &client_owner, call->client, &call->client->connection);
}

bool client_dial(struct client *client, const struct hoop_place *place,
                 const struct hoop_rendezvous *rendezvous, const union hoop_frame *hello, bool bare)
{
    struct client_call call = {
        .client = client, .place = place, .rendezvous = rendezvous, .frame = hello};
    memset(client, 0, sizeof(*client));
    client->bare = bare;
    client->fd = -1;
    client->last = &client->first;
    hoop_service_run(call_dial, &call);
    assert_true(call.result == HOOP_OK || call.result == HOOP_REMOTE_ERROR);
    return call.result == HOOP_OK;
}

static void call_leave(void *arg)
{
    struct client *client = arg;
    hoop_connection_destroy(client->connection);
    client->connection = NULL;
    hoop_fork_close(client->fd);
    client->fd = -1;
}

void client_leave(struct client *client)
{
    hoop_service_run(call_leave, client);
    while (client->first != NULL) {
        struct client_event *next = client->first->next;
        free(client->first);
        client->first = next;
    }
    client->last = &client->first;
}

static void call_say(void *arg)
{
    const struct client_call *call = arg;
    if (call->client->connection != NULL) {
        hoop_connection_send(call->client->connection, &call->frame->header, call->fd,
                             call->fd != NULL ? 1 : 0);
    }
}

void client_say(struct client *client, const union hoop_frame *frame)
{
    struct client_call call = {.client = client, .frame = frame};
    hoop_service_run(call_say, &call);
}

void client_say_with(struct client *client, const union hoop_frame *frame, int fd)
{
    struct client_call call = {.client = client, .frame = frame, .fd = &fd};
    hoop_service_run(call_say, &call);
}

void client_say_plain(struct client *client, enum hoop_frame_type type)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, type);
    if (type == HOOP_FRAME_LEFT) {
        frame.fate.how = 1;
    }
    client_say(client, &frame);
}

void child_dial(struct client *child, const struct hoop_rendezvous *rendezvous,
                const struct hoop_address *parent, uint32_t machine)
{
    const struct hoop_place place = {.address = *parent};
    union hoop_frame hello;
    hoop_frame_init(&hello, HOOP_FRAME_HELLO);
    hello.hello.kind = HOOP_HELLO_TO_PARENT;
    hello.hello.from = machine;
    (void)snprintf(hello.hello.rendezvous, sizeof(hello.hello.rendezvous), "%s", rendezvous->name);
    assert_true(client_dial(child, &place, rendezvous, &hello, false));
}

union hoop_frame client_join(uint32_t n, uint32_t rank)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_JOIN);
    frame.join.rank = rank;
    frame.join.n = n;
    frame.join.who.process = 100;
    frame.join.who.pid = 1000 + (int32_t)rank;
    frame.join.who.cpus.count = 1;
    frame.join.timeout_ms = 60000;
    frame.join.left_ms = 60000;
    frame.join.dead_after_ms = 5000;
    frame.join.segment_bytes = 65536;
    (void)snprintf(frame.join.who.host, sizeof(frame.join.who.host), "here");
    (void)snprintf(frame.join.who.listener, sizeof(frame.join.who.listener), "l%u", rank);
    return frame;
}

/* ---- A root ------------------------------------------------------------------------------- */

/* A port that was free a moment ago. */
static uint16_t a_port(void)
{
    const struct hoop_address any = {.family = 4, .ip = {127, 0, 0, 1}};
    struct hoop_address address;
    struct sockaddr_storage at;
    socklen_t bytes = hoop_address_to_sockaddr(&any, &at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    assert_true(hoop_address_from_sockaddr((struct sockaddr *)&at, &address));
    close(fd);
    return address.port;
}

struct hoop_rendezvous a_meeting(void)
{
    struct hoop_rendezvous rendezvous;
    assert_int_equal(hoop_rendezvous_random(&rendezvous), HOOP_OK);
    rendezvous.address_count = 1;
    rendezvous.addresses[0] =
        (struct hoop_address){.family = 4, .port = a_port(), .ip = {127, 0, 0, 1}};
    return rendezvous;
}

static void call_serve(void *arg)
{
    struct client_call *call = arg;
    struct hoop_rendezvous rendezvous = *call->rendezvous;
    call->result = hoop_leader_begin(&rendezvous);
    call->address = rendezvous.addresses[0];
    (void)hoop_failure_take(&call->failure, call->result, -1);
}

hoop_result_t try_serve(const struct hoop_rendezvous *rendezvous, struct hoop_address *ret_address,
                        struct hoop_failure *ret_failure)
{
    struct client_call call = {.rendezvous = rendezvous, .failure = {.rank = -1}};
    hoop_service_run(call_serve, &call);
    assert_int_equal(call.result, call.failure.code);
    *ret_address = call.address;
    *ret_failure = call.failure;
    return call.result;
}

struct hoop_address serve(const struct hoop_rendezvous *rendezvous)
{
    struct hoop_address address;
    struct hoop_failure failure;
    if (try_serve(rendezvous, &address, &failure) != HOOP_OK) {
        fail_msg("%s", failure.text);
    }
    assert_int_not_equal(address.port, 0);
    return address;
}

static void call_retire(void *arg)
{
    const struct client_call *call = arg;
    hoop_leader_retire(call->rendezvous->name, call->done);
}

void give_up(const struct hoop_rendezvous *rendezvous)
{
    struct client_call call = {.rendezvous = rendezvous};
    hoop_service_run(call_retire, &call);
}

void retire(const struct hoop_rendezvous *rendezvous)
{
    struct client_call call = {.rendezvous = rendezvous, .done = true};
    hoop_service_run(call_retire, &call);
    assert_false(is_served(rendezvous));
}

bool is_served(const struct hoop_rendezvous *rendezvous)
{
    const union hoop_frame hello = machine_hello(rendezvous);
    struct client client;
    machine_dial(&client, rendezvous, &rendezvous->addresses[0], &hello, false);
    const bool there = client_opens(&client);
    if (!there) { /* nobody listens, or another rendezvous is served there */
        const hoop_result_t code = client.heard.failure.code;
        assert_true(code == HOOP_AGAIN || code == HOOP_REMOTE_ERROR);
    }
    client_leave(&client);
    return there;
}

static void await(bool (*is)(const struct hoop_rendezvous *rendezvous),
                  const struct hoop_rendezvous *rendezvous)
{
    const uint64_t deadline = hoop_deadline_ns(TREE_TEST_LONG_MS);
    while (is(rendezvous) && hoop_now_ns() < deadline) {
        hoop_wait_briefly();
    }
    assert_false(is(rendezvous));
}

void await_end(const struct hoop_rendezvous *rendezvous)
{
    await(is_served, rendezvous);
}

/* ---- Machines ----------------------------------------------------------------------------- */

union hoop_frame machine_hello(const struct hoop_rendezvous *rendezvous)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_HELLO);
    frame.hello.kind = HOOP_HELLO_TO_ROOT;
    (void)snprintf(frame.hello.rendezvous, sizeof(frame.hello.rendezvous), "%s", rendezvous->name);
    return frame;
}

void machine_dial(struct client *client, const struct hoop_rendezvous *rendezvous,
                  const struct hoop_address *address, const union hoop_frame *hello, bool bare)
{
    const struct hoop_place place = {.address = *address};
    assert_true(client_dial(client, &place, rendezvous, hello, bare));
}

void machine_enter(struct client *client, const struct hoop_rendezvous *rendezvous,
                   const struct hoop_address *address)
{
    const union hoop_frame hello = machine_hello(rendezvous);
    machine_dial(client, rendezvous, address, &hello, false);
    client_expect(client, CLIENT_OPENED);
}

struct hoop_address machine_address(uint32_t who)
{
    return (struct hoop_address){
        .family = 4, .port = (uint16_t)(4000 + who), .ip = {10, 0, 0, (uint8_t)who}};
}

union hoop_frame machine_join(uint32_t who, uint32_t n, uint32_t rank)
{
    union hoop_frame frame = client_join(n, rank);
    frame.join.who.process = 100 + who;
    (void)snprintf(frame.join.who.host, sizeof(frame.join.who.host), "m%u", who);
    return frame;
}

void machine_say_place(struct client *client, uint32_t who)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_INFO);
    frame.info.address = machine_address(who);
    frame.info.process = 100 + who;
    frame.info.pid = 77;
    (void)snprintf(frame.info.host, sizeof(frame.info.host), "m%u", who);
    client_say(client, &frame);
}

void machine_say_join(struct client *client, uint32_t who, uint32_t n, uint32_t rank)
{
    const union hoop_frame frame = machine_join(who, n, rank);
    client_say(client, &frame);
}

void machines_gather(struct client *machines, uint32_t count, uint32_t n, uint32_t ranks,
                     const struct hoop_rendezvous *rendezvous)
{
    const struct hoop_address address = serve(rendezvous);
    for (uint32_t i = 0; i < count; i++) {
        machine_enter(&machines[i], rendezvous, &address);
        machine_say_place(&machines[i], i);
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t rank = i; rank < ranks; rank += count) {
            machine_say_join(&machines[i], i, n, rank);
        }
    }
}

void machines_expect_roster(struct client *machines, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)client_expect_frame(&machines[i], HOOP_FRAME_PLACE);
    }
    (void)client_expect_frame(&machines[0], HOOP_FRAME_ROSTER);
    (void)client_expect_frame(&machines[0], HOOP_FRAME_ROSTER_PART);
}

void machines_expect_failure(struct client *machines, uint32_t count,
                             const struct hoop_rendezvous *rendezvous, hoop_result_t code, int rank,
                             const char *words)
{
    struct client late;
    for (uint32_t i = 0; i < count; i++) {
        client_expect_reject(&machines[i], code, rank, words);
    }
    const struct hoop_address address = serve(rendezvous); /* it still is: returns where */
    machine_enter(&late, rendezvous, &address);
    machine_say_place(&late, 9);
    client_expect_reject(&late, code, rank, words);
    retire(rendezvous);
}

/* ---- A leader ----------------------------------------------------------------------------- */

static void call_lead(void *arg)
{
    struct client_call *call = arg;
    call->result = hoop_leader_serve(call->rendezvous);
    (void)hoop_failure_take(&call->failure, call->result, -1);
}

void serve_leader(const struct hoop_rendezvous *rendezvous)
{
    struct client_call call = {.rendezvous = rendezvous, .failure = {.rank = -1}};
    hoop_service_run(call_lead, &call);
    if (call.result != HOOP_OK) {
        fail_msg("%s", call.failure.text);
    }
}

struct hoop_rendezvous a_local_meeting(void)
{
    struct hoop_rendezvous rendezvous = a_meeting();
    rendezvous.address_count = 0;
    serve_leader(&rendezvous);
    return rendezvous;
}

bool is_led(const struct hoop_rendezvous *rendezvous)
{
    struct client client;
    if (!rank_dial(&client, rendezvous, 0)) {
        return false;
    }
    const bool there = client_opens(&client);
    client_leave(&client);
    return there;
}

void await_leader_end(const struct hoop_rendezvous *rendezvous)
{
    await(is_led, rendezvous);
}

/* ---- Ranks -------------------------------------------------------------------------------- */

bool rank_dial(struct client *client, const struct hoop_rendezvous *rendezvous, uint32_t rank)
{
    struct hoop_place place;
    union hoop_frame hello;
    assert_int_equal(hoop_leader_place(rendezvous, &place), HOOP_OK);
    hoop_frame_init(&hello, HOOP_FRAME_HELLO);
    hello.hello.kind = HOOP_HELLO_RANK;
    hello.hello.from = rank;
    (void)snprintf(hello.hello.rendezvous, sizeof(hello.hello.rendezvous), "%s", rendezvous->name);
    return client_dial(client, &place, rendezvous, &hello, false);
}

void rank_enter(struct client *client, const struct hoop_rendezvous *rendezvous, uint32_t rank)
{
    assert_true(rank_dial(client, rendezvous, rank));
    client_expect(client, CLIENT_OPENED);
}

void rank_say_join(struct client *client, const union hoop_frame *join)
{
    const int fd = eventfd(0, EFD_CLOEXEC);
    assert_true(fd >= 0);
    client_say_with(client, join, fd);
    close(fd);
}

void rank_expect_roster(struct client *client, uint32_t n)
{
    assert_int_equal(client_expect_frame(client, HOOP_FRAME_ROSTER)->roster.n, n);
    for (uint32_t rank = 0; rank < n; rank += HOOP_MAX_FDS) {
        assert_int_equal(client_expect_frame(client, HOOP_FRAME_ROSTER_PART)->part.first, rank);
    }
}

void ranks_gather(struct client *ranks, uint32_t count, uint32_t n,
                  const struct hoop_rendezvous *rendezvous)
{
    for (uint32_t rank = 0; rank < count; rank++) {
        const union hoop_frame join = client_join(n, rank);
        rank_enter(&ranks[rank], rendezvous, rank);
        rank_say_join(&ranks[rank], &join);
    }
}

void rank_expect_late(struct client *client, const struct hoop_rendezvous *rendezvous, uint32_t n,
                      uint32_t rank, hoop_result_t code, int blamed, const char *words)
{
    const union hoop_frame join = client_join(n, rank);
    rank_enter(client, rendezvous, rank);
    rank_say_join(client, &join);
    client_expect_reject(client, code, blamed, words);
}

void ranks_expect_failure(struct client *ranks, uint32_t count, uint32_t n,
                          const struct hoop_rendezvous *rendezvous, hoop_result_t code, int rank,
                          const char *words)
{
    for (uint32_t i = 0; i < count; i++) {
        client_expect_reject(&ranks[i], code, rank, words);
    }
    for (uint32_t i = count; i < n; i++) {
        rank_expect_late(&ranks[i], rendezvous, n, i, code, rank, words);
    }
    await_leader_end(rendezvous);
}
