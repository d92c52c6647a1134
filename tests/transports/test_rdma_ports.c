/*
 * Several RDMA ports: which of them a rank may use and in what order, which ways there are between
 * the ports of two ranks, and links that use them; over fake devices (fakes/fake_verbs.h).
 */
#include "base/log.h"
#include "base/settings.h"
#include "fakes/fake_verbs.h"
#include "transports/agree.h"
#include "transports/link_pair.h"
#include "transports/rdma/rdma_link.h"
#include "transports/table.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define CHUNK 1000u
#define SLOTS 4u

/* ---- The choice ------------------------------------------------------------------------------ */

static struct hoop_verbs_port a_port(const char *name, bool software)
{
    struct hoop_verbs_port port = {.port = 1, .state = "ACTIVE", .active = true, .ethernet = true};
    static const uint8_t raws[4][HOOP_GID_BYTES] = {
        {0xfe, 0x80, [15] = 1},
        {[10] = 0xff, 0xff, 10, 0, 0, 1},
        {[10] = 0xff, 0xff, 10, 0, 0, 1},
        {0xfd, [15] = 1},
    };
    snprintf(port.device, sizeof(port.device), "%s", name);
    port.software = software;
    for (uint32_t i = 0; i < 4; i++) {
        struct hoop_gid *gid = &port.gids[port.gid_count++];
        gid->index = i;
        gid->type = i == 1 ? HOOP_GID_ROCE_V1 : HOOP_GID_ROCE_V2;
        memcpy(gid->raw, raws[i], sizeof(gid->raw));
    }
    return port;
}

static void test_gids(void **state)
{
    (void)state;
    struct hoop_verbs_port port = a_port("mlx5_0", false);
    struct hoop_rdma_rules rules = {.hca = NULL};
    assert_int_equal(hoop_rdma_gid(&port, &rules)->index, 2); /* v2, IPv4 */
    memmove(&port.gids[2], &port.gids[3], sizeof(port.gids[3]));
    port.gid_count = 3;
    assert_int_equal(hoop_rdma_gid(&port, &rules)->index, 3); /* v2, IPv6 */
    port.gid_count = 2;
    assert_int_equal(hoop_rdma_gid(&port, &rules)->index, 0); /* v2, link-local */
    rules.gid_index = "1";
    assert_int_equal(hoop_rdma_gid(&port, &rules)->index, 1);
    rules.gid_index = "-1";
    assert_int_equal(hoop_rdma_gid(&port, &rules)->index, 0);
    static const char *const wrong[] = {"7", "x", "1x", ""};
    for (size_t i = 0; i < 4; i++) {
        rules.gid_index = wrong[i];
        assert_null(hoop_rdma_gid(&port, &rules));
    }
    port.ethernet = false;
    rules.gid_index = NULL;
    port.gids[0].type = HOOP_GID_IB;
    assert_int_equal(hoop_rdma_gid(&port, &rules)->index, 0);
}

/* The first port in a rank's order; -1: there is none. */
static int first_of(const struct hoop_verbs_port *ports, uint32_t count,
                    const struct hoop_rdma_rules *rules, uint32_t local)
{
    const struct hoop_verbs_port *order[HOOP_RDMA_RANK_PORTS];
    return hoop_rdma_order(ports, count, rules, local, NULL, order) > 0 ? (int)(order[0] - ports)
                                                                        : -1;
}

static void test_rules(void **state)
{
    (void)state;
    struct hoop_verbs_port ports[4] = {a_port("rxe0", true), a_port("mlx5_0", false),
                                       a_port("mlx5_1", false), a_port("mlx5_2", false)};
    ports[3].active = false;
    ports[3].state = "DOWN";
    struct hoop_rdma_rules rules = {.hca = NULL};
    static const struct {
        const char *hca;
        int first; /* -1: none */
    } cases[] = {{"mlx5_1", 2}, {"mlx5_1:1", 2}, {"mlx5_1:2", -1}, {"=mlx5_1", 2},
                 {"=mlx5", -1}, {"^mlx5_0", 2},  {"rxe", 0},       {"^mlx5", -1},
                 {"none", -1},  {"mlx5_2", -1},  {"=mlx5_1:1", 2}, {"x,mlx5_1", 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rules.hca = cases[i].hca;
        assert_int_equal(first_of(ports, 4, &rules, 0), cases[i].first);
    }
    assert_non_null(strstr(hoop_thread_error(), "mlx5_2 port 1: the port is not active"));
    rules = (struct hoop_rdma_rules){.demanded = true};
    assert_int_equal(first_of(ports, 1, &rules, 5), 0);
    rules.demanded = false;
    assert_int_equal(first_of(ports, 1, &rules, 5), -1);
    assert_non_null(strstr(hoop_thread_error(), "rxe0 port 1: a software device"));
    assert_int_equal(first_of(ports, 0, &rules, 0), -1);
    assert_non_null(strstr(hoop_thread_error(), "there is no device"));
    ports[1].foreign = true;
    assert_int_equal(first_of(ports, 4, &rules, 0), 2);
    snprintf(ports[2].fault, sizeof(ports[2].fault), "it cannot be opened: EACCES");
    assert_int_equal(first_of(ports, 4, &rules, 0), -1);
    assert_non_null(strstr(hoop_thread_error(), "mlx5_1 port 1: it cannot be opened: EACCES"));
}

/* All usable ports, as the ranks of a machine take them in turn; no more than there is room for. */
static void test_turns(void **state)
{
    (void)state;
    struct hoop_verbs_port ports[20];
    const struct hoop_verbs_port *order[HOOP_RDMA_RANK_PORTS];
    const struct hoop_rdma_rules rules = {.hca = NULL};
    for (uint32_t i = 0; i < 20; i++) {
        ports[i] = a_port(i == 0 ? "rxe0" : "mlx5_0", i == 0);
    }
    for (uint32_t local = 0; local < 7; local++) {
        assert_int_equal(hoop_rdma_order(ports, 4, &rules, local, NULL, order), 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_ptr_equal(order[i], &ports[1 + (local + i) % 3]);
        }
    }
    assert_int_equal(hoop_rdma_order(ports, 20, &rules, 18, NULL, order), HOOP_RDMA_RANK_PORTS);
    assert_ptr_equal(order[0], &ports[19]);
    assert_ptr_equal(order[1], &ports[1]);
}

static void add_cpu(int cpu, cpu_set_t *set)
{
    if (cpu >= 0) {
        CPU_SET((size_t)cpu, set);
    }
}

/* Ports near a rank's CPUs come first, if they are near all of them. */
static void test_cpus(void **state)
{
    (void)state;
    static const struct {
        const char *beside[3]; /* the CPUs near each of the three ports */
        int cpus[3];           /* the rank's CPUs; -1: no more */
        int order[2][3];       /* for the first two ranks of the machine */
    } cases[] = {
        {{"0-7", "8-15", "8-15"}, {8, 15, -1}, {{1, 2, 0}, {2, 1, 0}}},
        {{"0-7", "8-15", "8-15"}, {3, -1, -1}, {{0, 1, 2}, {0, 2, 1}}},
        {{"0-7", "8-15", "8-15"}, {3, 8, -1}, {{0, 1, 2}, {1, 2, 0}}},
        {{"0-1,8-9\n", "", "2-7,10-15"}, {2, 10, 15}, {{2, 0, 1}, {2, 1, 0}}},
        {{"0-1,8\n", "x", "-3"}, {8, -1, -1}, {{0, 1, 2}, {0, 2, 1}}},
        {{"0-99999999", "5-", "7-3"}, {1023, -1, -1}, {{0, 1, 2}, {0, 2, 1}}},
    };
    const struct hoop_rdma_rules rules = {.hca = NULL};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hoop_verbs_port ports[3];
        const struct hoop_verbs_port *order[HOOP_RDMA_RANK_PORTS];
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        for (int k = 0; k < 3; k++) {
            ports[k] = a_port("mlx5_0", false);
            snprintf(ports[k].cpus, sizeof(ports[k].cpus), "%s", cases[i].beside[k]);
            add_cpu(cases[i].cpus[k], &cpus);
        }
        for (uint32_t local = 0; local < 2; local++) {
            assert_int_equal(hoop_rdma_order(ports, 3, &rules, local, &cpus, order), 3);
            for (int k = 0; k < 3; k++) {
                assert_int_equal(order[k] - ports, cases[i].order[local][k]);
            }
        }
    }
}

/* ---- Networks and ways ----------------------------------------------------------------------- */

static uint32_t network(enum hoop_gid_type type, const char *address, uint8_t bits)
{
    const struct hoop_verbs_port port = {.ethernet = type != HOOP_GID_IB};
    struct hoop_gid gid = {.type = type, .prefix_bits = bits};
    assert_int_equal(inet_pton(AF_INET6, address, gid.raw), 1);
    return hoop_rdma_network(&port, &gid);
}

static void test_networks(void **state)
{
    (void)state;
    const enum hoop_gid_type ib = HOOP_GID_IB, v1 = HOOP_GID_ROCE_V1, v2 = HOOP_GID_ROCE_V2;
    const uint32_t here = network(v2, "::ffff:10.77.5.1", 23);
    assert_int_equal(network(v2, "::ffff:10.77.4.200", 23), here);
    assert_int_not_equal(network(v2, "::ffff:10.77.6.1", 23), here);
    assert_int_not_equal(network(v2, "::ffff:10.77.5.1", 24), here);
    assert_int_equal(network(v2, "::ffff:10.0.0.1", 0), network(v2, "::ffff:11.0.0.1", 0));
    assert_int_equal(network(v2, "fd77::1", 64), network(v2, "fd77::2", 64));
    assert_int_not_equal(network(v2, "fd77::1", 64), network(v2, "fd77:0:0:1::1", 64));
    assert_int_equal(network(v2, "fe80::1", 64), network(v2, "fe80::2", 0));
    assert_int_equal(network(ib, "fe80::1", 0), network(ib, "fe80::2", 0));
    assert_int_not_equal(network(ib, "fec0::1", 0), network(ib, "fe80::1", 0));
    assert_int_not_equal(network(v1, "fe80::1", 0), network(v2, "fe80::1", 0));
    assert_int_not_equal(network(ib, "fe80::1", 0), network(v2, "fe80::1", 0));
}

static void test_ways(void **state)
{
    (void)state;
    const uint32_t a = network(HOOP_GID_ROCE_V2, "::ffff:10.0.1.0", 24);
    const uint32_t b = network(HOOP_GID_ROCE_V2, "::ffff:10.0.2.0", 24);
    const uint32_t c = network(HOOP_GID_ROCE_V2, "::ffff:10.0.3.0", 24);
    const uint32_t six = network(HOOP_GID_ROCE_V2, "fd77::1", 64);
    const uint32_t local = network(HOOP_GID_ROCE_V2, "fe80::1", 64);
    const uint32_t ib = network(HOOP_GID_IB, "fe80::1", 0),
                   far = network(HOOP_GID_IB, "fec0::1", 0);
    const struct {
        struct hoop_rdma_networks mine, theirs;
        uint32_t reach;
        int ways[6][2]; /* by turn; -1: none */
    } cases[] = {
        {{2, {a, a}}, {2, {a, a}}, 3, {{0, 0}, {1, 1}, {0, 0}, {1, 1}, {0, 0}, {1, 1}}},
        {{2, {a, a}}, {3, {a, a, a}}, 3, {{0, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {1, 2}}},
        /* rails: the other rank has them in another order, and lacks one */
        {{3, {a, b, c}}, {2, {b, a}}, 3, {{0, 1}, {1, 0}, {0, 1}, {1, 0}, {0, 1}, {1, 0}}},
        {{3, {c, a, b}}, {2, {b, a}}, 6, {{1, 1}, {2, 0}, {1, 1}, {2, 0}, {1, 1}, {2, 0}}},
        /* no common network: perhaps there are routers between them */
        {{2, {a, six}}, {2, {b, c}}, 1, {{0, 0}, {0, 1}, {0, 0}, {0, 1}, {0, 0}, {0, 1}}},
        {{1, {six}}, {2, {b, local}}, 0, {{-1}}},
        {{1, {local}}, {1, {six}}, 0, {{-1}}},
        {{1, {ib}}, {1, {far}}, 0, {{-1}}},
        {{2, {far, ib}}, {1, {ib}}, 2, {{1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}}},
        {{1, {ib}}, {1, {a}}, 0, {{-1}}},
        {{1, {a}}, {1, {0}}, 0, {{-1}}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (uint32_t turn = 0; turn < 6; turn++) {
            uint32_t mine = 77, theirs = 77, reach = 77;
            const bool any =
                hoop_rdma_way(&cases[i].mine, &cases[i].theirs, turn, &mine, &theirs, &reach);
            assert_int_equal(any, cases[i].ways[0][0] >= 0);
            assert_int_equal(reach, cases[i].reach);
            if (any) {
                assert_int_equal(mine, cases[i].ways[turn][0]);
                assert_int_equal(theirs, cases[i].ways[turn][1]);
            }
        }
    }
}

/* ---- Links ----------------------------------------------------------------------------------- */

/* Opens both ends of a link; ret tells which ports they took. */
static void open_turn(struct pair *pair, uint32_t turn, uint32_t local, const char *ret[2])
{
    *pair = (struct pair){.transport = &hoop_transport_rdma,
                          .slots = SLOTS,
                          .chunk_bytes = CHUNK,
                          .turn = turn,
                          .local = local};
    assert_int_equal(pair_make(pair), HOOP_OK);
    assert_int_equal(pair_join(pair), HOOP_OK);
    ret[0] = hoop_rdma_from(pair->sender)->context->port->device;
    ret[1] = hoop_rdma_from(pair->receiver)->context->port->device;
}

static void move_chunk(struct pair *pair, uint32_t number)
{
    uint8_t from[CHUNK], to[CHUNK];
    struct item send, recv;
    pattern_fill(from, CHUNK, number);
    assert_int_equal(pair_send(pair, &send, from, CHUNK, number), HOOP_OK);
    assert_int_equal(pair_recv(pair, &recv, to, CHUNK, number), HOOP_OK);
    assert_true(pair_until_done(pair, &recv) && pair_until_done(pair, &send));
    assert_int_equal(recv.result, HOOP_OK);
    assert_true(pattern_is(to, CHUNK, number));
}

/* The links of a comm are spread over the devices in turn, each with the peer's port in the same
 * network; a rank's links on one device share it. */
static void test_spread(void **state)
{
    (void)state;
    struct pair pairs[5];
    memset(&fake_counts, 0, sizeof(fake_counts));
    for (uint32_t turn = 0; turn < 5; turn++) {
        const char *taken[2], *expected = turn % 2 == 0 ? "fake0" : "fake1";
        open_turn(&pairs[turn], turn, 0, taken);
        assert_string_equal(taken[0], expected);
        assert_string_equal(taken[1], expected);
    }
    assert_int_equal(fake_counts.opened, 4);
    for (uint32_t i = 0; i < 100; i++) {
        move_chunk(&pairs[i % 5], i);
    }
    for (uint32_t turn = 0; turn < 5; turn++) {
        pair_close(&pairs[turn]);
    }
    assert_int_equal(fake_counts.open + fake_counts.memories, 0);
}

static void test_next_rank(void **state)
{
    (void)state;
    struct pair pair;
    const char *taken[2];
    open_turn(&pair, 0, 1, taken);
    assert_string_equal(taken[0], "fake1");
    assert_string_equal(taken[1], "fake1");
    move_chunk(&pair, 1);
    pair_close(&pair);
}

/* The error names the device that has failed; only its links fail. */
static void test_one_fails(void **state)
{
    (void)state;
    struct pair pairs[2];
    const char *taken[2];
    static uint8_t byte;
    static struct item send; /* pending to the end */
    for (uint32_t turn = 0; turn < 2; turn++) {
        open_turn(&pairs[turn], turn, 0, taken);
        move_chunk(&pairs[turn], turn);
    }
    fake_break_next = 12;
    assert_int_equal(pair_send(&pairs[1], &send, &byte, 1, 2), HOOP_OK);
    assert_true(pair_until_done(&pairs[1], &send));
    assert_string_equal(pairs[1].sender->failure.text,
                        "rank 0 (fake1 port 1) cannot send to rank 1 (lane 2): fake status (verbs "
                        "status 12)");
    move_chunk(&pairs[0], 2);
    pair_close(&pairs[0]);
    pair_close(&pairs[1]);
}

/* Behind the head come HOOP_CHECK's byte and the one for immediate data, and then the count. */
#define COUNT_AT (sizeof(struct hoop_blob_head) + 6)

static unsigned left_out;
static void count_left_out(void *arg, hoop_log_level_t level, const char *subsystem,
                           const char *line)
{
    (void)arg;
    (void)level;
    (void)subsystem;
    left_out +=
        strstr(line, "does not use fake1 port 1: rank 1 has no port in its network") != NULL;
}

/* The receiver has only one port. */
static void test_left_out(void **state)
{
    (void)state;
    struct pair pair = {.transport = &hoop_transport_rdma, .slots = SLOTS, .chunk_bytes = CHUNK};
    pair.turn = 3;
    assert_int_equal(pair_make(&pair), HOOP_OK);
    pair.receiver_blob.data[COUNT_AT] = 1;
    hoop_log_set_callback(count_left_out, NULL);
    assert_int_equal(pair_join(&pair), HOOP_OK);
    hoop_log_set_callback(NULL, NULL);
    assert_int_equal(left_out, 1);
    assert_string_equal(hoop_rdma_from(pair.sender)->context->port->device, "fake0");
    move_chunk(&pair, 1);
    pair_close(&pair);
}

static void test_no_way(void **state)
{
    (void)state;
    struct pair pair;
    assert_int_equal(pair_create(&pair, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OK);
    memset(pair.receiver_blob.data + COUNT_AT + 2, 0x11, (size_t)HOOP_RDMA_RANK_PORTS * 4);
    assert_int_equal(pair_join(&pair), HOOP_REMOTE_ERROR);
    assert_non_null(strstr(pair.sender->failure.text,
                           "none of the 2 RDMA ports of rank 0 (fake0 port 1, ...) reaches one of "
                           "the 2 of rank 1"));
    pair_close(&pair);
}

/* What either end may say about its queue, with each byte damaged. */
static void test_hostile_queues(void **state)
{
    (void)state;
    uint32_t refused[2] = {0, 0}, bytes = 1;
    for (uint32_t i = 0; i < 2 * bytes; i++) {
        struct pair pair;
        struct item send;
        uint8_t byte = 1;
        const uint32_t to = i % 2;
        assert_int_equal(pair_create(&pair, &hoop_transport_rdma, SLOTS, CHUNK), HOOP_OK);
        assert_int_equal(pair_bind(pair.sender, &pair.receiver_blob), HOOP_OK);
        if (to == PAIR_SENDER) {
            assert_int_equal(pair_bind(pair.receiver, &pair.sender_blob), HOOP_OK);
        }
        assert_true(pair.has_told[to]);
        bytes = pair.told[to].bytes;
        pair.told[to].data[i / 2] ^= 0xff;
        hoop_result_t result = HOOP_OK;
        if (to == PAIR_SENDER) {
            result = pair_send(&pair, &send, &byte, 1, 1);
        } else {
            result = pair_bind(pair.receiver, &pair.sender_blob);
        }
        const struct hoop_link *link = to == PAIR_SENDER ? pair.sender : pair.receiver;
        assert_int_equal(link->failure.code, result);
        refused[to] += result != HOOP_OK;
        pair_close(&pair);
    }
    /* Damage to the head and most of the rest is refused; not that to queue number, packet number
     * or key. */
    assert_true(refused[0] > bytes - 44 && refused[1] > bytes - 44);
    assert_int_equal(fake_counts.open, 0);
}

/* Errors when a device is closed are logged, and the slots stay mapped: the device may still access
 * them. */
static unsigned warnings;
static void count_warnings(void *arg, hoop_log_level_t level, const char *subsystem,
                           const char *line)
{
    (void)arg;
    (void)subsystem;
    warnings +=
        level == HOOP_LOG_WARN && strstr(line, "(fake0 port 1) cannot destroy its queue") != NULL;
    warnings += level == HOOP_LOG_WARN && strstr(line, "cannot close fake0: EBUSY") != NULL;
}

static void test_keeps(void **state)
{
    (void)state;
    struct pair pair;
    const char *taken[2];
    open_turn(&pair, 0, 0, taken);
    move_chunk(&pair, 1);
    uint8_t *slots = hoop_rdma_from(pair.receiver)->memory;
    const size_t bytes = hoop_rdma_from(pair.receiver)->memory_bytes;
    hoop_log_set_callback(count_warnings, NULL);
    fake_keeps = true;
    pair_close(&pair);
    fake_keeps = false;
    hoop_log_set_callback(NULL, NULL);
    assert_int_equal(warnings, 4);
    slots[bytes - 1] = 1;
    assert_int_equal(munmap(slots, bytes), 0);
}

int main(void)
{
    setenv("HOOP_IB_HCA", "fake", 1);
    setenv("HOOP_DEBUG", "info", 1);
    fake_ports[0].gids[0].prefix_bits = fake_ports[1].gids[0].prefix_bits = 8; /* two networks */
    hoop_rdma_verbs = &fake_verbs;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gids),      cmocka_unit_test(test_rules),
        cmocka_unit_test(test_turns),     cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_networks),  cmocka_unit_test(test_ways),
        cmocka_unit_test(test_spread),    cmocka_unit_test(test_next_rank),
        cmocka_unit_test(test_one_fails), cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_no_way),    cmocka_unit_test(test_hostile_queues),
        cmocka_unit_test(test_keeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
