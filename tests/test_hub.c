/* The hub: who is told what when all is well; strangers, nonsense; and where it is served. */
#include "base/clock.h"
#include "door.h"
#include "hub_machine.h"
#include "meeting_file.h"
#include "wait.h"
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MACHINES 7u

static int count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    if (dir == NULL) {
        return -1;
    }
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

/* Both ends of a closed connection are gone a little later. */
static void await_fds(int count)
{
    const uint64_t deadline = hoop_deadline_ns(HUB_TEST_LONG_MS);
    while (count_fds() != count && hoop_now_ns() < deadline) {
        hoop_wait_briefly();
    }
    assert_int_equal(count_fds(), count);
}

/* ---- A join that succeeds ----------------------------------------------------------------- */

static void expect_tree(struct machine *machine, uint32_t number, uint32_t count,
                        const uint32_t *who)
{
    const struct hoop_frame_tree *tree = &machine_expect_frame(machine, HOOP_FRAME_TREE)->tree;
    struct hoop_address parent;
    memset(&parent, 0, sizeof(parent));
    if (number > 0) {
        parent = machine_address(who[(number - 1) / 2]);
    }
    assert_int_equal(tree->machine, number);
    assert_int_equal(tree->machines, count);
    assert_memory_equal(&tree->parent, &parent, sizeof(parent));
}

/* The whole roster; machine_of says on which number each rank is. */
static void expect_roster(struct machine *machine, uint32_t machines, uint32_t n,
                          const uint32_t *machine_of, const uint32_t *who)
{
    const struct hoop_frame_roster *roster =
        &machine_expect_frame(machine, HOOP_FRAME_ROSTER)->roster;
    assert_true(roster->comm_id != 0);
    assert_int_equal(roster->n, n);
    assert_int_equal(roster->machines, machines);
    assert_int_equal(roster->segment_bytes, 65536);
    uint32_t rank = 0;
    while (rank < n) {
        const struct hoop_frame_roster_part *part =
            &machine_expect_frame(machine, HOOP_FRAME_ROSTER_PART)->part;
        const uint32_t left = n - rank;
        assert_int_equal(part->first, rank);
        assert_int_equal(part->count, left < HOOP_FRAME_MAX_FDS ? left : HOOP_FRAME_MAX_FDS);
        for (uint32_t i = 0; i < part->count; i++, rank++) {
            const struct hoop_frame_entry *entry = &part->entries[i];
            char host[16];
            (void)snprintf(host, sizeof(host), "m%u", who[machine_of[rank]]);
            assert_int_equal(entry->machine, machine_of[rank]);
            assert_int_equal(entry->pid, 1000 + rank);
            assert_int_equal(entry->process, 100 + who[machine_of[rank]]);
            assert_string_equal(entry->host, host);
            assert_int_equal(entry->has_fd, 0);
        }
    }
}

/* Machines are numbered in the order in which the ranks name them. */
static void number(uint32_t count, uint32_t n, uint32_t step, uint32_t *ret_who,
                   uint32_t *ret_machine_of)
{
    uint32_t numbers[MACHINES];
    uint32_t numbered = 0;
    memset(numbers, 0xff, sizeof(numbers));
    for (uint32_t rank = 0; rank < n; rank++) {
        const uint32_t at = (count - 1 + rank * step) % count;
        if (numbers[at] == UINT32_MAX) {
            ret_who[numbered] = at;
            numbers[at] = numbered++;
        }
        ret_machine_of[rank] = numbers[at];
    }
    assert_int_equal(numbered, count);
}

/* One join: rank r is on machine (count - 1 + r * step) % count, and the last rank comes first. */
static void arrange(uint32_t count, uint32_t n, uint32_t step)
{
    static uint32_t machine_of[HOOP_FRAME_MAX_RANKS];
    struct machine machines[MACHINES];
    uint32_t who[MACHINES] = {0};
    const struct hoop_meeting meeting = a_meeting();
    number(count, n, step, who, machine_of);
    machines_gather(machines, count, n, 0, &meeting);
    for (uint32_t rank = n; rank-- > 0;) {
        const uint32_t at = who[machine_of[rank]];
        machine_say_join(&machines[at], at, n, rank);
    }
    for (uint32_t i = 0; i < count; i++) {
        expect_tree(&machines[who[i]], i, count, who);
    }
    expect_roster(&machines[who[0]], count, n, machine_of, who);
    assert_true(is_served(&meeting));
    machine_say_plain(&machines[who[0]], HOOP_FRAME_READY);
    for (uint32_t i = 0; i < count; i++) { /* nobody else was told the roster */
        machine_expect_closed(&machines[i], HOOP_REMOTE_ERROR);
    }
    assert_false(is_served(&meeting));
}

static void test_arrangements(void **state)
{
    const int fds = count_fds();
    (void)state;
    for (uint32_t count = 1; count <= MACHINES; count++) {
        for (uint32_t step = 1; step <= 3; step++) {
            if (count % step != 0 || step == 1) { /* else it does not reach all machines */
                arrange(count, count, step);
                arrange(count, 2 * count + 1, step);
                arrange(count, 70, step);
            }
        }
    }
    await_fds(fds);
}

static void test_largest(void **state)
{
    (void)state;
    arrange(3, HOOP_FRAME_MAX_RANKS, 1);
}

/* A socket bound to a free port of 127.0.0.1. */
static int a_port(struct hoop_address *ret)
{
    const struct hoop_address any = {.family = 4, .ip = {127, 0, 0, 1}};
    struct sockaddr_storage at;
    socklen_t bytes = hoop_address_to_sockaddr(&any, &at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    assert_true(hoop_address_from_sockaddr((struct sockaddr *)&at, ret));
    return fd;
}

/* Two meetings at one port, and both once more when they are over. */
static void test_two_at_one_port(void **state)
{
    struct machine machines[4];
    struct hoop_meeting first = a_meeting();
    struct hoop_meeting second = a_meeting();
    (void)state;
    close(a_port(&first.addresses[0]));
    second.addresses[0] = first.addresses[0];
    for (int round = 0; round < 2; round++) {
        const struct hoop_address address = serve(&first);
        const struct hoop_address again = serve(&first); /* it does already */
        assert_memory_equal(&address, &first.addresses[0], sizeof(address));
        assert_memory_equal(&address, &again, sizeof(address));
        machines_gather(machines, 2, 2, 2, &first);
        machines_gather(machines + 2, 2, 2, 2, &second);
        machines_expect_roster(machines, 2);
        machines_expect_roster(machines + 2, 2);
        machine_say_plain(&machines[2], HOOP_FRAME_READY);
        await_end(&second);
        assert_true(is_served(&first));
        machine_say_plain(&machines[0], HOOP_FRAME_READY);
        await_end(&first);
        for (int i = 0; i < 4; i++) {
            machine_leave(&machines[i]);
        }
    }
}

/* All ranks on one machine find each other there, and may drop the hub at any time. */
static void test_one_machine(void **state)
{
    (void)state;
    for (int told = 0; told < 2; told++) {
        struct machine machine;
        const struct hoop_meeting meeting = a_meeting();
        machines_gather(&machine, 1, 4, 4, &meeting);
        if (told == 1) {
            machines_expect_roster(&machine, 1);
        }
        machine_leave(&machine);
        await_end(&meeting);
        /* or before all were known here: whoever sees them in ends it */
        machines_gather(&machine, 1, 4, 3, &meeting);
        retire(&meeting);
        machine_expect_closed(&machine, HOOP_REMOTE_ERROR);
    }
}

/* ---- Strangers, and machines that talk nonsense ------------------------------------------- */

static void complete(struct machine *machines, const struct hoop_meeting *meeting)
{
    machines_expect_roster(machines, 2);
    machine_say_plain(&machines[0], HOOP_FRAME_READY);
    await_end(meeting);
    machine_leave(&machines[0]);
    machine_leave(&machines[1]);
}

static void test_strangers(void **state)
{
    struct machine machines[2];
    struct machine stranger;
    const struct hoop_meeting meeting = a_meeting();
    struct hoop_meeting wrong = meeting;
    union hoop_frame hello = machine_hello(&meeting);
    (void)state;
    machines_gather(machines, 2, 2, 1, &meeting);
    const struct hoop_address address = serve(&meeting);
    wrong.secret.bytes[31] ^= 1;
    for (uint32_t kind = HOOP_HELLO_JOIN; kind <= HOOP_HELLO_DATA; kind++) {
        hello.hello.kind = kind;
        hello.hello.to = kind == HOOP_HELLO_PEER || kind == HOOP_HELLO_DATA ? 1 : 0;
        if (kind != HOOP_HELLO_BRANCH) { /* a tree's word for those it does not know: later */
            machine_dial(&stranger, &wrong, &address, &hello, false);
            machine_expect_closed(&stranger, HOOP_NOT_AUTHENTICATED);
        }
    }
    /* of a meeting that is not served here: it may be, in a moment */
    wrong.name[5] = 'x';
    hello = machine_hello(&wrong);
    machine_dial(&stranger, &wrong, &address, &hello, false);
    machine_expect_closed(&stranger, HOOP_AGAIN);
    /* none of them disturbed the join */
    machine_say_join(&machines[1], 1, 2, 1);
    complete(machines, &meeting);
}

static void expect_unexpected(struct machine *machine, const union hoop_frame *frame)
{
    char text[64];
    machine_say(machine, frame);
    (void)snprintf(text, sizeof(text), "it sent an unexpected %s",
                   hoop_frame_name(frame->header.type));
    machine_expect_reject(machine, HOOP_REMOTE_ERROR, -1, text);
}

/* What no machine may say, or not yet, or not twice: it only ends that machine's connection. */
static void test_nonsense(void **state)
{
    static const enum hoop_frame_type types[] = {
        HOOP_FRAME_PROOF, HOOP_FRAME_WELCOME, HOOP_FRAME_READY, HOOP_FRAME_GO,
        HOOP_FRAME_LOST,  HOOP_FRAME_GONE,    HOOP_FRAME_BEAT,  HOOP_FRAME_ROSTER_PART};
    struct machine machines[2];
    struct machine other;
    const struct hoop_meeting meeting = a_meeting();
    union hoop_frame frame;
    (void)state;
    machines_gather(machines, 2, 3, 2, &meeting);
    const struct hoop_address address = serve(&meeting);
    for (size_t i = 0; i < 2 * sizeof(types) / sizeof(types[0]); i++) {
        machine_enter(&other, &meeting, &address);
        if (i % 2 == 1) {
            machine_say_place(&other, 2);
        }
        hoop_frame_init(&frame, types[i / 2]);
        if (types[i / 2] == HOOP_FRAME_ROSTER_PART) {
            hoop_frame_set_count(&frame, 0, 1);
            frame.part.entries[0].process = 1;
        }
        expect_unexpected(&other, &frame);
    }
    machine_enter(&other, &meeting, &address); /* a rank of a machine that nobody knows */
    frame = machine_join(2, 3, 2);
    expect_unexpected(&other, &frame);
    machine_enter(&other, &meeting, &address);
    hoop_frame_init(&frame, HOOP_FRAME_REJECT);
    frame.reject.code = HOOP_SYSTEM_ERROR;
    expect_unexpected(&other, &frame);
    machine_enter(&other, &meeting, &address); /* one machine at two addresses */
    machine_say_place(&other, 2);
    hoop_frame_init(&frame, HOOP_FRAME_MACHINE);
    frame.machine.address = machine_address(3);
    frame.machine.process = 1;
    expect_unexpected(&other, &frame);
    machine_say_join(&machines[1], 1, 3, 2);
    complete(machines, &meeting);
}

/* Bytes that are no message, after the proof. */
static void test_noise(void **state)
{
    struct machine machines[2];
    struct machine noisy;
    const struct hoop_meeting meeting = a_meeting();
    const union hoop_frame hello = machine_hello(&meeting);
    union hoop_frame frame;
    (void)state;
    machines_gather(machines, 2, 3, 2, &meeting);
    const struct hoop_address address = serve(&meeting);
    for (uint32_t i = 0; i < 60; i++) {
        machine_dial(&noisy, &meeting, &address, &hello, true);
        machine_expect(&noisy, MACHINE_OPENED);
        assert_true(noisy.fd >= 0);
        assert_int_equal(hoop_random(&frame, sizeof(frame)), HOOP_OK);
        if (i % 3 == 1) { /* half of a message, and no more */
            frame = machine_join(4, 3, 2);
        } else if (i % 3 == 2) { /* a sound head with a body of noise */
            frame.header = machine_join(4, 3, 2).header;
            frame.header.type = (uint16_t)(1 + i % (HOOP_FRAME_TYPE_COUNT - 1));
        }
        (void)send(noisy.fd, &frame, i % 3 == 1 ? (size_t)i * 5 : sizeof(frame), MSG_NOSIGNAL);
        machine_leave(&noisy);
    }
    machine_say_join(&machines[1], 1, 3, 2);
    complete(machines, &meeting);
}

/* ---- Where it is served ------------------------------------------------------------------- */

/* 203.0.113.0/24 is for documentation: nobody's. */
static const struct hoop_address elsewhere = {.family = 4, .port = 29500, .ip = {203, 0, 113, 7}};

static void test_not_here(void **state)
{
    struct hoop_meeting meeting = a_meeting();
    struct hoop_address address;
    struct hoop_failure failure;
    (void)state;
    meeting.addresses[1] = meeting.addresses[0];
    meeting.addresses[0] = elsewhere;
    assert_int_equal(try_serve(&meeting, &address, &failure), HOOP_INVALID_USAGE);
    assert_string_equal(failure.text, "the meeting cannot be served: 203.0.113.7:29500 is not an "
                                      "address of this machine");
    meeting.address_count = 2;
    assert_int_equal(try_serve(&meeting, &address, &failure), HOOP_INVALID_USAGE);
    assert_string_equal(failure.text,
                        "the meeting cannot be served: 203.0.113.7:29500 is not an address of this "
                        "machine; 127.0.0.1 is for this machine alone, and the meeting is not");
    meeting.address_count = HOOP_MEETING_ADDRESSES; /* more than a sentence has room for */
    for (uint32_t i = 0; i < HOOP_MEETING_ADDRESSES; i++) {
        meeting.addresses[i] = elsewhere;
    }
    assert_int_equal(try_serve(&meeting, &address, &failure), HOOP_INVALID_USAGE);
    assert_false(is_served(&meeting));
}

/* The first port is somebody else's, the second is free. */
static void test_taken(void **state)
{
    struct hoop_meeting meeting = a_meeting();
    struct hoop_address address;
    struct hoop_failure failure;
    char text[64];
    (void)state;
    meeting.addresses[1] = meeting.addresses[0];
    const int fd = a_port(&meeting.addresses[0]);
    assert_int_equal(listen(fd, 1), 0);
    const uint16_t taken = meeting.addresses[0].port;
    assert_int_equal(try_serve(&meeting, &address, &failure), HOOP_INVALID_USAGE);
    (void)snprintf(text, sizeof(text), "port %u of 127.0.0.1: EADDRINUSE", taken);
    assert_non_null(strstr(failure.text, text));
    meeting.address_count = 2;
    assert_int_not_equal(serve(&meeting).port, taken);
    retire(&meeting);
    retire(&meeting); /* there is none any more */
    close(fd);
}

struct opening {
    struct hoop_address at;
    struct hoop_ports ports;
    struct hoop_door *door;
    struct hoop_failure failure;
};

static void call_open(void *arg)
{
    struct opening *opening = arg;
    (void)hoop_door_open(&opening->at, &opening->ports, &opening->door, &opening->failure);
}

static void call_close(void *arg)
{
    struct opening *opening = arg;
    hoop_door_close(opening->door);
}

static uint16_t open_door(struct opening *opening, uint16_t port, uint16_t first, uint16_t last)
{
    *opening = (struct opening){
        .at = {.family = 4, .port = port, .ip = {127, 0, 0, 1}},
        .ports = {.first = first, .last = last},
        .failure = {.rank = -1},
    };
    hoop_service_run(call_open, opening);
    if (opening->failure.code != HOOP_OK) {
        fail_msg("%s", opening->failure.text);
    }
    return hoop_door_address(opening->door)->port;
}

/* A door that fits is shared, and shut by its last user. */
static void test_doors(void **state)
{
    struct hoop_address ports[2];
    struct opening doors[6];
    const int fds = count_fds();
    (void)state;
    for (int i = 0; i < 2; i++) {
        close(a_port(&ports[i]));
    }
    const uint16_t a = ports[0].port;
    const uint16_t b = ports[1].port;
    assert_int_equal(open_door(&doors[0], a, 0, 0), a);
    assert_int_equal(open_door(&doors[1], b, 0, 0), b);
    assert_int_equal(count_fds(), fds + 2);
    assert_int_equal(open_door(&doors[2], a, b, b), a); /* the port counts, then the range */
    assert_int_equal(open_door(&doors[3], 0, b, b), b);
    const uint16_t any = open_door(&doors[4], 0, 0, 0);
    assert_true(any == a || any == b);
    const uint16_t low = a < b ? a : b;
    assert_int_equal(open_door(&doors[5], 0, low, low), low);
    assert_int_equal(count_fds(), fds + 2);
    for (int i = 0; i < 6; i++) {
        hoop_service_run(call_close, &doors[(i * 5 + 1) % 6]);
    }
    assert_int_equal(count_fds(), fds);
}

/* At a file: it says where the hub is, as long as there is one. */
static void test_file(void **state)
{
    static const char key[HOOP_MEETING_KEY_BYTES] = "0123456789abcdef0123456789abcdef";
    char folder[] = "/tmp/hoop-test-hub-XXXXXX";
    char path[64];
    struct hoop_meeting meeting = a_meeting();
    struct hoop_meeting found = {.address_count = 0};
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/meeting", folder);
    assert_int_equal(hoop_meeting_file_create(path, key, &meeting.file), HOOP_OK);
    const struct hoop_address address = serve(&meeting);
    assert_int_equal(hoop_meeting_file_await(meeting.file, HUB_TEST_LONG_MS, &found), HOOP_OK);
    assert_string_equal(found.name, meeting.name);
    assert_int_equal(found.address_count, 1);
    assert_memory_equal(&found.addresses[0], &address, sizeof(address));
    retire(&meeting);
    assert_int_equal(hoop_meeting_file_await(meeting.file, 50, &found), HOOP_TIMEOUT);
    hoop_meeting_finish(&found);
    hoop_meeting_finish(&meeting);
    (void)snprintf(path, sizeof(path), "%s/meeting.hoop", folder);
    (void)rmdir(path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doors),       cmocka_unit_test(test_arrangements),
        cmocka_unit_test(test_largest),     cmocka_unit_test(test_two_at_one_port),
        cmocka_unit_test(test_one_machine), cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_nonsense),    cmocka_unit_test(test_noise),
        cmocka_unit_test(test_not_here),    cmocka_unit_test(test_taken),
        cmocka_unit_test(test_file),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (hoop_service_start() != HOOP_OK) {
        (void)fprintf(stderr, "%s\n", hoop_thread_error());
        return 1;
    }
    return cmocka_run_group_tests_name("hub", tests, NULL, NULL);
}
