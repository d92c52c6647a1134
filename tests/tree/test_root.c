/* The root: what machines are told if all goes well; strangers and invalid messages; and where the
 * root is served. */
#include "base/clock.h"
#include "control/endpoint.h"
#include "harness/fds.h"
#include "rendezvous/file_store.h"
#include "runtime/service.h"
#include "runtime/wait.h"
#include "tree/tree_client.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MACHINES 7u

/* ---- A join that succeeds ----------------------------------------------------------------- */

static void expect_tree(struct client *machine, uint32_t number, uint32_t count,
                        const uint32_t *who)
{
    const struct hoop_frame_place *tree = &client_expect_frame(machine, HOOP_FRAME_PLACE)->place;
    struct hoop_address parent;
    memset(&parent, 0, sizeof(parent));
    if (number > 0) {
        parent = machine_address(who[(number - 1) / 2]);
    }
    assert_int_equal(tree->machine, number);
    assert_int_equal(tree->machines, count);
    assert_memory_equal(&tree->parent, &parent, sizeof(parent));
}

/* Expects the whole roster; machine_of: the number of each rank's machine. */
static void expect_roster(struct client *machine, uint32_t machines, uint32_t n,
                          const uint32_t *machine_of, const uint32_t *who)
{
    const struct hoop_frame_roster *roster =
        &client_expect_frame(machine, HOOP_FRAME_ROSTER)->roster;
    assert_true(roster->comm_id != 0);
    assert_int_equal(roster->n, n);
    assert_int_equal(roster->machines, machines);
    assert_int_equal(roster->segment_bytes, 65536);
    uint32_t rank = 0;
    while (rank < n) {
        const struct hoop_frame_roster_part *part =
            &client_expect_frame(machine, HOOP_FRAME_ROSTER_PART)->part;
        const uint32_t left = n - rank;
        assert_int_equal(part->first, rank);
        assert_int_equal(part->count, left < HOOP_MAX_FDS ? left : HOOP_MAX_FDS);
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

/* Machines are numbered in the order of their lowest ranks. */
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
    static uint32_t machine_of[HOOP_MAX_RANKS];
    struct client machines[MACHINES];
    uint32_t who[MACHINES] = {0};
    const struct hoop_rendezvous rendezvous = a_meeting();
    number(count, n, step, who, machine_of);
    machines_gather(machines, count, n, 0, &rendezvous);
    for (uint32_t rank = n; rank-- > 0;) {
        const uint32_t at = who[machine_of[rank]];
        machine_say_join(&machines[at], at, n, rank);
    }
    for (uint32_t i = 0; i < count; i++) {
        expect_tree(&machines[who[i]], i, count, who);
    }
    expect_roster(&machines[who[0]], count, n, machine_of, who);
    assert_true(is_served(&rendezvous));
    client_say_plain(&machines[who[0]], HOOP_FRAME_READY);
    for (uint32_t i = 0; i < count; i++) { /* only machine 0 was sent the roster */
        client_expect_closed(&machines[i], HOOP_REMOTE_ERROR);
    }
    assert_false(is_served(&rendezvous));
}

static void test_arrangements(void **state)
{
    const int fds = fds_count(0);
    (void)state;
    for (uint32_t count = 1; count <= MACHINES; count++) {
        for (uint32_t step = 1; step <= 3; step++) {
            if (count % step != 0 || step == 1) { /* otherwise not all machines have ranks */
                arrange(count, count, step);
                arrange(count, 2 * count + 1, step);
                arrange(count, 70, step);
            }
        }
    }
    assert_true(fds_await(fds, hoop_deadline_ns(TREE_TEST_LONG_MS)));
}

static void test_largest(void **state)
{
    (void)state;
    arrange(3, HOOP_MAX_RANKS, 1);
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

/* Two rendezvous at one port, and both again when they are over. */
static void test_two_at_one_port(void **state)
{
    struct client machines[4];
    struct hoop_rendezvous first = a_meeting();
    struct hoop_rendezvous second = a_meeting();
    (void)state;
    second.addresses[0] = first.addresses[0];
    for (int round = 0; round < 2; round++) {
        const struct hoop_address address = serve(&first);
        const struct hoop_address again = serve(&first); /* it is served already */
        assert_memory_equal(&address, &first.addresses[0], sizeof(address));
        assert_memory_equal(&address, &again, sizeof(address));
        machines_gather(machines, 2, 2, 2, &first);
        machines_gather(machines + 2, 2, 2, 2, &second);
        machines_expect_roster(machines, 2);
        machines_expect_roster(machines + 2, 2);
        client_say_plain(&machines[2], HOOP_FRAME_READY);
        await_end(&second);
        assert_true(is_served(&first));
        client_say_plain(&machines[0], HOOP_FRAME_READY);
        await_end(&first);
        for (int i = 0; i < 4; i++) {
            client_leave(&machines[i]);
        }
    }
}

/* All ranks are on one machine and find each other there; they may leave the root at any time. */
static void test_one_machine(void **state)
{
    (void)state;
    for (int told = 0; told < 2; told++) {
        struct client machine;
        const struct hoop_rendezvous rendezvous = a_meeting();
        machines_gather(&machine, 1, 4, 4, &rendezvous);
        if (told == 1) {
            machines_expect_roster(&machine, 1);
        }
        client_leave(&machine);
        await_end(&rendezvous);
        /* also before the root knew all of them: a rank that is in ends it */
        machines_gather(&machine, 1, 4, 3, &rendezvous);
        retire(&rendezvous);
        client_expect_closed(&machine, HOOP_REMOTE_ERROR);
    }
}

/* ---- Strangers, and machines that talk nonsense ------------------------------------------- */

static void complete(struct client *machines, const struct hoop_rendezvous *rendezvous)
{
    machines_expect_roster(machines, 2);
    client_say_plain(&machines[0], HOOP_FRAME_READY);
    await_end(rendezvous);
    client_leave(&machines[0]);
    client_leave(&machines[1]);
}

static void test_strangers(void **state)
{
    struct client machines[2];
    struct client stranger;
    const struct hoop_rendezvous rendezvous = a_meeting();
    struct hoop_rendezvous wrong = rendezvous;
    union hoop_frame hello = machine_hello(&rendezvous);
    (void)state;
    machines_gather(machines, 2, 2, 1, &rendezvous);
    const struct hoop_address address = serve(&rendezvous);
    wrong.secret.bytes[31] ^= 1;
    machine_dial(&stranger, &wrong, &address, &hello, false);
    client_expect_closed(&stranger, HOOP_NOT_AUTHENTICATED);
    for (uint32_t kind = 1; kind < HOOP_HELLO_KINDS; kind++) { /* kinds that are not expected */
        if (kind != HOOP_HELLO_TO_ROOT) {
            hello.hello.kind = kind;
            hello.hello.to = kind >= HOOP_HELLO_PEER ? 1 : 0;
            machine_dial(&stranger, &wrong, &address, &hello, false);
            client_expect_closed(&stranger, HOOP_AGAIN);
        }
    }
    /* of a rendezvous that is not served here, but might be in a moment */
    wrong.name[5] = 'x';
    hello = machine_hello(&wrong);
    machine_dial(&stranger, &wrong, &address, &hello, false);
    client_expect_closed(&stranger, HOOP_AGAIN);
    /* none of them has disturbed the join */
    machine_say_join(&machines[1], 1, 2, 1);
    complete(machines, &rendezvous);
}

static void expect_unexpected(struct client *machine, const union hoop_frame *frame)
{
    char text[64];
    client_say(machine, frame);
    (void)snprintf(text, sizeof(text), "it sent an unexpected %s",
                   hoop_frame_name(frame->header.type));
    client_expect_reject(machine, HOOP_REMOTE_ERROR, -1, text);
}

/* Messages that no machine may send, or not yet, or not twice: they only end that machine's
 * connection. */
static void test_nonsense(void **state)
{
    static const enum hoop_frame_type types[] = {
        HOOP_FRAME_PROOF, HOOP_FRAME_WELCOME, HOOP_FRAME_READY, HOOP_FRAME_GO,
        HOOP_FRAME_DEAD,  HOOP_FRAME_LEFT,    HOOP_FRAME_BEAT,  HOOP_FRAME_ROSTER_PART};
    struct client machines[2];
    struct client other;
    const struct hoop_rendezvous rendezvous = a_meeting();
    union hoop_frame frame;
    (void)state;
    machines_gather(machines, 2, 3, 2, &rendezvous);
    const struct hoop_address address = serve(&rendezvous);
    for (size_t i = 0; i < 2 * sizeof(types) / sizeof(types[0]); i++) {
        machine_enter(&other, &rendezvous, &address);
        if (i % 2 == 1) {
            machine_say_place(&other, 2);
        }
        hoop_frame_init(&frame, types[i / 2]);
        if (types[i / 2] == HOOP_FRAME_ROSTER_PART) {
            hoop_frame_set_count(&frame, 0, 1);
            frame.part.entries[0].process = frame.part.entries[0].cpus.count = 1;
        } else if (types[i / 2] == HOOP_FRAME_LEFT) {
            frame.fate.how = 1;
        }
        expect_unexpected(&other, &frame);
    }
    machine_enter(&other, &rendezvous, &address); /* a rank of a machine that is not known */
    frame = machine_join(2, 3, 2);
    expect_unexpected(&other, &frame);
    machine_enter(&other, &rendezvous, &address);
    hoop_frame_init(&frame, HOOP_FRAME_REJECT);
    frame.reject.code = HOOP_SYSTEM_ERROR;
    expect_unexpected(&other, &frame);
    machine_enter(&other, &rendezvous, &address); /* one machine with two addresses */
    machine_say_place(&other, 2);
    hoop_frame_init(&frame, HOOP_FRAME_INFO);
    frame.info.address = machine_address(3);
    frame.info.process = 1;
    frame.info.pid = 77;
    expect_unexpected(&other, &frame);
    machine_say_join(&machines[1], 1, 3, 2);
    complete(machines, &rendezvous);
}

/* After the proof: bytes that are no message. */
static void test_noise(void **state)
{
    struct client machines[2];
    struct client noisy;
    const struct hoop_rendezvous rendezvous = a_meeting();
    const union hoop_frame hello = machine_hello(&rendezvous);
    union hoop_frame frame;
    (void)state;
    machines_gather(machines, 2, 3, 2, &rendezvous);
    const struct hoop_address address = serve(&rendezvous);
    for (uint32_t i = 0; i < 60; i++) {
        machine_dial(&noisy, &rendezvous, &address, &hello, true);
        client_expect(&noisy, CLIENT_OPENED);
        assert_true(noisy.fd >= 0);
        assert_int_equal(hoop_random(&frame, sizeof(frame)), HOOP_OK);
        if (i % 3 == 1) { /* half of a message */
            frame = machine_join(4, 3, 2);
        } else if (i % 3 == 2) { /* a valid header with a random body */
            frame.header = machine_join(4, 3, 2).header;
            frame.header.type = (uint16_t)(1 + i % (HOOP_FRAME_TYPE_COUNT - 1));
        }
        (void)send(noisy.fd, &frame, i % 3 == 1 ? (size_t)i * 5 : sizeof(frame), MSG_NOSIGNAL);
        client_leave(&noisy);
    }
    machine_say_join(&machines[1], 1, 3, 2);
    complete(machines, &rendezvous);
}

/* ---- Where it is served ------------------------------------------------------------------- */

/* 203.0.113.0/24 is reserved for documentation: nobody has this address. */
static const struct hoop_address elsewhere = {.family = 4, .port = 29500, .ip = {203, 0, 113, 7}};

static void test_not_here(void **state)
{
    struct hoop_rendezvous rendezvous = a_meeting();
    struct hoop_address address;
    struct hoop_failure failure;
    (void)state;
    rendezvous.addresses[1] = rendezvous.addresses[0];
    rendezvous.addresses[1].port = 0;
    rendezvous.addresses[0] = elsewhere;
    assert_int_equal(try_serve(&rendezvous, &address, &failure), HOOP_INVALID_USAGE);
    assert_string_equal(failure.text,
                        "the rendezvous cannot be served: 203.0.113.7:29500 is not an "
                        "address of this machine");
    rendezvous.address_count = 2;
    assert_int_equal(try_serve(&rendezvous, &address, &failure), HOOP_INVALID_USAGE);
    assert_string_equal(
        failure.text,
        "the rendezvous cannot be served: 203.0.113.7:29500 is not an address of this "
        "machine; 127.0.0.1 is a loopback address, where ranks of other machines cannot meet");
    rendezvous.address_count = HOOP_RENDEZVOUS_ADDRESSES; /* more than an error text has room for */
    for (uint32_t i = 0; i < HOOP_RENDEZVOUS_ADDRESSES; i++) {
        rendezvous.addresses[i] = elsewhere;
    }
    assert_int_equal(try_serve(&rendezvous, &address, &failure), HOOP_INVALID_USAGE);
}

/* The first port belongs to another program, the second is free. */
static void test_taken(void **state)
{
    struct hoop_rendezvous rendezvous = a_meeting();
    struct hoop_address address;
    struct hoop_failure failure;
    char text[64];
    (void)state;
    rendezvous.addresses[1] = rendezvous.addresses[0];
    const int fd = a_port(&rendezvous.addresses[0]);
    assert_int_equal(listen(fd, 1), 0);
    const uint16_t taken = rendezvous.addresses[0].port;
    assert_int_equal(try_serve(&rendezvous, &address, &failure), HOOP_INVALID_USAGE);
    (void)snprintf(text, sizeof(text), "port %u of 127.0.0.1: EADDRINUSE", taken);
    assert_non_null(strstr(failure.text, text));
    rendezvous.address_count = 2;
    assert_int_not_equal(serve(&rendezvous).port, taken);
    rendezvous.addresses[0] = rendezvous.addresses[1];
    retire(&rendezvous);
    retire(&rendezvous); /* it is no longer served */
    close(fd);
}

/* The first port belongs to another user, who may be waiting for this job, so it must not be passed
 * over. Only root can play another user. */
static void test_foreign(void **state)
{
    struct hoop_rendezvous rendezvous = a_meeting();
    struct hoop_address address;
    struct hoop_failure failure;
    int ready[2];
    char byte;
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    rendezvous.addresses[1] = rendezvous.addresses[0];
    close(a_port(&rendezvous.addresses[0]));
    rendezvous.address_count = 2;
    assert_int_equal(pipe(ready), 0);
    const pid_t other = fork();
    if (other == 0) {
        struct sockaddr_storage at;
        const socklen_t bytes = hoop_address_to_sockaddr(&rendezvous.addresses[0], &at);
        if (setgid(1002) != 0 || setuid(1002) != 0) {
            _exit(1);
        }
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(fd, (struct sockaddr *)&at, bytes) == 0 && listen(fd, 1) == 0 &&
            write(ready[1], "x", 1) == 1) {
            (void)pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(try_serve(&rendezvous, &address, &failure), HOOP_INVALID_USAGE);
    assert_non_null(strstr(failure.text, "user 1002 listens there"));
    assert_non_null(strstr(failure.text, "is not skipped"));
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    close(ready[0]);
    close(ready[1]);
}

struct opening {
    struct hoop_place at;
    struct hoop_ports ports;
    struct hoop_endpoint *endpoint;
    struct hoop_failure failure;
};

static void call_open(void *arg)
{
    struct opening *opening = arg;
    const hoop_result_t result =
        hoop_endpoint_open(&opening->at, &opening->ports, &opening->endpoint);
    (void)hoop_failure_take(&opening->failure, result, -1);
}

static void call_close(void *arg)
{
    struct opening *opening = arg;
    hoop_endpoint_close(opening->endpoint);
}

static uint16_t open_door(struct opening *opening, uint16_t port, uint16_t first, uint16_t last)
{
    *opening = (struct opening){
        .at = {.address = {.family = 4, .port = port, .ip = {127, 0, 0, 1}}},
        .ports = {.first = first, .last = last},
        .failure = {.rank = -1},
    };
    hoop_service_run(call_open, opening);
    if (opening->failure.code != HOOP_OK) {
        fail_msg("%s", opening->failure.text);
    }
    return hoop_endpoint_address(opening->endpoint)->port;
}

/* An endpoint that fits is shared, and closed by its last user. */
static void test_port_ranges(void **state)
{
    struct hoop_address ports[2];
    struct opening endpoints[6];
    const int fds = fds_count(0);
    (void)state;
    for (int i = 0; i < 2; i++) {
        close(a_port(&ports[i]));
    }
    const uint16_t a = ports[0].port;
    const uint16_t b = ports[1].port;
    assert_int_equal(open_door(&endpoints[0], a, 0, 0), a);
    assert_int_equal(open_door(&endpoints[1], b, 0, 0), b);
    assert_int_equal(fds_count(0), fds + 2);
    assert_int_equal(open_door(&endpoints[2], a, b, b), a); /* the port comes before the range */
    assert_int_equal(open_door(&endpoints[3], 0, b, b), b);
    const uint16_t any = open_door(&endpoints[4], 0, 0, 0);
    assert_true(any == a || any == b);
    const uint16_t low = a < b ? a : b;
    assert_int_equal(open_door(&endpoints[5], 0, low, low), low);
    assert_int_equal(fds_count(0), fds + 2);
    for (int i = 0; i < 6; i++) {
        hoop_service_run(call_close, &endpoints[(i * 5 + 1) % 6]);
    }
    assert_int_equal(fds_count(0), fds);
}

/* With a file: it tells where the root is, as long as there is one. */
static void test_file(void **state)
{
    static const char key[HOOP_RENDEZVOUS_KEY_BYTES] = "0123456789abcdef0123456789abcdef";
    char folder[] = "/tmp/hoop-test-root-XXXXXX";
    char path[64];
    struct hoop_rendezvous rendezvous = a_meeting();
    struct hoop_rendezvous found = {.address_count = 0};
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/rendezvous", folder);
    assert_int_equal(hoop_file_store_name(path, key, &rendezvous.file), HOOP_OK);
    const struct hoop_address address = serve(&rendezvous);
    assert_int_equal(hoop_file_store_await(rendezvous.file, TREE_TEST_LONG_MS, &found), HOOP_OK);
    assert_string_equal(found.name, rendezvous.name);
    assert_int_equal(found.address_count, 1);
    assert_memory_equal(&found.addresses[0], &address, sizeof(address));
    retire(&rendezvous);
    assert_int_equal(hoop_file_store_await(rendezvous.file, 50, &found), HOOP_TIMEOUT);
    hoop_rendezvous_finish(&found);
    hoop_rendezvous_finish(&rendezvous);
    (void)snprintf(path, sizeof(path), "%s/rendezvous.hoop", folder);
    (void)rmdir(path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_port_ranges), cmocka_unit_test(test_arrangements),
        cmocka_unit_test(test_largest),     cmocka_unit_test(test_two_at_one_port),
        cmocka_unit_test(test_one_machine), cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_nonsense),    cmocka_unit_test(test_noise),
        cmocka_unit_test(test_not_here),    cmocka_unit_test(test_taken),
        cmocka_unit_test(test_foreign),     cmocka_unit_test(test_file),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (hoop_service_start() != HOOP_OK) {
        (void)fprintf(stderr, "%s\n", hoop_thread_error());
        return 1;
    }
    return cmocka_run_group_tests_name("root", tests, NULL, NULL);
}
