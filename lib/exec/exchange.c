/* Point-to-point (see exchange.h). */
#include "exec/exchange.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

hoop_result_t hoop_exchange_init(struct hoop_exchange *exchange)
{
    exchange->sequences = calloc(exchange->n, sizeof(*exchange->sequences));
    exchange->last = calloc(exchange->n, sizeof(*exchange->last));
    if (exchange->sequences == NULL || exchange->last == NULL) {
        hoop_exchange_finish(exchange);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for the transfers of %u ranks",
                          exchange->n);
    }
    return HOOP_OK;
}

void hoop_exchange_finish(struct hoop_exchange *exchange)
{
    free(exchange->sequences);
    free(exchange->last);
    *exchange = (struct hoop_exchange){0};
}

/* ---- A rank with itself --------------------------------------------------------------------- */

/* The next one of a rank with itself, in one direction. */
static const struct hoop_transfer *exchange_own(const struct hoop_transfer *at, uint32_t me,
                                                bool sending)
{
    while (at != NULL && (at->peer != me || at->sending != sending)) {
        at = at->next;
    }
    return at;
}

hoop_result_t hoop_exchange_check(const struct hoop_transfer *transfers, uint32_t me)
{
    const struct hoop_transfer *out = exchange_own(transfers, me, true);
    const struct hoop_transfer *in = exchange_own(transfers, me, false);
    while (out != NULL && in != NULL && hoop_signature_equal(&out->signature, &in->signature)) {
        out = exchange_own(out->next, me, true);
        in = exchange_own(in->next, me, false);
    }
    if (out == NULL && in == NULL) {
        return HOOP_OK;
    }
    char what[96];
    hoop_signature_describe(out != NULL ? &out->signature : &in->signature, what, sizeof(what));
    return hoop_error(HOOP_INVALID_USAGE, "rank %u %s itself: %s; the same group has no %s like it",
                      me, out != NULL ? "sends to" : "receives from", what,
                      out != NULL ? "receive" : "send");
}

static void exchange_copy_own(const struct hoop_exchange *exchange)
{
    const struct hoop_transfer *out = exchange_own(exchange->transfers, exchange->me, true);
    const struct hoop_transfer *in = exchange_own(exchange->transfers, exchange->me, false);
    while (out != NULL && in != NULL) {
        if (in->bytes > 0) {
            memmove(in->data, out->data, in->bytes);
        }
        out = exchange_own(out->next, exchange->me, true);
        in = exchange_own(in->next, exchange->me, false);
    }
}

/* ---- One transfer --------------------------------------------------------------------------- */

/* Touches nothing but its transfer: a link that is destroyed after a failure calls it, too. */
static void exchange_xfer_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct hoop_transfer *transfer = (void *)((char *)xfer - offsetof(struct hoop_transfer, xfer));
    if (result != HOOP_OK) {
        transfer->failed = true;
        return;
    }
    transfer->moved += xfer->bytes;
    transfer->posted = false;
    transfer->done = transfer->moved == transfer->bytes;
}

static void exchange_fail(const struct hoop_transfer *transfer, hoop_result_t code)
{
    const struct hoop_exchange *exchange = transfer->exchange;
    (void)hoop_link_blame(transfer->link, transfer->sending, exchange->me, transfer->peer, code, "",
                          exchange->failure);
}

static hoop_result_t exchange_post(struct hoop_transfer *transfer)
{
    const size_t left = transfer->bytes - transfer->moved;
    const uint64_t chunk = transfer->exchange->chunk_bytes;
    static char nothing; /* NULL would ask the link for memory of its own */
    transfer->xfer = (struct hoop_xfer){
        .data = transfer->bytes > 0 ? (char *)transfer->data + transfer->moved : &nothing,
        .bytes = left < chunk ? left : (size_t)chunk,
        .op = transfer->sequence,
        .chunk = transfer->moved,
        .signature = transfer->signature,
        .done = exchange_xfer_done,
        .has_place = true,
        .place = transfer->moved,
    };
    return transfer->sending ? hoop_link_send(transfer->link, &transfer->xfer)
                             : hoop_link_recv(transfer->link, &transfer->xfer);
}

/* True: something moved. A failure is in the exchange's failure. */
static bool exchange_turn(struct hoop_transfer *transfer)
{
    struct hoop_exchange *exchange = transfer->exchange;
    hoop_result_t result = HOOP_OK;
    bool moved = false;
    if (transfer->link == NULL) {
        result = exchange->link(exchange->arg, transfer->peer, HOOP_TRANSFER_LANE,
                                transfer->sending, &transfer->link);
        if (result == HOOP_OK && !transfer->sending) {
            hoop_link_offer(transfer->link, transfer->sequence, transfer->data, transfer->bytes);
        }
    } else {
        moved = hoop_link_progress(transfer->link);
    }
    if (result == HOOP_OK && !transfer->done && !transfer->posted) {
        result = exchange_post(transfer);
        transfer->posted = result == HOOP_OK;
        moved = moved || transfer->posted;
    }
    const bool failed = transfer->failed || (transfer->link != NULL && !transfer->done &&
                                             transfer->link->failure.code != HOOP_OK);
    if (failed || (result != HOOP_OK && result != HOOP_AGAIN)) {
        exchange_fail(transfer, failed ? HOOP_INTERNAL_ERROR : result);
    }
    return moved;
}

/* ---- The whole ------------------------------------------------------------------------------ */

void hoop_exchange_start(struct hoop_exchange *exchange, struct hoop_transfer *transfers,
                         struct hoop_failure *failure)
{
    exchange->transfers = transfers;
    exchange->failure = failure;
    for (struct hoop_transfer *t = transfers; t != NULL; t = t->next) {
        struct hoop_transfer **last = &exchange->last[t->peer][t->sending];
        t->exchange = exchange;
        t->before = *last;
        t->sequence = ++exchange->sequences[t->peer][t->sending];
        t->done = t->peer == exchange->me;
        *last = t;
    }
    for (struct hoop_transfer *t = transfers; t != NULL; t = t->next) {
        exchange->last[t->peer][t->sending] = NULL;
    }
    exchange_copy_own(exchange);
}

enum hoop_poll hoop_exchange_poll(struct hoop_exchange *exchange)
{
    bool moved = false, left = false;
    for (struct hoop_transfer *t = exchange->transfers;
         t != NULL && exchange->failure->code == HOOP_OK; t = t->next) {
        if (!t->done && (t->before == NULL || t->before->done)) {
            moved = exchange_turn(t) || moved;
        }
        left = left || !t->done;
    }
    if (!left || exchange->failure->code != HOOP_OK) {
        return HOOP_POLL_DONE;
    }
    return moved ? HOOP_POLL_BUSY : HOOP_POLL_IDLE;
}

const struct hoop_transfer *hoop_exchange_awaited(const struct hoop_exchange *exchange,
                                                  const struct hoop_transfer *from)
{
    const struct hoop_transfer *at = from != NULL ? from->next : exchange->transfers;
    while (at != NULL && at->done) {
        at = at->next;
    }
    return at;
}
