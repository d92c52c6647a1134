/* lib/net/socket.c: the credentials that the kernel reports, and the error texts for addresses that
 * can't be had. */
#include "base/clock.h"
#include "net/flight.h"
#include "net/interface.h"
#include "net/socket.h"
#include "runtime/wait.h"
#include "runtime/watch.h"
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Makes both ends of a Unix connection. False: not possible here. */
static bool connected(int ret_ends[2])
{
    struct hoop_place place = {.name = ""};
    int listen_fd = -1;
    int err = 0;
    (void)snprintf(place.name, sizeof(place.name), "hoop-test-socket-%d", (int)getpid());
    if (hoop_socket_listen(&place, NULL, &listen_fd) != HOOP_OK ||
        hoop_socket_connect(&place, NULL, &ret_ends[0], &err) != HOOP_OK || err != 0 ||
        hoop_socket_accept(listen_fd, &ret_ends[1]) != HOOP_OK) {
        return false;
    }
    hoop_fork_close(listen_fd);
    return true;
}

static void test_vouch(void **state)
{
    int ends[2] = {-1, -1};
    pid_t pid = 0;
    (void)state;
    assert_true(connected(ends));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hoop_socket_vouch(ends[i], &pid), HOOP_OK);
        assert_int_equal(pid, getpid());
        hoop_fork_close(ends[i]);
    }
}

/* In a user namespace that maps no users all of them look alike, this one included. */
static int overflow_main(void)
{
    int ends[2];
    pid_t pid = 0;
    if (unshare(CLONE_NEWUSER) != 0) {
        return 77;
    }
    if (!connected(ends)) {
        return 1;
    }
    return hoop_socket_vouch(ends[1], &pid) == HOOP_NOT_AUTHENTICATED &&
                   strstr(hoop_thread_error(), "every uid that it does not know") != NULL
               ? 0
               : 2;
}

static void test_overflow(void **state)
{
    int status = 0;
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        _exit(overflow_main());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        skip();
    }
    assert_int_equal(status, 0);
}

/* The error names the limit that was reached. */
static void test_descriptors(void **state)
{
    struct rlimit before;
    struct hoop_place place = {.name = "hoop-test-socket-none"};
    int fd = -1;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const hoop_result_t result = hoop_socket_listen(&place, NULL, &fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(result, HOOP_SYSTEM_ERROR);
    assert_string_equal(hoop_thread_error(), "cannot make a socket: EMFILE (raise ulimit -n)");
    struct hoop_address to = {.family = 4, .ip = {127, 0, 0, 1}};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const hoop_result_t towards = hoop_interface_towards(&to, &to);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(towards, HOOP_SYSTEM_ERROR);
    assert_string_equal(hoop_thread_error(), "cannot make a socket: EMFILE (raise ulimit -n)");
}

static void test_nobody(void **state)
{
    const struct hoop_place place = {.name = "hoop-test-socket-nobody"};
    int fd = -1;
    int err = 0;
    (void)state;
    assert_int_equal(hoop_socket_connect(&place, NULL, &fd, &err), HOOP_OK);
    assert_int_equal(err, ECONNREFUSED);
    hoop_fork_close(fd);
}

static void control_of(int fd, char ret_name[16])
{
    socklen_t bytes = 15;
    memset(ret_name, 0, 16);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, ret_name, &bytes), 0);
}

/* BBR paces its sends, which within a machine only costs time. Any other congestion control is the
 * system's choice. */
static void test_no_pacing(void **state)
{
    struct hoop_place place = {.address = {.family = 4, .ip = {127, 0, 0, 1}}};
    char name[16], own[16];
    int listen_fd = -1, fd = -1, err = 0;
    const int plain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)state;
    control_of(plain, own);
    close(plain);
    assert_int_equal(hoop_socket_listen(&place, NULL, &listen_fd), HOOP_OK);
    assert_int_equal(hoop_socket_connect(&place, NULL, &fd, &err), HOOP_OK);
    control_of(fd, name);
    assert_string_equal(name, strncmp(own, "bbr", 3) == 0 ? "reno" : own);
    hoop_fork_close(fd);
    hoop_fork_close(listen_fd);
}

/* What the receiver of a new connection says it has room for; 0: the kernel does not tell. */
static uint32_t window_of(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
    return bytes > offsetof(struct tcp_info, tcpi_snd_wnd) ? info.tcpi_snd_wnd : 0;
}

/* In a process that has not read its settings. Returns 0 if all is well. */
static int buffer_main(void)
{
    struct hoop_place place = {.address = {.family = 4, .ip = {127, 0, 0, 1}}};
    int listen_fd = -1, fd = -1, other = -1, err = 0, size = 0;
    socklen_t bytes = sizeof(size);
    (void)setenv("HOOP_SOCKET_BUFFER_BYTES", "4096", 1);
    if (hoop_socket_listen(&place, NULL, &listen_fd) != HOOP_OK ||
        hoop_socket_connect(&place, NULL, &fd, &err) != HOOP_OK ||
        hoop_socket_accept(listen_fd, &other) != HOOP_OK ||
        getsockopt(other, SOL_SOCKET, SO_RCVBUF, &size, &bytes) != 0) {
        return 1;
    }
    const bool sized = size >= 4096 && size <= 2 * 4096; /* the kernel doubles it */
    return sized && window_of(fd) <= 2 * 4096 ? 0 : 2;
}

/* A buffer of a wanted size is there before the sender hears of a window: what it sends into a
 * larger one is dropped as long as nobody reads. */
static void test_buffer_size(void **state)
{
    int status = 0;
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        _exit(buffer_main());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Does the receiver say that it has no room? False, too, if the kernel does not tell. */
static bool is_full(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
    return bytes > offsetof(struct tcp_info, tcpi_snd_wnd) && info.tcpi_snd_wnd == 0;
}

/* A receiver reads nothing. Small packets fill its buffer before its window is used up, so that its
 * kernel drops one, which stays unacknowledged: not because the network lost it. */
static void test_full_receiver(void **state)
{
    struct hoop_place place = {.address = {.family = 4, .ip = {127, 0, 0, 1}}};
    const int one = 1, small = 4096;
    static char message[1000];
    struct hoop_flight flight;
    int listen_fd = -1, fd = -1, other = -1, err = 0;
    (void)state;
    assert_int_equal(hoop_socket_listen(&place, NULL, &listen_fd), HOOP_OK);
    assert_int_equal(hoop_socket_connect(&place, NULL, &fd, &err), HOOP_OK);
    assert_int_equal(hoop_socket_accept(listen_fd, &other), HOOP_OK);
    assert_int_equal(setsockopt(other, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
    const uint64_t until = hoop_deadline_ns(500);
    while (hoop_now_ns() < until) {
        while (send(fd, message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
        }
        if (is_full(fd)) {
            assert_true(hoop_flight_look(fd, &flight));
            assert_int_equal(flight.bytes, 0);
        }
        hoop_wait_briefly();
    }
    hoop_fork_close(other);
    hoop_fork_close(fd);
    hoop_fork_close(listen_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffer_size), /* first: the settings are read once */
        cmocka_unit_test(test_vouch),       cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_descriptors), cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_no_pacing),   cmocka_unit_test(test_full_receiver),
    };
    return cmocka_run_group_tests_name("socket", tests, NULL, NULL);
}
