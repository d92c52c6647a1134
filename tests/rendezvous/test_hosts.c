/* Looking up rank 0's machine, with a resolver that is part of this test. */
#include "base/clock.h"
#include "net/interface.h"
#include "rendezvous/file_store.h"
#include "runtime/service.h"
#include "runtime/wait.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_MS 20000u

static atomic_int answer;    /* the last byte of the address for every name; 0: names are unknown */
static atomic_int hang_s;    /* how long the resolver takes */
static atomic_int questions; /* how often the resolver was asked */

int getaddrinfo(const char *restrict name, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict ret)
{
    struct whole {
        struct addrinfo info;
        struct sockaddr_in address;
    } *whole = calloc(1, sizeof(*whole));
    const int last = atomic_load(&answer);
    (void)name;
    (void)service;
    (void)hints;
    atomic_fetch_add(&questions, 1);
    if (atomic_load(&hang_s) > 0) {
        sleep((unsigned)atomic_load(&hang_s));
    }
    if (last == 0 || whole == NULL) {
        free(whole);
        return EAI_NONAME;
    }
    whole->address = (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(0xc0000200u + (uint32_t)last), /* 192.0.2.x */
    };
    whole->info = (struct addrinfo){
        .ai_family = AF_INET,
        .ai_socktype = SOCK_STREAM,
        .ai_addrlen = sizeof(whole->address),
        .ai_addr = (struct sockaddr *)&whole->address,
    };
    *ret = &whole->info;
    return 0;
}

void freeaddrinfo(struct addrinfo *info)
{
    free(info);
}

static struct hoop_rendezvous a_rendezvous(const char *host)
{
    struct hoop_rendezvous rendezvous = {.ports = {7, 8}};
    (void)snprintf(rendezvous.host, sizeof(rendezvous.host), "%s", host);
    return rendezvous;
}

static void expect_addresses(const struct hoop_address *addresses, uint32_t count, int last)
{
    assert_int_equal(count, 2);
    for (uint16_t i = 0; i < 2; i++) {
        assert_int_equal(addresses[i].port, 7 + i);
        assert_int_equal(addresses[i].ip[3], last);
    }
}

/* ---- Once --------------------------------------------------------------------------------- */

static void test_find(void **state)
{
    struct hoop_rendezvous rendezvous = a_rendezvous("node0");
    (void)state;
    atomic_store(&answer, 1);
    assert_int_equal(hoop_hosts_find(&rendezvous, LONG_MS), HOOP_OK);
    expect_addresses(rendezvous.addresses, rendezvous.address_count, 1);
}

static void test_find_nothing(void **state)
{
    struct hoop_rendezvous rendezvous = a_rendezvous("node0");
    (void)state;
    atomic_store(&answer, 0);
    assert_int_equal(hoop_hosts_find(&rendezvous, 300), HOOP_INVALID_USAGE);
    assert_non_null(strstr(hoop_thread_error(), "node0: "));
    assert_int_equal(rendezvous.address_count, 0);
}

/* The deadline holds, whatever the resolver does. */
static void test_find_hanging(void **state)
{
    struct hoop_rendezvous rendezvous = a_rendezvous("node0");
    const uint64_t start = hoop_now_ns();
    (void)state;
    atomic_store(&hang_s, 20);
    assert_int_equal(hoop_hosts_find(&rendezvous, 300), HOOP_INVALID_USAGE);
    assert_non_null(
        strstr(hoop_thread_error(), "node0: this host name was not resolved within 300 ms"));
    assert_true(hoop_now_ns() - start < 5000 * HOOP_NS_PER_MS);
    atomic_store(&hang_s, 0);
}

/* ---- Again and again ---------------------------------------------------------------------- */

struct watched {
    struct hoop_rendezvous rendezvous;
    struct hoop_lookup *lookup;
    struct hoop_address addresses[HOOP_RENDEZVOUS_ADDRESSES];
    uint32_t count;
    struct hoop_job moved;
    hoop_result_t result;
};

static void note_moved(void *arg, const struct hoop_address *addresses, uint32_t count)
{
    struct watched *watched = arg;
    memcpy(watched->addresses, addresses, count * sizeof(*addresses));
    watched->count = count;
    hoop_job_complete(&watched->moved, NULL);
}

static void do_start(void *arg)
{
    struct watched *watched = arg;
    watched->result =
        hoop_lookup_start(&watched->rendezvous, note_moved, watched, &watched->lookup);
}

static void do_stop(void *arg)
{
    struct watched *watched = arg;
    hoop_lookup_stop(watched->lookup);
}

static void test_moved(void **state)
{
    struct watched watched = {.rendezvous = a_rendezvous("node0")};
    (void)state;
    assert_int_equal(hoop_service_start(), HOOP_OK);
    hoop_job_init(&watched.moved);
    atomic_store(&answer, 1);
    assert_int_equal(hoop_hosts_find(&watched.rendezvous, LONG_MS), HOOP_OK);
    hoop_service_run(do_start, &watched);
    assert_int_equal(watched.result, HOOP_OK);
    assert_non_null(watched.lookup);
    /* the address does not change, and then the name is unknown: neither is reported */
    const int before = atomic_load(&questions);
    while (atomic_load(&questions) < before + 1) {
        (void)usleep(10000);
    }
    atomic_store(&answer, 0);
    while (atomic_load(&questions) < before + 2) {
        (void)usleep(10000);
    }
    assert_int_equal(hoop_job_wait(&watched.moved, 0, NULL), HOOP_TIMEOUT);
    atomic_store(&answer, 2);
    assert_int_equal(hoop_job_wait(&watched.moved, hoop_deadline_ns(LONG_MS), NULL), HOOP_OK);
    expect_addresses(watched.addresses, watched.count, 2);
    hoop_service_run(do_stop, &watched);
    hoop_job_finish(&watched.moved);
}

/* A numeric address needs no resolver. */
static void test_number(void **state)
{
    static const char *const hosts[] = {"192.0.2.1", "2001:db8::1", ""};
    (void)state;
    assert_int_equal(hoop_service_start(), HOOP_OK);
    for (size_t i = 0; i < 3; i++) {
        struct watched watched = {.rendezvous = a_rendezvous(hosts[i])};
        hoop_service_run(do_start, &watched);
        assert_int_equal(watched.result, HOOP_OK);
        assert_null(watched.lookup);
        hoop_service_run(do_stop, &watched);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),         cmocka_unit_test(test_find_nothing),
        cmocka_unit_test(test_moved),        cmocka_unit_test(test_number),
        cmocka_unit_test(test_find_hanging),
    };
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
