/*
 * What other threads see of comms and streams that are in use: whole lines, and what an operation
 * waits for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "hoop.h"
#include "inspect/look.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 60
#define OTHER_UID 54321

static void make(hoop_comm_t comms[2], const char *name)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_unique_id_t id;
    config.comm_name = name;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    hoop_group_start();
    for (int rank = 0; rank < 2; rank++) {
        hoop_comm_init_rank_config(&comms[rank], 2, id, rank, &config);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
}

static void end(hoop_comm_t comms[2])
{
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
}

/* The report of a comm or, for NULL, of the process. */
static const char *look(hoop_comm_t comm)
{
    static char text[1 << 16];
    size_t needed = 0;
    assert_int_equal(hoop_info_json(comm, text, sizeof(text), &needed), HOOP_OK);
    return text;
}

/* Looks until the report contains `what`. */
static bool comes(hoop_comm_t comm, const char *what)
{
    const time_t until = time(NULL) + PATIENCE_S;
    const char *text = look(comm);
    while (strstr(text, what) == NULL && time(NULL) < until) {
        text = look(comm);
    }
    return strstr(text, what) != NULL;
}

/* Operations with even numbers are of one kind, those with odd numbers of another. */
struct caller {
    pthread_t thread;
    hoop_comm_t comm;
    unsigned from, to;
    hoop_result_t result;
};

static void *call(void *arg)
{
    struct caller *caller = arg;
    for (unsigned k = caller->from; k < caller->to && caller->result == HOOP_OK; k++) {
        int64_t x[2] = {1, 1};
        caller->result = hoop_all_reduce(x, x, 1 + k % 2, HOOP_INT64,
                                         k % 2 == 0 ? HOOP_SUM : HOOP_MAX, caller->comm, NULL);
    }
    return NULL;
}

static void start(struct caller *caller, hoop_comm_t comm, unsigned from, unsigned to)
{
    *caller = (struct caller){.comm = comm, .from = from, .to = to};
    assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
}

static void join(struct caller *caller)
{
    assert_int_equal(pthread_join(caller->thread, NULL), 0);
    assert_int_equal(caller->result, HOOP_OK);
}

/* Every line describes one operation, and they are in order. */
static void check_lines(const char *text)
{
    static const char key[] = "\"sequence\":";
    unsigned last = 0, lines = 0;
    const char *at = strstr(text, "\"operations\":");
    assert_non_null(at);
    while ((at = strstr(at, key)) != NULL) {
        char what[64];
        const unsigned sequence = (unsigned)strtoul(at + strlen(key), NULL, 10);
        assert_true(sequence > last);
        (void)snprintf(what, sizeof(what), "\"sequence\":%u,\"what\":\"all_reduce of %u int64 %s\"",
                       sequence, sequence % 2 == 0 ? 2 : 1, sequence % 2 == 0 ? "max" : "sum");
        assert_int_equal(strncmp(at, what, strlen(what)), 0);
        last = sequence;
        lines++;
        at++;
    }
    assert_true(lines <= 32);
}

static void test_lines_are_whole(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    struct caller callers[2];
    make(comms, NULL);
    for (unsigned rank = 0; rank < 2; rank++) {
        start(&callers[rank], comms[rank], 0, 3000); /* the first has sequence 1 */
    }
    for (int i = 0; i < 300; i++) {
        check_lines(look(comms[i % 2]));
    }
    join(&callers[0]);
    join(&callers[1]);
    check_lines(look(comms[0]));
    assert_non_null(strstr(look(comms[0]), "\"sequence\":3000,"));
    assert_null(strstr(look(comms[0]), "\"sequence\":2968,"));
    end(comms);
}

static void test_whom_it_waits_for(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    struct caller caller;
    make(comms, NULL);
    assert_non_null(strstr(look(comms[0]), "\"waiting\":null"));
    start(&caller, comms[0], 0, 1);
    assert_true(comes(comms[0],
                      "\"waiting\":{\"sequence\":1,\"what\":\"all_reduce of 1 int64 sum\","
                      "\"for\":\""));
    assert_true(comes(comms[0], " of rank 1\",\"rank\":1,\"ms\":") ||
                comes(comms[0], "rank 1 (recv)\",\"rank\":1,\"ms\":"));
    assert_non_null(strstr(look(comms[1]), "\"waiting\":null"));
    struct caller other;
    start(&other, comms[1], 0, 1);
    join(&other);
    join(&caller);
    assert_non_null(strstr(look(comms[0]), "\"waiting\":null"));
    end(comms);
}

/* Transfers have no sequence numbers, but each has a line. */
static void test_transfers_are_listed(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    int32_t x = 1, y = 0;
    make(comms, NULL);
    for (int i = 0; i < 2; i++) {
        hoop_group_start();
        hoop_send(&x, 1, HOOP_INT32, 1, comms[0], NULL);
        hoop_recv(&y, 1, HOOP_INT32, 0, comms[1], NULL);
        assert_int_equal(hoop_group_end(), HOOP_OK);
    }
    const char *first = strstr(look(comms[0]), "send/recv of 1 int32");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "send/recv of 1 int32"));
    end(comms);
}

static void test_streams(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    hoop_stream_t streams[2];
    hoop_ticket_t ticket;
    struct caller other;
    int64_t x = 1;
    make(comms, NULL);
    assert_int_equal(hoop_stream_create(&streams[0]), HOOP_OK);
    assert_int_equal(hoop_stream_create(&streams[1]), HOOP_OK);
    assert_int_equal(hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, comms[0], streams[0]),
                     HOOP_OK);
    assert_int_equal(hoop_stream_record(streams[0], &ticket), HOOP_OK);
    assert_int_equal(hoop_stream_wait_ticket(streams[1], ticket), HOOP_OK);
    assert_true(comes(NULL, "\"queued\":1,\"done\":0,\"first\":\"all_reduce of 1 int64 sum\""));
    assert_true(comes(NULL, "\"queued\":1,\"done\":0,\"first\":\"waits for ticket 1 of stream 0x"));
    assert_true(comes(comms[0], "\"rank\":1,\"ms\":"));
    start(&other, comms[1], 0, 1);
    assert_int_equal(hoop_stream_synchronize(streams[1]), HOOP_OK);
    join(&other);
    assert_true(comes(NULL, "\"queued\":0,\"done\":1,\"first\":\"\""));
    assert_int_equal(hoop_stream_destroy(streams[0]), HOOP_OK);
    assert_int_equal(hoop_stream_destroy(streams[1]), HOOP_OK);
    assert_non_null(strstr(look(NULL), "\"streams\":[]"));
    end(comms);
}

/* Finds the address of this process's own report, as hoopinfo --job does. */
static socklen_t report_find(struct sockaddr_un *ret)
{
    char line[256], prefix[64], name[108] = "";
    FILE *file = fopen("/proc/net/unix", "re");
    (void)snprintf(prefix, sizeof(prefix), "hoop-job-%u-%d-", (unsigned)geteuid(), (int)getpid());
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *at = strstr(line, prefix);
        if (at != NULL && name[0] == 0) {
            (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, "\n"), at);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    assert_true(name[0] != 0);
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path + 1, name, strlen(name));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static int report_connect(void)
{
    struct sockaddr_un address;
    const socklen_t bytes = report_find(&address);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, bytes), 0);
    return fd;
}

static const char *report_receive(int fd)
{
    static char text[1 << 20];
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    size_t length = 0;
    ssize_t got = 1;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    while (got > 0) {
        got = recv(fd, text + length, sizeof(text) - 1 - length, 0);
        assert_true(got >= 0);
        length += (size_t)got;
    }
    text[length] = 0;
    close(fd);
    return text;
}

static const char *report_read(void)
{
    return report_receive(report_connect());
}

static void test_report(void **state)
{
    (void)state;
    hoop_comm_t comms[2], more[2];
    struct caller callers[2];
    make(comms, "first");
    for (unsigned rank = 0; rank < 2; rank++) {
        start(&callers[rank], comms[rank], 0, 2000);
    }
    for (int i = 0; i < 20; i++) {
        const char *text = report_read();
        const size_t length = strlen(text);
        assert_true(length > 2 && text[0] == '{' && text[length - 1] == '}');
        assert_non_null(strstr(text, "\"left_out\":"));
        make(more, "second");
        assert_non_null(strstr(report_read(), "\"name\":\"second\""));
        end(more);
        assert_null(strstr(report_read(), "\"name\":\"second\""));
    }
    join(&callers[0]);
    join(&callers[1]);
    end(comms);
    assert_non_null(strstr(report_read(), "\"comms\":[],\"left_out\":0}"));
}

struct aborter {
    pthread_t thread;
    hoop_comm_t comm;
    _Atomic bool done;
};

static void *abort_main(void *arg)
{
    struct aborter *aborter = arg;
    hoop_comm_abort(aborter->comm);
    /* relaxed: only the library's own locks may order this before the report */
    atomic_store_explicit(&aborter->done, true, memory_order_relaxed);
    return NULL;
}

/* An aborted comm is reported without access to what it has freed. */
static void test_report_of_aborted(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    make(comms, "aborted");
    struct aborter aborter = {.comm = comms[0]};
    assert_int_equal(pthread_create(&aborter.thread, NULL, abort_main, &aborter), 0);
    while (!atomic_load_explicit(&aborter.done, memory_order_relaxed)) {
        sched_yield();
    }
    assert_non_null(strstr(report_read(), "\"state\":\"HOOP_ABORTED\""));
    pthread_join(aborter.thread, NULL);
    end(comms);
}

/* As many streams as fit are reported, and the others counted; the text is complete. */
static void test_streams_without_room(void **state)
{
    (void)state;
    enum { MANY = 10 };
    hoop_stream_t streams[MANY];
    char text[4096];
    size_t needed = 0;
    uint32_t before = MANY;
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(hoop_stream_create(&streams[i]), HOOP_OK);
    }
    for (size_t most = 0; most < sizeof(text); most += 20) {
        struct hoop_json json;
        uint32_t told = 0;
        hoop_json_init(&json, text, sizeof(text));
        hoop_json_object(&json, NULL);
        const uint32_t left_out = hoop_look_streams(&json, most);
        assert_true(most == 0 || json.length <= most + 1);
        hoop_json_object_end(&json);
        assert_int_equal(hoop_json_finish(&json, &needed), HOOP_OK);
        for (const char *at = text; (at = strstr(at, "\"queued\":0,\"done\":0,")) != NULL; at++) {
            told++;
        }
        assert_int_equal(told + left_out, MANY);
        assert_true(left_out <= before);
        assert_string_equal(text + needed - 3, "]}");
        before = left_out;
    }
    assert_int_equal(before, 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(hoop_stream_destroy(streams[i]), HOOP_OK);
    }
}

/* Without descriptors clients that connect wait, which costs the service no CPU. */
static void test_report_without_descriptors(void **state)
{
    (void)state;
    const struct timespec half_a_second = {.tv_nsec = 500000000};
    struct timespec before, after;
    struct rlimit limit, none;
    struct sockaddr_un address;
    hoop_comm_t comms[2];
    make(comms, NULL);
    end(comms);
    const socklen_t bytes = report_find(&address);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const int connected = connect(fd, (const struct sockaddr *)&address, bytes);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nanosleep(&half_a_second, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(connected, 0);
    assert_true((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 <
                100);
    assert_non_null(strstr(report_receive(fd), "\"comms\":[]"));
}

/* In a child: connects as another user for half a second, as fast as possible. Exits with 0 if it
 * was slowed down. */
static void report_flood(const struct sockaddr_un *address, socklen_t bytes)
{
    struct timespec start, now;
    long ms = 0, connections = 0;
    if (setgid(OTHER_UID) != 0 || setuid(OTHER_UID) != 0) {
        _exit(0);
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (; ms < 500; connections++) {
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *)address, bytes) != 0) {
            _exit(2);
        }
        close(fd);
        clock_gettime(CLOCK_MONOTONIC, &now);
        ms = (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
    }
    /* as many as the backlog holds, and as are accepted in each 100 ms */
    _exit(connections <= 1100 + (ms / 100 + 2) * 256 ? 0 : 1);
}

static void test_report_in_a_flood(void **state)
{
    (void)state;
    struct sockaddr_un address;
    hoop_comm_t comms[2];
    int status = 0;
    if (geteuid() != 0) {
        skip();
    }
    make(comms, "dry");
    const socklen_t bytes = report_find(&address);
    const pid_t pid = fork();
    if (pid == 0) {
        report_flood(&address, bytes);
    }
    assert_true(pid > 0);
    for (int i = 0; i < 3; i++) {
        assert_non_null(strstr(report_read(), "\"name\":\"dry\""));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    end(comms);
}

/* Names are kept in full, or refused. */
static void test_names(void **state)
{
    (void)state;
    char name[129];
    hoop_comm_t comms[2];
    memset(name, 'n', sizeof(name));
    name[127] = 0;
    make(comms, name);
    assert_non_null(strstr(look(comms[1]), name));
    end(comms);
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_unique_id_t id;
    name[127] = 'n';
    name[128] = 0;
    config.comm_name = name;
    assert_int_equal(hoop_get_unique_id(&id), HOOP_OK);
    assert_int_equal(hoop_comm_init_rank_config(&comms[0], 1, id, 0, &config),
                     HOOP_INVALID_ARGUMENT);
    assert_non_null(
        strstr(hoop_get_last_error(NULL), "config.comm_name has 128 bytes, expected at most 127"));
}

/* Ranks of other comms count among those that want this machine's CPUs, as any launcher tells how
 * many there are. */
static void test_launcher_tells_how_many(void **state)
{
    (void)state;
    static const char *const launchers[][3] = {
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"},
    };
    unsetenv("LOCAL_WORLD_SIZE");
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        hoop_comm_t comms[2];
        setenv(launchers[i][0], "4096", 1);
        setenv(launchers[i][1], "0", 1);
        setenv(launchers[i][2], "4096", 1);
        make(comms, NULL);
        assert_non_null(strstr(look(comms[0]), "\"waiting_policy\":\"yield\""));
        end(comms);
        for (size_t k = 0; k < 3; k++) {
            unsetenv(launchers[i][k]);
        }
    }
}

static void test_who_has_left(void **state)
{
    (void)state;
    hoop_comm_t comms[2];
    make(comms, NULL);
    assert_null(strstr(look(comms[0]), "\"left\":true"));
    assert_int_equal(hoop_comm_destroy(comms[1]), HOOP_OK);
    assert_true(comes(comms[0], "\"left\":true"));
    const char *first = strstr(look(comms[0]), "\"left\":false");
    assert_non_null(first);
    assert_non_null(strstr(first, "\"left\":true"));
    assert_int_equal(hoop_comm_destroy(comms[0]), HOOP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_whole),
        cmocka_unit_test(test_whom_it_waits_for),
        cmocka_unit_test(test_transfers_are_listed),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_report_of_aborted),
        cmocka_unit_test(test_streams_without_room),
        cmocka_unit_test(test_report_without_descriptors),
        cmocka_unit_test(test_report_in_a_flood),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_launcher_tells_how_many),
        cmocka_unit_test(test_who_has_left),
    };
    return cmocka_run_group_tests_name("look", tests, NULL, NULL);
}
