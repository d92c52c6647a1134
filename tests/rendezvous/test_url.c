/* Where ranks meet, according to environment, url and unique id. */
#include "base/clock.h"
#include "membership/serve.h"
#include "net/interface.h"
#include "rendezvous/asker.h"
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- The environment ---------------------------------------------------------------------- */

#define SECRET "HOOP_SECRET=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define OTHER "HOOP_SECRET=100102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

/* "here", or the addresses, followed by ", hint" if there is one. */
static void describe(const struct hoop_rendezvous *rendezvous, char *ret_text, size_t bytes)
{
    size_t at =
        (size_t)snprintf(ret_text, bytes, "%s", rendezvous->address_count == 0 ? "here" : "at");
    for (uint32_t i = 0; i < rendezvous->address_count; i++) {
        char address[HOOP_ADDRESS_TEXT_BYTES];
        hoop_address_format(&rendezvous->addresses[i], address, sizeof(address));
        if (i < 2 || i + 1 == rendezvous->address_count) {
            at +=
                (size_t)snprintf(ret_text + at, bytes - at, " %s%s", i >= 3 ? "... " : "", address);
        }
    }
    (void)snprintf(ret_text + at, bytes - at, "%s", rendezvous->hint != NULL ? ", hint" : "");
}

#define W2 "WORLD_SIZE=2"
#define R0 "RANK=0"
#define R1 "RANK=1"
#define PORT "MASTER_PORT=29500"
#define HERE "LOCAL_WORLD_SIZE=2"
#define APART "LOCAL_WORLD_SIZE=1"
#define NODE "MASTER_ADDR=192.0.2.7"
#define SELF "MASTER_ADDR=127.0.0.1"

static const struct meet {
    const char *env[10]; /* "URL=...": by this url, as rank 1 of 2, instead of the environment */
    const char *text;    /* "! words": HOOP_INVALID_USAGE, with these words in the error text */
} meets[] = {
    {{NULL}, "here"},
    /* one machine, as the launcher says, or because no other is known */
    {{W2, R1, PORT}, "here"},
    {{W2, R1, PORT, HERE, NODE}, "here"},
    {{W2, R1, PORT, HERE, NODE, SECRET}, "here"},
    {{W2, R1, SECRET}, "here"},
    {{W2, R1, SECRET, NODE}, "here"},
    {{W2, R1, PORT, SELF}, "here, hint"},
    {{W2, R1, PORT, SELF, SECRET}, "here, hint"},
    {{W2, R1, PORT, "MASTER_ADDR=localhost", APART}, "here, hint"},
    {{W2, R1, PORT, NODE}, "here, hint"},
    {{W2, R1}, "! nothing tells where"},
    {{W2, R1, "HOOP_SECRET=12"}, "! HOOP_SECRET: expected 64"},
    {{W2, R1, "HOOP_SECRET="}, "! HOOP_SECRET: expected 64"},
    {{W2, R1, PORT, "HOOP_SECRET_FILE=/nowhere/at/all"},
     "! HOOP_SECRET_FILE: cannot open /nowhere/at/all: ENOENT"},
    /* several machines */
    {{W2, R1, PORT, NODE, SECRET}, "at 192.0.2.7:29500"},
    {{W2, R1, PORT, NODE, SECRET, APART}, "at 192.0.2.7:29500"},
    {{W2, R1, PORT, "MASTER_ADDR=2001:db8::7", SECRET, APART}, "at [2001:db8::7]:29500"},
    {{W2, R1, PORT, NODE, SECRET, "TORCHELASTIC_USE_AGENT_STORE=True"},
     "at 192.0.2.7:29501 192.0.2.7:29502 ... 192.0.2.7:29508"},
    {{W2, R1, NODE, SECRET, "HOOP_PORT_RANGE=40000-40003"},
     "at 192.0.2.7:40000 192.0.2.7:40001 ... 192.0.2.7:40003"},
    {{W2, R1, PORT, NODE, SECRET, "HOOP_PORT_RANGE=40000-65535"},
     "at 192.0.2.7:40000 192.0.2.7:40001 ... 192.0.2.7:40015"},
    {{W2, R1, PORT, NODE, "HOOP_INSECURE=1"}, "at 192.0.2.7:29500"},
    {{W2, R1, PORT, NODE, APART, "HOOP_INSECURE=1"}, "at 192.0.2.7:29500"},
    {{W2, R1, PORT, NODE, APART}, "! openssl rand -hex 32 > hoop.secret"},
    {{W2, R1, APART, SECRET}, "! set MASTER_ADDR"},
    {{W2, R1, APART, SECRET, NODE}, "! set MASTER_PORT"},
    {{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
      "PMIX_NAMESPACE=9", SECRET},
     "! set MASTER_ADDR"},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_JOB_ID=7", "SLURM_NNODES=1"},
     "here"},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_JOB_ID=7", "SLURM_NNODES=2",
      "SLURM_JOB_NODELIST=192.0.2.[7-8]"},
     "! HOOP_SECRET_FILE"},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_JOB_ID=7", "SLURM_NNODES=2",
      "SLURM_JOB_NODELIST=192.0.2.[7-8]", PORT, SECRET},
     "at 192.0.2.7:29500"},
    /* several machines, all played by this one */
    {{W2, R1, PORT, SELF, APART, SECRET, "HOOP_HOSTID=a"}, "at 127.0.0.1:29500"},
    {{W2, R1, PORT, SELF, HERE, SECRET, "HOOP_HOSTID=a"}, "at 127.0.0.1:29500"},
    {{W2, R1, PORT, SELF, HERE, "HOOP_HOSTID=a"}, "here, hint"},
    {{W2, R1, SECRET, "HOOP_HOSTID=a"}, "here"},
    /* HOOP_INIT */
    {{W2, R1, PORT, NODE, SECRET, "HOOP_INIT=env://"}, "at 192.0.2.7:29500"},
    {{W2, R1, PORT, NODE, SECRET, "HOOP_INIT=tcp://192.0.2.8:7"}, "at 192.0.2.8:7"},
    {{W2, R1, SECRET, "HOOP_INIT=tcp://[2001:db8::1]:7", "HOOP_PORT_RANGE=9"},
     "at [2001:db8::1]:7"},
    {{W2, R1, HERE, "HOOP_INIT=tcp://192.0.2.8:7"}, "here"},
    {{W2, R1, "HOOP_INIT=tcp://127.0.0.1:7"}, "here, hint"},
    {{W2, R1, "HOOP_INIT=tcp://192.0.2.8:7"}, "! HOOP_SECRET_FILE"},
    {{W2, R1, "HOOP_INIT=tcp://192.0.2.8:7", "HOOP_INSECURE=1"}, "at 192.0.2.8:7"},
    {{W2, R1, HERE, "HOOP_INIT=file:///nowhere/x"}, "here"},
    {{W2, R1, HERE, "HOOP_INIT=file:///nowhere/.."}, "! is not the absolute path of a file"},
    {{W2, R1, "HOOP_INIT=here"}, "! HOOP_INIT: \"here\": expected env://"},
    {{"HOOP_INIT=here"}, "! HOOP_INIT: \"here\": expected env://"},
    {{"HOOP_INIT=tcp://192.0.2.8:7"}, "here"},
    /* n and rank from the caller */
    {{"URL=env://", PORT, NODE, SECRET}, "at 192.0.2.7:29500"},
    {{"URL=env://", W2, R0, HERE, PORT, NODE, SECRET}, "here"},
    {{"URL=env://", "WORLD_SIZE=4", R0, "LOCAL_WORLD_SIZE=4", PORT, NODE, SECRET},
     "at 192.0.2.7:29500"},
    {{"URL=tcp://192.0.2.8:7", "WORLD_SIZE=x", R0, SECRET}, "at 192.0.2.8:7"},
    {{"URL=env://", "WORLD_SIZE=x", R0, SECRET}, "! WORLD_SIZE is \"x\""},
    {{"URL=tcp://localhost:7"}, "here, hint"},
    {{"URL=tcp://192.0.2.8:7"}, "! HOOP_SECRET_FILE"},
};

static void test_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(meets) / sizeof(meets[0]); i++) {
        char text[512];
        const struct meet *meet = &meets[i];
        const bool by_url = meet->env[0] != NULL && strncmp(meet->env[0], "URL=", 4) == 0;
        const char *url = by_url ? meet->env[0] + 4 : NULL;
        const struct answer answer =
            ask(&(struct question){.env = meet->env, .url = url, .n = 2, .rank = 1});
        if (meet->text[0] == '!') {
            expect_answer(&answer, HOOP_INVALID_USAGE, meet->text + 2);
            continue;
        }
        expect_answer(&answer, HOOP_OK, "");
        describe(&answer.rendezvous, text, sizeof(text));
        if (strcmp(text, meet->text) != 0) {
            fail_msg("case %zu: \"%s\", expected \"%s\"", i, text, meet->text);
        }
        assert_int_equal(strncmp(answer.rendezvous.name, "hoop-", 5), 0);
        assert_null(answer.rendezvous.file);
    }
}

static void test_bad_urls(void **state)
{
    static const char *const urls[] = {
        "",          "env",         "env:///",       "ENV://",          "tcp://",
        "tcp://h",   "tcp://h:0",   "tcp://h:65536", "tcp://:7",        "tcp://h:7/x",
        "tcp://::1", "tcp://[::1]", "tcp://[::1:7",  "tcp://h:7?n=2",   "tcp://a b:7",
        "file://",   "file://x",    "file:/x",       "file://host/x/y", "http://h:7",
        "tcp:/h:7",  "tcp://h:7 ",  " tcp://h:7",    "tcp://h:-7",      "tcp://h:7:7",
    };
    static char longest[2000];
    (void)state;
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        const struct answer answer =
            ask(&(struct question){.url = urls[i], .n = 2, .rank = 1, .timeout_ms = 200});
        expect_answer(&answer, HOOP_INVALID_ARGUMENT,
                      "expected env://, tcp://host:port or file:///path");
    }
    (void)snprintf(longest, sizeof(longest), "file:///%01900d", 0);
    const struct answer answer = ask(&(struct question){.url = longest, .n = 2, .rank = 1});
    expect_answer(&answer, HOOP_INVALID_ARGUMENT, "file:///000");
}

/* What makes two rendezvous different, and what does not. */
static const struct pair {
    const char *one[4], *other[4];
    bool same;
} pairs[] = {
    {{R0, PORT}, {R1, PORT}, true},
    {{R0, PORT, HERE, "LOCAL_RANK=0"}, {R1, PORT, HERE, "LOCAL_RANK=1"}, true},
    {{R0, PORT, "SLURM_NODEID=0"}, {R1, PORT, "SLURM_NODEID=1"}, true},
    {{R0, PORT, "HOOP_RESTART_COUNT=0"}, {R1, PORT}, true},
    {{R0, PORT, "HOOP_INIT=env://"}, {R1, PORT}, true},
    {{R0, "HOOP_INIT=tcp://[::1]:7"}, {R1, "HOOP_INIT=tcp://[::1]:7"}, true},
    {{R0, PORT}, {R1, "MASTER_PORT=29501"}, false},
    {{R0, "TORCHELASTIC_RUN_ID=a"}, {R1, "TORCHELASTIC_RUN_ID=b"}, false},
    {{R0, PORT, "TORCHELASTIC_RESTART_COUNT=1"}, {R1, PORT, "TORCHELASTIC_RESTART_COUNT=2"}, false},
    {{R0, PORT, "HOOP_RESTART_COUNT=1"}, {R1, PORT, "HOOP_RESTART_COUNT=2"}, false},
    {{R0, "HOOP_INIT=tcp://[::1]:7"}, {R1, "HOOP_INIT=tcp://[::1]:8"}, false},
    {{R0, PORT, NODE, HERE}, {R1, PORT, NODE, HERE}, true},
    {{R0, PORT, NODE, HERE}, {R1, PORT, "MASTER_ADDR=192.0.2.8", HERE}, false},
    {{R0, PORT, NODE, HERE}, {R1, PORT, HERE}, false},
};

static struct answer ask_pair(const char *const *half, const char *trust, int calls)
{
    const char *env[] = {W2, trust, half[0], half[1], half[2], half[3], NULL};
    return ask(&(struct question){.env = env, .calls = calls});
}

static void test_apart(void **state)
{
    static const char *const trusts[] = {"X=x", SECRET};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(pairs) / sizeof(pairs[0]); i++) {
        const struct pair *pair = &pairs[i / 2];
        const struct answer one = ask_pair(pair->one, trusts[i % 2], 1);
        const struct answer other = ask_pair(pair->other, trusts[i % 2], 1);
        assert_int_equal(answers_meet(&one, &other), pair->same);
        /* the second calls of both meet each other, and no others */
        const struct answer again = ask_pair(pair->one, trusts[i % 2], 2);
        const struct answer other_again = ask_pair(pair->other, trusts[i % 2], 2);
        assert_int_equal(answers_meet(&again, &other_again), pair->same);
        assert_false(answers_meet(&one, &again));
    }
    /* only the launcher's number of ranks: if the program's differs the ranks are told */
    const char *const three[] = {"WORLD_SIZE=3", R0, PORT, NULL};
    const char *const two[] = {W2, R0, PORT, NULL};
    const struct answer of_two = ask(&(struct question){.env = two});
    const struct answer of_three = ask(&(struct question){.env = three});
    const struct answer by_url =
        ask(&(struct question){.env = two, .url = "env://", .n = 3, .rank = 0});
    assert_false(answers_meet(&of_two, &of_three));
    assert_true(answers_meet(&of_two, &by_url));
    /* with other secrets they are other rendezvous; the name does not reveal a secret */
    const struct answer one = ask_pair(pairs[0].one, SECRET, 1);
    const struct answer other = ask_pair(pairs[0].one, OTHER, 1);
    assert_false(answers_meet(&one, &other));
    assert_null(strstr(one.rendezvous.name, "0001020304"));
    const struct answer none = ask_pair(pairs[0].one, "X=x", 1);
    assert_false(answers_meet(&one, &none));
}

static void choose_interface(int answers, const void *arg)
{
    struct answer answer = {.result = hoop_interface_choose(&answer.rendezvous.addresses[0])};
    (void)arg;
    if (write(answers, &answer, sizeof(answer)) != sizeof(answer)) {
        _exit(3);
    }
}

/* This machine's address for other machines; family 0: others can't reach it. */
static struct hoop_address ask_interface(void)
{
    struct asker asker = asker_fork(NULL, choose_interface, NULL);
    const struct answer answer = asker_hear(&asker);
    const struct hoop_address *address = &answer.rendezvous.addresses[0];
    asker_end(&asker, false);
    return answer.result == HOOP_OK && !hoop_address_is_loopback(address)
               ? *address
               : (struct hoop_address){.family = 0};
}

/* If a name means only loopback it is this machine's own name; others know the machine by
 * another. */
static void test_own_name(void **state)
{
    char name[256] = "MASTER_ADDR=";
    struct addrinfo *found = NULL;
    const char *const env[] = {W2, R0, APART, PORT, SECRET, name, NULL};
    (void)state;
    assert_int_equal(gethostname(name + strlen(name), sizeof(name) - strlen(name) - 1), 0);
    if (strcmp(name, "MASTER_ADDR=localhost") == 0 ||
        getaddrinfo(strchr(name, '=') + 1, NULL, NULL, &found) != 0) {
        print_message("this host has no name that can be looked up\n");
        return;
    }
    freeaddrinfo(found);
    const struct answer answer = ask(&(struct question){.env = env});
    expect_answer(&answer, HOOP_OK, "");
    assert_true(answer.rendezvous.address_count > 0);
    const bool alone = ask_interface().family == 0;
    for (uint32_t i = 0; i < answer.rendezvous.address_count; i++) {
        assert_true(alone || !hoop_address_is_loopback(&answer.rendezvous.addresses[i]));
        assert_int_equal(answer.rendezvous.addresses[i].port, 29500);
    }
}

static void test_unknown_name(void **state)
{
    static const char *const env[] = {
        W2, R0, APART, PORT, SECRET, "MASTER_ADDR=no-such-host.invalid", NULL};
    (void)state;
    const uint64_t start_ns = hoop_now_ns();
    const struct answer answer = ask(&(struct question){.env = env, .timeout_ms = 300});
    expect_answer(&answer, HOOP_INVALID_USAGE, "no-such-host.invalid");
    assert_true(hoop_now_ns() - start_ns >= 300 * HOOP_NS_PER_MS);
}

/* ---- Unique ids --------------------------------------------------------------------------- */

/* Makes an id, reads it back, and counts in answer.n how many damaged ones were accepted. */
static void try_id(int answers, const void *here)
{
    hoop_unique_id_t id;
    struct answer answer = {.n = 0};
    answer.result = hoop_rendezvous_create(here != NULL, &id);
    if (answer.result == HOOP_OK) {
        answer.result = hoop_rendezvous_from_id(&id, &answer.rendezvous);
    }
    for (size_t bit = 0; bit < 8 * sizeof(id.internal) && answer.result == HOOP_OK; bit++) {
        struct hoop_rendezvous rendezvous = {.hint = "untouched"};
        hoop_unique_id_t bad = id;
        bad.internal[bit / 8] = (char)(bad.internal[bit / 8] ^ 1 << bit % 8);
        if (hoop_rendezvous_from_id(&bad, &rendezvous) != HOOP_INVALID_ARGUMENT ||
            rendezvous.hint == NULL) {
            answer.n++;
        }
    }
    (void)snprintf(answer.text, sizeof(answer.text), "%s", hoop_thread_error());
    if (write(answers, &answer, sizeof(answer)) != sizeof(answer)) {
        _exit(3);
    }
}

static struct answer ask_id(const char *const *env, bool here)
{
    struct asker asker = asker_fork(env, try_id, here ? "here" : NULL);
    const struct answer answer = asker_hear(&asker);
    asker_end(&asker, false);
    expect_answer(&answer, HOOP_OK, "this is not a unique id of hoop");
    assert_int_equal(answer.n, 0);
    assert_null(answer.rendezvous.file);
    return answer;
}

static void test_unique_ids(void **state)
{
    static const char *const none[] = {NULL};
    static const char *const local[] = {W2, R0, HERE, NULL};
    static const char *const ranged[] = {"HOOP_PORT_RANGE=41000-41999", NULL};
    const struct hoop_address mine = ask_interface();
    const bool alone = mine.family == 0;
    (void)state;
    struct answer first = ask_id(none, true);
    assert_int_equal(first.rendezvous.address_count, 0);
    struct answer second = ask_id(none, true);
    assert_false(answers_meet(&first, &second));
    first = ask_id(local, false);
    assert_int_equal(first.rendezvous.address_count, 0);
    first = ask_id(none, false);
    assert_int_equal(first.rendezvous.address_count, alone ? 0 : 1);
    second = ask_id(ranged, false);
    assert_int_equal(second.rendezvous.address_count, alone ? 0 : 1);
    if (!alone) {
        assert_true(hoop_address_same_ip(&first.rendezvous.addresses[0], &mine));
        assert_true(first.rendezvous.addresses[0].port != 0);
        assert_in_range(second.rendezvous.addresses[0].port, 41000, 41999);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment),  cmocka_unit_test(test_bad_urls),
        cmocka_unit_test(test_apart),        cmocka_unit_test(test_own_name),
        cmocka_unit_test(test_unknown_name), cmocka_unit_test(test_unique_ids),
    };
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
