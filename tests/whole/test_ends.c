/*
 * Processes that end, stop or fork in the middle of work: exit() while another thread is inside,
 * dlclose(), children that free what they have inherited, ranks that leave before others are in or
 * through, a stop across a deadline, membarrier() that becomes forbidden.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/meeting.h"
#include "hoop.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char **library; /* libhoop.so, one that libhoop.a is linked into, NULL; or only NULL */

static void check(hoop_result_t result, hoop_result_t expected, int code)
{
    if (result != expected) {
        fprintf(stderr, "%d: %s: %s\n", code, hoop_get_error_name(result),
                hoop_get_last_error(NULL));
        _exit(code);
    }
}

static hoop_result_t sum_one(hoop_comm_t comm)
{
    int64_t x = 1;
    return hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, comm, NULL);
}

/* ---- exit() ---------------------------------------------------------------------------------- */

static hoop_comm_t busy_comm;

/* New memory for every call, so that ranks connect to each other all the time. */
static void *call_until_it_fails(void *arg)
{
    float *memory = NULL;
    (void)arg;
    while (hoop_mem_alloc((void **)&memory, 100000, HOOP_MEM_HOST) == HOOP_OK &&
           hoop_all_reduce(memory, memory, 25000, HOOP_FLOAT32, HOOP_SUM, busy_comm, NULL) ==
               HOOP_OK) {
        hoop_mem_free(memory);
    }
    return NULL;
}

static void exit_inside(const struct family_self *self, const void *arg)
{
    pthread_t thread;
    const struct meeting *meeting = meeting_open(self, arg);
    check(hoop_comm_init_rank(&busy_comm, self->n, meeting->ids[0], self->rank), HOOP_OK, 1);
    pthread_create(&thread, NULL, call_until_it_fails, NULL);
    if (self->rank == 1) {
        usleep((useconds_t)(getpid() % 8) * 400);
        exit(0); /* with handlers, while the thread is inside */
    }
    pthread_join(thread, NULL);
    check(hoop_comm_destroy(busy_comm), HOOP_OK, 2);
    exit(0);
}

static void test_exit_inside(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        meeting_run(3, exit_inside);
    }
}

static hoop_comm_t static_comms[2];

static void destroy_late(void)
{
    check(hoop_comm_destroy(static_comms[0]), HOOP_OK, 1);
    check(hoop_comm_destroy(static_comms[1]), HOOP_OK, 2);
}

static void destroy_in_handler(const struct family_self *self, const void *arg)
{
    (void)self;
    (void)arg;
    atexit(destroy_late); /* before hoop was used, as for the destructor of a static object */
    check(hoop_comm_init_all(static_comms, 2, NULL), HOOP_OK, 3);
    exit(0);
}

/* A handler that the program registered before its first use of hoop may still end comms. */
static void test_destroy_at_exit(void **state)
{
    (void)state;
    meeting_run(1, destroy_in_handler);
}

/* ---- dlclose() ------------------------------------------------------------------------------- */

static void load_and_unload(const struct family_self *self, const void *arg)
{
    (void)self;
    (void)arg;
    for (int i = 0; i < 3; i++) {
        void *handle = dlopen(*library, RTLD_NOW | RTLD_LOCAL);
        hoop_result_t (*init)(hoop_comm_t *, int, const int *) = NULL;
        if (handle == NULL) {
            _exit(1);
        }
        *(void **)&init = dlsym(handle, "hoop_comm_init_all");
        hoop_comm_t comms[2];
        if (init == NULL || init(comms, 2, NULL) != HOOP_OK || dlclose(handle) != 0) {
            _exit(2);
        }
        usleep(300000); /* the service thread sends heartbeats meanwhile */
    }
}

static void test_dlclose(void **state)
{
    (void)state;
    if (*library == NULL) {
        skip();
    }
    for (; *library != NULL; library++) {
        meeting_run(1, load_and_unload);
    }
}

/* ---- fork() ---------------------------------------------------------------------------------- */

static bool in_child;

/* A leak checker in the child would not see what the parent's other threads held. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return in_child;
}

/* Uses what belongs to a comm. */
static void use_more_in_child(hoop_comm_t comm, void *registered, hoop_red_op_t op)
{
    float factor = 2;
    hoop_red_op_t fresh;
    void *handle = NULL;
    check(hoop_red_op_create_pre_mul_sum(&fresh, &factor, HOOP_FLOAT, HOOP_SCALAR_HOST_IMMEDIATE,
                                         comm),
          HOOP_INVALID_USAGE, 31);
    check(hoop_all_reduce(&factor, &factor, 1, HOOP_FLOAT, op, comm, NULL), HOOP_INVALID_USAGE, 32);
    check(hoop_red_op_destroy(op, comm), HOOP_OK, 33);
    check(hoop_comm_register(comm, &factor, sizeof(factor), &handle), HOOP_INVALID_USAGE, 34);
    check(hoop_comm_deregister(comm, registered), HOOP_OK, 35);
}

static void use_in_child(hoop_comm_t *comms, void *memory)
{
    char json[4096];
    size_t needed = 0;
    int value = 0;
    hoop_result_t error = HOOP_OK;
    hoop_comm_t fresh = NULL;
    hoop_unique_id_t id;
    void *other = NULL;
    check(sum_one(comms[0]), HOOP_INVALID_USAGE, 11);
    check(hoop_barrier(comms[1], NULL), HOOP_INVALID_USAGE, 12);
    check(hoop_comm_get_async_error(comms[0], &error), HOOP_OK, 13);
    check(error, HOOP_INVALID_USAGE, 14);
    check(strstr(hoop_get_last_error(comms[0]), "forked") != NULL ? HOOP_OK : error, HOOP_OK, 15);
    check(hoop_comm_count(comms[0], &value), HOOP_OK, 16);
    check(hoop_comm_finalize(comms[0]), HOOP_INVALID_USAGE, 17);
    check(hoop_comm_revoke(comms[0], 0), HOOP_INVALID_USAGE, 18);
    check(hoop_comm_abort(comms[0]), HOOP_OK, 19);
    check(hoop_comm_destroy(comms[0]), HOOP_OK, 20);
    check(hoop_info_json(comms[1], json, sizeof(json), &needed), HOOP_INVALID_USAGE, 21);
    check(hoop_info_json(NULL, json, sizeof(json), &needed), HOOP_INVALID_USAGE, 22);
    check(hoop_explain_json(comms[1], "all_reduce", 1, HOOP_INT8, HOOP_SUM, json, sizeof(json),
                            &needed),
          HOOP_INVALID_USAGE, 23);
    check(hoop_group_start(), HOOP_INVALID_USAGE, 24);
    check(hoop_group_end(), HOOP_INVALID_USAGE, 25);
    check(hoop_comm_init_all(&fresh, 1, NULL), HOOP_INVALID_USAGE, 26);
    check(hoop_get_unique_id(&id), HOOP_INVALID_USAGE, 27);
    check(hoop_mem_alloc(&other, 4096, HOOP_MEM_HOST), HOOP_INVALID_USAGE, 28);
    check(hoop_mem_free(memory), HOOP_OK, 29);
    check(hoop_linger(), HOOP_OK, 30);
    exit(0); /* with handlers */
}

static void fork_and_go_on(const struct family_self *self, const void *arg)
{
    hoop_comm_t comms[2];
    void *memory = NULL, *registered = NULL;
    hoop_red_op_t op;
    int status = 0;
    (void)self;
    (void)arg;
    check(hoop_comm_init_all(comms, 2, NULL), HOOP_OK, 1);
    check(hoop_mem_alloc(&memory, 4096, HOOP_MEM_HOST), HOOP_OK, 2);
    check(hoop_comm_register(comms[1], memory, 4096, &registered), HOOP_OK, 7);
    check(hoop_red_op_create_pre_mul_sum(&op, &(float){2}, HOOP_FLOAT, HOOP_SCALAR_HOST_IMMEDIATE,
                                         comms[1]),
          HOOP_OK, 8);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        in_child = true;
        use_more_in_child(comms[1], registered, op);
        use_in_child(comms, memory);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "the child ended with %#x\n", (unsigned)status);
        _exit(3);
    }
    memset(memory, 1, 4096);
    check(hoop_comm_destroy(comms[0]), HOOP_OK, 4);
    check(hoop_comm_destroy(comms[1]), HOOP_OK, 5);
    check(hoop_mem_free(memory), HOOP_OK, 6);
}

/* In a child destructors may run, also of what the parent's open group has calls on. */
static void fork_in_group(const struct family_self *self, const void *arg)
{
    hoop_comm_t comms[2];
    int32_t x[2] = {1, 2};
    int status = 0;
    (void)self;
    (void)arg;
    check(hoop_comm_init_all(comms, 2, NULL), HOOP_OK, 1);
    hoop_group_start();
    for (int r = 0; r < 2; r++) {
        check(hoop_all_reduce(&x[r], &x[r], 1, HOOP_INT32, HOOP_SUM, comms[r], NULL), HOOP_OK, 2);
    }
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        in_child = true;
        check(hoop_comm_destroy(comms[0]), HOOP_OK, 3);
        check(hoop_comm_destroy(comms[1]), HOOP_OK, 4);
        _exit(0);
    }
    check(waitpid(pid, &status, 0) == pid && status == 0 ? HOOP_OK : HOOP_SYSTEM_ERROR, HOOP_OK, 5);
    check(hoop_group_end(), HOOP_OK, 6);
    check(x[0] == 3 && x[1] == 3 ? HOOP_OK : HOOP_INTERNAL_ERROR, HOOP_OK, 7);
    check(hoop_comm_destroy(comms[0]), HOOP_OK, 8);
    check(hoop_comm_destroy(comms[1]), HOOP_OK, 9);
}

static void test_forked_child(void **state)
{
    (void)state;
    meeting_run(1, fork_and_go_on);
    meeting_run(1, fork_in_group);
}

/* Makes each rank count as on a machine of its own. */
static void live_apart(int rank)
{
    char text[8];
    (void)snprintf(text, sizeof(text), "m%d", rank);
    setenv("HOOP_HOSTID", text, 1);
    setenv("HOOP_SOCKET_IFNAME", "lo", 1);
}

/* ---- Leaving early --------------------------------------------------------------------------- */

/* Rank 0 joins two comms at once. The other rank leaves the second, in good order, before any rank
 * has come to the first. */
static void leave_before_the_other_is_in(const struct family_self *self, const void *arg)
{
    hoop_comm_t a = NULL, b = NULL;
    hoop_result_t error = HOOP_INTERNAL_ERROR;
    const struct meeting *meeting = meeting_open(self, arg);
    if (self->rank == 0) {
        hoop_group_start();
        hoop_comm_init_rank(&a, 2, meeting->ids[0], 0);
        hoop_comm_init_rank(&b, 2, meeting->ids[1], 0);
        check(hoop_comm_destroy(NULL), HOOP_OK, 10); /* not the parent of these, which have none */
        check(hoop_group_end(), HOOP_OK, 1);
        check(hoop_comm_get_async_error(b, &error), HOOP_OK, 2);
        check(error, HOOP_OK, 3);
        check(hoop_comm_finalize(b), HOOP_OK, 4);
        check(hoop_comm_destroy(b), HOOP_OK, 5);
    } else {
        check(hoop_comm_init_rank(&b, 2, meeting->ids[1], 1), HOOP_OK, 6);
        check(hoop_comm_destroy(b), HOOP_OK, 7);
        usleep(300000); /* so that rank 0 is told while it still joins */
        check(hoop_comm_init_rank(&a, 2, meeting->ids[0], 1), HOOP_OK, 8);
    }
    check(hoop_barrier(a, NULL), HOOP_OK, 9);
    check(hoop_comm_destroy(a), HOOP_OK, 10);
}

/* Rank 0 joins two comms at once. Ranks 1 and 2 shrink the second to themselves, and leave it,
 * before the first exists: they have gone on without rank 0. */
static void go_on_before_the_other_is_in(const struct family_self *self, const void *arg)
{
    hoop_comm_t a = NULL, b = NULL, less = NULL;
    int out = 0;
    live_apart(self->rank);
    const struct meeting *meeting = meeting_open(self, arg);
    if (self->rank == 0) {
        hoop_group_start();
        hoop_comm_init_rank(&a, 3, meeting->ids[0], 0);
        hoop_comm_init_rank(&b, 3, meeting->ids[1], 0);
        check(hoop_group_end(), HOOP_OK, 1);
        check(hoop_comm_shrink(b, NULL, 0, &less, NULL, HOOP_SHRINK_ABORT), HOOP_REMOTE_ERROR, 2);
    } else {
        check(hoop_comm_init_rank(&b, 3, meeting->ids[1], self->rank), HOOP_OK, 3);
        usleep(300000); /* so that rank 0 waits for the first */
        check(hoop_comm_shrink(b, &out, 1, &less, NULL, HOOP_SHRINK_ABORT), HOOP_OK, 4);
        check(hoop_comm_destroy(b), HOOP_OK, 5);
        check(hoop_barrier(less, NULL), HOOP_OK, 6);
        check(hoop_comm_destroy(less), HOOP_OK, 7);
        usleep(300000); /* so that rank 0 is told while it still joins */
        check(hoop_comm_init_rank(&a, 3, meeting->ids[0], self->rank), HOOP_OK, 8);
    }
    check(hoop_barrier(a, NULL), HOOP_OK, 9);
    check(hoop_comm_destroy(a), HOOP_OK, 10);
    if (self->rank == 0) {
        check(hoop_comm_destroy(b), HOOP_OK, 11);
    }
}

static void test_gone_on_during_birth(void **state)
{
    (void)state;
    meeting_run(3, go_on_before_the_other_is_in);
}

static void test_left_during_birth(void **state)
{
    (void)state;
    meeting_run(2, leave_before_the_other_is_in);
}

/* Ranks 0 to 2 are on one machine. Rank 1 leaves before a scatter, and nobody waits for its data:
 * rank 0 has more for it than their link holds. */
static void leave_what_is_sent(const struct family_self *self, const void *arg)
{
    static char parts[4 << 20];
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_comm_t comm = NULL;
    config.op_timeout_ms = 20000;
    setenv("HOOP_HOSTID", self->rank < 3 ? "here" : "there", 1);
    setenv("HOOP_SOCKET_IFNAME", "lo", 1);
    const struct meeting *meeting = meeting_open(self, arg);
    const hoop_result_t joined =
        hoop_comm_init_rank_config(&comm, 4, meeting->ids[0], self->rank, &config);
    check(joined, HOOP_OK, 1);
    check(hoop_scatter(parts, parts, 1, HOOP_INT8, 0, comm, NULL), HOOP_OK, 2); /* makes links */
    check(hoop_barrier(comm, NULL), HOOP_OK, 3);
    if (self->rank == 1) {
        check(hoop_comm_destroy(comm), HOOP_OK, 4);
        check(hoop_linger(), HOOP_OK, 8); /* it may connect the machines */
        return;
    }
    check(hoop_scatter(parts, parts, sizeof(parts) / 4, HOOP_INT8, 0, comm, NULL),
          HOOP_REMOTE_ERROR, 5);
    check(strstr(hoop_get_last_error(comm), "rank 1 has left the communicator") != NULL
              ? HOOP_OK
              : HOOP_INTERNAL_ERROR,
          HOOP_OK, 6);
    check(hoop_comm_destroy(comm), HOOP_OK, 7);
}

static void test_left_by_a_receiver(void **state)
{
    (void)state;
    meeting_run(4, leave_what_is_sent);
}

/* Rank 1 only finalizes; it destroys when rank 0, which waits for it, was told. */
static void leave_by_finalize(const struct family_self *self, const void *arg)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_comm_t comm = NULL, other = NULL;
    config.op_timeout_ms = 20000;
    live_apart(self->rank);
    const struct meeting *meeting = meeting_open(self, arg);
    check(hoop_comm_init_rank_config(&comm, 2, meeting->ids[0], self->rank, &config), HOOP_OK, 1);
    check(hoop_comm_init_rank(&other, 2, meeting->ids[1], self->rank), HOOP_OK, 2);
    check(sum_one(comm), HOOP_OK, 3);
    check(self->rank == 0 ? sum_one(comm) : hoop_comm_finalize(comm),
          self->rank == 0 ? HOOP_REMOTE_ERROR : HOOP_OK, 4);
    check(hoop_barrier(other, NULL), HOOP_OK, 5);
    check(hoop_comm_destroy(comm), HOOP_OK, 6);
    check(hoop_comm_destroy(other), HOOP_OK, 7);
}

static void test_finalized(void **state)
{
    (void)state;
    meeting_run(2, leave_by_finalize);
}

/* ---- _exit() --------------------------------------------------------------------------------- */

/* Three machines with a rank each; rank 0's machine connects the others. The others leave the first
 * comm when rank 0 no longer waits. Rank 0 leaves the second one first, and then the others make a
 * link. */
static void leave_by_exit_now(const struct family_self *self, const void *arg)
{
    hoop_comm_t comm = NULL;
    int64_t x = self->rank;
    live_apart(self->rank);
    const struct meeting *meeting = meeting_open(self, arg);
    check(hoop_comm_init_rank(&comm, self->n, meeting->ids[0], self->rank), HOOP_OK, 1);
    check(hoop_linger(), HOOP_OK, 2); /* not at the end yet, and not waiting */
    if (self->rank == 0) {            /* the others need it for longer than it waits */
        check(hoop_comm_destroy(comm), HOOP_OK, 10);
        check(hoop_linger(), HOOP_TIMEOUT, 11);
    } else {
        usleep(5500000);
        check(hoop_comm_destroy(comm), HOOP_OK, 12);
    }
    check(hoop_comm_init_rank(&comm, self->n, meeting->ids[1], self->rank), HOOP_OK, 13);
    family_say(self, "i", 1);
    if (self->rank == 0) {
        check(hoop_comm_destroy(comm), HOOP_OK, 3);
        check(hoop_linger(), HOOP_OK, 4);
        _exit(0);
    }
    (void)family_order(self);
    if (self->rank == 1) {
        check(hoop_send(&x, 1, HOOP_INT64, 2, comm, NULL), HOOP_OK, 5);
    } else {
        check(hoop_recv(&x, 1, HOOP_INT64, 1, comm, NULL), HOOP_OK, 6);
        check(x == 1 ? HOOP_OK : HOOP_INTERNAL_ERROR, HOOP_OK, 7);
    }
    check(hoop_comm_destroy(comm), HOOP_OK, 8);
    check(hoop_linger(), HOOP_OK, 9);
    _exit(0);
}

static void test_linger(void **state)
{
    (void)state;
    char heard = 0;
    struct family family;
    struct meeting *meeting = meeting_start(&family, 3, leave_by_exit_now);
    assert_int_equal(family_hear(&family, 0, &heard, 1, hoop_deadline_ns(30000)), FAMILY_HEARD);
    assert_false(family_reap(&family, 0, hoop_deadline_ns(1000))); /* it is still needed */
    for (int rank = 1; rank < 3; rank++) {
        assert_true(family_tell(&family, rank, "g", 1));
    }
    meeting_end(&family, meeting, 30000);
}

/* ---- A stop across a deadline ---------------------------------------------------------------- */

static void wait_past_the_deadline(const struct family_self *self, const void *arg)
{
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_comm_t comm = NULL;
    config.op_timeout_ms = 600;
    config.dead_after_ms = 20000;
    const struct meeting *meeting = meeting_open(self, arg);
    check(hoop_comm_init_rank_config(&comm, 2, meeting->ids[0], self->rank, &config), HOOP_OK, 1);
    check(sum_one(comm), HOOP_OK, 2);
    family_say(self, "r", 1);
    if (self->rank == 1) {
        (void)family_order(self);
    }
    check(sum_one(comm), HOOP_OK, 3);
    family_say(self, "d", 1);
    (void)family_order(self);
    check(hoop_comm_destroy(comm), HOOP_OK, 4);
}

/* Rank 0 is stopped while it waits. Rank 1 comes, so its data are there when rank 0 goes on, after
 * its deadline. */
static void test_stopped_past_the_deadline(void **state)
{
    (void)state;
    struct family family;
    struct meeting *meeting = meeting_start(&family, 2, wait_past_the_deadline);
    char heard = 0;
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(family_hear(&family, rank, &heard, 1, hoop_deadline_ns(30000)),
                         FAMILY_HEARD);
    }
    usleep(100000); /* rank 0 sleeps in its operation */
    kill(family.ranks[0].pid, SIGSTOP);
    assert_true(family_tell(&family, 1, "g", 1));
    assert_int_equal(family_hear(&family, 1, &heard, 1, hoop_deadline_ns(30000)), FAMILY_HEARD);
    usleep(700000); /* past the deadline */
    kill(family.ranks[0].pid, SIGCONT);
    for (int rank = 0; rank < 2; rank++) {
        family_hang_up(&family, rank);
    }
    meeting_end(&family, meeting, 30000);
}

/* ---- membarrier() goes missing --------------------------------------------------------------- */

static _Atomic int warned;

static void listen(void *arg, hoop_log_level_t level, const char *subsystem, const char *line)
{
    (void)arg;
    (void)level;
    (void)subsystem;
    warned |= strstr(line, "membarrier() worked and now fails") != NULL;
}

/* In all threads of the process, including the service thread. */
static bool forbid_membarrier(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = 4, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

static void *sum_often(void *arg)
{
    for (int i = 0; i < 200; i++) {
        int64_t x = 1;
        if (hoop_all_reduce(&x, &x, 1, HOOP_INT64, HOOP_SUM, arg, NULL) != HOOP_OK || x != 2) {
            _exit(20);
        }
    }
    return NULL;
}

static void lose_membarrier(const struct family_self *self, const void *arg)
{
    hoop_comm_t comms[2];
    pthread_t threads[4];
    (void)self;
    (void)arg;
    setenv("HOOP_DEBUG", "warn", 1);
    hoop_set_log_callback(listen, NULL);
    check(hoop_comm_init_all(comms, 2, NULL), HOOP_OK, 1);
    hoop_group_start(); /* this thread now owns both turns */
    hoop_barrier(comms[0], NULL);
    hoop_barrier(comms[1], NULL);
    check(hoop_group_end(), HOOP_OK, 5);
    if (!forbid_membarrier()) {
        _exit(0); /* no seccomp here, so nothing can be tested */
    }
    for (int t = 0; t < 4; t++) { /* they take the turns from this thread */
        pthread_create(&threads[t], NULL, sum_often, comms[t % 2]);
    }
    for (int t = 0; t < 4; t++) {
        pthread_join(threads[t], NULL);
    }
    check(warned ? HOOP_OK : HOOP_INTERNAL_ERROR, HOOP_OK, 2);
    check(hoop_comm_destroy(comms[0]), HOOP_OK, 3);
    check(hoop_comm_destroy(comms[1]), HOOP_OK, 4);
}

static void test_membarrier_lost(void **state)
{
    (void)state;
    meeting_run(1, lose_membarrier);
}

int main(int argc, char **argv)
{
    (void)argc;
    library = argv + 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_inside),
        cmocka_unit_test(test_destroy_at_exit),
        cmocka_unit_test(test_dlclose),
        cmocka_unit_test(test_forked_child),
        cmocka_unit_test(test_left_during_birth),
        cmocka_unit_test(test_gone_on_during_birth),
        cmocka_unit_test(test_left_by_a_receiver),
        cmocka_unit_test(test_finalized),
        cmocka_unit_test(test_stopped_past_the_deadline),
        cmocka_unit_test(test_linger),
        cmocka_unit_test(test_membarrier_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
