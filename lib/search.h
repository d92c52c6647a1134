/*
 * A search: dials addresses in turn until somebody at one of them proves itself.
 *
 *      dialling --proven--> found
 *         |  ^\__ refused, closed, no answer: the next address, after each round a little later
 *         |   \__ a round in which every address gave a reason that time does not change: failed
 *         \__ the deadline: failed
 *
 * Service thread only. A search is over with `found` and with `failed`; it may be destroyed there,
 * and at any other time.
 */
#ifndef HOOP_SEARCH_H
#define HOOP_SEARCH_H

#include "control.h"

#define HOOP_SEARCH_ADDRESSES 16u

/* What is looked for: copied. */
struct hoop_search_order {
    const struct hoop_address *addresses; /* at most HOOP_SEARCH_ADDRESSES, at least one */
    uint32_t count;
    const struct hoop_frame_hello *hello;
    const struct hoop_secret *secret;
    uint64_t deadline_ns;
};

struct hoop_search_owner {
    /* A proven connection, which the owner adopts. */
    void (*found)(void *arg, struct hoop_control *control);
    /* why: "tried 10.0.0.1:29500 (ECONNREFUSED), 10.0.0.2:29500 (no answer) for 60000 ms" */
    void (*failed)(void *arg, hoop_result_t code, const char *why);
};

struct hoop_search;

/* owner and arg: borrowed until destroyed. Neither of its functions is called in here. */
hoop_result_t hoop_search_create(const struct hoop_search_order *order,
                                 const struct hoop_search_owner *owner, void *arg,
                                 struct hoop_search **ret_search);
/* Brings the deadline forward; a later one changes nothing. */
void hoop_search_until(struct hoop_search *search, uint64_t deadline_ns);
void hoop_search_destroy(struct hoop_search *search); /* NULL is allowed */

#endif
