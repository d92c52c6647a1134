/*
 * See faulty.h.
 *
 * Every accepted xfer of the caller goes with a node of the link, whose own xfer is posted inside:
 *
 *      idle -> POSTED inside -> HELD, its result known -> told -> idle
 *                                                              -> LENT until released -> idle
 *
 * Nodes are told in the order in which they were posted. When the link fails by injection, the
 * inside is destroyed before the rest is told, since nobody may touch the memory of an xfer that
 * is done; lent memory is waited for.
 */
#include "fakes/faulty.h"
#include "harness/splitmix.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define FAULTY_NODES 256
#define FAULTY_WRAPPED 8

struct faulty_node {
    struct hoop_xfer inside; /* comes first, so that its `done` finds the node */
    struct faulty_link *link;
    struct hoop_xfer *outside;
    struct faulty_node *next;
    uint8_t *copy; /* a payload with a flipped bit, or lent to the caller */
    hoop_result_t result;
    uint64_t due; /* reported after so many calls of progress */
};

struct faulty_link {
    struct hoop_link base;
    struct hoop_link *inside;
    struct faulty_node *idle;
    struct faulty_node *held_first, *held_last;
    uint32_t lent;
    uint64_t calls[FAULTY_CALLS];
    uint64_t random;
    bool nudge; /* refused without need, so progress must report that something moved */
    struct faulty_node nodes[FAULTY_NODES];
};

struct faulty_wrapped {
    struct hoop_transport transport;
    const struct hoop_transport *inner;
};

static struct faulty_config faulty_active;
static _Atomic uint64_t faulty_counts[FAULTY_CALLS];
static _Atomic uint64_t faulty_payloads;
static pthread_mutex_t faulty_lock = PTHREAD_MUTEX_INITIALIZER;
static struct faulty_wrapped faulty_table[FAULTY_WRAPPED]; /* grows under faulty_lock */
static const char *const faulty_names[FAULTY_CALLS] = {"create", "bind", "send", "recv",
                                                       "progress"};

void faulty_configure(const struct faulty_config *config)
{
    faulty_active = config != NULL ? *config : (struct faulty_config){0};
    for (int i = 0; i < FAULTY_CALLS; i++) {
        atomic_store(&faulty_counts[i], 0);
    }
    atomic_store(&faulty_payloads, 0);
}

uint64_t faulty_calls(enum faulty_call call)
{
    return atomic_load(&faulty_counts[call]);
}

static struct faulty_link *faulty_from(struct hoop_link *link)
{
    return (struct faulty_link *)(void *)link;
}

/* Counts a call. HOOP_OK, unless it is the one that is to fail. */
static hoop_result_t faulty_strike(enum faulty_call call, int rank, struct hoop_failure *failure)
{
    const uint64_t count = atomic_fetch_add(&faulty_counts[call], 1) + 1;
    if (call != faulty_active.fail_call || count != faulty_active.fail_at) {
        return HOOP_OK;
    }
    const hoop_result_t code =
        faulty_active.fail_code != HOOP_OK ? faulty_active.fail_code : HOOP_SYSTEM_ERROR;
    return hoop_failure_set(failure, code, rank, "injected failure of %s, call %llu",
                            faulty_names[call], (unsigned long long)count);
}

static bool faulty_refuses(struct faulty_link *faulty, enum faulty_call call)
{
    const uint64_t count = ++faulty->calls[call];
    const bool refuses =
        (faulty_active.again_every > 1 && count % faulty_active.again_every == 0) ||
        (faulty_active.again_chance > 0 &&
         splitmix(&faulty->random) % 100 < faulty_active.again_chance);
    faulty->nudge |= refuses;
    return refuses;
}

/* The inside's first failure becomes the link's. */
static hoop_result_t faulty_adopt(struct faulty_link *faulty)
{
    const struct hoop_failure *failure = &faulty->inside->failure;
    if (failure->code == HOOP_OK) {
        return faulty->base.failure.code;
    }
    return hoop_failure_set(&faulty->base.failure, failure->code, failure->rank, "%s",
                            failure->text);
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

static void faulty_put_node(struct faulty_node *node)
{
    free(node->copy);
    node->copy = NULL;
    node->next = node->link->idle;
    node->link->idle = node;
}

static void faulty_flip(struct faulty_node *node)
{
    struct hoop_xfer *inside = &node->inside;
    if (inside->bytes == 0 || atomic_fetch_add(&faulty_payloads, 1) + 1 != faulty_active.flip) {
        return;
    }
    uint8_t *payload = inside->data;
    if (inside->lent) {
        node->copy = malloc(inside->bytes);
        if (node->copy == NULL) {
            return;
        }
        payload = memcpy(node->copy, inside->data, inside->bytes);
    }
    const uint64_t bit = splitmix(&node->link->random) % (inside->bytes * 8);
    payload[bit / 8] ^= (uint8_t)(1u << (bit % 8));
}

/* The `done` of an inside xfer: keeps the result, to be reported later. */
static void faulty_hold(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct faulty_node *node = (struct faulty_node *)(void *)xfer;
    struct faulty_link *faulty = node->link;
    node->result = result;
    node->due = faulty->calls[FAULTY_PROGRESS] + faulty_active.late;
    node->next = NULL;
    if (faulty->held_first == NULL) {
        faulty->held_first = node;
    } else {
        faulty->held_last->next = node;
    }
    faulty->held_last = node;
    if (result == HOOP_OK && !faulty->base.params.sending) {
        faulty_flip(node);
    }
}

static void faulty_tell(struct faulty_link *faulty, hoop_result_t instead)
{
    struct faulty_node *node = faulty->held_first;
    struct hoop_xfer *xfer = node->outside;
    const hoop_result_t result = node->result != HOOP_ABORTED ? node->result : instead;
    faulty->held_first = node->next;
    node->outside = NULL;
    if (result == HOOP_OK && node->inside.lent) {
        xfer->data = node->copy != NULL ? node->copy : node->inside.data;
        xfer->lent = true;
        xfer->position = (uint64_t)(node - faulty->nodes);
        faulty->lent++;
    } else {
        faulty_put_node(node);
    }
    xfer->done(xfer, result);
}

static hoop_result_t faulty_post(struct faulty_link *faulty, enum faulty_call call,
                                 struct hoop_xfer *xfer)
{
    const hoop_result_t struck =
        faulty_strike(call, (int)faulty->base.params.peer, &faulty->base.failure);
    if (struck != HOOP_OK) {
        return struck;
    }
    struct faulty_node *node = faulty->idle;
    if (faulty_refuses(faulty, call) || node == NULL) {
        return HOOP_AGAIN;
    }
    node->inside = (struct hoop_xfer){.data = xfer->data,
                                      .bytes = xfer->bytes,
                                      .op = xfer->op,
                                      .chunk = xfer->chunk,
                                      .signature = xfer->signature,
                                      .may_wait = xfer->may_wait,
                                      .has_place = xfer->has_place,
                                      .place = xfer->place,
                                      .done = faulty_hold};
    faulty->idle = node->next;
    node->outside = xfer;
    const hoop_result_t result = call == FAULTY_SEND
                                     ? hoop_link_send(faulty->inside, &node->inside)
                                     : hoop_link_recv(faulty->inside, &node->inside);
    if (result != HOOP_OK) {
        faulty_put_node(node);
    }
    return result == HOOP_OK || result == HOOP_AGAIN ? result : faulty_adopt(faulty);
}

/* ---- The transport's functions --------------------------------------------------------------- */

static hoop_result_t faulty_create(const struct hoop_transport *inner,
                                   const struct hoop_link_params *params,
                                   struct hoop_link **ret_link, struct hoop_blob *ret_blob,
                                   struct hoop_failure *failure)
{
    const hoop_result_t struck = faulty_strike(FAULTY_CREATE, (int)params->peer, failure);
    if (struck != HOOP_OK) {
        return struck;
    }
    struct faulty_link *faulty = calloc(1, sizeof(*faulty));
    if (faulty == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for a decorated link");
    }
    const hoop_result_t result =
        hoop_link_create(inner, params, &faulty->inside, ret_blob, failure);
    if (result != HOOP_OK) {
        free(faulty);
        return result;
    }
    faulty->random = faulty_active.seed * 1000003 + params->me * 4099ull + params->peer * 67ull +
                     params->lane * 2ull + params->sending;
    faulty->base.params = *params;
    for (size_t i = 0; i < FAULTY_NODES; i++) {
        faulty->nodes[i].link = faulty;
        faulty_put_node(&faulty->nodes[i]);
    }
    *ret_link = &faulty->base;
    return HOOP_OK;
}

static hoop_result_t faulty_bind(struct hoop_link *link, const struct hoop_blob *peer)
{
    struct faulty_link *faulty = faulty_from(link);
    const hoop_result_t struck = faulty_strike(FAULTY_BIND, (int)link->params.peer, &link->failure);
    if (struck != HOOP_OK) {
        return struck;
    }
    if (faulty_refuses(faulty, FAULTY_BIND)) {
        return HOOP_AGAIN;
    }
    const hoop_result_t result = hoop_link_bind(faulty->inside, peer);
    return result == HOOP_OK || result == HOOP_AGAIN ? result : faulty_adopt(faulty);
}

static hoop_result_t faulty_send(struct hoop_link *link, struct hoop_xfer *xfer)
{
    return faulty_post(faulty_from(link), FAULTY_SEND, xfer);
}

static hoop_result_t faulty_recv(struct hoop_link *link, struct hoop_xfer *xfer)
{
    return faulty_post(faulty_from(link), FAULTY_RECV, xfer);
}

static void faulty_release(struct hoop_link *link, struct hoop_xfer *xfer)
{
    struct faulty_link *faulty = faulty_from(link);
    assert(xfer->position < FAULTY_NODES && faulty->lent > 0);
    struct faulty_node *node = &faulty->nodes[xfer->position];
    hoop_link_release(faulty->inside, &node->inside);
    faulty->lent--;
    faulty_put_node(node);
}

static void faulty_pair(struct hoop_link *sender, struct hoop_link *receiver)
{
    hoop_link_pair(faulty_from(sender)->inside, faulty_from(receiver)->inside);
}

static void faulty_push(struct hoop_link *link)
{
    if (faulty_from(link)->inside != NULL) {
        hoop_link_push(faulty_from(link)->inside);
    }
}

static uint32_t faulty_holds(const struct hoop_link *link)
{
    return hoop_link_holds(((const struct faulty_link *)(const void *)link)->inside);
}

static void faulty_offer(struct hoop_link *link, uint32_t op, void *data, uint64_t bytes)
{
    hoop_link_offer(faulty_from(link)->inside, op, data, bytes);
}

/* After a failure: reports it for all pending xfers, once nothing can access them any more. */
static bool faulty_flush(struct faulty_link *faulty)
{
    if (faulty->lent > 0 && faulty->inside->failure.code == HOOP_OK) {
        return false;
    }
    if (faulty->lent == 0) {
        hoop_link_destroy(faulty->inside);
        faulty->inside = NULL;
    }
    const bool moved = faulty->held_first != NULL;
    while (faulty->held_first != NULL) {
        faulty->held_first->result = HOOP_ABORTED; /* even lent memory is gone */
        faulty_tell(faulty, faulty->base.failure.code);
    }
    return moved;
}

static bool faulty_progress(struct hoop_link *link)
{
    struct faulty_link *faulty = faulty_from(link);
    if (faulty->inside == NULL) {
        return false;
    }
    faulty->calls[FAULTY_PROGRESS]++;
    if (link->failure.code == HOOP_OK) {
        (void)faulty_strike(FAULTY_PROGRESS, (int)link->params.peer, &link->failure);
    }
    bool moved = faulty->nudge;
    faulty->nudge = false;
    if (link->failure.code == HOOP_OK) {
        moved |= hoop_link_progress(faulty->inside);
    }
    const struct faulty_node *const last = faulty->held_last;
    bool more = faulty->held_first != NULL;
    while (more && faulty->held_first->due <= faulty->calls[FAULTY_PROGRESS]) {
        more = faulty->held_first != last;
        faulty_tell(faulty, HOOP_ABORTED);
        more &= faulty->held_first != NULL;
        moved = true;
    }
    if (faulty_adopt(faulty) != HOOP_OK) {
        return faulty_flush(faulty) || moved;
    }
    return moved || faulty->held_first != NULL; /* those that are held need more calls */
}

static int faulty_watch_fd(struct hoop_link *link)
{
    const struct faulty_link *faulty = faulty_from(link);
    return faulty->inside != NULL ? hoop_link_watch_fd(faulty->inside) : -1;
}

static void faulty_leave(struct hoop_link *link)
{
    hoop_link_leave(faulty_from(link)->inside, link->leave_by_ns);
}

static void faulty_destroy(struct hoop_link *link)
{
    struct faulty_link *faulty = faulty_from(link);
    if (link->failure.code == HOOP_ABORTED) {
        hoop_link_destroy(faulty->inside);
    } else {
        hoop_link_abandon(faulty->inside);
    }
    faulty->inside = NULL;
    while (faulty->held_first != NULL) {
        faulty->held_first->result = HOOP_ABORTED;
        faulty_tell(faulty, HOOP_ABORTED);
    }
    for (size_t i = 0; i < FAULTY_NODES; i++) {
        free(faulty->nodes[i].copy);
    }
    free(faulty);
}

/* ---- The table ------------------------------------------------------------------------------- */

/* create and reaches get no link that would tell which transport they wrap, so there is a copy of
 * each for every entry of the table. */
#define FAULTY_PLACES(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define FAULTY_PLACE(i)                                                                            \
    static bool faulty_reaches_##i(bool same_process, bool same_machine)                           \
    {                                                                                              \
        return faulty_table[i].inner->reaches(same_process, same_machine);                         \
    }                                                                                              \
    static hoop_result_t faulty_create_##i(                                                        \
        const struct hoop_link_params *params, struct hoop_link **ret_link,                        \
        struct hoop_blob *ret_blob, struct hoop_failure *failure)                                  \
    {                                                                                              \
        return faulty_create(faulty_table[i].inner, params, ret_link, ret_blob, failure);          \
    }
FAULTY_PLACES(FAULTY_PLACE)

#define FAULTY_FUNCTIONS(i) {faulty_reaches_##i, faulty_create_##i},
static const struct {
    bool (*reaches)(bool same_process, bool same_machine);
    hoop_result_t (*create)(const struct hoop_link_params *params, struct hoop_link **ret_link,
                            struct hoop_blob *ret_blob, struct hoop_failure *failure);
} faulty_functions[FAULTY_WRAPPED] = {FAULTY_PLACES(FAULTY_FUNCTIONS)};

static void faulty_wrap(size_t i, const struct hoop_transport *inner)
{
    faulty_table[i].transport = (struct hoop_transport){
        .name = inner->name,
        .reaches = faulty_functions[i].reaches,
        .create = faulty_functions[i].create,
        .bind = faulty_bind,
        .send = faulty_send,
        .recv = faulty_recv,
        .release = faulty_release,
        .pair = inner->pair != NULL ? faulty_pair : NULL,
        .holds = inner->holds != NULL ? faulty_holds : NULL,
        .push = inner->push != NULL ? faulty_push : NULL,
        .offer = inner->offer != NULL ? faulty_offer : NULL,
        .place_least_bytes = inner->place_least_bytes,
        .progress = faulty_progress,
        .watch_fd = inner->watch_fd != NULL ? faulty_watch_fd : NULL,
        .leave = faulty_leave,
        .destroy = faulty_destroy,
    };
    faulty_table[i].inner = inner;
}

const struct hoop_transport *faulty_decorate(const struct hoop_transport *inner)
{
    pthread_mutex_lock(&faulty_lock);
    size_t i = 0;
    while (i < FAULTY_WRAPPED && faulty_table[i].inner != NULL && faulty_table[i].inner != inner) {
        i++;
    }
    if (i < FAULTY_WRAPPED && faulty_table[i].inner == NULL) {
        faulty_wrap(i, inner);
    }
    pthread_mutex_unlock(&faulty_lock);
    return i < FAULTY_WRAPPED ? &faulty_table[i].transport : NULL;
}

/* ---- The notation ---------------------------------------------------------------------------- */

/* Reads the number after "word:", up to the next comma. */
static bool faulty_number(const char **at, const char *word, uint64_t most, uint64_t *ret)
{
    const size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0 || (*at)[length] < '0' || (*at)[length] > '9') {
        return false;
    }
    char *end = NULL;
    const unsigned long long number = strtoull(*at + length, &end, 10);
    if (number > most || (*end != '\0' && *end != ',')) {
        return false;
    }
    *ret = number;
    *at = *end == ',' ? end + 1 : end;
    return true;
}

static bool faulty_parse_fail(const char **at, struct faulty_config *config)
{
    static const char *const words[FAULTY_CALLS] = {
        "fail:create:", "fail:bind:", "fail:send:", "fail:recv:", "fail:progress:"};
    for (int call = 0; call < FAULTY_CALLS; call++) {
        if (faulty_number(at, words[call], UINT64_MAX, &config->fail_at)) {
            config->fail_call = (enum faulty_call)call;
            return true;
        }
    }
    return false;
}

bool faulty_parse(const char *text, struct faulty_config *ret_config)
{
    struct faulty_config config = {.fail_call = FAULTY_NONE};
    const char *at = text;
    while (*at != '\0') {
        uint64_t number = 0;
        if (faulty_number(&at, "again:", UINT32_MAX, &number)) {
            config.again_every = (uint32_t)number;
        } else if (faulty_number(&at, "chance:", 99, &number)) {
            config.again_chance = (uint32_t)number;
        } else if (faulty_number(&at, "late:", UINT32_MAX, &number)) {
            config.late = (uint32_t)number;
        } else if (!faulty_number(&at, "flip:", UINT64_MAX, &config.flip) &&
                   !faulty_number(&at, "seed:", UINT64_MAX, &config.seed) &&
                   !faulty_parse_fail(&at, &config)) {
            return false;
        }
    }
    if (config.again_every == 1) { /* no call would ever succeed */
        return false;
    }
    *ret_config = config;
    return true;
}

bool faulty_from_env(void)
{
    const char *text = getenv("HOOP_TEST_FAULT");
    if (text == NULL || *text == '\0') {
        return true;
    }
    struct faulty_config config;
    if (!faulty_parse(text, &config)) {
        return false;
    }
    faulty_configure(&config);
    hoop_transport_decorate = faulty_decorate;
    return true;
}
