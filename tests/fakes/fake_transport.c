/*
 * See fake_transport.h. Both ends of a link share a pipe:
 *
 *      sent[]   head ---- moved ---- taken ---- tail      counters of the sender's xfers
 *               done      in a slot             posted    with slots: moved is also "in a slot"
 *
 * With slots, the sender's progress copies an xfer into the next free slot, and receives take from
 * there. Without, receives take straight from the sender's xfer, and what is lent is a copy. Each
 * call of progress does one thing at most, so that every order of events comes up.
 */
#include "fakes/fake_transport.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_QUEUE 4

struct fake_slot {
    struct hoop_xfer sent; /* what a real transport puts in the header */
    void *data;
    bool busy;
};

struct fake_offer {
    uint32_t op;
    uint8_t *data;
    uint64_t bytes;
};

struct fake_pipe {
    pthread_mutex_t lock; /* guards all below */
    struct fake_offer offer;
    int refs;    /* how many ends exist */
    bool broken; /* the sender has gone or failed */
    uint32_t slots;
    struct hoop_xfer *sent[FAKE_QUEUE];
    uint64_t head, moved, tail; /* sender: done, read for the last time, posted */
    uint64_t taken;             /* receiver: how many it has received */
    struct fake_slot slot[FAKE_MAX_SLOTS];
};

struct fake_link {
    struct hoop_link base;
    struct fake_pipe *pipe;
    uint64_t random;
    struct hoop_xfer *received[FAKE_QUEUE]; /* the receiver's posted xfers */
    uint64_t head, tail;
};

struct fake_blob {
    struct fake_pipe *pipe; /* NULL in a receiver's blob */
};

static struct fake_script fake_script;
static _Atomic long fake_pending;
static _Atomic unsigned long fake_places;

void fake_play(const struct fake_script *script)
{
    fake_script = *script;
}

long fake_outstanding(void)
{
    return fake_pending;
}

unsigned long fake_placed(void)
{
    return fake_places;
}

static bool fake_chance(struct fake_link *link, unsigned percent)
{
    link->random = link->random * 6364136223846793005u + 1442695040888963407u;
    return (link->random >> 33) % 100 < percent;
}

static bool fake_lane_in(const struct fake_link *link, uint32_t lanes)
{
    return (lanes >> link->base.params.lane & 1) != 0;
}

static hoop_result_t fake_fail(struct fake_link *link, hoop_result_t code, const char *text)
{
    return hoop_failure_set(&link->base.failure, code, (int)link->base.params.peer, "fake: %s",
                            text);
}

static void fake_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    fake_pending--;
    xfer->done(xfer, result);
}

/* ---- Birth and death ---- */

static bool fake_reaches(bool same_process, bool same_machine)
{
    (void)same_machine;
    return same_process;
}

static void fake_pipe_unref(struct fake_pipe *pipe)
{
    pthread_mutex_lock(&pipe->lock);
    const int refs = --pipe->refs;
    pthread_mutex_unlock(&pipe->lock);
    if (refs > 0) {
        return;
    }
    for (uint32_t i = 0; i < FAKE_MAX_SLOTS; i++) {
        free(pipe->slot[i].data);
    }
    pthread_mutex_destroy(&pipe->lock);
    free(pipe);
}

static struct fake_pipe *fake_pipe_create(const struct hoop_link_params *params)
{
    assert(fake_script.slots <= FAKE_MAX_SLOTS);
    struct fake_pipe *pipe = calloc(1, sizeof(*pipe));
    if (pipe == NULL) {
        return NULL;
    }
    pthread_mutex_init(&pipe->lock, NULL);
    pipe->refs = 1;
    pipe->slots = fake_script.slots;
    for (uint32_t i = 0; i < (pipe->slots > 0 ? pipe->slots : FAKE_MAX_SLOTS); i++) {
        /* Exactly as large as promised, so that a sanitizer notices writes beyond it. */
        pipe->slot[i].data = malloc(params->chunk_bytes);
        if (pipe->slot[i].data == NULL) {
            fake_pipe_unref(pipe);
            return NULL;
        }
    }
    return pipe;
}

static hoop_result_t fake_create(const struct hoop_link_params *params, struct hoop_link **ret_link,
                                 struct hoop_blob *ret_blob, struct hoop_failure *failure)
{
    struct fake_link *link = calloc(1, sizeof(*link));
    struct fake_pipe *pipe = params->sending ? fake_pipe_create(params) : NULL;
    if (link == NULL || (params->sending && pipe == NULL)) {
        free(link);
        if (pipe != NULL) {
            fake_pipe_unref(pipe);
        }
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "fake: out of memory");
    }
    link->base.transport = &fake_transport;
    link->base.params = *params;
    link->pipe = pipe;
    link->random = fake_script.seed ^ (params->me * 0x9e3779b97f4a7c15u) ^
                   ((uint64_t)params->lane << 40) ^ ((uint64_t)params->sending << 50);
    const struct fake_blob blob = {pipe};
    ret_blob->bytes = sizeof(blob);
    memcpy(ret_blob->data, &blob, sizeof(blob));
    *ret_link = &link->base;
    return HOOP_OK;
}

static hoop_result_t fake_bind(struct hoop_link *base, const struct hoop_blob *peer)
{
    struct fake_link *link = (struct fake_link *)base;
    struct fake_blob blob;
    if (peer->bytes != sizeof(blob)) {
        return fake_fail(link, HOOP_INVALID_ARGUMENT, "not one of my blobs");
    }
    memcpy(&blob, peer->data, sizeof(blob));
    if (!base->params.sending) {
        pthread_mutex_lock(&blob.pipe->lock);
        blob.pipe->refs++;
        pthread_mutex_unlock(&blob.pipe->lock);
        link->pipe = blob.pipe;
    }
    base->bound = true;
    return HOOP_OK;
}

static void fake_offer(struct hoop_link *base, uint32_t op, void *data, uint64_t bytes)
{
    struct fake_pipe *pipe = ((struct fake_link *)base)->pipe;
    pthread_mutex_lock(&pipe->lock);
    pipe->offer = (struct fake_offer){op, data, bytes};
    pthread_mutex_unlock(&pipe->lock);
}

/* Ends all pending xfers. */
static void fake_drain(struct fake_link *link, hoop_result_t result)
{
    struct fake_pipe *pipe = link->pipe;
    if (!link->base.params.sending) {
        fake_offer(&link->base, 0, NULL, 0);
        while (link->head < link->tail) {
            fake_done(link->received[link->head++ % FAKE_QUEUE], result);
        }
        return;
    }
    pthread_mutex_lock(&pipe->lock);
    pipe->broken = true;
    pthread_mutex_unlock(&pipe->lock);
    while (pipe->head < pipe->tail) {
        fake_done(pipe->sent[pipe->head++ % FAKE_QUEUE], result);
    }
}

static void fake_destroy(struct hoop_link *base)
{
    struct fake_link *link = (struct fake_link *)base;
    if (link->pipe != NULL) {
        fake_drain(link, HOOP_ABORTED);
        fake_pipe_unref(link->pipe);
    }
    free(link);
}

/* ---- Data ---- */

static bool fake_puts_off(struct fake_link *link)
{
    return fake_chance(link, fake_script.again_percent) ||
           (link->base.params.sending && fake_lane_in(link, fake_script.full_lanes));
}

/* Under the lock: puts the payload in its offered place, if there is one; position becomes 1
 * then. */
static void fake_place(const struct fake_pipe *pipe, struct hoop_xfer *xfer)
{
    const struct fake_offer *offer = &pipe->offer;
    xfer->position = xfer->has_place && xfer->bytes > 0 && offer->op == xfer->op &&
                     xfer->place <= offer->bytes && xfer->bytes <= offer->bytes - xfer->place;
    if (xfer->position != 0) {
        memcpy(offer->data + xfer->place, xfer->data, xfer->bytes);
        fake_places++;
    }
}

static hoop_result_t fake_send(struct hoop_link *base, struct hoop_xfer *xfer)
{
    struct fake_link *link = (struct fake_link *)base;
    struct fake_pipe *pipe = link->pipe;
    if (pipe->tail - pipe->head == FAKE_QUEUE || fake_puts_off(link)) {
        return HOOP_AGAIN;
    }
    fake_pending++;
    pthread_mutex_lock(&pipe->lock);
    fake_place(pipe, xfer);
    pipe->sent[pipe->tail++ % FAKE_QUEUE] = xfer;
    pthread_mutex_unlock(&pipe->lock);
    return HOOP_OK;
}

static hoop_result_t fake_recv(struct hoop_link *base, struct hoop_xfer *xfer)
{
    struct fake_link *link = (struct fake_link *)base;
    if (link->tail - link->head == FAKE_QUEUE || fake_puts_off(link)) {
        return HOOP_AGAIN;
    }
    fake_pending++;
    link->received[link->tail++ % FAKE_QUEUE] = xfer;
    return HOOP_OK;
}

/* The slot of a message that the receiver holds. */
static struct fake_slot *fake_slot_of(struct fake_pipe *pipe, uint64_t position)
{
    return &pipe->slot[position % (pipe->slots > 0 ? pipe->slots : FAKE_MAX_SLOTS)];
}

static void fake_release(struct hoop_link *base, struct hoop_xfer *xfer)
{
    struct fake_link *link = (struct fake_link *)base;
    pthread_mutex_lock(&link->pipe->lock);
    fake_slot_of(link->pipe, xfer->position)->busy = false;
    pthread_mutex_unlock(&link->pipe->lock);
}

/* Under the lock: the next sent xfer that a receive can get; NULL: none. Without slots its payload
 * is still in the sender's memory, unless it is lent. */
static const struct hoop_xfer *fake_next(struct fake_pipe *pipe, bool lend)
{
    struct fake_slot *slot = fake_slot_of(pipe, pipe->taken);
    if (pipe->slots > 0) {
        return pipe->taken < pipe->moved ? &slot->sent : NULL;
    }
    if (pipe->broken || pipe->taken == pipe->tail || slot->busy) {
        return NULL;
    }
    slot->sent = *pipe->sent[pipe->taken % FAKE_QUEUE];
    slot->busy = lend;
    if (lend && slot->sent.bytes > 0) {
        slot->sent.data = memcpy(slot->data, slot->sent.data, slot->sent.bytes);
    }
    return &slot->sent;
}

/* Under the lock: delivers one message to one receive. */
static hoop_result_t fake_deliver(struct fake_link *link, const struct hoop_xfer *sent,
                                  struct hoop_xfer *xfer)
{
    struct fake_pipe *pipe = link->pipe;
    if (sent->op != xfer->op || sent->chunk != xfer->chunk || sent->bytes != xfer->bytes ||
        !hoop_signature_equal(&sent->signature, &xfer->signature)) {
        return fake_fail(link, HOOP_MISMATCH, "the peer sent something else");
    }
    const bool placed = sent->position != 0;
    xfer->position = pipe->taken++;
    if (placed && xfer->data != pipe->offer.data + sent->place) {
        return fake_fail(link, HOOP_INTERNAL_ERROR, "something was put where it does not belong");
    }
    pipe->moved += pipe->slots == 0; /* the sender's memory is no longer needed */
    if (xfer->data == NULL) {
        xfer->data = sent->data;
        xfer->lent = true;
        return HOOP_OK;
    }
    if (xfer->bytes > 0 && !placed) {
        memcpy(xfer->data, sent->data, xfer->bytes);
    }
    fake_slot_of(pipe, xfer->position)->busy = false;
    return HOOP_OK;
}

static bool fake_progress_recv(struct fake_link *link)
{
    if (link->head == link->tail) {
        return false;
    }
    struct hoop_xfer *xfer = link->received[link->head % FAKE_QUEUE];
    pthread_mutex_lock(&link->pipe->lock);
    const struct hoop_xfer *sent = fake_next(link->pipe, xfer->data == NULL);
    const hoop_result_t result = sent == NULL ? HOOP_AGAIN : fake_deliver(link, sent, xfer);
    pthread_mutex_unlock(&link->pipe->lock);
    if (result == HOOP_AGAIN) {
        return false;
    }
    if (result == HOOP_OK) {
        link->head++;
        fake_done(xfer, HOOP_OK);
    } else {
        fake_drain(link, result);
    }
    return true;
}

static bool fake_progress_send(struct fake_link *link)
{
    struct fake_pipe *pipe = link->pipe;
    struct hoop_xfer *done = NULL;
    bool moved = false;
    pthread_mutex_lock(&pipe->lock);
    if (pipe->head < pipe->moved) {
        done = pipe->sent[pipe->head++ % FAKE_QUEUE];
    } else if (pipe->moved < pipe->tail && pipe->slots > 0 &&
               !pipe->slot[pipe->moved % pipe->slots].busy) {
        struct fake_slot *slot = &pipe->slot[pipe->moved % pipe->slots];
        slot->sent = *pipe->sent[pipe->moved++ % FAKE_QUEUE];
        if (slot->sent.bytes > 0) {
            memcpy(slot->data, slot->sent.data, slot->sent.bytes);
        }
        slot->sent.data = slot->data;
        slot->busy = true;
        moved = true;
    }
    pthread_mutex_unlock(&pipe->lock);
    if (done != NULL) {
        fake_done(done, HOOP_OK);
    }
    return moved || done != NULL;
}

static bool fake_progress(struct hoop_link *base)
{
    struct fake_link *link = (struct fake_link *)base;
    if (base->failure.code != HOOP_OK || fake_lane_in(link, fake_script.stalled_lanes) ||
        fake_chance(link, fake_script.late_percent)) {
        return false;
    }
    return base->params.sending ? fake_progress_send(link) : fake_progress_recv(link);
}

const struct hoop_transport fake_transport = {
    .name = "fake",
    .reaches = fake_reaches,
    .create = fake_create,
    .bind = fake_bind,
    .send = fake_send,
    .recv = fake_recv,
    .release = fake_release,
    .offer = fake_offer,
    .place_least_bytes = 1,
    .progress = fake_progress,
    .destroy = fake_destroy,
};
