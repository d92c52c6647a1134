/* Machines that say what a test wants; see hub_machine.h. */
#include "hub_machine.h"
#include "base/clock.h"
#include "wait.h"
#include "watch.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static pthread_mutex_t machine_lock = PTHREAD_MUTEX_INITIALIZER; /* the queues of all */

/* What the service thread is to do. */
struct machine_call {
    struct machine *machine;
    const struct hoop_meeting *meeting;
    const union hoop_frame *frame;
    struct hoop_address address;
    struct hoop_failure failure;
    hoop_result_t result;
    bool there;
};

/* ---- A hub -------------------------------------------------------------------------------- */

struct hoop_meeting a_meeting(void)
{
    struct hoop_meeting meeting = {
        .has_secret = true,
        .address_count = 1,
        .addresses = {{.family = 4, .ip = {127, 0, 0, 1}}},
    };
    assert_int_equal(hoop_listener_name(meeting.name), HOOP_OK);
    assert_int_equal(hoop_random(&meeting.secret, sizeof(meeting.secret)), HOOP_OK);
    return meeting;
}

static void call_serve(void *arg)
{
    struct machine_call *call = arg;
    call->result = hoop_hub_serve(call->meeting, &call->address, &call->failure);
}

hoop_result_t try_serve(const struct hoop_meeting *meeting, struct hoop_address *ret_address,
                        struct hoop_failure *ret_failure)
{
    struct machine_call call = {.meeting = meeting, .failure = {.rank = -1}};
    hoop_service_run(call_serve, &call);
    assert_int_equal(call.result, call.failure.code);
    *ret_address = call.address;
    *ret_failure = call.failure;
    return call.result;
}

struct hoop_address serve(const struct hoop_meeting *meeting)
{
    struct hoop_address address;
    struct hoop_failure failure;
    if (try_serve(meeting, &address, &failure) != HOOP_OK) {
        fail_msg("%s", failure.text);
    }
    assert_int_not_equal(address.port, 0);
    return address;
}

static void call_retire(void *arg)
{
    const struct machine_call *call = arg;
    hoop_hub_retire(call->meeting->name);
}

void retire(const struct hoop_meeting *meeting)
{
    struct machine_call call = {.meeting = meeting};
    hoop_service_run(call_retire, &call);
    assert_false(is_served(meeting));
}

static void call_look(void *arg)
{
    struct machine_call *call = arg;
    const union hoop_frame hello = machine_hello(call->meeting);
    struct hoop_admission admission;
    call->there = hoop_hub_admit(&hello.hello, &admission, &call->failure);
    hoop_secret_wipe(&admission, sizeof(admission));
}

bool is_served(const struct hoop_meeting *meeting)
{
    struct machine_call call = {.meeting = meeting, .failure = {.rank = -1}};
    hoop_service_run(call_look, &call);
    assert_int_equal(call.failure.code, call.there ? HOOP_OK : HOOP_AGAIN);
    return call.there;
}

void await_end(const struct hoop_meeting *meeting)
{
    const uint64_t deadline = hoop_deadline_ns(HUB_TEST_LONG_MS);
    while (is_served(meeting) && hoop_now_ns() < deadline) {
        hoop_wait_briefly();
    }
    assert_false(is_served(meeting));
}

/* ---- What a machine hears ----------------------------------------------------------------- */

static void machine_hear(struct machine *machine, const struct machine_event *event)
{
    struct machine_event *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        abort();
    }
    *copy = *event;
    pthread_mutex_lock(&machine_lock);
    *machine->last = copy;
    machine->last = &copy->next;
    pthread_mutex_unlock(&machine_lock);
}

static void machine_opened(void *arg, struct hoop_control *control)
{
    const struct machine_event event = {.kind = MACHINE_OPENED};
    struct machine *machine = arg;
    if (machine->bare) {
        machine->fd = hoop_control_detach(control);
        machine->control = NULL;
    }
    machine_hear(machine, &event);
}

static void machine_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                            int *fds)
{
    struct machine_event event = {.kind = MACHINE_MESSAGE};
    (void)control;
    (void)fds;
    if (frame->header.type == HOOP_FRAME_GATE && frame->gate.pid == (int32_t)getpid()) {
        return; /* the hub says who it is: this process */
    }
    memcpy(&event.frame, frame, frame->header.bytes);
    machine_hear(arg, &event);
}

static void machine_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    const struct machine_event event = {.kind = MACHINE_CLOSED, .failure = *why};
    struct machine *machine = arg;
    hoop_control_destroy(control);
    machine->control = NULL;
    machine_hear(machine, &event);
}

static const struct hoop_control_owner machine_owner = {
    .opened = machine_opened,
    .message = machine_message,
    .closed = machine_closed,
};

static bool machine_take(struct machine *machine)
{
    pthread_mutex_lock(&machine_lock);
    struct machine_event *event = machine->first;
    if (event != NULL) {
        machine->first = event->next;
        machine->last = machine->first == NULL ? &machine->first : machine->last;
    }
    pthread_mutex_unlock(&machine_lock);
    if (event != NULL) {
        machine->heard = *event;
        free(event);
    }
    return event != NULL;
}

void machine_expect(struct machine *machine, enum machine_heard kind)
{
    const uint64_t deadline = hoop_deadline_ns(HUB_TEST_LONG_MS);
    bool taken = machine_take(machine);
    while (!taken && hoop_now_ns() < deadline) {
        hoop_wait_briefly();
        taken = machine_take(machine);
    }
    assert_true(taken);
    if (machine->heard.kind == MACHINE_CLOSED && kind != MACHINE_CLOSED) {
        fail_msg("the connection was closed: %s", machine->heard.failure.text);
    }
    assert_int_equal(machine->heard.kind, kind);
}

const union hoop_frame *machine_expect_frame(struct machine *machine, enum hoop_frame_type type)
{
    machine_expect(machine, MACHINE_MESSAGE);
    assert_string_equal(hoop_frame_name(machine->heard.frame.header.type), hoop_frame_name(type));
    return &machine->heard.frame;
}

void machine_expect_closed(struct machine *machine, hoop_result_t code)
{
    machine_expect(machine, MACHINE_CLOSED);
    assert_int_equal(machine->heard.failure.code, code);
    machine_leave(machine);
}

void machine_expect_reject(struct machine *machine, hoop_result_t code, int rank, const char *words)
{
    const struct hoop_frame_reject *reject =
        &machine_expect_frame(machine, HOOP_FRAME_REJECT)->reject;
    if (strncmp(reject->text, words, strlen(words)) != 0) {
        fail_msg("\"%s\" does not begin with \"%s\"", reject->text, words);
    }
    assert_int_equal(reject->code, code);
    assert_int_equal(reject->rank, rank);
    machine_leave(machine);
}

/* ---- What a machine does ------------------------------------------------------------------ */

static void call_dial(void *arg)
{
    struct machine_call *call = arg;
    const struct hoop_place place = {.address = call->address};
    call->result = hoop_control_connect(&place, NULL, &call->frame->hello, &call->meeting->secret,
                                        &machine_owner, call->machine, &call->machine->control);
}

void machine_dial(struct machine *machine, const struct hoop_meeting *meeting,
                  const struct hoop_address *address, const union hoop_frame *hello, bool bare)
{
    struct machine_call call = {
        .machine = machine, .meeting = meeting, .frame = hello, .address = *address};
    memset(machine, 0, sizeof(*machine));
    machine->bare = bare;
    machine->fd = -1;
    machine->last = &machine->first;
    hoop_service_run(call_dial, &call);
    assert_int_equal(call.result, HOOP_OK);
}

union hoop_frame machine_hello(const struct hoop_meeting *meeting)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_HELLO);
    frame.hello.kind = HOOP_HELLO_MACHINE;
    (void)snprintf(frame.hello.meeting, sizeof(frame.hello.meeting), "%s", meeting->name);
    return frame;
}

void machine_enter(struct machine *machine, const struct hoop_meeting *meeting,
                   const struct hoop_address *address)
{
    const union hoop_frame hello = machine_hello(meeting);
    machine_dial(machine, meeting, address, &hello, false);
    machine_expect(machine, MACHINE_OPENED);
}

static void call_leave(void *arg)
{
    struct machine *machine = arg;
    hoop_control_destroy(machine->control);
    machine->control = NULL;
    hoop_fork_close(machine->fd);
    machine->fd = -1;
}

void machine_leave(struct machine *machine)
{
    hoop_service_run(call_leave, machine);
    while (machine->first != NULL) {
        struct machine_event *next = machine->first->next;
        free(machine->first);
        machine->first = next;
    }
    machine->last = &machine->first;
}

struct hoop_address machine_address(uint32_t who)
{
    return (struct hoop_address){
        .family = 4, .port = (uint16_t)(4000 + who), .ip = {10, 0, 0, (uint8_t)who}};
}

union hoop_frame machine_join(uint32_t who, uint32_t n, uint32_t rank)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_JOIN);
    frame.join.rank = rank;
    frame.join.n = n;
    frame.join.process = 100 + who;
    frame.join.pid = 1000 + (int32_t)rank;
    frame.join.timeout_ms = 60000;
    frame.join.left_ms = 60000;
    frame.join.dead_after_ms = 5000;
    frame.join.segment_bytes = 65536;
    (void)snprintf(frame.join.host, sizeof(frame.join.host), "m%u", who);
    (void)snprintf(frame.join.listener, sizeof(frame.join.listener), "l%u", rank);
    return frame;
}

static void call_say(void *arg)
{
    const struct machine_call *call = arg;
    if (call->machine->control != NULL) {
        hoop_control_send(call->machine->control, &call->frame->header, NULL, 0);
    }
}

void machine_say(struct machine *machine, const union hoop_frame *frame)
{
    struct machine_call call = {.machine = machine, .frame = frame};
    hoop_service_run(call_say, &call);
}

void machine_say_plain(struct machine *machine, enum hoop_frame_type type)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, type);
    machine_say(machine, &frame);
}

void machine_say_place(struct machine *machine, uint32_t who)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_MACHINE);
    frame.machine.address = machine_address(who);
    frame.machine.process = 100 + who;
    (void)snprintf(frame.machine.host, sizeof(frame.machine.host), "m%u", who);
    machine_say(machine, &frame);
}

void machine_say_join(struct machine *machine, uint32_t who, uint32_t n, uint32_t rank)
{
    const union hoop_frame frame = machine_join(who, n, rank);
    machine_say(machine, &frame);
}

/* ---- Several ------------------------------------------------------------------------------ */

void machines_gather(struct machine *machines, uint32_t count, uint32_t n, uint32_t ranks,
                     const struct hoop_meeting *meeting)
{
    const struct hoop_address address = serve(meeting);
    for (uint32_t i = 0; i < count; i++) {
        machine_enter(&machines[i], meeting, &address);
        machine_say_place(&machines[i], i);
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t rank = i; rank < ranks; rank += count) {
            machine_say_join(&machines[i], i, n, rank);
        }
    }
}

void machines_expect_roster(struct machine *machines, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)machine_expect_frame(&machines[i], HOOP_FRAME_TREE);
    }
    (void)machine_expect_frame(&machines[0], HOOP_FRAME_ROSTER);
    (void)machine_expect_frame(&machines[0], HOOP_FRAME_ROSTER_PART);
}

void machines_expect_failure(struct machine *machines, uint32_t count,
                             const struct hoop_meeting *meeting, hoop_result_t code, int rank,
                             const char *words)
{
    struct machine late;
    for (uint32_t i = 0; i < count; i++) {
        machine_expect_reject(&machines[i], code, rank, words);
    }
    const struct hoop_address address = serve(meeting); /* it is still: says where */
    machine_enter(&late, meeting, &address);
    machine_say_place(&late, 9);
    machine_expect_reject(&late, code, rank, words);
    retire(meeting);
}
