/* Processes that ask; see asker.h. */
#include "rendezvous/asker.h"
#include "base/clock.h"
#include "rendezvous/file_store.h"
#include "tree/leader.h"
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- In the process ----------------------------------------------------------------------- */

struct serving {
    struct hoop_rendezvous *rendezvous;
    hoop_result_t result;
    struct hoop_failure failure;
};

static void do_serve(void *arg)
{
    struct serving *serving = arg;
    serving->result = hoop_leader_begin(serving->rendezvous);
    (void)hoop_failure_take(&serving->failure, serving->result, -1);
}

static void do_retire(void *arg)
{
    const struct serving *serving = arg;
    hoop_leader_retire(serving->rendezvous->name, true);
}

static void say(int answers, const struct answer *answer)
{
    if (write(answers, answer, sizeof(*answer)) != sizeof(*answer)) {
        _exit(3);
    }
}

/* Rank 0's part: serves the rendezvous, which publishes it, until the parent gives an order. */
static void serve_file(const struct question *question, struct answer *answer, int answers,
                       int orders)
{
    struct serving serving = {.rendezvous = &answer->rendezvous, .failure = {.rank = -1}};
    char order = 0;
    if (hoop_address_parse(question->publish, &answer->rendezvous.addresses[0]) != HOOP_OK ||
        hoop_service_start() != HOOP_OK) {
        _exit(4);
    }
    hoop_service_run(do_serve, &serving);
    answer->result = serving.result;
    (void)snprintf(answer->text, sizeof(answer->text), "%s", serving.failure.text);
    say(answers, answer);
    if (read(orders, &order, 1) != 1) {
        _exit(5);
    }
    hoop_service_run(do_retire, &serving);
    hoop_file_store_settle(answer->rendezvous.file);
}

static void answer_question(const struct question *question, int answers, int orders)
{
    const uint64_t timeout_ms = question->timeout_ms != 0 ? question->timeout_ms : LONG_MS;
    for (int i = 0; i == 0 || i < question->calls; i++) {
        struct answer answer = {.n = question->n, .rank = question->rank};
        answer.result = hoop_rendezvous_find(question->url, timeout_ms, &answer.rendezvous,
                                             &answer.n, &answer.rank);
        (void)snprintf(answer.text, sizeof(answer.text), "%s", hoop_thread_error());
        if (answer.result == HOOP_OK && question->publish != NULL) {
            serve_file(question, &answer, answers, orders);
        }
        say(answers, &answer);
        hoop_rendezvous_finish(&answer.rendezvous);
    }
}

/* ---- In the parent ------------------------------------------------------------------------ */

/* What a process is started for: to answer a question, or to run a function. */
struct errand {
    const char *const *env;
    const struct question *question;
    void (*run)(int answers, const void *arg);
    const void *arg;
};

static void asker_run(const struct family_self *self, const void *arg)
{
    const struct errand *errand = arg;
    (void)clearenv();
    (void)putenv((char *)"HOOP_DEBUG=none");
    for (const char *const *env = errand->env; env != NULL && *env != NULL; env++) {
        (void)putenv((char *)*env);
    }
    if (errand->question != NULL) {
        answer_question(errand->question, self->to_parent, self->from_parent);
    } else {
        errand->run(self->to_parent, errand->arg);
    }
}

static struct asker asker_send(const struct errand *errand)
{
    struct asker asker;
    family_init(&asker.family, 1);
    assert_true(family_fork(&asker.family, 0, asker_run, errand));
    return asker;
}

struct asker asker_start(const struct question *question)
{
    return asker_send(&(struct errand){.env = question->env, .question = question});
}

struct asker asker_fork(const char *const *env, void (*run)(int answers, const void *arg),
                        const void *arg)
{
    return asker_send(&(struct errand){.env = env, .run = run, .arg = arg});
}

bool asker_is_silent(const struct asker *asker, int ms)
{
    struct pollfd ready = {.fd = asker->family.ranks[0].from, .events = POLLIN};
    return poll(&ready, 1, ms) == 0;
}

struct answer asker_hear(const struct asker *asker)
{
    struct answer answer;
    assert_int_equal(
        family_hear(&asker->family, 0, &answer, sizeof(answer), hoop_deadline_ns(LONG_MS)),
        FAMILY_HEARD);
    return answer;
}

void asker_tell(const struct asker *asker)
{
    assert_true(family_tell(&asker->family, 0, "x", 1));
}

void asker_end(struct asker *asker, bool by_kill)
{
    if (by_kill) {
        family_kill(&asker->family, 0);
    } else {
        assert_true(family_reap(&asker->family, 0, hoop_deadline_ns(LONG_MS)));
    }
    family_finish(&asker->family);
}

struct answer ask(const struct question *question)
{
    struct asker asker = asker_start(question);
    struct answer answer = asker_hear(&asker);
    for (int i = 1; i < question->calls; i++) {
        answer = asker_hear(&asker);
    }
    asker_end(&asker, false);
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
    const struct hoop_rendezvous *one = &a->rendezvous;
    const struct hoop_rendezvous *other = &b->rendezvous;
    const bool names = strcmp(one->name, other->name) == 0;
    const bool secrets = memcmp(&one->secret, &other->secret, sizeof(one->secret)) == 0;
    assert_true(names == secrets);
    return names;
}
