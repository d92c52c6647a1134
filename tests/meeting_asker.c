/* Processes that ask; see meeting_asker.h. */
#include "meeting_asker.h"
#include "meeting_file.h"
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- In the process ----------------------------------------------------------------------- */

struct publish {
    struct hoop_meeting *meeting;
    struct hoop_address address;
    hoop_result_t result;
    struct hoop_failure failure;
};

static void do_publish(void *arg)
{
    struct publish *publish = arg;
    publish->result =
        hoop_meeting_file_publish(publish->meeting, &publish->address, &publish->failure);
}

static void do_withdraw(void *arg)
{
    struct publish *publish = arg;
    hoop_meeting_file_withdraw(publish->meeting);
}

static void say(int answers, const struct answer *answer)
{
    if (write(answers, answer, sizeof(*answer)) != sizeof(*answer)) {
        _exit(3);
    }
}

/* What the hub does: publishes, and withdraws on the parent's word. */
static void serve_file(const struct question *question, struct answer *answer, int answers,
                       int orders)
{
    struct publish publish = {.meeting = &answer->meeting, .failure = {.rank = -1}};
    char order = 0;
    if (hoop_address_parse(question->publish, &publish.address) != HOOP_OK ||
        hoop_service_start() != HOOP_OK) {
        _exit(4);
    }
    hoop_service_run(do_publish, &publish);
    answer->result = publish.result;
    (void)snprintf(answer->text, sizeof(answer->text), "%s", publish.failure.text);
    say(answers, answer);
    if (read(orders, &order, 1) != 1) {
        _exit(5);
    }
    hoop_service_run(do_withdraw, &publish);
}

static void answer_question(const struct question *question, int answers, int orders)
{
    const uint64_t timeout_ms = question->timeout_ms != 0 ? question->timeout_ms : LONG_MS;
    for (int i = 0; i == 0 || i < question->calls; i++) {
        struct answer answer = {.n = question->n, .rank = question->rank};
        if (question->url != NULL) {
            answer.result = hoop_meeting_from_url(question->url, question->n, question->rank,
                                                  timeout_ms, &answer.meeting);
        } else {
            answer.result =
                hoop_meeting_from_env(timeout_ms, &answer.meeting, &answer.n, &answer.rank);
        }
        (void)snprintf(answer.text, sizeof(answer.text), "%s", hoop_thread_error());
        if (answer.result == HOOP_OK && question->publish != NULL) {
            serve_file(question, &answer, answers, orders);
        }
        say(answers, &answer);
        hoop_meeting_finish(&answer.meeting);
    }
}

/* ---- In the parent ------------------------------------------------------------------------ */

/* Forks; *ret_orders is -1 in the parent, which then holds the asker. */
static struct asker divide(const char *const *env, int *ret_answers, int *ret_orders)
{
    int up[2];
    int down[2];
    struct asker asker = {.pid = -1};
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    asker.pid = fork();
    assert_true(asker.pid >= 0);
    if (asker.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(up[0]);
        close(down[1]);
        *ret_answers = up[1];
        *ret_orders = down[0];
        (void)clearenv();
        (void)putenv((char *)"HOOP_DEBUG=none");
        for (; env != NULL && *env != NULL; env++) {
            (void)putenv((char *)*env);
        }
        return asker;
    }
    close(up[1]);
    close(down[0]);
    asker.answers = up[0];
    asker.orders = down[1];
    return asker;
}

struct asker asker_start(const struct question *question)
{
    int answers = -1;
    int orders = -1;
    const struct asker asker = divide(question->env, &answers, &orders);
    if (asker.pid == 0) {
        answer_question(question, answers, orders);
        _exit(0);
    }
    return asker;
}

struct asker asker_fork(const char *const *env, void (*run)(int answers, const void *arg),
                        const void *arg)
{
    int answers = -1;
    int orders = -1;
    const struct asker asker = divide(env, &answers, &orders);
    if (asker.pid == 0) {
        run(answers, arg);
        _exit(0);
    }
    return asker;
}

bool asker_is_silent(const struct asker *asker, int ms)
{
    struct pollfd ready = {.fd = asker->answers, .events = POLLIN};
    return poll(&ready, 1, ms) == 0;
}

struct answer asker_hear(const struct asker *asker)
{
    struct answer answer;
    assert_false(asker_is_silent(asker, LONG_MS));
    assert_int_equal(read(asker->answers, &answer, sizeof(answer)), sizeof(answer));
    return answer;
}

void asker_tell(const struct asker *asker)
{
    assert_int_equal(write(asker->orders, "x", 1), 1);
}

void asker_end(struct asker *asker, int signal_number)
{
    int status = -1;
    if (signal_number != 0) {
        kill(asker->pid, signal_number);
    }
    assert_int_equal(waitpid(asker->pid, &status, 0), asker->pid);
    assert_int_equal(status, signal_number);
    close(asker->answers);
    close(asker->orders);
}

struct answer ask(const struct question *question)
{
    struct asker asker = asker_start(question);
    struct answer answer = asker_hear(&asker);
    for (int i = 1; i < question->calls; i++) {
        answer = asker_hear(&asker);
    }
    asker_end(&asker, 0);
    return answer;
}

void expect_answer(const struct answer *answer, hoop_result_t result, const char *text)
{
    if (answer->result != result || strstr(answer->text, text) == NULL) {
        fail_msg("%d \"%s\", expected %d \"%s\"", answer->result, answer->text, result, text);
    }
}

bool answers_meet(const struct answer *a, const struct answer *b)
{
    expect_answer(a, HOOP_OK, "");
    expect_answer(b, HOOP_OK, "");
    const struct hoop_meeting *one = &a->meeting;
    const struct hoop_meeting *other = &b->meeting;
    const bool names = strcmp(one->name, other->name) == 0;
    const bool secrets = memcmp(&one->secret, &other->secret, sizeof(one->secret)) == 0;
    assert_true(names == secrets || !one->has_secret || !other->has_secret);
    return names;
}
