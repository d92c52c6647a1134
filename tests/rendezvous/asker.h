/*
 * Processes that ask where to meet. Settings are read once per process, so every question needs a
 * process of its own. The parent never calls hoop, and only the parent asserts.
 */
#ifndef RENDEZVOUS_ASKER_H
#define RENDEZVOUS_ASKER_H

#include "harness/family.h"
#include "membership/membership.h"
#include <sys/types.h>

#define LONG_MS 20000

struct question {
    const char *const *env; /* the whole environment, with NULL at the end; NULL: empty */
    const char *url;        /* NULL: the environment decides */
    uint32_t n, rank;       /* with url */
    int calls;              /* how many calls; 0: one */
    uint64_t timeout_ms;    /* 0: LONG_MS */
    const char *publish;    /* rank 0 of a file: the IP address of its root */
};

struct answer {
    hoop_result_t result;
    uint32_t n, rank;
    struct hoop_rendezvous rendezvous; /* in the parent, pointers only tell whether they are NULL */
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
/* Starts a process for other purposes; what it writes to `answers` is an answer. */
struct asker asker_fork(const char *const *env, void (*run)(int answers, const void *arg),
                        const void *arg);
struct answer asker_hear(const struct asker *asker);
void asker_tell(const struct asker *asker);
/* No answer has come, and none comes within this time. */
bool asker_is_silent(const struct asker *asker, int ms);
/* Waits until it has ended, which must be well, or kills it. */
void asker_end(struct asker *asker, bool by_kill);

/* The answer to a question's last call. */
struct answer ask(const struct question *question);

/* Expects this result, and an error text that contains `text`. */
void expect_answer(const struct answer *answer, hoop_result_t result, const char *text);
/* Both went well. Would they meet each other? */
bool answers_meet(const struct answer *a, const struct answer *b);

#endif
