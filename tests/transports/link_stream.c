/* See link_stream.h. */
#include "transports/link_stream.h"
#include "base/clock.h"
#include "harness/splitmix.h"
#include <stdlib.h>

#define HELD 3u /* the most receives lent at a time */

size_t stream_bytes(uint32_t number)
{
    uint64_t state = number;
    const uint64_t random = splitmix(&state);
    return random % 4 == 0 ? random / 4 % 65 : random / 4 % (STREAM_CHUNK + 1);
}

static bool stream_over(const struct stream *stream, uint64_t deadline)
{
    return (stream->stop != NULL && atomic_load(stream->stop)) || hoop_now_ns() > deadline;
}

static void stream_dawdle(uint64_t *random, bool moved)
{
    const uint64_t dice = splitmix(random) % 64;
    if (!moved || dice == 0) {
        sched_yield();
    }
    for (uint64_t i = 0; dice < 8 && i < dice * 20; i++) {
        hoop_cpu_relax();
    }
}

void *stream_send(void *arg)
{
    struct stream *stream = arg;
    struct hoop_link *link = stream->pair->sender;
    const uint64_t deadline = hoop_deadline_ns(STREAM_DEADLINE_MS);
    uint32_t filled = 0, posted = 0, finished = 0;
    stream->result = HOOP_OK;
    while (finished < stream->count && stream->result == HOOP_OK) {
        if (stream_over(stream, deadline)) {
            stream->result = HOOP_TIMEOUT;
        }
        if (filled == posted && posted < stream->count && posted - finished < STREAM_WINDOW) {
            uint8_t *data = stream->data + (size_t)(posted % STREAM_WINDOW) * STREAM_CHUNK;
            const size_t bytes = stream_bytes(posted);
            pattern_fill(data, bytes, posted);
            item_fill(&stream->items[posted % STREAM_WINDOW], data, bytes, posted);
            filled++;
        }
        if (posted < filled) {
            const hoop_result_t sent =
                hoop_link_send(link, &stream->items[posted % STREAM_WINDOW].xfer);
            posted += sent == HOOP_OK;
            stream->result = sent != HOOP_AGAIN && sent != HOOP_OK ? sent : stream->result;
        }
        const bool moved = hoop_link_progress(link);
        while (finished < posted && stream->items[finished % STREAM_WINDOW].done == 1 &&
               stream->items[finished % STREAM_WINDOW].result == HOOP_OK) {
            finished++;
        }
        stream_dawdle(&stream->seed, moved);
    }
    return NULL;
}

/* Releases a random one of the lent items below `seen`. */
static void stream_release(struct stream *stream, uint32_t *held)
{
    const uint32_t start = (uint32_t)splitmix(&stream->seed);
    for (uint32_t i = 0; i < STREAM_WINDOW; i++) {
        struct item *item = &stream->items[(start + i) % STREAM_WINDOW];
        if (item->xfer.lent && item->done == 2) {
            hoop_link_release(stream->pair->receiver, &item->xfer);
            (*held)--;
            return;
        }
    }
}

/* Checks what the next receive has brought. False: not done yet, or wrong. */
static bool stream_check(struct stream *stream, uint32_t number, uint32_t *held)
{
    struct item *item = &stream->items[number % STREAM_WINDOW];
    if (item->done != 1) {
        return false;
    }
    if (item->result != HOOP_OK || !pattern_is(item->xfer.data, stream_bytes(number), number)) {
        stream->result = item->result != HOOP_OK ? item->result : HOOP_INTERNAL_ERROR;
        return false;
    }
    item->done = 2; /* checked */
    *held += item->xfer.lent;
    return true;
}

void *stream_recv(void *arg)
{
    struct stream *stream = arg;
    struct hoop_link *link = stream->pair->receiver;
    const uint64_t deadline = hoop_deadline_ns(STREAM_DEADLINE_MS);
    uint32_t filled = 0, posted = 0, seen = 0, held = 0;
    stream->result = HOOP_OK;
    while ((seen < stream->count || held > 0) && stream->result == HOOP_OK) {
        if (stream_over(stream, deadline)) {
            stream->result = HOOP_TIMEOUT;
        }
        struct item *next = &stream->items[posted % STREAM_WINDOW];
        if (filled == posted && posted < stream->count && posted - seen < STREAM_WINDOW &&
            !next->xfer.lent) {
            const bool lent = splitmix(&stream->seed) % 2 == 0;
            uint8_t *data = stream->data + (size_t)(posted % STREAM_WINDOW) * STREAM_CHUNK;
            item_fill(next, lent ? NULL : data, stream_bytes(posted), posted);
            filled++;
        }
        if (posted < filled) {
            const hoop_result_t result = hoop_link_recv(link, &next->xfer);
            posted += result == HOOP_OK;
            stream->result = result != HOOP_AGAIN && result != HOOP_OK ? result : stream->result;
        }
        const bool moved = hoop_link_progress(link);
        while (seen < posted && stream_check(stream, seen, &held)) {
            seen++;
        }
        if (held >= HELD || (held > 0 && (seen == stream->count || !moved))) {
            stream_release(stream, &held);
        }
        stream_dawdle(&stream->seed, moved);
    }
    return NULL;
}

bool stream_init(struct stream *stream, struct pair *pair, uint32_t count, uint64_t seed)
{
    *stream = (struct stream){.pair = pair, .count = count, .seed = seed};
    stream->data = malloc(STREAM_DATA_BYTES);
    return stream->data != NULL;
}
