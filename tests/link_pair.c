/* See link_pair.h. */
#include "link_pair.h"
#include "faulty.h"
#include "memory.h"
#include <string.h>

#define PAIR_TRIES 2000

_Thread_local unsigned item_turns;

static void pair_region_died(uint64_t id, uint32_t generation)
{
    hoop_region_forget(PAIR_OTHER_PROCESS, id, generation);
}

const struct hoop_transport *pair_transport(int argc, char **argv)
{
    const struct hoop_transport *const *at = hoop_transports;
    while (*at != NULL && (argc < 2 || strcmp((*at)->name, argv[1]) != 0)) {
        at++;
    }
    hoop_region_on_death(pair_region_died);
    const bool faulty = argc == 3 && strcmp(argv[2], "faulty") == 0;
    if (*at == NULL || argc > 3 || (argc == 3 && !faulty)) {
        return NULL;
    }
    return faulty ? faulty_decorate(*at) : *at;
}

static hoop_result_t pair_import(void *arg, uint32_t peer, uint64_t region_id, uint32_t generation,
                                 void **ret_base, uint64_t *ret_bytes)
{
    struct pair *pair = arg;
    (void)peer;
    hoop_result_t result =
        hoop_region_use(PAIR_OTHER_PROCESS, region_id, generation, ret_base, ret_bytes);
    if (result == HOOP_OK) {
        pair->region = region_id;
        pair->generation = generation;
    }
    if (result != HOOP_AGAIN) {
        return result;
    }
    int fd = -1;
    uint64_t bytes = 0;
    uint32_t kind = 0;
    result = hoop_region_export(region_id, generation, &fd, &bytes, &kind);
    if (result == HOOP_OK) {
        result = hoop_region_import(PAIR_OTHER_PROCESS, region_id, generation, kind, bytes, fd);
    }
    return result == HOOP_OK ? HOOP_AGAIN : result;
}

static void pair_wake(void *arg, uint32_t peer)
{
    ((struct pair *)arg)->wakes[peer]++;
}

struct hoop_link_params pair_params(struct pair *pair, bool sending)
{
    return (struct hoop_link_params){
        .comm_id = PAIR_COMM,
        .epoch = 3,
        .me = sending ? PAIR_SENDER : PAIR_RECEIVER,
        .peer = sending ? PAIR_RECEIVER : PAIR_SENDER,
        .lane = PAIR_LANE,
        .sending = sending,
        .slots = pair->slots,
        .chunk_bytes = pair->chunk_bytes,
        .import = pair_import,
        .wake = pair_wake,
        .arg = pair,
    };
}

hoop_result_t pair_create(struct pair *pair, const struct hoop_transport *transport, uint32_t slots,
                          uint64_t chunk_bytes)
{
    *pair = (struct pair){.transport = transport, .slots = slots, .chunk_bytes = chunk_bytes};
    const struct hoop_link_params sending = pair_params(pair, true);
    const struct hoop_link_params receiving = pair_params(pair, false);
    hoop_result_t result =
        hoop_link_create(transport, &sending, &pair->sender, &pair->sender_blob, &pair->failure);
    if (result == HOOP_OK) {
        result = hoop_link_create(transport, &receiving, &pair->receiver, &pair->receiver_blob,
                                  &pair->failure);
    }
    return result;
}

hoop_result_t pair_bind(struct hoop_link *link, const struct hoop_blob *blob)
{
    hoop_result_t result = HOOP_AGAIN;
    for (int i = 0; result == HOOP_AGAIN && i < PAIR_TRIES; i++) {
        result = hoop_link_bind(link, blob);
    }
    return result == HOOP_AGAIN ? HOOP_TIMEOUT : result;
}

hoop_result_t pair_open(struct pair *pair, const struct hoop_transport *transport, uint32_t slots,
                        uint64_t chunk_bytes)
{
    hoop_result_t result = pair_create(pair, transport, slots, chunk_bytes);
    if (result == HOOP_OK) {
        result = pair_bind(pair->sender, &pair->receiver_blob);
    }
    if (result == HOOP_OK) {
        result = pair_bind(pair->receiver, &pair->sender_blob);
    }
    return result;
}

void pair_close(struct pair *pair)
{
    hoop_link_destroy(pair->sender);
    hoop_link_destroy(pair->receiver);
    pair->sender = NULL;
    pair->receiver = NULL;
    if (pair->region != 0) {
        hoop_region_unuse(PAIR_OTHER_PROCESS, pair->region, pair->generation);
        pair->region = 0;
    }
}

void item_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct item *item = (struct item *)(void *)xfer;
    item->done++;
    item->result = result;
    item->turn = ++item_turns;
}

void item_fill(struct item *item, void *data, size_t bytes, uint32_t number)
{
    *item = (struct item){.xfer = {.data = data,
                                   .bytes = bytes,
                                   .op = number,
                                   .chunk = (uint64_t)number << 33,
                                   .done = item_done}};
}

hoop_result_t pair_send(struct pair *pair, struct item *item, const void *data, size_t bytes,
                        uint32_t number)
{
    item_fill(item, (void *)(uintptr_t)data, bytes, number);
    hoop_result_t result = HOOP_AGAIN;
    for (int i = 0; result == HOOP_AGAIN && i < PAIR_TRIES; i++) {
        result = hoop_link_send(pair->sender, &item->xfer);
        if (result == HOOP_AGAIN) {
            (void)hoop_link_progress(pair->sender);
        }
    }
    return result;
}

hoop_result_t pair_recv(struct pair *pair, struct item *item, void *data, size_t bytes,
                        uint32_t number)
{
    item_fill(item, data, bytes, number);
    hoop_result_t result = HOOP_AGAIN;
    for (int i = 0; result == HOOP_AGAIN && i < PAIR_TRIES; i++) {
        result = hoop_link_recv(pair->receiver, &item->xfer);
        if (result == HOOP_AGAIN) {
            (void)hoop_link_progress(pair->receiver);
        }
    }
    return result;
}

static void pair_progress(struct pair *pair)
{
    if (pair->sender != NULL) {
        (void)hoop_link_progress(pair->sender);
    }
    if (pair->receiver != NULL) {
        (void)hoop_link_progress(pair->receiver);
    }
}

bool pair_until_done(struct pair *pair, const struct item *item)
{
    for (int i = 0; item->done == 0 && i < PAIR_TRIES; i++) {
        pair_progress(pair);
    }
    return item->done != 0;
}

void pair_settle(struct pair *pair)
{
    for (int i = 0; i < 32; i++) {
        pair_progress(pair);
    }
}

static uint8_t pattern_byte(size_t i, uint64_t number)
{
    return (uint8_t)((number * 131 + i * 7 + (i >> 8)) & 0xff);
}

void pattern_fill(void *data, size_t bytes, uint64_t number)
{
    uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) {
        at[i] = pattern_byte(i, number);
    }
}

bool pattern_is(const void *data, size_t bytes, uint64_t number)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != pattern_byte(i, number)) {
            return false;
        }
    }
    return true;
}

bool pair_nothing_left(void)
{
    struct hoop_region_stats stats;
    hoop_region_stats(&stats);
    return stats.regions == 0 && stats.imports == 0;
}
