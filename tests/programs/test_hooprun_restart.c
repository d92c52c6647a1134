/*
 * hooprun --max-restarts: when it starts the ranks again, what they are told then, and that
 * nothing of one attempt is left when the next begins. argv[1] is the built launcher.
 *
 * The scripts leave files in a folder, $BOX, that each test has for itself.
 */
#include "programs/hooprun_harness.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char box[] = "/tmp/hooprun-test-XXXXXX";

static int box_make(void **state)
{
    (void)state;
    memcpy(box + sizeof(box) - 7, "XXXXXX", 6);
    return mkdtemp(box) == NULL || setenv("BOX", box, 1) != 0;
}

static int box_remove(void **state)
{
    (void)state;
    DIR *folder = opendir(box);
    if (folder == NULL) {
        return -1;
    }
    struct dirent *entry = NULL;
    while ((entry = readdir(folder)) != NULL) {
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    return rmdir(box);
}

/* ---- Attempts ------------------------------------------------------------------------------- */

/* Rank 1 counts attempts in a file; the third succeeds. */
static void test_until_it_goes_well(void **state)
{
    (void)state;
    static const char script[] =
        "if test $RANK != 1; then test $HOOP_RESTART_COUNT = 2 || exec sleep 1000; "
        "exit 0; fi; for i in 0 1; do test -e $BOX/$i || { >$BOX/$i; exit 3; }; "
        "done; echo well";
    struct hoop_run run;
    assert_int_equal(RUN(&run, "-n", "3", "--max-restarts", "5", "sh", "-c", script), 0);
    assert_says(run.out, "well\n");
    assert_int_equal(hoop_text_count(&run.err, ") exited with code 3\n"), 2);
    assert_int_equal(hoop_text_count(&run.err, "hooprun: rank 1 (pid "), 2);
    assert_int_equal(
        hoop_text_count(&run.err, "hooprun: after rank 1, 0 more failed and 2 were stopped\n"), 2);
    assert_says(run.err, "hooprun: starting all ranks again (1 of 5)\n");
    assert_says(run.err, "hooprun: starting all ranks again (2 of 5)\n");
    assert_int_equal(hoop_text_count(&run.err, "starting"), 2);
    hoop_run_finish(&run);
}

/* The exit code is that of the last attempt. */
static void test_until_none_is_left(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(
        RUN(&run, "-n", "2", "--max-restarts=2", "sh", "-c", "exit $((10 + HOOP_RESTART_COUNT))"),
        12);
    assert_says(run.err, "hooprun: starting all ranks again (2 of 2)\n");
    assert_int_equal(hoop_text_count(&run.err, "starting"), 2);
    hoop_run_finish(&run);
    assert_int_equal(RUN(&run, "-n", "2", "--max-restarts=0", "false"), 1);
    assert_int_equal(hoop_text_count(&run.err, "starting"), 0);
    hoop_run_finish(&run);
}

static void test_signal_death(void **state)
{
    (void)state;
    static const char script[] = "test $HOOP_RESTART_COUNT = 1 && exit 0; "
                                 "test $RANK = 2 && kill -9 $$; exec sleep 1000";
    struct hoop_run run;
    assert_int_equal(RUN(&run, "-n", "3", "--max-restarts", "1", "sh", "-c", script), 0);
    assert_says(run.err, "hooprun: rank 2 (pid ");
    assert_says(run.err, ") was killed by signal 9 (Killed)\n");
    assert_says(run.err, "hooprun: starting all ranks again (1 of 1)\n");
    hoop_run_finish(&run);
}

static void test_no_need(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(RUN(&run, "-n", "3", "--max-restarts", "9", "true"), 0);
    assert_silent(run.err);
    hoop_run_finish(&run);
}

/* A missing program is not started again. */
static void test_no_use(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(RUN(&run, "-n", "3", "--max-restarts", "9", "/no/such/program"), 127);
    assert_string_equal(run.err.data,
                        "hooprun: cannot run '/no/such/program': No such file or directory\n");
    hoop_run_finish(&run);
}

/* Neither is one that the system can't start: hooprun in hooprun, with too few descriptors. */
static void test_no_descriptors(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(setenv("HOOPRUN", hoop_run_program, 1), 0);
    assert_int_equal(
        RUN(&run, "sh", "-c",
            "ulimit -n 24; exec $HOOPRUN -n 40 --tag-output --max-restarts 9 sleep 1000"),
        125);
    assert_says(run.err, " of 40: Too many open files (raise ulimit -n)\n");
    assert_int_equal(hoop_text_count(&run.err, "starting"), 0);
    hoop_run_finish(&run);
}

/* With --on-failure=wait all ranks end by themselves before the next attempt. */
static void test_wait(void **state)
{
    (void)state;
    static const char script[] =
        "if test $HOOP_RESTART_COUNT = 1; then test -e $BOX/1 && test -e $BOX/2; exit $?; fi; "
        "if test $RANK = 0; then echo $$ >$BOX/part; mv $BOX/part $BOX/pid; exit 4; fi; "
        "until test -e $BOX/pid; do sleep 0.01; done; "
        "while kill -0 $(cat $BOX/pid) 2>/dev/null; do sleep 0.01; done; >$BOX/$RANK";
    struct hoop_run run;
    assert_int_equal(
        RUN(&run, "-n", "3", "--on-failure=wait", "--max-restarts", "1", "sh", "-c", script), 0);
    assert_says(run.err, ") exited with code 4\n");
    assert_says(run.err, "hooprun: starting all ranks again (1 of 1)\n");
    assert_int_equal(hoop_text_count(&run.err, "stopped"), 0);
    hoop_run_finish(&run);
}

/* ---- What the ranks see --------------------------------------------------------------------- */

static void test_environment(void **state)
{
    (void)state;
    static const char script[] =
        "echo $HOOP_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS end; "
        "echo $HOOP_SECRET >>$BOX/secrets; echo $TORCHELASTIC_RUN_ID >>$BOX/ids; "
        "test $HOOP_RESTART_COUNT = 2 || exit 1; "
        "echo $(sort -u $BOX/secrets | wc -l) secrets, $(sort -u $BOX/ids | wc -l) id";
    struct hoop_run run;
    assert_int_equal(RUN(&run, "--max-restarts", "2", "sh", "-c", script), 0);
    assert_string_equal(run.out.data, "0 0 2 end\n1 1 2 end\n2 2 2 end\n3 secrets, 1 id\n");
    hoop_run_finish(&run);
}

/* An attempt goes on with the input where the one before stopped reading; output has tags and whole
 * lines as always. */
static void test_streams(void **state)
{
    (void)state;
    static const char script[] = "test $RANK = 1 || { read word; echo $word; }; "
                                 "printf \"$HOOP_RESTART_COUNT\"; "
                                 "test $RANK = 1 || exit $((1 - HOOP_RESTART_COUNT))";
    struct hoop_run run;
    hoop_run_start(&run, "one\ntwo\n",
                   (const char *const[]){"-n", "2", "--tag-output", "--max-restarts", "1", "sh",
                                         "-c", script, NULL});
    assert_int_equal(hoop_run_end(&run), 0);
    assert_says(run.out, "[0] one\n");
    assert_says(run.out, "[0] two\n");
    assert_says(run.out, "[0] 0\n");
    assert_says(run.out, "[0] 1\n");
    assert_says(run.out, "[1] 1\n");
    hoop_run_finish(&run);
}

/* If the reader of the output is gone, every attempt that writes fails. */
static void test_reader_gone(void **state)
{
    (void)state;
    struct hoop_run run;
    START(&run, "-n", "2", "--tag-output", "--max-restarts", "2", "sh", "-c",
          "while echo line; do :; done");
    hoop_run_read(&run, "line\n", 1);
    close(run.out.fd);
    run.out.fd = -1;
    assert_int_equal(hoop_run_end(&run), 128 + SIGPIPE);
    assert_says(run.err, "hooprun: starting all ranks again (2 of 2)\n");
    hoop_run_finish(&run);
}

/* What cannot be written now could not be written by the next attempt either. */
static void test_full_disk(void **state)
{
    (void)state;
    static const char script[] = "for i in 1 2 3; do echo x; sleep 0.1; done; exit 1";
    static const char full[] =
        "exec \"$0\" --max-restarts 3 --tag-output -n 2 sh -c \"$1\" >/dev/full";
    struct hoop_run run;
    assert_int_equal(RUN(&run, "sh", "-c", full, hoop_run_program, script), 125);
    assert_says(run.err, "cannot write to standard output");
    assert_int_equal(hoop_text_count(&run.err, "starting"), 0);
    hoop_run_finish(&run);
}

/* ---- Nothing is left ------------------------------------------------------------------------ */

/* Children that ignore SIGTERM, also in sessions of their own, and without a living parent. */
static void test_no_leftovers(void **state)
{
    (void)state;
    static const char script[] =
        "if test $HOOP_RESTART_COUNT = 1; then for p in $(cat $BOX/*); do "
        "kill -0 $p 2>/dev/null && echo left; done; echo looked; exit 0; fi; "
        "trap '' TERM; f=$BOX/$RANK; sleep %s & echo $$ $! >$f; "
        "setsid sh -c 'echo $$; exec sleep %s' >>$f & "
        "(setsid sh -c 'echo $$; exec sleep %s' >>$f &); "
        "until test $(wc -w <$f) = 4; do sleep 0.01; done; >$f.ready; "
        "until test -e $BOX/0.ready -a -e $BOX/1.ready -a -e $BOX/2.ready; do "
        "sleep 0.01; done; test $RANK = 0 && exit 3; wait";
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    assert_int_equal(RUN(&run, "-n", "3", "--grace=0.1", "--max-restarts", "1", "sh", "-c",
                         hoop_script_with(marker, script)),
                     0);
    assert_int_equal(hoop_text_count(&run.out, "looked\n"), 3);
    assert_int_equal(hoop_text_count(&run.out, "left\n"), 0);
    hoop_assert_gone(marker);
    hoop_run_finish(&run);
}

static void test_hooprun_killed(void **state)
{
    (void)state;
    static const char script[] = "test $HOOP_RESTART_COUNT = 1 || exit 1; sleep %s & "
                                 "setsid sleep %s & echo ready; wait";
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    START(&run, "-n", "3", "--max-restarts", "9", "sh", "-c", hoop_script_with(marker, script));
    hoop_run_read(&run, "ready\n", 3);
    kill(run.pid, SIGKILL);
    assert_int_equal(hoop_run_end(&run), 1000 + SIGKILL);
    hoop_assert_gone(marker);
    hoop_run_finish(&run);
}

/* ---- What else ends a job ------------------------------------------------------------------- */

/* Signals that end a job end it, although failures would lead to a restart. */
static void test_signals_end(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        static const char script[] =
            "trap 'exit 7' INT TERM HUP QUIT; test $HOOP_RESTART_COUNT = 2 || exit 1; "
            "echo ready; while :; do sleep 0.01; done";
        struct hoop_run run;
        START(&run, "-n", "3", "--max-restarts", "9", "sh", "-c", script);
        hoop_run_read(&run, "ready\n", 3);
        kill(run.pid, signals[i]);
        assert_int_equal(hoop_run_end(&run), 128 + signals[i]);
        assert_int_equal(hoop_text_count(&run.err, "starting"), 2);
        assert_int_equal(hoop_text_count(&run.err, "code 7"), 0);
        hoop_run_finish(&run);
    }
}

/* The same while a failed attempt is still ending: that is not waited for any more. */
static void test_signal_between(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        static const char script[] = "trap 'echo ending' TERM; if test $RANK = 1; then "
                                     "until test -e $BOX/ready; do sleep 0.01; done; rm "
                                     "$BOX/ready; exit 3; fi; >$BOX/ready; "
                                     "while :; do sleep 0.01; done";
        struct hoop_run run;
        START(&run, "-n", "2", "--grace", "1000", "--max-restarts", "9", "sh", "-c", script);
        hoop_run_read(&run, "ending\n", 1);
        kill(run.pid, signals[i]);
        assert_int_equal(hoop_run_end(&run), 128 + signals[i]);
        assert_says(run.err, ") exited with code 3\n");
        assert_int_equal(hoop_text_count(&run.err, "starting"), 0);
        hoop_run_finish(&run);
    }
}

/* All attempts share the time limit: the second has only what the first left. */
static void test_timeout(void **state)
{
    (void)state;
    static const char script[] = "test $HOOP_RESTART_COUNT = 1 || exit 1; exec sleep %s";
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    assert_int_equal(RUN(&run, "-n", "2", "--timeout", "1.5", "--max-restarts", "9", "sh", "-c",
                         hoop_script_with(marker, script)),
                     124);
    assert_says(run.err, "hooprun: the job did not end within 1.5 s: stopping it\n");
    assert_int_equal(hoop_text_count(&run.err, "(2 of 9)"), 0);
    hoop_assert_gone(marker);
    hoop_run_finish(&run);
}

/* If the time is over when the failed attempt has ended there is no other. */
static void test_timeout_between(void **state)
{
    (void)state;
    static const char script[] =
        "trap '' TERM; if test $RANK = 1; then "
        "until test -e $BOX/ready; do sleep 0.01; done; exit 3; fi; >$BOX/ready; "
        "while :; do sleep 0.01; done";
    struct hoop_run run;
    assert_int_equal(RUN(&run, "-n", "2", "--timeout", "0.3", "--grace", "0.6", "--max-restarts",
                         "9", "sh", "-c", script),
                     124);
    assert_says(run.err, "hooprun: the job did not end within 0.3 s: stopping it\n");
    assert_int_equal(hoop_text_count(&run.err, "starting"), 0);
    hoop_run_finish(&run);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, box_make, box_remove)

int main(int argc, char **argv)
{
    if (!hoop_run_setup(argc, argv)) {
        return 2;
    }
    const struct CMUnitTest tests[] = {
        TEST(test_until_it_goes_well),
        TEST(test_until_none_is_left),
        TEST(test_signal_death),
        TEST(test_no_need),
        TEST(test_no_use),
        TEST(test_no_descriptors),
        TEST(test_wait),
        TEST(test_environment),
        TEST(test_streams),
        TEST(test_reader_gone),
        TEST(test_full_disk),
        TEST(test_no_leftovers),
        TEST(test_hooprun_killed),
        TEST(test_signals_end),
        TEST(test_signal_between),
        TEST(test_timeout),
        TEST(test_timeout_between),
    };
    return cmocka_run_group_tests_name("hooprun restarts", tests, NULL, NULL);
}
