/*
 * Processes that ask where to meet. Settings are read once, so every question needs a process of
 * its own: the parent never calls hoop, and it alone asserts.
 */
#ifndef RENDEZVOUS_ASKER_H
#define RENDEZVOUS_ASKER_H

#include "harness/family.h"
#include "membership/membership.h"
#include <sys/types.h>

#define LONG_MS 20000

struct question {
    const char *const *env; /* the whole environment, NULL at the end; NULL: none */
    const char *url;        /* NULL: the environment decides */
    uint32_t n, rank;       /* with url */
    int calls;              /* 0: one */
    uint64_t timeout_ms;    /* 0: LONG_MS */
    const char *publish;    /* rank 0 of a file: the ip of its root */
};

struct answer {
    hoop_result_t result;
    uint32_t n, rank;
    struct hoop_rendezvous rendezvous; /* its pointers are of use only as being NULL or not */
    char text[HOOP_FAILURE_TEXT_BYTES];
};

struct asker {
    struct family family;
};

/*
 * Starts a process that answers once for every call. One that publishes waits after each answer for
 * asker_tell(), withdraws, and answers again.
 */
struct asker asker_start(const struct question *question);
/* A process for what no question asks; what it writes to `answers` is an answer. */
struct asker asker_fork(const char *const *env, void (*run)(int answers, const void *arg),
                        const void *arg);
struct answer asker_hear(const struct asker *asker);
void asker_tell(const struct asker *asker);
/* No answer has come, and none comes in this time. */
bool asker_is_silent(const struct asker *asker, int ms);
/* Waits for its end, which must be a good one, or kills it. */
void asker_end(struct asker *asker, bool by_kill);

/* The answer to the last call of a question. */
struct answer ask(const struct question *question);

/* The result, and words of the sentence. */
void expect_answer(const struct answer *answer, hoop_result_t result, const char *text);
/* Both went well. Do they meet each other? */
bool answers_meet(const struct answer *a, const struct answer *b);

#endif
