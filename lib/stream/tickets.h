/*
 * The tickets of one stream: how many were given out, how many are complete, and the results of
 * those that failed. No I/O and no lock of its own; the queue's lock guards all but `done`.
 *
 *      numbers   1 ............ done ............ given
 *                 complete        |  to come
 *      results   of the last HOOP_TICKETS_KEPT complete ones; all older ones report the last of
 *                their failures, or HOOP_OK
 */
#ifndef HOOP_TICKETS_H
#define HOOP_TICKETS_H

#include "base/error.h"
#include <stdatomic.h>
#include <stdint.h>

#define HOOP_TICKETS_KEPT 65536u

struct hoop_tickets {
    uint64_t given;
    _Atomic uint64_t done;
    hoop_result_t failed;    /* first failure since the last complete ticket */
    hoop_result_t forgotten; /* the last failure that is not kept any more */
    uint8_t *results;        /* [HOOP_TICKETS_KEPT], by number; NULL: none has failed */
};

void hoop_tickets_finish(struct hoop_tickets *tickets);

/* Work before the next ticket has failed. */
void hoop_tickets_fail(struct hoop_tickets *tickets, hoop_result_t result);

/* The next `count` tickets are complete. */
void hoop_tickets_complete(struct hoop_tickets *tickets, uint64_t count);

/* HOOP_IN_PROGRESS, HOOP_OK or the failure. number is 1 to given. */
hoop_result_t hoop_tickets_result(const struct hoop_tickets *tickets, uint64_t number);

#endif
