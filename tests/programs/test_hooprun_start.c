/*
 * How hooprun and its ranks start: what they inherit, what hooprun adds, what it says about
 * programs that can't be run, and who else may run the same part of a job. argv[1] is the built
 * launcher.
 */
#include "harness/sanitizer.h"
#include "programs/hooprun_harness.h"

#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

/* ---- Signals -------------------------------------------------------------------------------- */

/* If hooprun is started with SIGCHLD ignored it still notices that its children end. */
static void test_children_ignored(void **state)
{
    (void)state;
    struct hoop_run run;
    hoop_run_ignored = SIGCHLD;
    assert_int_equal(RUN(&run, "-n", "2", "sh", "-c", "sleep 0; (exit 3); exit $?"), 3);
    hoop_run_finish(&run);
    hoop_run_ignored = 0;
}

/* With nohup or `sh &` the signals are ignored: the job goes on to its own end. */
static void test_ignored_signals(void **state)
{
    (void)state;
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    static const char script[] = "echo ready; if test $HOOP_RESTART_COUNT = 1; then exit 0; fi; "
                                 "sleep 0.3; exit 4";
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct hoop_run run;
        hoop_run_ignored = signals[i];
        hoop_run_start(
            &run, "",
            (const char *const[]){"-n", "2", "--max-restarts", "1", "sh", "-c", script, NULL});
        hoop_run_read(&run, "ready\n", 2);
        kill(run.pid, signals[i]);
        assert_int_equal(hoop_run_end(&run), 0);
        assert_says(run.err, "hooprun: starting all ranks again (1 of 1)\n");
        hoop_run_finish(&run);
    }
    hoop_run_ignored = 0;
}

/* The ranks ignore it as well. */
static void test_ignored_by_ranks(void **state)
{
    (void)state;
    struct hoop_run run;
    hoop_run_ignored = SIGHUP;
    assert_int_equal(RUN(&run, "-n", "2", "sh", "-c", "kill -HUP $$; echo alive"), 0);
    assert_int_equal(hoop_text_count(&run.out, "alive\n"), 2);
    hoop_run_finish(&run);
    hoop_run_ignored = 0;
}

/* ---- Process 1 of a container --------------------------------------------------------------- */

/* Runs a shell that makes namespaces. If it ends with 77 it can't, and the test is skipped. */
static void run_shell(struct hoop_run *run, const char *script)
{
    const char *saved = hoop_run_program;
    hoop_run_program = "/bin/sh";
    const int code = RUN(run, "-c", script);
    hoop_run_program = saved;
    if (code == 77) {
        hoop_run_finish(run);
        print_message("skipped: no namespace of processes can be made here\n");
        skip();
    }
    assert_int_equal(code, 0);
}

/* As process 1 of a container: processes that end there after their parent, as after `docker exec`,
 * must not stay zombies. */
static void test_process_one(void **state)
{
    (void)state;
    static const char mask[] =
        "unshare --pid --fork --mount-proc true 2>/dev/null || exit 77; "
        "unshare --pid --fork --mount-proc sh -c '(sleep 0.2 & sleep 0.1) & exec %s -n 1 "
        "sh -c \"sleep 0.6; grep -l Z..zombie /proc/[0-9]*/status | wc -l\"'";
    struct hoop_run run;
    char script[1024];
    (void)snprintf(script, sizeof(script), mask, hoop_run_program);
    run_shell(&run, script);
    assert_string_equal(run.out.data, "0\n");
    hoop_run_finish(&run);
}

/*
 * Processes that ranks leave behind are found without /proc, and with a /proc of another namespace,
 * whose numbers differ. The shell is process 1: it outlives hooprun, and would be left with the
 * sleep.
 */
static void test_no_proc(void **state)
{
    (void)state;
    static const char *const mounts[] = {"true", "mount -t tmpfs none /proc"};
    static const char mask[] =
        "unshare --mount --pid --fork true 2>/dev/null || exit 77; unshare --mount --pid --fork "
        "sh -c '%s; true & wait; export LD_LIBRARY_PATH=%.*s/..; "
        "%s -n 1 sh -c \"setsid sleep %s & exit 0\"; echo $?'";
    if (!MEMORY_IS_PLAIN) {
        print_message("skipped: sanitizers need a /proc of their own\n");
        skip();
    }
    const char *program = hoop_run_program;
    const int folder = (int)(strrchr(program, '/') - program);
    for (size_t i = 0; i < 2; i++) {
        struct hoop_run run;
        char script[1024];
        (void)snprintf(script, sizeof(script), mask, mounts[i], folder, program, program,
                       hoop_marker_new());
        run_shell(&run, script);
        assert_silent(run.err);
        assert_string_equal(run.out.data, "0\n");
        hoop_run_finish(&run);
    }
}

/* ---- What the ranks find -------------------------------------------------------------------- */

static void test_threads_of_ranks(void **state)
{
    (void)state;
    static const char script[] = "echo \"<$OMP_NUM_THREADS>\"";
    struct hoop_run run;
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
    assert_int_equal(RUN(&run, "-n", "2", "sh", "-c", script), 0);
    assert_string_equal(run.out.data, "<1>\n<1>\n");
    assert_silent(run.err);
    hoop_run_finish(&run);
    assert_int_equal(RUN(&run, "-n", "1", "sh", "-c", script), 0);
    assert_string_equal(run.out.data, "<>\n");
    hoop_run_finish(&run);
    assert_int_equal(setenv("OMP_NUM_THREADS", "7", 1), 0);
    assert_int_equal(RUN(&run, "-n", "2", "sh", "-c", script), 0);
    assert_string_equal(run.out.data, "<7>\n<7>\n");
    hoop_run_finish(&run);
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
}

static void test_bound(void **state)
{
    (void)state;
    static const char script[] = "taskset -cp $$ | sed 's/.* //'; echo \"<$OMP_NUM_THREADS>\"";
    struct hoop_run run;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(RUN(&run, "-n", "2", "--bind-to", "core", "sh", "-c", script), 0);
    assert_int_equal(hoop_text_count(&run.out, "<1>\n"), 2);
    assert_int_equal(hoop_text_count(&run.out, "\n"), 4);
    assert_null(strpbrk(run.out.data, ",-")); /* a single CPU */
    hoop_run_finish(&run);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(RUN(&run, "-n", "2", "--bind-to=none", "true"), 0);
    hoop_run_finish(&run);
    assert_int_equal(RUN(&run, "--bind-to", "socket", "true"), 2);
    assert_says(run.err, "hooprun: --bind-to 'socket': expected none or core\n");
    hoop_run_finish(&run);
}

static void test_open_files(void **state)
{
    (void)state;
    struct hoop_run run;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlim_t most = before.rlim_max < (1u << 20) ? before.rlim_max : 1u << 20;
    const struct rlimit low = {.rlim_cur = 256, .rlim_max = before.rlim_max};
    char line[64];
    (void)snprintf(line, sizeof(line), "%llu\n", (unsigned long long)most);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(setenv("HOOP_DEBUG", "info", 1), 0);
    assert_int_equal(RUN(&run, "-n", "2", "sh", "-c", "ulimit -n"), 0);
    assert_int_equal(hoop_text_count(&run.out, line), 2);
    (void)snprintf(line, sizeof(line), "hooprun: limit of open files raised from 256 to %llu\n",
                   (unsigned long long)most);
    assert_says(run.err, line);
    assert_says(run.err, "hooprun: OMP_NUM_THREADS is set to 1 for 2 ranks on this machine\n");
    hoop_run_finish(&run);
    assert_int_equal(unsetenv("HOOP_DEBUG"), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- Programs that cannot be run ------------------------------------------------------------ */

static void test_did_you_mean(void **state)
{
    (void)state;
    static const struct {
        const char *file, *program, *says;
        mode_t mode;
    } cases[] = {
        {"train.py", "train.py",
         "cannot run 'train.py': No such file or directory; did you mean python3 train.py or "
         "./train.py?\n",
         0755},
        {"train.py", "train.py",
         "cannot run 'train.py': No such file or directory; did you mean python3 train.py?\n",
         0644},
        {"train.py", "./train.py",
         "cannot run './train.py': Permission denied; did you mean python3 ./train.py?\n", 0644},
        {"train", "train", "cannot run 'train': No such file or directory; did you mean ./train?\n",
         0755},
        {"train", "trian", "cannot run 'trian': No such file or directory\n", 0755},
        {"train", "./train",
         "cannot run './train': Permission denied; it is not executable (chmod +x)\n", 0644},
        {"train", "./", "cannot run './': Permission denied; it is a directory\n", 0755},
    };
    char directory[] = "/tmp/hooprun-test-XXXXXX";
    char *program = realpath(hoop_run_program, NULL);
    const char *saved = hoop_run_program;
    char *back = getcwd(NULL, 0);
    assert_non_null(program);
    assert_non_null(mkdtemp(directory));
    assert_int_equal(chdir(directory), 0);
    hoop_run_program = program;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hoop_run run;
        FILE *file = fopen(cases[i].file, "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(chmod(cases[i].file, cases[i].mode), 0);
        const int code =
            hoop_run_all(&run, (const char *const[]){"-n", "2", cases[i].program, NULL});
        assert_int_equal(code, cases[i].program[0] == '.' ? 126 : 127);
        assert_says(run.err, cases[i].says);
        hoop_run_finish(&run);
        assert_int_equal(unlink(cases[i].file), 0);
    }
    hoop_run_program = saved;
    assert_int_equal(chdir(back), 0);
    assert_int_equal(rmdir(directory), 0);
    free(program);
    free(back);
}

/* The program exists, but its interpreter does not. */
static void test_no_interpreter(void **state)
{
    (void)state;
    struct hoop_run run;
    char path[] = "/tmp/hooprun-test-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "#!/no/such/shell\n", 17) == 17 && fchmod(fd, 0755) == 0);
    close(fd);
    assert_int_equal(RUN(&run, path), 127);
    assert_says(run.err,
                ": No such file or directory; the file is there, but its interpreter is not: ");
    hoop_run_finish(&run);
    unlink(path);
}

/* ---- The terminal --------------------------------------------------------------------------- */

/* With stty tostop all ranks write at once, although only one could be in the foreground. */
static void test_writers_not_stopped(void **state)
{
    (void)state;
    struct termios modes;
    int terminal = -1;
    const pid_t pid = forkpty(&terminal, NULL, NULL, NULL);
    if (pid < 0) {
        print_message("skipped: no terminal can be made here\n");
        skip();
    }
    if (pid == 0) {
        hoop_run_signals_default();
        tcgetattr(0, &modes);
        modes.c_lflag |= TOSTOP;
        tcsetattr(0, TCSANOW, &modes);
        execl(hoop_run_program, hoop_run_program, "-n", "3", "sh", "-c",
              "for i in 1 2 3 4 5; do echo line; done", NULL);
        _exit(99);
    }
    struct hoop_run run = {.pid = pid, .out = {.fd = terminal}, .err = {.fd = -1}};
    assert_int_equal(hoop_run_end(&run), 0);
    assert_int_equal(hoop_text_count(&run.out, "line\r\n"), 15);
    hoop_run_finish(&run);
}

/* ---- Whose job ------------------------------------------------------------------------------ */

#define MACHINE(number, id)                                                                        \
    "--nnodes", "2", "--node-rank", number, "--master-addr", "127.0.0.1", "--run-id", id

static void test_claim(void **state)
{
    (void)state;
    static const char wait_script[] =
        "echo ready; trap 'exit 0' USR1; while :; do sleep 0.01; done";
    struct hoop_run first;
    struct hoop_run second;
    char says[256];
    assert_int_equal(setenv("HOOP_INSECURE", "1", 1), 0);
    START(&first, MACHINE("0", "alpha"), "sh", "-c", wait_script);
    hoop_run_read(&first, "ready\n", 1);
    assert_int_equal(RUN(&second, MACHINE("0", "alpha"), "echo", "ran"), 125);
    (void)snprintf(says, sizeof(says),
                   " already runs machine 0 of the job with run id alpha at 127.0.0.1, port 29500: "
                   "end it, or give this job its own --run-id and --master-port\n");
    assert_says(second.err, says);
    assert_silent(second.out);
    hoop_run_finish(&second);
    assert_int_equal(RUN(&second, MACHINE("0", "beta"), "true"), 0);
    hoop_run_finish(&second);
    assert_int_equal(RUN(&second, MACHINE("1", "alpha"), "true"), 0);
    hoop_run_finish(&second);
    kill(first.pid, SIGUSR1);
    assert_int_equal(hoop_run_end(&first), 0);
    hoop_run_finish(&first);
    assert_int_equal(RUN(&second, MACHINE("0", "alpha"), "true"), 0);
    hoop_run_finish(&second);
    assert_int_equal(unsetenv("HOOP_INSECURE"), 0);
}

static void test_run_ids(void **state)
{
    (void)state;
    static const struct {
        const char *job, *step, *nodes, *option, *shows;
    } cases[] = {
        {NULL, NULL, NULL, NULL, "none\n"},     {NULL, NULL, NULL, "my-run", "my-run\n"},
        {"77", "3", "2", NULL, "slurm.77.3\n"}, {"77", "3", "2", "mine", "mine\n"},
        {"77", "3", "4", NULL, "none\n"},       {"77", NULL, "2", NULL, "none\n"},
    };
    assert_int_equal(setenv("HOOP_INSECURE", "1", 1), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const values[3] = {cases[i].job, cases[i].step, cases[i].nodes};
        static const char *const names[3] = {"SLURM_JOB_ID", "SLURM_STEP_ID",
                                             "SLURM_STEP_NUM_NODES"};
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(
                values[k] == NULL ? unsetenv(names[k]) : setenv(names[k], values[k], 1), 0);
        }
        struct hoop_run run;
        const char *words[16] = {"--nnodes", "2", "--node-rank", "1", "--master-addr", "a"};
        size_t at = 6;
        if (cases[i].option != NULL) {
            words[at++] = i % 2 == 0 ? "--run-id" : "--rdzv_id";
            words[at++] = cases[i].option;
        }
        words[at++] = "sh";
        words[at++] = "-c";
        words[at] = "echo $TORCHELASTIC_RUN_ID";
        assert_int_equal(hoop_run_all(&run, words), 0);
        assert_string_equal(run.out.data, cases[i].shows);
        hoop_run_finish(&run);
        for (size_t k = 0; k < 3; k++) {
            unsetenv(names[k]);
        }
    }
    assert_int_equal(unsetenv("HOOP_INSECURE"), 0);
}

/* The message names the missing file, whether hooprun has an input or not. */
static void test_no_dev_null(void **state)
{
    (void)state;
    static const char *const inputs[] = {"", " <&-"};
    for (size_t i = 0; i < 2; i++) {
        struct hoop_run run;
        char script[600];
        (void)snprintf(script, sizeof(script),
                       "mount -t tmpfs none /dev || exit 77; exec %s /bin/true%s", hoop_run_program,
                       inputs[i]);
        const int code = RUN(&run, "unshare", "-rm", "sh", "-c", script);
        const bool may = code == 125;
        if (may) {
            assert_says(run.err, "hooprun: cannot open /dev/null: No such file or directory\n");
        }
        hoop_run_finish(&run);
        if (!may) {
            assert_in_set(code, ((const uintmax_t[]){1, 77, 126, 127}), 4);
            skip();
        }
    }
}

int main(int argc, char **argv)
{
    if (!hoop_run_setup(argc, argv)) {
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_children_ignored),
        cmocka_unit_test(test_ignored_signals),
        cmocka_unit_test(test_ignored_by_ranks),
        cmocka_unit_test(test_process_one),
        cmocka_unit_test(test_no_proc),
        cmocka_unit_test(test_threads_of_ranks),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_open_files),
        cmocka_unit_test(test_did_you_mean),
        cmocka_unit_test(test_no_interpreter),
        cmocka_unit_test(test_no_dev_null),
        cmocka_unit_test(test_writers_not_stopped),
        cmocka_unit_test(test_claim),
        cmocka_unit_test(test_run_ids),
    };
    return cmocka_run_group_tests_name("hooprun start", tests, NULL, NULL);
}
