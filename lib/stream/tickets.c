/* The tickets of one stream (see tickets.h). */
#include "stream/tickets.h"

#include <stdlib.h>

void hoop_tickets_finish(struct hoop_tickets *tickets)
{
    free(tickets->results);
    tickets->results = NULL;
}

void hoop_tickets_fail(struct hoop_tickets *tickets, hoop_result_t result)
{
    if (tickets->failed == HOOP_OK) {
        tickets->failed = result;
    }
}

static void tickets_keep(struct hoop_tickets *tickets, uint64_t number, hoop_result_t result)
{
    if (result != HOOP_OK && tickets->results == NULL) {
        tickets->results = calloc(HOOP_TICKETS_KEPT, 1);
        if (tickets->results == NULL) {
            tickets->forgotten = result;
        }
    }
    if (tickets->results != NULL) {
        uint8_t *kept = &tickets->results[number % HOOP_TICKETS_KEPT];
        tickets->forgotten = *kept != HOOP_OK ? (hoop_result_t)*kept : tickets->forgotten;
        *kept = (uint8_t)result; /* every public result is less than 256 */
    }
}

void hoop_tickets_complete(struct hoop_tickets *tickets, uint64_t count)
{
    const uint64_t before = atomic_load_explicit(&tickets->done, memory_order_relaxed);
    for (uint64_t i = 1; i <= count; i++) {
        tickets_keep(tickets, before + i, tickets->failed);
        tickets->failed = HOOP_OK;
    }
    atomic_store_explicit(&tickets->done, before + count, memory_order_release);
}

hoop_result_t hoop_tickets_result(const struct hoop_tickets *tickets, uint64_t number)
{
    const uint64_t done = atomic_load_explicit(&tickets->done, memory_order_acquire);
    if (number > done) {
        return HOOP_IN_PROGRESS;
    }
    const bool kept = tickets->results != NULL && done - number < HOOP_TICKETS_KEPT;
    return kept ? (hoop_result_t)tickets->results[number % HOOP_TICKETS_KEPT] : tickets->forgotten;
}
