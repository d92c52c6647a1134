/*
 * Addresses, their text, and which of this machine's addresses to use. A process reads the
 * environment once, so the tests of HOOP_SOCKET_IFNAME and HOOP_SOCKET_FAMILY run in children.
 */
#include "net/address.h"
#include "net/interface.h"
#include "net/port_holder.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT_BYTES 96

static struct hoop_address parsed(const char *text)
{
    struct hoop_address address;
    if (hoop_address_parse(text, &address) != HOOP_OK) {
        fail_msg("%s: %s", text, hoop_thread_error());
    }
    assert_true(hoop_address_is_valid(&address));
    return address;
}

/* ---- Text --------------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    static const struct {
        const char *text, *again; /* again: the text of the result; NULL: the same */
    } cases[] = {
        {"10.0.0.1", NULL},
        {"10.0.0.1:29500", NULL},
        {"255.255.255.255:65535", NULL},
        {"0.0.0.0:1", NULL},
        {"::", NULL},
        {"::1", NULL},
        {"[::1]", "::1"},
        {"[::1]:29500", NULL},
        {"2001:db8::7", NULL},
        {"[2001:DB8:0:0:0:0:0:7]:80", "[2001:db8::7]:80"},
        {"fe80::1%2", NULL},
        {"[fe80::1%2]:29500", NULL},
        {"[fe80::1%4294967295]:65535", NULL},
        {"::ffff:10.0.0.1", "10.0.0.1"},
        {"[::ffff:10.0.0.1]:5", "10.0.0.1:5"},
        {"[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", NULL},
        {"10.0.0.1:00080", "10.0.0.1:80"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[HOOP_ADDRESS_TEXT_BYTES];
        const struct hoop_address address = parsed(cases[i].text);
        hoop_address_format(&address, text, sizeof(text));
        assert_string_equal(text, cases[i].again != NULL ? cases[i].again : cases[i].text);
        struct sockaddr_storage there;
        struct hoop_address back;
        (void)hoop_address_to_sockaddr(&address, &there);
        assert_true(hoop_address_from_sockaddr((const struct sockaddr *)&there, &back));
        assert_memory_equal(&back, &address, sizeof(address));
    }
    const struct hoop_address none = {.family = 0};
    char text[4];
    hoop_address_format(&none, text, sizeof(text));
    assert_string_equal(text, "now"); /* cut off, but terminated */
}

static void test_refused(void **state)
{
    static const char *const texts[] = {
        "",
        ":",
        "10.0.0.1:",
        "10.0.0.1:0",
        "10.0.0.1:65536",
        "10.0.0",
        "10.0.0.256",
        "10.0.0.1:+80",
        "10.0.0.1: 80",
        "10.0.0.1:80 ",
        "10.0.0.1:80:80",
        "host",
        "host:80",
        "[10.0.0.1]:80",
        "[::1",
        "::1]",
        "[::1]80",
        "[::1]:",
        "[]:80",
        "[::1]:-1",
        "fe80::1%",
        "fe80::1%0",
        "fe80::1%eth0",
        "2001:db8::7%2",
        "10.0.0.1%2",
        "fe80::1%4294967296",
        "[fe80::1%2]:1:1",
        "10.0.0.1:123456",
        "[[::1]]:80",
        "::1::2",
        "1:2",
        " 10.0.0.1",
        "10.0.0.1\n",
        "0x7f.0.0.1",
        "[fe80::1%99999999999999999999]:1",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct hoop_address address = {.family = 77};
        if (hoop_address_parse(texts[i], &address) != HOOP_INVALID_ARGUMENT) {
            fail_msg("\"%s\" was taken for an address", texts[i]);
        }
        assert_int_equal(address.family, 77); /* outputs are written only on success */
        assert_non_null(strstr(hoop_thread_error(), "is not a numeric address"));
    }
    struct hoop_address address;
    assert_int_equal(hoop_address_parse("10.0.0.9\n:1", &address), HOOP_INVALID_ARGUMENT);
    assert_null(strchr(hoop_thread_error(), '\n'));
    assert_non_null(strstr(hoop_thread_error(), "\"10.0.0.9 :1\""));
}

static void test_host_port(void **state)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
    } cases[] = {
        {"host", "host", 0},
        {"host:29500", "host", 29500},
        {"node-7.cluster.example:1", "node-7.cluster.example", 1},
        {"10.0.0.1:2", "10.0.0.1", 2},
        {"[2001:db8::7]:3", "2001:db8::7", 3},
        {"[fe80::1%eth0]:3", "fe80::1%eth0", 3},
        {"2001:db8::7", "2001:db8::7", 0},
        {"fe80::1%eth0", "fe80::1%eth0", 0},
    };
    static const char *const bad[] = {
        "",         ":1",       "host:",     "host:x",       "host:0",      "host:65536",
        "a:b:c",    "[host]:1", "[::1]x",    "ho st",        "host/path:1", "user@host:1",
        "host\t:1", "[]",       "[%eth0]:1", "tcp://host:1", "[::1%]:1",
    };
    char host[TEXT_BYTES];
    uint16_t port = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(hoop_host_port_parse(cases[i].text, host, sizeof(host), &port), HOOP_OK);
        assert_string_equal(host, cases[i].host);
        assert_int_equal(port, cases[i].port);
        /* exactly enough room, and one byte too few */
        const size_t bytes = strlen(cases[i].host) + 1;
        assert_int_equal(hoop_host_port_parse(cases[i].text, host, bytes, &port), HOOP_OK);
        assert_int_equal(hoop_host_port_parse(cases[i].text, host, bytes - 1, &port),
                         HOOP_INVALID_ARGUMENT);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (hoop_host_port_parse(bad[i], host, sizeof(host), &port) != HOOP_INVALID_ARGUMENT) {
            fail_msg("\"%s\" was taken for a host", bad[i]);
        }
    }
}

static void test_ports(void **state)
{
    static const char *const bad[] = {"",   "-",     "0",       "0-5",   "5-4", "5-",
                                      "-5", "65536", "1-65536", "1-2-3", "a-b", " 1"};
    struct hoop_ports ports;
    (void)state;
    assert_int_equal(hoop_ports_parse("29500-29600", &ports), HOOP_OK);
    assert_true(ports.first == 29500 && ports.last == 29600);
    assert_int_equal(hoop_ports_parse("1", &ports), HOOP_OK);
    assert_true(ports.first == 1 && ports.last == 1);
    assert_int_equal(hoop_ports_parse("1-65535", &ports), HOOP_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (hoop_ports_parse(bad[i], &ports) != HOOP_INVALID_ARGUMENT) {
            fail_msg("\"%s\" was taken for ports", bad[i]);
        }
    }
}

/* ---- What addresses are ------------------------------------------------------------------- */

static void test_valid(void **state)
{
    const struct hoop_address ip4 = parsed("10.0.0.1:5");
    const struct hoop_address local = parsed("[fe80::1%2]:5");
    struct hoop_address address = {.family = 0};
    (void)state;
    assert_true(hoop_address_is_valid(&address));
    address.port = 1;
    assert_false(hoop_address_is_valid(&address));
    for (uint32_t family = 0; family <= UINT16_MAX; family++) {
        address = ip4;
        address.family = (uint16_t)family;
        assert_true(hoop_address_is_valid(&address) == (family == 4 || family == 6));
    }
    for (size_t i = 0; i < sizeof(address.ip); i++) {
        address = ip4;
        address.ip[i] = 9;
        assert_true(hoop_address_is_valid(&address) == (i < 4));
        address = (struct hoop_address){.family = 0};
        address.ip[i] = 1;
        assert_false(hoop_address_is_valid(&address));
    }
    address = ip4;
    address.scope = 1;
    assert_false(hoop_address_is_valid(&address));
    address = local;
    address.ip[1] = 0xc0; /* fec0:: is not link-local */
    assert_false(hoop_address_is_valid(&address));
}

static void test_kinds(void **state)
{
    const struct hoop_address none = {.family = 0};
    struct hoop_address a = parsed("[fe80::1%2]:5");
    struct hoop_address b = parsed("fe80::1");
    (void)state;
    assert_true(hoop_address_same_ip(&a, &b)); /* one has no scope */
    b.scope = 3;
    assert_false(hoop_address_same_ip(&a, &b));
    assert_false(hoop_address_same_ip(&none, &none));
    a = parsed("10.0.0.1:1");
    b = parsed("10.0.0.1:2");
    assert_true(hoop_address_same_ip(&a, &b));
    b = parsed("10.0.0.2:1");
    assert_false(hoop_address_same_ip(&a, &b));
    static const struct {
        const char *text;
        bool loopback, any;
    } cases[] = {
        {"127.0.0.1", true, false},  {"127.8.9.10", true, false},
        {"::1", true, false},        {"10.0.0.1", false, false},
        {"::2", false, false},       {"0.0.0.0", false, true},
        {"::", false, true},         {"fe80::1", false, false},
        {"128.0.0.1", false, false}, {"::ffff:0.0.0.0", false, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        a = parsed(cases[i].text);
        assert_true(hoop_address_is_loopback(&a) == cases[i].loopback);
        assert_true(hoop_address_is_any(&a) == cases[i].any);
    }
    /* as a peer may send them: IPv4 in IPv6's form */
    a = (struct hoop_address){.family = 6};
    assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.1", a.ip), 1);
    assert_true(hoop_address_is_loopback(&a));
    assert_int_equal(inet_pton(AF_INET6, "::ffff:0.0.0.0", a.ip), 1);
    assert_true(hoop_address_is_any(&a));
    assert_false(hoop_address_is_loopback(&none) || hoop_address_is_any(&none));
}

/* Whatever the bytes are: no harm, and what is understood has one canonical text. */
static void test_random(void **state)
{
    static const char alphabet[] = "0123456789abcdef:.[]%-/ x";
    uint64_t seed = 4711;
    uint32_t good = 0;
    (void)state;
    for (int round = 0; round < 200000; round++) {
        char text[TEXT_BYTES];
        char again[HOOP_ADDRESS_TEXT_BYTES];
        char host[16];
        struct hoop_address address;
        struct hoop_address back;
        struct hoop_ports ports;
        uint16_t port;
        size_t length = 0;
        do {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            text[length++] = alphabet[(seed >> 33) % (sizeof(alphabet) - 1)];
        } while ((seed >> 60) != 0 && length < sizeof(text) - 1);
        text[length] = 0;
        (void)hoop_host_port_parse(text, host, sizeof(host), &port);
        (void)hoop_ports_parse(text, &ports);
        if (hoop_address_parse(text, &address) == HOOP_OK) {
            assert_true(hoop_address_is_valid(&address));
            hoop_address_format(&address, again, sizeof(again));
            back = parsed(again);
            assert_memory_equal(&back, &address, sizeof(address));
            good++;
        }
    }
    assert_true(good > 10);
}

/* ---- Interfaces --------------------------------------------------------------------------- */

static void test_rules(void **state)
{
    static const struct {
        const char *rule, *name;
        bool allowed;
    } cases[] = {
        {NULL, "eth0", true},          {"", "eth0", true},
        {"eth", "eth0", true},         {"eth", "lo", false},
        {"ib,eth", "eth1", true},      {"ib,eth", "docker0", false},
        {"=eth0", "eth0", true},       {"=eth0", "eth01", false},
        {"=eth0,ib0", "ib0", true},    {"=eth", "eth0", false},
        {"^docker,lo", "eth0", true},  {"^docker,lo", "docker0", false},
        {"^docker,lo", "lo", false},   {"^=eth0", "eth0", false},
        {"^=eth0", "eth1", true},      {"^", "eth0", true},
        {"=", "eth0", true},           {"^=", "eth0", true},
        {" eth0 , ib0 ", "ib0", true}, {",,", "eth0", true},
        {"eth0,", "lo", false},        {"eth0longer", "eth0", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (hoop_interface_allowed(cases[i].rule, cases[i].name) != cases[i].allowed) {
            fail_msg("rule \"%s\", interface %s", cases[i].rule, cases[i].name);
        }
    }
}

/* Runs check in a process with this environment. Returns its result. */
static int in_child(const char *ifname, const char *family, int (*check)(void))
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        if (ifname != NULL) {
            setenv("HOOP_SOCKET_IFNAME", ifname, 1);
        }
        if (family != NULL) {
            setenv("HOOP_SOCKET_FAMILY", family, 1);
        }
        _exit(check());
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define REQUIRE(condition)                                                                         \
    if (!(condition)) {                                                                            \
        return __LINE__ % 199 + 1;                                                                 \
    }

static bool is_mine(const struct hoop_address *address)
{
    bool mine = false;
    return hoop_interface_is_mine(address, &mine) == HOOP_OK && mine;
}

static int check_loopback(void)
{
    struct hoop_address to;
    struct hoop_address address;
    REQUIRE(hoop_interface_choose(&address) == HOOP_OK && hoop_address_is_loopback(&address));
    REQUIRE(address.port == 0 && is_mine(&address));
    REQUIRE(hoop_address_parse("127.0.0.1:5", &to) == HOOP_OK);
    REQUIRE(hoop_interface_towards(&to, &address) == HOOP_OK);
    REQUIRE(hoop_address_is_loopback(&address) && address.port == 0);
    /* towards an address that is reached by another interface than the allowed one */
    REQUIRE(hoop_address_parse("198.51.100.7:5", &to) == HOOP_OK);
    REQUIRE(hoop_interface_towards(&to, &address) == HOOP_OK);
    REQUIRE(hoop_address_is_loopback(&address) && address.family == 4);
    return 0;
}

static int check_none(void)
{
    struct hoop_address to;
    struct hoop_address address = {.family = 77};
    REQUIRE(hoop_interface_choose(&address) == HOOP_INVALID_USAGE && address.family == 77);
    REQUIRE(strstr(hoop_thread_error(), "HOOP_SOCKET_IFNAME==nosuch0 allows no") != NULL);
    REQUIRE(strstr(hoop_thread_error(), "lo (127.0.0.1)") != NULL);
    REQUIRE(hoop_address_parse("127.0.0.1:5", &to) == HOOP_OK);
    REQUIRE(hoop_interface_towards(&to, &address) == HOOP_INVALID_USAGE && address.family == 77);
    return 0;
}

static int check_ip4(void)
{
    struct hoop_address all[HOOP_RESOLVE_MAX];
    uint32_t count = 0;
    REQUIRE(hoop_resolve("localhost", all, &count) == HOOP_OK && count > 0);
    for (uint32_t i = 0; i < count; i++) {
        REQUIRE(all[i].family == 4 && all[i].port == 0 && hoop_address_is_loopback(&all[i]));
    }
    REQUIRE(hoop_resolve("::1", all, &count) == HOOP_INVALID_USAGE);
    REQUIRE(strstr(hoop_thread_error(), "HOOP_SOCKET_FAMILY") != NULL);
    return 0;
}

static int check_anything(void)
{
    struct hoop_address all[HOOP_RESOLVE_MAX];
    struct hoop_address address;
    struct hoop_address other;
    uint32_t count = 0;
    REQUIRE(hoop_interface_choose(&address) == HOOP_OK && hoop_address_is_valid(&address));
    REQUIRE(is_mine(&address) && address.port == 0);
    REQUIRE(hoop_interface_towards(&address, &other) == HOOP_OK);
    REQUIRE(hoop_address_same_ip(&address, &other)); /* from itself to itself */
    REQUIRE(hoop_resolve("127.9.9.9", all, &count) == HOOP_OK && count == 1);
    REQUIRE(all[0].port == 0 && is_mine(&all[0]));
    REQUIRE(hoop_address_parse("198.51.100.7", &other) == HOOP_OK);
    REQUIRE(!is_mine(&other));
    REQUIRE(hoop_address_parse("0.0.0.0", &other) == HOOP_OK);
    REQUIRE(!is_mine(&other));
    /* without a descriptor nobody can tell, except of loopback */
    struct rlimit none = {.rlim_cur = 0};
    struct rlimit before;
    bool mine = true;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none.rlim_max = before.rlim_max;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    REQUIRE(hoop_interface_is_mine(&other, &mine) == HOOP_SYSTEM_ERROR && !mine);
    REQUIRE(strstr(hoop_thread_error(), "EMFILE") != NULL && is_mine(&all[0]));
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    /* a label that is too long, so no server is asked */
    char host[TEXT_BYTES];
    (void)snprintf(host, sizeof(host), "%070d.invalid", 0);
    REQUIRE(hoop_resolve(host, all, &count) == HOOP_INVALID_USAGE);
    REQUIRE(strstr(hoop_thread_error(), "0.invalid: ") != NULL);
    return 0;
}

static void test_interfaces(void **state)
{
    (void)state;
    assert_int_equal(in_child("=lo", NULL, check_loopback), 0);
    assert_int_equal(in_child("=nosuch0", NULL, check_none), 0);
    assert_int_equal(in_child(NULL, "AF_INET", check_ip4), 0);
    assert_int_equal(in_child(NULL, NULL, check_anything), 0);
}

/* The kernel's tables show which process has a port: this one. */
static void test_port_holder(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
        struct sockaddr_in four = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct sockaddr *at = i == 0 ? (struct sockaddr *)&four : (struct sockaddr *)&six;
        socklen_t bytes = i == 0 ? sizeof(four) : sizeof(six);
        struct hoop_port_holder holder;
        char text[HOOP_PORT_HOLDER_BYTES];
        char expected[HOOP_PORT_HOLDER_BYTES];
        const int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, at, bytes) != 0) {
            continue; /* no such network on this machine */
        }
        assert_int_equal(getsockname(fd, at, &bytes), 0);
        const uint16_t port = ntohs(i == 0 ? four.sin_port : six.sin6_port);
        assert_false(hoop_port_holder(port, &holder)); /* the port is bound, but nobody listens */
        assert_int_equal(listen(fd, 1), 0);
        assert_true(hoop_port_holder(port, &holder));
        assert_int_equal(holder.uid, getuid());
        assert_int_equal(holder.pid, getpid());
        (void)snprintf(expected, sizeof(expected),
                       "; process %d (test_address) of user %u listens there", (int)getpid(),
                       (unsigned)getuid());
        hoop_port_describe_holder(port, text, sizeof(text));
        assert_string_equal(text, expected);
        close(fd);
        hoop_port_describe_holder(port, text, sizeof(text));
        assert_string_equal(text, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_host_port),  cmocka_unit_test(test_ports),
        cmocka_unit_test(test_valid),      cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_random),     cmocka_unit_test(test_rules),
        cmocka_unit_test(test_interfaces), cmocka_unit_test(test_port_holder),
    };
    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
