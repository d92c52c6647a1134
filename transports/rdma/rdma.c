/*
 * Links over RDMA: birth, end, and events of the device. rdma_ends.c does the work of the two ends,
 * rdma_context.c has what the links of a rank share, rdma_port.c chooses ports, verbs.c makes the
 * calls. docs/rdma.md describes the whole.
 *
 * With several ports, the receiver says which networks its ports are in, the sender chooses one of
 * the ways between the two ranks (hoop_rdma_way()), and each makes its queue at its end of that
 * way.
 *
 *      sender                                     receiver
 *      create            <------- networks ------  create
 *      bind: queue        ----- queue, port ---->  bind: queue, connects it
 *      send: connects it <----- queue, slots ----
 *
 * A packet to a queue that is not connected yet is lost, and sent again only after a long timeout:
 * so the receiver's queue is connected first.
 *
 * Data that a sender has reported as done may still be under way when its end is destroyed: so
 * destroy says goodbye, and waits until that has arrived, or the peer's end is gone.
 */
#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/sizes.h"
#include "runtime/wait.h"
#include "transports/agree.h"
#include "transports/check/checksum.h"
#include "transports/rdma/rdma_link.h"
#include "transports/table.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RDMA_MAGIC 0x35616d64u       /* "dma5" */
#define RDMA_QUEUE_MAGIC 0x35717264u /* "drq5" */
#define RDMA_INLINE_BYTES 256u       /* a header, and payload dominated by latency */
#define RDMA_EVENTS 16               /* taken per call */

struct rdma_blob {
    struct hoop_blob_head head;
    uint32_t check;
    uint16_t immediate;                      /* 1: devices here have immediate data */
    uint16_t count;                          /* number of the receiver's ports; 0 from a sender */
    uint32_t networks[HOOP_RDMA_RANK_PORTS]; /* that these ports are in */
};
_Static_assert(sizeof(struct rdma_blob) <= HOOP_BLOB_BYTES, "the blob is too small");

struct rdma_queue_blob {
    struct hoop_blob_head head;
    struct hoop_verbs_address address;
    uint32_t port;  /* from a sender: the receiver's port that it is for. 0 from a receiver */
    uint64_t slots; /* address of the receiver's memory, and below its key; 0 from a sender */
    uint32_t slots_key;
    uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct rdma_queue_blob) <= HOOP_BLOB_BYTES, "the blob is too small");

/* Never chosen by reach: it is asked for by name, or chosen by hoop_rdma_is_usable(). */
static bool rdma_reaches(bool same_process, bool same_machine)
{
    (void)same_process;
    (void)same_machine;
    return false;
}

/* ---- Events of the device -------------------------------------------------------------------- */

void hoop_rdma_fail(struct hoop_rdma_link *rdma, hoop_result_t code, const char *why)
{
    const struct hoop_link_params *params = &rdma->base.params;
    const struct hoop_rdma_context *context = rdma->context;
    const uint32_t culprit = code == HOOP_REMOTE_ERROR ? params->peer : params->me;
    rdma->broken = true;
    if (rdma->left_ns == 0) {
        (void)hoop_failure_set(&rdma->base.failure, code, (int)culprit,
                               "rank %u (%s port %u) cannot %s rank %u (lane %u): %s", params->me,
                               context->port->device, context->port->port,
                               params->sending ? "send to" : "receive from", params->peer,
                               params->lane, why);
    }
}

static void rdma_post_receive(struct hoop_rdma_link *rdma, uint64_t id,
                              struct hoop_rdma_message *message)
{
    const int err = rdma->context->verbs->receive(rdma->queue, id, message, sizeof(*message),
                                                  rdma->key.local_key);
    if (err != 0) {
        hoop_rdma_fail(rdma, HOOP_SYSTEM_ERROR, hoop_errno_name(err));
    }
}

/* A function of its own, so that the usual path has no stack space for the message. */
__attribute__((cold, noinline)) static void rdma_take_failure(struct hoop_rdma_link *rdma,
                                                              const struct hoop_verbs_event *event)
{
    char why[256];
    rdma->context->verbs->explain(rdma->context->device, event, why, sizeof(why));
    hoop_rdma_fail(rdma, HOOP_REMOTE_ERROR, why);
}

static void rdma_take(struct hoop_rdma_context *context, const struct hoop_verbs_event *event)
{
    const uint64_t number = event->id >> 32;
    const uint32_t low = (uint32_t)event->id & ~HOOP_RDMA_RECEIVE;
    const bool receive = ((uint32_t)event->id & HOOP_RDMA_RECEIVE) != 0;
    struct hoop_rdma_link *rdma = number < context->link_count ? context->links[number] : NULL;
    if (rdma == NULL || rdma->broken) {
        return; /* of a queue that is gone, or was flushed when it broke */
    }
    if (event->status != 0) {
        rdma_take_failure(rdma, event);
    } else if (!receive) {
        rdma->completed += (low - (uint32_t)rdma->completed) & ~HOOP_RDMA_RECEIVE;
    } else {
        struct hoop_rdma_message *message = &rdma->words_in[low];
        const uint32_t word = event->has_word ? event->word : message->word;
        if (rdma->base.params.sending) {
            hoop_rdma_sender_hears(rdma, word, message);
        } else {
            hoop_rdma_receiver_hears(rdma, word);
        }
        rdma_post_receive(rdma, event->id, message);
    }
}

static inline __attribute__((always_inline)) bool context_take(struct hoop_rdma_link *rdma)
{
    struct hoop_rdma_context *context = rdma->context;
    struct hoop_verbs_event events[RDMA_EVENTS];
    const int came = context->verbs->take(context->device, events, RDMA_EVENTS);
    for (int i = 0; i < came; i++) {
        rdma_take(context, &events[i]);
    }
    if (came < 0) {
        hoop_rdma_fail(rdma, HOOP_SYSTEM_ERROR, "the completion queue is broken");
    }
    return came != 0;
}

/* Before the thread sleeps, when nothing came: arms the queue, and looks once more. */
__attribute__((noinline)) static bool context_take_last(struct hoop_rdma_link *rdma)
{
    struct hoop_rdma_context *context = rdma->context;
    context->armed = context->armed || context->verbs->arm(context->device);
    if (!context->armed) {
        hoop_rdma_fail(rdma, HOOP_SYSTEM_ERROR, "the completion queue cannot be armed");
    }
    if (context->verbs->check(context->device) != HOOP_OK) {
        hoop_rdma_fail(rdma, HOOP_SYSTEM_ERROR, hoop_thread_error());
    }
    return context_take(rdma);
}

/* Arming asks for one notification. It may come late, when its event was already found by polling,
 * so disarm is tried again before each sleep. */
bool hoop_rdma_poll(struct hoop_rdma_link *rdma)
{
    struct hoop_rdma_context *context = rdma->context;
    const _Atomic uint8_t *sleeping = rdma->base.params.sleeping;
    const bool moved = context_take(rdma);
    if (!moved && sleeping != NULL && !atomic_load_explicit(sleeping, memory_order_relaxed)) {
        return false;
    }
    if (context->armed) {
        context->armed = !context->verbs->disarm(context->device);
    }
    return moved || context_take_last(rdma);
}

/* ---- Birth ----------------------------------------------------------------------------------- */

/* Slots, then messages, then marks. False: the sizes overflow. */
static bool rdma_measure(const struct hoop_link_params *params, size_t *ret_stride,
                         size_t *ret_bytes)
{
    const size_t words = 2 * sizeof(struct hoop_rdma_message) * ((size_t)params->slots + 1) * 2 +
                         params->slots + HOOP_PAGE_BYTES - 1;
    size_t stride = 0, bytes = 0;
    if (__builtin_add_overflow(params->chunk_bytes, HOOP_RDMA_HEADER_BYTES + HOOP_LINE_BYTES - 1,
                               &stride)) {
        return false;
    }
    stride -= stride % HOOP_LINE_BYTES;
    if (__builtin_mul_overflow(stride, params->slots, &bytes) ||
        __builtin_add_overflow(bytes, words, &bytes) || bytes > PTRDIFF_MAX) {
        return false;
    }
    *ret_stride = stride;
    *ret_bytes = bytes - bytes % HOOP_PAGE_BYTES;
    return true;
}

/* A forked child gets none of it (MADV_DONTFORK): so no fork moves pages that the device uses. */
static hoop_result_t rdma_get_memory(struct hoop_rdma_link *rdma)
{
    const struct hoop_link_params *params = &rdma->base.params;
    if (!rdma_measure(params, &rdma->stride, &rdma->memory_bytes)) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory holds %u slots of %llu bytes",
                          params->slots, (unsigned long long)params->chunk_bytes);
    }
    void *memory =
        mmap(NULL, rdma->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %zu bytes of slots: %s",
                          rdma->memory_bytes, hoop_errno_name(errno));
    }
    rdma->memory = memory;
    (void)madvise(memory, rdma->memory_bytes, MADV_DONTFORK);
    rdma->words_in = (void *)(rdma->memory + params->slots * rdma->stride);
    rdma->words_out = rdma->words_in + hoop_rdma_words(params);
    rdma->marks = (void *)(rdma->words_out + hoop_rdma_words(params));
    return HOOP_OK;
}

static uint8_t rdma_link_layer(const struct hoop_verbs_port *port)
{
    return port->ethernet ? 2 : 1;
}

/* Sets what depends on the port. */
static void rdma_set_port(struct hoop_rdma_link *rdma, const struct hoop_verbs_port *port,
                          struct hoop_rdma_context *ret_wanted)
{
    const struct hoop_link_params *params = &rdma->base.params;
    const struct hoop_rdma_rules rules = hoop_rdma_rules();
    const struct hoop_verbs_port *ports = NULL;
    uint32_t count = 0;
    ret_wanted->verbs = hoop_rdma_ports(&ports, &count);
    ret_wanted->port = port;
    ret_wanted->gid = hoop_rdma_gid(port, &rules);
    rdma->address = (struct hoop_verbs_address){
        .lid = port->lid, .mtu = port->mtu, .link_layer = rdma_link_layer(port)};
    memcpy(rdma->address.gid, ret_wanted->gid->raw, sizeof(rdma->address.gid));
    /* A chunk is payload, header and perhaps a word. */
    const size_t sends = (params->sending ? params->slots * 2 : 0) + hoop_rdma_words(params);
    rdma->depth = (struct hoop_verbs_depth){.sends = (uint32_t)sends,
                                            .receives = hoop_rdma_words(params),
                                            .inline_bytes = RDMA_INLINE_BYTES};
}

static hoop_result_t rdma_get_queue(struct hoop_rdma_link *rdma)
{
    struct hoop_rdma_context *context = rdma->context;
    hoop_result_t result = hoop_random(&rdma->address.sequence, sizeof(rdma->address.sequence));
    rdma->address.sequence &= 0xffffffu;
    if (result == HOOP_OK) {
        result = hoop_rdma_register(context, rdma->memory, rdma->memory_bytes, &rdma->key);
    }
    if (result == HOOP_OK) {
        result = hoop_rdma_blame_limit(context->verbs->create_queue(
            context->device, &rdma->depth, &rdma->queue, &rdma->address.number));
    }
    return result;
}

static hoop_result_t rdma_complain(const struct hoop_rdma_link *rdma, hoop_result_t code,
                                   struct hoop_failure *ret)
{
    const struct hoop_link_params *params = &rdma->base.params;
    return hoop_failure_set(ret, code, (int)params->me, "rank %u has no RDMA link with rank %u: %s",
                            params->me, params->peer, hoop_thread_error());
}

/* Uses this port: makes a queue there. */
static hoop_result_t rdma_open(struct hoop_rdma_link *rdma, const struct hoop_verbs_port *port)
{
    const struct hoop_link_params *params = &rdma->base.params;
    struct hoop_rdma_context wanted = {.armed = false};
    rdma_set_port(rdma, port, &wanted);
    hoop_result_t result = hoop_rdma_enter(rdma, &wanted);
    result = result == HOOP_OK ? rdma_get_queue(rdma) : result;
    if (result != HOOP_OK) {
        return rdma_complain(rdma, result, &rdma->base.failure);
    }
    hoop_log(HOOP_LOG_INFO, HOOP_LOG_NET, "rank %u: lane %u %s rank %u by %s port %u", params->me,
             params->lane, params->sending ? "to" : "from", params->peer, port->device, port->port);
    return HOOP_OK;
}

static hoop_result_t rdma_list_ports(struct hoop_rdma_link *rdma)
{
    const struct hoop_rdma_rules rules = hoop_rdma_rules();
    const struct hoop_verbs_port *ports = NULL;
    uint32_t count = 0;
    cpu_set_t cpus;
    if (hoop_rdma_ports(&ports, &count) == NULL) {
        return hoop_error(HOOP_SYSTEM_ERROR, "%s", hoop_rdma_why_none());
    }
    const bool known = sched_getaffinity(0, sizeof(cpus), &cpus) == 0;
    rdma->port_count = hoop_rdma_order(ports, count, &rules, rdma->base.params.local,
                                       known ? &cpus : NULL, rdma->ports);
    return rdma->port_count > 0 ? HOOP_OK : HOOP_INVALID_USAGE;
}

static struct hoop_rdma_networks rdma_networks(const struct hoop_rdma_link *rdma)
{
    const struct hoop_rdma_rules rules = hoop_rdma_rules();
    struct hoop_rdma_networks networks = {.count = rdma->port_count};
    for (uint32_t i = 0; i < networks.count; i++) {
        networks.of[i] = hoop_rdma_network(rdma->ports[i], hoop_rdma_gid(rdma->ports[i], &rules));
    }
    return networks;
}

static void rdma_destroy(struct hoop_link *link);

static hoop_result_t rdma_create(const struct hoop_link_params *params, struct hoop_link **ret_link,
                                 struct hoop_blob *ret_blob, struct hoop_failure *failure)
{
    assert(params->tell != NULL && params->hear != NULL);
    struct hoop_rdma_link *rdma = calloc(1, sizeof(*rdma));
    if (rdma == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, (int)params->me,
                                "rank %u has no memory for a link", params->me);
    }
    rdma->base.params = *params;
    hoop_result_t result = params->check == HOOP_CHECK_AEAD
                               ? hoop_error(HOOP_INVALID_USAGE, "HOOP_CHECK=aead is for TCP only")
                               : rdma_get_memory(rdma);
    result = result == HOOP_OK ? rdma_list_ports(rdma) : result;
    if (result != HOOP_OK) {
        (void)rdma_complain(rdma, result, failure);
        rdma_destroy(&rdma->base);
        return result;
    }
    rdma->immediate = getenv("HOOP_TEST_NO_IMMEDIATE") == NULL;
    struct rdma_blob blob = {.head = hoop_blob_head(params, RDMA_MAGIC),
                             .check = params->check,
                             .immediate = rdma->immediate};
    if (!params->sending) {
        const struct hoop_rdma_networks networks = rdma_networks(rdma);
        blob.count = (uint16_t)networks.count;
        memcpy(blob.networks, networks.of, sizeof(blob.networks));
    }
    hoop_blob_fill(ret_blob, &blob, sizeof(blob));
    *ret_link = &rdma->base;
    return HOOP_OK;
}

/* ---- Binding --------------------------------------------------------------------------------- */

static hoop_result_t rdma_check_blob(struct hoop_rdma_link *rdma, const struct rdma_blob *blob)
{
    const struct hoop_link_params *params = &rdma->base.params;
    if (blob->check != params->check) {
        return hoop_failure_set(&rdma->base.failure, HOOP_MISMATCH, (int)params->peer,
                                "rank %u checks its data by %s, rank %u by %s (HOOP_CHECK)",
                                params->peer, hoop_check_name(blob->check), params->me,
                                hoop_check_name(params->check));
    }
    if ((blob->count != 0) != params->sending || blob->count > HOOP_RDMA_RANK_PORTS ||
        blob->immediate > 1) {
        return hoop_failure_set(&rdma->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                                "rank %u sent an invalid number of RDMA ports, %u, for lane %u",
                                params->peer, blob->count, params->lane);
    }
    rdma->immediate = rdma->immediate && blob->immediate != 0;
    return HOOP_OK;
}

/* The other end's queue. HOOP_AGAIN: it has not told yet. */
static hoop_result_t rdma_hear_queue(struct hoop_rdma_link *rdma, struct rdma_queue_blob *ret)
{
    const struct hoop_link_params *params = &rdma->base.params;
    const struct hoop_verbs_address *peer = &ret->address;
    struct hoop_blob heard;
    if (!params->hear(params->arg, params->peer, params->lane, params->sending, &heard)) {
        return HOOP_AGAIN;
    }
    const hoop_result_t result =
        hoop_blob_open(&rdma->base, &heard, RDMA_QUEUE_MAGIC, ret, sizeof(*ret));
    if (result != HOOP_OK) {
        return result;
    }
    if (peer->number > 0xffffff || peer->sequence > 0xffffff || peer->mtu < 1 || peer->mtu > 5 ||
        (ret->slots != 0) != params->sending || ret->reserved != 0 ||
        ret->port >= (params->sending ? 1 : rdma->port_count) ||
        peer->link_layer !=
            rdma_link_layer(params->sending ? rdma->context->port : rdma->ports[ret->port])) {
        return hoop_failure_set(&rdma->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                                "rank %u offers queue %06x, packet %06x, MTU %u, slots at %llx for "
                                "port %u and lane %u, which is invalid",
                                params->peer, peer->number, peer->sequence, peer->mtu,
                                (unsigned long long)ret->slots, ret->port, params->lane);
    }
    return HOOP_OK;
}

/* port: the receiver's. */
static void rdma_tell_queue(struct hoop_rdma_link *rdma, uint32_t port)
{
    const struct hoop_link_params *params = &rdma->base.params;
    const struct rdma_queue_blob mine = {.head = hoop_blob_head(params, RDMA_QUEUE_MAGIC),
                                         .address = rdma->address,
                                         .port = port,
                                         .slots = params->sending ? 0 : (uintptr_t)rdma->memory,
                                         .slots_key = params->sending ? 0 : rdma->key.remote_key};
    struct hoop_blob blob;
    hoop_blob_fill(&blob, &mine, sizeof(mine));
    params->tell(params->arg, params->peer, params->lane, params->sending, &blob);
}

static hoop_result_t rdma_connect(struct hoop_rdma_link *rdma,
                                  const struct hoop_verbs_address *peer)
{
    const struct hoop_link_params *params = &rdma->base.params;
    const struct hoop_rdma_context *context = rdma->context;
    const struct hoop_settings *settings = hoop_settings();
    const struct hoop_verbs_route route = {.mine = rdma->address,
                                           .peer = *peer,
                                           .port = context->port->port,
                                           .gid_index = context->gid->index,
                                           .global = context->port->global,
                                           .service_level = (uint32_t)settings->ib_sl,
                                           .partition = (uint32_t)settings->ib_pkey,
                                           .traffic_class = (uint32_t)settings->ib_tc,
                                           .timeout = (uint32_t)settings->ib_timeout,
                                           .retries = (uint32_t)settings->ib_retry_cnt};
    hoop_result_t result = context->verbs->connect_queue(rdma->queue, &route);
    result = result == HOOP_TIMEOUT ? HOOP_REMOTE_ERROR : result; /* no machine has that address */
    const uint64_t id = (uint64_t)rdma->number << 32 | HOOP_RDMA_RECEIVE;
    for (uint32_t i = 0; result == HOOP_OK && i < hoop_rdma_words(params); i++) {
        rdma_post_receive(rdma, id | i, &rdma->words_in[i]);
    }
    return result == HOOP_OK
               ? rdma->base.failure.code
               : hoop_failure_set(&rdma->base.failure, result, (int)params->peer,
                                  "rank %u (%s port %u) cannot reach rank %u over RDMA: %s",
                                  params->me, context->port->device, context->port->port,
                                  params->peer, hoop_thread_error());
}

static void rdma_log_left_out(const struct hoop_rdma_link *rdma, uint32_t reach)
{
    const struct hoop_link_params *params = &rdma->base.params;
    for (uint32_t i = 0; i < rdma->port_count; i++) {
        if ((reach >> i & 1) == 0) {
            hoop_log(HOOP_LOG_INFO, HOOP_LOG_NET,
                     "rank %u: lane %u to rank %u does not use %s port %u: rank %u has no port in "
                     "its network",
                     params->me, params->lane, params->peer, rdma->ports[i]->device,
                     rdma->ports[i]->port, params->peer);
        }
    }
}

static hoop_result_t rdma_bind_sender(struct hoop_rdma_link *rdma, const struct rdma_blob *blob)
{
    const struct hoop_link_params *params = &rdma->base.params;
    const struct hoop_rdma_networks mine = rdma_networks(rdma);
    struct hoop_rdma_networks theirs = {.count = blob->count};
    uint32_t from = 0, to = 0, reach = 0;
    memcpy(theirs.of, blob->networks, sizeof(theirs.of));
    if (!hoop_rdma_way(&mine, &theirs, params->turn, &from, &to, &reach)) {
        return hoop_failure_set(&rdma->base.failure, HOOP_REMOTE_ERROR, (int)params->peer,
                                "none of the %u RDMA ports of rank %u (%s port %u, ...) reaches "
                                "one of the %u of rank %u: they are in other networks, or of "
                                "another kind (HOOP_IB_HCA, HOOP_IB_GID_INDEX)",
                                mine.count, params->me, rdma->ports[0]->device,
                                rdma->ports[0]->port, theirs.count, params->peer);
    }
    rdma_log_left_out(rdma, reach);
    const hoop_result_t result = rdma_open(rdma, rdma->ports[from]);
    if (result == HOOP_OK) {
        rdma_tell_queue(rdma, to);
    }
    return result;
}

static hoop_result_t rdma_bind_receiver(struct hoop_rdma_link *rdma)
{
    struct rdma_queue_blob peer;
    hoop_result_t result = rdma_hear_queue(rdma, &peer);
    result = result == HOOP_OK ? rdma_open(rdma, rdma->ports[peer.port]) : result;
    result = result == HOOP_OK ? rdma_connect(rdma, &peer.address) : result;
    if (result == HOOP_OK) {
        rdma_tell_queue(rdma, 0);
    }
    return result;
}

static hoop_result_t rdma_bind(struct hoop_link *link, const struct hoop_blob *peer)
{
    struct hoop_rdma_link *rdma = hoop_rdma_from(link);
    struct rdma_blob blob;
    hoop_result_t result = hoop_blob_open(link, peer, RDMA_MAGIC, &blob, sizeof(blob));
    result = result == HOOP_OK ? rdma_check_blob(rdma, &blob) : result;
    if (result != HOOP_OK) {
        return result;
    }
    return link->params.sending ? rdma_bind_sender(rdma, &blob) : rdma_bind_receiver(rdma);
}

hoop_result_t hoop_rdma_get_ready(struct hoop_rdma_link *rdma)
{
    struct rdma_queue_blob peer;
    hoop_result_t result = rdma_hear_queue(rdma, &peer);
    result = result == HOOP_OK ? rdma_connect(rdma, &peer.address) : result;
    if (result == HOOP_OK) {
        rdma->peer_slots = peer.slots;
        rdma->peer_key = peer.slots_key;
        rdma->ready = true;
    }
    return result;
}

/* ---- End ------------------------------------------------------------------------------------- */

static int rdma_watch_fd(struct hoop_link *link)
{
    const struct hoop_rdma_context *context = hoop_rdma_from(link)->context;
    return context->verbs->watch_fd(context->device);
}

static enum hoop_poll rdma_poll_goodbye(void *arg, bool look)
{
    struct hoop_rdma_link *rdma = arg;
    (void)look;
    const bool moved = hoop_rdma_poll(rdma);
    if (rdma->broken || rdma->left_ns != 0 || rdma->completed == rdma->sent) {
        return HOOP_POLL_DONE;
    }
    return moved ? HOOP_POLL_BUSY : HOOP_POLL_IDLE;
}

/* Says goodbye after all that was sent, unless the peer may not be listening yet. */
static void rdma_leave(struct hoop_link *link)
{
    struct hoop_rdma_link *rdma = hoop_rdma_from(link);
    const bool listening = link->params.sending ? rdma->ready : rdma->head > 0;
    rdma->leaving = link->bound && listening && !rdma->broken && rdma->left_ns == 0 &&
                    hoop_rdma_say(rdma, HOOP_RDMA_GOODBYE, rdma->tail);
}

/* False: the device may still write to the slots, which then stay mapped. */
static bool rdma_release(struct hoop_rdma_link *rdma)
{
    const struct hoop_rdma_context *context = rdma->context;
    const int err = context->verbs->destroy_queue(rdma->queue);
    if (err != 0) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_NET,
                 "rank %u (%s port %u) cannot destroy its queue pair with rank %u (lane %u): %s",
                 context->me, context->port->device, context->port->port, rdma->base.params.peer,
                 rdma->base.params.lane, hoop_errno_name(err));
    }
    return hoop_rdma_release_memory(context, &rdma->key) && err == 0;
}

static void rdma_destroy(struct hoop_link *link)
{
    struct hoop_rdma_link *rdma = hoop_rdma_from(link);
    const struct hoop_wait goodbye = {
        .poll = rdma_poll_goodbye, .arg = rdma, .timeout_ms = hoop_left_ms(link->leave_by_ns) + 1};
    if (rdma->leaving) {
        (void)hoop_wait(&goodbye);
    }
    const bool released = rdma->context == NULL || rdma_release(rdma);
    (void)hoop_xfer_queue_finish(&rdma->queued, HOOP_ABORTED); /* nothing reads them any more */
    hoop_rdma_leave(rdma);
    if (rdma->memory != NULL && released) {
        (void)munmap(rdma->memory, rdma->memory_bytes);
    }
    free(rdma);
}

static uint32_t rdma_holds(const struct hoop_link *link)
{
    return link->params.slots - 1;
}

const struct hoop_transport hoop_transport_rdma = {
    .name = "rdma",
    .reaches = rdma_reaches,
    .create = rdma_create,
    .bind = rdma_bind,
    .send = hoop_rdma_send,
    .recv = hoop_rdma_recv,
    .release = hoop_rdma_release,
    .offer = hoop_rdma_offer,
    .holds = rdma_holds,
    .place_least_bytes = HOOP_RDMA_LARGE_BYTES,
    .progress = hoop_rdma_progress,
    .watch_fd = rdma_watch_fd,
    .leave = rdma_leave,
    .destroy = rdma_destroy,
};
