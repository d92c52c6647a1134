/*
 * hooprun is interrupted and killed: what it passes on, and that no process of a job survives it.
 * argv[1] is the built launcher.
 */
#include "programs/hooprun_harness.h"

#include <errno.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- Signals -------------------------------------------------------------------------------- */

static void test_signals_forwarded(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int sig;
        int code;
    } cases[] = {
        {"INT", SIGINT, 130},   {"TERM", SIGTERM, 143}, {"HUP", SIGHUP, 129},
        {"QUIT", SIGQUIT, 131}, {"USR1", SIGUSR1, 0},   {"USR2", SIGUSR2, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hoop_run run;
        char script[256];
        snprintf(script, sizeof(script),
                 "trap 'echo got %s; exit 0' %s; echo ready; while :; do sleep 0.01; done",
                 cases[i].name, cases[i].name);
        START(&run, "-n", "3", "sh", "-c", script);
        hoop_run_read(&run, "ready\n", 3);
        kill(run.pid, cases[i].sig);
        assert_int_equal(hoop_run_end(&run), cases[i].code);
        assert_int_equal(hoop_text_count(&run.out, "got "), 3);
        assert_int_equal(hoop_text_count(&run.err, "hooprun"),
                         0); /* the shells may print something */
        hoop_run_finish(&run);
    }
}

static void test_second_interrupt_kills(void **state)
{
    (void)state;
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    START(&run, "-n", "3", "sh", "-c",
          hoop_script_with(marker,
                           "trap 'echo got' INT; trap '' TERM; setsid sleep %s & echo ready; "
                           "while :; do sleep 0.01; done"));
    hoop_run_read(&run, "ready\n", 3);
    kill(run.pid, SIGINT);
    hoop_run_read(&run, "got\n", 3);
    kill(run.pid, SIGINT);
    assert_int_equal(hoop_run_end(&run), 130);
    hoop_assert_gone(marker);
    hoop_run_finish(&run);
}

/* Waits until hooprun is stopped. */
static void wait_stopped(const struct hoop_run *run)
{
    const int64_t deadline = hoop_run_now_ms() + HOOP_RUN_DEADLINE_MS;
    siginfo_t info = {0};
    while (waitid(P_PID, (id_t)run->pid, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == 0) {
        assert_true(hoop_run_now_ms() < deadline);
        hoop_run_pause();
    }
}

/* hooprun stops and continues. A signal to continue that follows at once does not leave it
 * stopped. */
static void test_stop_and_continue(void **state)
{
    (void)state;
    struct hoop_run run;
    hoop_run_grouped = true;
    START(&run, "-n", "2", "sh", "-c",
          "trap 'echo here' USR1; echo ready; while :; do sleep 0.01; done");
    hoop_run_grouped = false;
    hoop_run_read(&run, "ready\n", 2);
    for (int i = 0; i < 200; i++) {
        kill(run.pid, SIGTSTP);
        if (i == 0) {
            wait_stopped(&run);
        }
        const struct timespec moment = {.tv_nsec = i * 1000L};
        nanosleep(&moment, NULL);
        kill(run.pid, SIGCONT);
        kill(run.pid, SIGUSR1);
        hoop_run_read(&run, "here\n", 2 * (i + 1));
    }
    kill(run.pid, SIGTERM);
    assert_int_equal(hoop_run_end(&run), 128 + SIGTERM);
    hoop_run_finish(&run);
}

/* Starts hooprun in the foreground of a new terminal, or skips the test. Returns the other end. */
static int terminal_start(struct hoop_run *run, const char *const *words)
{
    int terminal = -1;
    const pid_t pid = forkpty(&terminal, NULL, NULL, NULL);
    if (pid < 0) {
        print_message("skipped: no terminal can be made here (is /dev/pts mounted?): %s\n",
                      strerror(errno));
        skip();
    }
    if (pid == 0) {
        hoop_run_signals_default();
        execv(hoop_run_program, (char *const *)words);
        _exit(99);
    }
    *run = (struct hoop_run){.pid = pid, .out = {.fd = terminal}, .err = {.fd = -1}};
    return terminal;
}

/* Waits until hooprun (own) or a rank is in the foreground of the terminal. */
static void terminal_wait(const struct hoop_run *run, bool own)
{
    const int64_t deadline = hoop_run_now_ms() + HOOP_RUN_DEADLINE_MS;
    while ((tcgetpgrp(run->out.fd) == run->pid) != own) {
        assert_true(hoop_run_now_ms() < deadline);
        hoop_run_pause();
    }
}

/* Rank 0 may read the terminal. When it does not, hooprun passes Ctrl-C to the ranks. */
static void test_terminal(void **state)
{
    (void)state;
    struct hoop_run run;
    static const char script[] =
        "trap 'echo got; exit 0' INT; if test $RANK = 0; then read w; echo \"<$w>\"; exit 0; "
        "fi; echo ready; while :; do sleep 0.01; done";
    const int terminal = terminal_start(
        &run, (const char *const[]){hoop_run_program, "-n", "3", "sh", "-c", script, NULL});
    assert_int_equal(write(terminal, "word\n", 5), 5);
    hoop_run_read(&run, "ready\r\n", 2);
    hoop_run_read(&run, "<word>\r\n", 1);
    terminal_wait(&run, true);
    assert_int_equal(write(terminal, "\003", 1), 1);
    assert_int_equal(hoop_run_end(&run), 130);
    assert_int_equal(hoop_text_count(&run.out, "got\r\n"), 2);
    hoop_run_finish(&run);
}

/* After a restart rank 0 gets the terminal again; Ctrl-C then ends the job. */
static void test_terminal_restart(void **state)
{
    (void)state;
    struct hoop_run run;
    static const char script[] = "echo ready; read word; echo \"<$word>\"; exit 3";
    const int terminal =
        terminal_start(&run, (const char *const[]){hoop_run_program, "--max-restarts", "9", "sh",
                                                   "-c", script, NULL});
    assert_int_equal(write(terminal, "word\n", 5), 5);
    hoop_run_read(&run, "<word>\r\n", 1);
    hoop_run_read(&run, "ready\r\n", 2);
    terminal_wait(&run, false);
    assert_int_equal(write(terminal, "\003", 1), 1);
    assert_int_equal(hoop_run_end(&run), 128 + SIGINT);
    assert_says(run.out, "hooprun: starting all ranks again (1 of 9)\r\n");
    assert_int_equal(hoop_text_count(&run.out, "starting"), 1);
    hoop_run_finish(&run);
}

/* ---- No orphans ----------------------------------------------------------------------------- */

/* Children in the rank's group, in a session of their own, and without a living parent. */
#define FAMILY                                                                                     \
    "sleep %s & setsid sleep %s & (sleep %s & sleep %s) & (setsid sleep %s &) ; "                  \
    "echo ready; wait"

static void test_hooprun_killed(void **state)
{
    (void)state;
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    START(&run, "-n", "4", "sh", "-c", hoop_script_with(marker, FAMILY));
    hoop_run_read(&run, "ready\n", 4);
    assert_true(hoop_processes_with(marker) >= 4);
    kill(run.pid, SIGKILL);
    assert_int_equal(hoop_run_end(&run), 1000 + SIGKILL);
    hoop_assert_gone(marker);
    hoop_run_finish(&run);
}

/* Kills the process between hooprun and the ranks instead. */
static void test_keeper_killed(void **state)
{
    (void)state;
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    START(&run, "-n", "3", "sh", "-c", hoop_script_with(marker, "echo $PPID. >&2; " FAMILY));
    hoop_run_read(&run, "ready\n", 3);
    while (run.err.used == 0) {
        hoop_text_read(&run.err);
    }
    const long keeper = strtol(run.err.data, NULL, 10);
    assert_true(keeper > 1 && keeper != run.pid);
    kill((pid_t)keeper, SIGKILL);
    assert_int_equal(hoop_run_end(&run), 125);
    assert_says(run.err, "hooprun: its keeper process was killed by signal 9 (Killed)\n");
    hoop_assert_gone(marker);
    hoop_run_finish(&run);
}

/* A terminal that nobody reads holds up neither --timeout nor what comes after it. */
static void test_terminal_unread(void **state)
{
    (void)state;
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    const int64_t before = hoop_run_now_ms();
    (void)terminal_start(&run,
                         (const char *const[]){hoop_run_program, "-n", "2", "--tag-output",
                                               "--timeout", "0.5", "--grace", "0.5", "sh", "-c",
                                               hoop_script_with(marker, "yes & sleep %s"), NULL});
    int status = 0;
    while (waitpid(run.pid, &status, WNOHANG) == 0) {
        assert_true(hoop_run_now_ms() - before < HOOP_RUN_DEADLINE_MS);
        hoop_run_pause();
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 124);
    hoop_assert_gone(marker);
    run.pid = 0;
    hoop_run_finish(&run);
}

/* What a rank left behind learns that the job ends, also where it is no child of the rank's, and
 * has the grace time from then on. */
static void test_leftovers_learn(void **state)
{
    (void)state;
    struct hoop_run run;
    static const char deep[] =
        "(sh -c 'trap \"sleep 1; echo saved; exit 0\" TERM; echo here; while :; do sleep 0.01; "
        "done'; true) & sleep 0.3";
    static const char late[] =
        "if test $RANK = 0; then sleep 0.5; exit 1; fi; setsid sh -c 'trap \"sleep 1; echo saved; "
        "exit 0\" TERM; while :; do sleep 0.01; done' & trap 'sleep 1; exit 0' TERM; while :; do "
        "sleep 0.01; done";
    assert_int_equal(RUN(&run, "-n", "1", "--grace", "4", "sh", "-c", deep), 0);
    assert_says(run.out, "saved\n");
    hoop_run_finish(&run);
    assert_int_equal(RUN(&run, "-n", "2", "--grace", "1.7", "sh", "-c", late), 1);
    assert_says(run.out, "saved\n");
    hoop_run_finish(&run);
}

/* Processes that ranks leave behind after a good end are ended with the job. */
static void test_leftovers(void **state)
{
    (void)state;
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    assert_int_equal(RUN(&run, "-n", "2", "--tag-output", "sh", "-c",
                         hoop_script_with(marker, "setsid sleep %s & sleep %s & exit 0")),
                     0);
    assert_silent(run.err);
    hoop_assert_gone(marker);
    hoop_run_finish(&run);
}

int main(int argc, char **argv)
{
    if (!hoop_run_setup(argc, argv)) {
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signals_forwarded), cmocka_unit_test(test_second_interrupt_kills),
        cmocka_unit_test(test_stop_and_continue), cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_terminal_restart),  cmocka_unit_test(test_hooprun_killed),
        cmocka_unit_test(test_keeper_killed),     cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_leftovers_learn),   cmocka_unit_test(test_terminal_unread),
    };
    return cmocka_run_group_tests_name("hooprun signals", tests, NULL, NULL);
}
