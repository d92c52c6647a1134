/*
 * hooprun for a job on several machines: what the ranks of each are told, where their secret comes
 * from, and what is refused. argv[1] is the built launcher. Each machine is a run of hooprun here,
 * one after the other; they do not communicate.
 */
#include "programs/hooprun_harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECRET "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed"
#define SECRET_OTHER "0dd50dd50dd50dd50dd50dd50dd50dd50dd50dd50dd50dd50dd50dd50dd50dd5"

/* Sets a variable of hooprun's environment; NULL: unsets it. */
static void variable_set(const char *name, const char *value)
{
    assert_int_equal(value == NULL ? unsetenv(name) : setenv(name, value, 1), 0);
}

static int secrets_clear(void **state)
{
    (void)state;
    variable_set("HOOP_SECRET", NULL);
    variable_set("HOOP_SECRET_FILE", NULL);
    variable_set("HOOP_INSECURE", NULL);
    return 0;
}

/* ---- Environment ---------------------------------------------------------------------------- */

static const char show[] =
    "echo $RANK $LOCAL_RANK $ROLE_RANK / $WORLD_SIZE $LOCAL_WORLD_SIZE $ROLE_WORLD_SIZE / "
    "$GROUP_RANK $NODE_RANK $GROUP_WORLD_SIZE / $HOOP_LOCAL_SIZE $HOOP_RESTART_COUNT "
    "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS end; "
    "echo at $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_RUN_ID end";

#define LOCAL_RANKS 3

/* Expects the lines of machine `node` of `nodes`. */
static void assert_shown(const struct hoop_run *run, int nodes, int node)
{
    const int world = nodes * LOCAL_RANKS;
    for (int i = 0; i < LOCAL_RANKS; i++) {
        const int rank = node * LOCAL_RANKS + i;
        char line[128];
        (void)snprintf(line, sizeof(line), "%d %d %d / %d %d %d / %d %d %d / %d 0 0 0 end\n", rank,
                       i, rank, world, LOCAL_RANKS, world, node, node, nodes, LOCAL_RANKS);
        assert_says(run->out, line);
    }
    assert_int_equal(hoop_text_count(&run->out, " end\n"), 2 * LOCAL_RANKS);
}

static void test_environment(void **state)
{
    (void)state;
    variable_set("HOOP_SECRET", SECRET);
    for (int nodes = 1; nodes <= 3; nodes++) {
        for (int node = 0; node < nodes; node++) {
            struct hoop_run run;
            char count[8];
            char number[8];
            (void)snprintf(count, sizeof(count), "%d", nodes);
            (void)snprintf(number, sizeof(number), "%d", node);
            assert_int_equal(RUN(&run, "--nnodes", count, "--node-rank", number, "-n", "3",
                                 "--master-addr", "fe80::1%eth0", "sh", "-c", show),
                             0);
            assert_silent(run.err);
            assert_shown(&run, nodes, node);
            assert_int_equal(hoop_text_count(&run.out, "at fe80::1%eth0 "), LOCAL_RANKS);
            if (nodes > 1) {
                assert_int_equal(hoop_text_count(&run.out, " 29500 none end\n"), LOCAL_RANKS);
            }
            hoop_run_finish(&run);
        }
    }
}

/* torchrun's options, also for one machine. */
static void test_names_of_torchrun(void **state)
{
    (void)state;
    struct hoop_run run;
    assert_int_equal(RUN(&run, "--nnodes=1", "--node_rank=0", "--nproc_per_node=3",
                         "--master_addr=node0", "--master_port=1234", "--max_restarts=0", "sh",
                         "-c", show),
                     0);
    assert_shown(&run, 1, 0);
    assert_int_equal(hoop_text_count(&run.out, "at node0 1234 "), 3);
    assert_int_equal(hoop_text_count(&run.out, "none"), 0);
    hoop_run_finish(&run);
}

/* Ranks are shown with their number in the job; only rank 0 has an input. */
static void test_ranks_named(void **state)
{
    (void)state;
    struct hoop_run run;
    variable_set("HOOP_INSECURE", "1");
    hoop_run_start(
        &run, "words\n",
        (const char *const[]){"--nnodes", "2", "--node-rank", "1", "--master-addr", "a", "-n", "2",
                              "--tag-output", "sh", "-c",
                              "cat; echo read; test $RANK = 2 || exit 7; exec sleep 1000", NULL});
    assert_int_equal(hoop_run_end(&run), 7);
    assert_int_equal(hoop_text_count(&run.out, "words"), 0);
    assert_says(run.out, "[3] read\n");
    assert_says(run.err, "hooprun: rank 3 (pid ");
    assert_says(run.err, "hooprun: after rank 3, 0 more failed and 1 were stopped\n");
    hoop_run_finish(&run);
}

/* The other ranks on a machine get a moment to tell other machines which rank failed. */
static void test_time_for_the_news(void **state)
{
    (void)state;
    struct hoop_run run;
    char script[256], path[] = "/tmp/hooprun-test-XXXXXX";
    close(mkstemp(path));
    (void)snprintf(script, sizeof(script),
                   "if test $RANK = 2; then rm %s; sleep 0.02; echo news; exec sleep 1000; fi\n"
                   "while test -e %s; do sleep 0.01; done; exit 7",
                   path, path);
    variable_set("HOOP_INSECURE", "1");
    assert_int_equal(RUN(&run, "--nnodes", "2", "--node-rank", "1", "--master-addr", "a", "-n", "2",
                         "sh", "-c", script),
                     7);
    assert_says(run.out, "news\n");
    assert_says(run.err, "hooprun: after rank 3, 0 more failed and 1 were stopped\n");
    hoop_run_finish(&run);
}

/* What tells the other machines that the program cannot run ends with the job's time, too. */
static void test_time_to_tell(void **state)
{
    (void)state;
    struct hoop_run run;
    variable_set("HOOP_INSECURE", "1");
    assert_int_equal(RUN(&run, "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1",
                         "-n", "2", "--timeout", "0.2", "--grace", "0.1", "/no/such/program"),
                     127);
    assert_says(run.err, "hooprun: the job did not end within 0.2 s: stopping it\n");
    hoop_run_finish(&run);
}

/* ---- Secrets -------------------------------------------------------------------------------- */

static void test_secret_passed_on(void **state)
{
    (void)state;
    char path[] = "/tmp/hooprun-test-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    const struct {
        const char *secret, *file, *insecure, *option; /* what hooprun is given */
        const char *shows;                             /* what the ranks get then */
    } cases[] = {
        {SECRET, NULL, NULL, NULL, "<" SECRET "><><>\n"},
        {NULL, "some file", NULL, NULL, "<><some file><>\n"},
        {NULL, NULL, "1", NULL, "<><><1>\n"},
        {SECRET, "some file", NULL, NULL, "<" SECRET "><some file><>\n"},
        {SECRET, "some file", "1", path, NULL},
        {NULL, NULL, NULL, path, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char from_option[64];
        (void)snprintf(from_option, sizeof(from_option), "<><%s><%s>\n", path,
                       cases[i].insecure == NULL ? "" : cases[i].insecure);
        variable_set("HOOP_SECRET", cases[i].secret);
        variable_set("HOOP_SECRET_FILE", cases[i].file);
        variable_set("HOOP_INSECURE", cases[i].insecure);
        struct hoop_run run;
        static const char script[] = "echo \"<$HOOP_SECRET><$HOOP_SECRET_FILE><$HOOP_INSECURE>\"";
        if (cases[i].option == NULL) {
            assert_int_equal(RUN(&run, "--nnodes", "2", "--node-rank", "1", "--master-addr", "a",
                                 "-n", "2", "sh", "-c", script),
                             0);
        } else {
            assert_int_equal(RUN(&run, "--nnodes", "2", "--node-rank", "0", "--master-addr", "a",
                                 "-n", "2", "--secret-file", cases[i].option, "sh", "-c", script),
                             0);
        }
        const char *shows = cases[i].shows == NULL ? from_option : cases[i].shows;
        assert_int_equal(hoop_text_count(&run.out, shows), 2);
        assert_silent(run.err);
        hoop_run_finish(&run);
    }
    unlink(path);
}

/* A job on one machine gets a secret of its own, unless it is given a file. */
static void test_secret_of_one_machine(void **state)
{
    (void)state;
    struct hoop_run run;
    static const char script[] = "echo \"<$HOOP_SECRET><$HOOP_SECRET_FILE>\"";
    variable_set("HOOP_SECRET", SECRET);
    variable_set("HOOP_SECRET_FILE", "some file");
    assert_int_equal(RUN(&run, "sh", "-c", script), 0);
    assert_int_equal(run.out.used, 64 + strlen("<><>\n"));
    assert_int_equal(hoop_text_count(&run.out, SECRET), 0);
    hoop_run_finish(&run);
    assert_int_equal(RUN(&run, "--secret-file", "/dev/null", "sh", "-c", script), 0);
    assert_says(run.out, "<></dev/null>\n");
    hoop_run_finish(&run);
    /* The program may change its directory before it joins. */
    static const char up[] = "../../../../../../../../../../../../../../../../dev/null";
    assert_int_equal(RUN(&run, "--secret-file", up, "sh", "-c", script), 0);
    assert_says(run.out, "<></dev/null>\n");
    hoop_run_finish(&run);
}

/* Neither hooprun's processes nor the ranks show the secret to other users of the machine. */
static void test_secret_unseen(void **state)
{
    (void)state;
    static const char script[] =
        "test $HOOP_RESTART_COUNT = 1 || exit 1; echo \"got $HOOP_SECRET\"; "
        "trap 'exit 0' USR1; while :; do sleep 0.01; done";
    struct hoop_run run;
    variable_set("HOOP_SECRET", SECRET_OTHER);
    START(&run, "--nnodes", "2", "--node-rank", "0", "--master-addr", "a", "-n", "2",
          "--max-restarts", "1", "sh", "-c", script);
    hoop_run_read(&run, "got " SECRET_OTHER "\n", 2);
    assert_int_equal(hoop_processes_with(SECRET_OTHER), 0);
    kill(run.pid, SIGUSR1);
    hoop_run_end(&run);
    assert_int_equal(hoop_text_count(&run.err, SECRET_OTHER), 0);
    hoop_run_finish(&run);
}

/* ---- Refusals ------------------------------------------------------------------------------- */

#define NO_SECRET                                                                                  \
    "hooprun: --nnodes 2: expected a secret that all machines share: make a file with it by "      \
    "`(umask 077; openssl rand -hex 32 > FILE)`, copy it to every machine and say "                \
    "--secret-file FILE there, or set HOOP_SECRET_FILE=FILE; or, where everybody on the network "  \
    "is trusted, set HOOP_INSECURE=1\n"

static void test_secret_missing(void **state)
{
    (void)state;
    static const char *const insecure[] = {NULL, "", "0", "yes", "11"};
    for (size_t i = 0; i < sizeof(insecure) / sizeof(insecure[0]); i++) {
        struct hoop_run run;
        variable_set("HOOP_SECRET", i == 0 ? NULL : "");
        variable_set("HOOP_SECRET_FILE", i == 0 ? NULL : "");
        variable_set("HOOP_INSECURE", insecure[i]);
        assert_int_equal(
            RUN(&run, "--nnodes", "2", "--node-rank", "0", "--master-addr", "a", "echo", "ran"), 2);
        assert_string_equal(run.err.data, NO_SECRET);
        assert_silent(run.out);
        hoop_run_finish(&run);
    }
}

#define LONG_63 "abcdefghijklmnopqrstuvwxyz.abcdefghijklmnopqrstuvwxyz.abcdefghi"
#define LONG_256 LONG_63 "." LONG_63 "." LONG_63 "." LONG_63 "."

static void test_bad_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *words[10];
        const char *says;
    } cases[] = {
        {{"--nnodes", "0", "true"}, "--nnodes '0': expected a number of machines from 1 to 4096"},
        {{"--nnodes", "1:2", "true"},
         "--nnodes '1:2': expected a number of machines from 1 to 4096"},
        {{"--nnodes"}, "--nnodes: expected a number of machines from 1 to 4096 after it"},
        {{"--nnodes", "2", "true"},
         "--nnodes 2: expected --node-rank too, the number of this machine from 0 to 1"},
        {{"--nnodes", "2", "--node-rank", "1", "true"},
         "--nnodes 2: expected --master-addr too, where the others reach machine 0"},
        {{"--nnodes", "2", "--node-rank", "2", "--master-addr", "a", "true"},
         "--node-rank 2: expected less than --nnodes, which is 2"},
        {{"--node-rank", "1", "true"}, "--node-rank 1: expected less than --nnodes, which is 1"},
        {{"--node-rank", "-1", "true"},
         "--node-rank '-1': expected the number of this machine, 0 or more"},
        {{"--node-rank=4096", "true"},
         "--node-rank '4096': expected the number of this machine, 0 or more"},
        {{"--nnodes", "2", "--node-rank", "0", "--master-addr", "a", "-n", "2049", "true"},
         "--nnodes 2 and -n 2049 make 4098 ranks: expected at most 4096"},
        {{"--nnodes", "4096", "-n", "4096", "true"},
         "--nnodes 4096 and -n 4096 make 16777216 ranks: expected at most 4096"},
        {{"--master-addr=", "true"}, "--master-addr '': expected a host name or an address"},
        {{"--master-addr", "a b", "true"},
         "--master-addr 'a b': expected a host name or an address"},
        {{"--master-addr", LONG_256, "true"}, "': expected a host name or an address"},
        {{"--master-port", "0", "true"}, "--master-port '0': expected a port from 1 to 65535"},
        {{"--master-port=65536", "true"}, "--master-port '65536': expected a port from 1 to 65535"},
        {{"--master-port=http", "true"}, "--master-port 'http': expected a port from 1 to 65535"},
        {{"--max-restarts", "-1", "true"},
         "--max-restarts '-1': expected a number from 0 to 1000000"},
        {{"--max-restarts=1000001", "true"},
         "--max-restarts '1000001': expected a number from 0 to 1000000"},
        {{"--secret-file=", "true"}, "--secret-file '': expected the name of a file"},
        {{"--secret-file", "/no/such/file", "true"},
         "--secret-file '/no/such/file': No such file or directory"},
        {{"--secret=" SECRET, "true"}, "unknown option '--secret=" SECRET "'"},
        {{"-_nnodes=1", "true"}, "unknown option '-_nnodes=1'"},
        {{"--nnodes", "2", "--node-rank", "0", "--master-addr", "a"}, "expected a program to run"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hoop_run run;
        assert_int_equal(hoop_run_all(&run, cases[i].words), 2);
        assert_int_equal(hoop_text_count(&run.err, "\n"), 1);
        assert_says(run.err, "hooprun: ");
        assert_says(run.err, cases[i].says);
        assert_silent(run.out);
        hoop_run_finish(&run);
    }
}

static void test_help(void **state)
{
    (void)state;
    static const char *const options[] = {"--nnodes N ",         "--node-rank R ",
                                          "--master-addr HOST ", "--master-port PORT ",
                                          "--max-restarts K ",   "--secret-file FILE "};
    struct hoop_run run;
    assert_int_equal(RUN(&run, "--help"), 0);
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        assert_says(run.out, options[i]);
    }
    assert_says(run.out, "(default 29500)");
    hoop_run_finish(&run);
}

int main(int argc, char **argv)
{
    if (!hoop_run_setup(argc, argv)) {
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_environment, secrets_clear),
        cmocka_unit_test_setup(test_names_of_torchrun, secrets_clear),
        cmocka_unit_test_setup(test_ranks_named, secrets_clear),
        cmocka_unit_test_setup(test_time_for_the_news, secrets_clear),
        cmocka_unit_test_setup(test_time_to_tell, secrets_clear),
        cmocka_unit_test_setup(test_secret_passed_on, secrets_clear),
        cmocka_unit_test_setup(test_secret_of_one_machine, secrets_clear),
        cmocka_unit_test_setup(test_secret_unseen, secrets_clear),
        cmocka_unit_test_setup(test_secret_missing, secrets_clear),
        cmocka_unit_test_setup(test_bad_arguments, secrets_clear),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests_name("hooprun nodes", tests, NULL, NULL);
}
