/* What a comm has learned about copying to others (see copies.h). */
#include "cost/copies.h"

#include "base/settings.h"
#include "runtime/copy.h"

#include <assert.h>

/* Each way is tried once in so many rounds, at their beginning: at first, later, and at most. */
#define COPIES_EVERY_AT_FIRST 64u
#define COPIES_EVERY 256u
#define COPIES_EVERY_MOST 512u
#define COPIES_WORTH(ns) ((ns) + (ns) / 16)

uint32_t hoop_copies_may(void)
{
    enum { MEASURED, NEVER, ALWAYS };
    const int asked = HOOP_COPY_PAST ? hoop_settings()->nontemporal : NEVER;
    return (asked != ALWAYS ? 1u << HOOP_COPY_ORDINARY : 0) |
           (asked != NEVER ? 1u << HOOP_COPY_NONTEMPORAL : 0);
}

uint32_t hoop_copies_size(uint64_t bytes)
{
    uint32_t size = 0;
    while (size < HOOP_COPIES_SIZES - 1 && bytes / HOOP_COPIES_LEAST_ROOTED >> size > 1) {
        size++;
    }
    return size;
}

/* The first way allowed, unless another one is faster by more than chance. */
static enum hoop_copy copies_fastest(const struct hoop_copies_row *row, uint32_t may)
{
    uint32_t ret = (uint32_t)__builtin_ctz(may);
    for (uint32_t how = ret + 1; how < HOOP_COPY_COUNT; how++) {
        if ((may >> how & 1) != 0 && row->ns[how] != 0 &&
            COPIES_WORTH((uint64_t)row->ns[how]) < row->ns[ret]) {
            ret = how;
        }
    }
    return (enum hoop_copy)ret;
}

/* In how many rounds is this way tried once? Where all ranks time the same calls that does not
 * depend on what they have heard. Powers of two, so that ranks that time alone, but wait for each
 * other, nearly always try at the same time. A round costs half a good one more than is known,
 * because at its beginning the caches are cold. */
static uint64_t copies_every(const struct hoop_copies_row *row, uint32_t how, uint32_t around,
                             uint32_t best)
{
    const uint64_t ns = row->ns[how], best_ns = row->ns[best];
    uint64_t every = COPIES_EVERY_AT_FIRST;
    if (row->warm == 0 || ns == 0 || best_ns == 0) {
        return row->calls / around < COPIES_EVERY ? every : COPIES_EVERY;
    }
    while (every < COPIES_EVERY_MOST &&
           every * best_ns < COPIES_EVERY_AT_FIRST * (2 * ns - best_ns)) {
        every *= 2;
    }
    return every;
}

/* Begins a round in the next way that is due; if there is none, it looks again later. */
static void copies_begin(struct hoop_copies_row *row, uint32_t around, uint32_t may, uint32_t best)
{
    const uint64_t period = (uint64_t)around * COPIES_EVERY_AT_FIRST;
    for (uint32_t how = 0; how < HOOP_COPY_COUNT; how++) {
        const uint64_t every = around * copies_every(row, how, around, best);
        if ((may >> how & 1) != 0 && row->tried[how] <= row->calls - row->calls % every) {
            row->end = row->calls + around;
            if (row->calls == 0) {
                row->end += row->warm > around ? row->warm : around;
            }
            row->tried[how] = row->end;
            row->how = (enum hoop_copy)how;
            return;
        }
    }
    row->look = row->calls + period - row->calls % period;
}

enum hoop_copy hoop_copies_next(struct hoop_copies_row *row, uint32_t around, uint32_t may,
                                bool *ret_timed)
{
    const enum hoop_copy best = copies_fastest(row, may);
    assert(around > 0);
    if (row->calls >= row->end && row->calls >= row->look) {
        copies_begin(row, around, may, best);
    }
    row->tries = row->calls++ < row->end;
    *ret_timed = row->tries && row->calls > around && (row->end - row->calls) % around == 0;
    return row->tries ? row->how : best;
}

void hoop_copies_add(struct hoop_copies_row *row, enum hoop_copy how, uint64_t ns)
{
    const uint32_t took = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX, before = row->ns[how];
    /* A slow outlier, which may have any cause, counts as at most twice the mean so far. */
    const uint64_t most = 2ull * before;
    row->ns[how] = before == 0 || took <= before
                       ? took
                       : (uint32_t)((before + (took < most ? took : most)) / 2);
}
