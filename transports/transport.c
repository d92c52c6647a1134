/* The table of transports, and the checks of the contract that are the same for all of them. */
#include "transports/transport.h"
#include "base/clock.h"
#include "base/settings.h"
#include "transports/table.h"
#include <assert.h>
#include <stddef.h>
#include <string.h>

const struct hoop_transport *const hoop_transports[] = {
    &hoop_transport_inproc, &hoop_transport_shm, &hoop_transport_tcp, &hoop_transport_rdma, NULL,
};

const struct hoop_transport *(*hoop_transport_decorate)(const struct hoop_transport *);

static const struct hoop_transport *transport_decorated(const struct hoop_transport *transport)
{
    const bool decorate = transport != NULL && hoop_transport_decorate != NULL;
    return decorate ? hoop_transport_decorate(transport) : transport;
}

const struct hoop_transport *hoop_transport_for(bool same_process, bool same_machine)
{
    const struct hoop_transport *const *at = hoop_transports;
    while (*at != NULL && !(*at)->reaches(same_process, same_machine)) {
        at++;
    }
    return transport_decorated(*at);
}

const struct hoop_transport *hoop_transport_named(const char *name)
{
    const struct hoop_transport *const *at = hoop_transports;
    while (*at != NULL && strcmp((*at)->name, name) != 0) {
        at++;
    }
    return transport_decorated(*at);
}

hoop_result_t hoop_link_create(const struct hoop_transport *transport,
                               const struct hoop_link_params *params, struct hoop_link **ret_link,
                               struct hoop_blob *ret_blob, struct hoop_failure *failure)
{
    assert(transport != NULL && params != NULL && ret_link != NULL && ret_blob != NULL);
    struct hoop_link_params wanted = *params;
    if (wanted.slots == 0) {
        wanted.slots = 1;
    }
    struct hoop_link *link = NULL;
    struct hoop_blob blob = {0};
    const hoop_result_t result = transport->create(&wanted, &link, &blob, failure);
    if (result != HOOP_OK) {
        return result;
    }
    assert(link != NULL && blob.bytes <= HOOP_BLOB_BYTES);
    link->transport = transport;
    link->params = wanted;
    *ret_link = link;
    *ret_blob = blob;
    return HOOP_OK;
}

hoop_result_t hoop_link_blame(const struct hoop_link *link, bool sending, uint32_t me,
                              uint32_t peer, hoop_result_t code, const char *where,
                              struct hoop_failure *failure)
{
    const struct hoop_failure *own = link != NULL ? &link->failure : NULL;
    const bool told = own != NULL && own->code != HOOP_OK;
    const int culprit = told && own->rank >= 0 ? own->rank : (int)peer;
    if (told && own->code == HOOP_MISMATCH) {
        return hoop_failure_set(failure, own->code, culprit, "%s", own->text);
    }
    return hoop_failure_set(failure, told ? own->code : code, culprit, "rank %u, %s rank %u%s: %s",
                            me, sending ? "sending to" : "receiving from", peer, where,
                            told ? own->text : hoop_get_error_string(code));
}

hoop_result_t hoop_link_bind(struct hoop_link *link, const struct hoop_blob *peer)
{
    assert(link != NULL && peer != NULL && !link->bound);
    if (link->failure.code != HOOP_OK) {
        return link->failure.code;
    }
    if (peer->bytes > HOOP_BLOB_BYTES) {
        return hoop_failure_set(&link->failure, HOOP_INVALID_ARGUMENT, (int)link->params.peer,
                                "rank %u sent a blob of %u bytes, expected at most %u",
                                link->params.peer, peer->bytes, (unsigned)HOOP_BLOB_BYTES);
    }
    const hoop_result_t result = link->transport->bind(link, peer);
    assert(result == HOOP_OK || result == HOOP_AGAIN || result == link->failure.code);
    link->bound = result == HOOP_OK;
    return result;
}

static void transport_check_xfer(const struct hoop_link *link, const struct hoop_xfer *xfer)
{
    assert(link != NULL && xfer != NULL && xfer->done != NULL);
    assert(link->bound || link->failure.code != HOOP_OK);
    assert(xfer->bytes <= link->params.chunk_bytes);
    assert(!xfer->lent);
    (void)link;
    (void)xfer;
}

hoop_result_t hoop_link_send(struct hoop_link *link, struct hoop_xfer *xfer)
{
    transport_check_xfer(link, xfer);
    assert(link->params.sending && (xfer->data != NULL || xfer->bytes == 0));
    if (link->failure.code != HOOP_OK) {
        return link->failure.code;
    }
    return link->transport->send(link, xfer);
}

hoop_result_t hoop_link_recv(struct hoop_link *link, struct hoop_xfer *xfer)
{
    transport_check_xfer(link, xfer);
    assert(!link->params.sending);
    if (link->failure.code != HOOP_OK) {
        return link->failure.code;
    }
    return link->transport->recv(link, xfer);
}

void hoop_link_offer(struct hoop_link *link, uint32_t op, void *data, uint64_t bytes)
{
    assert(link != NULL && link->bound && !link->params.sending);
    assert(data != NULL || bytes == 0);
    if (hoop_link_places(link, bytes) && link->failure.code == HOOP_OK) {
        link->transport->offer(link, op, data, bytes);
    }
}

void hoop_link_pair(struct hoop_link *sender, struct hoop_link *receiver)
{
    assert(sender != NULL && sender->bound && sender->params.sending);
    assert(receiver != NULL && receiver->bound && !receiver->params.sending);
    assert(sender->params.peer == receiver->params.peer);
    if (sender->transport == receiver->transport && sender->transport->pair != NULL &&
        sender->failure.code == HOOP_OK && receiver->failure.code == HOOP_OK) {
        sender->transport->pair(sender, receiver);
    }
}

void hoop_link_release(struct hoop_link *link, struct hoop_xfer *xfer)
{
    assert(link != NULL && xfer != NULL && xfer->lent && !link->params.sending);
    link->transport->release(link, xfer);
    xfer->lent = false;
    xfer->data = NULL;
}

int hoop_link_watch_fd(struct hoop_link *link)
{
    assert(link != NULL);
    return link->bound && link->transport->watch_fd != NULL ? link->transport->watch_fd(link) : -1;
}

/* Sets the failure first, so that a `done` that posts again is refused. */
void hoop_link_leave(struct hoop_link *link, uint64_t deadline_ns)
{
    if (link == NULL || link->failure.code != HOOP_OK) {
        return;
    }
    link->failure.code = HOOP_ABORTED;
    link->leave_by_ns = deadline_ns;
    if (link->transport->leave != NULL) {
        link->transport->leave(link);
    }
}

void hoop_link_destroy(struct hoop_link *link)
{
    if (link != NULL) {
        hoop_link_leave(link, hoop_deadline_ns(hoop_settings()->dead_after_ms));
        link->transport->destroy(link);
    }
}

void hoop_link_abandon(struct hoop_link *link)
{
    if (link != NULL && link->failure.code == HOOP_OK) {
        link->failure.code = HOOP_REMOTE_ERROR;
    }
    hoop_link_destroy(link);
}
