/*
 * What launchers put into the environment, for each of them, with valid and invalid values; and the
 * lists of hosts that Slurm writes. The environment is a table.
 */
#include "rendezvous/launcher.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST 14

/* Entries are "NAME=value", with NULL at the end. */
static hoop_result_t read_launcher(const char *const *env, struct hoop_launcher *ret)
{
    char **mine = environ;
    environ = (char **)env;
    const hoop_result_t result = hoop_launcher_read(ret);
    environ = mine;
    return result;
}

/* ---- Good environments -------------------------------------------------------------------- */

/*
 * The result as text: "torchrun: 3 of 4, 2 here, 0 machines, at HOST ports 1-8, several". For ports
 * that follow from a Slurm job's id: "ports hashed".
 */
static void describe(const struct hoop_launcher *launcher, char *ret_text, size_t bytes)
{
    static const char *const spreads[] = {"unknown", "one", "several"};
    const struct hoop_ports *ports = &launcher->ports;
    char range[32];
    (void)snprintf(range, sizeof(range), "%u-%u", ports->first, ports->last);
    if (ports->first >= 20000 && ports->first < 29993 && ports->last == ports->first + 7) {
        (void)snprintf(range, sizeof(range), "hashed");
    }
    (void)snprintf(ret_text, bytes, "%s: %u of %u, %u here, %u machines, at %s ports %s, %s",
                   launcher->family != NULL ? launcher->family : "nobody", launcher->rank,
                   launcher->n, launcher->local_n, launcher->machines, launcher->host, range,
                   spreads[hoop_launcher_spread(launcher)]);
}

static const struct good {
    const char *env[MOST];
    const char *text;
    const char *job; /* NULL: nothing identifies the job */
} goods[] = {
    {{NULL}, "nobody: 0 of 1, 0 here, 0 machines, at  ports 0-0, one", NULL},
    {{"MASTER_ADDR=a", "MASTER_PORT=7"},
     "nobody: 0 of 1, 0 here, 0 machines, at a ports 7-7, one",
     "MASTER_PORT=7\n"},
    /* torchrun, hooprun, by hand */
    {{"WORLD_SIZE=4", "RANK=3"},
     "torchrun: 3 of 4, 0 here, 0 machines, at  ports 0-0, unknown",
     NULL},
    {{"WORLD_SIZE=4096", "RANK=4095"},
     "torchrun: 4095 of 4096, 0 here, 0 machines, at  ports 0-0, unknown",
     NULL},
    {{"WORLD_SIZE=1", "RANK=0"}, "torchrun: 0 of 1, 0 here, 0 machines, at  ports 0-0, one", NULL},
    {{"WORLD_SIZE=4", "RANK=3", "LOCAL_WORLD_SIZE=4", "LOCAL_RANK=3", "MASTER_ADDR=127.0.0.1",
      "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=2"},
     "torchrun: 3 of 4, 4 here, 0 machines, at 127.0.0.1 ports 29500-29500, one",
     "TORCHELASTIC_RUN_ID=none\nTORCHELASTIC_RESTART_COUNT=2\nMASTER_PORT=29500\n"},
    {{"WORLD_SIZE=4", "RANK=3", "LOCAL_WORLD_SIZE=2", "LOCAL_RANK=1", "MASTER_ADDR=node-a",
      "MASTER_PORT=39500", "TORCHELASTIC_USE_AGENT_STORE=True"},
     "torchrun: 3 of 4, 2 here, 0 machines, at node-a ports 39501-39508, several",
     "MASTER_PORT=39500\n"},
    {{"WORLD_SIZE=2", "RANK=0", "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=False"},
     "torchrun: 0 of 2, 0 here, 0 machines, at  ports 29500-29500, unknown",
     "MASTER_PORT=29500\n"},
    {{"WORLD_SIZE=2", "RANK=0", "MASTER_PORT=65527", "TORCHELASTIC_USE_AGENT_STORE=true"},
     "torchrun: 0 of 2, 0 here, 0 machines, at  ports 65528-65535, unknown",
     "MASTER_PORT=65527\n"},
    {{"WORLD_SIZE=2", "RANK=0", "MASTER_PORT=65528", "TORCHELASTIC_USE_AGENT_STORE=1"},
     "torchrun: 0 of 2, 0 here, 0 machines, at  ports 65520-65527, unknown",
     "MASTER_PORT=65528\n"},
    /* an empty value counts as unset */
    {{"WORLD_SIZE=4", "RANK=3", "LOCAL_WORLD_SIZE=", "MASTER_PORT="},
     "torchrun: 3 of 4, 0 here, 0 machines, at  ports 0-0, unknown",
     NULL},
    /* Open MPI */
    {{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
      "OMPI_COMM_WORLD_LOCAL_RANK=0", "PMIX_NAMESPACE=714145793",
      "OMPI_MCA_ess_base_jobid=714145793", "PMIX_RANK=2"},
     "Open MPI: 2 of 4, 2 here, 0 machines, at  ports 0-0, several",
     "PMIX_NAMESPACE=714145793\nOMPI_MCA_ess_base_jobid=714145793\n"},
    {{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_LOCAL_SIZE=4",
      "PMIX_NAMESPACE=x", "MASTER_ADDR=h", "MASTER_PORT=1"},
     "Open MPI: 2 of 4, 4 here, 0 machines, at h ports 1-1, one",
     "PMIX_NAMESPACE=x\nMASTER_PORT=1\n"},
    /* PMI: MPICH's and Intel's mpiexec */
    {{"PMI_SIZE=4", "PMI_RANK=1", "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1"},
     "PMI: 1 of 4, 2 here, 0 machines, at  ports 0-0, several",
     NULL},
    {{"PMI_SIZE=2", "PMI_RANK=1", "PMI_JOBID=j"},
     "PMI: 1 of 2, 0 here, 0 machines, at  ports 0-0, unknown",
     "PMI_JOBID=j\n"},
    /* Slurm, as srun sets it: numbers of the step count, not those of the job */
    {{"SLURM_NTASKS=4", "SLURM_PROCID=3", "SLURM_LOCALID=3", "SLURM_NODEID=0", "SLURM_STEP_ID=0",
      "SLURM_JOB_ID=77", "SLURM_STEP_NUM_NODES=1", "SLURM_NNODES=2", "SLURM_STEP_NODELIST=n1",
      "SLURM_JOB_NODELIST=n[0-1]", "SLURM_STEP_TASKS_PER_NODE=4", "SLURM_TASKS_PER_NODE=4(x2)"},
     "Slurm: 3 of 4, 4 here, 1 machines, at n1 ports hashed, one",
     "SLURM_JOB_ID=77\nSLURM_STEP_ID=0\n"},
    {{"SLURM_NTASKS=7", "SLURM_PROCID=6", "SLURM_LOCALID=0", "SLURM_NODEID=3", "SLURM_STEP_ID=1",
      "SLURM_JOB_ID=77", "SLURM_NNODES=4", "SLURM_JOB_NODELIST=node[08-10],x3",
      "SLURM_TASKS_PER_NODE=2(x3),1", "SLURM_RESTART_COUNT=1"},
     "Slurm: 6 of 7, 1 here, 4 machines, at node08 ports hashed, several",
     "SLURM_JOB_ID=77\nSLURM_STEP_ID=1\nSLURM_RESTART_COUNT=1\n"},
    {{"SLURM_NTASKS=7", "SLURM_PROCID=2", "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_STEP_ID=1",
      "SLURM_NNODES=4", "SLURM_TASKS_PER_NODE=2(x3),1"},
     "Slurm: 2 of 7, 2 here, 4 machines, at  ports hashed, several",
     "SLURM_STEP_ID=1\n"},
    /* the tasks per node are those of a larger job */
    {{"SLURM_STEP_NUM_TASKS=2", "SLURM_NTASKS=8", "SLURM_PROCID=1", "SLURM_LOCALID=9",
      "SLURM_NODEID=0", "SLURM_STEP_ID=3", "SLURM_JOB_ID=5", "SLURM_TASKS_PER_NODE=4(x2)"},
     "Slurm: 1 of 2, 0 here, 0 machines, at  ports hashed, unknown",
     "SLURM_JOB_ID=5\nSLURM_STEP_ID=3\n"},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=3", "SLURM_JOB_ID=5",
      "SLURM_JOB_NODELIST=n", "MASTER_ADDR=m", "MASTER_PORT=9"},
     "Slurm: 1 of 2, 0 here, 0 machines, at m ports 9-9, unknown",
     "SLURM_JOB_ID=5\nSLURM_STEP_ID=3\nMASTER_PORT=9\n"},
    /* a batch script is not a task */
    {{"SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_JOB_ID=77"},
     "nobody: 0 of 1, 0 here, 0 machines, at  ports 0-0, one",
     NULL},
    /* one launcher inside another */
    {{"SLURM_NTASKS=1", "SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_JOB_ID=77", "SLURM_NNODES=1",
      "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "PMIX_NAMESPACE=x"},
     "Open MPI: 2 of 4, 0 here, 0 machines, at  ports 0-0, unknown",
     "PMIX_NAMESPACE=x\n"},
    {{"SLURM_NTASKS=nonsense", "SLURM_PROCID=0", "SLURM_STEP_ID=0", "WORLD_SIZE=2", "RANK=1"},
     "torchrun: 1 of 2, 0 here, 0 machines, at  ports 0-0, unknown",
     NULL},
    /* two launchers that started the same ranks complete each other */
    {{"SLURM_NTASKS=4", "SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_JOB_ID=77", "SLURM_NNODES=2",
      "SLURM_JOB_NODELIST=n[7,9]", "WORLD_SIZE=4", "RANK=3"},
     "torchrun: 3 of 4, 0 here, 2 machines, at n7 ports hashed, several",
     "SLURM_JOB_ID=77\nSLURM_STEP_ID=0\n"},
    {{"SLURM_NTASKS=4", "SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_JOB_ID=77", "SLURM_NNODES=1",
      "PMI_SIZE=4", "PMI_RANK=3"},
     "PMI: 3 of 4, 0 here, 1 machines, at  ports hashed, one",
     "SLURM_JOB_ID=77\nSLURM_STEP_ID=0\n"},
    /* but about its own ranks the inner one is right */
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_JOB_ID=77", "SLURM_NNODES=1",
      "WORLD_SIZE=2", "RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=a", "MASTER_PORT=7"},
     "torchrun: 0 of 2, 1 here, 0 machines, at a ports 7-7, several",
     "MASTER_PORT=7\n"},
    /* an incomplete launcher beside a complete one that it does not contradict */
    {{"SLURM_NTASKS=4", "SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_JOB_ID=77", "WORLD_SIZE=4"},
     "Slurm: 3 of 4, 0 here, 0 machines, at  ports hashed, unknown",
     "SLURM_JOB_ID=77\nSLURM_STEP_ID=0\n"},
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(goods) / sizeof(goods[0]); i++) {
        char text[512];
        struct hoop_launcher launcher;
        if (read_launcher(goods[i].env, &launcher) != HOOP_OK) {
            fail_msg("%s: %s", goods[i].text, hoop_thread_error());
        }
        describe(&launcher, text, sizeof(text));
        assert_string_equal(text, goods[i].text);
        assert_string_equal(launcher.job, goods[i].job != NULL ? goods[i].job : "");
        assert_int_equal(launcher.named, goods[i].job != NULL);
    }
}

/* All ranks of a step get the same ports, and another step gets others. */
static void test_slurm_ports(void **state)
{
    static const char *const envs[][5] = {
        {"SLURM_NTASKS=2", "SLURM_PROCID=0", "SLURM_JOB_ID=12", "SLURM_STEP_ID=3"},
        {"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_JOB_ID=12", "SLURM_STEP_ID=3"},
        {"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_JOB_ID=1", "SLURM_STEP_ID=23"},
    };
    struct hoop_launcher launchers[3];
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(read_launcher(envs[i], &launchers[i]), HOOP_OK);
    }
    assert_int_equal(launchers[0].ports.first, launchers[1].ports.first);
    assert_int_not_equal(launchers[0].ports.first, launchers[2].ports.first);
    assert_string_equal(launchers[0].job, launchers[1].job);
}

/* ---- Bad ones ----------------------------------------------------------------------------- */

static const struct bad {
    const char *env[MOST];
    const char *sentence; /* the error text begins like this */
} bads[] = {
    {{"WORLD_SIZE=2"}, "WORLD_SIZE is \"2\" but RANK is not set"},
    {{"RANK=2"}, "RANK is \"2\" but WORLD_SIZE is not set"},
    {{"WORLD_SIZE=2", "RANK="}, "WORLD_SIZE is \"2\" but RANK is not set"},
    {{"WORLD_SIZE=two", "RANK=0"}, "WORLD_SIZE is \"two\": expected a number from 1 to 4096"},
    {{"WORLD_SIZE=0", "RANK=0"}, "WORLD_SIZE is \"0\": expected a number from 1 to 4096"},
    {{"WORLD_SIZE=4097", "RANK=0"}, "WORLD_SIZE is \"4097\": expected"},
    {{"WORLD_SIZE=4294967298", "RANK=0"}, "WORLD_SIZE is \"4294967298\": expected"},
    {{"WORLD_SIZE=+2", "RANK=0"}, "WORLD_SIZE is \"+2\": expected"},
    {{"WORLD_SIZE= 2", "RANK=0"}, "WORLD_SIZE is \" 2\": expected"},
    {{"WORLD_SIZE=2 ", "RANK=0"}, "WORLD_SIZE is \"2 \": expected"},
    {{"WORLD_SIZE=0x2", "RANK=0"}, "WORLD_SIZE is \"0x2\": expected"},
    {{"WORLD_SIZE=2", "RANK=-1"}, "RANK is \"-1\": expected a number from 0 to 4095"},
    {{"WORLD_SIZE=2", "RANK=2"}, "RANK is 2: expected less than WORLD_SIZE, which is 2"},
    {{"WORLD_SIZE=2", "RANK=1", "LOCAL_WORLD_SIZE=x"}, "LOCAL_WORLD_SIZE is \"x\": expected"},
    {{"WORLD_SIZE=2", "RANK=1", "LOCAL_WORLD_SIZE=0"}, "LOCAL_WORLD_SIZE is \"0\": expected"},
    {{"WORLD_SIZE=2", "RANK=1", "LOCAL_WORLD_SIZE=3"},
     "LOCAL_WORLD_SIZE is 3: expected at most WORLD_SIZE, which is 2"},
    {{"WORLD_SIZE=2", "RANK=1", "MASTER_PORT=0"}, "MASTER_PORT is \"0\": expected a number from 1"},
    {{"WORLD_SIZE=2", "RANK=1", "MASTER_PORT=65536"}, "MASTER_PORT is \"65536\": expected"},
    {{"WORLD_SIZE=2", "RANK=1", "MASTER_PORT=http"}, "MASTER_PORT is \"http\": expected"},
    {{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=9"},
     "OMPI_COMM_WORLD_RANK is 9: expected less than OMPI_COMM_WORLD_SIZE, which is 2"},
    {{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=-"},
     "OMPI_COMM_WORLD_LOCAL_SIZE is \"-\": expected"},
    {{"PMI_SIZE=2"}, "PMI_SIZE is \"2\" but PMI_RANK is not set"},
    {{"PMI_SIZE=2", "PMI_RANK=1", "MPI_LOCALNRANKS=2", "PMI_FD=x"}, "PMI_FD is \"x\": expected"},
    {{"PMI_SIZE=2", "PMI_RANK=two"}, "PMI_RANK is \"two\": expected"},
    {{"SLURM_NTASKS=2", "SLURM_STEP_ID=0"}, "SLURM_NTASKS is \"2\" but SLURM_PROCID is not set"},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=2", "SLURM_STEP_ID=0"},
     "SLURM_PROCID is 2: expected less than SLURM_NTASKS, which is 2"},
    {{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=2", "SLURM_STEP_ID=0"},
     "SLURM_PROCID is 2: expected less than SLURM_STEP_NUM_TASKS, which is 2"},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_NNODES=none"},
     "SLURM_NNODES is \"none\": expected"},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_JOB_NODELIST=n[1-"},
     "SLURM_JOB_NODELIST: \"n[1-\" is not a list"},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_NODEID=first"},
     "SLURM_NODEID is \"first\": expected"},
    /* the size of another job beside a complete launcher */
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0", "WORLD_SIZE=8"},
     "WORLD_SIZE is 8 but Slurm started 2 ranks, and RANK is not set"},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0", "WORLD_SIZE=eight"},
     "WORLD_SIZE is \"eight\": expected"},
};

static void expect_bad(const char *const *env, const char *sentence)
{
    struct hoop_launcher launcher = {.n = 42};
    assert_int_equal(read_launcher(env, &launcher), HOOP_INVALID_USAGE);
    if (strncmp(hoop_thread_error(), sentence, strlen(sentence)) != 0) {
        fail_msg("\"%s\", expected \"%s\"", hoop_thread_error(), sentence);
    }
    assert_int_equal(launcher.n, 42);
}

static void test_bad(void **state)
{
    static const char *const tasks[] = {"2(x3",  "2(x)", "2x3",  "(x3)",       "2(x0)", "2,",
                                        ",2",    "-2",   "2(3)", "2(x3)1",     "x",     "2(x-1)",
                                        "2(x3)", "2;1",  "2 1",  "9999999999", NULL};
    (void)state;
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        expect_bad(bads[i].env, bads[i].sentence);
    }
    for (size_t i = 0; tasks[i] != NULL; i++) {
        char entry[64];
        const char *env[] = {"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0", entry, NULL};
        struct hoop_launcher launcher;
        (void)snprintf(entry, sizeof(entry), "SLURM_TASKS_PER_NODE=%s", tasks[i]);
        if (strcmp(tasks[i], "2(x3)") == 0) {
            assert_int_equal(read_launcher(env, &launcher), HOOP_OK);
        } else {
            expect_bad(env, "SLURM_TASKS_PER_NODE is \"");
        }
    }
}

/* Values of any length are accepted or refused, never cut. */
static void test_long_values(void **state)
{
    static char entry[1000];
    static const char *const variables[] = {"TORCHELASTIC_RUN_ID=", "MASTER_ADDR="};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const size_t name = strlen(variables[i]);
        memset(entry, 'x', sizeof(entry));
        memcpy(entry, variables[i], name);
        for (size_t length = 250; length < 260; length++) {
            const char *env[] = {"WORLD_SIZE=2", "RANK=1", entry, NULL};
            struct hoop_launcher launcher;
            entry[name + length] = 0;
            if (length > 255) {
                char sentence[64];
                (void)snprintf(sentence, sizeof(sentence), "%.*s has %zu characters: expected",
                               (int)name - 1, entry, length);
                expect_bad(env, sentence);
            } else {
                assert_int_equal(read_launcher(env, &launcher), HOOP_OK);
                assert_int_equal(strlen(i == 0 ? launcher.job : launcher.host),
                                 i == 0 ? name + length + 1 : length);
            }
            entry[name + length] = 'x';
        }
    }
}

/* MPICH's mpiexec gives no name to a job. On one machine the process at the other end of its socket
 * identifies it. */
static void test_starter(void **state)
{
    char fd[32];
    char job[64];
    int ends[2];
    struct hoop_launcher launcher;
    const char *env[] = {"PMI_SIZE=4", "PMI_RANK=1", "MPI_LOCALNRANKS=4", fd, NULL, NULL};
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    (void)snprintf(fd, sizeof(fd), "PMI_FD=%d", ends[0]);
    (void)snprintf(job, sizeof(job), "PMI_FD=process %d\n", getpid());
    assert_int_equal(read_launcher(env, &launcher), HOOP_OK);
    assert_string_equal(launcher.job, job);
    assert_true(launcher.named);
    env[4] = "PMI_JOBID=j";
    assert_int_equal(read_launcher(env, &launcher), HOOP_OK);
    assert_string_equal(launcher.job, "PMI_JOBID=j\n");
    env[4] = NULL;
    env[2] = "MPI_LOCALNRANKS=2"; /* other machines have other processes */
    assert_int_equal(read_launcher(env, &launcher), HOOP_OK);
    assert_false(launcher.named);
    env[2] = "MPI_LOCALNRANKS=4";
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(read_launcher(env, &launcher), HOOP_OK);
    assert_false(launcher.named);
}

/* ---- Host lists --------------------------------------------------------------------------- */

static void test_lists(void **state)
{
    static const struct {
        const char *list, *first;
    } lists[] = {
        {"a", "a"},
        {"a,b", "a"},
        {"node[01-03,7],gpu5", "node01"},
        {"n[8-11]", "n8"},
        {"n[098-101]", "n098"},
        {"[1-2]", "1"},
        {"r[1-2]n[1-3]", "r1n1"},
        {"r[1,3]-[0-1].c,x[0]", "r1-0.c"},
        {"a-b_c.d", "a-b_c.d"},
        {"10.0.0.1,10.0.0.2", "10.0.0.1"},
        {"n[5]", "n5"},
        {"n[0000-0001]", "n0000"},
        {"n[999999998-999999999]", "n999999998"},
    };
    char host[HOOP_LAUNCHER_HOST_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        assert_int_equal(hoop_hostlist_first(lists[i].list, host), HOOP_OK);
        assert_string_equal(host, lists[i].first);
    }
}

static void test_bad_lists(void **state)
{
    static const char *const bad[] = {
        "",      ",",    ",a",    "n[",     "n[]", "n]",  "n[1", "n[1-", "n[-1]",
        "n[,1]", "n[a]", "n[1][", "n[[1]]", "a b", "a/b", "a\n", "a:1",  "\xc3\xa4",
    };
    static char longest[400];
    char host[HOOP_LAUNCHER_HOST_BYTES] = "untouched";
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (hoop_hostlist_first(bad[i], host) != HOOP_INVALID_ARGUMENT) {
            fail_msg("\"%s\" was taken for a list: %s", bad[i], host);
        }
    }
    for (size_t length = 250; length < 260; length++) {
        memset(longest, 'h', length);
        (void)snprintf(longest + length, sizeof(longest) - length, "[10-11]");
        const hoop_result_t result = hoop_hostlist_first(longest, host);
        assert_int_equal(result, length + 2 < sizeof(host) ? HOOP_OK : HOOP_INVALID_ARGUMENT);
        assert_int_equal(strlen(host), length + 2 < sizeof(host) ? length + 2 : 255);
    }
}

/* All texts over the alphabet of host lists, up to a length: nothing is read out of bounds, and no
 * host contains characters of a list. */
static void test_all_lists(void **state)
{
    static const char alphabet[] = "a1[],-";
    const size_t letters = sizeof(alphabet) - 1;
    char host[HOOP_LAUNCHER_HOST_BYTES];
    size_t good = 0;
    (void)state;
    for (size_t length = 1, texts = letters; length <= 6; length++, texts *= letters) {
        for (size_t text = 0; text < texts; text++) {
            char list[8] = "";
            size_t rest = text;
            for (size_t i = 0; i < length; i++, rest /= letters) {
                list[i] = alphabet[rest % letters];
            }
            if (hoop_hostlist_first(list, host) == HOOP_OK) {
                good++;
                assert_null(strpbrk(host, "[],"));
            }
        }
    }
    assert_true(good > 1000);
}

static void test_loopback(void **state)
{
    static const char *const here[] = {"localhost",     "LocalHost", "127.0.0.1",
                                       "127.1.2.3",     "::1",       "a.localhost",
                                       "ip6-localhost", "[::1]",     "localhost.localdomain"};
    static const char *const elsewhere[] = {"",          "host",    "10.0.0.1",      "128.0.0.1",
                                            "fe80::1",   "0.0.0.0", "localhost.org", "mylocalhost",
                                            ".localhos", "::2",     "notlocalhost"};
    (void)state;
    for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++) {
        assert_true(hoop_host_is_loopback(here[i]));
    }
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
        assert_false(hoop_host_is_loopback(elsewhere[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),      cmocka_unit_test(test_slurm_ports),
        cmocka_unit_test(test_bad),       cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_starter),   cmocka_unit_test(test_lists),
        cmocka_unit_test(test_bad_lists), cmocka_unit_test(test_all_lists),
        cmocka_unit_test(test_loopback),
    };
    return cmocka_run_group_tests_name("launcher", tests, NULL, NULL);
}
