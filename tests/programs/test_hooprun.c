/*
 * hooprun as its users see it: the ranks' environment and streams, exit codes, messages, options,
 * tagged output. argv[1] is the built launcher. Signals and orphans are in test_hooprun_signals.c.
 */
#include "programs/hooprun_harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Environment ---------------------------------------------------------------------------- */

static void test_environment(void **state)
{
    (void)state;
    struct hoop_run run;
    static const char script[] =
        "echo $RANK $LOCAL_RANK $ROLE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $ROLE_WORLD_SIZE "
        "$GROUP_RANK $HOOP_LOCAL_SIZE $MASTER_ADDR end; "
        "test $MASTER_PORT -gt 1023 && test $MASTER_PORT -lt 65536 && "
        "test -n \"$TORCHELASTIC_RUN_ID\"";
    assert_int_equal(RUN(&run, "--tag-output", "-n", "3", "sh", "-c", script), 0);
    assert_silent(run.err);
    for (int rank = 0; rank < 3; rank++) {
        char line[128];
        snprintf(line, sizeof(line), "[%d] %d %d %d 3 3 3 0 3 127.0.0.1 end\n", rank, rank, rank,
                 rank);
        assert_says(run.out, line);
    }
    hoop_run_finish(&run);
}

static void test_secret(void **state)
{
    (void)state;
    char previous[65] = "";
    for (int i = 0; i < 2; i++) {
        struct hoop_run run;
        START(&run, "-n", "3", "sh", "-c",
              "echo $HOOP_SECRET; echo ready; trap 'exit 0' USR1; while :; do sleep 0.01; done");
        hoop_run_read(&run, "ready\n", 3);
        char secret[65];
        snprintf(secret, sizeof(secret), "%.64s", run.out.data);
        assert_int_equal(strspn(secret, "0123456789abcdef"), 64);
        assert_int_equal(hoop_text_count(&run.out, secret), 3);
        assert_string_not_equal(secret, previous);
        assert_int_equal(hoop_processes_with(secret), 0);
        memcpy(previous, secret, sizeof(secret));
        kill(run.pid, SIGUSR1);
        hoop_run_end(&run);
        hoop_run_finish(&run);
    }
}

static void test_stdin(void **state)
{
    (void)state;
    struct hoop_run run;
    hoop_run_start(
        &run, "words\n",
        (const char *const[]){"-n", "3", "--tag-output", "sh", "-c", "cat; echo end", NULL});
    assert_int_equal(hoop_run_end(&run), 0);
    assert_says(run.out, "[0] words\n");
    assert_int_equal(hoop_text_count(&run.out, "words"), 1);
    assert_int_equal(hoop_text_count(&run.out, "end\n"), 3);
    hoop_run_finish(&run);
}

/* ---- Failures ------------------------------------------------------------------------------- */

static void test_success_is_silent(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(RUN(&run, "true"), 0);
    assert_silent(run.out);
    assert_silent(run.err);
    hoop_run_finish(&run);
    assert_int_equal(RUN(&run, "-np", "64", "--", "true"), 0);
    assert_silent(run.err);
    hoop_run_finish(&run);
}

static void test_exit_code(void **state)
{
    (void)state;
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    assert_int_equal(RUN(&run, "-n4", "sh", "-c",
                         hoop_script_with(marker, "test $RANK = 2 && exit 3; exec sleep %s")),
                     3);
    assert_says(run.err, "hooprun: rank 2 (pid ");
    assert_says(run.err, ") exited with code 3\n");
    assert_says(run.err, "hooprun: after rank 2, 0 more failed and 3 were stopped\n");
    hoop_assert_gone(marker);
    hoop_run_finish(&run);
}

static void test_signal_death(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(
        RUN(&run, "--nproc-per-node", "3", "sh", "-c", "test $RANK = 1 && kill -9 $$; sleep 1000"),
        137);
    assert_says(run.err, "hooprun: rank 1 (pid ");
    assert_says(run.err, ") was killed by signal 9 (Killed)\n");
    hoop_run_finish(&run);
}

/* A rank that ignores SIGTERM, and has a child that does too, is killed after the grace period. */
static void test_grace(void **state)
{
    (void)state;
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    assert_int_equal(
        RUN(&run, "-n", "2", "--grace=0.2", "sh", "-c",
            hoop_script_with(marker, "trap '' TERM; test $RANK = 1 && exit 5; sleep %s & wait")),
        5);
    hoop_assert_gone(marker);
    hoop_run_finish(&run);
}

/* Rank 1 prints only after hooprun has reaped rank 0, and so knows of its failure. */
static void test_wait(void **state)
{
    (void)state;
    struct hoop_run run;
    char path[] = "/tmp/hooprun-test-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    char script[512];
    snprintf(script, sizeof(script),
             "f=%s; if test $RANK = 0; then echo $$ >$f; exit 4; fi; until test -s $f; do "
             "sleep 0.01; done; while kill -0 $(cat $f) 2>/dev/null; do sleep 0.01; done; "
             "echo survived; test $RANK = 1 || exit 6",
             path);
    assert_int_equal(RUN(&run, "-n", "3", "--on-failure=wait", "sh", "-c", script), 4);
    assert_int_equal(hoop_text_count(&run.out, "survived\n"), 2);
    assert_says(run.err, "hooprun: rank 0 (pid ");
    assert_says(run.err, "hooprun: after rank 0, 1 more failed and 0 were stopped\n");
    unlink(path);
    hoop_run_finish(&run);
}

static void test_cannot_run(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(RUN(&run, "-n", "5", "/no/such/program"), 127);
    assert_int_equal(run.err.used,
                     strlen("hooprun: cannot run '/no/such/program': No such file or directory\n"));
    assert_says(run.err, "hooprun: cannot run '/no/such/program': No such file or directory\n");
    hoop_run_finish(&run);
    assert_int_equal(RUN(&run, "-n", "2", "--on-failure", "wait", "/"), 126);
    assert_says(run.err, "hooprun: cannot run '/': Permission denied; it is a directory\n");
    hoop_run_finish(&run);
    assert_int_equal(RUN(&run, "sh", "-c", "exit 127"), 127);
    assert_says(run.err, ") exited with code 127\n");
    hoop_run_finish(&run);
}

static void test_timeout(void **state)
{
    (void)state;
    struct hoop_run run;
    const char *marker = hoop_marker_new();
    assert_int_equal(
        RUN(&run, "-n", "2", "--timeout", "0.2", "sh", "-c", hoop_script_with(marker, "sleep %s")),
        124);
    assert_says(run.err, "hooprun: the job did not end within 0.2 s: stopping it\n");
    hoop_assert_gone(marker);
    hoop_run_finish(&run);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *words[4];
        const char *says;
    } cases[] = {
        {{"-n", "0", "true"}, "-n '0': expected a number of ranks from 1 to "},
        {{"-n", "abc", "true"}, "-n 'abc': expected a number of ranks"},
        {{"-n", "100000", "true"}, "-n '100000': expected a number of ranks"},
        {{"-n", "-2", "true"}, "-n '-2': expected"},
        {{"-n", "99999999999999999999", "true"}, "expected a number of ranks"},
        {{"-n4x", "true"}, "'4x': expected"},
        {{"-n"}, "-n: expected a number of ranks"},
        {{"--nproc-per-node=", "true"}, "--nproc-per-node '': expected"},
        {{"--on-failure=stop", "true"}, "--on-failure 'stop': expected kill or wait"},
        {{"--grace", "-1", "true"}, "--grace '-1': expected seconds"},
        {{"--grace", "nan", "true"}, "--grace 'nan': expected seconds"},
        {{"--grace", "31536001", "true"},
         "--grace '31536001': expected seconds from 0 to 31536000"},
        {{"--timeout", "0", "true"}, "--timeout '0': expected seconds, more than 0"},
        {{"--tag", "true"}, "unknown option '--tag'"},
        {{"--tag-output=1", "true"}, "--tag-output=1: expected no value"},
        {{"--tag_output", "-n", "2"}, "expected a program"},
        {{"-n", "2"}, "expected a program"},
        {{"-n", "2", "--"}, "expected a program"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hoop_run run;
        assert_int_equal(hoop_run_all(&run, cases[i].words), 2);
        assert_says(run.err, "hooprun: ");
        assert_says(run.err, cases[i].says);
        assert_silent(run.out);
        hoop_run_finish(&run);
    }
}

static void test_help(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(RUN(&run, "--help"), 0);
    assert_says(run.out, "usage: hooprun ");
    hoop_run_finish(&run);
    assert_int_equal(RUN(&run, "--version"), 0);
    assert_says(run.out, "hooprun ");
    hoop_run_finish(&run);
    static const char lost[] = "exec \"$0\" --help >/dev/full";
    assert_int_equal(RUN(&run, "sh", "-c", lost, hoop_run_program), 125);
    assert_says(run.err, "cannot write to standard output");
    hoop_run_finish(&run);
}

/* Ranks inherit that there is no standard output. */
static void test_closed_output(void **state)
{
    (void)state;
    struct hoop_run run;
    static const char lost[] = "exec \"$0\" sh -c '[ ! -e /proc/self/fd/1 ]' >&-";
    assert_int_equal(RUN(&run, "sh", "-c", lost, hoop_run_program), 0);
    hoop_run_finish(&run);
    static const char tagged[] = "exec \"$0\" --tag-output echo lost >&-";
    assert_int_equal(RUN(&run, "sh", "-c", tagged, hoop_run_program), 125);
    assert_says(run.err, "cannot write to standard output: Bad file descriptor");
    hoop_run_finish(&run);
    /* Both are the null device then, and what is said is lost as the user wants. */
    static const char silent[] = "exec \"$0\" sh -c 'exit 3' >&- 2>&-";
    assert_int_equal(RUN(&run, "sh", "-c", silent, hoop_run_program), 3);
    hoop_run_finish(&run);
}

/* ---- Tagged output -------------------------------------------------------------------------- */

#define TAGGED_RANKS 8
#define TAGGED_LINES 400

/* Lines are "[rank] rank number xxxx", with number % 97 times the letter x. */
static void assert_lines_whole(const struct hoop_text *text)
{
    int next[TAGGED_RANKS] = {0};
    const char *at = text->data;
    while (at < text->data + text->used) {
        int tag = -1;
        int rank = -1;
        int number = -1;
        int length = 0;
        assert_int_equal(sscanf(at, "[%d] %d %d %n", &tag, &rank, &number, &length), 3);
        assert_int_equal(tag, rank);
        assert_in_range(rank, 0, TAGGED_RANKS - 1);
        assert_int_equal(number, next[rank]++);
        const size_t filler = strspn(at + length, "x");
        assert_int_equal(filler, number % 97);
        at += (size_t)length + filler;
        /* White space in sscanf also matches the end of a line that has no x. */
        if (filler > 0) {
            assert_int_equal(*at++, '\n');
        }
    }
    for (int i = 0; i < TAGGED_RANKS; i++) {
        assert_int_equal(next[i], TAGGED_LINES);
    }
}

static void test_tag_lines_whole(void **state)
{
    (void)state;
    struct hoop_run run;
    const char *script =
        "exec awk -v r=$RANK 'BEGIN { x = sprintf(\"%96s\", \"\"); gsub(/ /, \"x\", x); "
        "for (i = 0; i < 400; i++) { l = r \" \" i \" \" substr(x, 1, i % 97); print l; "
        "fflush(); printf \"%s\\n\", l > \"/dev/stderr\" } }'";
    assert_int_equal(RUN(&run, "-n", "8", "--tag-output", "sh", "-c", script), 0);
    assert_lines_whole(&run.out);
    assert_lines_whole(&run.err);
    hoop_run_finish(&run);
}

static void test_tag_odd_lines(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(RUN(&run, "-n", "2", "--tag-output", "sh", "-c",
                         "printf '\\n'; printf 'a\\000\\377b\\n'; printf 'no end'"),
                     0);
    for (int rank = 0; rank < 2; rank++) {
        char empty[8];
        char binary[16];
        snprintf(empty, sizeof(empty), "[%d] \n", rank);
        assert_says(run.out, empty);
        const int length = snprintf(binary, sizeof(binary), "[%d] a", rank);
        const char *at = memmem(run.out.data, run.out.used, binary, (size_t)length);
        assert_non_null(at);
        assert_memory_equal(at + length, "\0\377b\n", 4);
    }
    assert_says(run.out, "[0] no end\n");
    assert_says(run.out, "[1] no end\n");
    hoop_run_finish(&run);
}

/* A line over the limit arrives complete, cut into several tagged lines. */
static void test_tag_long_line(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(RUN(&run, "-n", "2", "--tag-output", "sh", "-c",
                         "head -c 3000000 /dev/zero | tr '\\0' x; echo"),
                     0);
    size_t filler = 0;
    for (size_t i = 0; i < run.out.used; i++) {
        filler += run.out.data[i] == 'x';
    }
    assert_int_equal(filler, 6000000);
    assert_int_equal(hoop_text_count(&run.out, "[0] x"), 3);
    assert_int_equal(hoop_text_count(&run.out, "x\n"), 6);
    hoop_run_finish(&run);
}

int main(int argc, char **argv)
{
    if (!hoop_run_setup(argc, argv)) {
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment),   cmocka_unit_test(test_secret),
        cmocka_unit_test(test_stdin),         cmocka_unit_test(test_success_is_silent),
        cmocka_unit_test(test_exit_code),     cmocka_unit_test(test_signal_death),
        cmocka_unit_test(test_grace),         cmocka_unit_test(test_wait),
        cmocka_unit_test(test_cannot_run),    cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_bad_arguments), cmocka_unit_test(test_help),
        cmocka_unit_test(test_closed_output), cmocka_unit_test(test_tag_lines_whole),
        cmocka_unit_test(test_tag_odd_lines), cmocka_unit_test(test_tag_long_line),
    };
    return cmocka_run_group_tests_name("hooprun", tests, NULL, NULL);
}
